"""Counting queries and noise on their answers: what all counting algorithms share.

A counting query asks how many records have a property. One neighbour change moves some of the answers, each by exactly
one. So everything privacy needs to know of a workload is how many answers can move: ``changed``. The l1 sensitivity is
``changed``, the l2 sensitivity its square root, the l-infinity sensitivity 1; the number of queries never enters.
docs/explanation/queries.md has the proofs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Algorithm, Answer, Example, Mechanism, Plan, Risk, Run, Step
from dpfit.data.arrays import as_rows, check_shape
from dpfit.data.view import View
from dpfit.noise import Source
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.check import count, one_of
from dpfit.privacy.event import Event
from dpfit.privacy.spec import Spec
from dpfit.theory.errors import ErrorLaw, checked_criterion

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

RELATIONS = ("replace", "add_remove")


@dataclass(frozen=True)
class CountingQueries(Spec, ABC):
    """A workload of ``number`` counting queries, of which each record answers at most ``at_most`` with yes."""

    @property
    @abstractmethod
    def number(self) -> int:
        """The number of queries."""

    @abstractmethod
    def changed(self, relation: str) -> int:
        """Return how many answers one neighbour change can move, each by one."""

    @abstractmethod
    def answers(self, data: Any) -> Counts:
        """Return the exact answers on the caller's data."""

    def check(self, data: Any) -> None:
        """Refuse data of a wrong shape or type; it reads public facts only."""

    def sensitivity(self, norm: str, relation: str) -> float:
        """Return how far one neighbour change moves the vector of answers, rounded up."""
        moved = self.changed(one_of("relation", relation, RELATIONS))
        one_of("norm", norm, ("l1", "l2", "linf"))
        root = math.sqrt(moved)
        l2 = root if math.isqrt(moved) ** 2 == moved else math.nextafter(root, math.inf)
        return {"l1": float(moved), "l2": l2, "linf": 1.0}[norm]


def changed_answers(number: int, at_most: int, relation: str) -> int:
    """Return how many of ``number`` answers can move if a record says yes to at most ``at_most`` of the queries.

    A record that is added or removed moves the answers it says yes to. A record that is replaced by another moves those
    that exactly one of the two says yes to.

    >>> changed_answers(10, 1, "add_remove"), changed_answers(10, 1, "replace"), changed_answers(10, 8, "replace")
    (1, 2, 10)
    """
    return at_most if one_of("relation", relation, RELATIONS) == "add_remove" else min(2 * at_most, number)


@dataclass(frozen=True)
class Flags(CountingQueries):
    """Queries given by the data themselves: each record is a row of ``queries`` flags, 1 for yes and 0 for no.

    ``at_most`` is how many flags of a record count; if it has more, the first ones do. A cell that is not a number
    is a no.

    >>> Flags(3, at_most=2).answers([[1, 1, 1], [0, 0, 1]])
    array([1, 1, 1])
    """

    kind = "flag_queries"
    queries: int
    at_most: int | None = None

    def __post_init__(self) -> None:
        count("the number of queries", self.queries)
        if self.at_most is not None and count("at_most", self.at_most) > self.queries:
            raise ValueError(f"at_most must not exceed the number of queries, {self.queries}, got {self.at_most}")

    @property
    def number(self) -> int:
        return self.queries

    def changed(self, relation: str) -> int:
        return changed_answers(self.queries, self.at_most or self.queries, relation)

    def check(self, data: Any) -> None:
        check_shape(data, self.queries, "flags")

    def answers(self, data: Any) -> Counts:
        rows = as_rows(data, self.queries, "flags")
        return np.asarray(first_flags(np.nan_to_num(rows) != 0, self.at_most).sum(axis=0, dtype=np.int64))


def first_flags(flags: NDArray[np.bool_], at_most: int | None) -> NDArray[np.bool_]:
    """Return the flags without all but the first ``at_most`` of each row."""
    return flags if at_most is None else flags & (np.cumsum(flags, axis=1) <= at_most)


@dataclass(frozen=True)
class CountNoise(Spec, ABC):
    """A distribution of integer noise for counts: its event, its draws, its errors."""

    theorem: ClassVar[str]
    independent: ClassVar[bool] = True
    """Whether the noise of a count does not depend on how many others there are."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The distribution in words."""

    @abstractmethod
    def event(self, changed: int) -> Event:
        """Return the event, if one neighbour change moves ``changed`` answers by one each."""

    @abstractmethod
    def add(self, counts: Counts, changed: int, source: Source) -> Floats:
        """Return the counts with noise, integers again."""

    @abstractmethod
    def errors(self, number: int, changed: int) -> ErrorLaw:
        """Return the distribution of the noise on ``number`` counts."""


N = TypeVar("N", bound=CountNoise)


@dataclass(frozen=True)
class NoisyCounts(Mechanism):
    """Answers of counting queries plus noise."""

    kind = "noisy_counts"
    noise: CountNoise
    workload: CountingQueries
    relation: str

    def __post_init__(self) -> None:
        one_of("relation", self.relation, RELATIONS)

    @property
    def event(self) -> Event:
        return self.noise.event(self.workload.changed(self.relation))

    @property
    def errors(self) -> ErrorLaw:
        """The distribution of the noise."""
        return self.noise.errors(self.workload.number, self.workload.changed(self.relation))

    @property
    def risk(self) -> Risk:
        of = "the count" if self.workload.number == 1 else f"the {self.workload.number} counts"
        return Risk(self.errors.expected_max, f"largest error of {of}")

    def half_width(self, level: float = 0.95, simultaneous: bool = False) -> int:
        """Return a bound of an error (with ``simultaneous``: of all errors) of probability at least ``level``.

        Released noise is the rounded law, and a rounded number is within h exactly if the number is within h + 1/2.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}")
        law = self.errors
        width = law.max_quantile(level) if simultaneous else law.quantile(level)
        return max(0, math.ceil(width - 0.5))

    def check(self, data: View) -> None:
        self.workload.check(data.given)

    def run(self, data: View, run: Run) -> Floats:
        return self.noise.add(self.workload.answers(data.given), self.workload.changed(self.relation), run.noise)

    def run_many(self, data: View, run: Run, count: int) -> list[Floats]:
        """Draw independent outputs: answers are counted once, noise is drawn at once where it can be."""
        answers, changed = self.workload.answers(data.given), self.workload.changed(self.relation)
        if self.noise.independent:
            return list(self.noise.add(np.tile(answers, count), changed, run.noise).reshape(count, -1))
        return [self.noise.add(answers, changed, run.noise) for _ in range(count)]


def counting_basis(theorem: str, workload: CountingQueries, budget: Budget) -> Basis:
    """Return why noisy counts are private."""
    moved = workload.changed(budget.relation)
    answers = "one answer" if moved == 1 else f"at most {moved} answers"
    enforced = Assumption(f"one neighbour change moves {answers}, each by one", "enforced")
    return Basis(theorem, budget.relation, budget.unit, (enforced,), "exact")


def counting_step(noise: CountNoise, workload: CountingQueries, budget: Budget) -> Step:
    """Return the step that adds calibrated noise to counts."""
    return Step(NoisyCounts(noise, workload, budget.relation), counting_basis(noise.theorem, workload, budget))


def smallest_noise(law: Callable[[float], N], changed: int, budget: Budget) -> N:
    """Return what ``law`` makes of the smallest scale within the budget, for counts of which ``changed`` move."""
    return calibrate(lambda scale: _Moved(law(scale), changed), budget).noise


class _Moved(NamedTuple, Generic[N]):
    """Noise on counts of which some move."""

    noise: N
    changed: int

    @property
    def event(self) -> Event:
        return self.noise.event(self.changed)


class CountingAlgorithm(Algorithm[Answer]):
    """What algorithms for counting queries share: one step with noise of one distribution."""

    solves = Answer
    workloads = (CountingQueries,)

    @abstractmethod
    def noise(self, number: int, changed: int, budget: Budget, minimize: str | float) -> CountNoise:
        """Return the noise of the smallest error within the budget; ``changed`` of ``number`` counts move."""

    def _plan(self, problem: Answer, budget: Budget, *, minimize: str | float = "max") -> Plan:
        """Plan one step; ``minimize`` names the error that a free choice makes small: "max", "average" or a level."""
        workload = cast(CountingQueries, problem.workload)
        sizes = workload.number, workload.changed(budget.relation)
        return counting_step(self.noise(*sizes, budget, checked_criterion(minimize)), workload, budget)

    def example(self, relation: str) -> Example:
        """Return four queries, and neighbours whose answers all move by one."""
        rows = np.zeros((4, 4))
        rows[-1] = 1.0
        neighbour = rows[:-1] if relation == "add_remove" else np.zeros((4, 4))
        return Example(Answer(n=4, workload=Flags(4)), rows, neighbour)
