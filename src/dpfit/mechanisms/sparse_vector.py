"""Sparse vector: a stream of queries, of which the few above a threshold are found and, if asked for, answered.

Guarantee: the composition of ``hits`` runs of above threshold, each epsilon-DP, and of ``hits`` noisy answers; however
many queries are asked and however they are chosen. Reference: [Gan22] Theorem 36; Dwork and Roth (2014), Section 3.6;
card 10/C12. The printed split of the budget starves the answers (`theory.counting_queries.monograph_sparse_vector`);
here both parts are accounted as what they are and calibrated together.

After each hit the threshold is drawn again and every query has fresh noise: reusing either is the classical error. An
answer has noise of its own, never that of the comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from dpfit.core import Interact, Interactive, Mechanism, Plan, Run, Session, Step, require_records
from dpfit.mechanisms.above_threshold import AboveThreshold, ThresholdQueries
from dpfit.noise import add_gaussian, add_laplace
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.check import count, number, one_of, positive
from dpfit.privacy.event import Composed, Event, Gaussian, Laplace, Pure, Repeated
from dpfit.privacy.spec import Spec

M = TypeVar("M", bound=Mechanism)


@dataclass(frozen=True)
class SparseQueries(Spec):
    """Real queries, each moved by at most ``sensitivity`` by one neighbour change; ``hits`` of them may be found.

    ``answers`` asks for the value of a query that is found; ``absolute`` compares absolute values with the threshold
    (they move no further than the values do).
    """

    kind = "sparse_queries"
    threshold: float
    hits: int = 1
    sensitivity: float = 1.0
    answers: bool = True
    absolute: bool = False

    def __post_init__(self) -> None:
        if not math.isfinite(number("threshold", self.threshold)):
            raise ValueError(f"threshold must be finite, got {self.threshold!r}")
        count("hits", self.hits)
        positive("sensitivity", self.sensitivity)


@dataclass(frozen=True)
class SparseVector(Interactive):
    """The mechanism: ``epsilon`` for finding each hit, noise of ``noise_multiplier`` for answering it."""

    kind = "sparse_vector"
    epsilon: float
    noise: str
    noise_multiplier: float
    queries: SparseQueries
    rounds: int

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        one_of("noise", self.noise, ("laplace", "gaussian"))
        positive("noise_multiplier", self.noise_multiplier)
        count("rounds", self.rounds)

    @property
    def event(self) -> Event:
        law = Laplace if self.noise == "laplace" else Gaussian
        return sparse_event(self.queries, self.epsilon, law(self.noise_multiplier))

    def open(self, data: Any, run: Run) -> Session:
        return _Sparse(self, data, run)


def sparse_event(queries: SparseQueries, epsilon: float, answer: Event) -> Event:
    """Finding ``hits`` queries, and answering them if that is asked for."""
    found = Repeated(Pure(epsilon), queries.hits)
    return Composed((found, Repeated(answer, queries.hits))) if queries.answers else found


class _Sparse(Session):
    """One above-threshold session for each hit, one after the other; dead after the last."""

    def __init__(self, mechanism: SparseVector, data: Any, run: Run) -> None:
        self._mechanism, self._data, self._run = mechanism, data, run
        queries = mechanism.queries
        self._finder = AboveThreshold(
            mechanism.epsilon, ThresholdQueries(queries.threshold, queries.sensitivity), mechanism.rounds
        )
        self._search = self._finder.open(data, run)
        self._answers: tuple[float | bool | None, ...] = ()
        self._hits = 0

    def step(self, query: Callable[[Any], float]) -> float | bool | None:
        """None below the threshold; above it the noisy value, or True if values were not asked for."""
        if not callable(query):
            raise TypeError("a query is a function from the data to a number")
        queries = self._mechanism.queries
        value = float(query(self._data))
        found = self._search.step(lambda _: abs(value) if queries.absolute else value)
        answer: float | bool | None = None
        if found:
            answer = self._noisy(value) if queries.answers else True
            self._hits += 1
            self._search = self._finder.open(self._data, self._run)
        self._answers += (answer,)
        self.done = self._hits >= queries.hits or len(self._answers) >= self._mechanism.rounds
        return answer

    def result(self) -> tuple[float | bool | None, ...]:
        return self._answers

    def _noisy(self, value: float) -> float:
        mechanism, source = self._mechanism, self._run.noise
        sensitivity, multiplier = mechanism.queries.sensitivity, mechanism.noise_multiplier
        if mechanism.noise == "laplace":
            noisy = add_laplace(
                np.array([value]), l1_sensitivity=sensitivity, noise_multiplier=multiplier, source=source
            )
        else:
            noisy = add_gaussian(
                np.array([value]), l2_sensitivity=sensitivity, noise_multiplier=multiplier, source=source
            )
        return float(noisy[0])


@dataclass(frozen=True)
class SparseVectorAlgorithm:
    """Plans an interaction."""

    name: str = "sparse_vector"

    def plan(self, problem: Interact, budget: Budget, *, share: float = 0.6) -> Plan:
        """One interactive step; ``share`` of each hit's loss is for finding it, the rest for answering it.

        Answers have Laplace noise under a pure budget and Gaussian noise under any other.

        >>> problem = Interact(n=100, workload=SparseQueries(threshold=50.0, hits=3), rounds=1000)
        >>> round(sparse_vector.plan(problem, Budget(epsilon=1.0)).guarantee.pure, 9)
        1.0
        """
        require_records(self.name, budget)
        queries = problem.workload
        if not isinstance(queries, SparseQueries):
            raise ValueError(f"{self.name} answers SparseQueries, not {queries.kind!r}")
        if not 0 < share < 1:
            raise ValueError(f"share must lie strictly between 0 and 1, got {share!r}")
        noise = "laplace" if budget.kind == "pure" else "gaussian"

        def mechanism(level: float) -> SparseVector:
            return SparseVector(share / level, noise, level / (1 - share), queries, problem.rounds)

        return Step(calibrate(mechanism, budget), sparse_basis(budget))

    def example(self, relation: str) -> tuple[Interact, Any, Any]:
        """Counts of ones; a one becomes a zero or leaves."""
        problem = Interact(n=3, workload=SparseQueries(threshold=2.0, hits=2), rounds=4)
        ones = np.ones(3)
        return problem, ones, (ones[:-1] if relation == "add_remove" else np.array([1.0, 1.0, 0.0]))


def sparse_basis(budget: Budget) -> Basis:
    """Why an interaction is private."""
    return Basis(
        "above threshold (Dwork and Roth 2014, Theorem 3.23); adaptive composition",
        budget.relation,
        budget.unit,
        (Assumption("no query moves by more than the declared sensitivity", "declared"),),
        "exact",
    )


sparse_vector = SparseVectorAlgorithm()
