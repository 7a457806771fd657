"""The median size of residuals at a released parameter, from a noisy histogram.

Guarantee: that of the Gaussian mechanism. Each record counts in one bucket, so one record moves the
counts by 1 (add/remove) or sqrt(2) (replace-one) in l2. Reference: [Gan22] Fact 15.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpfit.core.mechanism import Mechanism, Run
from dpfit.core.problem import Minimize
from dpfit.data.chunk import Chunk
from dpfit.data.view import View
from dpfit.kernels.passes import margins
from dpfit.noise import INTEGERS, add_gaussian
from dpfit.privacy.event import Gaussian
from dpfit.privacy.validate import integer, option, positive

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Residuals:
    """A task: how many absolute residuals lie in each bucket; the last one holds the rest."""

    problem: Minimize
    edges: tuple[float, ...]

    def __call__(self, chunk: Chunk) -> NDArray[np.int64]:
        problem = self.problem
        predicted = margins(chunk.rows, problem.origin, row_norm=problem.bounds.row_norm)
        labels = np.clip(np.asarray(chunk.labels, dtype=np.float64), *problem.bounds.labels)
        sizes = np.abs(labels - predicted)
        # Each record is looked at by itself; one without an outcome counts nowhere.
        known = sizes[~np.isnan(sizes)]
        found = np.searchsorted(np.array(self.edges), known)
        return np.bincount(found, minlength=len(self.edges) + 1).astype(np.int64)


@dataclass(frozen=True)
class ResidualScale(Mechanism):
    """The median absolute residual at the start of the problem.

    Parameters
    ----------
    largest : float
        Largest value that is released; the least one is this over 2^(octaves).

    Examples
    --------
    >>> from dpfit.losses import Bounds, Huber
    >>> problem = Minimize(n=100, loss=Huber(1.0), bounds=Bounds(1.0, -1.0, 1.0), n_features=2)
    >>> scale = ResidualScale(problem, "replace", 4.0, largest=1.0)
    >>> scale.event, round(scale.sensitivity, 6)
    (Gaussian(noise_multiplier=4.0), 1.414214)
    """

    kind = "residual_scale"
    problem: Minimize
    relation: str
    noise_multiplier: float
    largest: float
    octaves: int = 10

    def __post_init__(self) -> None:
        option("relation", self.relation, ("replace", "add_remove"))
        positive("largest", self.largest)
        integer("octaves", self.octaves)
        _ = self.event

    @property
    def event(self) -> Gaussian:
        return Gaussian(self.noise_multiplier)

    @property
    def sensitivity(self) -> float:
        """How far one record moves all counts, in l2."""
        return 1.0 if self.relation == "add_remove" else math.nextafter(math.sqrt(2), math.inf)

    @property
    def edges(self) -> tuple[float, ...]:
        """The upper ends of the buckets: half octaves."""
        return tuple(self.largest * 2.0 ** (k / 2) for k in range(-2 * self.octaves, 1))

    def counts(self, data: View) -> NDArray[np.int64]:
        """Return how many residuals are in each bucket."""
        return np.asarray(data.reduce(Residuals(self.problem, self.edges)))

    def run(self, data: View, run: Run) -> Floats:
        noisy = add_gaussian(
            self.counts(data), l2_sensitivity=self.sensitivity, source=run.noise, grid=INTEGERS,
            noise_multiplier=self.noise_multiplier,
        )  # fmt: skip
        return np.array([self.median(noisy)])

    def median(self, counts: Floats) -> float:
        """Return where half of the declared n is reached, interpolated inside its bucket."""
        sums = np.cumsum(counts[:-1])
        reached = np.flatnonzero(sums >= self.problem.n / 2)
        if not len(reached):
            return self.largest
        k = int(reached[0])
        missing = (sums[k] - self.problem.n / 2) / counts[k] if k else 0.0
        return self.edges[k] * math.pow(2.0, -missing / 2)
