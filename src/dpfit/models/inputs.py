"""What models are given: only public facts, shapes and dtypes, can be wrong, and no message quotes a record."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import column_or_1d
from sklearn.utils.validation import validate_data

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
    """Rows with the shape, type and names that a model asks for; no value is an error, or a warning about its size."""
    return validate_data(model, X, ensure_all_finite=False, **checks)


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
