"""``dpfit audit``: verdicts, exit statuses, JSON, figures."""

import builtins
import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from dpfit.audit import audit_entry, auditor
from dpfit.catalogue import ENTRIES
from dpfit.cli.audit import audit
from dpfit.mechanisms.mean import NoisyMean


@pytest.fixture
def call():
    app = typer.Typer()
    app.command()(audit)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_a_kept_promise_exits_with_zero_and_names_the_attacks(call):
    result = call("gaussian_mean", "--runs", "400")
    assert result.exit_code == 0
    assert "gaussian_mean: kept" in result.stdout
    assert "low bits" in result.stdout
    assert not result.stderr


def test_a_broken_promise_exits_with_one(call, monkeypatch):
    monkeypatch.setattr(
        NoisyMean, "run", lambda self, data, run: np.asarray(data.given).mean(axis=0)
    )
    result = call("laplace_mean", "--runs", "400", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)[0]["verdict"] == "broken"


def test_all_of_the_catalogue(call, monkeypatch):
    """All entries are planned at the budget; two are attacked here, and all in `test_standing`."""
    audited, kept = auditor.audit_plan, audit_entry("gaussian_mean", runs=400)

    def planned(plan, data, neighbour, *, subject, **options):
        if subject in ("gaussian_mean", "above_threshold"):
            return audited(plan, data, neighbour, subject=subject, **options)
        return replace(kept, subject=subject, promise=plan.guarantee)

    monkeypatch.setattr(auditor, "audit_plan", planned)
    result = call("--all", "--runs", "1000", "--json", "--mu", "1.5")
    assert result.exit_code == 0
    found = {row["subject"]: row for row in json.loads(result.stdout)}
    assert list(found) == [row.name for row in ENTRIES]
    assert found["gaussian_mean"]["promised"] == pytest.approx(1.5)
    assert found["above_threshold"]["promised"] == 1.0


def test_too_few_runs_exit_with_two(call):
    result = call("gaussian_mean", "--runs", "10")
    assert result.exit_code == 2
    assert "runs a side are needed" in result.stdout


def test_a_mechanism_of_ones_own(call, tmp_path, monkeypatch):
    (tmp_path / "audited_by_path.py").write_text(
        "def honest(data, source):\n    return round(1024 * (data.sum() + "
        "source.gaussian(1)[0])) / 1024\n"
        "def loud(data, source):\n    return data.sum() + 0.1 * source.gaussian(1)[0]\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    np.save(tmp_path / "a.npy", np.zeros(3))
    np.save(tmp_path / "b.npy", np.eye(3)[0])
    files = ("--data", str(tmp_path / "a.npy"), "--neighbour", str(tmp_path / "b.npy"))
    assert call("audited_by_path:honest", *files, "--mu", "1", "--runs", "1000").exit_code == 0
    assert call("audited_by_path:loud", *files, "--mu", "1", "--runs", "1000").exit_code == 1
    assert (
        call("dpfit.mechanisms.mean:laplace_mean", "--epsilon", "1", "--runs", "400").exit_code == 0
    )
    missing = call("audited_by_path:honest", "--mu", "1")
    assert missing.exit_code == 2
    assert "--data" in missing.stderr
    assert "--mu or --epsilon" in call("audited_by_path:honest", *files).stderr


def test_the_worst_pair_is_searched_for(call):
    result = call("gaussian_counts", "--search", "--runs", "400", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)[0]["subject"].startswith("gaussian_counts (")
    own = call("audit.broken:half_laplace", "--search", "--mu", "1")
    assert own.exit_code == 2
    assert "--search needs an algorithm with a problem" in " ".join(own.stderr.split())


def test_a_figure_is_written(call, tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "curve.png"
    assert call("laplace_mean", "--runs", "400", "--plot", str(file)).exit_code == 0
    assert file.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_error_names_it(call, tmp_path, monkeypatch):
    true_import = builtins.__import__

    def without(name, *arguments, **options):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return true_import(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    result = call("laplace_mean", "--runs", "400", "--plot", str(tmp_path / "curve.png"))
    assert result.exit_code == 2
    assert "pip install matplotlib" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "the name of an algorithm, or --all"),
        (("gaussian_mean", "--all"), "the name of an algorithm, or --all"),
        (("magic",), "no algorithm 'magic'"),
        (("gaussian_mean", "--epsilon", "1"), "would need a delta"),
        (("gaussian_mean", "--mu", "-1"), "mu must be a finite number above 0"),
        (("gaussian_mean", "--relation", "swap"), "relation must be one of"),
        (("nowhere:nothing", "--mu", "1"), "cannot import"),
    ],
)
def test_bad_input_is_said(call, arguments, words):
    result = call(*arguments, "--runs", "5")
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())
