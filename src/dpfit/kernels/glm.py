"""Loops over the records of a generalized linear loss, dense or compressed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpfit.kernels.bounds import Limits, clipped, guarded
from dpfit.kernels.rows import (
    AHEAD,
    SMALL,
    TILE,
    add_row,
    advance,
    fetch,
    layout,
    measured,
    picked,
    rescaled,
    write_row,
)
from dpfit.losses.compiled import compiled
from dpfit.losses.margin_functions import (
    MarginFunction,
    envelope_curvature,
    envelope_slope,
    envelope_value,
)
from dpfit.noise.source import Floats, Steps


@compiled(error_model="numpy")
def weigh(
    link: MarginFunction, scales: Floats, inners: Floats, norms: Floats, labels: Floats,
    limits: Limits, unit: float, weights: Floats,
) -> None:  # fmt: skip
    """Write the coefficients of the rows of a tile in the sum.

    Nothing is reassociated or fused here: a record gets the same bits wherever it stands in the
    tile.
    """
    for r in range(len(weights)):
        factor, margin, label = guarded(scales[r], inners[r], norms[r], labels[r], limits)
        slope = envelope_slope(link.code, link.parameter, link.bound, link.smoothing, margin, label)
        weights[r] = unit * clipped(slope, factor, norms[r], limits.clip)


@compiled(error_model="numpy", nogil=True)
def gradients(
    first: int, last: int, rows: Any, y: Floats, picks: Steps, count: int, each: int,
    thetas: Floats, loss: tuple[Any, ...], bounds: tuple[Any, ...], inverse: float, valued: bool,
    values: Floats, sums: Floats,
) -> None:  # fmt: skip
    """Add values and gradients of blocks ``first .. last``; an inverse step rounds gradients."""
    X, link, limits = layout(rows), MarginFunction(*loss), Limits(*bounds)
    width, points = sums.shape[2], len(thetas)
    # All entries are written before they are read.
    tile, old = np.empty(TILE, dtype=np.int64), np.empty(TILE, dtype=np.int64)
    scales, inners, squares, norms = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE)
    labels, weights = np.empty(TILE), np.empty(TILE)
    unit, whole = (inverse, True) if inverse > 0.0 else (1.0, False)
    for b in range(first, last):
        start, stop = b * count // each, (b + 1) * count // each
        block = sums[b]
        # One turn for each tile and point, and one more to add the rows of the last.
        turns = points * ((stop - start + TILE - 1) // TILE)
        pending = 0
        fetch(X, y, picks, start, min(start + AHEAD, stop))
        for turn in range(turns + 1):
            k, low = turn % points, start + turn // points * TILE
            tile, old = old, tile
            old_k = k - 1 if k else points - 1
            # Rows to come are asked for in between, while no rows are read: both need the same
            # places to wait in.
            ahead, until = low + AHEAD, 0 if k else stop
            fetch(X, y, picks, ahead, min(ahead + TILE // 4, until))
            if turn < turns:
                for r in range(TILE):
                    # A tile that is not full ends with copies of its last row, which are not
                    # summed.
                    tile[r] = picked(picks, min(low + r, stop - 1))
                    labels[r] = y[tile[r]]
            now = width if turn < turns else 0
            advance(
                X, tile, now, thetas, k, inners, squares, old, pending, weights, whole, block, old_k
            )
            if turn == turns:
                break
            fetch(X, y, picks, ahead + TILE // 4, min(ahead + TILE // 2, until))
            size = min(TILE, stop - low)
            plain = size == TILE
            for r in range(TILE):
                scales[r], norms[r] = 1.0, math.sqrt(squares[r])
                plain &= SMALL <= squares[r] < math.inf
            if not plain:
                for r in range(size):
                    if not SMALL <= squares[r] < math.inf:
                        scales[r], inners[r], norms[r] = rescaled(X, tile[r], squares[r], thetas, k)
            weigh(link, scales, inners, norms, labels, limits, unit, weights)
            fetch(X, y, picks, ahead + TILE // 2, min(ahead + TILE, until))
            if valued:
                for r in range(size):
                    _, margin, label = guarded(scales[r], inners[r], norms[r], labels[r], limits)
                    values[b, k] += envelope_value(
                        link.code, link.parameter, link.bound, link.smoothing, margin, label
                    )
            # Rows that need care are kept out of the loop that has to be fast.
            pending = width if plain else 0
            if not plain:
                for r in range(size):
                    add_row(X, tile[r], scales[r], weights[r], whole, block, k)


@compiled(error_model="numpy", nogil=True)
def curvatures(
    first: int, last: int, rows: Any, y: Floats, picks: Steps, count: int, each: int,
    thetas: Floats, vectors: Floats, loss: tuple[Any, ...], bounds: tuple[Any, ...], traces: Floats,
    sums: Floats,
) -> None:  # fmt: skip
    """Add traces of Hessians, and their products with a vector, of blocks ``first .. last``."""
    X, link, limits = layout(rows), MarginFunction(*loss), Limits(*bounds)
    for b in range(first, last):
        for p in range(b * count // each, (b + 1) * count // each):
            i = picked(picks, p)
            scale, inner, norm = measured(X, i, thetas, 0)
            factor, margin, label = guarded(scale, inner, norm, y[i], limits)
            if factor > 0.0:
                bend = envelope_curvature(
                    link.code, link.parameter, link.bound, link.smoothing, margin, label
                )
                traces[b] += bend * (factor * norm) ** 2
                along = factor * measured(X, i, vectors, 0)[1]
                add_row(X, i, scale, bend * factor * along, False, sums[b], 0)


@compiled(error_model="numpy")
def write_scaled(
    rows: Any, y: Floats, picks: Steps, start: int, thetas: Floats, loss: tuple[Any, ...],
    bounds: tuple[Any, ...], scaled: Floats, cross: Floats,
) -> None:  # fmt: skip
    """Write rows times root curvature; add these times guarded labels to `cross`."""
    X, link, limits = layout(rows), MarginFunction(*loss), Limits(*bounds)
    for p in range(len(scaled)):
        i = picked(picks, start + p)
        scale, inner, norm = measured(X, i, thetas, 0)
        factor, margin, label = guarded(scale, inner, norm, y[i], limits)
        bend = envelope_curvature(
            link.code, link.parameter, link.bound, link.smoothing, margin, label
        )
        write_row(X, i, scale, factor * math.sqrt(bend), scaled[p])
        for j in range(len(cross)):
            cross[j] += label * scaled[p, j]


@compiled(error_model="numpy", nogil=True)
def write_margins(
    first: int, last: int, rows: Any, picks: Steps, count: int, each: int, thetas: Floats,
    bounds: tuple[Any, ...], margins: Floats,
) -> None:  # fmt: skip
    """Write the margins of the guarded rows of blocks ``first .. last``."""
    X, limits = layout(rows), Limits(*bounds)
    for p in range(first * count // each, last * count // each):
        scale, inner, norm = measured(X, picked(picks, p), thetas, 0)
        margins[p] = guarded(scale, inner, norm, 0.0, limits)[1]
