"""Dense layers: gradients, ghost norms, the sensitivity by brute force, planted faults."""

import itertools
import math

import numpy as np
import pytest

from dpfit.kernels import dense
from dpfit.kernels.passes import clipped_sum, gradient
from dpfit.kernels.rounding import gamma
from dpfit.kernels.user_sums import user_sums
from dpfit.losses import DenseLayers, clip_gradients
from dpfit.noise import Grid

GRID, CLIP = Grid(-28), 0.7
HEADS = {
    "squared": DenseLayers((2,), "squared", label_scale=2.0),
    "logistic": DenseLayers((3, 2), "logistic"),
    "softmax": DenseLayers((2,), "softmax", 3),
}
WILD = [
    ([0.2, -0.1], 1.0), ([3.0, -4.0], 0.0), ([1e30, -1e30], 2.0), ([0.3, 0.1], 1e30),
    ([np.nan, 1.0], 1.0), ([1.0, np.inf], 0.0), ([0.5, 0.5], -np.inf), ([0.0, 0.0], 0.0),
]  # fmt: skip
"""Records whose gradients are moderate, large, 1e30, not a number, infinite, nearly zero."""
ROWS, LABELS = np.array([row for row, _ in WILD]), np.array([label for _, label in WILD])


def point(loss, seed=0):
    return np.random.default_rng(seed).normal(size=loss.size(2))


def total(rows, labels, loss):
    return clipped_sum(rows, labels, point(loss), loss, clip=CLIP, grid=GRID)


def reference(rows, labels, loss):
    usable = np.isfinite(rows).all(axis=1) & np.isfinite(labels)
    terms = loss.gradient(point(loss), rows[usable], labels[usable])
    return clip_gradients(terms, CLIP).sum(axis=0)


def sensitivity(loss, n):
    """Largest change of the sum in steps: one of n wild records replaced, or one removed."""
    sums = {
        picks: total(ROWS[list(picks)], LABELS[list(picks)], loss)
        for size in (n - 1, n)
        for picks in itertools.combinations_with_replacement(range(len(WILD)), size)
    }
    replaced = removed = 0.0
    for picks, found in sums.items():
        if len(picks) < n:
            continue
        rest = sums[picks[1:]]
        removed = max(removed, math.hypot(*(found - rest).tolist()))
        for other in range(len(WILD)):
            moved = found - sums[tuple(sorted((other, *picks[1:])))]
            replaced = max(replaced, math.hypot(*moved.tolist()))
    return replaced, removed


def bounds(loss):
    whole = GRID.rounding(loss.size(2), "l2") / GRID.step
    return 2 * CLIP / GRID.step + whole, CLIP / GRID.step + whole / 2


def is_sound(loss, n=2):
    """Whether sums are those of the reference, and no record moves them beyond the bound."""
    found, allowed = sensitivity(loss, n), bounds(loss)
    rng = np.random.default_rng(1)
    rows = np.concatenate([3 * rng.normal(size=(300, 2)), ROWS])
    labels = np.concatenate([rng.integers(0, 3, 300), LABELS])
    expected = reference(rows, labels, loss)
    summed = total(rows, labels, loss) * GRID.step
    agrees = np.allclose(summed, expected, rtol=1e-5, atol=1e-4)
    return bool(agrees) and found[0] <= allowed[0] and found[1] <= allowed[1]


@pytest.mark.parametrize("head", HEADS)
def test_gradients_are_those_of_the_values(head):
    loss, rng = HEADS[head], np.random.default_rng(3)
    theta, rows = point(loss), rng.normal(size=(4, 2))
    labels = np.array([1.0, 0.0, 2.0, 1.0])
    steps = 1e-6 * np.eye(len(theta))
    slopes = [
        (loss.value(theta + h, rows, labels) - loss.value(theta - h, rows, labels)) / 2e-6
        for h in steps
    ]
    np.testing.assert_allclose(loss.gradient(theta, rows, labels), np.transpose(slopes), atol=1e-8)


@pytest.mark.parametrize("head", HEADS)
def test_ghost_norms_are_the_norms_of_gradients(head):
    loss, rng = HEADS[head], np.random.default_rng(3)
    theta, rows, labels = point(loss), rng.normal(size=(50, 2)), rng.integers(0, 3, 50) * 1.0
    layers = loss.layers(theta, 2)
    values = loss.forward(layers, rows)
    norms = dense.ghost_norms(values[:-1], loss.backward(layers, values, labels))
    exact = np.linalg.norm(loss.gradient(theta, rows, labels), axis=1)
    np.testing.assert_allclose(norms, exact, rtol=1e-13)


@pytest.mark.parametrize("head", HEADS)
def test_sums_are_the_reference_and_no_record_moves_them_further_than_declared(head):
    assert is_sound(HEADS[head])


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
def test_no_neighbour_of_a_few_wild_records_moves_the_sum_further_than_declared(head):
    for n in (1, 4, 6):
        found, allowed = sensitivity(HEADS[head], n), bounds(HEADS[head])
        assert found[0] <= allowed[0]
        assert 0.9 * CLIP / GRID.step < found[1] <= allowed[1]


@pytest.mark.parametrize("clip", [1e-100, 1e-25, 0.7, 1e25, 1e100])
def test_gradients_of_any_scale_are_scaled_into_the_ball(clip):
    """Squares that underflow in one factor must not hide what the other factor makes of it."""
    scales = [0.0, 1e-300, 1e-162, 1e-154, 1e-100, 1e-30, 1.0, 1e30, 1e100, 1e150, 1e200]
    pairs = [*itertools.product(scales, scales), (np.nan, 1.0), (1.0, np.nan), (np.inf, 0.0)]
    entered, slopes = np.array(pairs).T[:, :, np.newaxis] * [[[1.0, -0.6]], [[0.8, 0.3]]]
    with np.errstate(all="ignore"):
        weights = dense.record_weights(
            dense.ghost_norms([entered], [slopes]), np.full(len(pairs), True), clip
        )
    for i, pair in enumerate(pairs):
        one = slice(i, i + 1)
        added = dense.weighted_sum([entered[one]], [slopes[one].copy()], weights[one])
        assert math.hypot(*added.tolist()) <= 1.0, pair
        exact = math.hypot(*entered[i].tolist(), 1.0) * math.hypot(*slopes[i].tolist()) / clip
        if pair[0] <= 1e100 and 1e-100 <= pair[1] <= 1e30:
            assert math.hypot(*added.tolist()) == pytest.approx(min(1.0, exact), rel=1e-9), pair


HONEST_SUM, HONEST_WEIGHTS, HONEST_NORMS = (
    dense.weighted_sum, dense.record_weights, dense.ghost_norms
)  # fmt: skip


def without_a_layer(entered, slopes):
    return HONEST_NORMS(entered[:-1], slopes[:-1])


def without_biases(entered, slopes):
    squares = (
        np.sum(d * d, axis=1) * np.sum(a * a, axis=1) for a, d in zip(entered, slopes, strict=True)
    )
    return np.sqrt(sum(squares))


def rounded_down(entered, slopes):
    return HONEST_NORMS(entered, slopes).astype(np.float32) * (1 - 2.0**-12)


def clipped_after_the_sum(entered, slopes, weights):
    whole = HONEST_SUM(entered, slopes, (weights > 0) / CLIP)
    return whole / max(1.0, np.linalg.norm(whole))


def mean_of_the_batch(entered, slopes, weights):
    return HONEST_SUM(entered, slopes, weights) / max(1, np.count_nonzero(weights))


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("ghost_norms", without_a_layer),
        ("ghost_norms", without_biases),
        ("ghost_norms", rounded_down),
        ("weighted_sum", clipped_after_the_sum),
        ("weighted_sum", mean_of_the_batch),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_planted_faults_are_caught(monkeypatch, name, fault):
    monkeypatch.setattr(dense, name, fault)
    assert not is_sound(HEADS["squared"])


def test_a_fault_that_the_sensitivity_sees_is_seen_by_it_alone(monkeypatch):
    """Norms without biases, or rounded down by 2**-12, break the bound itself."""
    loss = HEADS["squared"]
    for fault in (without_biases, rounded_down):
        monkeypatch.setattr(dense, "ghost_norms", fault)
        assert sensitivity(loss, 1)[1] > bounds(loss)[1]


def test_the_margin_covers_the_error_of_the_sum_of_a_chunk():
    """2 gamma(m + 1) m in units of C; the bound of the clip norm covers those of a record."""
    assert 2 * gamma(dense.CHUNK + 1) * dense.CHUNK < 1 - dense.MARGIN
    # The bound of the theorem is no less than what happens: sums in two orders, in float32 here.
    rng = np.random.default_rng(5)
    a, d = rng.normal(size=(256, 40)).astype("f4"), rng.normal(size=(256, 30)).astype("f4")
    d /= np.linalg.norm(a, axis=1, keepdims=True) * np.linalg.norm(d, axis=1, keepdims=True)
    exact = a.astype("f8").T @ d.astype("f8")
    off = np.linalg.norm(a.T @ d - exact)
    assert 0 < off < 257 * 2.0**-24 * 256


@pytest.mark.parametrize("head", HEADS)
def test_a_record_that_adds_nothing_does_not_round_the_others_elsewhere(head):
    """It moves the limits of 40 chunks; 40 roundings to the grid would show."""
    loss, rng = HEADS[head], np.random.default_rng(4)
    rows, labels = rng.normal(size=(10_240, 2)), rng.integers(0, 3, 10_240) * 1.0
    grid = Grid.fitting(CLIP, loss.size(2), "l2")
    given = {"theta": point(loss), "loss": loss, "clip": CLIP, "grid": grid}
    rest = clipped_sum(rows, labels, **given)
    whole = clipped_sum(np.r_[[[np.nan, 0.0]], rows], np.r_[0.0, labels], **given)
    assert np.abs(rest).max() > 100
    # Where the total is between two steps, the last bits decide.
    assert np.count_nonzero(whole != rest) <= 1
    assert np.abs(whole - rest).max() <= 1


def test_no_sum_depends_on_the_number_of_threads(monkeypatch):
    loss, rng = DenseLayers((40,), "squared"), np.random.default_rng(6)
    rows, labels = rng.normal(size=(6000, 2)), rng.normal(size=6000)
    theta = rng.normal(size=loss.size(2))
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr("numba.config.NUMBA_NUM_THREADS", threads)
        steps = clipped_sum(rows, labels, theta, loss, clip=CLIP, grid=GRID)
        found.append((*steps, *gradient(rows, labels, theta, loss)[1]))
    np.testing.assert_array_equal(found[1:], found[:1] * 2)


def test_a_grid_that_leaves_no_room_for_rounding_is_refused():
    with pytest.raises(ValueError, match="the grid must have a step of at most"):
        clipped_sum(ROWS, LABELS, point(HEADS["squared"]), HEADS["squared"], clip=1.0, grid=Grid(0))


def test_chunks_points_batches_and_users_agree():
    loss, rng = HEADS["squared"], np.random.default_rng(2)
    rows, labels, theta = rng.normal(size=(700, 2)), rng.normal(size=700), point(HEADS["squared"])
    whole = total(rows, labels, loss)
    both = clipped_sum(rows, labels, np.stack([theta, theta]), loss, clip=CLIP, grid=GRID)
    np.testing.assert_array_equal(both, [whole, whole])
    picks = np.arange(0, 700, 3)
    part = clipped_sum(rows, labels, theta, loss, clip=CLIP, grid=GRID, index=picks)
    np.testing.assert_array_equal(part, total(rows[picks], labels[picks], loss))
    sums, counts = user_sums(rows, labels, np.arange(700) % 3, 3, theta, loss, clip=CLIP, grid=GRID)
    np.testing.assert_allclose(sums[0] * GRID.step, part * GRID.step, atol=2e-3)
    assert counts.tolist() == [234, 233, 233]
    value, slope = gradient(rows, labels, theta, loss)
    np.testing.assert_allclose(value, loss.value(theta, rows, labels).sum(), rtol=1e-12)
    np.testing.assert_allclose(slope, loss.gradient(theta, rows, labels).sum(axis=0), rtol=1e-9)


@pytest.mark.parametrize("head", HEADS)
def test_records_that_are_not_finite_add_zero(head):
    """The neutral record would teach the biases."""
    for row, label in (([np.nan, 0.1], 1.0), ([0.5, 0.5], np.nan), ([0.5, 0.5], np.inf)):
        assert not total(np.array([row]), np.array([label]), HEADS[head]).any()


def test_another_number_of_parameters_is_refused():
    with pytest.raises(ValueError, match=r"theta must have shape \(9,\), got \(1, 4\)|theta"):
        clipped_sum(ROWS, LABELS, np.zeros(4), HEADS["squared"], clip=CLIP, grid=GRID)
