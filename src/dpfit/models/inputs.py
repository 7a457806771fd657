"""Inputs of models: only public facts can be invalid; no message quotes a record."""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING, TypeAlias, TypedDict, TypeGuard, Unpack

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse
from sklearn.utils import column_or_1d
from sklearn.utils.validation import validate_data

from dpfit.data import cells
from dpfit.data.cells import has_cells, has_no_dtype, listed_rows, listed_shape
from dpfit.kernels.rows import as_rows, with_valid_columns
from dpfit.losses.guards import as_floats, unmasked

if TYPE_CHECKING:
    import pyarrow
    from sklearn.base import BaseEstimator

Floats = NDArray[np.float64]

Values: TypeAlias = NDArray[np.generic]
"""Labels or classes as an array of any dtype; a dtype that is checked at run time decides how they
are read.
"""

Rows: TypeAlias = object
"""Rows as a caller gives them: an array, a list, a sparse matrix, a frame or a table; inspected at
run time.
"""

Column: TypeAlias = object
"""Labels, classes or user ids as a caller gives them: an array, a list or a column of a frame;
inspected at run time.
"""

Matrix: TypeAlias = "NDArray[np.float64] | NDArray[np.float32] | sparse.csr_array"
"""Rows that were validated: a dense array, or a CSR matrix of scipy."""


class Checks(TypedDict, total=False):
    """The checks of scikit-learn's ``validate_data`` that models ask for."""

    accept_sparse: str
    dtype: DTypeLike | list[type[np.floating]]
    ensure_min_samples: int
    reset: bool


def is_sparse(values: object) -> TypeGuard[sparse.sparray | sparse.spmatrix]:
    """Return whether it is a sparse matrix or array of scipy."""
    return bool(sparse.issparse(values))


def dtypes_of(values: Rows) -> list[object]:
    """The dtypes of the columns, which are public; None for a list, which is read by cell."""
    if has_no_dtype(values):
        return []
    if type(values).__module__.startswith("pyarrow"):
        return _arrow_dtypes(values)
    found = getattr(values, "dtypes", None)
    if found is not None and np.ndim(found):
        return list(found)
    own = getattr(values, "dtype", None)
    return [np.asarray(values).dtype if own is None else own]


def shape_of(values: Rows) -> tuple[int, ...]:
    """The shape of anything array-like, also of a sparse matrix, a frame or a list."""
    if isinstance(values, list | tuple):
        return listed_shape(values)
    return tuple(values.shape if hasattr(values, "shape") else np.asarray(values).shape)


def require_numbers(name: str, values: Rows, axes: int = 1) -> None:
    """Refuse texts, objects and too few axes, by public dtype and shape: no record is quoted."""
    dtypes = dtypes_of(unmasked(name, values))
    _refuse_complex(name, dtypes)
    if not all(map(holds_numbers, dtypes)):
        raise ValueError(
            f"{name} must hold numbers; read columns of texts or objects through a dpfit.Schema"
        )
    found = len(shape_of(values))
    if found < axes:
        raise ValueError(
            f"Expected {axes}D array, got {found}D array instead. Reshape your data with "
            f"{name}.reshape(-1, 1) if it "
            f"is one column, {name}.reshape(1, -1) if it is one record"
        )


@np.errstate(over="ignore")
def validated(model: BaseEstimator, X: Rows, **checks: Unpack[Checks]) -> Matrix:
    """Return rows with the shape, type and names that a model asks for.

    No value raises an error or warns of its size.
    """
    names = list(getattr(X, "column_names", getattr(X, "columns", ())))
    if len(set(names)) < len(names):
        raise ValueError("X has two columns of one name; rename one")
    given = listed_rows("X", X) if isinstance(X, list | tuple) else within_shape(X)
    rows: Matrix = validate_data(model, given, ensure_all_finite=False, **checks)
    return rows


def within_shape(X: Rows) -> Rows:
    """Return a sparse matrix as CSR with all entries within its shape, and anything else as it is.

    SciPy does not check the numbers of rows and columns, and reads and writes elsewhere. An entry
    without a column becomes NaN in the first column of its record; an entry without a row belongs
    to no record and is left out.
    """
    if not is_sparse(X) or X.ndim != 2 or X.format not in ("csr", "csc", "coo"):
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


def _entries(
    X: sparse.csc_array | sparse.coo_array,
) -> tuple[NDArray[np.integer], NDArray[np.integer], Values]:
    """Rows, columns and values of the entries of a CSC or COO matrix."""
    if X.format == "coo":
        return X.row, X.col, X.data
    lines = as_rows(X.T)
    stored = lines.indptr[-1]
    return (
        lines.indices[:stored],
        np.repeat(np.arange(X.shape[1]), np.diff(lines.indptr)),
        lines.data[:stored],
    )


_TILE = 1024


@np.errstate(over="ignore", invalid="ignore")
def row_products(rows: Matrix, weights: Floats) -> Floats:
    """Return ``rows @ weights.T``, each entry rounded as if its row were the only one.

    A matrix product of BLAS groups rows, so one more record can change the last bit of another
    record's prediction. Here every operation is elementwise or on a sparse row. ``weights`` is a
    vector, or a matrix with one line for each output.

    >>> row_products(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([10.0, 1.0]))
    array([12., 34.])
    """
    lines = np.atleast_2d(weights)
    if is_sparse(rows):
        found = np.stack([np.asarray(rows @ line) for line in lines], axis=1)
    else:
        found = np.zeros((len(rows), len(lines)))
        for start in range(
            0, len(rows), _TILE
        ):  # a tile stays in the cache while its columns are read
            tile, sums = rows[start : start + _TILE], found[start : start + _TILE]
            for column in range(tile.shape[1]):
                sums += tile[:, column, None] * lines[:, column]
    return found if np.ndim(weights) == 2 else found[:, 0]


def labels_of(y: Column) -> Values:
    """One label for each record; only their shape and dtype can be wrong.

    A list has no dtype: each of its labels is read by itself, and a list of one label is that
    label.

    >>> labels_of([True, "x", [2], [3, 4]]).tolist()
    [True, 'x', 2, [3, 4]]
    """
    if isinstance(y, list | tuple):
        labels = np.empty(len(y), dtype=object)
        for place, one in enumerate(y):
            labels[place] = _only(one)
        return labels
    _refuse_complex("y", dtypes_of(unmasked("y", y)))
    if shape_of(y)[1:] not in ((), (1,)) or not shape_of(y):
        raise ValueError("y should be a 1d array: one label for each record")
    return np.asarray(column_or_1d(y, warn=True))


def _only(label: object) -> object:
    """Return the label of a row that holds nothing else, and any other label as it is."""
    cells = list(label) if has_cells(label) else []
    return cells[0] if len(cells) == 1 else label


def require_as_many(name: str, values: Column, records: int) -> None:
    """Refuse any number but one a record, without revealing n: it may be private."""
    try:
        fits = isinstance(values, Sized) and len(values) == records
    except TypeError:  # a sparse matrix
        fits = False
    if not fits:
        raise ValueError(f"{name} must have one entry for each record of X, neither more nor fewer")


def as_numbers(labels: Column) -> Floats:
    """Labels as floats, each on its own: invalid ones are NaN and leave the others unchanged.

    >>> as_numbers([True, None, 2])
    array([ 1., nan,  2.])
    """
    values = labels_of(labels)
    return (
        np.asarray(as_floats(values))
        if values.dtype.kind in "biuf"
        else cells.as_numbers(values.tolist())
    )


def _arrow_dtypes(values: pyarrow.Table | pyarrow.ChunkedArray) -> list[object]:
    """The dtypes by the schema: what NumPy makes of a column depends on whether a cell is empty."""
    return [
        _of_arrow(kind)
        for kind in (values.schema.types if hasattr(values, "schema") else [values.type])
    ]


def _of_arrow(kind: pyarrow.DataType) -> np.dtype[np.generic]:
    from pyarrow import types

    if types.is_boolean(kind):
        return np.dtype(np.bool_)
    return np.dtype(np.float64 if types.is_integer(kind) or types.is_floating(kind) else object)


def _refuse_complex(name: str, dtypes: list[object]) -> None:
    if any(getattr(dtype, "kind", None) == "c" for dtype in dtypes):
        raise ValueError(f"Complex data not supported: {name} must hold real numbers")


def holds_numbers(dtype: object) -> bool:
    """Whether it is a dtype of real numbers (or truth values), in numpy, pandas or polars."""
    kind = getattr(dtype, "kind", None)
    if kind is not None:
        return kind in "biuf"
    numeric = getattr(dtype, "is_numeric", None)  # polars
    return is_boolean(dtype) or bool(numeric is not None and numeric())


def is_boolean(dtype: object) -> bool:
    """Whether it is the dtype of truth values, in numpy, pandas or polars."""
    return getattr(dtype, "kind", None) == "b" or str(dtype) == "Boolean"
