"""Ranges: how many records have a number between two edges, for many pairs of edges.

Ranges overlap. How many of their counts one record moves is found by going over all pairs of bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpfit.data.table import Table
from dpfit.mechanisms.additive import RELATIONS
from dpfit.mechanisms.counting import Counts, Floats
from dpfit.privacy.validate import option
from dpfit.queries.axes import Bins
from dpfit.queries.workload import TableQueries, checked_number


@dataclass(frozen=True)
class Ranges(TableQueries):
    """Counts of the bins from ``start`` to before ``stop``, for each interval (start, stop).

    >>> from dpfit.data.schema import Number
    >>> ages = Bins(Number("age", 0, 90), (0.0, 30.0, 60.0, 90.0))
    >>> young = Ranges.prefixes(ages)
    >>> (
    ...     young.labels[:2],
    ...     young.max_changed_answers("add_remove"),
    ...     young.max_changed_answers("replace"),
    ... )
    (('age from 0 to 30', 'age from 0 to 60'), 3, 3)
    >>> Ranges.all(ages).number, Ranges.all(ages).max_changed_answers("replace")
    (6, 4)
    """

    kind = "range_queries"
    axis: Bins
    intervals: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        checked_number(len(self.intervals))
        if len(set(self.intervals)) != len(self.intervals):
            raise ValueError("an interval may be asked once")
        if not all(0 <= start < stop <= self.axis.bins for start, stop in self.intervals):
            raise ValueError(
                f"an interval (start, stop) has 0 <= start < stop <= {self.axis.bins}, the "
                "number of bins"
            )

    @staticmethod
    def prefixes(axis: Bins) -> Ranges:
        """All ranges that begin at the lowest edge: cumulative counts."""
        return Ranges(axis, tuple((0, stop) for stop in range(1, axis.bins + 1)))

    @staticmethod
    def all(axis: Bins) -> Ranges:
        """All ranges."""
        starts = range(axis.bins)
        return Ranges(
            axis,
            tuple((start, stop) for start in starts for stop in range(start + 1, axis.bins + 1)),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.axis.name,)

    @property
    def number(self) -> int:
        return len(self.intervals)

    @property
    def labels(self) -> tuple[str, ...]:
        edges, name = [self.axis.column.label(edge) for edge in self.axis.edges], self.axis.name
        return tuple(
            f"{name} from {edges[start]} to {edges[stop]}" for start, stop in self.intervals
        )

    def max_changed_answers(self, relation: str) -> int:
        return self._changed[option("relation", relation, RELATIONS)]

    def sums(self, given: object) -> Counts:
        places = self.axis.cells(Table(given))
        cells = np.bincount(places[places >= 0], minlength=self.axis.size)[: self.axis.bins]
        below = np.concatenate([[0], np.cumsum(cells)])
        starts, stops = np.asarray(self.intervals).T
        return np.asarray(below[stops] - below[starts], dtype=np.int64)

    def consistent(self, answers: Floats) -> Floats:
        """Least squares over counts of the bins."""
        return np.asarray(self._basis @ (self._basis.T @ answers))

    @cached_property
    def _members(self) -> Floats:
        """One row for each bin: 1 for the intervals that it is in."""
        bins = np.arange(self.axis.bins)[:, None]
        starts, stops = np.asarray(self.intervals).T
        return np.asarray((starts <= bins) & (bins < stops), dtype=np.float64)

    @cached_property
    def _changed(self) -> dict[str, int]:
        common = self._members @ self._members.T
        alone = np.diag(common)
        # A record moves the intervals that hold exactly one of its two bins; an empty cell is in
        # none of them.
        moved = [alone[:, None] + alone - 2 * common, alone]
        return {
            "add_remove": int(alone.max()),
            "replace": max(1, int(max(part.max() for part in moved))),
        }

    @cached_property
    def _basis(self) -> Floats:
        """An orthonormal basis of the answers that counts of bins can have."""
        vectors, sizes, _ = np.linalg.svd(self._members.T, full_matrices=False)
        return np.asarray(vectors[:, sizes > 1e-10 * sizes[0]])
