"""The multinomial loss against a record-by-record reference."""

import math

import numpy as np
import pytest
from kernel_references import close, length, repaired
from scipy.sparse import csr_array
from scipy.special import logsumexp, softmax

from dpfit.kernels import passes
from dpfit.losses import Logistic, Softmax
from dpfit.noise import Grid


def sample(n=120, d=5, classes=4):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n, d)), rng.integers(0, classes, n).astype(float)
    X[3, 1], X[4, 0], y[5], y[6], y[7] = np.nan, np.inf, np.nan, -3.0, 99.0
    return X, y, rng.standard_normal((d, classes))


def softmax_gradient(X, y, Theta, **options):
    return passes.gradient(X, y, Theta, Softmax(np.shape(Theta)[-1]), **options)


def softmax_clipped_sum(X, y, Theta, **options):
    return passes.clipped_sum(X, y, Theta, Softmax(np.shape(Theta)[-1]), **options)


def reference(X, y, Theta, row_norm=math.inf, clip=math.inf):
    value, gradient = 0.0, np.zeros(Theta.shape)
    for row, raw in zip(X, y, strict=True):
        x, label = repaired(row, raw, row_norm=row_norm, label_lower=0.0, label_upper=Theta.shape[1] - 1.0)
        logits = (x @ Theta).astype(float)
        residual = softmax(logits) - np.eye(Theta.shape[1])[int(label)]
        term = np.outer(x, residual)
        value += logsumexp(logits) - logits[int(label)]
        gradient += (term * min(1.0, clip / max(length(term.ravel()), 1e-300))).astype(float)
    return value, gradient


@pytest.mark.parametrize("guards", [{}, {"row_norm": 1.0}, {"clip": 0.3}], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_against_the_reference(guards, dtype):
    X, y, Theta = sample()
    X = X.astype(dtype)
    value, gradient = softmax_gradient(X, y, Theta, **guards)
    expected = reference(X, y, Theta, **guards)
    assert close(value, expected[0])
    assert close(gradient, expected[1])


def test_two_classes_are_the_logistic_loss():
    X, _, Theta = sample()
    y = (np.arange(120) % 2).astype(float)
    value, gradient = softmax_gradient(X, y, Theta[:, :2])
    logistic = passes.gradient(X, 2 * y - 1, Theta[:, 1] - Theta[:, 0], Logistic())
    # The neutral record is of class 0 here and positive there, with margin zero and the same loss.
    assert close(value, logistic[0])
    assert close(gradient[:, 1], logistic[1])


def test_fixed_point():
    X, y, Theta = sample()
    grid, order = Grid(-20), np.random.default_rng(1).permutation(120)
    steps = softmax_clipped_sum(X, y, Theta, clip=0.3, grid=grid)
    assert close(grid.values(steps), softmax_gradient(X, y, Theta, clip=0.3)[1], 1e-3)
    assert np.array_equal(softmax_clipped_sum(X[order], y[order], Theta, clip=0.3, grid=grid), steps)
    assert np.array_equal(softmax_clipped_sum(X, y, Theta, clip=0.3, grid=grid, index=order), steps)


def test_a_parameter_may_be_flat_and_there_may_be_several():
    X, y, Theta = sample()
    value, gradient = softmax_gradient(X, y, Theta, clip=0.3)
    flat = passes.gradient(X, y, Theta.ravel(), Softmax(4), clip=0.3)
    assert flat[0] == value
    assert np.array_equal(flat[1], gradient.ravel())
    for several in (np.stack([Theta, 2 * Theta]), np.stack([Theta.ravel(), 2 * Theta.ravel()])):
        values, gradients = passes.gradients(X, y, several, Softmax(4), clip=0.3)
        assert values[0] == value
        assert np.array_equal(gradients[0].ravel(), gradient.ravel())
        assert np.array_equal(gradients[1].ravel(), softmax_gradient(X, y, 2 * Theta, clip=0.3)[1].ravel())


def test_finite_differences():
    X, y, Theta = sample()
    direction, h = np.cos(np.arange(20.0)).reshape(5, 4), 1e-6
    ahead, behind = (softmax_gradient(X, y, Theta + s * h * direction, row_norm=1.0)[0] for s in (1, -1))
    slope = np.sum(softmax_gradient(X, y, Theta, row_norm=1.0)[1] * direction)
    assert (ahead - behind) / (2 * h) == pytest.approx(slope, rel=1e-6)


def test_sparse_rows():
    X, y, Theta = sample()
    X[np.abs(X) < 0.7] = 0.0
    value, gradient = softmax_gradient(X, y, Theta, row_norm=1.0)
    actual = softmax_gradient(csr_array(X), y, Theta, row_norm=1.0)
    assert close(actual[0], value)
    assert close(actual[1], gradient)


def test_huge_margins():
    value, gradient = softmax_gradient([[1e3]], [1], [[1.0, -1.0]])
    assert value == 2000.0
    assert np.array_equal(gradient, [[1000.0, -1000.0]])


def test_public_facts_are_checked():
    for wrong in ([1.0], [[1.0], [1.0]], [[[1.0, 1.0]]] * 2, np.ones((2, 2, 1))):
        with pytest.raises(ValueError, match="shape"):
            passes.gradient([[1.0]], [0], wrong, Softmax(2))
    assert softmax_gradient(np.empty((0, 2)), [], np.ones((2, 3)))[1].shape == (2, 3)
