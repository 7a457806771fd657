"""Every algorithm by name, with its declared facts, without importing it.

`dpfit.core.index` is generated from the algorithms. Packages register theirs in the entry point
group ``dpfit.algorithms``, as ``name = "package.module:object"``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from dpfit.core.algorithm import TIERS, Algorithm
from dpfit.core.index import ROWS
from dpfit.privacy.spec import Json
from dpfit.privacy.validate import did_you_mean


@dataclass(frozen=True)
class Entry:
    """The declared facts of one algorithm, and where it is."""

    name: str
    where: str
    problem: str
    guarantees: tuple[str, ...]
    relations: tuple[str, ...]
    units: tuple[str, ...]
    supports: tuple[str, ...]
    options: tuple[str, ...]
    tier: str
    auto_candidate: bool
    summary: str
    reference: str
    use_for: str = ""

    def load(self) -> Algorithm[Any]:
        """Return the algorithm itself, imported now."""
        module, _, name = self.where.partition(":")
        algorithm = getattr(import_module(module), name)
        if not isinstance(algorithm, Algorithm):
            raise TypeError(f"{self.where} must be an Algorithm, got {type(algorithm).__name__}")
        return algorithm

    def to_json(self) -> dict[str, Json]:
        """Return the row as plain values."""
        return {
            name: list(v) if isinstance(v, tuple) else v
            for name, v in asdict(self).items()
            if name != "where"
        }


def entry_of(algorithm: Algorithm[Any], where: str) -> Entry:
    """Return the entry of an algorithm from its declared facts."""
    return Entry(
        name=algorithm.name,
        where=where,
        problem=algorithm.solves.kind,
        guarantees=algorithm.guarantees,
        relations=algorithm.relations,
        units=algorithm.units,
        supports=tuple(sorted(algorithm.supports)),
        options=algorithm.options,
        tier=algorithm.tier,
        auto_candidate=algorithm.auto_candidate,
        summary=algorithm.summary,
        reference=algorithm.reference,
        use_for=algorithm.use_for,
    )


ENTRIES: tuple[Entry, ...] = tuple(Entry(**row) for row in ROWS)
"""The algorithms of dpfit: recommended ones first, then by name."""


@cache
def plugins() -> tuple[Entry, ...]:
    """Return the algorithms that installed packages register."""
    found = []
    for point in entry_points(group="dpfit.algorithms"):
        algorithm = point.load()
        if algorithm.name in {known.name for known in ENTRIES}:
            raise ValueError(
                f"{point.value} must not take the name {algorithm.name!r} of an algorithm of dpfit"
            )
        found.append(entry_of(algorithm, point.value))
    return tuple(sorted(found, key=lambda row: (TIERS.index(row.tier), row.name)))


def entries(*, problem: str | None = None, tier: str | None = None) -> Iterator[Entry]:
    """Yield algorithms for a kind of problem and a tier, those of installed packages last."""
    for row in (*ENTRIES, *plugins()):
        if problem in (None, row.problem) and tier in (None, row.tier):
            yield row


def entry(name: str) -> Entry:
    """Return the entry of that name.

    >>> entry("noisy_gd").guarantees
    ('approximate', 'gdp', 'zcdp')
    """
    known = {row.name: row for row in ENTRIES}
    if name not in known:
        known |= {row.name: row for row in plugins()}
    if name in known:
        return known[name]
    raise ValueError(
        f"there is no algorithm {name!r}; {did_you_mean(name, known)}dpfit algorithms --all lists "
        "their names"
    )


def find(solver: str | Algorithm[Any], problem: str | None = None) -> Algorithm[Any]:
    """Return an algorithm given by name or as an object; it must solve this kind of problem."""
    algorithm = solver if isinstance(solver, Algorithm) else entry(solver).load()
    if problem is not None and algorithm.solves.kind != problem:
        raise ValueError(
            f"{algorithm.name} solves {algorithm.solves.kind!r} problems; a {problem!r} problem "
            "is asked"
        )
    return algorithm
