"""The mean of the labels as the start of a descent."""

from __future__ import annotations

import numpy as np
import pytest

from dpfit.core import Composition, Minimize
from dpfit.core.mechanism import Run
from dpfit.data.dataset import InMemory
from dpfit.data.view import view_of
from dpfit.losses import Bounds, Huber, Logistic, Pinball
from dpfit.models import LinearRegression, LogisticRegression, QuantileRegressor
from dpfit.noise import Source
from dpfit.privacy import Budget
from dpfit.solvers.descents.label_mean import TUNING, ConstantRows, label_mean, label_mean_share
from dpfit.solvers.gradient.noisy_gd import noisy_gd

pytestmark = pytest.mark.filterwarnings("ignore:.*not private")


def regression(**given: object) -> Minimize:
    facts = {"n": 500, "loss": Huber(0.2), "bounds": Bounds(2.0, -1.0, 1.0), "n_features": 4}
    return Minimize(**(facts | {"intercept": 1.0} | given))


def records(n: int = 500, middle: float = -0.6, seed: int = 520) -> InMemory:
    rng = np.random.default_rng(seed)
    rows = np.column_stack([rng.uniform(-1, 1, (n, 3)), np.ones(n)])
    return InMemory(rows, middle + 0.1 * rows[:, 0] + 0.05 * rng.standard_normal(n))


def centre_of(plan: Composition):
    return plan.stages[0].plan


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_mean_and_descent_spend_the_budget_together(relation):
    budget = Budget(epsilon=1.0, delta=1e-6, relation=relation)
    plan = noisy_gd.plan(regression(), budget)
    assert isinstance(plan, Composition)
    assert 0.999 < plan.guarantee.epsilon(1e-6) <= 1.0 + 1e-9
    assert plan.work.passes == 300


def test_the_first_stage_releases_the_constant_prediction_of_the_mean():
    plan = noisy_gd.plan(regression(intercept=2.0), Budget(mu=1.0, relation="add_remove"))
    data = InMemory(records().matrix * [1, 1, 1, 2], records().labels)
    release = plan.run(data, random_state=1)
    point = np.asarray(release.stages["centre"])
    assert point[:3].tolist() == [0.0, 0.0, 0.0]
    assert 2 * point[3] == pytest.approx(np.mean(data.labels), abs=5 * TUNING.enough)


@pytest.mark.parametrize(("relation", "largest"), [("add_remove", 1.0), ("replace", 2.0)])
def test_noise_on_the_mean_fits_what_one_label_moves(relation, largest):
    """The sum moves by at most its sensitivity, extreme labels move it by that."""
    multiplier, n = 3.0, 50
    descent = label_mean(regression(n=n), relation, multiplier)
    seen = ConstantRows(4, 1.0, -1.0, 1.0)
    ends = []
    for last in (-1.0, 1.0, 1e9, np.nan):
        labels = np.append(np.linspace(-0.5, 0.5, n - 1), last)
        data = InMemory(np.ones((n, 4)), labels).map(seen)
        contribution = descent.asked(1.0)
        grid, sensitivity = descent.clipped_mean.scale(contribution)
        ends.append(float(contribution.total(data, grid)[0]) * grid.step)
    low, high, far, missing = ends
    assert far == high
    moved = abs(high - low) if relation == "replace" else abs(high - missing)
    assert moved == pytest.approx(largest, rel=1e-3)
    assert moved <= sensitivity

    plan = centre_of(noisy_gd.plan(regression(n=n), Budget(mu=3.0, relation=relation)))
    data = InMemory(np.ones((n, 4)), np.zeros(n))
    view = view_of(data, relation, "record", Source(1))
    drawn = np.array(plan.execute_many(view, Run(Source(2)), 3000))[:, 3]
    expected = largest * plan.event.noise_multiplier / n
    assert np.std(drawn) == pytest.approx(expected, rel=0.09)  # six standard errors: 0.077


def test_no_other_problem_gets_a_mean():
    budget = Budget(epsilon=1.0, delta=1e-6)
    others = [
        regression(intercept=None),
        regression(loss=Logistic(), bounds=Bounds(2.0)),
        regression(start=(0.0, 0.0, 0.0, 0.5)),
        regression(n=20),
    ]
    for problem in others:
        assert not isinstance(noisy_gd.plan(problem, budget), Composition)
    assert not isinstance(noisy_gd.plan(regression(), budget, max_passes=1), Composition)
    assert label_mean_share(regression(loss=Pinball(0.9)), "replace", 4.0) == 0.0


def test_the_mean_gets_no_more_than_it_needs():
    small, large = (label_mean_share(regression(n=n), "add_remove", 4.0) for n in (1000, 100_000))
    assert small == pytest.approx((4.0 / 1000 / TUNING.enough) ** 2)
    assert large == pytest.approx((4.0 / 100_000 / TUNING.enough) ** 2)
    assert label_mean_share(regression(n=100), "add_remove", 4.0) == TUNING.share
    assert label_mean_share(regression(n=50), "add_remove", 4.0) == 0.0


def test_labels_far_from_the_middle_are_predicted_at_a_small_budget():
    """A regression explains labels near one end of their range better than a constant does."""
    rng = np.random.default_rng(521)
    rows = rng.uniform(0, 1, (4000, 25))
    signal = rows @ rng.normal(size=25)
    labels = 60 * (signal - signal.mean()) / signal.std() + 45 * rng.standard_normal(4000)
    labels = np.clip(labels + 200, 0, 1000)
    errors = []
    for seed in range(3):
        model = LinearRegression(
            0.12, 1e-6, bounds=(0, 1), y_bounds=(0, 1000), relation="add_remove", n_declared=2000,
            random_state=seed, solver="noisy_gd",
        ).fit(rows[:2000], labels[:2000])  # fmt: skip
        errors.append(np.mean((model.predict(rows[2000:]) - labels[2000:]) ** 2))
    # 0.55 with the mean of the labels, 0.72 from the middle of their range.
    assert np.mean(errors) < 0.65 * np.var(labels[2000:])


def test_models_tell_regressions_alone_of_the_intercept():
    def problem(model: object) -> Minimize:
        return model.plan(2000, 3).final.problem

    assert problem(LinearRegression(1.0, 1e-6, bounds=(0, 1), y_bounds=(0, 1))).intercept == 1.0
    bare = LinearRegression(1.0, 1e-6, bounds=(0, 1), y_bounds=(0, 1), fit_intercept=False)
    assert problem(bare).intercept is None
    assert problem(LogisticRegression(1.0, 1e-6, bounds=(0, 1))).intercept is None
    quantile = QuantileRegressor(1.0, 1e-6, bounds=(0, 1), y_bounds=(0, 1), solver="noisy_gd")
    assert not isinstance(quantile.plan(2000, 3).final.problem.start, tuple)
