"""The probability simplex."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpfit.geometry.base import Domain, Flags, Floats, check_norm, size_shape
from dpfit.noise import Source
from dpfit.noise.source import Size
from dpfit.privacy.validate import integer


@dataclass(frozen=True)
class Simplex(Domain):
    """The points with non-negative coordinates that sum to one.

    >>> Simplex(3).project([1.0, 0.8, -5.0]).round(12).tolist()
    [0.6, 0.4, 0.0]
    """

    kind = "domain_simplex"
    d: int

    def __post_init__(self) -> None:
        integer("d", self.d)

    @property
    def dimension(self) -> int:
        return self.d

    @property
    def centre(self) -> Floats:
        return np.full(self.d, 1 / self.d)

    def radius(self, norm: float = 2) -> float:
        """Distance of a corner from the centre."""
        gap = (self.d - 1) / self.d
        return {1: 2 * gap, 2: math.sqrt(gap), math.inf: gap}[check_norm(norm)]

    def diameter(self, norm: float = 2) -> float:
        """Distance of two corners."""
        check_norm(norm)
        return 0.0 if self.d == 1 else {1: 2.0, 2: math.sqrt(2), math.inf: 1.0}[norm]

    def reach(self, norm: float = 2) -> float:
        check_norm(norm)
        return 1.0

    def contains(self, point: ArrayLike, tolerance: float = 1e-9) -> Flags:
        points = self._points(point)
        with np.errstate(over="ignore", invalid="ignore"):
            balanced = np.abs(points.sum(axis=-1) - 1) <= tolerance
        return np.asarray((points >= -tolerance).all(axis=-1) & balanced)

    def sample(self, source: Source, size: Size = ()) -> Floats:
        weights = source.exponential((*size_shape(size), self.d))
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))

    def linear_minimizer(self, gradient: ArrayLike) -> Floats:
        """The corner of the smallest entry of the gradient."""
        gradients = self._points(gradient)
        corner = np.zeros(gradients.shape)
        np.put_along_axis(corner, np.argmin(gradients, axis=-1, keepdims=True), 1.0, axis=-1)
        return corner

    def _project(self, points: Floats) -> Floats:
        return project_to_total(points, 1.0)


def project_to_total(points: Floats, total: float) -> Floats:
    """Project on coordinates >= 0 that sum to ``total``: max(point - threshold, 0).

    J. Duchi, S. Shalev-Shwartz, Y. Singer, T. Chandra, Efficient projections onto the l1-ball for
    learning in high dimensions, ICML 2008; O(d log d) by sorting.
    """
    with np.errstate(over="ignore"):
        # Only the distance from the largest entry matters, and entries more than the total below it
        # end at zero.
        below = np.maximum(points - points.max(axis=-1, keepdims=True), -total)
    descending = -np.sort(-below, axis=-1)
    thresholds = (np.cumsum(descending, axis=-1) - total) / np.arange(1, points.shape[-1] + 1)
    support = np.sum(descending > thresholds, axis=-1, keepdims=True)
    return np.asarray(np.maximum(below - np.take_along_axis(thresholds, support - 1, axis=-1), 0.0))
