"""``dpfit query``: counts with their promise."""

import csv
import json

import pytest

from dpfit.ledger import Ledger
from dpfit.privacy import Budget, Guarantee


def counts(dpfit, table, schema, *more):
    result = dpfit("query", table, "--schema", schema, *more, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_crossed_columns_are_counted(dpfit, table, ill):
    found = counts(
        dpfit, table, ill, "--by", "ward", "--by", "age", "--bins", "age=0,25,100", "--epsilon", 1
    )
    assert set(found) == {
        "schema",
        "counts",
        "level",
        "promise",
        "guarantee",
        "references",
        "plan",
        "private",
        "budget",
    }
    assert Guarantee.from_json(found["guarantee"]).pure == 1.0
    by_label = {one["label"]: one for one in found["counts"]}
    # Noise of scale about 2: sixty is forty-nine more than could be seen in a million runs.
    for label, truth in (
        ("ward = north, age = [0, 25)", 500),
        ("ward = south, age = [25, 100]", 1500),
    ):
        assert abs(by_label[label]["count"] - truth) < 60
        assert by_label[label]["lower"] < by_label[label]["upper"] < truth + 120


def test_each_column_on_its_own(dpfit, table, ill):
    found = counts(dpfit, table, ill, "--by", "ward", "--by", "ill", "--each", "--epsilon", 1)
    assert [one["label"] for one in found["counts"]] == [
        "ward = north", "ward = south", "ward = other", "ill = no", "ill = yes", "ill = other",
    ]  # fmt: skip
    assert abs(found["counts"][4]["count"] - 2000) < 80


@pytest.mark.parametrize(
    ("currency", "fair"), [("pure", 0.5), ("gdp", Budget(epsilon=0.5, delta=1e-6).gaussian_mu ** 2)]
)
def test_the_ledger_pays_a_fair_price(dpfit, table, ill, tmp_path, currency, fair):
    ledger = Ledger.create(tmp_path / "budgets.ledger")
    ledger.register("patients", Budget(epsilon=2.0, delta=1e-5), currency=currency)
    asked = ("--by", "ward", "--epsilon", 0.5, "--delta", "1e-6", "--why", "table 1")
    found = counts(dpfit, table, ill, *asked, "--ledger", ledger.path, "--dataset", "patients")
    assert float(ledger.status("patients").spent.amount) == pytest.approx(fair, rel=0.05)
    assert found["budget"]["releases"] == 1
    assert any(entry.facts.get("why") == "table 1" for entry in ledger.entries("patients"))


def test_files_are_written(dpfit, table, ill, tmp_path):
    out, page = tmp_path / "counts.csv", tmp_path / "counts.html"
    asked = ("--by", "ward", "--epsilon", 1, "--out", out, "--report", page)
    assert dpfit("query", table, "--schema", ill, *asked).exit_code == 0
    lines = list(csv.DictReader(out.read_text(encoding="utf-8").splitlines()))
    assert [line["count of"] for line in lines] == ["ward = north", "ward = south", "ward = other"]
    assert abs(float(lines[0]["count"]) - 2000) < 60
    assert "Counts by ward" in page.read_text(encoding="utf-8")
    assert "exists already" in dpfit("query", table, "--schema", ill, *asked).stderr


def test_people_see_counts_and_promise(dpfit, table, ill):
    result = dpfit("query", table, "--schema", ill, "--by", "ward", "--epsilon", 1)
    assert "ward = north" in result.stdout
    assert "epsilon = 1, with one record replaced" in result.stdout


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--by", "weight"), "no column 'weight'; it has 'age', 'ward', 'ill'"),
        (("--by", "age"), "say how to cut it"),
        (("--by", "age", "--bins", "age=many"), "--bins takes COLUMN=N"),
        (("--by", "ward", "--dataset", "patients"), "--ledger FILE and --dataset NAME"),
        (("--by", "ward", "--noise", "none"), "none"),
    ],
)
def test_errors_are_one_sentence(dpfit, table, ill, more, words):
    result = dpfit("query", table, "--schema", ill, "--epsilon", 1, *more)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
