"""Plans whose code is missing: a file names a function of the caller, and the caller puts it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

from dpfit.losses.base import Loss
from dpfit.privacy.spec import Missing, Spec

S = TypeVar("S", bound=Spec)


def with_loss(spec: S, loss: Loss) -> S:
    """Return ``spec`` with ``loss`` in place of each missing loss of equal name, fingerprint and declared constants."""
    written, missing = loss.to_json(), []

    def put_back(part: Any) -> Any:
        missing.append(part)
        return loss if part.to_json() == written else part

    filled: S = _rebuilt(spec, put_back)
    if filled is not spec:
        return filled
    if not missing:
        raise ValueError("the plan must have a missing loss, got one that is complete; run it")
    # The JSON of a loss and of what stands for it have the same fields.
    wrong = ", ".join(name for name, value in missing[0].to_json().items() if written.get(name) != value)
    raise ValueError(
        f"loss must be the one that the plan was made with, got another {wrong}; pass that loss, or plan again. A loss "
        "with a name and a version of its own is recognised by these alone"
    )


def require_complete(spec: Spec) -> None:
    """Refuse to run a plan that was read from a file without the code of the caller."""

    def refuse(part: Missing) -> Any:
        raise part.refuse()

    _rebuilt(spec, refuse)


def _rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a Spec with ``change`` applied to its missing parts; it is the same object if nothing changed."""
    if isinstance(value, Missing):
        return change(value)
    if isinstance(value, Spec):
        before = {field.name: getattr(value, field.name) for field in fields(value)}
        after = {name: _rebuilt(part, change) for name, part in before.items() if isinstance(part, Spec | tuple)}
        changed = {name: part for name, part in after.items() if part is not before[name]}
        return replace(value, **changed) if changed else value
    if isinstance(value, tuple):
        parts = tuple(_rebuilt(part, change) if isinstance(part, Spec | tuple) else part for part in value)
        return parts if any(new is not old for new, old in zip(parts, value, strict=True)) else value
    return value
