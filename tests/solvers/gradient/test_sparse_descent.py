"""Sparse descent: plans within every budget, columns chosen and fitted, bad input refused."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from dpfit.audit.auditor import audit_algorithm
from dpfit.core import Composition, Minimize, plan_from_json
from dpfit.core.binding import BindingChangedTheEvent
from dpfit.data.dataset import InMemory
from dpfit.geometry import L1Ball, L2Ball
from dpfit.ledger import Ledger
from dpfit.losses import Bounds, Huber, Logistic, Softmax, Squared
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.event import BoundedRange, Composed, GaussianPrivate, Repeated
from dpfit.solvers.auto import auto
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.gradient.sparse_descent import (
    ChosenBy,
    ChosenColumns,
    choice_noise,
    number_of_columns,
    plan_few,
    sparse_descent,
)
from dpfit.solvers.perturbation.objective_perturbation import objective_perturbation

BUDGETS = {
    "pure": {"epsilon": 1.0},
    "approximate": {"epsilon": 1.0, "delta": 1e-6},
    "gdp": {"mu": 0.25},
    "zcdp": {"rho": 0.03},
}
SHORT = noisy_gd.using(max_passes=20)


def problem_of(n=4000, d=40, free=0, **changes):
    facts = {
        "n": n,
        "loss": Logistic(),
        "bounds": Bounds(math.sqrt(d), row_max=1.0),
        "n_features": d,
        "domain": L1Ball(d, 6.0, free),
    }
    return Minimize(**(facts | changes))


def records(n=4000, d=40, true=(3, 17, 31), seed=1):
    rng = np.random.default_rng(seed)
    rows = rng.choice([-1.0, 1.0], (n, d))
    margins = rows[:, list(true)] @ np.where(np.arange(len(true)) % 2, -1.2, 1.2)
    return InMemory(rows, np.where(rng.random(n) < 1 / (1 + np.exp(-margins)), 1.0, -1.0))


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("kind", BUDGETS)
def test_plans_stay_within_the_budget_and_use_it(kind, relation):
    budget = Budget(**BUDGETS[kind], relation=relation)
    plan = sparse_descent.plan(problem_of(), budget)
    assert budget.admits(plan.event)
    tighter = {name: value * 0.9 for name, value in BUDGETS[kind].items() if name != "delta"}
    smaller = Budget(**(BUDGETS[kind] | tighter), relation=relation)
    # Under GDP the composition of choices has a closed form that is not tight.
    assert kind == "gdp" or not smaller.admits(plan.event)
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    declared = "declared" in [a.status for a in plan.basis.assumptions]
    assert declared == (relation == "add_remove")
    k = plan.stages[0].plan.mechanism.rounds
    assert k == number_of_columns(4000, budget, 40)
    assert k == len(plan.stages[1].plan.transformation.chosen)


def test_the_noise_of_the_choice_is_calibrated_beside_the_fit():
    """Oracle: the noise that is 10% lower breaks the budget together with the rest."""
    budget, k, share = Budget(epsilon=1.0, delta=1e-6), 10, 0.5
    noise = choice_noise(budget, k, share)
    level = noise * 2 * math.sqrt(share / k)
    for factor, fits in ((1.0, True), (0.9, False)):
        rest = GaussianPrivate(math.sqrt(1 - share) / (factor * level))
        event = Composed((Repeated(BoundedRange(1 / (factor * noise)), k), rest))
        assert budget.admits(event) is fits
    pure = choice_noise(Budget(epsilon=1.0), k, share)
    assert pure == pytest.approx(k / share)


def test_the_rule_for_the_number_of_columns():
    """k = ceil(sqrt(n mu) / 5): 5, 10 and 20 at (1, 1e-6)."""
    budget = Budget(epsilon=1.0, delta=1e-6)
    for n, k in ((2000, 5), (10_000, 10), (40_000, 20)):
        assert number_of_columns(n, budget, 1000) == k
        assert number_of_columns(n, Budget(epsilon=1.0), 1000) == k
    assert number_of_columns(40_000, budget, 7) == 7


@pytest.mark.parametrize("kind", BUDGETS)
def test_true_columns_are_found_and_fitted(kind):
    data, problem = records(), problem_of()
    plan = sparse_descent.plan(problem, Budget(**(BUDGETS[kind] | {})), max_passes=60)
    release = plan.run(data, random_state=2)
    assert {3, 17, 31} <= set(release.stages["columns"].tolist())
    theta = release.output
    assert np.count_nonzero(theta) <= plan.stages[0].plan.mechanism.rounds
    assert theta[[3, 17, 31]] == pytest.approx([1.2, -1.2, 1.2], abs=0.5)
    assert problem.domain.contains(theta)


def test_sparse_rows_give_the_same_columns_and_fit():
    data, problem = records(), problem_of()
    rows = data.matrix * (np.random.default_rng(1).random(data.matrix.shape) < 0.3)
    plan = sparse_descent.plan(problem, Budget(mu=1.0), solver=SHORT)
    outputs = [
        plan.run(InMemory(kind(rows), data.labels), random_state=5).output
        for kind in (np.asarray, csr_array)
    ]
    np.testing.assert_allclose(*outputs, atol=1e-9)
    chunk = InMemory(csr_array(rows), data.labels).whole
    cut = ChosenColumns((5, 2), problem.domain)(chunk)
    assert cut.rows.format == "csr"
    np.testing.assert_array_equal(cut.rows.toarray(), rows[:, [5, 2]])


def test_an_intercept_is_fitted_and_never_chosen():
    data = records()
    rows = np.hstack([data.matrix, np.ones((4000, 1))])
    labels = np.where(np.random.default_rng(5).random(4000) < 0.4, 1.0, data.labels)
    problem = problem_of(d=41, free=1)
    for budget in (Budget(mu=1.0), Budget(epsilon=2.0)):
        release = sparse_descent.plan(problem, budget).run(InMemory(rows, labels), random_state=1)
        assert 40 not in release.stages["columns"]
        assert release.output[40] > 0.1


def test_a_restricted_number_of_passes_covers_both_stages():
    plan = sparse_descent.plan(problem_of(), Budget(mu=0.25), max_passes=30)
    assert plan.work.passes <= 30
    with pytest.raises(ValueError, match="needs 7 passes to choose columns; raise max_passes"):
        sparse_descent.plan(problem_of(), Budget(mu=0.25), columns=7, max_passes=7)


def test_the_binding_cannot_change_the_event():
    plan = sparse_descent.plan(problem_of(), Budget(mu=0.25), solver=SHORT)
    fit, k = plan.stages[1].plan, plan.stages[0].plan.mechanism.rounds
    bound = ChosenBy("columns").bound(fit, {"columns": np.arange(k)[::-1]})
    assert bound.event == fit.event
    assert bound.transformation.chosen == tuple(range(k))[::-1]

    class Noisier(ChosenBy):
        """Fault: the fit gets the budget of the choice, too."""

        kind = "test_noisier"

        def __call__(self, plan, released):
            few = plan.plan
            multiplier = few.mechanism.aggregate.noise_multiplier / 2
            aggregate = replace(few.mechanism.aggregate, noise_multiplier=multiplier)
            mechanism = replace(few.mechanism, aggregate=aggregate)
            return replace(plan, plan=replace(few, mechanism=mechanism))

    with pytest.raises(BindingChangedTheEvent):
        Composition((plan.stages[0], replace(plan.stages[1], binding=Noisier("columns"))))


def test_columns_are_not_chosen_again_without_a_charge():
    """A mechanism makes as many choices as its event says; a fault in either is refused."""
    plan = sparse_descent.plan(problem_of(), Budget(mu=0.25), solver=SHORT)
    choose = plan.stages[0].plan.mechanism
    with pytest.raises(ValueError, match="aggregate must have"):
        replace(choose, aggregate=replace(choose.aggregate, rounds=choose.rounds + 1))
    with pytest.raises(ValueError, match="columns must be at most 2, got 3"):
        replace(choose, optimizer=replace(choose.optimizer, candidates=2, columns=3),
                aggregate=replace(choose.aggregate, rounds=3))  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"domain": None}, "needs a domain L1Ball and a bound row_max"),
        ({"domain": L2Ball(40, 1.0)}, "needs a domain L1Ball"),
        ({"bounds": Bounds(6.0)}, "needs a domain L1Ball and a bound row_max"),
        ({"loss": Squared()}, "needs a generalized linear loss with bounded slopes"),
        ({"loss": Softmax(2), "domain": L1Ball(80, 1.0)}, "needs a generalized linear loss"),
    ],
)
def test_problems_without_the_declared_facts_are_refused_before_any_charge(
    changes, match, tmp_path
):
    ledger = Ledger.create(tmp_path / "ledger")
    ledger.register("people", Budget(mu=1.0))
    with pytest.raises(ValueError, match=match):
        sparse_descent.plan(problem_of(**changes), Budget(mu=0.5)).run(
            records(), account=ledger.account("people")
        )
    assert [entry.kind for entry in ledger.entries("people")] == ["register"]


def test_invalid_numbers_are_refused():
    for row_max in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="row_max"):
            Bounds(1.0, row_max=row_max)
    for radius in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="norm_bound"):
            L1Ball(3, radius)
    with pytest.raises(ValueError, match="free must be below d = 3, got 3"):
        L1Ball(3, 1.0, free=3)
    with pytest.raises(ValueError, match="columns must be at most 40, got 41; leave it out"):
        sparse_descent.plan(problem_of(), Budget(mu=0.5), columns=41)
    with pytest.raises(ValueError, match="columns"):
        sparse_descent.plan(problem_of(), Budget(mu=0.5), columns=0)
    with pytest.raises(ValueError, match="solver must be an Algorithm that minimizes"):
        sparse_descent.plan(problem_of(), Budget(mu=0.5), solver="noisy_gd")
    with pytest.raises(ValueError, match="share must lie"):
        sparse_descent.plan(problem_of(), Budget(mu=0.5), share=1.0)


@pytest.mark.parametrize("case", ["all columns", "one column", "constant columns", "one class"])
def test_degenerate_tables_give_a_model(case):
    n, d = 200, 1 if case == "one column" else 6
    rng = np.random.default_rng(2)
    rows, labels = rng.choice([-1.0, 1.0], (n, d)), rng.choice([-1.0, 1.0], n)
    rows = np.ones_like(rows) if case == "constant columns" else rows
    labels = np.ones(n) if case == "one class" else labels
    columns = d if case == "all columns" else None
    plan = sparse_descent.plan(problem_of(n=n, d=d), Budget(mu=0.5), columns=columns, solver=SHORT)
    theta = plan.run(InMemory(rows, labels), random_state=1).output
    assert theta.shape == (d,)
    assert np.isfinite(theta).all()
    if case == "all columns":
        assert sorted(plan.run(InMemory(rows, labels)).stages["columns"]) == list(range(6))


def test_auto_considers_it_only_where_sparsity_is_declared():
    budget = Budget(epsilon=1.0, delta=1e-6)
    problem = problem_of(n=10_000, d=400)
    assert auto.plan(problem, budget).algorithm == "sparse_descent"
    assert auto.plan(problem, Budget(epsilon=1.0)).algorithm == "sparse_descent"
    for other in (
        replace(problem, domain=None),
        replace(problem, bounds=replace(problem.bounds, row_max=None)),
    ):
        plan = auto.plan(other, budget)
        assert "sparse_descent" not in plan.explain()
    # With as many columns as would be chosen, the choice only costs.
    assert auto.plan(problem_of(n=10_000, d=10), budget).algorithm != "sparse_descent"


def test_the_fit_is_planned_with_and_without_the_ball():
    problem, budget = problem_of(), Budget(epsilon=0.5)
    pairs = ((auto, budget), (objective_perturbation, budget), (noisy_gd, Budget(mu=0.2)))
    for solver, known in pairs:
        planned = plan_few(solver, problem, 5, known, {})
        few = planned.problem
        assert few.n_features == 5
        assert few.bounds == Bounds(few.bounds.row_norm)
        assert few.bounds.row_norm == pytest.approx(math.sqrt(5))
        risks = [
            solver.plan(replace(few, domain=domain), known).risk.expected
            for domain in (L1Ball(5, 6.0), None)
        ]
        assert planned.risk.expected == min(risks)


@pytest.mark.parametrize("loss", [Huber(0.3)])
def test_regression_losses_are_fitted(loss):
    rng = np.random.default_rng(3)
    rows = rng.choice([-1.0, 1.0], (4000, 40))
    bounds = Bounds(math.sqrt(40), -1.0, 1.0, row_max=1.0)
    problem = problem_of(loss=loss, bounds=bounds, domain=L1Ball(40, 1.0))
    data = InMemory(rows, 0.4 * rows[:, 7] - 0.3 * rows[:, 30] + 0.05 * rng.standard_normal(4000))
    theta = sparse_descent.plan(problem, Budget(mu=0.5)).run(data, random_state=1).output
    assert theta[[7, 30]] == pytest.approx([0.4, -0.3], abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("kind", ["pure", "gdp"])
def test_an_audit_keeps_the_guarantee(kind, relation):
    """So many runs that a bound below the guarantee says something."""
    short = sparse_descent.using(max_passes=20)
    runs = {"pure": 1000, "gdp": 500}[kind]
    found = audit_algorithm(short, (kind,), relation=relation, runs=runs, random_state=5)
    assert found.verdict == "kept", str(found)


def test_calibration_of_the_choice_alone_spends_its_share():
    budget = Budget(rho=0.03)
    noise = choice_noise(budget, 10, 0.5)
    event = Repeated(BoundedRange(1 / noise), 10)
    expected = calibrate(lambda level: Repeated(BoundedRange(1 / level), 10), Budget(rho=0.015))
    assert event == expected
