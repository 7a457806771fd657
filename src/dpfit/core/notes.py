"""Notes: what a plan says about itself beside its event. They change no output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from dpfit.core.mechanism import Work
from dpfit.privacy import Assumption
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import option


class Row(NamedTuple):
    """One line of `Plan.explain`: what kind of fact it is, and the fact."""

    label: str
    text: str

    def __str__(self) -> str:
        return f"{self.label:10} {self.text}" if self.label else self.text


@dataclass(frozen=True)
class Note(Spec, ABC):
    """A fact about a plan that is written with it.

    ``travels``: whether it is also true of a composition that the plan becomes a part of.
    """

    travels: ClassVar[bool] = False

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What joins the basis of the plan."""
        return ()

    @property
    @abstractmethod
    def row(self) -> Row | None:
        """The line in `explain`; None if the basis shows the note already."""


@dataclass(frozen=True)
class Considered(Note):
    """An algorithm considered for the problem, with predicted risk and work; best first."""

    kind = "candidate"
    former: ClassVar = {"cost": "work"}
    name: str
    risk: float
    work: Work

    @property
    def row(self) -> Row:
        return Row("considered", f"{self.name}: predicted risk {self.risk:.3g}, {self.work}")


@dataclass(frozen=True)
class LeftOut(Note):
    """An algorithm that could not be planned, and why."""

    kind = "left_out"
    reason: str

    @property
    def row(self) -> Row:
        return Row("left out", self.reason)


@dataclass(frozen=True)
class Chosen(Note):
    """Why this plan was chosen."""

    kind = "choice"
    reason: str

    @property
    def row(self) -> Row:
        return Row("chosen", self.reason)


@dataclass(frozen=True)
class Advice(Note):
    """What is predicted to serve the caller better, from public facts."""

    kind = "advice"
    text: str

    @property
    def row(self) -> Row:
        return Row("advice", self.text)


@dataclass(frozen=True)
class Leak(Note):
    """A fact about the records that the guarantee does not cover."""

    kind = "leak"
    travels = True
    text: str

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        return (Assumption(self.text, "declared"),)

    @property
    def row(self) -> None:
        return None


@dataclass(frozen=True)
class DeclaredRanges(Note):
    """The caller declared ranges: no code can tell whether they were read off the records."""

    kind = "declared_ranges"
    travels = True

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        declared = "the declared ranges and categories were not read off these records"
        return (Assumption(declared, "declared"),)

    @property
    def row(self) -> None:
        return None


@dataclass(frozen=True)
class MissingOutcomes(Note):
    """What becomes of records without an outcome: "drop", or "refuse" for types that have them."""

    kind = "missing_outcomes"
    rule: str = "drop"

    def __post_init__(self) -> None:
        option("rule", self.rule, ("drop", "refuse"))

    @property
    def row(self) -> Row:
        added = "a record without an outcome adds nothing; the declared number of records stays"
        refused = "a column of outcomes whose type has empty cells is refused; else " + added
        return Row("missing", refused if self.rule == "refuse" else added)


@dataclass(frozen=True)
class Tuning(Spec, ABC):
    """Tuned numbers: a subclass names them; ``set_by`` is the benchmark that set them.

    Tuned numbers decide about accuracy, never about privacy.
    """

    set_by: str


@dataclass(frozen=True)
class Tuned(Note):
    """The tuned numbers that shaped a plan."""

    kind = "tuned"
    travels = True
    tuning: Tuning

    @property
    def row(self) -> None:
        return None
