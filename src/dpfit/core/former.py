"""Names that modules import until they have moved; this file goes with the last of them."""

from __future__ import annotations

from typing import Any

from dpfit.core.loop import Loop as Iterative
from dpfit.core.plan import Composition
from dpfit.core.plan import Selection as Select

Chain = Composition
Session = Any


def require_records(name: str, budget: Any) -> None:
    """Nothing: `Algorithm.plan` checks the unit."""


__all__ = ["Chain", "Iterative", "Select", "Session", "require_records"]
