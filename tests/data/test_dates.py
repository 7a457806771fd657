"""Columns of dates: days in a public range, read alike whichever way they come."""

import datetime as dt
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from dpfit.data.files import read_table, records, scan_parquet
from dpfit.data.schema import Category, Date, Number, Schema
from dpfit.data.table import Table
from dpfit.privacy.spec import from_json
from dpfit.queries import count, where
from dpfit.queries.axes import axis
from dpfit.queries.continual import Measures
from dpfit.queries.predicates import Predicates

YEAR = Date("admitted", "2025-01-01", "2025-12-31", nullable=True)
SCHEMA = Schema((YEAR, Category("ward", ("A", "B"))), intercept=False)
CELLS = ["2025-01-01", "2025-07-02", None, "1999-01-01", "2025-12-31"]
SCALED = [-1.0, 0.0, 0.0, -1.0, 1.0]
DATES = [dt.date.fromisoformat(cell) if cell else None for cell in CELLS]
MOMENTS = [dt.datetime.combine(day, dt.time(23, 59)) if day else None for day in DATES]
WAYS = {
    "texts": CELLS,
    "texts of moments": [cell and cell + "T23:59:59Z" for cell in CELLS],
    "dates": DATES,
    "moments": MOMENTS,
    "NumPy days": np.array(CELLS, dtype="datetime64[D]"),
    "NumPy nanoseconds": np.array([cell and cell + "T23" for cell in CELLS], "datetime64[ns]"),
    "NumPy objects": np.array(DATES, dtype=object),
    "pandas texts": pd.Series(CELLS),
    "pandas moments": pd.Series(pd.to_datetime(CELLS)),
    "pandas zone": pd.Series(pd.to_datetime(CELLS)).dt.tz_localize("Asia/Tokyo"),
    "polars dates": pl.Series(DATES),
    "polars moments": pl.Series(MOMENTS),
    "Arrow dates": pa.array(DATES),
    "Arrow nanoseconds": pa.array(MOMENTS, pa.timestamp("ns")),
    "Arrow texts": pa.chunked_array([CELLS[:2], CELLS[2:]]),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_gives_the_same_days(way):
    rows = SCHEMA.matrix({"admitted": WAYS[way], "ward": ["A"] * 5})
    np.testing.assert_array_equal(rows[:, 0], SCALED)
    np.testing.assert_array_equal(rows[:, 1], [0, 0, 1, 0, 0])


ODD = ["", "2025-02-30", "31.12.2025", "0000-00-00", 20250101, math.inf, pd.NaT, "9" * 4000, b"x",
       np.datetime64("NaT"), np.datetime64(2**62, "Y"), object(), "2025-01-01\x00"]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: str(odd)[:12].replace("\x00", "0"))
def test_an_odd_cell_is_an_empty_cell_of_its_own_record(odd):
    cells = np.array([*DATES[:2], odd, *DATES[3:]], dtype=object)
    rows = SCHEMA.matrix({"admitted": cells, "ward": ["A"] * 5})
    np.testing.assert_array_equal(rows[:, 0], SCALED)
    np.testing.assert_array_equal(rows[:, 1], [0, 0, 1, 0, 0])


def test_days_of_numpy_that_no_calendar_has_are_empty():
    cells = np.array([0, 2**62, -(2**62)], dtype="datetime64[Y]")
    assert np.isnan(Table({"t": cells}).days("t")).tolist() == [False, True, True]


def test_schemas_of_dates_are_stored_and_read():
    text = SCHEMA.to_toml()
    assert "lower = 2025-01-01" in text
    assert Schema.from_toml(text) == SCHEMA == from_json(SCHEMA.to_json(), Schema)
    moments = '[columns.t]\nlower = 2025-01-01T10:00:00\nupper = "2025-12-31"\n'
    assert Schema.from_toml(moments).columns == (Date("t", dt.date(2025, 1, 1), "2025-12-31"),)


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        ("2025-01-01", "2025-01-01", r"lower < upper .* \[2025-01-01, 2025-01-01\]"),
        ("soon", "2025-01-01", "lower must be a date such as 2025-01-31, got 'soon'"),
        ("2025-01-01", True, "upper must be a date"),
        ("2025-01-01", 10**30, "upper must be a date"),
        ("2025-01-01", 10**9, "upper must be a date"),
        (-(10**9), "2025-01-01", "lower must be a date"),
    ],
)
def test_ranges_that_are_none_are_refused(lower, upper, message):
    with pytest.raises(ValueError, match=message):
        Date("t", lower, upper)


def test_ends_of_two_kinds_are_refused():
    with pytest.raises(ValueError, match="'t' needs two dates or two numbers"):
        Schema.from_toml("[columns.t]\nlower = 5\nupper = 2025-01-01\n")
    with pytest.raises(ValueError, match="'t' has lower; it takes lower, upper and nullable"):
        Schema.from_toml("[columns.t]\nlower = 2025-01-01\n")


def test_a_date_is_no_target():
    with pytest.raises(ValueError, match="'t' is a date; models predict numbers and categories"):
        Schema((), target=Date("t", "2025-01-01", "2026-01-01"))


def test_bins_have_whole_days_and_are_named_by_dates():
    quarters = axis(SCHEMA, "admitted", {"admitted": 4})
    assert quarters.labels == (
        "[2025-01-01, 2025-04-02)", "[2025-04-02, 2025-07-02)", "[2025-07-02, 2025-10-01)",
        "[2025-10-01, 2025-12-31]", "missing",
    )  # fmt: skip
    halves = axis(SCHEMA, "admitted", {"admitted": ["2025-01-01", dt.date(2025, 7, 2), 20453]})
    found = count(
        {"admitted": CELLS * 1000}, SCHEMA, by="admitted", bins={"admitted": list(halves.edges)},
        epsilon=50.0, random_state=1,
    )  # fmt: skip
    np.testing.assert_allclose(found.values, [2000, 2000, 1000], atol=5)
    with pytest.raises(ValueError, match="'admitted' is a date: say how to cut it"):
        axis(SCHEMA, "admitted", {})
    with pytest.raises(ValueError, match="must rise from 2025-01-01 to 2025-12-31"):
        axis(SCHEMA, "admitted", {"admitted": 5000})


def test_predicates_of_dates_overlap_as_ranges_do():
    """As texts the two ranges would be disjoint, and a record would count in both."""
    first, second = (
        (dt.date(2025, 1, 1), dt.date(2025, 7, 1)),
        (dt.date(2025, 3, 1), dt.date(2025, 5, 1)),
    )
    with pytest.raises(ValueError, match="admitted from 2025-01-01 to 2025-07-01' and"):
        Predicates(SCHEMA.columns, (where(admitted=first), where(admitted=second)))
    apart = Predicates(
        SCHEMA.columns, (where(admitted=first), where(admitted=(first[1], dt.date(2025, 12, 31))))
    )
    assert apart.sums({"admitted": CELLS, "ward": ["A"] * 5}).tolist() == [2, 2]
    with pytest.raises(ValueError, match="'admitted' is a date: give a pair"):
        Predicates(SCHEMA.columns, (where(admitted=("2025-01-01", "2025-07-01")),))


def test_sums_of_dates_are_refused():
    with pytest.raises(ValueError, match="'admitted' has dates; sums are of numbers"):
        Measures.of(SCHEMA, by=["ward"], sums=["admitted"])


def test_a_number_is_no_date_and_a_date_no_number():
    table = {"x": ["2025-01-01", "20089"]}
    assert np.isnan(Number("x", 0, 1).values(Table(table))).tolist() == [True, False]
    assert np.isnan(Date("x", 0, 1).values(Table(table))).tolist() == [False, True]


@pytest.mark.parametrize("type_", [pa.date32(), pa.timestamp("ns"), pa.timestamp("us", "UTC")])
def test_files_of_dates_are_read_whole_and_block_by_block(type_, tmp_path):
    cells = pa.array([day and dt.datetime.combine(day, dt.time(9)) for day in DATES] * 200)
    table = pa.table({"admitted": cells.cast(type_, safe=False), "y": [0.0, 1.0] * 500})
    parquet.write_table(table, tmp_path / "t.parquet", row_group_size=250)
    schema = Schema((YEAR,), target=Number("y", 0, 1), intercept=False)
    whole = records(read_table(tmp_path / "t.parquet"), schema)
    np.testing.assert_array_equal(whole.matrix[:, 0], SCALED * 200)
    blocks = scan_parquet(tmp_path / "t.parquet", schema)
    np.testing.assert_array_equal(blocks.take(np.arange(1000)).rows, whole.matrix)
