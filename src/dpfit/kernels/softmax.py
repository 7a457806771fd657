"""Loops over the records of the multinomial logistic loss, dense or compressed.

The loss of a record ``(x, y)``, ``y`` in ``0 .. K - 1``, at ``Theta`` of shape (d, K) is
``logsumexp(x Theta) - (x Theta)[y]``, and its gradient is the matrix ``x (p - e_y)^T`` with ``p``
the softmax of ``x Theta``. Its Frobenius norm is ``norm(x) * norm(p - e_y)``, so that clipping is
one scalar per record here as well. Its Hessian is ``x x^T`` times ``diag p - p p^T``, which does
not depend on the label.

A label is cut to a whole number in ``[0, K - 1]``; the neutral record is ``x = 0`` of class 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpfit.kernels.bounds import Limits, clipped, guarded
from dpfit.kernels.rows import SMALL, add_row, layout, measured, picked, write_row
from dpfit.losses.compiled import compiled
from dpfit.noise.source import Floats, Steps


@compiled(error_model="numpy", forceinline=True)
def _logits(
    X: Any, i: int, Theta: Floats, label: float, limits: Limits, logits: Floats
) -> tuple[float, float, float, float]:
    """Write the logits of a guarded record; return ``(scale, factor, norm, label)``.

    See `measured` and `guarded`.
    """
    scale, factor, norm, known = 1.0, 0.0, 0.0, 0.0
    for c in range(len(logits)):
        scale, inner, norm = measured(X, i, Theta, c)
        factor, logits[c], known = guarded(scale, inner, norm, label, limits)
    return scale, factor, norm, known


@compiled(error_model="numpy", forceinline=True)
def _probabilities(logits: Floats) -> tuple[int, float]:
    """Turn logits into probabilities; return the likeliest class and the probability of all others.

    One minus the likeliest would lose what is left of a record that is fitted well.
    """
    likeliest, top = int(logits.argmax()), logits.max()
    others = 0.0
    for c in range(len(logits)):
        logits[c] = math.exp(logits[c] - top)
        others += 0.0 if c == likeliest else logits[c]
    for c in range(len(logits)):
        logits[c] /= 1.0 + others
    return likeliest, others / (1.0 + others)


@compiled(error_model="numpy", nogil=True)
def gradients(
    first: int, last: int, rows: Any, y: Floats, picks: Steps, count: int, each: int,
    thetas: Floats, classes: int, bounds: tuple[Any, ...], inverse: float, valued: bool,
    values: Floats, sums: Floats,
) -> None:  # fmt: skip
    """Add values and gradients of blocks ``first .. last``, shape (points, classes, d)."""
    X, limits = layout(rows), Limits(*bounds)
    residual = np.empty(classes)
    unit, whole = (inverse, True) if inverse > 0.0 else (1.0, False)
    for b in range(first, last):
        for p in range(b * count // each, (b + 1) * count // each):
            i = picked(picks, p)
            for k in range(len(thetas)):
                scale, factor, norm, label = _logits(X, i, thetas[k], y[i], limits, residual)
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
                # Residuals this small are those of a record that is fitted perfectly; their squares
                # would underflow.
                if not square >= SMALL:
                    continue
                length = math.sqrt(square)
                ratio = unit * (clipped(length, factor, norm, limits.clip) / length)
                for c in range(classes):
                    add_row(X, i, scale, ratio * residual[c], whole, sums[b, k], c)


@compiled(error_model="numpy", nogil=True)
def curvatures(
    first: int, last: int, rows: Any, y: Floats, picks: Steps, count: int, each: int,
    thetas: Floats, vectors: Floats, classes: int, bounds: tuple[Any, ...], traces: Floats,
    sums: Floats,
) -> None:  # fmt: skip
    """Add traces of Hessians, and their products with a vector, of blocks ``first .. last``."""
    X, limits = layout(rows), Limits(*bounds)
    likely, along = np.empty(classes), np.empty(classes)
    for b in range(first, last):
        for p in range(b * count // each, (b + 1) * count // each):
            i = picked(picks, p)
            scale, factor, norm, _ = _logits(X, i, thetas[0], y[i], limits, likely)
            if not factor > 0.0:
                continue
            top, others = _probabilities(likely)
            for c in range(classes):
                along[c] = factor * measured(X, i, vectors[0], c)[1]
            # Differences to the likeliest class: those of its own would cancel.
            own, mean, spread = along[top], 0.0, likely[top] * others
            for c in range(classes):
                along[c] -= own
                mean += likely[c] * along[c]
                spread += 0.0 if c == top else likely[c] * (1.0 - likely[c])
            traces[b] += spread * (factor * norm) ** 2
            for c in range(classes):
                add_row(X, i, scale, factor * likely[c] * (along[c] - mean), False, sums[b, 0], c)


@compiled(error_model="numpy")
def write_guarded(
    rows: Any,
    y: Floats,
    picks: Steps,
    start: int,
    thetas: Floats,
    bounds: tuple[Any, ...],
    kept: Floats,
    roots: Floats,
) -> None:
    """Write guarded rows, and roots of ``p (1 - p)`` and ``p q`` by class and class pair."""
    X, limits = layout(rows), Limits(*bounds)
    likely = np.empty(roots.shape[1])
    for p in range(len(kept)):
        i = picked(picks, start + p)
        scale, factor, _, _ = _logits(X, i, thetas[0], y[i], limits, likely)
        write_row(X, i, scale, factor, kept[p])
        top, others = _probabilities(likely)
        for c in range(len(likely)):
            roots[c, c, p] = math.sqrt(likely[c] * (others if c == top else 1.0 - likely[c]))
            for e in range(c):
                roots[c, e, p] = math.sqrt(likely[c]) * math.sqrt(likely[e])
