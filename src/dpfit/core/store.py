"""State files of interactions: plain values and arrays, on the disk before an answer leaves.

A file has one line for each time that it was written. The newest line holds the state; a `Log` in
the state writes only its new items, so that long streams append. A state without a log replaces
the file. Each line has a random mark and names the mark before it: a ledger holds the newest one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from dpfit.core.log import Log
from dpfit.noise import Source
from dpfit.privacy.spec import Json

_FORMAT = 2
_CHECK = 16


class StateFile:
    """One file beside the data. It holds private values, so only its owner may read it."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.mark, self.previous = "", ""
        """Random marks of the newest line and of the one before it."""
        self._source = Source()
        self._start, self._size, self._check = 0, 0, b""
        """Where the newest line starts and ends, and how it starts."""
        self._written: dict[str, tuple[list[Any], int]] = {}

    @staticmethod
    def new(path: Path | str) -> StateFile:
        """Return a file that does not exist yet."""
        if Path(path).exists():
            raise ValueError(f"{str(path)!r} exists; resume it, or choose another file")
        return StateFile(path)

    @staticmethod
    def existing(path: Path | str) -> StateFile:
        """Return a file that exists."""
        if not Path(path).is_file():
            raise ValueError(
                f"there is no state file {str(path)!r}; open the plan with store={str(path)!r} "
                "first"
            )
        return StateFile(path)

    def write(self, **content: object) -> None:
        """Write the content, and return once it is on the disk."""
        mark = "".join(f"{int(word):016x}" for word in self._source.words(2))
        written: dict[str, tuple[list[Any], int]] = {}
        facts = {"format": _FORMAT, "mark": mark, "previous": self.mark}
        text = json.dumps(self._plain(content | facts, "", written), allow_nan=True)
        line = f"{_checksum(text)} {text}\n".encode()
        if not self._size:
            self._create(line)
        else:
            with self._held() as file:
                if written:
                    self._append(file, line)
                else:
                    self._replace(line)
        self.mark, self.previous, self._written = mark, self.mark, written

    @contextmanager
    def _held(self) -> Iterator[FileIO]:
        """Hold the file alone, or raise if its newest line is not the one that is known here."""
        while True:
            with self.path.open("r+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if not os.path.samestat(os.fstat(file.fileno()), self.path.stat()):
                    continue  # replaced while this process waited
                file.seek(self._start)
                known = file.read(_CHECK) == self._check
                shorter = file.seek(0, os.SEEK_END) < self._size
                file.seek(self._size)
                # Bytes after the last whole line are what a killed process left of a line.
                if not known or shorter or b"\n" in file.readall():
                    raise ValueError(
                        f"{str(self.path)!r} was written by another process; resume it to go on"
                    )
                yield file
                return

    def _append(self, file: FileIO, line: bytes) -> None:
        try:
            file.truncate(self._size)
            file.seek(self._size)
            rest = memoryview(line)
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except BaseException:
            # A line that is not surely on the disk did not happen.
            with suppress(OSError):
                file.truncate(self._size)
            raise
        self._newest_is(line, self._size)

    def _create(self, line: bytes) -> None:
        """Write the first line of a file that no other process has made meanwhile."""
        try:
            create(self.path, line)
        except FileExistsError:
            raise ValueError(
                f"{str(self.path)!r} exists; resume it, or choose another file"
            ) from None
        self._newest_is(line, 0)

    def _replace(self, line: bytes) -> None:
        with _written_aside(self.path, line) as name:
            os.replace(name, self.path)
        self._newest_is(line, 0)

    def _newest_is(self, line: bytes, start: int) -> None:
        self._start, self._size, self._check = start, start + len(line), line[:_CHECK]

    def read(self, plan: str) -> dict[str, Any]:
        """Return the content, if it belongs to the plan of this fingerprint."""
        logs: dict[str, list[Any]] = {}
        content: Any = None
        try:
            # The last piece is empty, or what a killed process left of a line.
            *lines, _ = self.path.read_bytes().split(b"\n")
            for line in lines:
                check, _, text = line.decode().partition(" ")
                if check != _checksum(text):
                    raise ValueError
                content = json.loads(text)
                _collect(content, "", logs)
            if content is None:
                raise ValueError
            size = sum(len(line) + 1 for line in lines)
            self._newest_is(lines[-1] + b"\n", size - len(lines[-1]) - 1)
            content = self._restored(content, "", logs)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{str(self.path)!r} is not a readable state file") from error
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise ValueError(f"{str(self.path)!r} is not a state file of this version")
        if content.get("plan") != plan:
            raise ValueError(
                f"{str(self.path)!r} holds the state of another plan; resume it with its own plan"
            )
        self.mark, self.previous = content["mark"], content["previous"]
        return content

    def _plain(self, value: object, path: str, written: dict[str, tuple[list[Any], int]]) -> Json:
        """Return a value as JSON; what JSON does not have is marked, to be read back as it was."""
        if isinstance(value, dict):
            if not all(isinstance(name, str) and name[:1] not in ("$", "") for name in value):
                raise TypeError("a state has strings as names")
            return {
                name: self._plain(part, f"{path}/{name}", written) for name, part in value.items()
            }
        if isinstance(value, list | tuple):
            parts: list[Json] = [
                self._plain(part, f"{path}/{place}", written) for place, part in enumerate(value)
            ]
            return {"$tuple": parts} if isinstance(value, tuple) else parts
        if isinstance(value, Log):
            items, known = self._written.get(path, (None, 0))
            known = known if items is value.items and known <= len(value) else 0
            written[path] = (value.items, len(value))
            new: list[Json] = [self._plain(item, path, {}) for item in value[known:]]
            return {"$log": new, "from": known}
        if isinstance(value, np.ndarray):
            return {
                "$array": value.ravel().tolist(),
                "dtype": value.dtype.str,
                "shape": list(value.shape),
            }
        if isinstance(value, Fraction):
            return {"$fraction": [value.numerator, value.denominator]}
        if isinstance(value, np.generic):
            plain: Json = value.item()
            return plain
        if value is None or isinstance(value, str | bool | int | float):
            return value
        raise TypeError(f"a state holds plain values and arrays, not {type(value).__name__}")

    def _restored(self, value: Any, path: str, logs: dict[str, list[Any]]) -> object:
        if isinstance(value, list):
            return [
                self._restored(part, f"{path}/{place}", logs) for place, part in enumerate(value)
            ]
        if not isinstance(value, dict):
            return value
        if "$tuple" in value:
            return tuple(self._restored(value["$tuple"], path, logs))  # type: ignore[arg-type]
        if "$array" in value:
            return np.array(value["$array"], dtype=np.dtype(value["dtype"])).reshape(value["shape"])
        if "$fraction" in value:
            return Fraction(*value["$fraction"])
        if "$log" in value:
            log = Log(self._restored(item, path, {}) for item in logs[path])
            self._written[path] = (log.items, len(log))
            return log
        return {name: self._restored(part, f"{path}/{name}", logs) for name, part in value.items()}


def create(path: Path, content: bytes) -> None:
    """Write a new file, whole or not at all, and return once it is on the disk."""
    with _written_aside(path, content) as name:
        os.link(name, path)


@contextmanager
def _written_aside(path: Path, content: bytes) -> Iterator[str]:
    """Yield the name of a file beside a path; the folder is on the disk afterwards."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield name
    finally:
        Path(name).unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Return once the names in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _collect(value: Any, path: str, logs: dict[str, list[Any]]) -> None:
    """Add the new items of each log in a line to those of earlier lines."""
    if isinstance(value, dict) and "$tuple" in value:
        value = value["$tuple"]
    if isinstance(value, list):
        for place, part in enumerate(value):
            _collect(part, f"{path}/{place}", logs)
    elif isinstance(value, dict) and "$log" in value:
        items = logs.setdefault(path, [])
        if value["from"] > len(items):
            raise ValueError
        items[value["from"] :] = value["$log"]
    elif isinstance(value, dict) and not value.keys() & {"$array", "$fraction"}:
        for name, part in value.items():
            _collect(part, f"{path}/{name}", logs)


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_CHECK]
