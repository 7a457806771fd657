"""Models that choose columns: names, intercepts, sparse rows, files, the command line."""

import json

import numpy as np
import pandas
import pytest
from scipy.sparse import csr_array
from typer.testing import CliRunner

from dpfit.cli.app import app
from dpfit.ledger import Ledger
from dpfit.models import HuberRegressor, LogisticRegression, load, save
from dpfit.privacy import Budget

NAMES = [f"column {index}" for index in range(40)]
pytestmark = pytest.mark.filterwarnings("ignore")


def table(n=6000, intercept=0.5, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-3, 3, (n, 40))
    margins = rows[:, 5] - rows[:, 20] + intercept
    return rows, rng.random(n) < 1 / (1 + np.exp(-margins))


def model(**changes):
    facts = {"epsilon": 1.0, "delta": 1e-6, "bounds": (-3, 3), "l1_radius": 9.0, "random_state": 1}
    return LogisticRegression(**(facts | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"delta": 0.0},
        {"fit_intercept": False},
        {"relation": "add_remove", "n_declared": 6000},
        {"bounds": None},
        {"bounds": (-4, 3)},
    ],
    ids=str,
)
def test_true_columns_are_named(changes):
    rows, labels = table(intercept=0.0 if "fit_intercept" in changes else 0.5)
    fitted = model(**changes).fit(pandas.DataFrame(rows, columns=NAMES), labels)
    assert fitted.plan_.algorithm == "sparse_descent"
    assert {"column 5", "column 20"} <= set(fitted.chosen_columns_)
    assert len(fitted.chosen_columns_) <= 8
    assert fitted.coef_[0, [5, 20]] == pytest.approx([1.0, -1.0], abs=0.5)
    assert (fitted.predict(rows) == labels).mean() > 0.8


def test_the_intercept_is_outside_the_ball():
    rows, labels = table(intercept=4.0)
    fitted = model(l1_radius=1.0).fit(rows, labels)
    assert np.abs(3 * fitted.coef_).sum() <= 1.0 + 1e-9
    assert fitted.intercept_[0] > 1.2


def test_the_same_columns_are_chosen_from_sparse_rows():
    rows, labels = table()
    rows = rows * (np.random.default_rng(1).random(rows.shape) < 0.4)
    fits = [model(fit_intercept=False).fit(kind(rows), labels) for kind in (np.array, csr_array)]
    assert fits[0].chosen_columns_ == fits[1].chosen_columns_
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, atol=1e-9)


def test_a_saved_model_knows_its_columns(tmp_path):
    rows, labels = table()
    fitted = model().fit(pandas.DataFrame(rows, columns=NAMES), labels)
    save(fitted, tmp_path / "model.json")
    assert load(tmp_path / "model.json").chosen_columns_ == fitted.chosen_columns_
    assert model(l1_radius=None).fit(rows, labels).chosen_columns_ is None


def test_a_regression_chooses_columns():
    rows, _ = table()
    labels = 2 * rows[:, 7] - rows[:, 30]
    regression = HuberRegressor(
        1.0, 1e-6, bounds=(-3, 3), y_bounds=(-9, 9), l1_radius=2.0, random_state=1
    )
    fitted = regression.fit(rows, labels)
    assert {7, 30} <= set(fitted.chosen_columns_)
    assert fitted.coef_[[7, 30]] == pytest.approx([2.0, -1.0], abs=0.2)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"l1_radius": 0.0}, "l1_radius must be a finite number above 0"),
        ({"l1_radius": -1.0}, "l1_radius must be a finite number above 0"),
        ({"l1_radius": float("nan")}, "l1_radius must be a number"),
        ({"bounds": None, "row_norm": 2.0}, "l1_radius needs columns in"),
        ({"classes": [0, 1, 2]}, "l1_radius is for two classes"),
    ],
    ids=str,
)
def test_invalid_arguments_raise_before_any_charge(changes, match, tmp_path):
    ledger = Ledger.create(tmp_path / "ledger")
    ledger.register("people", Budget(mu=2.0))
    rows, labels = table(n=100)
    with pytest.raises(ValueError, match=match):
        model(ledger=ledger, dataset="people", **changes).fit(rows, labels.astype(int))
    assert [entry.kind for entry in ledger.entries("people")] == ["register"]


@pytest.mark.parametrize("case", ["one column", "constant columns", "one class"])
def test_degenerate_tables_give_a_model(case):
    rows, labels = table(n=300)
    rows = rows[:, :1] if case == "one column" else rows
    rows = np.ones_like(rows) if case == "constant columns" else rows
    labels = np.ones_like(labels) if case == "one class" else labels
    fitted = model(max_passes=30).fit(rows, labels)
    assert np.isfinite(fitted.coef_).all()
    assert fitted.predict(rows).shape == (300,)


def test_the_command_line_names_the_columns(tmp_path):
    rows, labels = table(n=3000)
    frame = pandas.DataFrame(rows, columns=NAMES)
    frame["ill"] = np.where(labels, "yes", "no")
    frame.to_csv(tmp_path / "people.csv", index=False)
    columns = "".join(f'[columns."{name}"]\nlower = -3\nupper = 3\n' for name in NAMES)
    (tmp_path / "schema.toml").write_text(
        f'scale = "symmetric"\n{columns}[target]\nname = "ill"\ncategories = ["no", "yes"]\n'
    )
    asked = [
        *("fit", tmp_path / "people.csv", "--schema", tmp_path / "schema.toml"),
        *("--model", "logistic", "--epsilon", 2, "--delta", "1e-6", "--l1-radius", 9),
    ]
    page = tmp_path / "report.html"
    shown, printed = (
        CliRunner().invoke(app, [str(word) for word in [*asked, *more]], env={"COLUMNS": "200"})
        for more in (["--report", page], ["--json"])
    )
    assert shown.exit_code == printed.exit_code == 0, shown.stderr
    found = json.loads(printed.stdout)
    assert {"column 5", "column 20"} <= set(found["chosen_columns"])
    assert len(found["coefficients"]) == 41
    assert "intercept" not in found["chosen_columns"]
    assert "columns" in shown.stdout
    assert "column 20" in shown.stdout
    assert "Chosen privately: " in page.read_text()
    assert "column 20" in page.read_text()


@pytest.mark.slow
def test_the_command_line_plans_a_choice(tmp_path):
    (tmp_path / "schema.toml").write_text(
        "[columns]\n"
        + "".join(f'[columns."{name}"]\nlower = -3\nupper = 3\n' for name in NAMES)
        + '[target]\nname = "ill"\ncategories = ["no", "yes"]\n'
    )
    asked = ["plan", "--rows", 5000, "--schema", tmp_path / "schema.toml", "--model", "logistic"]
    asked += ["--epsilon", 2, "--delta", "1e-6", "--l1-radius", 9, "--json"]
    planned = CliRunner().invoke(app, [str(word) for word in asked])
    assert json.loads(planned.stdout)["considered"][0]["name"] == "sparse_descent"
