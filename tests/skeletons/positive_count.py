"""A mechanism in one file: the number of positive records, with Laplace noise.

The guide docs/how-to/add-an-algorithm.md explains this file.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Algorithm, Answer, Example, Mechanism, Plan, Run, Step
from dpfit.data.view import View
from dpfit.noise import INTEGERS, add_laplace
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import Event, Laplace
from dpfit.privacy.spec import Spec


@dataclass(frozen=True)
class Positive(Spec):
    """The workload: how many records are above zero?"""

    kind = "skeleton_positive"


@dataclass(frozen=True)
class NoisyCount(Mechanism):
    """Number of positive records plus Laplace noise on the integers.

    Guarantee: epsilon-DP, epsilon = 1 / noise_multiplier.
    Sensitivity: 1, since one record counts at most once.
    """

    kind = "skeleton_noisy_count"
    noise_multiplier: float

    @property
    def event(self) -> Event:
        return Laplace(self.noise_multiplier)

    def run(self, data: View, run: Run) -> NDArray[np.float64]:
        count = np.array(np.sum(np.asarray(data.given) > 0), dtype=np.int64)
        return add_laplace(
            count,
            l1_sensitivity=1.0,
            noise_multiplier=self.noise_multiplier,
            source=run.noise,
            grid=INTEGERS,
        )


class PositiveCount(Algorithm[Answer]):
    """Count positive records with Laplace noise."""

    name = "positive_count"
    summary = "number of positive records with Laplace noise"
    reference = "[Gan22] Fact 3"
    solves = Answer
    workloads = (Positive,)
    guarantees = ("pure", "approximate", "gdp", "zcdp")

    def _plan(self, problem: Answer, budget: Budget) -> Plan:
        """Plan one noisy count that spends the whole budget."""
        counted = Assumption("each record counts at most once", "enforced")
        why = Basis("Laplace mechanism [Gan22, Fact 3]", budget.relation, budget.unit, (counted,))
        return calibrate(lambda multiplier: Step(NoisyCount(multiplier), why), budget)

    def example(self, relation: str) -> Example:
        """Return ones, the last of which leaves or turns negative."""
        ones = np.ones(5)
        neighbour = ones[:-1] if relation == "add_remove" else np.append(ones[:-1], -1.0)
        return Example(Answer(workload=Positive()), ones, neighbour)


positive_count = PositiveCount()
