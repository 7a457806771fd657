"""scikit-learn's own checks, cloning, pipelines, frames, names."""

import warnings
from dataclasses import FrozenInstanceError

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import has_fit_parameter

import dpfit
from dpfit.data.schema import Category, Number, Schema
from dpfit.models import (
    BoundedMean,
    GeometricMedian,
    HuberRegressor,
    LeakWarning,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    NetworkClassifier,
    NetworkRegressor,
    QuantileRegressor,
    Ridge,
    RobustRegressor,
    load,
    save,
)
from dpfit.models.table import ESTIMATORS

MODELS = {
    "LogisticRegression": LogisticRegression(classes="from_data"),
    "LinearSVC": LinearSVC(classes="from_data"),
    "LinearRegression": LinearRegression(),
    "Ridge": Ridge(),
    "HuberRegressor": HuberRegressor(),
    "QuantileRegressor": QuantileRegressor(),
    "RobustRegressor": RobustRegressor(delta=1e-6),
    "NetworkRegressor": NetworkRegressor(hidden=(8,), max_passes=60),
    "NetworkClassifier": NetworkClassifier(classes="from_data", hidden=(8,), max_passes=60),
}
PREDICTORS = list(MODELS)
REFUSED = {
    "check_dtype_object": (
        "objects are refused by their dtype: "
        "an error at the first that is no number quotes a record"
    )
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PREDICTORS)
def test_scikit_learns_checks(name):
    model = clone(MODELS[name]).set_params(epsilon=1e6, bounds="from_data", random_state=0)
    results = check_estimator(model, on_fail=None, expected_failed_checks=REFUSED)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert not failed
    assert sum(r["status"] == "passed" for r in results) > 40


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bounds", [None, (-1.0, 1.0)])
@pytest.mark.parametrize(
    "model", [BoundedMean(), GeometricMedian(delta=1e-6)], ids=lambda m: type(m).__name__
)
def test_scikit_learns_checks_for_locations(model, bounds):
    results = check_estimator(
        model.set_params(epsilon=1e6, random_state=0, bounds=bounds),
        on_fail=None,
        expected_failed_checks=REFUSED,
    )
    assert not {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}


@pytest.mark.parametrize(
    "kind", [type(model) for model in (*MODELS.values(), BoundedMean(), GeometricMedian())]
)
def test_parameters_are_inherited_and_named(kind):
    """Two positional, the rest by name, kept as given; models equal only themselves."""
    model = kind(0.5, 1e-7, relation="add_remove", n_declared=10)
    assert (model.epsilon, model.delta) == (0.5, 1e-7)
    with pytest.raises(TypeError):
        kind(0.5, 1e-7, "add_remove")
    twin = clone(model)
    assert twin.get_params() == model.get_params() == vars(model)
    assert twin != model
    assert twin.set_params(epsilon=2.0).epsilon == 2.0
    shown = "".join(repr(model).split())
    assert shown == f"{kind.__name__}(delta=1e-07,epsilon=0.5,n_declared=10,relation='add_remove')"


def test_a_schema_is_a_step_of_a_pipeline():
    table = pd.DataFrame({"age": [30, 50, 70, 200] * 500, "ward": ["A", "B", "C", None] * 500})
    sick = np.array([0, 1, 1, 1] * 500)
    schema = Schema((Number("age", 0, 120), Category("ward", ("A", "B"))), row_norm=1.5)
    model = make_pipeline(
        schema, LogisticRegression(epsilon=5.0, row_norm=schema.bound, fit_intercept=False)
    )
    fitted = clone(model).fit(table, sick)
    assert fitted.predict(table).shape == (2000,)
    assert (fitted.predict(table) == sick).mean() > 0.7
    assert list(fitted[:-1].get_feature_names_out()) == list(schema.names)
    assert "StandardScaler" not in repr(model)


def test_a_schema_makes_what_a_pipeline_asks_for():
    table = pd.DataFrame({"age": [30, 50, 60], "ward": ["A", "B", None]}, index=[5, 7, 9])
    schema = Schema((Number("age", 0, 120), Category("ward", ("A", "B"))))
    named = clone(schema).set_output(transform="pandas").fit_transform(table)
    assert list(named.columns) == list(schema.names)
    assert list(named.index) == [5, 7, 9]
    assert np.array_equal(named, schema.matrix(table))
    other = clone(schema).set_output(transform="polars").transform(table)
    assert isinstance(other, pl.DataFrame)
    assert other.columns == list(schema.names)
    assert np.array_equal(other.to_numpy(), schema.matrix(table))
    with config_context(transform_output="pandas"):
        assert isinstance(schema.transform(table), pd.DataFrame)
        assert isinstance(
            clone(schema).set_output(transform="default").transform(table), np.ndarray
        )
    assert isinstance(schema.transform(table), np.ndarray)
    with pytest.raises(ValueError, match="transform must be one of"):
        schema.set_output(transform="list")
    with pytest.raises(FrozenInstanceError):
        schema.intercept = False
    many = pd.concat([table] * 200)
    model = make_pipeline(
        schema, LogisticRegression(epsilon=5.0, row_norm=schema.bound, fit_intercept=False)
    )
    fitted = clone(model.set_output(transform="pandas")).fit(many, np.array([0, 1, 1] * 200))
    assert list(fitted[-1].feature_names_in_) == list(schema.names)
    assert fitted.predict(many).shape == (600,)


@pytest.mark.parametrize("intercept", [True, False])
def test_a_schema_is_a_parameter(intercept, tmp_path):
    """Tables go in, nothing is left to find, and one constant is fitted, whoever adds it."""
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": random.uniform(0, 80, 3000),
            "ward": random.choice(["A", "B", "C"], 3000),
            "more": 1,
        }
    )
    stay = table["age"] / 20 + 2.0 * (table["ward"] == "A")
    columns = (Number("age", 0, 80), Category("ward", ("A", "B")))
    schema = Schema(columns, Number("stay", 0, 10), intercept=intercept)
    model = clone(LinearRegression(1e6, schema=schema))
    assert model.get_params()["schema"] == schema
    assert model.fit(table, stay).plan_.guarantee == model.plan(3000).guarantee
    assert model.plan_.stage_values(model.weights_) == {}  # no ranges are found
    assert list(model.feature_names_in_) == ["age", "ward"]
    assert model.n_features_in_ == 2
    assert model.coef_.shape == (len(schema.names),)
    assert np.abs(model.predict(table) - stay).max() < 1e-2
    assert np.allclose(schema.matrix(table) @ model.coef_ + model.intercept_, model.predict(table))
    with pytest.warns(LeakWarning):
        assert model.score(table, stay) > 0.999
    save(model, tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert again.schema == schema
    assert np.array_equal(again.predict(table), model.predict(table))
    assert LogisticRegression(10.0, schema=schema).fit(table, stay > 2).predict(table).dtype == bool
    for more in ({"bounds": (-1, 1)}, {"row_norm": 1.0}):
        with pytest.raises(ValueError, match="either schema, or bounds"):
            LinearRegression(1.0, schema=schema, **more).fit(table, stay)


def test_pandas_polars_sparse_and_arrays_give_the_same_model(line):
    X, y, _ = line
    settings = {"epsilon": 2.0, "bounds": (-1.0, 1.0), "random_state": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = LogisticRegression(**settings).fit(X, y)
        named = LogisticRegression(**settings).fit(
            pd.DataFrame(X, columns=["a", "b"]), pd.Series(y)
        )
        other = LogisticRegression(**settings).fit(
            pl.DataFrame(X, schema=["a", "b"]), pl.Series(y).to_numpy()
        )
        thin = LogisticRegression(**settings).fit(sparse.csr_array(X), y)
    assert np.array_equal(plain.coef_, named.coef_)
    assert np.array_equal(plain.coef_, other.coef_)
    assert np.allclose(plain.coef_, thin.coef_, rtol=1e-6)
    assert list(named.feature_names_in_) == ["a", "b"]
    with pytest.raises(ValueError, match="feature names"):
        named.predict(pd.DataFrame(X, columns=["b", "a"]))


def test_unfitted_models_say_so():
    with pytest.raises(NotFittedError):
        LogisticRegression().predict([[1.0]])


@pytest.mark.parametrize(
    "model", [*MODELS.values(), BoundedMean(), GeometricMedian()], ids=lambda m: type(m).__name__
)
def test_sample_weights_are_refused_with_the_reason(model, line):
    """They are not in the signature, so that scikit-learn hands none over by itself."""
    X, y, _ = line
    assert not has_fit_parameter(model, "sample_weight")
    with pytest.raises(
        TypeError,
        match=r"no sample_weight: a weight multiplies what one record can do.*Fit without",
    ):
        clone(model).fit(X, y, sample_weight=np.ones(len(y)))
    with pytest.raises(TypeError, match="simple_weight"):
        clone(model).fit(X, y, simple_weight=np.ones(len(y)))


FORMER = {"neighbours": ("relation", "add_remove"), "n_public": ("n_declared", 4000)}


@pytest.mark.parametrize("kind", [type(model) for model in (*MODELS.values(), BoundedMean())])
def test_former_names_of_parameters_work_and_warn_when_used(kind, line):
    """Neither the constructor nor `clone` warns."""
    facts = {"bounds": (-1, 1)} | (
        {"y_bounds": (0, 10)} if "y_bounds" in kind().get_params() else {}
    )
    model = clone(kind(1.0, 1e-6, **facts, **{old: value for old, (_, value) in FORMER.items()}))
    with pytest.warns(DeprecationWarning, match="is now") as seen:
        model.fit(line[0], line[1])
    seen = [warning for warning in seen if warning.category is DeprecationWarning]
    said = {str(warning.message).split(";")[0] for warning in seen}
    assert said == {f"{old} is now {new}" for old, (new, _) in FORMER.items()}
    assert {warning.filename for warning in seen} == {__file__}
    current = kind(1.0, 1e-6, **facts, **dict(FORMER.values()))
    assert current.fit(line[0], line[1]).plan_ == model.plan_


def test_the_former_name_of_user_ids_works_and_warns(line, tmp_path):
    X, y, _ = line
    users = np.repeat(np.arange(2000), 2)
    model = LogisticRegression(
        1.0,
        bounds=(-1, 1),
        relation="add_remove",
        n_declared=4000,
        max_rows_per_user=2,
        solver="output_perturbation",
    )
    with pytest.warns(DeprecationWarning, match="user_id is now user_ids"):
        model.fit(X, y, user_id=users)
    assert model.guarantee_.basis.unit == "user"
    assert clone(model).fit(X, y, user_ids=users).plan_ == model.plan_
    old = LogisticRegression(1.0, bounds=(-1, 1), neighbours="add_remove", n_public=4000)
    with pytest.warns(DeprecationWarning, match="is now"):
        old.fit(X, y)
    save(old, tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert (again.relation, again.n_declared, again.neighbours) == ("add_remove", 4000, None)


def test_one_table_names_the_estimators():
    assert set(ESTIMATORS) == {*MODELS, "BoundedMean", "GeometricMedian"}
    assert {*ESTIMATORS} <= {*dpfit.__all__} & {*dpfit.models.__all__}
    assert all(getattr(dpfit, name) is row.load() for name, row in ESTIMATORS.items())
