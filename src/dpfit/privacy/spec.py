"""Frozen public values with a JSON form: events, problems, mechanisms and plans.

A Spec holds numbers, strings, other Specs and tuples of these. It holds neither records nor functions, so a guarantee
can be stored, compared and read back years later. `dpfit.privacy.kinds` says which module defines which kind.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import numpy as np

from dpfit.privacy.kinds import KINDS

S = TypeVar("S", bound="Spec")
Reader = Callable[[dict[str, Any]], "Spec"]

_LOADED: dict[str, type[Spec] | Reader] = {}


@dataclasses.dataclass(frozen=True)
class Spec:
    """Base of all frozen public values. A concrete subclass sets ``kind``, whose meaning never changes."""

    kind: ClassVar[str] = ""
    former: ClassVar[dict[str, str]] = {}
    """Field names in files of earlier versions, and the names of today."""
    omitted: ClassVar[tuple[str, ...]] = ()
    """Fields that are not written while they hold their default."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if kind := cls.__dict__.get("kind", ""):
            _register(kind, cls)

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary of plain values; `from_json` is the inverse."""
        return {"kind": self.kind} | {
            field.name: _to_plain(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if field.name not in self.omitted or getattr(self, field.name) != field.default
        }

    def __getstate__(self) -> dict[str, Any]:
        # Cached properties are computed again: some hold functions, which cannot be pickled.
        return {k: v for k, v in self.__dict__.items() if not isinstance(getattr(type(self), k, None), cached_property)}

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON, in hex."""
        return digest(self.to_json())


class Missing:
    """Mark of a Spec that stands for code of the caller, which a file does not hold."""

    def refuse(self) -> ValueError:
        """Return the error that says how to put the code back."""
        raise NotImplementedError


def digest(content: dict[str, Any]) -> str:
    """Return the SHA-256 of a JSON value with sorted keys and no spaces, in hex.

    >>> digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1})
    True
    """
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def reads(kind: str) -> Callable[[Reader], Reader]:
    """Register a function that makes a Spec of today from the JSON of a kind that no class has any more."""

    def register(reader: Reader) -> Reader:
        _register(kind, reader)
        return reader

    return register


def from_json(value: Any, expected: type[S]) -> S:
    """Return the Spec that `Spec.to_json` wrote; it must be an instance of ``expected``.

    Reading imports modules that `dpfit.privacy.kinds` names, and those that installed packages register in the entry
    point group ``dpfit.kinds``. A file chooses among these kinds; it cannot name a module.
    """
    kind = value.get("kind") if isinstance(value, dict) else None
    found = _resolve(kind) if isinstance(kind, str) else None
    if isinstance(found, type):
        if issubclass(found, expected):
            return _filled(found, value)
    elif found is not None and isinstance(made := found(value), expected):
        return made
    raise ValueError(
        f"kind must name a known {expected.__name__}, got {_shown(value)}; read it with the version of dpfit, and the "
        "packages, that wrote it"
    )


def _filled(cls: type[S], value: dict[str, Any]) -> S:
    fields = {field.name for field in dataclasses.fields(cls)}
    given = {cls.former.get(name, name): part for name, part in value.items() if name != "kind"}
    if unknown := set(given) - fields:
        raise ValueError(f"{cls.kind!r} has no field {min(unknown)!r}")
    try:
        return cls(**{name: _from_plain(part) for name, part in given.items()})
    except TypeError as error:
        raise ValueError(f"{cls.kind!r} cannot be read back: {error}") from None


def _register(kind: str, made: type[Spec] | Reader) -> None:
    where = (made.__module__, made.__qualname__)
    known = _LOADED.get(kind)
    taken = KINDS.get(kind) if known is None else (known.__module__, known.__qualname__)
    # A class of dpfit may have moved since the index was written; whoever else takes a kind of dpfit may not.
    if taken and taken != where and (known is not None or not made.__module__.startswith("dpfit.")):
        raise TypeError(f"kind {kind!r} belongs to {'.'.join(taken)}; give {'.'.join(where)} another one")
    _LOADED[kind] = made


def _resolve(kind: str) -> type[Spec] | Reader | None:
    """Return the class or reader of a kind, imported now if it was not."""
    if kind not in _LOADED:
        if kind in KINDS:
            import_module(KINDS[kind][0])
        else:
            from importlib.metadata import entry_points

            for point in entry_points(group="dpfit.kinds", name=kind):
                point.load()
    return _LOADED.get(kind)


def _shown(value: Any) -> str:
    return repr(value.get("kind") if isinstance(value, dict) else value)[:80]


def _to_plain(value: Any) -> Any:
    if isinstance(value, Spec):
        return value.to_json()
    if isinstance(value, tuple):
        return [_to_plain(part) for part in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(f"a Spec holds numbers, strings, Specs and tuples, got {type(value).__name__}")


def _from_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return from_json(value, Spec)
    return tuple(_from_plain(part) for part in value) if isinstance(value, list) else value
