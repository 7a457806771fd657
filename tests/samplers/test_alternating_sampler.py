"""The chain's grid law never exceeds its certificates, and reaches tight ones."""

import math

import numpy as np
import pytest
from grids import cells, masses, proximal_kernel
from scipy.stats import kstest, norm

from dpfit.geometry import Box, L2Ball
from dpfit.noise import Source
from dpfit.privacy.event import Pure, WithinTotalVariation
from dpfit.privacy.spec import from_json
from dpfit.samplers.alternating_sampler import AlternatingSampler
from dpfit.samplers.markov import Chain
from dpfit.samplers.potential import Potential

CELLS = 300


def chi_square(p, q):
    return float(np.sum((p - q) ** 2 / q))


def test_chi_square_and_total_variation_on_random_potentials():
    """Exact grid laws after each of six steps, 100 potentials with kinks and quadratics."""
    random = np.random.default_rng(1)
    x, width = cells(-1.0, 1.0, CELLS)
    closest = 0.0
    for _ in range(100):
        m, c, eta = (
            10 ** random.uniform(-1, 1.5),
            random.uniform(-1.5, 1.5),
            10 ** random.uniform(-2.5, 1),
        )
        corners, weights = random.uniform(-1, 1, 3), 10 ** random.uniform(-1.5, 0.7, 3)
        f = np.abs(x[:, None] - corners) @ weights
        lipschitz = np.abs(np.diff(f)).max() / width
        U = f + m / 2 * (x - c) ** 2
        pi, law, kernel = masses(U), masses(m / 2 * (x - c) ** 2), proximal_kernel(x, U, eta)
        for steps in range(1, 7):
            law = law @ kernel
            sampler = AlternatingSampler(steps, m, lipschitz, 2.0, eta)
            bound, exact = sampler.chi_square_certificate.divergence, chi_square(law, pi)
            # Quadrature has an error of its own, which shows where the exact divergence is below
            # it.
            assert exact <= bound * (1 + 1e-6) + 1e-12
            assert np.abs(law - pi).sum() / 2 <= sampler.certificate.distance + 1e-7
            closest = max(closest, exact / bound)
    assert closest > 0.5


def test_both_certificates_are_attained_by_a_slight_slope():
    """f = L x, wide interval: chi-square exp(L^2/m r^2) - 1, r = (1 + eta m)^-T; TV a shift."""
    m, L, eta = 2.0, 0.02, 0.3
    for steps in (1, 2, 5):
        rate = (1 + eta * m) ** -steps
        sampler = AlternatingSampler(steps, m, L, 1e3, eta)
        assert sampler.chi_square_certificate.divergence == pytest.approx(
            math.expm1(L**2 / m * rate**2), rel=1e-3
        )
        # The last step's noise is all that the second bound knows of, so that it is not attained,
        # but near.
        exact = 2 * norm.cdf(L / m * rate * math.sqrt(m) / 2) - 1
        assert exact <= sampler.certificate.distance <= 1.3 * exact


def test_large_divergences_do_not_overflow():
    far = AlternatingSampler(1, 1.0, 1e4, 1e3, 1e-3)
    assert far.chi_square_certificate.divergence == math.inf
    assert far.certificate.distance == 1.0
    assert AlternatingSampler(1, 1.0, 0.0, 1.0, 1.0).certificate.distance == 0


@pytest.mark.parametrize("lipschitz", [0.1, 30.0])
def test_the_steps_are_the_fewest(lipschitz):
    facts = {"strong_convexity": 2.0, "lipschitz": lipschitz, "diameter": 3.0, "step_size": 0.05}
    sampler = AlternatingSampler.within(1e-6, **facts)
    assert (
        sampler.certificate.distance
        <= 1e-6
        < AlternatingSampler(sampler.steps - 1, **facts).certificate.distance
    )
    by_distance = 1 + math.log(
        min(lipschitz / 2, 3.0) / (math.sqrt(2 * math.pi * 0.05) * 1e-6)
    ) / math.log(1.1)
    assert sampler.steps <= math.ceil(by_distance)
    assert sampler.certificate.event(Pure(1.0)) == WithinTotalVariation(
        Pure(1.0), sampler.certificate.distance
    )


@pytest.mark.parametrize("steps", [1, 3])
def test_the_law_of_the_chain(steps):
    """Linear f, wide box: the mean tends to -L/m at the certified rate; variance stays 1/m."""
    m, slope, eta = 2.0, 3.0, 0.25
    target = Potential(
        Box((-9.0,), (9.0,)), m, np.zeros(1), lambda x: (slope * x[:, 0], np.full_like(x, slope))
    )
    drawn = AlternatingSampler(steps, m, slope, 18.0, eta).draw(target, 100_000, Source(2))[:, 0]
    mean = -slope / m * (1 - (1 + eta * m) ** -steps)
    assert kstest(drawn, norm(mean, m**-0.5).cdf).pvalue > 1e-6


def test_refusals_are_public():
    flat = Potential(
        L2Ball(1, 2.0), 1.0, np.zeros(1), lambda x: (np.zeros(len(x)), np.zeros_like(x))
    )
    for sampler in (
        AlternatingSampler(3, 1.1, 1.0, 4.0, 1.0),
        AlternatingSampler(3, 1.0, 1.0, 3.9, 1.0),
    ):
        with pytest.raises(ValueError, match="another target"):
            sampler.draw(flat, 1, Source(1))
    with pytest.raises(ValueError, match="distance"):
        AlternatingSampler.within(0.0, 1.0, 1.0, 1.0, 1.0)
    sampler = AlternatingSampler(3, 1.0, 1.0, 4.0, 1.0)
    assert from_json(sampler.to_json(), Chain) == sampler
