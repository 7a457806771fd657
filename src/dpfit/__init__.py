"""dpfit: fit models, draw samples and answer queries under differential privacy."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "Answer": "dpfit.core",
    "BoundedMean": "dpfit.models",
    "Budget": "dpfit.privacy",
    "BudgetExceeded": "dpfit.ledger",
    "Chain": "dpfit.core",
    "GeometricMedian": "dpfit.models",
    "Guarantee": "dpfit.privacy",
    "HuberRegressor": "dpfit.models",
    "Interaction": "dpfit.core",
    "LeakWarning": "dpfit.models",
    "Ledger": "dpfit.ledger",
    "LinearRegression": "dpfit.models",
    "LinearSVC": "dpfit.models",
    "LogisticRegression": "dpfit.models",
    "Minimize": "dpfit.core",
    "Plan": "dpfit.core",
    "Interact": "dpfit.core",
    "QuantileRegressor": "dpfit.models",
    "Release": "dpfit.core",
    "Ridge": "dpfit.models",
    "Schema": "dpfit.data.schema",
    "Select": "dpfit.core",
    "Split": "dpfit.core",
    "Step": "dpfit.core",
    "Until": "dpfit.core",
    "calibrate": "dpfit.privacy",
    "plan_from_json": "dpfit.core",
    "private_score": "dpfit.models",
}

__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    # Names are imported on first use, so that `import dpfit` costs nothing.
    if name not in _PUBLIC:
        raise AttributeError(f"module 'dpfit' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
