"""Columns of a table, whichever library holds it.

pandas, polars and Arrow tables are read through narwhals; a mapping from names to sequences works
too. Nothing here raises on the content of a cell: what cannot be read is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfit.data.cells import as_day, as_numbers, temporal_cells
from dpfit.data.users import as_string
from dpfit.privacy.validate import did_you_mean


class Table:
    """Named columns of equal length."""

    def __init__(self, source: object) -> None:
        if isinstance(source, Table):
            self._columns: Mapping[Any, Any] = source._columns
            self.rows: int = source.rows
            self._required: frozenset[str] = source._required
            return
        self._required = _required_columns(source)
        if isinstance(source, Mapping):
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
        if (
            isinstance(column, np.ndarray)
            and column.dtype.kind in "biuf"
            and not np.ma.isMaskedArray(column)
        ):
            with np.errstate(over="ignore"):
                return column.astype(np.float64)
        return as_numbers(_cells(column))

    def days(self, name: str) -> NDArray[np.float64]:
        """A column of dates as days since 1970; NaN where a cell is empty or no date.

        >>> Table({"born": ["1970-02-01", None, "n/a"]}).days("born")
        array([31., nan, nan])
        """
        column = self._column(name)
        # Lists of NumPy's moments would hold nanoseconds as integers.
        moments = isinstance(column, np.ndarray) and column.dtype.kind == "M"
        return np.array([as_day(cell) for cell in (column if moments else _cells(column))], float)

    def texts(self, name: str) -> list[str | None]:
        """A column as texts; None where a cell is empty. Whole numbers have no decimal point.

        >>> Table({"ward": [1.0, "B", None]}).texts("ward")
        ['1', 'B', None]
        """
        return [as_string(cell) for cell in _cells(self._column(name))]

    def can_be_empty(self, name: str) -> bool:
        """Whether the type of a column has empty cells; no cell is read.

        Plain arrays of numbers or texts have none. Objects, lists, the nullable types of pandas,
        columns of polars and those of Arrow that are not declared otherwise have them.

        >>> table = Table({"a": np.array([1, 2]), "b": [1, 2], "c": np.array([1, None])})
        >>> table.can_be_empty("a"), table.can_be_empty("b"), table.can_be_empty("c")
        (False, True, True)
        """
        column = self._column(name)
        dtype = getattr(column, "dtype", None)
        if hasattr(column, "to_native"):
            dtype = getattr(column.to_native(), "dtype", None)
        plain = isinstance(dtype, np.dtype) and dtype.kind in "biufUS"
        return name not in self._required and (not plain or np.ma.isMaskedArray(column))

    def taken(self, index: NDArray[np.int64]) -> Table:
        """The rows of these numbers.

        >>> Table({"ward": ["A", "B", "C"]}).taken(np.array([2, 0])).texts("ward")
        ['C', 'A']
        """
        picked = index.tolist()
        columns: dict[str, Any] = {}
        for name in self.names:
            column = self._column(name)
            cells = column if hasattr(column, "__getitem__") else _cells(column)
            many = not isinstance(cells, list | tuple | range)
            columns[name] = cells[picked] if many else [cells[i] for i in picked]
        return Table(columns)

    def _column(self, name: str) -> Any:
        """A column as an array of one axis, a narwhals series, or any other sequence of cells."""
        if name not in self._columns:
            raise ValueError(
                f"the table has no column {name!r}; {did_you_mean(name, self.names)}it has "
                f"{', '.join(map(repr, self.names))}"
            )
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


def _required_columns(source: Any) -> frozenset[str]:
    """Columns of an Arrow table that are declared to have no empty cell."""
    if not type(source).__module__.startswith("pyarrow") or not hasattr(source, "schema"):
        return frozenset()
    return frozenset(field.name for field in source.schema if not field.nullable)


def _frame(source: object) -> Any:
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


def _fits_numpy(column: object) -> bool:
    """Whether a series has a numeric type of NumPy, so that no cell is read one by one."""
    import narwhals as nw

    return (
        isinstance(column, nw.Series)
        and column.dtype.is_numeric()
        and column.dtype not in (nw.Int128, nw.UInt128)
    )


def _cells(column: Any) -> list[object]:
    """The cells one by one: integers beside empty cells stay integers; dictionaries are decoded."""
    if isinstance(column, np.ndarray):
        return list(column.tolist())
    if not hasattr(column, "to_list"):
        return list(column)
    if _is_temporal_of_polars(column):
        # polars panics at integers that no calendar has; the panic is no Exception and writes to
        # standard error.
        kind, stored = column.dtype, column.to_native().to_physical().to_list()
        unit, zone = getattr(kind, "time_unit", "ns"), getattr(kind, "time_zone", None)
        return temporal_cells(stored, type(kind).__name__, unit, zone)
    try:
        return list(column.to_list())
    except Exception:
        # One of the cells is no text or no date, and the message would quote it; the others are
        # read as before.
        return [_cell(column, index) for index in range(len(column))]


def _is_temporal_of_polars(column: Any) -> bool:
    import narwhals as nw

    return (
        isinstance(column, nw.Series)
        and column.implementation.is_polars()
        and column.dtype.is_temporal()
    )


def _cell(column: Any, index: int) -> object:
    try:
        return column[index]
    except Exception:
        return None
