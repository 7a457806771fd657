"""Only the declared output depends on records: fits on neighbours are else alike."""

import warnings

import numpy as np
import pytest

from dpfit import Budget
from dpfit.models import (
    BoundedMean,
    GeometricMedian,
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    QuantileRegressor,
    Ridge,
    RobustRegressor,
    private_score,
)
from dpfit.models.classifiers import class_codes
from dpfit.models.inputs import as_numbers
from dpfit.models.scaling import Scaling

ROWS = np.random.default_rng(3).uniform(-1, 1, size=(60, 3))
WORST = {
    "far": [1e300, -1e300, 1e300],
    "not a number": [np.nan, np.inf, -np.inf],
    "zero": [0.0, 0.0, 0.0],
}
LABELLED = [
    LogisticRegression,
    LinearSVC,
    LinearRegression,
    Ridge,
    HuberRegressor,
    QuantileRegressor,
    RobustRegressor,
]


LABELS = (np.arange(60) % 2).astype(float)
REGRESSORS = LABELLED[2:]


def fitted(kind, delta, facts, neighbours, X, y):
    """All that a fit shows of itself, with arrays of floats by their shapes only."""
    options = {**facts, "relation": neighbours, "n_declared": len(ROWS)}
    if delta and kind in LABELLED:
        options["max_passes"] = 5
    if kind in REGRESSORS:
        options["y_bounds"] = (0, 1)
    model = kind(1.0, delta, **options)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        error = None
        try:
            model.fit(X, y) if kind in LABELLED else model.fit(X)
        except Exception as raised:
            error = repr(raised)
    shown = {"error": error, "warnings": [str(w.message) for w in seen]}
    for name, value in vars(model).items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            shown[name] = (value.shape, str(value.dtype), bool(np.isfinite(value).all()))
        elif name == "plan_":
            shown[name] = value.to_json()
        elif isinstance(value, int | str | tuple | type(None)) or name == "guarantee_":
            shown[name] = str(value)
        else:
            shown[name] = type(value).__name__
    return shown


def neighbours_of(neighbours):
    """Tables in which one record is at its worst, is gone, or is there twice."""
    for row in WORST.values():
        changed = ROWS.copy()
        changed[7] = row
        yield changed, LABELS
    for label in (1.7e308, -np.inf, np.nan):
        changed = LABELS.copy()
        changed[7] = label
        yield ROWS, changed
    if neighbours == "add_remove":
        yield ROWS[:-1], LABELS[:-1]
        yield np.vstack([ROWS, ROWS[:1]]), np.append(LABELS, 0.0)


@pytest.mark.parametrize("neighbours", ["replace", "add_remove"])
@pytest.mark.parametrize(
    "facts", [{"bounds": (-1.0, 1.0)}, {"row_norm": 2.0}, {"bounds": "private"}], ids=str
)
@pytest.mark.parametrize("delta", [0.0, 1e-4])
@pytest.mark.parametrize("kind", [*LABELLED, BoundedMean, GeometricMedian])
def test_attributes_shapes_warnings_and_errors_are_those_of_the_neighbour(
    kind, delta, facts, neighbours
):
    if (kind not in LABELLED and "row_norm" in facts) or (kind is RobustRegressor and not delta):
        return
    base = fitted(kind, delta, facts, neighbours, ROWS, LABELS)
    for X, y in neighbours_of(neighbours):
        assert fitted(kind, delta, facts, neighbours, X, y) == base
    arrays = [value for value in base.values() if isinstance(value, tuple) and len(value) == 3]
    assert base["error"] is None
    # Which classes are assumed is said whatever the labels are.
    assert len(base["warnings"]) == (kind in (LogisticRegression, LinearSVC))
    assert arrays
    assert all(finite for _, _, finite in arrays)


@pytest.mark.parametrize("kind", [LogisticRegression, LinearRegression, BoundedMean])
def test_numbers_that_only_a_long_double_holds_cause_no_warning(kind):
    """Warnings are errors here."""
    if np.finfo(np.longdouble).maxexp <= np.finfo(np.float64).maxexp:
        pytest.skip("long doubles are doubles on this machine")
    X, y = ROWS.astype(np.longdouble), LABELS.astype(np.longdouble)
    X[7, 0] = y[7] = np.finfo(np.longdouble).max
    model = kind(1.0, bounds=(-1.0, 1.0)).fit(X, y)
    if kind is not BoundedMean:
        assert np.isfinite(model.predict(X)).all()
        assert np.isfinite(private_score(model, X, y, Budget(epsilon=1.0)).value)


@pytest.mark.parametrize("kind", [LogisticRegression, LinearRegression])
def test_no_message_tells_how_many_records_there_are(kind):
    """Under add/remove that is private; a table that is cut wrongly is refused without a number."""
    model = kind(1.0, bounds=(-1.0, 1.0), relation="add_remove", n_declared=50, max_rows_per_user=1)
    for y, ids in (
        (LABELS[:-1], None),
        (ROWS, None),
        (LABELS[None], None),
        (3.0, None),
        (LABELS, LABELS[1:]),
        (LABELS, 7),
    ):
        with pytest.raises(ValueError, match="for each record") as error:
            model.fit(ROWS, y, user_ids=ids)
        assert not any(number in str(error.value) for number in ("60", "59"))


ODD = ["x", b"x", "", "True", None, [1, 2], {}, 1j, 10**400, np.nan]
"""Labels that are no class, as one record of a list may hold them."""


def shown(kind, X, y, **options):
    return fitted(kind, 0.0, {"bounds": (-1.0, 1.0), **options}, "replace", X, y)


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_an_odd_label_of_a_list_changes_its_record_alone(odd):
    """A list with one string became a list of strings, and every label the first class."""
    labels = (LABELS > 0).tolist()
    changed = [*labels[:7], odd, *labels[8:]]
    codes = class_codes(np.array([False, True]), changed)
    assert np.array_equal(np.delete(codes, 7), np.delete(LABELS, 7))
    assert np.isnan(codes[7])
    numbers = as_numbers([*LABELS[:7].tolist(), odd, *LABELS[8:].tolist()])
    assert np.array_equal(np.delete(numbers, 7), np.delete(LABELS, 7))
    base = shown(LogisticRegression, ROWS, labels, classes=[False, True])
    assert base["error"] is None
    assert shown(LogisticRegression, ROWS, changed, classes=[False, True]) == base
    assert shown(LogisticRegression, ROWS, changed) == shown(LogisticRegression, ROWS, labels)
    assert shown(LinearRegression, ROWS, changed) == shown(LinearRegression, ROWS, labels)


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_an_odd_cell_of_a_list_of_rows_is_not_told(odd):
    rows = ROWS.tolist()
    base = shown(LogisticRegression, rows, LABELS)
    assert base["error"] is None
    rows[7][1] = odd
    assert shown(LogisticRegression, rows, LABELS) == base


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("kind", LABELLED)
@pytest.mark.parametrize("bounds", [(-1.0, 1.0), "private"], ids=str)
def test_a_record_without_an_outcome_adds_nothing(kind, relation, bounds):
    """The row is that of nobody: whatever it holds, a fit with the same noise is the same."""
    options = {"bounds": bounds, "relation": relation, "random_state": 1}
    options |= {"n_declared": len(ROWS)} if relation == "add_remove" else {}
    options |= {"y_bounds": (0, 1)} if kind in REGRESSORS else {}
    # One pass draws a position for each record: a missing one changes the seeded positions.
    options |= {"solver": "objective_perturbation"} if kind is LinearSVC else {}
    options |= {"delta": 1e-4, "max_passes": 5} if kind is RobustRegressor else {}
    labels, other = LABELS.copy(), ROWS.copy()
    labels[7], other[7] = np.nan, [0.9, -0.9, 0.1]
    with pytest.warns(UserWarning, match="random_state"):
        one, two = (kind(1.0, **options).fit(rows, labels) for rows in (ROWS, other))
    assert np.array_equal(one.weights_, two.weights_)
    if relation == "add_remove":
        with pytest.warns(UserWarning, match="random_state"):
            gone = kind(1.0, **options).fit(np.delete(ROWS, 7, 0), np.delete(LABELS, 7))
        np.testing.assert_allclose(gone.weights_, one.weights_, rtol=0, atol=1e-9)


def test_ranges_that_no_number_can_scale_are_refused():
    for bounds, message in (
        ((0, 5e-324), "at least 1e-307 wide"),
        ((0, 10**400), "bounds must be a pair"),
    ):
        with pytest.raises(ValueError, match=message):
            LogisticRegression(1.0, bounds=bounds).fit(ROWS, LABELS)


@pytest.mark.parametrize("n", range(1, 6))
def test_rows_in_fortran_order_are_scaled_one_by_one(n):
    rows = np.asfortranarray(np.random.default_rng(n).normal(size=(6, 30)))
    whole = Scaling(row_norm=0.5, constant=1.0).rows(rows)
    assert np.array_equal(
        Scaling(row_norm=0.5, constant=1.0).rows(np.asfortranarray(rows[:n])), whole[:n]
    )
