"""Location of records without labels: the mean and the geometric median."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import HuberDistance
from dpfit.mechanisms.private_bounds import ColumnRanges
from dpfit.models.base import PrivateEstimator, atomic_fit
from dpfit.models.inputs import Column, Floats, Rows, require_numbers, validated
from dpfit.models.intervals import Ends, noise_bound
from dpfit.models.ranges import ColumnBounds, column_bounds
from dpfit.models.request import LossObjective, MeanObjective, Objective, Request
from dpfit.models.scaling import Scaling


@dataclass(eq=False, repr=False)
class PrivateLocation(PrivateEstimator):
    """A point near the records; ``location_`` has it.

    ``bounds``: public ranges ``(lower, upper)``, numbers or one for each column; values outside are
    moved to the nearest end. Not given (or "private"): a tenth of the budget finds a range for each
    column first.
    """

    _: KW_ONLY
    bounds: ColumnBounds | str | None = None

    @atomic_fit
    def fit(self, X: Rows, y: Column = None) -> Self:
        """Find the point; charges the ledger, if there is one, before the records are read."""
        require_numbers("X", X, axes=2)
        rows = validated(self, X, dtype=np.float64, ensure_min_samples=self._least_records)
        data = InMemory(rows, np.zeros(len(rows)))
        request = self._request(self._declared_n(data.n), data.width)
        release = self._run(request.plan(), data)
        scaling, shares = (
            request.used_scaling(release),
            np.clip(np.asarray(release.output), -1.0, 1.0),
        )
        # Not by the middle and the width: the width of a range may be above the largest number.
        self.location_ = (1 - shares) / 2 * np.array(scaling.lower) + (1 + shares) / 2 * np.array(
            scaling.upper
        )
        self._set_fitted(release, scaling)
        return self

    def _request(self, n: int, columns: int) -> Request:
        scaling = self._public_scaling(columns)
        missing = ColumnRanges(columns) if scaling.lower is None else None
        return Request(
            n,
            columns,
            self._budget(n),
            self._objective(columns),
            scaling,
            missing,
            currency=self._currency,
            compare=False,
        )

    def _public_scaling(self, columns: int) -> Scaling:
        """The scaling from declared ranges; without ranges if these are to be found privately."""
        if isinstance(self.bounds, str) and self.bounds != "private":
            raise ValueError(
                f"bounds must be a pair (lower, upper) or 'private', got {self.bounds!r}"
            )
        if self.bounds is None or isinstance(self.bounds, str):
            return Scaling(math.sqrt(columns))
        return Scaling(math.sqrt(columns), 0.0, *column_bounds(self.bounds, columns))

    @property
    def location_noise_interval_(self) -> Ends[Floats]:
        """Each entry without privacy noise, with probability 0.95; covers that noise alone.

        Ranges that were found privately count as given. From the plan and the released point, so it
        costs nothing. AttributeError where the effect of noise depends on the records, as that on a
        geometric median does.
        """
        check_is_fitted(self)
        half = np.array(self.scaling_.upper) / 2 - np.array(self.scaling_.lower) / 2
        # Entries are moved into their ranges, which brings them no farther from what lies in the
        # ranges anyway.
        return Ends.around(self.location_, noise_bound(self.plan_, 0.95).length * half)

    def _objective(self, columns: int) -> Objective:
        raise NotImplementedError

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


class BoundedMean(PrivateLocation):
    """The mean of records in public or privately found ranges, under differential privacy.

    >>> import numpy as np
    >>> X = np.linspace(0, 10, 10_001)[:, None]
    >>> bool(abs(BoundedMean(epsilon=1.0, bounds=(0, 10)).fit(X).location_[0] - 5) < 0.1)
    True
    """

    def _objective(self, columns: int) -> Objective:
        return MeanObjective()


class GeometricMedian(PrivateLocation):
    """The point of least mean distance to records, in ranges scaled to [-1, 1], under DP.

    Distances below a tenth of half the range count by their squares, which makes the median unique
    and the fit certain.

    >>> import numpy as np
    >>> X = np.tile([[1.0, 1.0], [1.2, 0.8], [9.0, -9.0]], (3000, 1))
    >>> median = GeometricMedian(epsilon=1.0, bounds=(-10, 10)).fit(X).location_
    >>> bool(np.linalg.norm(median - [1.1, 0.9]) < 2)
    True
    """

    def _objective(self, columns: int) -> Objective:
        ball = L2Ball(columns, math.sqrt(columns))
        return LossObjective(lambda budget, n, n_features: (HuberDistance(0.1),), domain=ball)
