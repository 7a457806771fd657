"""Descents with several classes: far minimizers are reached, and noise is shrunk away."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dpfit.core import Minimize
from dpfit.core.mechanism import Run
from dpfit.data.dataset import InMemory
from dpfit.data.view import view_of
from dpfit.geometry.l2_ball import L2Ball
from dpfit.losses import Bounds, Logistic, Softmax
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.models import LogisticRegression
from dpfit.noise import Source
from dpfit.solvers.descents.momentum import Momentum, james_stein, shrinkage_factor
from dpfit.solvers.descents.rule import TUNING, default_clip_norm, tune_descent
from dpfit.solvers.descents.scales import gradient_bound, isotropic_curvature, relative_noise

pytestmark = pytest.mark.filterwarnings("ignore:.*not private")


def several(**given: object) -> Minimize:
    facts = {"n": 1000, "loss": Softmax(5), "bounds": Bounds(2.0), "n_features": 20}
    return Minimize(**(facts | given))


def log_loss(rows: np.ndarray, labels: np.ndarray, classes: int, epsilon: float) -> float:
    """Return the mean log loss on the second half of the records, over two noise seeds."""
    half = len(labels) // 2
    losses = []
    for seed in range(2):
        model = LogisticRegression(
            epsilon, 1e-6, bounds=(-1, 1), classes=range(classes), relation="add_remove",
            n_declared=half, random_state=seed, solver="noisy_gd",
        )  # fmt: skip
        chances = model.fit(rows[:half], labels[:half]).predict_proba(rows[half:])
        losses.append(-np.mean(np.log(chances[np.arange(half), labels[half:]])))
    return float(np.mean(losses))


def test_separable_classes_are_told_apart_at_a_small_budget():
    rng = np.random.default_rng(410)
    centres, labels = rng.uniform(-0.7, 0.7, (6, 30)), rng.integers(0, 6, 1600)
    rows = np.clip(centres[labels] + 0.3 * rng.standard_normal((1600, 30)), -1, 1)
    assert log_loss(rows, labels, 6, epsilon=0.5) < 0.3  # 0.13; a short, shrunk descent has 0.80


@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_labels_that_are_all_noise_cost_little_more_than_no_model(epsilon):
    rng = np.random.default_rng(411)
    rows, labels = rng.uniform(-1, 1, (2000, 25)), rng.integers(0, 5, 2000)
    # 0.038 and 0.040; at epsilon 3 half of the shrinkage has 0.073.
    assert log_loss(rows, labels, 5, epsilon) < math.log(5) + 0.05


def test_the_descent_collects_the_noise_that_it_may():
    problem, multiplier = several(), 40.0
    descent = tune_descent(problem, "add_remove", multiplier, max_passes=300)
    moves = descent.optimizer
    deviation = moves.clip_norm * multiplier / problem.n
    scale = math.sqrt(2) / problem.bounds.row_norm / 0.5  # Lipschitz constant over smoothness
    assert moves.time * deviation == pytest.approx(TUNING.collected_noise * scale, rel=1e-9)


def test_the_shrinkage_is_the_noise_of_the_output():
    """Descents on records without gradients end in noise alone, of about the predicted norm."""
    problem = several(n=400)
    descent = tune_descent(problem, "add_remove", 100.0, max_passes=40)
    bare = replace(descent, optimizer=replace(descent.optimizer, shrinkage=0.0))
    view = view_of(InMemory(np.zeros((400, 20)), np.zeros(400)), "add_remove", "record", Source(1))
    ends = np.array(bare.run_many(view, Run(Source(2)), 100))
    found = float(np.mean(np.sum(ends**2, axis=1)))
    assert found == pytest.approx(descent.optimizer.shrinkage, rel=0.09)


def test_reached_is_the_fraction_of_the_way_along_an_isotropic_direction():
    problem = several()
    moves = tune_descent(problem, "add_remove", 40.0, max_passes=300).optimizer
    pull = moves.time * isotropic_curvature(problem, moves.clip_norm)
    # The average is over the last part of the descent.
    parts = np.linspace(1 - TUNING.average, 1, 1001)
    assert moves.reached == pytest.approx(1 - np.mean(np.exp(-pull * parts)), rel=0.05)
    assert moves.least == pytest.approx(TUNING.class_factor * min(1.0, pull))


def test_gradients_of_several_classes_are_clipped_harder_at_more_noise():
    def share(level: float) -> float:
        problem = several()
        multiplier = level / relative_noise(problem, "add_remove", 1.0)
        return default_clip_norm(problem, "add_remove", multiplier) / gradient_bound(problem)

    assert [share(level) for level in (0.001, 0.01, 0.02)] == pytest.approx([1.0, 0.6, 0.6])
    assert [share(level) for level in (0.04, 0.06, 1.0)] == pytest.approx([0.475, 0.35, 0.35])


def test_other_losses_and_domains_keep_the_short_descent():
    for problem in (several(domain=L2Ball(100, 3.0)), several(loss=Logistic())):
        moves = tune_descent(problem, "add_remove", 400.0, max_passes=100).optimizer
        assert (moves.reached, moves.least, moves.unshrunk) == (1.0, 0.0, 0)
        assert moves.time * isotropic_curvature(problem, moves.clip_norm) < 0.05


@pytest.mark.parametrize("multiplier", [1e-6, 1e8])
def test_extreme_budgets_have_a_plan(multiplier):
    moves = tune_descent(several(), "replace", multiplier, max_passes=20).optimizer
    assert 0 < moves.reached <= 1


def test_a_point_that_came_half_way_is_shrunk_half_as_much():
    squares = np.array([100.0, 4.0, 2.5, 2.0, 0.0])
    factors = shrinkage_factor(squares, 2.0, reached=0.5, least=0.1)
    assert factors.tolist() == pytest.approx([1.0, 1.0, 0.4, 0.1, 0.1])
    points = james_stein(np.array([[1.5, 0.5]]), 2.0, 0.5, 0.1)
    assert points == pytest.approx(np.array([[0.6, 0.2]]))


def test_the_intercept_is_not_shrunk_where_it_is_spared():
    moves = Momentum(1.0, 1.0, Schedule(1), shrinkage=8.0, unshrunk=1)
    state = {"step": 1, "point": np.zeros(3), "average": np.array([4.0, 0.0, 5.0])}
    problem = several(loss=Logistic(), n_features=3)
    assert moves.result(problem, state).tolist() == [2.0, 0.0, 5.0]


@pytest.mark.parametrize(
    "given", [{"reached": 0.0}, {"reached": 1.1}, {"least": 1.5}, {"unshrunk": -1}]
)
def test_invalid_numbers_of_the_optimizer_raise(given):
    with pytest.raises(ValueError, match=next(iter(given))):
        Momentum(1.0, 1.0, Schedule(1), **given)
