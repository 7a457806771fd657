"""The mean of users who are near each other, wherever that is, against a few who are far away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from dpfit.core import Algorithm, Answer, Example, Mechanism, Plan, Risk, Run, Step, Work
from dpfit.data.view import View
from dpfit.mechanisms.aggregates.filtered_mean import FilteredMean, filter_basis, plan_filter
from dpfit.mechanisms.aggregates.user_means import UserMean
from dpfit.mechanisms.aggregates.user_vectors import (
    SPREAD,
    UserVectors,
    pair_radius,
    two_places,
)
from dpfit.privacy import Budget
from dpfit.privacy.event import Event


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
    summary = "mean of users whose values lie close together; it halts if they do not"
    reference = "[Liu24] Algorithm 28, Theorem 9.3.2, corrected"
    solves = Answer
    workloads = (UserVectors,)
    guarantees = ("approximate",)
    relations = ("replace",)
    under_other_relations = "; use user_mean or staged_user_mean, which hide the number of users"
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


filtered_mean = FilteredUserMean()
