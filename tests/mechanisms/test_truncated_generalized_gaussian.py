"""Truncated noise: never beyond its bound, the conditioned law, and an exact check of its price."""

import math

import numpy as np
import pytest
from scipy.stats import chi2, gennorm

from dpfit.audit import exact_masses
from dpfit.core import Answer, Run
from dpfit.mechanisms.additive import NoisySums, PowerNoise
from dpfit.mechanisms.counting import Flags
from dpfit.mechanisms.generalized_gaussian import generalized_gaussian
from dpfit.mechanisms.truncated_generalized_gaussian import (
    TruncatedNoise,
    truncated_generalized_gaussian,
)
from dpfit.noise import Source
from dpfit.privacy import Basis, Budget, BudgetUnreachable, Guarantee
from oracles.views import viewed

BUDGET = Budget(epsilon=1.0, delta=1e-6)
ONE = Flags(1).change("replace")


def law(scale, shape, bound, places):
    """Masses of conditioned noise at integers."""
    kept = gennorm(shape, scale=scale)
    mass = np.where(np.abs(places) <= bound, kept.cdf(places + 0.5) - kept.cdf(places - 0.5), 0.0)
    return mass / mass.sum()


@pytest.mark.parametrize("escape", [1e-3, 0.1])
def test_the_price_covers_the_exact_law(escape):
    """One count that moves by one: both conditioned laws in full, against the promise."""
    noise = TruncatedNoise(PowerNoise(4.0, 3.0), escape)
    bound = noise.bound(1)
    places = np.arange(-bound - 2, bound + 4)
    masses = law(4.0, 3.0, bound, places), law(4.0, 3.0, bound, places - 1)
    guarantee = Guarantee(noise.event(ONE), Basis(noise.theorem))
    assert exact_masses(*masses, guarantee, currency="epsilon", delta=0.5).verdict == "kept"
    unpriced = Guarantee(noise.law.event(ONE), Basis(noise.theorem))
    assert exact_masses(*masses, unpriced, currency="epsilon", delta=0.5).verdict == "broken"


def test_noise_beyond_the_bound_is_as_rare_as_promised():
    noise = TruncatedNoise(PowerNoise(50.0, 4.0), 1e-3)
    for number in (1, 30, 1000):
        beyond = 2 * gennorm(4.0, scale=50.0).sf(noise.bound(number) + 0.5)
        assert -math.expm1(number * math.log1p(-beyond)) <= 1e-3
        nearer = 2 * gennorm(4.0, scale=50.0).sf(noise.bound(number) - 2)
        assert number * nearer > 1e-3


def test_draws_have_the_conditioned_law():
    """Escape 0.4 cuts visibly: chi-square, 5000 draws, 1e-9; rejects the unconditioned law."""
    noise = TruncatedNoise(PowerNoise(6.0, 2.5), 0.4)
    draws = np.array(
        NoisySums(noise, Flags(1), "replace").run_many(
            viewed(np.zeros((1, 1))), Run(Source(3)), 5000
        )
    ).ravel()
    bound = noise.bound(1)
    places = np.arange(-bound, bound + 1)
    assert np.max(np.abs(draws)) <= bound
    counts = np.array([np.sum(draws == place) for place in places])

    def statistic(limit):
        expected = 5000 * law(6.0, 2.5, limit, np.arange(-60, 61))[places + 60]
        return float(np.sum((counts - expected) ** 2 / expected))

    assert statistic(bound) < chi2.isf(1e-9, len(places))
    assert statistic(60) > chi2.isf(1e-9, len(places))


def test_the_whole_promise_keeps_the_budget_and_pays_for_the_bound():
    problem = Answer(n=10, workload=Flags(300))
    plan = truncated_generalized_gaussian.plan(problem, BUDGET)
    assert plan.guarantee.meets(BUDGET)
    assert plan.guarantee.total_variation == pytest.approx(0.1 * 1e-6 / (1 + math.e))
    plain = generalized_gaussian.plan(problem, BUDGET).mechanism.noise.scale
    assert plain < plan.mechanism.noise.law.scale < 1.02 * plain
    noisy = plan.run(np.zeros((10, 300)), random_state=1).value
    assert np.max(np.abs(noisy)) <= plan.mechanism.noise.bound(300)
    assert plan.mechanism.half_width(1 - 1e-12, simultaneous=True) <= plan.mechanism.noise.bound(
        300
    )


def test_exact_answers_are_never_the_fallback():
    """[Gan22] prints exact answers if noise is large; here noise stays at escape 0.4."""
    noise = TruncatedNoise(PowerNoise(1000.0, 4.0), 0.4)
    draws = NoisySums(noise, Flags(5), "replace").run_many(
        viewed(np.ones((7, 5))), Run(Source(4)), 200
    )
    assert np.mean(np.array(draws) == 7) < 0.01


def test_bad_parameters_are_refused():
    with pytest.raises(BudgetUnreachable, match="budget of \\(epsilon, delta\\)"):
        truncated_generalized_gaussian.plan(Answer(n=10, workload=Flags(3)), Budget(mu=1.0))
    with pytest.raises(ValueError, match="share"):
        truncated_generalized_gaussian.plan(Answer(n=10, workload=Flags(3)), BUDGET, share=1.0)
    with pytest.raises(ValueError, match="escape"):
        TruncatedNoise(PowerNoise(1.0, 2.0), 0.5)
