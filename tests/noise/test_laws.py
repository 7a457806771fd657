"""The error bounds on which floating-point proposals rest, against multiprecision."""

import math

import numpy as np
import pytest
from scipy import special

from dpfit.noise import Gaussian, GeneralizedGaussian, Laplace, Source
from dpfit.noise.laws import precision
from dpfit.noise.rounded import MixtureScale

LAWS = [
    Laplace(),
    Gaussian(),
    *(GeneralizedGaussian(p) for p in (1.0, 1.2, 1.5, 2.0, 3.0, 7.0, 20.0, 100.0)),
]


def tails(count: int) -> np.ndarray:
    """Tail probabilities from everywhere: the middle, down to 2**-63, and up to 1 - 2**-53."""
    source = Source(1)
    small = 2.0 ** (-63 * source.uniform(count))
    large = 1 - 2.0 ** (-1 - 52 * source.uniform(count))
    return np.concatenate([source.uniform(count) + 2.0**-64, small, large])


def relative_errors(law, tail: np.ndarray) -> np.ndarray:
    """Distance of float and real quantile: a survival residual over the density."""
    context = precision(250)
    errors = []
    for probability, proposal in zip(tail, law.quantile(tail), strict=True):
        x = context.mpf(float(proposal))
        step = x * context.ldexp(1, -80)
        density = (law.survival(x - step, context) - law.survival(x + step, context)) / (2 * step)
        residual = law.survival(x, context) - context.mpf(float(probability))
        errors.append(float(abs(residual / (density * x))))
    return np.array(errors)


class TestQuantile:
    @pytest.mark.parametrize("law", LAWS, ids=repr)
    def test_error_stays_eight_times_below_the_bound(self, law):
        assert relative_errors(law, tails(40)).max() < law.error / 8

    @pytest.mark.slow
    @pytest.mark.parametrize("law", LAWS, ids=repr)
    def test_error_stays_eight_times_below_the_bound_at_many_points(self, law):
        assert relative_errors(law, tails(2000)).max() < law.error / 8

    @pytest.mark.parametrize("law", LAWS, ids=repr)
    def test_extreme_probabilities_give_finite_magnitudes(self, law):
        extremes = np.array([2.0**-64, 2.0**-63, 0.5, 1 - 2.0**-53, 1.0])
        quantiles = law.quantile(extremes)
        assert np.all(np.isfinite(quantiles))
        assert np.all(np.diff(quantiles) < 0)
        assert quantiles[-1] == 0

    @pytest.mark.parametrize("law", LAWS, ids=repr)
    def test_no_quantile_is_steeper_than_stated(self, law):
        # Increasing hazard: density(x) / survival(x) >= 1 / steepness, so dx/du <= steepness / u.
        context = precision(120)
        for x in (1e-9, 0.1, 0.5, 1.0, 1.5, 3.0):
            here, there = context.mpf(x), context.mpf(x) * (1 + context.mpf(2) ** -40)
            survival = law.survival(here, context)
            density = (survival - law.survival(there, context)) / (there - here)
            assert density / survival >= (1 - 1e-9) / law.steepness

    def test_steepness_is_the_inverse_density_at_zero(self):
        assert math.sqrt(math.pi / 2) <= Gaussian.steepness < 1.2534 + 1e-9
        assert all(
            math.gamma(1 + 1 / p) <= GeneralizedGaussian.steepness for p in np.linspace(1, 100, 500)
        )


class TestMixture:
    @pytest.mark.parametrize("dimension", [1, 2, 3, 10, 100, 1000, 10_000])
    def test_gamma_quantile_error_stays_four_times_below_the_bound(self, dimension):
        shape = (dimension + 1) / 2
        context = precision(250)
        tail = tails(8)
        tail = tail[tail < 1 - 2.0**-40]
        for probability, proposal in zip(tail, special.gammainccinv(shape, tail), strict=True):
            x = context.mpf(float(proposal))
            survival = context.gammainc(shape, x, regularized=True)
            density = context.exp((shape - 1) * context.log(x) - x - context.loggamma(shape))
            error = abs((survival - context.mpf(float(probability))) / (density * x))
            assert error < MixtureScale._QUANTILE_ERROR / 4


class TestSurvival:
    @pytest.mark.parametrize("law", LAWS, ids=repr)
    def test_multiprecision_keeps_its_promise_beyond_the_trusted_bits(self, law):
        # Compared with three times the precision; all but the last 32 bits are trusted.
        for x in (2.0**-45, 1e-6, 0.03, 0.5, 1.0, 1.3, 2.0, 5.0, 40.0):
            rough = law.survival(precision(127).mpf(x), precision(127))
            context = precision(400)
            fine = law.survival(context.mpf(x), context)
            if fine > context.ldexp(1, -2000):
                assert abs(rough / fine - 1) < context.ldexp(1, -127 + 20)

    def test_matches_scipy(self):
        context = precision(100)
        for x in (0.1, 1.0, 2.5):
            assert float(Laplace().survival(context.mpf(x), context)) == pytest.approx(math.exp(-x))
            assert float(Gaussian().survival(context.mpf(x), context)) == pytest.approx(
                2 * special.ndtr(-x)
            )
            cubed = float(GeneralizedGaussian(3.0).survival(context.mpf(x), context))
            assert cubed == pytest.approx(special.gammaincc(1 / 3, x**3))


class TestShape:
    @pytest.mark.parametrize("bad", [0.99, 0.0, -2.0, 101.0, float("inf"), float("nan")])
    def test_rejects_bad_shapes(self, bad):
        with pytest.raises(ValueError, match="shape must lie between 1 and 100"):
            GeneralizedGaussian(bad)
