"""Counts with generalized Gaussian noise that never exceeds a bound.

Guarantee: (epsilon, delta)-DP. The noise is conditioned on no coordinate exceeding the bound, which happens with
probability at least 1 - escape; a law and that law conditioned on an event of probability 1 - escape are within total
variation ``escape`` of each other, for every dataset, and that is priced as (1 + exp(epsilon)) escape in delta.
Reference: [Gan22] proof of Theorem 17, which prints the exact answers instead when noise is large; never do that.
Proof: docs/explanation/queries.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np

from dpfit.core import Answer, Plan
from dpfit.mechanisms.counting import (
    CountingAlgorithm,
    CountingQueries,
    CountNoise,
    Counts,
    Floats,
    counting_step,
    smallest_noise,
)
from dpfit.mechanisms.generalized_gaussian import GeneralizedGaussianCountNoise, best_shape
from dpfit.noise import Source
from dpfit.privacy import Budget
from dpfit.privacy.check import positive
from dpfit.privacy.event import Event, WithinTotalVariation
from dpfit.theory.errors import ErrorLaw, checked_criterion
from dpfit.theory.generalized_gaussian import quantile


@dataclass(frozen=True)
class TruncatedCountNoise(CountNoise):
    """The noise of ``law``, redrawn where it exceeds the bound; ``escape`` is the chance that any of it would."""

    kind = "truncated_count_noise"
    theorem = "generalized Gaussian mechanism [Gan22, Theorem 17], accounted exactly; conditioned noise"
    independent = False
    law: GeneralizedGaussianCountNoise
    escape: float

    def __post_init__(self) -> None:
        if not positive("escape", self.escape) < 0.5:
            raise ValueError(f"escape must lie between 0 and 0.5, got {self.escape!r}")

    @property
    def label(self) -> str:
        return f"truncated {self.law.label}"

    def event(self, changed: int) -> Event:
        return WithinTotalVariation(self.law.event(changed), self.escape)

    def bound(self, number: int) -> int:
        """The largest noise: by the union bound one of ``number`` draws exceeds it with probability at most escape."""
        # Rounded noise exceeds a whole number if noise exceeds it by more than a half; one more covers rounding here.
        return math.ceil(self.law.noise_multiplier * float(quantile(self.escape / number, self.law.shape)) + 0.5)

    def add(self, counts: Counts, changed: int, source: Source) -> Floats:
        bound = self.bound(counts.size)
        noise = self.law.add(np.zeros(counts.shape, dtype=np.int64), changed, source)
        while (far := np.flatnonzero(np.abs(noise) > bound)).size:
            noise[far] = self.law.add(np.zeros(far.size, dtype=np.int64), changed, source)
        return np.asarray(counts + noise)

    def errors(self, number: int, changed: int) -> BoundedErrors:
        return BoundedErrors(self.law.errors(number, changed), float(self.bound(number)))


@dataclass(frozen=True)
class BoundedErrors(ErrorLaw):
    """Errors that are smaller than those of ``law``, and never above ``bound``."""

    law: ErrorLaw
    bound: float

    @property
    def average(self) -> float:
        return self.law.average

    @property
    def expected_max(self) -> float:
        return self.law.expected_max

    def quantile(self, level: float) -> float:
        return min(self.law.quantile(level), self.bound)

    def max_quantile(self, level: float) -> float:
        return min(self.law.max_quantile(level), self.bound)


class TruncatedGeneralizedGaussianCounts(CountingAlgorithm):
    """Counts whose errors are bounded with certainty.

    >>> from dpfit.core import Answer
    >>> from dpfit.mechanisms.counting import Flags
    >>> problem = Answer(n=100, workload=Flags(1000))
    >>> plan = truncated_generalized_gaussian.plan(problem, Budget(epsilon=1.0, delta=1e-6))
    >>> plan.mechanism.noise.bound(1000)
    594
    """

    name = "truncated_generalized_gaussian"
    summary = "counting queries whose errors are bounded with certainty"
    reference = "[Gan22] proof of Theorem 17"
    guarantees = ("approximate",)

    def _plan(self, problem: Answer, budget: Budget, *, minimize: str | float = "max", share: float = 0.1) -> Plan:
        """Plan one step; ``share`` of delta buys the certainty."""
        workload = cast(CountingQueries, problem.workload)
        sizes = workload.number, workload.changed(budget.relation)
        return counting_step(self.noise(*sizes, budget, checked_criterion(minimize), share), workload, budget)

    def noise(
        self, number: int, changed: int, budget: Budget, minimize: str | float, share: float = 0.1
    ) -> TruncatedCountNoise:
        if not 0 < share < 1:
            raise ValueError(f"share must lie strictly between 0 and 1, got {share!r}")
        shape = best_shape(number, changed, budget, minimize)
        escape = share * float(budget.delta or 0.0) / (1 + math.exp(float(budget.epsilon or 0.0)))

        def law(scale: float) -> TruncatedCountNoise:
            return TruncatedCountNoise(GeneralizedGaussianCountNoise(scale, shape), escape)

        return smallest_noise(law, changed, budget)


truncated_generalized_gaussian = TruncatedGeneralizedGaussianCounts()
