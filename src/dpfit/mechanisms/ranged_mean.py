"""The mean of a column with only a wide range known: a private range, then the mean.

Guarantee: mu-GDP, the two stages composed. Reference: adaptive composition ([ASAP] Lemma 14); noisy
histogram.

The plan fixes both noise multipliers. The range that the first stage releases sets the sensitivity
of the second: noise is the planned multiplier times the sensitivity of the released range. So the
event and the guarantee stay.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from scipy.special import ndtri

from dpfit.core import (
    Algorithm,
    Answer,
    Binding,
    Composition,
    Example,
    Mechanism,
    Plan,
    Requirement,
    Run,
    Stage,
    Step,
)
from dpfit.data.arrays import array_of, as_rows
from dpfit.data.view import View
from dpfit.mechanisms.mean import BoundedMean, NoisyMean
from dpfit.noise import INTEGERS, add_gaussian
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import Event, Gaussian
from dpfit.privacy.validate import integer, option


@dataclass(frozen=True)
class PrivateRange(Mechanism):
    """Span of the bins of [lower, upper] whose noisy counts exceed the noise threshold."""

    kind = "private_range"
    noise_multiplier: float
    lower: float
    upper: float
    bins: int
    relation: str

    def __post_init__(self) -> None:
        BoundedMean(self.lower, self.upper)
        integer("bins", self.bins)
        option("relation", self.relation, ("replace", "add_remove"))
        _ = self.event

    @property
    def event(self) -> Event:
        return Gaussian(self.noise_multiplier)

    @property
    def sensitivity(self) -> float:
        """Sensitivity of the counts: replacing changes two by one, adding or removing one."""
        return math.nextafter(math.sqrt(2), 2) if self.relation == "replace" else 1.0

    @property
    def threshold(self) -> float:
        """Noise alone exceeds this in some bin with probability at most 0.01."""
        return float(self.noise_multiplier * self.sensitivity * -ndtri(0.01 / self.bins))

    def run(self, data: View, run: Run) -> tuple[float, float]:
        values = as_rows(array_of(data), 1, "numbers")[:, 0]
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
class WithinRange(Binding):
    """Set the range of a mean to the one that a stage released."""

    kind = "within_range"
    stage: str

    def __call__(self, plan: Plan, released: Mapping[str, Any]) -> Plan:
        low, high = released[self.stage]

        def narrow(mechanism: Mechanism) -> Mechanism:
            return replace(cast(NoisyMean, mechanism), query=BoundedMean(low, high))

        return plan.map_steps(narrow)

    def stand_in(self, plan: Plan) -> Mapping[str, Any]:
        query = cast(NoisyMean, plan.final).query
        return {self.stage: (query.lower, query.upper)}


ONE_COLUMN = Requirement(
    "a BoundedMean of dimension 1",
    "plan each column, or use gaussian_mean",
    lambda problem, budget, options: problem.workload.dimension == 1,
)


class RangedMean(Algorithm[Answer]):
    """A private range of one column, then the mean inside it.

    Guarantee: mu-GDP, both stages composed. Reference: [ASAP] Lemma 14.
    """

    name = "ranged_mean"
    summary = "private range of one column, then the mean inside it"
    reference = "[ASAP] Lemma 14"
    solves = Answer
    workloads = (BoundedMean,)
    guarantees = ("approximate", "gdp", "zcdp")
    requires = (ONE_COLUMN,)

    def _plan(self, problem: Answer, budget: Budget, *, bins: int = 32, share: float = 0.2) -> Plan:
        """Plan two stages; ``share`` is the part of the squared GDP budget that goes to the range.

        >>> problem = Answer(n=1000, workload=BoundedMean(0.0, 1e6))
        >>> plan = ranged_mean.plan(problem, Budget(mu=0.5))
        >>> round(plan.guarantee.mu, 6)
        0.5
        """
        query = cast(BoundedMean, problem.workload)
        if not 0 < share < 1:
            raise ValueError(f"share must lie strictly between 0 and 1, got {share!r}")
        relation = budget.relation
        counted = Assumption("each record counts in one histogram bin", "enforced")
        why = Basis(
            "Gaussian mechanism [Gan22, Fact 15]", relation, budget.unit, (counted,), "exact"
        )

        def stages(level: float) -> Composition:
            first = PrivateRange(
                1 / math.sqrt(share) * level, query.lower, query.upper, bins, relation
            )
            second = NoisyMean(
                "gaussian", 1 / math.sqrt(1 - share) * level, query, problem.units, relation
            )
            return Composition(
                (
                    Stage("range", Step(first, why)),
                    Stage("mean", Step(second, second.basis(budget.unit)), WithinRange("range")),
                )
            )

        return calibrate(stages, budget)

    def example(self, relation: str) -> Example:
        """Return records at one end of the range, one of which jumps to the other end or leaves."""
        problem = Answer(n=20, workload=BoundedMean(0.0, 4.0))
        low = np.full(20, 0.5)
        return Example(
            problem, low, low[:-1] if relation == "add_remove" else np.append(low[:-1], 3.5)
        )


ranged_mean = RangedMean()
