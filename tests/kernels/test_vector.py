"""Losses of vector records against NumPy."""

import math

import numpy as np
import pytest
from kernel_references import close, length, repaired

from dpfit.kernels.vector import DISTANCE, LINEAR, SQUARED_DISTANCE, vector_clipped_sum, vector_gradient
from dpfit.noise import Grid

CODES = [DISTANCE, SQUARED_DISTANCE, LINEAR]


def sample():
    rng = np.random.default_rng(0)
    X, theta = rng.standard_normal((200, 6)), rng.standard_normal(6)
    X[3, 1], X[4, 0], X[5] = np.nan, np.inf, theta
    X[6] = 1e-200
    return X, theta


def reference(X, theta, code, row_norm=math.inf, clip=math.inf):
    value, gradient = np.longdouble(0), np.zeros(len(theta), np.longdouble)
    for row in X:
        x, _ = repaired(row, 0.0, row_norm=row_norm)
        gap = x if code == LINEAR else theta - x
        size = length(gap)
        value += {DISTANCE: size, SQUARED_DISTANCE: size**2 / 2, LINEAR: x @ theta}[code]
        term = gap / size if code == DISTANCE and size > 0 else gap
        gradient += term * min(1.0, clip / max(length(term), np.longdouble("1e-4000")))
    return float(value), gradient.astype(float)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("guards", [{}, {"row_norm": 1.0}, {"clip": 0.3}], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_against_the_reference(code, guards, dtype):
    X, theta = sample()
    X = X.astype(dtype)
    value, gradient = vector_gradient(X, theta, code, **guards)
    expected = reference(X, theta, code, **guards)
    assert close(value, expected[0])
    assert close(gradient, expected[1])


@pytest.mark.parametrize("code", CODES)
def test_fixed_point(code):
    X, theta = sample()
    grid, order = Grid(-20), np.random.default_rng(1).permutation(200)
    steps = vector_clipped_sum(X, theta, code, clip=0.3, grid=grid)
    assert close(grid.values(steps), vector_gradient(X, theta, code, clip=0.3)[1], 1e-3)
    assert np.array_equal(vector_clipped_sum(X[order], theta, code, clip=0.3, grid=grid), steps)
    assert np.array_equal(vector_clipped_sum(np.asfortranarray(X), theta, code, clip=0.3, grid=grid), steps)


def test_finite_differences():
    X, theta = sample()
    direction, h = np.arange(6.0) - 2, 1e-6
    for code in (SQUARED_DISTANCE, LINEAR):
        ahead, behind = (vector_gradient(X, theta + s * h * direction, code)[0] for s in (1, -1))
        expected = vector_gradient(X, theta, code)[1] @ direction
        assert (ahead - behind) / (2 * h) == pytest.approx(expected, rel=1e-5, abs=1e-4)


def test_a_record_close_to_the_point_stays_bounded():
    theta = np.full(3, 1e8)
    steps = vector_clipped_sum([[1e8 + 1e-7, 1e8, 1e8]], theta, DISTANCE, clip=1.0, grid=Grid(-20), row_norm=2e8)
    assert np.abs(steps).max() <= 2**20


def test_public_facts_are_checked():
    with pytest.raises(ValueError, match="code"):
        vector_gradient([[1.0]], [1.0], 3)
    with pytest.raises(ValueError, match="shape"):
        vector_gradient([[1.0]], [1.0, 2.0], LINEAR)
    assert vector_gradient(np.empty((0, 2)), [1.0, 1.0], LINEAR)[0] == 0.0
    assert vector_gradient(np.empty((3, 0)), [], DISTANCE)[0] == 0.0
