"""Histograms: how many records are in each cell of a grid of columns.

A record is in exactly one cell, so one added or removed moves one count and one replaced moves two: l1 sensitivity 1
and 2, l2 sensitivity 1 and sqrt(2), l-infinity sensitivity 1, however many cells there are.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpfit.data.table import Table
from dpfit.mechanisms.counting import Counts, changed_answers
from dpfit.queries.axes import Axis
from dpfit.queries.workload import TableQueries, checked_number


@dataclass(frozen=True)
class Histogram(TableQueries):
    """Counts of all combinations of cells, the last axis running fastest.

    >>> from dpfit.data.schema import Category
    >>> from dpfit.queries.axes import Categories
    >>> wards = Histogram((Categories(Category("ward", ("A", "B"))),))
    >>> wards.answers({"ward": ["A", "A", "C"]}), wards.labels
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

    def changed(self, relation: str) -> int:
        return changed_answers(self.number, 1, relation)

    def answers(self, data: Any) -> Counts:
        table = Table(data)
        cells = np.ravel_multi_index([axis.cells(table) for axis in self.axes], self.sizes)
        return np.asarray(np.bincount(cells, minlength=self.number), dtype=np.int64)
