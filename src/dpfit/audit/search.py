"""Hostile neighbours for a problem, and a search for the worst of them.

The records of a problem are seen as a table whose entries lie in a declared range (the label of a
labelled record is in the last column); pairs of tables are then dressed as the data that plans of
the problem take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import singledispatch
from itertools import islice

import numpy as np

from dpfit.audit.neighbours import Pair, Rows, advantages, pair_of, random_pairs, record_pairs
from dpfit.audit.runs import Sampler
from dpfit.core import Minimize, Problem
from dpfit.data.dataset import InMemory
from dpfit.mechanisms.counting import Flags
from dpfit.mechanisms.exponential import BestCandidate
from dpfit.mechanisms.mean import BoundedMean
from dpfit.noise import Source
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import integer


@dataclass(frozen=True)
class _Tables:
    """What tables of records look like, and how they become data."""

    n: int
    columns: int
    lower: float
    upper: float
    dress: Callable[[Rows], Iterable[object]]
    labelled: bool = False

    def dressed(self, pair: Pair[Rows]) -> Pair[Iterable[object]]:
        return Pair(pair.name, self.dress(pair.data), self.dress(pair.neighbour))


def problem_pairs(
    problem: Problem, relation: str, source: Source | None = None
) -> Iterator[Pair[Iterable[object]]]:
    """Hostile pairs of neighbours, as data for plans of the problem.

    >>> from dpfit.losses import Bounds, Logistic
    >>> problem = Minimize(n=3, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=2)
    >>> [pair.name for pair in problem_pairs(problem, "replace")][:2]
    ['opposite gradients', 'one extreme record']
    """
    tables = _tables_of(problem.subject, problem)
    for pair in _hostile(tables, relation, source or Source()):
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
) -> Pair[Iterable[object]]:
    """The pair distinguished best: adversarial, random, then ``rounds`` of variations.

    Audit it with runs of its own; the search has looked at those it made.
    """
    integer("rounds", rounds, least=0)
    tables, source = _tables_of(problem.subject, problem), Source(random_state)
    pairs = [*_hostile(tables, relation, source)]
    pairs += islice(
        random_pairs(tables.n, tables.columns, tables.lower, tables.upper, relation, source), width
    )
    for done in range(rounds + 1):
        seed = None if random_state is None else random_state + done
        pairs = [pair for pair in pairs if _differ(tables.dressed(pair))]
        found = advantages(
            sampler, [tables.dressed(pair) for pair in pairs], runs=runs, random_state=seed
        )
        best = pairs[int(np.argmax(found))]
        pairs = [best, *(_varied(best, tables, relation, source) for _ in range(width))]
        if progress is not None:
            progress((done + 1) / (rounds + 1))
    return tables.dressed(best)


def _differ(pair: Pair[Iterable[object]]) -> bool:
    """Whether the data differ: entries of a table may become the same flag."""
    one, two = (np.asarray(list(side), dtype=np.float64) for side in (pair.data, pair.neighbour))
    return not np.array_equal(one, two, equal_nan=True)


@singledispatch
def _tables_of(subject: Spec, problem: Problem) -> _Tables:
    """Return the tables of records for the subject of a problem."""
    raise ValueError(
        f"no pairs of neighbours are known for {subject.kind!r}; pass a pair of your own"
    )


@_tables_of.register
def _(subject: Minimize, problem: Problem) -> _Tables:
    columns = subject.n_features + 1
    return _Tables(
        problem.units, columns, -1.0, 1.0, lambda table: _labelled(subject, table), labelled=True
    )


@_tables_of.register
def _(subject: BoundedMean, problem: Problem) -> _Tables:
    return _Tables(problem.units, subject.dimension, subject.lower, subject.upper, np.asarray)


@_tables_of.register
def _(subject: BestCandidate, problem: Problem) -> _Tables:
    return _Tables(problem.units, subject.candidates, subject.lower, subject.upper, np.asarray)


@_tables_of.register
def _(subject: Flags, problem: Problem) -> _Tables:
    return _Tables(
        problem.units, subject.queries, 0.0, 1.0, lambda table: np.nan_to_num(table) >= 0.5
    )


def _labelled(problem: Minimize, table: Rows) -> InMemory:
    size = problem.bounds.row_norm / np.sqrt(problem.n_features)
    low, high = problem.bounds.label_lower, problem.bounds.label_upper
    span = (-1.0 if low is None else low), (1.0 if high is None else high)
    labels = span[0] / 2 + span[1] / 2 + (span[1] / 2 - span[0] / 2) * table[:, -1]
    return InMemory(size * table[:, :-1], labels)


def _hostile(tables: _Tables, relation: str, source: Source) -> Iterator[Pair[Rows]]:
    if tables.labelled:
        rows = np.ones((tables.n, tables.columns))
        rows[::2, -1] = -1.0
        yield pair_of(
            "opposite gradients",
            rows[:-1],
            rows[-1],
            rows[-1] * np.append(rows[-1, :-1], -1.0),
            relation,
        )
    yield from record_pairs(tables.n, tables.columns, tables.lower, tables.upper, relation, source)


def _varied(pair: Pair[Rows], tables: _Tables, relation: str, source: Source) -> Pair[Rows]:
    """The pair with one other random record; the last place holds the one that differs."""
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
