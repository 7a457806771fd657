"""Warnings of models: results without a guarantee, and renamed arguments."""

from __future__ import annotations

import sys
import warnings

FROM_DATA = "from_data"
"""Value of ``bounds`` and ``classes`` that reads them off the records, which leaks."""

RANGES_LEAK = "ranges were read off the data and are not protected"
CLASSES_LEAK = "classes were read off the data and are not protected"


class LeakWarning(UserWarning):
    """A result depends on the records, and no guarantee covers it."""


class ClassesAssumed(UserWarning):
    """A classifier was fitted to numbers whose classes nobody declared."""


def is_from_data(value: object) -> bool:
    """Return whether a parameter is "from_data"; comparing an array has no single answer."""
    return isinstance(value, str) and value == FROM_DATA


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called a model, at any depth: Python warns once for each line."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("dpfit.models."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def warn_renamed(old: str, new: str) -> None:
    """Warn that an argument has another name."""
    warn_caller(f"{old} is now {new}; the old name works in this version only", DeprecationWarning)


def warn_seeded(what: str) -> None:
    """Warn that a release with an RNG seed is not private."""
    warn_caller(
        f"random_state fixes the noise: whoever knows it can subtract the noise, so this {what} "
        "is not private"
    )


def warn_of_classes() -> None:
    """Warn that two classes are assumed; the text is the same for all labels."""
    warn_caller(
        "labels are numbers without declared classes: 0 and 1 are assumed, and each label counts "
        "as the nearer one; declare others, as in classes=[1, 2]",
        ClassesAssumed,
    )


def warn_of_score() -> None:
    """Warn that a score is not private."""
    warn_caller(
        "a score computed from private records is not private; use dpfit.models.private_score, "
        "or public records",
        LeakWarning,
    )
