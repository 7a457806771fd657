"""A private range for each column, for data whose ranges nobody wrote down.

Guarantee: that of noisy histograms, one for each column.
Sensitivity: a record counts at most once in each histogram. So it moves the counts by sqrt(columns)
in l2 norm, and by columns in l1 norm; if it is replaced, by sqrt(2 columns) and 2 columns.

The edges of the buckets are public: the powers of two from 2**-20 to 2**40 and their negatives. The
range leaves 1 percent of the counts below it and 1 percent above it. Counts that noise alone can
reach are set to 0 first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpfit.core import Algorithm, Answer, Example, Mechanism, Plan, Run, Step
from dpfit.data.chunk import Chunk
from dpfit.data.dataset import Dataset, InMemory
from dpfit.data.view import View, require_records
from dpfit.kernels.rows import is_compressed
from dpfit.noise import INTEGERS, add_gaussian, add_laplace
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import Event, Gaussian, Laplace
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import integer, option

Floats = NDArray[np.float64]

_POWERS = 2.0 ** np.arange(-20, 41)
EDGES = np.concatenate([-_POWERS[::-1], [0.0], _POWERS])
_LEFT_OUT = 0.01
_ROWS = 2**16
"""Records that are counted at a time."""


@dataclass(frozen=True)
class ColumnRanges(Spec):
    """Ranges of the first ``columns``; ``labels`` adds labels as the last or the only column."""

    kind = "column_ranges"
    columns: int
    labels: bool = False

    def __post_init__(self) -> None:
        integer("columns", self.columns, 0 if self.labels else 1)

    @property
    def number(self) -> int:
        """How many ranges there are."""
        return self.columns + self.labels


@dataclass(frozen=True)
class PrivateBounds(Mechanism):
    """A range for each column, read from noisy histograms."""

    kind = "private_bounds"
    noise: str
    noise_multiplier: float
    query: ColumnRanges
    relation: str

    def __post_init__(self) -> None:
        option("noise", self.noise, ("gaussian", "laplace"))
        option("relation", self.relation, ("replace", "add_remove"))
        _ = self.event

    @property
    def event(self) -> Event:
        return (Gaussian if self.noise == "gaussian" else Laplace)(self.noise_multiplier)

    @property
    def sensitivity(self) -> float:
        """How far one record moves all counts, in the norm of the noise."""
        moved = self.query.number * (1 if self.relation == "add_remove" else 2)
        return (
            math.nextafter(math.sqrt(moved), math.inf) if self.noise == "gaussian" else float(moved)
        )

    def check(self, data: View) -> None:
        require_records(data)
        if data.width < self.query.columns:
            raise ValueError(
                f"data must have at least {self.query.columns} columns, got {data.width}"
            )

    def run(self, data: View, run: Run) -> tuple[Floats, Floats]:
        noisy = self.noisy_counts(data, run)
        noisy[noisy < self.threshold] = 0.0
        ends = [_range(row) for row in noisy]
        return np.array([low for low, _ in ends]), np.array([high for _, high in ends])

    def counts(self, data: Dataset) -> NDArray[np.int64]:
        """Return how many records are in each bucket, one row for each column."""
        return np.asarray(data.reduce(self._counts_of))

    def _counts_of(self, chunk: Chunk) -> NDArray[np.int64]:
        total = np.zeros((self.query.number, len(EDGES) + 1), dtype=np.int64)
        labels = np.asarray(chunk.labels, dtype=np.float64)
        # A record without an outcome counts nowhere, as in the fit that follows.
        known = ~np.isnan(labels)
        if self.query.labels:
            total[-1] = _histogram(labels[known])
        if is_compressed(chunk.rows):
            total[: self.query.columns] += _sparse_histograms(chunk.rows, known, self.query.columns)
            return total
        for start in range(0, len(chunk), _ROWS):
            rows = np.asarray(chunk.rows[start : start + _ROWS, : self.query.columns])
            columns = rows[known[start : start + _ROWS]].T
            for column, values in enumerate(columns):
                total[column] += _histogram(values)
        return total

    def noisy_counts(self, data: Dataset, run: Run) -> Floats:
        """Return the counts with noise."""
        counts, multiplier = self.counts(data), self.noise_multiplier
        if self.noise == "gaussian":
            return add_gaussian(
                counts,
                l2_sensitivity=self.sensitivity,
                noise_multiplier=multiplier,
                source=run.noise,
                grid=INTEGERS,
            )
        return add_laplace(
            counts,
            l1_sensitivity=self.sensitivity,
            noise_multiplier=multiplier,
            source=run.noise,
            grid=INTEGERS,
        )

    @property
    def threshold(self) -> float:
        """Noise alone exceeds this in some bucket of some column with probability at most 0.001."""
        scale = self.noise_multiplier * self.sensitivity
        tail = 0.001 / (self.query.number * (len(EDGES) + 1))
        return float(
            -ndtri(tail) * scale if self.noise == "gaussian" else scale * -math.log(2 * tail)
        )


def _histogram(values: NDArray[Any]) -> NDArray[np.int64]:
    values = np.asarray(values, dtype=np.float64)
    finite = values[~np.isnan(values)]
    return np.bincount(np.searchsorted(EDGES, finite, side="right"), minlength=len(EDGES) + 1)


def _sparse_histograms(rows: Any, known: NDArray[np.bool_], columns: int) -> NDArray[np.int64]:
    """Return the histograms of compressed rows; memory follows the stored entries.

    Entries of one cell are added up first: else a record would count more than once in a column.
    """
    # A matrix of its own: flags of the caller's one may deny that cells are stored twice.
    parts = (rows.data.copy(), rows.indices.copy(), rows.indptr.copy())
    cells = type(rows)(parts, shape=rows.shape)
    cells.sum_duplicates()
    cells.prune()
    owners = np.repeat(np.arange(rows.shape[0]), np.diff(cells.indptr))
    kept = known[owners] & (cells.indices >= 0) & (cells.indices < columns)
    places = cells.indices[kept].astype(np.int64)
    values = np.asarray(cells.data[kept], dtype=np.float64)
    buckets = np.searchsorted(EDGES, values, side="right")
    size = len(EDGES) + 1
    number = ~np.isnan(values)
    counts = np.bincount(places[number] * size + buckets[number], minlength=columns * size)
    counts = counts.reshape(columns, size)
    # What is not stored is zero.
    counts[:, np.searchsorted(EDGES, 0.0, side="right")] += known.sum() - np.bincount(
        places, minlength=columns
    )
    return counts


def _range(counts: Floats) -> tuple[float, float]:
    """Return edges that cut 1 percent of the counts on either side; [-1, 1] if all are 0."""
    total = counts.sum()
    if total <= 0:
        return -1.0, 1.0
    share = np.cumsum(counts) / total
    first = int(np.argmax(share > _LEFT_OUT))
    last = int(np.argmax(share >= 1 - _LEFT_OUT))
    # Bucket i lies between edges i - 1 and i; values equal to zero are at the lower end of theirs.
    low, high = EDGES[max(first - 1, 0)], EDGES[min(last, len(EDGES) - 1)]
    return (float(low), float(high)) if low < high else (float(low), float(low) + 1.0)


class PrivateBoundsSearch(Algorithm[Answer]):
    """A range for each column, for data whose ranges nobody declared.

    Guarantee: that of noisy histograms. Reference: [Gan22] Facts 3 and 15.
    """

    name = "private_bounds"
    summary = "a range for each column, from noisy histograms on powers of two"
    use_for = "columns without a public range"
    reference = "[Gan22] Facts 3 and 15; noisy histograms"
    solves = Answer
    workloads = (ColumnRanges,)
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    tier = "recommended"

    def _plan(self, problem: Answer, budget: Budget) -> Plan:
        """Plan one step with the smallest noise: Laplace for pure budgets, Gaussian otherwise.

        >>> plan = private_bounds.plan(
        ...     Answer(n=1000, workload=ColumnRanges(5)), Budget(epsilon=1.0)
        ... )
        >>> plan.mechanism.sensitivity, plan.guarantee.pure
        (10.0, 1.0)
        """
        noise = "laplace" if budget.kind == "pure" else "gaussian"
        columns = cast(ColumnRanges, problem.workload)
        mechanism = calibrate(lambda m: PrivateBounds(noise, m, columns, budget.relation), budget)
        counted = Assumption("each record counts in one bucket of each column", "enforced")
        theorem = (
            "Laplace mechanism [Gan22, Fact 3]"
            if noise == "laplace"
            else "Gaussian mechanism [Gan22, Fact 15]"
        )
        return Step(mechanism, Basis(theorem, budget.relation, budget.unit, (counted,), "exact"))

    def example(self, relation: str) -> Example:
        """Return values in one bucket, one of which jumps to a far one or leaves."""
        rows, labels = np.full((20, 1), 3.0), np.zeros(20)
        far = InMemory(np.append(rows[:-1], [[-3e6]], axis=0), labels)
        neighbour = InMemory(rows[:-1], labels[:-1]) if relation == "add_remove" else far
        return Example(Answer(n=20, workload=ColumnRanges(1)), InMemory(rows, labels), neighbour)


private_bounds = PrivateBoundsSearch()
