"""The iterated exponential mechanism for the population: balls from one part of the records, the sample from another.

Balls shrink as in `iterated_exponential_mechanism`, on every other record and with all of epsilon; each is wider by how
far the minimizer on those records is from that of the population. The last sample is drawn with all of epsilon from the
other records, which the ball knows nothing of: that is what its bound on the population risk needs, and where the
printed proof has a gap.

Guarantee: epsilon-DP for every dataset: a record is in one of the two parts. Reference: [LD] Theorem E.6, Lemma E.5,
repaired; docs/explanation/gibbs.md, section 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from dpfit.core import Chain, Mechanism, Minimize, Risk, Run, Step, Work
from dpfit.privacy import Budget
from dpfit.privacy.check import count, one_of
from dpfit.privacy.event import Event, Parallel
from dpfit.privacy.guarantee import parallel_basis
from dpfit.solvers.gibbs.iterated_exponential_mechanism import (
    Stages,
    iterated_exponential_mechanism,
    public_numbers,
    shares,
    shrunk,
)
from dpfit.solvers.gibbs.localized_asap import LocalSample, local_sample
from dpfit.solvers.perturbation.output_perturbation import gradient_change


@dataclass(frozen=True)
class SplitStages(Mechanism):
    """Balls from one part of the records, then a sample from the other; ``by`` says how records are assigned."""

    kind = "split_stages"
    balls: Chain
    last: Step
    by: str

    def __post_init__(self) -> None:
        one_of("by", self.by, ("index", "coin"))
        if self.by == "index" and self.last.basis.relation == "add_remove":
            raise ValueError("parts by row index need relation='replace': removing a row moves all later rows")
        _ = self._sample

    @property
    def _sample(self) -> LocalSample:
        if not isinstance(self.last.mechanism, LocalSample):
            raise ValueError("the last stage is a sample in a ball")
        return self.last.mechanism

    @property
    def event(self) -> Event:
        """A record is in one part; what the other part does with released values is post-processing."""
        return Parallel((self.balls.event, self.last.event), "index")

    @property
    def work(self) -> Work:
        return (self.balls.work + self.last.work) * 0.5

    @property
    def risk(self) -> Risk:
        problem = self._sample.problem
        gap = gradient_change(problem, "add_remove") * gradient_change(problem, "replace")
        expected = 0.0 if self.last.risk is None else self.last.risk.expected
        return Risk(
            expected + gap / (problem.n * problem.ridge),
            "excess regularized population risk if the balls hold the minimizer (proven bound)",
        )

    def run(self, data: Any, run: Run) -> tuple[Any, ...]:
        return self.run_many(data, run, 1)[0]

    def run_many(self, data: Any, run: Run, count: int) -> list[tuple[Any, ...]]:
        """Independent runs; parts by index are the same in all of them, so first balls are drawn side by side."""
        if self.by == "coin" and count > 1:
            return [self.run(data, run) for _ in range(count)]
        number = np.arange(len(data)) % 2 if self.by == "index" else run.noise.integers(2, len(data))
        first, second = (data.rows(np.flatnonzero(number == part)) for part in (0, 1))
        balls = self.balls.execute_many(first, run.part(0.0, 0.5), count)
        part = run.part(0.5, 0.5)
        return [(*released, self.last.bound(released).execute(second, part)) for released in balls]


def population_stages(
    problem: Minimize, change: float, epsilon: float, radius: float, miss: float, most: int
) -> Stages:
    """The stages of the least risk; the last spends epsilon on its own part of the records, the others share it.

    Half of ``miss`` is for the samples, half for minimizers that are far from that of the population: the mean of m
    independent vectors within b of their mean is within b sqrt(2 log(2 / u) / m) of it but with probability u.
    """
    half, d, ridge = problem.n // 2, problem.dimension, problem.ridge
    candidates = []
    for stages in range(1, most):
        tail = miss / 2 / stages
        drift = gradient_change(problem, "replace") / ridge * math.sqrt(2 * math.log(2 / tail) / half)
        spread = float(stats.chi2(d).isf(tail)) / (half * ridge)
        for epsilons in shares(epsilon, stages):
            radii = shrunk(epsilons, radius, spread, change, drift)
            candidates.append(Stages((*epsilons, epsilon), radii, 2 * d * change * radii[-1] / (epsilon * half)))
    return min(candidates, key=lambda stages: stages.risk)


@dataclass(frozen=True)
class IteratedExponentialMechanismForThePopulation:
    """Plans the stages."""

    name: str = "iterated_exponential_mechanism_sco"

    def plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        radius: float | None = None,
        miss: float = 1e-6,
        most: int = 6,
        sampler: str = "auto",
    ) -> Step:
        """At most ``most`` stages, at least two; the value is the tuple of their samples, the last being the fit.

        >>> from dpfit.losses import Bounds, Logistic
        >>> problem = Minimize(
        ...     n=1_000_000, loss=Logistic(), bounds=Bounds(1.0), n_features=5, ridge=0.1, objective="population"
        ... )
        >>> plan = iterated_exponential_mechanism_sco.plan(problem, Budget(epsilon=1.0))
        >>> len(plan.mechanism.balls.stages), round(plan.guarantee.pure, 2)
        (4, 1.0)
        """
        start, change, epsilon = public_numbers(self.name, problem, budget, radius, miss)
        if problem.objective != "population":
            raise ValueError(f"{self.name} is for the population objective")
        if problem.n < 2:
            raise ValueError("two parts need at least two records")
        stages = population_stages(problem, change, epsilon, start, miss, count("most", most, least=2))
        odd = replace(problem, n=problem.n // 2)
        # Row i goes to part i modulo 2, so that the first part has one more if n is odd.
        even = replace(problem, n=problem.n - problem.n // 2) if budget.relation == "replace" else odd
        *balls, last = (
            local_sample(part, ball, replace(budget, epsilon=spent), sampler)
            for part, ball, spent in zip(
                [even] * (len(stages.radii) - 1) + [odd], stages.radii, stages.epsilons, strict=True
            )
        )
        by = "index" if budget.relation == "replace" else "coin"
        mechanism = SplitStages(Chain(tuple(balls)), last, by)
        return Step(mechanism, parallel_basis([mechanism.balls.basis, last.basis], by))

    def example(self, relation: str) -> tuple[Minimize, Any, Any]:
        """The records of `iterated_exponential_mechanism`."""
        problem, data, neighbour = iterated_exponential_mechanism.example(relation)
        return replace(problem, objective="population"), data, neighbour


iterated_exponential_mechanism_sco = IteratedExponentialMechanismForThePopulation()
