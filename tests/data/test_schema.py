"""Schemas: every cell is mapped into its declared bounds, and nothing is reported."""

import json
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfit.data.schema import Category, Number, Schema
from dpfit.data.table import Table
from dpfit.privacy.spec import from_json

CELLS = st.one_of(
    st.none(), st.floats(allow_nan=True, allow_infinity=True), st.integers(), st.text(max_size=5),
    st.booleans(),
    st.sampled_from(["A", "B", "1e400", "-inf", "nan", " 7 ", "\x00", b"bytes", 10**400, (1, 2)]),
)  # fmt: skip


def schemas(**options):
    columns = (
        Number("x", -2.0, 3.0, nullable=True),
        Number("z", 0.0, 1e-9),
        Category("c", ("A", "B")),
    )
    return Schema(columns, target=Number("y", 0.0, 1.0), **options)


@given(
    rows=st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS), max_size=6),
    scale=st.sampled_from(["unit", "symmetric"]),
    cap=st.sampled_from([None, 0.5, 1.0, 100.0]),
)
def test_any_table_becomes_a_bounded_matrix(rows, scale, cap):
    schema = schemas(scale=scale, row_norm=cap)
    table = {name: [row[i] for row in rows] for i, name in enumerate("xzcy")}
    matrix, labels = schema.matrix(table), schema.labels(table)
    assert matrix.shape == (len(rows), len(schema.names))
    assert np.all(np.isfinite(matrix))
    for row in matrix.tolist():
        assert math.sqrt(math.fsum(entry * entry for entry in row)) <= schema.bound
    assert np.array_equal(np.isnan(labels), np.isnan(Table(table).numbers("y")))
    assert np.all(np.isnan(labels) | ((labels >= 0) & (labels <= 1)))


def test_a_row_depends_on_that_row_only():
    schema = schemas(row_norm=0.7)
    table = {"x": [1.0, None, 9.0], "z": [0.0, 1.0, 5e-10], "c": ["A", "?", None], "y": [0, 1, 2]}
    whole = schema.matrix(table)
    for index in range(3):
        alone = schema.matrix({name: [column[index]] for name, column in table.items()})
        assert np.array_equal(alone[0], whole[index])


@pytest.mark.parametrize("scale", ["unit", "symmetric"])
def test_the_bound_is_reached(scale):
    """Were the bound 2% smaller, this would fail."""
    schema = schemas(scale=scale)
    table = {"x": [3.0, None, -2.0], "z": [1.0] * 3, "c": ["A"] * 3, "y": [0] * 3}
    lengths = np.linalg.norm(schema.matrix(table), axis=1)
    assert lengths.max() <= schema.bound
    assert lengths.max() > 0.98 * schema.bound


def test_an_empty_cell_of_a_narrow_range_keeps_the_bound():
    """The middle of two adjacent floats is one of them, which exceeds the bound."""
    column = Number("x", 1 + 2**-52, 1 + 2**-51, nullable=True)
    schema = Schema((column,), scale="unit", intercept=False)
    assert schema.matrix({"x": [None]}).tolist() == [[0.5, 1.0]]
    assert np.linalg.norm(schema.matrix({"x": [None]})) <= schema.bound


@pytest.mark.parametrize("kind", [np.int8, np.float32, np.float64, np.longdouble, Fraction])
def test_numbers_of_any_kind_are_facts(kind):
    schema = Schema(
        (Number("x", kind(-100), kind(100), np.True_),), row_norm=kind(2), intercept=np.False_
    )
    assert schema.matrix({"x": [50.0]}).tolist() == [[0.5, 0.0]]
    assert schema.matrix({"x": [50.0]}).dtype == np.float64
    assert Schema.from_toml(schema.to_toml()) == schema
    assert from_json(json.loads(json.dumps(schema.to_json())), Schema) == schema


def test_a_whole_number_is_a_category_with_and_without_its_decimal_point():
    schema = Schema.from_toml("intercept = false\n[columns.c]\ncategories = [1.0, 2.5, 'v3.0']")
    assert schema.matrix({"c": [1.0, 1, "1.0", 2.5, "v3"]}).argmax(axis=1).tolist() == [
        0,
        0,
        0,
        1,
        3,
    ]
    assert Category("c", ("1.0", "1")).codes(Table({"c": [1.0, "1.0"]})).tolist() == [1, 0]


def test_wrong_facts_are_refused():
    for make, message in (
        (lambda: Number("x", -1e308, 1.7e308), "finite difference"),
        (lambda: Category("c", "xyz"), "tuple"),
        (lambda: Schema((), target=3), "target must be"),
        (lambda: Schema((), intercept="false"), "intercept must be true or false"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_frames_of_other_libraries_are_read_alike():
    plain = {"x": [1.0, None], "z": [0.0, 1.0], "c": ["A", "B"], "y": [0.5, 2.0]}
    schema = schemas()
    expected = schema.matrix(plain)
    for module in ("pandas", "polars", "pyarrow"):
        library = pytest.importorskip(module)
        frame = library.table(plain) if module == "pyarrow" else library.DataFrame(plain)
        assert np.array_equal(schema.matrix(frame), expected), module


def test_toml_and_json_round_trip():
    schema = Schema(
        (Number("a b", -1.5, 2, nullable=True), Category('q"uo\\te\n', ("x", "é", ""))),
        target=Category("label", ("no", "yes")), scale="symmetric", intercept=False, row_norm=2.0,
    )  # fmt: skip
    assert Schema.from_toml(schema.to_toml()) == schema
    assert from_json(json.loads(json.dumps(schema.to_json())), Schema) == schema


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[columns.age]\nlower = 0", "it takes lower, upper and nullable, or categories"),
        ("[columns.age]\nlower = 5\nupper = 5", "finite lower < upper"),
        ("[columns.age]\nlower = 0\nupper = nan", "upper must be a number"),
        ("[columns.age]\nlower = 0\nupper = 9\nwidth = 3", "it takes"),
        (
            "[columns.age]\nlower = 0\nupper = 9\nnullable = 'false'",
            "nullable must be true or false",
        ),
        ("intercept = 'false'", "intercept must be true or false"),
        ("[columns.c]\ncategories = []", "non-empty"),
        ("[columns.c]\ncategories = ['a', 'a']", "twice"),
        ("colour = 3", "no entry 'colour'"),
        ("columns = 3", "must be tables"),
        ("x = ", "not valid TOML"),
        ("x = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("scale = 'log'", "scale must be one of"),
        ("row_norm = -1", "row_norm must be"),
        ("[target]\nlower = 0", "needs a name"),
        ("[columns.y]\nlower=0\nupper=1\n[target]\nname='y'\nlower=0\nupper=1", "once"),
    ],
)
def test_bad_schemas_say_what_is_allowed(text, message):
    with pytest.raises(ValueError, match=message):
        Schema.from_toml(text)


def test_missing_columns_and_wrong_tables_are_public_facts():
    schema = schemas()
    with pytest.raises(ValueError, match="no column 'z'"):
        schema.matrix({"x": [1.0]})
    with pytest.raises(ValueError, match="one length"):
        schema.matrix({"x": [1.0], "z": [1.0, 2.0]})
    with pytest.raises(ValueError, match="not list"):
        Table([1, 2, 3])
    with pytest.raises(ValueError, match="no target"):
        Schema(()).labels({})


def test_numbers_are_centred_in_their_ranges_unless_the_schema_says_otherwise():
    table, column = {"x": [0.0, 1.0, 4.0]}, Number("x", 0, 4)
    for schema in (Schema((column,)), Schema.from_toml("[columns.x]\nlower = 0\nupper = 4\n")):
        assert schema.matrix(table)[:, 0].tolist() == [-1.0, -0.5, 1.0]
    old = Schema((column,), scale="unit")
    assert old.matrix(table)[:, 0].tolist() == [0.0, 0.25, 1.0]
    # What was written with the former default says so, and stays what it is.
    restored = (pickle.loads(pickle.dumps(old)), from_json(old.to_json(), Schema))
    assert all(each == old for each in (*restored, Schema.from_toml(old.to_toml())))
