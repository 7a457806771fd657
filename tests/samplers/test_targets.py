"""Samplers on closed-form or quadrature targets: 100,000 draws (20,000 where slow)."""

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.stats import kstest, norm

from dpfit.core import Minimize
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import Absolute, Bounds, Hinge, LinearLoss, Logistic, Squared
from dpfit.noise import Source
from dpfit.samplers.exact_gibbs_rejection import GibbsRejection
from dpfit.samplers.potential import Potential
from dpfit.samplers.proximal_sampler_winf import ProximalSampler

DRAWS, N, T, RIDGE = 100_000, 4, 3.0, 0.25
STRENGTH = N * RIDGE
ROWS = np.array([[0.9, 0.3], [-0.4, 1.0], [0.7, -1.2], [1.0, 0.0]])
LABELS = np.array([1.0, 1.0, -1.0, 1.0])
LOSSES = {
    Logistic(): lambda m: np.logaddexp(0, -LABELS * m),
    Hinge(): lambda m: np.maximum(0, 1 - LABELS * m),
    Absolute(): lambda m: np.abs(m - LABELS),
    Squared(): lambda m: (m - LABELS) ** 2 / 2,
}
SAMPLERS = {
    "rejection": lambda radius: GibbsRejection(),
    # A distance that so many draws cannot see.
    "proximal": lambda radius: ProximalSampler.within(
        1e-5 * radius, T * STRENGTH * (1 - 1e-12), radius, 0.3
    ),
}


def drawn(sampler, loss, dimension, radius, draws=DRAWS):
    bounds, ball = Bounds(2.0, -1.0, 1.0), L2Ball(dimension, radius)
    problem = Minimize(
        n=N, loss=loss, bounds=bounds, n_features=dimension, domain=ball, ridge=RIDGE
    )
    target = Potential.gibbs(problem, InMemory(ROWS[:, :dimension], LABELS), T)
    return SAMPLERS[sampler](radius).draw(target, draws, Source(1))


def along(direction, radius, potential):
    """Distribution function of <x, direction> under exp(-potential) on the disc, by chords."""
    across = np.array([-direction[1], direction[0]])
    s, u = np.linspace(-radius, radius, 1001), np.linspace(-1, 1, 401)
    half = np.sqrt(np.maximum(radius**2 - s**2, 0))
    points = s[:, None, None] * direction + (half[:, None] * u)[..., None] * across
    U = potential(points)
    density = half * trapezoid(np.exp(-(U - U.min())), u, axis=1)
    F = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return lambda at: np.interp(at, s, F / F[-1])


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("dimension", [1, 2])
def test_linear_losses_give_a_normal_law(sampler, dimension):
    """N(-sum a_i / (n ridge), I / (t n ridge)), on a ball of ten deviations."""
    deviation = 1 / np.sqrt(T * STRENGTH)
    found = drawn(sampler, LinearLoss(), dimension, 10 * deviation)
    for axis in range(dimension):
        mean = -ROWS[:, axis].sum() / STRENGTH
        assert kstest(found[:, axis], norm(mean, deviation).cdf).pvalue > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_other_losses_on_an_interval(loss, sampler):
    found = drawn(sampler, loss, 1, 1.0)[:, 0]
    x = np.linspace(-1, 1, 20_001)
    U = T * (LOSSES[loss](x[:, None] * ROWS[:, 0]).sum(axis=1) + STRENGTH / 2 * x**2)
    density = np.exp(-(U - U.min()))
    F = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    assert kstest(found, lambda at: np.interp(at, x, F / F[-1])).pvalue > 1e-6


@pytest.mark.parametrize(
    ("sampler", "draws"),
    [("rejection", DRAWS), pytest.param("proximal", 20_000, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_other_losses_on_a_disc(loss, sampler, draws):
    """Along five directions; quadratic losses give a normal law restricted to the disc."""
    found = drawn(sampler, loss, 2, 1.0, draws)

    def potential(points):
        return T * (
            LOSSES[loss](points @ ROWS.T).sum(axis=-1) + STRENGTH / 2 * np.sum(points**2, axis=-1)
        )

    for angle in np.linspace(0, np.pi, 5, endpoint=False):
        direction = np.array([np.cos(angle), np.sin(angle)])
        assert kstest(found @ direction, along(direction, 1.0, potential)).pvalue > 1e-6


def test_a_strength_that_is_a_tenth_off_is_seen():
    """The test above would notice: the same draws against a target that is a tenth colder."""
    found = drawn("rejection", Logistic(), 2, 1.0)

    def colder(points):
        return (
            1.1
            * T
            * (
                LOSSES[Logistic()](points @ ROWS.T).sum(axis=-1)
                + STRENGTH / 2 * np.sum(points**2, axis=-1)
            )
        )

    direction = np.array([1.0, 0.0])
    assert kstest(found @ direction, along(direction, 1.0, colder)).pvalue < 1e-6
