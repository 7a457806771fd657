"""Exact sums: any order, equal bits at any position, the declared sensitivity."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_references import BINARY, LOSSES, close, moved_at_most
from scipy.sparse import csr_array

from dpfit.kernels.fixed_point import inverse_step
from dpfit.kernels.passes import clipped_sum, gradient
from dpfit.losses import (
    Absolute,
    Distance,
    HuberDistance,
    LinearLoss,
    Softmax,
    Squared,
    SquaredDistance,
)
from dpfit.noise import Grid

EXTREMES = [
    0.0,
    1.0,
    -1.0,
    0.1,
    3.7,
    1e300,
    -1e300,
    1.7e308,
    1e-300,
    5e-324,
    1e-160,
    1e160,
    1e-8,
    1e8,
    math.nan,
    math.inf,
]
entries = st.one_of(st.sampled_from(EXTREMES), st.floats(-10, 10), st.floats())
GRID = Grid(-24)
ABSOLUTE, SQUARED = Absolute(), Squared()


def rows(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.standard_normal((n, d)),
        rng.standard_normal(n),
        rng.standard_normal(d) / math.sqrt(d),
    )


class TestBits:
    @pytest.mark.parametrize("d", [1, 5, 16, 50, 131])
    def test_a_record_contributes_the_same_wherever_it_is(self, d):
        X, y, theta = rows(160, d)
        guards = {"clip": 0.3, "row_norm": 4.0, "grid": GRID}
        alone = np.stack(
            [clipped_sum(X[i : i + 1], y[i : i + 1], theta, SQUARED, **guards) for i in range(160)]
        )
        assert np.array_equal(clipped_sum(X, y, theta, SQUARED, **guards), alone.sum(axis=0))
        for shift in (1, 2, 3, 7):
            part = clipped_sum(X[shift:], y[shift:], theta, SQUARED, **guards)
            assert np.array_equal(part, alone[shift:].sum(axis=0))
        index = np.random.default_rng(1).permutation(160)[:61]
        picked = clipped_sum(X, y, theta, SQUARED, index=index, **guards)
        assert np.array_equal(picked, alone[index].sum(axis=0))
        fortran = clipped_sum(np.asfortranarray(X), y, theta, SQUARED, index=index, **guards)
        assert np.array_equal(fortran, picked)

    def test_rows_at_odd_addresses(self):
        X, y, theta = rows(64, 13)
        memory = np.empty(64 * 13 + 8)
        results = set()
        for offset in range(8):
            moved = memory[offset : offset + X.size].reshape(X.shape)
            moved[:] = X
            results.add(clipped_sum(moved, y, theta, SQUARED, clip=0.3, grid=GRID).tobytes())
        assert len(results) == 1

    def test_hostile_neighbours_do_not_change_a_record(self):
        X, y, theta = rows(8, 9)
        alone = clipped_sum(X[:1], y[:1], theta, SQUARED, clip=0.3, grid=GRID)
        for value in (math.nan, 1e300, 1e-300, 0.0):
            both = np.stack([X[0], np.full(9, value), X[0], np.full(9, value), X[0]])
            pair = clipped_sum(both, y[[0, 1, 0, 1, 0]], theta, SQUARED, clip=0.3, grid=GRID)
            other = clipped_sum(both[1:2], y[1:2], theta, SQUARED, clip=0.3, grid=GRID)
            assert np.array_equal(pair, 3 * alone + 2 * other)

    @pytest.mark.parametrize("name", LOSSES)
    def test_order_does_not_matter(self, name):
        X, y, theta = rows(3000, 11)
        loss = LOSSES[name]
        guards = {"clip": 0.5, "binary": name in BINARY, "grid": GRID}
        order = np.random.default_rng(1).permutation(3000)
        expected = clipped_sum(X, y, theta, loss, **guards)
        assert np.array_equal(clipped_sum(X[order], y[order], theta, loss, **guards), expected)
        matrix = csr_array(X)
        exact = clipped_sum(matrix, y, theta, loss, **guards)
        assert np.array_equal(clipped_sum(matrix[order], y[order], theta, loss, **guards), exact)

    def test_close_to_the_floating_point_sum(self):
        X, y, theta = rows(1000, 11)
        steps = clipped_sum(X, y, theta, SQUARED, clip=0.5, grid=GRID)
        assert (
            np.abs(GRID.values(steps) - gradient(X, y, theta, SQUARED, clip=0.5)[1]).max()
            <= 500 * GRID.step
        )


def check(total, clip, grid, dimension, record, other, background):
    """Compare sums with one record added and with one record replaced, in exact rationals."""
    rounding = Fraction(grid.rounding(dimension, "l2"))
    with_one = total([*background, record])
    assert moved_at_most(total(background), with_one, grid, Fraction(clip) + rounding / 2)
    assert moved_at_most(total([*background, other]), with_one, grid, 2 * Fraction(clip) + rounding)
    # Alone, the record shows its own norm.
    assert moved_at_most(
        np.zeros(dimension, dtype=int), total([record]), grid, Fraction(clip) + rounding / 2
    )


class TestSensitivity:
    @settings(max_examples=150, deadline=None)
    @given(
        st.lists(
            st.tuples(st.lists(entries, min_size=3, max_size=3), entries), min_size=2, max_size=5
        ),
        st.sampled_from(sorted(LOSSES)),
        st.sampled_from([1.0, 0.3, 7e-5]),
        st.sampled_from([math.inf, 2.0, 1e-3]),
        st.lists(st.sampled_from([1.0, -0.5, 1e100, 1e-100, 0.0]), min_size=3, max_size=3),
    )
    def test_glm(self, records, name, clip, row_norm, theta):
        loss = LOSSES[name]
        grid = Grid.fitting(clip, 3, "l2")
        guards = {"clip": clip, "row_norm": row_norm, "binary": name in BINARY, "grid": grid}

        def dense(chosen):
            X = np.array([x for x, _ in chosen]).reshape(-1, 3)
            return clipped_sum(X, np.array([y for _, y in chosen]), theta, loss, **guards)

        def compressed(chosen):
            X = csr_array(np.array([x for x, _ in chosen]).reshape(-1, 3))
            labels = np.array([y for _, y in chosen])
            return clipped_sum(X, labels, theta, loss, **guards)

        for total in (dense, compressed):
            check(total, clip, grid, 3, records[0], records[1], records[2:])

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(
            st.tuples(st.lists(entries, min_size=2, max_size=2), entries), min_size=2, max_size=4
        ),
        st.sampled_from([1.0, 7e-5]),
        st.sampled_from([math.inf, 2.0]),
    )
    def test_softmax(self, records, clip, row_norm):
        grid = Grid.fitting(clip, 6, "l2")

        def total(chosen):
            X = np.array([x for x, _ in chosen]).reshape(-1, 2)
            y = np.array([label for _, label in chosen])
            theta = [[1.0, 0.0, -3.0], [0.5, 1e3, 0.0]]
            return clipped_sum(X, y, theta, Softmax(3), clip=clip, grid=grid, row_norm=row_norm)

        check(total, clip, grid, 6, records[0], records[1], records[2:])

    @settings(max_examples=100, deadline=None)
    @given(
        st.lists(st.lists(entries, min_size=3, max_size=3), min_size=2, max_size=4),
        st.sampled_from([Distance(), SquaredDistance(), HuberDistance(0.8), LinearLoss()]),
        st.sampled_from([1.0, 7e-5]),
        st.sampled_from([math.inf, 2.0]),
        st.lists(st.sampled_from([1.0, 3.7, 1e300, 1e-300, 0.0]), min_size=3, max_size=3),
    )
    def test_vector(self, records, loss, clip, row_norm, theta):
        grid = Grid.fitting(clip, 3, "l2")

        def total(chosen):
            X = np.array(chosen).reshape(-1, 3)
            return clipped_sum(
                X, np.zeros(len(X)), theta, loss, clip=clip, grid=grid, row_norm=row_norm
            )

        check(total, clip, grid, 3, records[0], records[1], records[2:])

    def test_the_bound_is_reached(self):
        grid = Grid(-26)
        steps = clipped_sum([[3.0, 4.0]], [-1e9], [0.0, 0.0], SQUARED, clip=1.0, grid=grid)
        assert 1 - 1e-7 <= np.linalg.norm(grid.values(steps)) <= 1 + 1e-7

    @pytest.mark.parametrize("d", [1, 2, 1000, 65_537])
    def test_unrounded_norms_never_exceed_the_clip(self, d):
        rng = np.random.default_rng(d)
        for scale in (1.0, 1e-170, 1e170):
            X = scale * rng.standard_normal((1, d))
            _, slope = gradient(X, [1e3], np.zeros(d), SQUARED, clip=1.0)
            assert sum(Fraction(v) ** 2 for v in slope.tolist()) <= 1
            _, slope = gradient(X, [1.0], np.zeros(d), ABSOLUTE, row_norm=1e-3)
            assert sum(Fraction(v) ** 2 for v in slope.tolist()) <= Fraction(1e-3) ** 2


class TestGridsThatDoNotFit:
    @pytest.mark.parametrize("exponent", [-31, -60, 1])
    def test_are_refused(self, exponent):
        with pytest.raises(ValueError, match="step of the grid"):
            inverse_step(Grid(exponent), 1.0)

    def test_a_clip_is_needed(self):
        with pytest.raises(ValueError, match="finite clip"):
            clipped_sum([[1.0]], [1.0], [1.0], SQUARED, grid=GRID)

    def test_the_finest_grid_is_exact(self):
        X = np.full((5000, 3), 1.0)
        steps = clipped_sum(X, np.full(5000, -1e9), np.zeros(3), SQUARED, clip=1.0, grid=Grid(-30))
        one = clipped_sum(X[:1], [-1e9], np.zeros(3), SQUARED, clip=1.0, grid=Grid(-30))
        assert np.array_equal(steps, 5000 * one)
        assert close(Grid(-30).values(one), np.full(3, 1 / math.sqrt(3)), 1e-8)
