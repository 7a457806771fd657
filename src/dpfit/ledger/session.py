"""The newest step of each stored session: one row for a reservation, which only moves forward.

A row for each step would lengthen the chain of a stream by its horizon. The chain keeps what was
charged; this table keeps which state file may go on.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from dpfit.ledger import store


class Newest(NamedTuple):
    """The newest step of a session and the random mark of its line in the state file."""

    step: int
    mark: str


def newest(db: sqlite3.Connection, reservation: int) -> Newest | None:
    """Return the newest step of a session; None if none is recorded."""
    return sessions(db, "WHERE reservation = ?", reservation).get(reservation)


def record(db: sqlite3.Connection, reservation: int, step: int, mark: str) -> None:
    """Move a session forward; must run inside a writing transaction."""
    store.keep_sessions(db)
    db.execute(
        "INSERT INTO sessions VALUES (?, ?, ?) "
        "ON CONFLICT (reservation) DO UPDATE SET step = excluded.step, mark = excluded.mark",
        (reservation, step, mark),
    )


def sessions(db: sqlite3.Connection, which: str = "", *arguments: int) -> dict[int, Newest]:
    """Return the newest steps of all sessions, or of those named."""
    if not store.has_sessions(db):
        return {}
    rows = db.execute(f"SELECT reservation, step, mark FROM sessions {which}", arguments)
    return {reservation: Newest(step, mark) for reservation, step, mark in rows}
