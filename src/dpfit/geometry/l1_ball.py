"""The ball of the l1 norm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpfit.geometry.base import Domain, Flags, Floats, check_norm, size_shape, vector_norm
from dpfit.geometry.simplex import project_to_total
from dpfit.noise import Source
from dpfit.noise.source import Size
from dpfit.privacy.check import count, positive


@dataclass(frozen=True)
class L1Ball(Domain):
    """The points whose absolute coordinates sum to at most ``norm_bound``.

    >>> L1Ball(3, 1.0).project([1.0, -0.8, 0.1]).round(12).tolist()
    [0.6, -0.4, 0.0]
    """

    kind = "domain_l1_ball"
    d: int
    norm_bound: float

    def __post_init__(self) -> None:
        count("d", self.d)
        positive("norm_bound", self.norm_bound)

    @property
    def dimension(self) -> int:
        return self.d

    @property
    def centre(self) -> Floats:
        return np.zeros(self.d)

    def radius(self, norm: float = 2) -> float:
        """The norm bound, whatever the norm: corners are the farthest points."""
        check_norm(norm)
        return float(self.norm_bound)

    def diameter(self, norm: float = 2) -> float:
        return 2 * self.radius(norm)

    def reach(self, norm: float = 2) -> float:
        return self.radius(norm)

    def contains(self, point: ArrayLike, tolerance: float = 1e-9) -> Flags:
        return np.asarray(vector_norm(self._points(point), 1)[..., 0] <= self.norm_bound + tolerance)

    def sample(self, source: Source, size: Size = ()) -> Floats:
        """Uniform points: all but the last of d + 1 uniform spacings of an interval, with random signs."""
        spacings = source.exponential((*size_shape(size), self.d + 1))
        signs = 2.0 * source.integers(2, (*size_shape(size), self.d)) - 1.0
        return np.asarray(self.norm_bound * signs * spacings[..., :-1] / spacings.sum(axis=-1, keepdims=True))

    def linear_minimizer(self, gradient: ArrayLike) -> Floats:
        """The corner against the largest entry of the gradient."""
        gradients = self._points(gradient)
        largest = np.argmax(np.abs(gradients), axis=-1, keepdims=True)
        corner = np.zeros(gradients.shape)
        signs = np.where(np.take_along_axis(gradients, largest, axis=-1) > 0, -1.0, 1.0)
        np.put_along_axis(corner, largest, self.norm_bound * signs, axis=-1)
        return corner

    def _project(self, points: Floats) -> Floats:
        outside = vector_norm(points, 1) > self.norm_bound
        return np.where(outside, np.copysign(project_to_total(np.abs(points), self.norm_bound), points), points)
