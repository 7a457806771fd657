"""Attack risk against closed forms of the best test between two known laws."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from dpfit.privacy import Basis, Guarantee, event
from dpfit.report import best_guess, odds_tail, recognised

MUS = (0.1, 0.2367, 1.0, 3.0)
FACTORS = (1.2, 1.5, 2.0, 5.0, 20.0)


def promise(of: event.Event) -> Guarantee:
    return Guarantee(of, Basis("test"))


@pytest.mark.parametrize("mu", MUS)
def test_gaussian_best_guess(mu):
    """The best test between N(0, 1) and N(mu, 1) thresholds at mu / 2."""
    assert best_guess(promise(event.Gaussian(1 / mu))) == pytest.approx(ndtr(mu / 2), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_pure_best_guess(epsilon):
    """Randomized response is the worst pure mechanism, and guessing its answer is best."""
    expected = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert best_guess(promise(event.Pure(epsilon))) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("rate", [1e-3, 0.01, 0.1, 0.5])
def test_gaussian_recognised(mu, rate):
    exact = ndtr(ndtri(rate) + mu)
    bound = recognised(promise(event.Gaussian(1 / mu)), rate)
    assert exact <= bound <= 1.01 * exact


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_laplace_recognised(epsilon):
    """Below 1/2 the likelihood-ratio test is a Laplace tail, shifted by epsilon scales."""
    bound = recognised(promise(event.Laplace(1 / epsilon)), 0.01)
    assert 0.01 * math.exp(epsilon) <= bound * (1 + 1e-9)
    assert bound <= 1.01 * 0.01 * math.exp(epsilon)


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("factor", FACTORS)
def test_gaussian_odds_tail(mu, factor):
    """It bounds P(larger likelihood ratio), and is the best power at that power ratio."""
    bound = odds_tail(promise(event.Gaussian(1 / mu)), factor)
    exact = ndtr(mu / 2 - math.log(factor) / mu)
    assert bound >= exact
    # Independent of any delta: where power equals factor times size on the ROC curve of the two
    # normal laws.
    size = math.exp(
        brentq(lambda log: ndtr(ndtri(math.exp(log)) + mu) / math.exp(log) - factor, -600, -1e-9)
    )
    if factor * size > 1e-12:
        assert bound == pytest.approx(factor * size, rel=0.02)
        assert bound >= factor * size * (1 - 1e-9)


@pytest.mark.parametrize("factor", [1.2, 2.0, 2.7])
def test_pure_odds_tail(factor):
    """Of a pure promise the ROC curve is two straight lines."""
    low = math.exp(-1.0)
    expected = (1 - low) / (1 - low / factor)
    assert odds_tail(promise(event.Pure(1.0)), factor) == pytest.approx(expected, rel=5e-3)
    assert odds_tail(promise(event.Pure(1.0)), factor) >= expected * (1 - 1e-9)


def test_pure_odds_end_at_exp_epsilon():
    assert odds_tail(promise(event.Pure(1.0)), 2.71) > 0.5
    assert odds_tail(promise(event.Pure(1.0)), math.e) == 0.0


def test_delta_alone_would_understate_the_odds():
    """P(passing a factor) is larger than delta there, so delta may not be quoted for it."""
    guarantee, factor = promise(event.Gaussian(1.0)), 5.0
    assert guarantee.delta(math.log(factor)) < 0.5 * ndtr(0.5 - math.log(factor))
    assert odds_tail(guarantee, factor) >= ndtr(0.5 - math.log(factor))


def test_a_lost_secret_is_never_unlikely():
    """With probability delta everything is lost, whatever the factor."""
    assert odds_tail(promise(event.Approximate(1.0, 1e-3)), 1e6) >= 1e-3


def test_distance_from_the_accounted_law_is_priced():
    exact = promise(event.Gaussian(1.0))
    near = promise(event.WithinTotalVariation(event.Gaussian(1.0), 0.01))
    assert best_guess(near) == pytest.approx(best_guess(exact) + 0.01, rel=1e-9)
    assert recognised(near, 0.05) >= recognised(exact, 0.05) + 0.01
    assert odds_tail(near, 5.0) > odds_tail(exact, 5.0)


def test_bounds_grow_with_the_privacy_loss():
    guarantees = [promise(event.Gaussian(1 / mu)) for mu in np.linspace(0.1, 4, 12)]
    for risk in (best_guess, lambda g: recognised(g, 0.01), lambda g: odds_tail(g, 3.0)):
        values = [risk(guarantee) for guarantee in guarantees]
        assert values == sorted(values)
        assert values[-1] <= 1


@pytest.mark.parametrize("factor", [1.0, 0.5, math.inf, math.nan])
def test_bad_factors_are_refused(factor):
    with pytest.raises(ValueError, match="factor must be"):
        odds_tail(promise(event.Pure(1.0)), factor)
