"""A loop over vector records ``x``, dense or compressed, of losses that pull `theta` towards them.

| code | loss | gradient |
|---|---|---|
| DISTANCE | norm(theta - x) (geometric median) | (theta - x) / norm(theta - x), zero at the record
|
| HUBER_DISTANCE | norm(theta - x)^2 / 2 within a width, linear beyond | theta - x, scaled into the
ball of that width |
| LINEAR | <x, theta> | x |

An infinite width is the squared distance (mean). Records are guarded as rows are in
`dpfit.kernels.bounds`; the neutral record is zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpfit.kernels.bounds import Limits, clipped, guarded
from dpfit.kernels.rows import add_row, layout, measured, picked, write_row
from dpfit.losses.compiled import compiled
from dpfit.noise.source import Floats, Steps

DISTANCE, HUBER_DISTANCE, LINEAR = range(3)


class Pull(NamedTuple):
    """What the loop knows of a loss."""

    code: int
    width: float


@compiled(error_model="numpy", nogil=True)
def gradients(
    first: int, last: int, rows: Any, y: Floats, picks: Steps, count: int, each: int,
    thetas: Floats, loss: tuple[Any, ...], bounds: tuple[Any, ...], inverse: float, valued: bool,
    values: Floats, sums: Floats,
) -> None:  # fmt: skip
    """Add values and gradients of blocks ``first .. last``; labels are not read."""
    X, pull, limits = layout(rows), Pull(*loss), Limits(*bounds)
    # Written down once, the difference has one rounded value, of which the norm is taken and which
    # is added; computed twice, cancellation could make the two differ by much.
    gap = np.empty((1, thetas.shape[1]))
    unit, whole = (inverse, True) if inverse > 0.0 else (1.0, False)
    for b in range(first, last):
        for p in range(b * count // each, (b + 1) * count // each):
            i = picked(picks, p)
            for k in range(len(thetas)):
                scale, inner, norm = measured(X, i, thetas, k)
                factor, margin, _ = guarded(scale, inner, norm, 0.0, limits)
                write_row(X, i, scale, factor, gap[0])
                if pull.code != LINEAR:
                    for j in range(thetas.shape[1]):
                        gap[0, j] = thetas[k, j] - gap[0, j]
                scale, _, norm = measured(gap, 0, thetas, k)
                length = norm / scale
                if not length > 0.0:
                    continue
                if pull.code == LINEAR:
                    values[b, k] += margin
                    weight = clipped(1.0, 1.0 / scale, norm, limits.clip)
                elif pull.code == DISTANCE:
                    values[b, k] += length
                    weight = clipped(1.0, 1.0 / norm, norm, limits.clip)
                else:
                    near = min(length, pull.width)
                    values[b, k] += near * (length - 0.5 * near)
                    weight = clipped(1.0, min(1.0 / scale, pull.width / norm), norm, limits.clip)
                add_row(gap, 0, scale, unit * weight, whole, sums[b], k)
