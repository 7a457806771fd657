"""Objective perturbation: the law of what is released, its certified distance, hostile data."""

import json
import math

import numpy as np
import pytest
from scipy.stats import gamma, kstest, laplace, norm
from worst_cases import hostile, logistic_case

from dpfit.core import Minimize, Run, plan_from_json
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import (
    Bounds,
    Huber,
    HuberDistance,
    Logistic,
    QuantileHuber,
    SmoothedHinge,
    Softmax,
    Squared,
)
from dpfit.noise import Source
from dpfit.privacy import Budget, BudgetUnreachable, gaussian
from dpfit.solvers.perturbation.minimizer import Accuracy, Objective
from dpfit.solvers.perturbation.objective_perturbation import (
    PerturbedMinimizer,
    objective_perturbation,
    perturbation_event,
)
from dpfit.solvers.perturbation.output_perturbation import output_perturbation

RELATIONS = ("replace", "add_remove")
LOSSES = [
    (Logistic(), Bounds(1.0)),
    (SmoothedHinge(0.5), Bounds(1.0)),
    (Huber(1.0), Bounds(1.0, -3.0, 2.0)),
    (QuantileHuber(0.7, 1.0), Bounds(1.0, -3.0, 2.0)),
]


@pytest.mark.parametrize(("loss", "bounds"), LOSSES, ids=lambda v: getattr(v, "kind", ""))
@pytest.mark.parametrize(("noise", "law"), [("gaussian", norm), ("gamma", laplace)])
def test_the_released_minimizer_has_the_law_of_the_theorem(loss, bounds, noise, law):
    """1-D: minus the unperturbed gradient at the minimizer is the linear term."""
    rows, labels = np.array([[1.0], [-0.5], [0.8]]), np.array([1.0, 1.0, -1.0])
    problem = Minimize(n=3, loss=loss, bounds=bounds, n_features=1)
    tried = PerturbedMinimizer(problem, "replace", 0.5, noise, 1.5, 40.0)
    data, source = InMemory(rows, labels), Source(4)
    thetas = np.concatenate([tried.run(data, Run(source)) for _ in range(1000)])
    slopes = loss.slope(rows @ thetas[None], np.broadcast_to(labels[:, None], (3, len(thetas))))
    linear = -(rows.T @ slopes + 1.5 * thetas).ravel()
    scale = 1.5 * loss.lipschitz(bounds).value
    assert kstest(linear / scale, law.cdf).pvalue > 1e-6
    # Six standard errors of the mean absolute value are 14% (normal) and 19% (Laplace);
    # the next test knows the scale better.
    expected = scale * (math.sqrt(2 / math.pi) if noise == "gaussian" else 1.0)
    assert np.mean(np.abs(linear)) == pytest.approx(expected, rel=0.19)


def test_the_scale_of_the_linear_term_is_what_is_drawn():
    """Coordinates of one draw, data without pull: theta is minus the term over the ridge."""
    d = 400
    problem = Minimize(n=5, loss=Logistic(), bounds=Bounds(2.0), n_features=d)
    data = InMemory(np.zeros((5, d)), np.zeros(5))
    for noise, spread in (("gaussian", 1.0), ("gamma", math.sqrt(d + 1))):
        tried = PerturbedMinimizer(problem, "replace", 1.0, noise, 3.0, 40.0)
        drawn = np.array([tried.run(data, Run(Source(seed))) for seed in range(25)]) * 5.0
        # Root mean square: 10,000 normal coordinates know it to 0.7%, 25 Gamma radii to 1%.
        assert np.sqrt(np.mean(drawn**2)) == pytest.approx(3.0 * 2.0 * spread, rel=0.06)


@pytest.mark.parametrize(("noise", "spread"), [("gaussian", 1.0), ("gamma", math.sqrt(401))])
def test_the_output_noise_hides_twice_the_distance(noise, spread):
    """Output noise so large that the linear term is lost in it."""
    d = 400
    problem = Minimize(n=5, loss=Logistic(), bounds=Bounds(2.0), n_features=d)
    tried = PerturbedMinimizer(problem, "replace", 1.0, noise, 1e-5, 1e8)
    data = InMemory(np.zeros((5, d)), np.zeros(5))
    drawn = np.array([tried.run(data, Run(Source(seed))) for seed in range(25)])
    assert np.sqrt(np.mean(drawn**2)) == pytest.approx(1e8 * 2 * tried.distance * spread, rel=0.06)


@pytest.mark.parametrize(
    ("loss", "slopes", "bend"),
    [
        (Logistic(), "logistic", 0.25),
        (SmoothedHinge(0.5), "one_sided", 2.0),
        (Huber(0.7), "two_sided", 1.0),
        (QuantileHuber(0.7, 2.0), "two_sided", 1.0),
        (Logistic().enveloped(0.5), "two_sided", 0.25),
        (Softmax(4), "softmax", 0.5),
    ],
    ids=lambda v: getattr(v, "kind", ""),
)
def test_the_event_has_the_curvature_of_a_record_over_that_of_the_quadratic(loss, slopes, bend):
    event = perturbation_event(
        Minimize(n=50, loss=loss, bounds=Bounds(3.0), n_features=2), 0.2, "gamma"
    )
    assert event.slopes == slopes
    assert event.curvature == pytest.approx(bend * 3.0**2 / (50 * 0.2), rel=1e-9)


@pytest.mark.parametrize(("loss", "bounds"), LOSSES, ids=lambda v: getattr(v, "kind", ""))
def test_the_distance_covers_the_rounding_of_the_linear_term(loss, bounds):
    random = np.random.default_rng(3)
    rows, labels = random.normal(size=(4, 3)) / 2, random.choice([-1.0, 1.0], 4)
    problem = Minimize(n=4, loss=loss, bounds=bounds, n_features=3)
    tried = PerturbedMinimizer(problem, "replace", 0.1, "gaussian", 2.0, 40.0)
    assert tried.grid.step * math.sqrt(3) / 2 <= 1e-8 * loss.lipschitz(bounds).value
    # Twenty draws would not notice: what is computed errs by far less than is allowed for.
    moved = tried.grid.step * math.sqrt(3) / 2 / 0.4
    assert tried.distance == pytest.approx(tried.accuracy.distance + moved, rel=1e-9)
    assert moved > 0.1 * tried.accuracy.distance
    for _ in range(20):
        exact = tried.scale * random.normal(size=3)
        rounded = tried.grid.values(tried.grid.quantize(exact))
        found = Accuracy.of(problem, 0.4, "replace", linear=float(np.linalg.norm(exact)) * 1.01)
        points = [
            Objective(problem, InMemory(rows, labels), 0.4, linear).minimize(found)
            for linear in (exact, rounded)
        ]
        assert np.linalg.norm(points[0] - points[1]) <= tried.distance + found.distance


@pytest.mark.slow
def test_several_classes_have_the_law_of_the_theorem():
    """Minus the unperturbed gradient at the minimizer: its norm has a Gamma law."""
    random = np.random.default_rng(5)
    rows, labels = random.normal(size=(6, 2)) / 2, np.array([0.0, 1.0, 2.0, 2.0, 1.0, 2.0])
    problem = Minimize(n=6, loss=Softmax(3), bounds=Bounds(2.0), n_features=2)
    tried = PerturbedMinimizer(problem, "replace", 0.5, "gamma", 1.5, 200.0)
    data, source = InMemory(rows, labels), Source(4)
    linear = []
    for _ in range(1500):
        theta = tried.run(data, Run(source)).reshape(2, 3)
        linear.append(
            -(rows.T @ Softmax(3).gradient(rows @ theta, labels.astype(int)) + 3.0 * theta).ravel()
        )
    norms = np.linalg.norm(linear, axis=1) / (1.5 * math.sqrt(2) * 2.0)
    # The norm of six coordinates is Gamma(6): a scale that is 10% off moves its mean by nine
    # standard errors.
    assert kstest(norms, gamma(6).cdf).pvalue > 1e-6
    assert norms.mean() == pytest.approx(6.0, rel=0.06)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("limit", [{"epsilon": 1.0}, {"epsilon": 0.2, "delta": 1e-6}], ids=str)
def test_several_classes_have_pure_plans(limit, relation):
    problem = Minimize(n=2000, loss=Softmax(4), bounds=Bounds(1.0), n_features=5)
    budget = Budget(**limit, relation=relation)
    plan = objective_perturbation.plan(problem, budget)
    assert plan.mechanism.noise == "gamma"
    assert plan.guarantee.meets(budget)
    assert plan.guarantee.pure == pytest.approx(budget.epsilon)
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    with pytest.raises(BudgetUnreachable, match="several classes promises an epsilon"):
        objective_perturbation.plan(problem, Budget(mu=1.0, relation=relation))


def test_several_classes_err_less_than_with_noise_on_the_minimizer():
    random = np.random.default_rng(6)
    rows = random.normal(size=(4000, 5))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = (rows @ (4 * random.normal(size=(5, 3))) + random.gumbel(size=(4000, 3))).argmax(
        axis=1
    )
    problem, budget = (
        Minimize(n=4000, loss=Softmax(3), bounds=Bounds(1.0), n_features=5),
        Budget(epsilon=2.0),
    )

    def loss(solver):
        plan = solver.plan(problem, budget)
        thetas = [
            plan.run(InMemory(rows, labels), random_state=seed).value.reshape(5, 3)
            for seed in range(10)
        ]
        return np.mean([Softmax(3).value(rows @ theta, labels).mean() for theta in thetas])

    best, theirs = loss(objective_perturbation), loss(output_perturbation)
    assert best < theirs - 0.05


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    "limit", [{"epsilon": 1.0}, {"epsilon": 1.0, "delta": 1e-6}, {"mu": 0.5}, {"rho": 0.1}], ids=str
)
def test_budgets_are_met_and_plans_written_down(limit, relation):
    problem = Minimize(n=2000, loss=Logistic(), bounds=Bounds(1.0), n_features=5)
    budget = Budget(**limit, relation=relation)
    plan = objective_perturbation.plan(problem, budget)
    assert plan.guarantee.meets(budget)
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.guarantee.basis.arithmetic == "bounded"
    assert plan.risk.expected > 0


def test_the_noise_is_that_of_the_gaussian_mechanism_where_the_ridge_is_not_weak():
    """0.2% more for hiding the approximation, nothing for the determinant."""
    problem = Minimize(n=2000, loss=Logistic(), bounds=Bounds(1.0), n_features=40)
    plan = objective_perturbation.plan(
        problem, Budget(epsilon=1, delta=1e-6, relation="add_remove"), ridge=2 / 2000
    )
    assert plan.mechanism.noise_multiplier * gaussian.mu(1, 1e-6) == pytest.approx(1.0022, abs=2e-4)
    pure = objective_perturbation.plan(
        problem, Budget(epsilon=1, relation="add_remove"), ridge=2 / 2000
    )
    assert pure.mechanism.noise_multiplier == pytest.approx(1.005, rel=1e-6)
    pure = objective_perturbation.plan(problem, Budget(epsilon=1), ridge=4 / 2000)
    assert pure.mechanism.noise_multiplier == pytest.approx(2.005, rel=1e-6)


def test_a_ridge_whose_determinant_exceeds_the_budget_is_refused():
    problem = Minimize(n=10, loss=Huber(1.0), bounds=Bounds(1.0, -1.0, 1.0), n_features=1)
    with pytest.raises(BudgetUnreachable):
        objective_perturbation.plan(problem, Budget(epsilon=0.1), ridge=0.1)


@pytest.mark.parametrize(
    "budget", [Budget(epsilon=1e6), Budget(epsilon=1e6, delta=1e-6)], ids=["pure", "approximate"]
)
def test_a_huge_budget_gives_the_optimum_of_the_same_objective(budget):
    rows, labels, problem, optimum = logistic_case()
    theta = (
        objective_perturbation.plan(problem, budget)
        .run(InMemory(rows, labels), random_state=1)
        .value
    )
    assert np.linalg.norm(theta - optimum) < 1e-3


def test_excess_risk_falls_with_the_square_of_epsilon():
    rows, labels, problem, optimum = logistic_case(n=4000)

    def objective(theta):
        return (
            np.mean(np.logaddexp(0, -labels * (rows @ theta))) + problem.ridge / 2 * theta @ theta
        )

    def excess(epsilon):
        plan = objective_perturbation.plan(problem, Budget(mu=epsilon / 4, relation="add_remove"))
        runs = [plan.run(InMemory(rows, labels), random_state=seed).value for seed in range(60)]
        return np.mean([objective(theta) for theta in runs]) - objective(optimum)

    slope = math.log(excess(1.0) / excess(4.0)) / math.log(4.0)
    assert 1.5 < slope < 2.5


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize(
    ("loss", "bounds"), [*LOSSES, (Softmax(3), Bounds(1.0))], ids=lambda v: getattr(v, "kind", "")
)
def test_hostile_data_give_a_model(loss, bounds, epsilon):
    problem = Minimize(n=5, loss=loss, bounds=bounds, n_features=8)
    for budget in (
        Budget(epsilon=epsilon),
        Budget(epsilon=epsilon, delta=1e-6, relation="add_remove"),
    ):
        plan = objective_perturbation.plan(problem, budget)
        for data in hostile(8):
            assert np.isfinite(plan.run(data, random_state=1).value).all()


def test_one_record_no_record_and_a_domain():
    problem = Minimize(
        n=1, loss=Logistic(), bounds=Bounds(1.0), n_features=2, domain=L2Ball(2, 0.1)
    )
    plan = objective_perturbation.plan(problem, Budget(epsilon=1.0, relation="add_remove"))
    for k in (0, 1):
        theta = plan.run(InMemory(np.ones((k, 2)), np.ones(k)), random_state=1).value
        assert np.linalg.norm(theta) <= 0.1 + 1e-12


def test_what_cannot_be_planned_is_refused():
    bounds = Bounds(1.0, -1.0, 1.0)
    for loss, message in (
        (HuberDistance(0.5), "generalized linear loss or Softmax"),
        (Squared(), "bound at every parameter"),
    ):
        with pytest.raises(ValueError, match=message):
            objective_perturbation.plan(
                Minimize(n=5, loss=loss, bounds=bounds, n_features=1), Budget(epsilon=1.0)
            )
    problem = Minimize(n=5, loss=Logistic(), bounds=bounds, n_features=1)
    with pytest.raises(ValueError, match="unit='record'"):
        objective_perturbation.plan(problem, Budget(epsilon=1.0, unit="user"))
