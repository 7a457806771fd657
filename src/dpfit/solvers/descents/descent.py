"""The one driver of descents: ask the optimizer, ask the aggregate, tell the optimizer.

Guarantee: that of the aggregate, for all answers together. All else is public or post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dpfit.core import Halted, Interactive, Minimize, Risk, Run, State, Step, Work
from dpfit.core.algorithm import DECLARED_N
from dpfit.data.dataset import Dataset
from dpfit.data.view import View
from dpfit.losses.base import Loss
from dpfit.losses.custom import declared_basis
from dpfit.mechanisms.aggregates.aggregate import Aggregate
from dpfit.mechanisms.aggregates.clipped_mean import ClippedMean
from dpfit.mechanisms.aggregates.contribution import Gradient
from dpfit.privacy import Assumption, Basis, Budget
from dpfit.privacy.event import Event
from dpfit.solvers.descents.optimizer import Optimizer

USER_MEAN = "the mean of each user"
"""What is clipped where users are protected."""


@dataclass(frozen=True)
class Descent(Interactive):
    """A descent on private means of gradients; its answers are the noisy means.

    Parameters
    ----------
    predicted : Risk, optional
        Risk that was predicted when the descent was planned.
    fallback : Descent, optional
        What runs on data with fewer public records than the optimizer needs. It does the same
        event.
    """

    kind = "descent"
    omitted: ClassVar = ("predicted", "fallback")
    self_driven: ClassVar[bool] = True
    problem: Minimize
    aggregate: Aggregate
    optimizer: Optimizer
    predicted: Risk | None = None
    fallback: Descent | None = None

    def __post_init__(self) -> None:
        if self.aggregate.n != self.problem.n:
            raise ValueError(f"aggregate must be for n = {self.problem.n}, got {self.aggregate.n}")
        if self.fallback is not None and self.fallback.event != self.event:
            raise ValueError("fallback must do the same event")
        self.optimizer.check(self.problem, self.aggregate)
        for bound in self.optimizer.bounds(self.problem):
            self.aggregate.check_scale(self.asked(bound))

    def asked(self, clip_norm: float) -> Gradient:
        """Return what records contribute at the public start."""
        return Gradient(self.problem, self.problem.project(self.problem.origin), clip_norm)

    @property
    def clipped_mean(self) -> ClippedMean:
        """The aggregate, for rules that predict its noise; ValueError if it is of another kind."""
        if not isinstance(self.aggregate, ClippedMean):
            raise ValueError(f"the noise of {self.aggregate.kind} is not that of a clipped mean")
        return self.aggregate

    @property
    def event(self) -> Event:
        return self.aggregate.event

    @property
    def rounds(self) -> int:
        return self.aggregate.rounds

    @property
    def work(self) -> Work:
        return self.aggregate.work

    @property
    def risk(self) -> Risk | None:
        return self.predicted

    @property
    def resumable(self) -> bool:  # type: ignore[override]
        """Whether the state can be stored."""
        return self.optimizer.resumable

    @property
    def observes(self) -> bool:  # type: ignore[override]
        """Whether the records of a round arrive with it."""
        return self.aggregate.observes

    @property
    def batched(self) -> bool:
        """Whether runs can be vectorized: stacked points need one pass over the same records."""
        return self.optimizer.stacks and self.aggregate.stacks and self.aggregate.sampling.sees_all

    def check(self, data: View) -> None:
        self.aggregate.check(data)
        if self.fallback is None and not self._has_public(data):
            raise self._too_few_public()

    def setting(self, public: Dataset) -> Any:
        """Return the optimizer's setting from public records, with predicted risk; it is free."""
        return self.optimizer.setting(self.problem, self.aggregate, public)

    def _has_public(self, data: View) -> bool:
        needed = self.optimizer.needs_public(self.problem)
        return not needed or (data.public is not None and len(data.public) >= needed)

    def _too_few_public(self) -> ValueError:
        least = self.optimizer.needs_public(self.problem)
        return ValueError(
            f"{self.optimizer.kind} needs at least {least} public records with this loss; pass "
            "public records with the "
            "data, or pass clip_norm"
        )

    def init(self, data: View, run: Run) -> State:
        if not self._has_public(data):
            if self.fallback is None:
                raise self._too_few_public()
            return self.fallback.init(data, run) | {"fallback": True}
        state = self.optimizer.init(self.problem, self.aggregate, data.public)
        for name, value in self.optimizer.diagnostics(state).items():
            run.note(name, value)
        return {"aggregate": self.aggregate.init(data, run), "optimizer": state}

    def _running(self, state: State) -> Descent:
        return self.fallback if self.fallback is not None and "fallback" in state else self

    def step(self, state: State, given: Any, data: View, run: Run) -> tuple[State, Any]:
        """Ask for one noisy mean, and move by it."""
        running = self._running(state)
        problem, optimizer = running.problem, running.optimizer
        contribution = optimizer.ask(problem, state["optimizer"])
        aggregate, answer = running.aggregate.step(state["aggregate"], contribution, data, run)
        told = (
            state["optimizer"]
            if isinstance(answer, Halted)
            else optimizer.tell(problem, state["optimizer"], answer)
        )
        return state | {"aggregate": aggregate, "optimizer": told}, answer

    def finish(self, state: State) -> Any:
        running = self._running(state)
        return running.optimizer.result(running.problem, state["optimizer"])

    def adversarial(self, data: Any, neighbour: Any) -> tuple[Any, ...]:
        """Return no queries: a descent drives itself."""
        return ()

    def run_many(self, data: View, run: Run, count: int) -> Sequence[Any]:
        """Draw independent outputs like `run`, with one pass and one draw a step for all."""
        if not self.batched:
            return [self.run(data, run) for _ in range(count)]
        state = self.init(data, run)
        state["optimizer"] = self._running(state).optimizer.stack(state["optimizer"], count)
        for index in range(self.rounds):
            state, _ = self.step(state, None, data, run)
            run.progress((index + 1) / self.rounds)
        return list(np.asarray(self.finish(state)))


def trajectory_step(descent: Descent, budget: Budget, *assumptions: Assumption) -> Step:
    """Return the plan of a descent with its basis, which further assumptions join."""
    basis = trajectory_basis(descent.problem.loss, budget)
    return Step(descent, replace(basis, assumptions=(*basis.assumptions, *assumptions)))


def trajectory_basis(loss: Loss, budget: Budget) -> Basis:
    """Return why all iterates together are private."""
    clipped = "the gradient of each record" if budget.unit == "record" else USER_MEAN
    assumptions = [Assumption(f"{clipped} is clipped", "enforced")]
    if budget.relation == "add_remove":
        assumptions.append(DECLARED_N)
    theorem = "adaptive Gaussian steps [LD, Lemma C.1]"
    return declared_basis(
        Basis(theorem, budget.relation, budget.unit, tuple(assumptions), "exact"), loss
    )
