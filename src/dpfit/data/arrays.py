"""Data that are not records, as arrays of numbers; only shape and type, which are public, can be wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfit.data.view import OpaqueView, View


def as_rows(given: Any, width: int, noun: str) -> NDArray[np.float64]:
    """Return an array with ``width`` entries a row, which the message calls ``noun``; one column may be flat.

    A cell that is not a number is NaN: an error would tell of it.

    >>> as_rows([[1, 2], [3, "x"]], 2, "flags")
    array([[ 1.,  2.],
           [ 3., nan]])
    """
    check_shape(given, width, noun)
    try:
        rows = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        cells = np.asarray(given, dtype=object)
        rows = np.array([_number(cell) for cell in cells.ravel()], dtype=np.float64).reshape(cells.shape)
    return rows.reshape(-1, width)


def check_shape(given: Any, width: int, noun: str) -> None:
    """Refuse data that are not rows of ``width`` numbers; it reads shape and dtype only."""
    try:
        shape = np.shape(given)
        if isinstance(given, np.ndarray) and given.dtype.kind not in "biufO":
            raise ValueError
    except ValueError:
        raise ValueError(f"the data must be an array of {noun}, all rows equally long") from None
    if shape[1:] != (width,) and not (width == 1 and len(shape) == 1):
        raise ValueError(f"the plan is for records of {width} {noun}, the data have shape {shape[1:]}")


def check_array(data: View, width: int, noun: str) -> None:
    """Refuse an array, or records, that are not ``width`` wide; it reads the shape only."""
    if isinstance(data, OpaqueView):
        check_shape(data.given, width, noun)
    elif data.width != width:
        raise ValueError(f"the plan is for records of {width} {noun}, the data have width {data.width}")


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return math.nan


def array_of(data: View) -> Any:
    """Return the caller's array, or the rows of records."""
    if isinstance(data, OpaqueView):
        return data.given
    rows = [chunk.rows.toarray() if hasattr(chunk.rows, "toarray") else chunk.rows for chunk in data.chunks()]
    return np.concatenate([np.zeros((0, data.width)), *rows])
