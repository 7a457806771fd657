"""Rounded laws: right in bulk, and the right integer for every bit string."""

import numpy as np
import pytest
from scipy import special, stats

from dpfit.noise import Gaussian, GeneralizedGaussian, Laplace, Source, rounded, rounded_l2_laplace
from dpfit.noise.laws import precision

REFERENCE = {
    "laplace": (Laplace(), stats.laplace()),
    "gaussian": (Gaussian(), stats.norm()),
    "shape one": (GeneralizedGaussian(1.0), stats.gennorm(1.0)),
    "shape three": (GeneralizedGaussian(3.0), stats.gennorm(3.0)),
    "shape twelve": (GeneralizedGaussian(12.0), stats.gennorm(12.0)),
}
LAWS = [
    Laplace(),
    Gaussian(),
    GeneralizedGaussian(1.3),
    GeneralizedGaussian(3.0),
    GeneralizedGaussian(20.0),
]


class TestLaw:
    """Pearson's test on 100,000 draws at 1e-9, about 60 cells.

    A scale off by 6% shifts the statistic by at least 360 (Fisher information one per draw), where
    200 is needed for a power above 0.999.
    """

    @pytest.mark.parametrize("scale", [0.6, 3.7, 2.0**33])
    @pytest.mark.parametrize("name", REFERENCE)
    def test_chi_square(self, name, scale, p_value):
        law, reference = REFERENCE[name]
        draws = rounded(law, scale, 100_000, Source(11))

        def cumulative(k):
            return reference.cdf((k + 0.5) / scale)

        assert p_value(draws, cumulative) > 1e-9
        if scale > 1:
            assert p_value(rounded(law, 1.06 * scale, 100_000, Source(11)), cumulative) < 1e-9
            assert p_value(rounded(law, scale / 1.06, 100_000, Source(11)), cumulative) < 1e-9

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["laplace", "gaussian"])
    def test_chi_square_of_four_million_draws_sees_two_percent(self, name, p_value):
        law, reference = REFERENCE[name]

        def cumulative(k):
            return reference.cdf((k + 0.5) / 50.0)

        assert p_value(rounded(law, 50.0, 4_000_000, Source(12)), cumulative) > 1e-9
        assert p_value(rounded(law, 51.0, 4_000_000, Source(12)), cumulative) < 1e-9

    @pytest.mark.parametrize(
        ("law", "shape", "unit"),
        [(Laplace(), 1.0, 1.0), (Gaussian(), 2.0, 2**0.5), (GeneralizedGaussian(3.0), 3.0, 1.0)],
        ids=str,
    )
    def test_moments_and_symmetry(self, law, shape, unit):
        # Six standard errors of each moment with 200,000 draws: false alarm 2e-9 each.
        n, scale = 200_000, 500.0
        draws = rounded(law, scale, n, Source(13)) / scale

        def moment(order):
            even = order % 2 == 0
            return (
                even * unit**order * special.gamma((order + 1) / shape) / special.gamma(1 / shape)
            )

        for order in (1, 2, 3, 4):
            spread = np.sqrt(moment(2 * order) - moment(order) ** 2)
            assert abs(np.mean(draws**order) - moment(order)) < 6 * spread / np.sqrt(n) + 1e-5
        assert abs(np.sum(draws > 0) - np.sum(draws < 0)) < 6 * np.sqrt(n)

    @pytest.mark.parametrize("name", ["laplace", "gaussian"])
    def test_tail_counts(self, name):
        # Poisson tails with a million draws, 1e-9 on each side, beyond 3, 4 and 5 standard
        # deviations.
        law, reference = REFERENCE[name]
        n, scale = 1_000_000, 100.0
        draws = np.abs(rounded(law, scale, n, Source(14)))
        for deviations in (3, 4, 5):
            threshold = int(deviations * reference.std() * scale)
            expected = n * 2 * reference.sf((threshold + 0.5) / scale)
            count = int(np.sum(draws > threshold))
            assert (
                stats.poisson.ppf(1e-9, expected) <= count <= stats.poisson.ppf(1 - 1e-9, expected)
            )

    def test_coordinates_are_independent(self):
        # Correlations of values and of magnitudes at several lags, 200,000 draws, six standard
        # errors.
        draws = rounded(Gaussian(), 100.0, 200_000, Source(15)).astype(float)
        for series in (draws, np.abs(draws) - np.abs(draws).mean()):
            for lag in (1, 2, 7, 64):
                correlation = np.mean(series[lag:] * series[:-lag]) / np.mean(series**2)
                assert abs(correlation) < 6 / np.sqrt(200_000)

    def test_shapes(self):
        assert rounded(Laplace(), 2.0, (), Source(1)).shape == ()
        assert rounded(Laplace(), 2.0, (2, 3), Source(1)).shape == (2, 3)
        assert rounded(Laplace(), 2.0, 0, Source(1)).shape == (0,)

    @pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan"), 2.0**51, 2.0**-21])
    def test_rejects_bad_scales(self, bad):
        with pytest.raises(ValueError, match="scale must lie between"):
            rounded(Laplace(), bad, 1, Source(1))
        with pytest.raises(ValueError, match="scale must lie between"):
            rounded_l2_laplace(bad, 2, Source(1))


def words_of(tail, bits: int) -> list[int]:
    """Digits of a tail probability as samplers read them: 63 and a sign, then 64 each."""
    count = 1 + (bits - 63) // 64
    length = 63 + 64 * (count - 1)
    digits = int(precision(length + 80).floor(tail * precision(length + 80).mpf(2) ** length))
    first = (digits >> (length - 63)) << 1
    rest = [(digits >> (length - 63 - 64 * i)) & (2**64 - 1) for i in range(1, count)]
    return [first, *rest]


class TestDecisions:
    """A draw is at most m exactly if its uniform is at least the survival at m + 1/2.

    That is checked one unit in the 127th or 191st digit from it, which fixes the law.
    """

    @pytest.mark.parametrize("scale", [0.3, 1.0, 7.3, 2.0**14 + 0.1, 2.0**27 / 3, 2.0**40])
    @pytest.mark.parametrize("law", LAWS, ids=repr)
    def test_both_sides_of_every_boundary(self, law, scale, scripted):
        # Boundaries near the origin, in the bulk, and in the tail to 8 standard deviations and
        # more.
        for multiple in (0.0, 0.01, 0.7, 1.5, 3.0, 8.0, 30.0):
            m = int(multiple * scale)
            context = precision(400)
            tail = law.survival((context.mpf(m) + 0.5) / context.mpf(scale), context)
            if tail < context.ldexp(1, -170):
                continue
            bits = 127 if tail > context.ldexp(1, -100) else 191
            words = words_of(tail, bits)
            above = [*words[:-1], min(words[-1] + 1, 2**64 - 1)]
            below = [*words[:-1], max(words[-1] - 1, 0)]
            filler = [2**63] * 4
            assert int(rounded(law, scale, (), scripted(above + filler))) == m
            assert int(rounded(law, scale, (), scripted(below + filler))) == m + 1
            below[0] += 1
            assert int(rounded(law, scale, (), scripted(below + filler))) == -(m + 1)

    @pytest.mark.parametrize("law", LAWS, ids=repr)
    def test_random_words_against_multiprecision(self, law, scripted):
        # Where floating point proposes and is believed: the chosen integer's two boundaries enclose
        # the word.
        scale = 1234.5
        words = Source(21).words(300)
        draws = rounded(law, scale, 300, scripted([*words.tolist(), *([2**63] * 20)]))
        context = precision(200)
        for word, draw in zip(words.tolist(), draws.tolist(), strict=True):
            assert (draw <= 0) if word & 1 else (draw >= 0)
            u = context.ldexp(context.mpf(word >> 1) + 0.5, -63)
            assert u >= law.survival((abs(draw) + context.mpf(0.5)) / scale, context)
            assert draw == 0 or u < law.survival((abs(draw) - context.mpf(0.5)) / scale, context)

    @pytest.mark.parametrize("law", LAWS, ids=repr)
    def test_all_zeros_and_all_ones(self, law, scripted):
        # 2**-200: 138 zeros, then a one. The draw is the quantile of that tail, far beyond float
        # uniforms.
        scale = 1000.0
        deep = int(rounded(law, scale, (), scripted([0, 0, 0, 2**55, 0, 0])))
        context = precision(400)
        u = context.ldexp(1, -63 - 64 - 64 - 9)
        assert law.survival((deep - context.mpf(0.5)) / scale, context) >= u
        assert law.survival((deep + context.mpf(0.5)) / scale, context) <= 2 * u
        assert int(rounded(law, scale, (), scripted([2**64 - 1] * 3))) == 0

    def test_certain_draws_use_one_word(self, scripted):
        source = scripted([2**62])
        rounded(Gaussian(), 10.0, (), source)
        assert source.script == []

    def test_doubt_is_rare(self):
        # At 2**20 steps fewer than one draw in ten thousand needs more than one word.
        class Counting(Source):
            calls = 0

            def words(self, size):
                self.calls += 1
                return super().words(size)

        source = Counting(3)
        rounded(Gaussian(), 2.0**20, 100_000, source)
        assert source.calls < 10


class TestL2Laplace:
    def test_one_dimension_is_the_laplace_law(self, p_value):
        # Pearson, 30,000 draws, 1e-9; 10% off shifts the statistic by 300.
        source = Source(31)
        draws = np.array([rounded_l2_laplace(20.0, 1, source)[0] for _ in range(30_000)])
        assert p_value(draws, lambda k: stats.laplace.cdf((k + 0.5) / 20.0)) > 1e-9
        assert p_value(draws, lambda k: stats.laplace.cdf((k + 0.5) / 22.0)) < 1e-9

    def test_three_dimensions(self, p_value):
        # Pearson, 30,000 vectors, 1e-9. The radius is Gamma(3), of Fisher information three: a
        # scale off by 6% shifts the statistic by 324. One coordinate has the survival function (2 +
        # x) exp(-x) / 4.
        scale, source = 2.0**12, Source(32)
        draws = np.stack([rounded_l2_laplace(scale, 3, source) for _ in range(30_000)])
        radius = np.linalg.norm(draws, axis=1)
        assert p_value(radius, lambda k: stats.gamma(3).cdf(k / scale)) > 1e-9
        assert p_value(radius, lambda k: stats.gamma(3).cdf(k / (1.06 * scale))) < 1e-9

        def cumulative(k):
            x = (np.asarray(k) + 0.5) / scale
            tail = (2 + np.abs(x)) * np.exp(-np.abs(x)) / 4
            return np.where(x > 0, 1 - tail, tail)

        for axis in range(3):
            assert p_value(draws[:, axis], cumulative) > 1e-9
        octants = np.bincount((draws > 0) @ [1, 2, 4], minlength=8)
        assert stats.chisquare(octants).pvalue > 1e-9
        # The direction does not depend on the radius.
        cosine = draws[:, 0] / radius
        assert stats.ks_2samp(cosine[radius > 3 * scale], cosine[radius <= 3 * scale]).pvalue > 1e-9

    @pytest.mark.parametrize("dimension", [100, 20_000])
    def test_radius_in_high_dimension(self, dimension):
        # The radius is Gamma(dimension): fifty draws, mean within six standard errors.
        source = Source(33)
        radius = [np.linalg.norm(rounded_l2_laplace(2.0**20, dimension, source)) for _ in range(50)]
        assert abs(np.mean(radius) / 2.0**20 - dimension) < 6 * np.sqrt(dimension / 50)

    @pytest.mark.parametrize(
        ("dimension", "mixing"),
        [(d, u) for d in (1, 2, 3, 11) for u in (0.5, 2.0**-50, 1 - 2.0**-50)] + [(1000, 0.3)],
    )
    @pytest.mark.parametrize("deviations", [0.001, 0.7, 3.0, 8.0])
    def test_both_sides_of_a_boundary(self, dimension, deviations, mixing, scripted):
        # Two words give the mixing variable to 128 digits, so the boundary is known to about 100 of
        # them.
        scale = 2.0**30 + 0.25
        first, second = int(mixing * 2.0**64), 2**63 + 12345
        context = precision(400)
        u = context.ldexp((first << 64) + second, -128)
        shape = context.mpf(dimension + 1) / 2
        low, high = context.mpf(0), shape + 200 * context.sqrt(shape) + 200
        while high - low > high * context.ldexp(1, -200):
            middle = (low + high) / 2
            low, high = (
                (middle, high)
                if context.gammainc(shape, middle, regularized=True) > u
                else (low, middle)
            )
        spread = scale * context.sqrt(2 * low)
        m = int(deviations * spread)
        tail, next_tail = (
            context.erfc((m + context.mpf(x)) / spread / context.sqrt(2)) for x in (0.5, 1.5)
        )
        others = [2**62] * (dimension - 1)
        filler = [2**63] * (8 * dimension)
        offset = min((tail - next_tail) / 4, context.ldexp(1, -73))
        for beside, expected in ((tail + offset, m), (tail - offset, m + 1)):
            word, further = words_of(beside, 127)
            source = scripted([first, word, *others, further, second, *filler])
            assert rounded_l2_laplace(scale, dimension, source)[0] == expected

    @pytest.mark.parametrize("bad", [0, -1])
    def test_rejects_bad_dimensions(self, bad):
        with pytest.raises(ValueError, match="dimension"):
            rounded_l2_laplace(10.0, bad, Source(1))

    def test_the_largest_scale(self):
        # Floats cannot tell steps apart here, so that every coordinate is decided in
        # multiprecision.
        draws = rounded_l2_laplace(2.0**50, 50, Source(34))
        assert 2.0**50 * 20 < np.linalg.norm(draws.astype(float)) < 2.0**50 * 120

    @pytest.mark.parametrize("word", [0, 1, 2**64 - 1])
    def test_extreme_mixing_words(self, word, scripted):
        draw = rounded_l2_laplace(50.0, 2, scripted([word] + [2**61] * 40))
        assert np.all(np.abs(draw) < 50 * 60)
