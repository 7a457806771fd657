"""Adversarial queries for interactive mechanisms: what a hostile analyst would ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpfit.core import Interactive, Plan, Step
from dpfit.mechanisms.above_threshold import AboveThreshold, ThresholdQueries
from dpfit.mechanisms.sparse_vector import SparseVector


@dataclass(frozen=True)
class Distance:
    """The query "level, plus change if the data are not the reference".

    As min(1, number of changed records) times ``change`` it moves by at most ``abs(change)`` between any neighbours.
    """

    reference: Any
    level: float
    change: float

    def __call__(self, data: Any) -> float:
        same = len(data) == len(self.reference) and bool(np.all(np.asarray(data) == np.asarray(self.reference)))
        return self.level + (0.0 if same else self.change)


def adversary(plan: Plan, data: Any, neighbour: Any) -> tuple[Any, ...]:
    """A hostile sequence of queries for an interactive plan; refuses kinds for which none is known."""
    if not isinstance(plan, Step) or not isinstance(plan.mechanism, Interactive):
        raise ValueError("only interactive plans take queries")
    if isinstance(plan.mechanism, AboveThreshold):
        return threshold_adversary(plan.mechanism, data)
    if isinstance(plan.mechanism, SparseVector):
        return sparse_adversary(plan.mechanism, data)
    raise ValueError(f"no adversarial queries are known for {plan.mechanism.kind!r}; pass queries")


def sparse_adversary(mechanism: SparseVector, data: Any) -> tuple[Distance, ...]:
    """The queries that are hard on one search, once for each hit."""
    queries = mechanism.queries
    search = ThresholdQueries(queries.threshold, queries.sensitivity)
    rounds = max(1, mechanism.rounds // queries.hits)
    return threshold_adversary(AboveThreshold(mechanism.epsilon, search, rounds), data) * queries.hits


def threshold_adversary(mechanism: AboveThreshold, data: Any) -> tuple[Distance, ...]:
    """A few queries that move towards halting on the neighbour, then one that moves away from it.

    That the first stay silent and the last one halts is then less likely on the neighbour by the full noise of the
    threshold and the full noise of the last query, which is where the proof spends its two halves of epsilon. Four
    queries are a compromise: more of them come closer to epsilon, on transcripts that are too rare to be counted.
    """
    queries = mechanism.queries
    towards = 1.0 if queries.halt == "above" else -1.0
    s = towards * queries.sensitivity
    near = Distance(data, queries.threshold, s)
    last = Distance(data, queries.threshold + 2 * s / mechanism.epsilon, -s)
    return (*[near] * (min(mechanism.rounds, 4) - 1), last)
