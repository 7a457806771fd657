"""``dpfit schema``: a template that reads no cell, or, for public tables, a schema."""

import json
from dataclasses import replace
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

from dpfit.cli.app import app
from dpfit.data.schema import Category, Date, Number, Schema

HEADER = 'age,ward,"odd ""name"" = [x]"\n'


def run(*arguments: object):
    return CliRunner().invoke(app, ["schema", *map(str, arguments)])


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "patients.csv"
    path.write_text(HEADER + "34,A,secret1\n,B,secret2\n90,A,\n", encoding="utf-8")
    return path


def test_the_template_depends_on_the_header_only(table, tmp_path):
    other = tmp_path / "others" / "patients.csv"
    other.parent.mkdir()
    other.write_text(HEADER + '-1e300,"\nnever closed\x00', encoding="utf-8")
    first, second = run(table), run(other)
    assert first.exit_code == second.exit_code == 0
    assert first.stdout == second.stdout
    assert "secret" not in first.stdout


def test_the_parquet_template_depends_on_names_and_types_only(tmp_path):
    shown = []
    for values, words in (([1.0, 2.0], ["a", "b"]), ([np.nan, -7e9], [None, "zzz"])):
        path = tmp_path / "patients.parquet"
        parquet.write_table(pa.table({"age": pa.array(values), "ward": pa.array(words)}), path)
        shown.append(run(path).stdout)
    assert shown[0] == shown[1]
    assert (
        '[columns."age"]\n# lower = 0.0\n# upper = 100.0\n\n[columns."ward"]\n# categories'
        in shown[0]
    )


def test_a_template_that_is_not_filled_in_is_refused_with_the_name_of_the_column(table):
    with pytest.raises(ValueError, match="column 'age' has nothing; it takes lower, upper"):
        Schema.from_toml(run(table).stdout)


def test_a_template_that_is_filled_in_is_a_schema(table):
    text = run(table, "--target", "ward").stdout
    for lines in ("lower = 0.0", "upper = 100.0"):
        text = text.replace(f"# {lines}", lines, 2)
    head, target = text.split("[target]")
    text = head + "[target]" + target.replace("# categories", "categories")
    text = text.replace("\nlower = 0.0\nupper = 100.0\n# or\n", "\nlower = 0.0\nupper = 100.0\n")
    schema = Schema.from_toml(text)
    assert schema.columns == (Number("age", 0.0, 100.0), Number('odd "name" = [x]', 0.0, 100.0))
    assert schema.target == Category("ward", ("first", "second"))


def test_public_data_fill_it_in(table, tmp_path):
    out = tmp_path / "schema.toml"
    assert run(table, "--from-public-data", "--target", "ward", "--out", out).exit_code == 0
    assert "sound only if this table is public" in out.read_text(encoding="utf-8")
    schema = Schema.read(out)
    assert schema.columns == (
        Number("age", 34.0, 90.0, nullable=True),
        Category('odd "name" = [x]', ("secret1", "secret2")),
    )
    assert schema.target == Category("ward", ("A", "B"))


def test_public_columns_without_a_range_are_left_to_the_reader(tmp_path):
    path = tmp_path / "public.csv"
    rows = "".join(f"7,name {i},\n" for i in range(60))
    path.write_text("constant,identity,empty\n" + rows, encoding="utf-8")
    text = run(path, "--from-public-data").stdout
    assert "name 1" not in text
    for column in ("constant", "identity", "empty"):
        assert f'[columns."{column}"]\n# lower' in text


def test_dates_are_dates_in_the_form(tmp_path):
    days = [date(2025, 1, 3), None, date(2025, 2, 1)]
    path = tmp_path / "x.parquet"
    moments = pa.array(days).cast(pa.timestamp("ms"))
    parquet.write_table(pa.table({"day": days, "moment": moments}), path)
    assert "# lower = 2000-01-01\n# upper = 2030-12-31" in run(path).stdout
    public = Schema.from_toml(run(path, "--from-public-data").stdout)
    assert public.columns == tuple(
        Date(name, "2025-01-03", "2025-02-01", nullable=True) for name in ("day", "moment")
    )
    csv = tmp_path / "x.csv"
    csv.write_text("day;n\n2025-01-03;1\n;2\n2025-02-01;3\n", encoding="utf-8")
    found = Schema.from_toml(run(csv, "--from-public-data").stdout)
    assert found.columns == (replace(public.columns[0], name="day"), Number("n", 1.0, 3.0))


def test_the_template_as_json(table, tmp_path):
    text = run(table).stdout
    assert json.loads(run(table, "--json").stdout) == {
        "schema": "dpfit.schema/1",
        "toml": text,
        "out": None,
    }
    out = tmp_path / "schema.toml"
    assert json.loads(run(table, "--json", "--out", out).stdout)["out"] == str(out)
    assert out.read_text(encoding="utf-8") == text


def test_a_byte_order_mark_is_not_part_of_a_name(tmp_path):
    path = tmp_path / "excel.csv"
    path.write_bytes(b"\xef\xbb\xbfage\n1\n2\n")
    assert Schema.from_toml(run(path, "--from-public-data").stdout).columns == (
        Number("age", 1.0, 2.0),
    )


def test_a_file_that_exists_is_kept(table, tmp_path):
    out = tmp_path / "schema.toml"
    out.write_text("filled in by hand", encoding="utf-8")
    result = run(table, "--out", out)
    assert result.exit_code == 2
    assert "exists already" in result.stderr
    assert out.read_text(encoding="utf-8") == "filled in by hand"


@pytest.mark.parametrize(
    ("content", "arguments", "words"),
    [
        (None, (), "there is no file"),
        (b"", (), "not a readable table"),
        (b"\xff\xfe\x00secret", (), "not a readable table"),
        (b"age,age\n1,2\n", (), "two columns of one name"),
        (b"age\nsecret\n", ("--target", "ward"), "no column 'ward'; it has 'age'"),
    ],
)
def test_errors_are_one_sentence_without_cells(tmp_path, content, arguments, words):
    path = tmp_path / "patients.csv"
    if content is not None:
        path.write_bytes(content)
    result = run(path, *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert "secret" not in result.output
    assert not result.stdout
