"""The filtered mean: a weighted mean of the values near most others, or a halt.

In each round the score, the mean number of values within the radius of a value, is compared with a
noisy threshold. If it passes, values with few others near them get less weight, and the mean gets
Gaussian noise in proportion to the radius, wherever it lies. If it fails, the interaction ends.

Guarantee: the event is epsilon of the test, composed with the Gaussian of all means, and the
probability that the test passes a score that is too low; for any data and adaptively chosen
contributions, under replace-one. Reference: [Liu24] Algorithm 28 with a weighted filter; proof in
docs/explanation/users.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Halted, Run, State
from dpfit.data.view import View
from dpfit.kernels.pairs import near_counts
from dpfit.mechanisms.above_threshold import AboveThreshold
from dpfit.mechanisms.aggregates.aggregate import Aggregate
from dpfit.mechanisms.aggregates.contribution import Contribution, Gradient
from dpfit.mechanisms.aggregates.inlier_levels import (
    Ramp,
    false_answer,
    least_n,
    plan_levels,
    score_test,
    sensitivity,
)
from dpfit.mechanisms.aggregates.user_means import UserMean, gradient_means
from dpfit.noise import Grid, add_gaussian
from dpfit.noise.lattice import LIMIT
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.accountant import privacy_curve
from dpfit.privacy.event import Approximate, Composed, Event, Gaussian, Pure
from dpfit.privacy.validate import positive, probability

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]

_FINE = 2**10
"""Steps of a value's grid in the radius, at least."""

_FARTHEST = 2**36
"""Largest number of steps of an entry: values farther out count as lying there."""

_DIGITS = 13
"""Bits of a value that are summed at a time."""


@dataclass(frozen=True)
class FilteredMean(Aggregate):
    """Noisy weighted means of the values near most others; `Halted` once too few are near.

    Parameters
    ----------
    noise_multiplier : float
        Noise of all answers together over `sensitivity`.
    epsilon : float
        What the test of all rounds spends.
    radius : float
        Distance within which two values count as near: public.
    threshold, floor : float
        The score that passes before noise, and the score from which on the noise of the answers
        covers a replaced value.
    low, high, two_radii
        See `dpfit.mechanisms.aggregates.inlier_levels.Ramp`.
    """

    kind = "filtered_mean"
    units: ClassVar[tuple[str, ...]] = ("record", "user")
    per: str = "user"
    epsilon: float = 1.0
    radius: float = 1.0
    threshold: float = 1.0
    floor: float = 1.0
    low: int = 0
    high: int = 1
    two_radii: bool = False

    def __post_init__(self) -> None:
        positive("radius", self.radius)
        if self.relation != "replace":
            raise ValueError(
                "a filtered mean needs relation='replace': the number of users is public; use "
                "user_mean or staged_user_mean under add/remove"
            )
        if not self.sampling.sees_all:
            raise ValueError("a filtered mean needs rounds that see all records; use FullBatch()")
        if not math.isfinite(self.change):
            raise ValueError("floor must be above high and n / 2; plan with filtered_mean")
        super().__post_init__()

    @cached_property
    def test(self) -> AboveThreshold:
        """The test of the score."""
        return score_test(self.epsilon, self.threshold, self.rounds)

    @cached_property
    def change(self) -> float:
        """Sensitivity of the mean before rounding, for scores of at least the floor."""
        ramp = Ramp(self.low, self.high, self.two_radii)
        return self.radius * sensitivity(self.n, self.floor, ramp) * (1 + 2.0**-40)

    @cached_property
    def false_pass(self) -> float:
        """Probability that some score passes which is below the floor on a neighbouring dataset."""
        return false_answer(self.threshold - self.floor - 2, self.test)

    @cached_property
    def event(self) -> Event:
        parts = Pure(self.epsilon), Gaussian(self.noise_multiplier)
        curve = privacy_curve(Composed(parts), "replace")
        likely = float(curve.delta(np.zeros(1))[0])
        # With probability p all is lost, else the curve h holds: p + (1 - p) h is at least
        # false_pass + h wherever h is at most its value at 0.
        lost = min(1.0, self.false_pass / max(1 - likely, 1e-300) * (1 + 1e-12))
        return Composed((*parts, Approximate(0.0, lost)))

    @cached_property
    def deviation(self) -> float:
        """Standard deviation of the noise in each entry of an answer, rounding apart."""
        return self.change * self.noise_multiplier * math.sqrt(self.rounds)

    def check(self, data: View) -> None:
        if data.n_units != self.n:
            raise ValueError(
                f"the plan is for n = {self.n} {self.per}s, the data have {data.n_units}; plan "
                "for that n"
            )

    def init(self, data: View, run: Run) -> State:
        """Draw the noise of the threshold, once for all rounds."""
        return super().init(data, run) | {"test": self.test.init(data, run)}

    def answer(
        self, state: State, contribution: Contribution, data: View, run: Run
    ) -> tuple[State, Any]:
        values = self.rounded(self.vectors(contribution, data))
        near, within = self.counts(values)
        test, passes = self.test.compare(state["test"], self.score(near), run)
        state = state | {"test": test}
        if not passes:
            return state, Halted()
        dimension = values.shape[1]
        grid = Grid.fitting(self.change, dimension, "l2")
        steps = self.weighted_mean(values, within if self.two_radii else near, grid)
        noisy = add_gaussian(
            steps,
            l2_sensitivity=math.nextafter(self.change + grid.rounding(dimension, "l2"), math.inf),
            noise_multiplier=self.noise_multiplier * math.sqrt(self.rounds) * (1 + 2.0**-40),
            source=run.noise,
            grid=grid,
        )
        return state, noisy

    def vectors(self, contribution: Contribution, data: View) -> Floats:
        """Return one vector for each unit, NaN for one without a usable record; NOT private."""
        if isinstance(contribution, Gradient):
            return gradient_means(contribution, data)
        if isinstance(contribution, UserMean):
            return contribution.vectors(data)
        raise ValueError(
            f"users contribute means of gradients or of rows, got {type(contribution).__name__}"
        )

    @cached_property
    def values_grid(self) -> Grid:
        """The grid that values are rounded to before anything is counted."""
        return Grid(math.frexp(self.radius / _FINE)[1] - 1)

    def rounded(self, values: Floats) -> Floats:
        """Return values in whole steps of their grid, NaN where an entry is not finite."""
        usable = np.isfinite(values).all(axis=1, keepdims=True)
        steps = np.clip(self.values_grid.quantize(values), -_FARTHEST, _FARTHEST)
        return np.where(usable, steps.astype(np.float64), np.nan)

    def counts(self, values: Floats) -> tuple[Steps, Steps]:
        """Return how many values lie within the radius, and within twice the radius, of each."""
        radius = self.radius / self.values_grid.step
        return near_counts(values, radius, 2 * radius)

    def score(self, near: Steps) -> float:
        """Return the mean number of values near a value."""
        return int(near.sum()) / self.n

    def weighted_mean(self, values: Floats, counts: Steps, grid: Grid) -> Steps:
        """Return the weighted mean, rounded once to the grid; 0 if no value has weight."""
        weights = np.clip(counts - self.low, 0, self.high - self.low)
        weights = np.where(np.isfinite(values).all(axis=1), weights, 0)
        whole = np.where(weights[:, np.newaxis] > 0, values, 0.0).astype(np.int64)
        # No sum of digits overflows: 2**13 times weights and numbers of values below 2**24. The
        # leading digit has the sign.
        totals = [0] * values.shape[1]
        for low in range(0, 39, _DIGITS):
            digits = whole >> low
            if low + _DIGITS < 39:
                digits = digits & (2**_DIGITS - 1)
            totals = [
                total + (int(part) << low)
                for total, part in zip(totals, weights @ digits, strict=True)
            ]
        shift, mass = self.values_grid.exponent - grid.exponent, int(weights.sum())
        steps = [_ratio(total, mass, shift) for total in totals]
        return np.array([max(-LIMIT, min(one, LIMIT)) for one in steps], dtype=np.int64)


def _ratio(total: int, mass: int, shift: int) -> int:
    """Return ``total * 2**shift / mass``, rounded; 0 if the mass is 0."""
    if not mass:
        return 0
    above, below = (total << shift, mass) if shift >= 0 else (total, mass << -shift)
    return (2 * above + below) // (2 * below)


def plan_filter(
    n: int,
    rounds: int,
    radius: float,
    budget: Budget,
    *,
    outliers: float = 0.0,
    rejected: float = 0.05,
) -> FilteredMean:
    """Return the filtered mean of least noise within an (epsilon, delta) budget.

    ValueError with the smallest n if n is too small.

    Honest data halt with probability at most ``rejected`` if all pairs of values but those with an
    outlier lie within the radius.
    """
    if not 0 <= probability("outliers", outliers) < 0.18:
        raise ValueError(f"outliers must be at least 0 and below 0.18, got {outliers!r}")
    if not 0 < probability("rejected", rejected) < 1:
        raise ValueError(f"rejected must lie between 0 and 1, got {rejected!r}")
    epsilon, delta = float(budget.epsilon or 0.0), float(budget.delta or 0.0)
    shares = {"rejected": rejected, "inliers": (1 - outliers) ** 2}
    levels = plan_levels(n, rounds, epsilon, delta, **shares)
    if levels is None:
        least = least_n(rounds, epsilon, delta, **shares)
        raise ValueError(
            f"filtered_mean needs at least {least} users with this budget, got n = {n}; use "
            "staged_user_mean, which needs no least number"
        )

    def make(noise_multiplier: float) -> FilteredMean:
        return FilteredMean(
            n, noise_multiplier, rounds, budget.relation, per=budget.unit, epsilon=levels.epsilon,
            radius=radius, threshold=levels.threshold, floor=levels.floor, low=levels.ramp.low,
            high=levels.ramp.high, two_radii=levels.ramp.two_radii,
        )  # fmt: skip

    return calibrate(make, budget)


def filter_basis(budget: Budget, *declared: Assumption) -> Basis:
    """Return why filtered means are private, under what else is declared."""
    counted = Assumption("the number n of users is that of the data", "enforced")
    theorem = (
        "filtered mean [Liu24, Theorem 9.3.2, with corrected constants]; above threshold "
        "(Dwork and Roth 2014, Theorem 3.23); concurrent composition (Vadhan and Wang 2021)"
    )
    return Basis(theorem, budget.relation, budget.unit, (counted, *declared), "exact")
