"""Exact rejection against closed forms and quadrature."""

import numpy as np
import pytest
from grids import distribution
from scipy.stats import kstest, norm

from dpfit.core import Minimize
from dpfit.data.records import Arrays
from dpfit.geometry import Box, L2Ball
from dpfit.losses import Bounds, LinearLoss, Logistic, Squared
from dpfit.noise import Source
from dpfit.samplers.certificate import Exact
from dpfit.samplers.exact_gibbs_rejection import GibbsRejection
from dpfit.samplers.potential import Potential, bending, gibbs

DRAWS = 100_000


def problem(loss, domain, n, ridge=0.25, norm_bound=2.0):
    bounds = Bounds(norm_bound, -1.0, 1.0)
    return Minimize(n=n, loss=loss, bounds=bounds, features=domain.dimension, domain=domain, ridge=ridge)


def test_linear_losses_give_a_normal_law():
    """N(-sum a_i / Lam, I / (t Lam)) with Lam = n ridge, on a ball of ten deviations."""
    rows = np.array([[1.0, 0.0], [0.5, -1.0], [0.0, 0.3]])
    t, ridge = 2.0, 0.5
    strength, deviation = 3 * ridge, 1 / np.sqrt(t * 3 * ridge)
    target = gibbs(problem(LinearLoss(), L2Ball(2, 10 * deviation), 3, ridge), Arrays(rows, np.zeros(3)), t)
    drawn = GibbsRejection().draw(target, DRAWS, Source(1))
    mean = -rows.sum(axis=0) / strength
    for axis in range(2):
        assert kstest(drawn[:, axis], norm(mean[axis], deviation).cdf).pvalue > 1e-6


def test_squared_losses_give_a_truncated_normal_law_and_accept_all():
    """The curvature of a quadratic is its Hessian everywhere, so nothing in the domain is rejected."""
    rows, labels, t = np.array([[1.0, 0.2], [0.3, -0.8], [0.9, 0.4], [-0.5, 1.0]]), np.array([1.0, -0.5, 1.0, 0.2]), 4.0
    box = Box((-0.3, -0.6), (0.4, 0.1))
    target = gibbs(problem(Squared(), box, 4), Arrays(rows, labels), t)
    asked = []

    def counted(points):
        asked.append(len(points))
        return target.convex(points)

    watched = Potential(box, target.strength, target.centre, counted, target.curvature)
    drawn = GibbsRejection().draw(watched, DRAWS, Source(2))
    precision = t * (rows.T @ rows + np.eye(2))
    mean = np.linalg.solve(precision, t * rows.T @ labels)
    side = [np.linspace(low, high, 701) for low, high in zip(box.lower, box.upper, strict=True)]
    offset = np.stack(np.meshgrid(*side, indexing="ij"), axis=-1) - mean
    density = np.exp(-np.einsum("abi,ij,abj->ab", offset, precision, offset) / 2)
    for axis in range(2):
        marginal = density.sum(axis=1 - axis)
        F = np.concatenate([[0.0], np.cumsum((marginal[1:] + marginal[:-1]) / 2)])
        assert kstest(np.interp(drawn[:, axis], side[axis], F / F[-1]), "uniform").pvalue > 1e-6
    proposals = sum(size for size in asked if size > 8)
    assert DRAWS <= proposals <= DRAWS + 1024


@pytest.mark.parametrize(("radius", "ridge"), [(0.5, 0.25), (4.0, 0.02)])
def test_logistic_in_one_dimension(radius, ridge):
    """On the wide domain the quadratic is far below the potential, so rejection makes most of the law."""
    rows, labels = np.array([[1.0], [0.8], [-0.3], [1.0]]), np.array([1.0, -1.0, -1.0, 1.0])
    target = gibbs(problem(Logistic(), L2Ball(1, radius), 4, ridge), Arrays(rows, labels), 5.0)
    drawn = GibbsRejection().draw(target, DRAWS, Source(3))[:, 0]

    def potential(x):
        return 5 * (np.logaddexp(0, -labels * x[:, None] * rows[:, 0]).sum(axis=1) + 4 * ridge * x**2 / 2)

    assert kstest(drawn, distribution(-radius, radius, potential)).pvalue > 1e-6


def test_the_mean_of_proposals_outside_the_ball():
    """An elongated normal law cut by the ball: redrawing along the normal must follow the covariance."""
    H, slope = np.array([[40.0, 12.0], [12.0, 5.0]]), np.array([-60.0, -9.0])
    target = Potential(
        L2Ball(2, 1.0),
        0.5,
        np.zeros(2),
        lambda x: (np.sum(x @ H * x, axis=1) / 2 + x @ slope, x @ H + slope),
        lambda: H,
    )
    drawn = GibbsRejection().draw(target, DRAWS, Source(4))
    side = np.linspace(-1, 1, 1201)
    points = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1)
    U = target.convex(points.reshape(-1, 2))[0].reshape(points.shape[:2]) + 0.25 * (points**2).sum(-1)
    mass = np.exp(-(U - U.min())) * ((points**2).sum(-1) <= 1)
    for axis in range(2):
        F = np.cumsum(mass.sum(axis=1 - axis))
        # The jagged edge of the disc on the grid is worth 1e-3 of a probability.
        levels = np.interp(drawn[:, axis], side + 1 / 1200, F / F[-1])
        assert kstest(levels, "uniform").statistic < 2.7 / np.sqrt(DRAWS) + 1e-3


def test_curvature_is_below_all_hessians():
    """Generalized self-concordance: exp(-M B) Hess(centre) <= Hess(x) on the ball."""
    random = np.random.default_rng(9)
    rows = random.normal(size=(30, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = np.sign(random.normal(size=30))
    asked = problem(Logistic(), L2Ball(3, 1.5, (0.2, 0.1, -0.3)), 30, norm_bound=1.0)
    data = Arrays(rows, labels)
    lower = gibbs(asked, data, 2.0).curvature()
    for point in asked.domain.sample(Source(5), 200):
        hessian = 2.0 * data.hessian(Logistic(), point, **asked.guards)
        assert np.linalg.eigvalsh(hessian - lower).min() >= 0
    assert 0 < bending(asked) <= 1.5


def test_the_certificate_is_exact():
    assert GibbsRejection().certificate == Exact()
