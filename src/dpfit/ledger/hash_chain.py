"""Rows chained by hashes: each one seals its own columns and the hash of the row before it."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import NamedTuple

from dpfit.ledger import amount
from dpfit.ledger.errors import LedgerDamaged
from dpfit.privacy.cost import Charge
from dpfit.privacy.spec import Json

GENESIS = "0" * 64
"""The hash before the first row."""

STAYS_SPENT, GIVEN_BACK = "stays spent", "given back"
"""What an abandoned reservation does to the budget, as its row says."""

_TIME = "%Y-%m-%dT%H:%M:%SZ"


class Row(NamedTuple):
    """A row as SQLite stores it."""

    id: int
    dataset: str
    kind: str
    reservation: int | None
    time: str
    facts: str
    amount: str
    delta: str
    previous: str
    hash: str


_COLUMNS = ", ".join(Row._fields)


@dataclass(frozen=True)
class Entry:
    """One row.

    ``spent`` is what the dataset has spent after this row, so that the next spend need not look
    further back. ``time`` (UTC, never going backwards) is that of the newest registration or
    reservation up to this row: when a release was ready would tell how long it took, which may
    depend on records.
    """

    id: int
    dataset: str
    kind: str
    reservation: int | None
    time: str
    facts: dict[str, Json]
    spent: Charge
    previous: str
    hash: str

    @property
    def gives_back(self) -> bool:
        """Whether this row returns the price of its reservation to the budget."""
        return self.kind == "abandon" and self.facts["budget"] == GIVEN_BACK

    @property
    def algorithm(self) -> str:
        """What a reservation is for: an algorithm's name, in older rows a mechanism's."""
        plan = self.facts["plan"]
        part = (plan.get("mechanism") or plan) if isinstance(plan, Mapping) else None
        kind = part.get("kind", "plan") if isinstance(part, Mapping) else "plan"
        return str(self.facts.get("algorithm") or kind)

    def to_json(self) -> dict[str, Json]:
        """A dictionary of plain values, amounts as exact text."""
        return {
            "id": self.id,
            "dataset": self.dataset,
            "kind": self.kind,
            "reservation": self.reservation,
            "time": self.time,
            "facts": self.facts,
            "spent": amount.to_json(self.spent),
            "previous": self.previous,
            "hash": self.hash,
        }


def canonical(value: Json) -> str:
    """JSON with sorted keys, no spaces and ASCII only: one text for one value.

    >>> canonical({"b": 1, "a": [0.5, "é"]})
    '{"a":[0.5,"\\\\u00e9"],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def fingerprint(value: Json) -> str:
    """Return the SHA-256 of the canonical JSON of a value, in hex.

    >>> fingerprint({"b": 1, "a": 2}) == fingerprint({"a": 2, "b": 1})
    True
    """
    return hashlib.sha256(canonical(value).encode("ascii")).hexdigest()


def seal(columns: tuple[str | int | None, ...]) -> str:
    """The SHA-256 hash of a row's columns (all but the hash), as they are stored."""
    return fingerprint(columns)


def append(
    db: sqlite3.Connection,
    dataset: str,
    kind: str,
    facts: dict[str, Json],
    spent: Charge,
    reservation: int | None = None,
) -> Entry:
    """Add a row to the end of the chain; must run inside a writing transaction."""
    last = head(db)
    before = last.time if last else ""
    # A clock that was set back must not reorder the past.
    time = max(datetime.now(UTC).strftime(_TIME), before) if reservation is None else before
    number, previous = (last.id + 1, last.hash) if last else (1, GENESIS)
    totals = amount.text(spent.amount), amount.text(spent.delta)
    columns = (number, dataset, kind, reservation, time, canonical(facts), *totals, previous)
    row = Row(*columns, seal(columns))
    db.execute(f"INSERT INTO entries ({_COLUMNS}) VALUES ({', '.join('?' * len(row))})", row)
    if kind == "register":
        db.execute("INSERT INTO datasets VALUES (?, ?, ?, ?)", (dataset, number, number, row.hash))
    else:
        db.execute(
            "UPDATE datasets SET newest = ?, hash = ? WHERE name = ?", (number, row.hash, dataset)
        )
    return read(row)


def read(row: Row) -> Entry:
    """The entry that a row holds, if the row is as it was written."""
    try:
        if seal(row[:-1]) != row.hash:
            raise LedgerDamaged(
                f"entry {row.id} is not as it was written; run `dpfit ledger verify`"
            )
        totals = Charge(Fraction(row.amount), Fraction(row.delta))
        facts = json.loads(row.facts)
        return Entry(
            row.id,
            row.dataset,
            row.kind,
            row.reservation,
            row.time,
            facts,
            totals,
            row.previous,
            row.hash,
        )
    except (ValueError, TypeError, ZeroDivisionError):
        raise LedgerDamaged(f"entry {row.id!r} cannot be read; run `dpfit ledger verify`") from None


def price_of(reserved: Entry) -> Charge:
    """Return the price that a reservation added to the total."""
    return amount.from_json(reserved.facts["price"])


def head(db: sqlite3.Connection) -> Entry | None:
    """The newest row of all."""
    return _one(db, "ORDER BY id DESC LIMIT 1")


def registered(db: sqlite3.Connection, dataset: str) -> tuple[Entry, Entry] | None:
    """The row that registered a dataset, and its newest row."""
    found = db.execute(
        "SELECT registration, newest, hash FROM datasets WHERE name = ?", (dataset,)
    ).fetchone()
    if found is None:
        return None
    first, newest = by_number(db, found[0]), by_number(db, found[1])
    if first is None or newest is None or (first.kind, first.dataset) != ("register", dataset):
        raise LedgerDamaged(
            f"the rows of dataset {dataset!r} are not where they should be; restore a backup"
        )
    if (newest.dataset, newest.hash) != (dataset, found[2]):
        raise LedgerDamaged(
            f"the newest row of dataset {dataset!r} is not the one that was written; restore a "
            "backup"
        )
    return first, newest


def pointers(db: sqlite3.Connection) -> dict[str, tuple[int, int, str]]:
    """First and newest row of each dataset, by registration, and the newest row's hash."""
    rows = db.execute("SELECT name, registration, newest, hash FROM datasets ORDER BY registration")
    return {name: (first, newest, seal) for name, first, newest, seal in rows}


def by_number(db: sqlite3.Connection, number: int) -> Entry | None:
    """The row with this number."""
    return _one(db, "WHERE id = ?", number)


def closing(db: sqlite3.Connection, reservation: int) -> Entry | None:
    """The row that released or abandoned a reservation."""
    return _one(db, "WHERE reservation = ?", reservation)


def every(db: sqlite3.Connection, dataset: str | None = None) -> Iterator[Entry]:
    """All rows, oldest first, or those of a dataset."""
    which, arguments = ("", ()) if dataset is None else ("WHERE dataset = ?", (dataset,))
    for row in db.execute(f"SELECT {_COLUMNS} FROM entries {which} ORDER BY id", arguments):
        yield read(Row(*row))


def _one(db: sqlite3.Connection, which: str, *arguments: int) -> Entry | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM entries {which}", arguments).fetchone()
    return read(Row(*row)) if row else None
