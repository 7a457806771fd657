"""Losses of vector records against NumPy."""

import math

import numpy as np
import pytest
from kernel_references import close, length, repaired
from scipy.sparse import csr_array

from dpfit.kernels import passes
from dpfit.losses import Distance, HuberDistance, LinearLoss, SquaredDistance
from dpfit.noise import Grid

LOSSES = [Distance(), SquaredDistance(), HuberDistance(1.5), LinearLoss()]


def vector_gradient(X, theta, loss, **options):
    return passes.gradient(X, np.zeros(np.shape(X)[0]), theta, loss, **options)


def vector_clipped_sum(X, theta, loss, **options):
    return passes.clipped_sum(X, np.zeros(np.shape(X)[0]), theta, loss, **options)


def sample():
    rng = np.random.default_rng(0)
    X, theta = rng.standard_normal((200, 6)), rng.standard_normal(6)
    X[3, 1], X[4, 0], X[5] = np.nan, np.inf, theta
    X[6] = 1e-200
    return X, theta


def reference(X, theta, loss, row_norm=math.inf, clip=math.inf):
    value, gradient = np.longdouble(0), np.zeros(len(theta), np.longdouble)
    for row in X:
        x, _ = repaired(row, 0.0, row_norm=row_norm)
        gap = x if isinstance(loss, LinearLoss) else theta - x
        size = length(gap)
        if isinstance(loss, LinearLoss):
            value, term = value + x @ theta, gap
        elif isinstance(loss, Distance):
            value, term = value + size, gap / size if size > 0 else gap
        else:
            width = getattr(loss, "width", np.inf)
            value += size**2 / 2 if size <= width else width * (size - width / 2)
            term = gap if size <= width else gap * (width / size)
        gradient += term * min(1.0, clip / max(length(term), np.longdouble("1e-4000")))
    return float(value), gradient.astype(float)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("guards", [{}, {"row_norm": 1.0}, {"clip": 0.3}], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_against_the_reference(loss, guards, dtype):
    X, theta = sample()
    X = X.astype(dtype)
    value, gradient = vector_gradient(X, theta, loss, **guards)
    expected = reference(X, theta, loss, **guards)
    assert close(value, expected[0])
    assert close(gradient, expected[1])


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_sparse_rows(loss):
    X, theta = sample()
    X[np.abs(X) < 0.7] = 0.0
    for guards in ({"row_norm": 1.0}, {"clip": 0.3}):
        value, gradient = vector_gradient(X, theta, loss, **guards)
        actual = vector_gradient(csr_array(X), theta, loss, **guards)
        assert close(actual[0], value)
        assert close(actual[1], gradient)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_fixed_point(loss):
    X, theta = sample()
    grid, order = Grid(-20), np.random.default_rng(1).permutation(200)
    steps = vector_clipped_sum(X, theta, loss, clip=0.3, grid=grid)
    assert close(grid.values(steps), vector_gradient(X, theta, loss, clip=0.3)[1], 1e-3)
    assert np.array_equal(vector_clipped_sum(X[order], theta, loss, clip=0.3, grid=grid), steps)
    assert np.array_equal(
        vector_clipped_sum(np.asfortranarray(X), theta, loss, clip=0.3, grid=grid), steps
    )


def test_finite_differences():
    X, theta = sample()
    direction, h = np.arange(6.0) - 2, 1e-6
    for loss in LOSSES:
        ahead, behind = (vector_gradient(X, theta + s * h * direction, loss)[0] for s in (1, -1))
        expected = vector_gradient(X, theta, loss)[1] @ direction
        assert (ahead - behind) / (2 * h) == pytest.approx(expected, rel=1e-5, abs=1e-4)


def test_a_record_close_to_the_point_stays_bounded():
    theta = np.full(3, 1e8)
    steps = vector_clipped_sum(
        [[1e8 + 1e-7, 1e8, 1e8]], theta, Distance(), clip=1.0, grid=Grid(-20), row_norm=2e8
    )
    assert np.abs(steps).max() <= 2**20


def test_public_facts_are_checked():
    with pytest.raises(ValueError, match="shape"):
        vector_gradient([[1.0]], [1.0, 2.0], LinearLoss())
    assert vector_gradient(np.empty((0, 2)), [1.0, 1.0], LinearLoss())[0] == 0.0
    assert vector_gradient(np.empty((3, 0)), [], Distance())[0] == 0.0
