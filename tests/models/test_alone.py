"""Each record is read, scaled and predicted by itself; other records change no bit of it."""

import numpy as np
import pytest
from scipy.sparse import coo_array, csc_array, csr_array
from sklearn import linear_model
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpfit.models import LinearRegression, LogisticRegression, private_score
from dpfit.models.inputs import row_products, within_shape
from dpfit.models.scaling import Scaling
from dpfit.models.scores import ScoredRecords
from dpfit.privacy import Budget

RNG = np.random.default_rng(5)
X = RNG.uniform(-1, 1, size=(41, 30))
Y = np.arange(41) % 3


@pytest.fixture(scope="module")
def models():
    settings = {"bounds": (-1, 1), "random_state": 1}
    with pytest.warns(UserWarning, match="random_state"):
        return {
            "two classes": LogisticRegression(1.0, **settings).fit(X, Y == 1),
            "three classes": LogisticRegression(1.0, classes=[0, 1, 2], **settings).fit(X, Y),
            "line": LinearRegression(1.0, y_bounds=(0, 2), **settings).fit(X, Y),
        }


def strange(kind) -> tuple:
    """A sparse matrix with entries outside its shape, and which of its five rows are broken."""
    values, rows, columns = (
        np.ones(6),
        np.array([0, 0, 1, 2, 3, 4]),
        np.array([0, 10**9, 1, -7, 2, 29]),
    )
    if kind is csr_array:
        return csr_array((values, columns, [0, 2, 3, 4, 5, 6]), shape=(5, 30)), [0, 2]
    if kind is csc_array:
        pointers = np.zeros(31, dtype=int)
        pointers[1:] = 6
        return csc_array((values, np.array([0, 10**8, 1, -7, 3, 4]), pointers), shape=(5, 30)), []
    matrix = coo_array((values, (rows, np.abs(columns) % 30)), shape=(5, 30))
    matrix.col[:] = columns
    return matrix, [0, 2]


@pytest.mark.parametrize("kind", [csr_array, csc_array, coo_array])
def test_entries_outside_a_sparse_matrix_break_their_own_record_only(kind, models):
    matrix, broken = strange(kind)
    inside = within_shape(matrix).toarray()
    assert np.flatnonzero(~np.isfinite(inside).all(axis=1)).tolist() == broken
    for model in models.values():
        found = model.predict(matrix)
        sound = np.where(np.isfinite(inside), inside, 0.0)
        assert np.array_equal(
            np.delete(found, broken), np.delete(model.predict(csr_array(sound)), broken)
        )


@pytest.mark.parametrize("kind", [csr_array, csc_array, coo_array])
def test_a_score_of_entries_outside_a_sparse_matrix_is_paid_and_finite(kind, models):
    matrix, broken = strange(kind)
    other = linear_model.LogisticRegression().fit(X, Y == 1)
    for model in (models["two classes"], other):
        assert np.isfinite(
            private_score(model, matrix, np.ones(5, dtype=bool), Budget(epsilon=1.0)).value
        )
    assert (
        not ScoredRecords(other, matrix, np.ones(5, dtype=bool))
        .scores("accuracy", 1.0)[broken]
        .any()
    )


def test_a_matrix_without_columns_or_rows():
    assert within_shape(csr_array((np.ones(1), [5], [0, 1]), shape=(1, 0))).shape == (1, 0)
    matrix = coo_array(([1.0], ([0], [0])), shape=(1, 1))
    matrix.row[:] = 8
    assert within_shape(matrix).nnz == 0
    sound = csc_array(X)
    assert (within_shape(sound) != csr_array(X)).nnz == 0


@pytest.mark.parametrize("sparse", [False, True])
def test_no_other_record_changes_a_bit_of_a_prediction(models, sparse):
    """BLAS matrix products fail this: they round the last rows unlike the first."""
    rows = csr_array(np.where(X > 0.3, X, 0.0)) if sparse else X
    for model in models.values():
        for predict in ("predict", "decision_function", "predict_proba"):
            if not hasattr(model, predict):
                continue
            whole = getattr(model, predict)(rows)
            for first in range(1, 8):
                assert np.array_equal(getattr(model, predict)(rows[first:]), whole[first:])
            alone = [getattr(model, predict)(rows[[i]])[0] for i in range(41)]
            assert np.array_equal(alone, whole)


def test_row_products_are_products_and_differ_from_those_of_blas_in_the_last_bits():
    weights = RNG.normal(size=(3, 30))
    wide = RNG.normal(size=(2500, 30))
    for line in (weights, weights[0]):
        found = row_products(wide, line)
        np.testing.assert_allclose(found, wide @ line.T, rtol=0, atol=1e-12)
        np.testing.assert_allclose(row_products(csr_array(wide), line), found, rtol=0, atol=1e-12)
    assert row_products(np.zeros((0, 30)), weights).shape == (0, 3)


@pytest.mark.parametrize("columns", [0, 3, 8192, 8193, 20_000])
def test_no_other_record_changes_a_bit_of_a_scaled_row(columns):
    rows = RNG.normal(size=(5, columns))
    scaling = Scaling(row_norm=0.5, constant=1.0)
    whole = scaling.rows(rows)
    assert np.array_equal(np.concatenate([scaling.rows(row[None]) for row in rows]), whole)
    assert np.array_equal(scaling.rows(rows[1:]), whole[1:])


def test_only_models_that_predict_each_record_alone_score_with_exact_arithmetic(models):
    labels = Y == 1
    own = private_score(models["two classes"], X, labels, Budget(epsilon=1.0)).guarantee.basis
    assert own.arithmetic == "exact"

    class Override(LogisticRegression):
        def predict(self, X):
            return np.full(len(X), len(X) % 2 == 0)

    others = [
        linear_model.LogisticRegression().fit(X, labels),
        make_pipeline(StandardScaler(), LogisticRegression(1.0, bounds=(-9, 9))).fit(X, labels),
        Override(1.0, bounds=(-1, 1)).fit(X, labels),
    ]
    for model in others:
        basis = private_score(model, X, labels, Budget(epsilon=1.0)).guarantee.basis
        assert basis.arithmetic == "idealised"
        assert basis.assumptions[-1].status == "declared"
        assert "that record alone" in basis.assumptions[-1].text
