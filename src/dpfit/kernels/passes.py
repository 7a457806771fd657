"""Sums over records, one pass over the data each, for every loss and for dense and sparse rows.

All take rows ``X`` (n, d), labels ``y`` (n,) and a loss; the public bounds that are enforced on
each record as keywords (`dpfit.kernels.bounds.Guards`); and optionally the `index` of a minibatch,
whose rows are read in place. ``X`` is float64 or float32, of any memory layout, or a CSR matrix of
scipy; dense layouts other than C order are copied in pieces of 8 MiB. Accumulators are float64,
their memory is O(d) times the fixed number of blocks, and no result depends on the number of
threads (in `hessian` and `gram` up to BLAS, see `dpfit.kernels.rounding`).

A parameter is a vector of d numbers. That of `Softmax` is a matrix (d, K), or the same numbers as a
vector in C order, which is what solvers work with; sums come back in the shape that was given. A
loss of the caller gets its parameter as a vector of any length. `Softmax` and the vector losses
know what their labels are; label guards do not concern them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas

from dpfit.kernels import custom, dense, glm, jax_sums, softmax, vector
from dpfit.kernels.bounds import Guards, limits, most_entry
from dpfit.kernels.fixed_point import coarser, inverse_step, rounded_sums, total
from dpfit.kernels.rounding import pairwise
from dpfit.kernels.rows import LARGEST_BLOCK, as_labels, as_points, as_rows, blocks, pieces
from dpfit.kernels.threads import one_blas_thread, spread
from dpfit.losses.base import Loss
from dpfit.losses.custom import DeclaredLoss, JaxLoss
from dpfit.losses.dense import DenseLayers
from dpfit.losses.glm import GLM, Squared
from dpfit.losses.softmax import Softmax
from dpfit.losses.vector import Distance, HuberDistance, LinearLoss, SquaredDistance
from dpfit.noise.lattice import Grid
from dpfit.noise.source import Floats, Steps

_BUFFER = 2**21
"""Entries of the buffer of `hessian`. It is filled by one thread: two pools of threads that wait
for each other, ours
and that of BLAS, cost more than they save."""


@dataclass(frozen=True)
class _Loop:
    """The loop that sums the gradients of a loss.

    All loops take blocks, rows, labels, points, what they know of the loss, and limits, and fill
    the sums of blocks.
    """

    run: Callable[..., None]
    loss: Any
    point: tuple[int, ...]
    """The shape of a parameter."""
    labels: Guards = field(default_factory=Guards)
    """What is enforced on labels in place of the caller's guards."""
    compiled: bool = True
    curvatures: Any = None
    """The loop that sums the products of Hessians and a vector, of losses that have one."""
    each_record: Callable[..., Floats] | None = None
    """What returns the gradient of each record in whole steps, if it is faster than the loop."""
    rounds_sums: bool = False
    """Whether sums of several records are rounded, not each record (`rounded_sums`). They are
    products by BLAS, in one thread for each block."""


@singledispatch
def _loop(loss: Loss, width: int, size: int) -> _Loop:
    raise ValueError(
        f"there is no pass over the data for {getattr(loss, 'kind', type(loss).__name__)!r}"
    )


@_loop.register
def _(loss: GLM, width: int, size: int) -> _Loop:
    link = tuple(loss.margin_function)
    return _Loop(glm.gradients, link, (width,), curvatures=glm.curvatures)


@_loop.register
def _(loss: Softmax, width: int, size: int) -> _Loop:
    classes = Guards(label_lower=0.0, label_upper=loss.classes - 1.0, binary=False)
    shape = (width, loss.classes)
    return _Loop(softmax.gradients, loss.classes, shape, classes, curvatures=softmax.curvatures)


@_loop.register(Distance)
@_loop.register(SquaredDistance)
@_loop.register(HuberDistance)
@_loop.register(LinearLoss)
def _(loss: Any, width: int, size: int) -> _Loop:
    code = {Distance: vector.DISTANCE, LinearLoss: vector.LINEAR}.get(
        type(loss), vector.HUBER_DISTANCE
    )
    return _Loop(
        vector.gradients,
        tuple(vector.Pull(code, float(getattr(loss, "width", math.inf)))),
        (width,),
    )


@_loop.register
def _(loss: DeclaredLoss, width: int, size: int) -> _Loop:
    point = (loss.n_parameters or size,)
    each_record = custom.rounded_gradients
    return _Loop(custom.gradients, loss, point, compiled=False, each_record=each_record)


@_loop.register
def _(loss: JaxLoss, width: int, size: int) -> _Loop:
    point = (loss.n_parameters or size,)
    each_record = jax_sums.rounded_gradients
    return _Loop(jax_sums.gradients, loss, point, compiled=False, each_record=each_record)


@_loop.register
def _(loss: DenseLayers, width: int, size: int) -> _Loop:
    point = (loss.size(width),)
    each_record = dense.rounded_gradients
    return _Loop(
        dense.gradients, loss, point, compiled=False, each_record=each_record, rounds_sums=True
    )


def _curved(loss: Loss, width: int) -> _Loop:
    loop = _loop(loss, width, width)
    if loop.curvatures is None or not loss.has_hessian:
        raise ValueError(
            f"there is no Hessian pass for {loss.kind!r}; convex generalized linear losses and "
            "softmax have one"
        )
    return loop


def gradient(
    X: Any,
    y: npt.ArrayLike,
    theta: npt.ArrayLike,
    loss: Loss,
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
        Where, finite.
    loss
        A loss of `dpfit.losses`.
    index
        Rows to sum over; all of them if missing.
    values
        Whether to sum losses, too. Where gradients are all that is needed, this saves a logarithm
        per record of the logistic loss; the value is NaN then.
    **guards
        Bounds to enforce, see `dpfit.kernels.bounds.Guards`. `clip` bounds gradients, not values.

    Returns
    -------
    value, gradient
        The sums. They are rounded; for private releases use `clipped_sum`.

    Examples
    --------
    >>> gradient([[3.0, 4.0], [1.0, 0.0]], [0.0, -1.0], [1.0, 0.0], Squared())
    (6.5, array([11., 12.]))
    >>> from scipy.sparse import csr_array
    >>> gradient(csr_array([[3.0, 4.0], [1.0, 0.0]]), [0.0, -1.0], [1.0, 0.0], Squared())
    (6.5, array([11., 12.]))
    >>> gradient([[2.0]], [1], [[0.0, 0.0]], Softmax(2))[1]
    array([[ 1., -1.]])
    """
    losses, sums = gradients(
        X, y, np.asarray(theta)[np.newaxis], loss, index=index, values=values, **guards
    )
    return float(losses[0]), sums[0]


def gradients(
    X: Any,
    y: npt.ArrayLike,
    thetas: npt.ArrayLike,
    loss: Loss,
    *,
    index: npt.ArrayLike | None = None,
    values: bool = True,
    **guards: Unpack[Guards],
) -> tuple[Floats, Floats]:
    """Sum the loss and its gradient at each of `thetas`, k parameters, reading the data once.

    Returns
    -------
    values, gradients
        Of shape (k,) and of the shape of `thetas`; see `gradient`.

    Examples
    --------
    >>> gradients([[1.0], [2.0]], [0.0, 0.0], [[1.0], [-1.0]], Squared())
    (array([2.5, 2.5]), array([[ 5.],
           [-5.]]))
    """
    rows, given = as_rows(X), np.asarray(thetas)
    loop = _loop(loss, rows.shape[1], given.shape[-1] if given.ndim else 0)
    points = _points("theta", given, loop.point)
    nothing = np.full(len(points), 0.0 if values else math.nan), np.zeros(points.shape)
    sums = _block_sums(rows, y, points, loop, index, guards, 0.0, values)
    losses, gradients = pairwise(
        nothing, ((part[0].sum(axis=0), part[1].sum(axis=0)) for part in sums)
    )
    return losses, gradients.reshape(given.shape)


def clipped_sum(
    X: Any,
    y: npt.ArrayLike,
    theta: npt.ArrayLike,
    loss: Loss,
    *,
    grid: Grid,
    index: npt.ArrayLike | None = None,
    **guards: Unpack[Guards],
) -> Steps:
    """Sum clipped gradients exactly, each rounded to a grid.

    A record's contribution depends on that record and `theta` only, bit for bit, and integers are
    added exactly in any order. So the sum does not depend on the order of records, and one record
    changes it by what that record contributes: a vector of l2 norm at most ``clip`` before rounding
    (see `dpfit.kernels.bounds`), moved by at most half a step in each coordinate. With d
    parameters, adding or removing a record moves the sum by at most ``clip + grid.rounding(d, "l2")
    / 2``, replacing one by at most ``2 * clip + grid.rounding(d, "l2")``. (Of a loss that the
    caller wrote, `dpfit.kernels.custom` says what holds.)

    Parameters
    ----------
    X, y, loss, index
        As in `gradient`.
    theta
        One parameter, or several in one pass.
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
    >>> clipped_sum(
    ...     [[3.0, 4.0], [1.0, 0.0]], [0.0, -1.0], [1.0, 0.0], Squared(), clip=1.0, grid=Grid(-3)
    ... )
    array([13,  6])
    >>> clipped_sum([[2.0]], [1], [[0.0, 0.0]], Softmax(2), clip=1.0, grid=Grid(-4))
    array([[ 11, -11]])
    """
    rows, given = as_rows(X), np.asarray(theta)
    loop = _loop(loss, rows.shape[1], given.shape[-1] if given.ndim else 0)
    points = _points("theta", given, loop.point)
    inverse, bits = inverse_step(grid, guards.get("clip", math.inf)), 0
    if loop.rounds_sums:
        bits, guards["clip"] = rounded_sums(grid, guards["clip"], sum(loop.point))
    steps = np.zeros(points.shape, dtype=np.int64)
    for part in _block_sums(rows, y, points, loop, index, guards, inverse * 2.0**bits, False):
        steps = total(part[1], steps)
    return coarser(steps, bits).reshape(given.shape)


def hessian(
    X: Any,
    y: npt.ArrayLike,
    theta: npt.ArrayLike,
    loss: Loss,
    *,
    index: npt.ArrayLike | None = None,
    **guards: Unpack[Guards],
) -> Floats:
    """Sum ``curvature * x x^T`` over guarded records, or the Hessians of `Softmax`.

    Rows times the square root of their curvature are written to a buffer of 16 MiB, and BLAS
    multiplies buffers. Its order of summation is unknown: before a release,
    `dpfit.kernels.rounding.sum_error` belongs to the sensitivity.

    With K classes the curvature is a matrix, ``diag p - p p^T``, and the sum has shape (d K, d K),
    for the parameter as a vector in C order. It consists of a matrix (d, d) for each pair of
    classes, which BLAS sums in the same way.

    Examples
    --------
    >>> hessian([[3.0, 4.0], [1.0, 0.0]], [0.0, 0.0], [0.0, 0.0], Squared())
    array([[10., 12.],
           [12., 16.]])
    """
    if isinstance(loss, Softmax):
        return _class_moments(X, y, theta, loss, index, guards)
    return _second_moments(X, y, theta, loss, index, guards)[0]


def gram(
    X: Any, y: npt.ArrayLike, *, index: npt.ArrayLike | None = None, **guards: Unpack[Guards]
) -> tuple[Floats, Floats]:
    """Sum ``x x^T`` and ``x y`` over guarded records, as `hessian` does.

    Examples
    --------
    >>> gram([[3.0, 4.0], [1.0, 0.0]], [1.0, 2.0])
    (array([[10., 12.],
           [12., 16.]]), array([5., 4.]))
    """
    return _second_moments(X, y, np.zeros(as_rows(X).shape[1]), Squared(), index, guards)


def hessian_vector(
    X: Any,
    y: npt.ArrayLike,
    theta: npt.ArrayLike,
    vector: npt.ArrayLike,
    loss: Loss,
    *,
    index: npt.ArrayLike | None = None,
    **guards: Unpack[Guards],
) -> Floats:
    """Sum ``curvature * <x, vector> x`` over guarded records: `hessian` times `vector`.

    Examples
    --------
    >>> hessian_vector([[3.0, 4.0], [1.0, 0.0]], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0], Squared())
    array([10., 12.])
    """
    return _curvatures(X, y, theta, vector, loss, index, guards)[1]


def curvature_trace(
    X: Any,
    y: npt.ArrayLike,
    theta: npt.ArrayLike,
    loss: Loss,
    *,
    index: npt.ArrayLike | None = None,
    **guards: Unpack[Guards],
) -> float:
    """Sum ``curvature * norm(x)**2`` over guarded records: the trace of `hessian`.

    Examples
    --------
    >>> curvature_trace([[3.0, 4.0], [1.0, 0.0]], [0.0, 0.0], [0.0, 0.0], Squared())
    26.0
    """
    return _curvatures(X, y, theta, np.zeros(np.shape(theta)), loss, index, guards)[0]


def margins(
    X: Any, theta: npt.ArrayLike, *, row_norm: float = math.inf, index: npt.ArrayLike | None = None
) -> Floats:
    """Return ``<x, theta>`` of each guarded row.

    Examples
    --------
    >>> margins([[3.0, 4.0], [float("nan"), 0.0]], [1.0, 1.0])
    array([7., 0.])
    """
    rows = as_rows(X)
    width = rows.shape[1]
    point, bounds = _point("theta", theta, (width,)), tuple(limits(width, row_norm=row_norm))
    results = [np.empty(0)]
    for part, _, picks, count in pieces(rows, np.broadcast_to(0.0, rows.shape[0]), index):
        results.append(np.empty(count))
        each = blocks(count, 1)
        spread(
            glm.write_margins,
            each,
            count * width,
            part,
            picks,
            count,
            each,
            point,
            bounds,
            results[-1],
        )
    return results[1] if len(results) == 2 else np.concatenate(results)


def _points(name: str, given: npt.NDArray[Any], point: tuple[int, ...]) -> Floats:
    """Return parameters as a stack of points, from one or several that may be flat."""
    shape = point if given.shape[given.ndim - len(point) :] == point else (math.prod(point),)
    several = given.shape[: given.ndim - len(shape)]
    if len(several) > 1 or given.shape != (*several, *shape):
        raise ValueError(f"{name} must have shape {point}, got {given.shape}")
    stack = math.prod(several)
    return as_points(name, given.reshape(stack, *shape), (stack, *shape)).reshape(stack, *point)


def _point(name: str, theta: npt.ArrayLike, point: tuple[int, ...]) -> Floats:
    """Return one parameter as a stack of one, as loops take it."""
    return _turned(_points(name, np.asarray(theta)[np.newaxis], point))


def _block_sums(
    rows: Any,
    y: npt.ArrayLike,
    points: Floats,
    loop: _Loop,
    index: npt.ArrayLike | None,
    guards: Guards,
    inverse: float,
    valued: bool,
) -> Iterator[tuple[Floats, Floats]]:
    """Yield sums of values and gradients by block; an inverse step rounds gradients."""
    n, width = rows.shape
    enforced: Guards = {**guards, **loop.labels}
    bounds = tuple(limits(sum(loop.point), **enforced))
    turned = _turned(points)
    for part, labels, picks, count in pieces(rows, as_labels(y, n), index, most_entry(guards)):
        # Loops of the interpreter have no threads: few blocks, so that fewer sums are added.
        few = max(1, -(-count // (LARGEST_BLOCK // 2)))
        each = blocks(count, points.size) if loop.compiled else few
        if loop.rounds_sums:
            each = max(1, min(blocks(count, points.size), -(-count // dense.CHUNK)))
        values, sums = np.zeros((each, len(points))), np.zeros((each, *turned.shape))
        # Products take about as long for eight parameters as reading one entry does.
        work = count * (width if loop.compiled else points.size * loop.rounds_sums // 8)
        common = (
            part,
            labels,
            picks,
            count,
            each,
            turned,
            loop.loss,
            bounds,
            inverse,
            bool(valued),
        )
        with one_blas_thread() if loop.rounds_sums else nullcontext():
            spread(loop.run, each, work, *common, values, sums)
        yield values, _turned(sums, 1)


def _turned(points: Floats, axes: int = 0) -> Floats:
    """Matrices transposed, so that a class's parameters are adjacent; vectors unchanged."""
    return np.ascontiguousarray(points.swapaxes(-1, -2)) if points.ndim - axes == 3 else points


def _second_moments(
    X: Any,
    y: npt.ArrayLike,
    theta: npt.ArrayLike,
    loss: Loss,
    index: npt.ArrayLike | None,
    guards: Guards,
) -> tuple[Floats, Floats]:
    rows = as_rows(X)
    n, width = rows.shape
    loop = _curved(loss, width)
    point, bounds = _point("theta", theta, loop.point), tuple(limits(width, **guards))
    matrix, cross = np.zeros((width, width), order="F"), np.zeros(width)
    if width == 0:
        return matrix, cross
    size = max(256, _BUFFER // width)
    buffer = np.empty((size, width))
    for part, labels, picks, count in pieces(rows, as_labels(y, n), index, most_entry(guards)):
        for start in range(0, count, size):
            filled = buffer[: min(size, count - start)]
            glm.write_scaled(part, labels, picks, start, point, loop.loss, bounds, filled, cross)
            matrix = _plus_square(matrix, filled)
    return _mirrored(matrix), cross


def _class_moments(
    X: Any,
    y: npt.ArrayLike,
    theta: npt.ArrayLike,
    loss: Softmax,
    index: npt.ArrayLike | None,
    guards: Guards,
) -> Floats:
    rows = as_rows(X)
    (n, width), classes = rows.shape, loss.classes
    loop = _curved(loss, width)
    enforced: Guards = {**guards, **loop.labels}
    point, bounds = _point("theta", theta, loop.point), tuple(limits(sum(loop.point), **enforced))
    hessian = np.zeros((width, classes, width, classes))
    if width == 0:
        return hessian.reshape(0, 0)
    pairs = {
        (c, e): np.zeros((width, width), order="F") for c in range(classes) for e in range(c + 1)
    }
    size = max(256, _BUFFER // (2 * width + classes**2))
    kept, scaled, roots = (
        np.empty((size, width)),
        np.empty((size, width)),
        np.empty((classes, classes, size)),
    )
    for part, labels, picks, count in pieces(rows, as_labels(y, n), index, most_entry(guards)):
        for start in range(0, count, size):
            filled = min(size, count - start)
            softmax.write_guarded(part, labels, picks, start, point, bounds, kept[:filled], roots)
            for pair, matrix in pairs.items():
                np.multiply(kept[:filled], roots[pair][:filled, np.newaxis], out=scaled[:filled])
                pairs[pair] = _plus_square(matrix, scaled[:filled])
    for (c, e), matrix in pairs.items():
        hessian[:, c, :, e] = hessian[:, e, :, c] = (
            _mirrored(matrix) if c == e else -_mirrored(matrix)
        )
    return hessian.reshape(width * classes, width * classes)


def _plus_square(matrix: Floats, rows: Floats) -> Floats:
    """Add ``rows^T rows`` to the upper triangle of a matrix in Fortran order, in place."""
    # The transpose of a C-ordered buffer is what BLAS calls a matrix; nothing is copied.
    return np.asarray(blas.dsyrk(1.0, rows.T, beta=1.0, c=matrix, overwrite_c=True))


def _mirrored(matrix: Floats) -> Floats:
    """The symmetric matrix of an upper triangle."""
    return np.ascontiguousarray(np.triu(matrix) + np.triu(matrix, 1).T)


def _curvatures(
    X: Any,
    y: npt.ArrayLike,
    theta: npt.ArrayLike,
    vector: npt.ArrayLike,
    loss: Loss,
    index: npt.ArrayLike | None,
    guards: Guards,
) -> tuple[float, Floats]:
    rows = as_rows(X)
    n, width = rows.shape
    loop = _curved(loss, width)
    point, direction = _point("theta", theta, loop.point), _point("vector", vector, loop.point)
    enforced: Guards = {**guards, **loop.labels}
    bounds = tuple(limits(sum(loop.point), **enforced))
    trace, product = 0.0, np.zeros(loop.point)
    for part, labels, picks, count in pieces(rows, as_labels(y, n), index, most_entry(guards)):
        each = blocks(count, point.size)
        traces, sums = np.zeros(each), np.zeros((each, *point.shape))
        common = (part, labels, picks, count, each, point, direction, loop.loss, bounds)
        spread(loop.curvatures, each, count * width, *common, traces, sums)
        trace += float(traces.sum())
        product += _turned(sums.sum(axis=0))[0]
    return trace, product.reshape(np.shape(vector))
