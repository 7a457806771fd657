"""Plans on transformed data: scaled rows, chosen columns, capped users, groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dpfit.core.mechanism import Interactive, Mechanism, Risk, Run, Work
from dpfit.core.notes import Row
from dpfit.core.plan import Plan
from dpfit.core.problem import DataFacts
from dpfit.data.view import View
from dpfit.privacy import Basis
from dpfit.privacy.event import Event
from dpfit.privacy.spec import Spec


@dataclass(frozen=True)
class Transformation(Spec, ABC):
    """What the plan behind it sees of the data, and what its value means to the caller.

    A transformation maps each unit by itself, so that neighbours stay neighbours, or says in
    `event` what a unit of the data becomes.
    """

    draws: ClassVar[bool] = False
    """Whether `transform` draws: then every run of an audit transforms afresh."""
    keeps_records: ClassVar[bool] = True
    """Whether records stay records, so that mechanisms behind it check the caller's data."""
    rowwise: ClassVar[bool] = False
    """Whether each record is mapped by itself, without draws: so can be batches that arrive."""

    @abstractmethod
    def transform(self, data: View, run: Run) -> View:
        """Return the data that the plan behind it sees."""

    def check_part(self) -> None:
        """Refuse to transform a part of the data, if the transformation needs all of them."""

    def inverse(self, value: Any) -> object:
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
            transformation,
            replace(plan.inner(), problem=plan.problem),
            algorithm=plan.algorithm,
            notes=plan.notes,
            predicted=plan.predicted,
        )

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
    def interactive(self) -> Interactive | None:
        """The mechanism behind it, if it reads records that arrive and each is mapped by itself."""
        inner = self.plan.interactive
        reads = inner is not None and inner.observes and self.transformation.rowwise
        return inner if reads else None

    def arrived(self, batch: View, run: Run) -> View:
        seen = self.transformation.transform(super().arrived(batch, run), run)
        return self.plan.arrived(seen, run)

    def shown(self, value: object) -> object:
        return self.transformation.inverse(self.plan.shown(value))

    @property
    def parts(self) -> tuple[Plan, ...]:
        return (self.plan,)

    @property
    def data_facts(self) -> DataFacts:
        facts = super().data_facts
        return (
            self.transformation.data_facts(self.plan.data_facts) if self.problem is None else facts
        )

    @property
    def transformations(self) -> tuple[Transformation, ...]:
        return (self.transformation, *self.plan.transformations)

    def last_only(self) -> TransformedPlan:
        return replace(self, plan=self.plan.last_only())

    def output(self, value: object) -> object:
        return self.plan.output(value)

    def stage_values(self, value: object) -> dict[str, object]:
        return self.plan.stage_values(value)

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        return self.plan.mechanisms

    @property
    def readers(self) -> tuple[Mechanism, ...]:
        return self.plan.readers if self.transformation.keeps_records else ()

    def map_steps(self, change: Callable[[Mechanism], Mechanism]) -> TransformedPlan:
        return replace(self, plan=self.plan.map_steps(change))

    def map_transformation(
        self, change: Callable[[Transformation], Transformation]
    ) -> TransformedPlan:
        return replace(self, transformation=change(self.transformation))

    def execute(self, data: View, run: Run) -> object:
        return self.transformation.inverse(
            self.plan.execute(self.transformation.transform(data, run), run)
        )

    @property
    def batched(self) -> bool:
        return self.plan.batched and not self.transformation.draws

    def execute_many(self, data: View, run: Run, count: int) -> Sequence[object]:
        if self.transformation.draws:
            return super().execute_many(data, run, count)
        seen = self.transformation.transform(data, run)
        return [
            self.transformation.inverse(value) for value in self.plan.execute_many(seen, run, count)
        ]

    def rows(self, delta: float = 1e-6) -> list[Row]:
        if self.event != self.plan.event or self.own_basis != self.plan.basis:
            return super().rows(delta)
        return replace(self.plan, predicted=self.risk, notes=(*self.plan.notes, *self.notes)).rows(
            delta
        )
