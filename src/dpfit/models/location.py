"""Location of records without labels: the mean and the geometric median."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from dpfit.core import Answer, Minimize, Plan
from dpfit.data.records import Arrays
from dpfit.geometry import L2Ball
from dpfit.losses import Bounds, HuberDistance
from dpfit.mechanisms.mean import BoundedMean as MeanQuery
from dpfit.mechanisms.mean import gaussian_mean, laplace_mean
from dpfit.models.base import PrivateEstimator, ends, require_numbers
from dpfit.models.intervals import Ends, noise_reach
from dpfit.models.scaling import Scaling
from dpfit.privacy import Budget
from dpfit.solvers.auto import auto


@dataclass(eq=False, repr=False)
class PrivateLocation(PrivateEstimator):
    """A point near the records; ``location_`` has it."""

    _: KW_ONLY
    bounds: Any = (-1.0, 1.0)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the point; charges the ledger, if there is one, before the records are read."""
        require_numbers("X", X)
        rows = validate_data(self, X, dtype=np.float64, ensure_all_finite=False)
        if isinstance(self.bounds, str):
            raise ValueError(
                f"{type(self).__name__} needs declared ranges, bounds=(lower, upper), not {self.bounds!r}; "
                "dpfit.mechanisms.ranged_mean finds the range of a column within the budget"
            )
        low, high = ends(self.bounds, rows.shape[1])
        scaling = Scaling(math.sqrt(rows.shape[1]), 0.0, low, high)
        n = self._public_n(len(rows))
        plan = self._plan(n, rows.shape[1], self._budget(n))
        release = self._run(plan, self._records(scaling.rows(rows)))
        middle, half = np.add(low, high) / 2, np.subtract(high, low) / 2
        self.location_ = middle + half * np.clip(np.asarray(release.value), -1.0, 1.0)
        self._keep(release, scaling)
        return self

    @property
    def location_noise_interval_(self) -> Ends:
        """What each entry would have been without privacy noise, with probability 0.95; it covers that noise alone.

        From the plan and the released point, so it costs nothing. AttributeError where the effect of noise depends on
        the records, as that on a geometric median does.
        """
        check_is_fitted(self)
        low, high = ends(self.bounds, self.n_features_in_)
        # Entries are moved into their ranges, which brings them no farther from what lies in the ranges anyway.
        return Ends.around(self.location_, noise_reach(self.plan_, 0.95).length * np.subtract(high, low) / 2)

    def _plan(self, n: int, columns: int, budget: Budget) -> Plan:
        raise NotImplementedError

    def _records(self, rows: Any) -> Any:
        return rows

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


class BoundedMean(PrivateLocation):
    """The mean of records in public ranges (``bounds``), under differential privacy.

    >>> import numpy as np
    >>> X = np.linspace(0, 10, 10_001)[:, None]
    >>> bool(abs(BoundedMean(epsilon=1.0, bounds=(0, 10)).fit(X).location_[0] - 5) < 0.1)
    True
    """

    def _plan(self, n: int, columns: int, budget: Budget) -> Plan:
        algorithm = laplace_mean if budget.kind == "pure" else gaussian_mean
        return algorithm.plan(Answer(n=n, workload=MeanQuery(-1.0, 1.0, columns)), budget)


class GeometricMedian(PrivateLocation):
    """The point with the least mean distance to the records, in ranges scaled to [-1, 1], under differential privacy.

    Distances below a tenth of half the range count by their squares, which makes the median unique and the fit certain.

    >>> import numpy as np
    >>> X = np.tile([[1.0, 1.0], [1.2, 0.8], [9.0, -9.0]], (3000, 1))
    >>> median = GeometricMedian(epsilon=1.0, bounds=(-10, 10)).fit(X).location_
    >>> bool(np.linalg.norm(median - [1.1, 0.9]) < 2)
    True
    """

    def _plan(self, n: int, columns: int, budget: Budget) -> Plan:
        radius = math.sqrt(columns)
        problem = Minimize(
            n=n, loss=HuberDistance(0.1), bounds=Bounds(radius), features=columns, domain=L2Ball(columns, radius)
        )
        return auto.plan(problem, budget)

    def _records(self, rows: Any) -> Any:
        return Arrays(rows, np.zeros(len(rows)))
