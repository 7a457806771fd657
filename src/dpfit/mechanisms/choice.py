"""The choice between kinds of noise, by predicted error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from dpfit.core import Chosen, Considered, Note, Work
from dpfit.privacy import NotReachable

L = TypeVar("L")
N = TypeVar("N")


_ONE_PASS = Work(passes=1.0)


@dataclass(frozen=True)
class ConsideredNoise(Considered):
    """A kind of noise that was considered, with its predicted error; the note `Chosen` shows it."""

    kind = "considered_noise"
    former: ClassVar = {"label": "name", "error": "risk"}
    omitted: ClassVar = ("work",)
    work: Work = _ONE_PASS

    @property
    def row(self) -> None:  # type: ignore[override]
        return None


def calibrated_noises(names: Sequence[str], known: Mapping[str, L], calibrated: Callable[[L], N]) -> list[N]:
    """Return the noise of each named kind that can meet a budget, as ``calibrated`` finds it."""
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        named = ", ".join(map(repr, unknown)) or "nothing"
        raise ValueError(f"noise must name some of {', '.join(known)}, got {named}")
    found, refusals = [], []
    for name in names:
        try:
            found.append(calibrated(known[name]))
        except NotReachable as error:
            refusals.append(str(error))
    if not found:
        raise NotReachable("; ".join(refusals))
    return found


def choice_notes(ranked: Sequence[tuple[str, float]], minimize: str | float) -> tuple[Note, ...]:
    """Return the notes of a choice; ``ranked`` holds labels and errors, best first, each label once."""
    measure = {"max": "expected largest error", "average": "average error"}.get(
        str(minimize), f"{minimize} quantile of the largest error"
    )
    (best, error), *others = ranked
    than = "".join(f", {label} {size:.4g}" for label, size in others)
    chosen = Chosen(f"{best} for its {measure}: {error:.4g}{than}")
    return (chosen, *(ConsideredNoise(label, size) for label, size in ranked))
