"""One run with many canaries: the statistics against simulation, power, bad input."""

import numpy as np
import pytest
from scipy.stats import binom

from dpfit.audit import audit_one_run, guess_p_value, one_run_epsilon, one_run_mu
from dpfit.privacy import Basis, Guarantee
from dpfit.privacy.event import Gaussian, Pure


def response(epsilon, canaries, rng):
    """Each canary's coin, and the same coin through randomized response."""
    coins = rng.integers(0, 2, canaries).astype(bool)
    lies = rng.random(canaries) > 1 / (1 + np.exp(-epsilon))
    return coins, coins ^ lies


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_randomized_response_is_the_worst_case_and_is_covered(epsilon):
    """1,000 audits of the extremal mechanism at confidence 0.9: too many failures have probability below 1e-6."""
    rng = np.random.default_rng(1)
    failures, bounds = 0, []
    for _ in range(1000):
        coins, seen = response(epsilon, 300, rng)
        bound = one_run_epsilon(300, 300, int(np.sum(coins == seen)), confidence=0.9)
        failures += bound > epsilon
        bounds.append(bound)
    assert failures <= binom.isf(1e-6, 1000, 0.1)
    assert np.median(bounds) > 0.6 * epsilon


def test_gaussian_canaries_are_covered_and_found():
    """Orthogonal canaries with noise of mu = 1 and 4: below the truth at confidence 0.95, and a fair part of it."""
    rng = np.random.default_rng(2)
    for mu, share in ((1.0, 0.35), (4.0, 0.2)):
        bounds = []
        for _ in range(15):
            coins = rng.integers(0, 2, 1000).astype(bool)
            scores = mu * coins + rng.normal(size=1000)
            order = np.argsort(scores)
            correct = int(np.sum(~coins[order[:50]]) + np.sum(coins[order[-50:]]))
            bounds.append(one_run_mu(1000, 100, correct, confidence=0.95))
        assert sum(bound > mu for bound in bounds) <= binom.isf(1e-6, 15, 0.05)
        assert np.median(bounds) > share * mu


def test_the_p_value_agrees_with_a_slow_reference():
    """The maximum over i, summed term by term."""
    for m, r, v, epsilon, delta in [(100, 50, 40, 1.0, 1e-3), (1000, 20, 20, 0.5, 1e-5), (30, 30, 3, 2.0, 0.01)]:
        q = 1 / (1 + np.exp(-epsilon))
        terms = [sum(binom.pmf(v - j, r, q) for j in range(1, i + 1)) / i for i in range(1, v + 1)]
        slow = binom.sf(v - 1, r, q) + 2 * m * delta * max(terms)
        assert guess_p_value(m, r, v, epsilon, delta) == pytest.approx(min(slow, 1.0))


def test_p_values_grow_with_epsilon_and_delta():
    values = [guess_p_value(500, 100, 90, e) for e in np.linspace(0, 5, 50)]
    assert np.all(np.diff(values) >= 0)
    assert guess_p_value(500, 100, 90, 1.0, 1e-4) > guess_p_value(500, 100, 90, 1.0)


def test_audits_of_one_run():
    rng = np.random.default_rng(4)
    promise = Guarantee(Pure(1.0), Basis("randomized response", "add_remove"))
    coins, seen = response(1.0, 4000, rng)
    kept = audit_one_run(coins, seen + 1e-9 * rng.normal(size=4000), promise, guesses=1000)
    assert kept.kept
    assert 0.6 < kept.lower < 1.0
    coins, seen = response(2.0, 4000, rng)
    broken = audit_one_run(coins, seen + 1e-9 * rng.normal(size=4000), promise, guesses=1000)
    assert broken.broken
    assert "guesses right" in broken.findings[0].note
    normal = Guarantee(Gaussian(2.0), Basis("Gaussian mechanism", "add_remove"))
    coins = rng.integers(0, 2, 2000).astype(bool)
    assert audit_one_run(coins, 0.5 * coins + rng.normal(size=2000), normal, guesses=200).kept
    assert audit_one_run(coins, 5.0 * coins + rng.normal(size=2000), normal, guesses=200).broken


def test_too_few_canaries_are_said():
    promise = Guarantee(Pure(3.0), Basis("randomized response", "add_remove"))
    audit = audit_one_run([True, False], [1.0, 0.0], promise, guesses=2)
    assert audit.verdict == "too few runs"
    assert audit.needed > 2


def test_bad_input_is_said():
    promise = Guarantee(Gaussian(1.0), Basis("Gaussian mechanism"))
    with pytest.raises(ValueError, match="one score a canary"):
        audit_one_run([True], [1.0, 2.0], promise, guesses=1)
    with pytest.raises(ValueError, match="give a delta"):
        audit_one_run([True, False], [1.0, 2.0], promise, guesses=1, currency="epsilon")
    with pytest.raises(ValueError, match="correct <= guesses <= canaries"):
        guess_p_value(10, 20, 5, 1.0)
