"""Counts with noise of density exp(-epsilon max|x_i|), for queries that may all move.

Guarantee: epsilon-DP, by the triangle inequality. Reference: [Gan22] Section 2.1 (the exponential
mechanism with l-infinity loss).
"""

from __future__ import annotations

from dpfit.mechanisms.additive import OneNoise
from dpfit.mechanisms.counting import CountingQueries


class KNormCounts(OneNoise):
    """Counts with K-norm noise.

    >>> from dpfit.core import Answer
    >>> from dpfit.mechanisms.counting import Flags
    >>> from dpfit.privacy import Budget
    >>> plan = k_norm.plan(Answer(workload=Flags(50)), Budget(epsilon=0.5))
    >>> plan.guarantee.pure, round(plan.risk.expected, 6)
    (0.5, 100.0)
    """

    name = "k_norm"
    summary = "up to about a hundred overlapping counting queries, pure epsilon"
    reference = "[Gan22] Section 2.1"
    workloads = (CountingQueries,)
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    tier = "specialised"
    noise = "k_norm"


k_norm = KNormCounts()
