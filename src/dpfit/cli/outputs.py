"""Files that commands write, and results that must not be lost."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from dpfit.privacy.spec import Json


def check_new(path: Path) -> None:
    """Refuse a name that is taken or has no folder."""
    if path.exists():
        raise ValueError(f"{path} exists already; give another name, or move the old file away")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {str(path.parent)!r}; make it first")


@contextmanager
def new_files(*paths: Path | None) -> Iterator[Callable[[Path, str], None]]:
    """Create files before anything is charged; yield the function that writes one, once.

    What exists is never overwritten. A file that was not written in full is removed when the block
    ends.
    """
    files: dict[Path, TextIO] = {}

    def write(path: Path, text: str) -> None:
        file = files[path]
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
        file.close()
        del files[path]

    try:
        for path in paths:
            if path is not None:
                files[path] = _create(path, files)
        yield write
    finally:
        for path, file in files.items():
            _discard(path, file)


def _create(path: Path, others: Iterable[Path]) -> TextIO:
    if any(path.exists() and path.samefile(other) for other in others):
        raise ValueError(f"two outputs name one file, {path}; give each its own name")
    check_new(path)
    try:
        return path.open("x", encoding="utf-8", newline="\n")
    except FileExistsError:
        raise ValueError(
            f"{path} is a link to a file that does not exist; give another name"
        ) from None


def _discard(path: Path, file: TextIO) -> None:
    """Remove a file, unless its name leads to another one by now."""
    with suppress(OSError):
        if os.path.samestat(os.fstat(file.fileno()), path.lstat()):
            path.unlink()
    with suppress(OSError):
        file.close()


@contextmanager
def kept(result: Callable[[], Mapping[str, Json]]) -> Iterator[None]:
    """Print a paid result as one line of JSON if the block that writes and shows it fails.

    It goes to standard output or, if that is what failed, to standard error.
    """
    try:
        yield
        sys.stdout.flush()
    except BaseException:
        line = json.dumps(result()) + "\n"
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.write(line)
                stream.flush()
                break
        raise


def csv_text(header: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """Return a CSV table."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return file.getvalue()
