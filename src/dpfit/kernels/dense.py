"""Sums over the records of a generalized linear loss, one pass over a dense matrix each.

All take the data ``X`` (n, d) and ``y`` (n,), a loss by its code and parameter (`dpfit.losses.links`), the public
bounds that are enforced on each record as keywords (`dpfit.kernels.rows.Guards`), and optionally the `index` of a
minibatch, whose rows are read in place. ``X`` is float64 or float32, of any memory layout; layouts other than C order
are copied in pieces of 8 MiB. Accumulators are float64, their memory is O(d) times the fixed number of blocks, and no
result depends on the number of threads (in `glm_hessian` and `gram` up to BLAS, see `dpfit.kernels.rounding`).
"""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from numba import njit, prange
from scipy.linalg import blas

from dpfit.kernels.fixed import inverse_step, total
from dpfit.kernels.rows import (
    SMALL,
    Guards,
    Limits,
    add_four,
    add_row,
    as_labels,
    as_loss,
    as_points,
    as_rows,
    blocks,
    clipped,
    guarded,
    limits,
    measured,
    picked,
    pieces,
    products,
)
from dpfit.losses.links import SQUARED, curvature, slope, value
from dpfit.noise.lattice import Grid
from dpfit.noise.source import Floats, Steps

_BUFFER = 2**21
"""Entries of the buffer of `glm_hessian`. It is filled by one thread: two pools of threads that wait for each other,
numba's and that of BLAS, cost more than they save."""


def glm_gradient(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    theta: npt.ArrayLike,
    code: int,
    parameter: float = 0.0,
    *,
    index: npt.ArrayLike | None = None,
    values: bool = True,
    **guards: Unpack[Guards],
) -> tuple[float, Floats]:
    """Sum the loss and its gradient at `theta` over records.

    Parameters
    ----------
    X, y
        Rows and labels.
    theta
        Point of shape (d,), finite.
    code, parameter
        The loss, as in `dpfit.losses.links`.
    index
        Rows to sum over; all of them if missing.
    values
        Whether to sum losses, too. Where gradients are all that is needed, this saves a logarithm per record of the
        logistic loss; the value is NaN then.
    **guards
        Bounds to enforce, see `dpfit.kernels.rows.Guards`. `clip` bounds gradients, not values.

    Returns
    -------
    value, gradient
        The sums. They are rounded; for private releases use `glm_clipped_sum`.

    Examples
    --------
    >>> from dpfit.losses.links import SQUARED
    >>> glm_gradient([[3.0, 4.0], [1.0, 0.0]], [0.0, -1.0], [1.0, 0.0], SQUARED)
    (6.5, array([11., 12.]))
    """
    sums = glm_gradients(X, y, _one(theta), code, parameter, index=index, values=values, **guards)
    return float(sums[0][0]), sums[1][0]


def glm_gradients(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    thetas: npt.ArrayLike,
    code: int,
    parameter: float = 0.0,
    *,
    index: npt.ArrayLike | None = None,
    values: bool = True,
    **guards: Unpack[Guards],
) -> tuple[Floats, Floats]:
    """Sum the loss and its gradient at each row of `thetas` (k, d), reading the data once.

    Returns
    -------
    values, gradients
        Shapes (k,) and (k, d); see `glm_gradient`.

    Examples
    --------
    >>> from dpfit.losses.links import SQUARED
    >>> glm_gradients([[1.0], [2.0]], [0.0, 0.0], [[1.0], [-1.0]], SQUARED)
    (array([2.5, 2.5]), array([[ 5.],
           [-5.]]))
    """
    rows = as_rows(X)
    points = as_points("thetas", thetas, (*np.shape(thetas)[:1], rows.shape[1]))
    loss, bounds = as_loss(code, parameter), limits(rows.shape[1], **guards)
    losses, gradients = np.full(len(points), 0.0 if values else math.nan), np.zeros(points.shape)
    for part, labels, picks, count in pieces(rows, as_labels(y, len(rows)), index):
        each = blocks(count, points.size)
        sums = _gradients(part, labels, picks, count, each, points, *loss, bounds, 0.0, bool(values))
        losses += sums[0].sum(axis=0)
        gradients += sums[1].sum(axis=0)
    return losses, gradients


def glm_clipped_sum(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    theta: npt.ArrayLike,
    code: int,
    parameter: float = 0.0,
    *,
    grid: Grid,
    index: npt.ArrayLike | None = None,
    **guards: Unpack[Guards],
) -> Steps:
    """Sum clipped gradients exactly, each rounded to a grid.

    A record's contribution depends on that record and `theta` only, bit for bit, and integers are added exactly in any
    order. So the sum does not depend on the order of records, and one record changes it by what that record
    contributes: a vector of l2 norm at most ``clip`` before rounding (see `dpfit.kernels.rows`), moved by at most
    half a step in each coordinate. Adding or removing a record moves the sum by at most ``clip + grid.rounding(d,
    "l2") / 2``, replacing one by at most ``2 * clip + grid.rounding(d, "l2")``.

    Parameters
    ----------
    X, y, code, parameter, index
        As in `glm_gradient`.
    theta
        One point (d,), or several (k, d) in one pass.
    grid
        Where contributions are rounded to. Its step must be in ``(clip / 2**31, clip]``.
    **guards
        Bounds to enforce; `clip` is required.

    Returns
    -------
    steps
        The sum in steps of the grid, of the shape of `theta`.

    Examples
    --------
    >>> from dpfit.losses.links import SQUARED
    >>> glm_clipped_sum([[3.0, 4.0], [1.0, 0.0]], [0.0, -1.0], [1.0, 0.0], SQUARED, clip=1.0, grid=Grid(-3))
    array([13,  6])
    """
    rows, shape = as_rows(X), np.shape(theta)
    if len(shape) not in (1, 2):
        raise ValueError(f"theta must be a vector or a matrix, got an array with {len(shape)} axes")
    several = math.prod(shape[:-1])
    points = as_points("theta", np.reshape(theta, (several, shape[-1])), (several, rows.shape[1]))
    loss, bounds = as_loss(code, parameter), limits(rows.shape[1], **guards)
    inverse = inverse_step(grid, guards.get("clip", math.inf))
    steps = np.zeros(points.shape, dtype=np.int64)
    for part, labels, picks, count in pieces(rows, as_labels(y, len(rows)), index):
        each = blocks(count, points.size)
        sums = _gradients(part, labels, picks, count, each, points, *loss, bounds, inverse, False)
        steps = total(sums[1], steps)
    return steps.reshape(shape)


def glm_hessian(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    theta: npt.ArrayLike,
    code: int,
    parameter: float = 0.0,
    *,
    index: npt.ArrayLike | None = None,
    **guards: Unpack[Guards],
) -> Floats:
    """Sum ``curvature * x x^T`` over guarded records.

    Rows times the square root of their curvature are written to a buffer of 16 MiB, and BLAS multiplies buffers. Its
    order of summation is unknown: before a release, `dpfit.kernels.rounding.sum_error` belongs to the sensitivity.

    Examples
    --------
    >>> from dpfit.losses.links import SQUARED
    >>> glm_hessian([[3.0, 4.0], [1.0, 0.0]], [0.0, 0.0], [0.0, 0.0], SQUARED)
    array([[10., 12.],
           [12., 16.]])
    """
    return _second_moments(X, y, theta, code, parameter, index, guards)[0]


def gram(
    X: npt.ArrayLike, y: npt.ArrayLike, *, index: npt.ArrayLike | None = None, **guards: Unpack[Guards]
) -> tuple[Floats, Floats]:
    """Sum ``x x^T`` and ``x y`` over guarded records, as `glm_hessian` does.

    Examples
    --------
    >>> gram([[3.0, 4.0], [1.0, 0.0]], [1.0, 2.0])
    (array([[10., 12.],
           [12., 16.]]), array([5., 4.]))
    """
    return _second_moments(X, y, np.zeros(as_rows(X).shape[1]), SQUARED, 0.0, index, guards)


def glm_hessian_vector(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    theta: npt.ArrayLike,
    vector: npt.ArrayLike,
    code: int,
    parameter: float = 0.0,
    *,
    index: npt.ArrayLike | None = None,
    **guards: Unpack[Guards],
) -> Floats:
    """Sum ``curvature * <x, vector> x`` over guarded records: the product of `glm_hessian` and `vector`.

    Examples
    --------
    >>> from dpfit.losses.links import SQUARED
    >>> glm_hessian_vector([[3.0, 4.0], [1.0, 0.0]], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0], SQUARED)
    array([10., 12.])
    """
    return _curvatures(X, y, theta, vector, code, parameter, index, guards)[1]


def curvature_trace(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    theta: npt.ArrayLike,
    code: int,
    parameter: float = 0.0,
    *,
    index: npt.ArrayLike | None = None,
    **guards: Unpack[Guards],
) -> float:
    """Sum ``curvature * norm(x)**2`` over guarded records: the trace of `glm_hessian`.

    Examples
    --------
    >>> from dpfit.losses.links import SQUARED
    >>> curvature_trace([[3.0, 4.0], [1.0, 0.0]], [0.0, 0.0], [0.0, 0.0], SQUARED)
    26.0
    """
    return _curvatures(X, y, theta, np.zeros_like(theta, dtype=np.float64), code, parameter, index, guards)[0]


def margins(
    X: npt.ArrayLike, theta: npt.ArrayLike, *, row_norm: float = math.inf, index: npt.ArrayLike | None = None
) -> Floats:
    """Return ``<x, theta>`` of each guarded row.

    Examples
    --------
    >>> margins([[3.0, 4.0], [float("nan"), 0.0]], [1.0, 1.0])
    array([7., 0.])
    """
    rows = as_rows(X)
    points, bounds = as_points("theta", _one(theta), (1, rows.shape[1])), limits(rows.shape[1], row_norm=row_norm)
    results = [np.empty(0)]
    for part, _, picks, count in pieces(rows, np.broadcast_to(0.0, len(rows)), index):
        results.append(np.empty(count))
        _margins(part, picks, points, bounds, results[-1])
    return results[1] if len(results) == 2 else np.concatenate(results)


def _one(theta: npt.ArrayLike) -> npt.NDArray[Any]:
    point = np.asarray(theta)
    if point.ndim != 1:
        raise ValueError(f"theta must be a vector, got an array with {point.ndim} axes")
    return point[np.newaxis]


def _second_moments(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    theta: npt.ArrayLike,
    code: int,
    parameter: float,
    index: npt.ArrayLike | None,
    guards: Guards,
) -> tuple[Floats, Floats]:
    rows = as_rows(X)
    dimension = rows.shape[1]
    points = as_points("theta", _one(theta), (1, dimension))
    loss, bounds = as_loss(code, parameter), limits(dimension, **guards)
    matrix, vector = np.zeros((dimension, dimension), order="F"), np.zeros(dimension)
    if dimension == 0:
        return matrix, vector
    size = max(256, _BUFFER // dimension)
    buffer = np.empty((size, dimension))
    for part, labels, picks, count in pieces(rows, as_labels(y, len(rows)), index):
        for start in range(0, count, size):
            stop = min(start + size, count)
            filled = buffer[: stop - start]
            _scaled(part, labels, picks, start, points, *loss, bounds, filled, vector)
            # The transpose of a C-ordered buffer is what BLAS calls a matrix; nothing is copied.
            matrix = blas.dsyrk(1.0, filled.T, beta=1.0, c=matrix, overwrite_c=True)
    return np.ascontiguousarray(np.triu(matrix) + np.triu(matrix, 1).T), vector


def _curvatures(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    theta: npt.ArrayLike,
    vector: npt.ArrayLike,
    code: int,
    parameter: float,
    index: npt.ArrayLike | None,
    guards: Guards,
) -> tuple[float, Floats]:
    rows = as_rows(X)
    shape = (1, rows.shape[1])
    points, directions = as_points("theta", _one(theta), shape), as_points("vector", _one(vector), shape)
    loss, bounds = as_loss(code, parameter), limits(rows.shape[1], **guards)
    trace, product = 0.0, np.zeros(rows.shape[1])
    for part, labels, picks, count in pieces(rows, as_labels(y, len(rows)), index):
        each = blocks(count, rows.shape[1])
        sums = _hessian_vector(part, labels, picks, count, each, points, directions, *loss, bounds)
        trace += float(sums[0].sum())
        product += sums[1].sum(axis=0)[0]
    return trace, product


@njit(cache=True, error_model="numpy")
def _gradient_block(
    X: npt.NDArray[Any],
    y: Floats,
    picks: Steps,
    start: int,
    stop: int,
    thetas: Floats,
    code: int,
    parameter: float,
    limits: Limits,
    inverse: float,
    valued: bool,
    values: Floats,
    sums: Floats,
) -> None:
    rows, inners, squares, weights = np.empty(4, dtype=np.int64), np.empty(4), np.empty(4), np.empty(4)
    unit, whole = (inverse, True) if inverse > 0.0 else (1.0, False)
    for first in range(start, stop, 4):
        size = min(4, stop - first)
        for k in range(len(thetas)):
            plain = size == 4
            for r in range(size):
                rows[r] = picked(picks, first + r)
                inners[r], squares[r] = products(X, rows[r], thetas, k)
                plain &= SMALL <= squares[r] < math.inf
            # Rows that need care are kept out of the loop that has to be fast. Both ways give a row the same weight.
            for r in range(size):
                i, scale, inner, norm = rows[r], 1.0, inners[r], math.sqrt(squares[r])
                if not plain:
                    scale, inner, norm = measured(X, i, thetas, k)
                factor, margin, label = guarded(scale, inner, norm, y[i], limits)
                weights[r] = unit * clipped(slope(code, parameter, margin, label), factor, norm, limits.clip)
                if not plain:
                    add_row(X, i, scale, weights[r], whole, sums, k)
                if valued:
                    values[k] += value(code, parameter, margin, label)
            if plain:
                add_four(X, rows, weights, whole, sums, k)


@njit(cache=True, parallel=True)
def _gradients(
    X: npt.NDArray[Any],
    y: Floats,
    picks: Steps,
    count: int,
    each: int,
    thetas: Floats,
    code: int,
    parameter: float,
    limits: Limits,
    inverse: float,
    valued: bool,
) -> tuple[Floats, Floats]:
    """Return the sums of values and gradients by block; with an inverse step, gradients are rounded to whole steps."""
    values = np.zeros((each, len(thetas)))
    sums = np.zeros((each, len(thetas), X.shape[1]))
    for b in prange(each):
        start, stop = b * count // each, (b + 1) * count // each
        _gradient_block(X, y, picks, start, stop, thetas, code, parameter, limits, inverse, valued, values[b], sums[b])
    return values, sums


@njit(cache=True, error_model="numpy")
def _hessian_vector_block(
    X: npt.NDArray[Any],
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
) -> float:
    trace = 0.0
    for p in range(start, stop):
        i = picked(picks, p)
        scale, inner, norm = measured(X, i, theta, 0)
        factor, margin, label = guarded(scale, inner, norm, y[i], limits)
        if factor > 0.0:
            bend = curvature(code, parameter, margin, label)
            trace += bend * (factor * norm) ** 2
            add_row(X, i, scale, bend * factor * (factor * measured(X, i, vector, 0)[1]), False, sums, 0)
    return trace


@njit(cache=True, parallel=True)
def _hessian_vector(
    X: npt.NDArray[Any],
    y: Floats,
    picks: Steps,
    count: int,
    each: int,
    theta: Floats,
    vector: Floats,
    code: int,
    parameter: float,
    limits: Limits,
) -> tuple[Floats, Floats]:
    traces, sums = np.zeros(each), np.zeros((each, 1, X.shape[1]))
    for b in prange(each):
        start, stop = b * count // each, (b + 1) * count // each
        traces[b] = _hessian_vector_block(X, y, picks, start, stop, theta, vector, code, parameter, limits, sums[b])
    return traces, sums


@njit(cache=True, error_model="numpy")
def _scaled(
    X: npt.NDArray[Any],
    y: Floats,
    picks: Steps,
    start: int,
    theta: Floats,
    code: int,
    parameter: float,
    limits: Limits,
    rows: Floats,
    cross: Floats,
) -> None:
    """Write guarded rows times the square root of their curvature, and add them times guarded labels to `cross`."""
    for p in range(len(rows)):
        i = picked(picks, start + p)
        scale, inner, norm = measured(X, i, theta, 0)
        factor, margin, label = guarded(scale, inner, norm, y[i], limits)
        weight = factor * math.sqrt(curvature(code, parameter, margin, label))
        if weight > 0.0:
            for j in range(X.shape[1]):
                rows[p, j] = weight * (scale * X[i, j])
                cross[j] += label * rows[p, j]
        else:
            rows[p] = 0.0


@njit(cache=True, parallel=True)
def _margins(X: npt.NDArray[Any], picks: Steps, theta: Floats, limits: Limits, results: Floats) -> None:
    for p in prange(len(results)):
        i = picked(picks, p)
        scale, inner, norm = measured(X, i, theta, 0)
        results[p] = guarded(scale, inner, norm, 0.0, limits)[1]
