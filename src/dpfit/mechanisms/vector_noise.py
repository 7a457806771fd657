"""Noise on a released vector: its event, its draw, its size, and how far it moves one direction."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammainccinv, gammaincinv, ndtr, ndtri

from dpfit.noise import Grid, Source, add_gaussian, add_l2_laplace
from dpfit.privacy import Budget
from dpfit.privacy.event import Gaussian, L2Laplace
from dpfit.privacy.validate import option

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class VectorNoise:
    """Gaussian noise, or l2-Laplace noise of density prop. to exp(-||x|| / scale).

    The scale is ``noise_multiplier`` times the l2 sensitivity.
    """

    noise: str
    noise_multiplier: float
    dimension: int

    def __post_init__(self) -> None:
        option("noise", self.noise, ("gaussian", "l2_laplace"))

    @staticmethod
    def targets(budget: Budget) -> tuple[tuple[str, Budget], ...]:
        """Return the noises that can meet a budget, each with the budget that it is calibrated to.

        l2-Laplace noise guarantees pure epsilon-DP, which is more than an (epsilon, delta) budget
        needs. In few dimensions it is still the smaller noise: its variance grows with the squared
        dimension, without log(1 / delta).
        """
        if budget.kind not in ("pure", "approximate"):
            return (("gaussian", budget),)
        pure = (
            "l2_laplace",
            Budget(epsilon=budget.epsilon, unit=budget.unit, relation=budget.relation),
        )
        return (pure,) if budget.kind == "pure" else (("gaussian", budget), pure)

    @property
    def event(self) -> Gaussian | L2Laplace:
        """What the noise does to a vector whose sensitivity it was scaled by."""
        if self.noise == "gaussian":
            return Gaussian(self.noise_multiplier)
        return L2Laplace(self.noise_multiplier, self.dimension)

    def added(self, values: Floats, sensitivity: float, source: Source) -> Floats:
        """Return the values with noise."""
        add = add_gaussian if self.noise == "gaussian" else add_l2_laplace
        return add(
            values,
            l2_sensitivity=sensitivity,
            noise_multiplier=self.noise_multiplier,
            source=source,
        )

    def mean_square(self, sensitivity: float) -> float:
        """Return the variance of each entry."""
        square = (self.noise_multiplier * sensitivity) ** 2
        return square if self.noise == "gaussian" else square * (self.dimension + 1)

    def reach(self, sensitivity: float, level: float) -> float:
        """Return the noise bound in one direction, probability ``level``, rounding included."""
        multiplier, d = self.noise_multiplier, self.dimension
        rounding = Grid.fitting(sensitivity * min(1.0, multiplier), d, "l2").rounding(d, "l2")
        unit = (
            -float(ndtri((1 - level) / 2))
            if self.noise == "gaussian"
            else l2_laplace_reach(d, level)
        )
        # The rounding is charged to the sensitivity; value and noise are each rounded by half a
        # step.
        return (multiplier * (sensitivity + rounding) * unit + rounding) * (1 + 1e-9)


def l2_laplace_reach(dimension: int, level: float) -> float:
    """Bound a coordinate of density prop. to exp(-||x||), with probability ``level``.

    The vector is sqrt(V) Z with V chi-square of dimension + 1 degrees of freedom and Z standard
    normal (`dpfit.noise.rounded.rounded_l2_laplace`), so a coordinate exceeds t with the mean over
    V of a normal tail.

    >>> round(l2_laplace_reach(1, 1 - math.exp(-2)), 6)
    2.0
    """
    shape, fails = (dimension + 1) / 2, 1 - level
    low, high = 2 * gammaincinv(shape, 1e-12 * fails), 2 * gammainccinv(shape, 1e-12 * fails)
    # The density of log V decays quickly on both sides, so the error of the trapezoidal rule is
    # that of rounding.
    logs = np.linspace(math.log(low), math.log(high), 1001)
    exponents = shape * logs - np.exp(logs) / 2
    weights = np.exp(exponents - exponents.max())
    weights, deviations = weights / weights.sum(), np.exp(logs / 2)

    def excess(reach: float) -> float:
        return float(weights @ (2 * ndtr(-reach / deviations))) - fails

    return float(
        brentq(excess, 0.0, math.sqrt(high) * -float(ndtri(fails / 4)), xtol=1e-12, rtol=1e-12)
    )
