"""``dpfit ledger`` as a user meets it."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from dpfit.cli.ledger import ledger_app
from dpfit.core import Answer
from dpfit.ledger import Ledger
from dpfit.mechanisms.mean import BoundedMean, laplace_mean
from dpfit.privacy import Budget


@pytest.fixture
def file(tmp_path):
    return str(tmp_path / "budgets.ledger")


def run(*arguments: str):
    result = CliRunner().invoke(ledger_app, list(arguments), env={"COLUMNS": "200"})
    return result.exit_code, result.output


def fit(file, **who):
    plan = laplace_mean.plan(Answer(n=3, workload=BoundedMean(0.0, 1.0)), Budget(epsilon=0.5))
    plan.run(np.zeros(3), account=Ledger(file).account("patients", **who), random_state=1)


def test_from_an_empty_file_to_a_verified_spend(file):
    assert run("create", file)[0] == 0
    code, text = run("register", file, "patients", "--epsilon", "1", "--note", "survey of 2024")
    assert (code, text) == (0, "registered patients with epsilon 1, kept as epsilon 1\n")
    fit(file, who="ann", why="a [first] look")
    code, text = run("show", file)
    assert code == 0
    assert all(
        word in text
        for word in ("patients", "budget     epsilon 1 ", "epsilon 0.5", "one record, replaced")
    )
    code, text = run("entries", file, "patients")
    assert code == 0
    assert all(
        word in text
        for word in ("ann", "a [first] look", "reserved for laplace_mean", "not private", "survey")
    )
    code, head = run("verify", file)
    assert (code, head.strip()) == (0, Ledger(file).verify())
    assert run("verify", file, "--expect", head.strip()) == (0, head)


def test_json_everywhere(file):
    run("create", file)
    run(
        "register",
        file,
        "patients",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--currency",
        "zcdp",
        "--delta-share",
        "0.5",
    )
    [status] = json.loads(run("show", file, "--json")[1])
    assert set(status) == {
        "dataset", "budget", "currency", "cap", "spent", "left", "note", "reservations", "releases",
        "abandoned",
    }  # fmt: skip
    assert (status["currency"], status["cap"]["delta"]) == ("zcdp", "1/2000000")
    [entry] = json.loads(run("entries", file, "patients", "--json")[1])
    assert entry["kind"] == "register"
    head = json.loads(run("verify", file, "--json")[1])
    assert head == {"head": entry["hash"], "expected": None, "holds": True}
    assert json.loads(run("export", file)[1]) == Ledger(file).export()


@pytest.mark.parametrize(
    "cap", [("--mu", "0.5"), ("--rho", "0.1"), ("--epsilon", "1", "--delta", "1e-6")]
)
def test_every_kind_of_cap(file, cap):
    run("create", file)
    assert run("register", file, "d", *cap, "--unit", "user", "--relation", "add_remove")[0] == 0
    assert Ledger(file).status("d").budget.unit == "user"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "{none}"), "there is no ledger"),
        (("create", "{file}"), "already"),
        (("register", "{file}", "patients"), "exactly one of epsilon, mu and rho"),
        (("register", "{file}", "patients", "--epsilon", "-1"), "above 0"),
        (
            ("register", "{file}", "patients", "--epsilon", "1", "--unit", "people"),
            "must be one of",
        ),
        (("register", "{file}", "known", "--epsilon", "2"), "cannot be changed"),
        (("entries", "{file}", "patients"), "not registered"),
        (("verify", "{file}", "--expect", "abc"), "expected hash"),
    ],
)
def test_errors_are_one_sentence_and_exit_one(file, tmp_path, arguments, message):
    run("create", file)
    run("register", file, "known", "--epsilon", "1")
    filled = [word.format(file=file, none=tmp_path / "none") for word in arguments]
    code, text = run(*filled)
    assert code == 1
    assert text.startswith("error: ")
    assert text.count("\n") == 1
    assert message in text
    assert "Traceback" not in text


def test_a_crash_shows_as_open(file):
    run("create", file)
    run("register", file, "patients", "--epsilon", "1")
    plan = laplace_mean.plan(Answer(n=3, workload=BoundedMean(0.0, 1.0)), Budget(epsilon=0.25))
    account = Ledger(file).account("patients")
    account.reserve(plan)
    account.abandon(account.reserve(plan), why="power cut")
    text = run("show", file)[1]
    assert "1 abandoned, 1 open" in " ".join(text.split())
