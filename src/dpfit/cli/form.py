"""The form of ``dpfit schema``: columns by name, with facts to fill in."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dpfit.data.schema import Category, Column, Date, Number, Schema
from dpfit.data.table import Table
from dpfit.privacy.validate import did_you_mean

_MOST_CATEGORIES = 50

_TEMPLATE = """\
# Public facts about the columns of the table. In each column remove "#" and put the values right, \
from what you know
# WITHOUT looking at the data: the code book, the form that was filled in, what is physically \
possible. A range or a
# category that was read off private data would be a leak. Values outside a range are moved \
into it, categories that
# are not listed count as "other". Write nullable = true where a number or a date may be missing. \
A range of dates has
# no quotes: lower = 2025-01-01. Delete columns you do not need.
"""

_PUBLIC = """\
# Ranges and categories were read from the table itself. That is sound only if this table is \
public. If its rows
# are about people who were promised privacy, throw this file away and write down \
what you know without looking.
"""


def template(path: Path, target: str | None = None, public: bool = False) -> str:
    """The text of a schema file: with facts if the data are public, else to fill in.

    Unless ``public``, no cell is read. A template that was not filled in is refused by
    `Schema.read`, column by column.
    """
    from dpfit.data.files import read_table

    kinds = _kinds(path)
    if target is not None and target not in kinds:
        raise ValueError(
            f"{path.name} has no column {target!r}; {did_you_mean(target, kinds)}it has "
            f"{', '.join(map(repr, kinds))}"
        )
    cells = Table(read_table(path)) if public else None
    ordered = [name for name in kinds if name != target] + ([target] if target is not None else [])
    # Columns that are centred in their ranges are fitted with less error, at the same bound on
    # rows.
    blocks = [(_PUBLIC if public else _TEMPLATE) + Schema((), scale="symmetric").to_toml()]
    for name in ordered:
        found = _read_facts(cells, name) if cells is not None else None
        guesses = _blanks(name, kinds[name]) if found is None else (found,)
        blocks.append(_block(guesses, name == target, comment=found is None))
    return "\n\n".join(block.strip("\n") for block in blocks) + "\n"


def _kinds(path: Path) -> dict[str, str]:
    """The columns, each "number", "date", "text" or, where the file does not say, "unknown"."""
    from dpfit.data.files import csv_names

    if not path.is_file():
        raise ValueError(f"there is no file {str(path)!r}")
    if path.suffix.lower() == ".csv":
        return dict.fromkeys(csv_names(path), "unknown")
    try:
        kinds = _parquet_kinds(path)
    except Exception:
        # Messages of readers may quote cells.
        kinds = []
    names = [name for name, _ in kinds]
    if not names:
        raise ValueError(
            f"{path.name} is not a readable table; it should be a Parquet file or a CSV file "
            "with a header"
        )
    if len(set(names)) < len(names):
        raise ValueError(f"{path.name} has two columns of one name; rename one")
    return dict(kinds)


def _parquet_kinds(path: Path) -> list[tuple[str, str]]:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    def kind(declared: pa.DataType) -> str:
        numeric = (
            pa.types.is_integer(declared)
            or pa.types.is_floating(declared)
            or pa.types.is_decimal(declared)
        )
        if pa.types.is_date(declared) or pa.types.is_timestamp(declared):
            return "date"
        return "number" if numeric else "text"

    return [(field.name, kind(field.type)) for field in parquet.read_schema(path)]


def _blanks(name: str, kind: str) -> tuple[Column, ...]:
    """What could be said about a column, with stand-ins for the facts."""
    number, category = Number(name, 0.0, 100.0), Category(name, ("first", "second"))
    if kind == "unknown":
        return number, category
    if kind == "date":
        return (Date(name, "2000-01-01", "2030-12-31"),)
    return (number,) if kind == "number" else (category,)


def _block(columns: tuple[Column, ...], target: bool, comment: bool) -> str:
    """A column as TOML; if ``comment``, its facts are examples that the reader must put right."""
    # What `to_toml` writes: settings, an empty line, the heading (of a target two lines), the
    # facts.
    written = [
        (Schema((), target=c) if target else Schema((c,))).to_toml().splitlines()[3:]
        for c in columns
    ]
    size = 2 if target else 1
    choices = [
        "\n".join(f"# {line}" if comment else line for line in lines[size:]) for lines in written
    ]
    return "\n".join([*written[0][:size], "\n# or\n".join(choices)])


def _read_facts(cells: Table, name: str) -> Column | None:
    """Facts of a public column; None if it is constant or has too many values to be a category."""
    texts = cells.texts(name)
    numbers = cells.numbers(name)
    filled = np.array([bool(text) for text in texts], dtype=bool)
    finite = np.isfinite(numbers)
    if bool(np.all(finite[filled])) and bool(filled.any()):
        lower, upper = float(numbers[finite].min()), float(numbers[finite].max())
        return (
            Number(name, lower, upper, nullable=not bool(filled.all())) if lower < upper else None
        )
    days = cells.days(name)
    known = np.isfinite(days)
    if bool(np.all(known[filled])) and bool(filled.any()):
        first, last = int(days[known].min()), int(days[known].max())
        return Date(name, first, last, nullable=not bool(filled.all())) if first < last else None
    found = sorted({text for text in texts if text})
    return Category(name, tuple(found)) if 0 < len(found) <= _MOST_CATEGORIES else None
