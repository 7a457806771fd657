"""Datasets: records as mechanisms read them, whatever holds the records.

One array, a sparse matrix, a memory-mapped file and blocks of a table larger than memory are all
chunks of records. `Dataset.reduce` adds up the results of a task over the chunks; integer sums have
the same bits however records are cut.

A dataset may have user ids, for mechanisms that protect users, and may come with a ``public``
dataset. The public dataset is here because problems and plans are small, printable and written as
JSON. Neighbouring datasets differ in the private records alone.
"""

from __future__ import annotations

import functools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, Unpack

import numpy as np
import numpy.typing as npt

from dpfit.data import tasks
from dpfit.data.cells import as_numbers, listed_rows
from dpfit.data.chunk import Chunk, Users
from dpfit.data.table import Table
from dpfit.data.tasks import Task
from dpfit.kernels.bounds import Guards
from dpfit.kernels.rows import as_index, is_compressed, with_valid_columns
from dpfit.losses.base import Loss
from dpfit.losses.guards import as_floats, unmasked
from dpfit.noise.lattice import Grid

__all__ = ["Blocks", "Chunk", "Dataset", "InMemory", "RowMap", "Task", "records_of"]

Floats = npt.NDArray[np.float64]
Steps = npt.NDArray[np.int64]
Block = tuple[Any, ...]
"""Rows and labels, and user ids where there are some."""
R = TypeVar("R")
S = TypeVar("S")

_LARGE = 2**23
"""Entries from which memory-mapped rows are mapped as they are read: 64 MB of doubles."""

_PIECE = 2**18
"""Entries of a piece of mapped rows: 2 MB of doubles."""


class RowMap(Protocol):
    """A map of records, each from its own values alone: the number and the order of records stay.

    `Chunk.with_records` returns mapped rows and labels of the same users.
    """

    def __call__(self, chunk: Chunk, /) -> Chunk: ...

    def width(self, width: int, /) -> int:
        """Number of columns of mapped rows."""
        ...


class Dataset(ABC):
    """Records with labels, in chunks."""

    public: Dataset | None
    """Records that need no protection."""

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of records. Under add/remove it is private: use it to read, never to plan."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of columns of a row."""

    @abstractmethod
    def chunks(self) -> Iterator[Chunk]:
        """The records in order."""

    @property
    def whole(self) -> Chunk | None:
        """The single chunk of records in memory; None if records are read from elsewhere."""
        return None

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[Floats]:
        """The records one by one, a row followed by its label: slow, for comparing datasets."""
        for chunk in self.chunks():
            for row, label in zip(chunk.rows, chunk.labels, strict=True):
                dense = row.toarray().ravel() if hasattr(row, "toarray") else row
                yield as_floats(np.append(dense, label))

    @property
    def users(self) -> Any:
        """User id of each record as a string, None for nobody; None if there are no user ids."""
        ids = [chunk.users for chunk in self.chunks()]
        known = [some for some in ids if some is not None]
        return (
            None if len(known) < len(ids) else np.concatenate([np.empty(0, dtype=object), *known])
        )

    @property
    def has_users(self) -> bool:
        """Whether the records have user ids; public."""
        first = next(self.chunks(), None)
        return first is not None and first.users is not None

    def reduce(self, task: Task[R], *, index: Steps | None = None) -> R:
        """Return the sum of the task's results over the records, or over those of ``index``.

        The order of additions is free; exact tasks have the same bits for every cut of the records.
        The result for no records is that of an empty chunk.

        >>> InMemory([[1.0], [2.0]], [0.0, 0.0]).reduce(lambda chunk: chunk.rows.sum(axis=0))
        array([3.])
        """
        chunks = self._picked(index)
        first = next(chunks, Chunk(np.zeros((0, self.width)), np.zeros(0), 0))
        total: R = functools.reduce(operator.add, map(task, chunks), operator.add(0, task(first)))
        return total

    def fold(self, visit: Callable[[S, Chunk], S], state: S) -> S:
        """Visit the records one chunk after the other, in order, and return the last state.

        Use `reduce` where the order does not matter.
        """
        return functools.reduce(visit, self.chunks(), state)

    def map(self, rowwise: RowMap) -> Dataset:
        """Return mapped records, public ones included; files are mapped as they are read."""
        return self._mapped_as_read(rowwise)

    def _mapped_as_read(self, rowwise: RowMap) -> Blocks:
        def read() -> Iterator[Block]:
            return (_as_block(_mapped_chunk(rowwise, chunk)) for chunk in self.chunks())

        return Blocks(self.n, rowwise.width(self.width), read, _mapped_public(self, rowwise))

    def take(self, index: npt.ArrayLike) -> Chunk:
        """Return single records in memory, in the order of ``index``.

        >>> InMemory([[1.0], [2.0], [3.0]], [0.0] * 3).take([2, 0]).rows.tolist()
        [[3.0], [1.0]]
        """
        wanted = as_index(index)
        if self.whole is not None:
            return _cut(self.whole, self._checked(wanted))
        some, order = self.rows(wanted), np.argsort(wanted, kind="stable")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return Chunk(some.matrix, some.labels, 0, some.users, back)

    def gradient(
        self, loss: Loss, theta: npt.ArrayLike, *, index: Steps | None = None, values: bool = True,
        **guards: Unpack[Guards],
    ) -> tuple[float, Floats]:  # fmt: skip
        """Return the sums of loss and gradient over the records, or over those of ``index``.

        Without ``values`` the loss is NaN, which saves time where only the gradient is needed. The
        parameter of a `Softmax` loss is a matrix (d, K), or flat in C order; see
        `dpfit.kernels.passes`.

        >>> from dpfit.losses import Squared
        >>> InMemory([[3.0, 4.0], [1.0, 0.0]], [0.0, -1.0]).gradient(Squared(), [1.0, 0.0])
        (6.5, array([11., 12.]))
        """
        losses, gradients = self.gradients(
            loss, np.asarray(theta)[np.newaxis], index=index, values=values, **guards
        )
        return float(losses[0]), gradients[0]

    def gradients(
        self, loss: Loss, thetas: npt.ArrayLike, *, index: Steps | None = None, values: bool = True,
        **guards: Unpack[Guards],
    ) -> tuple[Floats, Floats]:  # fmt: skip
        """Return sums of losses and gradients at several points (k, d), reading records once."""
        losses, gradients = self.reduce(
            tasks.Gradients(loss, np.asarray(thetas), values, guards), index=index
        ).arrays  # fmt: skip
        return losses, gradients

    def clipped_sum(
        self,
        loss: Loss,
        theta: npt.ArrayLike,
        *,
        grid: Grid,
        index: Steps | None = None,
        **guards: Unpack[Guards],
    ) -> Steps:
        """Return the exact sum of clipped gradients, each rounded to the grid; without noise."""
        return self.reduce(tasks.ClippedSum(loss, theta, grid, guards), index=index).steps

    def hessian(
        self,
        loss: Loss,
        theta: npt.ArrayLike,
        *,
        index: Steps | None = None,
        **guards: Unpack[Guards],
    ) -> Floats:
        """Return the sum of the Hessians of all records, for the parameter as a vector."""
        return self.reduce(tasks.Hessian(loss, theta, guards), index=index)

    def hessian_vector(
        self,
        loss: Loss,
        theta: npt.ArrayLike,
        vector: npt.ArrayLike,
        *,
        index: Steps | None = None,
        **guards: Unpack[Guards],
    ) -> Floats:
        """Return the sum of the Hessians applied to a vector, in the shape of the vector."""
        return self.reduce(tasks.HessianVector(loss, theta, vector, guards), index=index)

    def gram(
        self, *, index: Steps | None = None, **guards: Unpack[Guards]
    ) -> tuple[Floats, Floats]:
        """Return the sums of x x^T and of x y over guarded records."""
        square, cross = self.reduce(tasks.Gram(guards), index=index).arrays
        return square, cross

    def rows(self, index: Steps) -> InMemory:
        """Return some records in increasing order, in memory, with users and public dataset."""
        # Copies, one chunk after the other: the chunks themselves may hold all records.
        parts = [
            (chunk.rows, chunk.labels, chunk.users) for chunk in self._picked(index) if len(chunk)
        ]
        if not parts:
            return InMemory(np.zeros((0, self.width)), np.zeros(0), public=self.public)
        rows, labels, users = zip(*parts, strict=True)
        ids = None if users[0] is None else np.concatenate(users)
        return InMemory(_stacked(rows), np.concatenate(labels), ids, self.public)

    def _picked(self, index: Steps | None) -> Iterator[Chunk]:
        """Each chunk, cut to the records of ``index`` that lie in it (None: all)."""
        if index is None:
            yield from self.chunks()
            return
        order = np.sort(self._checked(as_index(index)))
        for chunk in self.chunks():
            low, high = np.searchsorted(order, [chunk.start, chunk.start + len(chunk)])
            # The first chunk comes in any case, so that arguments are checked for empty samples,
            # too.
            if low < high or chunk.start == 0:
                yield _cut(chunk, order[low:high] - chunk.start)
            if high == len(order):
                return

    def _checked(self, index: Steps) -> Steps:
        if len(index) and (index.min() < 0 or index.max() >= self.n):
            # The number of records may be private.
            raise ValueError("an index points outside the records")
        return index


@dataclass(frozen=True, eq=False, repr=False)
class InMemory(Dataset):
    """Rows and labels in arrays; nothing is copied.

    Parameters
    ----------
    matrix
        Rows: float64 or float32 of any layout (memory-mapped ones too), other numbers, or a CSR
        matrix of scipy.
    labels
        One number for each row.
    users
        Whose record each row is: ids that are compared as texts. A row without one (``None``, NaN)
        is nobody's, and no algorithm that protects users reads it. ``None`` if every record is a
        unit of its own.
    public
        A side dataset that needs no protection.

    Examples
    --------
    >>> len(InMemory([[1.0, 2.0]], [0.0])), InMemory([[1.0, 2.0]], [0.0]).width
    (1, 2)
    """

    matrix: Any
    labels: Any
    users: Any = None
    public: Dataset | None = None

    def __post_init__(self) -> None:
        matrix = (
            with_valid_columns(self.matrix)
            if is_compressed(self.matrix)
            else _array("matrix", self.matrix, 2)
        )
        labels = _array("labels", self.labels, 1)
        if matrix.dtype.kind not in "biuf" or labels.dtype.kind not in "biuf":
            raise ValueError(
                f"{'labels' if matrix.dtype.kind in 'biuf' else 'matrix'} must hold numbers"
            )
        if matrix.shape[0] != len(labels):
            # No number is quoted: that of records may be private.
            raise ValueError("labels must have one entry for each row, neither more nor fewer")
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "labels", labels)
        if self.users is not None:
            users = _ids(self.users)
            if len(users) != len(labels):
                raise ValueError("users must have one id for each row, neither more nor fewer")
            object.__setattr__(self, "users", users)
        _check_public(self)

    def __repr__(self) -> str:
        # What is printed may be logged: shapes, no records.
        users = "" if self.users is None else ", with users"
        public = "" if self.public is None else f", public={self.public!r}"
        return f"InMemory({self.n} records of width {self.width}{users}{public})"

    @property
    def n(self) -> int:
        return len(self.labels)

    @property
    def width(self) -> int:
        return int(self.matrix.shape[1])

    def chunks(self) -> Iterator[Chunk]:
        yield self.whole

    @property
    def whole(self) -> Chunk:
        return Chunk(self.matrix, self.labels, 0, self.users)

    def map(self, rowwise: RowMap) -> Dataset:
        """Return mapped records; large memory-mapped rows are mapped each time they are read."""
        if self.matrix.size >= _LARGE and _is_memory_mapped(self.matrix):
            return MappedAsRead(self, rowwise, _mapped_public(self, rowwise))
        return self._mapped(rowwise)

    def _mapped(self, rowwise: RowMap) -> InMemory:
        mapped, width = _mapped_chunk(rowwise, self.whole), rowwise.width(self.width)
        result = InMemory(mapped.rows, mapped.labels, mapped.users, _mapped_public(self, rowwise))
        if result.width != width:
            raise ValueError(
                f"a row map must return {width} columns as it says, got {result.width}"
            )
        return result

    @staticmethod
    def memory_mapped(matrix: str | Path, labels: str | Path) -> InMemory:
        """Two ``.npy`` files, read by the operating system as they are needed."""
        return InMemory(_mapped(matrix), _mapped(labels))


@dataclass(frozen=True, eq=False, repr=False)
class MappedAsRead(Dataset):
    """Records in memory that are mapped piece by piece, each time they are read.

    A map takes each record by itself, so a sample is mapped after it is taken.
    """

    source: InMemory
    rowwise: RowMap
    public: Dataset | None = None

    @property
    def n(self) -> int:
        return self.source.n

    @property
    def width(self) -> int:
        return self.rowwise.width(self.source.width)

    @property
    def users(self) -> Any:
        return self.source.users

    @property
    def has_users(self) -> bool:
        return self.source.users is not None

    def chunks(self) -> Iterator[Chunk]:
        yield from self._picked(None)

    def take(self, index: npt.ArrayLike) -> Chunk:
        return _mapped_chunk(self.rowwise, self.source.take(index))

    def rows(self, index: Steps) -> InMemory:
        mapped = replace(self.source.rows(index), public=None)._mapped(self.rowwise)
        return replace(mapped, public=self.public)

    def _picked(self, index: Steps | None) -> Iterator[Chunk]:
        for chunk in self.source._picked(index):
            size = max(1, _PIECE // max(1, self.width))
            for start in range(0, max(1, len(chunk)), size):
                yield _mapped_chunk(self.rowwise, _piece(chunk, start, start + size))


@dataclass(frozen=True, eq=False)
class Blocks(Dataset):
    """Records read block by block each time they are needed; memory holds one block.

    ``read`` gives the blocks, (rows, labels) or (rows, labels, users), in order and afresh at each
    call.

    Parameters
    ----------
    block_size : int, optional
        Number of records that ``read_block`` returns; the last block may have fewer.
    read_block : callable, optional
        Returns the block of a number, so that records are visited block by block in any order.
    """

    n_records: int
    row_width: int
    read: Callable[[], Iterator[Block]]
    public: Dataset | None = None
    block_size: int | None = None
    read_block: Callable[[int], Block] | None = None

    def __post_init__(self) -> None:
        _check_public(self)
        if (self.block_size is None) != (self.read_block is None):
            raise ValueError("block_size and read_block go together; pass both or neither")

    def map(self, rowwise: RowMap) -> Dataset:
        """Return records that are mapped as they are read; blocks stay blocks."""
        mapped, size, read_block = self._mapped_as_read(rowwise), self.block_size, self.read_block
        if size is None or read_block is None:
            return mapped

        def read_mapped(number: int) -> Block:
            return _as_block(_mapped_chunk(rowwise, _as_chunk(read_block(number), number * size)))

        return replace(mapped, block_size=size, read_block=read_mapped)

    def take(self, index: npt.ArrayLike) -> Chunk:
        wanted = self._checked(as_index(index))
        if self.block_size is None or self.read_block is None or not len(wanted):
            return super().take(wanted)
        number = int(wanted[0]) // self.block_size
        if np.any(wanted // self.block_size != number):
            return super().take(wanted)
        start = number * self.block_size
        return replace(_as_chunk(self._block(number, self.read_block), start), index=wanted - start)

    def _block(self, number: int, read: Callable[[int], Block]) -> Block:
        """Return a block; the last one is kept, since a part may end inside of it."""
        kept: tuple[int, Block] | None = self.__dict__.get("_kept")
        if kept is None or kept[0] != number:
            object.__setattr__(self, "_kept", None)
            kept = (number, read(number))
            object.__setattr__(self, "_kept", kept)
        return kept[1]

    @property
    def n(self) -> int:
        return self.n_records

    @property
    def width(self) -> int:
        return self.row_width

    def chunks(self) -> Iterator[Chunk]:
        start = 0
        for block in self.read():
            chunk = _as_chunk(block, start)
            yield chunk
            start += len(chunk)


def records_of(
    source: object, labels: object, users: object = None, *, public: Dataset | None = None
) -> InMemory:
    """InMemory, sparse matrices and the number columns of data frames as records.

    Parameters
    ----------
    source
        A matrix as in `InMemory`, or a pandas, polars or Arrow table or a mapping from names to
        columns. A cell of a table that is not a number is missing, and a record with a missing
        entry is neutral; texts and categories need a `dpfit.data.schema.Schema`.
    labels, users
        One for each row; of a table also the name of a column, which is then not among the rows.
    public
        A side dataset that needs no protection.

    Examples
    --------
    >>> table = {"age": [31, 5], "height": [1.7, 1.1], "stay": [3, 4], "who": ["ann", "bob"]}
    >>> data = records_of(table, "stay", "who")
    >>> data.matrix.tolist(), data.labels.tolist(), data.users.tolist()
    ([[31.0, 1.7], [5.0, 1.1]], [3.0, 4.0], ['ann', 'bob'])
    """
    if isinstance(source, np.ndarray | list | tuple) or is_compressed(source):
        return InMemory(source, labels, users, public)
    table, taken = Table(source), [name for name in (labels, users) if isinstance(name, str)]
    rows = [table.numbers(name) for name in table.names if name not in taken]
    return InMemory(
        np.stack(rows, axis=1) if rows else np.zeros((table.rows, 0)),
        table.numbers(labels) if isinstance(labels, str) else labels,
        table.texts(users) if isinstance(users, str) else users,
        public,
    )


def _ids(users: object) -> Users:
    return np.array(Table({"users": users}).texts("users"), dtype=object)


def _mapped(path: str | Path) -> object:
    try:
        return np.load(path, mmap_mode="r")
    except (ValueError, EOFError, OSError, OverflowError) as error:
        if isinstance(error, OSError) and error.filename:
            raise ValueError(f"cannot open {error.filename}: {error.strerror}") from None
        raise ValueError(f"{Path(path).name} is not a readable .npy file of numbers") from None


def _array(name: str, values: object, axes: int) -> npt.NDArray[Any]:
    given = unmasked(name, values)
    if isinstance(given, list | tuple):
        # A list has no dtype: were it that of all cells, one cell would decide about all.
        if axes == 2:
            return listed_rows(name, given)
        return as_numbers(given)
    try:
        array: npt.NDArray[Any] = np.asanyarray(given)
    except (ValueError, TypeError, OverflowError):
        # The original message may quote what is in there.
        raise ValueError(f"{name} must be an array of numbers") from None
    if array.ndim != axes:
        raise ValueError(f"{name} must have {axes} axes, got {array.ndim}")
    return array


def _check_public(data: Dataset) -> None:
    if data.public is not None and not (
        isinstance(data.public, Dataset) and data.public.width == data.width
    ):
        raise ValueError("public data must be records as wide as the private ones")


def _cut(chunk: Chunk, local: Steps) -> Chunk:
    """The records of a chunk with these numbers in it."""
    users = chunk.stored_users
    index = local if chunk.index is None else chunk.index[local]
    return Chunk(chunk.stored_rows, chunk.stored_labels, chunk.start, users, index)


def _piece(chunk: Chunk, start: int, stop: int) -> Chunk:
    """The records of a chunk from ``start`` to before ``stop``."""
    if chunk.index is not None:
        return _cut(chunk, np.arange(start, min(stop, len(chunk))))
    users = None if chunk.stored_users is None else chunk.stored_users[start:stop]
    rows, labels = chunk.stored_rows[start:stop], chunk.stored_labels[start:stop]
    return Chunk(rows, labels, chunk.start + start, users)


def _is_memory_mapped(array: Any) -> bool:
    """Whether a file holds the entries, also those of a view of it."""
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return array is not None


def _mapped_chunk(rowwise: RowMap, chunk: Chunk) -> Chunk:
    mapped = rowwise(chunk)
    if len(mapped) != len(chunk) or mapped.rows.shape[0] != len(chunk):
        # Neither number is quoted: under add/remove they are private.
        raise ValueError("a row map must return one record for each record")
    return mapped


def _as_chunk(block: Block, start: int) -> Chunk:
    rows, labels, *users = block
    return Chunk(rows, labels, start, _ids(users[0]) if users else None)


def _as_block(chunk: Chunk) -> Block:
    return chunk.rows, chunk.labels, *(() if chunk.users is None else (chunk.users,))


def _mapped_public(data: Dataset, rowwise: RowMap) -> Dataset | None:
    return None if data.public is None else data.public.map(rowwise)


def _stacked(rows: tuple[Any, ...]) -> Any:
    if len(rows) == 1:
        return rows[0]
    if is_compressed(rows[0]):
        from scipy.sparse import vstack

        return vstack(rows, format="csr")
    return np.concatenate(rows)
