"""Tables on disk: Parquet and CSV files, read in blocks through a schema.

Errors of the readers are rewritten: theirs may quote a cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from csv import reader
from pathlib import Path
from typing import Any

import numpy as np

from dpfit.data.dataset import Blocks, InMemory
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
                block = records(batch, schema, users=users)
                yield (block.matrix, block.labels, *(() if users is None else (block.users,)))

    return Blocks(total, len(schema.names), read)


def records(table: Any, schema: Schema, *, users: str | None = None) -> InMemory:
    """A table in memory as records of the schema; ``users`` names a column of user ids.

    >>> from dpfit.data.schema import Number
    >>> table = {"age": [30, 60], "who": ["ann", "bob"]}
    >>> records(table, Schema((Number("age", 0, 120),)), users="who").users.tolist()
    ['ann', 'bob']
    """
    source = Table(table)
    labels = schema.labels(source) if schema.target else np.zeros(source.rows)
    return InMemory(schema.matrix(source), labels, source.texts(users) if users is not None else None)


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
            rows, names = int(file.metadata.num_rows), list(file.schema_arrow.names)
    except Exception:
        raise _unreadable(source) from None
    if missing := [name for name in wanted if name not in names]:
        raise ValueError(f"{source.name} has no column {missing[0]!r}; it has {', '.join(map(repr, sorted(names)))}")
    if twice := [name for name in wanted if names.count(name) > 1]:
        raise ValueError(f"{source.name} has two columns of the name {twice[0]!r}; rename one")
    return rows


def _batches(source: Path, wanted: list[str], size: int) -> Iterator[Any]:
    """Tables of some rows of a Parquet file each."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        # Without these two, whole row groups are held in memory, and those can be as large as the file.
        with parquet.ParquetFile(source, pre_buffer=False, buffer_size=2**20) as file:
            for batch in file.iter_batches(batch_size=size, columns=wanted):
                yield pa.Table.from_batches([batch])
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
