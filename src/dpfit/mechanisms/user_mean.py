"""The mean of one vector for each user, with Gaussian noise."""

from __future__ import annotations

from typing import cast

import numpy as np

from dpfit.core import Algorithm, Answer, Example, Plan, Step
from dpfit.mechanisms.aggregates.user_vectors import (
    StagedMean,
    UserVectors,
    first_radius,
    means_basis,
    one_moves,
)
from dpfit.privacy import Budget, calibrate


class UserMeanRelease(Algorithm[Answer]):
    """The mean of one vector for each user: a sum of clipped means of rows, with Gaussian noise.

    Use it where a user has several rows and the centre is known within the radius; where the
    spread is known and the location is not, use `staged_user_mean`, and against a few users far
    away `filtered_mean`. With unit="record" each row is a user.
    Guarantee: mu-GDP, mu = 1 / noise_multiplier, for a user with all of its rows.
    Sensitivity: radius / n under add/remove, 2 radius / n under replace-one.
    Reference: [Gan22] Fact 15; docs/explanation/users.md.

    Parameters
    ----------
    radius : float, optional
        Norm to which a user's vector minus the centre is clipped; by default what holds all.
    centre : sequence of float, optional
        A public point near the mean; by default the origin.

    Examples
    --------
    >>> problem = Answer(n=1000, workload=UserVectors(dimension=3, row_norm=1.0))
    >>> plan = user_mean.plan(problem, Budget(epsilon=1, delta=1e-6, unit="user"))
    >>> round(plan.risk.expected, 5)
    0.00845
    """

    name = "user_mean"
    summary = "mean of one vector for each user: the mean of its rows, clipped"
    use_for = "means over people with several rows each"
    reference = "[Gan22] Fact 15; [LD] Lemma C.1"
    solves = Answer
    workloads = (UserVectors,)
    guarantees = ("approximate", "gdp", "zcdp")
    units = ("record", "user")
    tier = "recommended"

    def _plan(
        self,
        problem: Answer,
        budget: Budget,
        *,
        radius: float | None = None,
        centre: tuple[float, ...] | None = None,
    ) -> Plan:
        """Plan one release with the smallest noise that meets the budget."""
        workload = cast(UserVectors, problem.workload)
        start = None if centre is None else tuple(map(float, centre))
        radii = (first_radius(workload, radius, np.zeros(1) if start is None else np.array(start)),)

        def make(noise_multiplier: float) -> StagedMean:
            return StagedMean(
                problem.units,
                noise_multiplier,
                budget.relation,
                budget.unit,
                workload,
                radii,
                start,
            )

        return Step(calibrate(make, budget), means_basis(budget))

    def example(self, relation: str) -> Example:
        """Return users of one row each, one of whom moves or leaves."""
        problem = Answer(n=12, workload=UserVectors(dimension=2, row_norm=1.0))
        return one_moves(problem, relation)


user_mean = UserMeanRelease()
