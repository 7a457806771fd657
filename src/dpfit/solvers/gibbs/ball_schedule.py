"""Stages of local samples in shrinking balls: what each spends, and how wide its ball is.

The gradient of the mean loss at zero has norm at most the Lipschitz constant. So the minimizer of a
ridge-regularized objective lies within lipschitz / ridge of zero. The squared distance of a sample
from it is stochastically at most a chi-square over t n ridge. All numbers are public; they affect
accuracy, never privacy. Reference: [LD] Theorem D.3 with the constants of Lemma D.4;
docs/explanation/gibbs.md, section 6.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from dpfit.core import Minimize
from dpfit.core.algorithm import BOUNDED_EVERYWHERE, CONVEX, NO_DOMAIN, RIDGE
from dpfit.privacy import Budget
from dpfit.privacy.validate import positive

LOCAL = (NO_DOMAIN, RIDGE, CONVEX, BOUNDED_EVERYWHERE)
"""What local samples need: constants that hold wherever a ball is."""

_ROOM = 1.02
"""Radii are this much larger, for the noise of the release: 1% of the sample's standard deviation.
"""
_NOISE = 0.98
"""The part of epsilon that sets the inverse temperature when planning; the event is computed from
the stages.
"""
_RATIOS = (1.5, 2.0, 3.0, 5.0)
_DOWN = 1 - 1e-11


class FirstBall(NamedTuple):
    """The ball around zero that holds the minimizer, and what the stages may spend."""

    radius: float
    sensitivity: float
    """Largest change of the summed gradient by one record, over the part of epsilon that sets
    temperatures.
    """
    epsilon: float

    @classmethod
    def of(cls, problem: Minimize, budget: Budget, radius: float | None, miss: float) -> FirstBall:
        """Return the ball of radius lipschitz / ridge, or the caller's radius if smaller."""
        if not 0 < positive("miss", miss) < 1:
            raise ValueError(f"miss must lie strictly between 0 and 1, got {miss!r}")
        constants = problem.constants(budget.relation, everywhere=True)
        farthest = constants.lipschitz / problem.ridge
        start = farthest if radius is None else min(farthest, positive("radius", radius))
        epsilon = _DOWN * positive("epsilon", budget.epsilon)
        return cls(start, constants.require_sensitivity() / _NOISE, epsilon)


class BallSchedule(NamedTuple):
    """What each stage spends, the radius of its ball, and the excess-risk bound of the last."""

    epsilons: tuple[float, ...]
    radii: tuple[float, ...]
    risk: float

    @staticmethod
    def best(
        dimension: int, n: int, ridge: float, first: FirstBall, miss: float, most: int
    ) -> BallSchedule:
        """Return the stages of least risk: geometric epsilons, radii by chi-square quantiles.

        With one stage the risk is 2 dimension sensitivity radius / (epsilon n):

        >>> BallSchedule.best(20, 10_000, 0.1, FirstBall(1.0, 2.0, 1.0), 1e-9, most=1).risk
        0.008
        """
        candidates = []
        for stages in range(1, most + 1):
            quantile = float(stats.chi2(dimension).isf(miss / max(1, stages - 1)))
            for epsilons in BallSchedule.splits(first.epsilon, stages):
                radii = BallSchedule.shrinking(epsilons[:-1], first, quantile / (n * ridge))
                risk = 2 * dimension * first.sensitivity * radii[-1] / (epsilons[-1] * n)
                candidates.append(BallSchedule(epsilons, radii, risk))
        return min(candidates, key=lambda schedule: schedule.risk)

    @staticmethod
    def splits(epsilon: float, stages: int) -> list[tuple[float, ...]]:
        """Return ways to spend epsilon on this many stages, each with a common ratio."""
        powers = [ratio ** np.arange(stages) for ratio in _RATIOS]
        return [tuple((epsilon * power / power.sum()).tolist()) for power in powers]

    @staticmethod
    def shrinking(
        epsilons: tuple[float, ...], first: FirstBall, spread: float, drift: float = 0.0
    ) -> tuple[float, ...]:
        """Return the radii of the balls before, between and after stages of these epsilons.

        The squared distance of a sample from the minimizer is at most ``spread`` over its inverse
        temperature. ``drift`` bounds the distance of the minimizer from the one that is looked for.
        """
        radii = [first.radius]
        for spent in epsilons:
            temperature = spent / (2 * first.sensitivity * radii[-1])
            radii.append(min(radii[-1], _ROOM * math.sqrt(spread / temperature) + drift))
        return tuple(radii)
