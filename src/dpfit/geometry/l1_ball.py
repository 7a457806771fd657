"""The ball of the l1 norm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpfit.geometry.base import Domain, Flags, Floats, check_norm, size_shape, vector_norm
from dpfit.geometry.simplex import project_to_total
from dpfit.noise import Source
from dpfit.noise.source import Size
from dpfit.privacy.validate import integer, positive


@dataclass(frozen=True)
class L1Ball(Domain):
    """The points whose absolute coordinates sum to at most ``norm_bound``.

    The last ``free`` coordinates, such as an intercept, are unbounded and do not count.

    >>> L1Ball(3, 1.0).project([1.0, -0.8, 0.1]).round(12).tolist()
    [0.6, -0.4, 0.0]
    >>> L1Ball(3, 1.0, free=1).project([2.0, 0.4, 7.0]).round(12).tolist()
    [1.0, 0.0, 7.0]
    """

    kind = "domain_l1_ball"
    omitted: ClassVar = ("free",)
    d: int
    norm_bound: float
    free: int = 0

    def __post_init__(self) -> None:
        integer("d", self.d)
        positive("norm_bound", self.norm_bound)
        if integer("free", self.free, least=0) >= self.d:
            raise ValueError(f"free must be below d = {self.d}, got {self.free}")

    @property
    def dimension(self) -> int:
        return self.d

    @property
    def centre(self) -> Floats:
        return np.zeros(self.d)

    def radius(self, norm: float = 2) -> float:
        """The norm bound, whatever the norm: corners are the farthest points."""
        check_norm(norm)
        return math.inf if self.free else float(self.norm_bound)

    def diameter(self, norm: float = 2) -> float:
        return 2 * self.radius(norm)

    def reach(self, norm: float = 2) -> float:
        return self.radius(norm)

    def contains(self, point: ArrayLike, tolerance: float = 1e-9) -> Flags:
        points = self._points(point)
        inside = vector_norm(points[..., : self.d - self.free], 1) <= self.norm_bound + tolerance
        return np.asarray(inside[..., 0] & np.isfinite(points).all(axis=-1))

    def sample(self, source: Source, size: Size = ()) -> Floats:
        """Uniform points: all but the last of d + 1 uniform spacings, with random signs."""
        self._require_bounded()
        spacings = source.exponential((*size_shape(size), self.d + 1))
        signs = 2.0 * source.integers(2, (*size_shape(size), self.d)) - 1.0
        return np.asarray(
            self.norm_bound * signs * spacings[..., :-1] / spacings.sum(axis=-1, keepdims=True)
        )

    def linear_minimizer(self, gradient: ArrayLike) -> Floats:
        """The corner against the largest entry of the gradient."""
        self._require_bounded()
        gradients = self._points(gradient)
        largest = np.argmax(np.abs(gradients), axis=-1, keepdims=True)
        corner = np.zeros(gradients.shape)
        signs = np.where(np.take_along_axis(gradients, largest, axis=-1) > 0, -1.0, 1.0)
        np.put_along_axis(corner, largest, self.norm_bound * signs, axis=-1)
        return corner

    def _project(self, points: Floats) -> Floats:
        bounded, free = np.split(points, [self.d - self.free], axis=-1)
        outside = vector_norm(bounded, 1) > self.norm_bound
        sizes = np.abs(bounded)
        # From outside no coordinate grows; rounding must not make zeros grow either.
        nearest = np.copysign(np.minimum(project_to_total(sizes, self.norm_bound), sizes), bounded)
        return np.concatenate([np.where(outside, nearest, bounded), free], axis=-1)

    def _require_bounded(self) -> None:
        if self.free:
            raise ValueError("an L1Ball with free coordinates is unbounded; use free=0")
