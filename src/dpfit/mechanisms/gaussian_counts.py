"""Counts with Gaussian noise.

Guarantee: mu-GDP with mu = 1 / noise multiplier. The l2 sensitivity is the square root of the
number of answers that can move. Reference: [Gan22] Example 5, Fact 15.
"""

from __future__ import annotations

from dpfit.mechanisms.additive import OneNoise
from dpfit.mechanisms.counting import CountingQueries


class GaussianCounts(OneNoise):
    """Counts with Gaussian noise.

    >>> from dpfit.core import Answer
    >>> from dpfit.mechanisms.counting import Flags
    >>> from dpfit.privacy import Budget
    >>> plan = gaussian_counts.plan(Answer(workload=Flags(5)), Budget(mu=0.5))
    >>> plan.guarantee.mu, round(plan.mechanism.errors.scale / 2**0.5, 4)
    (0.5, 4.4721)
    """

    name = "gaussian_counts"
    summary = "counting queries with Gaussian noise"
    reference = "[Gan22] Example 5, Fact 15"
    workloads = (CountingQueries,)
    guarantees = ("approximate", "gdp", "zcdp")
    tier = "specialised"
    noise = "gaussian"


gaussian_counts = GaussianCounts()
