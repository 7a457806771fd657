"""A loss with wells, which is hard for every private method: the best well has to be selected."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfit.losses.base import Bounds, Constant, Parameters, parameter_radius
from dpfit.losses.vector import VectorLoss
from dpfit.privacy.validate import in_safe_range

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Wells(VectorLoss):
    """min(0, min over j of norm(theta - centre_j) / width - 1), over the entries of x above 1/2.

    A row has an entry for each centre, the parameter a coordinate for each of theirs. The loss is
    not convex. Centres at least ``width`` apart make minimizing as hard as selecting the column
    with the most ones. Reference: [LD] Theorem G.1.

    >>> Wells(((0.0,), (1.0,)), 0.5).value([0.25], [[1.0, 0.0], [0.0, 1.0]]).tolist()
    [-0.5, 0.0]
    """

    kind = "loss_wells"
    centres: tuple[tuple[float, ...], ...]
    width: float

    def __post_init__(self) -> None:
        in_safe_range("width", self.width)
        places = np.asarray(self.centres, dtype=np.float64)
        if places.ndim != 2 or not places.size or not np.isfinite(places).all():
            raise ValueError("centres must be points of finite coordinates, of equal dimension")
        object.__setattr__(self, "centres", tuple(map(tuple, places.tolist())))

    @property
    def convex(self) -> bool:
        return False

    def parameters(self, n_features: int) -> Parameters:
        if n_features != len(self.centres):
            raise ValueError(
                f"rows must have {len(self.centres)} entries, one for each centre, got {n_features}"
            )
        size = len(self.centres[0])
        return Parameters(size, np.zeros(size), lambda flat: flat)

    def value(self, theta: ArrayLike, rows: ArrayLike) -> Floats:
        return np.asarray(self._depths(theta, rows).min(axis=1, initial=0.0))

    def gradient(self, theta: ArrayLike, rows: ArrayLike) -> Floats:
        """Unit vectors away from the deepest well that a row has, over the width; else zero."""
        depths = self._depths(theta, rows)
        deepest = depths.argmin(axis=1)
        offsets = np.asarray(theta, dtype=np.float64) - np.asarray(self.centres)[deepest]
        norms = np.linalg.norm(offsets, axis=1, keepdims=True)
        inside = (depths.min(axis=1) < 0)[:, np.newaxis] & (norms > 0)
        away = np.divide(offsets, self.width * norms, out=np.zeros_like(offsets), where=inside)
        return np.asarray(away)

    def lipschitz(self, bounds: Bounds, radius: float | None = None) -> Constant:
        parameter_radius(radius)
        return Constant(1 / self.width, exact=True)

    def lipschitz_diff(self, bounds: Bounds, radius: float | None = None) -> Constant:
        parameter_radius(radius)
        return Constant(2 / self.width, exact=True)

    def smoothness(self, bounds: Bounds, radius: float | None = None) -> None:
        """Gradients jump at centres and between wells."""

    def _depths(self, theta: ArrayLike, rows: ArrayLike) -> Floats:
        away = np.linalg.norm(np.asarray(self.centres) - np.asarray(theta), axis=1) / self.width - 1
        return np.where(np.asarray(rows, dtype=np.float64) > 0.5, away, 0.0)
