"""A loop over the records of the multinomial logistic loss, dense or compressed.

The loss of a record ``(x, y)``, ``y`` in ``0 .. K - 1``, at ``Theta`` of shape (d, K) is ``logsumexp(x Theta) - (x
Theta)[y]``, and its gradient is the matrix ``x (p - e_y)^T`` with ``p`` the softmax of ``x Theta``. Its Frobenius
norm is ``norm(x) * norm(p - e_y)``, so that clipping is one scalar per record here as well.

A label is cut to a whole number in ``[0, K - 1]``; the neutral record is ``x = 0`` of class 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from dpfit.kernels.bounds import Limits, clipped, guarded
from dpfit.kernels.rows import SMALL, add_row, layout, measured, picked
from dpfit.noise.source import Floats, Steps


@njit(cache=True, error_model="numpy", nogil=True)
def gradients(
    first: int, last: int, rows: Any, y: Floats, picks: Steps, count: int, each: int, thetas: Floats, classes: int,
    bounds: tuple[Any, ...], inverse: float, valued: bool, values: Floats, sums: Floats,
) -> None:  # fmt: skip
    """Add values and gradients of blocks ``first .. last``; points and sums have shape (points, classes, d)."""
    X, limits = layout(rows), Limits(*bounds)
    residual = np.empty(classes)
    unit, whole = (inverse, True) if inverse > 0.0 else (1.0, False)
    for b in range(first, last):
        for p in range(b * count // each, (b + 1) * count // each):
            i = picked(picks, p)
            for k in range(len(thetas)):
                scale, factor, norm, label = 1.0, 0.0, 0.0, 0.0
                for c in range(classes):
                    scale, inner, norm = measured(X, i, thetas[k], c)
                    factor, residual[c], label = guarded(scale, inner, norm, y[i], limits)
                target = int(label)
                top = residual.max()
                own, mass = residual[target], 0.0
                for c in range(classes):
                    residual[c] = math.exp(residual[c] - top)
                    mass += residual[c]
                values[b, k] += math.log(mass) + (top - own)
                square = 0.0
                for c in range(classes):
                    residual[c] = residual[c] / mass - (1.0 if c == target else 0.0)
                    square += residual[c] * residual[c]
                # Residuals this small are those of a record that is fitted perfectly; their squares would underflow.
                if not square >= SMALL:
                    continue
                length = math.sqrt(square)
                ratio = unit * (clipped(length, factor, norm, limits.clip) / length)
                for c in range(classes):
                    add_row(X, i, scale, ratio * residual[c], whole, sums[b, k], c)
