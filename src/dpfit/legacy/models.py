"""Plans of models and scores that version 0.1.0 wrote: chains, choices, scaled records, users and scores.

A plan that is read here has the event, the basis and the predicted risk with which it was written, so that model files,
ledgers and reports of that version stay readable. A chain is not run again: its stages were bound by code that is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from dpfit.core import (
    Binding,
    Chosen,
    Composition,
    Considered,
    LeftOut,
    Mechanism,
    Plan,
    Risk,
    Run,
    Stage,
    TransformedPlan,
    Work,
)
from dpfit.data.view import View
from dpfit.mechanisms.private_bounds import ColumnRanges
from dpfit.models.request import FIT, RANGES
from dpfit.models.scaling import Scaling
from dpfit.models.users import UserCap
from dpfit.privacy.event import Event
from dpfit.privacy.spec import from_json, reads


def _refuse() -> NoReturn:
    raise ValueError("this plan was written by version 0.1.0 and cannot run again; plan it anew")


@dataclass(frozen=True)
class Unbound(Binding):
    """A stage of an old chain: the rule that bound it is not in the file, so it does not run."""

    kind = "unbound"

    def __call__(self, plan: Plan, released: Mapping[str, Any]) -> Plan:
        _refuse()


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

    def check(self, data: View) -> None:
        """Nothing: the mechanism sees other data than these."""

    def reach(self, level: float) -> tuple[float, bool]:
        return self.mechanism.reach(level)


@dataclass(frozen=True)
class Scaled(_Wrapped):
    """A mechanism on scaled records; ranges that are ``found`` by another stage are not in the file."""

    kind = "scaled"
    scaling: Scaling
    found: ColumnRanges | None = None

    def run(self, data: View, run: Run) -> Any:
        return self.mechanism.run(data.map(self.scaling), run) if self.found is None else _refuse()


@dataclass(frozen=True)
class MeanScore(_Wrapped):
    """A noisy mean of the scores of records."""

    kind = "mean_score"
    metric: str
    top: float

    def run(self, data: View, run: Run) -> Any:
        _refuse()


@reads("chain")
def read_chain(value: dict[str, Any]) -> Composition:
    """Return the stages of a chain, which were one after the other on the same data."""
    plans = [from_json(stage, Plan) for stage in value["stages"]]
    names = [str(number) for number in range(1, len(plans) + 1)]
    if plans[0].mechanisms[0].kind == "private_bounds":
        names[0], names[-1] = RANGES, FIT
    stages = zip(names, plans, strict=True)
    return Composition(tuple(Stage(name, plan, Unbound() if name != names[0] else None) for name, plan in stages))


@reads("chosen")
def read_chosen(value: dict[str, Any]) -> Plan:
    """Return the chosen plan, with the candidates as notes and the risk of the best one."""
    considered = [from_json(one, Considered) for one in value["considered"]]
    best, *others = considered
    reason = (
        f"{best.name}: the least predicted risk, {best.risk / others[0].risk:.2g} of that of {others[0].name}"
        if others
        else f"{best.name}: the only one that can do this"
    )
    plan = from_json(value["plan"], Plan).with_notes(Chosen(reason), *considered, *map(LeftOut, value["left_out"]))
    return replace(plan, algorithm=best.name, predicted=Risk(best.risk, "excess empirical risk"))


@reads("per_user")
def read_per_user(value: dict[str, Any]) -> TransformedPlan:
    """Return a plan on capped users."""
    return TransformedPlan.of(UserCap(value["max_rows"]), from_json(value["plan"], Plan))
