"""Guards: bounds hold exactly for any input; a record depends on itself only."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpfit.losses import (
    BinaryLabels,
    Classes,
    FeatureBox,
    LabelInterval,
    RowBall,
    clip_gradients,
)
from dpfit.privacy.spec import Spec, from_json

NASTY = [
    0.0,
    -0.0,
    5e-324,
    -5e-324,
    2.2e-308,
    1e-200,
    1e-16,
    0.1,
    1.0,
    -1.0,
    1e16,
    1e200,
    -1e300,
    1.7976931348623157e308,
]
BAD = [math.nan, math.inf, -math.inf]
entries = st.one_of(
    st.sampled_from(NASTY),
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(-2, 2),
    st.sampled_from(BAD),
)
finite_entries = st.one_of(
    st.sampled_from(NASTY), st.floats(allow_nan=False, allow_infinity=False), st.floats(-2, 2)
)
radii = st.sampled_from([1e-100, 1e-9, 0.1, 1 / 3, 1.0, 2.0, math.pi, 1e9, 1e100])


def squared_norm(row):
    return sum(Fraction(value) ** 2 for value in np.asarray(row).tolist())


@settings(max_examples=400, deadline=None)
@given(st.lists(entries, min_size=1, max_size=8), radii)
@example([0.6, 0.8], 1.0)
@example([1.0, 0.0], 1.0)
@example([1 / 3, 2 / 3, 2 / 3], 1.0)
@example([1e300, 5e-324], 1e-100)
@example([1.7976931348623157e308] * 8, 1e100)
def test_guarded_rows_lie_in_the_ball_in_exact_arithmetic(row, radius):
    guarded = RowBall(radius).apply([row])[0]
    assert squared_norm(guarded) <= Fraction(radius) ** 2
    if not np.isfinite(row).all():
        assert guarded.tolist() == [0.0] * len(row)


@settings(max_examples=300, deadline=None)
@given(st.lists(finite_entries, min_size=1, max_size=8), radii)
def test_rows_well_inside_are_kept_and_others_only_shrunk(row, radius):
    guarded = RowBall(radius).apply([row])[0]
    if squared_norm(row) <= Fraction(radius) ** 2 * (1 - Fraction(1, 2**46)):
        assert guarded.tobytes() == np.array(row).tobytes()
    else:
        assert squared_norm(guarded) >= Fraction(radius) ** 2 * (1 - Fraction(1, 2**44))
        # The direction stays, entry by entry, up to rounding.
        length = math.sqrt(squared_norm(np.array(row) / np.abs(row).max()))
        np.testing.assert_allclose(
            guarded / radius, np.array(row) / np.abs(row).max() / length, rtol=1e-13, atol=1e-220
        )
    again = RowBall(radius).apply([guarded])[0]
    assert again.tobytes() == guarded.tobytes()


@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 127, 128, 129, 1000])
def test_long_rows_of_unit_norm_stay_in_the_ball(d):
    """Rows of floating-point norm one are the hard case: half are too long by an ulp."""
    rng = np.random.default_rng(d)
    rows = rng.normal(size=(20, d)) * 10.0 ** rng.uniform(-3, 3, (20, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert d == 1 or any(squared_norm(row) > 1 for row in rows)
    for row in RowBall(1.0).apply(rows):
        assert squared_norm(row) <= 1


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 40), st.sampled_from([1, 3, 8, 17, 130]))
def test_a_guarded_row_depends_on_that_row_only_bit_for_bit(data, n, d):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    rows = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-5, 5, (n, 1))
    rows[rng.random((n, d)) < 0.02] = np.nan
    whole = RowBall(1.0).apply(rows)
    index = data.draw(st.integers(0, n - 1))
    order = rng.permutation(n)
    wide = np.repeat(rows, 2, axis=1)[:, ::2]
    for alone in (
        RowBall(1.0).apply(rows[index : index + 1])[0],
        RowBall(1.0).apply(np.asfortranarray(rows))[index],
        RowBall(1.0).apply(rows[order])[np.argsort(order)[index]],
        RowBall(1.0).apply(wide)[index],
        RowBall(1.0).apply(np.vstack([rows, rows]))[n + index],
        RowBall(1.0).apply(rows[::-1])[n - 1 - index],
    ):
        assert alone.tobytes() == whole[index].tobytes()


def test_gradients_are_clipped_like_rows():
    gradients = np.array([[3.0, 4.0], [np.nan, 0.0], [1e-3, 0.0]])
    assert np.array_equal(clip_gradients(gradients, 0.5), RowBall(0.5).apply(gradients))


@settings(max_examples=200, deadline=None)
@given(st.lists(entries, min_size=3, max_size=3))
def test_boxes_clamp_each_feature(row):
    lower, upper = np.array([-1.0, 0.1, -1e308]), np.array([0.3, 0.1, 1e308])
    box = FeatureBox(tuple(lower), tuple(upper))
    guarded = box.apply([row])[0]
    assert np.all((lower <= guarded) & (guarded <= upper))
    if np.isfinite(row).all():
        inside = (lower <= row) & (row <= upper)
        assert np.array_equal(guarded[inside], np.array(row)[inside])
    else:
        assert guarded.tolist() == [-0.35, 0.1, 0.0]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6))
def test_the_row_norm_of_a_box_bounds_its_corners_in_exact_arithmetic(ends):
    box = FeatureBox(tuple(-abs(end) for end in ends), tuple(0.0 for _ in ends))
    assert Fraction(box.row_norm(len(ends))) ** 2 >= squared_norm(ends)
    assert box.row_norm(len(ends)) <= math.hypot(*ends) * (1 + 1e-13) + 20 * math.ulp(0.0)


@given(entries)
def test_labels_are_clamped(label):
    guarded = LabelInterval(-0.1, 0.3).apply([label])[0]
    assert -0.1 <= guarded <= 0.3
    assert BinaryLabels().apply([label])[0] == (1.0 if label > 0 else -1.0)
    if math.isnan(label):
        assert guarded == pytest.approx(0.1)
    elif -0.1 <= label <= 0.3:
        assert guarded == label


def test_labels_near_the_ends_of_the_doubles():
    assert LabelInterval(-1.7e308, 1.7e308).apply([math.nan]).tolist() == [0.0]
    assert LabelInterval(0.0, 5e-324).apply([math.nan])[0] in (0.0, 5e-324)


def test_classes_of_any_kind():
    assert Classes((0, 1, 2)).apply(np.array([2.0, np.nan, 1.0, 7.0])).tolist() == [2, 0, 1, 0]
    assert Classes(("a", "b")).apply(np.array(["b", "zebra", "a"])).tolist() == [1, 0, 0]
    assert Classes(("a", 3)).apply([3, None, ["a"], {}, "a", "b"]).tolist() == [1, 0, 0, 0, 0, 0]
    assert Classes(("a", 3)).apply([(1, [2]), 3]).tolist() == [0, 1]
    assert Classes(("a", 3)).apply([(1, 2), (3, 4)]).tolist() == [0, 0]
    assert Classes((1, 2)).apply([]).tolist() == []
    assert Classes((False, True)).apply(np.array([True, False])).tolist() == [1, 0]


def test_numbers_beyond_doubles_are_infinite_without_a_word():
    huge = np.array(["1e4000", "1"], dtype=np.longdouble)
    assert RowBall(2.0).apply(huge[:, np.newaxis]).tolist() == [[0.0], [1.0]]
    assert LabelInterval(-1.0, 2.0).apply(huge).tolist() == [2.0, 1.0]


def test_masked_arrays_are_refused():
    """Their hidden values would be summed."""
    with pytest.raises(ValueError, match="rows must not be a masked array: fill it with NaN"):
        RowBall(1.0).apply(np.ma.masked_array([[99.0]], [[True]]))
    with pytest.raises(ValueError, match="labels must not be a masked array"):
        BinaryLabels().apply(np.ma.masked_array([99.0], [False]))


@pytest.mark.parametrize(
    "guard",
    [
        RowBall(2.0),
        FeatureBox(0.0, 1.0),
        FeatureBox((0.0,), (1.0,)),
        LabelInterval(-1.0, 1.0),
        BinaryLabels(),
        Classes(("a", 2, 3.5)),
    ],
    ids=str,
)
def test_json_round_trip(guard):
    assert from_json(json.loads(json.dumps(guard.to_json(), allow_nan=False)), Spec) == guard


def test_empty_arrays_and_inputs_that_cannot_be_written():
    assert RowBall(1.0).apply(np.empty((0, 3))).shape == (0, 3)
    assert RowBall(1.0).apply(np.empty((3, 0))).shape == (3, 0)
    assert FeatureBox(0.0, 1.0).apply(np.empty((0, 3))).shape == (0, 3)
    rows = np.array([[3.0, 4.0]])
    rows.flags.writeable = False
    assert np.linalg.norm(RowBall(1.0).apply(rows)) <= 1
    assert rows.tolist() == [[3.0, 4.0]]
    assert RowBall(1.0).apply(np.array([[3, 4]], dtype=np.float32)).dtype == np.float64
    assert np.linalg.norm(RowBall(1.0).apply([[True, 10**400 > 1]])) <= 1


def test_errors_are_about_public_facts():
    for guard, value in (
        (RowBall(1.0), [["Alice Smith", 1]]),
        (RowBall(1.0), [[10**400, 1]]),
        (RowBall(1.0), [[1.0], [1.0, 2.0]]),
        (LabelInterval(0.0, 1.0), ["Alice Smith"]),
        (BinaryLabels(), ["Alice Smith"]),
    ):
        with pytest.raises(ValueError, match="must be an array of numbers") as error:
            guard.apply(value)
        assert "Alice" not in str(error.value)
        assert error.value.__cause__ is None
    with pytest.raises(ValueError, match=r"shape \(n, d\), got \(3,\)"):
        RowBall(1.0).apply(np.zeros(3))
    with pytest.raises(ValueError, match="the box is for 2 features, the rows have 3"):
        FeatureBox((0.0, 0.0), (1.0, 1.0)).apply(np.zeros((1, 3)))
    with pytest.raises(ValueError, match=r"shape \(n,\)"):
        LabelInterval(0.0, 1.0).apply(np.zeros((3, 1)))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, 1e200, 1e-200, "one", None])
def test_bad_radii_are_refused(bad):
    with pytest.raises(ValueError, match="radius must"):
        RowBall(bad)
    with pytest.raises(ValueError, match="radius must"):
        clip_gradients(np.zeros((1, 1)), bad)


def test_boxes_take_any_sequence_of_numbers():
    assert FeatureBox([0, 0], np.array([1, 2])) == FeatureBox((0.0, 0.0), (1.0, 2.0))
    assert FeatureBox(np.float32(0), 1) == FeatureBox(0.0, 1.0)


def test_bad_boxes_intervals_and_classes_are_refused():
    for lower, upper in (
        (1.0, 0.0),
        (math.nan, 1.0),
        (0.0, math.inf),
        ((0.0, 1.0), (1.0,)),
        (0.0, (1.0,)),
    ):
        with pytest.raises(ValueError, match="lower"):
            FeatureBox(lower, upper)
    for lower, upper in ((1.0, 1.0), (math.nan, 1.0), (0.0, math.inf), (None, 1.0)):
        with pytest.raises(ValueError, match=r"lower|upper"):
            LabelInterval(lower, upper)
    for classes in ((), ["a"], ("a", "a"), (math.nan, 1)):
        with pytest.raises(ValueError, match="classes must"):
            Classes(classes)
