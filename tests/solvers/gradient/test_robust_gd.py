"""A convex start, the scale of residuals, a descent: budget, binding, accuracy, refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dpfit.core import Minimize
from dpfit.data.dataset import InMemory
from dpfit.ledger import Ledger
from dpfit.losses import Bounds, GemanMcClure, Huber, TruncatedAbsolute
from dpfit.models import HuberRegressor, RobustRegressor
from dpfit.privacy import Budget
from dpfit.solvers.auto import auto
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.gradient.robust_gd import FIT, SCALE, START, TUNING, robust_gd

PROBLEM = Minimize(n=10_000, loss=GemanMcClure(0.25), bounds=Bounds(1.0, -1.0, 1.0), n_features=4)


def table(seed=0, n=10_000, noise=0.02):
    """Three in ten labels are high, whatever the row."""
    rng = np.random.default_rng([seed, 5])
    rows = rng.standard_normal((n, 4))
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    good = rows @ [0.5, -0.3, 0.2, 0.0]
    labels = np.where(rng.random(n) < 0.3, 0.8, good) + noise * rng.standard_normal(n)
    return rows, labels, np.array([0.5, -0.3, 0.2, 0.0])


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("intercept", [None, 1.0])
def test_the_stages_share_the_squared_budget(relation, intercept):
    """All stages are Gaussian, so their squared mu add up to that of the budget."""
    budget = Budget(mu=0.5, relation=relation)
    plan = robust_gd.plan(replace(PROBLEM, intercept=intercept), budget)
    spent = [stage.plan.guarantee.mu**2 for stage in plan.stages]
    assert [stage.name for stage in plan.stages] == [START, SCALE, FIT]
    assert sum(spent) == pytest.approx(0.25, rel=1e-6)
    assert sum(spent) <= 0.25 * (1 + 1e-9)
    assert spent[0] / 0.25 == pytest.approx(TUNING.start, rel=1e-3)
    assert spent[1] / 0.25 == pytest.approx(TUNING.scale, rel=1e-3)
    assert plan.work.passes == 300


@pytest.mark.parametrize("scale", [0.001, 0.05, 10.0])
def test_a_bound_width_keeps_the_event_and_the_noise_multiplier_of_its_own_sensitivity(scale):
    plan = robust_gd.plan(PROBLEM, Budget(mu=0.5))
    stage = plan.stages[2]
    released = {START: np.array([0.1, 0.0, 0.0, 0.0]), SCALE: np.array([scale])}
    bound = stage.binding.bound(stage.plan, released)
    mechanism = bound.final
    width = min(0.25, TUNING.widths * scale)
    assert mechanism.problem.loss == GemanMcClure(width)
    assert mechanism.problem.start == (0.1, 0.0, 0.0, 0.0)
    assert bound.event == stage.plan.event
    clip = mechanism.optimizer.clip_norm
    assert clip <= 3 * math.sqrt(3) / 16 * width * (1 + 1e-12)
    aggregate = mechanism.aggregate
    noise = aggregate.deviation(mechanism.asked(clip)) * 10_000 / aggregate.noise_multiplier
    assert noise == pytest.approx(2 * clip, rel=1e-9)


def test_the_fit_is_nearer_to_the_truth_than_huber_and_than_a_descent_from_the_origin():
    errors = {}
    for seed in range(3):
        rows, labels, truth = table(seed)
        for name, solver, loss in (
            ("robust", robust_gd, GemanMcClure(0.25)),
            ("huber", noisy_gd, Huber(0.1)),
            ("origin", noisy_gd, GemanMcClure(0.025)),
        ):
            plan = solver.plan(replace(PROBLEM, loss=loss), Budget(epsilon=1.0, delta=1e-6))
            found = plan.output(plan.run(InMemory(rows, labels), random_state=seed).value)
            errors.setdefault(name, []).append(np.linalg.norm(found - truth))
    mean = {name: float(np.mean(each)) for name, each in errors.items()}
    assert mean["robust"] < 0.6 * mean["huber"]
    assert mean["robust"] < 0.6 * mean["origin"]


@pytest.mark.filterwarnings("ignore:random_state fixes the noise")
def test_the_estimator_ignores_bad_labels_and_is_chosen_by_auto():
    rows, labels, truth = table()
    facts = {"delta": 1e-6, "row_norm": 1.0, "y_bounds": (-1.0, 1.0), "random_state": 1}
    robust = RobustRegressor(1.0, **facts).fit(rows, labels)
    huber = HuberRegressor(1.0, **facts).fit(rows, labels)
    assert robust.plan_.algorithm == "robust_gd"
    away = [
        np.linalg.norm(np.append(model.coef_ - truth, model.intercept_))
        for model in (robust, huber)
    ]
    assert away[0] < 0.5 * away[1]
    assert auto.plan(PROBLEM, Budget(mu=0.5)).algorithm == "robust_gd"
    assert auto.plan(replace(PROBLEM, loss=Huber(0.1)), Budget(mu=0.5)).algorithm != "robust_gd"


def test_a_fit_is_charged_for_all_stages_at_once(tmp_path):
    ledger = Ledger.create(tmp_path / "budget.ledger")
    ledger.register("people", Budget(mu=1.0))
    rows, labels, _ = table(n=500)
    facts = {"row_norm": 1.0, "y_bounds": (-1.0, 1.0), "max_passes": 10}
    model = RobustRegressor(1.0, 1e-6, ledger=ledger, dataset="people", **facts)
    model.fit(rows, labels)
    spent = float(ledger.status("people").spent.amount)
    assert spent == pytest.approx(model.guarantee_.mu**2, rel=1e-6)


@pytest.mark.parametrize("rows", [np.full((7, 4), np.nan), np.full((7, 4), 1e300)], ids=str)
@pytest.mark.parametrize("mu", [1e-4, 1.0, 1e4])
def test_any_data_and_budget_give_numbers(rows, mu):
    problem = replace(PROBLEM, n=7, loss=TruncatedAbsolute(0.25))
    plan = robust_gd.plan(problem, Budget(mu=mu, relation="add_remove"), max_passes=20)
    value = plan.output(plan.run(InMemory(rows, np.full(7, np.inf)), random_state=1).value)
    assert value.shape == (4,)
    assert np.isfinite(value).all()


def test_what_it_does_not_solve_is_refused_with_a_hint():
    budget = Budget(epsilon=1.0, delta=1e-6)
    with pytest.raises(ValueError, match=r"levels off; use GemanMcClure"):
        robust_gd.plan(replace(PROBLEM, loss=Huber(0.1)), budget)
    with pytest.raises(ValueError, match=r"needs no start"):
        robust_gd.plan(replace(PROBLEM, start=(0.0,) * 4), budget)
    with pytest.raises(ValueError, match=r"give a delta.*exponential_net"):
        robust_gd.plan(PROBLEM, Budget(epsilon=1.0))
    with pytest.raises(ValueError, match=r"max_passes"):
        robust_gd.plan(PROBLEM, budget, max_passes=2)
    with pytest.raises(ValueError, match=r"protects records"):
        robust_gd.plan(PROBLEM, Budget(epsilon=1.0, delta=1e-6, unit="user"))
    with pytest.raises(ValueError, match=r"RobustRegressor needs delta.*HuberRegressor"):
        RobustRegressor(1.0, bounds=(-1, 1), y_bounds=(0, 1)).plan(100, 2)
    users = {"bounds": (-1, 1), "y_bounds": (0, 1), "n_users": 100}
    with pytest.raises(ValueError, match="pass max_rows_per_user"):
        RobustRegressor(1.0, 1e-6, rows_per_user=3.0, **users).plan(100, 2, by_user=True)
    capped = RobustRegressor(1.0, 1e-6, max_rows_per_user=3, **users)
    assert capped.plan(100, 2, by_user=True).algorithm == "robust_gd"
    for width in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="width"):
            RobustRegressor(1.0, 1e-6, width=width, bounds=(-1, 1), y_bounds=(0, 1)).plan(100, 2)
