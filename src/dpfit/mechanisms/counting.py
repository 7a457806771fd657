"""Counting queries: how many records have a property.

One neighbouring change moves some of the answers, each by exactly one. So privacy needs one number
of a workload: how many answers can move. The l1 sensitivity is that number, the l2 sensitivity its
square root, the l-infinity sensitivity 1; the number of queries never enters. Proofs:
docs/explanation/queries.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfit.data.arrays import as_rows, check_array
from dpfit.data.view import View
from dpfit.mechanisms.additive import RELATIONS, Change, SumQueries
from dpfit.privacy import Assumption, Basis, Budget
from dpfit.privacy.validate import integer, option

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CountingQueries(SumQueries):
    """A workload of counting queries."""

    noun: ClassVar[str] = "count"

    @abstractmethod
    def max_changed_answers(self, relation: str) -> int:
        """Return how many answers one neighbouring change can move, each by one."""

    def change(self, relation: str) -> Change:
        moved = self.max_changed_answers(option("relation", relation, RELATIONS))
        root = math.sqrt(moved)
        l2 = root if math.isqrt(moved) ** 2 == moved else math.nextafter(root, math.inf)
        return Change(self.number, float(moved), l2, 1.0, exact=True)

    def basis(self, theorem: str, budget: Budget) -> Basis:
        moved = self.max_changed_answers(budget.relation)
        answers = "one answer" if moved == 1 else f"at most {moved} answers"
        enforced = Assumption(f"one neighbour change moves {answers}, each by one", "enforced")
        return Basis(theorem, budget.relation, budget.unit, (enforced,), "exact")

    @staticmethod
    def example() -> CountingQueries:
        return Flags(4)


def max_changed_answers(number: int, max_per_record: int, relation: str) -> int:
    """Return how many of ``number`` answers change if a record is in at most ``max_per_record``.

    A record that is added or removed moves the answers in which it counts. A record that is
    replaced moves those in which exactly one of the two counts.

    >>> max_changed_answers(10, 1, "add_remove"), max_changed_answers(10, 1, "replace")
    (1, 2)
    >>> max_changed_answers(10, 8, "replace")
    10
    """
    one_way = option("relation", relation, RELATIONS) == "add_remove"
    return max_per_record if one_way else min(2 * max_per_record, number)


@dataclass(frozen=True)
class Flags(CountingQueries):
    """Queries stored in the data: each record is a row of ``queries`` flags, 1 yes, 0 no.

    ``max_per_record`` is how many flags of a record count; if it has more, the first ones do. A
    cell that is not a number is a no.

    >>> Flags(3, max_per_record=2).sums([[1, 1, 1], [0, 0, 1]])
    array([1, 1, 1])
    """

    kind = "flag_queries"
    former: ClassVar = {"at_most": "max_per_record"}
    queries: int
    max_per_record: int | None = None

    def __post_init__(self) -> None:
        integer("the number of queries", self.queries)
        check_max_per_record(self.max_per_record, self.queries)

    @property
    def number(self) -> int:
        return self.queries

    def max_changed_answers(self, relation: str) -> int:
        return max_changed_answers(self.queries, self.max_per_record or self.queries, relation)

    def check(self, data: View) -> None:
        check_array(data, self.queries, "flags")

    def sums(self, given: ArrayLike) -> Counts:
        rows = as_rows(given, self.queries, "flags")
        return np.asarray(
            first_flags(np.nan_to_num(rows) != 0, self.max_per_record).sum(axis=0, dtype=np.int64)
        )


def check_max_per_record(max_per_record: int | None, number: int) -> None:
    """Refuse a cap that no record could reach."""
    if max_per_record is not None and integer("max_per_record", max_per_record) > number:
        raise ValueError(
            f"max_per_record must be at most the number of queries, {number}, got {max_per_record}"
        )


def first_flags(flags: NDArray[np.bool_], max_per_record: int | None) -> NDArray[np.bool_]:
    """Return the flags without all but the first ``max_per_record`` of each row."""
    return flags if max_per_record is None else flags & (np.cumsum(flags, axis=1) <= max_per_record)
