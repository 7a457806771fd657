"""Mirror maps of public records: steps in their geometry, and Bregman projections onto a set.

All of it is public or post-processing: an inexact solution costs accuracy and no privacy.
Reference: [Gan22] Algorithm 1; the set is that of Theorem 76.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Minimize
from dpfit.geometry import L2Ball
from dpfit.solvers.public_data.public_loss import PublicLoss

Floats = NDArray[np.float64]

_HALVINGS = 60
"""Halvings of an interval that holds a Lagrange multiplier."""
_JOINT_HALVINGS = 40
"""Halvings for each of two multipliers, where both constraints bind."""
_DECADES = 12.0
"""The multiplier of the slope is searched for within so many decades of the inverse curvatures."""


def ball_of(problem: Minimize) -> L2Ball | None:
    """Return the Euclidean ball that the parameter lies in, or None for the whole space."""
    region = problem.region
    if region is None or isinstance(region, L2Ball):
        return region
    raise ValueError("mirror steps need a Euclidean ball or no domain; use warm_start_gd")


class MirrorMap(ABC):
    """A strongly convex function whose gradient moves points, (k, d) at once."""

    @abstractmethod
    def step(self, points: Floats, gradients: Floats, size: float) -> Floats:
        """Return where the gradient of the map is smaller by size * gradients, in the set."""

    @abstractmethod
    def minimizer(self) -> Floats:
        """Return the point of the set with the least value of the map."""


@dataclass(frozen=True, eq=False)
class QuadraticMap(MirrorMap):
    """<x - lowest, H (x - lowest)> / 2, in a ball where its gradient is at most ``slope`` long.

    ``vectors`` (columns) and ``metric`` are eigenvectors and eigenvalues of H. Where no point of
    the ball has so small a gradient, points go near the one with the smallest.

    >>> line = QuadraticMap(np.eye(1), np.array([2.0]), np.array([0.5]), L2Ball(1, 1.0), slope=0.4)
    >>> line.step(np.array([[0.5]]), np.array([[-1.0], [0.1]]), 1.0).round(9).ravel().tolist()
    [0.7, 0.45]
    """

    vectors: Floats
    metric: Floats
    lowest: Floats
    ball: L2Ball | None = None
    slope: float = math.inf

    def step(self, points: Floats, gradients: Floats, size: float) -> Floats:
        moved = points - size * ((gradients @ self.vectors) / self.metric) @ self.vectors.T
        return self.project(moved)

    def minimizer(self) -> Floats:
        return np.asarray(self.project(self.lowest[np.newaxis])[0])

    def project(self, points: Floats) -> Floats:
        """Return the points of the set with the least Bregman divergence to ``points`` (k, d).

        With multipliers a of the ball and b of the slope, coordinate i of the solution is (h z + a
        c + b h^2 p) / (h + a + b h^2) in the eigenbasis: both constraints are diagonal there.
        """
        outside = self._far(points, 0.0) | self._steep(points @ self.vectors, 0.0)
        if not outside.any():
            return points
        result = points.copy()
        result[outside] = self._solved(points[outside] @ self.vectors) @ self.vectors.T
        return result

    def _solved(self, z: Floats) -> Floats:
        if self.ball is None:
            return self._at(z, 0.0, self._slope_multiplier(z, lambda b: np.zeros_like(b), 60))
        inside = self._at(z, self._ball_multiplier(z, np.zeros((len(z), 1)), _HALVINGS), 0.0)
        steep = self._steep(inside, 1e-12)
        if not steep.any():
            return inside
        rest = z[steep]
        weights = self._slope_multiplier(
            rest, lambda b: self._ball_multiplier(rest, b, _JOINT_HALVINGS), _JOINT_HALVINGS
        )
        inside[steep] = self._at(rest, self._ball_multiplier(rest, weights, _HALVINGS), weights)
        return inside

    def _at(self, z: Floats, a: Floats | float, b: Floats | float) -> Floats:
        h, p = self.metric, self.lowest @ self.vectors
        c = 0.0 if self.ball is None else self.ball.centre @ self.vectors
        return np.asarray((h * z + a * c + b * h**2 * p) / (h + a + b * h**2))

    def _ball_multiplier(self, z: Floats, b: Floats, halvings: int) -> Floats:
        """Return the least a >= 0 that puts the solution with this b into the ball."""
        if self.ball is None:
            return np.zeros_like(b)
        h, p, c = self.metric, self.lowest @ self.vectors, self.ball.centre @ self.vectors
        pull = np.linalg.norm(h * (z - c) + b * h**2 * (p - c), axis=1, keepdims=True)
        high = pull / self.ball.norm_bound
        return _least(lambda a: self._far_from(self._at(z, a, b), c)[:, np.newaxis], high, halvings)

    def _slope_multiplier(
        self, z: Floats, balls: Callable[[Floats], Floats], halvings: int
    ) -> Floats:
        """Return the least b >= 0, up to a grid of decades, that makes the gradient short enough.

        The dual function is concave, so its derivative falls in b where a is the best for each b.
        """

        def steep(decades: Floats) -> NDArray[np.bool_]:
            b = 10.0**decades
            return self._steep(self._at(z, balls(b), b), 0.0)[:, np.newaxis]

        low = np.full((len(z), 1), -_DECADES - math.log10(self.metric.max()))
        width = _DECADES * 2 + math.log10(self.metric.max() / self.metric.min())
        return np.asarray(
            10.0 ** (low + _least(lambda up: steep(low + up), low * 0 + width, halvings))
        )

    def _far(self, points: Floats, slack: float) -> NDArray[np.bool_]:
        if self.ball is None:
            return np.zeros(len(points), dtype=bool)
        return self._far_from(points, self.ball.centre, slack)

    def _far_from(self, points: Floats, centre: Floats, slack: float = 0.0) -> NDArray[np.bool_]:
        radius = math.inf if self.ball is None else self.ball.norm_bound
        return np.asarray(np.linalg.norm(points - centre, axis=1) > radius * (1 + slack))

    def _steep(self, turned: Floats, slack: float) -> NDArray[np.bool_]:
        """Whether gradients are longer than the slope; ``turned`` are points in the eigenbasis."""
        gradients = self.metric * (turned - self.lowest @ self.vectors)
        return np.asarray(np.linalg.norm(gradients, axis=1) > self.slope * (1 + slack))


@dataclass(frozen=True, eq=False)
class LossMap(MirrorMap):
    """The public loss itself, in a ball."""

    psi: PublicLoss
    ball: L2Ball | None = None

    def step(self, points: Floats, gradients: Floats, size: float) -> Floats:
        return self._reached(self.psi.gradients(points) - size * gradients, points)

    def minimizer(self) -> Floats:
        start = np.zeros((1, self.psi.rows.shape[1]))
        return np.asarray(self._reached(np.zeros_like(start), start)[0])

    def _reached(self, targets: Floats, near: Floats) -> Floats:
        """Return argmin over the ball of Psi - <target, x>.

        It is the free minimizer of Psi + a norm(x - centre)^2 / 2 for the least a that puts it into
        the ball: a larger ridge, and a target moved by a * centre.
        """
        free = self.psi.inverse_gradients(targets, near)
        if self.ball is None:
            return free
        centre, radius = self.ball.centre, self.ball.norm_bound
        for index in np.flatnonzero(np.linalg.norm(free - centre, axis=1) > radius):
            free[index] = self._on_ball(targets[index], near[index], centre, radius)
        return free

    def _on_ball(self, target: Floats, near: Floats, centre: Floats, radius: float) -> Floats:
        point, low, high = near, 0.0, math.inf
        gradient = self.psi.gradients(centre[np.newaxis])[0] - target
        multiplier = float(np.linalg.norm(gradient)) / radius
        for _ in range(_HALVINGS):
            ridge = replace(self.psi, ridge=self.psi.ridge + multiplier)
            moved = (target + multiplier * centre)[np.newaxis]
            point = ridge.inverse_gradients(moved, point[np.newaxis])[0]
            length = float(np.linalg.norm(point - centre))
            if abs(length - radius) <= 1e-10 * radius:
                break
            low, high = (multiplier, high) if length > radius else (low, multiplier)
            # Newton's step for 1 / length, which is nearly linear in the multiplier.
            away = point - centre
            slope = float(away @ np.linalg.solve(ridge.hessian(point), away)) / length**3
            guess = multiplier + (1 / radius - 1 / length) / slope
            multiplier = guess if low < guess < high else (low + min(high, 2 * multiplier)) / 2
        length = max(float(np.linalg.norm(point - centre)), radius)
        return np.asarray(centre + (point - centre) * (radius / length))


def _least(violated: Callable[[Floats], NDArray[np.bool_]], high: Floats, halvings: int) -> Floats:
    """Return the least value in [0, high] that violates nothing, where larger ones violate less."""
    low, up = np.zeros_like(high), high.copy()
    fine = ~violated(low)
    for _ in range(halvings):
        middle = (low + up) / 2
        out = violated(middle)
        low, up = np.where(out, middle, low), np.where(out, up, middle)
    return np.where(fine, 0.0, up)
