"""Cells: each is read from its own value alone, and nothing about a cell raises or warns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any, TypeGuard
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_MAY_BE_NUMBERS = (Real, Decimal, str, bytes, np.bool_)


def as_number(cell: object) -> float:
    """Return a cell as a float, and NaN if it is empty or not a number.

    >>> as_number("31"), as_number(10**400), as_number(None), as_number("n/a")
    (31.0, nan, nan, nan)
    """
    try:
        with np.errstate(over="ignore"):
            return float(cell) if isinstance(cell, _MAY_BE_NUMBERS) else math.nan
    except (TypeError, ValueError, OverflowError):
        return math.nan


def as_numbers(cells: Iterable[object]) -> Floats:
    """Return cells as floats, NaN where a cell is not a number."""
    return np.array([as_number(cell) for cell in cells], dtype=np.float64)


EPOCH = date(1970, 1, 1)
"""Day zero of a column of dates."""


def as_day(cell: object) -> float:
    """Return a date, or its ISO text, as days since 1970; NaN if it is empty or no date.

    The time of day is left out, and days are those of the cell's own time zone.

    >>> as_day("1970-01-31"), as_day(datetime(1969, 12, 31, 23)), as_day("31/01/1970"), as_day(30)
    (30.0, -1.0, nan, nan)
    """
    try:
        if hasattr(cell, "as_py"):  # of Arrow
            cell = cell.as_py()
        if isinstance(cell, str):
            cell = datetime.fromisoformat(cell.strip())
        if isinstance(cell, np.datetime64):
            cell = cell.astype("datetime64[D]").item()
        return float(cell.toordinal() - EPOCH.toordinal()) if isinstance(cell, date) else math.nan
    except Exception:
        # An unreadable cell is empty: an error would reveal that it exists.
        return math.nan


def has_no_dtype(values: object) -> bool:
    """Return whether it is a list or a tuple: their entries have no common, public type."""
    return isinstance(values, list | tuple)


def listed_rows(name: str, rows: Sequence[object]) -> Floats:
    """Return a list of rows as a matrix, read cell by cell; only the lengths of rows can be wrong.

    >>> listed_rows("X", [[1, "2"], [None, "x"]])
    array([[ 1.,  2.],
           [nan, nan]])
    """
    found = [list(row) for row in rows if has_cells(row)]
    lengths = {len(row) for row in found}
    if len(found) < len(rows) or len(lengths) > 1:
        raise ValueError(f"{name} must be an array of numbers with two axes, all rows equally long")
    cells = as_numbers(cell for row in found for cell in row)
    return cells.reshape(len(found), lengths.pop() if lengths else 0)


def listed_shape(values: Sequence[object]) -> tuple[int, ...]:
    """Return the shape of a list of rows, or of cells if not all of its entries are rows.

    >>> listed_shape([[1, None], [2, [3]]]), listed_shape([1, [2]])
    ((2, 2), (2,))
    """
    if not values or not all(map(has_cells, values)):
        return (len(values),)
    return listed_rows("X", values).shape


def has_cells(row: object) -> TypeGuard[Iterable[object]]:
    """Return whether an entry of a list is a row: a list, a tuple or an array with one axis."""
    return isinstance(row, list | tuple) or (isinstance(row, np.ndarray) and row.ndim == 1)


def temporal_cells(
    physical: Sequence[int | None], kind: str, unit: str, zone: str | None
) -> list[object]:
    """Return polars dates, datetimes, times or durations from the integers that store them.

    polars itself panics at an integer that no calendar has; here it is an empty cell.

    >>> temporal_cells([0, 2**31 - 1, None], "Date", "d", None)
    [datetime.date(1970, 1, 1), None, None]
    """
    return [None if steps is None else _moment(steps, kind, unit, zone) for steps in physical]


_STEPS_PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}


def _moment(steps: int, kind: str, unit: str, zone: str | None) -> Any:
    try:
        start = datetime(1970, 1, 1)
        if kind == "Date":
            return (start + timedelta(days=steps)).date()
        duration = timedelta(microseconds=steps * 10**6 // _STEPS_PER_SECOND[unit])
        if kind == "Duration":
            return duration
        if kind == "Time":
            return (start + duration).time()
        moment = start + duration
        return moment if zone is None else moment.replace(tzinfo=UTC).astimezone(ZoneInfo(zone))
    except (OverflowError, ValueError, KeyError):
        return None
