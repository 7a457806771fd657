"""The shape of generalized Gaussian noise of least predicted error, unit answers.

Every shape is private, so the choice affects accuracy only. Reference: [Gan22] Theorems 17 and 34.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.optimize import minimize_scalar

from dpfit.privacy import Budget, calibrate, gaussian
from dpfit.privacy.event import GeneralizedGaussian
from dpfit.theory.counting_queries import limiting_scale
from dpfit.theory.generalized_gaussian import IndependentErrors

SHAPES = (1.0, 1.6, 2.4, 3.5, 5.0, 8.0)
"""Where the search for the best shape starts."""

_MANY = 1000
"""From this many moving answers on, the central limit theorem finds the same shape (to 0.5% in the
scale) at once.
"""


def calibrated_scale(moving: int, shape: float, budget: Budget) -> float:
    """Return the smallest scale in the budget, by exact accounting, for ``moving`` answers."""
    template, guess = GeneralizedGaussian(1.0, shape, moving), _limit(moving, budget)(shape)
    return calibrate(template, budget, first_guess=guess).noise_multiplier


@lru_cache(maxsize=256)
def best_shape(number: int, moving: int, budget: Budget, minimize: str | float) -> float:
    """Return the shape with the smallest predicted error, to two digits.

    >>> best_shape(10**6, 10**6, Budget(epsilon=1.0, delta=1e-6), "max")
    5.04
    """
    if moving >= _MANY:
        scale, steps = _limit(moving, budget), 20
    else:
        scale, steps = (lambda shape: calibrated_scale(moving, shape, budget)), 5

    def size(shape: float) -> float:
        return IndependentErrors(shape, scale(shape), number).size(minimize)

    sizes = [size(shape) for shape in SHAPES]
    best = int(np.argmin(sizes))
    low, high = SHAPES[max(best - 1, 0)], SHAPES[min(best + 1, len(SHAPES) - 1)]
    refined = minimize_scalar(
        size, bounds=(low, high), method="bounded", options={"xatol": 0.02, "maxiter": steps}
    )
    # The ends of the range are not visited by the search between them.
    return SHAPES[best] if sizes[best] <= refined.fun else round(float(refined.x), 2)


def _limit(moving: int, budget: Budget) -> Callable[[float], float]:
    mu = gaussian.mu(float(budget.epsilon or 0.0), float(budget.delta or 0.0))
    return lambda shape: limiting_scale(moving, shape, mu)
