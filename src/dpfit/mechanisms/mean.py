"""The mean of bounded records with Gaussian or Laplace noise.

Guarantee: mu-GDP with mu = 1 / noise multiplier (Gaussian), epsilon-DP with epsilon = 1 / noise
multiplier (Laplace). Reference: [Gan22] Examples 2 and 5, Fact 15; noise on a grid,
docs/explanation/noise.md.

Records are clipped into the declared range, centred, rounded to a grid and summed in integers, so
the sensitivity of the sum is exact: one record moves each coordinate by at most the half-range
(added or removed) or the range (replaced). The number of records that divides the sum is the
declared one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpfit.core import Algorithm, Answer, Example, Mechanism, Plan, Risk, Run, Step
from dpfit.data.arrays import array_of, as_rows, check_array
from dpfit.data.view import View
from dpfit.noise import Grid, add_gaussian, add_laplace
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import Event, Gaussian, Laplace
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import integer, option, real


@dataclass(frozen=True)
class BoundedMean(Spec):
    """The mean of records whose ``dimension`` entries lie in [lower, upper]."""

    kind = "bounded_mean"
    lower: float
    upper: float
    dimension: int = 1

    def __post_init__(self) -> None:
        check_range(self.lower, self.upper)
        integer("dimension", self.dimension)


def check_range(lower: float, upper: float) -> None:
    """Refuse a range unless it is two finite numbers in order."""
    if not -math.inf < real("lower", lower) < real("upper", upper) < math.inf:
        raise ValueError(f"a range needs finite lower < upper, got [{lower!r}, {upper!r}]")


@dataclass(frozen=True)
class NoisyMean(Mechanism):
    """The mean of clipped records with noise; ``n`` divides the sum."""

    kind = "noisy_mean"
    noise: str
    noise_multiplier: float
    query: BoundedMean
    n: int
    relation: str

    def __post_init__(self) -> None:
        option("noise", self.noise, ("gaussian", "laplace"))
        option("relation", self.relation, ("replace", "add_remove"))
        integer("n", self.n)
        _ = self.event

    @property
    def event(self) -> Event:
        return (Gaussian if self.noise == "gaussian" else Laplace)(self.noise_multiplier)

    @property
    def risk(self) -> Risk:
        half = (self.query.upper - self.query.lower) / 2
        deviation = self.noise_multiplier * self._sensitivity(half) / self.n
        deviation *= 1.0 if self.noise == "gaussian" else math.sqrt(2)
        return Risk(deviation, "root mean square noise of each mean")

    def reach(self, level: float) -> tuple[float, bool]:
        """Return the exact reach of the noise on each entry of the mean."""
        is_gaussian = self.noise == "gaussian"
        scale = self.risk.expected / (1.0 if is_gaussian else math.sqrt(2))
        unit = -float(ndtri((1 - level) / 2)) if is_gaussian else -math.log1p(-level)
        # Rounding adds at most 2**-13 of the sensitivity to it; each record and the noise are
        # rounded by half a step.
        return scale * unit * (1 + 2.0**-13) + self._grid.step / 2 * (1 + 1 / self.n), True

    def check(self, data: View) -> None:
        check_array(data, self.query.dimension, "numbers")

    def run(self, data: View, run: Run) -> NDArray[np.float64]:
        query = self.query
        rows = self._rows(data)
        centre, half = query.lower / 2 + query.upper / 2, query.upper / 2 - query.lower / 2
        grid = self._grid
        steps = grid.sum(rows - centre, bound=half)
        # Every entry is a whole number of steps of size at most that of the half-range.
        sensitivity = self._sensitivity(grid.step * int(grid.quantize(half)))
        if self.noise == "gaussian":
            noisy = add_gaussian(
                steps,
                l2_sensitivity=sensitivity,
                noise_multiplier=self.noise_multiplier,
                source=run.noise,
                grid=grid,
            )
        else:
            noisy = add_laplace(
                steps,
                l1_sensitivity=sensitivity,
                noise_multiplier=self.noise_multiplier,
                source=run.noise,
                grid=grid,
            )
        return np.asarray(centre + noisy / self.n)

    def basis(self, unit: str) -> Basis:
        """Return why the mean is private."""
        assumptions = [Assumption("each record is clipped into the declared range", "enforced")]
        if self.relation == "add_remove":
            assumptions.append(
                Assumption(
                    "the number n that divides the sum was not read off the data", "declared"
                )
            )
        law = (
            "Gaussian mechanism [Gan22, Fact 15]"
            if self.noise == "gaussian"
            else "Laplace mechanism [Gan22, Fact 3]"
        )
        return Basis(law, self.relation, unit, tuple(assumptions), "exact")

    def _rows(self, data: View) -> NDArray[np.float64]:
        return as_rows(array_of(data), self.query.dimension, "numbers")

    @property
    def _grid(self) -> Grid:
        """Return a grid on which the rounding of n records adds up to less than the noise."""
        half = self.query.upper / 2 - self.query.lower / 2
        sensitivity = self._sensitivity(half)
        grid = Grid.fitting(
            sensitivity, self.query.dimension, "l2" if self.noise == "gaussian" else "l1"
        )
        return grid.of_sum(self.n, half, self.noise_multiplier * sensitivity)

    def _sensitivity(self, half: float) -> float:
        """Return how far one record moves the sum, in the norm of the noise, rounded up."""
        change = half if self.relation == "add_remove" else 2 * half
        d = self.query.dimension
        return math.nextafter(change * (math.sqrt(d) if self.noise == "gaussian" else d), math.inf)


class _NoisyMeans(Algorithm[Answer]):
    """What both algorithms share; ``noise`` is the only difference."""

    solves = Answer
    workloads = (BoundedMean,)
    tier = "specialised"
    noise: ClassVar[str]

    def _plan(self, problem: Answer, budget: Budget) -> Plan:
        """Plan one step with the smallest noise that meets the budget.

        >>> problem = Answer(n=1000, workload=BoundedMean(0.0, 1.0))
        >>> plan = gaussian_mean.plan(problem, Budget(epsilon=1, delta=1e-6))
        >>> round(plan.guarantee.epsilon(1e-6), 3)
        1.0
        """
        query = cast(BoundedMean, problem.workload)

        def mechanism(noise_multiplier: float) -> NoisyMean:
            return NoisyMean(self.noise, noise_multiplier, query, problem.units, budget.relation)

        noisy_mean = calibrate(mechanism, budget)
        return Step(noisy_mean, noisy_mean.basis(budget.unit))

    def example(self, relation: str) -> Example:
        """Return five zeros, one of which becomes a one or leaves."""
        problem = Answer(n=5, workload=BoundedMean(0.0, 1.0))
        zeros = np.zeros((5, 1))
        return Example(
            problem,
            zeros,
            zeros[:-1] if relation == "add_remove" else np.vstack([zeros[:-1], [[1.0]]]),
        )


class GaussianMean(_NoisyMeans):
    """The mean of bounded records with Gaussian noise.

    Guarantee: mu-GDP with mu = 1 / noise multiplier. Reference: [Gan22] Example 5, Fact 15.
    """

    name = "gaussian_mean"
    summary = "mean of bounded records with Gaussian noise"
    reference = "[Gan22] Example 5, Fact 15; [Liu24] Definition 3.3.1"
    guarantees = ("approximate", "gdp", "zcdp")
    noise = "gaussian"


class LaplaceMean(_NoisyMeans):
    """The mean of bounded records with Laplace noise.

    Guarantee: epsilon-DP with epsilon = 1 / noise multiplier. Reference: [Gan22] Example 2, Fact 3.
    """

    name = "laplace_mean"
    summary = "mean of bounded records with Laplace noise"
    reference = "[Gan22] Example 2, Fact 3"
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    noise = "laplace"


gaussian_mean = GaussianMean()
laplace_mean = LaplaceMean()
