"""Users with several records: how many are used, their joint cost, and attacks."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfit.audit.auditor import audit_plan, audit_runs
from dpfit.audit.runs import PlanRuns
from dpfit.core import Mechanism, Minimize, Run, Step, TransformedPlan
from dpfit.data.dataset import Blocks, InMemory
from dpfit.data.view import View
from dpfit.losses import Bounds, Huber
from dpfit.models import users
from dpfit.models.scaling import Scaling
from dpfit.models.users import UserCap, record_budget
from dpfit.noise import Source
from dpfit.privacy import Basis, Budget
from dpfit.privacy.event import Pure
from dpfit.solvers.perturbation.output_perturbation import output_perturbation

BUDGETS = [
    Budget(epsilon=2.0, relation="add_remove", unit="user"),
    Budget(mu=1.0, relation="add_remove", unit="user"),
    Budget(epsilon=1.0, delta=1e-5, relation="add_remove", unit="user"),
    Budget(rho=0.5, relation="add_remove", unit="user"),
]


@dataclass(frozen=True)
class Whose(Mechanism):
    """Tells whose records it was given: a spy, not a release."""

    kind = "test_whose"

    @property
    def event(self):
        return Pure(1.0)

    def run(self, data, run):
        return np.asarray(data.users), np.asarray(data.whole.rows)[:, 0]


def capped(plan, max_rows):
    return TransformedPlan.of(UserCap(max_rows), plan)


def spy(max_rows):
    return capped(Step(Whose(), Basis("a spy", "add_remove")), max_rows)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(1, 6), st.integers(0, 2**32)
)
def test_at_most_so_many_records_of_a_user_are_used(ids, most, seed):
    """Users with fewer lose none; no record is used twice or changes hands."""
    data = InMemory(
        np.arange(float(len(ids)))[:, None], np.zeros(len(ids)), np.array(ids, dtype=np.int64)
    )
    whose, numbers = spy(most).run(data, random_state=seed).value
    assert len(set(numbers.tolist())) == len(numbers)
    assert [str(ids[int(number)]) for number in numbers] == whose.tolist()
    for user in set(ids):
        assert (whose == str(user)).sum() == min(ids.count(user), most)


def test_records_in_blocks_keep_their_users():
    ids, X = ["ann", "ann", None, "bob", "ann", None], np.arange(6.0)[:, None]
    blocks = Blocks(6, 1, lambda: ((X[i : i + 2], np.zeros(2), ids[i : i + 2]) for i in (0, 2, 4)))
    for data in (blocks, blocks.map(Scaling(row_norm=9.0)), InMemory(X, np.zeros(6), ids)):
        whose, numbers = spy(2).run(data, random_state=1).value
        assert sorted(whose) == ["ann", "ann", "bob"]
        assert [ids[int(number)] for number in numbers] == whose.tolist()


def test_which_records_are_used_is_uniform():
    data = InMemory(np.arange(6.0)[:, None], np.zeros(6), np.zeros(6, dtype=np.int64))
    run = Run(Source(random_state=3))
    kept = np.concatenate(
        [
            whole[1]
            for whole in spy(2).execute_many(View(data, "add_remove", "user", run.noise), run, 3000)
        ]
    )
    # Each of six records is one of the two with probability 1 / 3; six standard deviations.
    assert np.abs(np.bincount(kept.astype(int)) - 1000).max() < 6 * np.sqrt(3000 * 2 / 9)


def one_sided():
    """Records far from the fit: each pulls with the full Lipschitz constant, always."""
    return Minimize(n=12, loss=Huber(1.0), bounds=Bounds(1.0, -50.0, 50.0), n_features=2, ridge=0.5)


def per_user(budget, most):
    return capped(
        output_perturbation.plan(one_sided(), record_budget(budget, most), ridge=0.5), most
    )


@pytest.mark.parametrize("most", [1, 2, 5, 40])
@pytest.mark.parametrize("budget", BUDGETS, ids=lambda b: f"{b.kind}")
def test_the_promise_to_a_user_is_the_budget(budget, most):
    """Neither less, which breaks the guarantee, nor 1% more, which wastes noise."""
    promise = per_user(budget, most).guarantee
    assert promise.basis.unit == "user"
    assert promise.meets(budget)
    less = {
        name: 0.99 * getattr(budget, name)
        for name in ("epsilon", "mu", "rho")
        if getattr(budget, name)
    }
    assert not promise.meets(replace(budget, **less))


@pytest.mark.parametrize("most", [1, 3, 5])
@pytest.mark.parametrize("law", ["pure", "gdp"])
def test_a_user_who_pulls_one_way_uses_up_the_budget(law, most):
    """Minimizers with and without k aligned records are k * lipschitz / (n * ridge) apart."""
    budget = (
        Budget(epsilon=2.0, relation="add_remove")
        if law == "pure"
        else Budget(mu=1.5, relation="add_remove")
    )
    mechanism = per_user(budget, most).final
    moved = most * 1.0 / (12 * 0.5)
    spent = moved / (mechanism.noise_multiplier * mechanism.sensitivity)
    assert 0.99 * (budget.epsilon or budget.mu) <= spent <= (budget.epsilon or budget.mu)


def aligned(rows_of_user):
    """Other users' records, with and without a user whose records all pull one way."""
    total = 12 + rows_of_user
    rows, labels = (
        np.tile([1.0, 0.0], (total, 1)),
        np.append(np.full(12, -40.0), np.full(rows_of_user, 40.0)),
    )
    ids = np.append(np.arange(12) // 2, np.full(rows_of_user, 99))
    data = InMemory(rows, labels, ids)
    return data, data.rows(np.arange(12))


@pytest.mark.parametrize("rows", [3, 9])
def test_the_promise_to_users_survives_an_attack(rows):
    """The user has as many records as are used, or three times as many."""
    plan = per_user(Budget(epsilon=2.0, relation="add_remove"), 3)
    audit = audit_plan(plan, *aligned(rows), runs=400, random_state=1)
    assert audit.verdict == "kept", str(audit)


def test_pairs_of_other_users_are_no_neighbours():
    plan = per_user(Budget(epsilon=2.0, relation="add_remove"), 3)
    data, without = aligned(3)
    with pytest.raises(ValueError, match="exactly one of the users must differ, 2 do"):
        audit_plan(plan, data, without.rows(np.arange(10)), runs=400)
    with pytest.raises(ValueError, match="in one of the datasets only"):
        audit_plan(plan, data, data.rows(np.arange(14)), runs=400)


@pytest.mark.slow
def test_an_attack_on_a_user_sees_most_of_what_is_promised():
    plan = per_user(Budget(epsilon=2.0, relation="add_remove"), 3)
    audit = audit_runs(PlanRuns(plan), *aligned(9), plan.guarantee, runs=4000, random_state=1)
    assert audit.verdict == "kept", str(audit)
    assert audit.lower >= 0.5 * audit.promised


def test_a_cap_that_is_not_applied_is_caught(monkeypatch):
    monkeypatch.setattr(
        users, "bounded_contributions", lambda ids, most, source: np.arange(len(ids))
    )
    plan = per_user(Budget(epsilon=2.0, relation="add_remove"), 3)
    audit = audit_runs(PlanRuns(plan), *aligned(9), plan.guarantee, runs=400, random_state=1)
    assert audit.verdict == "broken", str(audit)


def test_a_budget_that_is_not_divided_is_caught():
    """A plan for records at the whole budget, said to protect users."""
    plan = per_user(Budget(epsilon=2.0, relation="add_remove"), 3)
    whole = capped(
        output_perturbation.plan(
            one_sided(), Budget(epsilon=2.0, relation="add_remove"), ridge=0.5
        ),
        3,
    )
    audit = audit_runs(PlanRuns(whole), *aligned(3), plan.guarantee, runs=400, random_state=1)
    assert audit.verdict == "broken", str(audit)


def test_plans_that_do_not_protect_records_under_add_remove_are_refused():
    replaced = output_perturbation.plan(one_sided(), Budget(epsilon=1.0), ridge=0.5)
    with pytest.raises(ValueError, match="add/remove"):
        capped(replaced, 2)
    with pytest.raises(ValueError, match="user ids"):
        per_user(BUDGETS[0], 2).run(InMemory(np.ones((3, 2)), np.zeros(3)))


def test_nobody_there_is_no_error():
    nobody = InMemory(np.zeros((0, 2)), np.zeros(0), np.zeros(0, dtype=np.int64))
    assert np.isfinite(per_user(BUDGETS[0], 2).run(nobody).value).all()
