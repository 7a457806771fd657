"""What every domain can do."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfit.noise import Source
from dpfit.noise.source import Size
from dpfit.privacy.spec import Spec

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

NORMS = (1, 2, math.inf)


@dataclass(frozen=True)
class Domain(Spec, ABC):
    """A closed convex set of parameters, by public numbers.

    Points are arrays of shape (..., dimension); methods work along the last axis.
    """

    draws_gaussians: ClassVar[bool] = False
    """Whether `truncated_gaussian` draws normal vectors restricted to the domain: balls and boxes.
    """

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Number of coordinates."""

    @property
    @abstractmethod
    def centre(self) -> Floats:
        """The point from which the farthest point of the domain is nearest."""

    @abstractmethod
    def radius(self, norm: float = 2) -> float:
        """Largest distance of a point from the centre in the l1, l2 or l-infinity norm."""

    @abstractmethod
    def diameter(self, norm: float = 2) -> float:
        """Largest distance of two points in the norm."""

    @abstractmethod
    def reach(self, norm: float = 2) -> float:
        """Largest norm of a point: the ``radius`` that the constants of a loss are asked for."""

    @abstractmethod
    def contains(self, point: ArrayLike, tolerance: float = 1e-9) -> Flags:
        """Whether points satisfy the constraints of the domain up to an absolute tolerance."""

    @abstractmethod
    def sample(self, source: Source, size: Size = ()) -> Floats:
        """Uniform points of shape (*size, dimension), for use in a step, not as added noise."""

    @abstractmethod
    def linear_minimizer(self, gradient: ArrayLike) -> Floats:
        """The points of the domain with the smallest inner product with the gradients."""

    @abstractmethod
    def _project(self, points: Floats) -> Floats:
        """The nearest points to finite points."""

    def project(self, point: ArrayLike) -> Floats:
        """The nearest points of the domain in Euclidean distance.

        A point with NaN or infinite coordinates is sent to the centre: iterates depend on records,
        so an error here would tell about them.
        """
        points = self._points(point)
        usable = np.isfinite(points).all(axis=-1, keepdims=True)
        return np.where(usable, self._project(np.where(usable, points, self.centre)), self.centre)

    def encloses(self, points: Floats) -> Flags:
        """Return whether points (k, d) are in the domain, without tolerance or validation."""
        return self.contains(points, tolerance=0.0)

    def confine(self, points: Floats) -> Floats:
        """Return the nearest points of the domain; the same array if all of them are inside."""
        return points if self.encloses(points).all() else self.project(points)

    def _points(self, point: ArrayLike) -> Floats:
        try:
            points = np.asarray(point, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError("points must be arrays of numbers") from None
        if points.ndim == 0 or points.shape[-1] != self.dimension:
            raise ValueError(
                f"points of dimension {self.dimension} are needed, got shape {points.shape}"
            )
        return points


def check_norm(norm: float) -> float:
    """One of the norms 1, 2 and infinity."""
    if norm not in NORMS:
        raise ValueError(f"norm must be 1, 2 or infinity, got {norm!r}")
    return norm


def vector_norm(points: Floats, norm: float = 2) -> Floats:
    """Norms on the last axis, kept with length one; without overflow or underflow."""
    scale = np.abs(points).max(axis=-1, keepdims=True)
    if norm == math.inf:
        return np.asarray(scale)
    with np.errstate(over="ignore", invalid="ignore"):
        unit = np.divide(points, scale, out=np.zeros_like(points), where=scale > 0)
        return np.asarray(scale * np.linalg.norm(unit, ord=norm, axis=-1, keepdims=True))


def size_shape(size: Size) -> tuple[int, ...]:
    """A size as a shape."""
    return size if isinstance(size, tuple) else (size,)


def coordinates(name: str, values: ArrayLike) -> tuple[float, ...]:
    """The coordinates of a point as a tuple of finite numbers, from any sequence of them."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a sequence of numbers") from None
    if array.ndim != 1 or array.size == 0 or not np.isfinite(array).all():
        raise ValueError(f"{name} must be a sequence of finite numbers, one for each coordinate")
    return tuple(array.tolist())


def as_point(values: ArrayLike) -> Floats:
    """A point as an array that cannot be written to, so that a domain may hand it out."""
    point = np.array(values, dtype=np.float64)
    point.flags.writeable = False
    return point
