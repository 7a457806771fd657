"""Linear regressors: mean, Huber and quantile regression."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import assert_all_finite

from dpfit.losses import Huber, Pinball
from dpfit.losses.base import Loss
from dpfit.models.base import PrivateModel, leaky_score, require_numbers
from dpfit.models.scaling import Scaling
from dpfit.privacy import Budget
from dpfit.privacy.check import positive

Floats = NDArray[np.float64]


class PrivateRegressor(RegressorMixin, PrivateModel):  # type: ignore[misc]
    """Labels scaled by a public (or privately found) range."""

    _labels_have_range = True

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        neighbours: str = "replace",
        n_public: int | None = None,
        max_rows_per_user: int | None = None,
        row_norm: float | None = None,
        bounds: Any = None,
        y_bounds: Any = None,
        fit_intercept: bool = True,
        ridge: float = 0.0,
        solver: str = "auto",
        max_passes: int | None = None,
        public: Any = None,
        ledger: Any = None,
        dataset: str | None = None,
        random_state: int | None = None,
    ) -> None:
        super().__init__(
            epsilon=epsilon, delta=delta, neighbours=neighbours, n_public=n_public,
            max_rows_per_user=max_rows_per_user, row_norm=row_norm, bounds=bounds,
            fit_intercept=fit_intercept, ridge=ridge, solver=solver, max_passes=max_passes, public=public,
            ledger=ledger, dataset=dataset, random_state=random_state,
        )  # fmt: skip
        self.y_bounds = y_bounds

    def _label_ends(self) -> tuple[float, float] | None:
        if self.y_bounds is None:
            return None
        try:
            low, high = map(float, self.y_bounds)
        except (TypeError, ValueError):
            raise ValueError("y_bounds must be a pair (lower, upper) of numbers") from None
        return low, high

    def fit(self, X: Any, y: Any, user_id: Any = None) -> Self:
        """Fit the model; charges the ledger, if there is one, before the records are read."""
        rows, labels = self._validated(X, y)
        require_numbers("y", labels)
        if self.bounds == "from_data":
            assert_all_finite(labels, input_name="y")  # the records are read for their range anyway
        release, scaling, weights = self._release(rows, np.asarray(labels, dtype=np.float64), user_id)
        self.weights_ = weights
        coefficients, intercept = scaling.unscaled(weights)
        self.coef_, self.intercept_ = coefficients[0], float(intercept[0])
        self._keep(release, scaling)
        return self

    def predict(self, X: Any) -> Floats:
        """Predictions in the units of the labels; rows are bounded as in training."""
        shares = np.asarray(self._rows(X) @ self.weights_)
        low, high = self.scaling_.label_lower, self.scaling_.label_upper
        if low is None or high is None:
            return shares
        return np.asarray(low / 2 + high / 2 + (high / 2 - low / 2) * shares)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R squared: NOT private if the records are; `dpfit.models.private_score` is."""
        leaky_score()
        return float(super().score(X, y, sample_weight))


class LinearRegression(PrivateRegressor):
    """Least squares under differential privacy, with large residuals tempered.

    Guarantee: as `LogisticRegression`. The loss is squared up to a residual of a tenth of the label range and linear
    beyond (more when the budget is generous, so that the fit becomes that of least squares): this bounds what one
    record can do. ``y_bounds`` is the public range of the labels; not given, it is found with the columns' ranges.

    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 20_000)[:, None]
    >>> model = LinearRegression(epsilon=1.0, bounds=(-1, 1), y_bounds=(0, 10)).fit(X, 5 + 3 * X[:, 0])
    >>> bool(abs(model.predict([[0.5]])[0] - 6.5) < 0.5)
    True
    """

    def _loss(self, scaling: Scaling, budget: Budget, n: int, features: int) -> Loss:
        return Huber(0.2 * min(max(1.0, signal(budget, n, features) / 2000), 20.0))


class Ridge(LinearRegression):
    """`LinearRegression` with a ridge: ``ridge / 2`` times the squared norm of the scaled weights is added."""

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        ridge: float = 1e-3,
        neighbours: str = "replace",
        n_public: int | None = None,
        max_rows_per_user: int | None = None,
        row_norm: float | None = None,
        bounds: Any = None,
        y_bounds: Any = None,
        fit_intercept: bool = True,
        solver: str = "auto",
        max_passes: int | None = None,
        public: Any = None,
        ledger: Any = None,
        dataset: str | None = None,
        random_state: int | None = None,
    ) -> None:
        super().__init__(
            epsilon, delta, neighbours=neighbours, n_public=n_public,
            max_rows_per_user=max_rows_per_user, row_norm=row_norm, bounds=bounds,
            y_bounds=y_bounds, fit_intercept=fit_intercept, ridge=ridge, solver=solver, max_passes=max_passes,
            public=public, ledger=ledger, dataset=dataset, random_state=random_state,
        )  # fmt: skip


class HuberRegressor(PrivateRegressor):
    """Huber regression under differential privacy; ``width`` is the residual, as a share of half the label range, from
    which the loss is linear.

    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 20_000)[:, None]
    >>> model = HuberRegressor(epsilon=1.0, bounds=(-1, 1), y_bounds=(0, 10)).fit(X, 5 + 3 * X[:, 0])
    >>> bool(abs(model.predict([[0.5]])[0] - 6.5) < 0.5)
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        width: float = 0.2,
        neighbours: str = "replace",
        n_public: int | None = None,
        max_rows_per_user: int | None = None,
        row_norm: float | None = None,
        bounds: Any = None,
        y_bounds: Any = None,
        fit_intercept: bool = True,
        ridge: float = 0.0,
        solver: str = "auto",
        max_passes: int | None = None,
        public: Any = None,
        ledger: Any = None,
        dataset: str | None = None,
        random_state: int | None = None,
    ) -> None:
        super().__init__(
            epsilon, delta, neighbours=neighbours, n_public=n_public,
            max_rows_per_user=max_rows_per_user, row_norm=row_norm, bounds=bounds,
            y_bounds=y_bounds, fit_intercept=fit_intercept, ridge=ridge, solver=solver, max_passes=max_passes,
            public=public, ledger=ledger, dataset=dataset, random_state=random_state,
        )  # fmt: skip
        self.width = width

    def _loss(self, scaling: Scaling, budget: Budget, n: int, features: int) -> Loss:
        return Huber(positive("width", self.width))


class QuantileRegressor(PrivateRegressor):
    """Quantile regression under differential privacy, for the ``quantile`` in (0, 1).

    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 20_000)[:, None]
    >>> model = QuantileRegressor(epsilon=1.0, delta=1e-6, bounds=(-1, 1), y_bounds=(0, 10))
    >>> bool(abs(model.fit(X, 5 + 3 * X[:, 0]).predict([[0.5]])[0] - 6.5) < 0.5)
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        quantile: float = 0.5,
        neighbours: str = "replace",
        n_public: int | None = None,
        max_rows_per_user: int | None = None,
        row_norm: float | None = None,
        bounds: Any = None,
        y_bounds: Any = None,
        fit_intercept: bool = True,
        ridge: float = 0.0,
        solver: str = "auto",
        max_passes: int | None = None,
        public: Any = None,
        ledger: Any = None,
        dataset: str | None = None,
        random_state: int | None = None,
    ) -> None:
        super().__init__(
            epsilon, delta, neighbours=neighbours, n_public=n_public,
            max_rows_per_user=max_rows_per_user, row_norm=row_norm, bounds=bounds,
            y_bounds=y_bounds, fit_intercept=fit_intercept, ridge=ridge, solver=solver, max_passes=max_passes,
            public=public, ledger=ledger, dataset=dataset, random_state=random_state,
        )  # fmt: skip
        self.quantile = quantile

    def _loss(self, scaling: Scaling, budget: Budget, n: int, features: int) -> Loss:
        return Pinball(float(self.quantile))


def signal(budget: Budget, n: int, dimension: int) -> float:
    """How far a sum over n records stands out of the noise of a budget, from public facts."""
    if budget.kind == "pure":
        return n * float(budget.epsilon or 0.0) / dimension
    return n * budget.gaussian_mu / math.sqrt(dimension)
