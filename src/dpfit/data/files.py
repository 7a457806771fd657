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


def scan_parquet(path: str | Path, schema: Schema, *, rows_per_block: int = 65_536) -> Blocks:
    """A Parquet file that may be larger than memory, as records of the schema.

    Each pass reads it again, ``rows_per_block`` rows at a time.
    """
    source, size = _existing(path), count("rows_per_block", rows_per_block)
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(source) as file:
            total = int(file.metadata.num_rows)
            names = set(file.schema_arrow.names)
    except Exception:
        raise _unreadable(source) from None
    wanted = [column.name for column in (*schema.columns, *((schema.target,) if schema.target else ()))]
    if missing := [name for name in wanted if name not in names]:
        raise ValueError(f"{source.name} has no column {missing[0]!r}; it has {', '.join(map(repr, sorted(names)))}")

    def read() -> Iterator[tuple[Any, Any]]:
        with parquet.ParquetFile(source) as file:
            batches = file.iter_batches(batch_size=size, columns=wanted)
            while True:
                try:
                    batch = next(batches, None)
                except Exception:
                    raise _unreadable(source) from None
                if batch is None:
                    return
                columns = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in wanted}
                labels = schema.labels(columns) if schema.target else np.zeros(batch.num_rows)
                yield schema.matrix(columns), labels

    return Blocks(total, len(schema.names), read)


def records(table: Any, schema: Schema) -> Arrays:
    """A table in memory as records of the schema."""
    matrix = schema.matrix(table)
    return Arrays(matrix, schema.labels(table) if schema.target else np.zeros(len(matrix)))


def _read_csv(source: Path) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    with source.open(newline="", encoding="utf-8") as file:
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
