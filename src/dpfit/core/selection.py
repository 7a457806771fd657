"""Private selection: the best-scored output of a random number of runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from dpfit.core.mechanism import Mechanism, Run, Work
from dpfit.core.plan import Plan
from dpfit.core.problem import DataFacts
from dpfit.data.view import View
from dpfit.privacy import Basis
from dpfit.privacy import event as events
from dpfit.privacy.event import Event


@dataclass(frozen=True)
class Scored:
    """An output with the score that selection compares."""

    score: float
    value: object


@dataclass(frozen=True)
class Selection(Plan):
    """The best-scored output of geometrically many runs of ``plan``; only that output is released.

    A transformation inside ``plan`` that draws does so once for each run; around the selection it
    draws once. Reference: Liu and Talwar (2019), Papernot and Steinke (2022) with eta = 1; mean
    number of runs 1 / stop.
    """

    kind = "select"
    plan: Plan
    stop: float

    def __post_init__(self) -> None:
        events.Selected(self.plan.event, self.stop)

    @property
    def event(self) -> Event:
        return events.Selected(self.plan.event, self.stop)

    @property
    def own_basis(self) -> Basis:
        return replace(self.plan.basis, theorem=f"{self.plan.basis.theorem}; private selection")

    @property
    def work(self) -> Work:
        return self.plan.work * (1 / self.stop)

    @property
    def parts(self) -> tuple[Plan, ...]:
        return (self.plan,)

    @property
    def data_facts(self) -> DataFacts:
        return self.plan.data_facts if self.problem is None else super().data_facts

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        return self.plan.mechanisms

    def map_steps(self, change: Callable[[Mechanism], Mechanism]) -> Selection:
        return replace(self, plan=self.plan.map_steps(change))

    def execute(self, data: View, run: Run) -> Scored:
        quiet = run.part(0.0, 0.0)
        best = self._scored(data, quiet)
        while not run.noise.bernoulli(self.stop, 1)[0]:
            other = self._scored(data, quiet)
            # A score that is not a number never wins; the comparison sees released-quality values
            # only.
            if other.score > best.score or math.isnan(best.score):
                best = other
        return best

    def _scored(self, data: View, run: Run) -> Scored:
        output = self.plan.execute(data, run)
        if not isinstance(output, Scored):
            raise TypeError(
                f"a selection compares outputs that are Scored, got {type(output).__name__}"
            )
        return output
