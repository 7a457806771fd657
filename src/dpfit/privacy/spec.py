"""Immutable public values that can be written down: frozen dataclasses with a kind and a JSON form.

Events, problems, mechanisms and plans are records. A record holds numbers, strings, other records and tuples of these,
never data and never functions, so what was promised can be stored, compared and read back years later.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, TypeVar

import numpy as np

_KINDS: dict[str, type[Spec]] = {}

R = TypeVar("R", bound="Spec")


@dataclasses.dataclass(frozen=True)
class Spec:
    """Base of all records. A concrete subclass sets ``kind``, a name of its own that is never given another meaning."""

    kind: ClassVar[str] = ""
    former: ClassVar[dict[str, str]] = {}
    """Names that fields had in files of earlier versions."""
    omitted: ClassVar[tuple[str, ...]] = ()
    """Fields that are not written while they hold their default."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        kind = cls.__dict__.get("kind", "")
        if not kind:
            return
        known = _KINDS.get(kind)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"the kind {kind!r} is taken by {known.__module__}.{known.__qualname__}")
        _KINDS[kind] = cls

    def to_json(self) -> dict[str, Any]:
        """A dictionary of plain values; `from_json` is its inverse."""
        return {"kind": self.kind} | {
            field.name: _plain(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if field.name not in self.omitted or getattr(self, field.name) != field.default
        }


def from_json(value: Any, expected: type[R]) -> R:
    """The record that `Spec.to_json` wrote, which must be an ``expected`` one.

    Only classes that are already imported are made, and their own checks run: reading a file executes nothing else.
    """
    kind = value.get("kind") if isinstance(value, dict) else None
    cls = _KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None or not issubclass(cls, expected):
        known = ", ".join(sorted(name for name, c in _KINDS.items() if issubclass(c, expected)))
        raise ValueError(f"{_shown(value)} is not a known kind of {expected.__name__.lower()}; known kinds: {known}")
    fields = {field.name for field in dataclasses.fields(cls)}
    given = {cls.former.get(name, name): part for name, part in value.items() if name != "kind"}
    if unknown := set(given) - fields:
        raise ValueError(f"{kind!r} has no field {min(unknown)!r}")
    try:
        return cls(**{name: _record(part) for name, part in given.items()})
    except TypeError as error:
        raise ValueError(f"{kind!r} cannot be read back: {error}") from None


def _shown(value: Any) -> str:
    return repr(value.get("kind") if isinstance(value, dict) else value)[:80]


def _plain(value: Any) -> Any:
    if isinstance(value, Spec):
        return value.to_json()
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(f"a record holds numbers, strings, records and tuples, not {type(value).__name__}")


def _record(value: Any) -> Any:
    if isinstance(value, dict):
        return from_json(value, Spec)
    return tuple(_record(part) for part in value) if isinstance(value, list) else value
