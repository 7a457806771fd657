"""The exponential mechanism again and again, each time in a smaller ball around the last sample.

A sample under epsilon_1 in a ball that holds the minimizer is near the minimizer. In the ball of
its quantile the next sample has a larger inverse temperature at the same privacy cost, t =
epsilon_2 / (lipschitz * diameter), and so on. The number of stages and their epsilons are planned
from public numbers; where one stage is best, there is one.

Guarantee: epsilon-DP for every dataset, by adaptive composition. Reference: [LD] Algorithm 3,
Theorem D.3 with the constants of Lemma D.4; docs/explanation/gibbs.md, section 6. The radii:
`dpfit.solvers.gibbs.ball_schedule`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpfit.core import Algorithm, Composition, Example, Minimize, Plan, Requirement, Stage
from dpfit.core.problem import Problem
from dpfit.data.dataset import InMemory
from dpfit.losses import Bounds, LinearLoss
from dpfit.privacy import Budget
from dpfit.privacy.validate import integer
from dpfit.solvers.gibbs.ball_schedule import LOCAL, BallSchedule, FirstBall
from dpfit.solvers.gibbs.perturbed_sample import BallAround
from dpfit.solvers.gibbs.sample_budget import SampleBudget

EMPIRICAL = Requirement(
    "the empirical objective",
    "use iterated_exponential_mechanism_sco for the population",
    lambda problem, budget, options: problem.objective == "empirical",
)


class IteratedExponentialMechanism(Algorithm[Minimize]):
    """Certified samples in shrinking balls, each around the last; the value is all samples.

    Use it for pure epsilon and many records, from about 100,000; with fewer it plans a single
    sample. Guarantee: pure epsilon-DP, for every dataset. Reference: [LD] Algorithm 3, Theorem D.3,
    Lemma D.4.
    """

    name = "iterated_exponential_mechanism"
    summary = (
        "certified samples in smaller and smaller balls, each around the last; pure "
        "epsilon, needs no domain"
    )
    reference = "[LD] Algorithm 3, Theorem D.3, Lemma D.4"
    solves = Minimize
    guarantees = ("pure",)
    requires = (*LOCAL, EMPIRICAL)
    supports = frozenset({"ridge"})

    def _plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        radius: float | None = None,
        miss: float = 1e-6,
        most: int = 6,
        sampler: str = "auto",
    ) -> Plan:
        """Return at most ``most`` stages; the last sample is the fit.

        ``radius`` bounds the norm of the minimizer, if less than lipschitz / ridge is known.
        ``miss`` is the probability that some ball does not hold the minimizer.

        >>> from dpfit.losses import Logistic
        >>> problem = Minimize(
        ...     n=1_000_000, loss=Logistic(), bounds=Bounds(1.0), n_features=5, ridge=0.1
        ... )
        >>> plan = iterated_exponential_mechanism.plan(problem, Budget(epsilon=1.0))
        >>> len(plan.stages), round(plan.guarantee.pure, 2)
        (6, 1.0)
        """
        first = FirstBall.of(problem, budget, radius, miss)
        schedule = BallSchedule.best(
            problem.dimension, problem.n, problem.ridge, first, miss, integer("most", most)
        )
        stages = []
        for index, (spent, ball) in enumerate(zip(schedule.epsilons, schedule.radii, strict=True)):
            step = SampleBudget.in_ball(problem, ball, replace(budget, epsilon=spent)).step(sampler)
            stages.append(
                Stage(f"sample {index + 1}", step, BallAround(f"sample {index}") if index else None)
            )
        return Composition(tuple(stages))

    def example(self, relation: str) -> Example:
        """Linear losses; one is turned around or removed. One stage is best for so few."""
        n = 200
        problem = Minimize(n=n, loss=LinearLoss(), bounds=Bounds(1.0), n_features=1, ridge=1.0)
        rows = np.repeat([[1.0], [-1.0]], n // 2, axis=0)
        other = rows[:-1] if relation == "add_remove" else np.vstack([rows[:-1], [[1.0]]])
        return Example(problem, InMemory(rows, np.zeros(n)), InMemory(other, np.zeros(len(other))))

    def _hint(self, kind: str, problem: Problem) -> str:
        return "give pure epsilon, or use posterior_release on a domain"


iterated_exponential_mechanism = IteratedExponentialMechanism()
