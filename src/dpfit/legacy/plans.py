"""Plans that version 0.1.0 wrote: chains, choices, capped users, scaled records and scores.

A plan that is read here has the event, the basis and the predicted risk with which it was written,
so that model files, ledgers and reports of that version stay readable. Its stages were bound by
code that is gone, so most do not run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NoReturn

from dpfit.core import (
    Chosen,
    Considered,
    LeftOut,
    Mechanism,
    Plan,
    Risk,
    Run,
    Step,
    TransformedPlan,
    Work,
)
from dpfit.data.view import View
from dpfit.mechanisms.additive import ConsideredNoise
from dpfit.mechanisms.private_bounds import ColumnRanges
from dpfit.models.scaling import Scaling
from dpfit.models.users import UserCap
from dpfit.privacy import Basis
from dpfit.privacy.event import Composed, Event
from dpfit.privacy.spec import Json, from_json, reads
from dpfit.privacy.validate import integer


def refuse() -> NoReturn:
    """Refuse to run a plan whose bindings are not in its file."""
    raise ValueError("this plan was written by version 0.1.0 and cannot run again; plan it anew")


@dataclass(frozen=True)
class Chain(Plan):
    """Stages one after the other on the same data; the event keeps its original form."""

    kind = "chain"
    stages: tuple[Plan, ...]

    @property
    def event(self) -> Event:
        return Composed(tuple(stage.event for stage in self.stages))

    @property
    def own_basis(self) -> Basis:
        first, *others = (stage.basis for stage in self.stages)
        return reduce(lambda one, other: one.joined(other, "adaptive composition"), others, first)

    @property
    def work(self) -> Work:
        return sum((stage.work for stage in self.stages), Work())

    @property
    def own_risk(self) -> Risk | None:
        return self.stages[-1].risk

    @property
    def final(self) -> Mechanism:
        return self.stages[-1].final

    @property
    def parts(self) -> tuple[Plan, ...]:
        return self.stages

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        return tuple(mechanism for stage in self.stages for mechanism in stage.mechanisms)

    def map_steps(self, change: Callable[[Mechanism], Mechanism]) -> Chain:
        return replace(self, stages=tuple(stage.map_steps(change) for stage in self.stages))

    def check(self, data: View) -> None:
        refuse()

    def execute(self, data: View, run: Run) -> NoReturn:
        refuse()


@dataclass(frozen=True)
class _Wrapped(Mechanism):
    """A mechanism inside another one that changed its data."""

    mechanism: Mechanism

    @property
    def event(self) -> Event:
        return self.mechanism.event

    @property
    def work(self) -> Work:
        return self.mechanism.work

    @property
    def risk(self) -> Risk | None:
        return self.mechanism.risk

    def reach(self, level: float) -> tuple[float, bool]:
        return self.mechanism.reach(level)


@dataclass(frozen=True)
class Scaled(_Wrapped):
    """A mechanism on scaled records; ranges ``found`` by another stage are not stored."""

    kind = "scaled"
    scaling: Scaling
    found: ColumnRanges | None = None

    def check(self, data: View) -> None:
        if self.found is not None:
            refuse()

    def run(self, data: View, run: Run) -> object:
        return self.mechanism.run(data.map(self.scaling), run)


@dataclass(frozen=True)
class MeanScore(_Wrapped):
    """A noisy mean of the scores of records."""

    kind = "mean_score"
    metric: str
    top: float

    def check(self, data: View) -> None:
        refuse()

    def run(self, data: View, run: Run) -> NoReturn:
        refuse()


@reads("chosen")
def read_chosen(value: dict[str, Any]) -> Plan:
    """Return the chosen plan, with the candidates as notes and the risk of the best one."""
    considered = [from_json(one, Considered) for one in value["considered"]]
    best, *others = considered
    reason = (
        f"{best.name}: the least predicted risk, {best.risk / others[0].risk:.2g} of that of "
        f"{others[0].name}"
        if others
        else f"{best.name}: the only one that can do this"
    )
    plan = from_json(value["plan"], Plan).with_notes(
        Chosen(reason), *considered, *map(LeftOut, value["left_out"])
    )
    return replace(plan, algorithm=best.name, predicted=Risk(best.risk, "excess empirical risk"))


@reads("best_step")
def read_best_step(value: dict[str, Any]) -> Plan:
    """Return a step whose noise was chosen, with the kinds of noise as notes."""
    step = from_json({"kind": "step", "mechanism": value["mechanism"], "why": value["why"]}, Step)
    ranked = {one["label"]: one["error"] for one in value["considered"]}
    return step.with_notes(*ConsideredNoise.notes(ranked, value["minimize"]))


@reads("per_user")
def read_per_user(value: dict[str, Json]) -> TransformedPlan:
    """Return a plan on capped users."""
    return TransformedPlan.of(
        UserCap(integer("max_rows", value["max_rows"])), from_json(value["plan"], Plan)
    )
