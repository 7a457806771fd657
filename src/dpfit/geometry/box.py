"""The box: one interval for each coordinate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpfit.geometry.base import (
    Domain,
    Flags,
    Floats,
    as_point,
    check_norm,
    coordinates,
    size_shape,
    vector_norm,
)
from dpfit.noise import Source
from dpfit.noise.source import Size


@dataclass(frozen=True)
class Box(Domain):
    """The points whose coordinates lie between ``lower`` and ``upper``.

    >>> Box((0.0, -1.0), (2.0, 1.0)).project([3.0, 0.5]).tolist()
    [2.0, 0.5]
    """

    kind = "domain_box"
    draws_gaussians: ClassVar[bool] = True
    lower: tuple[float, ...]
    upper: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "lower", coordinates("lower", self.lower))
        object.__setattr__(self, "upper", coordinates("upper", self.upper))
        if len(self.lower) != len(self.upper):
            raise ValueError(
                f"a box needs as many lower as upper ends, got {len(self.lower)} and "
                f"{len(self.upper)}"
            )
        if not np.all(self._ends[0] < self._ends[1]) or not math.isfinite(self.diameter(1)):
            raise ValueError("a box needs lower < upper in each coordinate, and finite widths")

    @cached_property
    def _ends(self) -> tuple[Floats, Floats]:
        return as_point(self.lower), as_point(self.upper)

    @property
    def dimension(self) -> int:
        return len(self.lower)

    @property
    def centre(self) -> Floats:
        lower, upper = self._ends
        return np.clip(lower / 2 + upper / 2, lower, upper)

    def radius(self, norm: float = 2) -> float:
        return self.diameter(norm) / 2

    def diameter(self, norm: float = 2) -> float:
        lower, upper = self._ends
        with np.errstate(over="ignore", invalid="ignore"):
            return float(vector_norm(upper - lower, check_norm(norm))[0])

    def reach(self, norm: float = 2) -> float:
        lower, upper = self._ends
        return float(vector_norm(np.maximum(np.abs(lower), np.abs(upper)), check_norm(norm))[0])

    def contains(self, point: ArrayLike, tolerance: float = 1e-9) -> Flags:
        points, (lower, upper) = self._points(point), self._ends
        return np.asarray(
            ((points >= lower - tolerance) & (points <= upper + tolerance)).all(axis=-1)
        )

    def sample(self, source: Source, size: Size = ()) -> Floats:
        lower, upper = self._ends
        uniform = source.uniform((*size_shape(size), self.dimension))
        return np.clip(lower + (upper - lower) * uniform, lower, upper)

    def linear_minimizer(self, gradient: ArrayLike) -> Floats:
        """The corner against the signs of the gradient; the lower end where it is zero."""
        return np.where(self._points(gradient) < 0, self._ends[1], self._ends[0])

    def _project(self, points: Floats) -> Floats:
        return np.clip(points, *self._ends)
