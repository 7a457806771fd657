"""Frozen public values with a JSON form: events, problems, mechanisms and plans.

A Spec holds numbers, strings, other Specs and tuples of these. It holds neither records nor
functions, so a guarantee can be stored, compared and read back years later. `dpfit.privacy.kinds`
says which module defines which kind.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import ClassVar, TypeAlias, TypeVar

import numpy as np

from dpfit.privacy.kinds import KINDS

S = TypeVar("S", bound="Spec")
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
Reader = Callable[[dict[str, Json]], "Spec"]

MAX_DEPTH = 100
"""How deeply stored values may be nested."""

_LOADED: dict[str, type[Spec] | Reader] = {}


@dataclasses.dataclass(frozen=True)
class Spec:
    """Base of frozen public values. A subclass sets ``kind``, whose meaning never changes."""

    kind: ClassVar[str] = ""
    former: ClassVar[dict[str, str]] = {}
    """Field names in files of earlier versions, and the names of today."""
    omitted: ClassVar[tuple[str, ...]] = ()
    """Fields that are not written while they hold their default."""

    def __init_subclass__(cls, **arguments: object) -> None:
        super().__init_subclass__(**arguments)
        if kind := cls.__dict__.get("kind", ""):
            _register(kind, cls)

    def to_json(self) -> dict[str, Json]:
        """Return a dictionary of plain values; `from_json` is the inverse."""
        return {"kind": self.kind} | {
            field.name: _to_plain(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if field.name not in self.omitted or getattr(self, field.name) != field.default
        }

    def __getstate__(self) -> dict[str, object]:
        # Cached properties are computed again: some hold functions, which cannot be pickled.
        return {
            k: v
            for k, v in self.__dict__.items()
            if not isinstance(getattr(type(self), k, None), cached_property)
        }

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON, in hex."""
        return digest(self.to_json())


class Missing:
    """Mark of a Spec that stands for code of the caller, which a file does not hold."""

    def refuse(self) -> ValueError:
        """Return the error that says how to put the code back."""
        raise NotImplementedError


def digest(content: Json) -> str:
    """Return the SHA-256 of a JSON value with sorted keys and no spaces, in hex.

    >>> digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1})
    True
    """
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def reads(kind: str) -> Callable[[Reader], Reader]:
    """Register a function that reads the JSON of a retired kind as a current Spec."""

    def register(reader: Reader) -> Reader:
        _register(kind, reader)
        return reader

    return register


def from_json(value: Json, expected: type[S]) -> S:
    """Return the Spec that `Spec.to_json` wrote; it must be an instance of ``expected``.

    Reading imports modules that `dpfit.privacy.kinds` names, and those that installed packages
    register in the entry point group ``dpfit.kinds``. A file chooses among these kinds; it cannot
    name a module.
    """
    for _ in named_values(value):
        pass  # values that are nested too deeply are refused here
    return _read(value, expected)


def named_values(value: Json) -> Iterator[tuple[str, Json]]:
    """Yield numbers and strings of a JSON value with their fields; refuse deep nesting."""
    waiting: list[tuple[str, Json, int]] = [("value", value, 0)]
    while waiting:
        name, part, depth = waiting.pop()
        if not isinstance(part, dict | list):
            yield name, part
            continue
        if depth > MAX_DEPTH:
            raise ValueError(f"a stored value must not be nested more than {MAX_DEPTH} levels deep")
        inner = part.items() if isinstance(part, dict) else ((name, one) for one in part)
        waiting += [(label, one, depth + 1) for label, one in inner]


def _read(value: Json, expected: type[S]) -> S:
    if isinstance(value, dict) and isinstance(kind := value.get("kind"), str):
        found = _resolve(kind)
        if isinstance(found, type):
            if issubclass(found, expected):
                return _filled(found, value)
        elif found is not None and isinstance(made := found(value), expected):
            return made
    raise ValueError(
        f"kind must name a known {expected.__name__}, got {_shown(value)}; read it with the "
        "version of dpfit, and the "
        "packages, that wrote it"
    )


def _filled(cls: type[S], value: Mapping[str, Json]) -> S:
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
    # A class of dpfit may have moved since the index was written; whoever else takes a kind of
    # dpfit may not.
    if taken and taken != where and (known is not None or not made.__module__.startswith("dpfit.")):
        raise TypeError(
            f"kind {kind!r} belongs to {'.'.join(taken)}; give {'.'.join(where)} another one"
        )
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


def _shown(value: Json) -> str:
    return repr(value.get("kind") if isinstance(value, dict) else value)[:80]


def _to_plain(value: object) -> Json:
    if isinstance(value, Spec):
        return value.to_json()
    if isinstance(value, tuple):
        return [_to_plain(part) for part in value]
    if isinstance(value, np.generic):
        plain: Json = value.item()
        return plain
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(f"a Spec holds numbers, strings, Specs and tuples, got {type(value).__name__}")


def _from_plain(value: Json) -> object:
    if isinstance(value, dict):
        return _read(value, Spec)
    return tuple(_from_plain(part) for part in value) if isinstance(value, list) else value
