"""Bindings: public rules that set the geometry of a stage from what earlier stages released."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import option

if TYPE_CHECKING:
    from dpfit.core.mechanism import Mechanism
    from dpfit.core.plan import Plan


class BindingChangedTheEvent(ValueError):
    """A bound plan does something else than was planned and charged."""


@dataclass(frozen=True)
class Binding(Spec, ABC):
    """A rule between two stages: it sees released values only and may not change the event."""

    @abstractmethod
    def __call__(self, plan: Plan, released: Mapping[str, object]) -> Plan:
        """Return the plan with its geometry set; ``released`` maps earlier stages to outputs."""

    def stand_in(self, plan: Plan) -> Mapping[str, object] | None:
        """Return public values of the form of a release, for a trial in `check`; None skips it."""
        return None

    def check(self, plan: Plan) -> None:
        """Try the rule when the plan is made: a bad rule fails before anything is charged."""
        values = self.stand_in(plan)
        if values is not None:
            self.bound(plan, values)

    def bound(self, plan: Plan, released: Mapping[str, object]) -> Plan:
        """Return the bound plan, whose event is that of the plan."""
        bound = self(plan, released)
        if bound.event != plan.event:
            raise BindingChangedTheEvent(
                f"{self.kind} changed the event; only geometry may be bound"
            )
        return bound


@dataclass(frozen=True)
class StartAt(Binding):
    """Set ``start``, and ``centre`` of the ridge if it is named, to what a stage released."""

    kind = "start_at"
    stage: str
    sets: tuple[str, ...] = ("start",)

    def __post_init__(self) -> None:
        for name in self.sets:
            option("sets", name, ("start", "centre"))

    def __call__(self, plan: Plan, released: Mapping[str, object]) -> Plan:
        point = tuple(np.asarray(released[self.stage], dtype=np.float64).ravel().tolist())

        def move(mechanism: Mechanism) -> Mechanism:
            problem = replace(mechanism.problem, **dict.fromkeys(self.sets, point))  # type: ignore[attr-defined]
            return replace(mechanism, problem=problem)  # type: ignore[call-arg]

        return plan.map_steps(move)

    def stand_in(self, plan: Plan) -> Mapping[str, object] | None:
        return None if plan.problem is None else {self.stage: plan.problem.origin}  # type: ignore[attr-defined]
