"""The law with density p / (2 Gamma(1/p)) exp(-|x|^p), and the largest of many independent draws.

Shape p = 1 is the Laplace law, p = 2 the normal law of variance 1/2. |X|^p has the law Gamma(1/p),
from which all of the formulas below follow. Reference: [Gan22] Definition 19, Facts 24 and 38,
Section 2.4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gamma, gammaincc, gammainccinv, gammaln

from dpfit.theory.errors import ErrorLaw

Array = NDArray[np.float64]


def log_density(x: ArrayLike, shape: float) -> Array:
    """Log of the density.

    >>> round(float(log_density(0.0, 2.0)), 6) == round(-0.5 * math.log(math.pi), 6)
    True
    """
    return np.asarray(math.log(shape / 2) - gammaln(1 / shape) - np.abs(x) ** shape)


def survival(x: ArrayLike, shape: float) -> Array:
    """P(|X| > x) for x >= 0.

    >>> round(float(survival(2.0, 1.0)), 6) == round(math.exp(-2), 6)
    True
    """
    return np.asarray(gammaincc(1 / shape, np.asarray(x, dtype=np.float64) ** shape))


def quantile(tail: ArrayLike, shape: float) -> Array:
    """The x with P(|X| > x) = tail; the inverse of `survival`."""
    return np.asarray(gammainccinv(1 / shape, tail) ** (1 / shape))


def moment(order: float, shape: float) -> float:
    """E |X|^order.

    >>> round(moment(2.0, 2.0), 6)
    0.5
    """
    return float(math.exp(gammaln((1 + order) / shape) - gammaln(1 / shape)))


def fisher_information(shape: float) -> float:
    """The Fisher information of the location, p^2 Gamma(2 - 1/p) / Gamma(1/p).

    Many answers that all move by one are told apart like Gaussian ones: k answers at scale sigma
    are nearly mu-GDP with mu = sqrt(k * information) / sigma. A first guess and a plot, never a
    promise.

    >>> [round(fisher_information(p), 4) for p in (1.0, 2.0, 4.0, 6.0)]
    [1.0, 2.0, 4.0559, 6.0837]
    """
    return float(shape**2 * gamma(2 - 1 / shape) / gamma(1 / shape))


@dataclass(frozen=True)
class IndependentErrors(ErrorLaw):
    """Independent errors of density prop. to exp(-(|x| / scale)^shape).

    >>> laplace = IndependentErrors(shape=1.0, scale=2.0, number=3)
    >>> round(laplace.expected_max, 6), round(2 * (1 + 1 / 2 + 1 / 3), 6)
    (3.666667, 3.666667)
    """

    shape: float
    scale: float
    number: int

    @property
    def average(self) -> float:
        return self.scale * moment(1.0, self.shape)

    @cached_property
    def expected_max(self) -> float:
        return largest_of(self)

    def log_all_within(self, x: Array) -> Array:
        """Log of the probability that no error is above x."""
        with np.errstate(divide="ignore"):
            return np.asarray(self.number * np.log1p(-survival(x / self.scale, self.shape)))

    def quantile(self, level: float) -> float:
        return self.scale * float(quantile(1 - level, self.shape))

    def max_quantile(self, level: float) -> float:
        return self.scale * float(quantile(-math.expm1(math.log(level) / self.number), self.shape))


def largest_of(*groups: IndependentErrors) -> float:
    """Return the expected largest error of independent groups.

    >>> one = IndependentErrors(shape=1.0, scale=2.0, number=1)
    >>> round(largest_of(one, one, one), 4), round(IndependentErrors(1.0, 2.0, 3).expected_max, 4)
    (3.6667, 3.6667)
    """
    # The integral of P(max > x) up to where it is negligible.
    top = max(each.scale * float(quantile(1e-17 / each.number, each.shape)) for each in groups)
    nodes, weights = np.polynomial.legendre.leggauss(16)
    edges = np.linspace(0.0, top, 129)
    half, middle = np.diff(edges)[:, None] / 2, (edges[1:] + edges[:-1])[:, None] / 2
    places = middle + half * nodes
    exceeded = -np.expm1(sum((each.log_all_within(places) for each in groups), np.zeros(())))
    return float(np.sum(half * weights * exceeded))
