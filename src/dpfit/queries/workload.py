"""Counting queries over the columns of a table: what they have in common."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from dpfit.data.table import Table
from dpfit.data.view import View
from dpfit.mechanisms.counting import CountingQueries, Floats
from dpfit.privacy.validate import did_you_mean

MOST_QUERIES = 2**26

_ROUNDS = 2000
_CLOSE = 1e-9


@dataclass(frozen=True)
class TableQueries(CountingQueries):
    """Counting queries whose answers have names and may have to add up."""

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """What each answer counts."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns of the table that are read."""

    def check(self, data: View) -> None:
        """Refuse a table without the columns that are read; names of columns are public."""
        names = Table(data.given).names
        if missing := [name for name in self.columns if name not in names]:
            raise ValueError(
                f"the table has no column {missing[0]!r}; {did_you_mean(missing[0], names)}it has "
                f"{', '.join(map(repr, names))}"
            )

    def consistent(self, answers: Floats) -> Floats:
        """Nearest answers that a (possibly negative) table of counts has; by default any."""
        return answers

    def repaired(self, answers: Floats, *, consistent: bool, nonnegative: bool) -> Floats:
        """Nearest answers that add up and are non-negative: post-processing of a release.

        Both sets are convex, and Dykstra's alternating projections converge to the nearest point of
        their intersection. The projection on a linear space needs no correction term.
        """
        project = self.consistent if consistent else np.asarray
        if not nonnegative:
            return np.asarray(project(answers), dtype=np.float64)
        current, removed = answers, np.zeros_like(answers)
        for _ in range(_ROUNDS):
            aligned = project(current) + removed
            following = np.maximum(aligned, 0.0)
            removed = aligned - following
            moved = float(np.max(np.abs(following - current)))
            current = following
            if moved <= _CLOSE * (1.0 + float(np.max(current))):
                break
        return current


def checked_number(number: int) -> int:
    """A number of queries that a machine can answer."""
    if not 1 <= number <= MOST_QUERIES:
        raise ValueError(
            f"a workload has between 1 and {MOST_QUERIES} queries, this one has {number}; count "
            "by fewer columns or "
            "bins"
        )
    return number
