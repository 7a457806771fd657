"""Records as solvers see them: how many, how wide, and the sums that the kernels can compute.

Nothing in a solver knows whether the rows are one array, a sparse matrix, a memory-mapped file or blocks of a table
that is larger than memory: all of them are chunks, and sums add up over chunks. Fixed-point sums are the same to the
last bit however the records are cut. Which loss is summed over which kind of rows is settled in `dpfit.kernels.passes`.

Data may say whose records they are (`users`), for algorithms that protect users, and may come with a `public` side
dataset. That one is here, and not in a problem or a plan, because those are small, printable and written as JSON,
while a mechanism gets records only when it runs; neighbouring data differ in the private records alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from dpfit.data.sampling import Records, Units, Users
from dpfit.data.table import Table
from dpfit.kernels import passes
from dpfit.kernels.bounds import Guards
from dpfit.kernels.rounding import pairwise
from dpfit.kernels.rows import as_index, is_compressed, with_valid_columns
from dpfit.losses.base import Loss
from dpfit.losses.guards import as_floats, unmasked
from dpfit.noise.lattice import LIMIT, Grid

Floats = npt.NDArray[np.float64]
Steps = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Chunk:
    """Some consecutive records: rows, labels, the number of the first, and whose they are."""

    rows: Any
    labels: Any
    start: int
    users: Any = None


class Dataset(ABC):
    """Rows with labels, in chunks."""

    public: Dataset | None
    """Records that need no protection."""

    @property
    @abstractmethod
    def n(self) -> int:
        """How many records. Under add/remove this is private: use it to read, never to plan."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many numbers a row has."""

    @abstractmethod
    def chunks(self) -> Iterator[Chunk]:
        """The records in order."""

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[Floats]:
        """The records one by one, each a row followed by its label: slow, for comparing data sets."""
        for chunk in self.chunks():
            for row, label in zip(chunk.rows, chunk.labels, strict=True):
                dense = row.toarray().ravel() if hasattr(row, "toarray") else row
                yield as_floats(np.append(dense, label))

    @property
    def users(self) -> Any:
        """Whose each record is, as a text, and None where it names nobody; None if the records do not say."""
        ids = [np.empty(0, dtype=object), *(chunk.users for chunk in self.chunks())]
        return None if any(some is None for some in ids) else np.concatenate(ids)

    @property
    def units(self) -> Units:
        """What is protected and sampled: users where records have one, else records.

        >>> InMemory([[1.0], [2.0], [3.0]], [0.0] * 3, users=["ann", "bob", "ann"]).units.n
        2
        """
        ids = self.users
        return Records(self.n) if ids is None else Users(ids)

    def gradient(
        self, loss: Loss, theta: npt.ArrayLike, *, index: Steps | None = None, values: bool = True,
        **guards: Unpack[Guards],
    ) -> tuple[float, Floats]:  # fmt: skip
        """The loss and its gradient summed over the records (or those of ``index``).

        Without `values` the loss is NaN, which saves time where the gradient is all that is needed. The parameter of a
        `Softmax` loss is a matrix (d, K), or flat in C order; see `dpfit.kernels.passes`.

        >>> from dpfit.losses import Squared
        >>> InMemory([[3.0, 4.0], [1.0, 0.0]], [0.0, -1.0]).gradient(Squared(), [1.0, 0.0])
        (6.5, array([11., 12.]))
        """
        losses, gradients = self.gradients(loss, np.asarray(theta)[np.newaxis], index=index, values=values, **guards)
        return float(losses[0]), gradients[0]

    def gradients(
        self, loss: Loss, thetas: npt.ArrayLike, *, index: Steps | None = None, values: bool = True,
        **guards: Unpack[Guards],
    ) -> tuple[Floats, Floats]:  # fmt: skip
        """The same at several points (k, d), reading the records once."""
        points = np.asarray(thetas)
        parts = (
            passes.gradients(chunk.rows, chunk.labels, points, loss, index=local, values=values, **guards)
            for chunk, local in self._picked(index)
        )
        losses, gradients = pairwise((np.zeros(points.shape[:1]), np.zeros(points.shape)), parts)
        return losses, gradients

    def clipped_sum(
        self, loss: Loss, theta: npt.ArrayLike, *, grid: Grid, index: Steps | None = None, **guards: Unpack[Guards]
    ) -> Steps:
        """Clipped per-record gradients, each rounded to the grid, summed exactly: what private steps add noise to."""
        total = np.zeros(np.shape(theta), dtype=np.int64)
        for chunk, local in self._picked(index):
            part = passes.clipped_sum(chunk.rows, chunk.labels, theta, loss, grid=grid, index=local, **guards)
            total = np.clip(total + part, -LIMIT, LIMIT)
        return total

    def hessian(
        self, loss: Loss, theta: npt.ArrayLike, *, index: Steps | None = None, **guards: Unpack[Guards]
    ) -> Floats:
        """The sum of the Hessians of all records, for the parameter as a vector."""
        total = np.zeros((np.size(theta), np.size(theta)))
        for chunk, local in self._picked(index):
            total += passes.hessian(chunk.rows, chunk.labels, theta, loss, index=local, **guards)
        return total

    def hessian_vector(
        self, loss: Loss, theta: npt.ArrayLike, vector: npt.ArrayLike, *, index: Steps | None = None,
        **guards: Unpack[Guards],
    ) -> Floats:  # fmt: skip
        """The Hessian sum applied to a vector, without making the matrix; of the shape of the vector."""
        total = np.zeros(np.shape(vector))
        for chunk, local in self._picked(index):
            total += passes.hessian_vector(chunk.rows, chunk.labels, theta, vector, loss, index=local, **guards)
        return total

    def gram(self, *, index: Steps | None = None, **guards: Unpack[Guards]) -> tuple[Floats, Floats]:
        """The sums of x x^T and of x y over guarded records."""
        square, cross = np.zeros((self.width, self.width)), np.zeros(self.width)
        for chunk, local in self._picked(index):
            part = passes.gram(chunk.rows, chunk.labels, index=local, **guards)
            square += part[0]
            cross += part[1]
        return square, cross

    def rows(self, index: Steps) -> InMemory:
        """Some records in increasing order, copied into memory, with their users and the public data."""
        parts = [
            (chunk.rows[local], chunk.labels[local], None if chunk.users is None else chunk.users[local])
            for chunk, local in self._picked(index)
            if len(local)
        ]
        if not parts:
            return InMemory(np.zeros((0, self.width)), np.zeros(0), public=self.public)
        rows, labels, users = zip(*parts, strict=True)
        ids = None if users[0] is None else np.concatenate(users)
        return InMemory(_stacked(rows), np.concatenate(labels), ids, self.public)

    def _picked(self, index: Steps | None) -> Iterator[tuple[Chunk, Any]]:
        """Each chunk with the records of ``index`` that lie in it (None: all)."""
        if index is None:
            for chunk in self.chunks():
                yield chunk, None
            return
        order = np.sort(as_index(index))
        if len(order) and (order[0] < 0 or order[-1] >= self.n):
            # How many records there are may be private.
            raise ValueError("an index points outside the records")
        for chunk in self.chunks():
            low, high = np.searchsorted(order, [chunk.start, chunk.start + len(chunk.labels)])
            # The first chunk comes in any case, so that arguments are checked for empty samples, too.
            if low < high or chunk.start == 0:
                yield chunk, order[low:high] - chunk.start
            if high == len(order):
                return


@dataclass(frozen=True, eq=False, repr=False)
class InMemory(Dataset):
    """Rows and labels in arrays; nothing is copied.

    Parameters
    ----------
    matrix
        Rows: float64 or float32 of any layout (memory-mapped ones too), other numbers, or a CSR matrix of scipy.
    labels
        One number for each row.
    users
        Whose record each row is: ids that are compared as texts. A row without one (``None``, NaN) is nobody's, and no
        algorithm that protects users reads it. ``None`` if every record is a unit of its own.
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
        matrix = with_valid_columns(self.matrix) if is_compressed(self.matrix) else _array("matrix", self.matrix, 2)
        labels = _array("labels", self.labels, 1)
        if matrix.dtype.kind not in "biuf" or labels.dtype.kind not in "biuf":
            raise ValueError(f"{'labels' if matrix.dtype.kind in 'biuf' else 'matrix'} must hold numbers")
        if matrix.shape[0] != len(labels):
            raise ValueError(f"there are {matrix.shape[0]} rows and {len(labels)} labels")
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "labels", labels)
        if self.users is not None:
            users = _ids(self.users)
            if len(users) != len(labels):
                raise ValueError(f"there are {len(labels)} rows and {len(users)} user ids")
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
        yield Chunk(self.matrix, self.labels, 0, self.users)

    @staticmethod
    def memory_mapped(matrix: str | Path, labels: str | Path) -> InMemory:
        """Two ``.npy`` files, read by the operating system as they are needed."""
        return InMemory(_mapped(matrix), _mapped(labels))


@dataclass(frozen=True, eq=False)
class Blocks(Dataset):
    """Records that are read block by block, each time they are needed; one block is in memory at a time.

    ``read`` gives the blocks, (rows, labels) or (rows, labels, users), in order and afresh at each call.
    """

    n_records: int
    row_width: int
    read: Callable[[], Iterator[tuple[Any, ...]]]
    public: Dataset | None = None

    def __post_init__(self) -> None:
        _check_public(self)

    @property
    def n(self) -> int:
        return self.n_records

    @property
    def width(self) -> int:
        return self.row_width

    def chunks(self) -> Iterator[Chunk]:
        start = 0
        for rows, labels, *users in self.read():
            yield Chunk(rows, labels, start, _ids(users[0]) if users else None)
            start += len(labels)


def records_of(source: Any, labels: Any, users: Any = None, *, public: Dataset | None = None) -> InMemory:
    """InMemory, sparse matrices and the number columns of data frames as records.

    Parameters
    ----------
    source
        A matrix as in `InMemory`, or a pandas, polars or Arrow table or a mapping from names to columns. A cell of a
        table that is not a number is missing, and a record with a missing entry is neutral; texts and categories need
        a `dpfit.data.schema.Schema`.
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


def _ids(users: Any) -> npt.NDArray[Any]:
    return np.array(Table({"users": users}).texts("users"), dtype=object)


def _mapped(path: str | Path) -> Any:
    try:
        return np.load(path, mmap_mode="r")
    except (ValueError, EOFError, OSError, OverflowError) as error:
        if isinstance(error, OSError) and error.filename:
            raise ValueError(f"cannot open {error.filename}: {error.strerror}") from None
        raise ValueError(f"{Path(path).name} is not a readable .npy file of numbers") from None


def _array(name: str, values: Any, axes: int) -> npt.NDArray[Any]:
    given = unmasked(name, values)
    try:
        array: npt.NDArray[Any] = np.asanyarray(given)
    except (ValueError, TypeError, OverflowError):
        # The original message may quote what is in there.
        raise ValueError(f"{name} must be an array of numbers") from None
    if array.ndim != axes:
        raise ValueError(f"{name} must have {axes} axes, got {array.ndim}")
    return array


def _check_public(data: Dataset) -> None:
    if data.public is not None and not (isinstance(data.public, Dataset) and data.public.width == data.width):
        raise ValueError("public data must be records as wide as the private ones")


def _stacked(rows: tuple[Any, ...]) -> Any:
    if is_compressed(rows[0]):
        from scipy.sparse import vstack

        return vstack(rows, format="csr")
    return np.concatenate(rows)
