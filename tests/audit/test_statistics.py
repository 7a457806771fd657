"""Bounds, trade-off curves, thresholds: coverage, exact if possible, else simulated."""

import math

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

from dpfit.audit import (
    Balanced,
    Band,
    Epsilon,
    Fixed,
    HeldOut,
    Mu,
    Scores,
    TradeOff,
    UnionBound,
    epsilon_lower,
    lower_rate,
    mu_lower,
    upper_rate,
)
from dpfit.audit.currency import currency_of
from dpfit.privacy import Basis, Guarantee, gaussian
from dpfit.privacy.event import Approximate, Composed, Laplace, Pure
from dpfit.privacy.event import Gaussian as GaussianEvent


def promise(event, relation="replace"):
    return Guarantee(event, Basis("test", relation))


@pytest.mark.parametrize("failure", [0.3, 0.05, 1e-6])
@pytest.mark.parametrize("n", [1, 7, 100, 1000])
def test_clopper_pearson_covers_every_rate_exactly(n, failure):
    """Exact: the bound's failure probability summed over all counts, for 400 rates."""
    counts = np.arange(n + 1)
    upper, lower = upper_rate(counts, n, failure), lower_rate(counts, n, failure)
    assert np.all(np.diff(upper) >= 0)
    for rate in np.linspace(1e-4, 1 - 1e-4, 400):
        mass = binom.pmf(counts, n, rate)
        assert mass[upper < rate].sum() <= failure * (1 + 1e-9)
        assert mass[lower > rate].sum() <= failure * (1 + 1e-9)


def test_clopper_pearson_is_not_wasteful():
    rate = binom.pmf(np.arange(1001), 1000, 0.3)
    missed = rate[upper_rate(np.arange(1001), 1000, 0.05) < 0.3].sum()
    assert 0.03 < missed <= 0.05


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
def test_the_promised_curve_of_a_gaussian_is_the_closed_form(mu):
    alpha = np.linspace(0.001, 0.999, 300)
    curve = TradeOff(promise(GaussianEvent(1 / mu))).miss(alpha)
    exact = gaussian.tradeoff(mu, alpha)
    assert np.all(curve <= exact + 1e-10)  # never above: no false contradiction
    assert np.max(exact - curve) < 2e-5


def test_the_promised_curve_of_laplace_noise_is_the_closed_form():
    """T(alpha) = F(F^-1(1 - alpha) - 1) for the Laplace law, docs/explanation/accounting.md 2.1."""
    from scipy.stats import laplace

    alpha = np.linspace(0.001, 0.999, 300)
    exact = laplace.cdf(laplace.isf(alpha) - 1.0)
    curve = TradeOff(promise(Laplace(1.0))).miss(alpha)
    assert np.all(curve <= exact + 1e-10)
    assert np.max(exact - curve) < 2e-5


def test_curves_of_pure_approximate_and_composed_promises():
    alpha = np.array([0.0, 0.1, 0.5])
    pure = TradeOff(promise(Pure(1.0))).miss(alpha)
    assert pure == pytest.approx(
        np.maximum.reduce([0 * alpha, 1 - math.e * alpha, (1 - alpha) / math.e]), abs=1e-4
    )
    leaky = TradeOff(promise(Approximate(1.0, 0.01))).miss(alpha)
    assert np.all(leaky < pure)
    assert leaky[0] == pytest.approx(0.99, abs=1e-4)
    twice = TradeOff(promise(Composed((GaussianEvent(1.0), GaussianEvent(1.0))))).miss(alpha[1:])
    assert twice == pytest.approx(gaussian.tradeoff(math.sqrt(2), alpha[1:]), abs=1e-4)


def test_bounds_invert_the_curves():
    alpha = np.linspace(0.01, 0.6, 30)
    assert mu_lower(alpha, gaussian.tradeoff(1.3, alpha)) == pytest.approx(1.3)
    beta = np.maximum(1 - math.exp(0.8) * alpha, math.exp(-0.8) * (1 - alpha))
    assert epsilon_lower(alpha, beta) == pytest.approx(0.8)
    beta = np.maximum(0.99 - math.exp(0.8) * alpha, math.exp(-0.8) * (0.99 - alpha))
    assert epsilon_lower(alpha, beta, 0.01) == pytest.approx(0.8)
    assert float(mu_lower(1.0, 1.0)) == 0.0
    assert float(epsilon_lower(0.7, 0.6)) == 0.0


STRATEGIES = [Fixed(0.5), HeldOut(0.3), UnionBound(15), Band()]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: type(s).__name__)
def test_bounds_hold_jointly_at_the_stated_confidence(strategy):
    """4,000 audits of a 1-GDP pair at confidence 0.9; false alarm 1e-6.

    A failure is a bound above the truth at any of the thresholds that the strategy reports.
    """
    rng = np.random.default_rng(5)
    failures = 0
    for _ in range(4000):
        first, second = rng.normal(size=150), 1 + rng.normal(size=150)
        measured = strategy.measure(Scores(first, second), 0.1, Mu())
        failures += bool(np.max(mu_lower(measured.alpha_upper, measured.beta_upper)) > 1.0)
    assert failures <= binom.isf(1e-6, 4000, 0.1)


def test_choosing_on_the_same_runs_would_not_be_valid():
    """A test of the test above: the best of 40 thresholds, bounded as if fixed, fails too often."""
    rng = np.random.default_rng(5)
    failures = 0
    for _ in range(200):
        scores = Scores(rng.normal(size=2000), 1 + rng.normal(size=2000))
        chosen = [
            Fixed(threshold).measure(scores, 0.5, Mu()) for threshold in np.linspace(-1.5, 2.5, 40)
        ]
        failures += max(float(mu_lower(m.alpha_upper, m.beta_upper)[0]) for m in chosen) > 1.0
    assert failures > binom.isf(1e-6, 200, 0.5)


def test_runs_needed_are_enough_and_hardly_more():
    """At the number needed, twice the claimed mu is contradicted half of the time or more."""
    curve = TradeOff(promise(GaussianEvent(1.0)))
    needed = curve.runs_needed(1e-6)
    assert 100 < needed < 300
    error = float(ndtr(-1.0))
    assert curve.contradicted(*2 * [upper_rate(math.ceil(error * needed), needed, 5e-7)])
    assert not curve.contradicted(
        *2 * [upper_rate(math.ceil(error * needed / 2), needed // 2, 5e-7)]
    )
    assert TradeOff(promise(GaussianEvent(100.0))).runs_needed(1e-6) > 100_000


def test_currencies_follow_the_promise_and_refuse_what_it_lacks():
    assert currency_of(promise(GaussianEvent(1.0))) == Mu()
    assert currency_of(promise(Pure(1.0))) == Epsilon()
    assert currency_of(promise(Approximate(1.0, 1e-3)), "epsilon", 1e-3) == Epsilon(1e-3)
    with pytest.raises(
        ValueError, match="no finite epsilon at delta = 0; audit it in mu, or give a delta"
    ):
        currency_of(promise(GaussianEvent(1.0)), "epsilon")
    with pytest.raises(ValueError, match="no Gaussian-DP parameter"):
        currency_of(promise(Approximate(1.0, 1e-3)), "mu")
    with pytest.raises(ValueError, match="give a"):
        currency_of(promise(Approximate(1.0, 1e-3)))
    with pytest.raises(ValueError, match="delta goes with"):
        currency_of(promise(GaussianEvent(1.0)), "mu", 1e-5)
    assert currency_of(promise(Approximate(1.0, 1e-3)), "balanced") == Balanced()
    with pytest.raises(ValueError, match="not with 'balanced'"):
        currency_of(promise(Approximate(1.0, 1e-3)), "balanced", 1e-3)
    with pytest.raises(ValueError, match="'mu', 'epsilon' or 'balanced'"):
        currency_of(promise(Pure(1.0)), "rho")


def test_equal_error_rates_of_known_curves():
    """Gaussian by mu, pure 1 / (1 + e^epsilon), Laplace noise exp(-1/2) / 2."""
    money = Balanced()
    assert money.promised(promise(GaussianEvent(1 / 1.3))) == pytest.approx(1.3, abs=1e-4)
    assert ndtr(-money.promised(promise(Pure(1.0))) / 2) == pytest.approx(
        1 / (1 + math.e), abs=1e-6
    )
    assert ndtr(-money.promised(promise(Laplace(1.0))) / 2) == pytest.approx(
        math.exp(-0.5) / 2, abs=1e-5
    )
    epsilons = np.linspace(0.0, 8.0, 2001)
    assert money.exact(epsilons, gaussian.delta(1.3, epsilons)) == pytest.approx(1.3, abs=1e-3)
    assert float(money.lower(0.2, 0.3)) == float(money.lower(0.3, 0.3))
    assert float(money.lower(0.6, 0.1)) == 0.0


def test_bad_parameters_are_said():
    with pytest.raises(ValueError, match="strictly between"):
        HeldOut(1.0)
    with pytest.raises(ValueError, match="low < high"):
        UnionBound(3, 1.0, 0.0)
    with pytest.raises(ValueError, match="failure must lie"):
        upper_rate(1, 2, 0.0)
    with pytest.raises(ValueError, match="between 0 and the number of runs"):
        upper_rate(3, 2, 0.1)
    with pytest.raises(ValueError, match="no runs are left"):
        Scores(np.array([]), np.array([1.0]))
