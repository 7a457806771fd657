"""Mirror maps with a set, and descent on the schedules of proven bounds, against exact answers."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from dpfit.core import Minimize, plan_from_json
from dpfit.core.mechanism import Run
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import Bounds, Logistic, Squared
from dpfit.noise import Source
from dpfit.privacy import Budget
from dpfit.privacy.gaussian import mu
from dpfit.solvers.public_data.mirror_maps import LossMap, QuadraticMap
from dpfit.solvers.public_data.public_loss import PublicLoss
from dpfit.solvers.public_data.public_mirror_descent import public_mirror_descent

BUDGET = Budget(epsilon=1.0, delta=1e-6)


def regression(n, rng, theta, spread=(0.5, 0.3, 0.2), noise=0.3):
    """Rows +-spread_i e_i, labels with bounded noise."""
    d = len(spread)
    rows = np.zeros((n, d))
    chosen = rng.integers(d, size=n)
    rows[np.arange(n), chosen] = np.asarray(spread)[chosen] * rng.choice([-1.0, 1.0], size=n)
    return rows, rows @ theta + noise * rng.uniform(-1, 1, size=n)


def squared(n=2000, radius=1.0, **more):
    more = {"public": 500, "ridge": 0.02} | more
    return Minimize(
        n=n, loss=Squared(), bounds=Bounds(0.5, -1.0, 1.0), n_features=3,
        domain=L2Ball(3, radius), **more,
    )  # fmt: skip


def logistic(n=2000, **more):
    more = {"public": 500, "ridge": 0.1} | more
    return Minimize(
        n=n, loss=Logistic(), bounds=Bounds(1.0), n_features=3, domain=L2Ball(3, 1.0), **more
    )


@pytest.mark.parametrize("radius", [0.8, 5.0, None], ids=str)
@pytest.mark.parametrize("slope", [0.15, math.inf])
def test_projections_solve_the_constrained_problem(radius, slope):
    """Least Bregman divergence, by a general solver; the centre of the ball is not the origin."""
    rng = np.random.default_rng(0)
    vectors, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    values, lowest, centre = np.array([0.05, 0.5, 2.0]), np.array([0.5, -0.3, 0.4]), (0.2, 0.1, 0.0)
    ball = None if radius is None else L2Ball(3, radius, centre)
    mirror = QuadraticMap(vectors, values, lowest, ball, slope)
    hessian = (vectors * values) @ vectors.T
    points = rng.standard_normal((6, 3)) * 3
    found = mirror.project(points)
    for z, x in zip(points, found, strict=True):
        limits = []
        if ball is not None:
            assert np.linalg.norm(x - centre) <= radius * (1 + 1e-9)
            limits.append(lambda y: radius**2 - np.sum((y - centre) ** 2))
        if slope < math.inf:
            assert np.linalg.norm(hessian @ (x - lowest)) <= slope * (1 + 1e-6)
            limits.append(lambda y: slope**2 - np.sum((hessian @ (y - lowest)) ** 2))
        best = minimize(
            lambda y, z=z: 0.5 * (y - z) @ hessian @ (y - z), lowest,
            constraints=[{"type": "ineq", "fun": limit} for limit in limits],
            method="SLSQP", options={"ftol": 1e-14, "maxiter": 500},
        )  # fmt: skip
        reached = 0.5 * (x - z) @ hessian @ (x - z)
        assert reached <= best.fun * (1 + 1e-6) + 1e-9
        assert x == pytest.approx(best.x, abs=2e-3)


def test_points_inside_the_set_stay():
    mirror = QuadraticMap(np.eye(2), np.ones(2), np.zeros(2), L2Ball(2, 1.0), 0.9)
    points = np.array([[0.5, 0.5], [0.0, -0.89]])
    assert np.array_equal(mirror.project(points), points)


def test_an_empty_set_gives_a_point_of_the_ball_with_a_small_gradient():
    mirror = QuadraticMap(
        np.eye(2), np.array([1.0, 3.0]), np.array([3.0, 0.0]), L2Ball(2, 1.0), 0.5
    )
    assert mirror.project(np.array([[0.0, 4.0]]))[0] == pytest.approx([1.0, 0.0], abs=1e-3)


def test_steps_of_the_loss_in_a_ball_solve_their_problem():
    """argmin over the ball of size <gradient, x> + B(x, point), by a general solver."""
    rng = np.random.default_rng(1)
    rows, labels = rng.standard_normal((40, 3)) / 2, rng.choice([-1.0, 1.0], size=40)
    psi = PublicLoss(rows, labels, Logistic(), 0.05)
    mirror = LossMap(psi, L2Ball(3, 0.7, (0.1, 0.0, 0.0)))
    points, gradients = rng.standard_normal((4, 3)) / 5, rng.standard_normal((4, 3))
    for point, gradient, x in zip(
        points, gradients, mirror.step(points, gradients, 0.8), strict=True
    ):
        target = psi.gradients(point[np.newaxis])[0] - 0.8 * gradient
        best = minimize(
            lambda y, t=target: float(psi.values(y[np.newaxis])[0] - t @ y), point,
            constraints=[{"type": "ineq", "fun": lambda y: 0.49 - np.sum((y - [0.1, 0, 0]) ** 2)}],
            method="SLSQP", options={"ftol": 1e-14},
        )  # fmt: skip
        assert np.linalg.norm(x - [0.1, 0, 0]) <= 0.7 * (1 + 1e-9)
        assert x == pytest.approx(best.x, abs=1e-5)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("kind", ["fixed", "falling"])
def test_the_output_has_the_law_of_the_schedule(kind, relation):
    """Mean and covariance by a matrix recursion, on a ball that is never left.

    Noise, step sizes or their weights off by 10% move the variance by 20%.
    """
    rng = np.random.default_rng(2)
    theta, problem = np.array([0.3, -0.2, 0.4]), squared(n=4000, radius=50.0, ridge=0.05)
    private, public = regression(4000, rng, theta), regression(500, rng, theta)
    plan = public_mirror_descent.plan(
        problem, Budget(mu=1.0, relation=relation), steps=4, step_sizes=kind, failure=1e-300
    )
    mechanism = plan.mechanism
    moves, data = mechanism.optimizer, InMemory(*private, public=InMemory(*public))
    steps, clip = mechanism.rounds, problem.constants(relation).lipschitz
    deviation = math.sqrt(steps) * clip * (2 if relation == "replace" else 1) / 4000
    sizes = [moves.step_size] * steps
    if kind == "falling":
        sizes = [1 / (0.25 * (t + 15)) for t in range(1, steps + 1)]
    metric = public[0].T @ public[0] / 500 + 0.05 * np.eye(3)
    hessian = private[0].T @ private[0] / 4000 + 0.05 * np.eye(3)
    moment, inverse = private[0].T @ private[1] / 4000, np.linalg.inv(metric)
    point, mean = inverse @ public[0].T @ public[1] / 500, np.zeros(3)
    moved, noisy = np.zeros((steps, 3, 3)), np.zeros((steps, 3, 3))  # now, and in the mean
    for index, size in enumerate(sizes):
        mean = mean + point / steps
        noisy += moved / steps
        point = point - size * inverse @ (hessian @ point - moment)
        moved = (np.eye(3) - size * inverse @ hessian) @ moved
        moved[index] = -size * inverse
    # The last point is not part of the mean.
    covariance = deviation**2 * sum(each @ each.T for each in noisy)
    outputs = np.array(mechanism.run_many(data, Run(Source(3)), 6000))
    scales = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(outputs.mean(axis=0) - mean) < 6 * scales / math.sqrt(len(outputs)))
    assert outputs.var(axis=0) == pytest.approx(scales**2, rel=0.11)


def test_the_noise_profile_is_the_spread_of_a_step():
    """On a ball that is never left; the tolerance is nine standard errors."""
    rng, theta = np.random.default_rng(4), np.array([0.3, -0.2, 0.4])
    problem = squared(radius=50.0, ridge=0.05)
    plan = public_mirror_descent.plan(problem, Budget(mu=1.0), steps=4)
    moves, aggregate = plan.mechanism.optimizer, plan.mechanism.aggregate
    setting = moves.setting(problem, aggregate, InMemory(*regression(500, rng, theta)))
    deviation = 2 * math.sqrt(moves.schedule.steps) * setting.clip_norm / 2000
    noise = deviation * np.random.default_rng(5).standard_normal((200_000, 3))
    moved = setting.move(np.tile(setting.start, (len(noise), 1)), noise) - setting.start
    found = np.abs(moved @ setting.vectors).mean(axis=0)
    assert setting.noise_profile() == pytest.approx(found, rel=0.015)


def test_the_planned_risk_is_that_of_the_theorem():
    """Logistic, ball of radius 1, rows of norm 1: written out with every constant."""
    plan = public_mirror_descent.plan(logistic(), BUDGET, steps=100)
    lipschitz = 1 / (1 + math.exp(-1))  # the steepest slope at margins within 1
    noise = 2 * lipschitz / (2000 * mu(1.0, 1e-6))
    start = lipschitz**2 / (2 * 0.1 * 500)
    drift = ((lipschitz + 0.1) ** 2 + 100 * noise**2 * 3) / 0.1
    assert plan.risk.expected == pytest.approx(math.sqrt(2 * start * drift / 100), rel=1e-3)
    assert plan.risk.baseline == pytest.approx(
        (lipschitz + 0.1) * lipschitz / (0.1 * math.sqrt(500)), rel=1e-6
    )
    assert plan.mechanism.optimizer.step_size == pytest.approx(
        math.sqrt(2 * start / (100 * drift)), rel=1e-3
    )
    assert not plan.risk.proven
    assert "same population" in plan.risk.meaning
    # More public records, more curvature, less variance: the bound falls.
    for more in (
        public_mirror_descent.plan(logistic(public=2000), BUDGET, steps=100),
        public_mirror_descent.plan(logistic(), BUDGET, steps=100, curvatures=[0.1, 0.1, 0.2]),
        public_mirror_descent.plan(logistic(), BUDGET, steps=100, gradient_deviation=0.2),
        public_mirror_descent.plan(logistic(), BUDGET, steps=200),
    ):
        assert more.risk.expected < 0.95 * plan.risk.expected


def test_the_planned_risk_of_falling_steps_is_that_of_the_theorem():
    plan = public_mirror_descent.plan(
        squared(), BUDGET, steps=256, step_sizes="falling", curvatures=[0.03, 0.01, 0.005]
    )
    steps, h = plan.mechanism.rounds, np.array([0.05, 0.03, 0.025])
    lipschitz = 0.5 * (1.0 + 0.5)
    noise = 2 * lipschitz / (2000 * mu(1.0, 1e-6))
    drift = (lipschitz + 0.02) ** 2 / 0.025 + steps * noise**2 * (1 / h).sum()
    start = lipschitz**2 / (2 * 0.025 * 500)
    harmonic = sum(1 / (t + 15) for t in range(1, steps + 1))
    expected = (0.25 * 15 * start + drift * harmonic / 0.5) / steps
    assert plan.risk.expected == pytest.approx(expected, rel=1e-3)
    slope = (lipschitz + 0.02) * math.sqrt(2 * math.log(200) / 500)
    assert plan.risk.baseline == pytest.approx(start / 0.25)
    moves = plan.mechanism.optimizer
    assert moves.slope == pytest.approx(slope)
    sizes = [moves.size(index) for index in range(steps)]
    assert sizes == pytest.approx([1 / (0.25 * (t + 15)) for t in range(1, steps + 1)])


@pytest.mark.parametrize("kind", ["fixed", "falling"])
def test_the_mean_excess_is_below_the_planned_risk(kind):
    """Fresh public and private records in each of 20 runs, over the population's minimizer."""
    spread, theta, ridge = np.array([0.5, 0.3, 0.2]), np.array([0.3, -0.2, 0.4]), 0.02
    problem = squared(n=3000)
    plan = public_mirror_descent.plan(
        problem, BUDGET, steps=64, step_sizes=kind, curvatures=spread**2 / 6
    )
    best = spread**2 / 3 * theta / (spread**2 / 3 + ridge)
    excess = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        public = InMemory(*regression(500, rng, theta))
        rows, labels = regression(3000, rng, theta)
        value = plan.run(InMemory(rows, labels, public=public), random_state=seed).value

        def risk(x, rows=rows, labels=labels):
            return np.mean((rows @ x - labels) ** 2) / 2 + ridge * x @ x / 2

        excess.append(risk(value) - risk(best))
    assert np.mean(excess) + 5 * np.std(excess) / math.sqrt(20) < plan.risk.expected


def test_the_plan_is_the_same_for_all_public_records_and_needs_their_number():
    plan = public_mirror_descent.plan(logistic(), BUDGET, steps=5)
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    rng = np.random.default_rng(0)
    rows, labels = rng.standard_normal((2000, 3)) / 4, rng.choice([-1.0, 1.0], size=2000)
    few = InMemory(rows, labels, public=InMemory(rows[:499], labels[:499]))
    with pytest.raises(ValueError, match="at least 500 public records"):
        plan.run(few, random_state=1)
    enough = replace(few, public=InMemory(rows[:500], labels[:500]))
    assert np.linalg.norm(plan.run(enough, random_state=1).value) <= 1


def test_what_cannot_be_planned_is_said():
    for wrong, match in (
        (replace(logistic(), domain=None), "ball"),
        (logistic(public=None), "number of public"),
        (logistic(ridge=0.0), "strong convexity"),
    ):
        with pytest.raises(ValueError, match=match):
            public_mirror_descent.plan(wrong, BUDGET)
    for options, match in (
        ({"step_sizes": "falling"}, "squared loss"),
        ({"curvatures": [1.0]}, "3 finite numbers"),
        ({"curvatures": [-1.0, 1.0, 1.0]}, "3 finite numbers"),
        ({"steps": 0}, "steps"),
    ):
        with pytest.raises(ValueError, match=match):
            public_mirror_descent.plan(logistic(), BUDGET, **options)
    with pytest.raises(ValueError, match="similarity"):
        public_mirror_descent.plan(squared(), BUDGET, step_sizes="falling", similarity=2.0)
