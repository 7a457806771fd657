"""The profile of objective perturbation for convex generalized linear losses, add/remove.

With a = row norm * slope bound / standard deviation and q = largest curvature of a record /
curvature of the quadratic, the privacy loss with the record against without it is at most log(1 +
q) + max(0, N(a^2/2, a^2)), and without against with it max(0, N(a^2/2, a^2)) if slopes have one
sign, a |N(0, 1)| + a^2/2 if not. For the logistic loss, steep slopes come with little curvature,
and the log(1 + q) disappears from all epsilon >= 4 q - a^2/2.

Reference: docs/explanation/perturbation.md, which improves on Redberg, Koskela, Wang (2023),
Theorem 3.1.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dpfit.privacy import gaussian
from dpfit.privacy.curve import Curve, half_square

Array = NDArray[np.float64]

_LEVELS = 4000
_FARTHEST = 36.0
"""Standard deviations of the loss up to which profiles are compared; beyond, deltas are below
1e-280.
"""
_SLACK = 1 + 1e-11
_LARGEST_EXPONENT = 700.0
"""What is subtracted from a bound is multiplied by at most exp() of this: less of it is sound,
infinity is not.
"""


def pure(shift: float, curvature: float, slopes: str, relation: str) -> float:
    """The epsilon of Gamma-norm noise of scale 1, for gradients of norm at most ``shift``.

    >>> pure(1.0, 0.1, "logistic", "add_remove"), round(pure(1.0, 0.1, "one_sided", "replace"), 6)
    (1.0, 2.09531)
    >>> pure(1.0, 0.1, "softmax", "add_remove"), round(pure(1.0, 0.2, "softmax", "add_remove"), 6)
    (1.0, 1.107107)
    """
    loss = (
        _softmax(shift, curvature)
        if slopes == "softmax"
        else shift + math.log1p(curvature) * _SLACK
    )
    if slopes == "logistic":
        # sup over u in [0, 1] of shift u + 4 curvature u (1 - u), which bounds the logarithm of the
        # determinant.
        bend = 4 * curvature
        loss = min(loss, shift if shift >= bend else (shift + bend) ** 2 / (4 * bend) * _SLACK)
    # The record that leaves adds its gradient, but no determinant: that has the right sign.
    return loss if relation == "add_remove" else math.nextafter(loss + shift, math.inf)


def _softmax(shift: float, curvature: float) -> float:
    """sup over u in [0, 1] of shift u + 2 curvature T(u), T(u) = 2 min(1, sqrt(2) u) - 2 u^2.

    This bounds losses of several classes.

    u is the norm of a record's gradient over its bound, and T(u) bounds the trace of its Hessian,
    in units in which the largest eigenvalue is at most 1/2: the logarithm of the determinant is at
    most that over the quadratic.
    """
    bend = 8 * curvature
    if shift >= bend:
        return shift
    # Below u = 1 / sqrt(2) the bound increases; above, it is shift u + 4 curvature (1 - u^2).
    best = max(shift / bend, math.sqrt(0.5))
    return (shift * best + bend / 2 * (1 - best**2)) * _SLACK


class ObjectivePerturbation(Curve):
    """Normal noise; ``shift`` is the norm of one record's gradient over the standard deviation."""

    convex = False
    symmetric = False

    def __init__(self, shift: float, curvature: float, slopes: str) -> None:
        self._shift, self._curvature, self._slopes = shift, curvature, slopes

    def profile(self, epsilon: Array) -> Array:
        rows = self._bounds(epsilon)
        with np.errstate(over="ignore"):
            for row, (end, slope) in zip(rows, self._chords, strict=True):
                # Close to its end a chord is a small difference of total variations.
                chord = (
                    self._total_variation * (_SLACK + 1e-15)
                    + slope * np.expm1(np.minimum(epsilon, end)) * _SLACK
                )
                np.minimum(row, chord, out=row, where=epsilon <= end)
        return np.asarray(np.clip(rows, 0.0, 1.0))

    @cached_property
    def _total_variation(self) -> float:
        """The value of both directions at epsilon = 0, so the smaller bound holds for both."""
        return float(np.min(self._bounds(np.zeros(1))))

    @cached_property
    def _chords(self) -> list[tuple[float, float]]:
        """The steepest chord from epsilon = 0 by direction: its end, and its slope in exp(epsilon).

        Profiles are convex in exp(epsilon), so a chord between two values that bound the profile
        lies above it.
        """
        ends = np.geomspace(1e-6, 1.0, 400) * min(
            math.log1p(self._curvature) + _FARTHEST * self._shift, 600.0
        )
        slopes = (self._bounds(ends) - self._total_variation) / np.expm1(ends)
        best = np.argmin(slopes, axis=1)
        return [
            (float(ends[at]), min(float(row[at]), 0.0))
            for row, at in zip(slopes, best, strict=True)
        ]

    def _bounds(self, epsilon: Array) -> Array:
        return np.stack([self._forward_bound(epsilon), self._reverse_bound(epsilon)])

    def _reverse_bound(self, epsilon: Array) -> Array:
        """Without the record against with it; the determinant helps, and is left out."""
        a, one_tail = self._shift, gaussian.delta(self._shift, epsilon)
        if self._slopes != "two_sided":
            return one_tail
        growth = np.exp(np.minimum(epsilon, min(a**2 / 2, _LARGEST_EXPONENT)))
        everywhere = 1 - 2 * growth * ndtr(-a) * (2 - _SLACK)
        return np.asarray(np.where(epsilon >= a**2 / 2, 2 * one_tail, everywhere))

    def _forward_bound(self, epsilon: Array) -> Array:
        """With the record against without it."""
        bound = self._determinant_apart(epsilon)
        return np.minimum(bound, self._logistic(epsilon)) if self._slopes == "logistic" else bound

    def _determinant_apart(self, epsilon: Array) -> Array:
        """The loss log(1 + curvature) + max(0, N(a^2/2, a^2))."""
        price = math.log1p(self._curvature)
        beyond = gaussian.delta(self._shift, np.maximum(epsilon - price, 0.0))
        start = float(gaussian.delta(self._shift, 0.0))
        below = 1 - np.exp(np.minimum(epsilon - price, 0.0)) * (1 - start)
        return np.asarray(np.where(epsilon >= price, beyond, below) * _SLACK)

    def _logistic(self, epsilon: Array) -> Array:
        """sup over u in [0, 1] of u^2 a^2/2 - u a t + r u (1 - u), t normal, r = 4 curvature.

        If r <= a^2/2 the supremum is at an end: max(0, a^2/2 - a t). Otherwise it is (r - a t)^2 k
        in between, with k = 1 / (4 r - 2 a^2), so the part of the integral that lies there is a
        normal one.
        """
        a, r = self._shift, 4 * self._curvature
        far = gaussian.delta(a, epsilon)
        if r <= a**2 / 2:
            return far
        k = 1 / (4 * r - 2 * a**2)
        steepest = (a**2 - r) / a
        last = np.maximum((r - np.sqrt(epsilon / k)) / a, steepest)
        v = 1 / (1 + 2 * k * a**2)
        root, middle = math.sqrt(v), 2 * k * a * r * v
        between = (
            math.exp(-k * r**2 * v)
            * root
            * (ndtr((last - middle) / root) - ndtr((steepest - middle) / root))
        )
        all_steep = float(ndtr(steepest - a))
        first, second = (
            ndtr(last),
            np.exp(np.minimum(epsilon, min(r, _LARGEST_EXPONENT))) * (all_steep + between),
        )
        near = np.maximum(first - second, 0.0) * _SLACK + 1e-13 * first
        return np.asarray(np.where(epsilon >= r - a**2 / 2, far, near))

    @cached_property
    def mu(self) -> float:  # type: ignore[override]
        """The smallest mu, to a thousandth, whose curve lies above the profile.

        On a grid, each value is compared with the Gaussian one at the next point; both decrease.
        Beyond the last point, -d delta / d epsilon is exp(epsilon) times a normal tail for both,
        and the tails compare for good once they do.
        """
        end = math.log1p(self._curvature) + _FARTHEST * self._shift
        if end > 600:
            return math.inf
        grid = np.append(0.0, np.geomspace(1e-7, 1.0, _LEVELS) * end)
        profile = self.delta(grid)[:-1]

        def holds(mu: float) -> bool:
            above = gaussian.delta(mu, grid[1:]) * (2 - _SLACK)
            return bool(np.all(profile <= above)) and self._tail_below(mu, end)

        low, high = self._shift, 2 * self._shift + 1e-3
        while not holds(high):
            low, high = high, 2 * high
            if high > 1e3:
                return math.inf
        while high > low * (1 + 1e-3):
            middle = (low + high) / 2
            low, high = (low, middle) if holds(middle) else (middle, high)
        return high

    def _tail_below(self, mu: float, epsilon: float) -> bool:
        """Whether 2 Phi(-x) <= Phi(-y) from here on, x for this profile, y for the Gaussian one.

        Phi(-y - h) <= Phi(-y) exp(-h y - h^2/2) for h >= 0, and both y and h = x - y grow with
        epsilon.
        """
        x = (epsilon - math.log1p(self._curvature)) / self._shift + self._shift / 2
        y = epsilon / mu + mu / 2
        return mu > self._shift and x > y and (x - y) * (x + y) / 2 >= math.log(2)

    @cached_property
    def rho(self) -> float:  # type: ignore[override]
        """By way of Gaussian DP."""
        return half_square(self.mu)
