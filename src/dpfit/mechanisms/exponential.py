"""The exponential mechanism on finitely many candidates: the best one, nearly.

Guarantee: epsilon-DP, and more: the log ratio of any two datasets' probabilities lies in an
interval of length epsilon (bounded range), which composes better. A candidate is chosen with
probability proportional to exp(epsilon * score / range), where range is how differently one record
can change the scores of two candidates: the span of one record's scores when it is added or
removed, twice that when it is replaced. Reference: [ASAP] Lemma 5, Definition 16; [Liu24] Equation
3.2; Dong, Durfee and Rogers (2020) for bounded range.

Scores are integers of steps, and an exact integer draw decides about acceptance: the guarantee
holds for what is run. On a grid of parameters use `exponential_net`, on a continuous domain
`asap_perturb` under a pure budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Algorithm, Answer, Example, Mechanism, Plan, Risk, Run, Step
from dpfit.data.arrays import array_of, as_rows, check_array
from dpfit.data.view import View
from dpfit.noise import Grid, choices
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import BoundedRange, Event
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import integer, option, positive, real

_BITS = 14
"""Scores are rounded to between 2**13 and 2**14 steps."""


@dataclass(frozen=True)
class BestCandidate(Spec):
    """The candidate with the largest sum of scores, each between ``lower`` and ``upper``."""

    kind = "best_candidate"
    candidates: int
    lower: float = 0.0
    upper: float = 1.0

    def __post_init__(self) -> None:
        integer("candidates", self.candidates)
        low, high = real("lower", self.lower), real("upper", self.upper)
        if not (low < high and math.isfinite(high - low)):
            raise ValueError(
                f"scores need finite lower < upper, got {self.lower!r} and {self.upper!r}"
            )

    @property
    def grid(self) -> Grid:
        """The grid of the scores above the lower end."""
        return Grid(math.frexp(self.upper - self.lower)[1] - _BITS)

    @property
    def span(self) -> int:
        """The largest score above the lower end, in steps."""
        return int(self.grid.quantize(self.upper - self.lower))

    def scores(self, rows: NDArray[np.float64]) -> NDArray[np.int64]:
        """Sums of scores above the lower end, in steps; non-finite scores count as the lowest."""
        inside = np.clip(np.nan_to_num(rows, nan=self.lower), self.lower, self.upper)
        return np.asarray(
            np.minimum(self.grid.quantize(inside - self.lower), self.span).sum(axis=0)
        )


@dataclass(frozen=True)
class ExponentialChoice(Mechanism):
    """The choice; all fields are public. The output is an array of one number, the candidate's."""

    kind = "exponential_choice"
    epsilon: float
    query: BestCandidate
    n: int
    relation: str

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        integer("n", self.n)
        option("relation", self.relation, ("replace", "add_remove"))

    @property
    def event(self) -> Event:
        return BoundedRange(self.epsilon)

    @property
    def range(self) -> int:
        """How differently one record can change the scores of two candidates, in steps."""
        return self.query.span * (2 if self.relation == "replace" else 1)

    @property
    def scale(self) -> float:
        """How many steps of score are worth a factor e, rounded up."""
        return math.nextafter(self.range / self.epsilon, math.inf)

    @property
    def risk(self) -> Risk:
        lost = self.scale * self.query.grid.step * math.log(self.query.candidates)
        return Risk(lost, "score lost by the choice (expected, at most)")

    def check(self, data: View) -> None:
        check_array(data, self.query.candidates, "scores")

    def run(self, data: View, run: Run) -> NDArray[np.int64]:
        return self.run_many(data, run, 1)[0]

    def run_many(self, data: View, run: Run, count: int) -> list[NDArray[np.int64]]:
        """Draw independent choices."""
        gaps = self.gaps(self._rows(data))
        return [
            np.array([one], dtype=np.int64) for one in choices(gaps, self.scale, count, run.noise)
        ]

    def gaps(self, rows: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return how far the score of each candidate is below the best, in steps."""
        scores = self.query.scores(rows)
        return np.asarray(scores.max() - scores)

    def _rows(self, data: View) -> NDArray[np.float64]:
        return as_rows(array_of(data), self.query.candidates, "scores")


class ExponentialMechanism(Algorithm[Answer]):
    """The best of finitely many candidates, nearly.

    Guarantee: epsilon-DP with bounded range. Reference: [ASAP] Lemma 5, Definition 16.
    """

    name = "exponential"
    summary = "one of the best of finitely many candidates, by the exponential mechanism"
    use_for = "picking one of finitely many candidates"
    reference = "[ASAP] Lemma 5, Definition 16; [Liu24] Equation 3.2"
    solves = Answer
    workloads = (BestCandidate,)
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    tier = "recommended"

    def _plan(self, problem: Answer, budget: Budget) -> Plan:
        """Plan one choice with the largest epsilon that the budget allows.

        >>> problem = Answer(n=100, workload=BestCandidate(3))
        >>> plan = exponential.plan(problem, Budget(epsilon=1.0))
        >>> plan.guarantee.pure
        1.0
        >>> plan.run(np.tile([0.0, 1.0, 0.0], (100, 1))).value
        array([1])
        """
        epsilon = calibrate(lambda level: BoundedRange(1 / level), budget).epsilon
        why = Basis(
            "exponential mechanism, bounded range [ASAP, Lemma 5]",
            budget.relation,
            budget.unit,
            (Assumption("each score is clamped into the declared range", "enforced"),),
            "exact",
        )
        query = cast(BestCandidate, problem.workload)
        return Step(ExponentialChoice(epsilon, query, problem.units, budget.relation), why)

    def example(self, relation: str) -> Example:
        """Return records that tie; one turns from one candidate to the other, or leaves."""
        problem = Answer(n=4, workload=BestCandidate(2))
        rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
        return Example(
            problem,
            rows,
            rows[:-1] if relation == "add_remove" else np.vstack([rows[:-1], [[0.0, 1.0]]]),
        )


exponential = ExponentialMechanism()
