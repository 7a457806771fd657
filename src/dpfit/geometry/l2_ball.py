"""The Euclidean ball."""

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
    vector_norm,
)
from dpfit.noise import Source
from dpfit.noise.source import Size
from dpfit.privacy.validate import integer, positive


@dataclass(frozen=True)
class L2Ball(Domain):
    """The points within Euclidean distance ``norm_bound`` of ``centred_at`` (``None``: the origin).

    >>> L2Ball(2, 1.0).project([[3.0, 4.0], [0.1, 0.2]]).round(12).tolist()
    [[0.6, 0.8], [0.1, 0.2]]
    """

    kind = "domain_l2_ball"
    draws_gaussians: ClassVar[bool] = True
    d: int
    norm_bound: float
    centred_at: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        integer("d", self.d)
        positive("norm_bound", self.norm_bound)
        if self.centred_at is not None:
            object.__setattr__(self, "centred_at", coordinates("centred_at", self.centred_at))
            if len(self.centre) != self.d:
                raise ValueError(
                    f"the centre of a ball in dimension {self.d} has {len(self.centre)} coordinates"
                )

    @property
    def dimension(self) -> int:
        return self.d

    @property
    def centre(self) -> Floats:
        return self._centre

    @cached_property
    def _centre(self) -> Floats:
        return as_point(np.zeros(self.d) if self.centred_at is None else self.centred_at)

    def radius(self, norm: float = 2) -> float:
        return self.norm_bound * (math.sqrt(self.d) if check_norm(norm) == 1 else 1.0)

    def diameter(self, norm: float = 2) -> float:
        return 2 * self.radius(norm)

    def reach(self, norm: float = 2) -> float:
        return float(vector_norm(self.centre, norm)[0]) + self.radius(norm)

    def contains(self, point: ArrayLike, tolerance: float = 1e-9) -> Flags:
        distance = vector_norm(self._half_offsets(self._points(point)))[..., 0]
        return np.asarray(distance <= (self.norm_bound + tolerance) / 2)

    def encloses(self, points: Floats) -> Flags:
        """Return whether points (k, d) are in the ball, in a quarter of the time of `contains`.

        >>> L2Ball(1, 1.0).encloses(np.array([[0.5], [1.5], [float("nan")]]))
        array([ True, False, False])
        """
        offset = points - self.centre
        return np.asarray(np.sqrt(np.einsum("kj,kj->k", offset, offset)) <= self.norm_bound)

    def sample(self, source: Source, size: Size = ()) -> Floats:
        return self.project(self.centre + source.uniform_ball(self.d, self.norm_bound, size))

    def linear_minimizer(self, gradient: ArrayLike) -> Floats:
        """The boundary point opposite to the gradient; the centre if it is 0 or non-finite."""
        gradients = self._points(gradient)
        usable = np.isfinite(gradients).all(axis=-1, keepdims=True)
        return np.asarray(self.centre - self.norm_bound * _unit(np.where(usable, gradients, 0.0)))

    def _project(self, points: Floats) -> Floats:
        offsets = self._half_offsets(points)
        outside = vector_norm(offsets) > self.norm_bound / 2
        return np.where(outside, self.centre + self.norm_bound * _unit(offsets), points)

    def _half_offsets(self, points: Floats) -> Floats:
        # Halves of finite numbers can be subtracted without overflow.
        return np.asarray(points / 2 - self.centre / 2)


def _unit(vectors: Floats) -> Floats:
    """Vectors scaled to length one; zero stays zero."""
    scale = vector_norm(vectors, math.inf)
    unit = np.divide(vectors, scale, out=np.zeros_like(vectors), where=scale > 0)
    return np.asarray(unit / np.maximum(vector_norm(unit), 1.0))
