"""What models promise and what they learn."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn import linear_model
from sklearn.base import clone
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from dpfit import Budget, Ledger
from dpfit.core import plan_from_json
from dpfit.data.schema import Category, Number, Schema
from dpfit.ledger import BudgetExceeded
from dpfit.models import (
    BoundedMean,
    GeometricMedian,
    HuberRegressor,
    LeakWarning,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    ModelFileDamaged,
    QuantileRegressor,
    Ridge,
    RobustRegressor,
    load,
    private_score,
    save,
)
from dpfit.models.classifiers import class_codes
from dpfit.models.inputs import labels_of
from dpfit.models.scores import ScoredRecords
from dpfit.privacy.spec import digest

CLASSIFIERS = [LogisticRegression, LinearSVC]
REGRESSORS = [LinearRegression, Ridge, HuberRegressor, QuantileRegressor, RobustRegressor]


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("neighbours", ["replace", "add_remove"])
def test_classifiers_keep_their_budget_and_learn(kind, delta, neighbours, line):
    X, y, _ = line
    model = kind(2.0, delta, bounds=(-1.0, 1.0), relation=neighbours, n_declared=4000).fit(X, y)
    assert model.guarantee_.meets(Budget(epsilon=2.0, delta=delta or None, relation=neighbours))
    assert model.private_
    assert (model.predict(X) == y).mean() > 0.9
    assert model.coef_.shape == (1, 2)
    margins = X @ model.coef_[0] + model.intercept_[0]
    assert np.allclose(margins, model.decision_function(X))


@pytest.mark.parametrize("kind", REGRESSORS)
@pytest.mark.parametrize("neighbours", ["replace", "add_remove"])
def test_regressors_keep_their_budget_and_learn(kind, neighbours, line):
    X, _, y = line
    model = kind(
        2.0, 1e-6, bounds=(-1.0, 1.0), y_bounds=(0, 10), relation=neighbours, n_declared=4000
    ).fit(X, y)
    assert model.guarantee_.meets(Budget(epsilon=2.0, delta=1e-6, relation=neighbours))
    assert np.abs(model.predict(X) - y).mean() < 0.5
    assert np.allclose(X @ model.coef_ + model.intercept_, model.predict(X))


@pytest.mark.parametrize("neighbours", ["replace", "add_remove"])
@pytest.mark.parametrize("quantile", [0.25, 0.9])
def test_quantiles_without_a_delta(quantile, neighbours):
    """The fraction of labels below is the quantile; at epsilon 100 noise is small."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, size=(4000, 2))
    y = 5 + 2 * X[:, 0] + rng.normal(size=4000)
    model = QuantileRegressor(
        100.0,
        quantile=quantile,
        bounds=(-1, 1),
        y_bounds=(0, 10),
        relation=neighbours,
        n_declared=4000,
    ).fit(X, y)
    assert model.guarantee_.meets(Budget(epsilon=100.0, relation=neighbours))
    assert abs((y < model.predict(X)).mean() - quantile) < 0.02


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("solver", ["output_perturbation", "objective_perturbation"])
def test_quantiles_by_solvers_that_need_a_smooth_loss(solver, delta, line):
    X, _, y = line
    model = QuantileRegressor(5.0, delta, bounds=(-1, 1), y_bounds=(0, 10), solver=solver).fit(X, y)
    assert model.guarantee_.meets(Budget(epsilon=5.0, delta=delta or None))
    assert np.abs(model.predict(X) - y).mean() < 1.0


def test_a_promise_without_a_price_is_charged_as_what_it_promises(tmp_path, line):
    """Gaussian noise has no cost in a pure ledger, but an epsilon at its delta."""
    X, y, _ = line
    ledger = Ledger.create(tmp_path / "budget.ledger")
    ledger.register("people", Budget(epsilon=2.0, delta=1e-5), currency="pure")
    model = LogisticRegression(
        0.5, 1e-6, bounds=(-1, 1), solver="noisy_gd", max_passes=3, ledger=ledger, dataset="people"
    ).fit(X, y)
    spent = ledger.status("people").spent
    assert float(spent.amount) == pytest.approx(0.5, rel=1e-6)
    assert float(spent.delta) == pytest.approx(1e-6)
    private_score(
        model, X, y, Budget(epsilon=0.5, delta=2e-6), ledger=ledger.path, dataset="people"
    )
    spent = ledger.status("people").spent
    assert float(spent.amount) == pytest.approx(1.0, rel=1e-6)
    assert float(spent.delta) == pytest.approx(3e-6)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("kind", [LogisticRegression, LinearRegression])
def test_ranges_nobody_wrote_down_are_found_privately(kind, delta, line):
    X, labels, values = line
    y = labels if kind is LogisticRegression else values
    model = kind(4.0, delta).fit(X * [100.0, 0.01], y)
    assert model.guarantee_.meets(Budget(epsilon=4.0, delta=delta or None))
    low, high = np.array(model.scaling_.lower), np.array(model.scaling_.upper)
    assert (low <= [-64, -0.0078125]).all()
    assert (high >= [64, 0.0078125]).all()
    assert (high <= [128, 0.015625]).all()
    if kind is LogisticRegression:
        assert (model.predict(X * [100.0, 0.01]) == y).mean() > 0.85


def test_what_is_declared_is_kept_and_only_the_rest_is_found():
    X = np.random.default_rng(0).uniform(0, 1000, size=(20_000, 5))
    y = X[:, 0] / 20
    columns = LinearRegression(1.0, 1e-6, bounds=(-3, 700)).fit(X, y)
    assert (columns.scaling_.lower, columns.scaling_.upper) == ((-3.0,) * 5, (700.0,) * 5)
    assert columns.plan_.mechanisms[0].query.number == 1
    labels = LinearRegression(1.0, 1e-6, y_bounds=(-5, 60)).fit(X, y)
    assert (labels.scaling_.label_lower, labels.scaling_.label_upper) == (-5.0, 60.0)
    assert labels.plan_.mechanisms[0].query.number == 5
    # Rows that are capped as they are have no ranges to find, and the cap is in their own units.
    rows = LinearRegression(1.0, 1e-6, row_norm=2236.0).fit(X, y)
    assert rows.scaling_.lower is None
    assert rows.plan_.mechanisms[0].query.number == 1
    for model in (labels, rows):
        assert model.guarantee_.meets(Budget(epsilon=1.0, delta=1e-6))
        assert 1 - np.mean((y - model.predict(X)) ** 2) / np.var(y) > 0.99


def test_ranges_may_be_an_array(line):
    X, labels, values = line
    bounds = np.array([[-1.0, -1.0], [1.0, 1.0]])
    for model in (
        LogisticRegression(1.0, bounds=bounds),
        LinearRegression(1.0, bounds=bounds, y_bounds=(0, 10)),
    ):
        assert model.fit(X, labels if "Logistic" in str(model) else values).scaling_.lower == (
            -1.0,
            -1.0,
        )


def test_solvers_and_their_passes_are_checked(line):
    X, y, _ = line
    with pytest.raises(ValueError, match="gaussian_mean solves 'answer' problems"):
        LogisticRegression(1.0, bounds=(-1, 1), solver="gaussian_mean").fit(X, y)
    for solver in ("output_perturbation", "dp_sgd"):
        with pytest.raises(ValueError, match=f"{solver} plans its passes by itself"):
            LogisticRegression(1.0, 1e-6, bounds=(-1, 1), solver=solver, max_passes=5).fit(X, y)
    with pytest.raises(ValueError, match="max_passes must be a whole number"):
        LogisticRegression(1.0, 1e-6, bounds=(-1, 1), solver="noisy_gd", max_passes=0).fit(X, y)


WRONG = [
    ("epsilon", None), ("delta", "1e-6"), ("ridge", None), ("ridge", "1"), ("row_norm", "2"),
    ("quantile", "half"), ("quantile", 1.0), ("schema", "schema.toml"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_errors_name_the_parameter_that_is_wrong(name, value, line):
    facts = {} if name == "schema" else {"bounds": (-1, 1)}
    model = QuantileRegressor(**{"y_bounds": (0, 10), **facts, name: value})
    for attempt in (lambda: model.fit(line[0], line[2]), lambda: model.plan(4000, 2)):
        with pytest.raises(ValueError, match=f"^{name} must "):
            attempt()


@pytest.mark.parametrize("number", [0, -5, 10.5, "10"])
def test_the_public_number_is_a_whole_one(number, line):
    X, y, _ = line
    for kind, labels in ((LogisticRegression, (y,)), (BoundedMean, ())):
        with pytest.raises(ValueError, match="n_declared must be a whole number of at least 1"):
            kind(1.0, 1e-6, bounds=(-1, 1), relation="add_remove", n_declared=number).fit(
                X, *labels
            )


def test_a_wrong_public_number_costs_nothing(tmp_path, line):
    X, y, _ = line
    ledger = Ledger.create(tmp_path / "budget.ledger")
    ledger.register("people", Budget(epsilon=1.0), currency="pure")
    with pytest.raises(ValueError, match="there are 4000"):
        LogisticRegression(
            1.0, bounds=(-1, 1), n_declared=3999, ledger=ledger, dataset="people"
        ).fit(X, y)
    assert ledger.status("people").spent.amount == 0


@pytest.mark.filterwarnings("ignore:random_state")
def test_a_seed_that_is_none_costs_nothing(tmp_path, line):
    X, y, _ = line
    ledger = Ledger.create(tmp_path / "budget.ledger")
    ledger.register("people", Budget(epsilon=1.0), currency="pure")
    for seed in (np.random.RandomState(0), "0", -1):
        with pytest.raises((TypeError, ValueError), match="random_state must be an integer"):
            LogisticRegression(
                1.0, bounds=(-1, 1), random_state=seed, ledger=ledger, dataset="people"
            ).fit(X, y)
    assert ledger.status("people").spent.amount == 0


@pytest.mark.parametrize("bounds", [(-1, 1), None], ids=["declared", "private"])
@pytest.mark.parametrize("neighbours", ["replace", "add_remove"])
@pytest.mark.parametrize("kind", [LinearRegression, Ridge])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_least_squares_from_noisy_statistics(kind, delta, neighbours, bounds, line, tmp_path):
    X, _, y = line
    facts = {
        "bounds": bounds,
        "y_bounds": bounds and (0, 10),
        "relation": neighbours,
        "n_declared": len(X),
    }
    usual = kind(4.0, delta, solver="sufficient_statistics", **facts).fit(X, y)
    assert usual.guarantee_.meets(Budget(epsilon=4.0, delta=delta or None, relation=neighbours))
    assert np.abs(usual.predict(X) - y).mean() < 0.5
    exact = kind(1e6, delta, solver="sufficient_statistics", ridge=0.0, **facts).fit(X, y)
    assert np.allclose(exact.coef_, [3, -1], atol=1e-3)
    assert exact.intercept_ == pytest.approx(5, abs=1e-3)
    save(exact, tmp_path / "model.json")
    assert np.array_equal(load(tmp_path / "model.json").predict(X), exact.predict(X))


@pytest.mark.parametrize("by_user", [False, True])
@pytest.mark.parametrize("bounds", [(-1, 1), None], ids=["declared", "private"])
def test_descent_on_samples_has_its_epsilon_and_delta_whoever_is_protected(bounds, by_user, line):
    X, y, _ = line
    model = LogisticRegression(
        4.0,
        1e-6,
        bounds=bounds,
        relation="add_remove",
        n_declared=4000,
        max_rows_per_user=2,
        solver="dp_sgd",
    ).fit(X, y, user_ids=np.repeat(np.arange(2000), 2) if by_user else None)
    unit = "user" if by_user else "record"
    assert model.guarantee_.meets(Budget(epsilon=4.0, delta=1e-6, relation="add_remove", unit=unit))
    assert (model.predict(X) == y).mean() > 0.8


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0, 100.0, 1e3, 1e6])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    "solver", ["auto", "output_perturbation", "objective_perturbation", "noisy_gd"]
)
def test_each_way_to_share_a_budget_keeps_it(epsilon, rows, solver):
    """Ranges and fit, and all records of a user, however the budget is shared between them."""
    facts = {
        "relation": "add_remove",
        "n_declared": 4000,
        "max_rows_per_user": rows,
        "solver": solver,
    }
    model = LogisticRegression(epsilon, 1e-6, **facts)
    budget = Budget(epsilon=epsilon, delta=1e-6, relation="add_remove")
    assert model.plan(4000, 3).guarantee.meets(budget)
    assert model.plan(4000, 3, by_user=True).guarantee.meets(replace(budget, unit="user"))


def test_three_classes(line):
    X, _, _ = line
    y = np.digitize(X[:, 0], [-0.3, 0.3])
    model = LogisticRegression(4.0, 1e-6, bounds=(-1.0, 1.0), classes=[0, 1, 2]).fit(X, y)
    assert model.coef_.shape == (3, 2)
    assert np.allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert (model.predict(X) == y).mean() > 0.8


def test_classes_are_public(line):
    X, y, _ = line
    model = LogisticRegression(1.0, bounds=(-1.0, 1.0))
    assert model.fit(X, np.zeros(len(X))).classes_.tolist() == [
        0,
        1,
    ]  # one class in the data: a model all the same
    assert model.fit(X, y.astype(bool)).classes_.tolist() == [False, True]
    assert model.fit(X, 7 * y).classes_.tolist() == [0, 1]  # numbers go to the nearest class
    with pytest.raises(ValueError, match="classes must be declared"):
        model.fit(X, np.where(y, "sick", "well"))
    named = LogisticRegression(1.0, bounds=(-1.0, 1.0), classes=["well", "sick"])
    assert set(named.fit(X, np.where(y, "sick", "well")).predict(X)) <= {"well", "sick"}
    with pytest.warns(LeakWarning, match="classes"):
        LogisticRegression(1.0, bounds=(-1.0, 1.0), classes="from_data").fit(
            X, np.where(y, "sick", "well")
        )


@pytest.mark.parametrize(
    ("whole", "missing"),
    [
        (pd.Series([True, False] * 20, dtype="boolean"), pd.NA),
        (pd.Series([True, False] * 20, dtype="bool[pyarrow]"), pd.NA),
        (pd.Series([1, 7] * 20, dtype="Int64"), pd.NA),
        (pd.Series(["a", "b"] * 20, dtype=pd.CategoricalDtype(["b", "a"])), None),
        (pl.Series([True, False] * 20), None),
        (pl.Series([1, 0] * 20), None),
        (pl.Series(["a", "b"] * 20, dtype=pl.Enum(["b", "a"])), None),
    ],
    ids=lambda value: f"{type(value).__module__.split('.')[0]} {getattr(value, 'dtype', '')}",
)
def test_classes_come_from_the_dtype_and_a_missing_label_is_no_class(whole, missing, line):
    """What a missing label does to `numpy.asarray(y).dtype` must not show."""
    pytest.importorskip("pyarrow")
    gap = whole.clone() if isinstance(whole, pl.Series) else whole.copy()
    gap[7] = missing
    X, model = line[0][:40], LogisticRegression(1.0, bounds=(-1, 1))
    classes = model.fit(X, whole).classes_
    assert model.fit(X, gap).classes_.tolist() == classes.tolist() == sorted(classes)
    codes = class_codes(classes, labels_of(gap))
    assert np.isnan(codes[7])
    assert np.array_equal(np.delete(codes, 7), np.delete(class_codes(classes, labels_of(whole)), 7))


def test_categories_that_the_records_made_are_not_public(line):
    """A Categorical of polars lists what occurred; an Enum is declared."""
    labels = pl.Series(np.where(line[1], "sick", "well"), dtype=pl.Categorical)
    with pytest.raises(ValueError, match="Enum of polars"):
        LogisticRegression(1.0, bounds=(-1, 1)).fit(line[0], labels)


def test_numbers_go_to_the_nearest_class():
    far = [-np.inf, -1e300, 0.5, 0.6, 4.0, 1e17, 1e300, np.inf, np.nan, None, "?"]
    codes = class_codes(np.array([0, 1, 5]), far)
    assert codes[:8].tolist() == [0, 0, 0, 1, 2, 2, 2, 2]
    assert np.isnan(codes[8:]).all()
    assert class_codes(np.array([-1e308, 1e308]), [-1e308, 1.0, 1e308]).tolist() == [0, 1, 1]
    assert class_codes(np.array(["a", "b"]), np.array(["b", None, "a"], dtype=object))[
        [0, 2]
    ].tolist() == [1, 0]
    assert np.isnan(
        class_codes(np.array(["a", "b"]), np.array([None, ["b"], "?"], dtype=object))
    ).all()


def test_classes_are_sorted_as_metrics_expect(line):
    X = line[0]
    texts = np.array(["lo", "mid", "hi"])[np.digitize(X[:, 0], [-0.3, 0.3])]
    declared = LogisticRegression(1e6, bounds=(-1, 1), classes=["lo", "mid", "hi"]).fit(X, texts)
    ordered = pd.Categorical(texts, categories=["lo", "mid", "hi"], ordered=True)
    for model in (declared, LogisticRegression(1e6, bounds=(-1, 1)).fit(X, ordered)):
        assert model.classes_.tolist() == ["hi", "lo", "mid"]
        assert log_loss(texts, model.predict_proba(X)) < 0.3


NO_CLASSES = [[0, 0], ["a", "b", "a"], [[0, 1]], [0, np.nan], [None, "a"], "ab", [2**60, 2**60 + 1]]


@pytest.mark.parametrize("classes", NO_CLASSES, ids=str)
def test_classes_that_are_none_are_refused(classes, line):
    X, y, _ = line
    with pytest.raises(ValueError, match="classes must be"):
        LogisticRegression(1.0, bounds=(-1, 1), classes=classes).fit(X, y)
    with pytest.raises(ValueError, match="at least two"):
        LogisticRegression(1.0, bounds=(-1, 1), classes=[1]).fit(X, y)


@pytest.mark.parametrize("labels", [int, bool, float])
def test_texts_are_no_classes_of_numbers(labels, line):
    """By their dtypes, which are public: all labels would count as the first class."""
    X, y, _ = line
    with pytest.raises(ValueError, match="declare numeric classes, or convert y to strings"):
        LogisticRegression(1.0, bounds=(-1, 1), classes=["0", "1"]).fit(X, y.astype(labels))
    assert (
        LogisticRegression(1.0, bounds=(-1, 1), classes=["0", "1"])
        .fit(X, y.astype(str))
        .predict(X)
        .dtype.kind
        == "U"
    )


@pytest.mark.parametrize("kind", [LogisticRegression, LinearRegression, BoundedMean])
def test_a_refused_fit_leaves_the_model_as_it_was(kind, tmp_path, line):
    X, y, _ = line
    ledger = Ledger.create(tmp_path / "budget.ledger")
    ledger.register("people", Budget(epsilon=0.1), currency="pure")
    facts = {"classes": ["a", "b"]} if kind is LogisticRegression else {}
    facts |= {"y_bounds": (0, 1)} if kind is LinearRegression else {}
    model = kind(1.0, bounds=(-1, 1), **facts)
    labels = np.where(y, "b", "a") if "classes" in facts else y
    model.fit(pd.DataFrame(X, columns=["p", "q"]), labels)
    model.set_params(ledger=ledger, dataset="people")
    if kind is LogisticRegression:
        model.set_params(classes=["a", "b", "c"])
    before = dict(vars(model))
    with pytest.raises(BudgetExceeded):
        model.fit(np.column_stack([X, X]), labels)
    assert vars(model).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(model).items())
    assert list(model.feature_names_in_) == ["p", "q"]


def test_what_leaks_is_said_and_written_down(line):
    X, y, _ = line
    with pytest.warns(LeakWarning, match="from_data"):
        model = LogisticRegression(1.0, bounds="from_data").fit(X, y)
    assert any("read off the data" in a.text for a in model.guarantee_.basis.assumptions)
    for bounds in ((-1, 1), None):  # one plan, and a chain of two
        with pytest.warns(LeakWarning, match="from_data"):
            seen = LogisticRegression(1.0, bounds=bounds, classes="from_data").fit(X, y)
        assert any("classes were read off" in a.text for a in seen.guarantee_.basis.assumptions)
    with pytest.warns(LeakWarning, match="private_score"):
        model.score(X, y)
    with pytest.warns(UserWarning, match="random_state"):
        assert not LogisticRegression(1.0, bounds=(-1, 1), random_state=1).fit(X, y).private_
    with pytest.warns(UserWarning, match="1 / n"):
        LogisticRegression(1.0, 0.01, bounds=(-1, 1)).fit(X, y)


@pytest.mark.parametrize(
    "settings", [{"delta": 0.5}, {"random_state": 1}, {"bounds": "from_data"}], ids=str
)
@pytest.mark.parametrize("kind", [LogisticRegression, LinearRegression, BoundedMean])
def test_warnings_are_about_the_line_that_called(kind, settings, line):
    """Python warns once for each line: a line of dpfit would warn of the first fit only."""
    if kind is BoundedMean and "bounds" in settings:
        return
    model = kind(**{"bounds": (-1, 1), **settings})
    with pytest.warns(UserWarning, match="1 / n|random_state|from_data") as seen:
        model.fit(*line[:2])
    if "delta" in settings and kind is not BoundedMean:
        with pytest.warns(UserWarning, match="1 / n") as planned:
            model.plan(4000, 2)
        seen = [*seen, *planned]
    assert {warning.filename for warning in seen} == {__file__}


def test_add_remove_needs_a_public_number(line):
    X, y, _ = line
    with pytest.raises(ValueError, match="n_declared"):
        LogisticRegression(1.0, bounds=(-1, 1), relation="add_remove").fit(X, y)
    with pytest.raises(ValueError, match="replace"):
        LogisticRegression(1.0, bounds=(-1, 1), relation="swap").fit(X, y)


@pytest.mark.parametrize("neighbours", ["replace", "add_remove"])
def test_with_a_huge_budget_logistic_regression_is_that_of_scikit_learn(neighbours, line):
    X, _, values = line
    y = (values + np.random.default_rng(1).logistic(size=len(values)) > 5).astype(int)
    model = LogisticRegression(
        1e6, bounds=(-1, 1), row_norm=2.0, ridge=0.01, relation=neighbours, n_declared=4000
    )
    weights = model.fit(X, y).weights_[0]
    rows = np.column_stack([X, np.ones(len(X))])
    plain = linear_model.LogisticRegression(
        C=1 / (0.01 * len(X)), fit_intercept=False, tol=1e-10, max_iter=1000
    )
    assert np.abs(weights - plain.fit(rows, y).coef_[0]).max() < 1e-3


@pytest.mark.parametrize("kind", [LinearRegression, Ridge])
def test_with_a_huge_budget_regression_is_least_squares(kind, line):
    X, _, y = line
    noisy = y + np.random.default_rng(1).normal(size=len(y))
    model = kind(1e6, bounds=(-1, 1), row_norm=2.0, y_bounds=(-5, 15)).fit(X, noisy)
    rows = np.column_stack([X, np.ones(len(X))])
    labels = (noisy - 5) / 10
    exact = np.linalg.solve(rows.T @ rows + len(X) * model.ridge * np.eye(3), rows.T @ labels)
    assert np.abs(model.weights_ - exact).max() < 1e-3


def test_progress_is_told_where_the_solver_can_say(line):
    X, y, _ = line
    shares = []
    model = LogisticRegression(1.0, 1e-6, bounds=(-1, 1), solver="noisy_gd")
    model.report_progress = shares.append
    model.fit(X, y)
    assert len(shares) > 10
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
    assert clone(model).report_progress is None
    assert "report_progress" not in model.get_params()


def test_locations():
    X = np.random.default_rng(0).normal([2.0, -1.0], 0.5, size=(5000, 2))
    assert np.abs(BoundedMean(1.0, bounds=(-10, 10)).fit(X).location_ - [2, -1]).max() < 0.3
    assert (
        np.abs(GeometricMedian(1.0, 1e-6, bounds=(-10, 10)).fit(X).location_ - [2, -1]).max() < 0.6
    )


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("kind", [BoundedMean, GeometricMedian])
def test_locations_in_ranges_nobody_wrote_down(kind, delta, tmp_path):
    X = np.random.default_rng(0).normal([350.0, -1.0], [20.0, 0.1], size=(20_000, 2))
    model = kind(4.0, delta).fit(X)
    assert model.guarantee_.meets(Budget(epsilon=4.0, delta=delta or None))
    assert model.plan_.mechanisms[0].kind == "private_bounds"
    assert model.scaling_.lower == (256.0, -2.0)
    assert model.scaling_.upper == (512.0, -0.5)
    assert np.abs((model.location_ - [350.0, -1.0]) / [256.0, 1.5]).max() < 0.1
    save(model, tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert again.plan_ == model.plan_
    if kind is BoundedMean:
        assert np.array_equal(again.location_noise_interval_, model.location_noise_interval_)
        wide, narrow = np.ptp(again.location_noise_interval_, axis=0)
        assert wide / narrow == pytest.approx(256 / 1.5)
    same = kind(4.0, delta, bounds="private", random_state=1)
    with pytest.warns(UserWarning, match="random_state"):
        assert same.fit(X).plan_ == model.plan_
    with pytest.raises(ValueError, match="'private', got 'from_data'"):
        kind(4.0, bounds="from_data").fit(X)


@pytest.mark.parametrize("kind", [BoundedMean, GeometricMedian])
@pytest.mark.parametrize("bounds", [None, (-1, 1)])
def test_no_records_are_no_error_for_a_location(kind, bounds):
    model = kind(1.0, bounds=bounds, relation="add_remove", n_declared=5)
    assert np.isfinite(model.fit(np.zeros((0, 2))).location_).all()


@pytest.mark.parametrize("kind", [BoundedMean, GeometricMedian])
def test_the_widest_ranges_have_finite_locations(kind):
    X, most = np.zeros((50, 2)), np.finfo(float).max
    for bounds in ((-1e308, 1e308), (-most, most), (1e308, most)):
        location = kind(1e-3, bounds=bounds).fit(X).location_
        assert ((location >= bounds[0]) & (location <= bounds[1])).all()


def test_users_are_protected_with_all_of_their_records(line):
    X, y, _ = line
    users = np.repeat(np.arange(1000), 4)
    model = LogisticRegression(
        2.0, 1e-6, bounds=(-1, 1), relation="add_remove", n_declared=4000, max_rows_per_user=2
    ).fit(X, y, user_ids=users)
    assert model.guarantee_.basis.unit == "user"
    assert model.guarantee_.meets(
        Budget(epsilon=2.0, delta=1e-6, relation="add_remove", unit="user")
    )
    with pytest.raises(ValueError, match="max_rows_per_user"):
        LogisticRegression(2.0, bounds=(-1, 1)).fit(X, y, user_ids=users)


def test_every_fit_is_charged(tmp_path, line):
    X, y, _ = line
    ledger = Ledger.create(tmp_path / "budget.ledger")
    ledger.register("people", Budget(epsilon=1.0), currency="pure")
    model = LogisticRegression(0.25, bounds=(-1, 1), ledger=ledger, dataset="people")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeakWarning)
        cross_val_score(model, X, y, cv=3)
    assert len([e for e in ledger.entries("people") if e.kind == "release"]) == 3
    model.fit(X, y)
    with pytest.raises(BudgetExceeded, match="people"):
        model.fit(X, y)
    with pytest.raises(ValueError, match="dataset="):
        LogisticRegression(0.25, bounds=(-1, 1), ledger=ledger).fit(X, y)
    with pytest.raises(ValueError, match="give ledger=, or leave out both"):
        LogisticRegression(0.25, bounds=(-1, 1), dataset="people").fit(X, y)


def test_a_paid_score(tmp_path, line):
    X, y, values = line
    model = LogisticRegression(5.0, bounds=(-1, 1)).fit(X, y)
    truth = (model.predict(X) == y).mean()
    score = private_score(model, X, y, Budget(epsilon=1.0))
    assert score.guarantee.pure == 1.0
    assert score.low <= score.value <= score.high
    assert abs(score.value - truth) < 10 / len(y)
    ledger = Ledger.create(tmp_path / "b.ledger")
    ledger.register("people", Budget(epsilon=1.0), currency="pure")
    private_score(
        model, X, y, Budget(epsilon=0.7), ledger=ledger, dataset="people", metric="log_loss"
    )
    with pytest.raises(BudgetExceeded):
        private_score(model, X, y, Budget(epsilon=0.7), ledger=ledger, dataset="people")
    with pytest.raises(ValueError, match="n_declared"):
        private_score(model, X, y, Budget(epsilon=0.7, relation="add_remove"))
    line_model = LinearRegression(5.0, bounds=(-1, 1), y_bounds=(0, 10)).fit(X, values)
    assert private_score(line_model, X, values, Budget(mu=1.0)).metric == "mae"
    with pytest.raises(ValueError, match="mae"):
        private_score(line_model, X, values, Budget(mu=1.0), metric="accuracy")


def test_a_score_is_paid_before_the_records_are_read(tmp_path, line):
    X, y, _ = line
    model = LogisticRegression(5.0, bounds=(-1, 1)).fit(X, y)
    ledger = Ledger.create(tmp_path / "b.ledger")
    ledger.register("people", Budget(epsilon=1.0), currency="pure")
    asked = []
    model.predict = lambda rows: asked.append(float(ledger.status("people").spent.amount)) or y
    private_score(model, X, y, Budget(epsilon=0.7), ledger=ledger, dataset="people")
    assert asked == [pytest.approx(0.7)]
    with pytest.raises(BudgetExceeded):
        private_score(model, X, y, Budget(epsilon=0.7), ledger=ledger, dataset="people")
    for rows, labels in ((X, y[:1]), (X[:, 0], y), (np.column_stack([X, X]), y)):
        with pytest.raises(ValueError, match="shape"):
            private_score(model, rows, labels, Budget(epsilon=0.1), ledger=ledger, dataset="people")
    assert len(asked) == 1
    assert float(ledger.status("people").spent.amount) == asked[0]
    with pytest.warns(UserWarning, match="random_state"):
        assert not private_score(model, X, y, Budget(epsilon=1.0), random_state=0).release.private


@pytest.mark.parametrize("metric", ["accuracy", "log_loss", "mae", "mse"])
def test_nothing_about_a_score_but_its_value_depends_on_the_records(metric, line):
    X, y = line[0][:400], line[1][:400].astype(float)
    regression = metric in ("mae", "mse")
    model = (
        LinearRegression(5.0, bounds=(-1, 1), y_bounds=(0, 1))
        if regression
        else LogisticRegression(5.0)
    )
    model.fit(X, y)
    for bad in BAD_LABELS:
        labels = y.copy()
        labels[7] = bad
        assert np.isfinite(
            private_score(model, X, labels, Budget(epsilon=1.0), metric=metric).value
        )
    missing = pd.Series(y, dtype="Int64")
    missing[7] = pd.NA
    assert np.isfinite(private_score(model, X, missing, Budget(epsilon=1.0), metric=metric).value)
    budget = Budget(epsilon=1.0, relation="add_remove")
    assert np.isfinite(
        private_score(model, X[:0], y[:0], budget, metric=metric, n_declared=10).value
    )
    column = private_score(model, X, y, Budget(epsilon=1e6), metric=metric).value
    with pytest.warns(UserWarning, match="column-vector"):
        assert private_score(
            model, X, y[:, None], Budget(epsilon=1e6), metric=metric
        ).value == pytest.approx(column, abs=1e-4)
    if regression:
        labels = y.astype(object)
        labels[7] = "secret"
        with pytest.raises(ValueError, match="must hold numbers") as error:
            private_score(model, X, labels, Budget(epsilon=1.0), metric=metric)
        assert "secret" not in str(error.value)


def test_a_score_that_cannot_be_made_costs_nothing(tmp_path, line):
    X, y, _ = line
    ledger = Ledger.create(tmp_path / "b.ledger")
    ledger.register("people", Budget(epsilon=1.0), currency="pure")
    model, paid = (
        LogisticRegression(5.0, bounds=(-1, 1)).fit(X, y),
        {"ledger": ledger, "dataset": "people"},
    )
    svc = LinearSVC(5.0, bounds=(-1, 1)).fit(X, y)
    with pytest.raises(ValueError, match="score 'accuracy' instead"):
        private_score(svc, X, y, Budget(epsilon=1.0), metric="log_loss", **paid)
    with pytest.raises(ValueError, match="leave out n_declared, which is 7"):
        private_score(model, X, y, Budget(epsilon=1.0), n_declared=7, **paid)
    with pytest.raises(ValueError, match="X must hold numbers"):
        private_score(model, X.astype(str), y, Budget(epsilon=1.0), **paid)
    with pytest.raises(ValueError, match=r"budget must be a dpfit\.Budget, such as"):
        private_score(model, X, y, 1.0, **paid)
    assert ledger.status("people").spent.amount == 0


def test_a_score_reads_the_tables_that_a_schema_reads(line):
    """More columns than the schema names, or a mapping."""
    X, y, _ = line
    table = {"a": X[:, 0], "more": ["text"] * len(y)}
    model = LogisticRegression(
        50.0, schema=Schema((Number("a", -1, 1, nullable=True),), scale="symmetric")
    )
    pipeline = make_pipeline(model.schema, LogisticRegression(50.0, row_norm=model.schema.bound))
    for fitted in (model.fit(table, y), pipeline.fit(table, y)):
        for rows in (table, pd.DataFrame(table), pl.DataFrame(table)):
            score = private_score(fitted, rows, y, Budget(epsilon=1e3)).value
            assert score == pytest.approx((fitted.predict(rows) == y).mean(), abs=1e-3)
        with pytest.raises(ValueError, match="one label for each record"):
            private_score(fitted, table, y[1:], Budget(epsilon=1.0))


def test_a_score_of_a_pipeline(line):
    X, _, values = line
    schema = Schema((Number("a", -1, 1), Number("b", -1, 1)))
    table = pd.DataFrame(X, columns=["a", "b"])
    model = make_pipeline(
        schema, LinearRegression(50.0, row_norm=schema.bound, y_bounds=(0, 10))
    ).fit(table, values)
    error = np.abs(model.predict(table) - values).mean()
    assert private_score(model, table, values, Budget(epsilon=1e3)).value == pytest.approx(
        error, abs=1e-3
    )
    with pytest.raises(ValueError, match=r"regressors of dpfit\.models"):
        private_score(
            linear_model.LinearRegression().fit(X, values), X, values, Budget(epsilon=1.0)
        )


@pytest.mark.parametrize("kind", [*CLASSIFIERS, *REGRESSORS, BoundedMean, GeometricMedian])
def test_saved_models_come_back_and_damaged_files_do_not(kind, tmp_path, line):
    X, labels, values = line
    model = kind(1.0, 1e-6, bounds=(-1, 1)).fit(X, labels if kind in CLASSIFIERS else values)
    path = tmp_path / "model.json"
    save(model, path)
    again = load(path)
    assert type(again) is kind
    assert again.guarantee_.to_json() == model.guarantee_.to_json()
    assert again.plan_ == model.plan_
    if hasattr(model, "predict"):
        assert np.array_equal(again.predict(X), model.predict(X))
    text = path.read_text()
    for damaged in (
        text[: len(text) // 2],
        text.replace('"epsilon": 1.0', '"epsilon": 0.1', 1),
        "{}",
        "[1]",
        "",
    ):
        path.write_text(damaged)
        with pytest.raises(ModelFileDamaged):
            load(path)
    with pytest.raises(ModelFileDamaged, match="cannot open"):
        load(tmp_path / "nothing.json")
    with pytest.raises(ValueError, match="fitted"):
        save(kind(), path)


def test_parameters_that_a_fit_takes_can_be_saved(tmp_path, line):
    X, y, _ = line
    texts = np.where(y, "b", "a")
    for classes, labels in (
        (range(2), y),
        (np.array([0, 1], object), y),
        (pd.Index(["a", "b"]), texts),
    ):
        bounds = (pd.Series([-1.0, -1.0]), pl.Series([1.0, 1.0]))
        model = LogisticRegression(1.0, classes=classes, bounds=bounds).fit(X, labels)
        save(model, tmp_path / "model.json")
        again = load(tmp_path / "model.json")
        assert (list(again.classes), again.bounds) == (list(classes), [[-1.0, -1.0], [1.0, 1.0]])
        assert np.array_equal(again.predict(X), model.predict(X))
    bins = LogisticRegression(1.0, bounds=(-1, 1)).fit(X, pd.cut(X[:, 0], [-1, 0, 1]))
    with pytest.raises(ValueError, match="classes must be numbers or strings"):
        save(bins, tmp_path / "model.json")


MALFORMED = {
    "another class": lambda content: content.update(model="os"),
    "no scaling": lambda content: content.pop("scaling"),
    "no plan": lambda content: content.update(plan={}),
    "no values": lambda content: content["fitted"].clear(),
    "too few values": lambda content: content["fitted"]["weights_"].update(values=[[1.0]]),
    "too few coefficients": lambda content: content["fitted"]["coef_"].update(values=[[1.0]]),
    "a class too many": lambda content: content["fitted"]["classes_"].update(values=[0, 1, 2]),
    "an unknown dtype": lambda content: content["fitted"]["coef_"].update(dtype="zzz"),
    "a method": lambda content: content["fitted"].update(predict={"dtype": "<f8", "values": 1.0}),
    "an unknown parameter": lambda content: content["parameters"].update(epsilons=1.0),
    "parameters of another type": lambda content: content.update(parameters=[1.0]),
    "columns of another type": lambda content: content.update(n_features="2"),
    "another promise": lambda content: content["guarantee"]["event"].update(noise_multiplier=9.0),
}


@pytest.mark.parametrize("change", MALFORMED.values(), ids=MALFORMED)
def test_malformed_files_are_refused_though_their_digest_is_right(change, tmp_path, line):
    X, y, _ = line
    path = tmp_path / "model.json"
    save(LogisticRegression(1.0, bounds=(-1, 1), solver="output_perturbation").fit(X, y), path)
    content = json.loads(path.read_text())
    del content["sha256"]
    change(content)
    path.write_text(json.dumps({**content, "sha256": digest(content)}))
    with pytest.raises(
        ModelFileDamaged, match=r"another promise|whole model|fields that a model does not have"
    ):
        load(path)


def test_deeply_nested_files_are_refused(tmp_path):
    path = tmp_path / "model.json"
    path.write_text("[" * 100_000)
    with pytest.raises(ModelFileDamaged):
        load(path)


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("case", ["constant", "few", "one", "hostile"])
@pytest.mark.parametrize("kind", [LogisticRegression, LinearRegression, QuantileRegressor])
def test_hostile_data_give_a_model(kind, case, epsilon):
    X = {
        "constant": np.ones((50, 3)),
        "few": np.random.default_rng(0).normal(size=(3, 10)),
        "one": np.ones((1, 2)),
        "hostile": np.array([[np.nan, 1e300], [np.inf, -np.inf], [1e-300, 0.0]] * 5),
    }[case]
    for bounds in ((-1.0, 1.0), None):
        more = {"y_bounds": (0, 1)} if kind is not LogisticRegression and bounds else {}
        delta = 0.0 if kind is QuantileRegressor else 1e-9
        model = kind(epsilon, delta, bounds=bounds, **more).fit(X, np.zeros(len(X)))
        assert np.isfinite(model.coef_).all()
        assert np.isfinite(model.predict(X).astype(float)).all()


def test_plans_need_no_data():
    plan = LogisticRegression(1.0, 1e-6, bounds=(-1, 1)).plan(1000, 5)
    assert plan.guarantee.meets(Budget(epsilon=1.0, delta=1e-6))
    assert "considered" in plan.explain()


def test_plans_of_several_parts_say_which_solvers_were_considered():
    model = LogisticRegression(
        1.0, 1e-6, relation="add_remove", n_declared=500, max_rows_per_user=2
    )
    for by_user in (False, True):
        assert "considered noisy_gd" in model.plan(500, 3, by_user=by_user).explain()


def test_the_promise_is_shown_at_the_delta_that_was_asked_for(line, tmp_path):
    model = LogisticRegression(1.0, 1e-5, bounds=(-1, 1), solver="noisy_gd", max_passes=3).fit(
        *line[:2]
    )
    save(model, tmp_path / "model.json")
    for shown in (model, load(tmp_path / "model.json")):
        assert str(shown.guarantee_) == "epsilon = 1 at delta = 1e-5, with one record replaced"
    assert model.guarantee_ == model.plan_.guarantee


def test_plans_know_declared_classes_and_users():
    model = LogisticRegression(1.0, 1e-6, bounds=(-1, 1), classes=[0, 1, 2])
    assert model.plan(1000, 5).plan.problem.dimension == 18
    X, y = np.zeros((50, 5)), np.zeros(50)
    fitted = LogisticRegression(1.0, 1e-6, bounds=(-1, 1)).fit(X, y).set_params(classes=[0, 1, 2])
    assert fitted.plan(1000, 5).plan.problem.dimension == 18
    model = LogisticRegression(
        1.0, bounds=(-1, 1), relation="add_remove", n_declared=1000, max_rows_per_user=3
    )
    assert model.plan(1000, 5, by_user=True).guarantee.meets(
        Budget(epsilon=1.0, relation="add_remove", unit="user")
    )


@pytest.mark.parametrize("kind", [LogisticRegression, LinearRegression])
def test_no_records_are_no_error_when_their_number_is_private(kind):
    more = {"y_bounds": (0, 1)} if kind is LinearRegression else {}
    model = kind(1.0, 1e-6, bounds=(-1, 1), relation="add_remove", n_declared=100, **more)
    assert np.isfinite(model.fit(np.zeros((0, 3)), np.zeros(0)).coef_).all()


@pytest.mark.parametrize("kind", [LogisticRegression, LinearRegression])
def test_public_records_are_a_start(kind, line):
    X, labels, values = line
    y = labels if kind is LogisticRegression else values
    more = {"y_bounds": (0, 10)} if kind is LinearRegression else {}
    model = kind(0.1, 1e-6, bounds=(-1, 1), public=(X[:400], y[:400]), **more).fit(X, y)
    assert model.guarantee_.meets(Budget(epsilon=0.1, delta=1e-6))
    assert any("not protected" in a.text for a in model.guarantee_.basis.assumptions)
    if kind is LogisticRegression:
        assert (model.predict(X) == y).mean() > 0.9
    else:
        assert np.abs(model.predict(X) - y).mean() < 0.2
    with pytest.raises(ValueError, match="delta > 0"):
        kind(0.1, bounds=(-1, 1), public=(X[:400], y[:400]), **more).fit(X, y)
    with pytest.raises(ValueError, match="pair"):
        kind(0.1, 1e-6, bounds=(-1, 1), public=3, **more).fit(X, y)


BAD_LABELS = [np.nan, np.inf, -np.inf, 0.5, 1e300]


@pytest.mark.parametrize("neighbours", ["replace", "add_remove"])
@pytest.mark.parametrize("value", BAD_LABELS)
@pytest.mark.parametrize("kind", [*CLASSIFIERS, *REGRESSORS])
def test_no_label_is_an_error(kind, value, neighbours, line):
    """Whether some record has a bad label must not show, not even as an exception."""
    X = line[0][:40]
    y = line[1][:40].astype(float)
    y[7] = value
    more = {} if kind in CLASSIFIERS else {"y_bounds": (0, 1)}
    model = kind(
        1.0, 1e-6, bounds=(-1, 1), relation=neighbours, n_declared=40, max_passes=5, **more
    ).fit(X, y)
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("kind", [LogisticRegression, LinearRegression, BoundedMean])
def test_texts_are_refused_by_type_and_never_quoted(kind, line):
    X = line[0][:40].astype(object)
    for cell in (0.5, "secret"):
        X[7, 0] = cell
        with pytest.raises(ValueError, match="Schema") as error:
            kind(1.0, 1e-6, bounds=(-1, 1)).fit(X, line[1][:40])
        assert "secret" not in str(error.value)
    labels = line[1][:40].astype(object)
    labels[7] = "secret"
    if kind is LinearRegression:
        with pytest.raises(ValueError, match="Schema"):
            kind(1.0, 1e-6, bounds=(-1, 1), y_bounds=(0, 1)).fit(line[0][:40], labels)


@pytest.mark.parametrize("kind", [LogisticRegression, LinearRegression, BoundedMean])
def test_wrong_shapes_and_types_are_refused_without_a_quotation(kind, line):
    X, y, _ = line
    X = X + 0.123456789
    model = kind(1.0, bounds=(-1, 1), **({"y_bounds": (0, 1)} if kind is LinearRegression else {}))
    for rows, labels, message in (
        (X[:, 0], y, "Expected 2D"),
        (X + 1j, y, "Complex"),
        (X, y + 0.5j, "Complex"),
    ):
        if kind is BoundedMean and labels is not y:
            continue
        with pytest.raises(ValueError, match=message) as error:
            model.fit(rows, labels)
        assert "." not in str(error.value).replace(".reshape", "").replace("instead. ", "")
    model.fit(X, y)
    if kind is not BoundedMean:
        with pytest.raises(ValueError, match="Reshape your data"):
            model.predict(X[:, 0])
        assert model.predict(X[:0]).shape == (0,)


@pytest.mark.parametrize(
    "labels", [pd.Series([1, 0] * 20, dtype="Int64"), pl.Series([True, False] * 20)], ids=type
)
def test_a_missing_number_is_no_error(labels, line):
    gap = labels.clone() if isinstance(labels, pl.Series) else labels.copy()
    gap[7] = None
    for y in (labels, gap):
        model = LinearRegression(1.0, bounds=(-1, 1), y_bounds=(0, 1)).fit(line[0][:40], y)
        assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("kind", [LogisticRegression, LinearRegression, BoundedMean])
def test_masked_arrays_are_refused(kind, line):
    """What they hide would be used like the rest."""
    X, y, _ = line
    model = kind(1.0, bounds=(-1, 1))
    with pytest.raises(ValueError, match="X must not be a masked array: fill it with NaN"):
        model.fit(np.ma.masked_array(X, mask=X > 0.5), y)
    if kind is not BoundedMean:
        with pytest.raises(ValueError, match="y must not be a masked array"):
            model.fit(X, np.ma.masked_array(y, mask=y > 0))


@pytest.mark.parametrize("cell", [True, None])
def test_an_empty_cell_of_an_arrow_table_is_no_error(cell, line):
    X, y, _ = line
    model = LogisticRegression(1.0, bounds=(-1, 1))
    flags = pa.array([cell, *(X[1:, 0] > 0).tolist()])
    for rows in (pa.table({"a": flags, "b": flags}), pa.table({"a": X[:, 0], "b": flags})):
        assert np.isfinite(model.fit(rows, y).coef_).all()
        assert model.predict(rows).shape == y.shape
    for labels in (flags, pa.chunked_array([flags])):
        assert model.fit(X, labels).classes_.tolist() == [False, True]
    for texts in (
        pa.table({"a": ["x"] * len(y)}),
        pa.table({"a": pa.array(["x"] * len(y)).dictionary_encode()}),
    ):
        with pytest.raises(ValueError, match="must hold numbers"):
            model.fit(texts, y)
        with pytest.raises(ValueError, match="classes must be declared"):
            model.fit(X, texts["a"])


@pytest.mark.parametrize(("metric", "worst"), [("accuracy", 0.0), ("log_loss", 2.0)])
def test_a_record_that_another_model_refuses_has_the_worst_score(metric, worst):
    """scikit-learn raises at a non-numeric cell, which would reveal that record."""
    rows = np.linspace(-1, 1, 40)[:, None]
    y = (rows[:, 0] > 0).astype(float)
    broken = np.array(rows)
    broken[3] = np.nan
    for kind in (np.asarray, pd.DataFrame):
        fitted = linear_model.LogisticRegression().fit(kind(rows), y)
        before, after = (
            ScoredRecords(fitted, kind(each), y).scores(metric, 2.0) for each in (rows, broken)
        )
        assert after[3] == worst
        assert np.delete(after, 3) == pytest.approx(np.delete(before, 3))


def test_a_schema_gives_texts_their_classes():
    """Public categories serve as `classes`; numbers and dtypes with classes are as before."""
    schema = Schema((Number("a", -1, 1),), target=Category("state", ("well", "sick", "dead")))
    table = {"a": np.linspace(-1, 1, 60)}
    texts = np.array(["well", "sick"] * 30)
    sorted_ones = ["dead", "sick", "well"]
    declared = LogisticRegression(1.0, schema=schema, classes=sorted_ones)
    assert LogisticRegression(1.0, schema=schema).plan(60) == declared.plan(60)
    well = texts == "well"
    for y, classes in ((texts, sorted_ones), (well, [False, True]), (well * 1.0, [0, 1])):
        assert LogisticRegression(1.0, schema=schema).fit(table, y).classes_.tolist() == classes
    with pytest.raises(ValueError, match="classes must be declared"):
        LogisticRegression(1.0, schema=replace(schema, target=Number("age", 0, 1))).fit(
            table, texts
        )


DECLARED = "the declared ranges and categories were not read off these records"


@pytest.mark.parametrize(
    ("model", "declares"),
    [
        (LinearRegression(1.0, bounds=(0, 1), y_bounds=(0, 1)), True),
        (LinearRegression(1.0, bounds=(0, 1)), True),
        (LinearRegression(1.0, row_norm=2.0, y_bounds=(0, 1)), True),
        (LinearRegression(1.0), False),
        (BoundedMean(1.0, bounds=(0, 1)), True),
        (BoundedMean(1.0, bounds="private"), False),
    ],
    ids=["bounds", "bounds without y", "row norm", "private", "mean", "private mean"],
)
def test_a_promise_says_that_it_rests_on_declared_ranges(model, declares):
    rows = np.full((2000, 3), 0.5)
    plan = model.plan(2000, 3) if hasattr(model, "plan") else model.fit(rows).plan_
    told = {one.text: one.status for one in plan.guarantee.basis.assumptions}
    assert told.get(DECLARED) == ("declared" if declares else None)
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert declares == (f"declared   {DECLARED}" in plan.explain())


@pytest.mark.filterwarnings("ignore")
def test_ranges_that_were_read_off_the_records_are_not_called_declared():
    rows = np.linspace(0, 1, 60).reshape(20, 3)
    fitted = LinearRegression(1.0, bounds="from_data").fit(rows, rows[:, 0])
    told = [one.text for one in fitted.guarantee_.basis.assumptions]
    assert DECLARED not in told
    assert "ranges were read off the data and are not protected" in told
