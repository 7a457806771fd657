"""Errors of any kind: one sentence, a documented exit status, a traceback only on request."""

import subprocess
import sys
from pathlib import Path

import pytest

from dpfit.cli import fit as command
from dpfit.cli.errors import REFUSED, UNEXPECTED, WRONG, described
from dpfit.ledger import LedgerUnavailable
from dpfit.privacy import Budget


def raised(make):
    try:
        make()
    except Exception as error:
        return error
    raise RuntimeError("nothing was raised")


def locked():
    raise LedgerUnavailable("the ledger is\nlocked")


@pytest.mark.parametrize(
    ("make", "status", "words"),
    [
        (locked, REFUSED, "the ledger is locked"),
        (lambda: Budget(epsilon=-1.0), WRONG, "above 0"),
        (
            lambda: Path("/no/such/file").read_text(encoding="utf-8"),
            WRONG,
            "/no/such/file: No such file",
        ),
        (lambda: float("Mrs Smith"), UNEXPECTED, "(ValueError)"),
        (lambda: {}["Mrs Smith"], UNEXPECTED, "(KeyError)"),
    ],
)
def test_kinds_of_errors(make, status, words):
    found, sentence = described(raised(make))
    assert found == status
    assert words in sentence
    assert "\n" not in sentence
    assert "Smith" not in sentence


@pytest.mark.parametrize("kind", [ValueError, KeyError, RuntimeError])
def test_errors_of_other_libraries_are_not_quoted(dpfit, table, ill, monkeypatch, kind):
    def broken(*arguments):
        raise kind("cannot convert 'Mrs Smith'")

    monkeypatch.setattr(command, "fit_table", broken)
    asked = ("fit", table, "--schema", ill, "--model", "logistic", "--epsilon", 1)
    result = dpfit(*asked)
    assert result.exit_code == UNEXPECTED
    assert result.output.count("\n") == 1
    assert "Smith" not in result.output
    assert kind.__name__ in result.stderr
    for place in (0, len(asked)):
        shown = dpfit(*asked[:place], "--debug", *asked[place:])
        assert isinstance(shown.exception, kind)


def test_debug_shows_errors_of_the_ledger_too(dpfit, tmp_path):
    assert dpfit("ledger", "show", tmp_path / "none").exit_code == REFUSED
    assert "there is no ledger" in str(
        dpfit("ledger", "show", tmp_path / "none", "--debug").exception
    )


def test_wrong_options_keep_their_own_message(dpfit):
    result = dpfit("fit", "table.csv", "--model", "logistic")
    assert result.exit_code == WRONG
    assert "--schema" in result.stderr


def test_help_lists_the_exit_statuses(dpfit):
    text = " ".join(dpfit("--help").stdout.split())
    assert "0 done; 1 refused" in text


def test_a_reader_that_stops_early_is_told_nothing():
    """As in ``dpfit algorithms --all --json | head``: the pipe closes before any output."""
    command = [sys.executable, "-m", "dpfit", "algorithms", "--all", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        told = process.stderr.read()
    assert told == b""
    assert process.returncode == 1
