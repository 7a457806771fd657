"""Linear regressors: mean, Huber, robust and quantile regression."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import assert_all_finite

from dpfit.data.schema import Number
from dpfit.losses import GemanMcClure, Huber, QuantileHuber, Squared
from dpfit.losses.base import Loss
from dpfit.models.base import atomic_fit
from dpfit.models.inputs import Column, Floats, Rows, as_numbers, require_numbers
from dpfit.models.leaks import is_from_data, warn_of_score
from dpfit.models.linear import PrivateModel
from dpfit.models.row_norm import signal
from dpfit.models.scaling import Scaling
from dpfit.privacy import Budget
from dpfit.privacy.validate import positive, real

_SHARPNESS, _NARROWEST, _WIDEST, _DESCENT_WIDTH = 1.4, 0.002, 0.4, 0.015
"""Widths of rounded corners: see `corner_widths`."""


@dataclass(eq=False, repr=False)
class PrivateRegressor(RegressorMixin, PrivateModel):  # type: ignore[misc]
    """Labels scaled by a public (or privately found) range."""

    _: KW_ONLY
    y_bounds: Iterable[float] | None = None

    _labels_have_range = True

    def _label_bounds(self) -> tuple[float, float] | None:
        if self.y_bounds is None:
            target = None if self.schema is None else self.schema.target
            return (target.lower, target.upper) if isinstance(target, Number) else None
        try:
            low, high = map(float, self.y_bounds)
        except (TypeError, ValueError, OverflowError):
            raise ValueError("y_bounds must be a pair (lower, upper) of numbers") from None
        return low, high

    @atomic_fit
    def fit(self, X: Rows, y: Column, user_ids: Column = None) -> Self:
        """Fit the model; charges the ledger, if there is one, before the records are read."""
        rows, labels = self._validated(X, y)
        require_numbers("y", y)
        if self.y_bounds is None and is_from_data(self.bounds):
            assert_all_finite(labels, input_name="y")  # the records are read for their range anyway
        release, scaling, weights = self._release(rows, as_numbers(labels), user_ids)
        self._set_weights(weights, scaling)
        self._set_fitted(release, scaling)
        return self

    def _set_weights(self, weights: Floats, scaling: Scaling) -> None:
        self.weights_ = weights
        coefficients, intercept = scaling.unscaled(weights)
        self.coef_, self.intercept_ = coefficients[0], float(intercept[0])

    def predict(self, X: Rows) -> Floats:
        """Predictions in the units of the labels; rows are bounded as in training."""
        shares = self._outputs(self._rows(X))
        middle, half = self.scaling_.label_range
        return np.asarray(middle + half * shares)

    def score(self, X: Rows, y: Column, sample_weight: Column = None) -> float:
        """R squared: NOT private if the records are; `dpfit.models.private_score` is."""
        warn_of_score()
        return float(super().score(X, y, sample_weight))


class LinearRegression(PrivateRegressor):
    """Least squares under differential privacy, with large residuals tempered.

    Guarantee: as `LogisticRegression`. The loss is squared up to a residual of a tenth of the label
    range and linear beyond (more when the budget is generous, so that the fit becomes that of least
    squares): this bounds what one record can do. ``y_bounds`` is the public range of the labels;
    not given, it is found with the columns' ranges. ``solver="sufficient_statistics"`` takes
    squared residuals throughout: labels and rows are bounded, and noise is put on their products.

    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 20_000)[:, None]
    >>> model = LinearRegression(epsilon=1.0, bounds=(-1, 1), y_bounds=(0, 10)).fit(
    ...     X, 5 + 3 * X[:, 0]
    ... )
    >>> bool(abs(model.predict([[0.5]])[0] - 6.5) < 0.5)
    True
    """

    def _losses(self, budget: Budget, n: int, n_features: int) -> tuple[Loss, ...]:
        return Huber(0.2 * min(max(1.0, signal(budget, n, n_features) / 2000), 20.0)), Squared()


@dataclass(eq=False, repr=False)
class Ridge(LinearRegression):
    """`LinearRegression` plus ``ridge / 2`` times the squared norm of the scaled weights."""

    _: KW_ONLY
    ridge: float = 1e-3


@dataclass(eq=False, repr=False)
class HuberRegressor(PrivateRegressor):
    """Huber regression under differential privacy.

    ``width`` is the residual from which the loss is linear, as a fraction of half the label range.

    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 20_000)[:, None]
    >>> model = HuberRegressor(epsilon=1.0, bounds=(-1, 1), y_bounds=(0, 10)).fit(
    ...     X, 5 + 3 * X[:, 0]
    ... )
    >>> bool(abs(model.predict([[0.5]])[0] - 6.5) < 0.5)
    True
    """

    _: KW_ONLY
    width: float = 0.2

    def _losses(self, budget: Budget, n: int, n_features: int) -> tuple[Loss, ...]:
        return (Huber(positive("width", self.width)),)


@dataclass(eq=False, repr=False)
class RobustRegressor(PrivateRegressor):
    """Regression that ignores bad labels, under differential privacy.

    Many bad labels on one side, 30% say, pull every convex loss. This loss levels off
    (`GemanMcClure`): labels far from the prediction do not pull. The fit starts at a private Huber
    fit, and finds privately how far good labels spread: see `dpfit.solvers.gradient.robust_gd`.

    Guarantee: as `LogisticRegression`, for any labels. It needs ``delta``.

    ``width`` is the largest residual scale that is considered, as a fraction of half the label
    range. The fitted width is twice the median residual, if that is less.

    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 20_000)[:, None]
    >>> y = np.where(np.arange(20_000) % 10 < 3, 9.0, 5 + 3 * X[:, 0])
    >>> model = RobustRegressor(epsilon=1.0, delta=1e-6, bounds=(-1, 1), y_bounds=(0, 10))
    >>> bool(abs(model.fit(X, y).predict([[0.5]])[0] - 6.5) < 0.5)
    True
    """

    _: KW_ONLY
    width: float = 0.25

    def _losses(self, budget: Budget, n: int, n_features: int) -> tuple[Loss, ...]:
        if budget.kind == "pure":
            raise ValueError(
                "RobustRegressor needs delta > 0 (below 0.01 / n): no solver of pure epsilon takes "
                "its loss; pass delta, or use HuberRegressor"
            )
        if budget.unit == "user":
            raise ValueError(
                "RobustRegressor does not average the records of a user; pass max_rows_per_user, "
                "the largest number of records of one user that are used"
            )
        return (GemanMcClure(positive("width", self.width)),)


@dataclass(eq=False, repr=False)
class QuantileRegressor(PrivateRegressor):
    """Quantile regression under differential privacy, for the ``quantile`` in (0, 1).

    The corner of the loss is rounded: around the quantile, so that the fit moves by the square of
    the width only. How wide depends on the budget: see `corner_widths`.

    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 20_000)[:, None]
    >>> model = QuantileRegressor(epsilon=1.0, bounds=(-1, 1), y_bounds=(0, 10))
    >>> bool(abs(model.fit(X, 5 + 3 * X[:, 0]).predict([[0.5]])[0] - 6.5) < 0.5)
    True
    """

    _: KW_ONLY
    quantile: float = 0.5

    def _losses(self, budget: Budget, n: int, n_features: int) -> tuple[Loss, ...]:
        level = real("quantile", self.quantile)
        if not 0 < level < 1:
            raise ValueError(f"quantile must lie strictly between 0 and 1, got {level!r}")
        widths = corner_widths(budget, n, n_features)
        return tuple(QuantileHuber(level, width, centred=True) for width in widths)


def corner_widths(budget: Budget, n: int, dimension: int) -> tuple[float, ...]:
    """Return the widths over which a quantile loss may be rounded, over half the label range.

    Perturbed minimizers lose by a sharp corner, which asks for a stronger ridge: their width
    follows the budget down, to where rounding moves a quantile by less than 1e-6. Descents reach
    the quantile in the planned passes if the corner is not too sharp. Both are planned where there
    is a delta; the least predicted risk decides. Set by benchmarks/quantiles.py.

    >>> [round(width, 3) for width in corner_widths(Budget(epsilon=1.0), 10_000, 4)]
    [0.028]
    """
    clear = signal(budget, n, dimension)
    perturbed = max(_NARROWEST, _SHARPNESS / math.sqrt(clear)) if clear else _WIDEST
    perturbed = min(perturbed, _WIDEST)
    if budget.kind == "pure":
        return (perturbed,)
    descended = min(_DESCENT_WIDTH * max(1.0, dimension / 16), 0.1)
    return tuple(dict.fromkeys((descended, min(perturbed, descended))))
