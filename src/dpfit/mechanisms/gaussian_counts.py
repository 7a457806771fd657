"""Counts with Gaussian noise.

Guarantee: mu-GDP with mu = sqrt(changed) / standard deviation. Reference: [Gan22] Example 5, Fact 15.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpfit.mechanisms.counting import CountingAlgorithm, CountNoise, Counts, Floats
from dpfit.noise import INTEGERS, Source, add_gaussian
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.check import positive
from dpfit.privacy.event import Event, Gaussian
from dpfit.theory.generalized_gaussian import IndependentErrors


@dataclass(frozen=True)
class GaussianCountNoise(CountNoise):
    """Independent normal noise; multiplier = standard deviation / l2 sensitivity."""

    kind = "gaussian_count_noise"
    theorem = "Gaussian mechanism [Gan22, Fact 15]"
    noise_multiplier: float

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)

    @property
    def label(self) -> str:
        return "Gaussian"

    def event(self, changed: int) -> Event:
        return Gaussian(self.noise_multiplier)

    def add(self, counts: Counts, changed: int, source: Source) -> Floats:
        return add_gaussian(
            counts,
            l2_sensitivity=math.nextafter(math.sqrt(changed), math.inf),
            noise_multiplier=self.noise_multiplier,
            source=source,
            grid=INTEGERS,
        )

    def errors(self, number: int, changed: int) -> IndependentErrors:
        return IndependentErrors(2.0, self.noise_multiplier * math.sqrt(2 * changed), number)


class GaussianCounts(CountingAlgorithm):
    """Counts with Gaussian noise.

    >>> from dpfit.core import Answer
    >>> from dpfit.mechanisms.counting import Flags
    >>> plan = gaussian_counts.plan(Answer(n=100, workload=Flags(5)), Budget(mu=0.5))
    >>> plan.guarantee.mu, round(plan.mechanism.errors.scale / 2**0.5, 4)
    (0.5, 4.4721)
    """

    name = "gaussian_counts"
    summary = "counting queries with Gaussian noise"
    reference = "[Gan22] Example 5, Fact 15"
    guarantees = ("approximate", "gdp", "zcdp")
    tier = "specialised"

    def noise(self, number: int, changed: int, budget: Budget, minimize: str | float) -> GaussianCountNoise:
        return GaussianCountNoise(calibrate(Gaussian, budget).noise_multiplier)


gaussian_counts = GaussianCounts()
