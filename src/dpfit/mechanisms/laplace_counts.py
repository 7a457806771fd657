"""Counts with Laplace noise.

Guarantee: epsilon-DP with epsilon = moving answers / scale. For other guarantees, one Laplace
mechanism for each answer that can move is composed, which is tighter than the pure bound.
Reference: [Gan22] Example 2, Fact 3.
"""

from __future__ import annotations

from dpfit.mechanisms.additive import OneNoise
from dpfit.mechanisms.counting import CountingQueries


class LaplaceCounts(OneNoise):
    """Counts with Laplace noise.

    >>> from dpfit.core import Answer
    >>> from dpfit.mechanisms.counting import Flags
    >>> from dpfit.privacy import Budget
    >>> plan = laplace_counts.plan(Answer(workload=Flags(5, max_per_record=1)), Budget(epsilon=1.0))
    >>> plan.guarantee.pure, round(plan.mechanism.noise.scale, 6)
    (1.0, 2.0)
    """

    name = "laplace_counts"
    summary = "counting queries with Laplace noise"
    reference = "[Gan22] Example 2, Fact 3"
    workloads = (CountingQueries,)
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    tier = "specialised"
    noise = "laplace"


laplace_counts = LaplaceCounts()
