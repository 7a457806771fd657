"""Quantiles of sums of Laplace variables against samples, closed forms and each other."""

import math

import numpy as np
import pytest

from dpfit.theory.laplace_sums import equal_width, width


def test_one_and_two_variables_have_closed_forms():
    for level in (0.1, 0.9, 0.999999):
        assert equal_width(1, level) == pytest.approx(-math.log1p(-level), rel=1e-9)
        x = equal_width(2, level)
        assert (1 + x / 2) * math.exp(-x) == pytest.approx(1 - level, rel=1e-9)
    # Scales 2 and 1: the tail is (4 exp(-x / 2) - exp(-x)) / 3.
    x = width(np.array([1.0, -2.0]), 0.9)
    assert (4 * math.exp(-x / 2) - math.exp(-x)) / 3 == pytest.approx(0.1, abs=1e-6)


def test_far_tails_are_exact_for_equal_scales_and_bounds_for_others():
    assert equal_width(1, 1 - 1e-12) == pytest.approx(12 * math.log(10), rel=1e-4)
    x = width(np.array([1.0, 2.0]), 1 - 1e-8)
    assert 1e-10 < (4 * math.exp(-x / 2) - math.exp(-x)) / 3 < 1e-8


@pytest.mark.parametrize(
    "scales", [np.ones(9), np.array([1.0, 1.0, 0.5]), np.geomspace(1, 1e-4, 40), np.full(70, 1e3)]
)
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_samples_are_inside_at_the_level(scales, level):
    rng, inside = np.random.default_rng(3), 0.0
    half = width(scales, level)
    for _ in range(10):
        drawn = rng.laplace(size=(20_000, len(scales))) @ scales
        inside += float(np.mean(np.abs(drawn) <= half)) / 10
    assert inside == pytest.approx(level, abs=6 * math.sqrt(level * (1 - level) / 200_000))


def test_nothing_is_within_zero():
    assert width(np.zeros(3), 0.9) == equal_width(0, 0.9) == 0.0
