"""Stages in smaller balls: reference plans, the law of distances, slopes, composition."""

import math
from dataclasses import replace

import numpy as np
import pytest
from grids import cells, masses
from scipy.stats import chi2

from dpfit.core import Minimize
from dpfit.data.dataset import InMemory
from dpfit.losses import Absolute, Bounds, LinearLoss, Logistic
from dpfit.privacy import Budget, BudgetUnreachable
from dpfit.solvers.gibbs.ball_schedule import BallSchedule, FirstBall
from dpfit.solvers.gibbs.iterated_exponential_mechanism import iterated_exponential_mechanism


def planned_stages(d, n, ridge, change, epsilon, radius, miss, most):
    return BallSchedule.best(d, n, ridge, FirstBall(radius, change, epsilon), miss, most)


@pytest.mark.parametrize(
    ("d", "n", "ridge", "risk"),
    [
        (20, 10**6, 0.1, 6.55e-6),
        (20, 10**6, 0.01, 4.7e-5),
        (20, 10**4, 0.1, 0.008),
        (500, 10**6, 0.1, 9.0e-4),
    ],
)
def test_plans_against_reference_values(d, n, ridge, risk):
    """Slope-1 losses, unit ball, replace-one, epsilon = 1, radii missed with n**-3."""
    stages = planned_stages(d, n, ridge, 2.0, 1.0, 1.0, n**-3.0, most=6)
    assert stages.risk == pytest.approx(risk, rel=0.08)
    assert sum(stages.epsilons) == pytest.approx(1.0)
    assert stages.risk <= planned_stages(d, n, ridge, 2.0, 1.0, 1.0, n**-3.0, most=1).risk


def test_radii_follow_the_quantiles_of_chi_square():
    stages = planned_stages(5, 10**6, 0.1, 2.0, 1.0, 10.0, 1e-6, most=6)
    assert len(stages.radii) > 2
    for before, spent, after in zip(stages.radii, stages.epsilons, stages.radii[1:], strict=False):
        temperature = spent / (2.0 * 2 * before)
        quantile = chi2(5).isf(1e-6 / (len(stages.radii) - 1))
        assert after == pytest.approx(1.02 * math.sqrt(quantile / (temperature * 10**6 * 0.1)))


def test_distances_to_the_minimizer_are_at_most_those_of_chi_square():
    """Random m-strongly convex potentials, minimizer perhaps at an end; equal if normal."""
    random = np.random.default_rng(1)
    x, _ = cells(-1.0, 1.0, 4000)
    for trial in range(60):
        m = 10 ** random.uniform(-1, 3)
        kinks, slopes = random.uniform(-1, 1, 5), random.uniform(0, 30, 5) * (trial > 0)
        potential = m / 2 * (x - random.uniform(-1.5, 1.5) * (trial > 0)) ** 2
        potential = potential + (slopes * np.abs(x[:, None] - kinks)).sum(axis=1)
        square = (x - x[np.argmin(potential)]) ** 2
        law = masses(potential)
        for tail in (0.5, 0.1, 1e-3):
            assert law[square > chi2(1).isf(tail) / m].sum() <= tail * 1.01 + 2e-3
    normal = masses(400 / 2 * x**2)
    assert normal[x**2 > chi2(1).isf(0.1) / 400].sum() == pytest.approx(0.1, rel=0.02)


def test_the_risk_falls_with_the_square_of_n_where_there_is_much_data():
    """With one stage it falls with n; with very many records almost with its square."""
    risks = [
        planned_stages(5, n, 0.1, 2.0, 1.0, 1.0, 1e-6, most=12).risk
        for n in (10**3, 10**4, 10**8, 10**9)
    ]
    assert -math.log10(risks[1] / risks[0]) < 1.6
    assert -math.log10(risks[3] / risks[2]) > 1.7


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_stages_compose_to_the_budget(relation):
    problem = Minimize(n=10**6, loss=Logistic(), bounds=Bounds(1.0), n_features=3, ridge=0.1)
    budget = Budget(epsilon=0.5, relation=relation)
    plan = iterated_exponential_mechanism.plan(problem, budget)
    radii = [stage.plan.mechanism.problem.trust_ball.norm_bound for stage in plan.stages]
    assert plan.guarantee.meets(budget)
    assert plan.guarantee.pure > 0.48
    assert radii[0] == pytest.approx(10.0)  # lipschitz / ridge
    assert radii == sorted(radii, reverse=True)
    assert (
        plan.risk.expected < 0.1 * planned_stages(3, 10**6, 0.1, 2.0, 0.5, 10.0, 1e-6, most=1).risk
    )


@pytest.mark.slow
def test_later_samples_are_nearer():
    """Linear losses that cancel: the minimizer is zero."""
    n = 4000
    problem = Minimize(n=n, loss=LinearLoss(), bounds=Bounds(1.0), n_features=1, ridge=1.0)
    data = InMemory(np.repeat([[1.0], [-1.0]], n // 2, axis=0), np.zeros(n))
    plan = iterated_exponential_mechanism.plan(problem, Budget(epsilon=2.0))
    assert len(plan.stages) >= 2
    values = np.array([np.ravel(plan.run(data, random_state=seed).value) for seed in range(40)])
    size = np.abs(values).mean(axis=0)
    assert size[-1] < size[0]
    for stage, after in zip(plan.stages[:-1], values[:, 1:].T, strict=True):
        assert np.all(np.abs(after) <= stage.plan.mechanism.problem.trust_ball.norm_bound)
    # Each sample is normal with variance 1 / (t n ridge), restricted to its ball.
    last = plan.stages[-1].plan.mechanism
    assert np.mean(values[:, -1] ** 2) <= 1.6 / (last.inverse_temperature * n)


def test_corners_are_welcome_and_a_known_radius_helps():
    problem = Minimize(
        n=1000, loss=Absolute(), bounds=Bounds(1.0, -1.0, 1.0), n_features=1, ridge=0.01
    )
    wide, known = (
        iterated_exponential_mechanism.plan(problem, Budget(epsilon=1.0), radius=radius)
        for radius in (None, 2.0)
    )
    assert wide.stages[0].plan.mechanism.problem.trust_ball.norm_bound == pytest.approx(100.0)
    assert known.stages[0].plan.mechanism.problem.trust_ball.norm_bound == 2.0
    assert known.risk.expected < wide.risk.expected


def test_refusals():
    problem = Minimize(n=1000, loss=Logistic(), bounds=Bounds(1.0), n_features=1, ridge=0.1)
    with pytest.raises(BudgetUnreachable, match="posterior_release"):
        iterated_exponential_mechanism.plan(problem, Budget(mu=1.0))
    with pytest.raises(ValueError, match="ridge > 0"):
        iterated_exponential_mechanism.plan(replace(problem, ridge=0.0), Budget(epsilon=1.0))
