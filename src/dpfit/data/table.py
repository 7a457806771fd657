"""Columns of a table, whichever library holds it.

pandas, polars and Arrow tables are read through narwhals; a mapping from names to sequences works too. Nothing here
raises on the content of a cell: what cannot be read is missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfit.data.users import as_string

_MAY_BE_NUMBERS = (Real, Decimal, str, bytes, np.bool_)


class Table:
    """Named columns of equal length."""

    def __init__(self, source: Any) -> None:
        if isinstance(source, Table):
            self._columns: Mapping[Any, Any] = source._columns
            self.rows: int = source.rows
        elif isinstance(source, Mapping):
            self._columns = source
            lengths = {len(column) for column in source.values()}
            if len(lengths) > 1:
                raise ValueError("the columns of a table must have one length")
            self.rows = lengths.pop() if lengths else 0
        else:
            frame = _frame(source)
            self._columns = {name: frame.get_column(name) for name in frame.columns}
            self.rows = len(frame)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._columns)

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A column as numbers; NaN where a cell is empty or not a number.

        >>> Table({"age": ["31", 5, None, "n/a"]}).numbers("age")
        array([31.,  5., nan, nan])
        """
        column = self._column(name)
        if _fits_numpy(column):
            column = column.to_numpy()
        if isinstance(column, np.ndarray) and column.dtype.kind in "biuf" and not np.ma.isMaskedArray(column):
            with np.errstate(over="ignore"):
                return column.astype(np.float64)
        return np.array([_number(cell) for cell in _cells(column)], dtype=np.float64)

    def texts(self, name: str) -> list[str | None]:
        """A column as texts; None where a cell is empty. Whole numbers have no decimal point.

        >>> Table({"ward": [1.0, "B", None]}).texts("ward")
        ['1', 'B', None]
        """
        return [as_string(cell) for cell in _cells(self._column(name))]

    def _column(self, name: str) -> Any:
        """A column as an array of one axis, a narwhals series, or any other sequence of cells."""
        if name not in self._columns:
            raise ValueError(f"the table has no column {name!r}; it has {', '.join(map(repr, self.names))}")
        import narwhals as nw

        column = self._columns[name]
        if isinstance(column, np.ndarray):
            if column.ndim != 1:
                raise ValueError(f"column {name!r} must have one axis, got {column.ndim}")
            return column
        if hasattr(column, "to_pylist") and not hasattr(column, "chunks"):
            import pyarrow as pa

            column = pa.chunked_array([column])
        column = nw.from_native(column, series_only=True, pass_through=True)
        if isinstance(column, nw.Series) and column.dtype in (nw.List, nw.Array, nw.Struct):
            kind = type(column.dtype).__name__.lower()
            raise ValueError(f"column {name!r} holds {kind}s; it should hold numbers or texts")
        return column


def _frame(source: Any) -> Any:
    import narwhals as nw

    try:
        return nw.from_native(source, eager_only=True)
    except nw.exceptions.DuplicateError:
        raise ValueError("the table has two columns of one name; rename one") from None
    except TypeError:
        raise ValueError(
            "a table is a pandas, polars or Arrow table or a mapping from names to columns, "
            f"not {type(source).__name__}"
        ) from None


def _fits_numpy(column: Any) -> bool:
    """Whether a series holds numbers of a kind that NumPy has, so that they need not be read one by one."""
    import narwhals as nw

    return isinstance(column, nw.Series) and column.dtype.is_numeric() and column.dtype not in (nw.Int128, nw.UInt128)


def _cells(column: Any) -> list[Any]:
    """The cells one by one: integers next to empty cells stay integers, and entries of a dictionary are looked up."""
    if isinstance(column, np.ndarray):
        return list(column.tolist())
    if not hasattr(column, "to_list"):
        return list(column)
    try:
        return list(column.to_list())
    except Exception:
        # One of the cells is no text or no date, and the message would quote it; the others are read as before.
        return [_cell(column, index) for index in range(len(column))]


def _cell(column: Any, index: int) -> Any:
    try:
        return column[index]
    except Exception:
        return None


def _number(cell: Any) -> float:
    try:
        return float(cell) if isinstance(cell, _MAY_BE_NUMBERS) else math.nan
    except (TypeError, ValueError, OverflowError):
        return math.nan
