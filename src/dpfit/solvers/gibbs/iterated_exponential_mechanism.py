"""The exponential mechanism again and again, each time in a smaller ball around the last sample.

The unregularized gradient at zero has norm at most the Lipschitz constant, so the minimizer of a ridge-regularized
objective lies within lipschitz / ridge of zero. A sample there under epsilon_1 is near it: the square of its distance
is stochastically at most a chi-square over t n ridge. In the ball of that quantile the next sample is colder at the
same price, t = epsilon_2 / (lipschitz * diameter), and so on. How many stages, of which epsilons, is planned from
public numbers; where one stage is best, there is one.

Guarantee: epsilon-DP for every dataset, by adaptive composition. Reference: [LD] Algorithm 3, Theorem D.3 with the
constants of Lemma D.4; docs/explanation/gibbs.md, section 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from dpfit.core import Chain, Minimize
from dpfit.data.dataset import InMemory
from dpfit.losses import Bounds, LinearLoss
from dpfit.privacy import Budget, NotReachable
from dpfit.privacy.check import count, positive
from dpfit.solvers.gibbs.localized_asap import local_sample, require_local
from dpfit.solvers.perturbation.output_perturbation import gradient_change

_ROOM = 1.02
"""Radii are this much larger, for the noise of the release, which is one percent of the sample's deviation."""
_NOISE = 0.98
"""The part of epsilon that sets the temperature, for the plan; what is charged is computed from the stages."""
_RATIOS = (1.5, 2.0, 3.0, 5.0)
_DOWN = 1 - 1e-11


class Stages(NamedTuple):
    """What each stage spends, the radius of its ball, and the bound on the excess risk of the last."""

    epsilons: tuple[float, ...]
    radii: tuple[float, ...]
    risk: float


def planned_stages(
    dimension: int, n: int, ridge: float, change: float, epsilon: float, radius: float, miss: float, most: int
) -> Stages:
    """The stages of the least risk: epsilons that grow by a common ratio, radii by quantiles of chi-square.

    With one stage the risk is 2 dimension change radius / (epsilon n):

    >>> planned_stages(20, 10_000, 0.1, 2.0, 1.0, 1.0, 1e-9, most=1).risk
    0.008
    """
    candidates = []
    for stages in range(1, most + 1):
        quantile = float(stats.chi2(dimension).isf(miss / max(1, stages - 1)))
        for epsilons in shares(epsilon, stages):
            radii = shrunk(epsilons[:-1], radius, quantile / (n * ridge), change)
            risk = 2 * dimension * change * radii[-1] / (epsilons[-1] * n)
            candidates.append(Stages(epsilons, radii, risk))
    return min(candidates, key=lambda stages: stages.risk)


def shares(epsilon: float, stages: int) -> list[tuple[float, ...]]:
    """Ways to spend epsilon on so many stages, each with a common ratio."""
    powers = [ratio ** np.arange(stages) for ratio in _RATIOS]
    return [tuple((epsilon * power / power.sum()).tolist()) for power in powers]


def shrunk(
    epsilons: tuple[float, ...], radius: float, spread: float, change: float, drift: float = 0.0
) -> tuple[float, ...]:
    """The radii of the balls before, between and after stages of these epsilons.

    The square of a sample's distance from the minimizer is at most ``spread`` over its inverse temperature;
    ``drift`` is how far the minimizer itself is from the one that is looked for.
    """
    radii = [radius]
    for spent in epsilons:
        temperature = spent / (2 * change * radii[-1])
        radii.append(min(radii[-1], _ROOM * math.sqrt(spread / temperature) + drift))
    return tuple(radii)


@dataclass(frozen=True)
class IteratedExponentialMechanism:
    """Plans the stages."""

    name: str = "iterated_exponential_mechanism"

    def plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        radius: float | None = None,
        miss: float = 1e-6,
        most: int = 6,
        sampler: str = "auto",
    ) -> Chain:
        """At most ``most`` stages; the value is the tuple of their samples, of which the last is the fit.

        ``radius`` says how far from zero the minimizer can be, if less than lipschitz / ridge is known. ``miss`` is the
        probability that some ball does not hold the minimizer.

        >>> from dpfit.losses import Logistic
        >>> problem = Minimize(n=1_000_000, loss=Logistic(), bounds=Bounds(1.0), n_features=5, ridge=0.1)
        >>> plan = iterated_exponential_mechanism.plan(problem, Budget(epsilon=1.0))
        >>> len(plan.stages), round(plan.guarantee.pure, 2)
        (6, 1.0)
        """
        if isinstance(problem, Minimize) and problem.objective == "population":
            raise ValueError(f"{self.name} is for the empirical objective: {self.name}_sco is for the population's")
        start, change, epsilon = public_numbers(self.name, problem, budget, radius, miss)
        stages = planned_stages(
            problem.dimension, problem.n, problem.ridge, change, epsilon, start, miss, count("most", most)
        )
        return Chain(
            tuple(
                local_sample(problem, ball, replace(budget, epsilon=spent), sampler)
                for spent, ball in zip(stages.epsilons, stages.radii, strict=True)
            )
        )

    def example(self, relation: str) -> tuple[Minimize, Any, Any]:
        """Linear losses, of which one turns around or leaves; so few that one stage is best."""
        n = 200
        problem = Minimize(n=n, loss=LinearLoss(), bounds=Bounds(1.0), n_features=1, ridge=1.0)
        rows = np.repeat([[1.0], [-1.0]], n // 2, axis=0)
        other = rows[:-1] if relation == "add_remove" else np.vstack([rows[:-1], [[1.0]]])
        return problem, InMemory(rows, np.zeros(n)), InMemory(other, np.zeros(len(other)))


def public_numbers(
    name: str, problem: Minimize, budget: Budget, radius: float | None, miss: float
) -> tuple[float, float, float]:
    """The radius of the first ball, what one record changes (over the part that sets temperatures), and epsilon."""
    require_local(name, problem, budget)
    if budget.kind != "pure":
        raise NotReachable(f"{name} promises pure epsilon; use posterior_release under other budgets")
    if not 0 < positive("miss", miss) < 1:
        raise ValueError(f"miss must lie strictly between 0 and 1, got {miss!r}")
    farthest = problem.loss.lipschitz(problem.bounds, None).value / problem.ridge
    start = farthest if radius is None else min(farthest, positive("radius", radius))
    return start, gradient_change(problem, budget.relation) / _NOISE, _DOWN * positive("epsilon", budget.epsilon)


iterated_exponential_mechanism = IteratedExponentialMechanism()
