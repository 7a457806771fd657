"""Truncated normal draws on intervals, boxes and balls, exact in real arithmetic.

Intervals and boxes are drawn by inversion. In a ball far from the mean, plain rejection can take
e**d trials. There the coordinate along the mean is drawn first. Its density is a normal one times
the probability that the other coordinates fit. This density is log-concave, so a tangent of its
logarithm is an envelope. Proof: docs/explanation/certificates.md, section 3.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpfit.geometry.base import Domain
from dpfit.geometry.box import Box
from dpfit.geometry.l2_ball import L2Ball
from dpfit.noise import Source

Floats = NDArray[np.float64]

_PLAIN_TRIALS = 4
_BISECTIONS = 40


def gaussian_within(domain: Domain, mean: Floats, precision: float, source: Source) -> Floats:
    """Return a draw of N(mean, I / precision) on the domain for each row of means (k, d).

    >>> drawn = gaussian_within(L2Ball(3, 1.0), np.full((5, 3), 2.0), 100.0, Source())
    >>> bool(L2Ball(3, 1.0).contains(drawn).all())
    True
    """
    if isinstance(domain, Box):
        lower, upper = np.asarray(domain.lower), np.asarray(domain.upper)
        return interval_normal(mean, 1 / math.sqrt(precision), lower, upper, source)
    if not isinstance(domain, L2Ball):
        raise ValueError(f"there is a sampler for balls and boxes, not for {domain.kind!r}")
    drawn, pending = np.empty_like(mean), np.arange(len(mean))
    for _ in range(_PLAIN_TRIALS):
        proposal = mean[pending] + source.gaussian((len(pending), domain.d)) / math.sqrt(precision)
        inside = domain.contains(proposal, tolerance=0.0)
        drawn[pending[inside]] = proposal[inside]
        pending = pending[~inside]
    if len(pending):
        drawn[pending] = _along_the_mean(domain, mean[pending], precision, source)
    return drawn


def interval_normal(mean: Any, deviation: float, lower: Any, upper: Any, source: Source) -> Floats:
    """Return normal draws on [lower, upper], by inverting the log distribution function."""
    low, high = (np.asarray(lower) - mean) / deviation, (np.asarray(upper) - mean) / deviation
    # Beyond the middle the distribution function is flat; its mirror image is not.
    mirrored = low + high > 0
    low, high = np.where(mirrored, -high, low), np.where(mirrored, -low, high)
    uniform = source.uniform(low.shape)
    with np.errstate(divide="ignore"):
        level = np.logaddexp(
            special.log_ndtr(low) + np.log1p(-uniform), special.log_ndtr(high) + np.log(uniform)
        )
    drawn = np.clip(special.ndtri_exp(np.minimum(level, 0.0)), low, high)
    return np.asarray(np.clip(mean + deviation * np.where(mirrored, -drawn, drawn), lower, upper))


def _along_the_mean(ball: L2Ball, mean: Floats, precision: float, source: Source) -> Floats:
    offset = mean - ball.centre
    distance = np.linalg.norm(offset, axis=1)
    away = distance > 0
    axis = (
        np.where(away[:, None], offset, np.eye(1, ball.d)) / np.where(away, distance, 1.0)[:, None]
    )
    if ball.d == 1:
        height = interval_normal(
            distance, precision**-0.5, -ball.norm_bound, ball.norm_bound, source
        )
        return np.asarray(ball.centre + height[:, None] * axis)
    slices = _Slices(ball.d, ball.norm_bound, precision)
    height = slices.draw(distance, source)
    across = source.gaussian((len(mean), ball.d))
    across -= np.sum(across * axis, axis=1, keepdims=True) * axis
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    width = np.sqrt(2 / precision * _truncated_gamma(slices.shape, slices.room(height), source))
    return np.asarray(ball.centre + height[:, None] * axis + width[:, None] * across)


class _Slices:
    """Slices of a ball across an axis: g(t) = log P(other coordinates fit at height t)."""

    def __init__(self, d: int, radius: float, precision: float) -> None:
        self.shape, self.radius, self.precision = (d - 1) / 2, radius, precision

    def room(self, height: Floats) -> Floats:
        """Half the precision times the squared radius of the slice."""
        squared = (self.radius - np.abs(height)) * (self.radius + np.abs(height))
        return np.asarray(np.maximum(squared, 1e-30 * self.radius**2) * self.precision / 2)

    def fit(self, height: Floats) -> tuple[Floats, Floats]:
        """The function g and its derivative."""
        a, x = self.shape, self.room(height)
        with np.errstate(divide="ignore", over="ignore"):
            power = a * np.log(x) - x - special.gammaln(a + 1)
            series = power + np.log(special.hyp1f1(1.0, a + 1, np.minimum(x, a)))
            value = np.where(x < a, series, np.log(special.gammainc(a, x)))
        slope = -self.precision * height * np.exp(power + np.log(a / x) - value)
        return value, np.asarray(slope)

    def draw(self, mean: Floats, source: Source) -> Floats:
        """Heights of density proportional to exp(-precision (t - mean)**2 / 2 + g(t))."""
        top = self._mode(mean)
        value, slope = self.fit(top)
        drawn, pending = np.empty_like(mean), np.arange(len(mean))
        while len(pending):
            at, tilt = top[pending], slope[pending]
            shifted = mean[pending] + tilt / self.precision
            t = interval_normal(shifted, self.precision**-0.5, -self.radius, self.radius, source)
            gap = value[pending] + tilt * (t - at) - self.fit(t)[0]
            kept = source.exponential(len(pending)) >= gap
            drawn[pending[kept]] = t[kept]
            pending = pending[~kept]
        return drawn

    def _mode(self, mean: Floats) -> Floats:
        low, high = np.full_like(mean, -self.radius), np.full_like(mean, self.radius)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            rising = self.fit(middle)[1] > self.precision * (middle - mean)
            low, high = np.where(rising, middle, low), np.where(rising, high, middle)
        return np.asarray((low + high) / 2)


def _truncated_gamma(shape: float, upper: Floats, source: Source) -> Floats:
    """Return draws of density proportional to x**(shape - 1) exp(-x) on [0, upper]."""
    drawn = special.gammaincinv(shape, source.uniform(upper.shape) * special.gammainc(shape, upper))
    # Far below the mode the distribution function underflows; seen from the upper end the density
    # is then steep.
    pending = np.flatnonzero(shape - 1 > 2 * upper)
    while len(pending):
        rate = (shape - 1) - upper[pending]
        share = source.exponential(len(pending)) / rate
        with np.errstate(invalid="ignore", divide="ignore"):
            gap = np.where(
                share < 1, (shape - 1) * (-np.log1p(-np.minimum(share, 1.0)) - share), np.inf
            )
        kept = source.exponential(len(pending)) >= gap
        drawn[pending[kept]] = upper[pending[kept]] * (1 - share[kept])
        pending = pending[~kept]
    return np.asarray(np.minimum(drawn, upper))
