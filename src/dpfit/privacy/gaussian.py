"""The curve of Gaussian differential privacy (GDP), its inverse, and exact calibration.

A mechanism is mu-GDP when telling two neighbours apart from its output is at least as hard as
telling N(0, 1) from N(mu, 1). Everything here is a statement about that one pair of normal laws.

Reference: [Liu24] Definition 3.3.1, equations (3.9)-(3.10), Lemma 3.6.3; [ASAP] Definitions 2-3.
"""

from __future__ import annotations

import math
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcinv, erfcx, erfinv, ndtr, ndtri

from dpfit.privacy.rounding import SMALLEST
from dpfit.privacy.validate import non_negative, probability

_ROOT_HALF = math.sqrt(0.5)

_SMALL_MU = 1e-5
"""Below this mu the two terms of delta cancel; a bound without a difference is used (accounting.md,
2.2).
"""


def delta(mu: ArrayLike, epsilon: ArrayLike) -> NDArray[np.float64]:
    """Smallest delta for which mu-GDP gives (epsilon, delta)-DP, rounded up; vectorized.

    With a = -epsilon/mu + mu/2 and b = a - mu, delta = Phi(a) - exp(epsilon) Phi(b). Both terms
    carry the factor exp(-a^2/2), so the difference is one of scaled complementary error functions,
    which keeps its relative accuracy when delta is far below machine precision.

    >>> float(delta(0.2367, 1.0)).__format__(".2e")
    '1.00e-06'
    """
    mu_, eps = np.broadcast_arrays(np.asarray(mu, float), np.asarray(epsilon, float))
    if not (np.all(mu_ >= 0) and np.all(eps >= 0)):
        raise ValueError("mu and epsilon must be non-negative numbers")
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        a = -eps / mu_ + mu_ / 2
        b = a - mu_
        lower = 0.5 * np.exp(-(a**2) / 2) * (erfcx(-a * _ROOT_HALF) - erfcx(-b * _ROOT_HALF))
        upper = ndtr(a) - np.exp(-(a**2) / 2) * 0.5 * erfcx(-b * _ROOT_HALF)
        value = np.where(a < 0, lower, upper)
        # Relative floating-point error: a few units per term, amplified by the cancellation |a - b|
        # = mu.
        slack = 1e-11 + 2e-15 * (10 + np.abs(a)) / mu_ + 1e-15 * a**2
        value = np.where(mu_ < _SMALL_MU, _small_delta(mu_, eps), value * (1 + slack))
    # Numbers near the smallest double are right to a few of these; beyond 39 deviations delta is
    # below one of them.
    value = np.where(a < -39, 0.0, value) + 4 * SMALLEST
    value = np.where((mu_ == 0) | np.isposinf(eps), 0.0, value)
    value = np.where(np.isposinf(mu_), 1.0, value)
    return np.asarray(np.clip(value, 0.0, 1.0), dtype=np.float64)


def _small_delta(mu: NDArray[np.float64], eps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return exp(epsilon/2) mu (phi(t) - t Phi(-t)), t = epsilon / mu.

    It is at least delta, and at most exp(mu^2/8) times delta.
    """
    t = eps / mu
    # phi(t) - t Phi(-t) = phi(t) (1 - t M(t)) with the Mills ratio M, right to a few units of
    # roundoff times t^2.
    remainder = 1 - t * math.sqrt(math.pi / 2) * erfcx(t * _ROOT_HALF)
    bound = mu * np.exp(eps / 2 - t**2 / 2) / math.sqrt(2 * math.pi) * (remainder + 1e-15 * (1 + t))
    return np.asarray(bound * (1 + 1e-11 + 1e-15 * t**2))


def discrete_mu(multiplier: float) -> float:
    """Return the GDP parameter of discrete Gaussian noise, for any sensitivity and dimension.

    It is the smaller root of mu^2 (1 - mu^2/12) = 1 / multiplier^2, which exists for multipliers
    above 1 / sqrt(3), and about (1 + 1 / (24 multiplier^2)) / multiplier. Proof:
    docs/explanation/accounting.md, 2.6.

    >>> round(discrete_mu(1.0), 5), round(discrete_mu(10.0), 7), discrete_mu(0.5)
    (1.0493, 0.1000417, inf)
    """
    third = 1 / multiplier / multiplier / 3
    if third >= 1 - 1e-9:
        return math.inf
    # The root of 6 (1 - sqrt(1 - third)), without cancellation.
    return (
        math.sqrt(2 / (1 + math.sqrt(1 - third))) / multiplier * (1 + 1e-9 * third + 1e-15)
        + SMALLEST
    )


def epsilon(mu: float, delta: float) -> float:
    """Smallest epsilon for which mu-GDP gives (epsilon, delta)-DP, rounded up.

    >>> round(epsilon(mu=0.2367, delta=1e-6), 3)
    1.0
    """
    mu = non_negative("mu", mu)
    target = probability("delta", delta)
    if _delta(mu, 0.0) <= target:
        return 0.0
    if target == 0.0 or math.isinf(mu):
        return math.inf
    from scipy.optimize import brentq  # heavy, so imported on use

    high = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / target)) + mu
    root = float(
        brentq(lambda e: math.log(_delta(mu, e) / target), 0.0, high, xtol=1e-300, rtol=1e-12)
    )
    while _delta(mu, root) > target:
        root = math.nextafter(root * (1 + 1e-12), math.inf)
    return root


@overload
def mu(epsilon: float, delta: float) -> float: ...


@overload
def mu(epsilon: NDArray[np.float64], delta: ArrayLike) -> NDArray[np.float64]: ...


def mu(epsilon: float | NDArray[np.float64], delta: ArrayLike) -> float | NDArray[np.float64]:
    """Largest mu whose curve passes below (epsilon, delta), rounded down; elementwise for arrays.

    >>> round(mu(epsilon=1, delta=1e-6), 5)
    0.2367
    >>> mu(np.array([0.5, 1.0]), 1e-6).round(5).tolist()
    [0.12411, 0.2367]
    """
    if np.ndim(epsilon) or np.ndim(delta):
        return _mu(*np.broadcast_arrays(np.asarray(epsilon, float), np.asarray(delta, float)))
    eps = non_negative("epsilon", epsilon)
    target = probability("delta", delta)
    if target == 0.0 or math.isinf(eps):
        return math.inf if math.isinf(eps) else 0.0
    if target == 1.0:
        return math.inf
    from scipy.optimize import brentq  # heavy, so imported on use

    log_target = math.log(target)

    def gap(log_mu: float) -> float:
        value = _delta(math.exp(log_mu), eps)
        return math.log(value) - log_target if value > 0 else -800.0

    low = max(closed_form_mu(eps, target), 1e-12)
    while gap(math.log(low)) > 0:
        low /= 2
        if low < 1e-300:
            return 0.0
    high = 2 * low
    while gap(math.log(high)) < 0:
        high *= 2
    root = math.exp(float(brentq(gap, math.log(low), math.log(high), xtol=1e-13, rtol=1e-13)))
    root *= 1 - 1e-12
    while _delta(root, eps) > target:
        root *= 1 - 1e-12
    return root


def _mu(eps: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """`mu` of arrays by bisection on a log scale; returns the lower end, which meets delta."""
    if not (np.all(eps >= 0) and np.all((target >= 0) & (target <= 1))):
        raise ValueError("epsilon must be at least 0 and delta must lie between 0 and 1")
    regular = np.isfinite(eps) & (target > 0) & (target < 1)
    limits = np.where(np.isinf(eps) | (target == 1), math.inf, 0.0)
    eps, target = np.where(regular, eps, 1.0), np.where(regular, target, 0.5)
    # delta(mu, epsilon) is at most delta(mu, 0), about 0.4 mu, so the first low end is within the
    # target, but for the rounding of tiny numbers: what is not within it in the end is zero.
    low, high = np.minimum(target, 1e-12), np.maximum(1.0, np.sqrt(eps))
    while np.any(short := delta(high, eps) < target):
        high = np.where(short, 2 * high, high)
    low, high = np.log(low), np.log(high)
    while np.any(high - low > 1e-13 * np.maximum(1.0, np.abs(low))):
        middle = (low + high) / 2
        within = delta(np.exp(middle), eps) <= target
        low, high = np.where(within, middle, low), np.where(within, high, middle)
    root = np.exp(low)
    for less in 1e-12 * 4.0 ** np.arange(20):
        root = np.where(delta(root, eps) > target, root * (1 - less), root)
    return np.where(regular & (delta(root, eps) <= target), root, limits)


def closed_form_mu(epsilon: float, delta: float) -> float:
    """Lower bound on ``mu(epsilon, delta)`` of [Liu24] Lemma 3.6.3; for docs and the bracket only.

    >>> round(closed_form_mu(1, 1e-6), 4)
    0.1916
    """
    if delta >= 0.5:
        return math.sqrt(2 * epsilon)
    spread = 2 * math.log(1 / (2 * delta))
    return 2 * epsilon / (math.sqrt(spread + 2 * epsilon) + math.sqrt(spread))


def tradeoff(mu: float, false_alarm: ArrayLike) -> NDArray[np.float64]:
    """Smallest miss rate of any test between neighbours with the given false-alarm rate.

    >>> round(float(tradeoff(1.0, 0.05)), 4)
    0.7405
    """
    return np.asarray(ndtr(-ndtri(np.asarray(false_alarm, float)) - mu), dtype=np.float64)


def from_pure(epsilon: float) -> float:
    """Smallest mu for which every epsilon-DP mechanism is mu-GDP ([ASAP] Lemma 15).

    >>> round(from_pure(1.0), 5)
    1.23204
    """
    eps = non_negative("epsilon", epsilon)
    if eps > 700:
        return math.inf
    # 2 Phi^-1(e^eps / (1 + e^eps)), without the cancellation at either end.
    root = erfinv(math.tanh(eps / 2)) if eps < 1 else erfcinv(2 / (1 + math.exp(eps)))
    return float(2 * math.sqrt(2) * root) * (1 + 1e-12)


def _delta(mu: float, eps: float) -> float:
    return float(delta(mu, eps))
