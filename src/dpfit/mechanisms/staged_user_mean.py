"""The mean of one vector for each user where only the spread of users is known."""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from dpfit.core import Algorithm, Answer, Example, Plan, Step
from dpfit.mechanisms.aggregates.user_vectors import (
    SPREAD,
    StagedMean,
    UserVectors,
    first_radius,
    means_basis,
    one_moves,
    stage_fractions,
)
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.event import Gaussian
from dpfit.privacy.validate import integer

NOISE_REACH = 1.3
"""The noise of a stage, as a multiple of its root mean square norm, that the next radius covers."""


class StagedUserMean(Algorithm[Answer]):
    """The mean of one vector for each user, in stages around one another.

    The first stage clips at the public bound, each further one at the spread of users plus the
    noise of the stage before. A stage shrinks the radius by about n mu / (2 sqrt(d)): three stages
    cover a bound of 10^4 spreads at n = 3000. It is biased where users far away are more than a few
    in a hundred: use `filtered_mean` there.
    Guarantee: mu-GDP for all stages, mu = 1 / noise_multiplier, for a user with all of its rows.
    Sensitivity: radius / n of each stage under add/remove, 2 radius / n under replace-one.
    Reference: [Gan22] Fact 15; docs/explanation/users.md.
    Work: one pass for each stage.

    Parameters
    ----------
    stages : int, default=3
        Number of stages.
    radius : float, optional
        Radius of the first stage; by default what holds all vectors.
    centre : sequence of float, optional
        Public centre of the first stage; by default the origin.

    Examples
    --------
    >>> problem = Answer(n=3000, workload=UserVectors(dimension=10, row_norm=200.0, spread=1.0))
    >>> plan = staged_user_mean.plan(problem, Budget(epsilon=1, delta=1e-6))
    >>> [round(radius, 2) for radius in plan.mechanism.radii]
    [200.0, 5.63, 1.13]
    """

    name = "staged_user_mean"
    summary = "mean of one vector for each user in stages: the location need not be known"
    reference = "[Gan22] Fact 15; [LD] Lemma C.1"
    solves = Answer
    workloads = (UserVectors,)
    guarantees = ("approximate", "gdp", "zcdp")
    units = ("record", "user")
    requires = (SPREAD,)
    tier = "specialised"

    def _plan(
        self,
        problem: Answer,
        budget: Budget,
        *,
        stages: int = 3,
        radius: float | None = None,
        centre: tuple[float, ...] | None = None,
    ) -> Plan:
        """Plan the stages; half of squared mu is for the last one."""
        workload = cast(UserVectors, problem.workload)
        start = None if centre is None else tuple(map(float, centre))
        first = first_radius(workload, radius, np.zeros(1) if start is None else np.array(start))
        multiplier = calibrate(Gaussian, budget).noise_multiplier
        radii = stage_radii(
            first, float(workload.spread or first), integer("stages", stages),
            (1 if budget.relation == "add_remove" else 2) * multiplier / problem.units,
            workload.dimension,
        )  # fmt: skip
        mechanism = StagedMean(
            problem.units, multiplier, budget.relation, budget.unit, workload, radii, start
        )
        return Step(mechanism, means_basis(budget))

    def example(self, relation: str) -> Example:
        """Return users of one row each, one of whom moves or leaves."""
        problem = Answer(n=12, workload=UserVectors(dimension=2, row_norm=1.0, spread=0.5))
        return one_moves(problem, relation)


def stage_radii(
    first: float, spread: float, stages: int, noise: float, dimension: int
) -> tuple[float, ...]:
    """Return the radius of each stage: the spread, plus a bound on the noise of the stage before.

    ``noise`` is the standard deviation of one release of the whole budget at radius 1. No radius is
    larger than the one before.
    """
    radii = [first]
    for fraction in stage_fractions(stages)[:-1]:
        deviation = radii[-1] * noise / math.sqrt(fraction)
        radii.append(min(radii[-1], spread + NOISE_REACH * deviation * math.sqrt(dimension)))
    return tuple(radii)


staged_user_mean = StagedUserMean()
