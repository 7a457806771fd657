"""The adjusted chain: its one-step law, and its stationary law against quadrature."""

import numpy as np
import pytest
from grids import distribution
from scipy.stats import kstest, norm

from dpfit.core import Minimize
from dpfit.data.dataset import InMemory
from dpfit.geometry import Box, L2Ball, WholeSpace
from dpfit.losses import Bounds, Logistic
from dpfit.noise import Source
from dpfit.privacy.event import Pure
from dpfit.privacy.spec import from_json
from dpfit.samplers.certificate import NotCertified
from dpfit.samplers.constrained_mala import MetropolisLangevin
from dpfit.samplers.markov import Chain, chain_target
from dpfit.samplers.potential import Potential

CHAINS = 100_000


def corner(x):
    """f and its slope: steep towards the upper end, with a corner."""
    return 3 * np.abs(x - 0.4) - 4 * x + x**4, 3 * np.sign(x - 0.4) - 4 + 4 * x**3


def on_interval():
    def convex(x):
        values, slopes = corner(x)
        return values[:, 0], slopes

    return Potential(Box((-1.0,), (1.0,)), 1.5, np.array([0.2]), convex)


def potential(x):
    return corner(x)[0] + 0.75 * (x - 0.2) ** 2


def slope(x):
    return corner(x)[1] + 1.5 * (x - 0.2)


@pytest.mark.parametrize("h", [0.02, 0.3])
def test_the_law_of_one_step(h):
    """From the centre: the chance to stay and the density of moves, by quadrature."""
    drawn = MetropolisLangevin(1, h).draw(on_interval(), CHAINS, Source(1))[:, 0]
    y = np.linspace(-1.0, 1.0, 40_001)

    def log_q(b, a):
        return -((b - a + h * slope(a)) ** 2) / (4 * h)

    gap = potential(0.0) - potential(y) + log_q(0.0, y) - log_q(y, 0.0)
    moves = norm.pdf(y, -h * slope(0.0), np.sqrt(2 * h)) * np.exp(np.minimum(gap, 0.0))
    F = np.concatenate([[0.0], np.cumsum((moves[1:] + moves[:-1]) / 2 * (y[1] - y[0]))])
    stayed = drawn == 0.0
    assert abs(stayed.mean() - (1 - F[-1])) < 5.5 * np.sqrt(F[-1] * (1 - F[-1]) / CHAINS)
    assert kstest(np.interp(drawn[~stayed], y, F / F[-1]), "uniform").pvalue > 1e-6


@pytest.mark.parametrize(("h", "steps"), [(0.03, 80), (0.15, 40)])
def test_the_stationary_law_on_an_interval(h, steps):
    """A corner, and a mode near the end: a tenth of the mass within 0.05 of it."""
    drawn = MetropolisLangevin(steps, h).draw(on_interval(), CHAINS, Source(2))[:, 0]
    assert kstest(distribution(-1.0, 1.0, potential)(drawn), "uniform").pvalue > 1e-6


@pytest.mark.slow
def test_the_stationary_law_on_a_disc():
    """Logistic losses in 2-D, minimizer at the boundary: marginals and radius by quadrature."""
    rows, labels = np.array([[1.0, 0.2], [0.3, -0.8], [0.9, 0.4]]), np.array([1.0, -1.0, 1.0])
    problem = Minimize(
        n=3, loss=Logistic(), bounds=Bounds(2.0), n_features=2, domain=L2Ball(2, 1.0), ridge=0.1
    )
    drawn = MetropolisLangevin(60, 0.1).draw(
        chain_target(problem, InMemory(rows, labels), 6.0), 20_000, Source(3)
    )
    side = np.linspace(-1.0, 1.0, 1201)
    grid = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1)
    losses = np.logaddexp(0.0, -(grid @ rows.T) * labels).sum(axis=-1) + 0.15 * np.sum(
        grid**2, axis=-1
    )
    density = np.where(np.sum(grid**2, axis=-1) <= 1, np.exp(-6.0 * losses), 0.0)
    for axis in range(2):
        marginal = density.sum(axis=1 - axis)
        F = np.concatenate([[0.0], np.cumsum((marginal[1:] + marginal[:-1]) / 2)])
        assert kstest(np.interp(drawn[:, axis], side, F / F[-1]), "uniform").pvalue > 1e-6
    radius, weight = np.sqrt(np.sum(grid**2, axis=-1)).ravel(), density.ravel()
    order = np.argsort(radius)
    share = np.interp(
        np.linalg.norm(drawn, axis=1), radius[order], np.cumsum(weight[order]) / weight.sum()
    )
    assert kstest(share, "uniform").pvalue > 1e-6


def test_a_normal_target_in_many_dimensions():
    """Ten dimensions, condition number 10, thinned states: coordinates have variance 1/l."""
    eigenvalues = np.geomspace(1.0, 10.0, 10)

    def convex(x):
        return x**2 @ (eigenvalues - 0.5) / 2, x * (eigenvalues - 0.5)

    target, chain, source = (
        Potential(WholeSpace(10), 0.5, np.zeros(10), convex),
        MetropolisLangevin(1, 0.1),
        Source(4),
    )
    state, accepted = chain.init(target, 20_000, source), 0.0
    for _ in range(100):
        before = state.points
        state = chain.step(state, target, source)
        accepted += np.mean(np.any(state.points != before, axis=1)) / 100
    assert 0.5 < accepted < 0.95
    for axis, eigenvalue in enumerate(eigenvalues):
        assert kstest(state.points[:, axis], norm(0, eigenvalue**-0.5).cdf).pvalue > 1e-6
    assert target.convex(state.points)[0] + 0.25 * np.sum(state.points**2, axis=1) == pytest.approx(
        state.values
    )


def test_gaps_that_are_not_numbers_do_not_move():
    target = Potential(
        L2Ball(2, 1.0), 1.0, np.zeros(2), lambda x: (np.full(len(x), np.nan), np.zeros_like(x))
    )
    assert np.array_equal(MetropolisLangevin(5, 0.1).draw(target, 3, Source(5)), np.zeros((3, 2)))


def test_a_chain_is_a_record_that_certifies_nothing():
    chain = MetropolisLangevin(3, 0.1)
    assert from_json(chain.to_json(), Chain) == chain
    with pytest.raises(NotCertified):
        chain.certificate.event(Pure(1.0))
    with pytest.raises(ValueError, match="step_size"):
        MetropolisLangevin(1, -1.0)
