"""Generalized Gaussian counts, largest noise corrected by sparse vector: a reference.

Guarantee: (epsilon, delta)-DP, the composition of the noisy counts y = answers + noise and of
sparse vector on the noise, which is y - answers: given y, one neighbour change moves each of its
entries by at most one. What is released is y minus the corrections; y itself never leaves.
Reference: [Gan22] Theorems 18 and 37.

It is here to be compared with, not to be used: with the printed parameters nothing is ever
corrected, and with tuned ones the gain over `generalized_gaussian` is a few percent at best
(docs/explanation/queries.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np

from dpfit.core import Answer, Mechanism, Plan, Risk, Run, Step
from dpfit.data.view import View
from dpfit.mechanisms.additive import Floats, PowerNoise, SumAlgorithm
from dpfit.mechanisms.counting import CountingQueries
from dpfit.mechanisms.sparse_vector import SparseQueries, SparseVector
from dpfit.privacy import Budget, calibrate, gaussian
from dpfit.privacy.event import Composed, Event
from dpfit.theory.generalized_gaussian import largest_of


@dataclass(frozen=True)
class CorrectedCounts(Mechanism):
    """Noisy counts, and sparse vector on their noise."""

    kind = "corrected_counts"
    noise: PowerNoise
    correction: SparseVector
    workload: CountingQueries
    relation: str

    @property
    def event(self) -> Event:
        return Composed(
            (self.noise.event(self.workload.change(self.relation)), self.correction.event)
        )

    @property
    def risk(self) -> Risk:
        """Noise, and answers about it if all of them are asked for.

        Corrections hardly lower the largest noise: finding it takes noise of the same size.
        """
        errors = self.noise.errors(self.workload.change(self.relation))
        meaning = f"largest error of the {self.workload.number} {self.workload.noun}s"
        return Risk(largest_of(errors, self.correction.answer_errors), meaning)

    def check(self, data: View) -> None:
        self.workload.check(data)

    def run(self, data: View, run: Run) -> Floats:
        answers = self.workload.answers(data)
        noisy = self.noise.add(answers, self.workload.change(self.relation), run.noise)
        return noisy - self.corrections(noisy - answers, run)

    def corrections(self, noise: Floats, run: Run) -> Floats:
        """Return noisy values of the noise where it was found to be large, 0 elsewhere."""
        correction, found = self.correction, np.zeros(noise.shape)
        state = correction.init(None, run)
        for index, value in enumerate(noise):
            if correction.is_done(state):
                break
            state, answer = correction.answer(state, float(value), run)
            found[index] = 0.0 if answer is None else answer
        return found


class SparseCorrectedCounts(SumAlgorithm):
    """Generalized Gaussian counts, corrected by sparse vector.

    Guarantee: (epsilon, delta)-DP, by composition. Reference: [Gan22] Theorems 18 and 37.
    """

    name = "sparse_corrected"
    summary = "generalized Gaussian counts corrected by sparse vector (reference implementation)"
    reference = "[Gan22] Theorems 18 and 37"
    workloads = (CountingQueries,)
    guarantees = ("approximate",)

    def _plan(self, problem: Answer, budget: Budget, *, hits: int = 1, share: float = 0.05) -> Plan:
        """Plan a step that corrects ``hits`` answers or fewer with about ``share`` of the budget.

        The share is that of the squared budget where costs add in squares.

        >>> from dpfit.mechanisms.counting import Flags
        >>> budget = Budget(epsilon=1.0, delta=1e-6)
        >>> plan = sparse_corrected.plan(Answer(workload=Flags(1000)), budget, hits=5)
        >>> plan.guarantee.meets(budget)
        True
        """
        workload = cast(CountingQueries, problem.workload)
        change = workload.change(budget.relation)
        plain = PowerNoise.calibrated(change, budget)
        # Half for finding, half for answering; the whole is then scaled to the budget.
        loss = gaussian.mu(float(budget.epsilon or 0.0), float(budget.delta or 0.0)) * math.sqrt(
            share / (2 * hits)
        )
        # About as many values of the noise as may be corrected lie above the threshold.
        threshold = plain.errors(change).quantile(1 - min(hits / change.number, 0.5))
        queries = SparseQueries(threshold, hits, absolute=True)

        def mechanism(level: float) -> CorrectedCounts:
            noise = PowerNoise(level * plain.scale, plain.shape)
            correction = SparseVector(
                loss / level, "gaussian", level / loss, queries, change.number
            )
            return CorrectedCounts(noise, correction, workload, budget.relation)

        theorem = (
            "generalized Gaussian mechanism [Gan22, Theorem 17], accounted exactly; sparse "
            "vector [Gan22, Theorem 36]"
        )
        return Step(calibrate(mechanism, budget), workload.basis(theorem, budget))


sparse_corrected = SparseCorrectedCounts()
