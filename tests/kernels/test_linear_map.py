"""Rows behind a linear map: the product, guards, and that records do not meet."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from dpfit.kernels.linear_map import mapped

RANDOM = np.random.default_rng(4)
MATRIX = RANDOM.normal(size=(5, 5))
ROWS = RANDOM.normal(size=(40, 5)) * (RANDOM.random((40, 5)) < 0.7)
LABELS = RANDOM.normal(size=40)


def test_it_is_the_product_of_guarded_rows():
    seen, labels = mapped(ROWS, LABELS, MATRIX, row_norm=1.0, label_lower=-0.5, label_upper=0.5)
    short = ROWS / np.maximum(1.0, np.linalg.norm(ROWS, axis=1, keepdims=True))
    assert np.allclose(seen, short @ MATRIX, atol=1e-13)
    assert np.array_equal(labels, np.clip(LABELS, -0.5, 0.5))


@pytest.mark.parametrize(
    "rows", [csr_array(ROWS), np.asfortranarray(ROWS), ROWS[:, ::-1][:, ::-1]], ids=str
)
def test_every_layout_gives_the_same_bits(rows):
    assert np.array_equal(mapped(rows, LABELS, MATRIX)[0], mapped(ROWS, LABELS, MATRIX)[0])


def test_a_record_is_seen_the_same_in_any_company():
    together = mapped(ROWS, LABELS, MATRIX, row_norm=2.0)[0]
    for size in (1, 2, 3, 7, 16, 39):
        assert np.array_equal(
            mapped(ROWS[:size], LABELS[:size], MATRIX, row_norm=2.0)[0], together[:size]
        )


def test_what_is_not_finite_becomes_neutral():
    rows = np.array([[np.nan, 1.0], [np.inf, 0.0], [1.0, 2.0], [1e308, 1e308]])
    seen, labels = mapped(rows, [1.0, 2.0, np.nan, 3.0], [[1.0, 2.0], [3.0, 4.0]], row_norm=1.0)
    assert np.array_equal(seen[:3], np.zeros((3, 2)))
    assert np.isfinite(seen).all()
    assert np.array_equal(labels, [0.0, 0.0, 0.0, 3.0])


@pytest.mark.parametrize(
    "matrix", [np.ones((2, 2)), np.full((5, 5), np.nan), np.ones(5)], ids=["size", "nan", "vector"]
)
def test_bad_matrices_are_refused(matrix):
    with pytest.raises(ValueError, match="matrix must"):
        mapped(ROWS, LABELS, matrix)
