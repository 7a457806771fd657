"""Divergence of long diffusions against exact Gaussian laws."""

import math

import numpy as np
import pytest

from dpfit.privacy import renyi
from dpfit.samplers.discretization import SmoothTarget
from dpfit.samplers.long_run import long_run_divergence


def laws(eigenvalues, centre, time, m):
    """The diffusion's law from N(0, I/m), and the stationary law, for f = sum l/2 (x - c)^2."""
    decay = np.exp(-2 * eigenvalues * time)
    variance = decay / m + (1 - decay) / eigenvalues
    return (centre * (1 - np.sqrt(decay)), np.diag(variance)), (centre, np.diag(1 / eigenvalues))


def case(random):
    d, kappa, m = int(random.integers(1, 6)), 10 ** random.uniform(0, 0.8), 10 ** random.normal()
    target, radius = SmoothTarget(d, m, m * kappa), random.uniform(0, 2) / math.sqrt(m)
    centres = random.normal(size=(2, d))
    centres *= radius / np.linalg.norm(centres, axis=1, keepdims=True)
    return target, radius, random.uniform(m, m * kappa, (2, d)), centres


def test_exact_divergences_of_quadratic_losses_are_below_the_bound():
    random, finite = np.random.default_rng(1), 0
    for _ in range(300):
        target, radius, eigenvalues, centres = case(random)
        order, m = 1 + 10 ** random.uniform(-1, 1), target.strong_convexity
        time = 10 ** random.uniform(-0.5, 1.5) / m
        (P, stationary), (Q, other) = (
            laws(e, c, time, m) for e, c in zip(eigenvalues, centres, strict=True)
        )

        def between(a, one=stationary, two=other):
            return renyi.gaussians(a, *one, *two)

        bound = long_run_divergence(order, target, radius, time, between)
        exact = renyi.gaussians(order, *P, *Q)
        assert exact <= bound * (1 + 1e-9) + 1e-12
        finite += math.isfinite(bound)
    assert finite > 50


def test_the_limit_is_that_of_the_stationary_laws():
    """Weight (order - 1/3) ... of two triangles: 4/3 at order 2, at order 3 order - 1."""
    target = SmoothTarget(4, 2.0, 5.0)
    asked = []

    def stationary(order):
        asked.append(order)
        return 0.3

    assert long_run_divergence(2.0, target, 1.0, 500.0, stationary) == pytest.approx(0.4)
    assert asked == [5.0]


def test_what_is_left_of_the_start_has_its_two_rates():
    """One part decays at 2 m / (3 order), one at 2 m / (3 order - 2); recomputed by hand."""
    order, target, time = 2.0, SmoothTarget(3, 0.5, 2.0), 30.0
    q, ratio, square = 4.0, 1.5 * math.log(4.0), 0.5 * 1.2**2
    first = 1 + 3 / 16
    start = math.log(5 * 16 / 3)
    forward = (first - 1) / first / (1 - 1 / 6) * (
        (q**2 + 2 * q - 1 / q) * square / 2 + 4 * ratio
    ) * math.exp(-(time - start) / 6)  # fmt: skip
    backward = (3.5 / 3 * ratio + 7 * square / 2) * math.exp(-time / 4)
    expected = 5 / 3 * forward + backward
    found = long_run_divergence(order, target, 1.2, time, lambda a: 0.0)
    assert found == pytest.approx(expected)


def test_it_is_finite_once_the_order_of_the_start_has_risen():
    target = SmoothTarget(1, 1e-3, 2e-3)
    start = math.log((3 * 1000 - 1) * 4) / 2e-3
    assert long_run_divergence(1000.0, target, 0.0, start * 0.999, lambda a: 0.0) == math.inf
    assert long_run_divergence(1000.0, target, 0.0, start * 1.001, lambda a: 0.0) < math.inf
    # Long after the time without the factor 1 / m the exact divergence is still infinite.
    variance = math.exp(-4e-3 * 200) * (1 / 1e-3 - 1 / 2e-3) + 1 / 2e-3
    exact = renyi.gaussians(
        1000.0, np.zeros(1), np.eye(1) * variance, np.zeros(1), np.eye(1) / 2e-3
    )
    assert exact == math.inf
    with pytest.raises(ValueError, match="order"):
        long_run_divergence(1.0, target, 0.0, 1.0, lambda a: 0.0)
