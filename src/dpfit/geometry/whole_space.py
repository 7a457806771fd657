"""The domain without constraints."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike

from dpfit.geometry.base import Domain, Flags, Floats, check_norm
from dpfit.noise import Source
from dpfit.noise.source import Size
from dpfit.privacy.validate import integer


@dataclass(frozen=True)
class WholeSpace(Domain):
    """All of R^d, with the origin as centre.

    >>> WholeSpace(3).diameter()
    inf
    """

    kind = "domain_whole_space"
    d: int

    def __post_init__(self) -> None:
        integer("d", self.d)

    @property
    def dimension(self) -> int:
        return self.d

    @property
    def centre(self) -> Floats:
        return np.zeros(self.d)

    def radius(self, norm: float = 2) -> float:
        check_norm(norm)
        return math.inf

    def diameter(self, norm: float = 2) -> float:
        return self.radius(norm)

    def reach(self, norm: float = 2) -> float:
        return self.radius(norm)

    def contains(self, point: ArrayLike, tolerance: float = 1e-9) -> Flags:
        return np.asarray(np.isfinite(self._points(point)).all(axis=-1))

    def sample(self, source: Source, size: Size = ()) -> NoReturn:
        raise ValueError("the whole space has no uniform distribution; use a bounded domain")

    def linear_minimizer(self, gradient: ArrayLike) -> NoReturn:
        raise ValueError(
            "a linear function has no minimum on the whole space; use a bounded domain"
        )

    def _project(self, points: Floats) -> Floats:
        return points
