"""Queries leave empty cells out: such a record counts in no cell of the column."""

import itertools

import numpy as np
import pytest

from dpfit.data.schema import Category, Number, Schema
from dpfit.mechanisms.counting import CountingQueries
from dpfit.queries import Ranges, count, where
from dpfit.queries.axes import Bins, Categories, axis
from dpfit.queries.histogram import Histogram
from dpfit.queries.marginals import Marginals
from dpfit.queries.predicates import Predicates

WARD, AGE = Category("ward", ("A", "B")), Number("age", 0, 90)
WEIGHT = Number("weight", 0, 100, nullable=True)
SCHEMA = Schema((WARD, AGE, WEIGHT))
TABLE = {
    "ward": ["A", "B", None, "Z", "A", None],
    "age": [10, None, 50, "x", 70, None],
    "weight": [None, 50, 60, 70, None, 10],
}
WARDS, AGES = Categories(WARD), Bins(AGE, (0.0, 30.0, 60.0, 90.0))
WEIGHTS = axis(SCHEMA, "weight", {"weight": 2})


def test_a_histogram_counts_cells_that_are_there():
    assert Histogram((WARDS,)).sums(TABLE).tolist() == [2, 1, 1]
    assert Histogram((AGES,)).sums(TABLE).tolist() == [1, 1, 1]
    # A column that may be empty has a cell for it.
    assert Histogram((WEIGHTS,)).sums(TABLE).tolist() == [1, 3, 2]
    assert Histogram((WARDS, AGES)).sums(TABLE).tolist() == [1, 0, 1, 0, 0, 0, 0, 0, 0]


def test_ranges_and_predicates_hold_for_cells_that_are_there():
    assert Ranges.prefixes(AGES).sums(TABLE).tolist() == [1, 2, 3]
    predicates = Predicates((WARD, AGE), (where(age=(30, 60)), where(age=(60, 90))))
    assert predicates.sums(TABLE).tolist() == [1, 1]


def test_tables_that_share_a_column_count_the_same_records():
    pairs, wards, weights = Histogram((WARDS, AGES)), Histogram((WARDS,)), Histogram((WEIGHTS,))
    tables = Marginals((pairs, wards, weights))
    found = np.split(tables.sums(TABLE), [9, 12])
    assert found[0].reshape(3, 3).sum(axis=1).tolist() == found[1].tolist() == [2, 0, 0]
    assert found[2].tolist() == [1, 3, 2]
    # Tables that are not linked have totals of their own, and the true counts stay as they are.
    true = tables.sums(TABLE).astype(float)
    np.testing.assert_allclose(tables.consistent(true), true, atol=1e-12)


def test_counts_of_columns_on_their_own_are_not_pulled_together():
    """Repair made the totals agree: 10 known wards of 1000 records became hundreds."""
    table = {"ward": ["A"] * 10 + [None] * 990, "age": [50] * 1000, "weight": [1] * 1000}
    found = count(table, SCHEMA, [["ward"], ["age"]], epsilon=1e3, bins={"age": 3}).values
    np.testing.assert_allclose(found, [10, 0, 0, 0, 1000, 0], atol=0.5)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize(
    "workload",
    [
        Histogram((WARDS, AGES)),
        Marginals((Histogram((WARDS, AGES)), Histogram((AGES,)), Histogram((WEIGHTS,)))),
        Ranges.prefixes(AGES),
        Ranges.all(AGES),
        Ranges(AGES, ((0, 1), (1, 3), (0, 3))),
        Predicates((WARD, AGE), (where(age=(0, 30)), where(ward="A")), 2),
    ],
    ids=lambda workload: workload.kind,
)
def test_no_record_moves_more_answers_than_is_declared(workload: CountingQueries, relation):
    """All pairs of records, empty cells included; the bound is attained."""
    cells = itertools.product(["A", "B", "Z", None], [10, 40, 80, None], [10, 90, None])
    records = [dict(zip(("ward", "age", "weight"), each, strict=True)) for each in cells]
    sums = [workload.sums({name: [cell] for name, cell in each.items()}) for each in records]
    others = [np.zeros_like(sums[0])] if relation == "add_remove" else sums
    moved = [np.abs(one - other) for one in sums for other in others]
    assert max(each.max() for each in moved) == 1
    assert max(int(each.sum()) for each in moved) == workload.max_changed_answers(relation)
