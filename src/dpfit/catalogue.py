"""Every algorithm in one table. Shared tests, `dpfit algorithms`, the docs and the audit iterate it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from dpfit.core import Algorithm


@dataclass(frozen=True)
class Entry:
    """One algorithm: its name, the problem it solves, the kinds of promise it makes, where it comes from."""

    name: str
    where: str
    problem: str
    guarantees: tuple[str, ...]
    reference: str
    cards: tuple[str, ...]
    summary: str

    def load(self) -> Algorithm:
        """The algorithm itself, imported now."""
        return cast(Algorithm, getattr(import_module(self.where), self.name))

    def to_json(self) -> dict[str, Any]:
        """The row as plain values."""
        return {
            "name": self.name,
            "problem": self.problem,
            "guarantees": list(self.guarantees),
            "reference": self.reference,
            "cards": list(self.cards),
            "summary": self.summary,
        }


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "gaussian_mean",
        "dpfit.mechanisms.mean",
        "answer",
        ("approximate", "gdp", "zcdp"),
        "[Gan22] Example 5, Fact 15; [Liu24] Definition 3.3.1",
        ("10/C02", "30/E01", "50/GN-2", "70/C15"),
        "mean of bounded records with Gaussian noise",
    ),
    Entry(
        "laplace_mean",
        "dpfit.mechanisms.mean",
        "answer",
        ("pure", "approximate", "gdp", "zcdp"),
        "[Gan22] Example 2, Fact 3",
        ("10/C01", "70/C15"),
        "mean of bounded records with Laplace noise",
    ),
    Entry(
        "ranged_mean",
        "dpfit.mechanisms.ranged_mean",
        "answer",
        ("approximate", "gdp", "zcdp"),
        "[ASAP] Lemma 14",
        ("10/C02", "30/E05"),
        "private range of one column, then the mean inside it",
    ),
    Entry(
        "above_threshold",
        "dpfit.mechanisms.above_threshold",
        "play",
        ("pure",),
        "Dwork and Roth (2014) Theorem 3.23; [Liu24] Algorithms 27 and 34",
        ("70/C1",),
        "which query is the first above (or below) a threshold",
    ),
)


def entry(name: str) -> Entry:
    """The entry of that name."""
    for candidate in ENTRIES:
        if candidate.name == name:
            return candidate
    raise ValueError(f"no algorithm {name!r}; known: {', '.join(e.name for e in ENTRIES)}")
