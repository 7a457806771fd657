"""Coefficients are effects of columns, however long rows are: the decision is linear in them."""

import math

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn import linear_model

from dpfit.data.chunk import Chunk
from dpfit.data.schema import Number, Schema
from dpfit.losses import Logistic, QuantileHuber, Squared
from dpfit.models import (
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    QuantileRegressor,
)
from dpfit.models.row_norm import longest_row, norm_of_uniform_rows
from dpfit.models.scaling import Scaling
from dpfit.privacy import Budget
from dpfit.solvers.descents.label_mean import ConstantRows

N, D = 4000, 12
RNG = np.random.default_rng(3)
COLUMNS = {
    "0 and 1": (RNG.random((N, D)) < 0.3).astype(float),
    "uniform": RNG.random((N, D)),
    "skewed": np.minimum(RNG.exponential(0.15, (N, D)), 1.0),
}
EFFECTS = RNG.normal(size=D)
NAMES = tuple(f"c{j}" for j in range(D))
WAYS = {
    "bounds": {"bounds": (0, 1)},
    "sparse": {"bounds": (0, 1)},
    "row_norm": {"row_norm": math.sqrt(D)},
    "sparse row_norm": {"row_norm": math.sqrt(D)},
    "schema": {"schema": Schema(tuple(Number(name, 0, 1) for name in NAMES))},
}


def given(way, X):
    if way == "schema":
        return dict(zip(NAMES, X.T, strict=True))
    return csr_array(X) if way.startswith("sparse") else X


def effects(model, way):
    """Coefficients per unit of a column; a schema scales [0, 1] to [-1, 1]."""
    return np.ravel(model.coef_)[:D] * (2 if way == "schema" else 1)


def line(X):
    values = X @ EFFECTS + RNG.normal(0, 0.3, N)
    return values, (values.min(), values.max())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("columns", COLUMNS)
def test_with_a_huge_budget_coefficients_are_those_of_scikit_learn(columns, way):
    """Rows were shortened at any budget: coefficients of 0/1 columns were 1.4 times too large."""
    X = COLUMNS[columns]
    rows = given(way, X)
    values, y_bounds = line(X)
    model = LinearRegression(1e6, y_bounds=y_bounds, **WAYS[way]).fit(rows, values)
    expected = linear_model.LinearRegression().fit(X, values).coef_
    assert effects(model, way) == pytest.approx(expected, abs=0.01 * np.abs(expected).max())
    yes = values > np.median(values) + RNG.logistic(0, 1, N)
    model = LogisticRegression(1e6, **WAYS[way]).fit(rows, yes)
    usual = linear_model.LogisticRegression(C=1e6, max_iter=2000, tol=1e-8).fit(X, yes)
    expected = usual.coef_[0]
    assert effects(model, way) == pytest.approx(expected, abs=0.01 * np.abs(expected).max())


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (2.0, 1e-6), (1e5, 0.0)])
@pytest.mark.parametrize(
    "kind", [LogisticRegression, LinearSVC, LinearRegression, HuberRegressor, QuantileRegressor]
)
@pytest.mark.filterwarnings("ignore:random_state")
def test_decisions_are_linear_at_every_budget(kind, epsilon, delta, sparse):
    X = COLUMNS["0 and 1"]
    rows = csr_array(X) if sparse else X
    values, y_bounds = line(X)
    classifies = kind in (LogisticRegression, LinearSVC)
    options = {} if classifies else {"y_bounds": y_bounds}
    for cap in ({}, {"row_norm": 1.0}):
        model = kind(epsilon, delta, bounds=(0, 1), random_state=1, **options, **cap)
        model.fit(rows, values > 0 if classifies else values)
        linear = X @ np.ravel(model.coef_) + model.intercept_
        decided = model.decision_function(rows) if classifies else model.predict(rows)
        assert decided == pytest.approx(linear, abs=1e-9)
        if classifies:
            assert np.array_equal(model.predict(rows), linear > 0)


@pytest.mark.filterwarnings("ignore:random_state")
def test_probabilities_are_of_the_predicted_class_and_calibrated_for_long_rows():
    """They are those of the shortened record: at a small budget coefficients overstate effects."""
    X = COLUMNS["0 and 1"]
    yes = np.median(X @ EFFECTS) + RNG.logistic(0, 0.5, N) < X @ EFFECTS
    model = LogisticRegression(20.0, bounds=(0, 1), row_norm=1.0, random_state=1).fit(X, yes)
    chances = model.predict_proba(X)[:, 1]
    assert np.array_equal(chances > 0.5, model.predict(X))
    likely = chances > np.quantile(chances, 0.8)
    assert chances[likely].mean() == pytest.approx(yes[likely].mean(), abs=0.05)


@pytest.mark.parametrize(("epsilon", "delta"), [(3.0, 0.0), (3.0, 1e-6)])
@pytest.mark.parametrize("kind", [LinearRegression, QuantileRegressor])
@pytest.mark.filterwarnings("ignore:random_state")
def test_effects_of_a_regression_are_right_where_rows_are_shortened(kind, epsilon, delta):
    """Row, constant and label are shortened together; rows alone gave 3.5 times the effects."""
    X = (RNG.random((20_000, D)) < 0.3).astype(float)
    model = kind(epsilon, delta, bounds=(0, 1), row_norm=1.0, y_bounds=(-10, 10), random_state=2)
    model.fit(X, X @ EFFECTS)
    ratio = np.ravel(model.coef_) @ EFFECTS / (EFFECTS @ EFFECTS)
    assert ratio == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("label", [-3.0, 9.0, np.nan])
def test_records_are_shortened_as_a_whole(sparse, label):
    ends = (-2.0,) * 3, (2.0,) * 3
    scaling = Scaling(1.0, 0.5, *ends, -4.0, 4.0, shortens_records=True)
    rows = np.array([[2.0, 2.0, 2.0], [0.2, 0.0, -0.2], [1e300, -1e300, 0.0]])
    labels = np.full(3, label)
    mapped = scaling(Chunk(csr_array(rows) if sparse else rows, labels, 0, None))
    found = mapped.rows.toarray() if sparse else mapped.rows
    assert np.linalg.norm(found, axis=1).max() <= scaling.bound * (1 + 1e-12)
    factors = found[:, -1] / 0.5
    assert factors == pytest.approx([1 / math.sqrt(3), 1.0, 1 / math.sqrt(2)])
    whole = np.clip(rows / 2, -1, 1)
    assert found[:, :3] == pytest.approx(whole * factors[:, None])
    expected = np.clip(label / 4, -1, 1) * factors
    assert mapped.labels == pytest.approx(expected, nan_ok=True)
    predicted = scaling.rows(csr_array(rows) if sparse else rows, finite=True)
    assert (predicted.toarray() if sparse else predicted)[:, :3] == pytest.approx(whole)
    assert scaling.shortened_by(predicted) == pytest.approx(factors)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_the_mean_of_labels_is_that_of_whole_records(sparse):
    rows = np.array([[0.3, 2.0], [0.1, 1.0], [0.0, 0.0]])
    chunk = Chunk(csr_array(rows) if sparse else rows, np.array([0.4, 0.2, 0.1]), 0, None)
    mapped = ConstantRows(2, 2.0, -1.0, 1.0)(chunk)
    assert mapped.labels[:2].tolist() == [0.4, 0.4]
    assert not np.isfinite(mapped.labels[2])  # the kernels leave it out


def test_rows_are_shortened_less_the_less_noise_there_is():
    for loss in (Logistic(), Squared()):
        for delta in (0.0, 1e-6):
            norms = [
                longest_row(loss, Budget(epsilon=10.0**e, delta=delta or None), 5000, 20)
                for e in range(-3, 7)
            ]
            assert norms == sorted(norms)
            assert norms[0] >= norm_of_uniform_rows(20)
            assert norms[-1] >= math.sqrt(20)


def test_rows_of_quantiles_are_shortened_more_at_much_noise_with_a_delta():
    def norm(epsilon: float, delta: float | None) -> float:
        loss = QuantileHuber(0.9, 0.02, centred=True)
        return longest_row(loss, Budget(epsilon=epsilon, delta=delta), 5000, 20)

    usual = norm_of_uniform_rows(20)
    assert norm(0.01, 1e-6) == pytest.approx(0.75 * usual)
    assert norm(0.01, None) == pytest.approx(usual)
    # The signal is about 1400 here, and the norm that of other regressions.
    assert norm(6.5, 1e-6) == pytest.approx(usual)
