"""K-norm counts: pure by quadrature, the law of the noise, one query is the Laplace mechanism."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dpfit.audit import PlanRuns, Projection, audit_runs
from dpfit.core import Answer, Run
from dpfit.mechanisms.additive import KNormNoise, NoisySums
from dpfit.mechanisms.counting import Flags
from dpfit.mechanisms.k_norm import k_norm
from dpfit.noise import Source
from dpfit.privacy import Budget
from oracles.views import viewed


def masses(number, epsilon, shift, reach):
    """Probabilities of released vectors in a box: the density over unit cubes around each.

    The density is a mixture of uniform laws on cubes, so the mass of a box is an integral over the
    half-width.
    """
    widths = stats.gamma(number + 1, scale=1 / epsilon)
    nodes, weights = np.polynomial.legendre.leggauss(48)
    # Pieces end where a cube reaches an edge of a cell: at half-integers.
    edges = np.append(np.arange(0, 90 / epsilon, 0.5), 90 / epsilon)
    half, middle = np.diff(edges)[:, None] / 2, (edges[1:] + edges[:-1])[:, None] / 2
    r, w = (middle + half * nodes).ravel(), (half * weights).ravel()
    w = w * widths.pdf(r)
    places = np.arange(-reach, reach + 1)
    shares = {
        z: np.clip(np.minimum(r, z + 0.5) - np.maximum(-r, z - 0.5), 0, None) / (2 * r)
        for z in range(-reach - 2, reach + 3)
    }
    return np.array(
        [
            float(
                np.sum(
                    w * np.prod([shares[z - s] for z, s in zip(cell, shift, strict=True)], axis=0)
                )
            )
            for cell in itertools.product(places, repeat=number)
        ]
    )


@pytest.mark.parametrize("shift", [(1, 1), (1, -1), (1, 0)])
def test_no_output_is_more_than_epsilon_apart(shift):
    epsilon = 0.8
    one, two = masses(2, epsilon, (0, 0), 6), masses(2, epsilon, shift, 6)
    ratio = np.max(np.abs(np.log(one / two)))
    assert ratio <= epsilon + 1e-9
    assert ratio > 0.95 * epsilon


def test_the_quadrature_describes_what_is_drawn():
    """Chi-square on cells of a box in 2-D, 10,000 draws, 1e-9; sees 20% less noise."""
    draws, epsilon, reach = 10_000, 0.8, 2
    mechanism = NoisySums(KNormNoise(epsilon), Flags(2), "replace")
    noise = np.array(mechanism.run_many(viewed(np.zeros((1, 2))), Run(Source(5)), draws))
    counts = np.array(
        [
            np.sum(np.all(noise == cell, axis=1))
            for cell in itertools.product(range(-reach, reach + 1), repeat=2)
        ]
    )

    def statistic(assumed):
        expected = draws * masses(2, assumed, (0, 0), reach)
        return float(np.sum((counts - expected) ** 2 / expected))

    assert statistic(epsilon) < stats.chi2.isf(1e-9, len(counts))
    assert statistic(1.2 * epsilon) > stats.chi2.isf(1e-9, len(counts))


@pytest.mark.parametrize("number", [1, 8, 300])
def test_the_largest_error_has_the_law_gamma(number):
    """Kolmogorov-Smirnov on 4000 draws of scale 200, 1e-9; sees a scale off by 10%."""
    mechanism = NoisySums(KNormNoise(1 / 200), Flags(number), "replace")
    largest = np.max(
        np.abs(mechanism.run_many(viewed(np.zeros((1, number))), Run(Source(6)), 4000)), axis=1
    )
    assert stats.kstest(largest, stats.gamma(number, scale=200).cdf).pvalue > 1e-9
    assert stats.kstest(largest, stats.gamma(number, scale=220).cdf).pvalue < 1e-9


def test_one_query_has_laplace_noise():
    mechanism = NoisySums(KNormNoise(0.01), Flags(1), "replace")
    noise = np.array(mechanism.run_many(viewed(np.zeros((1, 1))), Run(Source(7)), 4000)).ravel()
    assert stats.kstest(noise, stats.laplace(scale=100).cdf).pvalue > 1e-9
    assert mechanism.errors.quantile(0.9) == pytest.approx(100 * math.log(10), rel=1e-9)


@pytest.mark.parametrize(("drawn", "verdict"), [(1.0, "kept"), (2.0, "broken")])
def test_half_of_the_noise_is_caught(drawn, verdict):
    """By sampling; the sharper check, within 5% of epsilon, is the quadrature above."""
    plan = k_norm.plan(Answer(n=3, workload=Flags(1)), Budget(epsilon=1.0))
    ones = np.ones((3, 1))
    other = np.vstack([ones[:-1], [[0.0]]])
    quiet = replace(plan, mechanism=replace(plan.mechanism, noise=KNormNoise(drawn)))
    found = audit_runs(
        PlanRuns(quiet),
        ones,
        other,
        plan.guarantee,
        runs=4000,
        attacks=(Projection(),),
        random_state=1,
    )
    assert found.verdict == verdict


def test_a_million_queries_are_drawn():
    noise = NoisySums(KNormNoise(1.0), Flags(10**6), "replace")
    drawn = noise.noise.add(np.zeros(10**6, dtype=np.int64), noise.change, Source(8))
    assert np.max(np.abs(drawn)) == pytest.approx(10**6, rel=0.01)
