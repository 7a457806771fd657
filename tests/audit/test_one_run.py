"""One run with many canaries: the statistics against simulation, power, bad input."""

import numpy as np
import pytest
from scipy.optimize import brentq, linprog
from scipy.special import ndtr
from scipy.stats import binom

from dpfit.audit import audit_one_run, curve_refutes, guess_p_value, one_run_epsilon, one_run_mu
from dpfit.privacy import Basis, Guarantee, gaussian
from dpfit.privacy.event import Gaussian, Pure


def response(epsilon, canaries, rng):
    """Each canary's coin, and the same coin through randomized response."""
    coins = rng.integers(0, 2, canaries).astype(bool)
    lies = rng.random(canaries) > 1 / (1 + np.exp(-epsilon))
    return coins, coins ^ lies


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_randomized_response_is_the_worst_case_and_is_covered(epsilon):
    """1,000 audits of the extremal mechanism at 0.9; false alarms below 1e-6."""
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
    """Orthogonal canaries, mu = 1 and 4: below the truth at 0.95, and a fair part of it."""
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


def smallest_refuted(curve, canaries, guesses, failure):
    """The smallest count the curve refutes; larger counts are refuted too."""
    refuted = [curve_refutes(curve, canaries, guesses, v, failure) for v in range(guesses + 1)]
    assert refuted == sorted(refuted)
    return guesses + 1 - sum(refuted)


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("canaries", [10, 100, 400])
def test_the_curve_bound_holds_exactly_for_independent_gaussian_canaries(mu, canaries):
    """Exact: sign guesses are right with probability Phi(mu / 2), a binomial count."""
    for failure in (0.3, 0.05, 1e-4):
        smallest = smallest_refuted(
            lambda a: float(gaussian.tradeoff(mu, a)), canaries, canaries, failure
        )
        assert binom.sf(smallest - 1, canaries, ndtr(mu / 2)) <= failure


@pytest.mark.parametrize("mu", [0.5, 1.5, 4.0])
def test_the_curve_bound_raises_false_alarms_no_more_often_than_stated(mu):
    """4,000 runs of a mu-GDP mechanism, extreme scores guessed; passes the limit once in 1e6."""
    rng = np.random.default_rng(7)
    coins = rng.integers(0, 2, (4000, 200)).astype(bool)
    order = np.argsort(mu * coins + rng.normal(size=coins.shape), axis=1)
    ranked = np.take_along_axis(coins, order, axis=1)
    for guesses in (20, 60):
        correct = np.sum(~ranked[:, : guesses // 2], axis=1) + np.sum(
            ranked[:, -guesses // 2 :], axis=1
        )
        smallest = smallest_refuted(lambda a: float(gaussian.tradeoff(mu, a)), 200, guesses, 0.2)
        assert np.sum(correct >= smallest) <= binom.isf(1e-6, 4000, 0.2)


@pytest.mark.parametrize(
    ("canaries", "guesses", "correct"), [(20, 20, 15), (50, 12, 10), (30, 30, 30)]
)
def test_the_recursion_solves_the_linear_program(canaries, guesses, correct):
    """Largest P[right >= v] under the proof's inequalities; (epsilon, delta) gives three lines."""
    epsilon, delta = 0.7, 0.01
    lines = [
        (1 - delta, np.exp(epsilon)),
        ((1 - delta) / np.exp(epsilon), np.exp(-epsilon)),
        (0.0, 0.0),
    ]
    counts = np.arange(guesses + 1)
    rows, limits = [], []
    for a in range(guesses):
        right = np.where(counts > a, counts, 0) / canaries
        wrong = np.where(counts >= a, guesses - counts, 0) / canaries
        for height, slope in lines:
            # wrong >= height - slope (1 - right)
            rows.append(slope * right - wrong)
            limits.append(slope - height)
    tail = (counts >= correct).astype(float)
    solved = linprog(-tail, A_ub=rows, b_ub=limits, A_eq=[np.ones(guesses + 1)], b_eq=[1.0])

    def miss(alpha):
        return max(height - slope * alpha for height, slope in lines)

    bound = -solved.fun
    assert curve_refutes(miss, canaries, guesses, correct, bound * (1 + 1e-4))
    assert not curve_refutes(miss, canaries, guesses, correct, bound * (1 - 1e-4))


@pytest.mark.parametrize(
    ("counts", "before", "after"),
    [((1000, 1000, 731), 1.30, 1.64), ((1000, 100, 95), 2.47, 3.32), ((100, 100, 80), 1.49, 2.13)],
)
def test_the_curve_bound_is_a_quarter_to_a_half_higher(counts, before, after):
    """In epsilon at delta = 1e-5, beside the bound by points (epsilon, delta) of the curve."""

    def p_value(mu):
        epsilons = np.linspace(0.0, mu * (mu / 2 + 7), 60)
        return min(
            guess_p_value(*counts, e, d)
            for e, d in zip(epsilons, gaussian.delta(mu, epsilons), strict=True)
        )

    by_points = brentq(lambda mu: p_value(mu) - 0.05, 0.1, 3.0, xtol=1e-4)
    assert gaussian.epsilon(by_points, 1e-5) == pytest.approx(before, abs=0.01)
    assert gaussian.epsilon(one_run_mu(*counts), 1e-5) == pytest.approx(after, abs=0.01)


def test_a_delta_costs_less_by_the_curve():
    assert guess_p_value(1000, 100, 95, 1.0, 1e-3) > 0.05
    assert one_run_epsilon(1000, 100, 95, delta=1e-3) > 2.0
    assert guess_p_value(1000, 100, 95, 2.0) <= 0.05


def test_a_contradiction_at_another_delta_is_told_there():
    """At delta = 0.05 a run says nothing; the promised mu is contradicted all the same."""
    rng = np.random.default_rng(4)
    promise = Guarantee(Gaussian(2.0), Basis("Gaussian mechanism", "add_remove"))
    coins = rng.integers(0, 2, 2000).astype(bool)
    scores = 5.0 * coins + rng.normal(size=2000)
    audit = audit_one_run(coins, scores, promise, guesses=200, currency="epsilon", delta=0.05)
    assert audit.broken
    assert audit.lower > audit.promised
    assert audit.currency.delta < 0.05


def test_the_p_value_agrees_with_a_slow_reference():
    """The maximum over i, summed term by term."""
    for m, r, v, epsilon, delta in [
        (100, 50, 40, 1.0, 1e-3),
        (1000, 20, 20, 0.5, 1e-5),
        (30, 30, 3, 2.0, 0.01),
    ]:
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
