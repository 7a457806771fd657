"""Printed constants of [Gan22] chapter 2, for documentation, beside calibrated ones.

Noise is never set by these formulas. They show how far a proof's constant is from the truth, and in
which range of its parameters the proof holds at all. Reference: [Gan22] Theorems 17, 18, 34, 36 and
37.
"""

from __future__ import annotations

import math

from dpfit.theory.generalized_gaussian import fisher_information

EVEN_SHAPE, ANY_SHAPE = 185.0, 262.0
"""Lemma 30: sigma = 185 sqrt(k p ln(1/delta)) / epsilon for even p, and sqrt(2) times that after
rounding p up.
"""

MAX_ERROR, MAX_ERROR_ANY_SHAPE = 1480.0, 2094.0
"""Theorems 34, 17: largest error c sqrt(k p ln(1/delta)) (ln k)^(1/p) / epsilon; c = 8 * 185, and
sqrt(2) that.
"""


def printed_scale(number: int, shape: float, epsilon: float, delta: float) -> float:
    """The scale that Lemma 30 prints.

    >>> round(printed_scale(100, 4.0, 1.0, 1e-6))
    13753
    """
    constant = EVEN_SHAPE if shape % 2 == 0 else ANY_SHAPE
    return constant * math.sqrt(number * shape * math.log(1 / delta)) / epsilon


def printed_max_error(number: int, shape: float, epsilon: float, delta: float) -> float:
    """The largest error of Theorem 34 (even shapes) and 17, at t = 1."""
    constant = MAX_ERROR if shape % 2 == 0 else MAX_ERROR_ANY_SHAPE
    spread = math.sqrt(number * shape * math.log(1 / delta))
    return float(constant * spread * math.log(number) ** (1 / shape) / epsilon)


def smallest_number(shape: float, delta: float) -> int:
    """How many queries the proof of Theorem 34 needs for exp(-0.001 k / p) to be below delta / 2.

    >>> smallest_number(4.0, 1e-6)
    58035
    """
    return math.ceil(1000 * shape * math.log(2 / delta))


def limiting_scale(number: int, shape: float, mu: float) -> float:
    """The scale at which ``number`` answers tend to mu-GDP, by the CLT: not a guarantee."""
    return math.sqrt(number * fisher_information(shape)) / mu


def monograph_sparse_vector(hits: int, epsilon: float, delta: float) -> tuple[float, float, float]:
    """Noise scales of threshold, queries and answers in the monograph behind Theorem 36.

    >>> [round(scale) for scale in monograph_sparse_vector(10, 1.0, 1e-6)]
    [71, 142, 805]
    """
    root = math.sqrt(512)
    decide, answer = epsilon * root / (root + 1), 2 * epsilon / (root + 1)
    width = math.sqrt(32 * hits * math.log(2 / delta))
    return width / decide, 2 * width / decide, width / answer


def printed_correction(number: int, shape: float, t: float) -> tuple[float, float]:
    """Theorem 37: the threshold in units of the noise scale, and how many corrections are allowed.

    At a million queries nothing is ever corrected: the threshold (t = 1) is four times the largest
    noise, and fewer than one correction is allowed (t = 2).

    >>> (
    ...     round(printed_correction(10**6, 4.0, 1.0)[0], 1),
    ...     round(printed_correction(10**6, 4.0, 2.0)[1], 1),
    ... )
    (7.6, 0.6)
    """
    return 6 * t * math.log(math.log(number)) ** (1 / shape), 4 * number / math.log(number) ** (
        2 + 2 * t
    )
