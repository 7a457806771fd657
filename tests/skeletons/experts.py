"""Lazy weights in one file: the next expert, redrawn at public rounds from losses.

Guarantee. A record is a row of losses in [0, 1], one for each expert, and arrives once (declared).
So it moves each total by at most 1, and the logarithms of the weights exp(-rate * total) by at most
rate. A draw has bounded range 2 * rate, and there are ``rounds / every`` draws, each from public
rounds on: adaptive composition of bounded range (Dong, Durfee and Rogers 2020). Between draws
nothing is released that was not released before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpfit.core import Algorithm, Example, Interact, Interactive, Plan, Run, State, Step
from dpfit.data.chunk import Chunk
from dpfit.data.dataset import InMemory
from dpfit.data.view import OpaqueView, View
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import BoundedRange, Event, Repeated
from dpfit.privacy.spec import Spec


@dataclass(frozen=True)
class Experts(Spec):
    """The workload: which of ``number`` experts to follow in the next round."""

    kind = "skeleton_experts"
    number: int


@dataclass(frozen=True)
class LazyWeights(Interactive):
    """The next round's expert after each batch; the value is the tuple of all experts."""

    kind = "skeleton_lazy_weights"
    observes: ClassVar[bool] = True
    workload: Experts
    rounds: int
    every: int
    rate: float

    @property
    def event(self) -> Event:
        return Repeated(BoundedRange(2 * self.rate), self.rounds // self.every)

    def check(self, data: View) -> None:
        if isinstance(data, OpaqueView) or data.width != self.workload.number:
            raise ValueError(
                f"batches must be a Dataset with rows of {self.workload.number} losses"
            )

    def init(self, data: View, run: Run) -> State:
        first = int(run.noise.integers(self.workload.number, 1)[0])
        return {"totals": np.zeros(self.workload.number), "followed": (first,), "round": 0}

    def step(self, state: State, given: Any, data: View, run: Run) -> tuple[State, int]:
        """Add the losses of a round, and say which expert comes next."""
        totals, followed, index = (
            state["totals"] + data.reduce(_losses),
            state["followed"][-1],
            state["round"] + 1,
        )
        if index % self.every == 0:
            followed = int(np.argmax(-self.rate * totals + run.noise.gumbel(len(totals))))
        return {
            "totals": totals,
            "followed": (*state["followed"], followed),
            "round": index,
        }, followed

    def finish(self, state: State) -> tuple[int, ...]:
        return tuple(state["followed"])


def _losses(chunk: Chunk) -> Any:
    return np.clip(np.nan_to_num(chunk.rows, nan=0.0), 0.0, 1.0).sum(axis=0)


class FollowExperts(Algorithm[Interact]):
    """Follow an expert that is redrawn at public rounds."""

    name = "experts"
    summary = "which expert to follow, from losses that arrive"
    reference = "Dong, Durfee and Rogers (2020)"
    solves = Interact
    workloads = (Experts,)
    guarantees = ("pure", "approximate", "gdp", "zcdp")

    def _plan(self, problem: Interact, budget: Budget, *, every: int = 2) -> Plan:
        """Plan a draw after each ``every`` rounds."""
        once = Assumption("no record arrives twice", "declared")
        why = Basis("exponential mechanism, bounded range (Dong, Durfee and Rogers "
                    "2020)", budget.relation, budget.unit,
                    (once,), "idealised")  # fmt: skip
        return calibrate(
            lambda level: Step(
                LazyWeights(problem.workload, problem.rounds, every, 1 / level), why
            ),
            budget,
        )

    def example(self, relation: str) -> Example:
        """Return four rounds of losses; the record of the first turns around, or is missing."""
        problem = Interact(workload=Experts(2), rounds=4)
        one, none = InMemory([[1.0, 0.0]], [0.0]), InMemory(np.zeros((0, 2)), np.zeros(0))
        other = InMemory([[0.0, 1.0]], [0.0]) if relation == "replace" else none
        return Example(problem, (one, none, none, none), (other, none, none, none))


experts = FollowExperts()
