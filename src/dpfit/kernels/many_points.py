"""Clipped gradient sums at many points in one pass over dense rows, for parallel descents.

What depends on a record alone (its norm, its guards) is computed once and not at every point, and
the sums of 64 points stand side by side, so that all of them take part in every instruction. A
record contributes what it contributes to `dpfit.kernels.passes.clipped_sum`; where the two sum an
inner product in different orders, a contribution half-way between two whole numbers of steps may be
rounded to the other one.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from dpfit.kernels.bounds import Guards, Limits, guarded, limits, most_entry
from dpfit.kernels.fixed_point import LARGEST_BLOCK, inverse_step, total
from dpfit.kernels.rows import as_labels, as_points, as_rows, measured, pieces
from dpfit.kernels.threads import spread
from dpfit.losses.compiled import compiled
from dpfit.losses.glm import GLM
from dpfit.losses.margin_functions import MarginFunction, envelope_slope
from dpfit.noise.lattice import Grid
from dpfit.noise.source import Floats, Steps

Flags = npt.NDArray[np.bool_]

_TOGETHER = 64
EVERY_RECORD: Flags = np.zeros((0, 0), dtype=np.bool_)


def many_clipped_sums(
    X: Any, y: npt.ArrayLike, points: Floats, loss: GLM, *, grid: Grid, taken: Flags = EVERY_RECORD,
    **guards: Unpack[Guards],
) -> Steps:  # fmt: skip
    """Sum clipped gradients at each of the points (k, d), in steps of the grid.

    Parameters
    ----------
    X, y, loss, grid, **guards
        As in `dpfit.kernels.passes.clipped_sum`; rows are dense.
    points
        Where, finite.
    taken
        Flags (k, n): which records take part at which point. All of them if there are none.

    Examples
    --------
    >>> from dpfit.losses.glm import Squared
    >>> points = np.array([[1.0, 0.0], [0.0, 0.0]])
    >>> many_clipped_sums(
    ...     [[3.0, 4.0], [1.0, 0.0]], [0.0, -1.0], points, Squared(), clip=1.0, grid=Grid(-3)
    ... )
    array([[13,  6],
           [ 8,  0]])
    """
    matrix = as_rows(X)
    n, width = matrix.shape
    k = len(points)
    stack, marks = as_points("theta", points, (k, width)), np.ascontiguousarray(taken.T)
    link, bounds = (
        tuple(loss.margin_function),
        tuple(limits(width, **guards)),
    )
    inverse, chunks = inverse_step(grid, guards.get("clip", math.inf)), -(-k // _TOGETHER)
    steps, before = np.zeros((k, width), dtype=np.int64), 0
    for rows, labels, _, count in pieces(matrix, as_labels(y, n), None, most_entry(guards)):
        for start in range(0, count, LARGEST_BLOCK):
            stop = min(start + LARGEST_BLOCK, count)
            chosen = marks[before + start : before + stop]
            sums = np.zeros((chunks, width, _TOGETHER))
            spread(
                _add_chunks,
                chunks,
                (stop - start) * width * k,
                rows[start:stop],
                labels[start:stop],
                stack,
                chosen,
                link,
                bounds,
                inverse,
                sums,
            )
            # Whole numbers below 2**53, which float64 adds exactly.
            steps = total(sums.transpose(0, 2, 1).reshape(1, -1, width)[:, :k], steps)
        before += count
    return steps


@compiled(error_model="numpy", nogil=True)
def _add_chunks(
    first: int, last: int, X: Any, y: Floats, thetas: Floats, taken: Flags, loss: tuple[Any, ...],
    bounds: tuple[Any, ...], inverse: float, sums: Floats,
) -> None:  # fmt: skip
    """Add the gradients, in integer steps, of chunks ``first .. last``; four rows at once."""
    link, limit = MarginFunction(*loss), Limits(*bounds)
    n, width = X.shape
    rows, weights, origin = np.zeros((4, width)), np.zeros((4, _TOGETHER)), np.zeros((1, width))
    for chunk in range(first, last):
        low, high = chunk * _TOGETHER, min((chunk + 1) * _TOGETHER, len(thetas))
        for start in range(0, n, 4):
            rows[:], weights[:] = 0.0, 0.0
            for r in range(min(4, n - start)):
                i = start + r
                scale, _, norm = measured(X, i, origin, 0)
                factor, _, label = guarded(scale, 0.0, norm, y[i], limit)
                if factor == 0.0:
                    # The neutral record adds nothing, whatever its entries are.
                    continue
                for j in range(width):
                    rows[r, j] = scale * X[i, j]
                _write_margins(rows[r], factor, thetas[low:high], weights[r])
                _weigh(
                    link,
                    label,
                    factor,
                    limit.clip * (1.0 / norm),
                    inverse,
                    weights[r, : high - low],
                )
                if len(taken):
                    weights[r, : high - low] *= taken[i, low:high]
            _add_four(rows, weights, sums[chunk])


@compiled(error_model="numpy", fastmath={"reassoc", "nsz", "contract"})
def _write_margins(row: Floats, factor: float, thetas: Floats, margins: Floats) -> None:
    for k in range(len(thetas)):
        inner = 0.0
        for j in range(len(row)):
            inner += row[j] * thetas[k, j]
        margins[k] = factor * inner


@compiled(error_model="numpy")
def _weigh(
    link: MarginFunction, label: float, factor: float, most: float, inverse: float, margins: Floats
) -> None:
    """Replace margins by row coefficients as `dpfit.kernels.bounds.clipped`, given its quotient."""
    for k in range(len(margins)):
        slope = envelope_slope(
            link.code, link.parameter, link.bound, link.smoothing, margins[k], label
        )
        weight = min(abs(slope) * factor, most)
        margins[k] = inverse * (math.copysign(weight, slope) if weight > 0.0 else 0.0)


@compiled(error_model="numpy")
def _add_four(rows: Floats, weights: Floats, sums: Floats) -> None:
    for j in range(rows.shape[1]):
        a, b, c, d = rows[0, j], rows[1, j], rows[2, j], rows[3, j]
        for k in range(_TOGETHER):
            pair = np.rint(a * weights[0, k]) + np.rint(b * weights[1, k])
            sums[j, k] += pair + (np.rint(c * weights[2, k]) + np.rint(d * weights[3, k]))
