"""Plans whose code is missing: a file names the caller's function; the caller restores it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, NoReturn, TypeVar

from dpfit.losses.base import Loss
from dpfit.privacy.spec import Json, Missing, Spec

S = TypeVar("S", bound=Spec)


def with_loss(spec: S, loss: Loss) -> S:
    """Return ``spec`` with ``loss`` for missing losses of equal name, fingerprint and constants."""
    written = loss.to_json()
    missing: list[dict[str, Json]] = []

    def put_back(part: Missing) -> object:
        missing.append(part.to_json() if isinstance(part, Spec) else {})
        return loss if missing[-1] == written else part

    filled: S = _rebuilt(spec, put_back)
    if filled is not spec:
        return filled
    if not missing:
        raise ValueError("the plan must have a missing loss, got one that is complete; run it")
    # The JSON of a loss and of what stands for it have the same fields.
    wrong = ", ".join(name for name, value in missing[0].items() if written.get(name) != value)
    raise ValueError(
        f"loss must be the one that the plan was made with, got another {wrong}; pass that loss, "
        "or plan again. A loss "
        "with a name and a version of its own is recognised by these alone"
    )


def require_complete(spec: Spec) -> None:
    """Refuse to run a plan that was read from a file without the code of the caller."""

    def refuse(part: Missing) -> NoReturn:
        raise part.refuse()

    _rebuilt(spec, refuse)


def _rebuilt(value: object, change: Callable[[Missing], object]) -> Any:
    """Return a Spec with ``change`` applied to its missing parts; itself if nothing changed."""
    if isinstance(value, Missing):
        return change(value)
    if isinstance(value, Spec):
        before = {field.name: getattr(value, field.name) for field in fields(value)}
        after = {
            name: _rebuilt(part, change)
            for name, part in before.items()
            if isinstance(part, Spec | tuple)
        }
        changed = {name: part for name, part in after.items() if part is not before[name]}
        return replace(value, **changed) if changed else value
    if isinstance(value, tuple):
        parts = tuple(
            _rebuilt(part, change) if isinstance(part, Spec | tuple) else part for part in value
        )
        return (
            parts if any(new is not old for new, old in zip(parts, value, strict=True)) else value
        )
    return value
