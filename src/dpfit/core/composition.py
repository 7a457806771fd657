"""Compositions: named stages on all data or on disjoint parts, bound to earlier releases."""

from __future__ import annotations

import math
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar

from dpfit.core.binding import Binding
from dpfit.core.mechanism import Mechanism, Risk, Run, Work
from dpfit.core.plan import Plan
from dpfit.core.problem import DataFacts
from dpfit.data.view import View
from dpfit.privacy import Basis
from dpfit.privacy import event as events
from dpfit.privacy.event import Event
from dpfit.privacy.guarantee import parallel_basis
from dpfit.privacy.spec import Spec


@dataclass(frozen=True)
class Stage(Spec):
    """A named part of a composition: its plan, its binding, and its part of the data."""

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
    def __call__(self, outputs: tuple[Any, ...]) -> object:
        """Return the value of the composition."""


@dataclass(frozen=True)
class Last(Combine):
    """Release the output of the last stage only."""

    kind = "last"

    def __call__(self, outputs: tuple[object, ...]) -> object:
        return outputs[-1]


@dataclass(frozen=True)
class Composition(Plan):
    """Named stages on all data or on disjoint parts, each bound by name to earlier releases.

    ``shares`` are the sizes of the parts; a stage with ``part=None`` sees all data. The value is
    the tuple of all outputs, or what ``combine`` makes of them. Notes of the stages that travel
    become notes of the composition.
    """

    kind = "composition"
    omitted: ClassVar[tuple[str, ...]] = (*Plan.omitted, "shares", "combine")
    stages: tuple[Stage, ...]
    shares: tuple[float, ...] = ()
    combine: Combine | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.stages, tuple) or not all(
            isinstance(stage, Stage) for stage in self.stages
        ):
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
        carried = [note for s in self.stages for note in s.plan.notes if note.travels]
        if carried:
            object.__setattr__(self, "notes", tuple(dict.fromkeys((*self.notes, *carried))))
        inner = tuple(
            s if s.plan.inner() is s.plan else replace(s, plan=s.plan.inner()) for s in self.stages
        )
        object.__setattr__(self, "stages", inner)
        _ = self.own_basis  # mixed relations and units are refused here
        for stage in self.stages:
            if stage.part is not None:
                for transformation in stage.plan.transformations:
                    transformation.check_part()
            if stage.binding is not None:
                stage.binding.check(stage.plan)

    def _of_part(self, part: int | None) -> tuple[Stage, ...]:
        return tuple(stage for stage in self.stages if stage.part == part)

    @property
    def event(self) -> Event:
        whole = [stage.plan.event for stage in self._of_part(None)]
        if self.shares:
            each = (
                composed([s.plan.event for s in self._of_part(part)])
                for part in range(len(self.shares))
            )
            whole.append(events.Parallel(tuple(each), "index"))
        return composed(whole)

    @property
    def own_basis(self) -> Basis:
        if not self.shares:
            return joined_basis(self.stages)
        disjoint = parallel_basis(
            [joined_basis(self._of_part(part)) for part in range(len(self.shares))], "index"
        )
        return joined_basis(self._of_part(None), disjoint)

    @property
    def work(self) -> Work:
        return sum((self._work_of(stage) for stage in self.stages), Work())

    def _work_of(self, stage: Stage) -> Work:
        work = stage.plan.work
        return (
            work
            if stage.part is None
            else replace(work, passes=work.passes * self.shares[stage.part])
        )

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

    def last_only(self) -> Composition:
        if self.combine is not None:
            return self
        *before, last = self.stages
        last = replace(last, plan=last.plan.last_only())
        return replace(self, stages=(*before, last), combine=Last())

    def output(self, value: Any) -> object:
        return self.stages[-1].plan.output(value[-1]) if self.combine is None else value

    def stage_values(self, value: Any) -> dict[str, object]:
        if self.combine is not None:
            return {}
        values: dict[str, object] = {}
        for stage, part in zip(self.stages, value, strict=True):
            values[stage.name] = part
            values |= {
                f"{stage.name}.{name}": one for name, one in stage.plan.stage_values(part).items()
            }
        return values

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        return tuple(mechanism for stage in self.stages for mechanism in stage.plan.mechanisms)

    @property
    def readers(self) -> tuple[Mechanism, ...]:
        return tuple(mechanism for stage in self.stages for mechanism in stage.plan.readers)

    def map_steps(self, change: Callable[[Mechanism], Mechanism]) -> Composition:
        return replace(
            self, stages=tuple(replace(s, plan=s.plan.map_steps(change)) for s in self.stages)
        )

    def execute(self, data: View, run: Run) -> object:
        views = data.parts(self.shares) if self.shares else ()
        outputs: list[object] = []
        released: dict[str, object] = {}
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

    def execute_many(self, data: View, run: Run, count: int) -> Sequence[object]:
        if self.shares:
            return super().execute_many(data, run, count)
        outputs: list[tuple[object, ...]] = [()] * count
        released: list[dict[str, object]] = [{} for _ in range(count)]
        for stage in self.stages:
            # Runs that have released the same so far are runs of one bound plan from here on.
            alike: dict[bytes, list[int]] = {}
            for index, values in enumerate(outputs):
                alike.setdefault(
                    pickle.dumps(values) if stage.binding is not None else b"", []
                ).append(index)
            for members in alike.values():
                plan = self._bound(stage, released[members[0]])
                drawn = plan.execute_many(data, run, len(members))
                for index, output in zip(members, drawn, strict=True):
                    outputs[index] += (output,)
                    released[index][stage.name] = plan.output(output)
        return [self._value(each) for each in outputs]

    def _bound(self, stage: Stage, released: Mapping[str, object]) -> Plan:
        return stage.plan if stage.binding is None else stage.binding.bound(stage.plan, released)

    def _value(self, outputs: tuple[object, ...]) -> object:
        return outputs if self.combine is None else self.combine(outputs)

    def _shares_of_work(self) -> list[float]:
        """Each stage's fraction of the planned passes, for progress; equal if a plan has none."""
        passes = [self._work_of(stage).passes for stage in self.stages]
        if not all(0 < count < math.inf for count in passes):
            return [1 / len(passes)] * len(passes)
        return [count / sum(passes) for count in passes]


def composed(parts: Sequence[Event]) -> Event:
    """Return the composition of the events, flattened; a single event is returned as it is."""
    flat = [
        each
        for part in parts
        for each in (part.events if isinstance(part, events.Composed) else (part,))
    ]
    return flat[0] if len(flat) == 1 else events.Composed(tuple(flat))


def joined_basis(stages: Sequence[Stage], *more: Basis) -> Basis:
    """Return the basis of stages on the same data; refuses mixed relations and units."""
    bases = [*(stage.plan.basis for stage in stages), *more]
    return reduce(lambda one, other: one.joined(other, "adaptive composition"), bases[1:], bases[0])
