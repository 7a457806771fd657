"""Tables on disk: Parquet and CSV files, read in blocks through a schema.

Errors of the readers are rewritten: theirs may quote a cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from csv import reader
from pathlib import Path
from typing import Any

import numpy as np

from dpfit.data.records import Arrays, Blocks
from dpfit.data.schema import Schema
from dpfit.data.table import Table
from dpfit.privacy.check import count


def read_table(path: str | Path) -> Any:
    """A whole Parquet or CSV file as an Arrow table; every CSV cell is a text, to be read by the schema."""
    source = _existing(path)
    try:
        if source.suffix.lower() == ".csv":
            return _read_csv(source)
        import pyarrow.parquet as parquet

        return parquet.read_table(source)
    except Exception:
        raise _unreadable(source) from None


def scan_parquet(path: str | Path, schema: Schema, *, users: str | None = None, rows_per_block: int = 65_536) -> Blocks:
    """A Parquet file, or a folder of them, that may be larger than memory, as records of the schema.

    Each pass reads it again, ``rows_per_block`` rows at a time; ``users`` names a column of user ids.
    """
    sources, size = _parquet_files(path), count("rows_per_block", rows_per_block)
    wanted = [column.name for column in (*schema.columns, *((schema.target,) if schema.target else ()))]
    wanted += [users] if users is not None else []
    total = sum(_rows(source, wanted) for source in sources)

    def read() -> Iterator[tuple[Any, ...]]:
        for source in sources:
            for batch in _batches(source, wanted, size):
                columns = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in wanted}
                labels = schema.labels(columns) if schema.target else np.zeros(batch.num_rows)
                ids = (Table(columns).texts(users),) if users is not None else ()
                yield schema.matrix(columns), labels, *ids

    return Blocks(total, len(schema.names), read)


def records(table: Any, schema: Schema, *, users: str | None = None) -> Arrays:
    """A table in memory as records of the schema; ``users`` names a column of user ids.

    >>> from dpfit.data.schema import Number
    >>> table = {"age": [30, 60], "who": ["ann", "bob"]}
    >>> records(table, Schema((Number("age", 0, 120),)), users="who").users.tolist()
    ['ann', 'bob']
    """
    matrix = schema.matrix(table)
    labels = schema.labels(table) if schema.target else np.zeros(len(matrix))
    return Arrays(matrix, labels, Table(table).texts(users) if users is not None else None)


def _parquet_files(path: str | Path) -> list[Path]:
    folder = Path(path)
    if not folder.is_dir():
        return [_existing(path)]
    if sources := sorted(folder.glob("*.parquet")):
        return sources
    raise ValueError(f"there is no .parquet file in {str(folder)!r}")


def _rows(source: Path, wanted: list[str]) -> int:
    """How many rows a Parquet file has, if it has the columns."""
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(source) as file:
            rows, names = int(file.metadata.num_rows), set(file.schema_arrow.names)
    except Exception:
        raise _unreadable(source) from None
    if missing := [name for name in wanted if name not in names]:
        raise ValueError(f"{source.name} has no column {missing[0]!r}; it has {', '.join(map(repr, sorted(names)))}")
    return rows


def _batches(source: Path, wanted: list[str], size: int) -> Iterator[Any]:
    """Batches of rows of a Parquet file."""
    import pyarrow.parquet as parquet

    try:
        # Without these two, whole row groups are held in memory, and those can be as large as the file.
        with parquet.ParquetFile(source, pre_buffer=False, buffer_size=2**20) as file:
            yield from file.iter_batches(batch_size=size, columns=wanted)
    except GeneratorExit:
        raise
    except Exception:
        raise _unreadable(source) from None


def _read_csv(source: Path) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    with source.open(newline="", encoding="utf-8-sig") as file:
        names = next(reader(file))
    options = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True)
    return csv.read_csv(source, convert_options=options)


def _existing(path: str | Path) -> Path:
    source = Path(path)
    if not source.is_file():
        raise ValueError(f"there is no file {str(source)!r}")
    return source


def _unreadable(source: Path) -> ValueError:
    return ValueError(f"{source.name} is not a readable table; it should be a Parquet file or a CSV file with a header")
