"""Guarded rows and labels in arrays of their own, for passes that are not compiled by numba."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpfit.kernels.bounds import Limits, guarded
from dpfit.kernels.rows import layout, measured, picked, write_row
from dpfit.losses.compiled import compiled
from dpfit.noise.source import Floats, Steps


@compiled(error_model="numpy")
def write_guarded(
    given: Any,
    y: Floats,
    picks: Steps,
    start: int,
    bounds: tuple[Any, ...],
    rows: Floats,
    labels: Floats,
    usable: Any,
) -> None:
    """Write guarded rows and labels, and whether each record was finite."""
    X, limits = layout(given), Limits(*bounds)
    origin = np.zeros((1, rows.shape[1]))
    for p in range(len(rows)):
        i = picked(picks, start + p)
        scale, inner, norm = measured(X, i, origin, 0)
        factor, _, labels[p] = guarded(scale, inner, norm, y[i], limits)
        usable[p] = norm < math.inf and abs(y[i]) < math.inf
        write_row(X, i, scale, factor, rows[p])
