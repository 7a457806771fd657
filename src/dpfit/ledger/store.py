"""The file: a SQLite table of entries that are only ever added, and a small one that points to each dataset's newest.

The pointer repeats the hash of the row that it points to. A damaged page then makes the two disagree, where a lookup
by an index alone could find an older row, with more budget left.

A connection lives for one operation. That costs about a millisecond and buys much: a handle is a mere address, nothing
is inherited by forked children or shared between threads, and a file that was deleted or replaced is noticed at the
next operation instead of being written to under no name.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from dpfit.ledger.errors import LedgerDamaged, LedgerError, LedgerUnavailable

APPLICATION = 0x64706C67
"""Marks a SQLite file as a ledger ("dplg")."""

VERSION = 1

SCHEMA = (
    """CREATE TABLE entries (
    id INTEGER PRIMARY KEY,
    dataset TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('register', 'reserve', 'release', 'abandon')),
    reservation INTEGER REFERENCES entries (id),
    time TEXT NOT NULL,
    facts TEXT NOT NULL,
    amount TEXT NOT NULL,
    delta TEXT NOT NULL,
    previous TEXT NOT NULL UNIQUE,
    hash TEXT NOT NULL UNIQUE
)""",
    """CREATE TABLE datasets (
    name TEXT PRIMARY KEY,
    registration INTEGER NOT NULL UNIQUE REFERENCES entries (id),
    newest INTEGER NOT NULL UNIQUE REFERENCES entries (id),
    hash TEXT NOT NULL
) WITHOUT ROWID""",
    "CREATE UNIQUE INDEX closings ON entries (reservation) WHERE reservation IS NOT NULL",
    "CREATE INDEX histories ON entries (dataset, id)",
    "CREATE TRIGGER no_update BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END",
    "CREATE TRIGGER no_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries are never deleted'); END",
    "CREATE TRIGGER no_loss BEFORE DELETE ON datasets BEGIN SELECT RAISE(ABORT, 'datasets are never deleted'); END",
    """CREATE TRIGGER no_return BEFORE UPDATE ON datasets
WHEN NEW.newest <= OLD.newest OR NEW.name <> OLD.name OR NEW.registration <> OLD.registration
BEGIN SELECT RAISE(ABORT, 'datasets never go back'); END""",
)

_SETTINGS = ("PRAGMA foreign_keys = ON", "PRAGMA synchronous = FULL", "PRAGMA cell_size_check = ON")
_PATIENCE = 60.0

_UNAVAILABLE = {
    "SQLITE_BUSY": "is locked by another process; try again, and look for a process that hangs",
    "SQLITE_FULL": "cannot grow: the disk is full; make room and try again",
    "SQLITE_IOERR": "could not be read or written by the operating system; check the disk",
    "SQLITE_READONLY": "is read-only; make the file and its directory writable",
    "SQLITE_PERM": "may not be opened; check its permissions",
    "SQLITE_CANTOPEN": "cannot be opened; check the path and that the directory is writable",
}


def create(path: Path) -> None:
    """Write an empty ledger; refuses to touch anything that is already there."""
    if path.is_file() and path.stat().st_size:
        raise LedgerError(f"there is a file at {path} already; choose another name, or use the ledger that is there")
    _refuse_links(path)
    with _errors(path), closing(_connect(path, "rwc")) as db:
        _configure(db)
        db.execute("PRAGMA journal_mode = WAL")
        with _transaction(db, "EXCLUSIVE"):
            if _pragma(db, "application_id"):
                raise LedgerError(f"another process has just made a ledger at {path}; use that one")
            for statement in SCHEMA:
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {VERSION}")


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that sees one state of the ledger."""
    with _opened(path) as db, _transaction(db, "DEFERRED"):
        yield db


@contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that is the only writer; on the disk when the block ends, undone if it raises."""
    before = _identity(path)
    with _opened(path) as db, _transaction(db, "IMMEDIATE"):
        yield db
    if _identity(path) != before:
        # What was written is in a file that has no name any more.
        raise LedgerUnavailable(f"the ledger {path} was deleted or replaced while it was written; find the right file")


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.is_file():
        # Making a new one here would hand out the budget again.
        raise LedgerUnavailable(f"there is no ledger at {path}; make one with `dpfit ledger create` or Ledger.create")
    _refuse_links(path)
    with _errors(path), closing(_connect(path, "rw")) as db:
        _configure(db)
        if _pragma(db, "application_id") != APPLICATION:
            raise LedgerDamaged(f"the file {path} is not a ledger; check the path")
        if (version := _pragma(db, "user_version")) != VERSION:
            raise LedgerDamaged(
                f"the ledger {path} has schema version {version}, this dpfit reads version {VERSION}; use the dpfit "
                "that wrote it or a newer one"
            )
        yield db


def _refuse_links(path: Path) -> None:
    """Refuse a file with a second name (a hard link).

    SQLite names its log after the file. Spenders under two names would keep two logs, and each log one cap.
    """
    try:
        names = os.stat(path).st_nlink
    except OSError:
        return  # a missing file is reported by whoever opens it
    if names > 1:
        raise LedgerUnavailable(
            f"the ledger {path} has {names} names (hard links), and two names would spend one budget twice; remove all "
            "names but one, and make backups with cp or dpfit ledger export, not with links"
        )


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, timeout=_PATIENCE, isolation_level=None)


def _configure(db: sqlite3.Connection) -> None:
    for setting in _SETTINGS:
        db.execute(setting)


@contextmanager
def _transaction(db: sqlite3.Connection, kind: str) -> Iterator[None]:
    db.execute(f"BEGIN {kind}")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    """SQLite's errors as ours: what the file's state is, and the way out."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        for code, state in _UNAVAILABLE.items():
            if name.startswith(code):
                raise LedgerUnavailable(f"the ledger {path} {state}; nothing was written ({error})") from error
        if name.startswith("SQLITE_NOTADB"):
            raise LedgerDamaged(f"the file {path} is not a ledger; check the path ({error})") from error
        raise _damaged(path, str(error)) from error
    except UnicodeDecodeError as error:
        # SQLite's own message can quote bytes of a damaged file.
        raise _damaged(path, "unreadable text") from error


def _damaged(path: Path, detail: str) -> LedgerDamaged:
    return LedgerDamaged(
        f"the ledger {path} is damaged; restore it from a backup and charge again what was spent since ({detail})"
    )


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file it is that has this name now."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])
