"""``dpfit plan``: from public facts alone, the plan that ``fit`` would run."""

import json
import math

import pytest

from dpfit.cli.plan import smallest_epsilon
from dpfit.core import plan_from_json
from dpfit.ledger import Ledger
from dpfit.models import LogisticRegression, Ridge
from dpfit.privacy import Budget

KEYS = {
    "schema", "fitted", "target", "rows", "epsilon", "delta", "reach", "promise", "guarantee",
    "plan", "references", "predicted_risk", "considered", "curve", "ledger", "warnings",
}  # fmt: skip


def planned(dpfit, schema, *more):
    result = dpfit(
        "plan", "--rows", 4000, "--schema", schema, "--model", "logistic", "--json", *more
    )
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("more", [(), ("--delta", "1e-6"), ("--relation", "add_remove")])
def test_the_plan_is_the_one_that_fit_runs(dpfit, table, ill, more):
    found = planned(dpfit, ill, "--epsilon", 1, *more)
    assert set(found) == KEYS
    asked = (
        "--model",
        "logistic",
        "--epsilon",
        1,
        *more,
        *(("--n-declared", 4000) if "add_remove" in more else ()),
    )
    ran = json.loads(dpfit("fit", table, "--schema", ill, *asked, "--json").stdout)
    assert found["plan"] == ran["plan"]
    assert found["guarantee"] == ran["guarantee"]
    assert found["references"] == ran["references"]
    assert all(
        work["key"] in found["guarantee"]["basis"]["theorem"] for work in found["references"]
    )
    assert found["references"]
    assert found["predicted_risk"] == ran["predicted_risk"]


def test_one_pass_is_planned_where_one_is_allowed(dpfit, ill):
    found = planned(dpfit, ill, "--epsilon", 1, "--delta", "1e-6", "--max-passes", 1)
    names = [each["name"] for each in found["considered"]]
    assert names[0] == "phased_sgd"
    assert "noisy_gd" in names
    free = planned(dpfit, ill, "--epsilon", 1, "--delta", "1e-6")
    assert "phased_sgd" in [each["name"] for each in free["considered"][1:]]


def test_the_promise_is_told_at_the_delta_that_was_asked_for(dpfit, ill):
    shown = dpfit(
        "plan",
        "--rows",
        4000,
        "--schema",
        ill,
        "--model",
        "logistic",
        "--epsilon",
        1,
        "--delta",
        "1e-5",
    )
    assert "epsilon = 1 at delta = 1e-5" in shown.stdout
    assert "1e-6" not in shown.stdout
    assert "references" in shown.stdout
    assert planned(dpfit, ill, "--epsilon", 1, "--delta", "1e-5")["promise"].startswith(
        "epsilon = 1 at delta = 1e-5"
    )


def test_the_plan_is_that_of_the_model_on_the_rows_of_the_schema(dpfit, ill, stay):
    # Age, one of three wards, and the constant: rows of length at most the root of three, five
    # columns.
    bound = math.nextafter(math.sqrt(3), 2)
    facts = {"row_norm": bound, "fit_intercept": False}
    classifier = LogisticRegression(epsilon=1.0, classes=["no", "yes"], **facts)
    regressor = Ridge(epsilon=1.0, ridge=0.5, y_bounds=(0, 20), **facts)
    regressor.rows_have_constant = True
    for schema, model, more in (
        (ill, classifier, ("logistic",)),
        (stay, regressor, ("ridge", "--ridge", 0.5)),
    ):
        result = dpfit(
            "plan", "--rows", 4000, "--schema", schema, "--epsilon", 1, "--json", "--model", *more
        )
        assert plan_from_json(json.loads(result.stdout)["plan"]) == model.plan(4000, 5)


def test_candidates_are_ranked_and_the_curve_falls(dpfit, ill):
    found = planned(dpfit, ill, "--epsilon", 1, "--delta", "1e-6")
    risks = [one["risk"] for one in found["considered"]]
    assert len(risks) > 1
    assert risks == sorted(risks)
    assert found["predicted_risk"] == risks[0]
    epsilons, curve = zip(*((at["epsilon"], at["risk"]) for at in found["curve"]), strict=True)
    assert epsilons == pytest.approx((0.1, 0.3, 1, 3, 10))
    assert list(curve) == sorted(curve, reverse=True)
    assert curve[2] == found["predicted_risk"]


def test_reach_finds_the_epsilon(dpfit, ill):
    wanted = 1.5 * planned(dpfit, ill, "--epsilon", 0.3)["predicted_risk"]
    found = planned(dpfit, ill, "--target-risk", wanted)
    assert found["epsilon"] < 0.3
    assert found["predicted_risk"] <= wanted
    assert planned(dpfit, ill, "--epsilon", 0.95 * found["epsilon"])["predicted_risk"] > wanted


@pytest.mark.parametrize("wanted", [1e-3, 0.02, 0.7])
def test_bisection_is_within_a_percent(wanted):
    found = smallest_epsilon(lambda epsilon: 0.04 / epsilon**1.5, wanted)
    exact = (0.04 / wanted) ** (1 / 1.5)
    assert exact <= found <= 1.01 * exact


def test_what_cannot_be_reached_is_said(dpfit, ill):
    with pytest.raises(ValueError, match=r"even epsilon = 100 is predicted to reach 0\.5 only"):
        smallest_epsilon(lambda epsilon: 0.5, 0.4)
    result = dpfit(
        "plan", "--rows", 5, "--schema", ill, "--model", "logistic", "--target-risk", 1e-9
    )
    assert result.exit_code == 2
    assert "more rows, fewer columns or a larger --target-risk would help" in result.stderr


def test_the_ledger_is_asked_and_not_charged(dpfit, ill, tmp_path):
    ledger = Ledger.create(tmp_path / "budgets.ledger")
    ledger.register("patients", Budget(epsilon=1.5))
    charged = ("--ledger", ledger.path, "--dataset", "patients")
    fits, dear = (planned(dpfit, ill, "--epsilon", at, *charged)["ledger"] for at in (1, 2))
    assert fits["fits"] is True
    assert dear["fits"] is False
    assert (dear["currency"], dear["left"], dear["asked"]) == ("epsilon", 1.5, pytest.approx(2.0))
    assert ledger.status("patients").reservations == 0


def test_users_can_be_planned_for(dpfit, ill):
    users = ("--unit", "user", "--max-rows", 3, "--relation", "add_remove")
    found = planned(dpfit, ill, "--epsilon", 1, *users)
    assert found["guarantee"]["basis"]["unit"] == "user"
    assert found["plan"]["transformation"]["max_rows"] == 3
    alone = planned(dpfit, ill, "--epsilon", 1, "--relation", "add_remove")
    assert found["predicted_risk"] > alone["predicted_risk"]


def test_a_poor_plan_says_that_it_is_hardly_better_than_guessing(dpfit, ill, tmp_path):
    asked = ("--schema", ill, "--model", "logistic", "--epsilon", "0.1")
    poor = " ".join(dpfit("plan", "--rows", 30, *asked).stdout.split())
    assert "advice this model is predicted to be hardly better than guessing" in poor
    assert "guessing" not in dpfit("plan", "--rows", 40_000, *asked).stdout
    dpfit("plan", "--rows", 30, *asked, "--report", tmp_path / "plan.html")
    page = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert "Advice: this model is predicted to be hardly better than guessing" in page
    assert "how far the mean loss will be above that of the best model" in page


def test_people_see_solvers_and_the_curve(dpfit, ill, tmp_path):
    page = tmp_path / "plan.html"
    result = dpfit(
        "plan",
        "--rows",
        4000,
        "--schema",
        ill,
        "--model",
        "logistic",
        "--epsilon",
        1,
        "--report",
        page,
    )
    assert (result.exit_code, result.stderr) == (0, "")
    told = result.stdout.splitlines()
    assert told.index(next(line for line in told if line.startswith("for experts"))) > 5
    for words in (
        "method ",
        "promise ",
        "Considered, best first",
        "Risk against epsilon",
        "objective_perturbation",
    ):
        assert words in result.stdout
    assert "the data have not been read" in page.read_text(encoding="utf-8").lower()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ((), "give --epsilon, what the fit may cost, or --target-risk RISK"),
        (("--epsilon", "1", "--target-risk", "0.1"), "give --epsilon"),
        (("--target-risk", "0"), "a risk above 0"),
        (("--epsilon", "1", "--unit", "user"), "--max-rows M"),
        (("--epsilon", "1", "--max-rows", "3"), "--unit user"),
    ],
)
def test_errors_are_one_sentence(dpfit, ill, more, words):
    result = dpfit("plan", "--rows", 4000, "--schema", ill, "--model", "logistic", *more)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
