"""Entries of rows are clamped one by one, in every pass, before rows are scaled."""

import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from dpfit.kernels import passes
from dpfit.kernels.bounds import limits
from dpfit.kernels.cached_logistic import repeated_sums
from dpfit.kernels.linear_map import mapped
from dpfit.kernels.many_points import many_clipped_sums
from dpfit.kernels.minibatch import Epoch
from dpfit.losses import Logistic, Softmax
from dpfit.noise import Grid

HOSTILE = (0.0, 0.25, -0.7, 0.7000001, -3.0, 1e300, -1e308, 5e-324, math.inf, -math.inf, math.nan)
ROW_MAX, GRID, LOSS = 0.7, Grid(-30), Logistic()


def records(n=40, d=5):
    rng = np.random.default_rng(4)
    return rng.choice(HOSTILE, (n, d), p=[0.3, 0.2, *[0.1] * 3, *[0.03] * 5, 0.05]), np.where(
        rng.random(n) < 0.5, 1.0, -1.0
    )


def repaired(rows):
    """Clamp finite entries; a row with another entry is zero."""
    usable = np.isfinite(rows).all(axis=1, keepdims=True)
    return np.where(usable, np.clip(rows, -ROW_MAX, ROW_MAX), 0.0)


LAYOUTS = {
    "dense": np.ascontiguousarray,
    "fortran": np.asfortranarray,
    "csr": csr_array,
    "strided": lambda rows: np.repeat(rows, 2, axis=0)[::2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("row_norm", [math.inf, 1.1])
def test_every_pass_sees_clamped_entries(layout, row_norm):
    rows, labels = records()
    given, theta = LAYOUTS[layout](rows), np.linspace(-1, 1, 5)
    clean, index = repaired(rows), np.array([3, 3, 0, 17])
    guards = {"row_norm": row_norm, "clip": 1.0}
    for picked in (None, index):
        got = passes.clipped_sum(
            given, labels, theta, LOSS, grid=GRID, index=picked, row_max=ROW_MAX, **guards
        )
        want = passes.clipped_sum(clean, labels, theta, LOSS, grid=GRID, index=picked, **guards)
        np.testing.assert_array_equal(got, want)
    for sums in (passes.hessian, passes.gradient):
        got, want = (
            sums(given, labels, theta, LOSS, row_norm=row_norm, row_max=ROW_MAX),
            sums(clean, labels, theta, LOSS, row_norm=row_norm),
        )
        np.testing.assert_allclose(got[-1], want[-1], atol=1e-13)
    products = [
        passes.hessian_vector(x, labels, theta, theta, LOSS, row_norm=row_norm, row_max=most)
        for x, most in ((given, ROW_MAX), (clean, math.inf))
    ]
    np.testing.assert_allclose(*products, atol=1e-13)
    classes = [
        passes.gradient(x, (labels > 0) * 1.0, np.zeros((5, 3)), Softmax(3), row_max=most)[1]
        for x, most in ((given, ROW_MAX), (clean, math.inf))
    ]
    np.testing.assert_allclose(*classes, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_batches_descents_maps_and_caches_see_clamped_entries(dtype):
    with np.errstate(over="ignore"):
        rows = records()[0].astype(dtype)
    labels = records()[1]
    clean, theta = repaired(rows.astype(np.float64)), np.linspace(-1, 1, 5)
    exact = {"rtol": 0, "atol": 2e-6 / GRID.step if dtype == np.float32 else 1.0}
    guards = {"row_norm": 1.1, "clip": 1.0}
    batch = np.array([5, 9, 9, 20])
    for given in (rows, csr_array(rows)):
        epoch = Epoch(given, labels, LOSS, grid=GRID, row_max=ROW_MAX, **guards)
        want = passes.clipped_sum(clean, labels, theta, LOSS, grid=GRID, index=batch, **guards)
        np.testing.assert_allclose(epoch.batch_sum(theta, batch), want, **exact)
    points = np.stack([theta, -theta])
    np.testing.assert_allclose(
        many_clipped_sums(rows, labels, points, LOSS, grid=GRID, row_max=ROW_MAX, **guards),
        many_clipped_sums(clean, labels, points, LOSS, grid=GRID, **guards),
        **exact,
    )
    seen = [
        mapped(x, labels, np.eye(5), row_norm=1.1, row_max=most)[0]
        for x, most in ((rows, ROW_MAX), (clean, math.inf))
    ]
    np.testing.assert_allclose(*seen, atol=1e-7)
    cached = [
        repeated_sums(x, labels, LOSS, row_norm=1.1, row_max=most)(points)[1]
        for x, most in ((rows, ROW_MAX), (clean, math.inf))
    ]
    np.testing.assert_allclose(*cached, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_entry_of_a_gradient_exceeds_the_bound(dtype):
    """Float32 numbers next to the bound round away from zero; the clamp may not."""
    for row_max in (0.1, 1 / 3, 1.0, 1e-20):
        rows = np.array([[1e30, -1e30, row_max]], dtype=dtype)
        sums = passes.gradient(rows, [-1.0], np.zeros(3), LOSS, row_max=row_max)[1]
        assert np.abs(sums).max() <= row_max / 2
        assert np.abs(sums).max() >= row_max / 2 * (1 - 2e-7)


@pytest.mark.parametrize("row_max", [0.0, -1.0, math.nan, 1e-200, 1e200])
def test_invalid_bounds_raise(row_max):
    with pytest.raises(ValueError, match="row_max must be"):
        limits(3, row_max=row_max)
