"""Sums over users: against plain numpy, and bit for bit whatever else is in the data."""

import math

import numpy as np
import pytest
from scipy import sparse

from dpfit.data.dataset import Blocks, InMemory
from dpfit.data.tasks import UserGradients
from dpfit.data.view import View
from dpfit.kernels.user_sums import clipped_total, user_means, user_sums
from dpfit.losses import CustomLoss, Hinge, Huber, Logistic, Softmax, Squared
from dpfit.losses.vector import Distance, LinearLoss
from dpfit.noise import Grid, Source

FINE = Grid(-26)
LOSSES = [Logistic(), Huber(0.3), Hinge(), Squared(), Softmax(3), LinearLoss(), Distance()]


def records(seed=0, n=333, d=5, users=40):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) * rng.choice([0.1, 1.0, 5.0], size=(n, 1))
    rows[7], rows[8, 2] = np.nan, np.inf
    labels = rng.integers(0, 3, n).astype(float)
    labels[9] = np.nan
    codes = rng.integers(-1, users, n)
    return rows, labels, codes


def point(loss, d, seed=1):
    shape = (d, 3) if isinstance(loss, Softmax) else (d,)
    return np.random.default_rng(seed).normal(size=shape)


def sums(loss, rows, labels, codes, n_users, theta, **changes):
    guards = {"row_norm": 2.0, "clip": 1.5, "label_lower": -1.0, "label_upper": 1.0}
    return user_sums(rows, labels, codes, n_users, theta, loss, grid=FINE, **guards | changes)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_a_user_s_sum_is_that_of_its_records_one_by_one(loss):
    """The sum of a user is the clipped sum of the pass over its records alone."""
    rows, labels, codes = records()
    theta = point(loss, rows.shape[1])
    total, counts = sums(loss, rows, labels, codes, 41, theta)
    data = InMemory(rows, labels)
    guards = {"row_norm": 2.0, "clip": 1.5, "label_lower": -1.0, "label_upper": 1.0}
    usable = np.isfinite(rows).all(axis=1)
    if loss.reads_labels:
        usable &= np.isfinite(labels)
    for user in range(41):
        own = np.flatnonzero((codes == user) & usable)
        expected = data.clipped_sum(loss, theta, grid=FINE, index=own, **guards)
        np.testing.assert_array_equal(total[user], expected.ravel())
        assert counts[user] == len(own)


def test_a_loss_of_the_caller_is_summed_for_each_user():
    loss = CustomLoss(
        value_function=lambda theta, rows, labels: rows @ theta,
        gradient_function=lambda theta, rows, labels: rows * labels[:, np.newaxis],
        lipschitz_bound=9.0,
        smoothness_bound=1.0,
        is_convex=True,
    )
    rows, labels, codes = records()
    total, counts = sums(loss, rows, labels, codes, 40, np.zeros(5), clip=20.0)
    usable = np.isfinite(rows).all(axis=1) & np.isfinite(labels)
    rows = np.where(usable[:, np.newaxis], rows, 0.0)
    capped = rows / np.maximum(1, np.linalg.norm(rows, axis=1) / 2)[:, np.newaxis]
    terms = capped * np.clip(labels, -1, 1)[:, np.newaxis]
    for user in range(40):
        own = (codes == user) & usable
        assert counts[user] == own.sum()
        np.testing.assert_allclose(FINE.values(total[user]), terms[own].sum(axis=0), atol=1e-5)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_no_bit_of_a_user_depends_on_other_users_or_on_the_order_of_rows(loss):
    rows, labels, codes = records()
    theta = point(loss, rows.shape[1])
    total, counts = sums(loss, rows, labels, codes, 40, theta)
    order = np.random.default_rng(2).permutation(len(rows))
    shuffled = sums(loss, rows[order], labels[order], codes[order], 40, theta)
    np.testing.assert_array_equal(shuffled[0], total)
    np.testing.assert_array_equal(shuffled[1], counts)
    for kept in ([3], [3, 7, 39], range(0, 40, 2)):
        index = np.flatnonzero(np.isin(codes, list(kept)))
        alone = sums(loss, rows[index], labels[index], codes[index], 40, theta)
        np.testing.assert_array_equal(alone[0][list(kept)], total[list(kept)])
        some = sums(loss, rows, labels, codes, 40, theta, index=index)
        np.testing.assert_array_equal(some[0], alone[0])


@pytest.mark.parametrize("threads", [1, 3])
def test_sums_do_not_depend_on_layout_threads_or_cuts(threads, monkeypatch):
    import numba

    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", threads)
    monkeypatch.setattr("dpfit.kernels.threads.THREADED", 1)
    rows, labels, codes = records(n=900)
    theta = point(Logistic(), 5)
    total, _ = sums(Logistic(), rows, labels, codes, 40, theta)
    for same in (np.asfortranarray(rows), np.repeat(rows, 2, axis=0)[::2], sparse.csr_array(rows)):
        np.testing.assert_array_equal(sums(Logistic(), same, labels, codes, 40, theta)[0], total)
    guards = {"row_norm": 2.0, "clip": 1.5, "label_lower": -1.0, "label_upper": 1.0}
    task = UserGradients(Logistic(), theta, codes, 40, FINE, guards)
    for size in (1, 17, 900):
        cuts = range(0, 900, size)

        def read(cuts=cuts, size=size):
            return ((rows[i : i + size], labels[i : i + size]) for i in cuts)

        data = Blocks(900, 5, read)
        np.testing.assert_array_equal(data.reduce(task).sums, total)


def test_float32_rows_and_many_rows_of_a_user():
    rng = np.random.default_rng(5)
    rows, labels = rng.normal(size=(5000, 3)).astype(np.float32), np.ones(5000)
    codes = np.zeros(5000, dtype=np.int64)
    total, counts = sums(Squared(), rows, labels, codes, 1, np.ones(3))
    same, _ = sums(Squared(), rows.astype(float), labels, codes, 1, np.ones(3))
    np.testing.assert_array_equal(total, same)
    assert counts.tolist() == [5000]


def clipped(mean, centre, radius):
    away = mean - centre
    length = np.linalg.norm(away)
    return away * min(1.0, radius / length) if length else away


@pytest.mark.parametrize("radius", [0.3, 2.0])
def test_the_total_is_that_of_clipped_means(radius):
    rng = np.random.default_rng(6)
    means, centre, grid = rng.normal(size=(50, 4)), rng.normal(size=4), Grid(-22)
    means[3] = np.nan
    means[4, 1] = np.inf
    total = clipped_total(means, centre, radius=radius, grid=grid)
    expected = sum(clipped(m, centre, radius) for m in means[np.isfinite(means).all(axis=1)])
    np.testing.assert_allclose(grid.values(total), expected, atol=50 * grid.step)


def test_no_user_moves_the_total_further_than_declared():
    """Adversarial means: huge, tiny, at the radius; 4,000 users one at a time."""
    rng, radius, d = np.random.default_rng(7), 0.7, 3
    grid = Grid(-8)  # coarse: rounding matters
    for _ in range(4000):
        mean = rng.normal(size=d) * 10.0 ** rng.integers(-200, 200)
        term = grid.values(clipped_total(mean[np.newaxis], 0.0, radius=radius, grid=grid))
        assert np.linalg.norm(term) <= radius + grid.rounding(d, "l2") / 2


def test_huge_and_tiny_means_are_clipped_not_lost():
    for size in (1e308, 1e160, 1.0):
        total = clipped_total(np.array([[size, 0.0]]), 0.0, radius=1.0, grid=Grid(-10))
        assert abs(total[0] - 1024) <= 1
    assert not clipped_total(np.array([[1e-320, 0.0]]), 0.0, radius=1.0, grid=Grid(-10)).any()


def test_means_of_views_are_those_of_their_units():
    rows, labels, codes = records()
    ids = np.array([None if code < 0 else f"u{code:02}" for code in codes], dtype=object)
    theta = point(Logistic(), 5)
    guards = {"row_norm": 2.0, "clip": 1.5, "label_lower": -1.0, "label_upper": 1.0}
    whole = user_means(*sums(Logistic(), rows, labels, codes, 40, theta), FINE)
    view = View(InMemory(rows, labels, ids), "replace", "user", Source(1))
    means = view.unit_means(Logistic(), theta, grid=FINE, **guards)
    np.testing.assert_array_equal(means, whole)
    first, second = (
        part.unit_means(Logistic(), theta, grid=FINE, **guards) for part in view.parts((0.5, 0.5))
    )
    there = np.isfinite(whole).all(axis=1)
    both = np.stack([np.isfinite(first).all(axis=1), np.isfinite(second).all(axis=1)])
    np.testing.assert_array_equal(both.sum(axis=0), there.astype(int))
    np.testing.assert_array_equal(np.where(both[0][:, None], first, second), whole)
    sample = view.sample(size=10).unit_means(Logistic(), theta, grid=FINE, **guards)
    assert len(sample) == 10
    assert all(any(np.array_equal(one, other, equal_nan=True) for other in whole) for one in sample)


def test_rows_of_each_user_come_in_their_own_order():
    rows, labels, codes = records()
    ids = np.array([None if code < 0 else f"u{code:02}" for code in codes], dtype=object)
    view = View(InMemory(rows, labels, ids), "add_remove", "user", Source(1))
    usable = np.isfinite(rows).all(axis=1) & np.isfinite(labels)
    for user, (own, outcomes) in enumerate(view.by_unit()):
        np.testing.assert_array_equal(own, rows[(codes == user) & usable])
        np.testing.assert_array_equal(outcomes, labels[(codes == user) & usable])


def test_unclipped_sums_are_refused():
    with pytest.raises(ValueError, match="finite clip"):
        user_sums([[1.0]], [0.0], np.zeros(1, np.int64), 1, [0.0], Squared(), grid=FINE)
    assert math.isnan(user_means(np.zeros((1, 1), np.int64), np.zeros(1, np.int64), FINE)[0, 0])
