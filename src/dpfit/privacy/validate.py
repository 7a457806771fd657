"""Validation of privacy parameters: one sentence that says what was given and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real


def real(name: str, value: object) -> float:
    """A real number that is not NaN; booleans are not numbers here."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a number, got {value!r}")
    try:
        checked = float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large a number") from None
    if math.isnan(checked):
        raise ValueError(f"{name} must be a number, got {value!r}")
    return checked


def non_negative(name: str, value: object) -> float:
    """A number in [0, infinity]."""
    checked = real(name, value)
    if checked < 0:
        raise ValueError(f"{name} must be at least 0, got {value!r}")
    return checked


def positive(name: str, value: object) -> float:
    """A finite number above zero."""
    checked = real(name, value)
    if not 0 < checked < math.inf:
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
    return checked


def in_safe_range(name: str, value: object) -> float:
    """A number in [1e-100, 1e100]: squares and products neither overflow nor vanish.

    >>> in_safe_range("row_norm", 2.0)
    2.0
    """
    checked = positive(name, value)
    if not 1e-100 <= checked <= 1e100:
        raise ValueError(f"{name} must be a number between 1e-100 and 1e100, got {value!r}")
    return checked


def probability(name: str, value: object) -> float:
    """A number in [0, 1]."""
    checked = real(name, value)
    if not 0 <= checked <= 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value!r}")
    return checked


def integer(name: str, value: object, least: int = 1) -> int:
    """A whole number of at least ``least``."""
    if (
        isinstance(value, bool)
        or not isinstance(value, Integral)
        or not least <= int(value) < 2**63
    ):
        raise ValueError(
            f"{name} must be a whole number of at least {least}, got {str(value)[:40]}"
        )
    return int(value)


def option(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """A member of a short list."""
    if value not in allowed:
        close = did_you_mean(value, allowed).rstrip()
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}"
            + (f"; {close}" if close else "")
        )
    return value


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Return a question that names the nearest known name, and a space; or nothing.

    Names of columns, options and algorithms are public; a cell of a table is never compared.

    >>> did_you_mean("Wrad", ["ward", "age"]), did_you_mean("cost", ["ward", "age"])
    ("did you mean 'ward'? ", '')
    """
    names = {str(one).lower(): one for one in known}
    close = get_close_matches(str(name).lower(), names, n=1)
    return f"did you mean {names[close[0]]!r}? " if close else ""
