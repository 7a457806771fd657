"""Approximate sample perturbation: a Gibbs sample plus noise that covers its displacement.

Guarantee: for every dataset; no convergence is assumed. Arithmetic: bounded where exact rejection
draws on a ball and the effect of rounding is proven and small; it is then part of the privacy cost.
Else idealised: the sampler uses floating-point numbers, and only the noise is exact.
Reference: [ASAP] Algorithm 2, Theorem 2, Lemmas 4 and 5; docs/explanation/certificates.md. The
mechanism: `dpfit.solvers.gibbs.perturbed_sample`. How the budget is spent:
`dpfit.solvers.gibbs.sample_budget`.
"""

from __future__ import annotations

import numpy as np

from dpfit.core import Algorithm, Example, Minimize, Plan
from dpfit.core.algorithm import CONVEX, RIDGE
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import Bounds, LinearLoss
from dpfit.privacy import Budget
from dpfit.solvers.gibbs.perturbed_sample import BALL_OR_BOX
from dpfit.solvers.gibbs.sample_budget import SampleBudget


class AsapPerturb(Algorithm[Minimize]):
    """Certified sample of a Gibbs density on a ball or a box, with the ridge of the problem.

    Use it where the data curve the objective more than the ridge does; use `regularized_exp_mech`
    to have a ridge chosen, and `output_perturbation` where the ridge dominates.
    Guarantee: that of the budget, for every dataset. Reference: [ASAP] Theorem 2, Lemmas 4 and 5.
    """

    name = "asap_perturb"
    summary = (
        "one certified sample of a Gibbs density, with noise that covers the error of its sampler"
    )
    reference = "[ASAP] Algorithm 2, Theorem 2, Lemmas 4 and 5; [Liu24] Theorem 3.4.1"
    solves = Minimize
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    requires = (CONVEX, RIDGE, BALL_OR_BOX)
    supports = frozenset({"ridge", "domain"})
    tier = "specialised"

    def _plan(self, problem: Minimize, budget: Budget, *, sampler: str = "auto") -> Plan:
        """Return the sample of the largest inverse temperature that the budget allows.

        ``sampler`` is "rejection", "proximal", "preconditioned" (smooth generalized linear losses)
        or "auto".

        >>> from dpfit.losses import Logistic
        >>> ball = L2Ball(20, 1.0)
        >>> problem = Minimize(
        ...     n=10_000,
        ...     loss=Logistic(),
        ...     bounds=Bounds(1.0),
        ...     n_features=20,
        ...     domain=ball,
        ...     ridge=0.01,
        ... )
        >>> plan = asap_perturb.plan(problem, Budget(mu=0.5), sampler="proximal")
        >>> round(plan.guarantee.mu, 9), plan.final.sampler.steps < 200
        (0.5, True)
        """
        return SampleBudget(problem, budget).step(sampler)

    def example(self, relation: str) -> Example:
        """Linear losses on a wide ball: a normal sample, shifted as far as one record can."""
        problem = Minimize(
            n=6,
            loss=LinearLoss(),
            bounds=Bounds(1.0),
            n_features=2,
            domain=L2Ball(2, 30.0),
            ridge=1 / 6,
        )
        rows = np.tile([1.0, 0.0], (6, 1))
        if relation == "add_remove":
            return Example(problem, InMemory(rows, np.zeros(6)), InMemory(rows[:-1], np.zeros(5)))
        turned = rows.copy()
        turned[-1] = [-1.0, 0.0]
        return Example(problem, InMemory(rows, np.zeros(6)), InMemory(turned, np.zeros(6)))


asap_perturb = AsapPerturb()
