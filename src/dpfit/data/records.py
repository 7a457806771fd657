"""Former names of `dpfit.data.dataset`, kept for one version."""

from __future__ import annotations

import warnings
from typing import Any

from dpfit.data import dataset

_RENAMED = {
    "Data": "Dataset",
    "Arrays": "InMemory",
    "Piece": "Chunk",
    "Blocks": "Blocks",
    "records_of": "records_of",
}


def __getattr__(name: str) -> Any:
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = f"dpfit.data.dataset.{_RENAMED[name]}"
    warnings.warn(f"dpfit.data.records.{name} is now {new}", DeprecationWarning, stacklevel=2)
    return getattr(dataset, _RENAMED[name])
