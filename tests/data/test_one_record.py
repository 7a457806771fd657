"""Each record is read by itself: no record changes how others are read or reported."""

import datetime as dt
import math
import random
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from dpfit.data.arrays import as_rows
from dpfit.data.dataset import InMemory
from dpfit.data.files import csv_names, parsed_csv, read_table, records, scan_parquet
from dpfit.data.schema import Category, Number, Schema
from dpfit.data.table import Table

SCHEMA = Schema(
    (Number("x", 0, 10, nullable=True), Category("c", ("A", "NA", "null"))),
    target=Number("y", 0, 1),
)
PLAIN = {
    "x": [1.0, 2.5, 3.0, 4.0, 9.0],
    "c": ["A", "NA", "null", "Z", "A"],
    "y": [0.0, 1.0, 0.5, 0.2, 0.9],
}
AT = 2
ODD = [
    None, math.nan, math.inf, -1e308, 10**400, "", "x", "True", True, b"\xff", b"7", [1], (1, 2),
    {}, 1j, np.complex128(1j), np.longdouble("1e4000"), dt.date(2020, 1, 1), pd.NaT, pd.NA, "\x00",
    '"', "a,b", "\r", "é" * 10, "z" * 200_000,
]  # fmt: skip


def read(source):
    """All that is read of a table, or of rows with labels."""
    if isinstance(source, InMemory):
        rows = source.matrix.toarray() if hasattr(source.matrix, "toarray") else source.matrix
        return np.column_stack([rows, source.labels])
    data = records(source, SCHEMA)
    return np.column_stack([data.matrix, data.labels])


def parquet_file(table, folder):
    path = folder / "x.parquet"
    parquet.write_table(table, path, row_group_size=2)
    blocks = scan_parquet(path, SCHEMA, rows_per_block=2)
    assert np.array_equal(np.array(list(blocks)), read(read_table(path)), equal_nan=True)
    return read_table(path)


def csv_file(table, folder, ending="\n", separator=","):
    path = folder / "x.csv"
    lines = [
        separator.join("xcy"),
        *(
            separator.join("" if cell is None else str(cell) for cell in row)
            for row in zip(*table.values(), strict=True)
        ),
    ]
    path.write_bytes(
        "".join(line.replace("\n", " ") + ending for line in lines).encode(errors="replace")
    )
    return read_table(path)


def typed(cells, kind):
    """A column with one odd cell, in a type that holds it; else the cell is empty."""
    try:
        return pa.array(cells, kind)
    except Exception:
        return pa.array([*cells[:AT], None, *cells[AT + 1 :]], kind)


def arrow(table):
    kinds = {"x": pa.float64(), "c": pa.string(), "y": pa.float64()}
    return pa.table({name: typed(cells, kinds[name]) for name, cells in table.items()})


WAYS = {
    "mapping": lambda table, _: table,
    "objects": lambda table, _: {name: objects(cells) for name, cells in table.items()},
    "pandas": lambda table, _: pd.DataFrame(
        {name: objects(cells) for name, cells in table.items()}
    ),
    "arrow": lambda table, _: arrow(table),
    "polars": lambda table, _: pl.from_arrow(arrow(table)),
    "dictionary": lambda table, _: arrow(table).set_column(
        1, "c", arrow(table)["c"].dictionary_encode()
    ),
    "parquet": lambda table, folder: parquet_file(arrow(table), folder),
    "csv": csv_file,
    "csv with CR LF": lambda table, folder: csv_file(table, folder, "\r\n"),
    "csv with semicolons": lambda table, folder: csv_file(table, folder, separator=";"),
    "csv with tabs": lambda table, folder: csv_file(table, folder, separator="\t"),
    "lists": lambda table, _: InMemory(pairs(table), table["y"]),
    "rows": lambda table, _: InMemory(as_rows(pairs(table), 2, "cells"), [0.0] * 5),
}


def pairs(table):
    return [list(row) for row in zip(table["x"], table["y"], strict=True)]


def objects(cells):
    found = np.empty(len(cells), dtype=object)
    found[:] = cells
    return found


@pytest.mark.parametrize("cell", ODD, ids=lambda cell: repr(cell)[:20])
@pytest.mark.parametrize("way", WAYS)
def test_an_odd_cell_changes_its_record_alone(way, cell, tmp_path, capfd):
    base = read(WAYS[way](PLAIN, tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in PLAIN:
            changed = {**PLAIN, name: [*PLAIN[name][:AT], cell, *PLAIN[name][AT + 1 :]]}
            found = read(WAYS[way](changed, tmp_path))
            assert found.shape == base.shape
            assert found.dtype == base.dtype
            assert np.array_equal(np.delete(found, AT, 0), np.delete(base, AT, 0), equal_nan=True)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e300, 0.0])
@pytest.mark.parametrize("make", [np.array, np.asfortranarray, csr_array])
def test_a_number_of_an_array_changes_its_record_alone(make, value):
    rows = np.arange(1.0, 11.0).reshape(5, 2)
    base = read(InMemory(make(rows), np.ones(5)))
    rows[AT] = value
    found = read(InMemory(make(rows), np.ones(5)))
    assert np.array_equal(np.delete(found, AT, 0), np.delete(base, AT, 0))


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        (2**31 - 1, pl.Date),
        (-(2**31), pl.Date),
        (2**62, pl.Datetime("ms")),
        (2**62, pl.Datetime("us", "Europe/Berlin")),
        (-(2**62), pl.Duration("ms")),
    ],
)
def test_a_moment_that_no_calendar_has_is_an_empty_cell(steps, kind, capfd):
    """polars panics, which is no Exception, and writes to standard error."""
    base = pl.Series([0, 1, 2]).cast(pl.Int32 if kind == pl.Date else pl.Int64)
    expected = Table({"when": base.cast(kind)}).texts("when")
    found = Table({"when": base.replace(1, steps).cast(kind)})
    assert expected == [str(cell) for cell in base.cast(kind).to_list()]
    assert found.texts("when") == [expected[0], None, expected[2]]
    assert np.isnan(found.numbers("when")).all()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("encoded", [False, True])
def test_a_bad_byte_of_a_parquet_file_is_an_empty_cell(encoded, tmp_path):
    offsets, content = np.array([0, 1, 7, 8], dtype=np.int32), b"Asecre\xff7"
    texts = pa.StringArray.from_buffers(3, pa.py_buffer(offsets.tobytes()), pa.py_buffer(content))
    codes = pa.array([0, 1, 2, 0, 1], pa.int32())
    cells = pa.DictionaryArray.from_arrays(codes, texts) if encoded else texts.take(codes)
    parquet.write_table(pa.table({"c": cells}), tmp_path / "x.parquet", row_group_size=2)
    table = Table(read_table(tmp_path / "x.parquet"))
    assert table.texts("c") == ["A", None, "7", "A", None]
    assert table.numbers("c")[2] == 7.0
    schema = Schema((Category("c", ("A", "7")),))
    assert len(list(scan_parquet(tmp_path / "x.parquet", schema, rows_per_block=2))) == 5


def csv_cells(path, content):
    path.write_bytes(content)
    table = read_table(path)
    return table.schema, list(zip(*table.to_pydict().values(), strict=True))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\nx,c\n1,A\n", [("1", "A")]),
        (b"\r\n\r\nx,c\r\n1,A\r\n", [("1", "A")]),
        (b"\xef\xbb\xbfx,c\n1,A", [("1", "A")]),
        (b"x,c\n\n1\n1,A,3\n  \n", [(None, None), ("1", None), ("1", "A"), ("  ", None)]),
        (b'x,c\n"1,A\n"2","a ""b"", c"\n3,"', [("1,A", None), ("2", 'a "b", c'), ("3", None)]),
        (b"x,c\n1\r2,A\n\xff,\xc3\n", [("1\r2", "A"), ("�", "�")]),
        (b"x,c\nNA,null\n\"\",n/a\n", [("NA", "null"), (None, "n/a")]),
        (b"x,c\n" + b"z" * 3_000_000 + b",A\n", [("z" * 3_000_000, "A")]),
    ],
)  # fmt: skip
def test_a_line_is_a_record(tmp_path, content, expected):
    schema, found = csv_cells(tmp_path / "x.csv", content)
    assert schema.names == ["x", "c"]
    assert set(map(str, schema.types)) == {"large_string"}
    assert found == expected


def test_an_empty_cell_of_the_only_column_is_a_record(tmp_path):
    assert csv_cells(tmp_path / "x.csv", b"x\n1\n\n3\n")[1] == [("1",), (None,), ("3",)]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_the_header_alone_says_how_cells_are_separated(separator, tmp_path):
    lines = ["x,c", '1.5,"a, b"', "2,", "-3,x,y"]
    cut = [line.replace(",", separator).replace(f"a{separator}", "a,") for line in lines]
    found = csv_cells(tmp_path / "x.csv", "\n".join(cut).encode())
    assert found == csv_cells(tmp_path / "y.csv", "\n".join(lines).encode())
    assert csv_names(tmp_path / "x.csv") == ["x", "c"]


def test_a_quoted_name_may_hold_a_comma(tmp_path):
    schema, found = csv_cells(tmp_path / "x.csv", b'"size, cm";c\n4;A\n')
    assert (schema.names, found) == (["size, cm", "c"], [("4", "A")])


def test_between_semicolons_numbers_may_have_a_decimal_comma(tmp_path):
    content = "x;c\n3,5;A\n-0,25;1,5\n1,234,567;a,b\n"
    assert csv_cells(tmp_path / "x.csv", content.encode())[1] == [
        ("3.5", "A"), ("-0.25", "1.5"), ("1,234,567", "a,b"),
    ]  # fmt: skip


LINES = st.binary(max_size=40).map(lambda line: line.replace(b"\n", b""))


@pytest.mark.parametrize("header", [b"x,c,y", b"x;c;y"])
@given(lines=st.lists(LINES, min_size=1, max_size=6), other=LINES, data=st.data())
def test_neighbouring_csv_files_differ_in_one_record(tmp_path_factory, header, lines, other, data):
    at = data.draw(st.integers(0, len(lines) - 1))
    check_neighbours(tmp_path_factory.mktemp("csv") / "x.csv", header, lines, at, other)


def check_neighbours(path, header, lines, at, other):
    changed = [*lines[:at], other, *lines[at + 1 :]]
    (kind, found), (same, after) = (
        parsed_csv(path, b"".join(line + b"\n" for line in (header, *each)))
        for each in (lines, changed)
    )
    found, after = (list(zip(*cells, strict=True)) for cells in (found, after))
    assert kind == same
    assert len(found) == len(after) == len(lines)
    assert found[:at] + found[at + 1 :] == after[:at] + after[at + 1 :]


PIECES = [
    b",", b'"', b'""', b"\r", b" ", b"\t", b"\x00", b"\xff", b"\xc3", b"\xc3\xa9",
    b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"1", b"-1e999", b"NA",
    b"null", b"nan", b"A", b"3,5", b"'", b"\\", b"\\n", b"\x1a", b"\x85", b"\x0b", b"\x0c", b"#",
    b";",
]  # fmt: skip


@pytest.mark.slow
def test_a_hundred_thousand_pairs_of_neighbouring_csv_files(tmp_path):
    draw = random.Random(4)

    def line():
        return b"".join(draw.choices(PIECES, k=draw.randrange(9)))

    for pair in range(100_000):
        lines = [line() for _ in range(draw.randrange(1, 5))]
        header = draw.choice([b"x", b"x,c,y", b"x,c,y\r", b"\n\r\nx,c", b"x;c;y", b"x\tc\ty"])
        path, at, other = tmp_path / f"{pair % 8}.csv", draw.randrange(len(lines)), line()
        check_neighbours(path, header, lines, at, other)
        if header in (b"x,c,y", b"x;c;y") and pair % 5 == 0:
            check_records(path, header, lines, at, other)


def check_records(path, header, lines, at, other):
    """The same from the file to the records of a schema, with the dtype of every column."""
    found = []
    for each in (lines, [*lines[:at], other, *lines[at + 1 :]]):
        path.write_bytes(b"".join(line + b"\n" for line in (header, *each)))
        table = read_table(path)
        found.append((table.schema, np.delete(read(table), at, 0)))
    (kinds, mine), (same, theirs) = found
    assert kinds == same
    assert np.array_equal(mine, theirs, equal_nan=True)
