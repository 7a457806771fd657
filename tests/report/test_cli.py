"""``dpfit audit --report``."""

import numpy as np
import pytest
from typer.testing import CliRunner

from dpfit.cli.app import app
from dpfit.mechanisms.mean import NoisyMean


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_a_page_is_written(tmp_path):
    page = tmp_path / "audit.html"
    assert run("audit", "laplace_mean", "--runs", "400", "--report", str(page)).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert "Audit of laplace_mean" in text


def test_a_broken_promise_is_on_the_page_and_in_the_exit_status(tmp_path, monkeypatch):
    monkeypatch.setattr(
        NoisyMean, "run", lambda self, data, run: np.asarray(data.given).mean(axis=0)
    )
    page = tmp_path / "audit.html"
    assert run("audit", "laplace_mean", "--runs", "400", "--report", str(page)).exit_code == 1
    assert "The promise is broken." in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("option", ["--report", "--plot"])
def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path, option):
    result = run(
        "audit", "laplace_mean", "--runs", "400", option, str(tmp_path / "none" / "file.html")
    )
    assert result.exit_code == 2
    assert "error" in result.stderr
    assert "Traceback" not in result.stderr
