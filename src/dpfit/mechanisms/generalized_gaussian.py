"""Counts with noise of density exp(-(|x| / scale)^p): smaller largest errors than Gaussian noise.

Guarantee: (epsilon, delta)-DP by the exact composition of the one-coordinate curve, once for each answer that can move.
Reference: [Gan22] Theorems 17 and 34. The worst change moves all movable answers at once; the proof is in
docs/explanation/accounting.md, section 2.5, and docs/explanation/queries.md. Noise is calibrated numerically;
`dpfit.theory.counting_queries` has the printed constants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np
from scipy.optimize import minimize_scalar

from dpfit.core import Answer, Plan
from dpfit.mechanisms.counting import (
    CountingAlgorithm,
    CountingQueries,
    CountNoise,
    Counts,
    Floats,
    counting_step,
)
from dpfit.noise import INTEGERS, Source, add_generalized_gaussian
from dpfit.noise import GeneralizedGaussian as Law
from dpfit.privacy import Budget, calibrate, gaussian
from dpfit.privacy.event import Event, GeneralizedGaussian
from dpfit.theory.counting_queries import limiting_scale
from dpfit.theory.errors import checked_criterion
from dpfit.theory.generalized_gaussian import IndependentErrors

SHAPES = (1.0, 1.6, 2.4, 3.5, 5.0, 8.0)
"""Where the search for the best shape starts."""

_MANY = 1000
"""From this many moving answers on, the central limit theorem finds the same shape (to 0.5% in the scale) at once."""


@dataclass(frozen=True)
class GeneralizedGaussianCountNoise(CountNoise):
    """Independent noise on every count; multiplier = scale, since a count moves by one."""

    kind = "generalized_gaussian_count_noise"
    theorem = "generalized Gaussian mechanism [Gan22, Theorem 17], accounted exactly"
    noise_multiplier: float
    shape: float

    def __post_init__(self) -> None:
        # The accounted distribution and the drawn one check their ranges now, before the budget is spent.
        GeneralizedGaussian(self.noise_multiplier, self.shape, 1)
        Law(self.shape)

    @property
    def label(self) -> str:
        return f"generalized Gaussian (p = {self.shape:g})"

    def event(self, changed: int) -> Event:
        return GeneralizedGaussian(self.noise_multiplier, self.shape, changed)

    def add(self, counts: Counts, changed: int, source: Source) -> Floats:
        return add_generalized_gaussian(
            counts,
            linf_sensitivity=1.0,
            noise_multiplier=self.noise_multiplier,
            shape=self.shape,
            source=source,
            grid=INTEGERS,
        )

    def errors(self, number: int, changed: int) -> IndependentErrors:
        return IndependentErrors(self.shape, self.noise_multiplier, number)


class GeneralizedGaussianCounts(CountingAlgorithm):
    """Counts with generalized Gaussian noise.

    >>> from dpfit.core import Answer
    >>> from dpfit.mechanisms.counting import Flags
    >>> problem = Answer(n=100, workload=Flags(1000))
    >>> plan = generalized_gaussian.plan(problem, Budget(epsilon=1.0, delta=1e-6))
    >>> plan.mechanism.noise.label, round(plan.risk.expected)
    ('generalized Gaussian (p = 3.72)', 400)
    """

    name = "generalized_gaussian"
    summary = "counting queries with noise of density exp(-|x|^p): small largest errors"
    reference = "[Gan22] Theorems 17 and 34"
    guarantees = ("approximate",)
    tier = "specialised"

    def _plan(
        self, problem: Answer, budget: Budget, *, minimize: str | float = "max", shape: float | None = None
    ) -> Plan:
        """Plan one step; the ``shape`` None takes the one with the smallest error, as ``minimize`` measures it."""
        workload = cast(CountingQueries, problem.workload)
        sizes = workload.number, workload.changed(budget.relation)
        return counting_step(self.noise(*sizes, budget, checked_criterion(minimize), shape), workload, budget)

    def noise(
        self, number: int, changed: int, budget: Budget, minimize: str | float, shape: float | None = None
    ) -> GeneralizedGaussianCountNoise:
        if shape is None:
            shape = best_shape(number, changed, budget, minimize)
        return GeneralizedGaussianCountNoise(calibrated_scale(changed, shape, budget), shape)


def calibrated_scale(changed: int, shape: float, budget: Budget) -> float:
    """Return the smallest scale within the budget, by exact accounting."""
    template, guess = GeneralizedGaussian(1.0, shape, changed), _limit(changed, budget)(shape)
    return calibrate(template, budget, first_guess=guess).noise_multiplier


@lru_cache(maxsize=256)
def best_shape(number: int, changed: int, budget: Budget, minimize: str | float) -> float:
    """Return the shape with the smallest predicted error, to two digits; every shape is private.

    >>> best_shape(10**6, 10**6, Budget(epsilon=1.0, delta=1e-6), "max")
    5.04
    """
    if changed >= _MANY:
        scale, steps = _limit(changed, budget), 20
    else:
        scale, steps = (lambda shape: calibrated_scale(changed, shape, budget)), 5

    def size(shape: float) -> float:
        return IndependentErrors(shape, scale(shape), number).size(minimize)

    sizes = [size(shape) for shape in SHAPES]
    best = int(np.argmin(sizes))
    low, high = SHAPES[max(best - 1, 0)], SHAPES[min(best + 1, len(SHAPES) - 1)]
    refined = minimize_scalar(size, bounds=(low, high), method="bounded", options={"xatol": 0.02, "maxiter": steps})
    # The ends of the range are not visited by the search between them.
    return SHAPES[best] if sizes[best] <= refined.fun else round(float(refined.x), 2)


def _limit(changed: int, budget: Budget) -> Callable[[float], float]:
    mu = gaussian.mu(float(budget.epsilon or 0.0), float(budget.delta or 0.0))
    return lambda shape: limiting_scale(changed, shape, mu)


generalized_gaussian = GeneralizedGaussianCounts()
