"""Noisy descent with the optimal noise schedule and a proven bound on its risk.

Guarantee: mu-GDP for all iterates together, as `noisy_gd`. Risk: at most the plan's, in expectation
over the noise (and over the records, for the population objective), for every convex smooth loss
and bounded domain. Reference: [LD] Theorems F.1, F.2, F.4, F.5; their last-iterate proof and their
schedule are replaced (docs/errata.md).

With strong convexity m (the ridge), step k has weight w_k = (1 - step_size * m)**-(k + 1) in the
average, and noise whose inverse variance grows like the root of w_k. Among all schedules of the
same privacy this has the least noise in the average. The bound is the sum of what is left of the
start and the noise,

    radius**2 / (2 step sum(w)) + step d noise**2 sum(sqrt w)**2 / (2 (1 - step M) sum(w)),

and, for the population, what one record can change on average: lipschitz * (2 lipschitz / (m n)) (1
- steps / sum(w)).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dpfit.core import Algorithm, Example, Minimize, Plan, Risk
from dpfit.core.algorithm import BOUNDED, BOUNDED_DOMAIN, SMOOTH
from dpfit.core.examples import opposite_records
from dpfit.geometry import L2Ball
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.event import Gaussian
from dpfit.privacy.validate import integer
from dpfit.solvers.descents.descent import Descent, trajectory_step
from dpfit.solvers.descents.momentum import Momentum, momentum_descent
from dpfit.theory.stability import descent_average_distance

_FORGOTTEN = 40.0
"""The logarithm by which the weight of the last step is above that of the first, at most: all is
forgotten by then.
"""


class _Choice(NamedTuple):
    """A number of steps, a step size, and the bound that they have."""

    bound: float
    steps: int
    step_size: float


def risk_bound(descent: Descent) -> float:
    """Return the proven bound on the expected excess risk of the weighted average."""
    problem, moves = descent.problem, descent.optimizer
    if not isinstance(moves, Momentum):
        raise ValueError(f"the bound is for gradient steps, got {moves.kind!r}")
    schedule, curvature = moves.schedule, problem.constants("add_remove").smoothness + problem.ridge
    if (
        problem.region is None
        or not moves.step_size * curvature < 1
        or schedule.momentum
        or schedule.average != 1.0
    ):
        raise ValueError(
            "the bound is for bounded domains, steps below 1 / smoothness, the full average, no "
            "momentum"
        )
    return _bound(problem, _noise(descent), schedule.steps, moves.step_size, schedule.growth)


def _noise(descent: Descent) -> float:
    """Noise standard deviation of a mean gradient by direction, as if for one release."""
    aggregate, (clip_norm,) = descent.clipped_mean, descent.optimizer.bounds(descent.problem)
    return (
        aggregate.noise_multiplier
        * aggregate.scale(descent.asked(clip_norm))[1]
        / descent.problem.n
    )


def _bound(problem: Minimize, noise: float, steps: int, step_size: float, growth: float) -> float:
    constants = problem.constants("add_remove")
    # Sums relative to the last weight: the first ones may be too small for a double, never the
    # last.
    decay = math.log1p(-growth) * np.arange(steps)
    weights, roots = float(np.exp(decay).sum()), float(np.exp(decay / 2).sum())
    last = math.exp(min(-math.log1p(-growth) * steps, 700.0))
    bound = _radius(problem) ** 2 / (2 * step_size * weights * last)
    slack = 1 - step_size * (constants.smoothness + problem.ridge)
    bound += step_size * problem.dimension * noise**2 * roots**2 / (2 * slack * weights)
    if problem.objective == "population":
        change = 2 * constants.lipschitz / problem.n
        bound += constants.lipschitz * descent_average_distance(
            steps, step_size, change, problem.ridge
        )
    return bound


def _radius(problem: Minimize) -> float:
    """How far the optimum can be from the public start."""
    if problem.region is None:
        return math.inf
    if problem.start is None:
        return problem.region.radius()
    return problem.region.diameter()


class Langevin(Algorithm[Minimize]):
    """Noisy descent whose expected excess risk has a proven bound.

    Use it where a bound for all data matters more than the error on typical data; otherwise
    `noisy_gd`. Guarantee: mu-GDP for all iterates together, mu = 1 / noise_multiplier.
    Reference: [LD] Theorems F.1, F.2, F.4, F.5, corrected (docs/errata.md).
    Work: the fewest passes whose bound is within one percent of the best for ``max_passes``.

    Examples
    --------
    >>> from dpfit.losses import Bounds, Logistic
    >>> ball = L2Ball(20, 1.0)
    >>> problem = Minimize(
    ...     n=10_000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=20, domain=ball
    ... )
    >>> plan = langevin.plan(problem, Budget(epsilon=1, delta=1e-6))
    >>> 2.1e-3 < plan.risk.expected < 2.3e-3, plan.risk.proven
    (True, True)
    """

    name = "langevin"
    summary = "noisy descent with the optimal schedule and a proven bound on its risk"
    reference = "[LD] Theorems F.1, F.2, F.4, F.5, corrected"
    solves = Minimize
    guarantees = ("approximate", "gdp", "zcdp")
    requires = (BOUNDED_DOMAIN, SMOOTH, BOUNDED)
    supports = frozenset({"ridge", "domain", "trust_ball", "population"})
    tier = "reference"

    def _plan(self, problem: Minimize, budget: Budget, *, max_passes: int = 1000) -> Plan:
        """Return the fewest steps with a bound within 1% of the best for ``max_passes``."""
        integer("max_passes", max_passes)
        constants, multiplier = (
            problem.constants(budget.relation),
            calibrate(Gaussian, budget).noise_multiplier,
        )

        def descent(steps: int, step_size: float) -> Descent:
            schedule = Schedule(steps, growth=step_size * problem.ridge)
            return momentum_descent(
                problem, budget.relation, multiplier, step_size, constants.lipschitz, schedule
            )

        longest = 1 / (constants.smoothness + problem.ridge)
        noise = _noise(descent(1, 0.5 * longest))
        counts = {round(2 ** (j / 8)) for j in range(8 * max_passes.bit_length())} | {max_passes}
        best = [
            _best_step(problem, noise, steps, longest)
            for steps in sorted(counts)
            if steps <= max_passes
        ]
        least = min(choice.bound for choice in best)
        bound, steps, step_size = next(choice for choice in best if choice.bound <= 1.01 * least)
        kind = (
            "excess empirical risk"
            if problem.objective == "empirical"
            else "excess population risk"
        )
        # The proof is for convex losses; for others the bound is an estimate.
        convex = problem.loss.convex
        predicted = Risk(bound, f"{kind} (proven bound)" if convex else kind, proven=convex)
        return trajectory_step(replace(descent(steps, step_size), predicted=predicted), budget)

    def example(self, relation: str) -> Example:
        """Return the records of `noisy_gd`, in a ball."""
        problem, data, neighbour = opposite_records(relation)
        return Example(replace(problem, domain=L2Ball(2, 1.0)), data, neighbour)


def _best_step(problem: Minimize, noise: float, steps: int, longest: float) -> _Choice:
    """The step size with the least bound for a number of steps."""
    best = _Choice(math.inf, steps, 0.5 * longest)
    for share in 0.75 * 2.0 ** (-np.arange(0, 48) / 4):
        size = float(share * longest)
        if steps * -math.log1p(-size * problem.ridge) > _FORGOTTEN:
            # more steps bring nothing, and the first ones would have noise that no grid can hold
            continue
        bound = _bound(problem, noise, steps, size, size * problem.ridge)
        if bound < best.bound:
            best = _Choice(bound, steps, size)
    return best


langevin = Langevin()
