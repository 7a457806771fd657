"""The underdamped chain against its exact Gaussian law."""

import math

import numpy as np
import pytest
from scipy.integrate import quad_vec
from scipy.stats import kstest, norm

from dpfit.geometry import Box, WholeSpace
from dpfit.noise import Source
from dpfit.privacy.event import Pure
from dpfit.privacy.spec import from_json
from dpfit.samplers.certificate import NotCertified
from dpfit.samplers.markov import Chain
from dpfit.samplers.potential import Potential
from dpfit.samplers.underdamped_langevin_sampler import Moving, UnderdampedLangevin


def noise(chain):
    position, velocity, joint = chain.covariance
    return np.array([[position, joint], [joint, velocity]])


@pytest.mark.parametrize("h", [1e-2, 0.3, 0.5, 2.0, 10.0])
def test_the_covariance_solves_the_equation(h):
    """Integral of e^{Fs} B B' e^{F's} over a step, F = [[0, 1], [0, -gamma]], by quadrature."""
    gamma, u = 2.0, 0.7

    def flow(s):
        column = np.array([(1 - math.exp(-gamma * s)) / gamma, math.exp(-gamma * s)])
        return 2 * gamma * u * np.outer(column, column)

    expected = quad_vec(flow, 0.0, h, epsrel=1e-12)[0]
    np.testing.assert_allclose(noise(UnderdampedLangevin(1, h, gamma, u)), expected, rtol=1e-9)


def test_the_covariance_is_positive_for_steps_of_every_length():
    for a in np.geomspace(1e-8, 1e3, 200):
        position, velocity, joint = UnderdampedLangevin(1, a, 1.0).covariance
        assert position - joint**2 / velocity > 0.99 * min(a**3 / 6, position / 8)


@pytest.mark.parametrize("h", [1e-3, 0.4, 3.0])
def test_a_shift_of_the_gradient_is_as_visible_as_promised(h):
    """The Mahalanobis distance of the two means of a step, in the metric of the step's noise."""
    gamma, u, shift = 1.7, 0.6, 0.9
    chain, e = UnderdampedLangevin(1, h, gamma, u), math.exp(-gamma * h)
    means = -shift * u / gamma * np.array([h - (1 - e) / gamma, 1 - e])
    exact = math.sqrt(means @ np.linalg.solve(noise(chain), means))
    assert chain.trajectory_mu(shift) == pytest.approx(exact, rel=1e-6)
    assert UnderdampedLangevin(9, h, gamma, u).trajectory_mu(shift) == pytest.approx(
        3 * exact, rel=1e-6
    )


@pytest.mark.parametrize("h", [0.1, 2.0])
def test_a_step_draws_noise_of_its_covariance(h):
    """Whitened by the covariance, all moments of second order are those of the identity.

    A step's privacy is that of this noise: the part of the position beside the velocity counts.
    """
    chain = UnderdampedLangevin(1, h, 1.5, 0.8)
    flat = Potential(WholeSpace(1), 1e-9, np.zeros(1), lambda x: (np.zeros(len(x)), 0 * x))
    still = Moving(np.zeros((100_000, 1)), np.zeros((100_000, 1)))
    drawn = np.concatenate(chain.step(still, flat, Source(2)), axis=1)
    white = np.linalg.solve(np.linalg.cholesky(noise(chain)), drawn.T)
    # Standard errors are 0.45% at most.
    assert np.cov(white) == pytest.approx(np.eye(2), abs=0.03)


@pytest.mark.parametrize("steps", [1, 3, 25])
def test_the_law_on_a_quadratic(steps):
    """Position, velocity, sum and difference are normal, moments by a linear recursion."""
    h, gamma, u, eigenvalue, minimum = 0.5, 1.5, 0.8, 2.0, 1.0
    chain, e = UnderdampedLangevin(steps, h, gamma, u), math.exp(-gamma * h)
    target = Potential(
        WholeSpace(1),
        0.5,
        np.array([minimum]),
        lambda x: (
            (eigenvalue - 0.5) / 2 * (x[:, 0] - minimum) ** 2,
            (eigenvalue - 0.5) * (x - minimum),
        ),
    )
    source = Source(1)
    state = chain.init(target, 100_000, source)
    mean, covariance = np.array([-minimum, 0.0]), np.diag([0.0, u])
    force = -eigenvalue * u / gamma * np.array([h - (1 - e) / gamma, 1 - e])
    flow = np.array([[1.0, (1 - e) / gamma], [0.0, e]]) + np.outer(force, [1.0, 0.0])
    for _ in range(steps):
        state = chain.step(state, target, source)
        mean, covariance = flow @ mean, flow @ covariance @ flow.T + noise(chain)
    drawn = np.stack([state.points[:, 0] - minimum, state.velocities[:, 0]], axis=1)
    for way in np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]]):
        assert (
            kstest(drawn @ way, norm(way @ mean, math.sqrt(way @ covariance @ way)).cdf).pvalue
            > 1e-6
        )


def test_short_steps_sample_the_target():
    """As the step shrinks, the stationary variances tend to 1 / eigenvalue and u."""
    h, gamma, u, eigenvalue = 1e-3, 2.0, 0.5, 3.0
    chain, e = UnderdampedLangevin(1, h, gamma, u), math.exp(-gamma * h)
    force = -eigenvalue * u / gamma * np.array([h - (1 - e) / gamma, 1 - e])
    flow = np.array([[1.0, (1 - e) / gamma], [0.0, e]]) + np.outer(force, [1.0, 0.0])
    stationary = np.linalg.solve(np.eye(4) - np.kron(flow, flow), noise(chain).ravel()).reshape(
        2, 2
    )
    np.testing.assert_allclose(stationary, np.diag([1 / eigenvalue, u]), atol=2e-3)


def test_positions_stay_in_the_domain_and_nothing_is_certified():
    box = Box((-0.1, -0.2), (0.3, 0.1))
    target = Potential(box, 1.0, np.zeros(2), lambda x: (np.zeros(len(x)), np.zeros_like(x)))
    chain = UnderdampedLangevin(20, 0.5, 1.0)
    assert box.contains(chain.draw(target, 100, Source(2)), tolerance=0.0).all()
    assert from_json(chain.to_json(), Chain) == chain
    with pytest.raises(NotCertified):
        chain.certificate.event(Pure(1.0))
    with pytest.raises(ValueError, match="friction"):
        UnderdampedLangevin(1, 1.0, 0.0)
