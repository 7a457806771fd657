"""Discrete laws against their exact probabilities, in bulk and bit by bit."""

import numpy as np
import pytest

from dpfit.noise import Source, discrete_gaussian, discrete_laplace
from dpfit.noise.discrete import _accepts
from dpfit.noise.laws import precision


def cumulative_from(weight):
    """Distribution function of a law by weights, summed over the whole support."""
    support = np.arange(-4000, 4001)
    mass = weight(support.astype(float))
    total = np.cumsum(mass) / mass.sum()
    return lambda k: np.interp(np.floor(k), support, total)


def laplace_weight(scale):
    return lambda k: np.exp(-np.abs(k) / scale)


def gaussian_weight(sigma):
    return lambda k: np.exp(-0.5 * (k / sigma) ** 2)


CASES = [
    (sampler, weight, scale)
    for sampler, weight in (
        (discrete_laplace, laplace_weight),
        (discrete_gaussian, gaussian_weight),
    )
    for scale in (0.7, 4.3, 60.5)
]


class TestLaw:
    """Pearson's test on 100,000 draws at 1e-9.

    A scale off by 6% shifts the statistic by 360 (Laplace) or 720 (Gaussian) at large scales; at
    0.7 the information is 0.7 or more, and the shift at least 250.
    """

    @pytest.mark.parametrize(("sampler", "weight", "scale"), CASES)
    def test_chi_square(self, sampler, weight, scale, p_value):
        cumulative = cumulative_from(weight(scale))
        assert p_value(sampler(scale, 100_000, Source(41)), cumulative) > 1e-9
        assert p_value(sampler(1.06 * scale, 100_000, Source(41)), cumulative) < 1e-9
        assert p_value(sampler(scale / 1.06, 100_000, Source(41)), cumulative) < 1e-9

    @pytest.mark.parametrize("scale", [0.5, 3.0])
    def test_laplace_log_ratio_is_pure(self, scale):
        # Neighbouring counts differ by the factor exp(1/scale); six standard errors of each log
        # ratio.
        draws = discrete_laplace(scale, 200_000, Source(42))
        counts = np.array([np.sum(draws == k) for k in range(5)])
        errors = np.sqrt(1 / counts[1:] + 1 / counts[:-1])
        assert np.all(np.abs(np.log(counts[:-1] / counts[1:]) - 1 / scale) < 6 * errors)

    @pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian])
    def test_shapes_and_extreme_scales(self, sampler):
        assert sampler(2.0, (), Source(1)).shape == ()
        assert sampler(2.0, (2, 3), Source(1)).shape == (2, 3)
        assert sampler(2.0, 0, Source(1)).shape == (0,)
        assert not np.any(sampler(2.0**-20, 100, Source(1)))
        assert np.all(np.abs(sampler(2.0**40, 100, Source(1))) < 50 * 2.0**40)

    @pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan"), 2.0**60])
    @pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian])
    def test_rejects_bad_scales(self, sampler, bad):
        with pytest.raises(ValueError, match="scale must lie between"):
            sampler(bad, 1, Source(1))


class TestDecisions:
    @pytest.mark.parametrize("scale", [0.7, 5.0, 2.0**20 / 3])
    def test_laplace_at_both_sides_of_a_boundary(self, scale, scripted):
        # The magnitude is at least k exactly if the uniform number is below exp(-k / scale).
        for k in {1, 2, int(3 * scale) + 1, int(20 * scale) + 1}:
            context = precision(300)
            digits = int(context.floor(context.exp(-k / context.mpf(scale)) * 2**127))
            for unit, expected in ((1, k - 1), (-1, k)):
                beside = digits + unit
                words = [(beside >> 64) << 1, beside & (2**64 - 1)]
                assert discrete_laplace(scale, 1, scripted([*words, 2**63]))[0] == expected

    def test_negative_zero_is_drawn_again(self, scripted):
        # All ones is a magnitude of zero with a minus sign; the next word, with a plus sign,
        # stands.
        source = scripted([2**64 - 1, 2**63, 2**64 - 2, 2**63])
        assert discrete_laplace(0.5, 1, source)[0] == 0
        assert len(source.script) < 3

    @pytest.mark.parametrize("sigma", [0.7, 3.3, 1e6])
    def test_gaussian_acceptance_at_both_sides_of_its_probability(self, sigma, scripted):
        width = int(sigma) + 1
        for k in {0, 1, int(sigma) + 2, int(4 * sigma) + 1}:
            context = precision(300)
            sigma2 = context.mpf(sigma) ** 2
            probability = context.exp(-((k - sigma2 / width) ** 2) / (2 * sigma2))
            digits = int(context.floor(probability * 2**128))
            for unit, expected in ((1, False), (-1, True)):
                source = scripted([(digits + unit) >> 64, (digits + unit) & (2**64 - 1), 2**63])
                assert bool(_accepts(np.array([-k]), sigma, width, source)[0]) is expected
