"""Sparse sums agree with dense ones, and damaged matrices are harmless."""

import math

import numpy as np
import pytest
from kernel_references import BINARY, LOSSES, close
from scipy.sparse import csc_array, csr_array, csr_matrix

from dpfit.data.dataset import InMemory
from dpfit.kernels import passes
from dpfit.losses import Logistic, Squared
from dpfit.noise import Grid

LOGISTIC, SQUARED = Logistic(), Squared()


def sample(n=400, d=30, dtype=np.float64):
    rng = np.random.default_rng(5)
    entries = np.where(rng.random((n, d)) < 0.1, rng.standard_normal((n, d)), 0.0)
    X = csr_array(entries.astype(dtype))
    X.data[7], X.data[20] = np.nan, np.inf
    return X, rng.standard_normal(n), rng.standard_normal(d)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(
    "guards", [{}, {"row_norm": 1.0, "clip": 0.5, "label_lower": -1.0, "label_upper": 1.0}], ids=str
)
def test_agrees_with_dense(name, guards):
    X, y, theta = sample()
    loss = LOSSES[name]
    guards = {**guards, "binary": name in BINARY}
    for index in (None, np.arange(50, 350, 3)):
        actual = passes.gradient(X, y, theta, loss, index=index, **guards)
        expected = passes.gradient(X.toarray(), y, theta, loss, index=index, **guards)
        assert close(actual[0], expected[0])
        assert close(actual[1], expected[1])
        if not loss.has_hessian:
            continue
        product = passes.hessian_vector(X, y, theta, theta, loss, index=index, **guards)
        expected = passes.hessian_vector(X.toarray(), y, theta, theta, loss, index=index, **guards)
        assert close(product, expected)


def test_second_moments_margins_and_several_points_agree_with_dense():
    X, y, theta = sample()
    full, guards = X.toarray(), {"row_norm": 1.0, "label_lower": -1.0, "label_upper": 1.0}
    assert close(
        passes.hessian(X, y, theta, LOGISTIC, **guards),
        passes.hessian(full, y, theta, LOGISTIC, **guards),
    )
    for actual, expected in zip(
        passes.gram(X, y, **guards), passes.gram(full, y, **guards), strict=True
    ):
        assert close(actual, expected)
    assert close(passes.margins(X, theta, row_norm=1.0), passes.margins(full, theta, row_norm=1.0))
    assert close(
        passes.curvature_trace(X, y, theta, SQUARED),
        passes.curvature_trace(full, y, theta, SQUARED),
    )
    thetas = np.stack([theta, -theta])
    for actual, expected in zip(
        passes.gradients(X, y, thetas, LOGISTIC),
        passes.gradients(full, y, thetas, LOGISTIC),
        strict=True,
    ):
        assert close(actual, expected)


def test_fixed_point_agrees_with_dense():
    X, y, theta = sample()
    grid = Grid(-20)
    steps = passes.clipped_sum(X, y, theta, LOGISTIC, binary=True, clip=0.2, grid=grid)
    expected = passes.clipped_sum(X.toarray(), y, theta, LOGISTIC, binary=True, clip=0.2, grid=grid)
    # A rounding tie may fall either way where the two orders of summation differ in the last bit.
    assert np.abs(steps - expected).max() <= 2


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_other_types(dtype):
    X, y, theta = sample()
    X = csr_matrix(np.rint(4 * np.nan_to_num(X.toarray(), posinf=0.0)).astype(dtype))
    assert close(
        passes.gradient(X, y, theta, SQUARED)[1],
        passes.gradient(X.toarray().astype(float), y, theta, SQUARED)[1],
    )


def test_wide_index_types():
    X, y, theta = sample()
    wide = X.copy()
    wide.indices, wide.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    assert close(
        passes.gradient(wide, y, theta, SQUARED)[1], passes.gradient(X, y, theta, SQUARED)[1]
    )
    # What a promise rests on has the same bits.
    sums = [
        passes.clipped_sum(rows, y, theta, SQUARED, clip=1.0, grid=Grid(-30)) for rows in (wide, X)
    ]
    assert np.array_equal(*sums)


def test_duplicates_are_summed_before_norms_are_taken():
    X = csr_array((np.array([3.0, 3.0, 8.0]), np.array([0, 0, 1]), np.array([0, 3])), shape=(1, 2))
    guards = {"row_norm": 1.0}
    assert close(passes.gradient(X, [1.0], [0.0, 0.0], SQUARED, **guards)[1], [-0.6, -0.8])
    assert X.nnz == 3


@pytest.mark.parametrize(
    ("indices", "indptr"),
    [([0, 5], [0, 2]), ([-1, 1], [0, 2]), ([1, 0], [0, 2]), ([1, 1], [0, 2])],
)
def test_damaged_rows_become_neutral(indices, indptr):
    X = csr_array((np.array([1.0, 2.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
    X.has_canonical_format = True
    X.indices, X.indptr = np.array(indices), np.array(indptr)
    value, gradient = passes.gradient(X, [1.0], [1.0, 1.0], SQUARED)
    assert value == 0.0
    assert not gradient.any()


@pytest.mark.parametrize(
    "indptr", [[0, 10**9, 2, 6], [0, 4, 2, 6], [0, 2, 4, 6 + 10**9], [2, 2, 4, 6], [0, 2, 6]]
)
def test_arrays_that_are_not_rows_are_refused_before_anybody_follows_them(indptr):
    X = csr_array((np.ones(6), [0, 1, 0, 1, 0, 1], [0, 2, 4, 6]), shape=(3, 2))
    X.indptr = np.array(indptr)
    with pytest.raises(ValueError, match="row pointers"):
        passes.clipped_sum(X, np.ones(3), np.ones(2), SQUARED, clip=1.0, grid=Grid(-3))
    with pytest.raises(ValueError, match="row pointers"):
        InMemory(X, np.ones(3))


def test_empty():
    value, gradient = passes.gradient(csr_array((0, 3)), [], np.ones(3), SQUARED)
    assert value == 0.0
    assert gradient.shape == (3,)
    assert math.isnan(passes.gradient(csr_array((0, 3)), [], np.ones(3), SQUARED, values=False)[0])
    assert passes.gradient(csr_array((2, 3)), [1.0, 1.0], np.ones(3), SQUARED)[0] == 1.0
    assert passes.gradient(csr_array((2, 0)), [1.0, 1.0], [], SQUARED)[0] == 1.0


def test_public_facts_are_checked():
    with pytest.raises(ValueError, match="CSR"):
        passes.gradient(csc_array(np.eye(2)), [1.0, 1.0], [1.0, 1.0], SQUARED)
    with pytest.raises(ValueError, match="real numbers"):
        passes.gradient(csr_array(np.eye(2, dtype=complex)), [1.0, 1.0], [1.0, 1.0], SQUARED)
    with pytest.raises(ValueError, match="shape"):
        passes.gradient(csr_array(np.eye(2)), [1.0, 1.0], [1.0], SQUARED)
