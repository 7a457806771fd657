"""Counts with the noise whose predicted error is smallest.

Laplace, Gaussian, generalized Gaussian and K-norm noise are each calibrated to the whole budget. Their errors are
compared before data is seen: expected largest error, a quantile of it, or average error. The choice depends on the
workload and the budget only, which are public. Reference: [Gan22] chapter 2.
"""

from __future__ import annotations

from typing import cast

from dpfit.core import Algorithm, Answer, Example, Plan
from dpfit.mechanisms.choice import calibrated_noises, choice_notes
from dpfit.mechanisms.counting import CountingAlgorithm, CountingQueries, CountNoise, counting_step
from dpfit.mechanisms.gaussian_counts import gaussian_counts
from dpfit.mechanisms.generalized_gaussian import generalized_gaussian
from dpfit.mechanisms.k_norm import k_norm
from dpfit.mechanisms.laplace_counts import laplace_counts
from dpfit.privacy import Budget
from dpfit.theory.errors import checked_criterion

LAWS: dict[str, CountingAlgorithm] = {
    "laplace": laplace_counts,
    "gaussian": gaussian_counts,
    "generalized_gaussian": generalized_gaussian,
    "k_norm": k_norm,
}


class BestCounts(Algorithm[Answer]):
    """Counts with the best of several kinds of noise.

    Guarantee: that of the chosen noise. Reference: [Gan22] chapter 2.
    """

    name = "counts"
    summary = "counting queries with the noise that is predicted to err least"
    reference = "[Gan22] chapter 2"
    solves = Answer
    workloads = (CountingQueries,)
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    tier = "recommended"

    def _plan(
        self, problem: Answer, budget: Budget, *, minimize: str | float = "max", noise: tuple[str, ...] = tuple(LAWS)
    ) -> Plan:
        """Plan one step; ``minimize`` is "max", "average" or a level (a quantile of the largest error).

        >>> from dpfit.mechanisms.counting import Flags
        >>> plan = counts.plan(Answer(workload=Flags(50)), Budget(epsilon=1.0, delta=1e-6))
        >>> print(plan.explain().splitlines()[-1][:-15])
        chosen     K-norm for its expected largest error: 50, generalized Gaussian (p = 2.48) 73.3, Gaussian 74.97
        """
        checked_criterion(minimize)
        workload = cast(CountingQueries, problem.workload)
        sizes = workload.number, workload.changed(budget.relation)

        def calibrated(algorithm: CountingAlgorithm) -> CountNoise:
            algorithm.require(problem, budget)
            return algorithm.noise(*sizes, budget, minimize)

        found = [(one, one.errors(*sizes).size(minimize)) for one in calibrated_noises(noise, LAWS, calibrated)]
        ranked = sorted(found, key=lambda pair: pair[1])
        notes = choice_notes([(one.label, error) for one, error in ranked], minimize)
        return counting_step(ranked[0][0], workload, budget).with_notes(*notes)

    def example(self, relation: str) -> Example:
        """Return four queries, and neighbours whose answers all move by one."""
        return laplace_counts.example(relation)


counts = BestCounts()
