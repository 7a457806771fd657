"""Noisy sufficient statistics: joint sensitivity by brute force, noise, damping, hostile data."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from worst_cases import all_pairs, corner_records, hostile, neighbouring

from dpfit.core import Composition, Minimize, Run, Stage, Step, plan_from_json
from dpfit.data.dataset import InMemory
from dpfit.losses import Bounds, Huber, Squared
from dpfit.noise import Source
from dpfit.privacy import Basis, Budget
from dpfit.solvers.perturbation.sufficient_statistics import (
    DampedBy,
    NoisyLeastSquares,
    SmallestEigenvalue,
    sufficient_statistics,
)

RELATIONS = ("replace", "add_remove")


def problem(n=2, d=2, bounds=None, **options):
    return Minimize(
        n=n, loss=Squared(), bounds=bounds or Bounds(1.0, -2.0, 2.0), n_features=d, **options
    )


def statistics(data, weight):
    """Gram matrix and weighted moments as a vector by plain sums; both triangles count."""
    gram = sum((np.outer(x, x) for x in data.matrix), np.zeros((data.width, data.width)))
    return np.append(gram.ravel(), weight * (data.matrix.T @ data.labels))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_no_neighbour_moves_the_statistics_further_than_declared(relation, d):
    random = np.random.default_rng(8)
    tried = NoisyLeastSquares(problem(5, d), relation, "gaussian", 1.0)
    smallest = SmallestEigenvalue(problem(5, d), relation, "gaussian", 1.0)
    records = corner_records(d, (-2.0, 2.0), random, number=20)
    for first, second in neighbouring(records, 5, relation, random, 600, d):
        moved = np.linalg.norm(statistics(first, tried.weight) - statistics(second, tried.weight))
        assert moved <= tried.sensitivity
        eigenvalues = [
            np.linalg.eigvalsh(data.matrix.T @ data.matrix)[0] for data in (first, second)
        ]
        assert abs(eigenvalues[0] - eigenvalues[1]) <= smallest.sensitivity


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_joint_sensitivity_is_attained(relation):
    """Replaced: rows at 120 degrees, equal labels: as at 60 degrees, opposite labels."""
    tried = NoisyLeastSquares(problem(), relation, "gaussian", 1.0)
    angles = np.arange(0, 360, 30) * math.pi / 180
    records = [(np.array([math.cos(a), math.sin(a)]), y) for a in angles for y in (-2.0, 2.0)]
    moved = max(
        np.linalg.norm(statistics(a, tried.weight) - statistics(b, tried.weight))
        for a, b in all_pairs(records, relation, 2)
    )
    assert moved == pytest.approx(tried.sensitivity, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "spread"), [("gaussian", 1.0), ("l2_laplace", math.sqrt(3))])
def test_the_noise_has_the_declared_size(noise, spread):
    """Under a huge ridge the parameter is the noisy moment over it."""
    ridge = 1e9
    tried = NoisyLeastSquares(problem(2, 1, ridge=ridge), "add_remove", noise, 2.0)
    data = InMemory([[1.0], [0.5]], [2.0, -1.0])
    run = Run(Source(5))
    moments = np.concatenate([tried.run(data, run) for _ in range(3000)]) * 2 * ridge
    # weight = 1/2, so moments carry twice the noise of the statistics: 2 * multiplier * sqrt(2)
    # each.
    assert np.std(moments) == pytest.approx(
        2 * 2.0 * math.sqrt(2) * spread, rel=0.09 if spread == 1 else 0.15
    )
    assert np.mean(moments) == pytest.approx(1.5, abs=6 * np.std(moments) / math.sqrt(3000))
    smallest = SmallestEigenvalue(problem(2, 1), "replace", noise, 3.0)
    eigenvalues = [smallest.run(data, run) for _ in range(3000)]
    scale = 3.0 if noise == "gaussian" else 3.0 * math.sqrt(2)
    assert np.std(eigenvalues) == pytest.approx(scale, rel=0.17 if noise == "l2_laplace" else 0.09)


def test_damping_fills_what_the_eigenvalue_leaves():
    tried = NoisyLeastSquares(problem(1000, 4), "replace", "gaussian", 3.0)
    step, norm = Step(tried, Basis("least squares")), tried.noise_spectral_norm

    def damping(eigenvalue):
        return DampedBy("eigenvalue").bound(step, {"eigenvalue": eigenvalue}).mechanism.damping

    assert damping(1e9) == 0.0
    assert damping(norm / 4) == pytest.approx(0.75 * norm)
    assert damping(-1e9) == norm


def test_the_parameter_is_damped_by_the_released_eigenvalue():
    """The seeded parameter is the second mechanism's, bound to the same source's first."""
    data = InMemory(np.tile(np.eye(2), (3, 1)), np.ones(6))
    plan = sufficient_statistics.plan(problem(6, 2), Budget(mu=1.0))
    release = plan.run(data, random_state=3)
    smallest = release.stages["eigenvalue"]
    second = plan.final
    damped = replace(second, damping=max(0.0, second.noise_spectral_norm - max(smallest, 0.0)))
    assert damped.damping > 0
    run = Run(Source(3))
    assert plan.stages[0].plan.mechanism.run(data, run) == smallest
    np.testing.assert_array_equal(damped.run(data, run), release.output)


def test_damping_binds_least_squares_only():
    step = Step(SmallestEigenvalue(problem(), "replace", "gaussian", 1.0), Basis("eigenvalue"))
    with pytest.raises(ValueError, match="noisy_least_squares"):
        Composition((Stage("first", step), Stage("second", step, DampedBy("first"))))


def test_noise_on_the_gram_matrix_rarely_passes_the_damping():
    """Over 400 draws of noise alone, its smallest eigenvalue stays above minus 1.3 swings."""
    tried = NoisyLeastSquares(problem(10, 20), "replace", "gaussian", 3.0)
    random = np.random.default_rng(0)
    for _ in range(400):
        noise = random.normal(size=(20, 20)) * tried.deviation
        symmetric = np.triu(noise, 1) / math.sqrt(2)
        matrix = symmetric + symmetric.T + np.diag(np.diag(noise))
        assert np.linalg.eigvalsh(matrix)[0] > -1.6 * tried.noise_spectral_norm


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    "limit", [{"epsilon": 1.0}, {"epsilon": 1.0, "delta": 1e-6}, {"mu": 0.5}, {"rho": 0.1}], ids=str
)
def test_budgets_are_met_and_plans_written_down(limit, relation):
    budget = Budget(**limit, relation=relation)
    plan = sufficient_statistics.plan(problem(100, 3), budget)
    assert plan.guarantee.meets(budget)
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize(
    "budget", [Budget(epsilon=1e6), Budget(epsilon=1e6, delta=1e-6)], ids=["pure", "approximate"]
)
def test_a_huge_budget_gives_least_squares(budget):
    random = np.random.default_rng(3)
    rows = random.normal(size=(500, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = rows @ [0.5, -0.5, 1.0] + 0.1 * random.normal(size=500)
    plan = sufficient_statistics.plan(problem(500, 3, ridge=0.01), budget)
    _, theta = plan.run(InMemory(rows, labels), random_state=1).value
    wanted = np.linalg.solve(rows.T @ rows + 5.0 * np.eye(3), rows.T @ np.clip(labels, -2, 2))
    assert np.linalg.norm(theta - wanted) < 1e-3


def test_excess_risk_falls_with_the_square_of_n():
    random = np.random.default_rng(4)

    def excess(n):
        rows = np.tile(np.eye(4), (n // 4, 1))
        labels = np.clip(rows @ [1.0, -1.0, 0.5, 0.0] + 0.3 * random.normal(size=n), -2, 2)
        best = rows.T @ labels / (n / 4)
        plan = sufficient_statistics.plan(problem(n, 4), Budget(mu=1.0))
        thetas = [
            plan.run(InMemory(rows, labels), random_state=seed).value[1] for seed in range(100)
        ]
        return np.mean(
            [np.sum((theta - best) ** 2) / 8 for theta in thetas]
        ), plan.final.risk.expected

    (small, _), (large, predicted) = excess(2000), excess(16_000)
    assert 1.7 < math.log(small / large) / math.log(8) < 2.3
    assert predicted / 10 < large < 3 * predicted


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1e6])
def test_hostile_data_give_a_model(epsilon):
    for budget in (
        Budget(epsilon=epsilon),
        Budget(epsilon=epsilon, delta=1e-6, relation="add_remove"),
    ):
        plan = sufficient_statistics.plan(problem(5, 8), budget)
        for data in hostile(8):
            smallest, theta = plan.run(data, random_state=1).value
            assert math.isfinite(smallest)
            assert np.isfinite(theta).all()


@pytest.mark.parametrize(("row_norm", "label"), [(1e-100, 1e-223), (1.0, 1e-310), (1e100, 1e-300)])
def test_labels_whose_products_vanish_are_refused(row_norm, label):
    """Tiny products have rounding beyond the sensitivity; tinier make infinite weights."""
    with pytest.raises(ValueError, match="largest absolute value of a label"):
        sufficient_statistics.plan(
            problem(bounds=Bounds(row_norm, -label, label)), Budget(epsilon=1.0)
        )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("row_norm", [1e-100, 1e100])
@pytest.mark.parametrize("label", [1e-100, 1e100])
def test_the_smallest_and_largest_records_are_as_good_as_others(row_norm, label):
    rows = row_norm * np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [-0.6, 0.8]])
    labels = label * np.array([1.0, -0.5, 0.3, 0.1])
    plan = sufficient_statistics.plan(
        problem(4, bounds=Bounds(row_norm, -label, label)), Budget(epsilon=1e6)
    )
    _, theta = plan.run(InMemory(rows, labels), random_state=1).value
    wanted = np.linalg.solve(rows.T @ rows / row_norm**2, rows.T @ labels / row_norm / label)
    assert theta * (row_norm / label) == pytest.approx(wanted, abs=1e-3)


def test_what_cannot_be_planned_is_refused():
    budget = Budget(epsilon=1.0)
    with pytest.raises(ValueError, match="Squared"):
        sufficient_statistics.plan(
            Minimize(n=5, loss=Huber(1.0), bounds=Bounds(1.0, -1.0, 1.0), n_features=1), budget
        )
    with pytest.raises(ValueError, match="label bounds"):
        sufficient_statistics.plan(problem(bounds=Bounds(1.0)), budget)
    with pytest.raises(ValueError, match="share"):
        sufficient_statistics.plan(problem(), budget, share=1.0)
    plan = sufficient_statistics.plan(problem(), budget)
    with pytest.raises(ValueError, match="n = 2"):
        plan.run(InMemory(np.ones((3, 2)), np.ones(3)))
