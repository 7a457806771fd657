"""What one process wrote, another one reads that imported only dpfit."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest

import dpfit
from dpfit.catalogue import ENTRIES
from dpfit.core import Composition, Selection, Stage, StartAt, Step, TransformedPlan
from dpfit.data.schema import Category, Schema
from dpfit.models import load, save
from dpfit.models.scores import Scores
from dpfit.models.table import ESTIMATORS
from dpfit.privacy import Budget
from dpfit.queries import plan_count

BUDGETS = {
    "pure": {"epsilon": 1.0},
    "approximate": {"epsilon": 1.0, "delta": 1e-6},
    "gdp": {"mu": 1.0},
    "zcdp": {"rho": 0.5},
}
READ = """
import json, sys
from pathlib import Path
import dpfit

folder, found = Path(sys.argv[1]), {"plans": {}, "models": {}}
assert not [name for name in sys.modules if name.startswith("dpfit.")]
for name, plan in json.loads((folder / "plans.json").read_text()).items():
    again = dpfit.plan_from_json(plan)
    found["plans"][name] = [again.guarantee.to_json(), again.fingerprint, again.to_json() == plan]

from dpfit.models import load

rows = json.loads((folder / "rows.json").read_text())
for path in folder.glob("*.model"):
    model = load(path)
    value = model.predict(rows) if hasattr(model, "predict") else model.location_
    found["models"][path.stem] = [model.guarantee_.to_json(), value.tolist()]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).uniform(-1, 1, size=(2000, 2))


@pytest.fixture(scope="module")
def models(rows):
    """Every estimator by default, and three with another solver, private ranges and users."""
    labels, values = (rows[:, 0] > 0.2).astype(int), 5 + 3 * rows[:, 0]
    fitted = {}
    for name, row in ESTIMATORS.items():
        target = labels if row.is_classifier else values
        fitted[name] = row.load()(1.0, 1e-6, bounds=(-1, 1)).fit(rows, target)
    logistic = dpfit.LogisticRegression
    fitted["dp_sgd"] = logistic(1.0, 1e-6, bounds=(-1, 1), solver="dp_sgd").fit(rows, labels)
    fitted["ranges"] = dpfit.LinearRegression(2.0, 1e-6).fit(rows, values)
    users = np.arange(len(rows)) // 2
    by_user = {"relation": "add_remove", "n_declared": 1000, "max_rows_per_user": 2}
    fitted["users"] = logistic(1.0, 1e-6, bounds=(-1, 1), classes=(0, 1), **by_user).fit(
        rows, labels, user_ids=users
    )
    return fitted


@pytest.fixture(scope="module")
def plans(models):
    """Every entry with every guarantee, every shape, and the plan of every model."""
    made = {f"model {name}": model.plan_ for name, model in models.items()}
    for entry in ENTRIES:
        algorithm = entry.load()
        for kind in entry.guarantees:
            problem, *_ = algorithm.example("replace")
            made[f"{entry.name} {kind}"] = algorithm.plan(problem, Budget(**BUDGETS[kind]))
    step = made["gaussian_mean gdp"]
    assert isinstance(step, Step)
    made["composition"] = Composition(
        (Stage("mean", step), Stage("fit", made["noisy_gd gdp"], StartAt("mean")))
    )
    made["parts"] = Composition(
        (Stage("one", step, part=0), Stage("two", step, part=1)), shares=(0.5, 0.5)
    )
    made["selection"] = Selection(made["laplace_mean pure"], 0.25)
    made["users"] = models["users"].plan_
    made["count"] = plan_count(
        Schema((Category("ward", ("A", "B")),)), ["ward"], Budget(epsilon=1.0)
    )
    mean = made["laplace_mean pure"]
    made["score"] = TransformedPlan.of(Scores("accuracy", 1.0), mean)
    return made


def read_elsewhere(folder):
    done = subprocess.run(
        [sys.executable, "-c", READ, str(folder)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_plans_and_models_are_read_by_a_process_that_imported_only_dpfit(
    rows, plans, models, tmp_path
):
    (tmp_path / "plans.json").write_text(
        json.dumps({name: plan.to_json() for name, plan in plans.items()})
    )
    (tmp_path / "rows.json").write_text(json.dumps(rows[:50].tolist()))
    for name, model in models.items():
        save(model, tmp_path / f"{name}.model")
    found = read_elsewhere(tmp_path)
    assert found["plans"] == {
        name: [plan.guarantee.to_json(), plan.fingerprint, True] for name, plan in plans.items()
    }
    assert found["models"] == {
        name: [
            model.guarantee_.to_json(),
            (model.predict(rows[:50]) if hasattr(model, "predict") else model.location_).tolist(),
        ]
        for name, model in models.items()
    }


def test_a_solver_that_is_an_object_is_saved_as_its_name(models, rows, tmp_path):
    from dpfit.solvers.gradient.dp_sgd import dp_sgd

    model = models["dp_sgd"]
    model.solver = dp_sgd
    try:
        save(model, tmp_path / "model.json")
    finally:
        model.solver = "dp_sgd"
    again = load(tmp_path / "model.json")
    assert again.solver == "dp_sgd"
    assert np.array_equal(again.predict(rows), model.predict(rows))


def test_the_command_line_predicts_with_a_solver_that_it_did_not_import(tmp_path):
    table, schema, model = tmp_path / "table.csv", tmp_path / "schema.toml", tmp_path / "model.json"
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(
            [("age", "ill"), *((age, ("no", "yes")[age > 50]) for age in range(100))]
        )
    schema.write_text(
        '[columns.age]\nlower = 0\nupper = 100\n[target]\nname = "ill"\ncategories = ["no", '
        '"yes"]\n',
        encoding="utf-8",
    )
    fit = (
        "fit",
        table,
        "--schema",
        schema,
        "--model",
        "logistic",
        "--epsilon",
        "2",
        "--delta",
        "1e-6",
    )
    called(*fit, "--solver", "dp_sgd", "--out", model)
    found = json.loads(called("predict", model, table, "--json"))
    assert len(found["predictions"]) == 100
    assert set(found["predictions"]) <= {"no", "yes"}


def called(*arguments):
    command = [sys.executable, "-m", "dpfit", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
