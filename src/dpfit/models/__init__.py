"""Models with the interface of scikit-learn, fitted under differential privacy."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dpfit.models.table import ESTIMATORS

_PUBLIC = {
    **{name: row.module for name, row in ESTIMATORS.items()},
    "ClassesAssumed": "dpfit.models.leaks",
    "LeakWarning": "dpfit.models.leaks",
    "ModelFileDamaged": "dpfit.models.files",
    "PrivateScore": "dpfit.models.scores",
    "load": "dpfit.models.files",
    "private_score": "dpfit.models.scores",
    "save": "dpfit.models.files",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    # Names are imported on first use: the command line reads the table of estimators without
    # scikit-learn.
    if name not in _PUBLIC:
        raise AttributeError(f"module 'dpfit.models' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
