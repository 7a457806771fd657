"""Langevin certificates against exact Gaussian laws, chains on a grid and paths."""

import math

import numpy as np
import pytest
from grids import cells, masses
from scipy.integrate import solve_ivp, trapezoid
from scipy.linalg import expm
from scipy.optimize import brentq
from scipy.stats import norm

from dpfit.noise import Source
from dpfit.privacy import renyi as divergences
from dpfit.privacy.spec import from_json
from dpfit.samplers.certified_langevin import plan_langevin
from dpfit.samplers.discretization import (
    SmoothTarget,
    kinetic_moment,
    langevin_certificate,
    langevin_discretization,
    langevin_mixing,
    langevin_movement,
    langevin_total_variation,
    lipschitz_discretization,
    movement_mu,
    stopped_total_variation,
    underdamped_discretization,
    underdamped_speed,
)
from dpfit.samplers.ula_sampler import LangevinSampler
from dpfit.samplers.underdamped_langevin_sampler import UnderdampedLangevin


def renyi(order, p, q):
    """The divergence of N(0, diag p) from N(0, diag q)."""
    if order == 1:
        return float(np.sum(p / q - 1 - np.log(p / q)) / 2)
    mixed = (1 - order) * p + order * q
    if np.any(mixed <= 0):
        return math.inf
    return float(
        np.sum(np.log(mixed) - (1 - order) * np.log(p) - order * np.log(q)) / (2 * (1 - order))
    )


def variances(eigenvalues, chain, start):
    """Of the chain, the diffusion and the target, for f = sum of eigenvalue / 2 x^2."""
    h, steps = chain.step_size, chain.steps
    c, e = 1 - h * eigenvalues, np.exp(-2 * eigenvalues * steps * h)
    return (
        c ** (2 * steps) * start + 2 * h * (1 - c ** (2 * steps)) / (1 - c**2),
        e * start + (1 - e) / eigenvalues,
        1 / eigenvalues,
    )


def cases(number):
    random = np.random.default_rng(1)
    for _ in range(number):
        m, d = 10 ** random.uniform(-1, 1), int(random.integers(1, 30))
        target = SmoothTarget(d, m, m * 10 ** random.uniform(0, 1.5))
        eigenvalues = np.append(random.uniform(m, target.smoothness, d - 1), target.smoothness)
        time, h = (
            10 ** random.uniform(-1, 1) / m,
            10 ** random.uniform(-5, -0.5) / target.smoothness,
        )
        yield (
            target,
            eigenvalues,
            LangevinSampler(max(1, round(time / h)), h),
            1 + 10 ** random.uniform(-2, 1.5),
        )


def test_divergences_of_gaussian_chains_are_below_the_bounds_both_ways():
    finite = {"path": 0, "mixing": 0, "target": 0}
    for target, eigenvalues, chain, order in cases(200):
        P, Q, R = variances(eigenvalues, chain, 1 / target.strong_convexity)
        laws = {
            "path": (
                P,
                Q,
                langevin_discretization(order, target, chain, 1 / target.strong_convexity),
            ),
            "mixing": (Q, R, langevin_mixing(order, target, chain.steps * chain.step_size)),
            "target": (P, R, langevin_certificate(order, target, chain)),
        }
        for name, (p, q, bound) in laws.items():
            assert renyi(order, p, q) <= bound.forward * (1 + 1e-9) + 1e-9
            assert renyi(order, q, p) <= bound.backward * (1 + 1e-9) + 1e-9
            finite[name] += math.isfinite(bound.forward) and math.isfinite(bound.backward)
        entropy = langevin_discretization(1.0, target, chain, 1 / target.strong_convexity).forward
        assert renyi(1, P, Q) <= entropy
        started = variances(eigenvalues, chain, 1 / target.smoothness)
        distance = langevin_total_variation(target, chain).distance
        # Half the square root of the exact entropy is above the total variation, and the bound is
        # above even that.
        assert math.sqrt(renyi(1, started[0], started[2]) / 2) <= distance + 1e-9 or distance == 1.0
    assert min(finite.values()) > 20


def test_the_figures_of_the_derivation():
    """m = 1, M = 5, d = 10, h = 1e-4, N = 1e4, order 5: exact 3.2e-7, bound 0.113."""
    target, chain = SmoothTarget(10, 1.0, 5.0), LangevinSampler(10_000, 1e-4)
    P, Q, _ = variances(np.full(10, 5.0), chain, 1.0)
    assert renyi(5.0, P, Q) < 1e-6
    assert langevin_discretization(5.0, target, chain, 1.0).forward == pytest.approx(
        0.113, rel=5e-3
    )


def test_the_entropy_of_paths_is_attained_by_quadratics():
    """f = M/2 |x|^2, stationary: half the expected squared drift difference."""
    d, M, h, steps = 3, 2.0, 0.15, 40
    s = 1 / (M * (1 - h * M / 2))
    within = np.linspace(0, h, 2001)
    moved = 2 * d * within + within**2 * M**2 * d * s
    exact = steps * trapezoid(M**2 / 2 * moved, within) / 2
    found = langevin_discretization(1.0, SmoothTarget(d, M, M), LangevinSampler(steps, h), s)
    assert found.forward == pytest.approx(exact, rel=1e-6)
    slope, flat = 0.7, LangevinSampler(steps, h)
    moved = 2 * d * within + within**2 * slope**2
    exact = steps * trapezoid(M**2 / 2 * moved, within) / 2
    assert lipschitz_discretization(1.0, d, M, slope, flat).forward == pytest.approx(
        exact, rel=1e-6
    )


def test_the_moment_of_brownian_paths():
    """E exp(c int |W|^2) by eigenvalues (h / (pi (j - 1/2)))^2: all of it for f = 0."""
    d, M, h, steps, order = 4, 1.3, 0.05, 7, 3.0
    found = lipschitz_discretization(order, d, M, 0.0, LangevinSampler(steps, h))
    spectrum = (h / (math.pi * (np.arange(1, 200_001) - 0.5))) ** 2
    for value, weight in ((found.forward, 2 * 2**2 + 2), (found.backward, 2 * 9 - 3)):
        # Drift differences are M |sqrt(2) W| / sqrt(2), and twice the square of a sum is allowed
        # for.
        exact = -steps * d / 2 * np.sum(np.log1p(-2 * (weight * M**2 / 2 * 4) * spectrum))
        assert value == pytest.approx(exact / (2 * (order - 1)), rel=1e-5)
    assert (
        lipschitz_discretization(order, d, 40.0, 0.0, LangevinSampler(1, 1.0)).forward == math.inf
    )


def test_the_start_is_as_far_as_the_bound_for_the_worst_quadratic():
    """f = M/2 |x|^2 from N(0, I/m): divergence tends to (d/2) log(M/m) with the order."""
    target = SmoothTarget(6, 1.0, 8.0)
    exact = renyi(1e4, np.full(6, 1 / 8), np.ones(6))
    assert exact <= langevin_mixing(1e4, target, 0.0).backward <= exact * 1.01


def test_the_order_is_raised_by_the_diffusion():
    """f = M/2 |x|^2 from N(0, I/m): orders above M/(M - m) are infinite at first."""
    target = SmoothTarget(2, 1.0, 4.0)
    assert langevin_mixing(3.0, target, 0.0).forward == math.inf
    assert langevin_mixing(3.0, target, math.log(8) / 2).forward == pytest.approx(
        1.5 * 0.8 * math.log(4)
    )
    assert langevin_mixing(3.0, target, math.log(8) / 2 + 1).forward == pytest.approx(
        math.exp(-2 / 3) * 1.5 * 0.8 * math.log(4)
    )
    assert langevin_mixing(3.0, SmoothTarget(2, 1.0, 1.0), 0.0).forward == 0


@pytest.mark.parametrize(("h", "steps"), [(0.002, 3000), (0.0005, 9000)])
def test_a_chain_that_is_not_gaussian(h, steps):
    """f = x^2/2 + 0.5 log cosh x on a grid: both directions from N(0, 1), TV from N(0, I/M)."""
    target, chain = SmoothTarget(1, 1.0, 1.5), LangevinSampler(steps, h)
    x, _ = cells(-7.0, 7.0, 900 if h < 0.001 else 500)
    moved = x - h * (x + 0.5 * np.tanh(x))
    kernel = np.exp(-((x - moved[:, None]) ** 2) / (4 * h))
    kernel /= kernel.sum(axis=1, keepdims=True)
    # Powers by squaring; the start with the smaller variance gives the law of the other
    # certificate.
    laws = np.stack([masses(x**2 / 2), masses(1.5 * x**2 / 2)]) @ np.linalg.matrix_power(
        kernel, steps
    )
    pi = masses(x**2 / 2 + 0.5 * np.log(np.cosh(x)))
    bulk = pi > 1e-13
    for order in (1.2, 2.0, 4.0):
        found = langevin_certificate(order, target, chain)
        for p, q, bound in ((laws[0], pi, found.forward), (pi, laws[0], found.backward)):
            exact = math.log(np.sum(p[bulk] ** order * q[bulk] ** (1 - order))) / (order - 1)
            assert exact <= bound
            assert bound < 1
    assert np.abs(laws[1] - pi).sum() / 2 <= langevin_total_variation(target, chain).distance < 0.2


def test_movements_of_paths():
    """A quadratic from its minimum, 16 looks a step: few paths move beyond the bound."""
    target, chain, start = SmoothTarget(3, 1.0, 3.0), LangevinSampler(20, 0.05), 0.5
    source, eigenvalues, looks, paths = Source(1), np.array([1.0, 2.0, 3.0]), 16, 8_000
    x, largest = math.sqrt(start) * source.gaussian((paths, 3)), np.zeros(paths)
    for _ in range(chain.steps):
        slope, moved = eigenvalues * x, np.zeros((paths, 3))
        for _ in range(looks):
            moved += -chain.step_size / looks * slope
            moved += math.sqrt(2 * chain.step_size / looks) * source.gaussian((paths, 3))
            largest = np.maximum(largest, np.linalg.norm(moved, axis=1))
        x = x + moved
    for failure in (0.5, 0.05, 0.01):
        bound = langevin_movement(target, chain, start, failure)
        # Hoeffding: a share that is right exceeds itself by 0.03 with probability below 1e-6.
        assert np.mean(largest > bound) <= failure + 0.03
        assert np.quantile(largest, 1 - failure) > bound / 2.5


def test_stopped_paths():
    assert movement_mu(3.0, 0.2, 2.0) == pytest.approx(0.6)
    assert stopped_total_variation(0.6, 0.01).distance == pytest.approx(
        2 * norm.cdf(0.3) - 1 + 0.01
    )
    assert stopped_total_variation(50.0, 0.01).distance == 1


@pytest.mark.parametrize(
    ("order", "dimension", "condition", "steps"), [(28.6, 20, 2.0, 1.4e8), (28.6, 20, 10.0, 6.1e9)]
)
def test_planned_chains_are_as_long_as_derived(order, dimension, condition, steps):
    """Divergence 0.5 both ways; figures by an independent search over the same bound."""
    order, target = 28.6, SmoothTarget(20, 1.0, condition)
    chain = plan_langevin(order, 0.5, target)
    found = langevin_certificate(order, target, chain)
    assert max(found.forward, found.backward) <= 0.5
    assert chain.steps == pytest.approx(steps, rel=0.1)


def underdamped_laws(chain, eigenvalue, substeps):
    """Covariances of chain and diffusion from (0, N(0, u)), and their paths' entropy."""
    h, gamma, u = chain.step_size, chain.friction, chain.velocity_variance

    def solution(frozen, time):
        """Flow and noise of (x, v, gradient), the gradient frozen or following x."""
        drift = np.array(
            [[0.0, 1.0, 0.0], [0.0, -gamma, -u], [0.0, 0.0 if frozen else eigenvalue, 0.0]]
        )
        kick = np.diag([0.0, 2 * gamma * u, 0.0])
        block = expm(np.block([[-drift, kick], [np.zeros((3, 3)), drift.T]]) * time)
        flow = block[3:, 3:].T
        return flow, flow @ block[:3, 3:]

    def stepped(covariance, frozen, time):
        flow, noise = solution(frozen, time)
        refreshed = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [eigenvalue, 0.0, 0.0]])
        return flow @ refreshed @ covariance @ refreshed.T @ flow.T + noise

    P = Q = np.diag([0.0, u, 0.0])
    entropy = 0.0
    for _ in range(chain.steps):
        for j in range(substeps):
            time = (j + 0.5) * h / substeps
            now = stepped(P, True, time)
            gap = np.array([1.0, 0.0, -1 / eigenvalue])
            entropy += h / substeps * u * eigenvalue**2 / (2 * gamma) * (gap @ now @ gap) / 2
        P, Q = stepped(P, True, h), stepped(Q, False, h)
    return P[:2, :2], Q[:2, :2], entropy


@pytest.mark.parametrize(
    "chain", [UnderdampedLangevin(30, 0.1, 2.0, 0.7), UnderdampedLangevin(200, 0.05, 1.0, 0.4)]
)
def test_underdamped_chains_follow_their_diffusion(chain):
    """f = M x^2 / 2: path entropy, in closed form, between end points' and the bound."""
    M = 2.5
    P, Q, entropy = underdamped_laws(chain, M, 8)
    ends = (np.trace(np.linalg.solve(Q, P)) - 2 - math.log(np.linalg.det(P) / np.linalg.det(Q))) / 2
    bound = underdamped_discretization(1.0, 1, M, chain).forward
    assert 0 < ends <= entropy <= bound <= 4 * entropy
    zero = np.zeros(2)
    for order in (1.3, 2.0, 6.0):
        found = underdamped_discretization(order, 1, M, chain)
        for one, two, above in ((P, Q, found.forward), (Q, P, found.backward)):
            assert 0 < divergences.gaussians(order, zero, one, zero, two) <= above
        assert found.forward < math.inf


def test_the_entropy_of_long_underdamped_paths_is_two_thirds_of_the_bound():
    """Gradients are stale by s times the speed, s in a step: h^2 / 3 on average for h^2 / 2."""
    chain = UnderdampedLangevin(1500, 0.02, 2.0, 0.1)
    entropy = underdamped_laws(chain, 0.5, 4)[2]
    bound = underdamped_discretization(1.0, 1, 0.5, chain).forward
    assert 0.63 * bound <= entropy <= 2 / 3 * bound


@pytest.mark.parametrize("weight", [0.002, 0.05, 0.6])
def test_the_moment_of_kinetic_energy_is_exact_for_long_chains_without_force(weight):
    """E exp(w int v^2) of the velocity alone, by its Riccati equation; the bound allows for M."""
    gamma, u, time, d = 1.5, 0.5, 400.0, 3

    def rate(t, state):
        a, _ = state
        return [4 * gamma * u * a**2 - 2 * gamma * a + weight, 2 * gamma * u * a]

    found = solve_ivp(rate, (0.0, time), [0.0, 0.0], rtol=1e-10, atol=1e-14)
    a, b = found.y[:, -1]
    exact = d * (b - math.log1p(-2 * a * u) / 2)
    chain = UnderdampedLangevin(400_000, 1e-3, gamma, u)
    bound = kinetic_moment(weight, d, 1e-3, chain)
    assert exact <= bound <= 1.02 * exact
    # Friction that stale gradients take raises the moment.
    assert kinetic_moment(weight, d, 1500.0, chain) > 1.1 * exact


def test_divergences_of_underdamped_paths_tend_to_their_entropy():
    """At orders near one; the weight of the way back is 2 order^2 - order, three times as large."""
    chain = UnderdampedLangevin(1000, 1e-3, 2.0, 0.5)
    entropy = underdamped_discretization(1.0, 4, 3.0, chain).forward
    found = underdamped_discretization(1.0001, 4, 3.0, chain)
    assert found.forward == pytest.approx(entropy, rel=1e-3)
    doubled = UnderdampedLangevin(500, 2e-3, 2.0, 0.5)
    assert underdamped_discretization(1.0, 4, 3.0, doubled).forward == pytest.approx(
        4 * entropy, rel=1e-3
    )


def test_the_longest_underdamped_step_leaves_half_of_the_friction():
    """Stale gradients take u M h / 2 of it; the energy then decides kinetic part and speed."""
    M, gamma, u, d, steps, failure = 2.0, 1.5, 0.6, 3, 40, 0.01
    chain = UnderdampedLangevin(steps, gamma / (u * M) * (1 - 1e-12), gamma, u)
    heat = gamma * u * d * steps * chain.step_size
    kinetic = (u * d / 2 + heat) / (gamma / 2)
    assert kinetic_moment(1e-9, d, M, chain) / 1e-9 == pytest.approx(kinetic, rel=1e-6)
    # The largest t for which exp(t energy) loses to friction what its noise adds.
    t = brentq(lambda t: t**2 * gamma * u - t * gamma / 2, 0.1, 10.0)
    start = u * (math.sqrt(d) + math.sqrt(2 * math.log(2 / failure))) ** 2 / 2
    energy = start + heat + math.log(2 / failure) / t
    assert underdamped_speed(d, M, chain, failure) == pytest.approx(math.sqrt(2 * energy))


def test_speeds_of_underdamped_chains():
    M, chain, source = 2.0, UnderdampedLangevin(40, 0.1, 1.5, 0.6), Source(2)
    x, v = np.zeros((8_000, 2)), math.sqrt(0.6) * source.gaussian((8_000, 2))
    largest = np.linalg.norm(v, axis=1)
    for _ in range(chain.steps):
        slope = M * x
        for _ in range(8):
            step = chain.step_size / 8
            x = x + step * v
            v = (
                v
                - step * (1.5 * v + 0.6 * slope)
                + math.sqrt(2 * 1.5 * 0.6 * step) * source.gaussian(v.shape)
            )
            largest = np.maximum(largest, np.linalg.norm(v, axis=1))
    for failure in (0.5, 0.01):
        assert np.mean(largest > underdamped_speed(2, M, chain, failure)) <= failure + 0.03
    assert underdamped_speed(2, M, chain, 0.01) < 3 * np.quantile(largest, 0.99)


def test_refusals_are_public():
    target = SmoothTarget(2, 1.0, 3.0)
    assert from_json(target.to_json(), SmoothTarget) == target
    with pytest.raises(ValueError, match="smoothness"):
        SmoothTarget(2, 3.0, 1.0)
    with pytest.raises(ValueError, match="step_size"):
        langevin_certificate(2.0, target, LangevinSampler(1, 0.51))
    with pytest.raises(ValueError, match="order"):
        langevin_certificate(1.0, target, LangevinSampler(1, 0.1))
    with pytest.raises(ValueError, match="order"):
        langevin_mixing(0.9, target, 1.0)
    with pytest.raises(ValueError, match="failure"):
        langevin_movement(target, LangevinSampler(1, 0.1), 1.0, 0.0)
    with pytest.raises(ValueError, match="step_size"):
        underdamped_discretization(2.0, 1, 1.0, UnderdampedLangevin(1, 3.0, 2.0))
