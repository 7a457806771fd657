"""The chain's distance to its target never exceeds the certificates."""

import math

import numpy as np
import pytest
from grids import cells, masses, proximal_kernel, quantile_distance
from scipy.special import ndtr, ndtri
from scipy.stats import kstest

from dpfit.core import Minimize
from dpfit.data.dataset import InMemory
from dpfit.geometry import Box, L2Ball
from dpfit.losses import Bounds, Logistic
from dpfit.noise import Source
from dpfit.samplers.exact_gibbs_rejection import GibbsRejection
from dpfit.samplers.potential import Potential
from dpfit.samplers.proximal_sampler_winf import (
    PreconditionedSampler,
    PreconditionedSteps,
    ProximalSampler,
)

CELLS = 300


def random_potential(random):
    """A convex function with corners plus m / 2 (x - c)^2 on [-1, 1], c inside or outside."""
    m = 10 ** random.uniform(-1, 1.5)
    c = random.uniform(-2, 2)
    corners, weights = random.uniform(-1, 1, 4), 10 ** random.uniform(-1, 1, 4)
    bend = 10 ** random.uniform(-1, 1)

    def convex(x):
        return np.abs(x[..., None] - corners) @ weights + bend / 4 * x**4

    return m, c, lambda x: convex(x) + m / 2 * (x - c) ** 2


def test_w_infinity_and_gaussian_closeness_on_random_potentials():
    """Exact grid laws after each of eight steps, for 200 potentials with kinks."""
    random = np.random.default_rng(8)
    x, width = cells(-1.0, 1.0, CELLS)
    closest = 0.0
    for _ in range(200):
        m, _, U = random_potential(random)
        eta = 10 ** random.uniform(-2.5, 1)
        pi, kernel = masses(U(x)), proximal_kernel(x, U(x), eta)
        law = np.zeros(CELLS)
        law[CELLS // 2] = 1.0
        for t in range(1, 9):
            law = law @ kernel
            sampler = ProximalSampler(m, 1.0, eta, t)
            bound = sampler.certificate.distance
            assert quantile_distance(law, pi, x) <= bound + 2 * width
            closest = max(closest, (quantile_distance(law, pi, x) - 2 * width) / bound)
            # Every half-line, both directions: the power of a test is at most that of a shift by
            # mu.
            mu = sampler.gaussian_certificate.mu
            p, q = np.cumsum(law)[:-1], np.cumsum(pi)[:-1]
            for one, two in ((p, q), (q, p), (1 - p, 1 - q), (1 - q, 1 - p)):
                assert np.all(two <= ndtr(ndtri(np.clip(one, 1e-15, 1 - 1e-15)) + mu) + 1e-7)
    assert closest > 0.3  # the bound is not idle


def test_two_oracles_are_as_close_as_proven_and_no_closer():
    """Flat potential, wide interval: W-infinity of oracles is |y - y'| / (1 + eta m)."""
    x, width = cells(-8.0, 8.0, 3000)
    m, eta = 2.0, 0.7
    laws = [masses(m / 2 * x**2 + (x - y) ** 2 / (2 * eta)) for y in (-1.0, 1.0)]
    assert quantile_distance(*laws, x) == pytest.approx(2 / (1 + eta * m), abs=2 * width)


def test_the_steps_are_counted_as_certified():
    sampler = ProximalSampler.within(1e-4, strong_convexity=5.0, radius=2.0, step_size=0.02)
    assert sampler.steps == math.ceil(math.log(2e4) / math.log1p(0.1))
    assert sampler.certificate.distance == pytest.approx(2 * 1.1**-sampler.steps)
    assert sampler.certificate.distance <= 1e-4
    assert sampler.gaussian_certificate.mu == pytest.approx(
        2 * 1.1 ** -(sampler.steps - 1) / math.sqrt(0.02)
    )


@pytest.mark.parametrize("steps", [1, 3])
def test_the_chain_forgets_its_start_at_the_certified_rate(steps):
    """Flat f, wide box, start off the centre: the mean's offset / (1 + eta m)^t.

    The variance is that of the noise of each step and of its oracle; its standard error is 0.7%.
    """
    flat = Potential(
        Box((-99.0,), (99.0,)),
        2.0,
        np.array([10.0]),
        lambda x: (np.zeros(len(x)), np.zeros_like(x)),
    )
    drawn = ProximalSampler(2.0, 99.0, 0.25, steps).draw(flat, 40_000, Source(6))
    assert drawn.mean() == pytest.approx(10 - 10 / 1.5**steps, abs=6 * drawn.std() / 200)
    variance = 0.0
    for _ in range(steps):
        variance = (variance + 0.25) / 1.5**2 + 1 / (2 + 1 / 0.25)
    assert drawn.var() == pytest.approx(variance, rel=0.045)


def test_the_chain_and_exact_rejection_agree():
    """Three dimensions, a corner, a mode at the boundary."""
    slope = np.array([4.0, -2.0, 1.0])

    def convex(x):
        return x @ slope + 3 * np.abs(x[:, 1]), slope + 3 * np.sign(x[:, 1:2]) * np.eye(3)[1]

    target = Potential(L2Ball(3, 1.0), 2.0, np.zeros(3), convex)
    chain = ProximalSampler.within(1e-3, 2.0, 1.0, 0.2).draw(target, 5_000, Source(7))
    exact = GibbsRejection().draw(target, 20_000, Source(8))
    for along in (slope, np.eye(3)[1]):
        assert kstest(chain @ along, exact @ along).pvalue > 1e-6
    assert kstest(np.linalg.norm(chain, axis=1), np.linalg.norm(exact, axis=1)).pvalue > 1e-6


def logistic_target(n=200, d=3, radius=4.0, t=2.0):
    random = np.random.default_rng(12)
    rows = random.normal(size=(n, d)) * [1.0, 0.3, 0.1][:d]
    labels = np.where(rows[:, 0] + 0.2 * random.normal(size=n) > 0, 1.0, -1.0)
    ball = L2Ball(d, radius, (-0.3,) * d)
    problem = Minimize(
        n=n, loss=Logistic(), bounds=Bounds(1.0), n_features=d, domain=ball, ridge=0.01
    )
    return problem, Potential.gibbs(problem, InMemory(rows, labels), t)


def test_the_sandwich_holds_all_hessians():
    _, target = logistic_target()
    lower, upper = target.sandwich()
    for point in target.domain.sample(Source(9), 100):
        hessian = target.hessian(point)
        assert np.linalg.eigvalsh(hessian - lower)[0] >= 0
        assert np.linalg.eigvalsh(upper - hessian)[0] >= 0


@pytest.mark.slow
def test_the_preconditioned_chain_and_exact_rejection_agree():
    """A mode on the boundary, and directions of very different curvature."""
    _, target = logistic_target()
    chain = PreconditionedSampler(0.05).draw(target, 120, Source(10))
    exact = GibbsRejection().draw(target, 4000, Source(11))
    assert np.mean(np.linalg.norm(exact - target.domain.centre, axis=1) > 3.8) > 0.1
    for along in np.eye(3):
        assert kstest(chain @ along, exact @ along).pvalue > 1e-6
    assert kstest(np.linalg.norm(chain, axis=1), np.linalg.norm(exact, axis=1)).pvalue > 1e-6


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_the_preconditioned_chain_forgets_at_the_certified_rate(share):
    """Quadratic f: each step moves the mean by 1 - 1 / (1 + step_size) to c, or more.

    With all of the curvature in the matrix (share 1) it is exactly that, along the steep direction
    and the flat one.
    """
    H, c = np.diag([50.0, 0.5]), np.array([3.0, -8.0])

    def convex(x):
        return np.sum((x - c) @ H * (x - c), axis=1) / 2, (x - c) @ H

    target = Potential(
        Box((-99.0,) * 2, (99.0,) * 2),
        1e-9,
        c,
        convex,
        sandwich=lambda: (share * H, H * (1 + 1e-12)),
    )
    steps = PreconditionedSteps(target, *target.sandwich(), step_size=0.5)
    source, draws = Source(13), []
    for _ in range(400):
        state = steps.init()
        for _ in range(2):
            state = steps.step(state, source)
        draws.append(state.point)
    left = 1 - np.mean(draws, axis=0) / c
    error = 6 * np.std(draws, axis=0) / np.sqrt(400) / np.abs(c)
    assert np.all(left <= 1 / 1.5**2 + error)
    if share == 1:
        assert np.all(left >= 1 / 1.5**2 - error)
        assert np.all(error < 0.15)


def test_a_preconditioned_step_on_a_quadratic_is_normal():
    """With all of the curvature v in the matrix: noise eta / v, then an oracle of (1 + 1/eta) v.

    A standard error of the variance over ten directions is 1%.
    """
    H, eta, c = np.diag(np.geomspace(1.0, 100.0, 10)), 0.2, np.full(10, 0.3)
    target = Potential(
        Box((-99.0,) * 10, (99.0,) * 10),
        1e-9,
        c,
        lambda x: (np.sum((x - c) @ H * (x - c), axis=1) / 2, (x - c) @ H),
        sandwich=lambda: (H, H * (1 + 1e-12)),
    )
    steps, source = PreconditionedSteps(target, *target.sandwich(), step_size=eta), Source(15)
    start = steps.init()
    drawn = np.array([steps.step(start, source).point for _ in range(2000)])
    scaled = (drawn - drawn.mean(axis=0)) * np.sqrt(np.diag(H))
    assert (scaled**2).mean() == pytest.approx(eta / 1.2**2 + eta / 1.2, rel=0.055)


def test_a_preconditioned_draw_takes_the_steps_of_its_certificate(monkeypatch):
    _, target = logistic_target(n=20)
    number = PreconditionedSteps(target, *target.sandwich()).number(1e-2)
    taken, plain = [], PreconditionedSteps.step
    monkeypatch.setattr(
        PreconditionedSteps, "step", lambda *given: taken.append(1) or plain(*given)
    )
    PreconditionedSampler(1e-2).draw(target, 2, Source(14))
    assert len(taken) == 2 * number > 20


def test_preconditioned_steps_are_counted_as_certified():
    """Distance radius sqrt(largest / smallest) / (1 + step_size)^steps.

    Here 1 + 1 / step_size = spread / 2.4.
    """
    lower, upper = np.diag([40.0, 3.0]), np.diag([400.0, 30.0])
    target = Potential(
        L2Ball(2, 2.0), 1.0, np.zeros(2), lambda x: (np.zeros(len(x)), np.zeros_like(x))
    )
    steps = PreconditionedSteps(target, lower, upper)
    spread = 360 / 41 + 27 / 4
    eta = 1 / (spread / 2.4 - 1)
    assert steps.step_size == pytest.approx(eta)
    assert steps.number(1e-5) == math.ceil(math.log(2e5 * math.sqrt(41 / 4)) / math.log1p(eta))
    assert PreconditionedSampler(1e-5).certificate.distance == 1e-5


def test_progress_is_told_in_hundredths():
    _, target = logistic_target(n=20)
    told = []
    PreconditionedSampler(1e-4).draw(target, 2, Source(14), told.append)
    assert told == pytest.approx(np.arange(1, 101) / 100)


def test_refusals_are_public():
    with pytest.raises(ValueError, match="distance"):
        PreconditionedSampler(0.0)
    corner = Potential(L2Ball(1, 2.0), 1.0, np.zeros(1), lambda x: (np.abs(x[:, 0]), np.sign(x)))
    with pytest.raises(ValueError, match="without corners"):
        PreconditionedSampler(1.0).draw(corner, 1, Source(1))
    flat = Potential(
        L2Ball(1, 2.0), 1.0, np.zeros(1), lambda x: (np.zeros(len(x)), np.zeros_like(x))
    )
    for sampler in (ProximalSampler(1.1, 2.0, 1.0, 3), ProximalSampler(1.0, 1.9, 1.0, 3)):
        with pytest.raises(ValueError, match="another target"):
            sampler.draw(flat, 1, Source(1))
    with pytest.raises(ValueError, match="strong_convexity"):
        ProximalSampler(0.0, 1.0, 1.0, 1)
    with pytest.raises(ValueError, match="distance"):
        ProximalSampler.within(0.0, 1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="strength"):
        Potential(L2Ball(1, 2.0), 0.0, np.zeros(1), flat.convex)
