"""Records are bounded one by one, whatever is in them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import sparse

from dpfit.audit import audit_callable, audit_plan
from dpfit.core import Run
from dpfit.data.dataset import InMemory
from dpfit.data.schema import Number, Schema
from dpfit.data.view import View
from dpfit.models import LinearRegression, LogisticRegression
from dpfit.models.scaling import Scaling

ANYTHING = st.floats(allow_nan=True, allow_infinity=True, width=64)
ENDS = st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)


@st.composite
def scalings(draw, columns=3):
    ranges = draw(st.none() | st.lists(ENDS, min_size=columns, max_size=columns))
    lower, upper = (None, None) if ranges is None else map(tuple, zip(*ranges, strict=True))
    return Scaling(
        draw(st.floats(1e-3, 1e3)),
        draw(st.sampled_from([0.0, 1.0, 7.5])),
        lower,
        upper,
        *draw(st.just((None, None)) | ENDS),
        draw(st.booleans()),
    )


ROWS = arrays.arrays(np.float64, st.tuples(st.integers(1, 5), st.just(3)), elements=ANYTHING)


@settings(max_examples=150, deadline=None)
@given(scalings(), ROWS, st.booleans())
def test_each_row_is_bounded_by_itself(scaling, rows, thin):
    """Rows with non-finite entries may stay: kernels replace the whole record."""
    given_rows = sparse.csr_array(rows) if thin else rows
    bounded = scaling.rows(given_rows)
    dense = bounded.toarray() if sparse.issparse(bounded) else bounded
    alone = [scaling.rows(given_rows[[i]]) for i in range(len(rows))]
    for i, row in enumerate(dense):
        single = alone[i].toarray()[0] if sparse.issparse(alone[i]) else alone[i][0]
        assert np.array_equal(row, single, equal_nan=True)
        if scaling.lower is not None or scaling.constant:
            finite = np.isfinite(row).all()
            assert not finite or np.linalg.norm(row) <= scaling.bound * (1 + 1e-12)
            if np.isfinite(rows[i]).all():
                assert finite
        if scaling.constant:
            assert row[-1] == scaling.constant


@settings(max_examples=150, deadline=None)
@given(scalings(), ROWS, st.booleans())
def test_rows_to_predict_for_are_finite_and_bounded(scaling, rows, thin):
    bounded = scaling.rows(sparse.csr_array(rows) if thin else rows, finite=True)
    dense = bounded.toarray() if sparse.issparse(bounded) else bounded
    assert np.isfinite(dense).all()
    assert (np.linalg.norm(dense, axis=1) <= scaling.bound * (1 + 1e-12)).all()


@settings(max_examples=100, deadline=None)
@given(scalings(), arrays.arrays(np.float64, 5, elements=ANYTHING))
def test_labels_with_a_range_are_between_minus_one_and_one(scaling, labels):
    bounded = scaling.labels(labels)
    if scaling.label_lower is not None:
        assert np.array_equal(np.isnan(bounded), np.isnan(labels))
        assert (np.abs(bounded[~np.isnan(bounded)]) <= 1).all()
    else:
        assert bounded is labels


@settings(max_examples=100, deadline=None)
@given(scalings(), arrays.arrays(np.float64, (4, 3), elements=st.floats(-2e6, 2e6)))
def test_sparse_rows_are_those_of_a_dense_matrix(scaling, rows):
    thin = scaling.rows(sparse.csr_array(rows))
    dense = scaling.rows(rows)
    if scaling.lower is not None or scaling.constant:
        assert np.allclose(
            thin.toarray() if sparse.issparse(thin) else thin, dense, rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("fitted_on", ["dense", "sparse"])
@pytest.mark.filterwarnings("ignore:random_state")
def test_predictions_do_not_depend_on_how_rows_are_stored(fitted_on):
    """Also where ranges are not symmetric, and sparse columns cannot be centred."""
    X = np.random.default_rng(0).uniform([0, 2], [4, 6], size=(500, 2))
    y = X[:, 0] + X[:, 1]
    forms = {"dense": X, "sparse": sparse.csr_array(X)}
    model = LinearRegression(
        50.0, 1e-6, bounds=([0, 2], [4, 6]), row_norm=2.0, y_bounds=(0, 12), random_state=1
    )
    model.fit(forms[fitted_on], y)
    assert np.abs(model.predict(X) - y).mean() < 0.5
    assert np.allclose(model.predict(forms["sparse"]), model.predict(X))
    assert np.allclose(X @ model.coef_ + model.intercept_, model.predict(X))
    assert sparse.issparse(model.scaling_.rows(forms["sparse"])) == (fitted_on == "sparse")


def far_record(relation):
    """One record decides a range, if it is there, and is steep in the fit."""
    rows, labels = np.ones((6, 1)), np.ones(6)
    if relation == "replace":
        return InMemory(rows, labels), InMemory(np.append(rows[:-1], [[-1000.0]], axis=0), labels)
    return InMemory(np.append(rows[:-1], [[1000.0]], axis=0), labels), InMemory(
        rows[:-1], labels[:-1]
    )


def planned(relation, bounds):
    model = LogisticRegression(
        2.0, bounds=bounds, relation=relation, n_declared=6, solver="output_perturbation"
    )
    return model.plan(6, 1)


@pytest.mark.parametrize("runs", [400, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_a_model_with_ranges_found_privately_keeps_its_promise(relation, runs):
    """The whole plan is audited, both stages together."""
    plan = planned(relation, "private")
    assert plan.guarantee.pure == pytest.approx(2.0, rel=1e-6)
    audit = audit_plan(plan, *far_record(relation), runs=runs, random_state=5)
    assert audit.verdict == "kept", str(audit)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_ranges_read_off_the_records_are_caught(relation):
    """The same fit, with ranges that the records set and coefficients in their units."""
    plan = planned(relation, (-1.0, 1.0))

    def fit(data, source):
        top = float(np.abs(data.matrix).max())
        view = View(InMemory(data.matrix / top, data.labels), relation, "record", source)
        weights = plan.execute(view, Run(source))
        return weights[0] / top

    audit = audit_callable(fit, *far_record(relation), plan.guarantee, runs=400, random_state=5)
    assert audit.verdict == "broken", str(audit)


@pytest.mark.parametrize("way", ["dense", "sparse", "row_norm"])
def test_a_fit_without_an_intercept_goes_through_the_origin(way):
    """y = 0.5 x on [0, 10]: the same line by every way in, and 0 is predicted at 0."""
    x = np.random.default_rng(0).uniform(0, 10, (4000, 1))
    rows = sparse.csr_array(x) if way == "sparse" else x
    facts = {"row_norm": 10} if way == "row_norm" else {"bounds": (0, 10)}
    model = LinearRegression(1e6, y_bounds=(0, 10), fit_intercept=False, **facts).fit(
        rows, 0.5 * x[:, 0]
    )
    assert model.coef_ == pytest.approx([0.5], rel=1e-3)
    assert model.intercept_ == 0.0
    assert model.predict(np.zeros((1, 1))) == pytest.approx([0.0])


def test_a_schema_without_a_constant_goes_through_the_origin():
    """Labels are 2 at the origin: neither the middle of their range nor a constant may enter."""
    x = np.random.default_rng(0).uniform(0, 10, 4000)
    schema = Schema((Number("x", 0, 10),), scale="unit", intercept=False)
    model = LinearRegression(1e6, schema=schema, y_bounds=(0, 10), fit_intercept=False)
    model.fit({"x": x}, 2 + 0.5 * x)
    best = x @ (2 + 0.5 * x) / (x @ x)
    assert model.coef_ == pytest.approx([10 * best], rel=1e-3)
    assert model.intercept_ == 0.0
    assert model.predict({"x": [0.0]}) == pytest.approx([0.0])


def test_labels_are_centred_where_rows_hold_a_constant():
    """A schema adds the constant; the range of labels far from zero is then used in full."""
    model = LinearRegression(1.0, row_norm=1.0, y_bounds=(100, 102), fit_intercept=False)
    assert model._public_scaling(2)[0].label_range == (0.0, 102.0)
    model.rows_have_constant = True
    assert model._public_scaling(2)[0].label_range == (101.0, 1.0)
