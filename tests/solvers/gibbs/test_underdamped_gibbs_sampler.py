"""Underdamped draws charged by their trajectory: exact laws of linear losses, price, accuracy."""

import json
import math

import numpy as np
import pytest
from scipy.stats import kstest, norm

from dpfit.core import Minimize, Run, plan_from_json
from dpfit.data.dataset import InMemory
from dpfit.losses import Bounds, Hinge, LinearLoss, Logistic
from dpfit.noise import Source
from dpfit.privacy import Budget
from dpfit.solvers.gibbs.gibbs_posterior_sampler import gibbs_posterior_sampler
from dpfit.solvers.gibbs.underdamped_gibbs_sampler import (
    stationary_variance,
    underdamped_gibbs_sampler,
)

RELATIONS = ("replace", "add_remove")


def linear(n=50, ridge=0.1):
    return Minimize(n=n, loss=LinearLoss(), bounds=Bounds(1.0), n_features=1, ridge=ridge)


def steps_of(chain, curvature):
    """The matrix of a step of (position, velocity), and what a unit of gradient adds."""
    decay = math.exp(-chain.friction * chain.step_size)
    u, gamma = chain.velocity_variance, chain.friction
    push = -u / gamma * np.array([chain.step_size - (1 - decay) / gamma, 1 - decay])
    flow = np.array([[1.0, (1 - decay) / gamma], [0.0, decay]])
    flow[:, 0] += push * curvature
    position, velocity, joint = chain.covariance
    return flow, push, np.array([[position, joint], [joint, velocity]])


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_price_is_that_of_the_shifts_of_all_steps(relation):
    """Each step is a Gaussian shift: its Mahalanobis norm, squared and summed."""
    plan = underdamped_gibbs_sampler.plan(linear(), Budget(mu=0.5, relation=relation))
    sample = plan.mechanism
    change = 2.0 if relation == "replace" else 1.0
    _, push, noise = steps_of(sample.chain, 0.0)
    shift = sample.inverse_temperature * change * push
    exact = math.sqrt(sample.chain.steps * float(shift @ np.linalg.solve(noise, shift)))
    assert sample.event.mu == pytest.approx(exact, rel=1e-6)
    assert plan.guarantee.mu == pytest.approx(0.5)


def test_the_last_position_of_linear_losses_is_within_the_price():
    """The laws on neighbours are normal with equal variance: their distance is exact."""
    sample = underdamped_gibbs_sampler.plan(linear(), Budget(mu=0.5)).mechanism
    t, strong = sample.inverse_temperature, sample.inverse_temperature * 50 * 0.1
    flow, push, noise = steps_of(sample.chain, strong)
    apart, spread = np.zeros(2), np.diag([0.0, sample.chain.velocity_variance])
    for _ in range(sample.chain.steps):
        apart, spread = flow @ apart + 2 * t * push, flow @ spread @ flow.T + noise
    last = abs(apart[0]) / math.sqrt(spread[0, 0])
    both = math.sqrt(float(apart @ np.linalg.solve(spread, apart)))
    assert 0.5 * sample.event.mu < last <= both <= sample.event.mu


def test_draws_of_linear_losses_have_the_stationary_law():
    """Rows sum to 14 of 50: mean -0.28 / ridge; the variance with the bias of the steps."""
    data = InMemory(np.repeat([[1.0], [-1.0]], [32, 18], axis=0), np.zeros(50))
    plan = underdamped_gibbs_sampler.plan(linear(), Budget(mu=1.0), step=0.1)
    sample = plan.mechanism
    curvature = sample.inverse_temperature * 50 * 0.1
    drawn = np.array(sample.run_many(data, Run(Source(3)), 4000))[:, 0]
    spread = math.sqrt(stationary_variance(sample.chain, curvature))
    assert spread * math.sqrt(curvature) == pytest.approx(1.0, abs=0.05)
    assert kstest(drawn, norm(-2.8, spread).cdf).pvalue > 1e-6
    # Mean square over twice the number of records: what the plan predicts for one dimension.
    excess = 0.1 * np.mean((drawn + 2.8) ** 2) / 2
    assert excess == pytest.approx(sample.risk.expected, rel=0.15)


def test_the_predicted_risk_of_linear_losses_is_half_the_ridge_times_the_stationary_variance():
    sample = underdamped_gibbs_sampler.plan(linear(), Budget(mu=0.5), step=1.0).mechanism
    flow, _, noise = steps_of(sample.chain, sample.inverse_temperature * 50 * 0.1)
    spread = np.zeros((2, 2))
    for _ in range(400):
        spread = flow @ spread @ flow.T + noise
    assert sample.risk.expected == pytest.approx(0.1 / 2 * spread[0, 0], rel=1e-6)


def test_the_tolerance_of_the_start_is_left_and_steps_are_a_part_of_the_longest():
    """Along the ridge alone, by the recursion; friction / smoothness is the longest step."""
    sample = underdamped_gibbs_sampler.plan(
        linear(), Budget(mu=0.5), tolerance=0.02, step=0.005
    ).mechanism
    flow, _, _ = steps_of(sample.chain, sample.inverse_temperature * 50 * 0.1)
    left = np.linalg.matrix_power(flow, sample.chain.steps)[0, 0]
    assert left == pytest.approx(0.02, rel=0.05)
    problem = Minimize(n=200, loss=Logistic(), bounds=Bounds(1.0), n_features=2, ridge=0.01)
    steep = underdamped_gibbs_sampler.plan(problem, Budget(mu=0.5), step=0.4).mechanism
    longest = steep.chain.friction / (steep.inverse_temperature * 200 * (0.25 + 0.01))
    assert steep.chain.step_size == pytest.approx(0.4 * longest, rel=0.01)


def test_it_runs_on_records_and_has_under_half_the_temperature_of_last_iterates():
    problem = Minimize(n=2000, loss=Logistic(), bounds=Bounds(1.0), n_features=3, ridge=0.05)
    plan = underdamped_gibbs_sampler.plan(problem, Budget(epsilon=1.0, delta=1e-6))
    other = gibbs_posterior_sampler.plan(problem, Budget(epsilon=1.0, delta=1e-6))
    ratio = plan.mechanism.inverse_temperature / other.mechanism.inverse_temperature
    assert 0.3 < ratio < 0.5
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    random = np.random.default_rng(1)
    data = InMemory(random.normal(size=(2000, 3)), random.choice([-1.0, 1.0], 2000))
    assert plan.run(data, random_state=1).value.shape == (3,)


def test_refusals():
    problem = Minimize(n=200, loss=Hinge(), bounds=Bounds(1.0), n_features=2, ridge=0.1)
    with pytest.raises(ValueError, match="smooth"):
        underdamped_gibbs_sampler.plan(problem, Budget(mu=1.0))
    with pytest.raises(ValueError, match="ridge"):
        underdamped_gibbs_sampler.plan(linear(ridge=0.0), Budget(mu=1.0))
    with pytest.raises(ValueError, match="tolerance"):
        underdamped_gibbs_sampler.plan(linear(), Budget(mu=1.0), tolerance=1.0)
