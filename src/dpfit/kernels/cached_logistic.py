"""Logistic loss summed over the same records at every step of a Markov chain.

Guards depend on records, not on the parameter. So guarded rows, times minus their labels, are
written once, when the sums are prepared, in tiles of 64 records with the columns side by side. The
loss of a record is then ``log(1 + exp(z))``, ``z = <row, theta>``, and all loops of a pass run over
the 64 records of a tile, in vector instructions. What is summed is what
`dpfit.kernels.passes.gradients` sums, up to rounding. The price is a copy of the data, so that
there is a limit to how large it may be.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from dpfit.kernels.bounds import Guards, Limits, guarded, limits, most_entry
from dpfit.kernels.rows import (
    as_labels,
    as_rows,
    blocks,
    layout,
    measured,
    pieces,
    read_only,
    write_row,
)
from dpfit.kernels.threads import spread
from dpfit.losses.base import Loss
from dpfit.losses.compiled import compiled
from dpfit.losses.glm import Logistic
from dpfit.losses.margin_functions import decay
from dpfit.noise.source import Floats

Sums = Callable[[Floats], tuple[Floats, Floats]]
"""From points (k, d), which are trusted, to the values (k,) and gradients (k, d) of a sum of
losses.
"""

_TILE = 64
_COPIED = 2**27
"""Entries of the copy at most: one GiB."""
_FASTER = 4
"""How many entries this loop reads while others read one; `spread` weighs the work against waking a
thread.
"""


def repeated_sums(X: Any, y: npt.ArrayLike, loss: Loss, **guards: Unpack[Guards]) -> Sums | None:
    """Prepare sums of logistic losses and gradients at many points; ``None`` if unsupported.

    Parameters
    ----------
    X, y, **guards
        As in `dpfit.kernels.passes.gradients`. Gradients are not clipped.
    loss
        A loss; only `Logistic` without an envelope has a shortcut.

    Examples
    --------
    >>> sums = repeated_sums([[3.0, 4.0], [1.0, 0.0]], [1.0, -1.0], Logistic(), row_norm=1.0)
    >>> values, gradients = sums(np.zeros((1, 2)))
    >>> values.round(4), gradients.round(4)
    (array([1.3863]), array([[ 0.2, -0.4]]))
    """
    matrix = as_rows(X)
    n, width = matrix.shape
    if (
        not isinstance(loss, Logistic)
        or loss.slope_bound < 1
        or guards.get("clip", math.inf) < math.inf
    ):
        return None
    if n * width > _COPIED:
        return None
    tiles = np.zeros((-(-n // _TILE), width, _TILE))
    bounds, start = tuple(limits(width, **guards)), 0
    for part, labels, _, rows in pieces(matrix, as_labels(y, n), None, most_entry(guards)):
        _fill(part, labels, rows, start, bounds, tiles)
        start += rows
    tiles = read_only(tiles)
    # Each row of zeros that fills up the last tile adds log 2 to the value and nothing to the
    # gradient.
    surplus = (tiles.shape[0] * _TILE - n) * math.log(2)

    def sums(thetas: Floats) -> tuple[Floats, Floats]:
        points = read_only(np.ascontiguousarray(thetas))
        each = min(blocks(n, points.size), len(tiles))
        values, gradients = np.zeros((each, len(points))), np.zeros((each, *points.shape))
        spread(_logistic, each, n * width // _FASTER, tiles, each, points, values, gradients)
        return values.sum(axis=0) - surplus, gradients.sum(axis=0)

    return sums


@compiled(error_model="numpy")
def _fill(
    rows: Any, y: Floats, count: int, start: int, bounds: tuple[Any, ...], tiles: Floats
) -> None:
    """Write guarded rows times minus their guarded labels, from the record `start` on."""
    X, guards = layout(rows), Limits(*bounds)
    origin, row = np.zeros((1, tiles.shape[1])), np.zeros(tiles.shape[1])
    for i in range(count):
        scale, inner, norm = measured(X, i, origin, 0)
        factor, _, label = guarded(scale, inner, norm, y[i], guards)
        write_row(X, i, scale, -label * factor, row)
        tiles[(start + i) // _TILE, :, (start + i) % _TILE] = row


@compiled(error_model="numpy", nogil=True, fastmath={"reassoc", "nsz", "contract"})
def _logistic(
    first: int, last: int, tiles: Floats, each: int, thetas: Floats, values: Floats, sums: Floats
) -> None:
    """Add values and gradients of blocks ``first .. last`` of tiles."""
    z, ones, slopes = np.zeros(_TILE), np.zeros(_TILE), np.zeros(_TILE)
    count, width = len(tiles), tiles.shape[1]
    for b in range(first, last):
        for t in range(b * count // each, (b + 1) * count // each):
            for k in range(len(thetas)):
                z[:] = 0.0
                for j in range(width):
                    for r in range(_TILE):
                        z[r] += tiles[t, j, r] * thetas[k, j]
                _activate(z, ones, slopes)
                # The logarithm of a product of numbers in [1, 2] is the sum of their logarithms.
                linear, product = 0.0, 1.0
                for r in range(_TILE):
                    linear += max(z[r], 0.0)
                    product *= ones[r]
                values[b, k] += linear + math.log(product)
                for j in range(width):
                    total = 0.0
                    for r in range(_TILE):
                        total += tiles[t, j, r] * slopes[r]
                    sums[b, k, j] += total


@compiled(error_model="numpy")
def _activate(z: Floats, ones: Floats, slopes: Floats) -> None:
    """Write ``1 + exp(-abs(z))`` and ``1 / (1 + exp(-z))``, in a vectorizable loop."""
    for r in range(_TILE):
        tail = decay(abs(z[r]))
        ones[r] = 1.0 + tail
        slopes[r] = (1.0 if z[r] >= 0.0 else tail) / (1.0 + tail)
