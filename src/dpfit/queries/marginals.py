"""Marginals: several histograms of one table, over different columns.

A record is in at most one cell of each, so with m tables one added or removed record moves m counts
at most, one replaced 2 m. Tables that share a column, directly or through others, count the same
records: those without an empty cell in any of their columns. Their true counts agree on the columns
they share; noisy ones are made to agree by least squares.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from dpfit.data.table import Table
from dpfit.mechanisms.counting import Counts, Floats, max_changed_answers
from dpfit.queries.histogram import Histogram
from dpfit.queries.workload import TableQueries, checked_number


@dataclass(frozen=True)
class Marginals(TableQueries):
    """The answers of several histograms, one after the other."""

    kind = "marginal_queries"
    tables: tuple[Histogram, ...]

    def __post_init__(self) -> None:
        keys = [frozenset(table.columns) for table in self.tables]
        if not self.tables or len(set(keys)) != len(keys):
            raise ValueError("marginals are one or more tables, each over another set of columns")
        cut = {axis.name: axis for table in self.tables for axis in table.axes}
        if any(cut[axis.name] != axis for table in self.tables for axis in table.axes):
            raise ValueError("a column must be cut in the same way in all tables")
        checked_number(self.number)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for table in self.tables for name in table.columns))

    @property
    def number(self) -> int:
        return sum(table.number for table in self.tables)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(itertools.chain.from_iterable(table.labels for table in self.tables))

    def max_changed_answers(self, relation: str) -> int:
        return max_changed_answers(self.number, len(self.tables), relation)

    def sums(self, given: object) -> Counts:
        table = Table(given)
        return np.concatenate(
            [
                each.sums_among(table, (axis for one in self._linked(each) for axis in one.axes))
                for each in self.tables
            ]
        )

    def _linked(self, table: Histogram) -> list[Histogram]:
        """The tables that share a column with this one, directly or through others."""
        columns, linked = set(table.columns), list[Histogram]()
        while len(found := [t for t in self.tables if columns & set(t.columns)]) > len(linked):
            linked = found
            columns = {name for one in linked for name in one.columns}
        return linked

    def consistent(self, answers: Floats) -> Floats:
        """Least squares, in closed form.

        A table over columns A is the sum over subsets S of its effects f_S (its sums over the other
        columns, centred along every column of S), each spread evenly over the N = |A without S|
        cells. Effects of different subsets are orthogonal, tables agree exactly if they have the
        same effects, and the effect nearest to those of several tables is their mean with weights 1
        / N. Tables that are not linked have effects of their own.
        """
        effects: dict[tuple[int, tuple[str, ...]], tuple[Floats, float]] = {}
        group = [self.tables.index(self._linked(table)[0]) for table in self.tables]
        for first, table, values in zip(group, self.tables, self._split(answers), strict=True):
            for subset in _subsets(table.columns):
                spread = _cells(table, subset)
                total, weight = effects.get((first, subset), (np.float64(0.0), 0.0))
                effects[first, subset] = (
                    np.asarray(total + _effect(table, values, subset) / spread),
                    weight + 1 / spread,
                )
        rebuilt = []
        for first, table in zip(group, self.tables, strict=True):
            order = tuple(sorted(table.columns))
            whole = np.zeros([table.sizes[table.columns.index(name)] for name in order])
            for subset in _subsets(table.columns):
                total, weight = effects[first, subset]
                shape = [
                    whole.shape[place] if name in subset else 1 for place, name in enumerate(order)
                ]
                whole += (total / weight).reshape(shape) / _cells(table, subset)
            rebuilt.append(
                np.transpose(whole, [order.index(name) for name in table.columns]).ravel()
            )
        return np.concatenate(rebuilt)

    def _split(self, answers: Floats) -> list[Floats]:
        ends = np.cumsum([table.number for table in self.tables])[:-1]
        return [
            part.reshape(table.sizes)
            for table, part in zip(self.tables, np.split(answers, ends), strict=True)
        ]


def _subsets(columns: tuple[str, ...]) -> list[tuple[str, ...]]:
    """All subsets, each in alphabetical order."""
    names = sorted(columns)
    return [
        subset for size in range(len(names) + 1) for subset in itertools.combinations(names, size)
    ]


def _cells(table: Histogram, subset: tuple[str, ...]) -> int:
    """Over how many cells of the table an effect of these columns is spread."""
    return math.prod(axis.size for axis in table.axes if axis.name not in subset)


def _effect(table: Histogram, values: Floats, subset: tuple[str, ...]) -> Floats:
    """The effect of some columns of a table, its axes in alphabetical order."""
    others = tuple(place for place, name in enumerate(table.columns) if name not in subset)
    summed = values.sum(axis=others)
    kept = [name for name in table.columns if name in subset]
    effect = np.transpose(summed, [kept.index(name) for name in subset])
    for place in range(effect.ndim):
        effect = effect - effect.mean(axis=place, keepdims=True)
    return np.asarray(effect)
