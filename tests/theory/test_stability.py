"""Stability of diffusions and descents against coupled runs; moments against quadrature."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar

from dpfit.theory.stability import (
    descent_average_distance,
    descent_distance,
    diffusion_average_distance,
    diffusion_distance,
    unconditional_moment,
)


@pytest.mark.parametrize("m", [0.0, 0.3])
def test_coupled_descents_on_a_linear_change_are_exactly_as_far_apart(m):
    """f = m/2 x^2, and the gradient of the other is larger by the change: noise cancels."""
    random, change, size = np.random.default_rng(1), 0.04, 0.2
    x = y = 0.0
    paths, weights = [], []
    for k in range(1, 61):
        noise = random.normal()
        x, y = x - size * m * x + noise, y - size * (m * y + change) + noise
        paths.append(x - y)
        weights.append((1 - size * m) ** -k)
    assert descent_distance([size] * 60, change, m) == pytest.approx(paths[-1])
    assert descent_average_distance(60, size, change, m) == pytest.approx(
        np.average(paths, weights=weights)
    )


def test_coupled_descents_on_logistic_losses_in_a_ball_stay_within_the_distance():
    random, n, d, m = np.random.default_rng(2), 40, 3, 0.05
    X = random.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    signs = random.choice([-1.0, 1.0], (n, 1)) * X
    other = signs.copy()
    other[0] *= -1

    def moved(theta, rows, noise):
        slope = -(rows / (1 + np.exp(rows @ theta))[:, None]).mean(axis=0) + m * theta
        theta = theta - 0.8 * slope + noise
        return theta / max(1.0, np.linalg.norm(theta))

    one = two = np.zeros(d)
    largest = 0.0
    for k in range(1, 201):
        noise = 0.2 * random.normal(size=d)
        one, two = moved(one, signs, noise), moved(two, other, noise)
        # Slopes of the two labels add up to one: the mean gradient changes by 1/n at most.
        bound = descent_distance([0.8] * k, 1 / n, m)
        assert np.linalg.norm(one - two) <= bound * (1 + 1e-12)
        largest = max(largest, np.linalg.norm(one - two))
    assert largest > 0.1 * diffusion_distance(math.inf, 1 / n, m)


@pytest.mark.parametrize("m", [0.0, 0.7])
def test_short_steps_tend_to_the_diffusion(m):
    steps, time, change = 40_000, 2.5, 0.1
    size = time / steps
    assert descent_distance(np.full(steps, size), change, m) == pytest.approx(
        diffusion_distance(time, change, m), rel=1e-3
    )
    assert descent_average_distance(steps, size, change, m) == pytest.approx(
        diffusion_average_distance(time, change, m), rel=1e-3
    )


def test_the_average_is_the_integral_of_the_distances():
    m, time, change = 0.9, 3.0, 0.2
    top = quad(lambda t: m * math.exp(m * t) * diffusion_distance(t, change, m), 0, time)[0]
    assert diffusion_average_distance(time, change, m) == pytest.approx(top / math.expm1(m * time))
    assert diffusion_average_distance(1e5, change, m) == pytest.approx(change / m)
    assert diffusion_average_distance(time, change, 1e-12) == pytest.approx(
        diffusion_average_distance(time, change), rel=1e-6
    )


@pytest.mark.parametrize(("bound", "growth", "power"), [(1.0, 0.5, 2.0), (7.0, 0.1, 1.6)])
def test_the_moment_is_the_integral_of_the_best_tail_bound(bound, growth, power):
    """P(Y > y) <= delta + bound / (delta^growth y^power), minimized over delta at each y."""

    def tail(y):
        def at(log):
            return math.exp(log) + bound * math.exp(-growth * log) / y**power

        return min(1.0, minimize_scalar(at, bounds=(-60.0, 0.0), method="bounded").fun)

    whole = quad(tail, 1e-9, 1e4, limit=400, points=[1.0, 10.0, 100.0])[0]
    # Beyond, the tail is a power of y.
    rest = 1e4 * tail(1e4) / (power / (1 + growth) - 1)
    assert unconditional_moment(bound, growth, power) == pytest.approx(whole + rest, rel=2e-3)


@pytest.mark.parametrize(("growth", "power"), [(0.9, 2.0), (0.5, 1.6)])
def test_a_pareto_law_is_within_the_corrected_bound_and_not_within_the_printed_one(growth, power):
    """P(Y > y) = y^-s, s = power / (1 + growth): hypothesis with bound 1 / growth."""
    mean = power / (power - 1 - growth)
    printed = power / (power - 1) * (4 / growth) ** (1 / power)
    assert printed < mean <= unconditional_moment(1 / growth, growth, power)


def test_printed_constants_of_the_moment():
    for growth, value in ((0.01, 2.078), (0.1, 2.628), (0.5, 6.447), (0.9, 38.6)):
        assert unconditional_moment(1.0, growth, 2.0) == pytest.approx(value, rel=1e-3)


def test_invalid_arguments_raise_with_a_hint():
    with pytest.raises(ValueError, match="strong_convexity"):
        descent_distance([0.1, 20.0], 1.0, 0.1)
    with pytest.raises(ValueError, match="strong_convexity"):
        descent_average_distance(3, 20.0, 1.0, 0.1)
    with pytest.raises(ValueError, match="power"):
        unconditional_moment(1.0, 0.9, 1.9)
