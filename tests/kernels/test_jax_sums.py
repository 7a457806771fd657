"""Clipped sums of JAX models: the reference, the sensitivity by brute force, planted faults."""

import itertools
import math

import numpy as np
import pytest

from dpfit.kernels import jax_sums
from dpfit.kernels.passes import clipped_sum, gradient
from dpfit.kernels.user_sums import user_sums
from dpfit.losses import JaxLoss, clip_gradients
from dpfit.noise import Grid

jax = pytest.importorskip("jax")
GRID, CLIP = Grid(-30), 0.7
WILD = np.array(
    [[0.2, 0.1, -0.1], [3.0, -4.0, 1.0], [1e30, -1e30, 1.0], [np.nan, 1.0, 1.0], [0.0, 0.0, 0.0],
     [1.0, np.inf, 0.0], [1e-30, 0.0, 0.3]]
)  # fmt: skip
"""Each row is the gradient of its record: large, tiny, infinite, not a number, zero."""


def linear(params, example):
    """Its gradient is the row, in two layers."""
    return example[0][:2] @ params["a"] + example[0][2] * params["b"]


def loss_of(dtype):
    return JaxLoss(function=linear, template={"a": np.zeros(2, dtype), "b": np.zeros((), dtype)})


LOSSES = {dtype.__name__: loss_of(dtype) for dtype in (np.float32, np.float64)}


def total(rows, loss, grid=GRID):
    return clipped_sum(rows, np.zeros(len(rows)), np.zeros(3), loss, clip=CLIP, grid=grid)


def reference(rows):
    """The sum of clipped gradients; others than finite ones count as zero."""
    return clip_gradients(rows, CLIP).sum(axis=0)


def sensitivity(loss, n=3):
    """Largest change of the sum in steps, over all neighbours among sets of wild records."""
    alone = [total(WILD[[i]], loss) for i in range(len(WILD))]
    sums = {
        rows: total(WILD[list(rows)], loss)
        for rows in itertools.combinations_with_replacement(range(len(WILD)), n)
    }
    replaced = removed = 0.0
    for rows, found in sums.items():
        assert (found == sum(alone[i] for i in rows)).all()
        removed = max(removed, *(math.hypot(*alone[i].tolist()) for i in rows))
        for i in range(len(WILD)):
            other = sums[tuple(sorted((i, *rows[1:])))]
            replaced = max(replaced, math.hypot(*(found - other).tolist()))
    return replaced, removed


def is_sound(loss):
    """Whether sums are those of the reference, and no record moves them beyond the bound."""
    half = GRID.rounding(3, "l2") / 2 / GRID.step
    replaced, removed = sensitivity(loss, 2)
    held = removed <= CLIP / GRID.step + half and replaced <= 2 * CLIP / GRID.step + 2 * half
    rng = np.random.default_rng(1)
    rows = np.concatenate([rng.normal(size=(200, 3)) * rng.exponential(size=(200, 1)), WILD])
    found = total(rows, loss) * GRID.step
    return held and bool(np.allclose(found, reference(rows), rtol=2e-5, atol=1e-6))


@pytest.fixture
def plant(monkeypatch):
    """Replace a part of the kernel, compiled anew before and after."""

    def planted(**faults):
        jax_sums._programs.cache_clear()
        for name, fault in faults.items():
            monkeypatch.setattr(jax_sums, name, fault)

    yield planted
    monkeypatch.undo()
    jax_sums._programs.cache_clear()


@pytest.mark.parametrize("dtype", LOSSES)
def test_sums_are_the_reference_and_no_record_moves_them_further_than_declared(dtype):
    assert is_sound(LOSSES[dtype])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", LOSSES)
@pytest.mark.parametrize("n", [1, 4, 6])
def test_no_neighbour_of_a_few_wild_records_moves_the_sum_further_than_declared(dtype, n):
    replaced, removed = sensitivity(LOSSES[dtype], n)
    half = GRID.rounding(3, "l2") / 2 / GRID.step
    assert removed <= CLIP / GRID.step + half
    assert CLIP / GRID.step < replaced <= 2 * CLIP / GRID.step + 2 * half


@pytest.mark.parametrize("dtype", LOSSES)
@pytest.mark.parametrize("clip", [1e-90, 1e-25, 1e-8, 1e8, 1e25, 1e90])
def test_no_clip_norm_is_too_small_or_too_large_for_the_norms(dtype, clip):
    """Norms around the clip norm, and far from it, whose squares float32 could not hold."""
    scaled = clip * np.array([[3.0, -4.0, 1.0], [0.3, 0.1, 0.2], [1.0, 1e-9, 0.0], [0, 0.9, 0.9]])
    grid, rows = Grid(math.frexp(clip)[1] - 28), np.concatenate([WILD, scaled, scaled * 1e9])
    found = {
        picks: clipped_sum(
            rows[list(picks)],
            np.zeros(len(picks)),
            np.zeros(3),
            LOSSES[dtype],
            clip=clip,
            grid=grid,
        )
        for picks in itertools.combinations_with_replacement(range(len(rows)), 2)
    }
    half = grid.rounding(3, "l2") / 2 / grid.step
    moves = [
        math.hypot(*(total - found[tuple(sorted((i, picks[0])))]).tolist())
        for picks, total in found.items()
        for i in range(len(rows))
    ]
    assert max(moves) <= 2 * clip / grid.step + 2 * half
    # In the type of the model rows may be infinite, and so are dropped.
    with np.errstate(over="ignore"):
        exact = clip_gradients(rows.astype(dtype), clip)
    for (i, j), total in found.items():
        off = np.abs(total * grid.step - exact[i] - exact[j]).max()
        assert off <= clip * 2e-7


def without_a_layer(terms):
    return jax.numpy.sqrt(jax.numpy.sum(terms[:, :2] ** 2, axis=1))


def rounded_down(terms):
    exact = jax.numpy.sqrt(jax.numpy.sum(terms * terms, axis=1))
    return exact.astype(jax.numpy.float32) * (1 - 2.0**-12)


def clipped_after_the_sum(terms, usable, clip):
    whole = jax.numpy.where(usable[:, None], terms, 0.0).sum(axis=0)
    factor = jax.numpy.minimum(1.0, clip / jax.numpy.linalg.norm(whole))
    return jax.numpy.zeros_like(terms).at[0].set(whole * factor)


HONEST = jax_sums.clipped_rows


def mean_of_the_batch(terms, usable, clip):
    return HONEST(terms, usable, clip) / jax.numpy.maximum(usable.sum(), 1)


def unmeasured(steps, radius):
    return steps


@pytest.mark.parametrize(
    "faults",
    [
        {"row_norms": without_a_layer},
        {"row_norms": without_a_layer, "within": unmeasured},
        {"row_norms": rounded_down},
        {"row_norms": rounded_down, "within": unmeasured},
        {"clipped_rows": clipped_after_the_sum},
        {"clipped_rows": mean_of_the_batch},
    ],
    ids=lambda faults: "-".join(getattr(fault, "__name__", "") for fault in faults.values()),
)
def test_planted_faults_are_caught(plant, faults):
    plant(**faults)
    try:
        sound = is_sound(LOSSES["float64"])
    except AssertionError:  # a record that depends on others
        sound = False
    assert not sound


def test_records_that_are_not_finite_add_zero_to_a_model():
    """The neutral record would teach the biases."""
    biased = JaxLoss(function=lambda p, e: (p["b"] - e[1]) ** 2, template={"b": np.ones(())})
    sums = [
        clipped_sum(WILD[:1], [label], np.ones(1), biased, clip=CLIP, grid=GRID)
        for label in (np.nan, 0.0)
    ]
    assert [found.any() for found in sums] == [False, True]


def test_chunks_pieces_points_and_batches_agree(monkeypatch):
    """Sums of many records, of picked ones, at several points, and of users, are exact sums."""
    monkeypatch.setattr(jax_sums, "_ROWS", 256)
    rng = np.random.default_rng(2)
    rows, loss, labels = rng.normal(size=(700, 3)), LOSSES["float64"], np.zeros(700)
    picks = np.arange(0, 700, 3)
    whole, part = total(rows, loss), total(rows[picks], loss)
    both = clipped_sum(rows, labels, np.zeros((2, 3)), loss, clip=CLIP, grid=GRID)
    np.testing.assert_array_equal(both, [whole, whole])
    picked = clipped_sum(rows, labels, np.zeros(3), loss, clip=CLIP, grid=GRID, index=picks)
    np.testing.assert_array_equal(picked, part)
    codes = np.arange(700) % 3
    sums, counts = user_sums(rows, labels, codes, 3, np.zeros(3), loss, clip=CLIP, grid=GRID)
    np.testing.assert_array_equal(sums.sum(axis=0), whole)
    np.testing.assert_array_equal(sums[0], part)
    assert counts.tolist() == [234, 233, 233]
    value, slope = gradient(rows, labels, np.ones(3), loss)
    np.testing.assert_allclose(value, rows.sum(), rtol=1e-9)
    np.testing.assert_allclose(slope, rows.sum(axis=0), rtol=1e-9)
