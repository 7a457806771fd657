"""From any container to the first step of a fit: one record changes what is read of it alone."""

import math
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.sparse import coo_array, csc_array, csr_array

from dpfit.core.plan import Step
from dpfit.data.schema import Category, Number, Schema
from dpfit.models import LinearRegression, LogisticRegression

N, AT = 9, 4
ROWS = np.random.default_rng(8).uniform(-2, 2, (N, 3))
YES = ROWS[:, 0] > 0
SCHEMA = Schema((Number("a", -1, 1), Category("b", ("u", "NA"))), target=Number("y", 0, 1))


def changed(values, cell):
    """The values with one entry replaced, as the container's own type can hold it."""
    other = np.array(values)
    with np.errstate(all="ignore"):
        other.flat[AT * (other.size // N)] = cell
    return other


def objects(values, cell):
    other = np.empty(N, dtype=object)
    other[:] = list(values)
    other[AT] = cell
    return other


def listed(values, cell):
    rows = values.tolist()
    rows[AT] = [cell, *rows[AT][1:]]
    return rows


NAMES = ["x", "y", "z"]
NUMBERS = [math.nan, math.inf, -math.inf, 1e300, 5e-324, 0.0]
ANYTHING = [*NUMBERS, None, "x", b"\xff", 10**400, [1], {}, 1j, pd.NA, pd.NaT, np.str_("0.5")]
ROW_WAYS = {
    "C order": (lambda cell: changed(ROWS, cell), NUMBERS),
    "Fortran order": (lambda cell: np.asfortranarray(changed(ROWS, cell)), NUMBERS),
    "float32": (lambda cell: changed(ROWS.astype(np.float32), cell), NUMBERS),
    "CSR": (lambda cell: csr_array(changed(ROWS, cell)), NUMBERS),
    "CSC": (lambda cell: csc_array(changed(ROWS, cell)), NUMBERS),
    "COO": (lambda cell: coo_array(changed(ROWS, cell)), NUMBERS),
    "pandas": (lambda cell: pd.DataFrame(changed(ROWS, cell), columns=NAMES), NUMBERS),
    "nullable": (
        lambda cell: pd.DataFrame(changed(ROWS, cell), columns=NAMES).astype("Float64"),
        NUMBERS,
    ),
    "polars": (lambda cell: pl.DataFrame(changed(ROWS, cell), schema=NAMES), NUMBERS),
    "arrow": (lambda cell: pa.table(dict(zip(NAMES, changed(ROWS, cell).T, strict=True))), NUMBERS),
    "list": (lambda cell: listed(ROWS, cell), ANYTHING),
    "tuple of rows": (lambda cell: tuple(map(tuple, listed(ROWS, cell))), ANYTHING),
}
LABEL_WAYS = {
    "list": (lambda cell: list(objects(YES, cell)), ANYTHING),
    "tuple": (lambda cell: tuple(objects(YES, cell)), ANYTHING),
    "objects": (lambda cell: objects(YES, cell), ANYTHING),
    "pandas objects": (lambda cell: pd.Series(objects(YES, cell)), ANYTHING),
    "pandas": (lambda cell: pd.Series(changed(YES * 1.0, cell)), NUMBERS),
    "boolean": (lambda cell: pd.Series(objects(YES, cell), dtype="boolean"), [None, pd.NA, True]),
    "category": (lambda cell: pd.Series(objects(YES, cell)).astype(TYPE), [None, True]),
    "polars": (lambda cell: pl.Series(changed(YES * 1.0, cell)), NUMBERS),
    "arrow": (lambda cell: pa.chunked_array([pa.array(changed(YES * 1.0, cell))]), NUMBERS),
    "floats": (lambda cell: changed(YES * 1.0, cell), NUMBERS),
    "column": (lambda cell: changed(YES * 1.0, cell)[:, None], NUMBERS),
}
TYPE = pd.CategoricalDtype([False, True])
TABLE_WAYS = {
    "mapping": (lambda cell: {"a": list(objects(ROWS[:, 0], cell)), "b": ["u"] * N}, ANYTHING),
    "pandas": (lambda cell: pd.DataFrame({"a": objects(ROWS[:, 0], cell), "b": "u"}), ANYTHING),
    "polars": (
        lambda cell: pl.DataFrame({"a": changed(ROWS[:, 0], cell), "b": ["u"] * N}),
        NUMBERS,
    ),
    "arrow": (lambda cell: pa.table({"a": changed(ROWS[:, 0], cell), "b": ["u"] * N}), NUMBERS),
}
CASES = [
    *(("rows", way, cell) for way, (_, cells) in ROW_WAYS.items() for cell in cells),
    *(("labels", way, cell) for way, (_, cells) in LABEL_WAYS.items() for cell in cells),
    *(("table", way, cell) for way, (_, cells) in TABLE_WAYS.items() for cell in cells),
]

BASES = {}


def seen(part, way, cell, monkeypatch):
    """What the step of a fit reads, every warning, and the type of what was fitted."""
    found = []

    def execute(step, data, run):
        for chunk in data.chunks():
            rows = chunk.rows.toarray() if hasattr(chunk.rows, "toarray") else chunk.rows
            found.append(np.column_stack([rows, chunk.labels]))
        return np.zeros(rows.shape[1])

    if part == "table":
        model, X, y = LinearRegression(1.0, schema=SCHEMA), TABLE_WAYS[way][0](cell), YES * 1.0
    elif part == "rows":
        model = LogisticRegression(1.0, bounds=(-1, 1), row_norm=1.2, classes=[False, True])
        X, y = ROW_WAYS[way][0](cell), YES
    else:
        model = LogisticRegression(1.0, bounds=(-1, 1), classes=[False, True])
        X, y = ROWS, LABEL_WAYS[way][0](cell)
    with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        patch.setattr(Step, "execute", execute)
        model.fit(X, y)
    words = [(warning.category, str(warning.message)) for warning in said]
    read = np.concatenate(found)
    return read, (words, read.dtype, model.coef_.shape, getattr(model, "classes_", None) is None)


@pytest.mark.parametrize(("part", "way", "cell"), CASES, ids=lambda value: repr(value)[:18])
def test_one_record_changes_what_a_fit_reads_of_it_alone(part, way, cell, monkeypatch, capfd):
    plain = {"labels": True, "rows": 0.25, "table": 0.25}[part]
    if (part, way) not in BASES:
        BASES[part, way] = seen(part, way, plain, monkeypatch)
    base, told = BASES[part, way]
    found, facts = seen(part, way, cell, monkeypatch)
    assert facts == told
    assert found.shape == base.shape
    assert np.array_equal(np.delete(found, AT, 0), np.delete(base, AT, 0), equal_nan=True)
    assert capfd.readouterr() == ("", "")
