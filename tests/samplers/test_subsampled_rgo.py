"""The oracle from single values: its estimate, its error bound and its law."""

import math

import numpy as np
import pytest
from grids import distribution
from scipy.stats import kstest

from dpfit.core import Minimize
from dpfit.data.dataset import InMemory
from dpfit.geometry import Box, L2Ball
from dpfit.losses import Bounds, Hinge
from dpfit.noise import Source
from dpfit.samplers.subsampled_rgo import (
    SampledPotential,
    Truncation,
    _exponential_estimate,
    subsampled_rgo,
)

SLOPES, CORNERS = np.array([1.0, -0.4, 0.7]), np.array([-0.3, 0.1, 0.5])


def corners(scale=1.0, strength=1.0):
    """Mean of three absolute values, two up, one down: not convex, which is not needed."""

    def value(j, x):
        return scale * SLOPES[j] * np.abs(x[:, 0] - CORNERS[j])

    def convex(x):
        each = np.abs(x - CORNERS)
        return scale * (each @ SLOPES) / 3, scale * (np.sign(x - CORNERS) @ SLOPES / 3)[:, None]

    return SampledPotential(
        Box((-1.0,), (1.0,)), strength, np.zeros(1), convex, number=3, lipschitz=scale, value=value
    )


def test_the_estimate_is_unbiased():
    """Differences 3, 1, 2, so exp(2): sees a continuation off by 10%, or shared indices."""
    slopes, trials = np.array([3.0, 1.0, 2.0]), 400_000
    target = SampledPotential(
        Box((-1.0,), (1.0,)),
        1.0,
        np.zeros(1),
        lambda x: (2 * x[:, 0], np.full_like(x, 2.0)),
        number=3,
        lipschitz=3.0,
        value=lambda j, x: slopes[j] * x[:, 0],
    )
    rho = _exponential_estimate(target, np.zeros((trials, 1)), np.ones((trials, 1)), Source(1))
    error = 5.5 * rho.std() / math.sqrt(trials)
    assert rho.mean() == pytest.approx(math.exp(2), abs=error)
    assert error < 0.02 * math.exp(2)


@pytest.mark.parametrize(
    ("error", "inverse"), [(1e-3, 94.3), (1e-6, 224.5), (1e-9, 337), (1e-12, 442), (1e-20, 727)]
)
def test_the_certified_ratio(error, inverse):
    """Figures of the derivation, found by another program."""
    assert 1 / Truncation.within(error).ratio == pytest.approx(inverse, rel=5e-3)
    assert Truncation.within(error).error <= error


def test_the_error_bound_is_above_the_error():
    """f linear, one record: D is N(0, 2 ratio) given x, z: expected cut, by simulation."""
    random = np.random.default_rng(2)
    for ratio in (0.01, 0.02, 0.05):
        difference = random.normal(0, math.sqrt(2 * ratio), 1_000_000)
        term, rho, active = (
            np.ones_like(difference),
            np.ones_like(difference),
            np.ones(len(difference), bool),
        )
        for stage in range(1, 20):
            term = np.where(active, term * difference, 0.0)
            rho += term
            active &= random.random(len(difference)) < 1 / (1 + stage)
        cut = np.maximum(np.abs(rho - 1) - 1, 0).mean()
        assert cut <= Truncation(ratio).error
    assert Truncation(0.02).error < 0.05


@pytest.mark.parametrize("y", [-0.6, 1.5])
def test_the_law_of_the_oracle(y):
    """Precision 22 times L squared, against quadrature: the error is below a test's."""
    target, step = corners(3.0, 2.0), 1 / 200
    drawn = subsampled_rgo(target, np.full((30_000, 1), y), step, Source(3))[:, 0]

    def potential(x):
        return target.convex(x[:, None])[0] + x**2 + (x - y) ** 2 / (2 * step)

    assert kstest(distribution(-1.0, 1.0, potential)(drawn), "uniform").pvalue > 1e-6
    if y < 0:
        without = distribution(-1.0, 1.0, lambda x: x**2 + (x - y) ** 2 / (2 * step))
        assert kstest(without(drawn), "uniform").pvalue < 1e-6


def test_records_one_at_a_time():
    rows, labels = np.array([[0.6, 0.8], [1.0, 0.0], [3.0, 4.0]]), np.array([1.0, -1.0, 1.0])
    problem = Minimize(
        n=3, loss=Hinge(), bounds=Bounds(1.0), n_features=2, domain=L2Ball(2, 1.0), ridge=0.1
    )
    target = SampledPotential.gibbs(problem, InMemory(rows, labels), 2.0)
    points = np.array([[0.3, -0.2], [0.0, 0.5]])
    each = np.stack([target.value(np.full(2, j), points) for j in range(3)])
    np.testing.assert_allclose(each.mean(axis=0), target.convex(points)[0])
    guarded = np.array([[0.6, 0.8], [1.0, 0.0], [0.6, 0.8]])
    np.testing.assert_allclose(each, 6 * np.maximum(0, 1 - labels[:, None] * (guarded @ points.T)))
    assert target.lipschitz == pytest.approx(6.0)


def test_refusals_are_public():
    with pytest.raises(ValueError, match="error"):
        Truncation.within(0.0)
    with pytest.raises(ValueError, match="lipschitz"):
        corners(0.0)
    assert Truncation(1e9).error == 1.0
