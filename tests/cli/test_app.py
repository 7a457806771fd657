"""The command line as a user meets it."""

import json
import subprocess
import sys

from typer.testing import CliRunner

import dpfit
from dpfit.catalogue import ENTRIES
from dpfit.cli.app import app
from dpfit.theory.results import RESULTS


def run(*arguments: str):
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_algorithms_lists_the_recommended_ones_and_the_others_on_request():
    code, text = run("algorithms")
    recommended = {entry.name for entry in ENTRIES if entry.tier == "recommended"}
    assert code == 0
    assert {
        name for name in (entry.name for entry in ENTRIES) if f" {name} " in text
    } == recommended
    code, text = run("algorithms", "--all")
    assert code == 0
    assert all(f" {entry.name} " in text for entry in ENTRIES)
    assert all(tier in text for tier in ("recommended", "specialised", "reference"))


def test_users_see_at_most_twenty_names():
    assert 8 <= sum(entry.tier == "recommended" for entry in ENTRIES) <= 20


def test_algorithms_as_json_is_json():
    code, text = run("algorithms", "--all", "--json")
    rows = json.loads(text)
    assert code == 0
    assert [row["name"] for row in rows] == [entry.name for entry in ENTRIES]
    assert {
        "name",
        "problem",
        "guarantees",
        "reference",
        "summary",
        "tier",
        "units",
        "options",
    } <= set(rows[0])


def test_one_algorithm_is_told_about_in_full():
    code, text = run("algorithms", "laplace_mean")
    assert code == 0
    for part in (
        "pure DP",
        "one added or removed",
        "[Gan22]",
        "from dpfit.mechanisms.mean import laplace_mean",
        "Arun Ganesh",
    ):
        assert part in text
    code, text = run("algorithms", "laplace_mean", "--json")
    assert [row["name"] for row in json.loads(text)] == ["laplace_mean"]
    code, text = run("algorithms", "laplace_meen")
    assert code == 2
    assert "no algorithm 'laplace_meen'" in text


def test_results_are_listed_by_document():
    code, text = run("algorithms", "--results", "--json")
    found = json.loads(text)
    assert code == 0
    assert found["results"] == [row.to_json() for row in RESULTS]
    assert {row["document"] for row in found["results"]} == {
        work["key"] for work in found["documents"]
    }
    code, text = run("algorithms", "--results")
    assert code == 0
    assert all(
        part in text
        for part in ("[Liu24] Daogao Liu", "Theorem 3.6.2", "regularized_exp_", "replaced: by")
    )


def test_results_of_one_algorithm_are_those_that_it_serves():
    code, text = run("algorithms", "noisy_gd", "--results", "--json")
    found = json.loads(text)["results"]
    assert code == 0
    assert {"Section 1.4", "Equation 2"} <= {row["number"] for row in found}
    assert {row["object"] for row in found} == {"noisy_gd"}
    code, text = run("algorithms", "noisy_gd", "--results")
    assert "Differentially private" in text
    assert "laplace" not in text
    assert run("algorithms", "noisy_dg", "--results")[0] == 2


def test_version_and_module_entry_point():
    assert run("--version") == (0, f"dpfit {dpfit.__version__}\n")
    shown = subprocess.run(
        [sys.executable, "-m", "dpfit", "--version"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == f"dpfit {dpfit.__version__}"


def test_an_unknown_command_fails_with_a_hint():
    code, text = run("magic")
    assert code == 2
    assert "magic" in text


def test_importing_dpfit_imports_nothing_heavy():
    script = "import sys, dpfit; print(sorted({m.split('.')[0] for m in sys.modules}))"
    shown = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    for heavy in ("numpy", "scipy", "sklearn", "mpmath", "typer", "rich"):
        assert f"'{heavy}'" not in shown


def test_help_needs_nothing_heavy():
    script = "import sys, dpfit.cli.app; print(sorted({m.split('.')[0] for m in sys.modules}))"
    shown = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    for heavy in ("sklearn", "numba", "matplotlib", "pyarrow"):
        assert f"'{heavy}'" not in shown


def test_public_names_are_importable():
    assert all(getattr(dpfit, name) is not None for name in dpfit.__all__)
