"""Data that are not records, as arrays of numbers; only shape and type, which are public, can be wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfit.data.view import OpaqueView, View


def as_rows(given: Any, width: int, noun: str) -> NDArray[np.float64]:
    """Return an array with ``width`` entries a row, which the message calls ``noun``; one column may be flat.

    >>> as_rows([[1, 2], [3, 4]], 2, "flags")
    array([[1., 2.],
           [3., 4.]])
    """
    try:
        rows = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"the data must be an array of {noun}") from None
    if rows.ndim == width == 1:
        rows = rows.reshape(-1, 1)
    if rows.ndim != 2 or rows.shape[1] != width:
        raise ValueError(f"the plan is for records of {width} {noun}, the data have shape {rows.shape[1:]}")
    return rows


def array_of(data: View) -> Any:
    """Return the caller's array, or the rows of records."""
    if isinstance(data, OpaqueView):
        return data.given
    rows = [chunk.rows.toarray() if hasattr(chunk.rows, "toarray") else chunk.rows for chunk in data.chunks()]
    return np.concatenate([np.zeros((0, data.width)), *rows])
