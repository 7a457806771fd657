"""Views: a dataset with one random position in [0, 1) for each privacy unit.

Parts, phases, fresh batches and the visiting order are intervals of positions.
One rule makes them private: a unit's part depends on its own position only, and positions do not
depend on values. Statement and proof: docs/explanation/parts.md.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, ClassVar, NoReturn, Protocol, TypeVar, Unpack

import numpy as np
import numpy.typing as npt

from dpfit.data.chunk import Chunk
from dpfit.data.dataset import Blocks, Dataset, InMemory, RowMap
from dpfit.data.tasks import Task, UserGradients
from dpfit.data.users import user_codes
from dpfit.kernels.bounds import Guards
from dpfit.kernels.rows import as_index
from dpfit.losses.base import Loss
from dpfit.noise import Grid, Source
from dpfit.privacy.validate import integer, option, probability

Index = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]
R = TypeVar("R")
S = TypeVar("S")

_WINDOW = 2**18
"""Records in memory while a view is visited in the order of positions; a file is read once for each
window.
"""

_SHARES = Fraction(1, 2**40)
"""Shares add up to one within this number."""


def part_sizes(n: int, shares: Sequence[float | Fraction]) -> tuple[int, ...]:
    """Return the numbers of units in consecutive parts of n units, one part for each share.

    The unit of rank r has position (r + 1/2) / n. So cut j lies at rank ceil(n s_j - 1/2), in exact
    arithmetic, s_j being the sum of the first j shares.
    Planners and `View.parts` under replace-one share this rule.
    Sizes add up to n, and a size differs from n * share by at most 1.
    The parts of a part have the sizes ``part_sizes(size, shares)``.

    >>> part_sizes(10, (0.5, 0.25, 0.25)), part_sizes(5, (1 / 3, 1 / 3, 1 / 3))
    ((5, 2, 3), (2, 1, 2))
    """
    n = integer("n", n, least=0)
    return tuple(
        high - low for low, high in pairwise(_cut_rank(n, point) for point in _cut_points(shares))
    )


class View(Dataset):
    """What one execution sees of a dataset: all units, a part of them, or a sample.

    Positions are drawn from ``source`` on first use, once for all parts of a view, so that parts
    are disjoint. Under replace-one they are the ranks of a uniform random permutation: the number
    of units in an interval is public. Under add/remove every unit draws its own uniform position:
    numbers of units are private. A view by users leaves out records of nobody.

    Guarantee: mechanisms on disjoint parts, each adaptive on earlier outputs, lose together what
    the worst one loses. Reference: docs/explanation/parts.md.

    Parameters
    ----------
    dataset : Dataset
        The records.
    relation : {"replace", "add_remove"}
        The neighbouring relation of the guarantee.
    unit : {"record", "user"}
        The privacy unit; "user" needs user ids.
    source : Source
        Where positions and samples come from. Make one view for each run: positions must not be
        used again.
    given : object, optional
        The caller's object, for mechanisms whose queries are functions of it; by default the
        dataset.

    Examples
    --------
    >>> data = InMemory([[1.0], [2.0], [3.0], [4.0]], [0.0] * 4)
    >>> first, second = View(data, "replace", "record", Source()).parts((0.5, 0.5))
    >>> values = sorted([*first.whole.rows[:, 0], *second.whole.rows[:, 0]])
    >>> first.n, second.n, values == [1.0, 2.0, 3.0, 4.0]
    (2, 2, True)
    """

    def __init__(
        self, dataset: Dataset, relation: str, unit: str, source: Source, *, given: object = None
    ) -> None:
        if not isinstance(dataset, Dataset):
            raise ValueError(
                f"data must be a Dataset, got {type(dataset).__name__}; wrap it as "
                "InMemory(rows, labels)"
            )
        self._dataset = dataset
        self.public = dataset.public
        self.touched = False
        self.relation = option("relation", relation, ("replace", "add_remove"))
        self.unit = option("unit", unit, ("record", "user"))
        self.source = source
        self._given = dataset if given is None else given
        self._units: _Units = _UnitsOf(dataset, unit)
        kind: type[_Positions] = _Ranks if relation == "replace" else _Coins
        self._positions: _Positions = kind.fresh(self._units, source)

    def _changed(self, dataset: Dataset, units: _Units, positions: _Positions) -> View:
        """Another view of this run, without ``given``: its records precede maps and selections."""
        view = View(dataset, self.relation, self.unit, self.source)
        view._given, view._units, view._positions = None, units, positions
        return view

    @property
    def dataset(self) -> Dataset:
        """The records; ``touched`` says whether anything has asked for them."""
        self.touched = True
        return self._dataset

    @property
    def given(self) -> Any:
        """The caller's object; parts, samples and mapped views have none."""
        self.touched = True
        if self._given is None:
            raise ValueError(
                "given is defined on the caller's whole data only; read the records of the view "
                "instead"
            )
        return self._given

    @property
    def n(self) -> int:
        self.touched = True
        if self._units.codes is None:
            return self.n_units
        return self.dataset.n if self._index is None else len(self._index)

    @property
    def n_units(self) -> int:
        """Number of units in the view: public under replace-one, private under add/remove."""
        return self._positions.n

    @property
    def width(self) -> int:
        return self.dataset.width

    @cached_property
    def whole(self) -> Chunk | None:
        whole = self.dataset.whole
        return whole if whole is None or self._index is None else self.dataset.take(self._index)

    def chunks(self) -> Iterator[Chunk]:
        if self._index is None:
            yield from self.dataset.chunks()
        elif self.whole is not None:
            yield self.whole
        else:
            start = 0
            for chunk in self.dataset._picked(self._index):
                yield replace(chunk, start=start)
                start += len(chunk)

    def reduce(self, task: Task[R], *, index: Index | None = None) -> R:
        rows = self._index
        if rows is not None and index is not None:
            rows = rows[self._checked(as_index(index))]
        return self.dataset.reduce(task, index=index if rows is None else rows)

    def unit_means(
        self, loss: Loss, theta: npt.ArrayLike, *, grid: Grid, **guards: Unpack[Guards]
    ) -> Floats:
        """Return the mean guarded gradient of each unit's records, NaN where there are none.

        The bits of a unit's mean depend on its own records alone, in any order. Units that are not
        in the view have no records in it.
        """
        codes = self._units.codes
        known = np.arange(self.dataset.n) if codes is None else codes
        task = UserGradients(loss, theta, known, self._units.n, grid, guards)
        return self.reduce(task).means

    def by_unit(self) -> Iterator[tuple[Floats, Floats]]:
        """Yield the finite rows and labels of each unit in the view, in its own order."""
        index = np.arange(self.dataset.n) if self._index is None else self._index
        codes = index if self._units.codes is None else self._units.codes[index]
        chunk = self.dataset.take(index)
        rows = chunk.rows.toarray() if hasattr(chunk.rows, "toarray") else chunk.rows
        rows, labels = np.asarray(rows, dtype=np.float64), np.asarray(chunk.labels)
        usable = np.isfinite(rows).all(axis=1) & np.isfinite(labels)
        order = np.argsort(codes, kind="stable")
        order = order[usable[order]]
        ends = np.searchsorted(codes[order], np.arange(self._units.n + 1))
        for low, high in pairwise(ends):
            yield rows[order[low:high]], labels[order[low:high]]

    def take(self, index: npt.ArrayLike) -> Chunk:
        wanted = self._checked(as_index(index))
        return self.dataset.take(wanted if self._index is None else self._index[wanted])

    def rows(self, index: Index) -> InMemory:
        wanted = self._checked(as_index(index))
        return self.dataset.rows(wanted if self._index is None else self._index[wanted])

    def fold(self, visit: Callable[[S, Chunk], S], state: S) -> S:
        """Visit the records in the order of their units' positions and return the last state.

        A chunk holds the positions of its records, rescaled to [0, 1), and all records of its
        users. Work: one read of a file for each 262,144 records, or one in all `by_blocks`.
        """
        order, start = self._positions.order(), 0
        if self._units.codes is None:
            rows, ranks = order, np.arange(len(order))
        else:
            rank = np.full(self._units.n + 1, -1)
            rank[order] = np.arange(len(order))
            ranks = rank[self._units.codes]
            rows = np.argsort(ranks, kind="stable")
            rows = rows[np.searchsorted(ranks[rows], 0) :]
            ranks = ranks[rows]
        size = self._block_size if self._positions.by_blocks else None
        while start < len(rows):
            stop = min(start + _WINDOW, len(rows))
            if size is not None:
                stop = min(stop, start + size)
                inside = rows[start:stop] // size == rows[start] // size
                stop = start + int(np.argmin(inside)) if not inside.all() else stop
            stop = int(np.searchsorted(ranks, ranks[stop - 1], side="right"))
            chunk = self.dataset.take(rows[start:stop])
            positions = self._positions.values(order, ranks[start:stop])
            state = visit(state, replace(chunk, start=start, positions=positions))
            start = stop
        return state

    def by_blocks(self) -> View:
        """Return the view whose positions keep the records of a block of a file together.

        Blocks come in random order, and so do the records of each: a visit in the order of
        positions reads every block once. Other data keep their positions.
        Guarantee: replace-one for records only, and only if the order of the records does not
        depend on their values, which the caller declares.
        """
        if self.relation != "replace" or self.unit != "record" or not self._positions.uncut:
            raise ValueError("positions by blocks are for whole data, records and replace-one")
        size = self._block_size
        if size is None:
            return self
        starts, n, source = np.arange(0, self.n_units, size), self.n_units, self.source

        def draw() -> Index:
            order, filled = np.empty(n, dtype=np.int64), 0
            for low in starts[source.permutation(len(starts))].tolist():
                block = low + source.permutation(min(size, n - low))
                order[filled : filled + len(block)] = block
                filled += len(block)
            return order

        positions = _Ranks(self._units, _Once(draw), by_blocks=True)
        return self._changed(self.dataset, self._units, positions)

    @property
    def _block_size(self) -> int | None:
        """Number of records in a block that can be read alone."""
        dataset = self.dataset
        return dataset.block_size if isinstance(dataset, Blocks) else None

    def map(self, rowwise: RowMap) -> View:
        """Return the view of mapped records; units keep their positions."""
        if self._index is None or self.whole is None:
            return self._changed(self.dataset.map(rowwise), self._units, self._positions)
        part, codes = self.whole, self._units.codes
        held = InMemory(part.rows, part.labels, part.users, self.public)
        units = _KnownUnits(self._index if codes is None else codes[self._index], self._units.n)
        return self._changed(held.map(rowwise), units, self._positions)

    def between(self, low: float | Fraction, high: float | Fraction) -> View:
        """Return the units with low <= position < high; their positions are rescaled to [0, 1).

        A float within 2**-50 of a fraction with denominator at most 2**20 is read as this fraction:
        cuts at ``3 / 10`` and shares of ``0.1`` agree.
        """
        ends = _fraction("low", low), _fraction("high", high)
        if ends[0] > ends[1]:
            raise ValueError(f"low must be at most high, got {low!r} and {high!r}")
        return self._changed(self.dataset, self._units, self._positions.between(*ends))

    def parts(self, shares: Sequence[float | Fraction]) -> tuple[View, ...]:
        """Return consecutive disjoint parts, one for each share; shares add up to 1.

        Under replace-one their numbers of units are ``part_sizes(n_units, shares)``.
        """
        return tuple(self.between(low, high) for low, high in pairwise(_cut_points(shares)))

    def sample(self, *, rate: float | None = None, size: int | None = None) -> View:
        """Return a fresh random sample of the units, independent of positions and earlier samples.

        A sample has its own positions. The size of a Poisson sample is private: amplification
        relies on it.

        Parameters
        ----------
        rate : float, optional
            Poisson sample: each unit with exactly this probability, independently. Valid under both
            relations.
        size : int, optional
            Uniformly random set of this many units, without replacement. It needs a public number
            of units.
        """
        if (rate is None) == (size is None):
            raise ValueError("pass either rate or size")
        if rate is not None:
            kind: type[_Positions] = _Coins
            chosen = np.flatnonzero(self.source.bernoulli(probability("rate", rate), self.n_units))
        elif not self._positions.public_n:
            raise ValueError("a sample of fixed size needs a public number of units; pass rate")
        elif integer("size", size, least=0) > self.n_units:
            raise ValueError(
                f"size must be at most the number of units, {self.n_units}, got {size}"
            )
        else:
            kind, chosen = _Ranks, self.source.permutation(self.n_units)[:size]
        code = np.full(self._units.n + 1, -1)
        code[self._members[chosen]] = np.arange(len(chosen))
        units = _KnownUnits(
            code[:-1] if self._units.codes is None else code[self._units.codes], len(chosen)
        )
        return self._changed(self.dataset, units, kind.fresh(units, self.source))

    def with_fresh_positions(self, dataset: Dataset, unit: str | None = None) -> View:
        """Return the view of a dataset whose records a transformation dropped or regrouped.

        Every unit draws its own position, also under replace-one: a replaced user may change the
        number of units.
        """
        view = View(dataset, self.relation, self.unit if unit is None else unit, self.source)
        view._positions = _Coins.fresh(view._units, self.source)
        return view

    @cached_property
    def _index(self) -> Index | None:
        """Numbers of the view's records in the dataset, increasing; None: all."""
        codes = self._units.codes
        if self._positions.uncut:
            return None if codes is None or bool(np.all(codes >= 0)) else np.flatnonzero(codes >= 0)
        if codes is None:
            return np.sort(self._positions.order())
        inside = np.zeros(self._units.n + 1, dtype=np.bool_)
        inside[self._positions.order()] = True
        return np.flatnonzero(inside[codes])

    @property
    def _members(self) -> Index:
        """Numbers of the view's units, increasing."""
        return (
            np.arange(self._units.n) if self._positions.uncut else np.sort(self._positions.order())
        )

    def __repr__(self) -> str:
        # Numbers of records are private under add/remove, in samples and in parts of users.
        return f"View(relation={self.relation!r}, unit={self.unit!r}, width {self.width})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a View cannot be pickled: its positions are private randomness; send its chunks"
        )


class OpaqueView(View):
    """Data that are not records: an array for a mean, a table for counts, anything for queries.

    Mechanisms read ``given`` in their own way. There are no parts: which units such data hold is
    not known.
    """

    def __init__(self, given: object, relation: str, unit: str, source: Source) -> None:
        self._dataset, self.public = None, None  # type: ignore[assignment]
        self.relation, self.unit, self.source = relation, unit, source
        self._given, self.touched = given, False

    @property
    def has_users(self) -> bool:
        """Whether the data say whose they are: what they declare."""
        return bool(getattr(self._given, "has_users", False))

    def parts(self, shares: Sequence[float | Fraction]) -> tuple[View, ...]:
        raise ValueError("parts need records; wrap the data as InMemory(rows, labels)")

    def __repr__(self) -> str:
        return f"OpaqueView({type(self._given).__name__})"


def require_records(data: View) -> None:
    """Refuse data that are not records."""
    if isinstance(data, OpaqueView):
        got = type(data.given).__name__
        raise ValueError(f"data must be a Dataset, got {got}; wrap it as InMemory(rows, labels)")


def view_of(data: object, relation: str, unit: str, source: Source) -> View:
    """Return what one execution sees of the caller's data."""
    if isinstance(data, View):
        return data
    if isinstance(data, Dataset):
        return View(data, relation, unit, source)
    return OpaqueView(data, relation, unit, source)


class _Units(Protocol):
    """Which unit each record belongs to."""

    @property
    def codes(self) -> Index | None:
        """The number of each record's unit, -1 for no unit; None: record i is unit i."""
        ...

    @property
    def n(self) -> int:
        """Number of units."""
        ...


class _UnitsOf:
    """The records or users of a dataset, numbered on first use."""

    def __init__(self, dataset: Dataset, unit: str) -> None:
        self._dataset, self._unit = dataset, unit

    @cached_property
    def codes(self) -> Index | None:
        if self._unit == "record":
            return None
        ids = self._dataset.users
        if ids is None:
            raise ValueError("data must have user ids to protect users; pass users")
        return user_codes(ids)

    @cached_property
    def n(self) -> int:
        return self._dataset.n if self.codes is None else int(self.codes.max(initial=-1)) + 1


@dataclass(frozen=True, eq=False, repr=False)
class _KnownUnits:
    codes: Index | None
    n: int


class _Positions(ABC):
    """An interval of positions; all intervals of a view share one draw."""

    public_n: ClassVar[bool]
    by_blocks: bool = False

    @classmethod
    @abstractmethod
    def fresh(cls, units: _Units, source: Source) -> _Positions:
        """New positions, drawn on first use."""

    @property
    @abstractmethod
    def uncut(self) -> bool:
        """Whether no cut was made."""

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of units inside."""

    @abstractmethod
    def between(self, low: Fraction, high: Fraction) -> _Positions:
        """The part of this interval from low to high, as fractions of it."""

    @abstractmethod
    def order(self) -> Index:
        """The units inside, by their positions."""

    @abstractmethod
    def values(self, order: Index, ranks: Index) -> Floats:
        """The positions of the units of these ranks in the order, rescaled to [0, 1)."""


@dataclass(frozen=True, eq=False, repr=False)
class _Ranks(_Positions):
    """Ranks of a uniform random permutation, for a public number of units."""

    public_n = True
    units: _Units
    permutation: Callable[[], Index]
    ends: tuple[int, int] | None = None
    by_blocks: bool = False

    @classmethod
    def fresh(cls, units: _Units, source: Source) -> _Ranks:
        return cls(units, _Once(lambda: source.permutation(units.n)))

    @property
    def uncut(self) -> bool:
        return self.ends is None

    @property
    def n(self) -> int:
        low, high = self.ends or (0, self.units.n)
        return high - low

    def between(self, low: Fraction, high: Fraction) -> _Ranks:
        start = self.ends[0] if self.ends else 0
        return replace(self, ends=(start + _cut_rank(self.n, low), start + _cut_rank(self.n, high)))

    def order(self) -> Index:
        low, high = self.ends or (0, self.units.n)
        return self.permutation()[low:high]

    def values(self, order: Index, ranks: Index) -> Floats:
        return (ranks + 0.5) / max(len(order), 1)


@dataclass(frozen=True, eq=False, repr=False)
class _Coins(_Positions):
    """Independent uniform positions, one for each unit, for a private number of units."""

    public_n = False
    units: _Units
    digits: _Digits
    low: Fraction = Fraction(0)
    high: Fraction = Fraction(1)

    @classmethod
    def fresh(cls, units: _Units, source: Source) -> _Coins:
        return cls(units, _Digits(lambda: source.words(units.n)))

    @property
    def uncut(self) -> bool:
        return self.high - self.low == 1

    @property
    def n(self) -> int:
        return self.units.n if self.uncut else len(self._inside())

    def between(self, low: Fraction, high: Fraction) -> _Coins:
        width = self.high - self.low
        return replace(self, low=self.low + width * low, high=self.low + width * high)

    def _inside(self) -> Index:
        return np.flatnonzero(self.digits.below(self.high) & ~self.digits.below(self.low))

    def order(self) -> Index:
        return self.digits.sorted(self._inside())

    def values(self, order: Index, ranks: Index) -> Floats:
        # In exact arithmetic positions are in [low, high); in doubles the quotient may round to 1.
        low, width = float(self.low), float(self.high - self.low)
        return np.clip(
            (self.digits.leading(order[ranks]) - low) / (width or 1.0),
            0.0,
            math.nextafter(1.0, 0.0),
        )


class _Once:
    """A permutation that is drawn once, by the first thread that asks for it."""

    def __init__(self, draw: Callable[[], Index]) -> None:
        self._draw, self._lock = draw, threading.Lock()
        self._value: Index | None = None

    def __call__(self) -> Index:
        with self._lock:
            if self._value is None:
                self._value = self._draw()
            return self._value


class _Digits:
    """Uniform numbers in [0, 1) with as many binary digits as exact comparisons need."""

    def __init__(self, draw: Callable[[], Words]) -> None:
        self._draw, self._lock = draw, threading.Lock()
        self._columns: list[Words] = []

    def _column(self, number: int) -> Words:
        """The digits 64 number to 64 number + 63 of all numbers."""
        with self._lock:
            while len(self._columns) <= number:
                self._columns.append(self._draw())
            return self._columns[number]

    def below(self, point: Fraction) -> npt.NDArray[np.bool_]:
        """Whether each number is less than a point of [0, 1]."""
        below = np.full(len(self._column(0)), point >= 1)
        undecided, column, rest = ~below, 0, point
        while rest > 0 and bool(undecided.any()):
            digits, words = int(rest * 2**64), self._column(column)
            below |= undecided & (words < np.uint64(digits))
            undecided &= words == np.uint64(digits)
            rest, column = rest * 2**64 - digits, column + 1
        return below

    def sorted(self, units: Index) -> Index:
        """The units by their numbers."""
        columns = [self._column(0)[units]]
        while True:
            order = np.lexsort(columns[::-1])
            tied = np.all([np.diff(words[order]) == 0 for words in columns], axis=0)
            if not tied.any():
                return units[order]
            columns.append(self._column(len(columns))[units])

    def leading(self, units: Index) -> Floats:
        """The numbers to double precision."""
        return self._column(0)[units].astype(np.float64) * 2.0**-64


def _cut_rank(n: int, point: Fraction) -> int:
    """The number of ranks r with (r + 1/2) / n < point: ceil(n point - 1/2), at least 0."""
    return max(0, -((point.denominator - 2 * n * point.numerator) // (2 * point.denominator)))


def _cut_points(shares: Sequence[float | Fraction]) -> tuple[Fraction, ...]:
    exact = [_fraction("share", share) for share in shares]
    total = sum(exact, Fraction(0))
    if not exact or min(exact) <= 0 or abs(total - 1) > _SHARES:
        raise ValueError(
            f"shares must be positive and add up to 1, got {tuple(map(float, shares))}"
        )
    return tuple(point / total for point in accumulate(exact, initial=Fraction(0)))


def _fraction(name: str, value: float | Fraction) -> Fraction:
    if isinstance(value, Fraction):
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must lie between 0 and 1, got {value!r}")
        return value
    exact = Fraction(probability(name, value))
    near = exact.limit_denominator(2**20)
    return near if abs(near - exact) <= Fraction(1, 2**50) else exact
