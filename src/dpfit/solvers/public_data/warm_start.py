"""Noisy gradient descent that starts at a public fit, with clip and step size from the public records.

Guarantee: mu-GDP with respect to the private records, mu = 1 / noise multiplier, for any data.
Reference: [Gan22] Section 4.5 (DP-GD with a public warm start); docs/explanation/public-data.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpfit.core import Minimize, Plan, Step
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.check import count
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
from dpfit.solvers.public_data.survey import Survey


@dataclass(frozen=True)
class WarmStartGD(PublicDescent):
    """Plain descent from the public fit, projected onto the domain."""

    kind = "warm_start_gd"

    def geometries(self, public: Survey, curvatures: Floats) -> Iterator[Geometry]:
        flat = np.zeros_like(public.values)
        yield Geometry(curvatures, flat + 1.0, flat, self._mover)

    def _mover(self, size: float) -> Move:
        domain = self.problem.domain

        def move(points: Floats, gradients: Floats) -> Floats:
            moved = points - size * gradients
            return moved if domain is None else domain.project(moved)

        return move


@dataclass(frozen=True)
class WarmStartAlgorithm:
    """Plans descent from a public fit."""

    name: str = "warm_start_gd"

    def plan(self, problem: Minimize, budget: Budget, *, steps: int = STEPS, clip: float | None = None) -> Plan:
        """Descent within the budget; the public records come with the data.

        >>> from dpfit.data.dataset import InMemory
        >>> from dpfit.losses import Bounds, Huber
        >>> problem = Minimize(n=400, loss=Huber(1.0), bounds=Bounds(1.0), n_features=1)
        >>> plan = warm_start_gd.plan(problem, Budget(mu=1.0))
        >>> public = InMemory(np.ones((20, 1)), np.tile([0.4, 0.8], 10))
        >>> private = InMemory(np.ones((400, 1)), np.tile([0.5, 0.7], 200), public=public)
        >>> bool(abs(plan.run(private, random_state=1).value[0] - 0.6) < 0.02)
        True
        """
        require_linear(self.name, problem, budget)
        multiplier = calibrate(Gaussian, budget).noise_multiplier
        mechanism = WarmStartGD(problem, budget.relation, multiplier, count("steps", steps), clip)
        return Step(mechanism, public_basis(problem.loss, budget))

    def example(self, relation: str) -> tuple[Minimize, Any, Any]:
        """Opposite records, and public ones."""
        return opposite_records_with_public(relation)


warm_start_gd = WarmStartAlgorithm()
