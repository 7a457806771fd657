"""Hostile neighbours for a problem, and a search for the worst of them.

The records of a problem are seen as a table whose entries lie in a declared range (the label of a labelled record is in
the last column); pairs of tables are then dressed as the data that plans of the problem take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from dpfit.audit.neighbours import Pair, Rows, advantages, pair_of, random_pairs, record_pairs
from dpfit.audit.runs import Sampler
from dpfit.core import Answer, Minimize, Problem
from dpfit.data.dataset import InMemory
from dpfit.mechanisms.counting import Flags
from dpfit.mechanisms.exponential import BestCandidate
from dpfit.mechanisms.mean import BoundedMean
from dpfit.noise import Source
from dpfit.privacy.check import count


@dataclass(frozen=True)
class _Tables:
    """What tables of records look like, and how they become data."""

    n: int
    columns: int
    lower: float
    upper: float
    dress: Callable[[Rows], Any]

    def dressed(self, pair: Pair) -> Pair:
        return Pair(pair.name, self.dress(pair.data), self.dress(pair.neighbour))


def problem_pairs(problem: Problem, relation: str, source: Source | None = None) -> Iterator[Pair]:
    """Hostile pairs of neighbours, as data for plans of the problem.

    >>> from dpfit.losses import Bounds, Logistic
    >>> problem = Minimize(n=3, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=2)
    >>> [pair.name for pair in problem_pairs(problem, "replace")][:2]
    ['opposite gradients', 'one extreme record']
    """
    tables = _tables(problem)
    for pair in _hostile(problem, tables, relation, source or Source()):
        yield tables.dressed(pair)


def search_pair(
    sampler: Sampler,
    problem: Problem,
    relation: str,
    *,
    rounds: int = 3,
    width: int = 12,
    runs: int = 200,
    random_state: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Pair:
    """The pair that is told apart best: hostile and random pairs first, then ``rounds`` of variations of the best.

    Audit it with runs of its own; the search has looked at those it made.
    """
    count("rounds", rounds, least=0)
    tables, source = _tables(problem), Source(random_state)
    pairs = [*_hostile(problem, tables, relation, source)]
    pairs += islice(random_pairs(tables.n, tables.columns, tables.lower, tables.upper, relation, source), width)
    for done in range(rounds + 1):
        seed = None if random_state is None else random_state + done
        pairs = [pair for pair in pairs if _differ(tables.dressed(pair))]
        found = advantages(sampler, [tables.dressed(pair) for pair in pairs], runs=runs, random_state=seed)
        best = pairs[int(np.argmax(found))]
        pairs = [best, *(_varied(best, tables, relation, source) for _ in range(width))]
        if progress is not None:
            progress((done + 1) / (rounds + 1))
    return tables.dressed(best)


def _differ(pair: Pair) -> bool:
    """Whether the data differ: entries of a table may become the same flag."""
    one, two = (np.asarray(list(side), dtype=np.float64) for side in (pair.data, pair.neighbour))
    return not np.array_equal(one, two, equal_nan=True)


def _tables(problem: Problem) -> _Tables:
    if isinstance(problem, Minimize):
        return _Tables(problem.n, problem.n_features + 1, -1.0, 1.0, lambda table: _labelled(problem, table))
    workload = problem.workload if isinstance(problem, Answer) else None
    if isinstance(workload, BoundedMean):
        return _Tables(problem.units, workload.dimension, workload.lower, workload.upper, np.asarray)
    if isinstance(workload, BestCandidate):
        return _Tables(problem.units, workload.candidates, workload.lower, workload.upper, np.asarray)
    if isinstance(workload, Flags):
        return _Tables(problem.units, workload.queries, 0.0, 1.0, lambda table: np.nan_to_num(table) >= 0.5)
    raise ValueError(f"no pairs of neighbours are known for {(workload or problem).kind!r}; pass a pair of your own")


def _labelled(problem: Minimize, table: Rows) -> InMemory:
    size = problem.bounds.row_norm / np.sqrt(problem.n_features)
    low, high = problem.bounds.label_lower, problem.bounds.label_upper
    span = (-1.0 if low is None else low), (1.0 if high is None else high)
    labels = span[0] / 2 + span[1] / 2 + (span[1] / 2 - span[0] / 2) * table[:, -1]
    return InMemory(size * table[:, :-1], labels)


def _hostile(problem: Problem, tables: _Tables, relation: str, source: Source) -> Iterator[Pair]:
    if isinstance(problem, Minimize):
        rows = np.ones((tables.n, tables.columns))
        rows[::2, -1] = -1.0
        yield pair_of("opposite gradients", rows[:-1], rows[-1], rows[-1] * np.append(rows[-1, :-1], -1.0), relation)
    yield from record_pairs(tables.n, tables.columns, tables.lower, tables.upper, relation, source)


def _varied(pair: Pair, tables: _Tables, relation: str, source: Source) -> Pair:
    """The pair with another record in a random place; the last place is that of the record that differs."""
    fresh = next(random_pairs(2, tables.columns, tables.lower, tables.upper, "replace", source))
    others, record = np.array(pair.data[:-1]), np.array(pair.data[-1])
    replaced = fresh.neighbour[-1] if relation == "add_remove" else np.array(pair.neighbour[-1])
    place = int(source.integers(tables.n + 1, 1)[0])
    if place < len(others):
        others[place] = fresh.data[-1]
    elif place == len(others):
        record = fresh.data[-1]
    else:
        replaced = fresh.data[-1]
    if np.array_equal(record, replaced, equal_nan=True):
        replaced = fresh.neighbour[-1]
    return pair_of("found by search", others, record, replaced, relation)
