"""Exact rejection against closed forms and quadrature."""

import numpy as np
import pytest
from grids import distribution
from scipy.integrate import quad
from scipy.stats import beta, kstest, norm

from dpfit.core import Minimize
from dpfit.data.dataset import InMemory
from dpfit.geometry import Box, L2Ball
from dpfit.losses import Bounds, LinearLoss, Logistic, Squared
from dpfit.noise import Source
from dpfit.samplers.certificate import Exact
from dpfit.samplers.exact_gibbs_rejection import GibbsRejection, Minorant, remains
from dpfit.samplers.potential import Potential
from dpfit.samplers.proximal_sampler_winf import PreconditionedSampler

DRAWS = 100_000


def problem(loss, domain, n, ridge=0.25, norm_bound=2.0):
    bounds = Bounds(norm_bound, -1.0, 1.0)
    return Minimize(
        n=n, loss=loss, bounds=bounds, n_features=domain.dimension, domain=domain, ridge=ridge
    )


def test_linear_losses_give_a_normal_law():
    """N(-sum a_i / Lam, I / (t Lam)) with Lam = n ridge, on a ball of ten deviations."""
    rows = np.array([[1.0, 0.0], [0.5, -1.0], [0.0, 0.3]])
    t, ridge = 2.0, 0.5
    strength, deviation = 3 * ridge, 1 / np.sqrt(t * 3 * ridge)
    target = Potential.gibbs(
        problem(LinearLoss(), L2Ball(2, 10 * deviation), 3, ridge), InMemory(rows, np.zeros(3)), t
    )
    drawn = GibbsRejection().draw(target, DRAWS, Source(1))
    mean = -rows.sum(axis=0) / strength
    for axis in range(2):
        assert kstest(drawn[:, axis], norm(mean[axis], deviation).cdf).pvalue > 1e-6


@pytest.mark.slow
def test_squared_losses_give_a_truncated_normal_law_and_accept_all():
    """A quadratic's curvature is its Hessian everywhere, so nothing inside is rejected."""
    rows, labels, t = (
        np.array([[1.0, 0.2], [0.3, -0.8], [0.9, 0.4], [-0.5, 1.0]]),
        np.array([1.0, -0.5, 1.0, 0.2]),
        4.0,
    )
    box = Box((-0.3, -0.6), (0.4, 0.1))
    target = Potential.gibbs(problem(Squared(), box, 4), InMemory(rows, labels), t)
    asked = []

    def counted(points):
        asked.append(len(points))
        return target.convex(points)

    watched = Potential(
        box, target.strength, target.centre, counted, target.hessian, target.bending
    )
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
    # All but a few, which find the anchor, are proposals.
    assert DRAWS <= sum(asked) <= DRAWS + 20


@pytest.mark.parametrize(("radius", "ridge"), [(0.5, 0.25), (4.0, 0.02)])
def test_logistic_in_one_dimension(radius, ridge):
    """On the wide domain the quadratic is far below, so rejection shapes the law."""
    rows, labels = np.array([[1.0], [0.8], [-0.3], [1.0]]), np.array([1.0, -1.0, -1.0, 1.0])
    target = Potential.gibbs(
        problem(Logistic(), L2Ball(1, radius), 4, ridge), InMemory(rows, labels), 5.0
    )
    drawn = GibbsRejection().draw(target, DRAWS, Source(3))[:, 0]

    def potential(x):
        return 5 * (
            np.logaddexp(0, -labels * x[:, None] * rows[:, 0]).sum(axis=1) + 4 * ridge * x**2 / 2
        )

    assert kstest(drawn, distribution(-radius, radius, potential)).pvalue > 1e-6


def test_the_mean_of_proposals_outside_the_ball():
    """A long normal law cut by the ball: redraws must follow the covariance."""
    H, slope = np.array([[40.0, 12.0], [12.0, 5.0]]), np.array([-60.0, -9.0])
    target = Potential(
        L2Ball(2, 1.0),
        0.5,
        np.zeros(2),
        lambda x: (np.sum(x @ H * x, axis=1) / 2 + x @ slope, x @ H + slope),
        lambda x: H,
    )
    drawn = GibbsRejection().draw(target, DRAWS, Source(4))
    side = np.linspace(-1, 1, 1201)
    points = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1)
    U = target.convex(points.reshape(-1, 2))[0].reshape(points.shape[:2]) + 0.25 * (points**2).sum(
        -1
    )
    mass = np.exp(-(U - U.min())) * ((points**2).sum(-1) <= 1)
    for axis in range(2):
        F = np.cumsum(mass.sum(axis=1 - axis))
        # The jagged edge of the disc on the grid is worth 1e-3 of a probability.
        levels = np.interp(drawn[:, axis], side + 1 / 1200, F / F[-1])
        assert kstest(levels, "uniform").statistic < 2.7 / np.sqrt(DRAWS) + 1e-3


def test_the_minorant_is_below_the_function_and_touches_it():
    """f(x) >= f(z) + <g, x - z> + remains(M |x - z|) |x - z|^2_H / 2.

    No second derivative falls faster than M.
    """
    random = np.random.default_rng(9)
    rows = random.normal(size=(30, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = np.sign(random.normal(size=30))
    asked = problem(Logistic(), L2Ball(3, 3.0, (0.2, 0.1, -0.3)), 30, norm_bound=1.0)
    target = Potential.gibbs(asked, InMemory(rows, labels), 2.0)
    for z in asked.domain.sample(Source(5), 20):
        value, gradient = (part[0] for part in target.convex(z[None]))
        minorant = Minorant(z, gradient, target.hessian(z), target.bending, 6.0)
        points = asked.domain.sample(Source(6), 500)
        gap = target.convex(points)[0] - value - minorant.above(points)
        assert gap.min() >= 0
        near = z + 1e-3 * (points - z)
        assert np.abs(target.convex(near)[0] - value - minorant.above(near)).max() < 5e-7
        offset = points - z
        quadratic = offset @ gradient + np.sum(offset @ minorant.least * offset, axis=1) / 2
        assert minorant.bend(points) == pytest.approx(minorant.above(points) - quadratic, abs=1e-9)
        assert minorant.bend(points).min() >= 0
    assert 0 < asked.constants("replace").margin_self_concordance < 1


def test_no_slower_bending_would_do():
    """exp(-b x) on [0, 1], the extremal loss, equals its minorant; with 0.9 b it is below."""
    b, x = 2.0, np.linspace(0, 1, 50)[:, None]
    f = np.exp(-b * x[:, 0])
    for factor, sign in ((1.0, 0), (0.9, -1)):
        minorant = Minorant(np.zeros(1), np.array([-b]), np.array([[b * b]]), factor * b, 1.0)
        gap = f - 1 - minorant.above(x)
        assert np.sign(np.round(gap[-1], 9)) == sign


def test_remains_is_the_mean_of_a_falling_exponential():
    for s in (0.0, 1e-9, 1e-3, 0.049, 0.05, 0.051, 1.0, 30.0):
        exact = quad(lambda u, s=s: 2 * (1 - u) * np.exp(-s * u), 0, 1)[0]
        assert remains(np.array(s)) == pytest.approx(exact, rel=1e-10)


def test_few_passes_are_needed_where_a_sample_is_concentrated():
    """d = 20, mode on the boundary: at least 3 in 10 compared proposals are kept."""
    random = np.random.default_rng(10)
    rows = random.normal(size=(4000, 20))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = np.where(random.random(4000) < 1 / (1 + np.exp(-rows @ np.full(20, 0.7))), 1.0, -1.0)
    target = Potential.gibbs(
        problem(Logistic(), L2Ball(20, 1.5), 4000, 0.005, 1.0), InMemory(rows, labels), 0.8
    )
    asked = []

    def counted(points):
        asked.append(len(points))
        return target.convex(points)

    watched = Potential(
        target.domain, target.strength, target.centre, counted, target.hessian, target.bending
    )
    drawn = GibbsRejection().draw(watched, 60, Source(11))
    assert np.mean(np.linalg.norm(drawn, axis=1) > 1.4) > 0.9
    assert sum(asked) < 60 / 0.3


def test_a_law_wider_than_the_ball_is_drawn_along_the_best_fence():
    """Flat target, ball in d = 20: radius to the power 20 is uniform on [0, 1]."""
    flat = Potential(
        L2Ball(20, 2.0),
        1e-3,
        np.zeros(20),
        lambda x: (np.zeros(len(x)), np.zeros_like(x)),
        lambda x: np.zeros((20, 20)),
    )
    drawn = GibbsRejection().draw(flat, 3000, Source(12))
    assert kstest((np.linalg.norm(drawn, axis=1) / 2) ** 20, "uniform").pvalue > 1e-6
    assert kstest((drawn[:, 0] / 2 + 1) / 2, beta(10.5, 10.5).cdf).pvalue > 1e-6


def test_a_law_wider_than_a_box_or_with_its_mean_outside():
    """Three correlated coordinates of which one is pushed far out, and one wider than the box."""
    H, slope = (
        np.array([[9.0, 2.0, 0.0], [2.0, 30.0, 1.0], [0.0, 1.0, 0.1]]),
        np.array([0.5, -90.0, 0.0]),
    )

    def convex(x):
        return np.sum(x @ H * x, axis=1) / 2 + x @ slope, x @ H + slope

    target = Potential(Box((-1.0,) * 3, (1.0, 0.5, 2.0)), 0.1, np.zeros(3), convex, lambda x: H)
    drawn = GibbsRejection().draw(target, 20_000, Source(13))
    # Below 0.2 the second coordinate has no mass to speak of.
    sides = [
        low + (high - low) * (np.arange(100) + 0.5) / 100
        for low, high in ((-1, 1), (0.2, 0.5), (-1, 2))
    ]
    points = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1)
    U = convex(points.reshape(-1, 3))[0].reshape(points.shape[:3]) + 0.05 * (points**2).sum(-1)
    mass = np.exp(-(U - U.min()))
    for axis, side in enumerate(sides):
        F = np.cumsum(mass.sum(axis=tuple(k for k in range(3) if k != axis)))
        levels = np.interp(drawn[:, axis], side + (side[1] - side[0]) / 2, F / F[-1], left=0.0)
        assert kstest(levels, "uniform").statistic < 2.7 / np.sqrt(20_000) + 0.01


@pytest.mark.parametrize(
    "domain", [L2Ball(3, 1.0), Box((-1.0,) * 3, (1.0,) * 3)], ids=["ball", "box"]
)
def test_a_vanishing_ridge_and_equal_rows_raise_nothing(domain):
    """The Hessian has rank one, the ridge is below its rounding: data decide singularity."""
    rows = np.tile([0.6, 0.0, 0.8], (50, 1))
    target = Potential.gibbs(
        problem(Squared(), domain, 50, 1e-22), InMemory(rows, np.ones(50)), 3.0
    )
    sampler = GibbsRejection() if isinstance(domain, L2Ball) else PreconditionedSampler(0.5)
    drawn = sampler.draw(target, 3, Source(14))
    assert domain.contains(drawn).all()


def test_the_certificate_is_exact():
    assert GibbsRejection().certificate == Exact()
