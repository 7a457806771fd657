"""The restricted Gaussian oracle against quadrature, with anchors good and bad."""

import math

import numpy as np
import pytest
from grids import distribution
from scipy.stats import kstest

from dpfit.core import Minimize
from dpfit.data.dataset import InMemory
from dpfit.geometry import Box, L2Ball
from dpfit.losses import Absolute, Bounds, Hinge, Logistic, Squared
from dpfit.noise import Source
from dpfit.samplers import exact_rgo as module
from dpfit.samplers.exact_rgo import Seen, TangentRejection, exact_rgo
from dpfit.samplers.potential import Potential

DRAWS = 100_000
LOSSES = [
    (Logistic(), lambda m, y: np.logaddexp(0, -y * m)),
    (Hinge(), lambda m, y: np.maximum(0, 1 - y * m)),
    (Absolute(), lambda m, y: np.abs(m - y)),
    (Squared(), lambda m, y: (m - y) ** 2 / 2),
]
ROWS, LABELS = np.array([[0.9], [-0.4], [0.7], [1.0]]), np.array([1.0, 1.0, -1.0, 1.0])


def target(loss, domain, t=3.0, ridge=0.25, rows=ROWS):
    problem = Minimize(
        n=4,
        loss=loss,
        bounds=Bounds(2.0, -1.0, 1.0),
        n_features=domain.dimension,
        domain=domain,
        ridge=ridge,
    )
    return Potential.gibbs(problem, InMemory(rows, LABELS), t)


@pytest.mark.parametrize("y", [0.2, -4.0])
@pytest.mark.parametrize(("loss", "value"), LOSSES, ids=lambda v: getattr(v, "kind", ""))
def test_the_law_is_the_target_in_one_dimension(loss, value, y):
    """U = t (sum of losses + n ridge / 2 x^2); step size 0.5."""
    drawn = exact_rgo(target(loss, L2Ball(1, 1.0)), np.full((DRAWS, 1), y), 0.5, Source(1))[:, 0]

    def potential(x):
        losses = value(x[:, None] * ROWS[:, 0], LABELS).sum(axis=1)
        return 3.0 * (losses + 4 * 0.25 / 2 * x**2) + (x - y) ** 2 / (2 * 0.5)

    assert kstest(drawn, distribution(-1.0, 1.0, potential)).pvalue > 1e-6


@pytest.mark.parametrize(
    "domain", [L2Ball(2, 1.0), Box((-1.0, -0.5), (0.5, 1.0))], ids=["ball", "box"]
)
@pytest.mark.parametrize("y", [(0.3, -0.2), (3.0, 1.0)])
def test_the_law_is_the_target_in_the_plane(domain, y):
    check_in_the_plane(*LOSSES[1], domain, y)


@pytest.mark.parametrize(
    ("loss", "value"), [LOSSES[0], LOSSES[2]], ids=lambda v: getattr(v, "kind", "")
)
def test_other_losses_in_the_plane(loss, value):
    check_in_the_plane(loss, value, L2Ball(2, 1.0), (0.3, -0.2))


def check_in_the_plane(loss, value, domain, y):
    rows = np.array([[0.9, 0.3], [-0.4, 1.0], [0.7, -1.2], [1.0, 0.0]])
    drawn = exact_rgo(
        target(loss, domain, rows=rows), np.tile(y, (DRAWS, 1)).astype(float), 0.4, Source(2)
    )
    side = np.linspace(-1, 1, 801)
    points = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1)
    losses = value(points @ rows.T, LABELS).sum(axis=-1)
    U = 3.0 * (losses + 4 * 0.25 / 2 * (points**2).sum(-1)) + ((points - y) ** 2).sum(-1) / (
        2 * 0.4
    )
    mass = np.exp(-(U - U.min())) * domain.contains(points)
    # Five equal parts of each coordinate's range: expected counts against drawn ones.
    edges = np.linspace(-1, 1, 6)
    seen = np.histogram2d(*drawn.T, bins=[edges, edges])[0].ravel()
    inner = np.histogramdd(points.reshape(-1, 2), bins=[edges, edges], weights=mass.ravel())[
        0
    ].ravel()
    expected = DRAWS * inner / inner.sum()
    busy = expected > 50
    # The quadrature's cells straddle edges: two percent of a count; 1e-6 of a chi-square with at
    # most 24 degrees is 74.
    excess = np.maximum(np.abs(seen - expected)[busy] - 0.02 * expected[busy], 0)
    assert np.sum(excess**2 / expected[busy]) < 74


def test_any_anchor_gives_the_same_law(monkeypatch):
    """Anchors that are never improved, and lie at the far end."""

    class Worst(TangentRejection):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            far = Seen.of(self.target, np.full_like(self.pull, -1.0))
            self.height, self.slope = self._tangent(far)

        def improve(self):
            pass

        def _combine(self, seen):
            pass

    monkeypatch.setattr(module, "TangentRejection", Worst)
    logistic = target(Logistic(), L2Ball(1, 1.0), t=1.0)
    drawn = exact_rgo(logistic, np.full((DRAWS, 1), 0.2), 0.5, Source(3))[:, 0]

    def potential(x):
        losses = np.logaddexp(0, -LABELS * x[:, None] * ROWS[:, 0]).sum(axis=1)
        return losses + 0.5 * x**2 + (x - 0.2) ** 2

    assert kstest(drawn, distribution(-1.0, 1.0, potential)).pvalue > 1e-6


def test_acceptance_of_a_quadratic_is_the_determinant():
    """f = <x, H x> / 2 at its proximal anchor: acceptance is det(I + H / P)^(-1/2)."""
    H, P, trials = np.diag([8.0, 1.0, 0.5]), 4.0, []

    def convex(x):
        trials.append(len(x))
        return np.sum(x @ H * x, axis=1) / 2, x @ H

    wide = Potential(Box((-50.0,) * 3, (50.0,) * 3), 1.0, np.zeros(3), convex)
    TangentRejection(wide, np.zeros((20_000, 3)), P).draw(Source(4))
    # The first call and one improvement are about anchors; then come eight rounds of proposals for
    # what is left.
    proposals, left = sum(trials[2:10]), trials[10] if len(trials) > 10 else 0
    accepted = 20_000 - left
    rate = np.prod(1 + np.diag(H) / P) ** -0.5
    assert accepted / proposals == pytest.approx(
        rate, abs=5 * math.sqrt(rate * (1 - rate) / proposals)
    )


def test_the_mean_is_contracted_by_one_plus_eta_m():
    """Flat f, wide box: mean y / (1 + eta m), variance eta / (1 + eta m)."""
    flat = Potential(
        Box((-99.0,), (99.0,)), 3.0, np.zeros(1), lambda x: (np.zeros(len(x)), np.zeros_like(x))
    )
    drawn = exact_rgo(flat, np.full((DRAWS, 1), 6.0), 0.5, Source(5))
    assert drawn.mean() == pytest.approx(6 / 2.5, abs=6 * math.sqrt(0.2 / DRAWS))
    assert drawn.var() == pytest.approx(0.5 / 2.5, rel=6 * math.sqrt(2 / DRAWS))
