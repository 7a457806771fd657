"""Bindings: public rules that set the geometry of a stage from what earlier stages released."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfit.privacy.check import one_of
from dpfit.privacy.spec import Spec

if TYPE_CHECKING:
    from dpfit.core.mechanism import Mechanism
    from dpfit.core.plan import Plan


class BindingChangedTheEvent(ValueError):
    """A bound plan does something else than was planned and charged."""


@dataclass(frozen=True)
class Binding(Spec, ABC):
    """A rule on the edge between two stages: it sees released values only, and may not change the event."""

    @abstractmethod
    def __call__(self, plan: Plan, released: Mapping[str, Any]) -> Plan:
        """Return the plan with its geometry set; ``released`` maps names of earlier stages to their outputs."""

    def stand_in(self, plan: Plan) -> Mapping[str, Any] | None:
        """Return public values as they could be released, on which `check` tries the rule; None to skip."""
        return None

    def check(self, plan: Plan) -> None:
        """Try the rule when the plan is made, so that a bad one fails before anything is charged."""
        values = self.stand_in(plan)
        if values is not None:
            self.bound(plan, values)

    def bound(self, plan: Plan, released: Mapping[str, Any]) -> Plan:
        """Return the bound plan, whose event is that of the plan."""
        bound = self(plan, released)
        if bound.event != plan.event:
            raise BindingChangedTheEvent(f"{self.kind} changed the event; only geometry may be bound")
        return bound


@dataclass(frozen=True)
class StartAt(Binding):
    """Set ``start``, and ``centre`` of the ridge if it is named, to what a stage released."""

    kind = "start_at"
    stage: str
    sets: tuple[str, ...] = ("start",)

    def __post_init__(self) -> None:
        for name in self.sets:
            one_of("sets", name, ("start", "centre"))

    def __call__(self, plan: Plan, released: Mapping[str, Any]) -> Plan:
        point = tuple(np.asarray(released[self.stage], dtype=np.float64).ravel().tolist())

        def move(mechanism: Mechanism) -> Mechanism:
            problem = replace(mechanism.problem, **dict.fromkeys(self.sets, point))  # type: ignore[attr-defined]
            return replace(mechanism, problem=problem)  # type: ignore[call-arg]

        return plan.map_steps(move)

    def stand_in(self, plan: Plan) -> Mapping[str, Any] | None:
        return None if plan.problem is None else {self.stage: plan.problem.origin}  # type: ignore[attr-defined]
