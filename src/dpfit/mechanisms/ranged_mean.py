"""The mean of one column when only a generous range is known: a private range first, then the mean inside it.

Guarantee: mu-GDP, the two stages composed. Reference: adaptive composition ([ASAP] Lemma 14); noisy histogram.

The plan fixes both noise multipliers. The range that the first stage releases sets the sensitivity of the second: noise
is the planned multiplier times the sensitivity of the released range, so the event, and with it the promise, stays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from dpfit.core import Answer, Chain, Mechanism, Run, Step, require_records
from dpfit.mechanisms.mean import BoundedMean, NoisyMean, mean_basis
from dpfit.noise import INTEGERS, add_gaussian
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.check import count, one_of
from dpfit.privacy.event import Event, Gaussian


@dataclass(frozen=True)
class PrivateRange(Mechanism):
    """The span of the histogram bins of [lower, upper] whose noisy counts stand out of the noise."""

    kind = "private_range"
    noise_multiplier: float
    lower: float
    upper: float
    bins: int
    relation: str

    def __post_init__(self) -> None:
        BoundedMean(self.lower, self.upper)
        count("bins", self.bins)
        one_of("relation", self.relation, ("replace", "add_remove"))
        _ = self.event

    @property
    def event(self) -> Event:
        return Gaussian(self.noise_multiplier)

    @property
    def sensitivity(self) -> float:
        """A replaced record moves two counts by one, an added or removed one moves one."""
        return math.nextafter(math.sqrt(2), 2) if self.relation == "replace" else 1.0

    @property
    def threshold(self) -> float:
        """What noise alone passes in some bin with probability at most one in a hundred."""
        return float(self.noise_multiplier * self.sensitivity * -ndtri(0.01 / self.bins))

    def run(self, data: Any, run: Run) -> tuple[float, float]:
        values = np.asarray(data, dtype=np.float64).reshape(-1)
        middle = self.lower / 2 + self.upper / 2
        inside = np.clip(np.nan_to_num(values, nan=middle), self.lower, self.upper)
        edges = np.linspace(self.lower, self.upper, self.bins + 1)
        place = np.clip(np.searchsorted(edges, inside, side="right") - 1, 0, self.bins - 1)
        counts = np.bincount(place, minlength=self.bins)
        noisy = add_gaussian(
            counts,
            l2_sensitivity=self.sensitivity,
            noise_multiplier=self.noise_multiplier,
            source=run.noise,
            grid=INTEGERS,
        )
        kept = np.flatnonzero(noisy > self.threshold)
        if not len(kept):
            return float(self.lower), float(self.upper)
        return float(edges[kept[0]]), float(edges[kept[-1] + 1])


@dataclass(frozen=True)
class RangedMean(NoisyMean):
    """A noisy mean whose range is the one released just before it."""

    kind = "ranged_mean"

    def bind(self, released: tuple[Any, ...]) -> RangedMean:
        low, high = released[-1]
        return replace(self, query=BoundedMean(low, high))


@dataclass(frozen=True)
class RangedMeanAlgorithm:
    """Plans a private range and a mean inside it."""

    name: str = "ranged_mean"

    def plan(self, problem: Answer, budget: Budget, *, bins: int = 32, share: float = 0.2) -> Chain:
        """Two stages; ``share`` is the part of the squared GDP budget that goes to the range.

        >>> problem = Answer(n=1000, workload=BoundedMean(0.0, 1e6))
        >>> plan = ranged_mean.plan(problem, Budget(mu=0.5))
        >>> round(plan.guarantee.mu, 6)
        0.5
        """
        require_records(self.name, budget)
        query = problem.workload
        if not isinstance(query, BoundedMean) or query.dimension != 1:
            raise ValueError("ranged_mean answers a BoundedMean workload of dimension 1")
        if not 0 < share < 1:
            raise ValueError(f"share must lie strictly between 0 and 1, got {share!r}")
        relation = budget.relation
        counted = Assumption("each record counts in one histogram bin", "enforced")
        why = Basis("Gaussian mechanism [Gan22, Fact 15]", relation, budget.unit, (counted,), "exact")

        def stages(level: float) -> Chain:
            first = PrivateRange(1 / math.sqrt(share) * level, query.lower, query.upper, bins, relation)
            second = RangedMean("gaussian", 1 / math.sqrt(1 - share) * level, query, problem.n, relation)
            return Chain((Step(first, why), Step(second, mean_basis("gaussian", budget))))

        return calibrate(stages, budget)

    def example(self, relation: str) -> tuple[Answer, Any, Any]:
        """Records at one end of the range, one of which jumps to the other end or leaves."""
        problem = Answer(n=20, workload=BoundedMean(0.0, 4.0))
        low = np.full(20, 0.5)
        return problem, low, (low[:-1] if relation == "add_remove" else np.append(low[:-1], 3.5))


ranged_mean = RangedMeanAlgorithm()
