"""The grid: what rounding to it costs, and that sums on it are exact."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfit.noise import INTEGERS, Grid
from dpfit.noise.lattice import LIMIT

NORMS = ["l1", "l2", "linf"]
finite = st.floats(allow_nan=False, allow_infinity=False)
moderate = st.floats(-1e6, 1e6)


def exact_norm_at_most(vector: list[Fraction], norm: str, bound: Fraction) -> bool:
    if norm == "l1":
        return sum(map(abs, vector)) <= bound
    if norm == "l2":
        return sum(x * x for x in vector) <= bound * bound
    return max(map(abs, vector)) <= bound


class TestFitting:
    @given(st.floats(1e-290, 1e290), st.integers(1, 10**9), st.sampled_from(NORMS))
    def test_is_the_coarsest_that_costs_at_most_one_part_in_8192(
        self, sensitivity, dimension, norm
    ):
        grid = Grid.fitting(sensitivity, dimension, norm)
        allowance = Fraction(sensitivity) / 8192
        assert Fraction(grid.rounding(dimension, norm)) <= allowance
        if grid.exponent < 962:
            assert Fraction(Grid(grid.exponent + 1).rounding(dimension, norm)) > allowance

    def test_integers_ask_for_the_integers(self):
        assert Grid.fitting(3.0, 10, "l1", integers=True) is INTEGERS
        assert INTEGERS.step == 1.0

    @given(st.integers(-1022, 900), st.integers(1, 10**12))
    def test_rounding_is_never_below_the_real_number(self, exponent, dimension):
        grid = Grid(exponent)
        step = Fraction(2) ** exponent
        assert Fraction(grid.rounding(dimension, "l1")) == step * dimension
        assert Fraction(grid.rounding(dimension, "linf")) == step
        assert Fraction(grid.rounding(dimension, "l2")) ** 2 >= step**2 * dimension
        assert grid.rounding(dimension, "l2") <= math.sqrt(dimension) * grid.step * (1 + 1e-15)

    @pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan")])
    def test_rejects_bad_sensitivity(self, bad):
        with pytest.raises(ValueError, match="sensitivity"):
            Grid.fitting(bad, 3, "l2")

    def test_rejects_the_rest(self):
        with pytest.raises(ValueError, match="dimension"):
            Grid.fitting(1.0, 0, "l2")
        with pytest.raises(TypeError, match="dimension"):
            Grid.fitting(1.0, 2.5, "l2")
        with pytest.raises(ValueError, match="norm"):
            Grid.fitting(1.0, 2, "l3")
        with pytest.raises(ValueError, match="too small"):
            Grid.fitting(1e-310, 2, "l2")
        with pytest.raises(ValueError, match="exponent"):
            Grid(-1023)
        with pytest.raises(TypeError, match="exponent"):
            Grid(1.0)


class TestQuantize:
    @given(st.integers(-1022, 962), finite)
    def test_is_the_nearest_step(self, exponent, value):
        steps = int(Grid(exponent).quantize(value))
        exact = Fraction(value) / Fraction(2) ** exponent
        assert steps == max(-LIMIT, min(LIMIT, round(exact)))

    def test_repairs_are_silent(self):
        with np.errstate(all="raise"):
            steps = Grid(-20).quantize(
                [float("nan"), float("inf"), -float("inf"), 1e300, 5e-324, -0.0]
            )
        assert steps.tolist() == [0, LIMIT, -LIMIT, LIMIT, 0, 0]

    @settings(max_examples=300)
    @given(
        st.lists(st.tuples(moderate, moderate), min_size=1, max_size=4),
        st.integers(-30, 10),
        st.sampled_from(NORMS),
    )
    def test_no_pair_moves_apart_by_more_than_the_rounding(self, pairs, exponent, norm):
        grid = Grid(exponent)
        x, y = (np.array(side) for side in zip(*pairs, strict=True))
        moved = [int(a) - int(b) for a, b in zip(grid.quantize(x), grid.quantize(y), strict=True)]
        # Triangle inequality with exact numbers: rounding error of the pair, not of its distance.
        error = [
            m * Fraction(2) ** exponent - (Fraction(a) - Fraction(b))
            for m, a, b in zip(moved, x, y, strict=True)
        ]
        assert exact_norm_at_most(error, norm, Fraction(grid.rounding(len(pairs), norm)))

    def test_the_bound_is_attained(self):
        # Numbers just above and below a tie go half a step each, in opposite directions.
        grid = Grid(0)
        moved = grid.quantize([0.5 + 1e-9] * 4) - grid.quantize([0.5 - 1e-9] * 4)
        assert np.abs(moved).sum() == grid.rounding(4, "l1")


class TestSum:
    rows = st.lists(
        st.lists(st.floats(allow_nan=True), min_size=2, max_size=2), min_size=1, max_size=6
    )

    @given(rows, st.randoms(use_true_random=False), st.integers(-60, 10))
    def test_any_order_gives_the_same_sum(self, rows, random, exponent):
        shuffled = list(rows)
        random.shuffle(shuffled)
        grid = Grid(exponent)
        assert np.array_equal(grid.sum(rows, 3.0), grid.sum(shuffled, 3.0))

    @given(rows, st.integers(-62, 10))
    def test_is_the_exact_sum_of_the_rounded_entries(self, rows, exponent):
        grid = Grid(exponent)
        entries = grid.quantize(np.clip(np.array(rows), -5.0, 5.0)).tolist()
        exact = [max(-LIMIT, min(LIMIT, sum(column))) for column in zip(*entries, strict=True)]
        assert grid.sum(rows, 5.0).tolist() == exact

    @given(rows, st.lists(st.floats(allow_nan=True), min_size=2, max_size=2), st.integers(-20, 3))
    def test_replacing_a_row_moves_it_by_at_most_that_row_and_the_rounding(
        self, rows, other, exponent
    ):
        grid, bound = Grid(exponent), 4.0
        clipped = [np.nan_to_num(np.clip(row, -bound, bound)) for row in (rows[0], other)]
        moved = grid.sum(rows, bound) - grid.sum([other, *rows[1:]], bound)
        change = np.abs(grid.values(moved) - (clipped[0] - clipped[1]))
        assert np.all(change <= grid.rounding(1, "linf") * (1 + 1e-12))
        added = grid.values(grid.sum(rows, bound) - grid.sum([*rows[1:], [0.0, 0.0]], bound))
        assert np.all(np.abs(added - clipped[0]) <= grid.rounding(1, "linf") / 2 * (1 + 1e-12))

    def test_adversarial_magnitudes_that_break_floating_point(self):
        # In floats 2**53 swallows the ones: the sum depends on the order. On the grid it does not.
        rows = np.array([[2.0**53]] + [[1.0]] * 1000 + [[-(2.0**53)]])
        assert rows.cumsum(axis=0)[-1] == 0.0
        assert rows[::-1].cumsum(axis=0)[-1] == 1000.0
        assert (
            INTEGERS.sum(rows, 2.0**53).tolist()
            == INTEGERS.sum(rows[::-1], 2.0**53).tolist()
            == [1000]
        )

    def test_beyond_int64_it_saturates(self):
        grid = Grid(0)
        assert grid.sum(np.full((9, 1), 1e300), 1e300).tolist() == [LIMIT]
        assert grid.sum(np.array([[1e300], [-1e300], [7.0]]), 1e300).tolist() == [7]

    def test_rejects_bad_bounds_and_shapes(self):
        for bad in (0.0, -1.0, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="bound"):
                Grid(0).sum(np.ones((2, 2)), bad)
        with pytest.raises(ValueError, match="matrix"):
            Grid(0).sum(np.ones(3), 1.0)


class TestValues:
    @given(st.integers(-1022, 962), st.integers(-(2**53), 2**53))
    def test_round_trip(self, exponent, steps):
        grid = Grid(exponent)
        value = grid.values(np.int64(steps))
        assert Fraction(float(value)) == steps * Fraction(2) ** exponent
        assert int(grid.quantize(value)) == steps

    def test_the_limit_is_finite_on_the_coarsest_grid(self):
        assert np.isfinite(Grid(962).values(LIMIT))
