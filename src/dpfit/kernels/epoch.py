"""Many small minibatches of the same records: what every step needs is looked at once, not at every step.

A pass over 256 rows takes tens of microseconds, checking its arguments several times as long. So the arguments that
stay are checked when the epoch is prepared; what is summed, and how, is that of `dpfit.kernels.passes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from dpfit.kernels import glm
from dpfit.kernels.bounds import Guards, limits
from dpfit.kernels.fixed import inverse_step
from dpfit.kernels.rows import as_labels, as_rows, blocks, is_compressed, pieces, read_only
from dpfit.kernels.threads import spread
from dpfit.losses.glm import GLM
from dpfit.losses.links import Link
from dpfit.noise.lattice import Grid
from dpfit.noise.source import Floats, Steps

BatchSum = Callable[[Floats, Steps], Steps]
"""From a finite point and the numbers of the records in a batch (int64) to their sum of gradients, in steps."""


def batch_sums(X: Any, y: npt.ArrayLike, loss: GLM, *, grid: Grid, **guards: Unpack[Guards]) -> BatchSum | None:
    """Prepare sums of clipped gradients over minibatches: `dpfit.kernels.passes.clipped_sum`, bit for bit.

    Parameters
    ----------
    X, y, loss, grid, **guards
        As in `dpfit.kernels.passes.clipped_sum`.

    Returns
    -------
    A function of a point and an index, which it trusts; ``None`` if rows would have to be copied first.

    Examples
    --------
    >>> from dpfit.losses.glm import Squared
    >>> sums = batch_sums(np.array([[3.0, 4.0], [1.0, 0.0]]), [0.0, -1.0], Squared(), clip=1.0, grid=Grid(-3))
    >>> sums(np.array([1.0, 0.0]), np.array([0, 1]))
    array([13,  6])
    """
    matrix = as_rows(X)
    if not is_compressed(matrix) and not (
        matrix.dtype in (np.float64, np.float32) and matrix.flags.c_contiguous and matrix.flags.aligned
    ):
        return None
    n, width = matrix.shape
    rows, labels, _, _ = next(pieces(matrix, as_labels(y, n), None))
    link, bounds = tuple(Link(loss.code, loss.parameter, loss.slope_bound)), tuple(limits(width, **guards))
    inverse = inverse_step(grid, guards.get("clip", math.inf))

    def batch_sum(theta: Floats, index: Steps) -> Steps:
        count = len(index)
        each = blocks(count, width)
        sums = np.zeros((each, 1, width))
        point, picks = read_only(theta.reshape(1, width)), read_only(index)
        fixed = (link, bounds, inverse, False, np.zeros((each, 1)))
        spread(glm.gradients, each, count * width, rows, labels, picks, count, each, point, *fixed, sums)
        # Whole numbers below 2**53 in every block; as integers they add up exactly over any number of blocks.
        return np.asarray(sums.astype(np.int64).sum(axis=(0, 1)))

    return batch_sum
