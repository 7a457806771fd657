"""The unadjusted chain against its exact law."""

import numpy as np
import pytest
from grids import cells
from scipy.stats import kstest, norm

from dpfit.core import Minimize
from dpfit.data.dataset import InMemory
from dpfit.geometry import Box, L2Ball, WholeSpace
from dpfit.losses import Bounds, Logistic
from dpfit.noise import Source
from dpfit.privacy.event import Pure
from dpfit.privacy.spec import from_json
from dpfit.samplers.certificate import NotCertified
from dpfit.samplers.markov import Chain, chain_target
from dpfit.samplers.potential import Potential
from dpfit.samplers.ula_sampler import LangevinSampler

CHAINS = 100_000


def quadratic(eigenvalues, minimum, strength=0.5):
    """U with given eigenvalues on the axes, among them the strength, and a given minimum."""
    bend, minimum = np.asarray(eigenvalues) - strength, np.asarray(minimum)

    def convex(x):
        return (x - minimum) ** 2 @ bend / 2, (x - minimum) * bend

    return Potential(WholeSpace(len(bend)), strength, minimum, convex)


@pytest.mark.parametrize("steps", [1, 2, 30])
def test_the_law_on_a_quadratic_is_normal_with_the_known_moments(steps):
    """From 0: mean (1 - c^t) minimum, variance 2 h (1 - c^2t) / (1 - c^2), c = 1 - h l.

    The chain is biased even at the end.
    """
    h, eigenvalues, minimum = 0.5, np.array([0.8, 2.5]), np.array([1.0, -2.0])
    drawn = LangevinSampler(steps, h).draw(quadratic(eigenvalues, minimum), CHAINS, Source(1))
    c = 1 - h * eigenvalues
    mean, variance = (1 - c**steps) * minimum, 2 * h * (1 - c ** (2 * steps)) / (1 - c**2)
    for axis in range(2):
        assert kstest(drawn[:, axis], norm(mean[axis], np.sqrt(variance[axis])).cdf).pvalue > 1e-6
    if steps == 30:
        assert variance == pytest.approx(1 / (eigenvalues * (1 - h * eigenvalues / 2)), rel=1e-6)


def test_the_projected_chain_against_a_grid():
    """[-1, 1] with a kink: the law has atoms at the ends and is propagated by cells."""
    h, steps, number = 0.15, 4, 1500

    def convex(x):
        return 2 * np.abs(x[:, 0] - 0.3), 2 * np.sign(x - 0.3)

    drawn = LangevinSampler(steps, h).draw(
        Potential(Box((-1.0,), (1.0,)), 1.0, np.zeros(1), convex), CHAINS, Source(2)
    )
    x, width = cells(-1.0, 1.0, number)
    edges = np.append(x - width / 2, 1.0)[1:-1]
    moved = x - h * (2 * np.sign(x - 0.3) + x)
    below = norm.cdf((edges - moved[:, None]) / np.sqrt(2 * h))
    kernel = np.diff(
        np.concatenate([np.zeros((number, 1)), below, np.ones((number, 1))], axis=1), axis=1
    )
    law = (x == x[number // 2]).astype(float)
    for _ in range(steps):
        law = law @ kernel
    at = np.linspace(0, number - 2, 200).astype(int)
    share = np.mean(drawn <= edges[at], axis=0)
    # Kolmogorov: P(largest gap > 0.0085) < 1e-6 at 1e5 draws; a cell more for the start, which is
    # off by half of one.
    assert np.abs(share - np.cumsum(law)[at]).max() < 0.0085 + 2 * width
    assert np.mean(drawn == 1.0) > 0.01


def test_a_chain_on_records_is_the_same_with_prepared_sums():
    random = np.random.default_rng(3)
    rows, labels = random.standard_normal((500, 4)), np.sign(random.standard_normal(500))
    problem = Minimize(
        n=500, loss=Logistic(), bounds=Bounds(1.0), n_features=4, domain=L2Ball(4, 1.0), ridge=0.1
    )
    data, chain = InMemory(rows, labels), LangevinSampler(50, 0.01)
    fast, plain = (make(problem, data, 0.5) for make in (chain_target, Potential.gibbs))
    assert fast.convex is not plain.convex
    np.testing.assert_allclose(
        chain.draw(fast, 3, Source(4)), chain.draw(plain, 3, Source(4)), atol=1e-9
    )


def test_steps_that_explode_stay_in_the_domain_without_a_word():
    for domain in (L2Ball(2, 1.0), WholeSpace(2)):
        target = Potential(domain, 1e3, np.zeros(2), lambda x: (np.zeros(len(x)), 1e300 * x))
        drawn = LangevinSampler(20, 1e3).draw(target, 5, Source(5))
        assert domain.contains(drawn).all()


def test_a_chain_is_a_record_that_certifies_nothing():
    chain = LangevinSampler(3, 0.1)
    assert from_json(chain.to_json(), Chain) == chain
    with pytest.raises(NotCertified):
        chain.certificate.event(Pure(1.0))
    told = []
    chain.draw(quadratic([1.0], [0.0]), 2, Source(6), told.append)
    assert told == pytest.approx([1 / 3, 2 / 3, 1.0])
    for wrong in ({"steps": 0, "step_size": 0.1}, {"steps": 1, "step_size": 0.0}):
        with pytest.raises(ValueError, match=r"steps|step_size"):
            LangevinSampler(**wrong)
