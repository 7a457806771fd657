"""Private mirror descent whose mirror map is the loss of public records.

Guarantee: mu-GDP with respect to the private records, mu = 1 / noise multiplier, for any data.
Reference: [Gan22] Algorithm 1 (PDA-DPMD), Theorem 74 with the exact variance, Theorem 81; docs/explanation/
public-data.md.

Step k moves to the point where the gradient of Psi is smaller by step size times the noisy private gradient:
grad Psi(next) = grad Psi(point) - size * gradient, with Psi the mean public loss plus a ridge. Noise moves the point
little in directions in which public records curve Psi. Two approximations save time: ``curvature`` replaces Psi by
its second-order expansion at the public fit (a fixed preconditioner), ``gradient`` is descent with the public loss
as a regularizer, which mirror descent is to first order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpfit.core import Minimize, Plan, Step
from dpfit.losses.glm import Squared
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.check import count, one_of
from dpfit.privacy.event import Gaussian
from dpfit.solvers.public_data.descent import (
    STEPS,
    Floats,
    Geometry,
    Move,
    PublicDescent,
    opposite_records_with_public,
    public_basis,
    require_linear,
)
from dpfit.solvers.public_data.public_loss import PublicLoss
from dpfit.solvers.public_data.survey import Survey

MIRRORS = ("loss", "curvature", "gradient")

_RIDGES, _LEAST, _MOST = 19, 1e-7, 100.0
"""How many ridges of the mirror map are compared, between which multiples of the largest public curvature. A ridge
far above it is plain descent."""

_LONGEST = 0.5
"""Between eigenvectors of the public Hessian, the private one can be several times as large (docs/explanation/
public-data.md, section 3): longer steps would overshoot."""

_WEIGHTS = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, 0.03)
"""Weights of the private gradient next to the public one that are compared."""


@dataclass(frozen=True)
class MirrorDescent(PublicDescent):
    """Mirror descent from the public fit; ``mirror`` says how exactly the public loss is the mirror map."""

    kind = "pda_dpmd"
    mirror: str = "loss"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("mirror", self.mirror, MIRRORS)
        if self.problem.domain is not None:
            raise ValueError("mirror descent is for problems without a domain; warm_start_gd takes one")

    def geometries(self, public: Survey, curvatures: Floats) -> Iterator[Geometry]:
        if self.mirror == "gradient":
            yield from self._regularized(public, curvatures)
            return
        flat, largest = np.zeros_like(public.values), float(public.values.max()) or 1.0
        for ridge in self.problem.ridge + np.geomspace(_LEAST * largest, _MOST * largest, _RIDGES):
            metric = public.values + ridge
            psi = replace(public.psi, ridge=float(ridge))
            quadratic = self.mirror == "curvature" or isinstance(self.problem.loss, Squared)
            mover = _Preconditioned(public.vectors, metric).mover if quadratic else _Mirrored(psi).mover
            yield Geometry(curvatures / metric, 1 / metric, flat, mover, _LONGEST)

    def _regularized(self, public: Survey, curvatures: Floats) -> Iterator[Geometry]:
        bends = public.values + self.problem.ridge
        psi = replace(public.psi, ridge=self.problem.ridge)
        for weight in _WEIGHTS:
            pulls = (1 - weight) * bends
            yield Geometry(
                weight * curvatures + pulls, np.full_like(bends, weight), pulls, _Regularized(psi, weight).mover
            )


@dataclass(frozen=True, eq=False)
class _Preconditioned:
    """Mirror steps of a quadratic map with these eigenvectors and eigenvalues."""

    vectors: Floats
    metric: Floats

    def mover(self, size: float) -> Move:
        return lambda points, gradients: points - size * ((gradients @ self.vectors) / self.metric) @ self.vectors.T


@dataclass(frozen=True, eq=False)
class _Mirrored:
    """Mirror steps of the public loss itself."""

    psi: PublicLoss

    def mover(self, size: float) -> Move:
        def move(points: Floats, gradients: Floats) -> Floats:
            return self.psi.inverse_gradients(self.psi.gradients(points) - size * gradients, points)

        return move


@dataclass(frozen=True, eq=False)
class _Regularized:
    """Descent on a weighted mean of the private and the public loss."""

    psi: PublicLoss
    weight: float

    def mover(self, size: float) -> Move:
        def move(points: Floats, gradients: Floats) -> Floats:
            mixed = self.weight * gradients + (1 - self.weight) * self.psi.gradients(points)
            return np.asarray(points - size * mixed)

        return move


@dataclass(frozen=True)
class MirrorDescentAlgorithm:
    """Plans private mirror descent with a public mirror map."""

    name: str = "pda_dpmd"

    def plan(
        self, problem: Minimize, budget: Budget, *, steps: int = STEPS, clip: float | None = None, mirror: str = "loss"
    ) -> Plan:
        """Mirror descent within the budget; the public records come with the data.

        >>> from dpfit.data.dataset import InMemory
        >>> from dpfit.losses import Bounds, Huber
        >>> problem = Minimize(n=400, loss=Huber(1.0), bounds=Bounds(1.0), n_features=2)
        >>> plan = pda_dpmd.plan(problem, Budget(mu=1.0))
        >>> rows = np.tile([[1.0, 0.0], [0.0, 0.1]], (200, 1))
        >>> labels = rows @ [0.3, 0.6] + np.tile([0.05, 0.05, -0.05, -0.05], 100)
        >>> public = InMemory(rows[:40], labels[:40] + 0.02)
        >>> setting = plan.mechanism.setting(public)
        >>> setting.start.round(2).tolist(), setting.risk < setting.public_risk
        ([0.32, 0.78], True)
        >>> released = plan.run(InMemory(rows, labels, public=public), random_state=1).value
        >>> bool(abs(released[1] - 0.6) < 0.05)
        True
        """
        require_linear(self.name, problem, budget)
        multiplier = calibrate(Gaussian, budget).noise_multiplier
        mechanism = MirrorDescent(problem, budget.relation, multiplier, count("steps", steps), clip, mirror)
        return Step(mechanism, public_basis(problem.loss, budget))

    def example(self, relation: str) -> tuple[Minimize, Any, Any]:
        """Opposite records, and public ones."""
        return opposite_records_with_public(relation)


pda_dpmd = MirrorDescentAlgorithm()
