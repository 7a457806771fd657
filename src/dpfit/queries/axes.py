"""Axes: public partitions of a column's values. Each record is in at most one cell."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpfit.data.schema import Category, Column, Date, Number, Schema
from dpfit.data.table import Table
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import did_you_mean, integer, real

Cells = NDArray[np.int64]


@dataclass(frozen=True)
class Axis(Spec, ABC):
    """A column and its cells."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The column."""

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """The cells in words."""

    @abstractmethod
    def cells(self, table: Table) -> Cells:
        """The cell of each record; -1 for none."""

    @property
    def size(self) -> int:
        """How many cells."""
        return len(self.labels)


@dataclass(frozen=True)
class Categories(Axis):
    """The categories of a column and, last, "other" unless the list is complete.

    >>> Categories(Category("ward", ("A", "B"))).cells(Table({"ward": ["B", "A", "Z", None]}))
    array([ 1,  0,  2, -1])
    """

    kind = "category_axis"
    column: Category

    @property
    def name(self) -> str:
        return self.column.name

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.column.categories, "other") if self.column.other else self.column.categories

    def cells(self, table: Table) -> Cells:
        codes = self.column.codes(table, empty=-1)
        return np.where(codes < self.size, codes, -1)


@dataclass(frozen=True)
class Bins(Axis):
    """Bins of a number with lower edges, the last with both; nullable columns have one more.

    >>> bins = Bins(Number("age", 0, 120), (0.0, 18.0, 65.0, 120.0))
    >>> bins.cells(Table({"age": [18, 17, 120, 999, None]}))
    array([ 1,  0,  2,  2, -1])
    """

    kind = "bin_axis"
    column: Number
    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        edges = [real("edge", edge) for edge in self.edges]
        rising = all(a < b for a, b in pairwise(edges))
        if (
            len(edges) < 2
            or not rising
            or edges[0] != self.column.lower
            or edges[-1] != self.column.upper
        ):
            raise ValueError(
                f"the edges of {self.name!r} must rise from {self.column.shown(self.column.lower)} "
                f"to {self.column.shown(self.column.upper)}, the range "
                "of the column in the schema"
            )

    @property
    def name(self) -> str:
        return self.column.name

    @property
    def bins(self) -> int:
        """How many bins hold numbers."""
        return len(self.edges) - 1

    @property
    def labels(self) -> tuple[str, ...]:
        edges = [self.column.label(edge) for edge in self.edges]
        *inner, (low, high) = pairwise(edges)
        cuts = [f"[{a}, {b})" for a, b in inner]
        return (*cuts, f"[{low}, {high}]", *(("missing",) if self.column.nullable else ()))

    def cells(self, table: Table) -> Cells:
        place = np.searchsorted(
            np.asarray(self.edges[1:-1], dtype=np.float64), self.column.clamp(table), side="right"
        )
        empty = self.bins if self.column.nullable else -1
        place = np.where(np.isnan(self.column.values(table)), empty, place)
        return np.asarray(place, dtype=np.int64)


BinChoice = Mapping[str, int | Sequence[float | str | date]]


def axis(schema: Schema, name: str, bins: BinChoice) -> Axis:
    """A schema column's axis; ``bins`` has a bin number or edges for each number column."""
    column = column_of(schema, name)
    if isinstance(column, Category):
        if name in bins:
            raise ValueError(f"column {name!r} has categories; bins are for numbers")
        return Categories(column)
    if name not in bins:
        noun = "date" if isinstance(column, Date) else "number"
        raise ValueError(
            f"column {name!r} is a {noun}: say how to cut it, as in bins={{{name!r}: 10}}"
        )
    choice = bins[name]
    if isinstance(choice, int):
        edges = np.linspace(column.lower, column.upper, integer(f"bins of {name!r}", choice) + 1)
        edges = np.round(edges) if isinstance(column, Date) else edges
        return Bins(column, (float(column.lower), *map(float, edges[1:-1]), float(column.upper)))
    return Bins(column, tuple(float(column.place("edge", edge)) for edge in choice))


def columns_of(schema: Schema) -> tuple[Column, ...]:
    """All columns of the schema, the target included."""
    return schema.columns if schema.target is None else (*schema.columns, schema.target)


def column_of(schema: Schema, name: str) -> Column:
    """A column of the schema, by its name."""
    known = columns_of(schema)
    for column in known:
        if column.name == name:
            return column
    names = [column.name for column in known]
    raise ValueError(
        f"the schema has no column {name!r}; {did_you_mean(name, names)}it has "
        f"{', '.join(map(repr, names))}"
    )
