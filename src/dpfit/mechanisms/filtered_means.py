"""Filtered means of users for queries that are chosen one after the other."""

from __future__ import annotations

from typing import cast

from dpfit.core import Algorithm, Example, Interact, Plan, Step
from dpfit.mechanisms.aggregates.filtered_mean import filter_basis, plan_filter
from dpfit.mechanisms.aggregates.user_means import OWN_ROWS
from dpfit.mechanisms.aggregates.user_vectors import (
    SPREAD,
    UserVectors,
    pair_radius,
    two_places,
)
from dpfit.mechanisms.user_means import UserMeans
from dpfit.privacy import Budget


class FilteredMeansInteraction(Algorithm[Interact]):
    """Filtered means of users, for queries chosen one after the other, until a halt.

    Guarantee: (epsilon, delta)-DP for all answers and the halt together, for a user with all of its
    rows, under replace-one, for any data and queries.
    Sensitivity: between 4 and 24 radii / n, for scores above the floor.
    Reference: [Liu24] Algorithm 28 with a weighted filter; docs/explanation/users.md.
    Work: one pass for each query, and n^2 d / 2 differences.

    Parameters
    ----------
    radius, outliers, rejected
        As in `filtered_mean`.

    Examples
    --------
    >>> workload = UserVectors(dimension=10, row_norm=1e6, spread=1.0)
    >>> problem = Interact(n=3000, workload=workload, rounds=20)
    >>> plan = filtered_means.plan(problem, Budget(epsilon=1, delta=1e-6, unit="user"))
    >>> round(plan.guarantee.epsilon(1e-6), 3)
    1.0
    """

    name = "filtered_means"
    summary = "means of users whose values lie close together, query by query, until a halt"
    reference = "[Liu24] Algorithm 28, Theorem 9.3.2, corrected"
    solves = Interact
    workloads = (UserVectors,)
    guarantees = ("approximate",)
    relations = ("replace",)
    under_other_relations = "; use user_means, which hides the number of users"
    units = ("record", "user")
    requires = (SPREAD,)
    tier = "specialised"

    def _plan(
        self,
        problem: Interact,
        budget: Budget,
        *,
        radius: float | None = None,
        outliers: float = 0.0,
        rejected: float = 0.05,
    ) -> Plan:
        """Plan an interaction; one test with one noisy threshold covers all rounds."""
        workload = cast(UserVectors, problem.workload)
        reach = pair_radius(workload, radius)
        mean = plan_filter(
            problem.units, problem.rounds, reach, budget, outliers=outliers, rejected=rejected
        )
        return Step(UserMeans(mean, workload, reach), filter_basis(budget, OWN_ROWS))

    def example(self, relation: str) -> Example:
        """Return the users of `filtered_mean`, more of them, for three rounds."""
        workload = UserVectors(dimension=2, row_norm=9.0, spread=0.5)
        return two_places(Interact(n=600, workload=workload, rounds=3), far=14)


filtered_means = FilteredMeansInteraction()
