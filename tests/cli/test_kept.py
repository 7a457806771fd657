"""Outputs are created before the charge; a result that cannot be written is printed."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpfit.ledger import Ledger, LedgerUnavailable
from dpfit.ledger.account import DatasetAccount
from dpfit.privacy import Budget

ROOT = Path(__file__).parents[2]
FIT = ("--model", "logistic", "--epsilon", 0.5)
QUERY = ("--by", "ward", "--epsilon", 0.5)
COMMANDS = {"fit": FIT, "query": QUERY}
EVERY = pytest.mark.parametrize("command", COMMANDS)


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger.create(tmp_path / "budgets.ledger")
    ledger.register("patients", Budget(epsilon=10.0), note="Ä")
    return ledger


@pytest.fixture
def asked(table, ill, ledger):
    """The words of a command that is charged."""

    def words(command):
        return (
            command,
            table,
            "--schema",
            ill,
            *COMMANDS[command],
            "--ledger",
            ledger.path,
            "--dataset",
            "patients",
        )

    return words


def reservations(ledger) -> int:
    return ledger.status("patients").reservations


def process(*words, stdout=subprocess.PIPE, **environment):
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "dpfit", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "120", **environment},
        stdout=stdout,
        stderr=subprocess.PIPE,
        check=False,
    )


@EVERY
@pytest.mark.parametrize("option", ["--out", "--report"])
@pytest.mark.parametrize("place", ["/proc/file", "dangling", "none/file", "."])
def test_an_output_that_cannot_be_made_is_refused_before_the_charge(
    dpfit, asked, ledger, tmp_path, command, option, place
):
    (tmp_path / "dangling").symlink_to(tmp_path / "none" / "target")
    result = dpfit(*asked(command), option, tmp_path / place)
    assert result.exit_code == 2, result.output
    assert reservations(ledger) == 0


@EVERY
@pytest.mark.parametrize("second", ["one", "./one", "link/one"])
def test_two_outputs_have_two_names(dpfit, asked, ledger, tmp_path, command, second):
    (tmp_path / "link").symlink_to(tmp_path)
    result = dpfit(*asked(command), "--out", tmp_path / "one", "--report", f"{tmp_path}/{second}")
    assert result.exit_code == 2
    assert "one file" in result.stderr
    assert reservations(ledger) == 0
    assert not (tmp_path / "one").exists()


@EVERY
def test_a_refused_command_leaves_no_file(dpfit, asked, ledger, tmp_path, command):
    refused = dpfit(
        *asked(command), "--epsilon", 100, "--out", tmp_path / "one", "--report", tmp_path / "two"
    )
    assert refused.exit_code == 1
    assert not (tmp_path / "one").exists()
    assert not (tmp_path / "two").exists()


@EVERY
@pytest.mark.parametrize("option", ["--out", "--report"])
def test_a_result_that_does_not_fit_on_the_disk_is_printed(
    dpfit, asked, ledger, table, tmp_path, monkeypatch, command, option
):
    file, sync = tmp_path / "file", os.fsync

    def full(handle):
        if file.exists() and os.path.sameopenfile(handle, (at := os.open(file, os.O_RDONLY))):
            os.close(at)
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    result = dpfit(*asked(command), option, file)
    monkeypatch.undo()
    assert result.exit_code == 2
    assert "No space left" in result.stderr
    assert not file.exists()
    assert reservations(ledger) == 1
    found = json.loads(result.stdout)
    if command == "query":
        assert [line["label"] for line in found["counts"]] == [
            "ward = north",
            "ward = south",
            "ward = other",
        ]
        return
    file.write_text(result.stdout, encoding="utf-8")
    assert dpfit("predict", file, table).exit_code == 0


@EVERY
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_result_that_cannot_be_printed_goes_to_the_error_stream(asked, ledger, command, more):
    with open("/dev/full", "w") as full:
        result = process(*asked(command), *more, stdout=full)
    assert result.returncode != 0
    assert reservations(ledger) == 1
    line = next(line for line in result.stderr.decode().splitlines() if line.startswith("{"))
    assert json.loads(line)["model" if command == "fit" else "counts"]


def test_a_table_that_is_asked_for_is_written_with_json_too(dpfit, asked, tmp_path):
    result = dpfit(*asked("query"), "--json", "--out", tmp_path / "counts.csv")
    assert json.loads(result.stdout)["counts"]
    assert (tmp_path / "counts.csv").read_text(encoding="utf-8").startswith("count of,")


@EVERY
def test_a_closing_row_that_cannot_be_written_is_a_warning(
    dpfit, asked, ledger, monkeypatch, command
):
    def locked(*_):
        raise LedgerUnavailable("the ledger is locked")

    monkeypatch.setattr(DatasetAccount, "commit", locked)
    result = dpfit(*asked(command), "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["promise"]
    assert result.stderr.startswith("warning: ")
    assert "the ledger is locked" in result.stderr
    assert reservations(ledger) == 1


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1:strict", "cp1252"])
def test_any_encoding_of_the_terminal_works(table, ledger, tmp_path, encoding):
    schema = tmp_path / "accents.toml"
    schema.write_text(
        '[columns.age]\nlower = 0\nupper = 100\n\n[columns.ward]\ncategories = ["north", "Ärzte€ '
        '\\U0001F600"]\n'
        '\n[target]\nname = "ill"\ncategories = ["no", "señor Łukasz"]\n',
        encoding="utf-8",
    )
    paid = ("--schema", schema, "--ledger", ledger.path, "--dataset", "patients")
    model = tmp_path / f"mödel {encoding}"
    for words in (
        ("query", table, *QUERY, *paid),
        ("fit", table, *FIT, *paid, "--out", model),
        ("predict", model, table),
        ("ledger", "show", ledger.path),
    ):
        result = process(*words, PYTHONIOENCODING=encoding)
        assert result.returncode == 0, result.stderr.decode(errors="replace")
        assert result.stdout


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_step_of_a_stream_that_cannot_be_printed_is_not_lost(dpfit, ledger, tmp_path, more):
    """It goes to the error stream, and the same answer is shown again without a charge."""
    ledger.register("visits", Budget(epsilon=1.0, relation="add_remove"))
    schema, table, stream = (tmp_path / name for name in ("ward.toml", "1.csv", "stream"))
    schema.write_text('[columns.ward]\ncategories = ["A", "B"]\n')
    table.write_text("ward\n" + "A\nB\nA\n" * 10)
    opened = dpfit(
        "stream", "open", stream, "--schema", schema, "--by", "ward", "--steps", 4,
        "--epsilon", 1, "--ledger", ledger.path, "--dataset", "visits",
    )  # fmt: skip
    assert opened.exit_code == 0, opened.stderr
    with open("/dev/full", "w") as full:
        lost = process("stream", "add", stream, table, *more, stdout=full)
    assert lost.returncode != 0
    line = next(line for line in lost.stderr.decode().splitlines() if line.startswith("{"))
    again = dpfit("stream", "add", stream, tmp_path / "gone.csv", "--step", 1, "--json")
    assert again.exit_code == 0, again.stderr
    assert json.loads(line)["estimates"] == json.loads(again.stdout)["estimates"]
    assert ledger.status("visits").reservations == 1
