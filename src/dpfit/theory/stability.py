"""Uniform stability of Langevin diffusions and noisy descents, and conditional moments.

Two runs on neighbouring datasets with the same noise stay within a distance of each other; times
the Lipschitz constant of a loss it is the uniform stability, which bounds the expected population
risk minus the expected empirical one. ``change`` bounds the change of the mean gradient: 2 L / n
for an L-Lipschitz loss under replace-one. ``time`` is the integral of the inverse temperature, the
sum of the step sizes of a descent. Projections onto a convex set do no harm. Reference: [LD] Lemma
E.1, Corollaries E.2 and E.3, Lemma F.3 (with 2 in place of 4); docs/explanation/chains.md, section
8.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dpfit.privacy.validate import integer, non_negative, positive, real


def diffusion_distance(time: float, change: float, strong_convexity: float = 0.0) -> float:
    """Distance of two diffusions at ``time``: (change / m) (1 - exp(-m time)).

    >>> diffusion_distance(3.0, 0.02), round(diffusion_distance(math.inf, 0.02, 0.1), 9)
    (0.06, 0.2)
    """
    m = non_negative("strong_convexity", strong_convexity)
    change = non_negative("change", change)
    if m == 0:
        return change * non_negative("time", time)
    return change / m * -math.expm1(-m * non_negative("time", time))


def diffusion_average_distance(time: float, change: float, strong_convexity: float = 0.0) -> float:
    """Distance of two averages over time with weights exp(m t): (change / m) (1 - x / expm1(x)).

    Here x = m time.

    >>> diffusion_average_distance(3.0, 0.02), round(diffusion_average_distance(3.0, 0.02, 1.0), 5)
    (0.03, 0.01686)
    """
    m, x = strong_convexity, non_negative("strong_convexity", strong_convexity) * time
    change = non_negative("change", change)
    if x < 1e-8:
        return change * non_negative("time", time) / 2
    return change / m * (1 - x / math.expm1(x) if x < 700 else 1.0)


def descent_distance(step_sizes: ArrayLike, change: float, strong_convexity: float = 0.0) -> float:
    """Distance of two projected noisy descents after steps of at most 2 / (m + M).

    A step contracts by 1 - step m and adds step * change.

    >>> round(descent_distance([0.1] * 30, 0.02), 9)
    0.06
    """
    steps = np.asarray(step_sizes, dtype=np.float64)
    m, change = non_negative("strong_convexity", strong_convexity), non_negative("change", change)
    if steps.ndim != 1 or not np.all((steps > 0) & (steps * m <= 1)):
        raise ValueError("step sizes must be positive and at most 1 / strong_convexity")
    if m == 0:
        return change * float(steps.sum())
    return change / m * -math.expm1(float(np.sum(np.log1p(np.maximum(-steps * m, -1 + 1e-300)))))


def descent_average_distance(
    steps: int, step_size: float, change: float, strong_convexity: float = 0.0
) -> float:
    """Distance of two averages with weights (1 - step m)**-k over the iterates k = 1, ..., steps.

    >>> round(descent_average_distance(30, 0.1, 0.02), 9)
    0.031
    """
    growth = positive("step_size", step_size) * non_negative("strong_convexity", strong_convexity)
    if not growth < 1:
        raise ValueError("step_size must be below 1 / strong_convexity")
    change = non_negative("change", change)
    if growth == 0:
        return change * step_size * (integer("steps", steps) + 1) / 2
    # The sum of the weights, relative to the last one: the first may be too small for a double.
    decay = math.log1p(-growth)
    relative = -math.expm1(decay * integer("steps", steps)) / growth
    last = math.exp(min(-decay * steps, 700.0))
    return change / strong_convexity * (1 - steps / (relative * last))


def unconditional_moment(bound: float, growth: float, power: float) -> float:
    """Bound on E[Y] for Y >= 0 whose conditional moments are bounded.

    For each delta < 1/2 there is an event of probability at least 1 - delta with E[Y**power |
    event] <= bound / delta**growth. Reference: [Gan22] Lemma 51, [GT20] Lemma 8 with the last
    factor corrected to power / (power - 1 - growth) (docs/errata.md): the printed one is below E[Y]
    of a Pareto law.

    >>> round(unconditional_moment(1.0, 0.1, 2.0), 3)
    2.628
    """
    g, p = real("growth", growth), real("power", power)
    if not (0 < g < 1 and p > 1 + g):
        raise ValueError("growth must lie in (0, 1) and power be above 1 + growth")
    spread = (1 + g) * math.log1p(g) - g * math.log(g)
    return math.exp((math.log(positive("bound", bound)) + spread) / p) * p / (p - 1 - g)
