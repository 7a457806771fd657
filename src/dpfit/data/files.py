"""Tables on disk: Parquet and CSV files, read in blocks through a schema.

Errors of the readers are rewritten: theirs may quote a cell.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpfit.data.dataset import Block, Blocks, InMemory
from dpfit.data.schema import Schema
from dpfit.data.table import Table
from dpfit.privacy.validate import did_you_mean, integer

if TYPE_CHECKING:
    import pyarrow as pa

_LARGEST_GROUP = 2**20
"""Most rows of a row group that is read as a whole."""


def read_table(path: str | Path) -> pa.Table:
    """Return a Parquet or CSV file as an Arrow table; CSV cells are strings for the schema.

    A line of a CSV file is a record, and no other line changes how it is read. An empty cell is
    missing, and so is one that a short line lacks; cells beyond the header are left out. An empty
    line is a record of missing cells. A quoted cell ends at the end of its line, closed or not.
    Bytes that are not UTF-8 are replaced.
    """
    source = _existing(path)
    if source.suffix.lower() == ".csv":
        return _read_csv(source)
    try:
        import pyarrow.parquet as parquet

        return parquet.read_table(source)
    except Exception:
        raise _unreadable(source) from None


def scan_parquet(
    path: str | Path, schema: Schema, *, users: str | None = None, rows_per_block: int = 65_536
) -> Blocks:
    """A Parquet file or folder, possibly larger than memory, as records of the schema.

    Each pass reads it again, ``rows_per_block`` rows at a time; ``users`` names a column of user
    ids.
    """
    sources, size = _parquet_files(path), integer("rows_per_block", rows_per_block)
    wanted = [
        column.name for column in (*schema.columns, *((schema.target,) if schema.target else ()))
    ]
    wanted += [users] if users is not None else []
    total = sum(_rows(source, wanted) for source in sources)
    if schema.target is not None:
        for source in sources:  # before anything is charged
            schema.check_outcomes(_without_rows(source), schema.target.name)

    def read() -> Iterator[Block]:
        for source in sources:
            for batch in _batches(source, wanted, size):
                block = records(batch, schema, users=users)
                yield (block.matrix, block.labels, *(() if users is None else (block.users,)))

    size_of_group, groups = _equal_groups(sources)

    def read_block(number: int) -> Block:
        source, group = groups[number]
        block = records(_row_group(source, group, wanted), schema, users=users)
        return (block.matrix, block.labels, *(() if users is None else (block.users,)))

    alone = (size_of_group, read_block) if size_of_group else (None, None)
    return Blocks(total, len(schema.names), read, None, *alone)


def _equal_groups(sources: list[Path]) -> tuple[int, list[tuple[Path, int]]]:
    """Return the number of rows in a row group, and all row groups; 0 if they differ in size.

    The last row group may be smaller. Groups of more than `_LARGEST_GROUP` rows are not read alone.
    """
    import pyarrow.parquet as parquet

    sizes, groups = list[int](), list[tuple[Path, int]]()
    for source in sources:
        with parquet.ParquetFile(source) as file:
            for group in range(file.num_row_groups):
                sizes.append(int(file.metadata.row_group(group).num_rows))
                groups.append((source, group))
    size = sizes[0] if sizes else 0
    equal = all(each == size for each in sizes[:-1]) and sizes[-1:] <= [size]
    return (size if equal and 0 < size <= _LARGEST_GROUP else 0), groups


def _row_group(source: Path, group: int, wanted: list[str]) -> pa.Table:
    """Return one row group of a Parquet file."""
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(source, pre_buffer=False, buffer_size=2**20) as file:
            return file.read_row_group(group, columns=wanted)
    except Exception:
        raise _unreadable(source) from None


def records(table: object, schema: Schema, *, users: str | None = None) -> InMemory:
    """A table in memory as records of the schema; ``users`` names a column of user ids.

    >>> from dpfit.data.schema import Number
    >>> table = {"age": [30, 60], "who": ["ann", "bob"]}
    >>> records(table, Schema((Number("age", 0, 120),)), users="who").users.tolist()
    ['ann', 'bob']
    """
    source = Table(table)
    labels = schema.labels(source) if schema.target else np.zeros(source.rows)
    return InMemory(
        schema.matrix(source), labels, source.texts(users) if users is not None else None
    )


def _parquet_files(path: str | Path) -> list[Path]:
    folder = Path(path)
    if not folder.is_dir():
        return [_existing(path)]
    if sources := sorted(folder.glob("*.parquet")):
        return sources
    raise ValueError(f"there is no .parquet file in {str(folder)!r}")


def _without_rows(source: Path) -> Table:
    import pyarrow.parquet as parquet

    return Table(parquet.read_schema(source).empty_table())


def _rows(source: Path, wanted: list[str]) -> int:
    """How many rows a Parquet file has, if it has the columns."""
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(source) as file:
            rows, names = int(file.metadata.num_rows), list(file.schema_arrow.names)
    except Exception:
        raise _unreadable(source) from None
    if missing := [name for name in wanted if name not in names]:
        raise ValueError(
            f"{source.name} has no column {missing[0]!r}; {did_you_mean(missing[0], names)}it has "
            f"{', '.join(map(repr, sorted(names)))}"
        )
    if twice := [name for name in wanted if names.count(name) > 1]:
        raise ValueError(f"{source.name} has two columns of the name {twice[0]!r}; rename one")
    return rows


def _batches(source: Path, wanted: list[str], size: int) -> Iterator[pa.Table]:
    """Tables of some rows of a Parquet file each."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        # Without these two, whole row groups are held in memory, and those can be as large as the
        # file.
        with parquet.ParquetFile(source, pre_buffer=False, buffer_size=2**20) as file:
            for batch in file.iter_batches(batch_size=size, columns=wanted):
                yield pa.Table.from_batches([batch])
    except GeneratorExit:
        raise
    except Exception:
        raise _unreadable(source) from None


def csv_names(path: str | Path) -> list[str]:
    """Return the names of the columns of a CSV file; no record is read."""
    source = _existing(path)
    with source.open("rb") as file:
        header = file.readline().removeprefix(BOM_UTF8)
        while header and not header.strip(b"\r\n"):
            header = file.readline()
    return _header(source, _text(header).rstrip("\n"))[0]


def _read_csv(source: Path) -> pa.Table:
    import pyarrow as pa
    from pyarrow import compute

    try:
        content = source.read_bytes()
    except OSError:
        raise _unreadable(source) from None
    names, cells_of = parsed_csv(source, content)
    columns = [pa.array(cells, pa.large_string()) for cells in cells_of]
    filled = [
        compute.if_else(compute.equal(cells, ""), pa.scalar(None, cells.type), cells)
        for cells in columns
    ]
    return pa.table(filled, names)


def parsed_csv(source: Path, content: bytes) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns and the cells of each column; missing cells are empty."""
    # Empty lines above the header are no records.
    header, *lines = _text(content.removeprefix(BOM_UTF8)).lstrip("\r\n").split("\n")
    names, separator = _header(source, header)
    # What follows the last line break is a record unless it is empty.
    if lines and not lines[-1]:
        lines.pop()
    cells = _columns(lines, len(names), separator)
    if separator == ";":
        cells = [[_with_point(cell) for cell in column] for column in cells]
    return names, cells


def _text(content: bytes) -> str:
    """Return decoded bytes, in which the bad ones are replaced.

    No other character of UTF-8 holds the byte of LF, a separator or a quote, so a bad byte changes
    its own cell alone.
    """
    return content.decode("utf-8", errors="replace")


_SEPARATORS = (",", ";", "\t")


def _header(source: Path, line: str) -> tuple[list[str], str]:
    """Return the names of columns, and the separator that gives most of them: both are public."""
    if "\r" in line.removesuffix("\r"):
        # Were such a file read as one line, messages would quote its records as names.
        raise ValueError(
            f"the lines of {source.name} end with CR alone; write the file with LF or CR LF"
        )
    separator = max(_SEPARATORS, key=lambda each: len(_row(line, each)))
    names = _row(line, separator)
    if names == [""] or "\0" in line or "\ufffd" in line:
        raise _unreadable(source)
    if len(set(names)) < len(names):
        raise ValueError(f"{source.name} has two columns of one name; rename one")
    return names, separator


def _with_point(cell: str) -> str:
    """Return a number with a decimal point in place of its comma; any other cell as it is.

    >>> _with_point("-3,5"), _with_point("1,234,567"), _with_point("3, 5"), _with_point("a,5")
    ('-3.5', '1,234,567', '3, 5', 'a,5')
    """
    whole, comma, part = cell.strip().partition(",")
    number = comma and whole.removeprefix("-").isdecimal() and part.isdecimal()
    return f"{whole}.{part}" if number else cell


def _columns(lines: list[str], width: int, separator: str) -> list[list[str]]:
    """Return the cells of each column, empty where a line is short."""
    rows = [_row(line, separator) for line in lines]
    blank = [""] * width
    for row in rows:
        if len(row) != width:
            row[len(row) :] = blank
            del row[width:]
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]


def _row(line: str, separator: str = ",") -> list[str]:
    """Return the cells of one line.

    >>> _row('1,"a, ""b"" c",x"y'), _row('1,"never closed, 2'), _row("")
    (['1', 'a, "b" c', 'x"y'], ['1', 'never closed, 2'], [''])
    """
    line = line.removesuffix("\r")
    if '"' not in line:
        return line.split(separator)
    cells, start = list[str](), 0
    while start <= len(line):
        text, start = _cell_at(line, start, separator)
        cells.append(text)
    return cells


def _cell_at(line: str, start: int, separator: str) -> tuple[str, int]:
    """Return the cell that starts at a position, and where the next one starts."""
    quoted = ""
    while line.startswith('"', start):
        close = line.find('"', start + 1)
        if close < 0:
            return quoted + line[start + 1 :], len(line) + 1
        quoted += line[start + 1 : close] + ('"' if line.startswith('"', close + 1) else "")
        start = close + 1
    end = line.find(separator, start)
    end = len(line) if end < 0 else end
    return quoted + line[start:end], end + 1


def _existing(path: str | Path) -> Path:
    source = Path(path)
    if not source.is_file():
        raise ValueError(f"there is no file {str(source)!r}")
    return source


def _unreadable(source: Path) -> ValueError:
    return ValueError(
        f"{source.name} is not a readable table; it should be a Parquet file or a CSV file with "
        "a header"
    )
