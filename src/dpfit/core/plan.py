"""Plans, and the simplest of their four shapes: `Step`.

A plan is frozen and public. Its event says which mechanisms run, at which noise multipliers, on
which part of the data and at most how often; the guarantee follows before data is seen. Geometry
may be bound late, from released values only. The other shapes: `dpfit.core.composition`,
`dpfit.core.transformed_plan`, `dpfit.core.selection`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self, Unpack

from dpfit.core.check import check_facts
from dpfit.core.explain import ROUNDING, in_words, method
from dpfit.core.mechanism import Batched, Interactive, Mechanism, Risk, Run, Work
from dpfit.core.missing import with_loss
from dpfit.core.notes import Considered, Note, Row
from dpfit.core.problem import DataFacts, Problem
from dpfit.core.runner import Interaction, Release, RunOptions, open_plan, run_plan
from dpfit.data.view import View
from dpfit.losses.base import Loss
from dpfit.privacy import Basis, Guarantee
from dpfit.privacy.event import Event
from dpfit.privacy.spec import Json, Spec, digest, from_json, named_values

if TYPE_CHECKING:
    from dpfit.core.transformed_plan import Transformation

MAX_SIZE = 2**26
"""The largest number of steps, columns, queries or cells that a stored plan may name."""
_MAX_BITS = 1000  # any such number is a finite double
_SIZES = frozenset(
    {
        "steps",
        "n_features",
        "features",
        "queries",
        "dimension",
        "d",
        "columns",
        "bins",
        "candidates",
        "cells",
    }
)


@dataclass(frozen=True)
class Plan(Spec, ABC):
    """A frozen, printable, comparable, serializable procedure with its guarantee.

    ``problem`` and ``algorithm`` say what was asked and who planned it; the runner checks data
    against the problem. ``predicted`` is the risk that was predicted when the plan was chosen,
    where that differs from the mechanism's own.
    """

    omitted: ClassVar[tuple[str, ...]] = ("problem", "algorithm", "notes", "predicted")
    problem: Problem | None = field(default=None, kw_only=True)
    algorithm: str = field(default="", kw_only=True)
    notes: tuple[Note, ...] = field(default=(), kw_only=True)
    predicted: Risk | None = field(default=None, kw_only=True)

    @staticmethod
    def require(value: object) -> Plan:
        """Return the plan; ValueError if the value is none."""
        if not isinstance(value, Plan):
            raise ValueError(f"plan must be a Plan, got {type(value).__name__}; pass release.plan")
        return value

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
    def execute(self, data: View, run: Run) -> object:
        """Draw the output; called by the runner and by other plans only."""

    @abstractmethod
    def map_steps(self, change: Callable[[Mechanism], Mechanism]) -> Plan:
        """Return the plan with every mechanism changed."""

    def map_transformation(self, change: Callable[[Transformation], Transformation]) -> Plan:
        """Return the plan with its outer transformation changed; ValueError if it has none."""
        raise ValueError(f"a {self.kind} plan has no transformation of its data")

    @property
    def transformations(self) -> tuple[Transformation, ...]:
        """The transformations of the data in this plan, the outer ones first."""
        return tuple(one for part in self.parts for one in part.transformations)

    def last_only(self) -> Plan:
        """Return the plan with the output of its last stage as its only value."""
        return self

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
        """Number of units and width of rows that the data must have; for streams, each batch."""
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
        """Reject data that the plan was not made for, before any charge, by public facts only."""
        check_facts(data, self.data_facts, self.basis)
        for mechanism in self.readers:
            mechanism.check(data)

    def arrived(self, batch: View, run: Run) -> View:
        """Return what the mechanism sees of a batch, checked by public facts."""
        self.check(batch)
        return batch

    def shown(self, value: object) -> object:
        """Return the value of an interaction in the caller's terms."""
        return value

    def output(self, value: object) -> object:
        """Return the part of the value that solves the problem: the output of the last stage."""
        return value

    def stage_values(self, value: object) -> dict[str, object]:
        """Return what each stage released, by name; stages of stages have dotted names."""
        return {}

    @property
    def batched(self) -> bool:
        """Whether many outputs can be drawn for less than as many single ones."""
        return False

    def execute_many(self, data: View, run: Run, count: int) -> Sequence[object]:
        """Draw independent outputs, each distributed as `execute`; for audits only, no release."""
        return [self.execute(data, run) for _ in range(count)]

    def run(
        self, data: object = None, queries: Iterable[object] = (), **options: Unpack[RunOptions]
    ) -> Release:
        """Check the data, charge, execute: see `run_plan` for the options."""
        return run_plan(self, data, queries, **options)

    def open(
        self, data: object = None, *, store: Path | str | None = None, **options: Unpack[RunOptions]
    ) -> Interaction:
        """Open an interaction on the data, charged in full: see `open_plan` for the options."""
        return open_plan(self, data, store=store, **options)

    def with_loss(self, loss: Loss) -> Self:
        """Restore the caller's loss in a plan read from a file; the fingerprint must agree."""
        return with_loss(self, loss)

    def with_notes(self, *notes: Note) -> Self:
        """Return the plan with more notes; an assumption of a note joins the basis."""
        return replace(self, notes=(*self.notes, *notes))

    def inner(self) -> Self:
        """Return the plan as a part of another, which has problem, algorithm, notes and risk."""
        if (
            self.problem is None
            and not self.algorithm
            and not self.notes
            and self.predicted is None
        ):
            return self
        return replace(self, problem=None, algorithm="", notes=(), predicted=None)

    def rows(self, delta: float = 1e-6) -> list[Row]:
        """Return method, guarantee at ``delta``, event and basis; then those of the parts."""
        basis, guarantee = self.basis, replace(self.guarantee, shown_at=delta)
        name = self.algorithm or next((one.name for one in self.considered), "")
        rows = [Row("method", method(name))] if name else []
        rows += [
            Row("promise", str(guarantee)),
            Row("runs", in_words(self.event)),
            Row("rests on", basis.theorem),
        ]
        rows += [Row(a.status, a.text) for a in basis.assumptions]
        rows += [Row("rounding", ROUNDING[basis.arithmetic]), Row("work", str(self.work))]
        if self.work.most_passes:
            most = f"{float(f'{self.work.most_passes:.3g}'):,.10g}"
            rows.append(Row("at most", f"{most} passes, whatever the data"))
        if self.risk is not None:
            rows.append(Row("predicted", f"{self.risk.meaning} {self.risk.expected:.4g}"))
            if self.risk.vacuous:
                rows.append(Row("caution", "the bound is no better than the public start"))
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
        # A plan has one predicted risk: one that was predicted for the whole replaces those of its
        # mechanisms.
        hidden = () if self.predicted is None else ("predicted", "caution")
        shown = (
            [row for row in part.rows(delta) if row.label not in hidden] for part in self.parts
        )
        kinds = list(dict.fromkeys(map(tuple, shown)))
        return [
            row
            for number, rows in enumerate(kinds, 1)
            for row in (Row("part", f"{number} of {len(kinds)}"), *rows)
        ]

    def _rows_of_notes(self) -> list[Row]:
        return [note.row for note in self.notes if note.row is not None]


def plan_from_json(value: Json) -> Plan:
    """Return the plan that `Plan.to_json` wrote, now or in an earlier version of dpfit.

    The plan keeps the fingerprint of ``value``: rows of a ledger hold the JSON of the version that
    wrote them. A size above `MAX_SIZE` is refused before anything is allocated.
    """
    for name, part in named_values(value):
        _check_size(name, part)
    plan = from_json(value, Plan)
    object.__setattr__(plan, "_read", (digest(value),))
    return plan


def _check_size(name: str, value: Json) -> None:
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise ValueError(f"{name} must be a number of at most {_MAX_BITS} bits in a stored plan")
    if name in _SIZES and isinstance(value, int | float) and not value <= MAX_SIZE:
        raise ValueError(f"{name} must be at most {MAX_SIZE} in a stored plan, got {value:.4g}")


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

    def execute(self, data: View, run: Run) -> object:
        return self.mechanism.run(data, run.within(self.event, self.why.relation))

    @property
    def batched(self) -> bool:
        return self.mechanism.batched

    def execute_many(self, data: View, run: Run, count: int) -> Sequence[object]:
        if self.batched and isinstance(self.mechanism, Batched):
            return self.mechanism.run_many(data, run, count)
        return super().execute_many(data, run, count)
