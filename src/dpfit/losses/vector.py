"""Losses of x and theta of the same dimension; the declared row norm bounds x."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfit.losses.base import Bounds, Constant, Loss, parameter_radius
from dpfit.privacy.validate import in_safe_range

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class VectorLoss(Loss):
    """A loss of one vector and the parameter."""

    reads_labels: ClassVar[bool] = False

    @property
    def is_regression(self) -> bool:
        return True

    @abstractmethod
    def value(self, theta: ArrayLike, rows: ArrayLike) -> Floats:
        """The losses of the rows, of shape (n,)."""

    def record_values(self, theta: Floats, rows: Floats, labels: Floats) -> Floats:
        return self.value(theta, rows)

    @abstractmethod
    def gradient(self, theta: ArrayLike, rows: ArrayLike) -> Floats:
        """The gradients in theta, one row each, of shape (n, d)."""


@dataclass(frozen=True)
class Distance(VectorLoss):
    """Distance norm(theta - x), whose average the geometric median minimizes.

    >>> Distance().value([0.0, 0.0], [[3.0, 4.0]]).tolist()
    [5.0]
    """

    kind = "loss_distance"

    def value(self, theta: ArrayLike, rows: ArrayLike) -> Floats:
        return _norms(_offsets(theta, rows))[:, 0]

    def gradient(self, theta: ArrayLike, rows: ArrayLike) -> Floats:
        """Unit vectors that point away from the rows; zero, a subgradient, at a row."""
        offsets = _offsets(theta, rows)
        norms = _norms(offsets)
        return np.divide(offsets, norms, out=np.zeros_like(offsets), where=norms > 0)

    def lipschitz(self, bounds: Bounds, radius: float | None = None) -> Constant:
        parameter_radius(radius)
        return Constant(1.0, exact=True)

    def lipschitz_diff(self, bounds: Bounds, radius: float | None = None) -> Constant:
        """Two: theta = 0 lies between opposite rows."""
        parameter_radius(radius)
        return Constant(2.0, exact=True)

    def smoothness(self, bounds: Bounds, radius: float | None = None) -> None:
        return None


@dataclass(frozen=True)
class SquaredDistance(VectorLoss):
    """Squared distance norm(theta - x)^2 / 2, whose average the mean minimizes.

    The gradient of one loss has no bound on the whole space, that of a difference of two has: theta
    cancels.

    >>> SquaredDistance().lipschitz_diff(Bounds(1.0))
    Constant(value=2.0, exact=True)
    >>> SquaredDistance().lipschitz(Bounds(1.0), radius=3.0)
    Constant(value=4.0, exact=True)
    """

    kind = "loss_squared_distance"
    is_quadratic: ClassVar[bool] = True

    def value(self, theta: ArrayLike, rows: ArrayLike) -> Floats:
        return np.asarray(0.5 * np.sum(_offsets(theta, rows) ** 2, axis=1))

    def gradient(self, theta: ArrayLike, rows: ArrayLike) -> Floats:
        return _offsets(theta, rows)

    def lipschitz(self, bounds: Bounds, radius: float | None = None) -> Constant:
        reach = parameter_radius(radius)
        if reach == float("inf"):
            raise ValueError(
                "the gradient of 'loss_squared_distance' has no bound on the whole space: bound "
                "the domain, "
                "use huberized(width), or use lipschitz_diff (replace-one neighbours), which is "
                "finite"
            )
        return Constant(reach + bounds.row_norm, exact=True)

    def lipschitz_diff(self, bounds: Bounds, radius: float | None = None) -> Constant:
        parameter_radius(radius)
        return Constant(2 * bounds.row_norm, exact=True)

    def smoothness(self, bounds: Bounds, radius: float | None = None) -> Constant:
        return Constant(1.0, exact=True)

    def self_concordance(self, bounds: Bounds, radius: float | None = None) -> Constant:
        return Constant(0.0, exact=True)

    def huberized(self, width: float) -> HuberDistance:
        """The squared distance continued linearly beyond the width: its Lipschitz envelope."""
        return HuberDistance(width)


@dataclass(frozen=True)
class HuberDistance(VectorLoss):
    """Huber's function of the distance: squared within ``width`` of x, linear beyond.

    Its gradient is the one of the squared distance, clipped: the projection of theta - x onto a
    ball. This is the rare case in which clipping gradients gives the gradient of a convex function.

    >>> HuberDistance(1.0).gradient([0.0, 0.0], [[0.0, 4.0], [0.5, 0.0]]).tolist()
    [[0.0, -1.0], [-0.5, 0.0]]
    """

    kind = "loss_huber_distance"
    width: float

    def __post_init__(self) -> None:
        in_safe_range("width", self.width)

    def value(self, theta: ArrayLike, rows: ArrayLike) -> Floats:
        norms = _norms(_offsets(theta, rows))[:, 0]
        return np.where(
            norms <= self.width, 0.5 * norms**2, self.width * (norms - 0.5 * self.width)
        )

    def gradient(self, theta: ArrayLike, rows: ArrayLike) -> Floats:
        offsets = _offsets(theta, rows)
        return np.asarray(offsets * (self.width / np.maximum(_norms(offsets), self.width)))

    def lipschitz(self, bounds: Bounds, radius: float | None = None) -> Constant:
        return Constant(min(parameter_radius(radius) + bounds.row_norm, self.width), exact=True)

    def lipschitz_diff(self, bounds: Bounds, radius: float | None = None) -> Constant:
        """Twice the smaller of row norm and width: projections contract; theta = 0 attains it."""
        parameter_radius(radius)
        return Constant(2 * min(bounds.row_norm, self.width), exact=True)

    def smoothness(self, bounds: Bounds, radius: float | None = None) -> Constant:
        return Constant(1.0, exact=True)


@dataclass(frozen=True)
class LinearLoss(VectorLoss):
    """Linear loss <theta, x>, for which almost everything has a closed form.

    >>> LinearLoss().value([1.0, 2.0], [[3.0, 4.0]]).tolist()
    [11.0]
    """

    kind = "loss_linear"
    reads_products: ClassVar[bool] = True
    is_quadratic: ClassVar[bool] = True

    def value(self, theta: ArrayLike, rows: ArrayLike) -> Floats:
        point, matrix = _pair(theta, rows)
        return np.asarray(matrix @ point)

    def gradient(self, theta: ArrayLike, rows: ArrayLike) -> Floats:
        return _pair(theta, rows)[1].copy()

    def lipschitz(self, bounds: Bounds, radius: float | None = None) -> Constant:
        parameter_radius(radius)
        return Constant(bounds.row_norm, exact=True)

    def lipschitz_diff(self, bounds: Bounds, radius: float | None = None) -> Constant:
        parameter_radius(radius)
        return Constant(2 * bounds.row_norm, exact=True)

    def smoothness(self, bounds: Bounds, radius: float | None = None) -> Constant:
        return Constant(0.0, exact=True)

    def self_concordance(self, bounds: Bounds, radius: float | None = None) -> Constant:
        return Constant(0.0, exact=True)


def _pair(theta: ArrayLike, rows: ArrayLike) -> tuple[Floats, Floats]:
    try:
        point, matrix = np.asarray(theta, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("theta and rows must be arrays of numbers") from None
    if point.ndim != 1 or matrix.ndim != 2 or matrix.shape[1] != len(point):
        raise ValueError(
            f"theta of shape (d,) and rows of shape (n, d) are needed, got {point.shape}, "
            f"{matrix.shape}"
        )
    return point, matrix


def _offsets(theta: ArrayLike, rows: ArrayLike) -> Floats:
    point, matrix = _pair(theta, rows)
    return np.asarray(point - matrix)


def _norms(offsets: Floats) -> Floats:
    return np.asarray(np.linalg.norm(offsets, axis=1, keepdims=True))
