"""The file: an append-only SQLite table, and a small one that points to newest entries.

The pointer repeats the hash of the row that it points to. A damaged page then makes the two
disagree, where a lookup by an index alone could find an older row, with more budget left.

A commit is in the main file when it returns, since SQLite keeps a rollback journal. A write-ahead
log would hold committed charges in a second file, which a move or a copy leaves behind.

A connection lives for one operation. That costs about a millisecond and buys much: a handle is a
mere address, nothing is inherited by forked children or shared between threads, and a file that was
deleted or replaced is noticed at the next operation instead of being written to under no name.
"""

from __future__ import annotations

import os
import sqlite3
import time
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
    "CREATE TRIGGER no_update BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'entries are "
    "never changed'); END",
    "CREATE TRIGGER no_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries are "
    "never deleted'); END",
    "CREATE TRIGGER no_loss BEFORE DELETE ON datasets BEGIN SELECT RAISE(ABORT, 'datasets are "
    "never deleted'); END",
    """CREATE TRIGGER no_return BEFORE UPDATE ON datasets
WHEN NEW.newest <= OLD.newest OR NEW.name <> OLD.name OR NEW.registration <> OLD.registration
BEGIN SELECT RAISE(ABORT, 'datasets never go back'); END""",
)

SESSIONS = (
    """CREATE TABLE sessions (
    reservation INTEGER PRIMARY KEY REFERENCES entries (id),
    step INTEGER NOT NULL,
    mark TEXT NOT NULL
)""",
    "CREATE TRIGGER no_lost_session BEFORE DELETE ON sessions BEGIN SELECT RAISE(ABORT, 'sessions "
    "are never deleted'); END",
    """CREATE TRIGGER no_step_back BEFORE UPDATE ON sessions
WHEN NEW.step <= OLD.step OR NEW.reservation <> OLD.reservation
BEGIN SELECT RAISE(ABORT, 'sessions never go back'); END""",
)
"""The newest step of each stored session. Earlier ledgers get the table with their first one."""

_SETTINGS = (
    "PRAGMA foreign_keys = ON",
    "PRAGMA synchronous = EXTRA",
    "PRAGMA cell_size_check = ON",
)
_PATIENCE = 60.0

_LOGS = ("-wal", "-shm")
_JOURNAL = "-journal"

_UNAVAILABLE = {
    "SQLITE_BUSY": "is locked by another process; try again, and look for a process that hangs",
    "SQLITE_FULL": "cannot grow: the disk is full; make room and try again",
    "SQLITE_IOERR": "could not be read or written by the operating system; check the disk",
    "SQLITE_READONLY_ROLLBACK": (
        "has a journal beside it: a process was stopped while it wrote; if both files belong "
        "together, `dpfit ledger show` undoes the unfinished write, then verify again"
    ),
    "SQLITE_READONLY": "is read-only; make the file and its directory writable",
    "SQLITE_PERM": "may not be opened; check its permissions",
    "SQLITE_CANTOPEN": "cannot be opened; check the path and that the directory is writable",
}


def create(path: Path) -> None:
    """Write an empty ledger; refuses to touch anything that is already there."""
    if path.is_file() and path.stat().st_size:
        raise LedgerError(
            f"there is a file at {path} already; choose another name, or use the ledger that is "
            "there"
        )
    _refuse_links(path)
    if stray := _beside(path, (*_LOGS, _JOURNAL)):
        raise LedgerError(
            f"there is {stray}, which belongs to another ledger; move it away or choose another "
            "name"
        )
    with _errors(path), closing(_connect(path, "rwc")) as db:
        _configure(db)
        with _transaction(db, "EXCLUSIVE"):
            if _pragma(db, "application_id"):
                raise LedgerError(f"another process has just made a ledger at {path}; use that one")
            for statement in (*SCHEMA, *SESSIONS):
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
    """The only writing connection; durable when the block ends, rolled back if it raises."""
    before = _identity(path)
    with _opened(path) as db:
        _leave_log(db, path)
        with _transaction(db, "IMMEDIATE"):
            yield db
    if _identity(path) != before:
        # What was written is in a file that has no name any more.
        raise LedgerUnavailable(
            f"the ledger {path} was deleted or replaced while it was written; find the right file"
        )


def keep_sessions(db: sqlite3.Connection) -> None:
    """Make the table of sessions in a ledger of an earlier version."""
    if not has_sessions(db):
        for statement in SESSIONS:
            db.execute(statement)


def has_sessions(db: sqlite3.Connection) -> bool:
    """Whether the ledger has the table of sessions."""
    known = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'sessions'"
    return db.execute(known).fetchone() is not None


@contextmanager
def verifying(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to one state of the main file alone; refuses logs and unfinished writes."""
    if stray := _beside(path, _LOGS):
        raise LedgerUnavailable(
            f"the ledger {path} has {stray} beside it, so charges may be outside of the file; if "
            "it belongs to the "
            "ledger, register a dataset again, which takes them over, and verify again; if not, "
            "move it away"
        )
    # Read-only, SQLite reports an unfinished write instead of undoing it. A file of an earlier
    # version is opened for writing, since read-only SQLite would leave an empty log behind.
    with (
        _opened(path, "ro" if _beside(path, (_JOURNAL,)) else "rw") as db,
        _transaction(db, "DEFERRED"),
    ):
        yield db


@contextmanager
def _opened(path: Path, mode: str = "rw") -> Iterator[sqlite3.Connection]:
    if not path.is_file():
        # Making a new one here would hand out the budget again.
        raise LedgerUnavailable(
            f"there is no ledger at {path}; make one with `dpfit ledger create` or Ledger.create"
        )
    _refuse_links(path)
    with _errors(path), closing(_connect(path, mode)) as db:
        _configure(db)
        if _pragma(db, "application_id") != APPLICATION:
            raise LedgerDamaged(f"the file {path} is not a ledger; check the path")
        if (version := _pragma(db, "user_version")) != VERSION:
            raise LedgerDamaged(
                f"the ledger {path} has schema version {version}, this dpfit reads version "
                f"{VERSION}; use the dpfit "
                "that wrote it or a newer one"
            )
        yield db


def _refuse_links(path: Path) -> None:
    """Refuse a file with a second name (a hard link).

    SQLite names its journal after the file: under a second name an unfinished write would not be
    undone.
    """
    try:
        names = os.stat(path).st_nlink
    except OSError:
        return  # a missing file is reported by whoever opens it
    if names > 1:
        raise LedgerUnavailable(
            f"the ledger {path} has {names} names (hard links), and two names would spend one "
            "budget twice; remove all "
            "names but one, and make backups with cp or dpfit ledger export, not with links"
        )


def _beside(path: Path, suffixes: tuple[str, ...]) -> Path | None:
    """Return an existing file that SQLite keeps beside the ledger; links are followed."""
    real = path.resolve()
    files = (real.with_name(real.name + suffix) for suffix in suffixes)
    return next((file for file in files if file.exists()), None)


def _leave_log(db: sqlite3.Connection, path: Path) -> None:
    """Convert an earlier ledger: merge its write-ahead log into the file, then use none.

    SQLite converts only while nobody else has the file open, and does not wait for that itself.
    """
    deadline = time.monotonic() + _PATIENCE
    while not _keeps_journal(db):
        if time.monotonic() > deadline:
            raise LedgerUnavailable(
                f"the ledger {path} {_UNAVAILABLE['SQLITE_BUSY']}; nothing was written"
            )
        time.sleep(0.01)


def _keeps_journal(db: sqlite3.Connection) -> bool:
    """Switch to a rollback journal, and return whether that was possible now."""
    try:
        (mode,) = db.execute("PRAGMA journal_mode = DELETE").fetchone()
    except sqlite3.OperationalError as error:
        if not error.sqlite_errorname.startswith("SQLITE_BUSY"):
            raise
        return False
    return bool(mode == "delete")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, timeout=_PATIENCE, isolation_level=None
    )


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
                raise LedgerUnavailable(
                    f"the ledger {path} {state}; nothing was written ({error})"
                ) from error
        if name.startswith("SQLITE_NOTADB"):
            raise LedgerDamaged(
                f"the file {path} is not a ledger; check the path ({error})"
            ) from error
        raise _damaged(path, str(error)) from error
    except UnicodeDecodeError as error:
        # SQLite's own message can quote bytes of a damaged file.
        raise _damaged(path, "unreadable text") from error


def _damaged(path: Path, detail: str) -> LedgerDamaged:
    return LedgerDamaged(
        f"the ledger {path} is damaged; restore it from a backup and charge again what was spent "
        f"since ({detail})"
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
