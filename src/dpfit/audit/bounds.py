"""Exact bounds on the rates of a test from counts.

Guarantee: Clopper-Pearson bounds fail with at most the stated probability for every true rate and
every number of runs. Reference: Clopper and Pearson (1934); the proof is in
docs/explanation/auditing.md, section 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainccinv, ndtri

from dpfit.privacy.validate import integer, probability

Floats = NDArray[np.float64]


def upper_rate(successes: ArrayLike, runs: int, failure: float) -> Floats:
    """One-sided upper bounds on success probabilities; each fails with ``failure`` at most.

    >>> round(float(upper_rate(0, 100, 0.05)), 4)
    0.0295
    >>> float(upper_rate(100, 100, 0.05))
    1.0
    """
    if not 0 < probability("failure", failure) < 1:
        raise ValueError(f"failure must lie strictly between 0 and 1, got {failure!r}")
    n = integer("runs", runs)
    seen = np.asarray(successes, dtype=np.float64)
    if not bool(np.all((seen >= 0) & (seen <= n))):
        raise ValueError(f"successes must lie between 0 and the number of runs, {n}")
    missed = np.maximum(n - seen, 1e-300)
    return np.asarray(
        np.where(seen >= n, 1.0, betainccinv(seen + 1, missed, failure)), dtype=np.float64
    )


def lower_rate(successes: ArrayLike, runs: int, failure: float) -> Floats:
    """One-sided lower bounds on success probabilities.

    >>> round(float(lower_rate(100, 100, 0.05)), 4)
    0.9705
    """
    return 1.0 - upper_rate(runs - np.asarray(successes, dtype=np.float64), runs, failure)


def epsilon_lower(alpha: ArrayLike, beta: ArrayLike, delta: float = 0.0) -> Floats:
    """Smallest epsilon for which an (epsilon, delta)-DP pair admits rates ``alpha``, ``beta``.

    Any test obeys ``1 - beta <= exp(epsilon) alpha + delta`` and the same with the rates exchanged.

    >>> round(float(epsilon_lower(0.1, 0.2)), 4)
    2.0794
    """
    a, b = np.asarray(alpha, dtype=np.float64), np.asarray(beta, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.maximum((1 - delta - b) / a, (1 - delta - a) / b)
        return np.asarray(np.log(np.maximum(np.nan_to_num(ratios, nan=1.0), 1.0)))


def mu_lower(alpha: ArrayLike, beta: ArrayLike) -> Floats:
    """Smallest mu for which a mu-GDP pair admits rates at most ``alpha`` and ``beta``.

    The trade-off curve of mu-GDP is ``beta = Phi(-Phi^-1(alpha) - mu)``.

    >>> round(float(mu_lower(0.05, 0.7405)), 3)
    1.0
    """
    a, b = np.asarray(alpha, dtype=np.float64), np.asarray(beta, dtype=np.float64)
    return np.asarray(np.maximum(-ndtri(np.clip(a, 0, 1)) - ndtri(np.clip(b, 0, 1)), 0.0))


def least_runs(enough: Callable[[int], bool], limit: int = 10**12) -> int:
    """The least number of runs that is enough, up to a few; ``enough`` is monotone."""
    high = 1
    while not enough(high):
        high *= 2
        if high > limit:
            return limit
    low = high // 2
    while high - low > max(1, low // 100):
        middle = math.ceil((low + high) / 2)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
