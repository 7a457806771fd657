"""Iterated exponential mechanism for the population: balls and sample use disjoint parts.

Balls shrink as in `iterated_exponential_mechanism`, on half of the records and with all of epsilon.
Each is wider by a bound on the distance between the minimizer on those records and that of the
population. The last sample is drawn with all of epsilon from the other half, which the ball does
not depend on. The bound on the population risk needs that, and the printed proof has a gap there.

Guarantee: epsilon-DP for every dataset: a record is in one of the two parts. Reference: [LD]
Theorem E.6, Lemma E.5, repaired; docs/explanation/gibbs.md, section 6; parts:
docs/explanation/parts.md.
"""

from __future__ import annotations

import math
from dataclasses import replace

from scipy import stats

from dpfit.core import Algorithm, Composition, Example, Minimize, Plan, Requirement, Risk, Stage
from dpfit.core.problem import Problem
from dpfit.data.view import part_sizes
from dpfit.privacy import Budget
from dpfit.privacy.validate import integer
from dpfit.solvers.gibbs.ball_schedule import LOCAL, BallSchedule, FirstBall
from dpfit.solvers.gibbs.iterated_exponential_mechanism import IteratedExponentialMechanism
from dpfit.solvers.gibbs.perturbed_sample import BallAround, LossSensitivity, PerturbedSample
from dpfit.solvers.gibbs.sample_budget import SampleBudget

HALVES = (0.5, 0.5)

POPULATION = Requirement(
    "the population objective",
    "use iterated_exponential_mechanism for the empirical one",
    lambda problem, budget, options: problem.objective == "population",
)
TWO_UNITS = Requirement(
    "at least two records", "use posterior_release", lambda problem, budget, options: problem.n > 1
)


class IteratedExponentialMechanismSCO(Algorithm[Minimize]):
    """Balls from one half of the records, a certified sample for the population from the other.

    Use it for pure epsilon and the population risk with several 100,000 records; use
    `regularized_exp_mech` with fewer. Guarantee: pure epsilon-DP, for every dataset. Reference:
    [LD] Theorem E.6, Lemma E.5, repaired.
    """

    name = "iterated_exponential_mechanism_sco"
    summary = (
        "balls from one half of the records, a certified sample for the population from "
        "the other; pure epsilon"
    )
    reference = "[LD] Theorem E.6, Lemma E.5, repaired"
    solves = Minimize
    guarantees = ("pure",)
    requires = (*LOCAL, POPULATION, TWO_UNITS)
    supports = frozenset({"ridge", "population"})

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
        """Return 2 to ``most`` stages; the value is all samples, of which the last is the fit.

        >>> from dpfit.losses import Bounds, Logistic
        >>> problem = Minimize(
        ...     n=1_000_000,
        ...     loss=Logistic(),
        ...     bounds=Bounds(1.0),
        ...     n_features=5,
        ...     ridge=0.1,
        ...     objective="population",
        ... )
        >>> plan = iterated_exponential_mechanism_sco.plan(problem, Budget(epsilon=1.0))
        >>> [stage.part for stage in plan.stages], round(plan.guarantee.pure, 2)
        ([0, 0, 0, 0, 1], 1.0)
        """
        first = FirstBall.of(problem, budget, radius, miss)
        schedule = population_schedule(problem, first, miss, integer("most", most, least=2))
        sizes, last = part_sizes(problem.n, HALVES), len(schedule.radii) - 1
        stages = []
        for index, (spent, ball) in enumerate(zip(schedule.epsilons, schedule.radii, strict=True)):
            part = int(index == last)
            half = replace(problem, n=sizes[part])
            step = SampleBudget.in_ball(half, ball, replace(budget, epsilon=spent)).step(sampler)
            binding = BallAround(f"ball {index}") if index else None
            sample = PerturbedSample.of(step.mechanism)
            stages.append(Stage("sample" if part else f"ball {index + 1}", step, binding, part))
        return Composition(tuple(stages), HALVES, predicted=_population_risk(sample))

    def example(self, relation: str) -> Example:
        """The records of `iterated_exponential_mechanism`."""
        problem, data, neighbour = IteratedExponentialMechanism().example(relation)
        return Example(replace(problem, objective="population"), data, neighbour)

    def _hint(self, kind: str, problem: Problem) -> str:
        return "give pure epsilon, or use regularized_exp_mech"


def population_schedule(
    problem: Minimize, first: FirstBall, miss: float, most: int
) -> BallSchedule:
    """Return the stages of least risk; the last spends epsilon on its part, others share theirs.

    Half of ``miss`` is for the samples, half for minimizers that are far from that of the
    population. The mean of m independent vectors within b of their mean is within b sqrt(2 log(2 /
    u) / m) of it, except with probability u.
    """
    half, d, ridge = min(part_sizes(problem.n, HALVES)), problem.dimension, problem.ridge
    replaced = problem.constants("replace", everywhere=True).require_sensitivity()
    candidates = []
    for stages in range(1, most):
        tail = miss / 2 / stages
        drift = replaced / ridge * math.sqrt(2 * math.log(2 / tail) / half)
        spread = float(stats.chi2(d).isf(tail)) / (half * ridge)
        for epsilons in BallSchedule.splits(first.epsilon, stages):
            radii = BallSchedule.shrinking(epsilons, first, spread, drift)
            risk = 2 * d * first.sensitivity * radii[-1] / (first.epsilon * half)
            candidates.append(BallSchedule((*epsilons, first.epsilon), radii, risk))
    return min(candidates, key=lambda schedule: schedule.risk)


def _population_risk(sample: PerturbedSample) -> Risk:
    """Return the empirical bound of the last sample plus the stability term of the population."""
    problem = sample.problem
    return Risk(
        sample.risk.expected + LossSensitivity.stability(problem) / (problem.n * problem.ridge),
        "excess regularized population risk if the balls hold the minimizer (proven bound)",
    )


iterated_exponential_mechanism_sco = IteratedExponentialMechanismSCO()
