"""Tables on a terminal of eighty columns."""

import pytest
from typer.testing import CliRunner

from dpfit.cli.app import app
from dpfit.ledger import Ledger
from dpfit.privacy import Budget


@pytest.mark.parametrize("columns", [80, 40])
def test_ledger_show_fits_and_breaks_no_word(tmp_path, columns):
    file = tmp_path / "budgets.ledger"
    ledger = Ledger.create(file)
    ledger.register(
        "patients [bold]2024", Budget(epsilon=1.0, delta=1e-6, unit="user"), delta_share=0.5
    )
    ledger.register("visits", Budget(mu=0.5))
    shown = CliRunner().invoke(app, ["ledger", "show", str(file)], env={"COLUMNS": str(columns)})
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    words = shown.stdout.split()
    for part in (
        "patients [bold]2024",
        "all records of one user, replaced",
        "mu 0.5",
        "delta 5e-07",
        "visits",
    ):
        assert all(word in words for word in part.split())


@pytest.mark.parametrize("columns", [80, 40])
def test_plans_fit(ill, columns):
    asked = [
        "plan",
        "--rows",
        "4000",
        "--schema",
        str(ill),
        "--model",
        "logistic",
        "--epsilon",
        "1",
    ]
    shown = CliRunner().invoke(app, asked, env={"COLUMNS": str(columns)})
    assert shown.exit_code == 0
    assert max(map(len, shown.stdout.splitlines())) <= columns


def test_an_empty_ledger_says_what_comes_next(tmp_path):
    Ledger.create(tmp_path / "budgets.ledger")
    shown = CliRunner().invoke(app, ["ledger", "show", str(tmp_path / "budgets.ledger")])
    assert "dpfit ledger register" in shown.stdout
