"""Plans chosen one after the other from earlier answers, under a cap that is charged at the start.

Guarantee: the cap, for any choice of plans: each plan is charged to a privacy filter before it runs.
Reference: docs/explanation/filters.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dpfit.core import Interactive, Plan, Run, State, Work
from dpfit.privacy import Basis, Event
from dpfit.privacy.check import count
from dpfit.privacy.event import Filtered


@dataclass(frozen=True)
class UnderFilter(Interactive):
    """An analyst who decides as they go: each query is a plan of the same relation and unit.

    The value is the tuple of all answers. A plan that does not fit what is left raises `FilterExhausted`, and costs
    nothing.

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
        count("rounds", self.rounds)
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
