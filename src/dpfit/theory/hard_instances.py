"""Problems on which nothing can do well, and what the best that can be done is.

Randomness comes from the caller, as standard normal or uniform numbers: these functions only shape
it. Reference: [Liu24] Theorem 3.7.1 (its constant corrected) and Corollary 3.7.7; [LD] Theorem G.1
(its factor log(1/delta) is false, docs/errata.md) and Appendix H.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dpfit.privacy.validate import integer, positive

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ValueQueries:
    """Linear losses <x, s> on a ball, s normal around a sign vector v, ``queries`` values.

    Any algorithm that sees so many values <X, S>, one fresh S each, has expected excess risk of at
    least `lower_bound` for a uniform v, private or not. ``lipschitz`` is the root of E norm(s)**2.
    """

    dimension: int
    diameter: float
    lipschitz: float
    queries: int

    def __post_init__(self) -> None:
        integer("dimension", self.dimension)
        integer("queries", self.queries)
        positive("diameter", self.diameter)
        positive("lipschitz", self.lipschitz)

    @property
    def deviation(self) -> float:
        """The deviation of each coordinate of s."""
        d = self.dimension
        return self.lipschitz / math.sqrt(d + d**2 / (4 * self.queries))

    @property
    def drift(self) -> float:
        """The size of each coordinate of the mean of s."""
        return self.deviation * math.sqrt(self.dimension / self.queries) / 2

    @property
    def lower_bound(self) -> float:
        """lipschitz * diameter / (16 sqrt(1 + 4 queries / dimension)).

        >>> round(ValueQueries(20, 2.0, 1.0, 10_000).lower_bound, 5)
        0.00279
        """
        return (
            self.lipschitz * self.diameter / (16 * math.sqrt(1 + 4 * self.queries / self.dimension))
        )

    def losses(self, signs: ArrayLike, normals: ArrayLike) -> Floats:
        """The vectors s (n, d), from the signs v (d,) and standard normal numbers (n, d)."""
        return np.asarray(self.drift * np.asarray(signs) + self.deviation * np.asarray(normals))

    def excess(self, signs: ArrayLike, points: ArrayLike) -> Floats:
        """Excess risk of points (..., d): drift <x, v> + drift diameter sqrt(d) / 2."""
        least = -self.drift * self.diameter * math.sqrt(self.dimension) / 2
        return np.asarray(self.drift * (np.asarray(points) @ np.asarray(signs)) - least)


def sampling_lower_bound(lipschitz: float, strong_convexity: float, dimension: int) -> float:
    """Loss values a sampler needs, up to a constant, or TV is min(1/2, sqrt(d m) / L).

    >>> round(sampling_lower_bound(10.0, 1.0, 20), 1)
    81.3
    """
    ratio = positive("lipschitz", lipschitz) ** 2 / positive("strong_convexity", strong_convexity)
    return ratio / (1 + math.log(ratio) / integer("dimension", dimension))


def greedy_packing(points: ArrayLike, distance: float) -> Floats:
    """The points, in order, at least ``distance`` from all that were taken before.

    >>> greedy_packing([[0.0], [0.1], [0.5], [1.0]], 0.5).ravel().tolist()
    [0.0, 0.5, 1.0]
    """
    taken: list[Floats] = []
    for point in np.asarray(points, dtype=np.float64):
        if all(np.linalg.norm(point - other) >= distance for other in taken):
            taken.append(point)
    return np.array(taken)


@dataclass(frozen=True, eq=False)
class Packing:
    """A loss with a well at each of many centres, ``distance`` apart: choose the best.

    Record i has a bit for each centre; its loss is min(0, min over j of (norm(theta - c_j) /
    distance - 1) bit_ij), which is Lipschitz with constant 1 / distance and not convex. Any
    (epsilon, delta)-DP algorithm has an excess risk of order log(number of centres) / (n epsilon)
    on some such bits, however large delta is (below 1 / n).
    """

    centres: Floats
    distance: float

    @property
    def lipschitz(self) -> float:
        """Of one record's loss."""
        return 1 / self.distance

    @property
    def beta(self) -> float:
        """Parameter of the centres' Beta law of ones; above 1 for more than 224 centres."""
        return 1 + math.log(len(self.centres) / (8 * 28)) / 2

    def bits(self, shares: ArrayLike, uniforms: ArrayLike) -> NDArray[np.bool_]:
        """The records (n, s), from uniform numbers (s,) for the shares and (n, s) for the bits."""
        beta = max(self.beta, 1.0)
        return np.asarray(np.asarray(uniforms) < special.betaincinv(beta, beta, np.asarray(shares)))

    def values(self, theta: ArrayLike, bits: ArrayLike) -> Floats:
        """The losses of the records at a parameter."""
        depths = np.linalg.norm(self.centres - np.asarray(theta), axis=1) / self.distance - 1
        return np.asarray(np.minimum(0.0, np.min(np.where(bits, depths, 0.0), axis=1)))

    def chosen(self, theta: ArrayLike) -> int:
        """The centre that a parameter amounts to."""
        return int(np.argmin(np.linalg.norm(self.centres - np.asarray(theta), axis=1)))

    def enough(self, n: int, epsilon: float) -> float:
        """Risk of the exponential mechanism on centres, replace-one: 2 log(s) / (n epsilon).

        >>> round(Packing(np.zeros((1000, 2)), 0.4).enough(1000, 1.0), 4)
        0.0138
        """
        return 2 * math.log(len(self.centres)) / (integer("n", n) * positive("epsilon", epsilon))


def stalled_displacement(dimension: int, time: float) -> float:
    """Reach of Brownian sqrt(2) dW in Langevin diffusion but with probability exp(-d / 2).

    It is 2 sqrt(2 time d): 0.29 over time 1 / (100 d), while the Gibbs density of norm(theta) on
    the unit ball, spread over it, has a share of order exp(-d) in a ball of radius 1/3: the
    diffusion is private, and accurate on average, long before it has mixed.

    >>> round(stalled_displacement(50, 1 / 5000), 3)
    0.283
    """
    return 2 * math.sqrt(2 * positive("time", time) * integer("dimension", dimension))
