"""Prepared sums of logistic losses are those of the guarded pass, wherever they are offered."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from dpfit.kernels import passes
from dpfit.kernels.cached_logistic import repeated_sums
from dpfit.losses import Logistic, Squared


def records(n, d, seed=0):
    random = np.random.default_rng(seed)
    rows = random.standard_normal((n, d)) * 10 ** random.uniform(-3, 1, (n, 1))
    return rows, random.choice([-1.0, 1.0, 0.0, 3.0], n)


@pytest.mark.parametrize(("n", "d"), [(1, 1), (3, 2), (64, 5), (1000, 20), (4099, 7), (30_000, 33)])
@pytest.mark.parametrize("guards", [{"binary": True}, {"binary": True, "row_norm": 0.7}])
def test_sums_agree_with_the_pass(n, d, guards):
    rows, labels = records(n, d)
    points = np.random.default_rng(1).standard_normal((3, d)) * np.array([[0.0], [1.0], [40.0]])
    sums = repeated_sums(rows, labels, Logistic(), **guards)
    values, gradients = sums(points)
    expected = passes.gradients(rows, labels, points, Logistic(), **guards)
    assert values == pytest.approx(expected[0], rel=1e-13)
    np.testing.assert_allclose(gradients, expected[1], rtol=0, atol=1e-13 * np.abs(rows).sum())


def test_far_margins_neither_overflow_nor_vanish():
    """z = 1e4, -1e4, 800, -800, 36: the loss is max(z, 0) there and the slope 0 or 1."""
    rows = np.array([[1e4], [-1e4], [800.0], [-800.0], [36.0]])
    value, gradient = repeated_sums(rows, -np.ones(5), Logistic(), binary=True)(np.ones((1, 1)))
    assert value[0] == pytest.approx(1e4 + 800 + 36, rel=1e-15)
    assert gradient[0, 0] == pytest.approx(1e4 + 800 + 36, rel=1e-12)


def test_single_precision_rows():
    rows, labels = records(500, 6)
    rows = rows.astype(np.float32)
    point = np.ones((1, 6))
    values, gradients = repeated_sums(rows, labels, Logistic(), binary=True, row_norm=1.0)(point)
    expected = passes.gradients(rows, labels, point, Logistic(), binary=True, row_norm=1.0)
    assert values == pytest.approx(expected[0], rel=1e-13)
    np.testing.assert_allclose(gradients, expected[1], atol=1e-10)


def test_rows_that_need_care():
    """Non-finite, huge, tiny rows and NaN labels: the records of an ordinary pass."""
    rows, labels = records(130, 3)
    rows[4, 1], rows[5, 0], rows[6, 2], rows[7] = np.nan, np.inf, 1e200, 1e-200
    labels[8] = np.nan
    points = np.array([[0.3, -0.2, 1.0], [0.0, 0.0, 0.0]])
    expected = passes.gradients(rows, labels, points, Logistic(), binary=True, row_norm=1.0)
    values, gradients = repeated_sums(rows, labels, Logistic(), binary=True, row_norm=1.0)(points)
    assert values == pytest.approx(expected[0], rel=1e-13)
    np.testing.assert_allclose(gradients, expected[1], atol=1e-12)


@pytest.mark.parametrize(
    "make", [csr_array, np.asfortranarray, lambda rows: np.repeat(rows, 2, axis=0)[::2]]
)
def test_other_layouts_are_the_same_records(make):
    rows, labels = records(200, 5)
    rows[np.abs(rows) < 0.05] = 0.0
    points = np.full((1, 5), 0.4)
    expected = repeated_sums(rows, labels, Logistic(), binary=True, row_norm=1.0)(points)
    found = repeated_sums(make(rows), labels, Logistic(), binary=True, row_norm=1.0)(points)
    assert found[0] == pytest.approx(expected[0], rel=1e-14)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-13)


def test_no_shortcut_where_a_loss_needs_more_or_the_copy_would_be_large(monkeypatch):
    rows, labels = records(10, 3)
    assert repeated_sums(rows, labels, Squared()) is None
    assert repeated_sums(rows, labels, Logistic(), binary=True, clip=1.0) is None
    assert repeated_sums(rows, labels, Logistic().enveloped(0.5), binary=True) is None
    monkeypatch.setattr("dpfit.kernels.cached_logistic._COPIED", 29)
    assert repeated_sums(rows, labels, Logistic(), binary=True) is None
