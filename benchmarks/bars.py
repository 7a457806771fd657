"""Bars: figures with targets, and the exit status that says whether all of them hold.

A script that adds bars says in its docstring how it measures. A bar may not hold by construction,
and its target leaves room for noise, not for a mistake of a factor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Bar = dict[str, Any]


def at_most(name: str, value: Any, target: float) -> Bar:
    """Return a bar that holds for values up to the target."""
    return _bar(name, value, target, bool(value <= target))


def at_least(name: str, value: Any, target: float) -> Bar:
    """Return a bar that holds for values from the target on."""
    return _bar(name, value, target, bool(value >= target))


def finish(result: Mapping[str, Any], as_json: bool) -> int:
    """Print the result as JSON, or its bars as lines; return 0 if all bars hold, else 1."""
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        for bar in result["bars"]:
            verdict = "holds" if bar["holds"] else "FAILS"
            print(f"{verdict}  {bar['name']}: {bar['value']:.4g} (target {bar['target']:g})")
    return 0 if all(bar["holds"] for bar in result["bars"]) else 1


def _bar(name: str, value: Any, target: float, holds: bool) -> Bar:
    return {"name": name, "value": float(value), "target": float(target), "holds": holds}
