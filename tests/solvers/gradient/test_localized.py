"""Localization around any solver: the ridge, the parts, the guarantee, and what it refuses."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dpfit.core import Minimize, Run, plan_from_json
from dpfit.data.dataset import Blocks, InMemory
from dpfit.data.view import View
from dpfit.losses import Bounds, Huber, Logistic, Squared
from dpfit.noise import Source
from dpfit.privacy import Budget
from dpfit.solvers.gradient.localized import PRESETS, Nearest, default_ridge, localized
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.gradient.phased_sgd import phased_sgd
from dpfit.solvers.gradient.preconditioned_gd import preconditioned_gd
from dpfit.solvers.perturbation.output_perturbation import output_perturbation

SOLVERS = (noisy_gd.using(max_passes=30), output_perturbation, phased_sgd)
RELATIONS = ("replace", "add_remove")


def problem_of(n=1000, d=2, loss=None):
    return Minimize(n=n, loss=loss or Logistic(), bounds=Bounds(1.0, -1.0, 1.0), n_features=d)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("solver", SOLVERS, ids=str)
def test_the_whole_budget_is_kept_and_plans_are_read_back(solver, preset, relation):
    budget = Budget(epsilon=1, delta=1e-6, relation=relation)
    plan = localized.plan(problem_of(), budget, solver=solver, preset=preset)
    assert plan.guarantee.epsilon(1e-6) == pytest.approx(1.0, rel=1e-3)
    assert budget.admits(plan.event)
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    rng = np.random.default_rng(1)
    data = InMemory(rng.normal(size=(1000, 2)), rng.choice([-1.0, 1.0], 1000))
    assert plan.run(data, random_state=1).output.shape == (2,)


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
def test_a_strong_ridge_holds_each_phase_at_the_point_released_before(solver):
    """The optimum is far away: only the first phase starts at the origin, and later ones stay."""
    n, rng = 4000, np.random.default_rng(2)
    rows = rng.normal(size=(n, 2)) / 3
    data = InMemory(rows, rows @ [0.8, -0.8])
    problem = problem_of(n, loss=Huber(1.0))
    plan = localized.plan(problem, Budget(mu=50.0), solver=solver, ridge=1e-4)
    first = np.array(plan.stages[0].plan.run(data.rows(np.arange(2000)), random_state=1).output)
    whole = np.array(plan.run(data, random_state=1).output)
    assert np.linalg.norm(first - [0.8, -0.8]) < 0.5
    assert np.linalg.norm(whole - [0.8, -0.8]) < 0.3
    # With the centre at the origin the last phase, of 512 times the ridge, would shrink.
    stiff = localized.plan(problem, Budget(mu=50.0), solver=solver, ridge=2e-2)
    assert np.linalg.norm(np.array(stiff.run(data, random_state=1).output)) > 0.15


def test_a_centred_ridge_is_the_exact_minimizer():
    """Output perturbation on a quadratic, against its closed form."""
    rng, n = np.random.default_rng(3), 400
    rows, labels, centre = rng.normal(size=(n, 2)) / 4, rng.uniform(-1, 1, n), (3.0, -2.0)
    problem = Minimize(
        n=n, loss=Huber(20.0), bounds=Bounds(2.0, -1.0, 1.0), n_features=2, ridge=0.3, centre=centre
    )
    mechanism = output_perturbation.plan(problem, Budget(mu=1.0), ridge=0.3).mechanism
    found = mechanism._minimizer(View(InMemory(rows, labels), "replace", "record", Source(1)))
    left = rows.T @ rows / n + 0.3 * np.eye(2)
    expected = np.linalg.solve(left, rows.T @ labels / n + 0.3 * np.array(centre))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert mechanism.run(
        View(InMemory(rows, labels), "replace", "record", Source(1)), Run(Source(1))
    ).shape == (2,)


@pytest.mark.parametrize("relation", RELATIONS)
def test_one_record_is_in_one_phase(relation):
    problem = problem_of(200)
    plan = localized.plan(problem, Budget(mu=1.0, relation=relation))
    rng = np.random.default_rng(4)
    data = InMemory(rng.normal(size=(200, 2)), rng.choice([-1.0, 1.0], 200))
    parts = View(data, relation, "record", Source(5)).parts(plan.shares)
    rows = [tuple(row) for part in parts for row in part.take(np.arange(part.n)).rows.tolist()]
    assert len(rows) == 200
    assert set(rows) == set(map(tuple, data.matrix.tolist()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": preconditioned_gd}, "preconditioned_gd does not support centre"),
        ({"preset": "quarters"}, "preset must be one of"),
        ({"ridge": 0.0}, "ridge must be"),
        ({"solver": "noisy_gd"}, "solver must be an Algorithm that minimizes, got 'noisy_gd'"),
        ({"solver": phased_sgd.using(mapped=True)}, "mapped does not support centre, ridge"),
    ],
)
def test_solvers_without_a_centred_ridge_and_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        localized.plan(problem_of(), Budget(mu=1.0), **options)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("budget", [Budget(mu=1.0), Budget(epsilon=1.0)], ids=str)
def test_a_preset_is_a_row_of_solver_shares_ridges_copies_and_combine(preset, budget):
    """Every field of a row decides about the plan."""
    row, problem = PRESETS[preset], problem_of(4000)
    plan = localized.plan(problem, budget, preset=preset, ridge=0.01)
    assert plan.shares == row.shares
    assert len(plan.stages) == len(row.ridges)
    expected = row.pure_solver if budget.kind == "pure" else row.solver
    for stage, times, share in zip(
        plan.stages, row.ridges, row.shares or (1.0,) * len(row.ridges), strict=True
    ):
        copies = stage.plan.stages if row.copies > 1 else (stage,)
        assert len(copies) == row.copies
        for copy in copies:
            mechanism = copy.plan.mechanism
            known = replace(mechanism.problem, ridge=0.01 * times)
            assert known.n == pytest.approx(4000 * share / row.copies, abs=1)
            within = budget if row.shares else budget.per_call(len(row.ridges))
            assert copy.plan == expected.plan(known, within).inner()
        if row.copies > 1:
            assert stage.plan.combine == row.combine


def test_a_row_that_is_added_is_a_preset(monkeypatch):
    added = PRESETS["copies"]._replace(shares=(0.7, 0.3), ridges=(1.0, 3.0), copies=2)
    monkeypatch.setitem(PRESETS, "added", added)
    plan = localized.plan(problem_of(), Budget(mu=1.0), preset="added", ridge=0.5)
    ridges = [stage.plan.stages[1].plan.mechanism.problem.ridge for stage in plan.stages]
    assert (plan.shares, ridges) == ((0.7, 0.3), [0.5, 1.5])


@pytest.mark.parametrize("preset", ["halving", "copies"])
def test_parts_of_a_file_cannot_be_visited_by_blocks(preset):
    """Blocks of a part would be no whole blocks: this is known before any record is read."""
    with pytest.raises(ValueError, match=r"stage on a part of the data.*leave by_blocks out"):
        localized.plan(
            problem_of(), Budget(mu=1.0), solver=phased_sgd.using(by_blocks=True), preset=preset
        )


def test_phases_on_all_records_of_a_file_are_visited_by_blocks():
    rows, read = np.random.default_rng(1).normal(size=(1000, 2)), []

    def block(number):
        read.append(number)
        return rows[100 * number : 100 * (number + 1)], np.ones(100)

    data = Blocks(1000, 2, lambda: map(block, range(10)), None, 100, block)
    plan = localized.plan(
        problem_of(),
        Budget(mu=1.0),
        solver=phased_sgd.using(by_blocks=True),
        preset="same_records",
    )
    assert np.isfinite(plan.run(data, random_state=1).output).all()
    assert sorted(read) == sorted([*range(10)] * len(plan.stages))
    whole = localized.plan(problem_of(), Budget(mu=1.0), solver=phased_sgd)
    assert np.isfinite(whole.run(data, random_state=1).output).all()


def test_too_few_records_and_losses_without_a_bound_are_refused():
    with pytest.raises(ValueError, match="a record for each copy"):
        localized.plan(problem_of(8), Budget(mu=1.0), preset="copies")
    unbounded = Minimize(n=99, loss=Squared(), bounds=Bounds(1.0), n_features=2)
    with pytest.raises(ValueError, match="bound"):
        localized.plan(unbounded, Budget(mu=1.0))


@pytest.mark.parametrize("solver", [None, phased_sgd, output_perturbation], ids=str)
def test_pure_budgets_are_met(solver):
    plan = localized.plan(problem_of(), Budget(epsilon=1.0), solver=solver)
    assert plan.guarantee.pure == pytest.approx(1.0)
    with pytest.raises(ValueError, match="pure"):
        localized.plan(problem_of(), Budget(epsilon=1.0), solver=noisy_gd)


def test_the_default_ridge_falls_with_the_number_of_records():
    ridges = [default_ridge(problem_of(n), Budget(mu=1.0), n // 2) for n in (10**3, 10**5)]
    assert ridges[0] > 5 * ridges[1] > 0


def test_the_nearest_point_ignores_one_far_away():
    points = (np.zeros(2), np.full(2, 100.0), np.array([0.1, 0.0]), np.array([0.0, 0.1]))
    assert np.abs(Nearest()(points)).max() < 1
