"""The exponential mechanism on finitely many candidates: the best one, nearly.

Guarantee: epsilon-DP, and more: the log ratio of any two datasets' probabilities lies in an interval of length epsilon
(bounded range), which composes better. A candidate is chosen with probability proportional to
exp(epsilon * score / range), where range is how differently one record can change the scores of two candidates: the
span of one record's scores when it is added or removed, twice that when it is replaced.
Reference: [ASAP] Lemma 5, Definition 16; [Liu24] Equation 3.2; Dong, Durfee and Rogers (2020) for bounded range.

Scores are whole numbers of steps and acceptance is decided by an exact integer draw, so the promise holds for what is
run. On a grid of parameters it is `dpfit.mechanisms.net`, on a continuous domain `dpfit.solvers.gibbs.asap_perturb`
under a pure budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Answer, Mechanism, Risk, Run, Step, require_records
from dpfit.noise import Grid, Source, discrete_laplace
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.check import count, number, one_of, positive
from dpfit.privacy.event import BoundedRange, Event
from dpfit.privacy.spec import Spec

_BITS = 14
"""Scores are rounded to between 2**13 and 2**14 steps."""


@dataclass(frozen=True)
class BestCandidate(Spec):
    """Which candidate has the largest sum of scores; each record scores each one between ``lower`` and ``upper``."""

    kind = "best_candidate"
    candidates: int
    lower: float = 0.0
    upper: float = 1.0

    def __post_init__(self) -> None:
        count("candidates", self.candidates)
        low, high = number("lower", self.lower), number("upper", self.upper)
        if not (low < high and math.isfinite(high - low)):
            raise ValueError(f"scores need finite lower < upper, got {self.lower!r} and {self.upper!r}")

    @property
    def grid(self) -> Grid:
        """The grid of the scores above the lower end."""
        return Grid(math.frexp(self.upper - self.lower)[1] - _BITS)

    @property
    def span(self) -> int:
        """The largest score above the lower end, in steps."""
        return int(self.grid.quantize(self.upper - self.lower))

    def scores(self, rows: NDArray[np.float64]) -> NDArray[np.int64]:
        """The sums of the scores above the lower end, in steps; what is not a number scores lowest."""
        inside = np.clip(np.nan_to_num(rows, nan=self.lower), self.lower, self.upper)
        return np.asarray(np.minimum(self.grid.quantize(inside - self.lower), self.span).sum(axis=0))


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
        count("n", self.n)
        one_of("relation", self.relation, ("replace", "add_remove"))

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

    def run(self, data: Any, run: Run) -> NDArray[np.int64]:
        return self.run_many(data, run, 1)[0]

    def run_many(self, data: Any, run: Run, count: int) -> list[NDArray[np.int64]]:
        """Independent choices."""
        return [np.array([one], dtype=np.int64) for one in choices(self._gaps(data), self.scale, count, run.noise)]

    def _gaps(self, data: Any) -> NDArray[np.int64]:
        try:
            rows = np.asarray(data, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError("the data must be an array of scores") from None
        if rows.ndim != 2 or rows.shape[1] != self.query.candidates:
            raise ValueError(
                f"the plan is for {self.query.candidates} scores of each record, got shape {rows.shape[1:]}"
            )
        if self.relation == "replace" and len(rows) != self.n:
            raise ValueError(f"the plan is for n = {self.n} records, the data have {len(rows)}")
        scores = self.query.scores(rows)
        return np.asarray(scores.max() - scores)


def choices(gaps: NDArray[np.int64], scale: float, count: int, source: Source) -> list[int]:
    """Independent draws of a candidate, with probability proportional to exp(-gap / scale), by rejection.

    A two-sided geometric draw of scale s is at least g >= 0 with probability proportional to exp(-g / s).
    """
    chosen: list[int] = []
    while (missing := count - len(chosen)) > 0:
        trials = missing * len(gaps)
        proposed = source.integers(len(gaps), trials)
        kept = proposed[discrete_laplace(scale, trials, source) >= gaps[proposed]]
        chosen += kept[:missing].tolist()
    return chosen


@dataclass(frozen=True)
class ExponentialMechanism:
    """Plans a choice among candidates."""

    name: str = "exponential"

    def plan(self, problem: Answer, budget: Budget) -> Step:
        """One choice with the largest epsilon that the budget allows.

        >>> problem = Answer(n=100, workload=BestCandidate(3))
        >>> plan = exponential.plan(problem, Budget(epsilon=1.0))
        >>> plan.guarantee.pure
        1.0
        >>> plan.run(np.tile([0.0, 1.0, 0.0], (100, 1))).value
        array([1])
        """
        require_records(self.name, budget)
        if not isinstance(problem.workload, BestCandidate):
            raise ValueError(f"{self.name} answers a BestCandidate workload, not {problem.workload.kind!r}")
        epsilon = calibrate(lambda level: BoundedRange(1 / level), budget).epsilon
        why = Basis(
            "exponential mechanism, bounded range [ASAP, Lemma 5]",
            budget.relation,
            budget.unit,
            (Assumption("each score is clamped into the declared range", "enforced"),),
            "exact",
        )
        return Step(ExponentialChoice(epsilon, problem.workload, problem.units, budget.relation), why)

    def example(self, relation: str) -> tuple[Answer, Any, Any]:
        """Records that tie, one of which turns from one candidate to the other, or leaves."""
        problem = Answer(n=4, workload=BestCandidate(2))
        rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
        if relation == "add_remove":
            return problem, rows, rows[:-1]
        return problem, rows, np.vstack([rows[:-1], [[0.0, 1.0]]])


exponential = ExponentialMechanism()
