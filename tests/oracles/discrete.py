"""Exact pairs of finite laws: composition, sampling, groups and selection by enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

Array = np.ndarray
Pair = tuple[Array, Array]


def hockey_stick(p: Array, q: Array, epsilon: float) -> float:
    """Sum of (p - exp(eps) q)_+."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def worse(pair: Pair, epsilon: float) -> float:
    """The larger of the two directions."""
    return max(hockey_stick(*pair, epsilon), hockey_stick(pair[1], pair[0], epsilon))


def renyi(p: Array, q: Array, order: float) -> float:
    """Renyi divergence of p from q (full support)."""
    return math.log(float(np.sum(p**order * q ** (1 - order)))) / (order - 1)


def randomized_response(epsilon: float, categories: int = 2) -> Pair:
    """Laws of the report when the truth is the first or the second category."""
    other = 1 / (math.exp(epsilon) + categories - 1)
    first = np.full(categories, other)
    second = first.copy()
    first[0] = second[1] = math.exp(epsilon) * other
    return first, second


def bounded_range(epsilon: float, level: float) -> Pair:
    """Two outputs with losses ``level`` and ``level - epsilon``, 0 < level < epsilon."""
    high = math.expm1(epsilon - level) / (math.exp(epsilon - level) - math.exp(-level))
    p = np.array([high, 1 - high])
    return p, p * np.exp([-level, epsilon - level])


def approximate(epsilon: float, delta: float) -> Pair:
    """The worst (epsilon, delta)-DP pair: with probability delta the input is revealed."""
    p, q = randomized_response(epsilon)
    return np.concatenate([[delta, 0.0], (1 - delta) * p]), np.concatenate(
        [[0.0, delta], (1 - delta) * q]
    )


def product(pairs: Sequence[Pair]) -> Pair:
    """Independent runs of all pairs."""
    p = q = np.ones(1)
    for a, b in pairs:
        p, q = np.multiply.outer(p, a).ravel(), np.multiply.outer(q, b).ravel()
    return p, q


def poisson(pair: Pair, rate: float) -> Pair:
    """(with the record, without it) under Poisson sampling."""
    return (1 - rate) * pair[1] + rate * pair[0], pair[1]


def kairouz(epsilon: float, times: int, misses: int) -> tuple[float, float]:
    """Kairouz, Oh, Viswanath (2015), Theorem 3.3: point ``misses`` of k-fold eps-DP."""
    total = sum(
        math.comb(times, i)
        * (math.exp((times - i) * epsilon) - math.exp((times - 2 * misses + i) * epsilon))
        for i in range(misses)
    )
    return (times - 2 * misses) * epsilon, total / (1 + math.exp(epsilon)) ** times


def exponential_mechanism(scores: Array, scale: float) -> Array:
    """Output probabilities proportional to exp(scale * score)."""
    weight = np.exp(scale * (scores - np.max(scores)))
    return weight / weight.sum()


def count_mechanism(size: int, epsilon: float) -> Callable[[int], Array]:
    """A noisy count on 0 .. size: weights exp(-epsilon |output - count| / 2), pure DP."""
    outputs = np.arange(size + 1)

    def law(count: int) -> Array:
        weight = np.exp(-epsilon * np.abs(outputs - count) / 2)
        return weight / weight.sum()

    return law


def count_epsilon(law: Callable[[int], Array], size: int) -> float:
    """Its exact pure epsilon for counts that differ by one."""
    return max(float(np.max(np.abs(np.log(law(c) / law(c + 1))))) for c in range(size))


def sampled_counts(values: Sequence[int], rate: float, law: Callable[[int], Array]) -> Array:
    """Law of a noisy count over a Poisson sample of 0/1 records, by enumeration of all samples."""
    total: Array | float = 0.0
    for mask in itertools.product((0, 1), repeat=len(values)):
        weight = math.prod(rate if bit else 1 - rate for bit in mask)
        total = total + weight * law(sum(v for v, bit in zip(values, mask, strict=True) if bit))
    return np.asarray(total)


def runs_generating_function(stop: float, eta: float) -> Callable[[Array], Array]:
    """E[x^K] for the truncated negative binomial number of runs K >= 1."""
    if eta == 0:
        return lambda x: np.log1p(-(1 - stop) * x) / math.log(stop)
    return lambda x: ((1 - (1 - stop) * x) ** -eta - 1) / (stop**-eta - 1)


def best_of_runs(law: Array, stop: float, eta: float) -> Array:
    """Law of the best (largest index) of a random number of runs."""
    generate = runs_generating_function(stop, eta)
    below = np.concatenate([[0.0], np.cumsum(law)])
    below[-1] = 1.0
    return np.diff(generate(below))
