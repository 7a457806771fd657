"""Optimal rates of private ERM with strongly convex objectives, without constants.

For plots and plans, never for calibration. Reference: [ASAP] Table 1, Fact 1, Figure 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpfit.privacy.validate import integer, positive


@dataclass(frozen=True)
class StronglyConvexRates:
    """Rates of the total excess risk (the sum over n records) of losses with these constants.

    ``strong_convexity`` is that of the mean objective.

    >>> rates = StronglyConvexRates(n=10_000, dimension=11, lipschitz=300.0, strong_convexity=4.0)
    >>> rates.pure(1.0), rates.gdp(1.0), round(rates.approximate(1.0, 1e-5), 1)
    (272.25, 24.75, 284.9)
    """

    n: int
    dimension: int
    lipschitz: float
    strong_convexity: float

    def __post_init__(self) -> None:
        integer("n", self.n)
        integer("dimension", self.dimension)
        positive("lipschitz", self.lipschitz)
        positive("strong_convexity", self.strong_convexity)

    @property
    def _unit(self) -> float:
        return self.lipschitz**2 / (self.strong_convexity * self.n)

    def pure(self, epsilon: float) -> float:
        """d^2 G^2 / (alpha n epsilon^2)."""
        return self.dimension**2 * self._unit / positive("epsilon", epsilon) ** 2

    def gdp(self, mu: float) -> float:
        """d G^2 / (alpha n mu^2)."""
        return self.dimension * self._unit / positive("mu", mu) ** 2

    def approximate(self, epsilon: float, delta: float) -> float:
        """d G^2 log(1 / delta) / (alpha n epsilon^2)."""
        return (
            self.dimension
            * self._unit
            * math.log(1 / positive("delta", delta))
            / positive("epsilon", epsilon) ** 2
        )

    @property
    def crossover(self) -> float:
        """The delta below which a pure promise costs no more than an approximate one: exp(-d)."""
        return math.exp(-self.dimension)
