"""Adversarial pairs of neighbours, and a small search for the worst one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpfit.audit.attacks import Projection, Transcript
from dpfit.audit.outcomes import Outcomes
from dpfit.audit.runs import Sampler
from dpfit.audit.thresholds import Scores, empirical
from dpfit.data.dataset import Dataset
from dpfit.noise import Source
from dpfit.privacy.validate import integer, option

Rows = NDArray[np.float64]
D = TypeVar("D", covariant=True)


@dataclass(frozen=True)
class Pair(Generic[D]):
    """Two neighbouring datasets and what is nasty about them."""

    name: str
    data: D
    neighbour: D


def require_neighbours(data: Any, neighbour: Any, relation: str, unit: str = "record") -> None:
    """Refuse pairs that the promise says nothing about.

    Records with user ids (`dpfit.data.dataset.Dataset.users`) are compared user by user under a
    promise to users. Streams are sequences of datasets: as many batches, and neighbours in one of
    them.

    >>> require_neighbours(np.zeros(3), np.zeros(2), "replace")
    Traceback (most recent call last):
        ...
    ValueError: not neighbours: under replace-one both datasets have the same number of records, got
    3 and 2
    """
    option("relation", relation, ("replace", "add_remove"))
    if _is_stream(data) and _is_stream(neighbour):
        _require_one_batch(data, neighbour, relation, unit)
        return
    if (
        unit == "user"
        and getattr(data, "users", None) is not None
        and getattr(neighbour, "users", None) is not None
    ):
        _require_one_user(_by_user(data), _by_user(neighbour), relation)
        return
    if not hasattr(data, "__len__") or not hasattr(neighbour, "__len__"):
        return
    sizes = len(data), len(neighbour)
    what = f"{unit}s"
    if relation == "replace" and sizes[0] != sizes[1]:
        raise ValueError(
            f"not neighbours: under replace-one both datasets have the same number of {what}, "
            f"got {sizes[0]} and {sizes[1]}"
        )
    if relation == "add_remove" and abs(sizes[0] - sizes[1]) != 1:
        raise ValueError(
            f"not neighbours: under add/remove the numbers of {what} differ by one, got "
            f"{sizes[0]} and {sizes[1]}"
        )
    if relation == "replace":
        changed = sum(
            not np.array_equal(a, b, equal_nan=_numeric(a))
            for a, b in zip(data, neighbour, strict=True)
        )
        if changed != 1:
            raise ValueError(f"not neighbours: exactly one of the {what} must differ, {changed} do")


def _is_stream(data: object) -> TypeGuard[Sequence[Dataset]]:
    return (
        isinstance(data, tuple | list)
        and bool(data)
        and all(isinstance(batch, Dataset) for batch in data)
    )


def _require_one_batch(
    data: Sequence[Dataset], neighbour: Sequence[Dataset], relation: str, unit: str
) -> None:
    if len(data) != len(neighbour):
        raise ValueError(
            f"not neighbours: streams have as many batches, got {len(data)} and {len(neighbour)}"
        )
    changed = [pair for pair in zip(data, neighbour, strict=True) if not _same_records(*pair)]
    if len(changed) != 1:
        raise ValueError(
            f"not neighbours: exactly one of the batches must differ, {len(changed)} do"
        )
    require_neighbours(*changed[0], relation, unit)


def _same_records(first: Dataset, second: Dataset) -> bool:
    pairs = zip(first, second, strict=False)
    return len(first) == len(second) and all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def _by_user(data: Dataset) -> dict[object, list[bytes]]:
    """The records of each user, in an order of their own."""
    groups: dict[object, list[bytes]] = {}
    for user, record in zip(np.asarray(data.users).tolist(), data, strict=True):
        groups.setdefault(user, []).append(np.asarray(record).tobytes())
    return {user: sorted(records) for user, records in groups.items()}


def _require_one_user(
    first: dict[object, list[bytes]], second: dict[object, list[bytes]], relation: str
) -> None:
    changed = [user for user in first.keys() | second.keys() if first.get(user) != second.get(user)]
    if len(changed) != 1:
        raise ValueError(f"not neighbours: exactly one of the users must differ, {len(changed)} do")
    if relation == "add_remove" and changed[0] in first and changed[0] in second:
        raise ValueError(
            "not neighbours: under add/remove a user is in one of the datasets only, with all "
            "records"
        )


def _numeric(value: object) -> bool:
    return bool(np.issubdtype(np.asarray(value).dtype, np.number))


def record_pairs(
    n: int, dimension: int, lower: float, upper: float, relation: str, source: Source | None = None
) -> Iterator[Pair[Rows]]:
    """Pairs of n records declared in [lower, upper]; some records break that on purpose.

    >>> [pair.name for pair in record_pairs(3, 1, 0.0, 1.0, "replace")][:3]
    ['one extreme record', 'opposite records', 'a duplicated row']
    """
    integer("n", n, least=2)
    option("relation", relation, ("replace", "add_remove"))
    middle, width = lower / 2 + upper / 2, upper - lower
    low, high = np.full(dimension, lower), np.full(dimension, upper)
    tails = _heavy_tails(n - 1, dimension, middle, width, source or Source())
    flat = np.full((n - 1, dimension), lower)
    cases: list[tuple[str, Rows, Rows, Rows]] = [
        ("one extreme record", flat, high, low),
        ("opposite records", np.full((n - 1, dimension), middle), high, low),
        ("a duplicated row", np.tile(high, (n - 1, 1)), high, low),
        ("a record far out of range", flat, np.full(dimension, upper + 1e6 * width), low),
        ("a record that is not a number", flat, np.full(dimension, np.nan), high),
        ("an infinite record", flat, np.full(dimension, np.inf), low),
        ("heavy tails", tails, high, low),
        (
            "all the mass in one record",
            np.full((n - 1, dimension), np.clip(0.0, lower, upper)),
            high,
            low,
        ),
    ]
    for name, others, record, replaced in cases:
        yield pair_of(name, others, record, replaced, relation)


def user_pairs(
    users: int, rows: int, dimension: int, lower: float, upper: float, relation: str
) -> Iterator[Pair[Rows]]:
    """User-level pairs of shape (users, rows, dimension): one user's rows change at once."""
    integer("users", users, least=2)
    option("relation", relation, ("replace", "add_remove"))
    middle = lower / 2 + upper / 2
    low, high = np.full((rows, dimension), lower), np.full((rows, dimension), upper)
    yield pair_of(
        "a user with all the mass",
        np.full((users - 1, rows, dimension), lower),
        high,
        low,
        relation,
    )
    yield pair_of(
        "opposite users", np.full((users - 1, rows, dimension), middle), high, low, relation
    )
    one_row = low.copy()
    one_row[0] = upper
    yield pair_of(
        "a user with one extreme row",
        np.full((users - 1, rows, dimension), lower),
        one_row,
        low,
        relation,
    )


def pair_of(name: str, others: Rows, record: Rows, replaced: Rows, relation: str) -> Pair[Rows]:
    """The others with a record, and the others without it or with another one in its place."""
    data = np.concatenate([others, record[None]])
    neighbour = others if relation == "add_remove" else np.concatenate([others, replaced[None]])
    return Pair(name, data, neighbour)


def _heavy_tails(n: int, dimension: int, middle: float, width: float, source: Source) -> Rows:
    """Cauchy records around the middle of the range, most of them in it."""
    return np.asarray(middle + width / 4 * np.tan(np.pi * (source.uniform((n, dimension)) - 0.5)))


def random_pairs(
    n: int, dimension: int, lower: float, upper: float, relation: str, source: Source
) -> Iterator[Pair[Rows]]:
    """Endless random pairs with entries at both ends of the range and anywhere in it."""
    levels = np.array([lower, upper, lower / 2 + upper / 2])
    while True:
        picks = source.integers(4, (n + 1, dimension))
        anywhere = lower + (upper - lower) * source.uniform((n + 1, dimension))
        rows = np.where(picks < 3, levels[np.minimum(picks, 2)], anywhere)
        if not np.array_equal(rows[-1], rows[-2]):
            yield pair_of("found by search", rows[:-2], rows[-2], rows[-1], relation)


def worst_pair(
    sampler: Sampler,
    pairs: Iterable[Pair[object]],
    *,
    runs: int = 200,
    random_state: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Pair[object]:
    """The pair distinguished best by a few runs; audit it with other runs than these."""
    candidates = list(pairs)
    if not candidates:
        raise ValueError("no pairs to choose from")
    found = advantages(sampler, candidates, runs=runs, random_state=random_state, progress=progress)
    return candidates[int(np.argmax(found))]


def advantages(
    sampler: Sampler,
    pairs: Sequence[Pair[object]],
    *,
    runs: int,
    random_state: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[float]:
    """How well a few runs separate each pair: the largest observed advantage of a test."""
    sources = (
        [None] * (2 * len(pairs))
        if random_state is None
        else Source(random_state).spawn(2 * len(pairs))
    )
    seen = []
    for index, pair in enumerate(pairs):
        one = Outcomes(sampler(pair.data, runs, sources[2 * index]))
        two = Outcomes(sampler(pair.neighbour, runs, sources[2 * index + 1]))
        found = [attack.scores(one, two) for attack in (Projection(fraction=0.3), Transcript())]
        seen.append(
            max((_advantage(scores) for scores in found if scores is not None), default=0.0)
        )
        if progress is not None:
            progress((index + 1) / len(pairs))
    return seen


def _advantage(scores: Scores) -> float:
    alarms, misses = empirical(scores)
    return float(np.max(1 - alarms - misses))
