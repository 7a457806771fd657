"""Files that differ in one line have the same exit status and the same words on the screen."""

import re

import pytest

from cli.conftest import ILL, SCHEMA

LINES = [
    b"", b'\xff,"', b"1e999,\x00,yes,9", b'"""""', b"a,b,c,d,e,f", b"\r", b"2020-99-99,NA,null,nan",
    b"z" * 100_000,
]  # fmt: skip


def told(dpfit, table, schema):
    """Status, errors and screen of a fit and of a form; numbers are noise."""
    fit = dpfit("fit", table, "--schema", schema, "--model", "logistic", "--epsilon", "1")
    form = dpfit("schema", table)
    screen = re.sub(r"[-\d.e ]+|\W", "", fit.stdout)
    return fit.exit_code, fit.stderr, screen, form.exit_code, form.stdout, form.stderr


def test_a_line_changes_neither_status_nor_words(dpfit, table, tmp_path):
    schema = tmp_path / "schema.toml"
    schema.write_text(SCHEMA + ILL)
    lines = table.read_bytes().splitlines()
    base = told(dpfit, table, schema)
    assert base[0] == base[3] == 0
    for line in LINES:
        table.write_bytes(b"\n".join([*lines[:40], line, *lines[41:]]) + b"\n")
        assert told(dpfit, table, schema) == base, line[:20]


@pytest.mark.parametrize("line", LINES[:3])
def test_a_line_changes_no_status_of_a_query(dpfit, table, tmp_path, line):
    schema = tmp_path / "schema.toml"
    schema.write_text(SCHEMA)
    asked = ("query", table, "--schema", schema, "--by", "ward", "--epsilon", "1")
    base = dpfit(*asked)
    lines = table.read_bytes().splitlines()
    table.write_bytes(b"\n".join([*lines[:40], line, *lines[41:]]) + b"\n")
    found = dpfit(*asked)
    assert (found.exit_code, found.stderr) == (base.exit_code, base.stderr) == (0, "")
