"""Nothing but the declared output depends on the records: fits on neighbours look alike in every other way."""

import warnings

import numpy as np
import pytest

from dpfit.models import (
    BoundedMean,
    GeometricMedian,
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    QuantileRegressor,
    Ridge,
)

ROWS = np.random.default_rng(3).uniform(-1, 1, size=(60, 3))
WORST = {
    "far": [1e300, -1e300, 1e300],
    "not a number": [np.nan, np.inf, -np.inf],
    "zero": [0.0, 0.0, 0.0],
}
LABELLED = [LogisticRegression, LinearSVC, LinearRegression, Ridge, HuberRegressor, QuantileRegressor]


def fitted(kind, delta, bounds, neighbours, X, labelled):
    """All that a fit shows of itself, with arrays of floats by their shapes only."""
    options = {"bounds": bounds, "neighbours": neighbours, "n_public": 60}
    if labelled and kind not in (LogisticRegression, LinearSVC):
        options["y_bounds"] = (0, 1)
    model = kind(1.0, delta, **options)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        error = None
        try:
            model.fit(X, (np.arange(len(X)) % 2)) if labelled else model.fit(X)
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


@pytest.mark.parametrize("neighbours", ["replace", "add_remove"])
@pytest.mark.parametrize("bounds", [(-1.0, 1.0), "private"], ids=str)
@pytest.mark.parametrize("delta", [0.0, 1e-4])
@pytest.mark.parametrize("kind", [*LABELLED, BoundedMean, GeometricMedian])
def test_attributes_shapes_warnings_and_errors_are_those_of_the_neighbour(kind, delta, bounds, neighbours):
    labelled = kind in LABELLED
    base = fitted(kind, delta, bounds, neighbours, ROWS, labelled)
    others = []
    for row in WORST.values():
        changed = ROWS.copy()
        changed[7] = row
        others.append(changed)
    if neighbours == "add_remove":
        others += [ROWS[:-1], np.vstack([ROWS, ROWS[:1]])]
    for X in others:
        assert fitted(kind, delta, bounds, neighbours, X, labelled) == base
    arrays = [value for value in base.values() if isinstance(value, tuple) and len(value) == 3]
    assert base["error"] is None
    assert arrays
    assert all(finite for _, _, finite in arrays)
