"""Records without an outcome add nothing, and the declared number of records stays."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from dpfit.core import plan_from_json
from dpfit.core.notes import MissingOutcomes
from dpfit.data.dataset import InMemory
from dpfit.data.files import read_table, records, scan_parquet
from dpfit.data.schema import Category, Number, Schema
from dpfit.data.table import Table
from dpfit.models import BoundedMean, LinearRegression, LogisticRegression
from dpfit.report import report

N = 2000
X = np.random.default_rng(1).uniform(0, 1, size=(N, 1))
KNOWN = X[:, 0] > 0.6
LINE = np.where(KNOWN, 1 + 5 * X[:, 0], np.nan)
SICK = np.array(["no", "yes"], dtype=object)[(X[:, 0] > 0.8).astype(int)]
SCHEMA = Schema((Number("x", 0, 1),), target=Number("y", 0, 10))
BOUNDS = {"bounds": (0, 1), "y_bounds": (0, 10)}
RELATIONS = [
    {"relation": "replace"},
    {"relation": "add_remove", "n_declared": int(KNOWN.sum())},
]


@pytest.mark.parametrize("options", RELATIONS, ids=lambda options: options["relation"])
def test_a_missing_number_pulls_a_line_nowhere(options):
    """It was the middle of the range: the line through all records is far from 1 + 5 x."""
    model = LinearRegression(1e5, **BOUNDS, **options).fit(X, LINE)
    assert model.coef_ == pytest.approx([5], abs=0.05)
    assert model.intercept_ == pytest.approx(1, abs=0.05)
    assert model.plan_.problem is None or model.plan_.problem.n == len(X)


@pytest.mark.parametrize("odd", [None, "perhaps", float("nan")])
def test_a_missing_class_pulls_a_margin_nowhere(odd):
    labels = SICK.copy()
    labels[~KNOWN] = odd
    model = LogisticRegression(1e5, bounds=(0, 1), classes=["no", "yes"]).fit(X, labels)
    assert (model.predict(X[KNOWN]) == SICK[KNOWN]).mean() > 0.97
    whole = LogisticRegression(1e5, bounds=(0, 1), classes=["no", "yes"])
    filled = np.where(KNOWN, SICK, "yes")  # had the missing ones been invented
    assert whole.fit(X, filled).predict([[0.1]]) != model.predict([[0.1]])


def test_a_mean_with_a_declared_number_is_that_of_the_known_entries():
    column = LINE[:, None]
    mean = BoundedMean(1e5, bounds=(0, 10), relation="add_remove", n_declared=int(KNOWN.sum())).fit(
        column
    )
    assert mean.location_ == pytest.approx([np.nanmean(column)], abs=1e-3)


@pytest.mark.parametrize("model", [LinearRegression(), LogisticRegression()])
def test_plans_and_reports_say_what_becomes_of_them(model):
    plan = model.set_params(bounds=(0, 1)).plan(500, 3)
    text = "a record without an outcome adds nothing"
    assert [line for line in plan.explain().splitlines() if line.startswith("missing")]
    assert text in plan.explain()
    assert text in report(plan)
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    refusing = model.set_params(bounds=None, schema=replace(SCHEMA, missing="refuse")).plan(500)
    assert "is refused" in refusing.explain()
    assert MissingOutcomes("refuse") in refusing.notes


def test_the_rule_is_written_in_the_target():
    text = '[columns.x]\nlower = 0\nupper = 1\n[target]\nname = "y"\nlower = 0\nupper = 10\n'
    dropping, refusing = (
        Schema.from_toml(text + more) for more in ('missing = "drop"', 'missing = "refuse"')
    )
    assert Schema.from_toml(text) == dropping
    assert (dropping.missing, refusing.missing) == ("drop", "refuse")
    assert Schema.from_toml(refusing.to_toml()) == refusing
    assert "missing" not in dropping.to_json()
    with pytest.raises(ValueError, match="missing must be one of"):
        Schema.from_toml(text + 'missing = "guess"')
    with pytest.raises(ValueError, match="it takes"):
        Schema.from_toml(text.replace("upper = 1\n", 'upper = 1\nmissing = "drop"\n'))


PLAIN = [1.0, 2.0, 3.0]
COLUMNS = {
    "floats": (np.array(PLAIN), False),
    "integers": (np.array([1, 2, 3]), False),
    "truth values": (np.array([True, False, True]), False),
    "texts": (np.array(["1", "2", "3"]), False),
    "objects": (np.array(PLAIN, dtype=object), True),
    "list": (PLAIN, True),
    "pandas": (pd.Series(PLAIN), False),
    "pandas objects": (pd.Series(PLAIN, dtype=object), True),
    "pandas nullable": (pd.Series(PLAIN, dtype="Float64"), True),
    "pandas boolean": (pd.Series([True, False, True], dtype="boolean"), True),
    "pandas category": (pd.Series(["1", "2", "3"], dtype="category"), True),
    "polars": (pl.Series(PLAIN), True),
    "arrow": (pa.chunked_array([PLAIN]), True),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_type_is_refused_and_never_a_value(name):
    column, nullable = COLUMNS[name]
    refusing = replace(SCHEMA, missing="refuse")
    assert Table({"y": column}).can_be_empty("y") is nullable
    for schema in (SCHEMA, refusing):
        if nullable and schema is refusing:
            with pytest.raises(ValueError, match="refuses missing outcomes"):
                schema.labels({"y": column})
        else:
            assert schema.labels({"y": column}).shape == (3,)
    if name == "floats":  # NaN is a value: it is dropped, and nothing is said
        assert np.isnan(refusing.labels({"y": np.array([1.0, np.nan, 3.0])})).sum() == 1


def test_a_model_with_a_schema_refuses_labels_by_their_type(tmp_path):
    schema = replace(SCHEMA, missing="refuse")
    model = LinearRegression(1.0, schema=schema)
    table = {"x": X[:, 0]}
    with pytest.raises(ValueError, match="refuses missing outcomes"):
        model.fit(table, pd.Series(LINE, dtype="Float64"))
    assert model.fit(table, np.nan_to_num(LINE)).private_
    with pytest.raises(ValueError, match="must have one entry for each record"):
        model.fit(table, np.nan_to_num(LINE)[1:])


def test_files_are_refused_before_anything_is_read(tmp_path):
    schema = replace(SCHEMA, missing="refuse")
    columns = {"x": pa.array(PLAIN), "y": pa.array(PLAIN)}
    for required in (True, False):
        fields = [pa.field("x", pa.float64()), pa.field("y", pa.float64(), nullable=not required)]
        path = tmp_path / f"{required}.parquet"
        parquet.write_table(pa.table(columns, schema=pa.schema(fields)), path)
        if required:
            assert scan_parquet(path, schema).n == records(read_table(path), schema).n == 3
            continue
        with pytest.raises(ValueError, match="refuses missing outcomes"):
            scan_parquet(path, schema)
    path = tmp_path / "x.csv"
    path.write_text("x,y\n1,2\n")
    with pytest.raises(ValueError, match="refuses missing outcomes"):
        records(read_table(path), schema)
    assert isinstance(records(read_table(path), SCHEMA), InMemory)


def test_a_category_that_is_not_listed_is_a_missing_outcome():
    schema = Schema((Number("x", 0, 1),), target=Category("y", ("a", "b")))
    assert re.sub(r"\s", "", str(schema.labels({"y": ["a", "z", None, "b"]}))) == "[0.nannan1.]"
