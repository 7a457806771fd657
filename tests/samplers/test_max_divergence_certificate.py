"""The density ratio of the chain to its target never exceeds the certificate."""

import math

import numpy as np
import pytest
from grids import cells, distribution, masses, proximal_kernel
from scipy.stats import kstest

from dpfit.geometry import L2Ball
from dpfit.noise import Source
from dpfit.privacy.event import Pure
from dpfit.privacy.spec import from_json
from dpfit.samplers.max_divergence_certificate import MaxDivergenceSampler
from dpfit.samplers.potential import Potential
from dpfit.samplers.proximal_sampler_winf import ProximalSampler

CELLS = 300


def last_kernel(x, potential, slope):
    """Transition matrix: noise exp(-slope |z|), then exp(-potential - slope |x - y|)."""
    y = np.linspace(x[0] - 12 / slope, x[-1] + 12 / slope, 900)
    forward = np.exp(-slope * np.abs(x[:, None] - y))
    forward /= forward.sum(axis=1, keepdims=True)
    exponent = -(potential[:, None] + slope * np.abs(x[:, None] - y))
    back = np.exp(exponent - exponent.max(axis=0))
    return forward @ (back / back.sum(axis=0)).T


def test_density_ratios_on_random_potentials():
    """Exact grid laws after one to five steps and the last one, both directions."""
    random = np.random.default_rng(5)
    x, _ = cells(-1.0, 1.0, CELLS)
    nearest = 0.0
    for _ in range(25):
        m, eta = 10 ** random.uniform(-0.5, 1.5), 10 ** random.uniform(-2, 0.5)
        slope = 10 ** random.uniform(0, 1.2)
        corners, weights = random.uniform(-1, 1, 3), 10 ** random.uniform(-1, 1, 3)
        U = np.abs(x[:, None] - corners) @ weights + m / 2 * (x - random.uniform(-2, 2)) ** 2
        pi, kernel, last = masses(U), proximal_kernel(x, U, eta), last_kernel(x, U, slope)
        law = np.zeros(CELLS)
        law[CELLS // 2] = 1.0
        for steps in range(1, 6):
            law = law @ kernel
            seen = np.abs(np.log((law @ last) / pi)).max()
            bound = MaxDivergenceSampler(
                ProximalSampler(m, 1.0, eta, steps), slope
            ).certificate.epsilon
            # The grid is off by a cell in the distance and by its tails in the noise.
            assert seen <= bound + slope * 2 / CELLS + 1e-3
            nearest = max(nearest, seen / bound)
    assert nearest > 0.1


def test_the_ratio_of_the_noise_is_attained():
    """A constant law at places D apart: laws of y differ by exp(slope D), on one side."""
    slope, D = 3.0, 0.2
    y = np.array([-1.0, 2.0])
    ratio = slope * (np.abs(y - D) - np.abs(y))
    sampler = MaxDivergenceSampler(ProximalSampler(1.0, 1.0, 1.0, 1), slope)
    assert np.abs(ratio).max() == pytest.approx(slope * D)
    assert sampler.certificate.epsilon == pytest.approx(slope / 2)


def test_steps_are_counted_and_priced():
    sampler = MaxDivergenceSampler.within(
        1e-3, strong_convexity=5.0, radius=2.0, step_size=0.02, slope=10.0
    )
    assert sampler.chain.steps == math.ceil(math.log(2e4) / math.log1p(0.1))
    assert sampler.certificate.event(Pure(1.0)).epsilon <= 1.002
    assert sampler.certificate.event(Pure(1.0)).epsilon == pytest.approx(
        1 + 20 * 2 * 1.1**-sampler.chain.steps
    )
    assert from_json(sampler.to_json(), MaxDivergenceSampler) == sampler
    with pytest.raises(ValueError, match="slope"):
        MaxDivergenceSampler.within(1e-3, 5.0, 2.0, 0.02, 0.0)


def test_the_draws_have_the_targets_law():
    """A kink and a slope on an interval; the certificate is 1% after a few steps."""

    def convex(x):
        return 2 * np.abs(x[:, 0] - 0.3) - x[:, 0], 2 * np.sign(x - 0.3) - 1

    target = Potential(L2Ball(1, 1.0), 3.0, np.zeros(1), convex)
    sampler = MaxDivergenceSampler.within(0.01, 3.0, 1.0, step_size=1.0, slope=2.0)
    drawn = sampler.draw(target, 600, Source(3))[:, 0]
    law = distribution(-1.0, 1.0, lambda x: 2 * np.abs(x - 0.3) - x + 1.5 * x**2)
    assert kstest(drawn, law).pvalue > 1e-6
