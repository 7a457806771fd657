"""Counts with noise of density exp(-(|x| / scale)^p): smaller largest errors than Gaussian noise.

Guarantee: (epsilon, delta)-DP by the exact composition of the one-coordinate curve, once for each
answer that can move. Reference: [Gan22] Theorems 17 and 34. The worst change moves all movable
answers at once; the proof is in docs/explanation/accounting.md, section 2.5, and
docs/explanation/queries.md. Noise is calibrated numerically; `dpfit.theory.counting_queries` has
the printed constants.
"""

from __future__ import annotations

from dpfit.core import Answer, Plan
from dpfit.mechanisms.additive import PowerNoise, SumAlgorithm
from dpfit.mechanisms.counting import CountingQueries
from dpfit.privacy import Budget
from dpfit.theory.errors import checked_criterion


class GeneralizedGaussianCounts(SumAlgorithm):
    """Counts with generalized Gaussian noise.

    >>> from dpfit.mechanisms.counting import Flags
    >>> problem = Answer(workload=Flags(1000))
    >>> plan = generalized_gaussian.plan(problem, Budget(epsilon=1.0, delta=1e-6))
    >>> plan.mechanism.noise.label, round(plan.risk.expected)
    ('generalized Gaussian (p = 3.72)', 400)
    """

    name = "generalized_gaussian"
    summary = "counting queries with noise of density exp(-|x|^p): small largest errors"
    reference = "[Gan22] Theorems 17 and 34"
    workloads = (CountingQueries,)
    guarantees = ("approximate",)
    tier = "specialised"

    def _plan(
        self,
        problem: Answer,
        budget: Budget,
        *,
        minimize: str | float = "max",
        shape: float | None = None,
    ) -> Plan:
        """Plan one step; by default the shape has the smallest error as set by ``minimize``."""
        change = self.workload(problem).change(budget.relation)
        if shape is None:
            noise = PowerNoise.calibrated(change, budget, checked_criterion(minimize))
        else:
            noise = PowerNoise.of_shape(shape, change, budget)
        return self.step(noise, problem, budget)


generalized_gaussian = GeneralizedGaussianCounts()
