"""Files that commands write."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path


def check_new(*paths: Path | None) -> None:
    """Refuse files that could not be written, before anything is spent; what exists is never overwritten."""
    for path in paths:
        if path is None:
            continue
        if path.exists():
            raise ValueError(f"{path} exists already; give another name, or move the old file away")
        if not path.parent.is_dir():
            raise ValueError(f"there is no folder {str(path.parent)!r}; make it first")


def write_csv(header: Sequence[str], lines: Iterable[Sequence[object]], out: Path | None) -> None:
    """A CSV table, to a new file or to standard output."""
    with nullcontext(sys.stdout) if out is None else out.open("x", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(lines)
