"""``dpfit stream``: open once, add each step once, show from what was released."""

import json
import shutil
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from dpfit.cli.stream import chart
from dpfit.core.store import StateFile
from dpfit.data.schema import Category, Number, Schema
from dpfit.ledger import DatasetAccount, Ledger, LedgerUnavailable
from dpfit.privacy import Budget
from dpfit.queries.continual import ContinualCounts, Measures

BUDGET = ("--epsilon", "1", "--delta", "1e-6")


@pytest.fixture
def place(tmp_path):
    (tmp_path / "schema.toml").write_text(
        '[columns.ward]\ncategories = ["A", "B"]\n\n[columns.cost]\nlower = 0\nupper = 100\n'
    )
    for day in range(1, 5):
        lines = ["who,ward,cost", *(f"p{k},{'AB'[k % 2]},50" for k in range(10 * day))]
        (tmp_path / f"{day}.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.fixture
def opened(place, dpfit):
    Ledger.create(place / "book").register(
        "visits", Budget(epsilon=2.0, delta=1e-6, relation="add_remove")
    )
    result = dpfit(
        "stream", "open", place / "s", "--schema", place / "schema.toml", "--by", "ward",
        "--sum", "cost", "--steps", 4, *BUDGET, "--ledger", place / "book", "--dataset", "visits",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "all charged now" in result.stdout
    return place / "s"


def kinds(place):
    return [entry.kind for entry in Ledger(place / "book").entries("visits")]


def test_a_step_is_answered_once(place, opened, dpfit):
    first = dpfit("stream", "add", opened, place / "1.csv", "--step", 1, "--json")
    assert first.exit_code == 0, first.stderr
    found = json.loads(first.stdout)
    assert found["step"] == 1
    assert [line["label"] for line in found["estimates"]["total"]][:2] == ["all", "ward = A"]
    # The table is not read again: it need not exist.
    again = dpfit("stream", "add", opened, place / "gone.csv", "--step", 1, "--json")
    assert again.stdout == first.stdout
    refused = dpfit("stream", "add", opened, place / "3.csv", "--step", 3)
    assert refused.exit_code == 2
    assert "in order" in refused.stderr
    assert kinds(place) == ["register", "reserve"]


def test_an_answer_that_was_not_stored_is_not_printed(place, opened, dpfit, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(StateFile, "write", _full)
        refused = dpfit("stream", "add", opened, place / "1.csv", "--step", 1, "--json")
    assert refused.exit_code != 0
    assert not refused.stdout
    assert "cannot be used" in refused.stderr
    # The ledger is out of reach after the state file was written: the answer is that of the file.
    with monkeypatch.context() as patched:
        patched.setattr(DatasetAccount, "advance", _locked_from_step_1)
        withheld = dpfit("stream", "add", opened, place / "1.csv", "--step", 1, "--json")
    assert withheld.exit_code != 0
    assert not withheld.stdout
    stored = json.loads((opened / "state").read_text().splitlines()[-1].partition(" ")[2])
    shown = dpfit("stream", "add", opened, place / "gone.csv", "--step", 1, "--json")
    value = json.loads(shown.stdout)["estimates"]["total"][1]["value"]
    assert value == stored["last"]["$array"][0]
    assert kinds(place) == ["register", "reserve"]


def _full(*arguments, **facts):
    raise OSError("no space left on device")


def _locked_from_step_1(account, token, step, mark, previous):
    if step:
        raise LedgerUnavailable("locked")


def test_totals_are_near_the_truth_and_within_their_intervals(place, opened, dpfit):
    for day in range(1, 5):
        assert dpfit("stream", "add", opened, place / f"{day}.csv").exit_code == 0
    shown = json.loads(dpfit("stream", "show", opened, "--json").stdout)
    truth = {"all": 100, "ward = A": 50, "ward = B": 50, "ward is other": 0, "cost: all": 5000}
    for line in shown["estimates"]["total"]:
        if line["label"] in truth:
            # Six deviations: an interval of 95% is two.
            half = (line["upper"] - line["lower"]) / 2
            assert abs(line["value"] - truth[line["label"]]) < 3.2 * half
    assert len(shown["series"]) == 4
    last = dpfit("stream", "add", opened, place / "1.csv", "--step", 5)
    assert last.exit_code == 2
    assert "ends after 4 steps" in last.stderr
    assert kinds(place) == ["register", "reserve"]


def test_the_figure_and_the_page_are_made_of_what_was_released(place, opened, dpfit):
    assert "no step was added" in dpfit("stream", "show", opened).stderr
    dpfit("stream", "add", opened, place / "1.csv", place / "2.csv", "--step", 1)
    shown = dpfit(
        "stream", "show", opened, "--of", "ward = A", "--window", 7, "--report", place / "p.html"
    )
    assert shown.exit_code == 0, shown.stderr
    assert "ward = A in the last 7 steps, steps 1 to 2" in shown.stdout
    page = (place / "p.html").read_text()
    assert "<figure><svg" in page.replace("\n", "")
    assert "A dashboard after 2 steps" in page
    assert "there is no estimate 'x'" in dpfit("stream", "show", opened, "--of", "x").stderr


def test_a_copy_of_the_folder_gives_no_step_a_second_answer(place, opened, dpfit):
    shutil.copytree(opened, place / "copy")
    assert dpfit("stream", "add", opened, place / "1.csv").exit_code == 0
    refused = dpfit("stream", "add", place / "copy", place / "2.csv")
    assert refused.exit_code != 0
    assert "copy or a backup" in refused.stderr


@pytest.mark.parametrize("name", ["plan.json", "state"])
def test_a_damaged_folder_is_refused(place, opened, dpfit, name):
    content = (opened / name).read_bytes()
    (opened / name).write_bytes(b"x" + content)
    refused = dpfit("stream", "add", opened, place / "1.csv")
    assert refused.exit_code == 2
    assert kinds(place) == ["register", "reserve"]


def test_a_budget_that_is_gone_opens_nothing(place, opened, dpfit):
    refused = dpfit(
        "stream", "open", place / "t", "--schema", place / "schema.toml", "--by", "ward",
        "--steps", 4, "--epsilon", 5, "--delta", "1e-6", "--ledger", place / "book",
        "--dataset", "visits",
    )  # fmt: skip
    assert refused.exit_code != 0
    assert not (place / "t").exists()
    assert kinds(place) == ["register", "reserve"]


def test_users_and_pure_budgets(place, dpfit):
    opened = dpfit(
        "stream", "open", place / "u", "--schema", place / "schema.toml", "--by", "ward",
        "--steps", 4, *BUDGET, "--user", "who", "--max-steps", 2, "--apart", 1,
    )  # fmt: skip
    assert opened.exit_code == 0, opened.stderr
    assert dpfit("stream", "add", place / "u", place / "1.csv").exit_code == 0
    pure = dpfit(
        "stream",
        "open",
        place / "v",
        "--schema",
        place / "schema.toml",
        "--steps",
        4,
        "--epsilon",
        1,
    )
    assert pure.exit_code == 0, pure.stderr
    assert dpfit("stream", "add", place / "v", place / "1.csv").exit_code == 0


@pytest.mark.slow
def test_a_stream_goes_on_in_another_process(place, opened, dpfit):
    command = [sys.executable, "-m", "dpfit", "stream", "add", opened]
    subprocess.run([*command, place / "1.csv", "--step", "1"], check=True, capture_output=True)
    first = dpfit("stream", "show", opened, "--json").stdout
    again = subprocess.run(
        [*command, place / "1.csv", "--step", "1", "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    shown = json.loads(again.stdout)["estimates"]
    assert shown == json.loads(first)["estimates"]


# The measures.

SCHEMA = Schema(
    (Category("ward", ("A", "B")), Category("sex", ("f", "m")), Number("cost", -20, 100))
)


def test_outputs_are_the_counts_and_sums_of_the_table():
    from dpfit.data.table import Table

    measures = Measures.of(SCHEMA, ["ward", "sex"], ["cost"])
    table = Table(
        {"ward": ["A", "B", "Z", "A"], "sex": ["f", "m", None, "f"], "cost": [10, 999, None, "x"]}
    )
    rows = measures.rows(table)
    totals = dict(zip(measures.labels, measures.outputs @ rows.sum(axis=0), strict=True))
    assert totals == {
        "all": 4, "ward = A": 2, "ward = B": 1, "ward is other": 1,
        "sex = f": 2, "sex = m": 1, "sex is other": 1,
        "cost: all": 110, "cost: ward = A": 10, "cost: ward = B": 100, "cost: ward is other": 0,
        "cost: sex = f": 10, "cost: sex = m": 100, "cost: sex is other": 0,
    }  # fmt: skip
    assert np.linalg.norm(rows, axis=1).max() <= measures.bound
    assert np.abs(rows).sum(axis=1).max() <= measures.groups
    assert not measures.non_negative


HUGE = [1e308, -1e308, 10**30]
NOT_FINITE = [
    float("inf"), -float("inf"), float("nan"), 10**400, -(10**400), 2**1024, None, "x", "1e999",
    Decimal("1e5000"), Decimal("sNaN"), Fraction(10**400, 3), b"nan",
]  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("column", [list, lambda cells: np.array(cells, dtype=object), pd.Series])
def test_numbers_that_are_not_finite_count_as_zero_in_silence(column):
    from dpfit.data.table import Table

    measures = Measures.of(SCHEMA, ["ward"], ["cost"])
    cells = [*HUGE, *NOT_FINITE]
    rows = measures.rows(Table({"ward": ["A"] * len(cells), "cost": column(cells)}))
    scaled = [1.0, -0.2, 1.0] + [0.0] * len(NOT_FINITE)
    np.testing.assert_array_equal(rows[:, 3], scaled)
    np.testing.assert_array_equal(rows[:, 0], 1.0)
    assert not rows[:, [1, 2, 4, 5]].any()


@pytest.mark.filterwarnings("error")
def test_a_table_of_cells_that_are_no_numbers_is_added_in_silence(place, opened, dpfit):
    cells = ["inf", "-inf", "nan", "", "x", "1e400", "9" * 400, "1e308", "-1e308"]
    text = "who,ward,cost\n" + "\n".join(f"p,A,{cell}" for cell in cells)
    (place / "1.csv").write_text(text + "\n")
    result = dpfit("stream", "add", opened, place / "1.csv", "--step", 1)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""


def test_intervals_hold_their_values_at_their_level(tmp_path):
    measures = Measures.of(SCHEMA, ["ward"], [])
    found = []
    for run in range(60):
        stream = ContinualCounts.open(
            tmp_path / f"{run}", measures, steps=5,
            budget=Budget(epsilon=1.0, delta=1e-6, relation="add_remove"),
        )  # fmt: skip
        for _ in range(5):
            stream.add({"ward": ["A"] * 7 + ["B"] * 3})
        truth = dict(zip(measures.labels, (10, 7, 3, 0), strict=True))
        for window in (None, 2):
            for step in (1, 5):
                each = stream.estimates(step, window, level=0.8)
                count = min(step, window or step)
                for label, low, high in zip(
                    each["label"], each["lower"], each["upper"], strict=True
                ):
                    found.append(low <= truth[label] * count <= high)
    # 60 independent streams of 16 dependent intervals: 0.8 within six of their deviations.
    assert 0.62 < np.mean(found) < 0.95


def test_the_chart_shows_values_between_their_ends():
    lines = chart([0.0, 10.0], [1.0, 1.0], height=5).splitlines()
    assert lines[0].endswith("█")
    assert "█" in lines[-1]
    assert chart([3.0], [0.0], height=2)
    assert len(chart(list(range(500)), [1.0] * 500).splitlines()[0]) <= 72
