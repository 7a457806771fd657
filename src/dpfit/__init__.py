"""dpfit: fit models, draw samples and answer queries under differential privacy."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.2.0"

_PUBLIC = {
    "Answer": "dpfit.core",
    "Budget": "dpfit.privacy",
    "BudgetExceeded": "dpfit.ledger",
    "Composition": "dpfit.core",
    "Guarantee": "dpfit.privacy",
    "Interact": "dpfit.core",
    "Interaction": "dpfit.core",
    "LeakWarning": "dpfit.models",
    "Ledger": "dpfit.ledger",
    "Minimize": "dpfit.core",
    "Plan": "dpfit.core",
    "Release": "dpfit.core",
    "Schema": "dpfit.data.schema",
    "Selection": "dpfit.core",
    "Stage": "dpfit.core",
    "Step": "dpfit.core",
    "TransformedPlan": "dpfit.core",
    "calibrate": "dpfit.privacy",
    "plan_from_json": "dpfit.core",
    "private_score": "dpfit.models",
    "user_mean": "dpfit.models.user_mean",
}


def __getattr__(name: str) -> Any:
    # Names are imported on first use, so that `import dpfit` costs nothing. The estimators have a
    # table of their own.
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    if name == "__all__":
        return __dir__()
    estimators = {} if name.startswith("_") else import_module("dpfit.models.table").ESTIMATORS
    if name not in estimators:
        raise AttributeError(f"module 'dpfit' has no attribute {name!r}{_nearest(name)}")
    return estimators[name].load()


def _nearest(name: str) -> str:
    if not name[0].isupper():  # modules are looked up here before they are imported
        return ""
    close = import_module("dpfit.privacy.validate").did_you_mean(name, __dir__()).rstrip()
    return f"; {close}" if close else ""


def __dir__() -> list[str]:
    return ["__version__", *sorted([*_PUBLIC, *import_module("dpfit.models.table").ESTIMATORS])]
