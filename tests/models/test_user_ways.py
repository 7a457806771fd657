"""Two ways to protect users in a model: capped rows and means over users, under both relations."""

import warnings

import numpy as np
import pytest

import dpfit
from dpfit.audit.auditor import audit_runs
from dpfit.audit.runs import PlanRuns
from dpfit.core import Minimize, TransformedPlan
from dpfit.data.dataset import InMemory
from dpfit.data.schema import Category, Schema
from dpfit.losses import Bounds, Huber
from dpfit.models import LinearRegression, LogisticRegression
from dpfit.models import users as users_file
from dpfit.models.users import UserCap, cap_and_budgets
from dpfit.privacy import Budget
from dpfit.queries import count
from dpfit.solvers.perturbation.output_perturbation import output_perturbation


def visits(users=400, rows=20, seed=1):
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(users), rows)
    X = rng.uniform(-1, 1, (len(ids), 3))
    return X, rng.random(len(ids)) < 1 / (1 + np.exp(-4 * X[:, 0])), ids


def model(relation="replace", **facts):
    return LogisticRegression(1.0, 1e-6, relation=relation, bounds=(-1, 1), **facts)


@pytest.mark.parametrize(("relation", "facts"), [("replace", {}), ("add_remove", {"n_users": 400})])
def test_both_ways_are_planned_and_the_better_one_is_taken(relation, facts):
    X, y, ids = visits()
    fitted = model(relation, rows_per_user=20, max_rows_per_user=5, **facts).fit(X, y, user_ids=ids)
    assert fitted.guarantee_.basis.unit == "user"
    assert fitted.guarantee_.meets(Budget(epsilon=1.0, delta=1e-6, relation=relation, unit="user"))
    ways = {note.name: note.risk for note in fitted.plan_.considered if "user" in note.name}
    assert sorted(name.split(", ")[1] for name in ways) == [
        "at most 5 rows of a user",
        "user means",
    ]
    assert fitted.plan_.risk.expected == pytest.approx(min(ways.values()))
    assert fitted.coef_[0, 0] > 2 * np.abs(fitted.coef_[0, 1:]).max()


def test_users_of_one_row_are_capped_and_those_of_fifty_are_averaged():
    def takes_means(rows):
        plan = model(rows_per_user=rows, max_rows_per_user=min(rows, 3)).plan(2000, 3, by_user=True)
        return not any(
            isinstance(part, TransformedPlan) and isinstance(part.transformation, UserCap)
            for part in (plan, *plan.parts)
        )

    assert takes_means(50)
    assert not takes_means(2)


def test_private_ranges_protect_users_too():
    X, _, ids = visits()
    fitted = LinearRegression(3.0, 1e-6, rows_per_user=20).fit(10 * X, X[:, 0], user_ids=ids)
    basis = fitted.plan_.basis
    assert (basis.unit, basis.relation) == ("user", "replace")
    assert any("at most 1 records of each user" in each.text for each in basis.assumptions)


def test_the_number_of_users_is_public_under_replace_one_only():
    X, y, ids = visits(users=50)
    with pytest.raises(ValueError, match="there are 50: leave out n_users"):
        model(rows_per_user=20, n_users=60).fit(X, y, user_ids=ids)
    with pytest.raises(ValueError, match="give n_users"):
        model("add_remove", rows_per_user=20).fit(X, y, user_ids=ids)
    for facts in ({"rows_per_user": 0.0}, {"rows_per_user": -2.0}, {"max_rows_per_user": 0}):
        with pytest.raises(ValueError, match="rows_per_user"):
            model(**facts).fit(X, y, user_ids=ids)
    with pytest.raises(ValueError, match="max_rows_per_user"):
        model().fit(X, y, user_ids=ids)
    with pytest.raises(ValueError, match="user_ids"):
        model(rows_per_user=20).fit(X, y, user_ids=ids[:-1])


def test_delta_is_compared_with_the_number_of_users():
    X, y, ids = visits(users=200, rows=30)
    noisy = LogisticRegression(1.0, 0.006, bounds=(-1, 1), rows_per_user=30)
    with pytest.warns(UserWarning, match="1 / n = 0.005: releasing a random user"):
        noisy.fit(X, y, user_ids=ids)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(rows_per_user=30).fit(X, y, user_ids=ids)


def test_a_pure_budget_is_for_capped_rows():
    X, y, ids = visits(users=50)
    with pytest.raises(ValueError, match="pass delta, or max_rows_per_user: capped rows"):
        LogisticRegression(1.0, bounds=(-1, 1), rows_per_user=20).fit(X, y, user_ids=ids)
    capped = LogisticRegression(1.0, bounds=(-1, 1), max_rows_per_user=2).fit(X, y, user_ids=ids)
    assert capped.guarantee_.pure == pytest.approx(1.0)


# Capped rows under replace-one: a replaced user changes the number of kept rows.


def capped_plan(most=3):
    problem = Minimize(
        n=12, loss=Huber(1.0), bounds=Bounds(1.0, -50.0, 50.0), n_features=2, ridge=0.5
    )
    cap, budgets = cap_and_budgets(Budget(epsilon=2.0, unit="user"), most)
    return TransformedPlan.of(cap, output_perturbation.plan(problem, budgets[0], ridge=0.5))


def replaced_user():
    """A user of nine rows becomes one of two opposite rows, with another id."""
    labels = np.append(np.full(12, -40.0), np.full(9, 40.0))
    ids = np.append(np.arange(12) // 2, np.full(9, 99))
    data = InMemory(np.tile([1.0, 0.0], (21, 1)), labels, ids)
    other = np.append(np.full(12, -40.0), np.full(9, -40.0))
    return data, InMemory(np.tile([1.0, 0.0], (21, 1)), other, np.append(ids[:12], np.full(9, -5)))


def test_a_replaced_user_is_charged_for_all_rows_that_leave_and_enter():
    plan = capped_plan()
    assert plan.basis.relation == "replace"
    assert plan.guarantee.meets(Budget(epsilon=2.0, unit="user"))
    assert not plan.guarantee.meets(Budget(epsilon=1.9, unit="user"))
    moved = 2 * 3 / (12 * 0.5)
    mechanism = plan.final
    assert moved / (mechanism.noise_multiplier * mechanism.sensitivity) <= 2.0
    audit = audit_runs(PlanRuns(plan), *replaced_user(), plan.guarantee, runs=250, random_state=1)
    assert audit.verdict == "kept", str(audit)


def test_a_cap_that_charges_a_replaced_user_once_is_caught(monkeypatch):
    monkeypatch.setattr(users_file, "Replaced", lambda event: event)
    whole = TransformedPlan.of(
        UserCap(1, "replace"),
        output_perturbation.plan(
            Minimize(
                n=12, loss=Huber(1.0), bounds=Bounds(1.0, -50.0, 50.0), n_features=2, ridge=0.5
            ),
            Budget(epsilon=4.0, relation="add_remove"),
            ridge=0.5,
        ),
    )
    audit = audit_runs(
        PlanRuns(whole), *replaced_user(), capped_plan(1).guarantee, runs=300, random_state=1
    )
    assert audit.verdict == "broken", str(audit)


# Counts and means.


def test_each_user_counts_once_by_a_random_row():
    table = {"who": [1, 1, 1, "2", 2.0, None] * 1, "ward": ["A", "A", "B", "A", "B", "A"]}
    schema = Schema((Category("ward", ("A", "B")),))
    totals, first = [], []
    for seed in range(60):
        found = count(table, schema, by="ward", epsilon=200.0, user="who", random_state=seed)
        totals.append(round(found.values.sum()))
        first.append(round(found.values[0]))
    assert set(totals) == {2}
    # Both users are in A with probability 2/3 * 1/2: all of 0, 1, 2 occur; false alarm below 1e-4.
    assert set(first) == {0, 1, 2}
    assert found.release.guarantee.basis.unit == "user"
    with pytest.raises(ValueError, match="no column"):
        count(table, schema, by="ward", epsilon=1.0, user="whom")


def test_user_mean_counts_each_user_once():
    ids = np.append(np.zeros(900), np.arange(1, 301)).astype(int)
    table = {"who": ids, "stay": np.append(np.full(900, 20.0), np.full(300, 4.0))}
    for relation, facts in (("replace", {}), ("add_remove", {"n_users": 301})):
        found = dpfit.user_mean(
            table, "stay", user="who", bounds=(0, 20), mu=50.0, relation=relation,
            random_state=1, **facts,
        )  # fmt: skip
        assert found.means["stay"] == pytest.approx((300 * 4 + 20) / 301, abs=0.05)
    staged = dpfit.user_mean(
        table, ["stay"], user="who", bounds=(0, 20), mu=1.0, spread=0.1, random_state=1
    )
    assert staged.means["stay"] == pytest.approx(4.0, abs=0.5)
    with pytest.raises(ValueError, match="give n_users"):
        dpfit.user_mean(table, "stay", user="who", bounds=(0, 20), mu=1.0, relation="add_remove")
    with pytest.raises(ValueError, match="there are 301"):
        dpfit.user_mean(table, "stay", user="who", bounds=(0, 20), mu=1.0, n_users=9)
    with pytest.raises(ValueError, match="bounds must be finite"):
        dpfit.user_mean(table, "stay", user="who", bounds=(20, 0), mu=1.0)
