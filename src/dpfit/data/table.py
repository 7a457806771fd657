"""Columns of a table, whichever library holds it.

pandas, polars and Arrow tables are read through narwhals; a mapping from names to sequences works too. Nothing here
raises on the content of a cell: what cannot be read is missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Table:
    """Named columns of equal length."""

    def __init__(self, source: Any) -> None:
        if isinstance(source, Table):
            self._columns: Mapping[str, Any] = source._columns
        elif isinstance(source, Mapping):
            self._columns = source
        else:
            self._columns = _frame_columns(source)
        lengths = {len(column) for column in self._columns.values()}
        if len(lengths) > 1:
            raise ValueError("the columns of a table must have one length")
        self.rows = lengths.pop() if lengths else 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._columns)

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A column as numbers; NaN where a cell is empty or not a number.

        >>> Table({"age": ["31", 5, None, "n/a"]}).numbers("age")
        array([31.,  5., nan, nan])
        """
        column = np.asarray(self._column(name))
        if column.dtype.kind in "biuf":
            return column.astype(np.float64)
        return np.array([_number(cell) for cell in column.tolist()], dtype=np.float64)

    def texts(self, name: str) -> list[str | None]:
        """A column as texts; None where a cell is empty. Whole numbers have no decimal point.

        >>> Table({"ward": [1.0, "B", None]}).texts("ward")
        ['1', 'B', None]
        """
        return [_text(cell) for cell in np.asarray(self._column(name)).tolist()]

    def _column(self, name: str) -> Any:
        if name not in self._columns:
            raise ValueError(f"the table has no column {name!r}; it has {', '.join(map(repr, self.names))}")
        column = self._columns[name]
        if isinstance(column, np.ndarray):
            return column
        return column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column, dtype=object)


def _frame_columns(source: Any) -> dict[str, Any]:
    import narwhals as nw

    try:
        frame = nw.from_native(source, eager_only=True)
    except TypeError:
        raise ValueError(
            "a table is a pandas, polars or Arrow table or a mapping from names to columns, "
            f"not {type(source).__name__}"
        ) from None
    return {name: frame[name] for name in frame.columns}


def _number(cell: Any) -> float:
    if cell is None:
        return math.nan
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _text(cell: Any) -> str | None:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return None
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell)
