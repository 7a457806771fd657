"""Contributions: one bounded vector for each record, summed exactly on a grid."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

from dpfit.core.problem import Minimize
from dpfit.data.dataset import Dataset
from dpfit.kernels.bounds import Guards
from dpfit.kernels.many_points import EVERY_RECORD, Flags, many_clipped_sums
from dpfit.losses.base import Loss
from dpfit.losses.glm import GLM
from dpfit.losses.vector import LinearLoss
from dpfit.noise import Grid

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]

ROUNDING = 1 + 2.0**-40
"""Covers the rounding errors of gradients and points where nothing is clipped."""


class Contribution(ABC):
    """What a record adds to a sum. Aggregates rely on ``bound``, which `total` must enforce."""

    non_negative: bool = False
    """Whether `total` enforces vectors without negative entries."""

    if TYPE_CHECKING:

        @property
        def bound(self) -> float:
            """Largest l2 norm of a record's vector, before rounding: a field or a property."""

        @property
        def dimension(self) -> int:
            """Number of entries of the vector: a field or a property."""

    @abstractmethod
    def total(self, data: Dataset, grid: Grid) -> Steps:
        """Return the exact sum over the records, in grid steps; one sum for each stacked point."""

    def sensitivity(self, relation: str) -> float:
        """Return the sensitivity of the sum before rounding, if every round sees all records."""
        return self.bound if relation == "add_remove" else 2 * self.bound


@dataclass(frozen=True, eq=False)
class Gradient(Contribution):
    """The clipped gradient of the loss at a public point, or at a stack of points (k, d)."""

    problem: Minimize
    point: Floats
    clip_norm: float

    @property
    def bound(self) -> float:
        return self.clip_norm

    @property
    def dimension(self) -> int:
        return int(self.point.shape[-1])

    def sensitivity(self, relation: str) -> float:
        radius = self.problem.radius
        # The constants hold within the radius. Outside of it only clipping bounds what a record
        # does.
        if (
            radius is not None
            and not np.max(np.sum(self.point**2, axis=-1)) <= (radius * ROUNDING) ** 2
        ):
            return super().sensitivity(relation)
        return self.problem.clipped_sensitivity(self.clip_norm, relation)

    def total(self, data: Dataset, grid: Grid) -> Steps:
        guards = self.problem.guards | {"clip": self.clip_norm}
        if self.point.ndim == 1:
            return data.clipped_sum(self.problem.loss, self.point, grid=grid, **guards)
        return clipped_sums(data, self.problem.loss, self.point, grid=grid, **guards)


def clipped_sums(
    data: Dataset,
    loss: Loss,
    points: Floats,
    *,
    grid: Grid,
    taken: Flags | None = None,
    **guards: Unpack[Guards],
) -> Steps:
    """Return `Dataset.clipped_sum` at each of the points (k, d), by the fastest pass.

    With ``taken`` (k, n) each point has its own batch: the records that are marked for it.

    >>> from dpfit.data.dataset import InMemory
    >>> from dpfit.losses import Squared
    >>> records = InMemory([[3.0, 4.0], [1.0, 0.0]], [0.0, -1.0])
    >>> clipped_sums(
    ...     records, Squared(), np.array([[1.0, 0.0], [0.0, 0.0]]), clip=1.0, grid=Grid(-3)
    ... )
    array([[13,  6],
           [ 8,  0]])
    """
    if isinstance(loss, LinearLoss) and taken is None:
        # The gradient of a linear loss is the record, at every point.
        return np.tile(data.clipped_sum(loss, points[0], grid=grid, **guards), (len(points), 1))
    whole = data.whole if isinstance(loss, GLM) else None
    if isinstance(loss, GLM) and whole is not None and isinstance(whole.rows, np.ndarray):
        marks = EVERY_RECORD if taken is None else taken
        return many_clipped_sums(
            whole.rows, whole.labels, points, loss, grid=grid, taken=marks, **guards
        )
    if taken is None:
        return data.clipped_sum(loss, points, grid=grid, **guards)
    batches = zip(points, taken, strict=True)
    return np.array(
        [
            data.clipped_sum(loss, point, grid=grid, index=np.flatnonzero(marks), **guards)
            for point, marks in batches
        ]
    )
