"""Counts with the noise that has the smallest predicted error.

Laplace, Gaussian, generalized Gaussian and K-norm noise are each calibrated to the whole budget.
Their errors are compared before data is seen: expected largest error, a quantile of it, or average
error. The choice depends on the workload and the budget only, which are public. Reference: [Gan22]
chapter 2.
"""

from __future__ import annotations

from dpfit.mechanisms.additive import BestNoise
from dpfit.mechanisms.counting import CountingQueries


class BestCounts(BestNoise):
    """Counts with the best of several kinds of noise.

    Guarantee: that of the chosen noise. Reference: [Gan22] chapter 2.

    >>> from dpfit.core import Answer
    >>> from dpfit.mechanisms.counting import Flags
    >>> from dpfit.privacy import Budget
    >>> plan = counts.plan(Answer(workload=Flags(50)), Budget(epsilon=1.0, delta=1e-6))
    >>> print(plan.explain().splitlines()[-1][:-15])
    chosen     K-norm, for its expected largest error: 50, generalized Gaussian (p = 2.48) 73.3,
    Gaussian 74.97
    """

    name = "counts"
    summary = "counting queries with the noise of smallest predicted error"
    use_for = "histograms, marginals, ranges and predicates of a table"
    reference = "[Gan22] chapter 2"
    workloads = (CountingQueries,)


counts = BestCounts()
