"""Many small minibatches of the same records: what all steps need is computed once.

A pass over 256 rows takes twenty microseconds, checking its arguments several times as long, and
moving a point by what was summed costs as much again if Python does it. So the arguments that stay
are checked when the epoch is prepared, and many steps of a descent are one call. What is summed,
and how, is that of `dpfit.kernels.passes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from dpfit.kernels import glm
from dpfit.kernels.bounds import Guards, limits, most_entry
from dpfit.kernels.fixed_point import inverse_step
from dpfit.kernels.rows import (
    as_labels,
    as_rows,
    blocks,
    clamped,
    is_compressed,
    pieces,
    read_only,
)
from dpfit.kernels.threads import THREADED, spread
from dpfit.losses.compiled import compiled
from dpfit.losses.glm import GLM
from dpfit.losses.guards import as_floats
from dpfit.noise.lattice import Grid
from dpfit.noise.source import Floats, Steps

BatchSum = Callable[[Floats, Steps], Steps]
"""From a finite point and the numbers of the records in a batch (int64) to their sum of gradients,
in steps.
"""

_AT_ONCE = 2**22
"""Records of all batches of a call at most: in float64 the sum of no batch is more than 2**53
steps, and is exact.
"""

_STRETCH = 1024
"""Records that a block is worth: each waits for its thread's turn, and then for rows not asked for
in time.
"""


class Pace(NamedTuple):
    """How a descent moves by noisy sums.

    Attributes
    ----------
    unit
        What a step of the grid is worth in a gradient: the step over the batch size.
    ridge, momentum, learning_rate
        ``velocity <- momentum * velocity + gradient + ridge * theta; theta <- theta - learning_rate
        * velocity``.
    kept
        The first step whose iterate is averaged.
    """

    unit: float
    ridge: float
    momentum: float
    learning_rate: float
    kept: int


class Epoch:
    """Clipped gradient sums over minibatches and descents, bit for bit as in `passes`.

    The sums are those of `dpfit.kernels.passes.clipped_sum`.

    Arguments of its methods are trusted.

    Parameters
    ----------
    X, y, loss, grid, **guards
        As in `dpfit.kernels.passes.clipped_sum`, where `in_place` says that rows need not be copied
        first.

    Examples
    --------
    >>> from dpfit.losses.glm import Squared
    >>> epoch = Epoch(
    ...     np.array([[3.0, 4.0], [1.0, 0.0]]), [0.0, -1.0], Squared(), clip=1.0, grid=Grid(-3)
    ... )
    >>> epoch.batch_sum(np.array([1.0, 0.0]), np.array([0, 1]))
    array([13,  6])
    """

    def __init__(
        self, X: Any, y: npt.ArrayLike, loss: GLM, *, grid: Grid, **guards: Unpack[Guards]
    ) -> None:
        matrix = as_rows(X)
        self.n, self.width = matrix.shape
        row_max = most_entry(guards)
        if row_max < math.inf and not is_compressed(matrix):
            # Clamped in one piece: batches pick rows from all of it.
            matrix, row_max = clamped(as_floats(matrix), row_max), math.inf
        self._rows, self._labels, _, _ = next(pieces(matrix, as_labels(y, self.n), None, row_max))
        link, bounds = (
            loss.margin_function,
            limits(self.width, **guards),
        )
        inverse = inverse_step(grid, guards.get("clip", math.inf))
        self._fixed: tuple[Any, Any, Any] = (tuple(link), tuple(bounds), inverse)

    def batch_sum(self, theta: Floats, index: Steps) -> Steps:
        """The sum over a batch, on several threads if it is large; a `BatchSum`."""
        count, width = len(index), self.width
        # Sums of whole numbers do not depend on the blocks.
        each = min(blocks(count, width), max(1, count // _STRETCH))
        sums = np.zeros((each, 1, width))
        point, picks = read_only(theta.reshape(1, width)), read_only(index)
        arguments = (
            self._rows,
            self._labels,
            picks,
            count,
            each,
            point,
            *self._fixed,
            False,
            np.zeros((each, 1)),
        )
        spread(glm.gradients, each, count * width, *arguments, sums)
        # Whole numbers below 2**53 in every block; as integers they add up exactly over any number
        # of blocks.
        return np.asarray(sums.astype(np.int64).sum(axis=(0, 1)))

    def descends(self, chosen: int, steps: int) -> bool:
        """Whether so many records in so many batches are best summed in one call, on one thread."""
        return chosen <= _AT_ONCE and chosen * self.width < THREADED * steps

    def descend(self, walk: Floats, chosen: Steps, noise: Steps, first: int, pace: Pace) -> Floats:
        """Move ``(theta, velocity, mean)`` by steps from ``first`` on, one for each row of `noise`.

        The records of all batches are `chosen`, in increasing order; ``s * n + i`` is record ``i``
        in the batch ``s``.

        Examples
        --------
        >>> from dpfit.losses.glm import Squared
        >>> epoch = Epoch(
        ...     np.array([[3.0, 4.0], [1.0, 0.0]]), [0.0, -1.0], Squared(), clip=1.0, grid=Grid(-3)
        ... )
        >>> pace = Pace(unit=0.125, ridge=0.0, momentum=0.0, learning_rate=1.0, kept=1)
        >>> epoch.descend(np.zeros((3, 2)), np.array([1]), np.array([[0, 8]]), 0, pace)
        array([[-1., -1.],
               [ 1.,  1.],
               [ 0.,  0.]])
        """
        walk, picks = walk.copy(), np.empty_like(chosen)
        # The loop over a batch is compiled for what it may not write; it sees the point move all
        # the same.
        seen = read_only(picks), read_only(walk[:1])
        _descend(
            self._rows,
            self._labels,
            *seen,
            chosen,
            self.n,
            noise,
            first,
            picks,
            walk,
            *self._fixed,
            tuple(pace),
        )
        return walk


def in_place(X: Any) -> bool:
    """Whether the loops take these rows as they are, so that an `Epoch` can be prepared at no cost.

    >>> in_place(np.eye(3)), in_place(np.asfortranarray(np.ones((3, 2))))
    (True, False)
    """
    matrix = as_rows(X)
    return is_compressed(matrix) or bool(
        matrix.dtype in (np.float64, np.float32)
        and matrix.flags.c_contiguous
        and matrix.flags.aligned
    )


@compiled(error_model="numpy", nogil=True)
def _descend(
    rows: Any, y: Floats, batches: Steps, point: Floats, chosen: Steps, n: int, noise: Steps,
    first: int, picks: Steps, walk: Floats, loss: tuple[Any, ...], bounds: tuple[Any, ...],
    inverse: float, pace: tuple[Any, ...],
) -> None:  # fmt: skip
    """Take a step for each row of noise: sum the batch, add the noise, move.

    What is written to `picks` and ``walk[0]`` is read through `batches` and `point`.
    """
    unit, ridge, momentum, learning_rate, kept = pace
    theta, velocity, mean = walk[0], walk[1], walk[2]
    width, start = len(theta), 0
    sums, no_values = np.zeros((1, 1, width)), np.zeros((1, 1))
    for s in range(len(noise)):
        stop = start
        while stop < len(chosen) and chosen[stop] < (s + 1) * n:
            picks[stop] = chosen[stop] - s * n
            stop += 1
        batch = batches[start:stop]
        sums[:] = 0.0
        glm.gradients(
            0,
            1,
            rows,
            y,
            batch,
            len(batch),
            1,
            point,
            loss,
            bounds,
            inverse,
            False,
            no_values,
            sums,
        )
        start, averaged = stop, first + s - kept + 1
        for j in range(width):
            # Whole numbers of steps are added exactly; dividing by the public batch size comes
            # after the release.
            gradient = unit * (np.int64(sums[0, 0, j]) + noise[s, j])
            if ridge != 0.0:
                gradient += ridge * theta[j]
            velocity[j] = momentum * velocity[j] + gradient
            theta[j] -= learning_rate * velocity[j]
            if averaged > 0:
                mean[j] += (theta[j] - mean[j]) / averaged
