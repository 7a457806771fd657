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

from dpfit.core import Mechanism, Run, Step
from dpfit.noise import INTEGERS, add_gaussian, add_laplace
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.check import count, one_of
from dpfit.privacy.event import Event, Gaussian, Laplace

Floats = NDArray[np.float64]

_POWERS = 2.0 ** np.arange(-20, 41)
EDGES = np.concatenate([-_POWERS[::-1], [0.0], _POWERS])
_LEFT_OUT = 0.01


@dataclass(frozen=True)
class PrivateBounds(Mechanism):
    """The histograms and the ranges read off them; ``labels`` adds the labels as a last column."""

    kind = "private_bounds"
    noise: str
    noise_multiplier: float
    columns: int
    labels: bool
    relation: str

    def __post_init__(self) -> None:
        one_of("noise", self.noise, ("gaussian", "laplace"))
        one_of("relation", self.relation, ("replace", "add_remove"))
        count("columns", self.columns)
        _ = self.event

    @property
    def event(self) -> Event:
        return (Gaussian if self.noise == "gaussian" else Laplace)(self.noise_multiplier)

    @property
    def sensitivity(self) -> float:
        """How far one record moves all counts, in the norm of the noise."""
        moved = (self.columns + self.labels) * (1 if self.relation == "add_remove" else 2)
        return math.nextafter(math.sqrt(moved), math.inf) if self.noise == "gaussian" else float(moved)

    def run(self, data: Any, run: Run) -> tuple[Floats, Floats]:
        counts = np.zeros((self.columns + self.labels, len(EDGES) + 1), dtype=np.int64)
        for piece in data.pieces():
            rows = piece.rows.toarray() if sparse.issparse(piece.rows) else np.asarray(piece.rows)
            for column in range(self.columns):
                counts[column] += _histogram(rows[:, column])
            if self.labels:
                counts[-1] += _histogram(np.asarray(piece.labels))
        multiplier = self.noise_multiplier
        if self.noise == "gaussian":
            noisy = add_gaussian(
                counts, l2_sensitivity=self.sensitivity, noise_multiplier=multiplier, source=run.noise, grid=INTEGERS
            )
        else:
            noisy = add_laplace(
                counts, l1_sensitivity=self.sensitivity, noise_multiplier=multiplier, source=run.noise, grid=INTEGERS
            )
        noisy[noisy < self.threshold] = 0.0
        ends = [_range(row) for row in noisy]
        return np.array([low for low, _ in ends]), np.array([high for _, high in ends])

    @property
    def threshold(self) -> float:
        """What noise alone passes in a bucket with probability at most one in ten thousand."""
        scale = self.noise_multiplier * self.sensitivity
        return float(-ndtri(1e-4) * scale if self.noise == "gaussian" else scale * math.log(0.5e4))


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


def private_bounds(columns: int, labels: bool, budget: Budget) -> Step:
    """Plan the ranges within a budget."""
    noise = "laplace" if budget.kind == "pure" else "gaussian"
    event = calibrate((Laplace if noise == "laplace" else Gaussian)(1.0), budget)
    multiplier = float(event.to_json()["noise_multiplier"])
    counted = Assumption("each record counts in one bucket of each column", "enforced")
    why = Basis(f"{noise.capitalize()} mechanism", budget.relation, budget.unit, (counted,), "exact")
    return Step(PrivateBounds(noise, multiplier, columns, labels, budget.relation), why)
