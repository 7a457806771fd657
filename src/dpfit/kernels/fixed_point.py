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


def rounded_sums(grid: Grid, clip: float, dimension: int) -> tuple[int, float]:
    """Return bits and a smaller clip norm for sums that are rounded in place of their records.

    Sums of some records are rounded to a grid of step f, which is finer by the bits. They are added
    exactly, and the total is rounded to the grid of step h. With C the given clip
    norm, the smaller one is ``C - sqrt(d) (h / 2 + f)``. So one replaced record moves the total by
    at most ``2 C - sqrt(d) (h + 2 f)``, and rounding by at most ``sqrt(d) (h + f)``: together at
    most ``2 C``. A record added to one sum moves the total by at most ``C + sqrt(d) h / 2``. These
    are the bounds of records that are rounded one by one.

    Examples
    --------
    >>> bits, smaller = rounded_sums(Grid(-20), 1.0, 100)
    >>> bits, 1 - 1e-5 < smaller < 1
    (10, True)
    """
    bits = max(0, FINEST.bit_length() - 1 - math.frexp(clip / grid.step)[1])
    lost = math.sqrt(dimension) * grid.step * (0.5 + 2.0**-bits) * (1 + 2.0**-40)
    if lost > clip / 2:
        raise ValueError(
            f"the grid must have a step of at most {clip / (3 * math.sqrt(dimension)):g} for sums "
            f"in {dimension} dimensions, got {grid.step:g}"
        )
    return bits, (clip - lost) * (1 - 2.0**-52)


def coarser(steps: Steps, bits: int) -> Steps:
    """Return whole steps of a grid that is coarser by some bits; halves are rounded up.

    >>> coarser(np.array([7, 8, -8, -9]), 4).tolist(), coarser(np.array([7]), 0).tolist()
    ([0, 1, 0, -1], [7])
    """
    return np.asarray((steps + (1 << bits >> 1)) >> bits)


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


__all__ = ["FINEST", "LARGEST_BLOCK", "coarser", "inverse_step", "rounded_sums", "total"]
