"""Renyi divergences: closed forms, triangle inequality, and the conversion to (epsilon, delta).

Reference: [Gan22] Definition 13 (with the logarithm that the print omits), Theorems 14 and 16, Fact
46; [LD] B.2-B.10; conversion: Canonne, Kamath, Steinke (2020), Proposition 12.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

Array = NDArray[np.float64]

ORDERS: Array = np.unique(np.concatenate([1 + np.geomspace(1e-3, 1e6, 181), np.arange(2, 129)]))
"""Orders at which curves are compared; a curve is never used at an order where it was not computed.
"""


def delta(orders: Array, values: Array, epsilon: NDArray[np.float64]) -> Array:
    """Smallest delta at each epsilon over all orders: exp((a-1)(R - epsilon + log(1 - 1/a))) / a.

    The Gaussian with mu = 1 has delta = 0.00005 here:

    >>> round(float(delta(ORDERS, ORDERS * 0.5, np.array([4.0]))[0]), 5)
    0.0002
    """
    usable = np.isfinite(values)
    if not usable.any():
        return np.ones_like(epsilon)
    a, r = orders[usable][:, None], values[usable][:, None]
    exponent = (a - 1) * (r - epsilon[None, :] + np.log1p(-1 / a)) - np.log(a)
    best = np.min(np.where(np.isnan(exponent), np.inf, exponent), axis=0)
    return np.asarray(np.minimum(1.0, np.exp(np.minimum(best, 0.0)) * (1 + 1e-10)))


def epsilon(orders: Array, values: Array, delta: float) -> float:
    """Smallest epsilon at ``delta`` over all orders (inverse of `delta`)."""
    usable = np.isfinite(values)
    if delta <= 0 or not usable.any():
        return math.inf
    a, r = orders[usable], values[usable]
    best = float(np.min(r + np.log1p(-1 / a) - (math.log(delta) + np.log(a)) / (a - 1)))
    return max(0.0, best * (1 + 1e-10) + 1e-15)


def gaussians(
    order: float, mean1: Array, covariance1: Array, mean2: Array, covariance2: Array
) -> float:
    """Renyi divergence of N(mean1, covariance1) from N(mean2, covariance2); inf if undefined.

    >>> gaussians(2.0, np.zeros(1), np.eye(1), np.ones(1), np.eye(1))
    1.0
    """
    mixed = (1 - order) * np.atleast_2d(covariance1) + order * np.atleast_2d(covariance2)
    if np.min(np.linalg.eigvalsh(mixed)) <= 0:
        return math.inf
    gap = np.atleast_1d(mean1) - np.atleast_1d(mean2)
    logs = [
        float(np.linalg.slogdet(np.atleast_2d(c))[1]) for c in (mixed, covariance1, covariance2)
    ]
    quadratic = order / 2 * float(gap @ np.linalg.solve(mixed, gap))
    return quadratic - (logs[0] - (1 - order) * logs[1] - order * logs[2]) / (2 * (order - 1))


def weak_triangle(order: float, q: float, first: float, second: float) -> float:
    """Bound R_order(P1||P3) by the weak triangle inequality.

    Here ``first`` = R_{q order}(P1||P2) and ``second`` = R_{(q order - 1)/(q - 1)}(P2||P3).
    """
    if order <= 1 or q <= 1:
        raise ValueError("the weak triangle inequality needs order > 1 and q > 1")
    return (order - 1 / q) / (order - 1) * first + second


def at_negative_order(order: float, reverse: float) -> float:
    """Return R_{1 - order}(P||Q) from ``reverse`` = R_order(Q||P); order is not 0 or 1.

    [Gan22] Fact 62.

    >>> at_negative_order(3.0, 1.5)
    -1.0
    """
    if order in (0.0, 1.0):
        raise ValueError(f"order must be neither 0 nor 1, got {order!r}")
    return (1 - order) / order * reverse


def randomized_response(epsilon: float, orders: Array) -> Array:
    """Divergence of binary randomized response, the largest among all epsilon-DP mechanisms."""
    if math.isinf(epsilon):
        return np.full(orders.shape, math.inf)
    # The moment minus one is expm1(a e) (1 - exp((1 - a) e)) / (1 + exp(e)), a product that keeps
    # its digits.
    small = np.minimum(orders * epsilon, 30.0)
    moment = (
        np.expm1(small) * -np.expm1((1 - orders) * epsilon) / (1 + math.exp(min(epsilon, 700.0)))
    )
    tail = orders * epsilon - np.logaddexp(0.0, epsilon)
    log_moment = np.where(
        orders * epsilon < 30,
        np.log1p(moment),
        np.logaddexp(tail, tail + (1 - 2 * orders) * epsilon),
    )
    return np.asarray(np.minimum(log_moment / (orders - 1) * (1 + 1e-14), epsilon))


def laplace(shift: float, orders: Array) -> Array:
    """Divergence of Laplace laws of scale 1 at distance ``shift`` (Mironov 2017, Table II)."""
    up, down = orders / (2 * orders - 1), (orders - 1) / (2 * orders - 1)
    rise, fall = (
        up * np.expm1(np.minimum((orders - 1) * shift, 30.0)),
        down * np.expm1(-orders * shift),
    )
    # Small moments are a difference of the two terms, each right to a few units in the last place.
    small = np.log1p(rise + fall + 1e-15 * (rise - fall))
    large = np.logaddexp(np.log(up) + (orders - 1) * shift, np.log(down) - orders * shift)
    log_moment = np.where((orders - 1) * shift < 30, small, large)
    return np.asarray(np.minimum(log_moment / (orders - 1) * (1 + 1e-14), shift))


def sampled_gaussian(rate: float, mu: float, orders: Array, largest: int = 512) -> Array:
    """Divergence of the Poisson-sampled Gaussian, add/remove (Mironov, Talwar, Zhang 2019).

    Whole orders have a finite sum; (order - 1) times the divergence is convex, so a chord bounds
    the orders between.
    """
    values = np.full(orders.shape, math.inf)
    if rate in (0.0, 1.0):
        return orders * mu**2 / 2 if rate else np.zeros(orders.shape)
    top = int(min(largest, orders[-1] if orders[-1] < largest else largest))
    whole = np.unique(
        np.concatenate([np.arange(1, min(top, 64) + 1), np.geomspace(64, top, 40).astype(int)])
    )
    moments = np.array([_sampled_moment(rate, mu, int(a)) if a > 1 else 0.0 for a in whole])
    inside = orders <= whole[-1]
    values[inside] = np.interp(orders[inside], whole, moments) / (orders[inside] - 1)
    return values


def _sampled_moment(rate: float, mu: float, order: int) -> float:
    """log of the order-th moment of the likelihood ratio of the mixture against N(0, 1)."""
    k = np.arange(order + 1)
    choose = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    terms = choose + (order - k) * math.log1p(-rate) + k * math.log(rate) + k * (k - 1) * mu**2 / 2
    return max(0.0, float(logsumexp(terms)) * (1 + 1e-12) + 1e-14)


def selected(orders: Array, values: Array, stop: float, eta: float) -> Array:
    """Divergence of the best of a random number of runs (Papernot and Steinke 2022, Theorem 2).

    The number of runs is truncated negative binomial (eta, stop); the second order is chosen
    freely.
    """
    usable = np.isfinite(values)
    if not usable.any():
        return values
    extra = (1 + eta) * np.min(
        (1 - 1 / orders[usable]) * values[usable] + math.log(1 / stop) / orders[usable]
    )
    return np.asarray(values + extra + math.log(mean_runs(stop, eta)) / (orders - 1))


def mean_runs(stop: float, eta: float) -> float:
    """Expected number of runs under the truncated negative binomial law."""
    if eta == 0:
        return (1 / stop - 1) / math.log(1 / stop)
    return float(eta * (1 - stop) / (stop * -math.expm1(eta * math.log(stop))))
