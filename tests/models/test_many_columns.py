"""Models that choose columns: names, intercepts, sparse rows, files, the command line."""

import json
import tracemalloc

import numpy as np
import pandas
import pytest
from scipy.sparse import csr_array
from typer.testing import CliRunner

from dpfit.cli.app import app
from dpfit.data.schema import Category, Number, Schema
from dpfit.ledger import Ledger
from dpfit.models import HuberRegressor, LogisticRegression, load, save
from dpfit.models.files import ModelFileDamaged, model_from_json, model_to_json, sealed
from dpfit.privacy import Budget
from dpfit.solvers.gradient.sparse_descent import sparse_descent

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


def test_private_ranges_of_sparse_rows_need_no_dense_ones():
    """The table has 80 MB as dense doubles; the histograms of its columns have 0.5 MB."""
    rng, n, d = np.random.default_rng(3), 20_000, 500
    places = np.append(rng.integers(0, d, (n, 4)), np.full((n, 1), 7), axis=1)
    values = rng.uniform(-2, 2, (n, 5))
    rows = csr_array((values.ravel(), places.ravel(), np.arange(0, 5 * n + 1, 5)), shape=(n, d))
    asked = {"bounds": "private", "solver": "phased_sgd", "l1_radius": None, "epsilon": 10.0}
    tracemalloc.start()
    fitted = model(**asked).fit(rows, values[:, 4] > 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert fitted.scaling_.upper[7] == 2.0
    assert fitted.score(rows, values[:, 4] > 0) > 0.9
    assert peak < 40e6


def test_a_saved_model_knows_its_columns(tmp_path):
    rows, labels = table()
    fitted = model().fit(pandas.DataFrame(rows, columns=NAMES), labels)
    save(fitted, tmp_path / "model.json")
    loaded = load(tmp_path / "model.json")
    assert loaded.chosen_columns_ == fitted.chosen_columns_
    assert str(loaded.summary()) == str(fitted.summary())
    again = fitted.set_params(l1_radius=None).fit(rows, labels)
    assert again.chosen_columns_ is None
    assert "chosen" not in str(again.summary())


def test_stored_columns_that_the_plan_cannot_have_chosen_are_refused():
    rows, labels = table()
    stored = model_to_json(model().fit(rows, labels))
    stored.pop("sha256")
    right = stored["fitted"]["chosen_indices_"]["values"]
    for wrong in (right[1:], [*right[:-1], 40], [-1, *right], right[::-1], [*right, right[-1]]):
        if wrong == right[1:] and not stored["fitted"]["coef_"]["values"][0][right[0]]:
            continue
        fitted = stored["fitted"] | {"chosen_indices_": {"dtype": "<i8", "values": wrong}}
        with pytest.raises(ModelFileDamaged):
            model_from_json(sealed(stored | {"fitted": fitted}))
    fitted = {name: value for name, value in stored["fitted"].items() if "indices" not in name}
    earlier = model_from_json(sealed(stored | {"fitted": fitted}))
    assert set(earlier.chosen_columns_) <= set(right)


def test_chosen_columns_are_those_of_the_release_even_without_a_coefficient():
    """In a tiny ball most chosen columns get a coefficient of zero."""
    rows, labels = table()
    fitted = model(l1_radius=0.01).fit(rows, labels)
    (k,) = [len(t.chosen) for t in fitted.plan_.transformations if hasattr(t, "chosen")]
    assert len(fitted.chosen_columns_) == k
    assert np.count_nonzero(np.abs(fitted.coef_) > 1e-12) < k
    assert set(np.flatnonzero(fitted.coef_).tolist()) <= set(fitted.chosen_columns_)


def test_a_summary_names_columns_coefficients_and_the_guarantee():
    rows, labels = table()
    fitted = model().fit(pandas.DataFrame(rows, columns=NAMES), labels)
    summary = fitted.summary()
    assert summary.chosen == fitted.chosen_columns_
    named = dict(summary.coefficients)
    assert list(named) == [*NAMES, "intercept"]
    assert named["column 5"] == (fitted.coef_[0, 5],)
    assert named["intercept"] == (fitted.intercept_[0],)
    text = str(summary)
    shown = [line.split("  ")[0] for line in text.splitlines()[2:-3]]
    assert shown == [*summary.chosen, "intercept"]
    assert f"chosen privately: {', '.join(summary.chosen)}" in text
    assert str(fitted.guarantee_) in text
    assert "not private" in text
    assert json.loads(json.dumps(summary.to_json()))["chosen_columns"] == [*summary.chosen]


def test_a_summary_of_several_classes_has_a_column_for_each():
    rows = np.random.default_rng(1).uniform(-1, 1, (900, 2))
    fitted = LogisticRegression(1.0, 1e-6, bounds=(-1, 1), classes=["a", "b", "c"]).fit(
        rows, np.tile(["a", "b", "c"], 300)
    )
    summary = fitted.summary()
    assert summary.outputs == ("a", "b", "c")
    assert [name for name, _ in summary.coefficients] == ["column 0", "column 1", "intercept"]
    assert summary.coefficients[1][1] == tuple(fitted.coef_[:, 1])
    assert summary.chosen is None
    assert "not private" not in str(summary)


def test_a_schema_names_the_columns_of_coefficients_not_those_of_the_table():
    """A category makes a column for each of its values."""
    rng, n = np.random.default_rng(2), 4000
    wards = rng.choice(["A", "B"], n)
    frame = pandas.DataFrame({"ward": wards, "x": rng.uniform(-1, 1, n)})
    schema = Schema((Category("ward", ("A", "B")), Number("x", -1, 1)), scale="symmetric")
    solver = sparse_descent.using(columns=2)
    facts = {"schema": schema, "l1_radius": 6.0, "random_state": 1, "solver": solver}
    fitted = LogisticRegression(4.0, 1e-6, **facts).fit(frame, wards == "A")
    named = {name: values[0] for name, values in fitted.summary().coefficients}
    assert [*named] == [*schema.names]
    assert "x" not in fitted.chosen_columns_
    assert {"ward = A", "ward = B"} & set(fitted.chosen_columns_)
    assert named["ward = A"] - named["ward = B"] > 1


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
