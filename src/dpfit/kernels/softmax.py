"""Sums over the records of the multinomial logistic loss, one pass over a dense matrix each.

The loss of a record ``(x, y)``, ``y`` in ``0 .. K - 1``, at ``Theta`` of shape (d, K) is ``logsumexp(x Theta) - (x
Theta)[y]``, and its gradient is the matrix ``x (p - e_y)^T`` with ``p`` the softmax of ``x Theta``. Its Frobenius
norm is ``norm(x) * norm(p - e_y)``, so that clipping is one scalar per record here as well.

Guards are those of `dpfit.kernels.rows`, except that a label is cut to a whole number in ``[0, K - 1]``; the neutral
record is ``x = 0`` of class 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, prange

from dpfit.kernels.fixed import inverse_step, total
from dpfit.kernels.rows import (
    SMALL,
    Limits,
    add_row,
    as_labels,
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


def softmax_gradient(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    Theta: npt.ArrayLike,
    *,
    index: npt.ArrayLike | None = None,
    row_norm: float = math.inf,
    clip: float = math.inf,
) -> tuple[float, Floats]:
    """Sum the loss and its gradient (d, K) at `Theta` over records.

    Examples
    --------
    >>> value, gradient = softmax_gradient([[2.0]], [1], [[0.0, 0.0]])
    >>> round(value, 6), gradient
    (0.693147, array([[ 1., -1.]]))
    """
    value, gradient = 0.0, np.zeros(np.shape(Theta)[::-1])
    for losses, sums in _passes(X, y, Theta, index, row_norm, clip, 0.0):
        value += float(losses.sum())
        gradient += sums.sum(axis=0)
    return value, np.ascontiguousarray(gradient.T)


def softmax_clipped_sum(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    Theta: npt.ArrayLike,
    *,
    clip: float,
    grid: Grid,
    index: npt.ArrayLike | None = None,
    row_norm: float = math.inf,
) -> Steps:
    """Sum clipped gradients exactly, each rounded to a grid; in steps, of the shape of `Theta`.

    What `dpfit.kernels.dense.glm_clipped_sum` promises holds here for Frobenius norms, in dimension ``d K``.

    Examples
    --------
    >>> softmax_clipped_sum([[2.0]], [1], [[0.0, 0.0]], clip=1.0, grid=Grid(-4))
    array([[ 11, -11]])
    """
    inverse = inverse_step(grid, clip)
    steps = np.zeros(np.shape(Theta)[::-1], dtype=np.int64)
    for _, sums in _passes(X, y, Theta, index, row_norm, clip, inverse):
        steps = total(sums, steps)
    return np.ascontiguousarray(steps.T)


def _passes(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    Theta: npt.ArrayLike,
    index: npt.ArrayLike | None,
    row_norm: float,
    clip: float,
    inverse: float,
) -> list[tuple[Floats, Floats]]:
    rows, classes = as_rows(X), np.shape(Theta)[-1] if np.ndim(Theta) == 2 else 0
    if classes < 1:
        raise ValueError("Theta must be a matrix with one column per class")
    points = as_points("Theta", np.transpose(np.asarray(Theta)), (classes, rows.shape[1]))
    # The norm of the residual is a sum of K products on top of the d of the row.
    bounds = limits(rows.shape[1] + classes, row_norm=row_norm, clip=clip, label_lower=0.0, label_upper=classes - 1.0)
    return [
        _gradients(part, labels, picks, count, blocks(count, points.size), points, bounds, inverse)
        for part, labels, picks, count in pieces(rows, as_labels(y, len(rows)), index)
    ]


@njit(cache=True, error_model="numpy")
def _gradient_block(
    X: npt.NDArray[Any],
    y: Floats,
    picks: Steps,
    start: int,
    stop: int,
    thetas: Floats,
    limits: Limits,
    inverse: float,
    sums: Floats,
) -> float:
    classes = len(thetas)
    residual = np.empty(classes)
    loss = 0.0
    for p in range(start, stop):
        i = picked(picks, p)
        scale, factor, norm, label = 1.0, 0.0, 0.0, 0.0
        for k in range(classes):
            scale, inner, norm = measured(X, i, thetas, k)
            factor, residual[k], label = guarded(scale, inner, norm, y[i], limits)
        target = int(label)
        top = residual.max()
        own, mass = residual[target], 0.0
        for k in range(classes):
            residual[k] = math.exp(residual[k] - top)
            mass += residual[k]
        loss += math.log(mass) + (top - own)
        square = 0.0
        for k in range(classes):
            residual[k] = residual[k] / mass - (1.0 if k == target else 0.0)
            square += residual[k] * residual[k]
        # Residuals this small are those of a record that is fitted perfectly; their squares would underflow.
        if not square >= SMALL:
            continue
        length = math.sqrt(square)
        ratio = clipped(length, factor, norm, limits.clip) / length
        if inverse > 0.0:
            ratio *= inverse
        for k in range(classes):
            add_row(X, i, scale, ratio * residual[k], inverse > 0.0, sums, k)
    return loss


@njit(cache=True, parallel=True)
def _gradients(
    X: npt.NDArray[Any],
    y: Floats,
    picks: Steps,
    count: int,
    each: int,
    thetas: Floats,
    limits: Limits,
    inverse: float,
) -> tuple[Floats, Floats]:
    losses, sums = np.zeros(each), np.zeros((each, len(thetas), X.shape[1]))
    for b in prange(each):
        start, stop = b * count // each, (b + 1) * count // each
        losses[b] = _gradient_block(X, y, picks, start, stop, thetas, limits, inverse, sums[b])
    return losses, sums
