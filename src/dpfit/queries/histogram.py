"""Histograms: how many records are in each cell of a grid of columns.

A record is in one cell, or in none if one of its columns is empty. So one added or removed moves at
most one count, and one replaced at most two:
l1 sensitivity 1 and 2, l2 sensitivity 1 and sqrt(2), l-infinity sensitivity 1, however many cells
there are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dpfit.data.table import Table
from dpfit.mechanisms.counting import Counts, max_changed_answers
from dpfit.queries.axes import Axis
from dpfit.queries.workload import TableQueries, checked_number


@dataclass(frozen=True)
class Histogram(TableQueries):
    """Counts of all combinations of cells, the last axis running fastest.

    >>> from dpfit.data.schema import Category
    >>> from dpfit.queries.axes import Categories
    >>> wards = Histogram((Categories(Category("ward", ("A", "B"))),))
    >>> wards.sums({"ward": ["A", "A", "C"]}), wards.labels
    (array([2, 0, 1]), ('ward = A', 'ward = B', 'ward = other'))
    """

    kind = "histogram_queries"
    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        if len(set(self.columns)) != len(self.columns) or not self.axes:
            raise ValueError("a histogram counts by one or more columns, each of them once")
        checked_number(self.number)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of cells of each axis."""
        return tuple(axis.size for axis in self.axes)

    @property
    def number(self) -> int:
        return math.prod(self.sizes)

    @property
    def labels(self) -> tuple[str, ...]:
        named = [[f"{axis.name} = {label}" for label in axis.labels] for axis in self.axes]
        return tuple(", ".join(parts) for parts in itertools.product(*named))

    def max_changed_answers(self, relation: str) -> int:
        return max_changed_answers(self.number, 1, relation)

    def sums(self, given: object) -> Counts:
        return self.sums_among(given, self.axes)

    def sums_among(self, given: object, complete: Iterable[Axis]) -> Counts:
        """Return the counts of records that have a cell on all ``complete`` axes, too."""
        table = Table(given)
        cells = {axis.name: axis.cells(table) for axis in (*self.axes, *complete)}
        known = np.all([place >= 0 for place in cells.values()], axis=0)
        places = [cells[name][known] for name in self.columns]
        counts = np.bincount(np.ravel_multi_index(places, self.sizes), minlength=self.number)
        return np.asarray(counts, dtype=np.int64)
