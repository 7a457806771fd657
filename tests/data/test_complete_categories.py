"""Categories whose list is complete: no column and no count of "other"."""

import numpy as np
import pytest

from dpfit.data.schema import Category, Number, Schema
from dpfit.data.table import Table
from dpfit.privacy.spec import from_json
from dpfit.queries import count
from dpfit.queries.axes import Categories
from dpfit.queries.histogram import Histogram
from dpfit.queries.marginals import Marginals

WARD = Category("ward", ("A", "B"), other=False)
TABLE = {"ward": ["B", "A", "Z", None], "x": [0, 1, 2, 3]}


def test_an_unlisted_cell_has_zeros_in_all_columns():
    schema = Schema((WARD,), intercept=False)
    assert schema.names == ("ward = A", "ward = B")
    assert schema.matrix(TABLE).tolist() == [[0, 1], [1, 0], [0, 0], [0, 0]]
    assert np.linalg.norm(schema.matrix(TABLE), axis=1).max() <= schema.bound


def test_an_unlisted_cell_counts_nowhere():
    axis = Categories(WARD)
    assert axis.labels == ("A", "B")
    assert axis.cells(Table(TABLE)).tolist() == [1, 0, -1, -1]
    assert Histogram((axis,)).sums(TABLE).tolist() == [1, 1]
    table = {name: cells * 500 for name, cells in TABLE.items()}
    found = count(table, Schema((WARD,)), by="ward", epsilon=50.0, random_state=1)
    np.testing.assert_allclose(found.values, [500, 500], atol=5)


def test_tables_that_share_the_column_leave_the_same_records_out():
    whole = Categories(Category("c", ("u",)))
    pair = Marginals((Histogram((Categories(WARD), whole)), Histogram((Categories(WARD),))))
    table = TABLE | {"c": ["u", "v", "u", "u"]}
    assert pair.sums(table).tolist() == [0, 1, 1, 0, 1, 1]


def test_a_complete_list_is_stored_and_read():
    schema = Schema((WARD, Category("c", ("u",)), Number("x", 0, 3)), target=WARD_TARGET)
    assert schema.to_toml().count("other = false") == 2
    assert Schema.from_toml(schema.to_toml()) == schema == from_json(schema.to_json(), Schema)
    assert "other" not in Category("c", ("u",)).to_json()


def test_other_is_true_or_false():
    with pytest.raises(ValueError, match="other must be true or false, got 'no'"):
        Category("ward", ("A",), other="no")


WARD_TARGET = Category("y", ("no", "yes"), other=False)
