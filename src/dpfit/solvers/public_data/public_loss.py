"""The mean loss of public records plus a quadratic: where descent starts, and a mirror map."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Minimize
from dpfit.data.dataset import Dataset
from dpfit.losses.glm import GLM
from dpfit.losses.guards import RowBall

Floats = NDArray[np.float64]

_NEWTON_STEPS = 50
_HALVINGS = 40
_OUTER = 10**5
"""Up to so many entries of outer products of rows, Hessians at many points are computed at once."""
_TOLERANCE = 1e-9
"""Accepted gradients of a Newton solve, relative to the first one."""


@dataclass(frozen=True, eq=False)
class PublicLoss:
    """Psi(theta) = mean public loss + (ridge / 2) norm(theta)**2, at several points (k, d).

    Reference: [Gan22] Algorithm 1. The ridge makes it strongly convex, without which gradients need
    not be invertible (strict convexity, which the reference asks for, is not enough).
    """

    rows: Floats
    labels: Floats
    loss: GLM
    ridge: float

    @staticmethod
    def of(problem: Minimize, public: Dataset, ridge: float) -> PublicLoss:
        """Return the loss of public records within the bounds, without non-finite records."""
        if not isinstance(problem.loss, GLM):
            raise ValueError(
                f"public data help with generalized linear losses, and {problem.loss.kind!r} is "
                "not one"
            )
        pieces = [
            (p.rows.toarray() if hasattr(p.rows, "toarray") else p.rows, p.labels)
            for p in public.chunks()
        ]
        rows = np.concatenate([np.asarray(part[0], dtype=np.float64) for part in pieces])
        labels = np.concatenate([np.asarray(part[1], dtype=np.float64) for part in pieces])
        usable = np.isfinite(rows).all(axis=1) & np.isfinite(labels)
        if not usable.any():
            raise ValueError("no public record has finite entries only")
        rows, labels = RowBall(problem.bounds.row_norm).apply(rows[usable]), labels[usable]
        signs = np.where(labels > 0, 1.0, -1.0)
        guarded = signs if problem.loss.binary_labels else np.clip(labels, *problem.bounds.labels)
        return PublicLoss(rows, guarded, problem.loss, ridge)

    def values(self, points: Floats) -> Floats:
        """Psi at each point."""
        losses = self.loss.value(points @ self.rows.T, self.labels).mean(axis=-1)
        return np.asarray(losses + 0.5 * self.ridge * (points**2).sum(axis=-1))

    def gradients(self, points: Floats) -> Floats:
        """The gradient of Psi at each point."""
        slopes = self.loss.slope(points @ self.rows.T, self.labels)
        return np.asarray(slopes @ self.rows / len(self.rows) + self.ridge * points)

    def hessian(self, point: Floats) -> Floats:
        """The Hessian of Psi at one point."""
        curvatures = self.loss.curvature_at(self.rows @ point, self.labels) / len(self.rows)
        return np.asarray((self.rows.T * curvatures) @ self.rows + self.ridge * np.eye(len(point)))

    def _newton_moves(self, points: Floats, residuals: Floats) -> Floats:
        """The inverse Hessian at each point, applied to a residual."""
        n, d = self.rows.shape
        if n * d * d > _OUTER:
            return np.array(
                [
                    np.linalg.solve(self.hessian(p), r)
                    for p, r in zip(points, residuals, strict=True)
                ]
            )
        outer = (self.rows[:, :, np.newaxis] * self.rows[:, np.newaxis]).reshape(n, d * d)
        curvatures = self.loss.curvature_at(points @ self.rows.T, self.labels) / n
        hessians = (curvatures @ outer).reshape(-1, d, d) + self.ridge * np.eye(d)
        return np.asarray(np.linalg.solve(hessians, residuals[..., np.newaxis])[..., 0])

    def inverse_gradients(self, targets: Floats, near: Floats) -> Floats:
        """Points where gradients of Psi are ``targets``, by damped Newton steps from ``near``.

        >>> from dpfit.losses import Squared
        >>> psi = PublicLoss(np.array([[2.0], [0.0]]), np.array([1.0, 5.0]), Squared(), ridge=1.0)
        >>> psi.inverse_gradients(np.array([[2.0]]), np.zeros((1, 1)))
        array([[1.]])
        """
        points = np.array(near, dtype=np.float64)
        residuals = self.gradients(points) - targets
        goals = _TOLERANCE * np.linalg.norm(residuals, axis=-1)
        for _ in range(_NEWTON_STEPS):
            open_ = np.flatnonzero(np.linalg.norm(residuals, axis=-1) > goals)
            if not len(open_):
                break
            moves = self._newton_moves(points[open_], residuals[open_])
            points[open_] = self._damped(points[open_], moves, targets[open_])
            residuals[open_] = self.gradients(points[open_]) - targets[open_]
        return points

    def _damped(self, points: Floats, moves: Floats, targets: Floats) -> Floats:
        """Newton moves, halved until the convex function Psi - <target, .> does not increase."""

        def heights(there: Floats) -> Floats:
            return np.asarray(self.values(there) - (targets * there).sum(axis=-1))

        before, shares = heights(points), np.ones((len(points), 1))
        for _ in range(_HALVINGS):
            # Close to the minimum, values no longer tell points apart.
            worse = heights(points - shares * moves) > before + 1e-12 * np.abs(before)
            if not worse.any():
                break
            shares[worse] /= 2
        return np.asarray(points - shares * moves)
