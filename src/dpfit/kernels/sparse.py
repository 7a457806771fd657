"""Sums over the records of a generalized linear loss, one pass over a compressed sparse row matrix each.

The functions of `dpfit.kernels.dense` for ``scipy.sparse`` matrices in CSR format, with the same guards and the same
promises. A row costs its stored entries; accumulators are O(d) times the number of blocks, which is smaller for large
d.

Stored duplicates would make norms wrong, so that matrices which are not in canonical format are copied and put into it.
Arrays that claim to be, but have rows whose column numbers are not increasing or not below ``d``, are values like
others that are out of bounds: such a row becomes the neutral record.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from numba import njit, prange

from dpfit.kernels.fixed import inverse_step, total
from dpfit.kernels.rows import (
    DOWN,
    SMALL,
    UP,
    Guards,
    Limits,
    as_labels,
    as_loss,
    as_picks,
    as_points,
    blocks,
    clipped,
    guarded,
    limits,
    picked,
    read_only,
)
from dpfit.losses.links import curvature, slope, value
from dpfit.noise.lattice import Grid
from dpfit.noise.source import Floats, Steps


def glm_gradient(
    X: Any,
    y: npt.ArrayLike,
    theta: npt.ArrayLike,
    code: int,
    parameter: float = 0.0,
    *,
    index: npt.ArrayLike | None = None,
    values: bool = True,
    **guards: Unpack[Guards],
) -> tuple[float, Floats]:
    """Sum the loss and its gradient at `theta` over records, as `dpfit.kernels.dense.glm_gradient`.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from dpfit.losses.links import SQUARED
    >>> glm_gradient(csr_array([[3.0, 4.0], [1.0, 0.0]]), [0.0, -1.0], [1.0, 0.0], SQUARED)
    (6.5, array([11., 12.]))
    """
    losses, sums = _pass(X, y, theta, code, parameter, index, guards, 0.0, values)
    return float(losses.sum()) if values else math.nan, sums.sum(axis=0)


def glm_clipped_sum(
    X: Any,
    y: npt.ArrayLike,
    theta: npt.ArrayLike,
    code: int,
    parameter: float = 0.0,
    *,
    grid: Grid,
    index: npt.ArrayLike | None = None,
    **guards: Unpack[Guards],
) -> Steps:
    """Sum clipped gradients exactly, each rounded to a grid, as `dpfit.kernels.dense.glm_clipped_sum`.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from dpfit.losses.links import SQUARED
    >>> X = csr_array([[3.0, 4.0], [1.0, 0.0]])
    >>> glm_clipped_sum(X, [0.0, -1.0], [1.0, 0.0], SQUARED, clip=1.0, grid=Grid(-3))
    array([13,  6])
    """
    inverse = inverse_step(grid, guards.get("clip", math.inf))
    _, sums = _pass(X, y, theta, code, parameter, index, guards, inverse, False)
    return total(sums, np.zeros(sums.shape[1], dtype=np.int64))


def glm_hessian_vector(
    X: Any,
    y: npt.ArrayLike,
    theta: npt.ArrayLike,
    vector: npt.ArrayLike,
    code: int,
    parameter: float = 0.0,
    *,
    index: npt.ArrayLike | None = None,
    **guards: Unpack[Guards],
) -> Floats:
    """Sum ``curvature * <x, vector> x`` over guarded records, as `dpfit.kernels.dense.glm_hessian_vector`.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from dpfit.losses.links import SQUARED
    >>> glm_hessian_vector(csr_array([[3.0, 4.0], [1.0, 0.0]]), [0.0, 0.0], [0.0, 0.0], [1.0, 0.0], SQUARED)
    array([10., 12.])
    """
    arrays, (rows, dimension) = _arrays(X)
    point, direction = as_points("theta", theta, (dimension,)), as_points("vector", vector, (dimension,))
    picks, count = as_picks(index, rows)
    labels, bounds = as_labels(y, rows), limits(dimension, **guards)
    each = blocks(count, dimension)
    loss = as_loss(code, parameter)
    return np.asarray(_hessian_vector(*arrays, labels, picks, count, each, point, direction, *loss, bounds).sum(axis=0))


def _pass(
    X: Any,
    y: npt.ArrayLike,
    theta: npt.ArrayLike,
    code: int,
    parameter: float,
    index: npt.ArrayLike | None,
    guards: Guards,
    inverse: float,
    valued: bool,
) -> tuple[Floats, Floats]:
    arrays, (rows, dimension) = _arrays(X)
    point, (picks, count) = as_points("theta", theta, (dimension,)), as_picks(index, rows)
    labels, bounds = as_labels(y, rows), limits(dimension, **guards)
    each = blocks(count, dimension)
    loss = as_loss(code, parameter)
    losses, sums = _gradients(*arrays, labels, picks, count, each, point, *loss, bounds, inverse, bool(valued))
    return losses, sums


def _arrays(X: Any) -> tuple[tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]], tuple[int, int]]:
    if getattr(X, "format", None) != "csr" or len(X.shape) != 2:
        raise ValueError("X must be a scipy.sparse matrix in CSR format")
    if X.dtype.kind not in "fiub":
        raise ValueError(f"X must hold real numbers, got {X.dtype}")
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    if X.dtype not in (np.float64, np.float32):
        X = X.astype(np.float64)
    return (read_only(X.data), read_only(X.indices), read_only(X.indptr)), X.shape


@njit(cache=True, inline="always")
def _measured(
    data: npt.NDArray[Any], indices: npt.NDArray[Any], start: int, stop: int, theta: Floats
) -> tuple[float, float, float]:
    """Return ``(scale, inner, norm)`` of a row, as `dpfit.kernels.rows.measured`; a malformed row has norm NaN."""
    inner, square, last = 0.0, 0.0, -1
    if not 0 <= start <= stop <= min(len(data), len(indices)):
        return 1.0, 0.0, math.nan
    for t in range(start, stop):
        j = indices[t]
        if not last < j < len(theta):
            return 1.0, 0.0, math.nan
        last = j
        entry = np.float64(data[t])
        inner += entry * theta[j]
        square += entry * entry
    if SMALL <= square < math.inf:
        return 1.0, inner, math.sqrt(square)
    scale = UP if square < SMALL else DOWN
    inner, square = 0.0, 0.0
    for t in range(start, stop):
        entry = scale * data[t]
        inner += entry * theta[indices[t]]
        square += entry * entry
    return scale, inner, (math.sqrt(square) if square < math.inf else math.nan)


@njit(cache=True, error_model="numpy")
def _gradient_block(
    data: npt.NDArray[Any],
    indices: npt.NDArray[Any],
    indptr: npt.NDArray[Any],
    y: Floats,
    picks: Steps,
    start: int,
    stop: int,
    theta: Floats,
    code: int,
    parameter: float,
    limits: Limits,
    inverse: float,
    valued: bool,
    sums: Floats,
) -> float:
    loss = 0.0
    for p in range(start, stop):
        i = picked(picks, p)
        scale, inner, norm = _measured(data, indices, indptr[i], indptr[i + 1], theta)
        factor, margin, label = guarded(scale, inner, norm, y[i], limits)
        if valued:
            loss += value(code, parameter, margin, label)
        weight = clipped(slope(code, parameter, margin, label), factor, norm, limits.clip)
        if weight == 0.0:
            continue
        if inverse > 0.0:
            weight *= inverse
            for t in range(indptr[i], indptr[i + 1]):
                sums[indices[t]] += np.rint(weight * (scale * data[t]))
        else:
            for t in range(indptr[i], indptr[i + 1]):
                sums[indices[t]] += weight * (scale * data[t])
    return loss


@njit(cache=True, parallel=True)
def _gradients(
    data: npt.NDArray[Any],
    indices: npt.NDArray[Any],
    indptr: npt.NDArray[Any],
    y: Floats,
    picks: Steps,
    count: int,
    each: int,
    theta: Floats,
    code: int,
    parameter: float,
    limits: Limits,
    inverse: float,
    valued: bool,
) -> tuple[Floats, Floats]:
    losses, sums = np.zeros(each), np.zeros((each, len(theta)))
    for b in prange(each):
        losses[b] = _gradient_block(
            data,
            indices,
            indptr,
            y,
            picks,
            b * count // each,
            (b + 1) * count // each,
            theta,
            code,
            parameter,
            limits,
            inverse,
            valued,
            sums[b],
        )
    return losses, sums


@njit(cache=True, error_model="numpy")
def _hessian_vector_block(
    data: npt.NDArray[Any],
    indices: npt.NDArray[Any],
    indptr: npt.NDArray[Any],
    y: Floats,
    picks: Steps,
    start: int,
    stop: int,
    theta: Floats,
    vector: Floats,
    code: int,
    parameter: float,
    limits: Limits,
    sums: Floats,
) -> None:
    for p in range(start, stop):
        i = picked(picks, p)
        scale, inner, norm = _measured(data, indices, indptr[i], indptr[i + 1], theta)
        factor, margin, label = guarded(scale, inner, norm, y[i], limits)
        if factor > 0.0:
            _, along, _ = _measured(data, indices, indptr[i], indptr[i + 1], vector)
            weight = curvature(code, parameter, margin, label) * factor * (factor * along)
            for t in range(indptr[i], indptr[i + 1]):
                sums[indices[t]] += weight * (scale * data[t])


@njit(cache=True, parallel=True)
def _hessian_vector(
    data: npt.NDArray[Any],
    indices: npt.NDArray[Any],
    indptr: npt.NDArray[Any],
    y: Floats,
    picks: Steps,
    count: int,
    each: int,
    theta: Floats,
    vector: Floats,
    code: int,
    parameter: float,
    limits: Limits,
) -> Floats:
    sums = np.zeros((each, len(theta)))
    for b in prange(each):
        start, stop = b * count // each, (b + 1) * count // each
        _hessian_vector_block(
            data, indices, indptr, y, picks, start, stop, theta, vector, code, parameter, limits, sums[b]
        )
    return sums
