"""Laws of errors against quadrature, simulation and tabulated numbers."""

import math

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.integrate import trapezoid

from dpfit.theory import generalized_gaussian as law
from dpfit.theory.errors import checked_criterion
from dpfit.theory.generalized_gaussian import IndependentErrors
from dpfit.theory.k_norm import CubeErrors
from dpfit.theory.l2_laplace import BallErrors

SHAPES = (1.0, 1.5, 2.0, 4.0, 10.0)


@pytest.mark.parametrize("shape", SHAPES)
def test_density_tail_moments_and_information_are_one_law(shape):
    """All against quadrature of the density, which itself integrates to one."""

    def integral(function):
        return 2 * integrate.quad(function, 0, 60 ** (1 / shape), epsabs=1e-13, limit=400)[0]

    def density(x):
        return math.exp(float(law.log_density(x, shape)))

    assert integral(density) == pytest.approx(1, abs=1e-10)
    for order in (1.0, 2.0, 3.5):
        assert integral(lambda x, q=order: x**q * density(x)) == pytest.approx(
            law.moment(order, shape), rel=1e-9
        )
    score = integral(lambda x: (shape * x ** (shape - 1)) ** 2 * density(x))
    assert score == pytest.approx(law.fisher_information(shape), rel=1e-8)
    for x in (0.1, 0.7, 1.4):
        inside = 2 * integrate.quad(density, 0, x, epsabs=1e-13)[0]
        assert float(law.survival(x, shape)) == pytest.approx(1 - inside, abs=1e-10)
        assert float(law.quantile(law.survival(x, shape), shape)) == pytest.approx(x, rel=1e-9)


def test_shape_two_is_a_normal_law_of_variance_one_half():
    assert law.moment(2.0, 2.0) == pytest.approx(0.5)
    assert float(law.survival(0.9, 2.0)) == pytest.approx(
        2 * stats.norm(scale=math.sqrt(0.5)).sf(0.9), rel=1e-12
    )


@pytest.mark.parametrize("number", [1, 7, 1000, 10**6])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_largest_error_has_the_law_of_a_maximum(shape, number):
    errors = IndependentErrors(shape, 3.0, number)
    kept = stats.gennorm(shape, scale=3.0)

    def at_most(x):
        return (1 - 2 * kept.sf(x)) ** number

    for level in (0.05, 0.5, 0.95, 0.999):
        assert at_most(errors.max_quantile(level)) == pytest.approx(level, rel=1e-6)
        assert 1 - 2 * kept.sf(errors.quantile(level)) == pytest.approx(level, rel=1e-9)
    grid = np.linspace(0, errors.max_quantile(1 - 1e-12), 200_001)
    assert trapezoid(1 - at_most(grid), grid) == pytest.approx(errors.expected_max, rel=1e-5)


# (k, p, sigma): E max, 95% quantile, E abs per query, at (1, 1e-6).
TABLE = {
    (10, 2, 18.89): (25.13, 37.4, 10.66),
    (100, 4, 89.32): (115.58, 133.3, 43.7),
    (1000, 3, 233.24): (404.55, 456.0, 117.9),
    (1000, 4, 270.53): (400.54, 440.6, 132.3),
    (10_000, 4, 851.29): (1379.3, 1481.0, 416.2),
    (10**6, 5, 9514.5): (15326, 15927, 4597.1),
}


@pytest.mark.parametrize("case", TABLE)
def test_errors_match_the_tabulated_values(case):
    number, shape, scale = case
    errors = IndependentErrors(float(shape), scale, number)
    assert [errors.size("max"), errors.size(0.95), errors.size("average")] == pytest.approx(
        TABLE[case], rel=2e-3
    )


@pytest.mark.parametrize("number", [1, 2, 10, 500])
def test_cube_errors_against_quadrature(number):
    """A coordinate is uniform on [-R, R], R of law Gamma(k + 1); the largest is Gamma(k)."""
    errors = CubeErrors(0.5, number)
    radius = stats.gamma(number + 1, scale=0.5)
    ends = radius.ppf(1e-14), radius.isf(1e-14)
    for level in (0.1, 0.5, 0.95):
        x = errors.quantile(level)
        outside = integrate.quad(
            lambda r, x=x: (1 - x / r) * radius.pdf(r), max(x, ends[0]), ends[1], limit=300
        )[0]
        assert outside == pytest.approx(1 - level, rel=1e-6)
        assert stats.gamma(number, scale=0.5).cdf(errors.max_quantile(level)) == pytest.approx(
            level, rel=1e-9
        )
    assert errors.expected_max == pytest.approx(0.5 * number)
    assert errors.average == pytest.approx(0.5 * radius.mean())


def test_cube_quantiles_match_the_tabulated_values():
    """At epsilon = 1, 95% of largest errors are below 15.7, 62.2, 117 (k = 10, 50, 100)."""
    assert [CubeErrors(1.0, k).max_quantile(0.95) for k in (10, 50, 100)] == pytest.approx(
        [15.7, 62.2, 117.0], abs=0.05
    )


@pytest.mark.parametrize("level", [0.5, 0.9, 0.999])
def test_ball_errors_of_one_answer_are_laplace(level):
    law = BallErrors(2.0, 1)
    assert law.quantile(level) == pytest.approx(-2.0 * np.log1p(-level), rel=1e-6)
    assert law.max_quantile(level) == pytest.approx(-2.0 * np.log1p(-level), rel=1e-6)
    assert law.average == pytest.approx(2.0)
    assert law.expected_max == pytest.approx(2.0)


def test_ball_errors_by_a_radius_and_a_direction():
    """Drawn by a Gamma radius and a uniform direction: 100,000 draws, five standard errors."""
    rng, number, draws = np.random.default_rng(8), 7, 100_000
    ways = rng.standard_normal((draws, number))
    errors = np.abs(ways / np.linalg.norm(ways, axis=1, keepdims=True)) * rng.gamma(
        number, size=(draws, 1)
    )
    law, largest = BallErrors(1.0, number), errors.max(axis=1)
    assert abs(largest.mean() - law.expected_max) < 5 * largest.std() / np.sqrt(draws)
    assert abs(errors[:, 0].mean() - law.average) < 5 * errors[:, 0].std() / np.sqrt(draws)
    for level in (0.5, 0.95):
        spread = 5 * np.sqrt(level * (1 - level) / draws)
        assert abs(np.mean(errors[:, 0] <= law.quantile(level)) - level) < spread
        assert abs(np.mean(largest <= law.max_quantile(level)) - level) < spread


@pytest.mark.parametrize("bad", ["worst", 0.0, 1.0, -1, float("nan"), True])
def test_an_unknown_criterion_is_refused(bad):
    with pytest.raises(ValueError, match="minimize"):
        checked_criterion(bad)
