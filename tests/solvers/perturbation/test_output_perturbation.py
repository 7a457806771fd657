"""Output perturbation: sensitivity by brute force, closed forms, hostile data."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kstest
from worst_cases import all_pairs, corner_records, hostile, logistic_case, neighbouring

from dpfit.core import Minimize, Run, plan_from_json
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import (
    Bounds,
    CustomLoss,
    Hinge,
    Huber,
    HuberDistance,
    LinearLoss,
    Logistic,
    QuantileHuber,
    SmoothedHinge,
    Softmax,
    Squared,
)
from dpfit.noise import Source
from dpfit.privacy import Budget, gaussian
from dpfit.solvers.perturbation.objective_perturbation import objective_perturbation
from dpfit.solvers.perturbation.output_perturbation import NoisyMinimizer, output_perturbation
from dpfit.solvers.perturbation.ridge import RidgeSearch

RELATIONS = ("replace", "add_remove")
LOSSES = [
    (Logistic(), Bounds(1.0), (-1.0, 1.0)),
    (SmoothedHinge(0.5), Bounds(1.0), (-1.0, 1.0)),
    (Huber(1.0), Bounds(1.0, -3.0, 2.0), (-3.0, 2.0)),
    (QuantileHuber(0.7, 1.0), Bounds(1.0, -3.0, 2.0), (-3.0, 2.0)),
    (Softmax(3), Bounds(1.0), (0.0, 1.0, 2.0)),
    (HuberDistance(0.5), Bounds(1.0), (0.0,)),
]


def mechanism(loss, bounds, n, d, relation, ridge, noise="gaussian", multiplier=1.0):
    problem = Minimize(n=n, loss=loss, bounds=bounds, n_features=d)
    return NoisyMinimizer(problem, relation, ridge, noise, multiplier)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("loss", "bounds", "labels"), LOSSES, ids=lambda v: getattr(v, "kind", ""))
@pytest.mark.parametrize("d", [1, 3])
def test_no_neighbour_moves_the_minimizer_further_than_declared(loss, bounds, labels, relation, d):
    random = np.random.default_rng(5)
    records = corner_records(d, labels, random)
    for size, ridge in ((2, 0.05), (5, 0.4)):
        tried = mechanism(loss, bounds, size, d, relation, ridge)
        pairs = neighbouring(records, size, relation, random, 60, d)
        moved = max(np.linalg.norm(tried._minimizer(a) - tried._minimizer(b)) for a, b in pairs)
        assert moved <= tried.sensitivity


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_sensitivity_is_attained(relation):
    """Records beyond the Huber width have gradients at the bound; all pairs in the plane."""
    random = np.random.default_rng(6)
    tried = mechanism(Huber(1.0), Bounds(1.0, -9.0, 9.0), 2, 2, relation, 0.5)
    records = corner_records(2, (-9.0, 9.0), random, number=1)
    moved = max(
        np.linalg.norm(tried._minimizer(a) - tried._minimizer(b))
        for a, b in all_pairs(records, relation, 2)
    )
    assert 0.999 * tried.sensitivity <= moved <= tried.sensitivity
    assert tried.sensitivity == pytest.approx(
        (2.0 if relation == "replace" else 1.0) / (2 * 0.5), rel=1e-6
    )


@pytest.mark.parametrize(("relation", "records"), [("replace", 1.0), ("add_remove", 2.0)])
def test_both_neighbours_may_miss_their_minimizers(relation, records):
    """With many records, rounding errors count twice against one record's change."""
    tried = mechanism(Logistic(), Bounds(1.0), 10**8, 5, relation, 1e-6)
    exact = (2.0 if relation == "replace" else 1.0) / (1e8 * 1e-6)
    # At least the additions of each record in its block of a 64th of them.
    assert (
        tried.accuracy.distance
        > (records * 1e8) ** 2 / 64 * 2.0**-53 / (1e8 * 1e-6)
        > 0.005 * exact
    )
    assert tried.sensitivity == pytest.approx(exact + 2 * tried.accuracy.distance, rel=1e-9)


def test_n_is_the_declared_one():
    """Under add/remove the number of records scales nothing."""
    tried = mechanism(Logistic(), Bounds(1.0), 100, 1, "add_remove", 0.1)
    few, many = (InMemory(np.zeros((k, 1)), np.zeros(k)) for k in (3, 150))
    np.testing.assert_array_equal(tried._minimizer(few), tried._minimizer(many))
    assert tried.sensitivity == pytest.approx(1 / (100 * 0.1), rel=1e-6)
    replaced = Minimize(n=100, loss=Logistic(), bounds=Bounds(1.0), n_features=1)
    with pytest.raises(ValueError, match="n = 100"):
        output_perturbation.plan(replaced, Budget(epsilon=1.0)).run(few)


@pytest.mark.parametrize(("noise", "law"), [("gaussian", "norm"), ("l2_laplace", "laplace")])
def test_the_noise_has_the_declared_law(noise, law):
    tried = mechanism(Logistic(), Bounds(1.0), 4, 1, "replace", 0.5, noise, 2.0)
    data = InMemory(np.ones((4, 1)), np.ones(4))
    drawn = np.concatenate(tried.run_many(data, Run(Source(7)), 8000)) - tried._minimizer(data)
    scale = 2.0 * tried.sensitivity
    assert kstest(drawn / scale, law).pvalue > 1e-6
    # Six standard errors of the mean absolute deviation are 5% (Laplace: 6.7%) of it.
    expected = scale * (math.sqrt(2 / math.pi) if law == "norm" else 1.0)
    assert np.mean(np.abs(drawn)) == pytest.approx(expected, rel=0.067)


@pytest.mark.parametrize("relation", RELATIONS)
def test_budgets_set_the_noise(relation):
    problem = Minimize(n=1000, loss=Logistic(), bounds=Bounds(1.0), n_features=40)
    pure = output_perturbation.plan(problem, Budget(epsilon=0.5, relation=relation))
    assert pure.guarantee.pure == 0.5
    approximate = output_perturbation.plan(
        problem, Budget(epsilon=1, delta=1e-6, relation=relation)
    )
    assert approximate.mechanism.noise_multiplier == pytest.approx(
        1 / gaussian.mu(1, 1e-6), rel=1e-9
    )
    assert approximate.guarantee.basis.arithmetic == "bounded"
    assert plan_from_json(json.loads(json.dumps(pure.to_json()))) == pure
    few = replace(problem, n_features=3)
    assert (
        output_perturbation.plan(few, Budget(epsilon=1, delta=1e-6)).mechanism.noise == "l2_laplace"
    )
    assert output_perturbation.plan(few, Budget(mu=0.5)).mechanism.noise == "gaussian"


def test_the_default_ridge_is_near_the_best_for_isotropic_rows():
    problem = Minimize(n=5000, loss=Logistic(), bounds=Bounds(1.0), n_features=10)

    def predicted(plan):
        tried = plan.mechanism
        noise = RidgeSearch(problem).output_excess(
            tried.ridge, tried.noise, tried.noise_multiplier * tried.sensitivity
        )
        return noise + RidgeSearch(problem).bias(tried.ridge)

    budget = Budget(epsilon=1, delta=1e-6)
    chosen = output_perturbation.plan(problem, budget)
    for factor in (0.5, 2.0):
        other = output_perturbation.plan(problem, budget, ridge=factor * chosen.mechanism.ridge)
        assert predicted(other) > predicted(chosen)


def test_predicted_noise_is_measured_noise_for_isotropic_quadratics():
    """Huber within its quadratic part, rows along the axes: the formula is exact."""
    d, n = 4, 400
    problem = Minimize(n=n, loss=Huber(50.0), bounds=Bounds(1.0, -1.0, 1.0), n_features=d)
    plan = output_perturbation.plan(problem, Budget(mu=1.0), ridge=0.5)
    rows = np.tile(np.eye(d), (n // d, 1))
    data = InMemory(rows, np.linspace(-1, 1, n))
    best = plan.mechanism._minimizer(data)

    def objective(theta):
        return np.mean((rows @ theta - data.labels) ** 2) / 2 + 0.25 * theta @ theta

    drawn = plan.mechanism.run_many(data, Run(Source(3)), 4000)
    measured = np.mean([objective(theta) for theta in drawn]) - objective(best)
    scale = plan.mechanism.noise_multiplier * plan.mechanism.sensitivity
    assert measured == pytest.approx(
        RidgeSearch(problem).output_excess(0.5, "gaussian", scale), rel=0.1
    )


@pytest.mark.parametrize(
    "budget", [Budget(epsilon=1e6), Budget(epsilon=1e6, delta=1e-6)], ids=["pure", "approximate"]
)
def test_a_huge_budget_gives_the_optimum_of_the_same_objective(budget):
    rows, labels, problem, optimum = logistic_case()
    theta = (
        output_perturbation.plan(problem, budget).run(InMemory(rows, labels), random_state=1).value
    )
    assert np.linalg.norm(theta - optimum) < 1e-3


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize(("loss", "bounds", "labels"), LOSSES, ids=lambda v: getattr(v, "kind", ""))
def test_hostile_data_give_a_model(loss, bounds, labels, epsilon):
    problem = Minimize(n=5, loss=loss, bounds=bounds, n_features=8)
    for budget in (Budget(epsilon=epsilon), Budget(epsilon=epsilon, delta=1e-6)):
        plan = output_perturbation.plan(problem, budget)
        for data in hostile(8):
            assert np.isfinite(plan.run(data, random_state=1).value).all()


def test_one_record_and_no_record():
    problem = Minimize(n=1, loss=Logistic(), bounds=Bounds(1.0), n_features=2)
    plan = output_perturbation.plan(problem, Budget(epsilon=1.0, relation="add_remove"))
    for k in (0, 1):
        assert np.isfinite(
            plan.run(InMemory(np.ones((k, 2)), np.ones(k)), random_state=1).value
        ).all()


def test_the_minimum_of_linear_losses_is_minus_their_mean_over_the_ridge():
    rows = np.array([[0.6, 0.8], [1.0, 0.0], [0.0, -0.5], [0.3, 0.3]])
    problem = Minimize(n=4, loss=LinearLoss(), bounds=Bounds(1.0), n_features=2, ridge=0.5)
    plan = output_perturbation.plan(problem, Budget(epsilon=1e8), ridge=0.5)
    released = plan.run(InMemory(rows, np.zeros(4)), random_state=1).value
    assert released == pytest.approx(-rows.mean(axis=0) / 0.5, abs=1e-4)


def test_a_domain_is_met_by_projection():
    problem = Minimize(
        n=5, loss=Logistic(), bounds=Bounds(1.0), n_features=2, domain=L2Ball(2, 0.1)
    )
    plan = output_perturbation.plan(problem, Budget(epsilon=0.1))
    assert np.linalg.norm(plan.run(hostile(2)[1], random_state=1).value) <= 0.1 + 1e-12


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("row_norm", [1e-100, 1e100])
@pytest.mark.parametrize(
    "solver", [output_perturbation, objective_perturbation], ids=lambda solver: solver.name
)
@pytest.mark.parametrize("loss", [Logistic(), Huber(1.0)], ids=str)
def test_plans_do_not_depend_on_the_unit_of_rows(loss, solver, row_norm):
    unit, other = (
        solver.plan(
            Minimize(n=1000, loss=loss, bounds=Bounds(size, -1.0, 1.0), n_features=3),
            Budget(epsilon=1, delta=1e-6),
        ).mechanism
        for size in (1.0, row_norm)
    )
    assert other.noise == unit.noise
    assert other.ridge / row_norm**2 == pytest.approx(unit.ridge, rel=1e-6)
    assert other.risk.expected == pytest.approx(unit.risk.expected, rel=1e-6)


def test_constants_that_hold_on_a_domain_only_are_refused():
    """Squared loss with slopes up to 2 in the unit ball: outside, records move it further."""
    squared = CustomLoss(
        value_function=lambda theta, rows, labels: (rows @ theta - labels) ** 2 / 2,
        gradient_function=lambda theta, rows, labels: (rows @ theta - labels)[:, None] * rows,
        lipschitz_bound=2.0,
        smoothness_bound=1.0,
        is_convex=True,
    )
    everywhere = Minimize(n=5, loss=squared, bounds=Bounds(1.0, -1.0, 1.0), n_features=1)
    assert output_perturbation.plan(everywhere, Budget(epsilon=1.0)).basis.arithmetic == "idealised"
    inside = replace(everywhere, domain=L2Ball(1, 1.0))
    with pytest.raises(ValueError, match="hold in the whole space"):
        output_perturbation.plan(inside, Budget(epsilon=1.0))
    with pytest.raises(ValueError, match="hold in the whole space"):
        NoisyMinimizer(inside, "replace", 0.1, "gaussian", 1.0)


def test_what_cannot_be_planned_is_refused():
    bounds = Bounds(1.0, -1.0, 1.0)
    for loss, message in ((Hinge(), "SmoothedHinge"), (Squared(), "bound at every parameter")):
        with pytest.raises(ValueError, match=message):
            output_perturbation.plan(
                Minimize(n=5, loss=loss, bounds=bounds, n_features=1), Budget(epsilon=1.0)
            )
    problem = Minimize(n=5, loss=Logistic(), bounds=bounds, n_features=1, ridge=0.5)
    with pytest.raises(ValueError, match="at least that of the problem"):
        output_perturbation.plan(problem, Budget(epsilon=1.0), ridge=0.1)
    with pytest.raises(ValueError, match="unit='record'"):
        output_perturbation.plan(problem, Budget(epsilon=1.0, unit="user"))
    plan = output_perturbation.plan(problem, Budget(epsilon=1.0))
    with pytest.raises(ValueError, match="rows of 1 entries"):
        plan.run(InMemory(np.ones((5, 2)), np.ones(5)))
    with pytest.raises(ValueError, match="must be a Dataset"):
        plan.run(np.ones((5, 1)))
