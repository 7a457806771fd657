"""The chain on single values against quadrature, with its price."""

import numpy as np
import pytest
from scipy.stats import kstest

from dpfit.core import Minimize
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import Bounds, Hinge
from dpfit.noise import Source
from dpfit.privacy.spec import from_json
from dpfit.samplers.alternating_sampler import AlternatingSampler
from dpfit.samplers.markov import Chain
from dpfit.samplers.potential import Potential
from dpfit.samplers.subsampled_rgo import SampledPotential, Truncation
from dpfit.samplers.value_query_sampler import ValueQuerySampler


def hinge_problem():
    rows, labels = np.array([[0.6, 0.8], [1.0, 0.0]]), np.array([1.0, -1.0])
    problem = Minimize(
        n=2, loss=Hinge(), bounds=Bounds(1.0), n_features=2, domain=L2Ball(2, 1.0), ridge=4.0
    )
    return problem, InMemory(rows, labels)


@pytest.mark.slow
def test_hinge_losses_in_two_dimensions():
    problem, data = hinge_problem()
    t = 0.3
    target = SampledPotential.gibbs(problem, data, t)
    sampler = ValueQuerySampler.certified(0.02, target.strength, target.lipschitz, 2.0)
    assert sampler.certificate.distance <= 0.02
    drawn = sampler.draw(target, 2_000, Source(1))
    side = np.linspace(-1.0, 1.0, 801)
    grid = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1)
    losses = np.maximum(0, 1 - data.labels * (grid @ data.matrix.T)).sum(axis=-1) + 4 * np.sum(
        grid**2, axis=-1
    )
    density = np.where(np.sum(grid**2, axis=-1) <= 1, np.exp(-t * losses), 0.0)
    for axis in range(2):
        marginal = density.sum(axis=1 - axis)
        F = np.concatenate([[0.0], np.cumsum((marginal[1:] + marginal[:-1]) / 2)])
        # The certified distance widens what may be seen by two hundredths.
        found = kstest(np.interp(drawn[:, axis], side, F / F[-1]), "uniform").statistic
        assert found < 2.7 / np.sqrt(2_000) + 0.02


@pytest.mark.parametrize(("distance", "lipschitz"), [(1e-2, 3.0), (1e-6, 0.5), (1e-9, 10.0)])
def test_the_price_of_the_oracle_is_in_the_certificate(distance, lipschitz):
    sampler = ValueQuerySampler.certified(distance, 2.0, lipschitz, 2.0)
    facts = (sampler.steps, 2.0, lipschitz, 2.0, sampler.step_size)
    oracle = Truncation(lipschitz**2 / (2.0 + 1 / sampler.step_size)).error
    assert sampler.certificate.distance == pytest.approx(
        AlternatingSampler(*facts).certificate.distance + sampler.steps * oracle
    )
    assert distance / 4 < sampler.certificate.distance <= distance
    assert from_json(sampler.to_json(), Chain) == sampler


def test_refusals_are_public():
    problem, data = hinge_problem()
    sampler = ValueQuerySampler(3, 1.0, 1.0, 2.0, 0.01)
    with pytest.raises(ValueError, match="single functions"):
        sampler.draw(Potential.gibbs(problem, data, 1.0), 1, Source(1))
    with pytest.raises(ValueError, match="steep"):
        sampler.draw(SampledPotential.gibbs(problem, data, 1.0), 1, Source(1))
    with pytest.raises(ValueError, match="distance"):
        ValueQuerySampler.certified(0.0, 1.0, 1.0, 1.0)
