"""Contributions of users: the mean of a user's records, one bounded vector for all of them.

A record's vector is clipped at 2**16 times the radius and rounded to a fine grid, so that the sum
of a user is exact: its bits depend on the records of this user alone, in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfit.data.view import View
from dpfit.kernels.bounds import Guards
from dpfit.kernels.user_sums import clipped_total
from dpfit.losses.vector import LinearLoss
from dpfit.mechanisms.aggregates.contribution import Contribution, Gradient
from dpfit.noise import Grid
from dpfit.privacy import Assumption

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]
Function = Callable[[Floats, Floats], Any]

ROW_CLIP = 2.0**16
"""A record is clipped at this multiple of its user's radius."""


@dataclass(frozen=True, eq=False)
class UserMean(Contribution):
    """What a user contributes: a mean of its records, minus a public centre, clipped to a radius.

    A user without a usable record adds nothing.

    Parameters
    ----------
    source : Gradient, Rows or Query
        What a record of the user is worth.
    radius : float
        Largest norm of a user's vector: ``bound``.
    centre : array, optional
        A public or released point near the means; by default the origin.
    """

    source: Gradient | Rows | Query
    radius: float
    centre: Floats | float = 0.0

    @property
    def bound(self) -> float:
        return self.radius

    @property
    def dimension(self) -> int:
        return self.source.dimension

    def total(self, data: View, grid: Grid) -> Steps:  # type: ignore[override]
        points = getattr(self.source, "point", None)
        if points is not None and points.ndim == 2:
            problem = self.source.problem  # type: ignore[union-attr]
            each = [Gradient(problem, point, self.radius) for point in points]
            return np.array([UserMean(one, self.radius).total(data, grid) for one in each])
        return clipped_total(self.vectors(data), self.centre, radius=self.radius, grid=grid)

    def vectors(self, data: View) -> Floats:
        """Return one vector for each user, NaN for a user without a usable record; NOT private."""
        if isinstance(self.source, Gradient):
            return gradient_means(self.source, data)
        return self.source.vectors(data)


def gradient_means(gradient: Gradient, data: View) -> Floats:
    """Return the mean of the guarded gradients of each user."""
    problem, clip = gradient.problem, min(ROW_CLIP * gradient.clip_norm, 1e100)
    guards = problem.guards | {"clip": clip}
    return data.unit_means(problem.loss, gradient.point, grid=fine_grid(clip), **guards)


@dataclass(frozen=True, eq=False)
class Rows:
    """The mean of each user's rows, which are clipped to a ball around the origin."""

    dimension: int
    row_norm: float

    def vectors(self, data: View) -> Floats:
        """Return one vector for each user."""
        guards: Guards = {"clip": self.row_norm}
        return data.unit_means(
            LinearLoss(), np.zeros(self.dimension), grid=fine_grid(self.row_norm), **guards
        )


@dataclass(frozen=True, eq=False)
class Query:
    """A caller's function of the records of one user, applied to each user by itself.

    It gets the user's finite rows and their labels, and returns ``dimension`` numbers. A user for
    whom it fails, or returns something else, has no vector. A function that keeps something of one
    user for the next one breaks the guarantee: see `OWN_ROWS`.
    """

    function: Function
    dimension: int
    centre: Floats | float = field(default=0.0)

    def vectors(self, data: View) -> Floats:
        """Return one vector for each user."""
        return np.array([self._vector(rows, labels) for rows, labels in data.by_unit()]).reshape(
            -1, self.dimension
        )

    def _vector(self, rows: Floats, labels: Floats) -> Floats:
        try:
            value = np.asarray(self.function(rows, labels), dtype=np.float64)
            if value.shape == (self.dimension,) and len(rows):
                return value
        except Exception:  # an error would tell that such a user exists
            pass
        return np.full(self.dimension, math.nan)


OWN_ROWS = Assumption(
    "a query computes a user's vector from the rows and labels of this user alone", "declared"
)
"""For mechanisms that answer a `Query`: its function is the caller's code."""


def fine_grid(clip: float) -> Grid:
    """Return a grid on which sums of vectors of norm at most ``clip`` are exact, 2**-30 of it."""
    return Grid(max(math.frexp(clip)[1] - 30, -1022))
