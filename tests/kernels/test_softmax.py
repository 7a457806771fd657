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
        x, label = repaired(
            row, raw, row_norm=row_norm, label_lower=0.0, label_upper=Theta.shape[1] - 1.0
        )
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


def test_labels_beyond_the_classes_are_the_nearest_one_in_loss_and_kernel():
    labels = [7, -1, 2, 10**15]
    slopes = Softmax(3).gradient(np.zeros((4, 3)), labels)
    for label, slope in zip(labels, slopes, strict=True):
        assert close(softmax_gradient([[1.0]], [label], np.zeros((1, 3)))[1][0], slope)
    assert slopes.argmin(axis=1).tolist() == [2, 0, 2, 2]


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
    assert np.array_equal(
        softmax_clipped_sum(X[order], y[order], Theta, clip=0.3, grid=grid), steps
    )
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
        assert np.array_equal(
            gradients[1].ravel(), softmax_gradient(X, y, 2 * Theta, clip=0.3)[1].ravel()
        )


def test_finite_differences():
    X, y, Theta = sample()
    direction, h = np.cos(np.arange(20.0)).reshape(5, 4), 1e-6
    ahead, behind = (
        softmax_gradient(X, y, Theta + s * h * direction, row_norm=1.0)[0] for s in (1, -1)
    )
    slope = np.sum(softmax_gradient(X, y, Theta, row_norm=1.0)[1] * direction)
    assert (ahead - behind) / (2 * h) == pytest.approx(slope, rel=1e-6)


def reference_hessian(X, y, Theta, row_norm=math.inf):
    loss = Softmax(Theta.shape[1])
    hessian = np.zeros((Theta.size, Theta.size))
    for row, raw in zip(X, y, strict=True):
        x = repaired(row, raw, row_norm=row_norm)[0].astype(float)
        hessian += np.kron(np.outer(x, x), loss.curvature_at((x @ Theta)[np.newaxis])[0])
    return hessian


class TestHessian:
    @pytest.mark.parametrize("index", [None, np.arange(0, 120, 7)[::-1]], ids=["all", "some"])
    @pytest.mark.parametrize(
        "guards", [{}, {"row_norm": 1.0}, {"row_norm": 1.0, "clip": 0.1}], ids=str
    )
    @pytest.mark.parametrize("layout", [np.asarray, np.asfortranarray, np.float32, csr_array])
    def test_against_the_reference(self, layout, guards, index):
        X, y, Theta = sample()
        X = X.astype(np.float32).astype(float)
        rows, direction = layout(X), np.cos(np.arange(20.0)).reshape(5, 4)
        picked = np.arange(120) if index is None else index
        matrix = reference_hessian(X[picked], y[picked], Theta, guards.get("row_norm", math.inf))
        assert close(passes.hessian(rows, y, Theta, Softmax(4), index=index, **guards), matrix)
        product = passes.hessian_vector(
            rows, y, Theta, direction, Softmax(4), index=index, **guards
        )
        assert close(product, (matrix @ direction.ravel()).reshape(5, 4))
        assert close(
            passes.curvature_trace(rows, y, Theta, Softmax(4), index=index, **guards),
            np.trace(matrix),
        )

    def test_finite_differences_of_gradients(self):
        X, y, Theta = sample()
        matrix, h = passes.hessian(X, y, Theta, Softmax(4), row_norm=1.0), 1e-5
        for column, direction in zip(matrix, np.eye(20).reshape(20, 5, 4), strict=True):
            ahead, behind = (
                softmax_gradient(X, y, Theta + s * h * direction, row_norm=1.0)[1] for s in (1, -1)
            )
            assert close(column, ((ahead - behind) / (2 * h)).ravel(), 1e-8)
            product = passes.hessian_vector(X, y, Theta, direction, Softmax(4), row_norm=1.0)
            assert close(product.ravel(), column)

    def test_parameters_and_vectors_may_be_flat(self):
        X, y, Theta = sample()
        matrix = passes.hessian(X, y, Theta, Softmax(4))
        assert np.array_equal(passes.hessian(X, y, Theta.ravel(), Softmax(4)), matrix)
        products = [passes.hessian_vector(X, y, t, t, Softmax(4)) for t in (Theta, Theta.ravel())]
        assert products[0].shape == (5, 4)
        assert np.array_equal(products[0].ravel(), products[1])

    def test_two_classes_are_the_logistic_loss(self):
        X, _, Theta = sample()
        y, theta = (np.arange(120) % 2).astype(float), Theta[:, 1] - Theta[:, 0]
        matrix = passes.hessian(X, y, Theta[:, :2], Softmax(2)).reshape(5, 2, 5, 2)
        logistic = passes.hessian(X, 2 * y - 1, theta, Logistic())
        assert close(matrix[:, 0, :, 0], logistic)
        assert close(matrix[:, 0, :, 1], -logistic)

    def test_more_records_than_a_buffer_holds(self, monkeypatch):
        X, y, Theta = sample(n=1500)
        whole = passes.hessian(X, y, Theta, Softmax(4))
        monkeypatch.setattr(passes, "_BUFFER", 1)
        assert close(passes.hessian(X, y, Theta, Softmax(4)), whole)

    def test_what_is_left_of_a_record_that_is_fitted_well(self):
        """Far below the rounding error of a probability near one."""
        small = math.exp(-100.0)
        matrix = passes.hessian([[1.0]], [0], [[100.0, 0.0]], Softmax(2))
        np.testing.assert_allclose(matrix, [[small, -small], [-small, small]], rtol=1e-12)
        product = passes.hessian_vector([[1.0]], [0], [[100.0, 0.0]], [[1.0, 0.0]], Softmax(2))
        np.testing.assert_allclose(product, [[small, -small]], rtol=1e-12)
        assert passes.curvature_trace([[1.0]], [0], [[100.0, 0.0]], Softmax(2)) == pytest.approx(
            2 * small, rel=1e-12
        )

    @pytest.mark.parametrize("size", [5e-324, 1e-200, 1e200, 1.7e308])
    def test_extreme_rows_are_bounded(self, size):
        X, theta = [[size, -size], [math.inf, 0.0], [0.0, math.nan]], np.zeros((2, 3))
        matrix = passes.hessian(X, np.zeros(3), theta, Softmax(3), row_norm=1.0)
        product = passes.hessian_vector(
            X, np.zeros(3), theta, np.ones((2, 3)), Softmax(3), row_norm=1.0
        )
        # At most one row of norm one, and probabilities of one third each.
        assert np.linalg.norm(matrix, 2) <= 1 / 3 * (1 + 1e-12)
        assert (np.linalg.norm(matrix, 2) > 0.3) == (size > 1)
        assert close(product, np.zeros((2, 3)))

    def test_empty_data_and_no_features(self):
        for matrix, size in ((np.empty((0, 2)), 6), (np.empty((4, 0)), 0)):
            theta, y = np.ones((matrix.shape[1], 3)), np.zeros(len(matrix))
            assert np.array_equal(
                passes.hessian(matrix, y, theta, Softmax(3)), np.zeros((size, size))
            )
            assert not passes.hessian_vector(matrix, y, theta, theta, Softmax(3)).any()

    def test_public_facts_are_checked(self):
        with pytest.raises(ValueError, match="theta must have shape"):
            passes.hessian([[1.0]], [0], [1.0], Softmax(2))
        with pytest.raises(ValueError, match="vector must have shape"):
            passes.hessian_vector([[1.0]], [0], [1.0, 2.0], [1.0], Softmax(2))

    def test_threads_do_not_matter(self, monkeypatch):
        rng = np.random.default_rng(3)
        X, y, Theta = (
            rng.standard_normal((20000, 6)),
            rng.integers(0, 3, 20000),
            rng.standard_normal((6, 3)),
        )
        results = []
        for threads in (1, 2, 5):
            monkeypatch.setattr("numba.config.NUMBA_NUM_THREADS", threads)
            results.append(passes.hessian_vector(X, y, Theta, Theta, Softmax(3)))
        assert np.array_equal(results[0], results[1])
        assert np.array_equal(results[0], results[2])


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
