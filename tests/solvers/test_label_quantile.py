"""The quantile of the labels as the start of a descent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpfit.core import Composition, Minimize
from dpfit.data.dataset import InMemory
from dpfit.losses import Bounds, Huber, Pinball, QuantileHuber
from dpfit.models import QuantileRegressor
from dpfit.privacy import Budget
from dpfit.solvers.descents.label_mean import ConstantRows
from dpfit.solvers.descents.label_quantile import TUNING, label_quantile, label_quantile_share
from dpfit.solvers.gradient.noisy_gd import noisy_gd

pytestmark = pytest.mark.filterwarnings("ignore:.*not private")

LOSS = QuantileHuber(0.9, 0.05, centred=True)


def regression(**given: object) -> Minimize:
    facts = {"n": 5000, "loss": LOSS, "bounds": Bounds(2.0, -1.0, 1.0), "n_features": 4}
    return Minimize(**(facts | {"intercept": 1.0} | given))


@pytest.mark.parametrize("loss", [LOSS, Pinball(0.9)], ids=["rounded", "corner"])
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_both_descents_spend_the_budget_and_the_passes_together(relation, loss):
    budget = Budget(epsilon=0.1, delta=1e-6, relation=relation)
    plan = noisy_gd.plan(regression(loss=loss), budget)
    assert isinstance(plan, Composition)
    assert 0.0999 < plan.guarantee.epsilon(1e-6) <= 0.1 * (1 + 1e-9)
    assert plan.work.passes == 300


@pytest.mark.parametrize("level", [0.1, 0.9])
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_no_label_moves_a_sum_by_more_than_the_noise_is_for(relation, level):
    """Extreme labels at extreme points move the sum by its sensitivity, none by more.

    The sensitivity to replacements is that for any rows: rows (1,) reach the sum of both slopes.
    """
    n, problem = 20, regression(n=20, loss=QuantileHuber(level, 0.05, centred=True))
    descent = label_quantile(problem, relation, 3.0)
    asked = descent.asked(descent.optimizer.clip_norm)
    grid, sensitivity = descent.clipped_mean.scale(asked)
    largest = 0.0
    for point in (-5.0, -0.5, 0.0, 0.3, 5.0):
        at_point = replace(asked, point=np.array([point]))
        sums = []
        for last in (-1.0, -0.4, 0.5, 1.0, 1e9, -np.inf, np.nan):
            labels = np.append(np.linspace(-0.5, 0.5, n - 1), last)
            seen = InMemory(np.ones((n, 4)), labels).map(ConstantRows(4, 1.0, -1.0, 1.0))
            sums.append(float(at_point.total(seen, grid)[0]) * grid.step)
        without = sums[-1]  # a record that is no number contributes nothing
        moves = np.ptp(sums) if relation == "replace" else np.max(np.abs(np.array(sums) - without))
        largest = max(largest, float(moves))
    reached = 0.55 if relation == "replace" else 0.99
    assert reached * sensitivity <= largest <= sensitivity


def test_the_first_stage_releases_the_constant_prediction_of_the_quantile():
    rng = np.random.default_rng(540)
    rows = np.column_stack([rng.uniform(-1, 1, (5000, 3)), np.full(5000, 2.0)])
    labels = -0.7 + 0.1 * rng.standard_normal(5000)
    plan = noisy_gd.plan(regression(intercept=2.0), Budget(epsilon=1.0, delta=1e-6))
    point = np.asarray(plan.run(InMemory(rows, labels), random_state=1).stages["centre"])
    assert point[:3].tolist() == [0.0, 0.0, 0.0]
    assert 2 * point[3] == pytest.approx(np.quantile(labels, 0.9), abs=0.05)


def test_a_quantile_near_the_end_of_the_range_is_found_at_a_small_budget():
    """From the middle of the range, the flat slope of a high quantile moves predictions little."""
    rng = np.random.default_rng(541)
    rows = rng.uniform(-1, 1, (10_000, 6))
    labels = np.clip(2.0 + rows[:, 0] + rng.standard_normal(10_000), 0, 20)
    truth, shares = labels[5000:], []
    for seed in range(3):
        model = QuantileRegressor(
            0.1, 1e-6, quantile=0.9, bounds=(-1, 1), y_bounds=(0, 20), relation="add_remove",
            n_declared=5000, random_state=seed,
        ).fit(rows[:5000], labels[:5000])  # fmt: skip
        losses = [
            np.mean(np.maximum(0.9 * gap, -0.1 * gap))
            for gap in (truth - model.predict(rows[5000:]), truth - np.quantile(truth, 0.9))
        ]
        shares.append(losses[0] / losses[1])
    # 0.95 from the quantile of the labels, 1.77 from the middle of their range.
    assert np.mean(shares) < 1.2


def test_a_descent_that_needs_its_passes_starts_at_the_origin():
    budget = Budget(epsilon=1.0, delta=1e-6)
    assert isinstance(noisy_gd.plan(regression(n_features=3), budget), Composition)
    sharp = regression(n=200_000, loss=QuantileHuber(0.9, 0.001, centred=True))
    assert not isinstance(noisy_gd.plan(sharp, budget), Composition)


def test_no_other_problem_gets_a_quantile():
    for problem in (
        regression(loss=Huber(0.2)),
        regression(intercept=None),
        regression(start=(0.0, 0.0, 0.0, 0.5)),
        regression(bounds=Bounds(2.0)),
        regression(n=50),
    ):
        assert label_quantile_share(problem, 4.0, 300) == 0.0
    assert label_quantile_share(regression(), 4.0, TUNING.passes) == 0.0
    assert label_quantile_share(regression(), 4.0, 300) > 0.0
    users = Budget(epsilon=0.1, delta=1e-6, unit="user")
    assert not isinstance(noisy_gd.plan(regression(rows_per_user=3.0), users), Composition)
