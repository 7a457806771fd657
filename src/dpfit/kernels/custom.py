"""A loop over records of a loss that the caller wrote, in the interpreter.

Guards are those of the compiled loops, contributions are bounded whatever the caller's functions
return, and those that are not finite count as zero. What a function returns for a record may depend
on its batch in the last bits (matrix products do), so that the arithmetic of private sums is
*idealised* here, and that it does not depend on other records is *declared*
(`dpfit.losses.custom.declared_basis`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpfit.kernels.bounds import Limits
from dpfit.kernels.guarded_rows import write_guarded
from dpfit.kernels.rows import width_of
from dpfit.losses.custom import DeclaredLoss
from dpfit.losses.guards import clip_gradients
from dpfit.noise.source import Floats, Steps

_ENTRIES = 2**20
"""Entries of rows, or of per-example gradients, that are made at a time."""


def gradients(
    first: int,
    last: int,
    X: Any,
    y: Floats,
    picks: Steps,
    count: int,
    each: int,
    thetas: Floats,
    loss: DeclaredLoss,
    bounds: tuple[Any, ...],
    inverse: float,
    valued: bool,
    values: Floats,
    sums: Floats,
) -> None:
    """Add values and gradients of blocks ``first .. last``."""
    limits = Limits(*bounds)
    size = max(1, _ENTRIES // max(1, width_of(X), thetas.shape[1]))
    for b in range(first, last):
        start, stop = b * count // each, (b + 1) * count // each
        for low in range(start, stop, size):
            rows, labels = _guarded(X, y, picks, low, min(size, stop - low), bounds)
            for k, theta in enumerate(thetas):
                if valued:
                    values[b, k] += _finite(loss.value(theta, rows, labels)[:, np.newaxis]).sum()
                terms = loss.gradient(theta, rows, labels)
                terms = (
                    _finite(terms)
                    if math.isinf(limits.clip)
                    else clip_gradients(terms, limits.clip)
                )
                sums[b, k] += (np.rint(terms * inverse) if inverse > 0.0 else terms).sum(axis=0)


def rounded_gradients(
    X: Any, y: Floats, picks: Steps, theta: Floats, loss: DeclaredLoss,
    bounds: tuple[Any, ...], inverse: float,
) -> Floats:  # fmt: skip
    """Return the clipped gradient of each picked record, in whole steps."""
    rows, labels = _guarded(X, y, picks, 0, len(picks), bounds)
    terms = clip_gradients(loss.gradient(theta, rows, labels), Limits(*bounds).clip)
    return np.rint(terms * inverse)


def _guarded(
    X: Any, y: Floats, picks: Steps, start: int, length: int, bounds: tuple[Any, ...]
) -> tuple[Floats, Floats]:
    rows, labels = np.empty((length, width_of(X))), np.empty(length)
    usable = np.empty(length, dtype=np.bool_)
    write_guarded(X, y, picks, start, bounds, rows, labels, usable)
    return rows, labels


def _finite(terms: Floats) -> Floats:
    return np.where(np.isfinite(terms).all(axis=1, keepdims=True), terms, 0.0)
