"""Means of users for queries that are chosen one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpfit.core import (
    Algorithm,
    Example,
    Halted,
    Interact,
    Interactive,
    Plan,
    Run,
    State,
    Step,
    Work,
)
from dpfit.data.view import View, require_records
from dpfit.mechanisms.aggregates.aggregate import Aggregate
from dpfit.mechanisms.aggregates.clipped_mean import ClippedMean
from dpfit.mechanisms.aggregates.user_means import OWN_ROWS, Query, Rows, UserMean
from dpfit.mechanisms.aggregates.user_vectors import (
    UserVectors,
    first_radius,
    means_basis,
    one_moves,
)
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.event import Event

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class UserMeans(Interactive):
    """Private means of users, one for each query.

    A query is None, for the mean of the rows; a `Query`; or a function of the rows and labels of
    one user. The centre of a `Query` must be public or released.
    """

    kind = "user_means"
    aggregate: Aggregate
    workload: UserVectors
    radius: float

    def __post_init__(self) -> None:
        self.aggregate.check_scale(self.asked(None))

    @property
    def event(self) -> Event:
        return self.aggregate.event

    @property
    def rounds(self) -> int:
        return self.aggregate.rounds

    @property
    def work(self) -> Work:
        return self.aggregate.work

    def asked(self, query: Any) -> UserMean:
        """Return what users contribute to a query."""
        if query is None:
            return UserMean(self.workload.rows, self.radius)
        if callable(query):
            query = Query(query, self.workload.dimension)
        if not isinstance(query, Query) or query.dimension != self.workload.dimension:
            raise ValueError(
                f"a query must be None, a function of the rows and labels of a user, or a Query of "
                f"dimension {self.workload.dimension}"
            )
        return UserMean(query, self.radius, query.centre)

    def check(self, data: View) -> None:
        require_records(data)
        self.aggregate.check(data)

    def init(self, data: View, run: Run) -> State:
        return {"aggregate": self.aggregate.init(data, run), "answers": ()}

    def step(self, state: State, given: Any, data: View, run: Run) -> tuple[State, Any]:
        """Answer one query by the noisy mean, or halt."""
        asked = self.asked(given)
        if isinstance(asked.source, Rows):
            self.workload.check(data)
        aggregate, answer = self.aggregate.step(state["aggregate"], asked, data, run)
        state = state | {"aggregate": aggregate}
        if isinstance(answer, Halted):
            return state, answer
        answer = self.shifted(asked, answer)
        return state | {"answers": (*state["answers"], answer)}, answer

    def shifted(self, asked: UserMean, answer: Floats) -> Floats:
        """Return the answer to a query: a clipped mean is one of differences to the centre."""
        return answer + asked.centre if isinstance(self.aggregate, ClippedMean) else answer

    def finish(self, state: State) -> tuple[Floats, ...]:
        return tuple(state["answers"])

    def adversarial(self, data: Any, neighbour: Any) -> tuple[Any, ...]:
        """Return the mean of the rows, asked again and again."""
        return (None,) * self.rounds


class UserMeansInteraction(Algorithm[Interact]):
    """Means of one vector for each user, for queries chosen one after the other.

    Guarantee: mu-GDP for all answers together, mu = 1 / noise_multiplier, for a user with all of
    its rows; each query may depend on the answers before it.
    Sensitivity: radius / n under add/remove, 2 radius / n under replace-one.
    Reference: [Gan22] Fact 15; docs/explanation/users.md.
    Work: one pass for each query.

    Parameters
    ----------
    radius : float, optional
        Norm to which a user's vector minus the centre of its query is clipped.

    Examples
    --------
    >>> problem = Interact(n=1000, workload=UserVectors(dimension=3, row_norm=1.0), rounds=10)
    >>> plan = user_means.plan(problem, Budget(epsilon=1, delta=1e-6, unit="user"))
    >>> plan.mechanism.rounds, round(plan.guarantee.epsilon(1e-6), 3)
    (10, 1.0)
    """

    name = "user_means"
    summary = "means of one vector for each user, for queries chosen one after the other"
    reference = "[Gan22] Fact 15; [LD] Lemma C.1"
    solves = Interact
    workloads = (UserVectors,)
    guarantees = ("approximate", "gdp", "zcdp")
    units = ("record", "user")
    tier = "specialised"

    def _plan(self, problem: Interact, budget: Budget, *, radius: float | None = None) -> Plan:
        """Plan an interaction with the smallest noise that meets the budget."""
        workload = cast(UserVectors, problem.workload)
        reach = first_radius(workload, radius, np.zeros(1))

        def make(noise_multiplier: float) -> UserMeans:
            mean = ClippedMean(
                problem.units, noise_multiplier, problem.rounds, budget.relation, per=budget.unit
            )
            return UserMeans(mean, workload, reach)

        return Step(calibrate(make, budget), means_basis(budget, OWN_ROWS))

    def example(self, relation: str) -> Example:
        """Return users of one row each, one of whom moves or leaves."""
        workload = UserVectors(dimension=2, row_norm=1.0)
        return one_moves(Interact(n=12, workload=workload, rounds=3), relation)


user_means = UserMeansInteraction()
