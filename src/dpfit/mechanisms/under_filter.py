"""Plans chosen one after the other from earlier answers, under a cap that is charged at the start.

Guarantee: the cap, for any choice of plans: each plan is charged to a privacy filter before it
runs. Reference: docs/explanation/filters.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpfit.core import Algorithm, Example, Interact, Interactive, Plan, Run, State, Step, Work
from dpfit.mechanisms.mean import BoundedMean, NoisyMean
from dpfit.privacy import Assumption, Basis, Budget, Event
from dpfit.privacy.event import Filtered, GaussianPrivate, Pure, ZeroConcentrated
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import integer


@dataclass(frozen=True)
class ChosenPlans(Spec):
    """Plans chosen by an analyst one after the other, each from the earlier answers."""

    kind = "chosen_plans"


@dataclass(frozen=True)
class UnderFilter(Interactive):
    """An analyst who decides as they go: each query is a plan of the same relation and unit.

    The value is the tuple of all answers. A plan that does not fit what is left raises
    `FilterExhausted`, and costs nothing.

    >>> from dpfit.core import Step
    >>> from dpfit.privacy.event import ZeroConcentrated
    >>> UnderFilter(ZeroConcentrated(0.5), Basis("privacy filter")).event.cap.rho
    0.5
    """

    kind = "under_filter"
    resumable: ClassVar[bool] = False
    cap: Event
    why: Basis
    rounds: int = 2**62

    def __post_init__(self) -> None:
        integer("rounds", self.rounds)
        _ = self.event

    @property
    def event(self) -> Filtered:
        return Filtered(self.cap)

    @property
    def work(self) -> Work:
        return Work(passes=float("inf"))

    def init(self, data: Any, run: Run) -> State:
        return {"answers": ()}

    def step(self, state: State, given: Plan, data: Any, run: Run) -> tuple[State, Any]:
        """Charge the plan, then run it."""
        self.why.joined(given.basis, "")  # another relation or unit is refused
        run.charge(given.event)
        answer = given.execute(data, run.part(0.0, 0.0))
        return {"answers": (*state["answers"], answer)}, answer

    def finish(self, state: State) -> tuple[Any, ...]:
        return tuple(state["answers"])

    def adversarial(self, data: Any, neighbour: Any) -> tuple[Plan, ...]:
        """Return two means in [0, 1], each for half of the cap; a third would be refused."""
        noise, multiplier = "gaussian", 1.0
        if isinstance(self.cap, Pure):
            noise, multiplier = "laplace", 2 / self.cap.epsilon
        elif isinstance(self.cap, GaussianPrivate):
            multiplier = 2**0.5 / self.cap.mu
        elif isinstance(self.cap, ZeroConcentrated):
            multiplier = (1 / self.cap.rho) ** 0.5
        # Both costs, rounded up, must fit under the cap.
        mechanism = NoisyMean(
            noise, multiplier * (1 + 1e-9), BoundedMean(0.0, 1.0), len(data), self.why.relation
        )
        return (Step(mechanism, mechanism.basis(self.why.unit)),) * 2


class AdaptivePlans(Algorithm[Interact]):
    """Run plans that an analyst chooses one by one, until their costs reach the budget.

    Guarantee: the budget, for any choice of plans from earlier answers.
    Reference: Rogers, Roth, Ullman and Vadhan (2016); docs/explanation/filters.md.
    """

    name = "under_filter"
    summary = "plans that an analyst chooses one by one, under one budget"
    reference = "Rogers, Roth, Ullman and Vadhan (2016); docs/explanation/filters.md"
    solves = Interact
    workloads = (ChosenPlans,)
    guarantees = ("pure", "gdp", "zcdp")
    tier = "specialised"

    def _plan(self, problem: Interact, budget: Budget) -> Plan:
        """Plan one interactive step whose cap is the whole budget.

        >>> problem = Interact(n=100, workload=ChosenPlans(), rounds=10)
        >>> under_filter.plan(problem, Budget(mu=0.5)).guarantee.mu
        0.5
        """
        cap: Event
        if budget.mu is not None:
            cap = GaussianPrivate(budget.mu)
        elif budget.rho is not None:
            cap = ZeroConcentrated(budget.rho)
        else:
            cap = Pure(float(budget.epsilon or 0.0))
        basis = Basis(
            "privacy filter (Rogers, Roth, Ullman and Vadhan 2016; docs/explanation/filters.md)",
            budget.relation,
            budget.unit,
            (Assumption("each plan satisfies the guarantee of its event", "declared"),),
            "exact",
        )
        return Step(UnderFilter(cap, basis, problem.rounds), basis)

    def example(self, relation: str) -> Example:
        """Return zeros; a zero becomes a one, or a one leaves."""
        problem = Interact(n=4, workload=ChosenPlans(), rounds=4)
        rows = np.zeros((4, 1))
        rows[-1] = 1.0
        return Example(problem, rows, rows[:-1] if relation == "add_remove" else np.zeros((4, 1)))


under_filter = AdaptivePlans()
