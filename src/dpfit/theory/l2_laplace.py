"""Noise with density prop. to exp(-||x||_2 / scale) in k dimensions: the errors of k answers.

It is a mixture of normal laws, scale * sqrt(V) * Z with V chi-square of k + 1 degrees of freedom
(docs/explanation/ noise.md), so everything about single and largest errors is an expectation over V
of what is known of normal errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammainccinv, gammaln, ndtr

from dpfit.theory.errors import ErrorLaw
from dpfit.theory.generalized_gaussian import IndependentErrors

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BallErrors(ErrorLaw):
    """The errors of ``number`` answers.

    >>> (
    ...     round(BallErrors(scale=2.0, number=1).expected_max, 6),
    ...     round(BallErrors(2.0, 1).quantile(0.9), 4),
    ... )
    (2.0, 4.6052)
    """

    scale: float
    number: int

    @property
    def average(self) -> float:
        return self.scale * self._spread * math.sqrt(2 / math.pi)

    @property
    def expected_max(self) -> float:
        # sqrt(V) and the largest of the normal variables are independent.
        return (
            self.scale
            * self._spread
            * IndependentErrors(2.0, math.sqrt(2), self.number).expected_max
        )

    def quantile(self, level: float) -> float:
        return self._solved(lambda x: 2 * ndtr(-x), level)

    def max_quantile(self, level: float) -> float:
        # 1 - P(|Z| <= x)^k, by logarithms where it is small.
        return self._solved(lambda x: -np.expm1(self.number * np.log1p(-2 * ndtr(-x))), level)

    @property
    def _spread(self) -> float:
        """E sqrt(V)."""
        half = (self.number + 1) / 2
        return math.exp(0.5 * math.log(2) + float(gammaln(half + 0.5) - gammaln(half)))

    @cached_property
    def _mixture(self) -> tuple[Floats, Floats]:
        """Values of sqrt(V) and weights: Gauss-Legendre nodes in pieces, refined at the ends."""
        tails = np.geomspace(1e-16, 0.5, 40)
        edges = np.concatenate([[0.0], tails, 1 - tails[::-1][1:], [1.0]])
        nodes, weights = np.polynomial.legendre.leggauss(8)
        half, middle = (
            np.diff(edges)[:, np.newaxis] / 2,
            (edges[1:] + edges[:-1])[:, np.newaxis] / 2,
        )
        share, weight = (middle + half * nodes).ravel(), (half * weights).ravel()
        return np.sqrt(2 * gammainccinv((self.number + 1) / 2, share)), weight

    def _solved(self, exceeded: Callable[[Floats], Floats], level: float) -> float:
        """The x at which the chance to exceed it, given that of normal errors, is 1 - level."""
        spreads, weights = self._mixture

        def excess(x: float) -> float:
            with np.errstate(divide="ignore"):
                return float(weights @ exceeded(x / spreads)) - (1 - level)

        top = 40.0 * float(spreads.max())
        return self.scale * float(brentq(excess, 1e-12, top, xtol=1e-12 * top))
