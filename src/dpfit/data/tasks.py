"""Tasks: what `dpfit.data.dataset.Dataset.reduce` computes on each chunk of records.

A task is frozen, picklable and self-contained, so a cluster can send it to its workers.
Its results add by ``+`` in any order.
Exact results (`Saturated` integers) have the same bits however the records are cut; floats agree to
rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from dpfit.data.chunk import Chunk
from dpfit.kernels import passes
from dpfit.kernels.bounds import Guards
from dpfit.kernels.user_sums import user_means, user_sums
from dpfit.losses.base import Loss
from dpfit.noise.lattice import LIMIT, Grid

Floats = npt.NDArray[np.float64]
Steps = npt.NDArray[np.int64]
Arrays = tuple[Floats, ...]
R_co = TypeVar("R_co", covariant=True)


class Task(Protocol[R_co]):
    """A frozen, picklable function of a chunk; results support ``+`` with each other and with 0.

    The result of a chunk without records is the neutral element. NumPy arrays and numbers are valid
    results.
    """

    def __call__(self, chunk: Chunk, /) -> R_co: ...


@dataclass(frozen=True, eq=False, repr=False)
class Sums:
    """Arrays that add one by one, in the order of the additions."""

    arrays: Arrays

    def __add__(self, other: Sums) -> Sums:
        return Sums(_added(self.arrays, other.arrays))

    def __radd__(self, zero: int) -> Sums:
        return Sums(tuple(zero + one for one in self.arrays))


@dataclass(frozen=True, eq=False, repr=False)
class PairwiseSums:
    """Arrays that add pairwise: each of k terms passes at most 2 log2(k) + 2 additions.

    ``waiting`` holds subtotals and their numbers of terms, largest first, as
    `dpfit.kernels.rounding.pairwise` does. Adding terms from the left gives the bits of that
    function.
    """

    waiting: tuple[tuple[int, Arrays], ...]

    def __add__(self, other: PairwiseSums) -> PairwiseSums:
        waiting = list(self.waiting)
        for size, total in other.waiting:
            while waiting and waiting[-1][0] <= size:
                count, before = waiting.pop()
                size, total = count + size, _added(before, total)
            waiting.append((size, total))
        return PairwiseSums(tuple(waiting))

    def __radd__(self, zero: int) -> PairwiseSums:
        # The neutral element is the first term, as in `pairwise`.
        first = tuple(np.full_like(one, zero) for one in self.waiting[0][1])
        return PairwiseSums(((1, first),)) + self

    @property
    def arrays(self) -> Arrays:
        """The total."""
        *earlier, (_, total) = self.waiting
        for _, before in reversed(earlier):
            total = _added(total, before)
        return total


@dataclass(frozen=True, eq=False, repr=False)
class Saturated:
    """Integer steps whose totals stay within [-LIMIT, LIMIT]; additions are exact inside."""

    steps: Steps

    def __add__(self, other: Saturated | int) -> Saturated:
        steps = other.steps if isinstance(other, Saturated) else other
        return Saturated(np.clip(self.steps + steps, -LIMIT, LIMIT))

    __radd__ = __add__


@dataclass(frozen=True, eq=False, repr=False)
class Gradients:
    """Sums of losses and of gradients at several points (k, d).

    Without ``values`` the losses are NaN, which saves time.
    """

    loss: Loss
    points: npt.NDArray[np.generic]
    values: bool = True
    guards: Guards = field(default_factory=Guards)

    def __call__(self, chunk: Chunk, /) -> PairwiseSums:
        return PairwiseSums(
            (
                (
                    1,
                    passes.gradients(
                        chunk.stored_rows,
                        chunk.stored_labels,
                        self.points,
                        self.loss,
                        index=chunk.index,
                        values=self.values,
                        **self.guards,
                    ),
                ),
            )
        )


@dataclass(frozen=True, eq=False, repr=False)
class ClippedSum:
    """Clipped per-record gradients, each rounded to the grid, summed exactly."""

    loss: Loss
    theta: npt.ArrayLike
    grid: Grid
    guards: Guards = field(default_factory=Guards)

    def __call__(self, chunk: Chunk, /) -> Saturated:
        return Saturated(
            passes.clipped_sum(
                chunk.stored_rows,
                chunk.stored_labels,
                self.theta,
                self.loss,
                grid=self.grid,
                index=chunk.index,
                **self.guards,
            )
        )


@dataclass(frozen=True, eq=False, repr=False)
class UserSums:
    """Exact sums of each user's clipped gradients in grid steps, and numbers of usable records."""

    sums: Steps
    counts: Steps
    grid: Grid

    def __add__(self, other: UserSums) -> UserSums:
        return UserSums(self.sums + other.sums, self.counts + other.counts, self.grid)

    def __radd__(self, zero: int) -> UserSums:
        return self

    @property
    def means(self) -> Floats:
        """The mean of each user, NaN for a user without a usable record."""
        return user_means(self.sums, self.counts, self.grid)


@dataclass(frozen=True, eq=False, repr=False)
class UserGradients:
    """Sums of clipped gradients of each user; ``codes`` are the users of all records."""

    loss: Loss
    theta: npt.ArrayLike
    codes: Steps
    n_users: int
    grid: Grid
    guards: Guards = field(default_factory=Guards)

    def __call__(self, chunk: Chunk, /) -> UserSums:
        codes = self.codes[chunk.start : chunk.start + len(chunk.stored_labels)]
        sums, counts = user_sums(
            chunk.stored_rows, chunk.stored_labels, codes, self.n_users, self.theta, self.loss,
            grid=self.grid, index=chunk.index, **self.guards,
        )  # fmt: skip
        return UserSums(sums, counts, self.grid)


@dataclass(frozen=True, eq=False, repr=False)
class Hessian:
    """The sum of the Hessians of all records, for the parameter as a vector."""

    loss: Loss
    theta: npt.ArrayLike
    guards: Guards = field(default_factory=Guards)

    def __call__(self, chunk: Chunk, /) -> Floats:
        rows, labels = chunk.stored_rows, chunk.stored_labels
        return passes.hessian(rows, labels, self.theta, self.loss, index=chunk.index, **self.guards)


@dataclass(frozen=True, eq=False, repr=False)
class HessianVector:
    """The sum of the Hessians of all records, applied to a vector."""

    loss: Loss
    theta: npt.ArrayLike
    vector: npt.ArrayLike
    guards: Guards = field(default_factory=Guards)

    def __call__(self, chunk: Chunk, /) -> Floats:
        rows, labels = chunk.stored_rows, chunk.stored_labels
        return passes.hessian_vector(
            rows, labels, self.theta, self.vector, self.loss, index=chunk.index, **self.guards
        )


@dataclass(frozen=True, eq=False, repr=False)
class Gram:
    """The sums of x x^T and of x y over guarded records."""

    guards: Guards = field(default_factory=Guards)

    def __call__(self, chunk: Chunk, /) -> Sums:
        return Sums(
            passes.gram(chunk.stored_rows, chunk.stored_labels, index=chunk.index, **self.guards)
        )


def _added(some: Arrays, more: Arrays) -> Arrays:
    return tuple(a + b for a, b in zip(some, more, strict=True))
