"""A quantile table stays within its claimed error, and its draws are those without it."""

import sys

import numpy as np
import pytest
from scipy import stats

from dpfit.noise import GeneralizedGaussian, Source, rounded, rounded_linf_laplace
from dpfit.noise.laws import precision
from dpfit.noise.rounded import CubeScale, MixtureScale
from dpfit.noise.tabulated import tabulated

SHAPES = (1.0, 1.05, 1.5, 2.0, 3.72, 5.04, 12.0, 100.0)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_table_stays_within_a_quarter_of_its_claimed_error(shape):
    """At 50,000 points between its nodes, both ends included."""
    table, law = tabulated(shape), GeneralizedGaussian(shape)
    rng = np.random.default_rng(2)
    tails = np.exp(
        -np.concatenate(
            [rng.uniform(0, 29, 50_000), [1e-12, 0.0499, 0.0501, 27.9999, 28.0, 28.0001]]
        )
    )
    tails = np.minimum(tails, 1 - 2.0**-53)
    gap = np.abs(table.quantile(tails) / law.quantile(tails) - 1)
    assert np.max(gap) <= table.error / 4
    assert table.error < 5e-9


@pytest.mark.parametrize("scale", [3.0, 9500.0, 2.0**33])
@pytest.mark.parametrize("shape", [1.05, 3.72, 12.0])
def test_draws_are_the_same_with_and_without_the_table(shape, scale, monkeypatch):
    """The same words give the same integers: the table only proposes."""
    module = sys.modules["dpfit.noise.rounded"]
    monkeypatch.setattr(module, "_MANY", 1)
    with_table = rounded(GeneralizedGaussian(shape), scale, 8000, Source(5))
    monkeypatch.setattr(module, "_MANY", 10**9)
    assert np.array_equal(with_table, rounded(GeneralizedGaussian(shape), scale, 8000, Source(5)))


def test_blocks_of_draws_do_not_change_them(monkeypatch):
    module = sys.modules["dpfit.noise.rounded"]
    whole = rounded(GeneralizedGaussian(4.0), 50.0, 5000, Source(6))
    monkeypatch.setattr(module, "_BLOCK", 777)
    assert np.array_equal(whole, rounded(GeneralizedGaussian(4.0), 50.0, 5000, Source(6)))


class TestCubes:
    """Vectors with density exp(-max|x|): radius and direction, and the smallest scales."""

    def test_given_its_largest_coordinate_the_others_are_uniform(self):
        draws = np.array([rounded_linf_laplace(1e6, 4, Source(seed)) for seed in range(3000)])
        order = np.argsort(np.abs(draws), axis=1)
        largest = np.take_along_axis(draws, order[:, -1:], axis=1)
        others = np.take_along_axis(draws, order[:, :-1], axis=1) / np.abs(largest)
        assert stats.kstest(np.abs(largest).ravel(), stats.gamma(4, scale=1e6).cdf).pvalue > 1e-9
        assert stats.kstest(others[:, 0], _smallest_of_three).pvalue > 1e-9
        assert abs(np.mean(draws > 0) - 0.5) < 5.5 * 0.5 / np.sqrt(draws.size)

    @pytest.mark.parametrize("kind", [CubeScale, MixtureScale])
    @pytest.mark.parametrize("dimension", [1, 1000, 10**6])
    def test_random_scales_are_known_as_well_as_they_say(self, kind, dimension):
        """Floats against multiprecision enclosures; float quantiles fail beyond shape 400,000."""
        for seed in range(8):
            scale = kind(3.0, dimension, Source(seed))
            low, high = scale.enclosure(precision(200))
            assert scale.value * (1 - scale.error) <= low <= high <= scale.value * (1 + scale.error)
            assert scale.error < 1e-9

    def test_tiny_scales_give_zeros(self):
        assert np.all(rounded_linf_laplace(2.0**-20, 5, Source(1)) == 0)


def _smallest_of_three(x):
    """Distribution function of the smallest in size of three uniforms on [-1, 1], signed."""
    size = 1 - (1 - np.abs(x)) ** 3
    return 0.5 + np.sign(x) * size / 2
