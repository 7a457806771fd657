"""Factorizations of running sums: which coefficients to release, what they cost, how they err.

A stream x_1, .., x_T is released as y = C x + z. C is lower triangular and Toeplitz with
coefficients 1 = c_0 >= c_1 >= .. >= 0, and z is independent noise. The running sums are
S C^-1 y, where S sums. Everything here is public. Proofs: docs/explanation/streams.md.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]

UNIT = 2**16
"""Coefficients are multiples of 1 / UNIT, so that sums of integers stay integers."""

ROUNDED_UP = 1 + 2.0**-40
"""Covers the rounding errors of a root and of a sum of squares that are not exact."""


def powers(rounds: int, exponent: float) -> Floats:
    """Return the first coefficients of (1 - x)**-exponent; the exponent lies in [0, 1].

    The exponent 1/2 gives the square root of the matrix of sums: the least largest error where a
    unit is in one step. Smaller exponents suit units that are in many steps.

    >>> powers(4, 0.5).tolist()
    [1.0, 0.5, 0.375, 0.3125]
    """
    index = np.arange(1, rounds)
    return np.concatenate([[1.0], np.cumprod((index - 1 + exponent) / index)])


def numerators(coefficients: ArrayLike) -> Steps:
    """Return coefficients as integers over `UNIT`, each rounded to the nearest.

    >>> numerators([1.0, 0.5, 0.3]).tolist()
    [65536, 32768, 19661]
    """
    return np.asarray(np.rint(np.asarray(coefficients) * UNIT), dtype=np.int64)


def pattern_sum(column: NDArray[np.generic], times: int, apart: int) -> NDArray[np.generic]:
    """Return the sum of the columns of C for steps 1, 1 + apart, .., at most ``times`` of them.

    >>> pattern_sum(np.array([4, 2, 1, 1, 0]), times=2, apart=3).tolist()
    [4, 2, 1, 5, 2]
    """
    rounds = len(column)
    apart = min(apart, rounds)
    padded = np.zeros(-(-rounds // apart) * apart, dtype=column.dtype)
    padded[:rounds] = column
    sums = np.cumsum(padded.reshape(-1, apart), axis=0).ravel()[:rounds]
    stop = times * apart
    if stop < rounds:
        sums[stop:] -= sums[: rounds - stop].copy()
    return np.asarray(sums)


def participation_norm(column: NDArray[np.generic], times: int = 1, apart: int = 1) -> float:
    """Return how far one unit moves C x in l2, rounded up, if each of its vectors has norm 1.

    A unit is in at most ``times`` steps, at least ``apart`` steps from each other. The worst
    pattern starts at step 1 and is as dense as allowed. Integers over `UNIT` are added exactly.

    >>> round(participation_norm(numerators(powers(4, 1.0)), times=2, apart=1) ** 2, 9)
    13.0
    """
    if np.any(np.diff(column) > 0) or column[-1] < 0:
        raise ValueError("coefficients must not rise and must not be negative")
    moved = pattern_sum(column, times, apart)
    if np.issubdtype(moved.dtype, np.integer):
        square = sum(int(each) ** 2 for each in moved)
        root = math.isqrt(square)
        exact = root if root * root == square else math.nextafter(math.sqrt(square), math.inf)
        return exact / UNIT
    return float(np.linalg.norm(moved)) * ROUNDED_UP


def inverse(coefficients: Floats, rounds: int) -> Floats:
    """Return the first coefficients of 1 / c(x), by Newton's method on power series.

    >>> (inverse(powers(5, 1.0), 5).round(12) + 0.0).tolist()
    [1.0, -1.0, 0.0, 0.0, 0.0]
    """
    from scipy.signal import fftconvolve

    known = np.array([1.0 / coefficients[0]])
    while len(known) < rounds:
        size = min(2 * len(known), rounds)
        error = -fftconvolve(known, coefficients[:size])[:size]
        error[0] += 2.0
        known = fftconvolve(known, error)[:size]
    return known


def error_norms(coefficients: Floats, rounds: int, window: int | None = None) -> Floats:
    """Return the standard deviation of each estimate for noise of deviation 1 in each release.

    The estimates are the running sums or, with ``window``, the sums of the last ``window`` steps.

    >>> error_norms(powers(4, 1.0), 4).tolist(), error_norms(powers(4, 0.0), 4).round(3).tolist()
    ([1.0, 1.0, 1.0, 1.0], [1.0, 1.414, 1.732, 2.0])
    """
    return np.sqrt(np.cumsum(decoder(coefficients, rounds, window) ** 2))


def decoder(coefficients: Floats, rounds: int, window: int | None = None) -> Floats:
    """Return the weights of the newest release, the one before it, .., in an estimate."""
    weights = np.cumsum(inverse(np.asarray(coefficients, dtype=np.float64), rounds))
    if window is not None and window < rounds:
        weights[window:] -= weights[:-window].copy()
    return weights


def rms(norms: Floats) -> float:
    """Return the root mean square over the steps."""
    return float(np.sqrt(np.mean(norms**2)))


@lru_cache(maxsize=64)
def search(rounds: int, times: int, apart: int) -> tuple[float, int]:
    """Return exponent and length of the coefficients with the least rms error of running sums.

    Coefficients are those of `powers`, zero from ``length`` on. Cutting at ``apart`` makes the
    steps of one unit orthogonal. The search reads three public numbers.

    >>> search(365, 1, 1), search(365, 365, 1)
    ((0.5, 365), (0.0, 365))
    """
    if times == 1 or apart >= rounds:
        return 0.5, rounds
    exponent = uncut(rounds, times, apart)
    norm = participation_norm(powers(rounds, exponent), times, apart)
    found = [(norm * _spread(rounds, exponent), exponent, rounds)]
    for length in sorted({2**k for k in range(2, 10)} | {apart, 2 * apart, 3 * apart}):
        for exponent in (0.4, 0.5, 0.6) if 1 < length < min(rounds, 1025) else ():
            column = cut(powers(rounds, exponent), length)
            norm = participation_norm(column, times, apart)
            found.append((norm * rms(error_norms(column, rounds)), exponent, length))
    _, exponent, length = min(found)
    return exponent, length


@lru_cache(maxsize=64)
def uncut(rounds: int, times: int, apart: int) -> float:
    """Return the exponent, a multiple of 1/50, whose powers have the least rms error."""
    if times == 1 or apart >= rounds:
        return 0.5
    exponents = [step / 50 for step in range(51)]
    return min(
        exponents,
        key=lambda exponent: (
            participation_norm(powers(rounds, exponent), times, apart) * _spread(rounds, exponent)
        ),
    )


def _spread(rounds: int, exponent: float) -> float:
    """The rms error of running sums: the decoder of powers is a power."""
    return rms(np.sqrt(np.cumsum(powers(rounds, 1 - exponent) ** 2)))


def cut(coefficients: Floats, length: int) -> Floats:
    """Return the coefficients with zeros from ``length`` on."""
    return np.where(np.arange(len(coefficients)) < length, coefficients, 0.0)


Short = tuple[int, int]
"""A number m / 2**e in (0, 1] with m below 2**16."""


def short(value: float) -> Short:
    """Return the short number nearest to a value in (0, 1).

    >>> short(0.375)
    (49152, 17)
    """
    mantissa, exponent = math.frexp(value)
    return int(min(round(mantissa * UNIT), UNIT - 1)), 16 - exponent


def shortened(numbers: tuple[Short, ...]) -> Floats:
    """Return short numbers as floats; the conversion is exact."""
    return np.array([math.ldexp(m, -e) for m, e in numbers])


@lru_cache(maxsize=64)
def exponentials(
    rounds: int, terms: int = 6, exponent: float = 0.5
) -> tuple[tuple[Short, ...], tuple[Short, ...]]:
    """Return weights a_j and decays q_j with sum a_j (1 - q_j)**(k - 1) near c_k of `powers`.

    The decays are even in the logarithm between 2/3 and 1 / (4 rounds); the weights are the
    non-negative least squares for relative errors. Encoder and decoder then keep ``terms``
    numbers for each entry of a vector, instead of all earlier steps.
    """
    from scipy.optimize import nnls

    rates = np.exp(-np.linspace(math.log(1.5), math.log(4 * rounds), terms))
    decays = tuple(short(float(rate)) for rate in rates)
    index = np.unique(np.geomspace(1, max(rounds - 1, 2), 200).astype(np.int64))
    wanted = powers(int(index[-1]) + 1, exponent)[index]
    if not wanted.all():
        return (), ()
    design = (1 - shortened(decays)[np.newaxis]) ** (index[:, np.newaxis] - 1)
    weights, _ = nnls(design / wanted[:, np.newaxis], np.ones(len(index)))
    # Their sum is c_1, which must not pass c_0 = 1.
    weights = weights / max(1.0, float(weights.sum()) * (1 + 2.0**-12))
    kept = [(short(float(a)), q) for a, q in zip(weights, decays, strict=True) if a > 2.0**-30]
    return tuple(a for a, _ in kept), tuple(q for _, q in kept)


def expanded(weights: tuple[Short, ...], decays: tuple[Short, ...], rounds: int) -> Floats:
    """Return the coefficients of a sum of exponentials.

    >>> expanded(((32768, 16),), ((32768, 16),), 4).tolist()
    [1.0, 0.5, 0.25, 0.125]
    """
    index = np.arange(rounds - 1)
    parts = [
        a * np.exp(index * math.log1p(-q))
        for a, q in zip(shortened(weights), shortened(decays), strict=True)
    ]
    return np.concatenate([[1.0], np.sum(parts, axis=0) if parts else np.zeros(rounds - 1)])


# The binary tree, as a reference.


def levels(rounds: int) -> int:
    """Return the number of levels of the tree: floor(log2 rounds) + 1, the top level included.

    >>> [levels(rounds) for rounds in (1, 2, 3, 4, 365)]
    [1, 2, 2, 3, 9]
    """
    return rounds.bit_length()


def ending(step: int) -> int:
    """Return how many nodes end at a step; steps count from 1.

    >>> [ending(step) for step in range(1, 9)]
    [1, 2, 1, 3, 1, 2, 1, 4]
    """
    if step < 1:
        raise ValueError(f"steps of a tree count from 1, got {step}")
    return (step & -step).bit_length()


def tree_nodes(rounds: int) -> list[tuple[int, int]]:
    """Return the nodes in the order of their release: their first and last steps.

    >>> tree_nodes(4)
    [(1, 1), (2, 2), (1, 2), (3, 3), (4, 4), (3, 4), (1, 4)]
    """
    return [
        (step - 2**height + 1, step)
        for step in range(1, rounds + 1)
        for height in range(ending(step))
    ]


def tree_norm(rounds: int, times: int, apart: int, norm: str = "l2") -> float:
    """Return how far one unit moves all nodes, rounded up, if each of its vectors has norm 1.

    A node of 2**h steps holds a unit at most min(times, ceil(2**h / apart)) times. For one time
    this is levels(rounds), or its root in l2; for several it is an upper bound.

    >>> tree_norm(365, 1, 1, "l1"), tree_norm(365, 1, 1)
    (9.0, 3.0)
    """
    times = min(times, -(-rounds // apart))
    if norm == "l1":
        return float(times * levels(rounds))
    held = (min(times, -(-(2**height) // apart)) for height in range(levels(rounds)))
    return math.sqrt(times * sum(held)) * (1.0 if times == 1 else ROUNDED_UP)
