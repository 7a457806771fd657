"""Predicates: how many records satisfy each of several conditions.

Predicates that can be shown never to hold together count each record at most once. For others the
caller says in how many of them a record may count, and that is enforced: a record that satisfies
more counts in the first ones only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import combinations
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpfit.data.cells import as_day
from dpfit.data.schema import Category, Column, Date, Number
from dpfit.data.table import Table
from dpfit.mechanisms.counting import Counts, check_max_per_record, first_flags, max_changed_answers
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import did_you_mean, real
from dpfit.queries.workload import TableQueries, checked_number

_ROWS = 8192

Allowed: TypeAlias = tuple[str | float, ...]
"""Categories, or the two ends of a range; dates are days since 1970."""


@dataclass(frozen=True)
class Condition(Spec):
    """A column has one of these categories, or lies in [lower, upper)."""

    kind = "predicate_condition"
    column: str
    values: Allowed

    def __str__(self) -> str:
        return self.label(lambda value: f"{value:g}")

    def label(self, shown: Callable[[float], str]) -> str:
        """The condition in words; ``shown`` writes an end of its range."""
        ends = [value for value in self.values if not isinstance(value, str)]
        if len(ends) < len(self.values):
            return f"{self.column} in {', '.join(map(str, self.values))}"
        return f"{self.column} from {shown(ends[0])} to {shown(ends[-1])}"


@dataclass(frozen=True)
class Predicate(Spec):
    """Several conditions, all of which must hold."""

    kind = "predicate"
    conditions: tuple[Condition, ...]

    def __str__(self) -> str:
        return " and ".join(map(str, self.conditions)) or "all"


def where(**facts: str | float | Sequence[str | float | date]) -> Predicate:
    """A predicate: one or several categories of a column, or a pair of numbers or dates.

    Numbers take their lower end and not the upper one, except that the end of the column's range is
    included.

    >>> str(where(ward=("A", "B"), age=(18, 65)))
    'ward in A, B and age from 18 to 65'
    """
    listed = {
        name: tuple(value) if isinstance(value, tuple | list) else (value,)
        for name, value in facts.items()
    }
    plain = {
        name: tuple(as_day(value) if isinstance(value, date) else value for value in values)
        for name, values in listed.items()
    }
    return Predicate(tuple(Condition(name, values) for name, values in plain.items()))


@dataclass(frozen=True)
class Predicates(TableQueries):
    """Counts of predicates over schema columns; a record counts in at most ``max_per_record``.

    >>> wards = (Category("ward", ("A", "B")),)
    >>> Predicates(wards, (where(ward="A"), where(ward="B"))).max_changed_answers("replace")
    2
    >>> Predicates(wards, (where(ward="A"), where(ward=("A", "B"))))
    Traceback (most recent call last):
        ...
    ValueError: 'ward in A' and 'ward in A, B' may hold for one record: say in how many of the 2
    predicates a record \
may count, as in max_per_record=2 (a record that satisfies more counts in the first ones)
    """

    kind = "predicate_queries"
    former: ClassVar = {"at_most": "max_per_record"}
    facts: tuple[Column, ...]
    predicates: tuple[Predicate, ...]
    max_per_record: int | None = None

    def __post_init__(self) -> None:
        checked_number(len(self.predicates))
        for predicate in self.predicates:
            for condition in predicate.conditions:
                _check(condition, self._column(condition.column))
        if self.max_per_record is not None:
            check_max_per_record(self.max_per_record, self.number)
            return
        for one, other in combinations(self.predicates, 2):
            if not _disjoint(one, other):
                raise ValueError(
                    f"{self._label(one)!r} and {self._label(other)!r} may hold for one record: "
                    f"say in how many of the {self.number} "
                    f"predicates a record may count, as in max_per_record={self.number} (a "
                    "record that satisfies more "
                    "counts in the first ones)"
                )

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys(c.column for predicate in self.predicates for c in predicate.conditions)
        )

    @property
    def number(self) -> int:
        return len(self.predicates)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(map(self._label, self.predicates))

    def max_changed_answers(self, relation: str) -> int:
        return max_changed_answers(self.number, self.max_per_record or 1, relation)

    def sums(self, given: object) -> Counts:
        table = Table(given)
        held = {
            c: _holds(c, self._column(c.column), table)
            for p in self.predicates
            for c in p.conditions
        }
        total = np.zeros(self.number, dtype=np.int64)
        for start in range(0, table.rows, _ROWS):
            rows = slice(start, min(start + _ROWS, table.rows))
            flags = np.ones((rows.stop - rows.start, self.number), dtype=np.bool_)
            for index, predicate in enumerate(self.predicates):
                for condition in predicate.conditions:
                    flags[:, index] &= held[condition][rows]
            # Disjoint predicates pass through unchanged.
            total += first_flags(flags, self.max_per_record or 1).sum(axis=0, dtype=np.int64)
        return total

    def _label(self, predicate: Predicate) -> str:
        shown = (
            str(condition) if isinstance(column, Category) else condition.label(column.label)
            for condition in predicate.conditions
            for column in [self._column(condition.column)]
        )
        return " and ".join(shown) or "all"

    def _column(self, name: str) -> Column:
        for column in self.facts:
            if column.name == name:
                return column
        known = [column.name for column in self.facts]
        raise ValueError(
            f"the schema has no column {name!r}; {did_you_mean(name, known)}it has "
            f"{', '.join(map(repr, known))}"
        )


def _check(condition: Condition, column: Column) -> None:
    """Refuse what the schema does not know."""
    name, values = condition.column, condition.values
    if isinstance(column, Category):
        outside = [value for value in values if value not in column.categories]
        if outside or not values:
            wrong = outside[0] if outside else "like that"
            raise ValueError(
                f"column {name!r} has no category {wrong!r} in the schema; "
                f"{did_you_mean(wrong, column.categories)}it has "
                f"{', '.join(map(repr, column.categories))}"
            )
        return
    if len(values) != 2 or any(isinstance(value, str) for value in values):
        noun = (
            "date: give a pair of datetime.date"
            if isinstance(column, Date)
            else "number: give a pair"
        )
        raise ValueError(f"column {name!r} is a {noun} (lower, upper), got {values!r}")
    low, high = (real(name, value) for value in values)
    if not column.lower <= low < high <= column.upper:
        raise ValueError(
            f"a range of {name!r} must rise within [{column.shown(column.lower)}, "
            f"{column.shown(column.upper)}], the range of the column in the schema, got {values!r}"
        )


def _disjoint(one: Predicate, other: Predicate) -> bool:
    """Whether no record can satisfy both: on some column their conditions exclude each other."""
    return any(
        _exclude(a.values, b.values)
        for a in one.conditions
        for b in other.conditions
        if a.column == b.column
    )


def _exclude(one: Allowed, other: Allowed) -> bool:
    if any(isinstance(value, str) for value in one):
        return not set(one) & set(other)
    (low, high), (start, stop) = _range(one), _range(other)
    # The upper end is excluded unless it is the end of the column, and no range begins there.
    return bool(high <= start or stop <= low)


def _range(values: Allowed) -> tuple[float, float]:
    low, high = (value for value in values if not isinstance(value, str))
    return low, high


def _holds(condition: Condition, column: Column, table: Table) -> NDArray[np.bool_]:
    if isinstance(column, Number):
        low, high = _range(condition.values)
        clamped = column.clamp(table)
        inside = (clamped >= low) & ((clamped < high) | (high == column.upper))
        # An empty cell satisfies nothing.
        return np.asarray(inside & ~np.isnan(column.values(table)))
    wanted = [
        place for place, category in enumerate(column.categories) if category in condition.values
    ]
    return np.asarray(np.isin(column.codes(table), wanted))
