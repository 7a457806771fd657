"""Outcomes of runs, any shape or exception, as structures, vectors or discrete keys."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpfit.audit.bounds import Floats

_LARGEST = 1e300
"""Numbers beyond it, infinite ones too, are symbols to `dissect`."""


@dataclass(frozen=True)
class Raised:
    """A run that ended in an exception: the adversary sees its type and its message."""

    error: str
    message: str


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of all runs on one dataset, in the order in which they were made."""

    values: Sequence[object]

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def structures(self) -> tuple[Hashable, ...]:
        """Types, shapes and errors: they are part of the output."""
        return tuple(structure(value) for value in self.values)

    @cached_property
    def keys(self) -> tuple[Hashable, ...]:
        """Whole values as hashable keys."""
        return tuple(key(value) for value in self.values)

    @cached_property
    def groups(self) -> dict[Hashable, list[int]]:
        """The runs of each structure."""
        found: dict[Hashable, list[int]] = {}
        for run, kind in enumerate(self.structures):
            found.setdefault(kind, []).append(run)
        return found

    def numbers(self, like: Hashable) -> Floats | None:
        """A row of numbers for each run of structure ``like``; None if not numeric."""
        found = [vector(self.values[run]) for run in self.groups.get(like, ())]
        chosen = [row for row in found if row is not None]
        if not chosen or len(chosen) < len(found):
            return None
        # Non-finite outputs stay distinguishable and do not spoil the arithmetic of the others.
        return np.nan_to_num(np.array(chosen), nan=0.0, posinf=1e300, neginf=-1e300)

    def matrix(self, like: Hashable) -> tuple[Floats, NDArray[np.bool_]] | None:
        """A row of numbers a run, and the runs of structure ``like``; None if not numeric."""
        chosen = self.numbers(like)
        if chosen is None:
            return None
        fits = np.zeros(len(self), dtype=bool)
        fits[self.groups[like]] = True
        rows = np.zeros((len(self), chosen.shape[1]))
        rows[fits] = chosen
        return rows, fits


def structure(value: object) -> Hashable:
    """Type, shape and dtype of an output, recursively.

    >>> structure((1.0, np.zeros(2)))
    ('tuple', ('float', ()), ('ndarray', (2,), 'float64'))
    """
    if isinstance(value, Raised):
        return "raised", value.error, value.message
    if isinstance(value, tuple | list):
        return (type(value).__name__, *(structure(part) for part in value))
    if isinstance(value, dict):
        return ("dict", *((name, structure(part)) for name, part in sorted(value.items())))
    if isinstance(value, np.ndarray | np.generic):
        return type(value).__name__, value.shape, str(value.dtype)
    return type(value).__name__, ()


def key(value: object) -> Hashable:
    """A value as something that can be counted."""
    if isinstance(value, tuple | list):
        return tuple(key(part) for part in value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tobytes()
    return value if isinstance(value, Raised | str | int | float | None) else repr(value)


def dissect(value: object) -> tuple[Hashable, list[float]]:
    """Split a value into its pattern, all but finite numbers, and the numbers in order.

    >>> dissect((None, True, 2.5))
    (('tuple', None, True, 'number'), [2.5])
    """
    numbers: list[float] = []
    return _pattern(value, numbers), numbers


def _pattern(value: object, numbers: list[float]) -> Hashable:
    if isinstance(value, tuple | list):
        return type(value).__name__, *[_pattern(part, numbers) for part in value]
    if isinstance(value, dict):
        return "dict", *[(name, _pattern(part, numbers)) for name, part in sorted(value.items())]
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "uif":
        flat = np.asarray(value, dtype=np.float64).ravel()
        known = np.abs(flat) <= _LARGEST
        numbers.extend(flat[known].tolist())
        return value.shape, known.tobytes(), flat[~known].tobytes()
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not abs(value) <= _LARGEST:
            return repr(value)
        numbers.append(float(value))
        return "number"
    return key(value)


def vector(value: object) -> Floats | None:
    """All numbers of a value in one row, or None if there is something else in it."""
    if isinstance(value, tuple | list):
        parts = [vector(part) for part in value]
        known = [part for part in parts if part is not None]
        return np.concatenate(known) if known and len(known) == len(parts) else None
    try:
        row = np.asarray(value, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError):
        return None
    return row if row.size else None
