"""Location of records without labels: the mean and the geometric median."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dpfit.core import Answer, Chain, Minimize, Plan, Release
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import Bounds, HuberDistance
from dpfit.mechanisms.mean import BoundedMean as MeanQuery
from dpfit.mechanisms.mean import gaussian_mean, laplace_mean
from dpfit.mechanisms.private_bounds import ColumnRanges, private_bounds
from dpfit.models.base import PrivateEstimator, all_or_nothing
from dpfit.models.inputs import require_numbers, validated
from dpfit.models.intervals import Ends, noise_reach
from dpfit.models.ranges import BOUNDS_SHARE, ends
from dpfit.models.scaling import Scaling, scaled
from dpfit.privacy import Budget
from dpfit.solvers.auto import auto

Floats = NDArray[np.float64]


@dataclass(eq=False, repr=False)
class PrivateLocation(PrivateEstimator):
    """A point near the records; ``location_`` has it.

    ``bounds``: public ranges ``(lower, upper)``, numbers or one for each column; values outside are moved to the
    nearest end. Not given (or "private"): a tenth of the budget finds a range for each column first.
    """

    _: KW_ONLY
    bounds: Any = None

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the point; charges the ledger, if there is one, before the records are read."""
        require_numbers("X", X, axes=2)
        rows = validated(self, X, dtype=np.float64, ensure_min_samples=self._least_records)
        release, scaling, shares = self._release(InMemory(rows, np.zeros(len(rows))))
        shares = np.clip(shares, -1.0, 1.0)
        # Not by the middle and the width: the width of a range may be above the largest number.
        self.location_ = (1 - shares) / 2 * np.array(scaling.lower) + (1 + shares) / 2 * np.array(scaling.upper)
        self._keep(release, scaling)
        return self

    def _release(self, data: InMemory) -> tuple[Release, Scaling, Floats]:
        """Plan, charge, run; returns the release, the scaling that was used and the point in scaled ranges."""
        n = self._public_n(data.n)
        budget, scaling = self._budget(n), self._public_scaling(data.width)
        if scaling.lower is not None:
            release = self._run(scaled(self._solve(n, data.width, budget), scaling), data)
            return release, scaling, np.asarray(release.value)
        first, second = budget.split(BOUNDS_SHARE)
        missing = ColumnRanges(data.width)
        ranges = private_bounds.plan(Answer(n=n, workload=missing), first)
        inside = scaled(self._solve(n, data.width, second), scaling, missing)
        release = self._run(Chain((ranges, inside)), data)
        found, value = release.value
        return release, scaling.within(missing, found), np.asarray(value)

    def _public_scaling(self, columns: int) -> Scaling:
        """The scaling from declared ranges; without ranges if these are to be found privately."""
        if isinstance(self.bounds, str) and self.bounds != "private":
            raise ValueError(f"bounds must be a pair (lower, upper) or 'private', got {self.bounds!r}")
        if self.bounds is None or isinstance(self.bounds, str):
            return Scaling(math.sqrt(columns))
        return Scaling(math.sqrt(columns), 0.0, *ends(self.bounds, columns))

    @property
    def location_noise_interval_(self) -> Ends:
        """What each entry would have been without privacy noise, with probability 0.95; it covers that noise alone.

        Ranges that were found privately count as given. From the plan and the released point, so it costs nothing.
        AttributeError where the effect of noise depends on the records, as that on a geometric median does.
        """
        check_is_fitted(self)
        half = np.array(self.scaling_.upper) / 2 - np.array(self.scaling_.lower) / 2
        # Entries are moved into their ranges, which brings them no farther from what lies in the ranges anyway.
        return Ends.around(self.location_, noise_reach(self.plan_, 0.95).length * half)

    def _solve(self, n: int, columns: int, budget: Budget) -> Plan:
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


class BoundedMean(PrivateLocation):
    """The mean of records in public ranges (``bounds``), or privately found ones, under differential privacy.

    >>> import numpy as np
    >>> X = np.linspace(0, 10, 10_001)[:, None]
    >>> bool(abs(BoundedMean(epsilon=1.0, bounds=(0, 10)).fit(X).location_[0] - 5) < 0.1)
    True
    """

    def _solve(self, n: int, columns: int, budget: Budget) -> Plan:
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

    def _solve(self, n: int, columns: int, budget: Budget) -> Plan:
        radius = math.sqrt(columns)
        problem = Minimize(
            n=n, loss=HuberDistance(0.1), bounds=Bounds(radius), n_features=columns, domain=L2Ball(columns, radius)
        )
        return auto.plan(problem, budget)
