"""``dpfit fit`` and ``dpfit predict``: what is promised, what is charged, what is never said."""

import csv
import json

import numpy as np
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
import pytest

from dpfit.ledger import Ledger
from dpfit.privacy import Budget, Guarantee

HEADER = "age,ward,ill,stay\n"
KEYS = {
    "schema", "fitted", "target", "coefficients", "chosen_columns", "promise", "guarantee", "plan",
    "predicted_risk", "private", "references", "budget", "warnings", "model", "report",
}  # fmt: skip


def predictions(dpfit, model, table):
    return json.loads(dpfit("predict", model, table, "--json").stdout)


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "budgets.ledger")


def test_a_classifier_finds_the_old_ones(dpfit, table, ill, tmp_path):
    model = tmp_path / "model.json"
    result = dpfit(
        "fit", table, "--schema", ill, "--model", "logistic", "--epsilon", 2, "--out", model
    )
    assert (result.exit_code, result.stderr) == (0, "")
    assert "epsilon = 2, with one record replaced" in result.stdout
    truth = np.array(
        [row["ill"] for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines())]
    )
    found = predictions(dpfit, model, table)
    assert set(found) == {"schema", "target", "predictions", "probabilities"}
    assert found["target"] == "ill"
    assert np.mean(np.array(found["predictions"]) == truth) > 0.9
    assert np.allclose(np.add(found["probabilities"]["no"], found["probabilities"]["yes"]), 1.0)


def test_one_name_of_networks_serves_numbers_and_classes(dpfit, table, ill, stay, tmp_path):
    for schema in (ill, stay):
        out, page = tmp_path / f"{schema.stem}.json", tmp_path / f"{schema.stem}.html"
        asked = ("fit", table, "--schema", schema, "--model", "network", "--epsilon", 4)
        refused = dpfit(*asked)
        assert refused.exit_code == 2
        assert "give a delta" in refused.stderr
        more = ("--delta", "1e-6", "--max-passes", 100, "--out", out, "--report", page)
        done = dpfit(*asked, *more, "--json")
        assert (done.exit_code, done.stderr) == (0, "")
        assert json.loads(done.stdout)["coefficients"] == []
        assert "by a network" in page.read_text(encoding="utf-8")
    found = predictions(dpfit, tmp_path / f"{stay.stem}.json", table)["predictions"]
    # The middle of the range alone misses by 2.5.
    assert np.mean(np.abs(np.array(found) - np.linspace(0, 10, 4000))) < 2
    found = predictions(dpfit, tmp_path / f"{ill.stem}.json", table)["predictions"]
    assert np.mean((np.linspace(0, 100, 4000) > 50) == (np.array(found) == "yes")) > 0.9


@pytest.mark.parametrize("model", ["linear", "ridge", "huber", "robust", "quantile"])
def test_regressors_predict_in_the_units_of_the_target(dpfit, table, stay, tmp_path, model):
    out = tmp_path / "model.json"
    asked = ("--model", model, "--epsilon", 4, "--delta", "1e-6", "--out", out)
    assert dpfit("fit", table, "--schema", stay, *asked).exit_code == 0
    found = predictions(dpfit, out, table)
    assert found["probabilities"] == {}
    truth = np.linspace(0, 10, 4000)
    assert np.mean(np.abs(np.array(found["predictions"]) - truth)) < 0.75


@pytest.mark.parametrize(
    ("solver", "shown"), [("output_perturbation", True), ("objective_perturbation", False)]
)
def test_a_report_shows_what_noise_leaves_open_where_its_law_is_known(
    dpfit, table, ill, tmp_path, solver, shown
):
    report = tmp_path / "report.html"
    asked = ("--model", "logistic", "--epsilon", 2, "--solver", solver, "--report", report)
    assert dpfit("fit", table, "--schema", ill, *asked).exit_code == 0
    assert ("covers privacy noise alone" in report.read_text(encoding="utf-8")) == shown


def test_public_records_help_and_are_not_promised_anything(dpfit, table, ill, tmp_path):
    model = tmp_path / "model.json"
    asked = (
        "--model",
        "logistic",
        "--epsilon",
        0.2,
        "--delta",
        "1e-6",
        "--public",
        table,
        "--out",
        model,
        "--json",
    )
    found = json.loads(dpfit("fit", table, "--schema", ill, *asked).stdout)
    assert any(
        "not protected" in each["text"] for each in found["guarantee"]["basis"]["assumptions"]
    )
    truth = np.array(
        [row["ill"] for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines())]
    )
    assert np.mean(np.array(predictions(dpfit, model, table)["predictions"]) == truth) > 0.9


def test_predictions_are_a_csv_in_the_order_of_the_table(dpfit, table, ill, tmp_path):
    model, out = tmp_path / "model.json", tmp_path / "predictions.csv"
    dpfit("fit", table, "--schema", ill, "--model", "svc", "--epsilon", 2, "--out", model)
    assert dpfit("predict", model, table, "--out", out).stdout == f"wrote {out}\n"
    assert out.read_text(encoding="utf-8") == dpfit("predict", model, table).stdout
    header, *cells = out.read_text(encoding="utf-8").splitlines()
    assert header == "ill"
    assert cells == predictions(dpfit, model, table)["predictions"]
    # A rich sample at both ends of the age range: the young first, the old last.
    assert (cells[0], cells[-1]) == ("no", "yes")


def test_the_promise_is_what_was_asked_for(dpfit, table, ill):
    for more in (
        (),
        ("--delta", "1e-6", "--solver", "noisy_gd"),
        ("--relation", "add_remove", "--n-declared", 3900),
    ):
        shown = dpfit(
            "fit", table, "--schema", ill, "--model", "logistic", "--epsilon", 0.5, *more, "--json"
        )
        found = json.loads(shown.stdout)
        assert set(found) == KEYS
        guarantee = Guarantee.from_json(found["guarantee"])
        relation = "add_remove" if "add_remove" in more else "replace"
        assert guarantee.meets(
            Budget(epsilon=0.5, delta=1e-6 if "1e-6" in more else None, relation=relation)
        )
        assert not guarantee.meets(
            Budget(epsilon=0.45, delta=1e-6 if "1e-6" in more else None, relation=relation)
        )
        assert found["private"] is True


def test_the_second_fit_is_refused_when_the_budget_is_gone(dpfit, table, ill, tmp_path, ledger):
    ledger.register("patients", Budget(epsilon=1.5))
    asked = (
        "--schema",
        ill,
        "--model",
        "logistic",
        "--epsilon",
        1,
        "--ledger",
        ledger.path,
        "--dataset",
        "patients",
    )
    first = json.loads(dpfit("fit", table, *asked, "--json").stdout)
    assert 0.99 < float(ledger.status("patients").spent.amount) <= 1
    assert first["budget"]["releases"] == 1
    spent = ledger.status("patients").spent
    second = dpfit("fit", table, *asked, "--out", tmp_path / "model.json")
    assert second.exit_code == 1
    assert second.stderr.startswith(
        "error: over budget on dataset 'patients': asked epsilon 1, left 0.5"
    )
    assert second.stderr.count("\n") == 1
    assert not (tmp_path / "model.json").exists()
    assert ledger.status("patients").spent == spent


@pytest.mark.parametrize("currency", ["gdp", "zcdp", "pure"])
def test_a_ledger_pays_a_fair_price_in_each_currency(dpfit, table, ill, ledger, currency):
    budget = Budget(epsilon=0.5, delta=1e-6)
    ledger.register("patients", Budget(epsilon=4.0, delta=1e-5), currency=currency)
    asked = ("--model", "logistic", "--epsilon", 0.5, "--delta", "1e-6")
    result = dpfit(
        "fit", table, "--schema", ill, *asked, "--ledger", ledger.path, "--dataset", "patients"
    )
    assert result.exit_code == 0, result.stderr
    fair = {"gdp": budget.gaussian_mu**2, "zcdp": budget.gaussian_mu**2 / 2, "pure": 0.5}[currency]
    assert 0.9 * fair < float(ledger.status("patients").spent.amount) < 1.1 * fair


def test_users_are_protected_and_rows_without_a_user_are_not_used(dpfit, ill, tmp_path):
    # Rows that name nobody say the opposite; if they were used, the model would learn nothing.
    ages = np.linspace(0, 100, 3000)
    lines = [f"{age},north,{('no', 'yes')[int(age > 50)]},u{i}" for i, age in enumerate(ages)]
    lines += [f"{age},north,{('yes', 'no')[int(age > 50)]}," for age in ages]
    path, out = tmp_path / "visits.csv", tmp_path / "model.json"
    path.write_text("age,ward,ill,who\n" + "\n".join(lines), encoding="utf-8")
    users = (
        "--unit",
        "user",
        "--user-column",
        "who",
        "--max-rows",
        2,
        "--relation",
        "add_remove",
        "--n-declared",
        3000,
    )
    asked = ("--model", "logistic", "--epsilon", 4, *users, "--out", out, "--json")
    found = json.loads(dpfit("fit", path, "--schema", ill, *asked).stdout)
    assert found["promise"] == "epsilon = 4, with one user's records added or removed"
    named = predictions(dpfit, out, path)["predictions"][:3000]
    assert np.mean((np.array(named) == "yes") == (ages > 50)) > 0.9


def test_nothing_said_depends_on_cells_or_on_a_private_number_of_rows(dpfit, ill, tmp_path):
    # Same columns; other values, other numbers of rows, cells that cannot be read.
    contents = [
        "50,north,yes,1\n" * 60,
        "secret,secret,secret,secret\n" * 61,
        "1e999,,,\nnan,-inf,x,\n" * 30,
    ]
    asked = (
        "--model",
        "logistic",
        "--epsilon",
        1,
        "--relation",
        "add_remove",
        "--n-declared",
        60,
        "--json",
    )
    said = []
    for content in contents:
        path = tmp_path / "patients.csv"
        path.write_text(HEADER + content, encoding="utf-8")
        result = dpfit("fit", path, "--schema", ill, *asked)
        assert (result.exit_code, result.stderr) == (0, "")
        assert "secret" not in result.output
        found = json.loads(result.stdout)
        assert all(np.isfinite(one.pop("value")) for one in found["coefficients"])
        said.append(found)
    assert said[0] == said[1] == said[2]


def test_a_file_that_exists_is_kept_and_nothing_is_spent(dpfit, table, ill, tmp_path, ledger):
    ledger.register("patients", Budget(epsilon=1.5))
    old = tmp_path / "old.json"
    old.write_text("an earlier release", encoding="utf-8")
    asked = (
        "--model",
        "logistic",
        "--epsilon",
        1,
        "--ledger",
        ledger.path,
        "--dataset",
        "patients",
    )
    for more in (("--out", old), ("--report", old), ("--out", tmp_path / "none" / "model.json")):
        assert dpfit("fit", table, "--schema", ill, *asked, *more).exit_code == 2
    assert old.read_text(encoding="utf-8") == "an earlier release"
    assert ledger.status("patients").reservations == 0


def test_the_report_has_the_promise_and_escapes_names(dpfit, tmp_path):
    path, facts, page = tmp_path / "t.csv", tmp_path / "s.toml", tmp_path / "r.html"
    path.write_text("<script>alert(1)</script>,ill\n" + "1,no\n3,yes\n" * 200, encoding="utf-8")
    facts.write_text(
        '[columns."<script>alert(1)</script>"]\nlower = 0\nupper = 4\n'
        '[target]\nname = "ill"\ncategories = ["no", "yes"]\n',
        encoding="utf-8",
    )
    result = dpfit(
        "fit", path, "--schema", facts, "--model", "logistic", "--epsilon", 1, "--report", page
    )
    assert result.exit_code == 0, result.stderr
    text = page.read_text(encoding="utf-8")
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "epsilon = 1" in text


def test_a_delta_that_allows_to_publish_a_record_is_warned_about(dpfit, table, ill):
    result = dpfit(
        "fit", table, "--schema", ill, "--model", "logistic", "--epsilon", 1, "--delta", 0.01
    )
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: delta = 0.01 is not far below 1 / rows")


def test_users_with_many_rows_are_averaged(dpfit, ill, tmp_path):
    ages = np.tile(np.linspace(0, 100, 20), 300)
    lines = [f"{age},north,{('no', 'yes')[int(age > 50)]},u{i // 20}" for i, age in enumerate(ages)]
    path, out = tmp_path / "visits.csv", tmp_path / "model.json"
    path.write_text("age,ward,ill,who\n" + "\n".join(lines), encoding="utf-8")
    users = ("--unit", "user", "--rows-per-user", 20)
    asked = ("--model", "logistic", "--epsilon", 2, "--delta", 1e-6, *users)
    fitted = dpfit(
        "fit", path, "--schema", ill, *asked, "--user-column", "who", "--out", out, "--json"
    )
    found = json.loads(fitted.stdout)
    assert "one user's records replaced" in found["promise"]
    assert found["guarantee"]["basis"]["unit"] == "user"
    planned = json.loads(
        dpfit(
            "plan",
            "--rows",
            6000,
            "--schema",
            ill,
            *asked,
            "--max-rows",
            3,
            "--users",
            300,
            "--json",
        ).stdout
    )
    names = " ".join(each["name"] for each in planned["considered"])
    assert "user means" in names
    assert "at most 3 rows of a user" in names
    counted = json.loads(
        dpfit(
            "query", path, "--schema", ill, "--by", "ward", "--epsilon", 5, "--unit", "user",
            "--user-column", "who", "--json",
        ).stdout
    )  # fmt: skip
    assert abs(sum(each["count"] for each in counted["counts"]) - 300) < 30
    assert "user" in counted["promise"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--target", "stay"), "leave --target out, or change [target]"),
        (("--model", "linear"), "use --model logistic"),
        (("--unit", "user"), "--unit user needs --user-column"),
        (("--max-rows", "3"), "go with --unit user"),
        (("--public", "other.csv"), "needs --delta"),
        (("--public", "other.csv", "--delta", "1e-6"), "other.csv"),
        (("--relation", "add_remove"), "give --n-declared N"),
        (("--quantile", "0.5"), "for --model quantile"),
        (("--ledger", "budgets.ledger"), "--dataset NAME"),
        (("--epsilon", "-1"), "above 0"),
        (("--schema", "none.toml"), "dpfit schema TABLE --out none.toml writes a template"),
        (("--solver", "magic"), "magic"),
    ],
)
def test_errors_are_one_sentence_with_the_way_out(dpfit, table, ill, arguments, words):
    result = dpfit("fit", table, "--schema", ill, "--model", "logistic", "--epsilon", 1, *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert not result.stdout


def test_a_ledger_that_is_not_there_is_a_refusal(dpfit, table, ill, tmp_path):
    asked = (
        "--model",
        "logistic",
        "--epsilon",
        1,
        "--ledger",
        tmp_path / "none",
        "--dataset",
        "patients",
    )
    result = dpfit("fit", table, "--schema", ill, *asked)
    assert result.exit_code == 1
    assert "there is no ledger" in result.stderr


def test_promises_of_another_kind_than_the_budget_are_refused(dpfit, table, ill, ledger):
    ledger.register("patients", Budget(epsilon=5.0))
    asked = (
        "--model",
        "logistic",
        "--epsilon",
        1,
        "--relation",
        "add_remove",
        "--n-declared",
        4000,
    )
    result = dpfit(
        "fit", table, "--schema", ill, *asked, "--ledger", ledger.path, "--dataset", "patients"
    )
    assert result.exit_code == 1
    assert "add_remove" in result.stderr
    assert ledger.status("patients").reservations == 0


def test_a_table_without_a_column_or_without_rows_is_refused(dpfit, ill, tmp_path):
    for content, words in (
        ("age,ill\nsecret,no\n", "no column 'ward'; it has 'age', 'ill'"),
        (HEADER, "has no rows"),
    ):
        path = tmp_path / "patients.csv"
        path.write_text(content, encoding="utf-8")
        result = dpfit("fit", path, "--schema", ill, "--model", "logistic", "--epsilon", 1)
        assert result.exit_code == 2
        assert words in result.stderr
        assert "secret" not in result.output


def test_a_target_may_be_one_of_the_columns(dpfit, table, tmp_path):
    facts = tmp_path / "s.toml"
    facts.write_text(
        "[columns.age]\nlower = 0\nupper = 100\n[columns.stay]\nlower = 0\nupper = 20\n",
        encoding="utf-8",
    )
    asked = ("--schema", facts, "--model", "linear", "--epsilon", 1, "--json")
    found = json.loads(dpfit("fit", table, *asked, "--target", "stay").stdout)
    assert [one["name"] for one in found["coefficients"]] == ["age", "intercept"]
    assert "what is to be predicted?" in dpfit("fit", table, *asked).stderr
    assert (
        "no column 'weight'; it has 'age', 'stay'"
        in dpfit("fit", table, *asked, "--target", "weight").stderr
    )


def test_parquet_and_csv_are_the_same_to_it(dpfit, table, ill, tmp_path):
    other, model = tmp_path / "patients.parquet", tmp_path / "model.json"
    parquet.write_table(arrow_csv.read_csv(table), other)
    asked = ("--schema", ill, "--model", "logistic", "--epsilon", 1, "--json")
    first = json.loads(dpfit("fit", table, *asked, "--out", model).stdout)
    second = json.loads(dpfit("fit", other, *asked).stdout)
    assert first["plan"] == second["plan"]
    assert predictions(dpfit, model, other) == predictions(dpfit, model, table)


class TestModelFiles:
    @pytest.fixture
    def model(self, dpfit, table, ill, tmp_path):
        path = tmp_path / "model.json"
        dpfit("fit", table, "--schema", ill, "--model", "logistic", "--epsilon", 1, "--out", path)
        return path

    def test_the_schema_is_in_the_file_and_the_target_is_not_needed(self, dpfit, model, tmp_path):
        path = tmp_path / "new.csv"
        path.write_text("ward,age\nnorth,secret\nnowhere,1e999\n,\n", encoding="utf-8")
        result = dpfit("predict", model, path)
        assert result.exit_code == 0
        assert result.stdout.count("\n") == 4
        assert "secret" not in result.output

    def test_a_table_without_rows_has_no_predictions(self, dpfit, model, tmp_path):
        path = tmp_path / "new.csv"
        path.write_text("ward,age\n", encoding="utf-8")
        assert dpfit("predict", model, path).stdout == "ill\n"

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (
                lambda text: text.replace('"upper": 100', '"upper": 90'),
                "was changed after it was written",
            ),
            (lambda text: text[: len(text) // 2], "or it was cut"),
            (lambda text: "[1, 2]", "is not a model"),
        ],
    )
    def test_a_damaged_file_is_refused(self, dpfit, model, table, change, words):
        text = model.read_text(encoding="utf-8")
        changed = change(text)
        assert changed != text
        model.write_text(changed, encoding="utf-8")
        result = dpfit("predict", model, table)
        assert result.exit_code == 2
        assert words in result.stderr
        assert result.stderr.count("\n") == 1

    def test_errors_name_columns_and_files_only(self, dpfit, model, table, tmp_path):
        path = tmp_path / "new.csv"
        path.write_text("age\nsecret\n", encoding="utf-8")
        result = dpfit("predict", model, path)
        assert result.exit_code == 2
        assert "no column 'ward'; it has 'age'" in result.stderr
        assert "secret" not in result.output
        assert "there is no model" in dpfit("predict", tmp_path / "none.json", table).stderr


def test_former_names_of_options_work_and_warn(dpfit, table, ill):
    asked = ("--schema", ill, "--model", "logistic", "--epsilon", 1, "--json")
    old = dpfit("fit", table, *asked, "--neighbours=add_remove", "--n-public", 4000)
    new = dpfit("fit", table, *asked, "--relation", "add_remove", "--n-declared", 4000)
    assert old.stderr.splitlines() == [
        f"warning: {name}; the old name works in this version only"
        for name in ("--neighbours is now --relation", "--n-public is now --n-declared")
    ]
    assert (old.exit_code, new.exit_code, new.stderr) == (0, 0, "")
    assert json.loads(old.stdout)["plan"] == json.loads(new.stdout)["plan"]
    assert "neighbours" not in dpfit("fit", "--help").stdout


def test_a_column_of_dates_is_read_as_days(dpfit, tmp_path):
    path, schema, out = tmp_path / "t.csv", tmp_path / "s.toml", tmp_path / "m.json"
    days = [f"2025-{1 + k % 12:02d}-15" for k in range(4000)]
    lines = [f"{day},{'yes' if day > '2025-06-30' else 'no'}" for day in days]
    path.write_text("\n".join(["admitted,late", *lines, "soon,no", ",yes"]), encoding="utf-8")
    columns = "[columns.admitted]\nlower = 2025-01-01\nupper = 2025-12-31\n"
    schema.write_text(
        columns + '[target]\nname = "late"\ncategories = ["no", "yes"]\n', encoding="utf-8"
    )
    asked = ("--schema", schema, "--model", "logistic", "--epsilon", 2, "--out", out)
    assert dpfit("fit", path, *asked).exit_code == 0
    found = predictions(dpfit, out, path)["predictions"][:4000]
    assert np.mean(np.array(found) == [line.split(",")[1] for line in lines]) > 0.9
    cut = ("query", path, "--schema", schema, "--epsilon", 1, "--by", "admitted", "--bins")
    counted = dpfit(*cut, "admitted=2025-01-01,2025-07-01,2025-12-31")
    assert "admitted = [2025-01-01, 2025-07-01)" in counted.stdout
    refused = dpfit(*cut, "admitted=2025-01-01,soon")
    assert refused.exit_code == 2
    assert "--bins takes COLUMN=N or COLUMN=EDGE" in refused.stderr
