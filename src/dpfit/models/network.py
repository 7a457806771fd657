"""Networks of dense layers, fitted by noisy gradient descent with clipped gradients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np

from dpfit.core.notes import Advice, Tuned, Tuning
from dpfit.losses.base import Loss
from dpfit.losses.dense import DenseLayers, Layer
from dpfit.mechanisms.private_bounds import ColumnRanges
from dpfit.models.classifiers import ProbabilisticClassifier
from dpfit.models.inputs import Floats, Matrix, is_sparse
from dpfit.models.linear import PrivateModel
from dpfit.models.regressors import PrivateRegressor
from dpfit.models.request import Request
from dpfit.models.scaling import Scaling
from dpfit.privacy import Budget
from dpfit.privacy.validate import integer
from dpfit.solvers.gradient.dp_sgd import dp_sgd
from dpfit.solvers.gradient.noisy_gd import noisy_gd


@dataclass(frozen=True)
class NetworkDefaults(Tuning):
    """Tuned defaults of the networks.

    Parameters
    ----------
    label_scale : float
        Labels in [-1, 1] are compared with the output over this number: residuals then have size 1.
    passes : int
        Passes over the data.
    sampled_above : int
        Records above which samples take the place of full passes: a tenth of the work, equal
        quality.
    linear_below : float
        Records times epsilon below which a linear model is predicted to be better.
    """

    kind = "network_defaults"
    set_by: str = "benchmarks/nonconvex.py"
    label_scale: float = 4.0
    passes: int = 200
    sampled_above: int = 100_000
    linear_below: float = 1e4


TUNING = NetworkDefaults()


@dataclass(eq=False, repr=False)
class NetworkModel(PrivateModel):
    """What both networks share: the loss, the request, the weights; see `NetworkRegressor`."""

    delta: float = 1e-6
    _: KW_ONLY
    hidden: Iterable[int] = (32,)
    start: int = 0

    linear_model = ""
    """The linear model that the plan names at little data or budget."""

    @property
    def network_loss(self) -> DenseLayers:
        """The loss of the network, from public facts."""
        raise NotImplementedError

    @property
    def layers_(self) -> list[Layer]:
        """The released weights and biases of each layer, for scaled rows."""
        columns = self.n_features_in_ if self.schema is None else len(self.schema.names)
        return self.network_loss.layers(self.weights_, columns)

    @property
    def _units(self) -> tuple[int, ...]:
        try:
            return tuple(integer("hidden", units) for units in self.hidden)
        except TypeError:
            raise ValueError(
                "hidden must have one number of units for each layer, as in (32,)"
            ) from None

    def _losses(self, budget: Budget, n: int, n_features: int) -> tuple[Loss, ...]:
        return (self.network_loss,)

    def _public_scaling(self, columns: int) -> tuple[Scaling, ColumnRanges | None]:
        # Layers have biases: rows need no constant.
        scaling, missing = super()._public_scaling(columns)
        return replace(scaling, constant=0.0), missing

    def _request(self, n: int, columns: int, **facts: Any) -> Request:
        for name, value in (("public", self.public), ("l1_radius", self.l1_radius)):
            if value is not None:
                raise ValueError(
                    f"{name} must be left out for a network; use {self.linear_model}, which takes "
                    "it"
                )
        request = super()._request(n, columns, **facts)
        solver, passes = self.solver, self.max_passes
        if solver == "auto":
            many = (
                request.n > TUNING.sampled_above and request.budget.unit == "record" and not passes
            )
            solver = dp_sgd if many else noisy_gd
            passes = None if many else passes or TUNING.passes
        objective = replace(request.objective, solver=solver, max_passes=passes)  # type: ignore[type-var]
        notes = (
            *request.notes,
            Tuned(TUNING),
            *self._advice(request.n_users or request.n, request.budget),
        )
        return replace(request, objective=objective, notes=notes)

    def _advice(self, n: int, budget: Budget) -> tuple[Advice, ...]:
        signal = n * float(budget.epsilon or 0.0)
        if signal >= TUNING.linear_below:
            return ()
        said = f"records times epsilon are {signal:,.6g}, below {TUNING.linear_below:,.6g}"
        better = f"a linear model is predicted to be better; use {self.linear_model}"
        return (Advice(f"{said}: {better}"),)

    def _set_weights(self, weights: Floats, scaling: Scaling) -> None:
        self.weights_ = weights

    def _outputs(self, rows: Matrix) -> Floats:
        dense = np.asarray(rows.toarray() if is_sparse(rows) else rows, dtype=np.float64)
        return self.network_loss.forward(self.layers_, dense)[-1]


@dataclass(eq=False, repr=False)
class NetworkRegressor(NetworkModel, PrivateRegressor):
    """A network for regression under differential privacy; nothing to tune.

    Use it for curved relations with much data: below about 1e4 records times epsilon the plan
    advises a linear model.
    Guarantee: (epsilon, delta)-DP for one record, for any data: the gradient of each record is
    clipped. Arithmetic is idealised (docs/explanation/networks.md).
    Work: ``max_passes`` passes over the data; 20 above 100,000 records.

    Parameters
    ----------
    epsilon, delta, relation, n_declared, ledger, dataset, random_state
        As in `LogisticRegression`; ``delta`` must be above 0.
    bounds, row_norm, schema, ridge
        Likewise. State ranges that typical values fill: others are moved to the nearest end.
    y_bounds : pair of float, optional
        Public range of the labels. By default a tenth of the budget finds it privately.
    hidden : iterable of int, default=(32,)
        Units of each hidden layer, with tanh between them.
    start : int, default=0
        Public number of the starting weights. Others give another fit of the same quality.
    max_passes : int, optional
        Steps of `noisy_gd`, 200 by default. If it is given, all records are read in each step.
    solver : str or Algorithm, default="auto"
        `noisy_gd`; above 100,000 records `dp_sgd`, which reads the data 20 times.

    Examples
    --------
    >>> X = np.linspace(-1, 1, 20_000)[:, None]
    >>> model = NetworkRegressor(epsilon=2.0, bounds=(-1, 1), y_bounds=(0, 1), hidden=(8,))
    >>> model = model.fit(X, X[:, 0] ** 2)
    >>> bool(abs(model.predict([[0.0]])[0]) < 0.1 < 0.6 < model.predict([[0.9]])[0])
    True
    """

    linear_model = "LinearRegression"

    @property
    def network_loss(self) -> DenseLayers:
        return DenseLayers(self._units, "squared", label_scale=TUNING.label_scale, start=self.start)

    def _outputs(self, rows: Matrix) -> Floats:
        return np.asarray(super()._outputs(rows)[:, 0] / TUNING.label_scale)


@dataclass(eq=False, repr=False)
class NetworkClassifier(NetworkModel, ProbabilisticClassifier):
    """A network for two or more classes under differential privacy; nothing to tune.

    Guarantee, work and parameters as `NetworkRegressor`; ``classes`` as in `LogisticRegression`.

    Examples
    --------
    >>> X = np.linspace(-1, 1, 20_000)[:, None]
    >>> model = NetworkClassifier(epsilon=2.0, bounds=(-1, 1), hidden=(8,))
    >>> model.fit(X, abs(X[:, 0]) > 0.5).predict([[-0.9], [0.0], [0.9]])
    array([ True, False,  True])
    """

    linear_model = "LogisticRegression"

    @property
    def network_loss(self) -> DenseLayers:
        number = self._n_classes()
        if number > 2:
            return DenseLayers(self._units, "softmax", number, start=self.start)
        return DenseLayers(self._units, "logistic", start=self.start)
