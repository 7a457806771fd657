"""Sparse vector: find, and optionally answer, the few queries of a stream above a threshold.

Guarantee: the composition of ``hits`` runs of above threshold, each epsilon-DP, and of ``hits``
noisy answers; however many queries are asked and however they are chosen. Reference: [Gan22]
Theorem 36; Dwork and Roth (2014), Section 3.6. The printed split of the budget starves the answers
(`theory.counting_queries.monograph_sparse_vector`); here both parts are accounted as what they are
and calibrated together.

After each hit the threshold is drawn again and every query has fresh noise: reusing either is the
classical error. An answer has noise of its own, never that of the comparison.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from dpfit.core import Algorithm, Example, Interact, Interactive, Plan, Risk, Run, State, Step
from dpfit.mechanisms.above_threshold import AboveThreshold, Query, ThresholdQueries
from dpfit.noise import add_gaussian, add_laplace
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import Composed, Event, Gaussian, Laplace, Pure, Repeated
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import integer, option, positive, real
from dpfit.theory.generalized_gaussian import IndependentErrors


@dataclass(frozen=True)
class SparseQueries(Spec):
    """Real queries of at most this ``sensitivity``; at most ``hits`` of them are found.

    ``answers`` asks for the value of a query that is found; ``absolute`` compares absolute values
    with the threshold (they move no further than the values do).
    """

    kind = "sparse_queries"
    threshold: float
    hits: int = 1
    sensitivity: float = 1.0
    answers: bool = True
    absolute: bool = False

    def __post_init__(self) -> None:
        if not math.isfinite(real("threshold", self.threshold)):
            raise ValueError(f"threshold must be finite, got {self.threshold!r}")
        integer("hits", self.hits)
        positive("sensitivity", self.sensitivity)


@dataclass(frozen=True)
class SparseVector(Interactive):
    """Spends ``epsilon`` to find each hit and noise of ``noise_multiplier`` to answer it."""

    kind = "sparse_vector"
    epsilon: float
    noise: str
    noise_multiplier: float
    queries: SparseQueries
    rounds: int

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        option("noise", self.noise, ("laplace", "gaussian"))
        positive("noise_multiplier", self.noise_multiplier)
        integer("rounds", self.rounds)

    @property
    def event(self) -> Event:
        law = Laplace if self.noise == "laplace" else Gaussian
        return sparse_event(self.queries, self.epsilon, law(self.noise_multiplier))

    @cached_property
    def search(self) -> AboveThreshold:
        """The search for one hit."""
        queries = ThresholdQueries(self.queries.threshold, self.queries.sensitivity)
        return AboveThreshold(self.epsilon, queries, self.rounds)

    @property
    def answer_errors(self) -> IndependentErrors:
        """The law of the errors of the answers."""
        deviation, hits = self.noise_multiplier * self.queries.sensitivity, self.queries.hits
        if self.noise == "laplace":
            return IndependentErrors(1.0, deviation, hits)
        return IndependentErrors(2.0, math.sqrt(2) * deviation, hits)

    @property
    def misjudged(self) -> float:
        """Expected largest distance from the threshold of a query on its wrong side, at most.

        It is the largest noise of a query in all rounds, plus that of a threshold in all searches.
        """
        search = self.search
        query, threshold = (
            IndependentErrors(1.0, scale, number).expected_max
            for scale, number in (
                (search.query_scale, self.rounds), (search.threshold_scale, self.queries.hits)
            )
        )  # fmt: skip
        return (query + threshold) * search.grid.step

    @property
    def risk(self) -> Risk:
        hits = self.queries.hits
        if self.queries.answers:
            meaning = "error of the answer" if hits == 1 else f"largest error of {hits} answers"
            return Risk(self.answer_errors.expected_max, meaning)
        return Risk(self.misjudged, "largest distance of a misjudged query from the threshold")

    def init(self, data: Any, run: Run) -> State:
        """Open the first search."""
        return {"search": self.search.init(data, run), "answers": (), "hits": 0}

    def step(
        self, state: State, given: Query, data: Any, run: Run
    ) -> tuple[State, float | bool | None]:
        """Answer None below the threshold; above it the noisy value, or True without values."""
        return self.answer(state, self.search.value(given, data), run)

    def answer(self, state: State, value: float, run: Run) -> tuple[State, float | bool | None]:
        """Answer a query of this value.

        A hit opens a new search, with a new threshold: reusing either noise is the classical error.
        """
        search, found = self.search.compare(
            state["search"], abs(value) if self.queries.absolute else value, run
        )
        answer: float | bool | None = None
        if found:
            answer = self._noisy(value, run) if self.queries.answers else True
            search = self.search.init(None, run)
        answers = (*state["answers"], answer)
        return {"search": search, "answers": answers, "hits": state["hits"] + found}, answer

    def is_done(self, state: State) -> bool:
        """Whether all hits were found."""
        return bool(state["hits"] >= self.queries.hits)

    def finish(self, state: State) -> tuple[float | bool | None, ...]:
        return tuple(state["answers"])

    def adversarial(self, data: Any, neighbour: Any) -> tuple[Any, ...]:
        """Return the queries that are hard on one search, once for each hit."""
        one = replace(self.search, rounds=max(1, self.rounds // self.queries.hits))
        return one.adversarial(data, neighbour) * self.queries.hits

    def _noisy(self, value: float, run: Run) -> float:
        """Return the value with noise of its own, never that of the comparison."""
        sensitivity, multiplier = self.queries.sensitivity, self.noise_multiplier
        values, source = np.array([value]), run.noise
        if self.noise == "laplace":
            noisy = add_laplace(
                values, l1_sensitivity=sensitivity, noise_multiplier=multiplier, source=source
            )
        else:
            noisy = add_gaussian(
                values, l2_sensitivity=sensitivity, noise_multiplier=multiplier, source=source
            )
        return float(noisy[0])


def sparse_event(queries: SparseQueries, epsilon: float, answer: Event) -> Event:
    """Finding ``hits`` queries, and answering them if that is asked for."""
    found = Repeated(Pure(epsilon), queries.hits)
    return Composed((found, Repeated(answer, queries.hits))) if queries.answers else found


class SparseVectorSearch(Algorithm[Interact]):
    """Find and answer the few queries of a stream that are above a threshold.

    Guarantee: the composition of ``hits`` searches and ``hits`` noisy answers, for any number and
    choice of queries. Reference: [Gan22] Theorem 36; Dwork and Roth (2014) Section 3.6.
    """

    name = "sparse_vector"
    summary = "find and answer the few queries of a stream that are above a threshold"
    reference = "[Gan22] Theorem 36; Dwork and Roth (2014) Section 3.6"
    solves = Interact
    workloads = (SparseQueries,)
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    tier = "specialised"

    def _plan(self, problem: Interact, budget: Budget, *, share: float = 0.6) -> Plan:
        """Plan one interactive step; ``share`` of a hit's loss finds it, the rest answers it.

        Answers have Laplace noise under a pure budget and Gaussian noise under any other.

        >>> problem = Interact(n=100, workload=SparseQueries(threshold=50.0, hits=3), rounds=1000)
        >>> round(sparse_vector.plan(problem, Budget(epsilon=1.0)).guarantee.pure, 9)
        1.0
        """
        queries = cast(SparseQueries, problem.workload)
        if not 0 < share < 1:
            raise ValueError(f"share must lie strictly between 0 and 1, got {share!r}")
        noise = "laplace" if budget.kind == "pure" else "gaussian"

        def mechanism(level: float) -> SparseVector:
            return SparseVector(share / level, noise, level / (1 - share), queries, problem.rounds)

        return Step(calibrate(mechanism, budget), sparse_basis(budget))

    def example(self, relation: str) -> Example:
        """Return counts of ones; a one becomes a zero or leaves."""
        problem = Interact(n=3, workload=SparseQueries(threshold=2.0, hits=2), rounds=4)
        ones = np.ones(3)
        return Example(
            problem, ones, ones[:-1] if relation == "add_remove" else np.array([1.0, 1.0, 0.0])
        )


def sparse_basis(budget: Budget) -> Basis:
    """Return why an interaction is private."""
    return Basis(
        "above threshold (Dwork and Roth 2014, Theorem 3.23); adaptive composition",
        budget.relation,
        budget.unit,
        (Assumption("no query moves by more than the declared sensitivity", "declared"),),
        "exact",
    )


sparse_vector = SparseVectorSearch()
