"""Counts with Laplace noise.

Guarantee: epsilon-DP with epsilon = changed / scale; for other promises the composition of one Laplace mechanism for
each answer that can move, which is tighter than the pure bound. Reference: [Gan22] Example 2, Fact 3.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpfit.mechanisms.counting import CountingAlgorithm, CountNoise, Counts, Floats, smallest_noise
from dpfit.noise import INTEGERS, Source, add_laplace
from dpfit.privacy import Budget
from dpfit.privacy.check import positive
from dpfit.privacy.event import Event, Laplace, Repeated
from dpfit.theory.generalized_gaussian import IndependentErrors


@dataclass(frozen=True)
class LaplaceCountNoise(CountNoise):
    """Independent Laplace noise of this scale on every count."""

    kind = "laplace_count_noise"
    theorem = "Laplace mechanism [Gan22, Fact 3]"
    scale: float

    def __post_init__(self) -> None:
        positive("scale", self.scale)

    @property
    def label(self) -> str:
        return "Laplace"

    def event(self, changed: int) -> Event:
        return Repeated(Laplace(self.scale), changed)

    def add(self, counts: Counts, changed: int, source: Source) -> Floats:
        # Each answer by itself moves by one; that several move together is in the event.
        return add_laplace(counts, l1_sensitivity=1.0, noise_multiplier=self.scale, source=source, grid=INTEGERS)

    def errors(self, number: int, changed: int) -> IndependentErrors:
        return IndependentErrors(1.0, self.scale, number)


class LaplaceCounts(CountingAlgorithm):
    """Counts with Laplace noise.

    >>> from dpfit.core import Answer
    >>> from dpfit.mechanisms.counting import Flags
    >>> plan = laplace_counts.plan(Answer(n=100, workload=Flags(5, at_most=1)), Budget(epsilon=1.0))
    >>> plan.guarantee.pure, round(plan.mechanism.noise.scale, 6)
    (1.0, 2.0)
    """

    name = "laplace_counts"
    summary = "counting queries with Laplace noise"
    reference = "[Gan22] Example 2, Fact 3"
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    tier = "specialised"

    def noise(self, number: int, changed: int, budget: Budget, minimize: str | float) -> LaplaceCountNoise:
        return smallest_noise(LaplaceCountNoise, changed, budget)


laplace_counts = LaplaceCounts()
