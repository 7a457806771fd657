"""Nothing but the declared output depends on the records: fits on neighbours look alike in every other way."""

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
    private_score,
)

ROWS = np.random.default_rng(3).uniform(-1, 1, size=(60, 3))
WORST = {
    "far": [1e300, -1e300, 1e300],
    "not a number": [np.nan, np.inf, -np.inf],
    "zero": [0.0, 0.0, 0.0],
}
LABELLED = [LogisticRegression, LinearSVC, LinearRegression, Ridge, HuberRegressor, QuantileRegressor]


LABELS = (np.arange(60) % 2).astype(float)
REGRESSORS = LABELLED[2:]


def fitted(kind, delta, facts, neighbours, X, y):
    """All that a fit shows of itself, with arrays of floats by their shapes only."""
    options = {**facts, "relation": neighbours, "n_declared": len(ROWS)}
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
@pytest.mark.parametrize("facts", [{"bounds": (-1.0, 1.0)}, {"row_norm": 2.0}, {"bounds": "private"}], ids=str)
@pytest.mark.parametrize("delta", [0.0, 1e-4])
@pytest.mark.parametrize("kind", [*LABELLED, BoundedMean, GeometricMedian])
def test_attributes_shapes_warnings_and_errors_are_those_of_the_neighbour(kind, delta, facts, neighbours):
    if kind not in LABELLED and "row_norm" in facts:
        return
    base = fitted(kind, delta, facts, neighbours, ROWS, LABELS)
    for X, y in neighbours_of(neighbours):
        assert fitted(kind, delta, facts, neighbours, X, y) == base
    arrays = [value for value in base.values() if isinstance(value, tuple) and len(value) == 3]
    assert base["error"] is None
    assert base["warnings"] == []
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
