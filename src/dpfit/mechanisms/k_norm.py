"""Counts with noise of density exp(-epsilon max|x_i|): the pure mechanism for queries that may all move at once.

Guarantee: epsilon-DP. The density at y - answers changes by a factor of at most exp(epsilon) when all answers move by
at most one, by the triangle inequality; it integrates to the same number for every dataset, so there is no factor two.
Reference: [Gan22] Section 2.1 (the exponential mechanism with l-infinity loss).
"""

from __future__ import annotations

from dataclasses import dataclass

from dpfit.mechanisms.counting import CountingAlgorithm, CountNoise, Counts, Floats
from dpfit.noise import INTEGERS, Source, add_linf_laplace
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.check import positive
from dpfit.privacy.event import Event, Pure
from dpfit.theory.k_norm import CubeErrors


@dataclass(frozen=True)
class KNormCountNoise(CountNoise):
    """One noise vector in the maximum norm."""

    kind = "k_norm_count_noise"
    theorem = "K-norm mechanism in the maximum norm [Gan22, Section 2.1]"
    independent = False
    epsilon: float

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)

    @property
    def label(self) -> str:
        return "K-norm"

    def event(self, changed: int) -> Event:
        return Pure(self.epsilon)

    @property
    def scale(self) -> float:
        """1 / epsilon, rounded up by a few units in the last place."""
        return (1 + 2.0**-50) / self.epsilon

    def add(self, counts: Counts, changed: int, source: Source) -> Floats:
        return add_linf_laplace(counts, linf_sensitivity=1.0, noise_multiplier=self.scale, source=source, grid=INTEGERS)

    def errors(self, number: int, changed: int) -> CubeErrors:
        return CubeErrors(self.scale, number)


class KNormCounts(CountingAlgorithm):
    """Counts with K-norm noise.

    >>> from dpfit.core import Answer
    >>> from dpfit.mechanisms.counting import Flags
    >>> plan = k_norm.plan(Answer(n=100, workload=Flags(50)), Budget(epsilon=0.5))
    >>> plan.guarantee.pure, round(plan.risk.expected, 6)
    (0.5, 100.0)
    """

    name = "k_norm"
    summary = "up to about a hundred overlapping counting queries, pure epsilon"
    reference = "[Gan22] Section 2.1"
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    tier = "specialised"

    def noise(self, number: int, changed: int, budget: Budget, minimize: str | float) -> KNormCountNoise:
        return KNormCountNoise(calibrate(lambda level: Pure(1 / level), budget).epsilon)


k_norm = KNormCounts()
