"""Plans and their four shapes: `Step`, `Composition`, `TransformedPlan` and `Selection`.

A plan is frozen and public. Its event says which mechanisms run, at which noise multipliers, on which part of the data
and at most how often; the guarantee follows before data is seen. Geometry may be bound late, from released values only.
"""

from __future__ import annotations

import math
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar, Self

from dpfit.core.binding import Binding
from dpfit.core.check import check_facts
from dpfit.core.explain import in_words
from dpfit.core.mechanism import Interactive, Mechanism, Risk, Run, Work
from dpfit.core.missing import with_loss
from dpfit.core.notes import Considered, Note, Row
from dpfit.core.problem import DataFacts, Problem
from dpfit.core.runner import Interaction, Release, open_plan, run_plan
from dpfit.data.view import View
from dpfit.losses.base import Loss
from dpfit.privacy import Basis, Guarantee
from dpfit.privacy import event as events
from dpfit.privacy.event import Event
from dpfit.privacy.guarantee import parallel_basis
from dpfit.privacy.spec import Spec, digest, from_json


@dataclass(frozen=True)
class Plan(Spec, ABC):
    """A frozen, printable, comparable, serializable procedure with its guarantee.

    ``problem`` and ``algorithm`` say what was asked and who planned it; the runner checks data against the problem.
    ``predicted`` is the risk that was predicted when the plan was chosen, where that differs from the mechanism's own.
    """

    omitted: ClassVar[tuple[str, ...]] = ("problem", "algorithm", "notes", "predicted")
    problem: Problem | None = field(default=None, kw_only=True)
    algorithm: str = field(default="", kw_only=True)
    notes: tuple[Note, ...] = field(default=(), kw_only=True)
    predicted: Risk | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def event(self) -> Event:
        """What is done, whatever the data are."""

    @property
    @abstractmethod
    def own_basis(self) -> Basis:
        """Why the guarantee holds, notes apart."""

    @property
    @abstractmethod
    def work(self) -> Work:
        """Predicted work."""

    @abstractmethod
    def execute(self, data: View, run: Run) -> Any:
        """Draw the output; called by the runner and by other plans only."""

    @abstractmethod
    def map_steps(self, change: Callable[[Mechanism], Mechanism]) -> Plan:
        """Return the plan with every mechanism changed."""

    @property
    def basis(self) -> Basis:
        """Why the guarantee holds: theorem, relation, unit, assumptions, arithmetic."""
        declared = tuple(assumption for note in self.notes for assumption in note.assumptions)
        basis = self.own_basis
        return replace(basis, assumptions=(*basis.assumptions, *declared)) if declared else basis

    @property
    def guarantee(self) -> Guarantee:
        """What is guaranteed."""
        return Guarantee(self.event, self.basis)

    @property
    def risk(self) -> Risk | None:
        """Predicted error, the one number that every screen shows."""
        return self.own_risk if self.predicted is None else self.predicted

    @property
    def own_risk(self) -> Risk | None:
        """Predicted error of the mechanism that gives the value."""
        return None

    @property
    def considered(self) -> tuple[Considered, ...]:
        """The algorithms that were considered, best first."""
        return tuple(note for note in self.notes if isinstance(note, Considered))

    @property
    def final(self) -> Mechanism:
        """The mechanism whose output is the value."""
        raise ValueError(f"a {self.kind} plan has no final mechanism")

    @property
    def interactive(self) -> Interactive | None:
        """The mechanism that answers queries, if the plan can be opened."""
        return None

    @property
    def observes(self) -> bool:
        """Whether the plan reads records that arrive; its data are then a sequence of batches."""
        return self.interactive is not None and self.interactive.observes

    @property
    def data_facts(self) -> DataFacts:
        """The number of units and the width of rows that data must have; of a stream, each batch."""
        facts = DataFacts() if self.problem is None else self.problem.data_facts
        return DataFacts(None, facts.width) if self.observes else facts

    @property
    @abstractmethod
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """All mechanisms, in order."""

    @property
    def readers(self) -> tuple[Mechanism, ...]:
        """The mechanisms that read data of the kind that the plan gets."""
        return self.mechanisms

    def check(self, data: View) -> None:
        """Refuse data that the plan was not made for, before anything is charged; reads public facts only."""
        check_facts(data, self.data_facts, self.basis)
        for mechanism in self.readers:
            mechanism.check(data)

    def output(self, value: Any) -> Any:
        """Return the part of the value that solves the problem: the output of the last stage."""
        return value

    def stage_values(self, value: Any) -> dict[str, Any]:
        """Return what each stage released, by name; stages of stages have dotted names."""
        return {}

    @property
    def batched(self) -> bool:
        """Whether many outputs can be drawn for less than as many single ones."""
        return False

    def execute_many(self, data: View, run: Run, count: int) -> Sequence[Any]:
        """Draw independent outputs, each distributed as `execute`: for audits and simulations, never for a release."""
        return [self.execute(data, run) for _ in range(count)]

    def run(self, data: Any = None, queries: Iterable[Any] = (), **options: Any) -> Release:
        """Check the data, charge, execute: see `run_plan` for the options."""
        return run_plan(self, data, queries, **options)

    def open(self, data: Any = None, *, store: Path | str | None = None, **options: Any) -> Interaction:
        """Open an interaction on the data, charged in full: see `open_plan` for the options."""
        return open_plan(self, data, store=store, **options)

    def with_loss(self, loss: Loss) -> Self:
        """Return the plan, read from a file, with the caller's loss put back; its fingerprint must agree."""
        return with_loss(self, loss)

    def with_notes(self, *notes: Note) -> Self:
        """Return the plan with more notes; an assumption of a note joins the basis."""
        return replace(self, notes=(*self.notes, *notes))

    def inner(self) -> Self:
        """Return the plan as a part of another one, which takes over problem, algorithm, notes and risk."""
        if self.problem is None and not self.algorithm and not self.notes and self.predicted is None:
            return self
        return replace(self, problem=None, algorithm="", notes=(), predicted=None)

    def rows(self, delta: float = 1e-6) -> list[Row]:
        """Return what runs, what is guaranteed at ``delta`` and on what basis; then the same for each kind of part."""
        basis, guarantee = self.basis, replace(self.guarantee, shown_at=delta)
        rows = [Row("does", in_words(self.event)), Row("promises", str(guarantee)), Row("rests on", basis.theorem)]
        rows += [Row(a.status, a.text) for a in basis.assumptions]
        rows += [Row("arithmetic", basis.arithmetic), Row("costs", str(self.work))]
        if self.risk is not None:
            rows.append(Row("expect", f"{self.risk.meaning} about {self.risk.expected:.4g}"))
            if self.risk.vacuous:
                rows.append(Row("vacuous", "the bound is no better than the public start"))
        return [*rows, *self._rows_of_parts(delta), *self._rows_of_notes()]

    def explain(self, delta: float = 1e-6) -> str:
        """Return the rows as text."""
        return "\n".join(map(str, self.rows(delta)))

    @property
    def parts(self) -> tuple[Plan, ...]:
        """The plans that this one is made of."""
        return ()

    @property
    def fingerprints(self) -> frozenset[str]:
        """Fingerprints of the plan: as `to_json` writes it, and as `plan_from_json` read it."""
        return frozenset({self.fingerprint, *getattr(self, "_read", ())})

    def _rows_of_parts(self, delta: float) -> list[Row]:
        # A plan has one predicted risk: one that was predicted for the whole replaces those of its mechanisms.
        hidden = () if self.predicted is None else ("expect", "vacuous")
        shown = ([row for row in part.rows(delta) if row.label not in hidden] for part in self.parts)
        kinds = list(dict.fromkeys(map(tuple, shown)))
        return [
            row for number, rows in enumerate(kinds, 1) for row in (Row("part", f"{number} of {len(kinds)}"), *rows)
        ]

    def _rows_of_notes(self) -> list[Row]:
        return [note.row for note in self.notes if note.row is not None]


def plan_from_json(value: Any) -> Plan:
    """Return the plan that `Plan.to_json` wrote, now or in an earlier version of dpfit.

    The plan keeps the fingerprint of ``value``: rows of a ledger hold the JSON of the version that wrote them.
    """
    plan = from_json(value, Plan)
    object.__setattr__(plan, "_read", (digest(value),))
    return plan


@dataclass(frozen=True)
class Step(Plan):
    """One mechanism, and why it is private."""

    kind = "step"
    mechanism: Mechanism
    why: Basis

    @property
    def event(self) -> Event:
        return self.mechanism.event

    @property
    def own_basis(self) -> Basis:
        return self.why

    @property
    def work(self) -> Work:
        return self.mechanism.work

    @property
    def own_risk(self) -> Risk | None:
        return self.mechanism.risk

    @property
    def final(self) -> Mechanism:
        return self.mechanism

    @property
    def interactive(self) -> Interactive | None:
        return self.mechanism if isinstance(self.mechanism, Interactive) else None

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        return (self.mechanism,)

    def map_steps(self, change: Callable[[Mechanism], Mechanism]) -> Step:
        return replace(self, mechanism=change(self.mechanism))

    def execute(self, data: View, run: Run) -> Any:
        return self.mechanism.run(data, run.within(self.event, self.why.relation))

    @property
    def batched(self) -> bool:
        return self.mechanism.batched

    def execute_many(self, data: View, run: Run, count: int) -> Sequence[Any]:
        if self.batched:
            outputs: Sequence[Any] = self.mechanism.run_many(data, run, count)  # type: ignore[attr-defined]
            return outputs
        return super().execute_many(data, run, count)


@dataclass(frozen=True)
class Stage(Spec):
    """A named part of a composition: its plan, how it is bound, and on which part of the data it runs."""

    kind = "stage"
    omitted: ClassVar = ("binding", "part")
    name: str
    plan: Plan
    binding: Binding | None = None
    part: int | None = None


@dataclass(frozen=True)
class Combine(Spec, ABC):
    """A public function of what the stages released; only its value leaves."""

    @abstractmethod
    def __call__(self, outputs: tuple[Any, ...]) -> Any:
        """Return the value of the composition."""


@dataclass(frozen=True)
class Last(Combine):
    """Release the output of the last stage only."""

    kind = "last"

    def __call__(self, outputs: tuple[Any, ...]) -> Any:
        return outputs[-1]


@dataclass(frozen=True)
class Composition(Plan):
    """Named stages, each bound by name to what earlier ones released, on all data or on disjoint parts.

    ``shares`` are the sizes of the parts; a stage with ``part=None`` sees all data. The value is the tuple of all
    outputs, or what ``combine`` makes of them.
    """

    kind = "composition"
    omitted: ClassVar[tuple[str, ...]] = (*Plan.omitted, "shares", "combine")
    stages: tuple[Stage, ...]
    shares: tuple[float, ...] = ()
    combine: Combine | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.stages, tuple) or not all(isinstance(stage, Stage) for stage in self.stages):
            raise ValueError("stages must be a tuple of Stage values")
        if not self.stages:
            raise ValueError("a composition needs at least one stage")
        names = [stage.name for stage in self.stages]
        if len(set(names)) < len(names) or not all(names):
            raise ValueError(f"stages must have names that differ, got {names}")
        used = {stage.part for stage in self.stages} - {None}
        if used != set(range(len(self.shares))):
            raise ValueError("each part of the data needs a share and at least one stage")
        if self.shares and not (min(self.shares) > 0 and abs(sum(self.shares) - 1) < 1e-9):
            raise ValueError(f"shares must be positive and sum to 1, got {self.shares}")
        inner = tuple(s if s.plan.inner() is s.plan else replace(s, plan=s.plan.inner()) for s in self.stages)
        object.__setattr__(self, "stages", inner)
        _ = self.own_basis  # mixed relations and units are refused here
        for stage in self.stages:
            if stage.binding is not None:
                stage.binding.check(stage.plan)

    def _of_part(self, part: int | None) -> tuple[Stage, ...]:
        return tuple(stage for stage in self.stages if stage.part == part)

    @property
    def event(self) -> Event:
        whole = [stage.plan.event for stage in self._of_part(None)]
        if self.shares:
            each = (composed([s.plan.event for s in self._of_part(part)]) for part in range(len(self.shares)))
            whole.append(events.Parallel(tuple(each), "index"))
        return composed(whole)

    @property
    def own_basis(self) -> Basis:
        if not self.shares:
            return joined_basis(self.stages)
        disjoint = parallel_basis([joined_basis(self._of_part(part)) for part in range(len(self.shares))], "index")
        return joined_basis(self._of_part(None), disjoint)

    @property
    def work(self) -> Work:
        return sum((self._work_of(stage) for stage in self.stages), Work())

    def _work_of(self, stage: Stage) -> Work:
        work = stage.plan.work
        return work if stage.part is None else replace(work, passes=work.passes * self.shares[stage.part])

    @property
    def own_risk(self) -> Risk | None:
        return self.stages[-1].plan.risk

    @property
    def final(self) -> Mechanism:
        return self.stages[-1].plan.final

    @property
    def parts(self) -> tuple[Plan, ...]:
        return tuple(stage.plan for stage in self.stages)

    @property
    def data_facts(self) -> DataFacts:
        if self.problem is not None:
            return super().data_facts
        known = [stage.plan.data_facts for stage in self._of_part(None)]
        n = next((facts.n for facts in known if facts.n is not None), None)
        return DataFacts(n, next((facts.width for facts in known if facts.width is not None), None))

    def output(self, value: Any) -> Any:
        return self.stages[-1].plan.output(value[-1]) if self.combine is None else value

    def stage_values(self, value: Any) -> dict[str, Any]:
        if self.combine is not None:
            return {}
        values: dict[str, Any] = {}
        for stage, part in zip(self.stages, value, strict=True):
            values[stage.name] = part
            values |= {f"{stage.name}.{name}": one for name, one in stage.plan.stage_values(part).items()}
        return values

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        return tuple(mechanism for stage in self.stages for mechanism in stage.plan.mechanisms)

    @property
    def readers(self) -> tuple[Mechanism, ...]:
        return tuple(mechanism for stage in self.stages for mechanism in stage.plan.readers)

    def map_steps(self, change: Callable[[Mechanism], Mechanism]) -> Composition:
        return replace(self, stages=tuple(replace(s, plan=s.plan.map_steps(change)) for s in self.stages))

    def execute(self, data: View, run: Run) -> Any:
        views = data.parts(self.shares) if self.shares else ()
        outputs: list[Any] = []
        released: dict[str, Any] = {}
        done = 0.0
        for stage, share in zip(self.stages, self._shares_of_work(), strict=True):
            view = data if stage.part is None else views[stage.part]
            plan = self._bound(stage, released)
            outputs.append(plan.execute(view, run.part(done, share)))
            released[stage.name] = plan.output(outputs[-1])
            done += share
        return self._value(tuple(outputs))

    @property
    def batched(self) -> bool:
        return not self.shares and any(stage.plan.batched for stage in self.stages)

    def execute_many(self, data: View, run: Run, count: int) -> Sequence[Any]:
        if self.shares:
            return super().execute_many(data, run, count)
        outputs: list[tuple[Any, ...]] = [()] * count
        released: list[dict[str, Any]] = [{} for _ in range(count)]
        for stage in self.stages:
            # Runs that have released the same so far are runs of one bound plan from here on.
            alike: dict[bytes, list[int]] = {}
            for index, values in enumerate(outputs):
                alike.setdefault(pickle.dumps(values) if stage.binding is not None else b"", []).append(index)
            for members in alike.values():
                plan = self._bound(stage, released[members[0]])
                drawn = plan.execute_many(data, run, len(members))
                for index, output in zip(members, drawn, strict=True):
                    outputs[index] += (output,)
                    released[index][stage.name] = plan.output(output)
        return [self._value(each) for each in outputs]

    def _bound(self, stage: Stage, released: Mapping[str, Any]) -> Plan:
        return stage.plan if stage.binding is None else stage.binding.bound(stage.plan, released)

    def _value(self, outputs: tuple[Any, ...]) -> Any:
        return outputs if self.combine is None else self.combine(outputs)

    def _shares_of_work(self) -> list[float]:
        """Each stage's part of the planned passes, for progress; equal parts where some plan does not say."""
        passes = [self._work_of(stage).passes for stage in self.stages]
        if not all(0 < count < math.inf for count in passes):
            return [1 / len(passes)] * len(passes)
        return [count / sum(passes) for count in passes]


def composed(parts: Sequence[Event]) -> Event:
    """Return the events one after the other in one form: no composition in a composition, and none of one."""
    flat = [each for part in parts for each in (part.events if isinstance(part, events.Composed) else (part,))]
    return flat[0] if len(flat) == 1 else events.Composed(tuple(flat))


def joined_basis(stages: Sequence[Stage], *more: Basis) -> Basis:
    """Return the basis of stages on the same data; refuses mixed relations and units."""
    bases = [*(stage.plan.basis for stage in stages), *more]
    return reduce(lambda one, other: one.joined(other, "adaptive composition"), bases[1:], bases[0])


@dataclass(frozen=True)
class Transformation(Spec, ABC):
    """What the plan behind it sees of the data, and what its value means to the caller.

    A transformation maps each unit by itself, so that neighbours stay neighbours, or says in `event` what a unit of
    the data becomes.
    """

    draws: ClassVar[bool] = False
    """Whether `transform` draws: then every run of an audit transforms afresh."""
    keeps_records: ClassVar[bool] = True
    """Whether records stay records, so that mechanisms behind it check the caller's data."""

    @abstractmethod
    def transform(self, data: View, run: Run) -> Any:
        """Return the data that the plan behind it sees."""

    def inverse(self, value: Any) -> Any:
        """Return the value of the plan in the caller's terms."""
        return value

    def event(self, inner: Event) -> Event:
        """Return what is done to the data before the transformation."""
        return inner

    def basis(self, inner: Basis) -> Basis:
        """Return why the guarantee holds for the data before the transformation."""
        return inner

    def data_facts(self, inner: DataFacts) -> DataFacts:
        """Return what data must be like before the transformation."""
        return DataFacts(inner.n, None)


@dataclass(frozen=True)
class TransformedPlan(Plan):
    """A plan on transformed data: scaled rows, chosen columns, capped users, groups."""

    kind = "transformed_plan"
    transformation: Transformation
    plan: Plan

    @staticmethod
    def of(transformation: Transformation, plan: Plan) -> TransformedPlan:
        """Wrap a plan; notes, algorithm and predicted risk move to the outer plan.

        The problem stays: it says what the transformed data must be like.
        """
        return TransformedPlan(
            transformation, replace(plan.inner(), problem=plan.problem), algorithm=plan.algorithm, notes=plan.notes,
            predicted=plan.predicted,
        )  # fmt: skip

    def __post_init__(self) -> None:
        _ = self.own_basis  # a plan that the transformation cannot wrap is refused here

    @property
    def event(self) -> Event:
        return self.transformation.event(self.plan.event)

    @property
    def own_basis(self) -> Basis:
        return self.transformation.basis(self.plan.basis)

    @property
    def work(self) -> Work:
        return self.plan.work

    @property
    def own_risk(self) -> Risk | None:
        return self.plan.risk

    @property
    def final(self) -> Mechanism:
        return self.plan.final

    @property
    def parts(self) -> tuple[Plan, ...]:
        return (self.plan,)

    @property
    def data_facts(self) -> DataFacts:
        facts = super().data_facts
        return self.transformation.data_facts(self.plan.data_facts) if self.problem is None else facts

    def output(self, value: Any) -> Any:
        return self.plan.output(value)

    def stage_values(self, value: Any) -> dict[str, Any]:
        return self.plan.stage_values(value)

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        return self.plan.mechanisms

    @property
    def readers(self) -> tuple[Mechanism, ...]:
        return self.plan.readers if self.transformation.keeps_records else ()

    def map_steps(self, change: Callable[[Mechanism], Mechanism]) -> TransformedPlan:
        return replace(self, plan=self.plan.map_steps(change))

    def execute(self, data: View, run: Run) -> Any:
        return self.transformation.inverse(self.plan.execute(self.transformation.transform(data, run), run))

    @property
    def batched(self) -> bool:
        return self.plan.batched and not self.transformation.draws

    def execute_many(self, data: View, run: Run, count: int) -> Sequence[Any]:
        if self.transformation.draws:
            return super().execute_many(data, run, count)
        seen = self.transformation.transform(data, run)
        return [self.transformation.inverse(value) for value in self.plan.execute_many(seen, run, count)]

    def rows(self, delta: float = 1e-6) -> list[Row]:
        if self.event != self.plan.event or self.own_basis != self.plan.basis:
            return super().rows(delta)
        return replace(self.plan, predicted=self.risk, notes=(*self.plan.notes, *self.notes)).rows(delta)


@dataclass(frozen=True)
class Scored:
    """An output with the score that selection compares."""

    score: float
    value: Any


@dataclass(frozen=True)
class Selection(Plan):
    """The best-scored output of a geometric number of runs of ``plan``, whose outputs are `Scored`; only it leaves.

    A transformation inside ``plan`` that draws does so once for each run; around the selection it draws once.
    Reference: Liu and Talwar (2019), Papernot and Steinke (2022) with eta = 1; mean number of runs 1 / stop.
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
        best: Scored = self.plan.execute(data, quiet)
        while not run.noise.bernoulli(self.stop, 1)[0]:
            other: Scored = self.plan.execute(data, quiet)
            # A score that is not a number never wins; the comparison sees released-quality values only.
            if other.score > best.score or math.isnan(best.score):
                best = other
        return best
