"""Levels of the filtered mean: how far one replaced value moves it, and how its budget is shared.

Notation: n values, f_j the number of values within a radius of value j, itself included, and the
score s = mean of f_j, which one replaced value moves by less than 2. A value has the weight
clip((f_j - low) / (high - low), 0, 1). Proofs: docs/explanation/users.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from dpfit.mechanisms.above_threshold import AboveThreshold, ThresholdQueries
from dpfit.privacy import gaussian

SCORE_SENSITIVITY = 2.0
"""How far one replaced value moves the score, rounded up: 2 (n - 1) / n."""

THRESHOLD_SHARE = 0.35
"""The fraction of the test's epsilon that noises the threshold."""


SHARES = np.geomspace(0.004, 0.96, 72)
"""The shares of epsilon that are tried for the test."""


class Ramp(NamedTuple):
    """Counts between which weights rise from 0 to 1, and the radii they are counted at.

    With two radii, weights count within twice the radius of the score.
    """

    low: int
    high: int
    two_radii: bool


def sensitivity(n: int, floor: float, ramp: Ramp) -> float:
    """Return the sensitivity of the weighted mean in radii, for scores of at least ``floor``.

    It is infinite where nothing is proven.

    With two radii 4 (2 + A) / floor, A = (n - floor) / (high - low), for floor >= high + 1. With
    one radius 2 (2 + b / (high - low)) / W, W = n (floor - low) / (n - low) and b the most values
    whose weight can change: n - 1, or n (n - floor) / (n - high - 1) if that is less.

    >>> round(1000 * sensitivity(1000, 950.0, Ramp(500, 750, False)), 2)
    6.23
    """
    low, high, two_radii = ramp
    if not n / 2 <= low < high <= n or floor <= low:
        return math.inf
    if two_radii:
        return math.inf if floor < high + 1 else 4 * (2 + (n - floor) / (high - low)) / floor
    changed = n - 1.0 if high + 1 >= n else min(n - 1.0, n * (n - floor) / (n - high - 1))
    weight = n * (floor - low) / (n - low)
    return 2 * (2 + changed / (high - low)) / weight


def best_ramp(n: int, floor: float) -> Ramp:
    """Return the ramp of least sensitivity from n / 2 on.

    >>> best_ramp(1000, 950.0)
    Ramp(low=500, high=749, two_radii=False)
    """
    low = -(-n // 2)
    tops = np.unique(np.linspace(low + 1, n, min(n - low, 400)).astype(int))
    ramps = [Ramp(low, int(high), False) for high in tops]
    if floor >= low + 2:
        ramps.append(Ramp(low, math.floor(floor) - 1, True))
    return min(ramps, key=lambda ramp: sensitivity(n, floor, ramp))


def false_answer(margin: float, test: AboveThreshold) -> float:
    """Return the probability that the noise of the test exceeds a margin in some round, at most.

    The sum of two independent Laplace variables has the tail (b2**2 exp(-x / b2) - b1**2 exp(-x /
    b1)) / (2 (b2**2 - b1**2)).

    >>> test = AboveThreshold(0.5, ThresholdQueries(0.0, 2.0), 1, 0.0)
    >>> round(false_answer(55.26, test) * 1e6, 2)
    0.5
    """
    step = test.grid.step
    # Query, threshold and both noises are rounded to the grid of the test.
    margin = margin - 2 * step
    if margin <= 0:
        return 1.0
    first, second = test.threshold_scale * step, test.query_scale * step
    if not first:
        return min(1.0, test.rounds / 2 * math.exp(-margin / second))
    if abs(first / second - 1) < 1e-6:
        tail = math.exp(-margin / second) * (1 + margin / (2 * second))
        return min(1.0, test.rounds / 2 * tail * (1 + 1e-5))
    above = second**2 * math.exp(-margin / second) - first**2 * math.exp(-margin / first)
    return min(1.0, test.rounds / 2 * above / (second**2 - first**2))


def margin_for(probability: float, test: AboveThreshold) -> float:
    """Return the smallest margin that noise exceeds with at most this probability."""
    scale = (test.threshold_scale + test.query_scale) * test.grid.step
    most = scale * (4 + math.log(test.rounds / probability))
    root = float(brentq(lambda margin: false_answer(margin, test) - probability, 0.0, most))
    return root * (1 + 1e-9)


@dataclass(frozen=True)
class Levels:
    """How a filtered mean shares its budget: the test's epsilon, its threshold, floor and ramp."""

    epsilon: float
    threshold: float
    floor: float
    ramp: Ramp
    noise: float
    """Standard deviation of the noise of each answer over the radius, by the plain bound."""


def plan_levels(
    n: int,
    rounds: int,
    epsilon: float,
    delta: float,
    *,
    rejected: float = 0.05,
    inliers: float = 1.0,
) -> Levels | None:
    """Return the levels of least noise; None if n is too small for any.

    Honest data, of whose pairs a share ``inliers`` lie within the radius, halt with probability at
    most ``rejected``. The floor is what is left of this share after the noise of the test: n *
    inliers - 4 - (margin of a false pass) - (margin of a false halt).
    """
    best: Levels | None = None
    for share in SHARES:
        found = _levels(n, rounds, epsilon, delta, rejected, inliers, float(share))
        if found is not None and (best is None or found.noise < best.noise):
            best = found
    return best


def _levels(
    n: int, rounds: int, epsilon: float, delta: float, rejected: float, inliers: float, share: float
) -> Levels | None:
    test = score_test(share * epsilon, 0.0, rounds)
    mu = gaussian.mu((1 - share) * epsilon, delta / 2)
    private, useful = _margins(test, mu, delta, rejected)
    floor = inliers * n - (private + useful + 4)
    if not floor > 2 * n / 3 + 1:
        return None
    ramp = best_ramp(n, floor)
    noise = math.sqrt(rounds) * sensitivity(n, floor, ramp) / mu
    return Levels(share * epsilon, floor + 2 + private, floor, ramp, noise)


def _margins(test: AboveThreshold, mu: float, delta: float, rejected: float) -> tuple[float, float]:
    """Return the margins of a false pass and of a false halt.

    The event divides the probability of a false pass by `least_overlap`, so that at most half of
    delta is left for it.
    """
    false_pass = delta / 2 * least_overlap(test.epsilon, mu)
    return margin_for(false_pass, test), margin_for(rejected, test)


def least_overlap(epsilon: float, mu: float) -> float:
    """Return a lower bound on 1 - h(0), h the curve of an epsilon-DP and a mu-GDP mechanism.

    Total variations compose by 1 - (1 - a) (1 - b).

    >>> round(least_overlap(1.0, 0.0), 3), round(least_overlap(1.0, 1.0), 3)
    (0.538, 0.332)
    """
    return (1 - math.tanh(epsilon / 2)) * math.erfc(mu / math.sqrt(8))


def score_test(epsilon: float, threshold: float, rounds: int) -> AboveThreshold:
    """Return the test that halts once the noisy score is below the noisy threshold."""
    share = THRESHOLD_SHARE if rounds > 1 else 0.0
    queries = ThresholdQueries(threshold, SCORE_SENSITIVITY, halt="below")
    return AboveThreshold(epsilon, queries, rounds, share)


def least_n(
    rounds: int, epsilon: float, delta: float, *, rejected: float = 0.05, inliers: float = 1.0
) -> int:
    """Return the smallest n for which `plan_levels` finds levels."""
    if not inliers > 2 / 3:
        raise ValueError(f"inliers must be above 2 / 3, got {inliers!r}; raise the radius")
    margins = []
    for share in map(float, SHARES):
        mu = gaussian.mu((1 - share) * epsilon, delta / 2)
        margins.append(sum(_margins(score_test(share * epsilon, 0.0, rounds), mu, delta, rejected)))
    return math.floor((min(margins) + 5) / (inliers - 2 / 3)) + 1
