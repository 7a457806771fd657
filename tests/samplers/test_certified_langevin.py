"""Langevin chains that start where their certificate says, against exact Gaussian laws."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from dpfit.core import Minimize, plan_from_json
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.geometry.whole_space import WholeSpace
from dpfit.losses import Bounds, Hinge, Logistic
from dpfit.noise import Source
from dpfit.privacy import Budget, renyi
from dpfit.samplers.certificate import WithinRenyi
from dpfit.samplers.certified_langevin import (
    START_ERROR,
    CertifiedLangevin,
    minimizer,
    plan_langevin,
    started_certificate,
)
from dpfit.samplers.discretization import SmoothTarget, langevin_mixing
from dpfit.samplers.potential import Potential
from dpfit.samplers.ula_sampler import LangevinSampler
from dpfit.solvers.gibbs.dp_from_sampler_closeness import dp_from_sampler_closeness


def quadratic(eigenvalues, mode):
    """U = sum of eigenvalue / 2 (x - mode)^2, of which norm(x)^2 / 2 is the strong convexity."""
    rest = eigenvalues - 1.0

    def convex(x):
        away = x - mode * eigenvalues / np.maximum(rest, 1e-300)
        away = np.where(rest > 0, away, 0.0)
        return (rest * away**2 / 2).sum(axis=1), rest * away

    return Potential(WholeSpace(len(eigenvalues)), 1.0, np.zeros(len(eigenvalues)), convex)


def exact(order, mean, variance, eigenvalues, mode):
    """Both divergences between N(mean, diag variance) and exp(-U)."""
    P, R = np.diag(variance), np.diag(1 / eigenvalues)
    return renyi.gaussians(order, mean, P, mode, R), renyi.gaussians(order, mode, R, mean, P)


def law(chain, eigenvalues, start_variance, offset):
    c = 1 - chain.step_size * eigenvalues
    powers = c ** (2 * chain.steps)
    variance = powers * start_variance + 2 * chain.step_size * (1 - powers) / (1 - c**2)
    return c**chain.steps * offset, variance


def test_a_chain_with_its_mode_far_from_the_centre_is_as_close_as_certified():
    eigenvalues, mode = np.array([1.05, 2.0]), np.array([10.0, -10.0])
    chain = plan_langevin(2.0, 0.5, SmoothTarget(2, 1.0, 2.0))
    drawn = chain.draw(quadratic(eigenvalues, mode), 4_000, Source(1))
    offset, variance = law(chain, eigenvalues, 1.0, START_ERROR * np.ones(2))
    # Six standard errors; a start at the centre is off by more than one standard deviation.
    assert np.all(np.abs(drawn.mean(axis=0) - mode) < 6 * np.sqrt(variance / 4_000))
    assert np.allclose(drawn.var(axis=0), variance, rtol=6 * math.sqrt(2 / 4_000))
    certificate = chain.certificate
    forward, backward = exact(2.0, mode + offset, variance, eigenvalues, mode)
    assert forward <= certificate.forward
    assert backward <= certificate.backward
    # From the centre of the space the same chain is further away than the certificate says.
    offset, variance = law(chain, eigenvalues, 0.0, -mode)
    assert max(exact(2.0, mode + offset, variance, eigenvalues, mode)) > 2 * certificate.forward


def test_the_minimizer_is_found_to_the_tolerance_on_every_dataset():
    random = np.random.default_rng(2)
    for _ in range(20):
        eigenvalues = 1 + random.uniform(0, 30, 3)
        mode = random.normal(size=3) * 10 ** random.uniform(-3, 3)
        target = SmoothTarget(3, 1.0, 31.0)
        found = minimizer(quadratic(eigenvalues, mode), target, 1e-6)
        assert np.linalg.norm(eigenvalues * (found - mode)) <= 1e-6


@pytest.mark.parametrize("start", ["wide", "narrow"])
def test_certified_divergences_bound_the_exact_ones(start):
    """Orders up to 30; where a start is bounded one way only, that way is tested."""
    random, finite = np.random.default_rng(3), 0
    for _ in range(100):
        d, kappa = int(random.integers(1, 8)), 10 ** random.uniform(0, 1)
        target, order = SmoothTarget(d, 1.0, kappa), 1 + 10 ** random.uniform(-1.5, 1.46)
        eigenvalues = random.uniform(1, kappa, d)
        time, h = 10 ** random.uniform(0, 1.5), 10 ** random.uniform(-6, -2)
        chain = LangevinSampler(max(1, round(time / h)), h)
        variance = target.start_variance(start)
        offset = np.zeros(d)
        offset[0] = START_ERROR * math.sqrt(variance)
        mean, spread = law(chain, eigenvalues, variance, offset)
        bound = started_certificate(order, target, chain, start)
        forward, backward = exact(order, mean, spread, eigenvalues, np.zeros(d))
        assert forward <= bound.forward * (1 + 1e-9) + 1e-9
        assert backward <= bound.backward * (1 + 1e-9) + 1e-9
        finite += math.isfinite(bound.forward)
        assert start == "wide" or math.isinf(bound.backward)
    assert finite > 30


def test_the_narrow_start_is_as_far_as_its_bound_at_every_order():
    """f = m/2 |x|^2 from N(0, I/M): the divergence tends to (d/2) log(M/m) with the order."""
    target = SmoothTarget(6, 1.0, 8.0)
    far = renyi.gaussians(1e4, np.zeros(6), np.eye(6) / 8, np.zeros(6), np.eye(6))
    bound = langevin_mixing(1e4, target, 0.0, "narrow").forward
    assert far <= bound <= far * 1.01
    assert langevin_mixing(3.0, target, 1.5, "narrow").forward == pytest.approx(bound / math.e)


def test_the_narrow_start_takes_fewer_steps_for_its_one_direction():
    target = SmoothTarget(3, 1.0, 4.0)
    wide, narrow = (plan_langevin(2.0, 0.3, target, start) for start in ("wide", "narrow"))
    assert narrow.steps < wide.steps
    assert narrow.certificate == WithinRenyi(2.0, 0.3, math.inf)


def plane(n=100):
    return Minimize(n=n, loss=Logistic(), bounds=Bounds(1.0), n_features=2, ridge=0.25)


def records(n=100):
    random = np.random.default_rng(4)
    return InMemory(random.standard_normal((n, 2)), random.choice([-1.0, 1.0], n))


CLOSE, BUDGET = WithinRenyi(3.0, 0.5, 0.5), Budget(epsilon=9.0, delta=0.05)


@pytest.fixture(scope="module")
def plan():
    return dp_from_sampler_closeness.plan(plane(), BUDGET, certificate=CLOSE)


def test_a_certified_chain_is_planned_for_a_problem_and_run(plan):
    chain = plan.mechanism.sampler
    assert isinstance(chain, CertifiedLangevin)
    assert plan.guarantee.delta(9.0) == pytest.approx(0.05, rel=1e-3)
    assert plan.work.passes == chain.steps
    assert chain.target.condition == pytest.approx(2.0)
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.run(records(), random_state=1).value.shape == (2,)


def test_the_chain_of_a_million_steps_in_the_plane_has_a_guarantee():
    """Order 28.6, divergence 0.5: (1, 1e-6) becomes (2.69, 9.6e-6); total variation allows none."""
    certificate = WithinRenyi(28.6, 0.5, 0.5)
    plan = dp_from_sampler_closeness.plan(
        plane(), Budget(epsilon=2.69, delta=9.6e-6), certificate=certificate
    )
    # An exact sample of this mu is (1, 1e-6)-private: 0.2366.
    assert 0.2366 < plan.mechanism.ideal.mu < 0.24
    assert plan.mechanism.sampler.steps == pytest.approx(972_009, rel=2e-4)
    assert certificate.total_variation.distance == 0.5


@pytest.mark.slow
def test_the_chain_of_a_million_steps_runs():
    plan = dp_from_sampler_closeness.plan(
        plane(), Budget(epsilon=2.69, delta=9.6e-6), certificate=WithinRenyi(28.6, 0.5, 0.5)
    )
    value = plan.run(records(), random_state=1).value
    spread = 1 / math.sqrt(plan.mechanism.inverse_temperature * 100 * 0.25)
    assert np.all(np.abs(value) < 12 * spread)


def test_what_the_certificate_does_not_cover_is_refused(plan):
    chain = plan.mechanism.sampler
    with pytest.raises(ValueError, match="certified within"):
        CertifiedLangevin(chain.steps // 2, chain.step_size, chain.target, 3.0, 0.5)
    with pytest.raises(ValueError, match="whole space"):
        replace(plan.mechanism, problem=replace(plane(), domain=L2Ball(2, 1.0)))
    with pytest.raises(ValueError, match="smoothness"):
        replace(plan.mechanism, problem=replace(plane(), ridge=0.2))
    corners = replace(plane(), loss=Hinge())
    with pytest.raises(ValueError, match="smooth"):
        dp_from_sampler_closeness.plan(corners, BUDGET, certificate=CLOSE)
    with pytest.raises(ValueError, match="bounded domain"):
        dp_from_sampler_closeness.plan(plane(), BUDGET)
