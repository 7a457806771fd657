"""Noisy gradient descent from a public fit; clip and step size from public records.

Guarantee: mu-GDP with respect to the private records, mu = 1 / noise_multiplier, for any data.
Reference: [Gan22] Section 4.5 (DP-GD with a public warm start); docs/explanation/public-data.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpfit.core import Minimize, Plan
from dpfit.core.algorithm import CONVEX
from dpfit.privacy import Budget
from dpfit.solvers.public_data.descent import (
    SMOOTH_MARGIN_LOSS,
    TUNING,
    Floats,
    Geometry,
    Move,
    PublicDescent,
    PublicOptimizer,
)
from dpfit.solvers.public_data.survey import Survey


@dataclass(frozen=True)
class WarmStart(PublicOptimizer):
    """Gradient steps from the public fit, projected onto the domain."""

    kind = "warm_start"

    def geometries(
        self, problem: Minimize, public: Survey, curvatures: Floats
    ) -> Iterator[Geometry]:
        flat = np.zeros_like(public.values)

        def mover(size: float) -> Move:
            return lambda points, gradients: problem.project(points - size * gradients)

        yield Geometry(curvatures, flat + 1.0, flat, mover)


class WarmStartGD(PublicDescent):
    """Noisy gradient descent from a fit of public records.

    Use it where a few unprotected records of the same kind come with the data; `pda_dpmd` also
    learns curvature. Guarantee: mu-GDP for all iterates together with respect to the private
    records. Reference: [Gan22] Section 4.3; docs/explanation/public-data.md.
    Work: ``steps`` passes over the data.

    Parameters
    ----------
    clip_norm : float, optional
        Bound on private gradients; by default the public records decide.

    Examples
    --------
    >>> from dpfit.data.dataset import InMemory
    >>> from dpfit.losses import Bounds, Huber
    >>> problem = Minimize(n=400, loss=Huber(1.0), bounds=Bounds(1.0), n_features=1)
    >>> plan = warm_start_gd.plan(problem, Budget(mu=1.0))
    >>> public = InMemory(np.ones((20, 1)), np.tile([0.4, 0.8], 10))
    >>> private = InMemory(np.ones((400, 1)), np.tile([0.5, 0.7], 200), public=public)
    >>> bool(abs(plan.run(private, random_state=1).value[0] - 0.6) < 0.02)
    True
    """

    name = "warm_start_gd"
    summary = (
        "noisy descent that starts at a fit of public records and takes its settings from them"
    )
    reference = "[Gan22] Sections 1.4 and 4.3"
    requires = (CONVEX, SMOOTH_MARGIN_LOSS)
    supports = frozenset({"ridge", "domain"})
    tier = "specialised"

    def _plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        steps: int = TUNING.steps,
        clip_norm: float | None = None,
    ) -> Plan:
        """Return a descent within the budget; the public records come with the data."""
        return self._public_plan(problem, budget, WarmStart, steps=steps, clip_norm=clip_norm)


warm_start_gd = WarmStartGD()
