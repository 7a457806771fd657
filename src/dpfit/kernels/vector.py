"""Sums over vector records ``x`` of losses that pull `theta` towards them, one pass over a dense matrix each.

| code | loss | gradient |
|---|---|---|
| DISTANCE | norm(theta - x) (geometric median) | (theta - x) / norm(theta - x), zero at the record |
| SQUARED_DISTANCE | norm(theta - x)^2 / 2 (mean) | theta - x |
| LINEAR | <x, theta> | x |

Records are guarded as rows are in `dpfit.kernels.rows`; the neutral record is zero.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, prange

from dpfit.kernels.fixed import inverse_step, total
from dpfit.kernels.rows import (
    Limits,
    add_row,
    as_points,
    as_rows,
    blocks,
    clipped,
    guarded,
    limits,
    measured,
    picked,
    pieces,
)
from dpfit.noise.lattice import Grid
from dpfit.noise.source import Floats, Steps

DISTANCE, SQUARED_DISTANCE, LINEAR = range(3)


def vector_gradient(
    X: npt.ArrayLike,
    theta: npt.ArrayLike,
    code: int,
    *,
    index: npt.ArrayLike | None = None,
    row_norm: float = math.inf,
    clip: float = math.inf,
) -> tuple[float, Floats]:
    """Sum the loss and its gradient at `theta` over records.

    Examples
    --------
    >>> vector_gradient([[3.0, 4.0], [0.0, 0.0]], [0.0, 0.0], DISTANCE)
    (5.0, array([-0.6, -0.8]))
    >>> vector_gradient([[3.0, 4.0], [0.0, 0.0]], [0.0, 0.0], SQUARED_DISTANCE)
    (12.5, array([-3., -4.]))
    """
    value, gradient = 0.0, np.zeros(np.shape(theta))
    for losses, sums in _passes(X, theta, code, index, row_norm, clip, 0.0):
        value += float(losses.sum())
        gradient += sums.sum(axis=0)[0]
    return value, gradient


def vector_clipped_sum(
    X: npt.ArrayLike,
    theta: npt.ArrayLike,
    code: int,
    *,
    clip: float,
    grid: Grid,
    index: npt.ArrayLike | None = None,
    row_norm: float = math.inf,
) -> Steps:
    """Sum clipped gradients exactly, each rounded to a grid, with the promises of
    `dpfit.kernels.dense.glm_clipped_sum`.

    Examples
    --------
    >>> vector_clipped_sum([[3.0, 4.0], [0.0, 0.0]], [0.0, 0.0], SQUARED_DISTANCE, clip=2.5, grid=Grid(-2))
    array([-6, -8])
    """
    inverse = inverse_step(grid, clip)
    steps = np.zeros(np.shape(theta), dtype=np.int64)
    for _, sums in _passes(X, theta, code, index, row_norm, clip, inverse):
        steps = total(sums[:, 0], steps)
    return steps


def _passes(
    X: npt.ArrayLike,
    theta: npt.ArrayLike,
    code: int,
    index: npt.ArrayLike | None,
    row_norm: float,
    clip: float,
    inverse: float,
) -> list[tuple[Floats, Floats]]:
    rows = as_rows(X)
    point = as_points("theta", theta, (rows.shape[1],))[np.newaxis]
    if code not in (DISTANCE, SQUARED_DISTANCE, LINEAR):
        raise ValueError(f"there is no vector loss with code {code!r}")
    bounds = limits(rows.shape[1], row_norm=row_norm, clip=clip)
    labels = np.broadcast_to(0.0, len(rows))
    return [
        _gradients(part, picks, count, blocks(count, point.size), point, int(code), bounds, inverse)
        for part, _, picks, count in pieces(rows, labels, index)
    ]


@njit(cache=True)
def _write_gap(
    X: npt.NDArray[Any], i: int, scale: float, factor: float, theta: Floats, linear: bool, gap: Floats
) -> None:
    """Write ``theta - x`` for the guarded record ``x``, or ``x`` itself.

    Written down once, the difference has one rounded value, of which the norm is taken and which is added; computed
    twice, cancellation could make the two differ by much.
    """
    for j in range(X.shape[1]):
        entry = factor * (scale * X[i, j]) if factor > 0.0 else 0.0
        gap[0, j] = entry if linear else theta[0, j] - entry


@njit(cache=True, error_model="numpy")
def _gradient_block(
    X: npt.NDArray[Any],
    picks: Steps,
    start: int,
    stop: int,
    theta: Floats,
    code: int,
    limits: Limits,
    inverse: float,
    gap: Floats,
    sums: Floats,
) -> float:
    loss = 0.0
    for p in range(start, stop):
        i = picked(picks, p)
        scale, inner, norm = measured(X, i, theta, 0)
        factor, margin, _ = guarded(scale, inner, norm, 0.0, limits)
        _write_gap(X, i, scale, factor, theta, code == LINEAR, gap)
        scale, _, norm = measured(gap, 0, theta, 0)
        length = norm / scale
        if not length > 0.0:
            continue
        if code == DISTANCE:
            loss += length
            weight = clipped(1.0, 1.0 / norm, norm, limits.clip)
        else:
            loss += margin if code == LINEAR else 0.5 * length * length
            weight = clipped(1.0, 1.0 / scale, norm, limits.clip)
        add_row(gap, 0, scale, weight * inverse if inverse > 0.0 else weight, inverse > 0.0, sums, 0)
    return loss


@njit(cache=True, parallel=True)
def _gradients(
    X: npt.NDArray[Any],
    picks: Steps,
    count: int,
    each: int,
    theta: Floats,
    code: int,
    limits: Limits,
    inverse: float,
) -> tuple[Floats, Floats]:
    losses, sums, gaps = np.zeros(each), np.zeros((each, 1, X.shape[1])), np.empty((each, 1, X.shape[1]))
    for b in prange(each):
        start, stop = b * count // each, (b + 1) * count // each
        losses[b] = _gradient_block(X, picks, start, stop, theta, code, limits, inverse, gaps[b], sums[b])
    return losses, sums
