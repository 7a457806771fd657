"""Counts with generalized Gaussian noise that never exceeds a bound.

Guarantee: (epsilon, delta)-DP. The noise is conditioned on no coordinate exceeding the bound, which
happens with probability at least 1 - escape; a law and that law conditioned on an event of
probability 1 - escape are within total variation ``escape`` of each other, for every dataset, and
that is priced as (1 + exp(epsilon)) escape in delta. Reference: [Gan22] proof of Theorem 17, which
prints the exact answers instead when noise is large; never do that. Proof:
docs/explanation/queries.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpfit.core import Answer, Plan
from dpfit.mechanisms.additive import (
    AdditiveNoise,
    Change,
    Floats,
    NoisySums,
    PowerNoise,
    Steps,
    SumAlgorithm,
)
from dpfit.mechanisms.counting import CountingQueries
from dpfit.noise import INTEGERS, Grid, Source
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.event import Event, WithinTotalVariation
from dpfit.privacy.validate import positive
from dpfit.theory.best_shape import best_shape
from dpfit.theory.errors import ErrorLaw, checked_criterion
from dpfit.theory.generalized_gaussian import quantile


@dataclass(frozen=True)
class TruncatedNoise(AdditiveNoise):
    """The noise of ``law``, redrawn beyond the bound: with probability at most ``escape``."""

    kind = "truncated_noise"
    theorem = (
        "generalized Gaussian mechanism [Gan22, Theorem 17], accounted exactly; conditioned noise"
    )
    independent = False
    law: PowerNoise
    escape: float

    def __post_init__(self) -> None:
        if not positive("escape", self.escape) < 0.5:
            raise ValueError(f"escape must lie between 0 and 0.5, got {self.escape!r}")

    @property
    def label(self) -> str:
        return f"truncated {self.law.label}"

    def event(self, change: Change) -> Event:
        return WithinTotalVariation(self.law.event(change), self.escape)

    def bound(self, number: int) -> int:
        """Largest noise: any of ``number`` draws exceeds it with probability at most ``escape``."""
        # Rounded noise exceeds an integer if noise exceeds it by more than a half; one more covers
        # rounding here.
        return math.ceil(
            self.law.scale * float(quantile(self.escape / number, self.law.shape)) + 0.5
        )

    def add(
        self,
        answers: Steps,
        change: Change,
        source: Source,
        grid: Grid = INTEGERS,
        growth: float = 1.0,
    ) -> Floats:
        bound = self.bound(answers.size)
        noise = self.law.add(np.zeros_like(answers), change, source)
        while (far := np.flatnonzero(np.abs(noise) > bound)).size:
            noise[far] = self.law.add(np.zeros(far.size, dtype=np.int64), change, source)
        return np.asarray(answers + noise)

    def errors(self, change: Change) -> BoundedErrors:
        return BoundedErrors(self.law.errors(change), float(self.bound(change.number)))


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


class TruncatedGeneralizedGaussianCounts(SumAlgorithm):
    """Counts whose errors are bounded with certainty.

    >>> from dpfit.mechanisms.counting import Flags
    >>> plan = truncated_generalized_gaussian.plan(
    ...     Answer(workload=Flags(1000)), Budget(epsilon=1.0, delta=1e-6)
    ... )
    >>> plan.mechanism.noise.bound(1000)
    594
    """

    name = "truncated_generalized_gaussian"
    summary = "counting queries whose errors are bounded with certainty"
    reference = "[Gan22] proof of Theorem 17"
    workloads = (CountingQueries,)
    guarantees = ("approximate",)

    def _plan(
        self, problem: Answer, budget: Budget, *, minimize: str | float = "max", share: float = 0.1
    ) -> Plan:
        """Plan one step; ``share`` of delta buys the certainty."""
        if not 0 < share < 1:
            raise ValueError(f"share must lie strictly between 0 and 1, got {share!r}")
        workload = self.workload(problem)
        change = workload.change(budget.relation)
        shape = best_shape(workload.number, change.moving, budget, checked_criterion(minimize))
        escape = share * float(budget.delta or 0.0) / (1 + math.exp(float(budget.epsilon or 0.0)))

        def mechanism(scale: float) -> NoisySums:
            return NoisySums(
                TruncatedNoise(PowerNoise(scale, shape), escape), workload, budget.relation
            )

        return self.step(calibrate(mechanism, budget).noise, problem, budget)


truncated_generalized_gaussian = TruncatedGeneralizedGaussianCounts()
