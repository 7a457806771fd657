"""State files of interactions: plain values and arrays, written whole before an answer leaves."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

_FORMAT = 1


@dataclass(frozen=True)
class StateFile:
    """One file beside the data. It holds private values, so only its owner may read it."""

    path: Path

    @staticmethod
    def new(path: Path | str) -> StateFile:
        """Return a file that does not exist yet."""
        if Path(path).exists():
            raise ValueError(f"{str(path)!r} exists; resume it, or choose another file")
        return StateFile(Path(path))

    @staticmethod
    def existing(path: Path | str) -> StateFile:
        """Return a file that exists."""
        if not Path(path).is_file():
            raise ValueError(f"there is no state file {str(path)!r}; open the plan with store={str(path)!r} first")
        return StateFile(Path(path))

    def write(self, **content: Any) -> None:
        """Replace the content, and return once it is on the disk."""
        text = json.dumps(_plain(content | {"format": _FORMAT}), allow_nan=True)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def read(self, plan: str) -> dict[str, Any]:
        """Return the content, if it belongs to the plan of this fingerprint."""
        try:
            content = _restored(json.loads(self.path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise ValueError(f"{str(self.path)!r} is not a readable state file") from error
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise ValueError(f"{str(self.path)!r} is not a state file of this version")
        if content.get("plan") != plan:
            raise ValueError(f"{str(self.path)!r} holds the state of another plan; resume it with its own plan")
        return content


def _plain(value: Any) -> Any:
    """Return a value as JSON; a tuple, an array or a fraction is marked, so that it is read back as such."""
    if isinstance(value, dict):
        if not all(isinstance(name, str) and not name.startswith("$") for name in value):
            raise TypeError("a state has strings as names")
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, tuple):
        return {"$tuple": [_plain(part) for part in value]}
    if isinstance(value, np.ndarray):
        return {"$array": value.ravel().tolist(), "dtype": value.dtype.str, "shape": list(value.shape)}
    if isinstance(value, Fraction):
        return {"$fraction": [value.numerator, value.denominator]}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(f"a state holds plain values and arrays, not {type(value).__name__}")


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(part) for part in value]
    if not isinstance(value, dict):
        return value
    if "$tuple" in value:
        return tuple(_restored(part) for part in value["$tuple"])
    if "$array" in value:
        return np.array(value["$array"], dtype=np.dtype(value["dtype"])).reshape(value["shape"])
    if "$fraction" in value:
        return Fraction(*value["$fraction"])
    return {name: _restored(part) for name, part in value.items()}
