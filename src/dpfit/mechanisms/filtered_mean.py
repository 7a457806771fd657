"""The mean of users who are near each other, wherever that is, against a few who are far away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from dpfit.core import Algorithm, Answer, Example, Mechanism, Plan, Risk, Run, Step, Work
from dpfit.core.problem import Problem
from dpfit.data.dataset import InMemory
from dpfit.data.view import View
from dpfit.mechanisms.aggregates.filtered_mean import FilteredMean
from dpfit.mechanisms.aggregates.inlier_levels import least_n, plan_levels
from dpfit.mechanisms.aggregates.user_means import UserMean
from dpfit.mechanisms.aggregates.user_vectors import SPREAD, UserVectors
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import Event
from dpfit.privacy.validate import positive, probability


@dataclass(frozen=True)
class FilteredRelease(Mechanism):
    """One filtered mean of the rows of users; the value is `Halted` where it halts."""

    kind = "filtered_release"
    aggregate: FilteredMean
    workload: UserVectors

    @property
    def event(self) -> Event:
        return self.aggregate.event

    @property
    def work(self) -> Work:
        return self.aggregate.work

    @property
    def risk(self) -> Risk:
        return Risk(self.aggregate.deviation, "root mean square noise of each mean")

    def check(self, data: View) -> None:
        self.workload.check(data)
        self.aggregate.check(data)

    def run(self, data: View, run: Run) -> Any:
        state = self.aggregate.init(data, run)
        asked = UserMean(self.workload.rows, self.aggregate.radius)
        return self.aggregate.step(state, asked, data, run)[1]


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


def filter_basis(budget: Budget) -> Basis:
    """Return why filtered means are private."""
    counted = Assumption("the number n of users is that of the data", "enforced")
    theorem = (
        "filtered mean [Liu24, Theorem 9.3.2, with corrected constants]; above threshold "
        "(Dwork and Roth 2014, Theorem 3.23); concurrent composition (Vadhan and Wang 2021)"
    )
    return Basis(theorem, budget.relation, budget.unit, (counted,), "exact")


class FilteredUserMean(Algorithm[Answer]):
    """The mean of the users who are near each other, or a halt if too few are.

    Use it where the location is unknown over four or more powers of ten, or a few users in a
    hundred lie far away; else `staged_user_mean` has less noise. It needs some hundred users.
    Guarantee: (epsilon, delta)-DP for a user with all of its rows, under replace-one, for any data.
    Sensitivity: between 4 and 24 radii / n, for scores above the floor.
    Reference: [Liu24] Algorithm 28 with a weighted filter; docs/explanation/users.md.
    Work: one pass, and n^2 d / 2 differences.

    Parameters
    ----------
    radius : float, optional
        Public distance within which two honest users lie; by default twice the spread.
    outliers : float, default=0
        Expected fraction of users who lie anywhere else.
    rejected : float, default=0.05
        Probability that honest data halt.

    Examples
    --------
    >>> problem = Answer(n=3000, workload=UserVectors(dimension=10, row_norm=1e6, spread=1.0))
    >>> plan = filtered_mean.plan(problem, Budget(epsilon=1, delta=1e-6, unit="user"))
    >>> round(plan.risk.expected, 3)
    0.022
    """

    name = "filtered_mean"
    summary = "mean of the users who are near each other, wherever that is; or a halt"
    reference = "[Liu24] Algorithm 28, Theorem 9.3.2, corrected"
    solves = Answer
    workloads = (UserVectors,)
    guarantees = ("approximate",)
    relations = ("replace",)
    units = ("record", "user")
    requires = (SPREAD,)
    tier = "specialised"

    def _plan(
        self,
        problem: Answer,
        budget: Budget,
        *,
        radius: float | None = None,
        outliers: float = 0.0,
        rejected: float = 0.05,
    ) -> Plan:
        """Plan one release; the test and the noise share the budget for the least noise."""
        workload = cast(UserVectors, problem.workload)
        mean = plan_filter(
            problem.units, 1, pair_radius(workload, radius), budget, outliers=outliers,
            rejected=rejected,
        )  # fmt: skip
        return Step(FilteredRelease(mean, workload), filter_basis(budget))

    def example(self, relation: str) -> Example:
        """Return users at two places, one of whom moves from one to the other.

        The score is near the threshold of a budget of epsilon 1, where the test tells most.
        """
        problem = Answer(n=300, workload=UserVectors(dimension=2, row_norm=9.0, spread=0.5))
        return two_places(problem, far=6)


def two_places(problem: Problem, far: int) -> Example:
    """Return users at two places, ``far`` at the second, and one more in the neighbour."""
    rows, users = np.zeros((problem.units, 2)), np.arange(problem.units)
    rows[len(rows) - far :, 0] = 3.0
    moved = rows.copy()
    moved[0, 0] = 3.0
    data, other = (InMemory(each, np.zeros(len(each)), users) for each in (rows, moved))
    return Example(problem, data, other)


def pair_radius(workload: UserVectors, radius: float | None) -> float:
    """Return the distance within which two users count as near."""
    return 2 * float(workload.spread or 0.0) if radius is None else positive("radius", radius)


filtered_mean = FilteredUserMean()
