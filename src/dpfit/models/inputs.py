"""What models are given: only public facts, shapes and dtypes, can be wrong, and no message quotes a record."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import column_or_1d
from sklearn.utils.validation import validate_data

from dpfit.kernels.rows import as_rows, with_valid_columns
from dpfit.losses.guards import as_floats, unmasked

Floats = NDArray[np.float64]


def dtypes_of(values: Any) -> list[Any]:
    """The dtypes of the columns, which are public; of a list, what numpy makes of it."""
    if type(values).__module__.startswith("pyarrow"):
        # What NumPy makes of it depends on whether a cell is empty.
        return [_of_arrow(kind) for kind in (values.schema.types if hasattr(values, "schema") else [values.type])]
    found = getattr(values, "dtypes", None)
    if found is not None and np.ndim(found):
        return list(found)
    own = getattr(values, "dtype", None)
    return [np.asarray(values).dtype if own is None else own]


def shape_of(values: Any) -> tuple[int, ...]:
    """The shape of anything array-like, also of a sparse matrix, a frame or a list."""
    return tuple(values.shape if hasattr(values, "shape") else np.asarray(values).shape)


def require_numbers(name: str, values: Any, axes: int = 1) -> None:
    """Refuse texts, objects and too few axes by dtype and shape, which are public: other errors would quote records."""
    dtypes = dtypes_of(unmasked(name, values))
    _refuse_complex(name, dtypes)
    if not all(map(holds_numbers, dtypes)):
        raise ValueError(f"{name} must hold numbers; read columns of texts or objects through a dpfit.Schema")
    found = len(shape_of(values))
    if found < axes:
        raise ValueError(
            f"Expected {axes}D array, got {found}D array instead. Reshape your data with {name}.reshape(-1, 1) if it "
            f"is one column, {name}.reshape(1, -1) if it is one record"
        )


@np.errstate(over="ignore")
def validated(model: Any, X: Any, **checks: Any) -> Any:
    """Return rows with the shape, type and names that a model asks for.

    No value raises an error or warns of its size.
    """
    return validate_data(model, within_shape(X), ensure_all_finite=False, **checks)


def within_shape(X: Any) -> Any:
    """Return a sparse matrix as CSR with all entries within its shape, and anything else as it is.

    SciPy does not check the numbers of rows and columns, and reads and writes elsewhere. An entry without a column
    becomes NaN in the first column of its record; an entry without a row belongs to no record and is left out.
    """
    if not sparse.issparse(X) or X.ndim != 2 or X.format not in ("csr", "csc", "coo"):
        return X
    if X.format == "csr":
        return with_valid_columns(X)
    rows, columns, values = _entries(X)
    known, outside = (rows >= 0) & (rows < X.shape[0]), (columns < 0) | (columns >= X.shape[1])
    if known.all() and not outside.any():
        return X.tocsr()
    if not X.shape[1]:
        known = np.zeros_like(known)
    values, columns = np.where(outside, np.nan, values), np.where(outside, 0, columns)
    return sparse.csr_array((values[known], (rows[known], columns[known])), shape=X.shape)


def _entries(X: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Rows, columns and values of the entries of a CSC or COO matrix."""
    if X.format == "coo":
        return X.row, X.col, X.data
    lines = as_rows(X.T)
    stored = lines.indptr[-1]
    return lines.indices[:stored], np.repeat(np.arange(X.shape[1]), np.diff(lines.indptr)), lines.data[:stored]


_TILE = 1024


@np.errstate(over="ignore", invalid="ignore")
def row_products(rows: Any, weights: Floats) -> Floats:
    """Return ``rows @ weights.T``, each entry rounded as if its row were the only one.

    A matrix product of BLAS groups rows, so one more record can change the last bit of another record's prediction.
    Here every operation is elementwise or on a sparse row. ``weights`` is a vector, or a matrix with one line for each
    output.

    >>> row_products(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([10.0, 1.0]))
    array([12., 34.])
    """
    lines = np.atleast_2d(weights)
    if sparse.issparse(rows):
        found = np.stack([np.asarray(rows @ line) for line in lines], axis=1)
    else:
        found = np.zeros((len(rows), len(lines)))
        for start in range(0, len(rows), _TILE):  # a tile stays in the cache while its columns are read
            tile, sums = rows[start : start + _TILE], found[start : start + _TILE]
            for column in range(tile.shape[1]):
                sums += tile[:, column, None] * lines[:, column]
    return found if np.ndim(weights) == 2 else found[:, 0]


def labels_of(y: Any) -> NDArray[Any]:
    """One label for each record; only their shape and dtype can be wrong."""
    _refuse_complex("y", dtypes_of(unmasked("y", y)))
    if shape_of(y)[1:] not in ((), (1,)) or not shape_of(y):
        raise ValueError("y should be a 1d array: one label for each record")
    return np.asarray(column_or_1d(y, warn=True))


def require_as_many(name: str, values: Any, records: int) -> None:
    """Refuse another number than one for each record, without saying how many there are: that may be private."""
    try:
        fits = len(values) == records
    except TypeError:
        fits = False
    if not fits:
        raise ValueError(f"{name} must have one entry for each record of X, neither more nor fewer")


def as_numbers(labels: Any) -> Floats:
    """Labels as floats, each by itself: one that is no number is NaN and changes how no other is read.

    >>> as_numbers([True, None, 2])
    array([ 1., nan,  2.])
    """
    values = np.asarray(labels)
    if values.dtype.kind in "biuf":
        return np.asarray(as_floats(values))
    return np.array([_number(one) for one in values.tolist()], dtype=np.float64)


def _number(label: Any) -> float:
    try:
        return float(label)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _of_arrow(kind: Any) -> np.dtype[Any]:
    from pyarrow import types

    if types.is_boolean(kind):
        return np.dtype(np.bool_)
    return np.dtype(np.float64 if types.is_integer(kind) or types.is_floating(kind) else object)


def _refuse_complex(name: str, dtypes: list[Any]) -> None:
    if any(getattr(dtype, "kind", None) == "c" for dtype in dtypes):
        raise ValueError(f"Complex data not supported: {name} must hold real numbers")


def holds_numbers(dtype: Any) -> bool:
    """Whether it is a dtype of real numbers (or truth values), in numpy, pandas or polars."""
    kind = getattr(dtype, "kind", None)
    if kind is not None:
        return kind in "biuf"
    numeric = getattr(dtype, "is_numeric", None)  # polars
    return is_boolean(dtype) or bool(numeric is not None and numeric())


def is_boolean(dtype: Any) -> bool:
    """Whether it is the dtype of truth values, in numpy, pandas or polars."""
    return getattr(dtype, "kind", None) == "b" or str(dtype) == "Boolean"
