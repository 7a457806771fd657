"""Amplification by sampling, as exact or proven transformations of privacy profiles.

Offered: Poisson sampling under add/remove (exact for the dominating pair, both directions) and
Poisson or without-replacement sampling under replace-one (advanced joint convexity of Balle,
Barthe, Gaboardi 2018). Fixed-size samples under add/remove have no meaning here: the size would
depend on a private n. Proofs: docs/explanation/accounting.md.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpfit.privacy import renyi
from dpfit.privacy.curve import Curve, both

Array = NDArray[np.float64]


class PoissonAddRemove(Curve):
    """Each record is in the sample with probability ``rate``; one record is added or removed.

    With (A, B) dominating the pair (with, without) of the inner mechanism, the sampled pair is
    dominated by ((1-rate) B + rate A, B): the kernel that maps A and B to the inner pair maps the
    mixtures too. Its profiles follow from those of (A, B) by algebra.
    """

    symmetric = False

    def __init__(self, curve: Curve, rate: float) -> None:
        self._curve, self._rate = curve, rate
        self.convex, self.closed_form, self.by_renyi = (
            curve.convex,
            curve.closed_form,
            curve.by_renyi,
        )
        self.pure = _amplified(curve.pure, rate)
        self.mu, self.rho = (0.0, 0.0) if rate == 0 else (curve.mu, curve.rho)

    def renyi(self, orders: Array) -> Array:
        inner = self._curve.renyi(orders)
        if math.isfinite(self._curve.mu):
            inner = np.minimum(inner, renyi.sampled_gaussian(self._rate, self._curve.mu, orders))
        return inner

    def profile(self, epsilon: Array) -> Array:
        rate, growth = self._rate, np.expm1(np.minimum(epsilon, _EXP_LIMIT))
        if rate == 0:
            return both(np.zeros_like(epsilon))
        forward = rate * self._curve.profile(_inner_level(epsilon, rate))[0]
        left = rate - growth * (1 - rate)
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = np.where(left > 0, np.log1p(np.where(left > 0, growth / left, 0.0)), 0.0)
        reverse = np.where(left > 0, left * self._curve.profile(inner)[1], 0.0)
        return np.stack([forward, reverse])


class SampledReplace(Curve):
    """A random share ``rate`` of the records, one of which is replaced.

    With gamma' = 1 + rate (gamma - 1) and beta = gamma'/gamma, the profile at gamma' is at most
    rate * ((1 - beta) * left(gamma) + beta * replaced(gamma)), where ``left`` compares the record's
    presence with its absence (Poisson) or with another record in its place (without replacement:
    then it is ``replaced`` itself).
    """

    convex = False

    def __init__(self, replaced: Curve, left: Curve, rate: float) -> None:
        self._replaced, self._left, self._rate = replaced, left, rate
        self.convex = replaced is left and replaced.convex
        self.closed_form = replaced.closed_form and left.closed_form
        self.by_renyi = replaced.by_renyi or left.by_renyi
        self.pure = _amplified(max(replaced.pure, left.pure), rate)
        self.mu, self.rho = (0.0, 0.0) if rate == 0 else (replaced.mu, replaced.rho)

    def renyi(self, orders: Array) -> Array:
        return np.zeros(orders.shape) if self._rate == 0 else self._replaced.renyi(orders)

    def profile(self, epsilon: Array) -> Array:
        rate = self._rate
        if rate == 0:
            return both(np.zeros_like(epsilon))
        inner = _inner_level(epsilon, rate)
        replaced = self._replaced.delta(inner)
        if self._left is self._replaced:
            return both(rate * replaced)
        beta = np.exp(epsilon - inner)
        return both(rate * ((1 - beta) * self._left.delta(inner) + beta * replaced))


_EXP_LIMIT = 700.0


def _inner_level(epsilon: Array, rate: float) -> Array:
    """Where to evaluate the inner profile: log(1 + expm1(epsilon) / rate); lower is safe."""
    with np.errstate(over="ignore"):
        level = np.minimum(np.log1p(np.expm1(np.minimum(epsilon, _EXP_LIMIT)) / rate), 1000.0)
    # Beyond the range of exp() the ones are lost: they are less than what rounding down takes away.
    return np.asarray(
        np.where(epsilon > _EXP_LIMIT, (epsilon - math.log(rate)) * (1 - 1e-15), level)
    )


def _amplified(pure: float, rate: float) -> float:
    """The pure epsilon of a sample: log(1 + rate (exp(epsilon) - 1)), rounded up."""
    if rate == 0:
        return 0.0
    return math.log1p(rate * math.expm1(pure)) * (1 + 1e-14) if pure < _EXP_LIMIT else pure
