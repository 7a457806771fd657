"""Printed constants: how far they are from the truth, and what their proofs need."""

import math

import numpy as np
import pytest
from scipy import integrate
from scipy.special import gamma

from dpfit.privacy import Budget, calibrate, gaussian
from dpfit.privacy.event import GeneralizedGaussian
from dpfit.theory import counting_queries as printed
from dpfit.theory import subgamma
from dpfit.theory.generalized_gaussian import IndependentErrors, log_density


def calibrated(number, shape):
    return calibrate(
        GeneralizedGaussian(1.0, shape, number), Budget(epsilon=1.0, delta=1e-6)
    ).noise_multiplier


@pytest.mark.parametrize(("number", "ratio"), [(100, 154.0), (1000, 160.7), (10_000, 161.5)])
def test_the_printed_scale_is_a_hundred_and_sixty_times_too_large(number, ratio):
    assert printed.printed_scale(number, 4.0, 1.0, 1e-6) / calibrated(number, 4.0) == pytest.approx(
        ratio, rel=2e-3
    )


def test_the_printed_error_bound_holds_with_room():
    for number in (1000, 10_000):
        errors = IndependentErrors(4.0, calibrated(number, 4.0), number)
        assert errors.max_quantile(1 - 1 / number) < 0.01 * printed.printed_max_error(
            number, 4.0, 1.0, 1e-6
        )


def test_the_constants_belong_together():
    """Eight times 185, and a factor sqrt(2) for shapes that are not even."""
    assert printed.MAX_ERROR == 8 * printed.EVEN_SHAPE
    assert pytest.approx(math.sqrt(2) * printed.EVEN_SHAPE, rel=2e-3) == printed.ANY_SHAPE
    assert pytest.approx(math.sqrt(2) * printed.MAX_ERROR, rel=1e-3) == printed.MAX_ERROR_ANY_SHAPE
    ratio = printed.printed_scale(9, 3.0, 1.0, 1e-6) / printed.printed_scale(9, 4.0, 1.0, 1e-6)
    assert ratio == pytest.approx(262 / 185 * math.sqrt(3 / 4))


@pytest.mark.parametrize(
    ("number", "excess"),
    [(100, 0.0498), (1000, 0.0055), (10_000, 0.00056)],
    ids=["hundred", "thousand", "ten thousand"],
)
def test_the_limiting_scale_is_approached(number, excess):
    """[Gan22] Theorem 34: the calibrated scale over the central limit's, minus one."""
    limit = printed.limiting_scale(number, 4.0, gaussian.mu(1.0, 1e-6))
    assert calibrated(number, 4.0) / limit - 1 == pytest.approx(excess, abs=2e-4)


@pytest.mark.parametrize("shape", [2.0, 3.0, 4.0, 6.0, 10.0, 100.0])
def test_gradients_of_the_noise_are_sub_gamma_on_both_sides(shape):
    """|X|^(p-1): right with scale 1, left with scale 0, variance factor 1 / Gamma(1/p)."""
    mean = subgamma.gradient_mean(shape)
    top = 60 ** (1 / shape)

    def log_moment(rate):
        def integrand(x):
            return 2 * math.exp(rate * (x ** (shape - 1) - mean) + float(log_density(x, shape)))

        return math.log(integrate.quad(integrand, 0, top, epsabs=1e-13, limit=400)[0])

    assert 1 / shape <= mean <= 1.13 / shape
    for rate in np.linspace(0.05, 0.95, 10):
        assert log_moment(rate) <= subgamma.log_moment_bound(rate, mean, 1.0) + 1e-12
        assert log_moment(-rate) <= subgamma.log_moment_bound(rate, mean, 0.0) + 1e-12
    second = gamma(2 - 1 / shape) / gamma(1 / shape)
    assert second <= mean


def test_sub_gamma_tails_cover_gamma_variables():
    """Gamma(a) is sub-gamma with variance factor a and scale 1."""
    from scipy.stats import gamma as gamma_law

    for a in (0.5, 3.0, 200.0):
        for tail in (0.3, 1e-3, 1e-9):
            assert gamma_law(a).sf(a + subgamma.deviation(a, 1.0, tail)) <= tail
    with pytest.raises(ValueError, match="below 1"):
        subgamma.log_moment_bound(1.0, 1.0, 1.0)
