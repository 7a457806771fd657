"""Exact profiles of additive noise: Laplace, discrete Laplace, l2-Laplace, generalized Gaussian.

All densities are log-concave, so a smaller shift is a post-processing of a larger one and the full
sensitivity is the worst case; in several dimensions the extreme shift is along one axis (l1, l2) or
all coordinates at once (l-infinity). Proofs: docs/explanation/accounting.md. Gaussian noise:
`dpfit.privacy.gaussian`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, gammaincc, gammaln, logsumexp

from dpfit.privacy import gaussian, renyi
from dpfit.privacy.curve import Curve, both, half_square
from dpfit.privacy.rounding import up, up_sqrt

Array = NDArray[np.float64]

_GAUSS: tuple[Array, Array] = np.polynomial.legendre.leggauss(16)


class Laplace(Curve):
    """Laplace noise of scale 1: delta = 1 - exp((epsilon - shift)/2) up to the shift."""

    def __init__(self, shift: float) -> None:
        self._shift = shift
        self.pure = shift
        self.mu, self.rho = gaussian.from_pure(shift), half_square(shift)

    def renyi(self, orders: Array) -> Array:
        return np.minimum(renyi.laplace(self._shift, orders), super().renyi(orders))

    def profile(self, epsilon: Array) -> Array:
        return both(-np.expm1(-np.maximum(self._shift - epsilon, 0.0) / 2) * (1 + 1e-14))


class DiscreteLaplace(Curve):
    """Noise of mass exp(-rate |k|) and shift ``steps``; one step is randomized response.

    Losses are (steps - 2 j) rate, j = 0..steps. The worst set is k <= t with t the last j whose
    loss exceeds epsilon.
    """

    def __init__(self, rate: float, steps: int) -> None:
        self._rate, self._steps = rate, steps
        self.pure = up(Fraction(rate) * steps)
        self.mu = min(gaussian.from_pure(self.pure), gaussian.from_pure(rate) * steps * (1 + 1e-15))
        self.rho = half_square(self.pure)

    def renyi(self, orders: Array) -> Array:
        return np.minimum(renyi.randomized_response(self.pure, orders), super().renyi(orders))

    def profile(self, epsilon: Array) -> Array:
        rate, steps = self._rate, self._steps
        last = np.ceil((steps - np.minimum(epsilon, self.pure) / rate) / 2) - 1
        # Rounding may miss the last one by one, and no set has more than the worst.
        sets = np.clip(last + np.array([[-1.0], [0.0], [1.0]]), 0, steps - 1)
        gain = -np.expm1(np.minimum(epsilon - (steps - sets) * rate, 1.0)) - math.exp(
            -rate
        ) * np.expm1(-sets * rate)
        slack = 1e-15 * self.pure if steps > 1 else 0.0
        value = (np.max(gain, axis=0) + slack) / (1 + math.exp(-rate)) * (1 + 1e-14)
        return both(np.where(epsilon < self.pure, np.clip(value, 0.0, 1.0), 0.0))


class L2Laplace(Curve):
    """Density exp(-||x||) in ``dimension`` dimensions against an l2 shift.

    The loss ||x - shift e|| - ||x|| lies in [-shift, shift]. Given the radius (Gamma distributed)
    it is monotone in the cosine t of the angle, (1 + t)/2 being Beta distributed, so each tail is
    one integral over the radius. The profile is integrated at a fixed number of levels and joined
    by chords in exp(epsilon), which lie above it.
    """

    _LEVELS = 257

    def __init__(self, shift: float, dimension: int) -> None:
        self._shift, self._dimension = shift, dimension
        self.pure = shift
        self.mu, self.rho = gaussian.from_pure(shift), half_square(shift)

    def renyi(self, orders: Array) -> Array:
        return renyi.randomized_response(self._shift, orders)

    def profile(self, epsilon: Array) -> Array:
        levels, values = self._table
        # Chords in exp(epsilon), written relative to the left level so that nothing overflows.
        index = np.clip(np.searchsorted(levels, epsilon, side="right") - 1, 0, len(levels) - 2)
        left, right = levels[index], levels[index + 1]
        weight = np.clip(np.expm1(epsilon - left) / np.expm1(right - left), 0.0, 1.0)
        return both(
            np.where(
                epsilon >= self._shift,
                0.0,
                (1 - weight) * values[index] + weight * values[index + 1],
            )
        )

    @cached_property
    def _table(self) -> tuple[Array, Array]:
        # Levels crowd towards zero, where the loss of a high-dimensional law concentrates.
        levels = self._shift * np.linspace(0.0, 1.0, self._LEVELS) ** 2
        # Beyond the range of exp() the first term alone is a bound.
        values = np.array(
            [
                self._tail(e, 1) - (math.exp(e) * self._tail(e, -1) if e < 700 else 0.0)
                for e in levels
            ]
        )
        pure = np.maximum(-np.expm1(levels - self._shift), 0) / (1 + math.exp(-self._shift))
        return levels, np.minimum(np.maximum(values, 0.0) * (1 + 1e-9) + 1e-13, pure)

    def _tail(self, epsilon: float, sign: int) -> float:
        """P(sign * loss > epsilon)."""
        shift, d = self._shift, self._dimension
        start = (shift - sign * epsilon) / 2
        if d == 1:
            return 1 - 0.5 * math.exp(-start) if sign > 0 else 0.5 * math.exp(-start)
        # r = start + v^2 takes the square-root behaviour at the start out of the integrand.
        nodes, weights = _GAUSS
        centre, end = math.sqrt(max(d - start, 0.0)), math.sqrt(d + 40 * math.sqrt(d) + 60)
        edges = np.unique(
            np.clip(np.append(centre + np.linspace(-12, 12, 49), [0.0, end]), 0.0, end)
        )
        half, middle = np.diff(edges)[:, None] / 2, (edges[1:] + edges[:-1])[:, None] / 2
        values = self._integrand((middle + half * nodes).ravel(), start, epsilon, sign)
        total = float(np.sum((half * weights).ravel() * values))
        inside = float(1 - gammaincc(d, start)) if sign > 0 else 0.0
        return inside + total

    def _integrand(self, v: Array, start: float, epsilon: float, sign: int) -> Array:
        shift, d = self._shift, self._dimension
        r = start + v**2
        density = np.exp((d - 1) * np.log(r) - r - gammaln(d))
        cosine = np.clip(
            (shift**2 - epsilon**2 - sign * 2 * r * epsilon) / (2 * r * shift), -1.0, 1.0
        )
        half = (d - 1) / 2
        # P(t < cosine) for the upper tail, P(t > cosine) for the lower one.
        share = (
            betainc(half, half, (1 + cosine) / 2)
            if sign > 0
            else betainc(half, half, (1 - cosine) / 2)
        )
        return np.asarray(2 * v * density * share)


class GeneralizedGaussian(Curve):
    """One coordinate of density exp(-|x|^shape) against a shift; self-compose for more answers.

    Reference: [Gan22] Definition 19; the worst shift of k coordinates under l-infinity sensitivity
    is the full shift of every coordinate, so k answers are the k-fold composition of this curve
    (docs/explanation/accounting.md 2.5).
    """

    _LARGEST_ORDER = 1000.0

    def __init__(self, shift: float, shape: float) -> None:
        if shape == 1:
            raise ValueError("shape 1 is Laplace noise; use the Laplace curve")
        self._shift, self._shape = shift, shape
        if shape == 2:
            self.mu = up_sqrt(2 * Fraction(shift) ** 2)
            self.rho = up(Fraction(shift) ** 2)

    def profile(self, epsilon: Array) -> Array:
        if self._shape == 2:
            return both(gaussian.delta(self.mu, epsilon))
        offset = self._offset(epsilon)
        # The worst set is x < shift/2 - offset; both terms are survival functions of |x|.
        here, there = offset - self._shift / 2, offset + self._shift / 2
        first = np.where(here >= 0, self._survival(np.abs(here)), 1 - self._survival(np.abs(here)))
        with np.errstate(over="ignore"):
            second = np.exp(epsilon + np.log(np.maximum(self._survival(there), 1e-320)))
        value = np.maximum(first - second, 0.0) * (1 + 1e-9) + 4e-16 * (first + second)
        # Beyond the range of doubles the first term alone is a bound.
        return both(np.where(self._survival(there) > 1e-300, value, first))

    def _survival(self, x: Array) -> Array:
        """P(X > x) for x >= 0."""
        return np.asarray(0.5 * gammaincc(1 / self._shape, x**self._shape))

    def _loss(self, offset: Array) -> Array:
        p, half = self._shape, self._shift / 2
        return np.asarray((offset + half) ** p - np.abs(offset - half) ** p)

    def _offset(self, epsilon: Array) -> Array:
        """Where the loss, which increases with the distance from shift/2, equals epsilon."""
        p, half = self._shape, self._shift / 2
        top = 1.0 + half
        while float(self._loss(np.array(top))) < float(np.max(epsilon, initial=0.0)) and top < 1e12:
            top *= 2
        table = np.concatenate(
            [[0.0], np.geomspace(1e-12 * top, top, 4000), half * np.linspace(0, 2, 401)[1:]]
        )
        table = np.unique(table)
        losses = np.maximum.accumulate(self._loss(table))
        index = np.clip(np.searchsorted(losses, epsilon), 1, len(table) - 1)
        low, high = table[index - 1].copy(), table[index].copy()
        x = np.interp(epsilon, losses, table)
        for _ in range(6):
            gap = self._loss(x) - epsilon
            low, high = (
                np.where(gap <= 0, np.maximum(low, x), low),
                np.where(gap > 0, np.minimum(high, x), high),
            )
            slope = p * ((x + half) ** (p - 1) - np.sign(x - half) * np.abs(x - half) ** (p - 1))
            with np.errstate(divide="ignore", invalid="ignore"):
                newton = x - gap / slope
            inside = np.isfinite(newton) & (newton >= low) & (newton <= high)
            x = np.where(inside, newton, (low + high) / 2)
        return np.asarray(x)

    def renyi(self, orders: Array) -> Array:
        if self._shape == 2:
            return orders * self.rho
        values = np.full(orders.shape, math.inf)
        usable = orders <= self._LARGEST_ORDER
        values[usable] = [self._divergence(float(order)) for order in orders[usable]]
        return values

    def _divergence(self, order: float) -> float:
        """(1/(order-1)) log of the integral of c exp(-order |u|^p + (order-1) |u - shift|^p)."""
        p, h = self._shape, self._shift
        if p <= 1.001:
            return math.inf
        peak = h / math.expm1(math.log(order / (order - 1)) / (p - 1))
        if not peak < 1e6:
            return math.inf
        width = max(60.0 ** (1 / p), 12.0 / math.sqrt(p * (p - 1)) * max(1.0, peak) ** (1 - p / 2))
        # Panels shrink towards 0 and the shift, where |u|^p has a corner in some derivative, and
        # towards the peak.
        grades = np.append(0.0, np.geomspace(1e-9, 1.0, 40))
        left, right = (peak + width) * grades, width * grades
        between = h / 2 * grades
        around = -peak + np.concatenate([-right, right])
        edges = np.unique(
            np.concatenate([-left, around[around < 0], between, h - between, h + right])
        )
        nodes, weights = _GAUSS
        half, mid = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
        u = (mid[:, None] + half[:, None] * nodes).ravel()
        w = (half[:, None] * weights).ravel()
        constant = math.log(p / 2) - gammaln(1 / p)
        exponent = (order - 1) * (np.abs(u - h) ** p - np.abs(u) ** p)
        density = np.exp(constant - np.abs(u) ** p)
        if np.max(np.where(density > 1e-30, np.abs(exponent), 0.0)) < 1:
            # Small moments are what is left when one is taken away, so one is taken away first.
            log_integral = math.log1p(float(np.sum(w * density * np.expm1(exponent))))
        else:
            log_integral = float(logsumexp(constant - np.abs(u) ** p + exponent, b=w))
        return float(max(0.0, log_integral / (order - 1)) * (1 + 1e-7))
