"""What runs leave behind: values of any shape, exceptions included, seen as structures, vectors or discrete keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpfit.audit.bounds import Floats


@dataclass(frozen=True)
class Raised:
    """A run that ended in an exception: the adversary sees its type and its message."""

    error: str
    message: str


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of all runs on one dataset, in the order in which they were made."""

    values: Sequence[Any]

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def structures(self) -> tuple[Any, ...]:
        """Types, shapes and errors: they are part of the output."""
        return tuple(structure(value) for value in self.values)

    @cached_property
    def keys(self) -> tuple[Any, ...]:
        """Whole values as hashable keys."""
        return tuple(key(value) for value in self.values)

    def matrix(self, like: Any) -> tuple[Floats, np.ndarray[Any, np.dtype[np.bool_]]] | None:
        """One row of numbers a run, and which runs have the structure ``like``; None if that is not numbers."""
        fits = np.array([found == like for found in self.structures])
        found = [vector(value) for value, fit in zip(self.values, fits, strict=True) if fit]
        chosen = [row for row in found if row is not None]
        if not chosen or len(chosen) < len(found):
            return None
        rows = np.zeros((len(self), len(chosen[0])))
        rows[fits] = chosen
        # Non-finite outputs stay distinguishable and do not spoil the arithmetic of the others.
        return np.nan_to_num(rows, nan=0.0, posinf=1e300, neginf=-1e300), fits


def structure(value: Any) -> Any:
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


def key(value: Any) -> Any:
    """A value as something that can be counted."""
    if isinstance(value, tuple | list):
        return tuple(key(part) for part in value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tobytes()
    return value if isinstance(value, Raised | str | int | float | None) else repr(value)


def vector(value: Any) -> Floats | None:
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
