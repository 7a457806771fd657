"""Records as solvers see them: how many, how wide, and the sums that the kernels can compute.

Nothing in a solver knows whether the rows are one array, a sparse matrix, a memory-mapped file or blocks of a table
that is larger than memory: all of them are pieces, and sums add up over pieces. Fixed-point sums are the same to the
last bit however the records are cut.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from dpfit.kernels import dense
from dpfit.kernels.rows import Guards
from dpfit.losses.glm import GLM
from dpfit.noise.lattice import Grid

Floats = npt.NDArray[np.float64]
Steps = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Piece:
    """Some consecutive records: rows, labels, and the number of the first."""

    rows: Any
    labels: Any
    start: int


class Data(ABC):
    """Rows with labels, in pieces."""

    @property
    @abstractmethod
    def n(self) -> int:
        """How many records. Under add/remove this is private: use it to read, never to plan."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many numbers a row has."""

    @abstractmethod
    def pieces(self) -> Iterator[Piece]:
        """The records in order."""

    def __len__(self) -> int:
        return self.n

    def gradient(
        self, loss: GLM, theta: npt.ArrayLike, *, index: Steps | None = None, **guards: Unpack[Guards]
    ) -> tuple[float, Floats]:
        """The loss and its gradient summed over the records (or those of ``index``).

        >>> from dpfit.losses import Squared
        >>> Arrays([[3.0, 4.0], [1.0, 0.0]], [0.0, -1.0]).gradient(Squared(), [1.0, 0.0])
        (6.5, array([11., 12.]))
        """
        values, gradients = self.gradients(
            loss, np.atleast_2d(np.asarray(theta, dtype=np.float64)), index=index, **guards
        )
        return float(values[0]), gradients[0]

    def gradients(
        self, loss: GLM, thetas: npt.ArrayLike, *, index: Steps | None = None, **guards: Unpack[Guards]
    ) -> tuple[Floats, Floats]:
        """The same at several points (k, d), reading the records once."""
        points = np.asarray(thetas, dtype=np.float64)
        values, gradients = np.zeros(len(points)), np.zeros(points.shape)
        for piece, local in self._picked(index):
            part = dense.glm_gradients(piece.rows, piece.labels, points, *_link(loss), index=local, **guards)
            values += part[0]
            gradients += part[1]
        return values, gradients

    def clipped_sum(
        self, loss: GLM, theta: npt.ArrayLike, *, grid: Grid, index: Steps | None = None, **guards: Unpack[Guards]
    ) -> Steps:
        """Clipped per-record gradients, each rounded to the grid, summed exactly: what private steps add noise to."""
        total = np.zeros(np.shape(theta), dtype=np.int64)
        for piece, local in self._picked(index):
            total += dense.glm_clipped_sum(
                piece.rows, piece.labels, theta, *_link(loss), grid=grid, index=local, **guards
            )
        return total

    def hessian(
        self, loss: GLM, theta: npt.ArrayLike, *, index: Steps | None = None, **guards: Unpack[Guards]
    ) -> Floats:
        """The sum of curvature times the outer product of each row with itself."""
        total = np.zeros((self.width, self.width))
        for piece, local in self._picked(index):
            total += dense.glm_hessian(piece.rows, piece.labels, theta, *_link(loss), index=local, **guards)
        return total

    def hessian_vector(
        self, loss: GLM, theta: npt.ArrayLike, vector: npt.ArrayLike, *, index: Steps | None = None,
        **guards: Unpack[Guards],
    ) -> Floats:  # fmt: skip
        """The Hessian sum applied to a vector, without making the matrix."""
        total = np.zeros(self.width)
        for piece, local in self._picked(index):
            total += dense.glm_hessian_vector(
                piece.rows, piece.labels, theta, vector, *_link(loss), index=local, **guards
            )
        return total

    def rows(self, index: Steps) -> Arrays:
        """Some records, copied into memory."""
        picked = [
            (piece.rows[local], piece.labels[local]) for piece, local in self._picked(np.sort(index)) if len(local)
        ]
        if not picked:
            return Arrays(np.zeros((0, self.width)), np.zeros(0))
        return Arrays(np.concatenate([x for x, _ in picked]), np.concatenate([y for _, y in picked]))

    def _picked(self, index: Steps | None) -> Iterator[tuple[Piece, Any]]:
        """Each piece with the records of ``index`` that lie in it (None: all)."""
        if index is None:
            for piece in self.pieces():
                yield piece, None
            return
        order = np.sort(np.asarray(index, dtype=np.int64))
        if len(order) and (order[0] < 0 or order[-1] >= self.n):
            raise ValueError("an index points outside the records")
        for piece in self.pieces():
            low, high = np.searchsorted(order, [piece.start, piece.start + len(piece.labels)])
            yield piece, order[low:high] - piece.start


def _link(loss: GLM) -> tuple[int, float]:
    """What the kernels know a loss by."""
    if not isinstance(loss, GLM) or math.isfinite(loss.slope_bound):
        raise ValueError(
            f"there is no pass over the data for {loss.kind!r} yet; use a generalized linear loss without an envelope "
            "(Squared().huberized(width) and clip= are the ways to bound slopes and gradients)"
        )
    return loss.code, loss.parameter


@dataclass(frozen=True, eq=False)
class Arrays(Data):
    """Rows and labels in arrays (float64 or float32, any layout, memory-mapped ones too); nothing is copied.

    >>> len(Arrays([[1.0, 2.0]], [0.0])), Arrays([[1.0, 2.0]], [0.0]).width
    (1, 2)
    """

    matrix: Any
    labels: Any

    def __post_init__(self) -> None:
        for name, axes in (("matrix", 2), ("labels", 1)):
            array = np.asanyarray(getattr(self, name))
            if array.dtype.kind not in "biuf":
                raise ValueError(f"{name} must hold numbers, not {array.dtype}")
            if array.ndim != axes:
                raise ValueError(f"{name} must have {axes} axes, got {array.ndim}")
            object.__setattr__(self, name, array)
        if len(self.matrix) != len(self.labels):
            raise ValueError(f"there are {len(self.matrix)} rows and {len(self.labels)} labels")

    @property
    def n(self) -> int:
        return len(self.labels)

    @property
    def width(self) -> int:
        return int(self.matrix.shape[1])

    def pieces(self) -> Iterator[Piece]:
        yield Piece(self.matrix, self.labels, 0)

    @staticmethod
    def memory_mapped(matrix: str | Path, labels: str | Path) -> Arrays:
        """Two ``.npy`` files, read by the operating system as they are needed."""
        try:
            return Arrays(np.load(matrix, mmap_mode="r"), np.load(labels, mmap_mode="r"))
        except (ValueError, EOFError, OSError) as error:
            if isinstance(error, OSError) and error.filename:
                raise ValueError(f"cannot open {error.filename}: {error.strerror}") from None
            raise ValueError("not a readable pair of .npy files of numbers") from None


@dataclass(frozen=True, eq=False)
class Blocks(Data):
    """Records that are read block by block, each time they are needed; one block is in memory at a time.

    ``read`` gives the blocks, (rows, labels), in order and afresh at each call.
    """

    n_records: int
    row_width: int
    read: Callable[[], Iterator[tuple[Any, Any]]]

    @property
    def n(self) -> int:
        return self.n_records

    @property
    def width(self) -> int:
        return self.row_width

    def pieces(self) -> Iterator[Piece]:
        start = 0
        for rows, labels in self.read():
            yield Piece(rows, labels, start)
            start += len(labels)
