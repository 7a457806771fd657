"""Noisy descent with the optimal noise schedule and a proven bound on its risk.

Guarantee: mu-GDP for the whole trajectory, as `noisy_gd`. Risk: at most the plan's, in expectation over the noise (and
over the records, for the population objective), for every convex smooth loss and bounded domain.
Reference: [LD] Theorems F.1, F.2, F.4, F.5; their last-iterate proof and their schedule are replaced (docs/errata.md).

With strong convexity m (the ridge), step k has weight w_k = (1 - step_size * m)**-(k + 1) in the average, and noise
whose inverse variance grows like the root of w_k: among all schedules of the same privacy this has the least noise in
the average. The bound is the sum of what is left of the start and the noise,

    radius**2 / (2 step sum(w)) + step d noise**2 sum(sqrt w)**2 / (2 (1 - step M) sum(w)),

and, for the population, what one record can change on average: lipschitz * (2 lipschitz / (m n)) (1 - steps / sum(w)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpfit.core import Minimize, Plan, Risk, Step
from dpfit.geometry import L2Ball
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.check import count
from dpfit.privacy.event import Gaussian
from dpfit.solvers.gradient.last_iterate_gd import smoothness
from dpfit.solvers.gradient.noisy_gd import (
    NoisyGD,
    opposite_records,
    require_minimize,
    trajectory_basis,
)
from dpfit.solvers.gradient.scales import unclipped

_FORGOTTEN = 40.0
"""The logarithm by which the weight of the last step is above that of the first, at most: all is forgotten by then."""


def risk_bound(mechanism: NoisyGD) -> float:
    """The proven bound on the expected excess risk of the weighted average."""
    problem, step, steps = mechanism.problem, mechanism.step_size, mechanism.steps
    curved = smoothness(problem) + problem.ridge
    if problem.domain is None or not step * curved < 1 or mechanism.momentum or mechanism.average != 1.0:
        raise ValueError("the bound is for bounded domains, steps below 1 / smoothness, the full average, no momentum")
    # Sums relative to the last weight: the first ones may be too small for a double, never the last.
    decay = math.log1p(-mechanism.growth) * np.arange(steps)
    weights, roots = float(np.exp(decay).sum()), float(np.exp(decay / 2).sum())
    last = math.exp(min(-math.log1p(-mechanism.growth) * steps, 700.0))
    noise = mechanism.noise_multiplier * mechanism.sensitivity / problem.n
    bound = problem.domain.radius() ** 2 / (2 * step * weights * last)
    bound += step * problem.dimension * noise**2 * roots**2 / (2 * (1 - step * curved) * weights)
    if problem.objective == "population":
        lipschitz = unclipped(problem)
        moved = 2 * lipschitz / problem.n
        if mechanism.growth:
            bound += lipschitz * moved * (step / mechanism.growth) * (1 - steps / (weights * last))
        else:
            bound += lipschitz * moved * step * (steps + 1) / 2
    return bound


@dataclass(frozen=True)
class LangevinAlgorithm:
    """Plans the schedule with the least proven risk."""

    name: str = "langevin"

    def plan(self, problem: Minimize, budget: Budget, *, max_passes: int = 1000) -> Plan:
        """The fewest steps whose bound is within one percent of the best for ``max_passes``.

        >>> from dpfit.losses import Bounds, Logistic
        >>> ball = L2Ball(20, 1.0)
        >>> problem = Minimize(n=10_000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=20, domain=ball)
        >>> plan = langevin.plan(problem, Budget(epsilon=1, delta=1e-6))
        >>> 2.1e-3 < plan.risk.expected < 2.3e-3
        True
        """
        require_minimize(self.name, problem, budget)
        count("max_passes", max_passes)
        if problem.domain is None or not math.isfinite(problem.domain.radius()):
            raise ValueError("langevin needs a bounded domain: its bound depends on how far the optimum can be")
        if not math.isfinite(unclipped(problem)):
            raise ValueError("the gradients of this loss have no bound here: bound labels or slopes")
        multiplier = calibrate(Gaussian, budget).noise_multiplier
        template = NoisyGD(
            problem, budget.relation, multiplier, 1, 0.5 / (smoothness(problem) + problem.ridge), unclipped(problem),
            average=1.0,
        )  # fmt: skip
        counts = {round(2 ** (j / 8)) for j in range(8 * max_passes.bit_length())} | {max_passes}
        best = [_best_step(replace(template, steps=steps)) for steps in sorted(counts) if steps <= max_passes]
        least = min(bound for bound, _ in best)
        bound, mechanism = next(pair for pair in best if pair[0] <= 1.01 * least)
        kind = "excess empirical risk" if problem.objective == "empirical" else "excess population risk"
        predicted = Risk(bound, f"{kind} (proven bound)")
        return Step(replace(mechanism, predicted=predicted), trajectory_basis(problem.loss, budget))

    def example(self, relation: str) -> tuple[Minimize, Any, Any]:
        """The records of `noisy_gd`, in a ball."""
        problem, data, neighbour = opposite_records(relation)
        return replace(problem, domain=L2Ball(2, 1.0)), data, neighbour


def _best_step(mechanism: NoisyGD) -> tuple[float, NoisyGD]:
    """The step size with the least bound for a number of steps."""
    problem = mechanism.problem
    longest = 1 / (smoothness(problem) + problem.ridge)
    candidates = []
    for share in 0.75 * 2.0 ** (-np.arange(0, 48) / 4):
        size = float(share * longest)
        if mechanism.steps * -math.log1p(-size * problem.ridge) > _FORGOTTEN:
            continue  # more steps bring nothing, and the first ones would have noise that no grid can hold
        tried = replace(mechanism, step_size=size, growth=size * problem.ridge)
        candidates.append((risk_bound(tried), tried))
    return min(candidates, key=lambda pair: pair[0], default=(math.inf, mechanism))


langevin = LangevinAlgorithm()
