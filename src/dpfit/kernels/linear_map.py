"""Guarded rows times a public matrix, each computed from its own record alone."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from dpfit.kernels.bounds import Guards, Limits, guarded, limits, most_entry
from dpfit.kernels.rows import (
    as_labels,
    as_points,
    as_rows,
    layout,
    measured,
    picked,
    pieces,
    write_row,
)
from dpfit.losses.compiled import compiled
from dpfit.noise.source import Floats, Steps


def mapped(
    X: Any, y: npt.ArrayLike, matrix: npt.ArrayLike, **guards: Unpack[Guards]
) -> tuple[Floats, Floats]:
    """Guarded rows times a square matrix, and guarded labels.

    BLAS may round a product differently when another row comes or goes. Here each row is multiplied
    by one loop that knows nothing of other rows, so that records which are bounded one by one
    afterwards do not interact.

    >>> mapped(
    ...     [[3.0, 4.0], [1.0, 0.0]],
    ...     [0.0, 5.0],
    ...     [[1.0, 2.0], [0.0, 1.0]],
    ...     row_norm=5.0,
    ...     label_upper=2.0,
    ... )
    (array([[ 3., 10.],
           [ 1.,  2.]]), array([0., 2.]))
    """
    rows = as_rows(X)
    n, width = rows.shape
    through, bounds = as_points("matrix", matrix, (width, width)), tuple(limits(width, **guards))
    seen, labels = np.zeros((n, width)), np.zeros(n)
    start = 0
    for part, given, picks, count in pieces(rows, as_labels(y, n), None, most_entry(guards)):
        _write_mapped(
            part,
            given,
            picks,
            through,
            bounds,
            seen[start : start + count],
            labels[start : start + count],
        )
        start += count
    return seen, labels


@compiled(error_model="numpy")
def _write_mapped(
    given: Any,
    y: Floats,
    picks: Steps,
    matrix: Floats,
    bounds: tuple[Any, ...],
    seen: Floats,
    labels: Floats,
) -> None:
    X, limits = layout(given), Limits(*bounds)
    width = seen.shape[1]
    origin, row = np.zeros((1, width)), np.zeros(width)
    for p in range(len(seen)):
        i = picked(picks, p)
        scale, inner, norm = measured(X, i, origin, 0)
        factor, _, labels[p] = guarded(scale, inner, norm, y[i], limits)
        write_row(X, i, scale, factor, row)
        for j in range(width):
            if row[j] != 0.0:
                for k in range(width):
                    seen[p, k] += row[j] * matrix[j, k]
