"""Data that are arrays of numbers, not records; errors quote shape and type, which are public."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfit.data.cells import as_numbers, has_cells, listed_rows, listed_shape
from dpfit.data.view import OpaqueView, View
from dpfit.losses.guards import as_floats


def as_rows(given: ArrayLike, width: int, noun: str) -> NDArray[np.float64]:
    """Return an array with ``width`` entries a row, called ``noun`` in errors; a column may be 1-D.

    A cell that is not a number is NaN: an error would tell of it.

    >>> as_rows([[1, 2], [3, "x"]], 2, "flags")
    array([[ 1.,  2.],
           [ 3., nan]])
    """
    check_shape(given, width, noun)
    if isinstance(given, list | tuple):
        return (
            listed_rows(noun, given) if all(map(has_cells, given)) else as_numbers(given)
        ).reshape(-1, width)
    array = np.asarray(given)
    rows = as_floats(array) if array.dtype.kind in "biuf" else as_numbers(array.ravel().tolist())
    return np.asarray(rows).reshape(-1, width)


def check_shape(given: ArrayLike, width: int, noun: str) -> None:
    """Refuse data that are not rows of ``width`` numbers; it reads shape and dtype only."""
    try:
        shape = listed_shape(given) if isinstance(given, list | tuple) else np.shape(given)
        if isinstance(given, np.ndarray) and given.dtype.kind not in "biufO":
            raise ValueError
    except ValueError:
        raise ValueError(f"the data must be an array of {noun}, all rows equally long") from None
    if shape[1:] != (width,) and not (width == 1 and len(shape) == 1):
        raise ValueError(
            f"the plan is for records of {width} {noun}, the data have shape {shape[1:]}"
        )


def check_array(data: View, width: int, noun: str) -> None:
    """Refuse an array, or records, that are not ``width`` wide; it reads the shape only."""
    if isinstance(data, OpaqueView):
        check_shape(data.given, width, noun)
    elif data.width != width:
        raise ValueError(
            f"the plan is for records of {width} {noun}, the data have width {data.width}"
        )


def array_of(data: View) -> Any:
    """Return the caller's array, or the rows of records."""
    if isinstance(data, OpaqueView):
        return data.given
    rows = [
        chunk.rows.toarray() if hasattr(chunk.rows, "toarray") else chunk.rows
        for chunk in data.chunks()
    ]
    return np.concatenate([np.zeros((0, data.width)), *rows])
