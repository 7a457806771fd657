"""Reference values for pairs of continuous laws, computed without dpfit.

Nothing here shares a formula with src/dpfit beyond the definition delta(eps) = integral of (p -
exp(eps) q)_+.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp
from scipy.stats import norm

Array = np.ndarray
LogDensity = Callable[[Array], Array]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)


def gaussian_delta(mu: float, epsilon: float, digits: int = 50) -> mpmath.mpf:
    """Phi(-eps/mu + mu/2) - exp(eps) Phi(-eps/mu - mu/2) with many digits."""
    with mpmath.workdps(digits):
        mu_, eps = mpmath.mpf(float(mu)), mpmath.mpf(float(epsilon))
        return mpmath.ncdf(-eps / mu_ + mu_ / 2) - mpmath.exp(eps) * mpmath.ncdf(
            -eps / mu_ - mu_ / 2
        )


def gaussian_delta_any(mu: Array, epsilon: Array) -> Array:
    """The same in doubles for any real epsilon, mu = 0 included."""
    mu_, eps = np.broadcast_arrays(np.asarray(mu, float), np.asarray(epsilon, float))
    safe = np.where(mu_ > 0, mu_, 1.0)
    value = norm.cdf(-eps / safe + safe / 2) - np.exp(eps + norm.logcdf(-eps / safe - safe / 2))
    return np.where(mu_ > 0, np.maximum(value, 0.0), np.maximum(-np.expm1(eps), 0.0))


def rule(edges: Array) -> tuple[Array, Array]:
    """Nodes and weights of a composite Gauss-Legendre rule."""
    half, middle = np.diff(edges)[:, None] / 2, (edges[1:] + edges[:-1])[:, None] / 2
    return (middle + half * _NODES).ravel(), (half * _WEIGHTS).ravel()


def hockey_stick(log_p: LogDensity, log_q: LogDensity, epsilon: float, edges: Array) -> float:
    """Integral of (p - exp(eps) q)_+, with cells cut at the root where the sign changes."""

    def excess(x: Array) -> Array:
        return log_p(np.asarray(x, float)) - log_q(np.asarray(x, float)) - epsilon

    signs = np.sign(excess(edges))
    roots = [
        brentq(lambda x: float(excess(np.array(x))), edges[i], edges[i + 1], xtol=1e-14)
        for i in np.flatnonzero(signs[:-1] * signs[1:] < 0)
    ]
    x, w = rule(np.unique(np.concatenate([edges, roots])))
    return float(w @ np.maximum(np.exp(log_p(x)) - np.exp(epsilon + log_q(x)), 0.0))


def both_directions(
    log_p: LogDensity, log_q: LogDensity, epsilon: float, edges: Array
) -> tuple[float, float]:
    """Hockey-stick divergence of p from q and of q from p."""
    return hockey_stick(log_p, log_q, epsilon, edges), hockey_stick(log_q, log_p, epsilon, edges)


def normal_mixture(weights: Array, means: Array, scale: float) -> LogDensity:
    """Log density of a mixture of one-dimensional Gaussians."""
    weights, means = np.asarray(weights, float), np.asarray(means, float)

    def log_density(x: Array) -> Array:
        z = (np.asarray(x)[..., None] - means) / scale
        return logsumexp(-(z**2) / 2, b=weights, axis=-1) - math.log(scale * math.sqrt(2 * math.pi))

    return log_density


class PoissonPair:
    """((1 - q) B + q A, B) with monotone likelihood ratio, and T-fold products, closed form.

    ``nodes`` are (loss of A against B, probability under A, probability under B); ``tail`` gives
    (A, B)(loss > t). Composition: delta_T(eps) = E_P[delta_{T-1}(eps - loss)], an average of a
    closed form.
    """

    def __init__(
        self,
        rate: float,
        nodes: tuple[Array, Array, Array],
        tail: Callable[[Array], tuple[Array, Array]],
    ):
        inner, a, b = nodes
        self.rate, self.tail = rate, tail
        self.loss = np.log1p(rate * np.expm1(inner))
        self.weight = (1 - rate) * b + rate * a

    def single(self, epsilon: Array) -> Array:
        eps = np.asarray(epsilon, float)
        reachable = np.exp(eps) > 1 - self.rate
        with np.errstate(divide="ignore", invalid="ignore"):
            level = np.where(
                reachable, np.log((np.exp(eps) - (1 - self.rate)) / self.rate), -np.inf
            )
        a, b = self.tail(level)
        value = (1 - self.rate) * b + self.rate * a - np.exp(eps) * b
        return np.where(reachable, np.maximum(value, 0.0), -np.expm1(eps))

    def forward(self, epsilon: float, times: int) -> float:
        if times == 1:
            return float(self.single(np.array(epsilon)))
        losses, weights = self.loss, self.weight
        for _ in range(times - 2):
            losses, weights = (
                np.add.outer(losses, self.loss).ravel(),
                np.multiply.outer(weights, self.weight).ravel(),
            )
        return float(weights @ self.single(epsilon - losses))

    def reverse(self, epsilon: float, times: int) -> float:
        return 1 - math.exp(epsilon) + math.exp(epsilon) * self.forward(-epsilon, times)


def poisson_gaussian(rate: float, noise_multiplier: float, cells: int = 40) -> PoissonPair:
    mu = 1 / noise_multiplier
    x, w = rule(np.linspace(-9.5, 9.5 + mu, cells))

    def tail(level: Array) -> tuple[Array, Array]:
        with np.errstate(invalid="ignore"):
            at = level / mu + mu / 2
        return norm.sf(at - mu), norm.sf(at)

    return PoissonPair(rate, (mu * x - mu**2 / 2, w * norm.pdf(x - mu), w * norm.pdf(x)), tail)


def poisson_laplace(rate: float, noise_multiplier: float, cells: int = 60) -> PoissonPair:
    shift = 1 / noise_multiplier
    x, w = rule(np.linspace(0.0, shift, cells))
    ends = 0.5 * np.exp([-shift, 0.0]), 0.5 * np.exp([0.0, -shift])
    a = np.concatenate([ends[0], w * 0.5 * np.exp(x - shift)])
    b = np.concatenate([ends[1], w * 0.5 * np.exp(-x)])

    def tail(level: Array) -> tuple[Array, Array]:
        at = np.clip((level + shift) / 2, 0.0, shift)
        inside = (level < shift).astype(float)
        below = level < -shift
        return (
            np.where(below, 1.0, inside * (1 - 0.5 * np.exp(at - shift))),
            np.where(below, 1.0, inside * 0.5 * np.exp(-at)),
        )

    return PoissonPair(rate, (np.concatenate([[-shift, shift], 2 * x - shift]), a, b), tail)


def l2_laplace_delta(shift: float, dimension: int, epsilon: float) -> float:
    """Density exp(-|x|) in R^d against a shift along an axis, d >= 2, in cylindrical coordinates.

    At distance rho from the axis the loss falls along the axis, so the worst set is a half-line
    whose end is found by bisection; the rest is a double integral.
    """
    d = dimension
    rho, w_rho = rule(
        np.concatenate([[0.0], np.geomspace(1e-9, 4, 120), np.linspace(4, 60 + 3 * d, 160)[1:]])
    )
    low, high = np.full_like(rho, -1e6), np.full_like(rho, 1e6)
    for _ in range(200):
        middle = (low + high) / 2
        above = np.hypot(middle - shift, rho) - np.hypot(middle, rho) > epsilon
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    # Beyond the axis' origin the density has a kink at rho = 0: both pieces are graded towards it.
    t, w_t = rule(np.concatenate([[0.0], np.geomspace(1e-9, 90 + 3 * d + shift, 110)]))
    g, w_g = rule(np.concatenate([[0.0], np.geomspace(1e-9, 1.0, 60)]))
    right = np.maximum(low, 0.0)[:, None]
    x = np.hstack([np.minimum(low, 0.0)[:, None] - t, right * g])
    w_x = np.hstack([np.broadcast_to(w_t, (len(rho), len(t))), right * w_g])
    # Normalizer of exp(-|x|) in R^d is 2 pi^(d/2) Gamma(d) / Gamma(d/2); the shell of radius rho in
    # R^(d-1) has area 2 pi^((d-1)/2) rho^(d-2) / Gamma((d-1)/2).
    log_constant = (
        gammaln(d / 2)
        - math.log(2)
        - d / 2 * math.log(math.pi)
        - gammaln(d)
        + math.log(2)
        + (d - 1) / 2 * math.log(math.pi)
        - gammaln((d - 1) / 2)
    )
    radius, moved = np.hypot(x, rho[:, None]), np.hypot(x - shift, rho[:, None])
    inner = np.sum((np.exp(-radius) - np.exp(epsilon - moved)) * w_x, axis=1)
    return float(math.exp(log_constant) * np.sum(w_rho * rho ** (d - 2) * inner))


def l2_laplace_losses(shift: float, dimension: int, draws: int, seed: int) -> Array:
    """Privacy losses |x - shift e| - |x| at draws of the law exp(-|x|)."""
    rng = np.random.default_rng(seed)
    direction = rng.standard_normal((draws, dimension))
    direction /= np.linalg.norm(direction, axis=1)[:, None]
    x = direction * rng.gamma(dimension, size=draws)[:, None]
    moved = x.copy()
    moved[:, 0] -= shift
    return np.linalg.norm(moved, axis=1) - np.linalg.norm(x, axis=1)


def monte_carlo_delta(losses: Array, epsilon: float) -> tuple[float, float]:
    """Mean and 5.2-sigma half-width (false alarm below 1e-6) of (1 - exp(eps - loss))_+ under P."""
    values = np.maximum(-np.expm1(epsilon - losses), 0.0)
    return float(values.mean()), float(
        5.2 * values.std() / math.sqrt(len(values)) + 20 / len(values)
    )


def log_ratio_grid(h: float, p: float, points: int, reach: float) -> tuple[Array, Array, Array]:
    """Cells of a generalized Gaussian coordinate: losses at centres, masses under P and Q."""
    x, w = rule(np.unique(np.concatenate([np.linspace(-reach, reach + h, points), [0.0, h]])))
    constant = math.log(p / 2) - gammaln(1 / p)
    log_p, log_q = constant - np.abs(x) ** p, constant - np.abs(x - h) ** p
    return log_p - log_q, w * np.exp(log_p), w * np.exp(log_q)


def generalized_gaussian_pair(
    p: float, scale: float, shift: float
) -> tuple[LogDensity, LogDensity]:
    """Log densities of one coordinate at 0 and at ``shift``."""
    constant = math.log(p / (2 * scale)) - gammaln(1 / p)
    return (
        lambda x: constant - np.abs(np.asarray(x) / scale) ** p,
        lambda x: constant - np.abs((np.asarray(x) - shift) / scale) ** p,
    )


def generalized_gaussian_renyi(h: float, p: float, order: float) -> float:
    """Renyi divergence by a rule graded towards kinks 0 and h and the peak (80000 cells)."""
    peak = h / math.expm1(math.log(order / (order - 1)) / (p - 1))

    def exponent(u: Array) -> Array:
        return -order * np.abs(u) ** p + (order - 1) * np.abs(u - h) ** p

    top = float(exponent(np.array(-peak)))

    def edge(sign: int, start: float) -> float:
        width = 1e-6
        while float(exponent(np.array(start + sign * width))) > top - 60 and width < 1e9:
            width *= 1.3
        return start + sign * width

    left, right = edge(-1, -peak), max(edge(1, -peak), edge(1, h))
    fans = [np.array([0.0, h, -peak]), np.linspace(left, right, 20001)]
    for centre in (0.0, h, -peak):
        spread = (right - left) * np.geomspace(1e-14, 1, 1500)
        fans += [centre - spread, centre + spread]
    edges = np.unique(np.clip(np.concatenate(fans), left, right))
    u, w = rule(edges)
    log_integral = float(logsumexp(exponent(u) - top, b=w)) + top
    return (log_integral + math.log(p / 2) - gammaln(1 / p)) / (order - 1)
