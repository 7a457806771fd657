"""Sums of clipped gradients of dense layers: norms without gradients, then one weighted product.

With ``a`` entering a layer and ``delta`` the derivative in what it sums up, a record's gradient in
weights and biases is ``delta (a, 1)^T``. Its squared norm is ``norm(delta)**2 (norm(a)**2 + 1)``,
and the squared norm of all layers is the sum. Each ``delta`` is scaled by ``w = min(1 / C, 1 /
norm)``; then the sum over a chunk of m records, in units of C, is a product of two matrices for
each layer.

Why the declared sensitivity holds for any input. Norm, quotient and product of a record are
rounded: the C of `dpfit.kernels.bounds` is shrunk by ``(d + 16) 2**-53`` for this, so a scaled
record is a vector of norm at most 1. Each square of an entry of ``delta`` counts with 2**-1022
more, the most that underflow takes. Records whose norm is not finite add zero. By the theorem of
`dpfit.kernels.rounding` the computed sum of a chunk is off by at most ``gamma(m + 1) m``, whatever
the order of additions; two neighbouring sums err by at most twice this number. So records are
scaled to ``C (1 - 2**-32)``, which covers ``2 gamma(m + 1) m < 2**-32``. Sums of chunks are rounded
to a grid much finer than that of the release, added as integers, and the total is rounded once:
`dpfit.kernels.fixed_point.rounded_sums` makes C smaller by what this costs.

The proof is for one replaced record, and for rows of ``a`` and ``delta`` that depend on their own
records alone. BLAS does not state that the last bits of a row are independent of the others, and an
added record moves the limits between chunks, which moves their roundings to the finer grid: hence
arithmetic is *idealised*.
Statement with numbers: docs/explanation/networks.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpfit.kernels.bounds import Limits
from dpfit.kernels.guarded_rows import write_guarded
from dpfit.kernels.rows import width_of
from dpfit.losses.dense import Buffers, DenseLayers, Layer
from dpfit.losses.guards import clip_gradients
from dpfit.noise.source import Floats, Steps

CHUNK = 768
"""Records of a product of matrices; `MARGIN` allows up to a thousand."""

MARGIN = 1 - 2.0**-32
"""Factor of the clip norm that covers the rounding errors of the sum of a chunk."""

TINY = float(np.finfo(np.float64).smallest_normal)
"""What a square loses by underflow, at most, gradual or not."""


def gradients(
    first: int,
    last: int,
    X: Any,
    y: Floats,
    picks: Steps,
    count: int,
    each: int,
    thetas: Floats,
    loss: DenseLayers,
    bounds: tuple[Any, ...],
    inverse: float,
    valued: bool,
    values: Floats,
    sums: Floats,
) -> None:
    """Add values and gradients of blocks ``first .. last``; an inverse step rounds their sums."""
    clip = Limits(*bounds).clip
    rows, labels, usable = _buffers(X)
    buffers = Buffers.of(loss.sizes(width_of(X)), CHUNK)
    points = [loss.layers(theta, width_of(X)) for theta in thetas]
    unit = clip if math.isfinite(clip) else 1.0
    chunks = (
        (b, low, min(CHUNK, (b + 1) * count // each - low))
        for b in range(first, last)
        for low in range(b * count // each, (b + 1) * count // each, CHUNK)
    )
    for b, low, size in chunks:
        write_guarded(X, y, picks, low, bounds, rows[:size], labels[:size], usable[:size])
        for k, theta in enumerate(thetas):
            found = chunk_sum(
                loss, points[k], rows[:size], labels[:size], usable[:size], clip, buffers.part(size)
            )
            sums[b, k] += np.rint(found * (clip * inverse)) if inverse > 0.0 else found * unit
            if valued:
                losses = loss.value(theta, rows[:size], labels[:size])
                values[b, k] += losses[usable[:size] & np.isfinite(losses)].sum()


def rounded_gradients(
    X: Any, y: Floats, picks: Steps, theta: Floats, loss: DenseLayers, bounds: tuple[Any, ...],
    inverse: float,
) -> Floats:  # fmt: skip
    """Return the clipped gradient of each picked record, in whole steps."""
    parts, (rows, labels, usable) = [np.empty((0, len(theta)))], _buffers(X)
    for low in range(0, len(picks), CHUNK):
        size = min(CHUNK, len(picks) - low)
        write_guarded(X, y, picks, low, bounds, rows[:size], labels[:size], usable[:size])
        terms = loss.gradient(theta, rows[:size], labels[:size])
        terms[~usable[:size]] = 0.0
        parts.append(np.rint(clip_gradients(terms, Limits(*bounds).clip) * inverse))
    return np.concatenate(parts)


def chunk_sum(
    loss: DenseLayers, layers: list[Layer], rows: Floats, labels: Floats, usable: Any, clip: float,
    buffers: Buffers,
) -> Floats:  # fmt: skip
    """Return the sum of the clipped gradients of a chunk, in units of a finite ``clip``."""
    values = loss.forward(layers, rows, buffers)
    entered, slopes = values[:-1], loss.backward(layers, values, labels, buffers)
    weights = record_weights(ghost_norms(entered, slopes), usable, clip)
    return weighted_sum(entered, slopes, weights)


def ghost_norms(entered: Sequence[Floats], slopes: Sequence[Floats]) -> Floats:
    """Return a bound on each record's gradient norm; infinite or NaN if it is not finite.

    It is the norm up to rounding. Where squares underflow it is larger: ``a`` may be so large that
    the gradient is not small.
    """
    with np.errstate(all="ignore"):
        squares = [
            (_squares(d) + d.shape[1] * TINY) * (_squares(a) + 1)
            for a, d in zip(entered, slopes, strict=True)
        ]
        return np.asarray(np.sqrt(sum(squares)))


def record_weights(norms: Floats, usable: Any, clip: float) -> Floats:
    """Return what scales each gradient into the unit ball, in units of a finite ``clip``."""
    with np.errstate(all="ignore"):
        # With an infinite clip norm, that is no bound, gradients stay as they are.
        longest = np.maximum(norms / MARGIN, clip) if math.isfinite(clip) else np.ones_like(norms)
        weights = 1.0 / longest
    return np.where(usable & np.isfinite(norms), weights, 0.0)


def weighted_sum(entered: Sequence[Floats], slopes: Sequence[Floats], weights: Floats) -> Floats:
    """Return the weighted sum of all records' gradients, as a flat vector; scale the slopes."""
    dropped = weights == 0.0
    parts = []
    for a, d in zip(entered, slopes, strict=True):
        if dropped.any():
            # Zero times infinity is not a number.
            a = np.where(dropped[:, np.newaxis], 0.0, a)
            d[dropped] = 0.0
        d *= weights[:, np.newaxis]
        parts += [(a.T @ d).ravel(), d.sum(axis=0)]
    return np.concatenate(parts)


def _squares(vectors: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", vectors, vectors))


def _buffers(X: Any) -> tuple[Floats, Floats, Any]:
    return np.empty((CHUNK, width_of(X))), np.empty(CHUNK), np.empty(CHUNK, dtype=np.bool_)
