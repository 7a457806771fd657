"""Exact sums of rounded contributions: float64 steps within blocks, int64 across them."""

from __future__ import annotations

import math

import numpy as np

from dpfit.kernels.rows import LARGEST_BLOCK
from dpfit.noise.lattice import LIMIT, Grid
from dpfit.noise.source import Floats, Steps

FINEST = 2**31
"""A contribution is less than this many steps in each coordinate, so that ``LARGEST_BLOCK`` of them
stay exact.
"""


def inverse_step(grid: Grid, clip: float) -> float:
    """Return one over the step of a grid that is fit for sums of vectors of norm at most `clip`.

    Every coordinate of a contribution is at most ``clip / step + 1 <= 2**31`` steps, and a block
    has at most 2**22 records; so the float64 sum of a block never exceeds 2**53 and is exact. This
    holds for any number of records: neither the condition nor the sum needs to know it.

    Examples
    --------
    >>> inverse_step(Grid(-10), clip=1.0)
    1024.0
    """
    if clip == math.inf:
        raise ValueError("an exact sum needs a finite clip")
    if not grid.step <= clip <= (FINEST - 1) * grid.step:
        raise ValueError(
            f"the step of the grid must be in (clip / 2**31, clip], got step {grid.step!r}, clip "
            f"{clip!r}"
        )
    return 1.0 / grid.step


def total(blocks: Floats, steps: Steps) -> Steps:
    """Add the sums of blocks to `steps` exactly, and saturate at ``LIMIT`` as grids do.

    Sums of fewer than 2**30 records never reach the limit, and saturation does not expand
    distances.

    Examples
    --------
    >>> total(np.array([[1.0, 2.0], [3.0, -5.0]]), np.array([1, 0]))
    array([ 5, -3])
    """
    return np.asarray(np.clip(steps + blocks.astype(np.int64).sum(axis=0), -LIMIT, LIMIT))


__all__ = ["FINEST", "LARGEST_BLOCK", "inverse_step", "total"]
