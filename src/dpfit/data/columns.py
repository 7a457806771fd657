"""Columns of a schema: a range of numbers or dates, or a list of categories.

Values outside are mapped into the range, unknown categories to an "other" column, empty cells to
the middle of the range, with an indicator column if the column may be empty. Nothing is reported: a
message about a cell would be a leak.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpfit.data.cells import EPOCH
from dpfit.data.table import Table
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import integer, real

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Number(Spec):
    """A number in [``lower``, ``upper``]; ``nullable`` adds a column that marks empty cells."""

    kind = "column_number"
    name: str
    lower: float
    upper: float
    nullable: bool = False

    def __post_init__(self) -> None:
        lower, upper = self.place("lower", self.lower), self.place("upper", self.upper)
        if not (lower < upper and float(upper) - float(lower) < math.inf):
            raise ValueError(
                f"column {self.name!r} needs finite lower < upper with a finite difference, got "
                f"[{self.shown(lower)}, {self.shown(upper)}]"
            )
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)
        object.__setattr__(self, "nullable", yes_or_no("nullable", self.nullable))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the matrix columns."""
        return (self.name, f"{self.name} is missing") if self.nullable else (self.name,)

    def place(self, name: str, value: object) -> float:
        """An end or an edge, which the caller calls ``name``, as a number."""
        return plain_number(name, value)

    def shown(self, value: float) -> str:
        """An end as a schema has it."""
        return repr(value)

    def label(self, edge: float) -> str:
        """An edge as tables of counts show it."""
        return f"{edge:g}"

    def values(self, table: Table) -> Array:
        """The column as numbers; NaN where a cell is empty or something else."""
        return table.numbers(self.name)

    def clamp(self, table: Table) -> Array:
        """The column inside its range; empty cells in the middle."""
        values = self.values(table)
        middle = self.lower / 2 + self.upper / 2
        return np.asarray(
            np.clip(np.where(np.isnan(values), middle, values), self.lower, self.upper)
        )

    def encode(self, table: Table, low: float) -> list[Array]:
        """The column scaled to [low, 1], and the indicator."""
        values = self.values(table)
        empty = np.isnan(values)
        share = (np.clip(values, self.lower, self.upper) - self.lower) / (self.upper - self.lower)
        # The middle of a narrow range may round to one of its ends; that of [low, 1] does not.
        scaled = np.where(empty, (low + 1.0) / 2, np.clip(low + (1.0 - low) * share, low, 1.0))
        return [scaled, empty.astype(np.float64)] if self.nullable else [scaled]

    def squared_norm(self, low: float) -> float:
        """The largest squared length of the encoded entries."""
        missing = ((low + 1.0) / 2) ** 2 + 1.0
        return max(1.0, missing) if self.nullable else 1.0


@dataclass(frozen=True)
class Date(Number):
    """A day in [``lower``, ``upper``], given as dates or ISO texts; kept as days since 1970.

    Cells are dates, moments, or texts such as 2025-01-31; the time of day is left out.

    >>> column = Date("admitted", "2025-01-01", date(2025, 12, 31))
    >>> column.encode(Table({"admitted": ["2025-07-02", date(2030, 1, 1), "soon"]}), -1.0)
    [array([0., 1., 0.])]
    """

    kind = "column_date"
    lower: Any
    upper: Any

    def place(self, name: str, value: object) -> float:
        try:
            if isinstance(value, str):
                value = datetime.fromisoformat(value)
            if isinstance(value, date):
                return value.toordinal() - EPOCH.toordinal()
            whole = int(value) if isinstance(value, float) and value.is_integer() else value
            days = integer(name, whole, -EPOCH.toordinal() + 1)
            self.shown(days)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"{name} must be a date such as 2025-01-31, got {value!r}") from None
        return days

    def shown(self, value: float) -> str:
        return (EPOCH + timedelta(days=math.ceil(value))).isoformat()

    def label(self, edge: float) -> str:
        return self.shown(edge)

    def values(self, table: Table) -> Array:
        return table.days(self.name)


@dataclass(frozen=True)
class Category(Spec):
    """One of the listed ``categories``; anything else, and nothing, is "other".

    With ``other=False`` the list is complete: there is no "other", and such a cell has no category.
    """

    kind = "column_category"
    omitted: ClassVar = ("other",)
    name: str
    categories: tuple[str, ...]
    other: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "other", yes_or_no("other", self.other))
        texts = isinstance(self.categories, tuple) and all(
            isinstance(c, str) for c in self.categories
        )
        if not texts or not self.categories:
            raise ValueError(
                f"column {self.name!r} needs a non-empty tuple (in TOML: list) of categories "
                "(texts)"
            )
        if len(set(self.categories)) != len(self.categories):
            raise ValueError(f"column {self.name!r} lists a category twice")

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the matrix columns."""
        listed = tuple(f"{self.name} = {category}" for category in self.categories)
        return (*listed, f"{self.name} is other") if self.other else listed

    def codes(self, table: Table, empty: int | None = None) -> NDArray[np.int64]:
        """The position of each cell's category; the number of categories for "other".

        An empty cell has the code ``empty``, by default that of "other".
        """
        # A cell that is the number 1.0 has the text "1"; a category "1.0" means it, unless "1" is
        # one, too.
        place = {_whole(category): index for index, category in enumerate(self.categories)}
        place |= {category: index for index, category in enumerate(self.categories)}
        other = len(self.categories)
        none = other if empty is None else empty
        texts = table.texts(self.name)
        return np.array([none if text is None else place.get(text, other) for text in texts], int)

    def encode(self, table: Table, low: float) -> list[Array]:
        """One column for each category, and one for "other"; at most one of them is 1."""
        codes = self.codes(table)
        return [(codes == index).astype(np.float64) for index in range(len(self.outputs))]

    def squared_norm(self, low: float) -> float:
        """At most one entry is 1."""
        return 1.0


Column = Number | Category


def plain_number(name: str, value: object) -> float:
    """A number of Python's own, since those of others may overflow and are not written as TOML."""
    checked = real(name, value)
    return value if type(value) is int else checked


def yes_or_no(name: str, value: object) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be true or false, got {value!r}")
    return bool(value)


def _whole(category: str) -> str:
    """A whole number without its decimal point; any other text as it is."""
    digits = category.removesuffix(".0")
    return digits if digits.removeprefix("-").isdecimal() else category
