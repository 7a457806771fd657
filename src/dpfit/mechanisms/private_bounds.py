"""A private range for each column, for data whose ranges nobody wrote down.

Guarantee: that of noisy histograms, one for each column: a record counts once in each, so it moves the counts by
sqrt(columns) in l2 norm (sqrt(2 columns) if replaced) and by columns (2 columns) in l1 norm.

Buckets are the powers of two from 2**-20 to 2**40 and their negatives, a public grid. The range is from the bucket that
leaves 1 percent of the counts below it to the one that leaves 1 percent above it, where counts that noise alone can
reach are not counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri

from dpfit.core import Answer, Mechanism, Run, Step, require_records
from dpfit.data.dataset import InMemory
from dpfit.noise import INTEGERS, add_gaussian, add_laplace
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.check import count, one_of
from dpfit.privacy.event import Event, Gaussian, Laplace
from dpfit.privacy.spec import Spec

Floats = NDArray[np.float64]

_POWERS = 2.0 ** np.arange(-20, 41)
EDGES = np.concatenate([-_POWERS[::-1], [0.0], _POWERS])
_LEFT_OUT = 0.01


@dataclass(frozen=True)
class ColumnRanges(Spec):
    """A range for each of the first ``columns``; ``labels`` adds the labels as a last column, or as the only one."""

    kind = "column_ranges"
    columns: int
    labels: bool = False

    def __post_init__(self) -> None:
        count("columns", self.columns, 0 if self.labels else 1)

    @property
    def number(self) -> int:
        """How many ranges there are."""
        return self.columns + self.labels


@dataclass(frozen=True)
class PrivateBounds(Mechanism):
    """The histograms and the ranges read off them."""

    kind = "private_bounds"
    noise: str
    noise_multiplier: float
    query: ColumnRanges
    relation: str

    def __post_init__(self) -> None:
        one_of("noise", self.noise, ("gaussian", "laplace"))
        one_of("relation", self.relation, ("replace", "add_remove"))
        _ = self.event

    @property
    def event(self) -> Event:
        return (Gaussian if self.noise == "gaussian" else Laplace)(self.noise_multiplier)

    @property
    def sensitivity(self) -> float:
        """How far one record moves all counts, in the norm of the noise."""
        moved = self.query.number * (1 if self.relation == "add_remove" else 2)
        return math.nextafter(math.sqrt(moved), math.inf) if self.noise == "gaussian" else float(moved)

    def run(self, data: Any, run: Run) -> tuple[Floats, Floats]:
        noisy = self.noisy_counts(data, run)
        noisy[noisy < self.threshold] = 0.0
        ends = [_range(row) for row in noisy]
        return np.array([low for low, _ in ends]), np.array([high for _, high in ends])

    def counts(self, data: Any) -> NDArray[np.int64]:
        """How many records are in each bucket, one row for each column."""
        counts = np.zeros((self.query.number, len(EDGES) + 1), dtype=np.int64)
        for chunk in data.chunks():
            rows = chunk.rows[:, : self.query.columns]
            rows = rows.toarray() if sparse.issparse(rows) else np.asarray(rows)
            for column in range(self.query.columns):
                counts[column] += _histogram(rows[:, column])
            if self.query.labels:
                counts[-1] += _histogram(np.asarray(chunk.labels))
        return counts

    def noisy_counts(self, data: Any, run: Run) -> Floats:
        """The counts with noise."""
        counts, multiplier = self.counts(data), self.noise_multiplier
        if self.noise == "gaussian":
            return add_gaussian(
                counts, l2_sensitivity=self.sensitivity, noise_multiplier=multiplier, source=run.noise, grid=INTEGERS
            )
        return add_laplace(
            counts, l1_sensitivity=self.sensitivity, noise_multiplier=multiplier, source=run.noise, grid=INTEGERS
        )

    @property
    def threshold(self) -> float:
        """What noise alone passes in some bucket of some column with probability at most one in a thousand."""
        scale = self.noise_multiplier * self.sensitivity
        tail = 0.001 / (self.query.number * (len(EDGES) + 1))
        return float(-ndtri(tail) * scale if self.noise == "gaussian" else scale * -math.log(2 * tail))


def _histogram(values: NDArray[Any]) -> NDArray[np.int64]:
    finite = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0)
    return np.bincount(np.searchsorted(EDGES, finite, side="right"), minlength=len(EDGES) + 1)


def _range(counts: Floats) -> tuple[float, float]:
    """The edges that leave out one percent at either end; [-1, 1] if nothing stands out."""
    total = counts.sum()
    if total <= 0:
        return -1.0, 1.0
    share = np.cumsum(counts) / total
    first = int(np.argmax(share > _LEFT_OUT))
    last = int(np.argmax(share >= 1 - _LEFT_OUT))
    # Bucket i lies between edges i - 1 and i; values equal to zero are at the lower end of theirs.
    low, high = EDGES[max(first - 1, 0)], EDGES[min(last, len(EDGES) - 1)]
    return (float(low), float(high)) if low < high else (float(low), float(low) + 1.0)


@dataclass(frozen=True)
class PrivateBoundsAlgorithm:
    """Plans ranges."""

    name: str = "private_bounds"

    def plan(self, problem: Answer, budget: Budget) -> Step:
        """One step with the smallest noise that meets the budget: Laplace for a pure one, Gaussian for the others.

        >>> plan = private_bounds.plan(Answer(n=1000, workload=ColumnRanges(5)), Budget(epsilon=1.0))
        >>> plan.mechanism.sensitivity, plan.guarantee.pure
        (10.0, 1.0)
        """
        require_records(self.name, budget)
        if not isinstance(problem.workload, ColumnRanges):
            raise ValueError(f"{self.name} answers a ColumnRanges workload, not {problem.workload.kind!r}")
        noise = "laplace" if budget.kind == "pure" else "gaussian"
        columns = problem.workload
        mechanism = calibrate(lambda m: PrivateBounds(noise, m, columns, budget.relation), budget)
        counted = Assumption("each record counts in one bucket of each column", "enforced")
        theorem = "Laplace mechanism [Gan22, Fact 3]" if noise == "laplace" else "Gaussian mechanism [Gan22, Fact 15]"
        why = Basis(theorem, budget.relation, budget.unit, (counted,), "exact")
        return Step(mechanism, why)

    def example(self, relation: str) -> tuple[Answer, Any, Any]:
        """Values in one bucket, one of which jumps to a far one or leaves."""
        rows, labels = np.full((20, 1), 3.0), np.zeros(20)
        problem = Answer(n=20, workload=ColumnRanges(1))
        if relation == "add_remove":
            return problem, InMemory(rows, labels), InMemory(rows[:-1], labels[:-1])
        return problem, InMemory(rows, labels), InMemory(np.append(rows[:-1], [[-3e6]], axis=0), labels)


private_bounds = PrivateBoundsAlgorithm()
