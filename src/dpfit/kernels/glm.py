"""Loops over the records of a generalized linear loss, dense or compressed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from dpfit.kernels.bounds import Limits, clipped, guarded
from dpfit.kernels.rows import SMALL, add_four, add_row, fetch, layout, measured, picked, products, rescaled, write_row
from dpfit.losses.links import LOGISTIC, Link, envelope_curvature, envelope_slope, envelope_value, logistic_slope
from dpfit.noise.source import Floats, Steps

_TILE = 8


@njit(cache=True, error_model="numpy", forceinline=True)
def _weigh(
    link: Link, scales: Floats, inners: Floats, norms: Floats, labels: Floats, limits: Limits, unit: float,
    margins: Floats, weights: Floats,
) -> None:  # fmt: skip
    """Replace labels by guarded ones, and write margins and the coefficients of rows in the sum.

    Always for a whole tile, so that whatever the compiler makes of these loops is the same for every record.
    """
    # The commonest loss has a loop of its own, which is faster without the switch.
    if link.code == LOGISTIC:
        for r in range(_TILE):
            factor, margins[r], labels[r] = guarded(scales[r], inners[r], norms[r], labels[r], limits)
            slope = min(max(logistic_slope(margins[r], labels[r]), -link.bound), link.bound)
            weights[r] = unit * clipped(slope, factor, norms[r], limits.clip)
    else:
        for r in range(_TILE):
            factor, margins[r], labels[r] = guarded(scales[r], inners[r], norms[r], labels[r], limits)
            slope = envelope_slope(link.code, link.parameter, link.bound, margins[r], labels[r])
            weights[r] = unit * clipped(slope, factor, norms[r], limits.clip)


@njit(cache=True, error_model="numpy", nogil=True)
def gradients(
    first: int, last: int, rows: Any, y: Floats, picks: Steps, count: int, each: int, thetas: Floats,
    loss: tuple[Any, ...], bounds: tuple[Any, ...], inverse: float, valued: bool, values: Floats, sums: Floats,
) -> None:  # fmt: skip
    """Add values and gradients of blocks ``first .. last``; with an inverse step, gradients in whole steps."""
    X, link, limits = layout(rows), Link(*loss), Limits(*bounds)
    tile = np.zeros(_TILE, dtype=np.int64)
    scales, inners, squares, norms = np.ones(_TILE), np.zeros(_TILE), np.ones(_TILE), np.ones(_TILE)
    labels, margins, weights = np.zeros(_TILE), np.zeros(_TILE), np.zeros(_TILE)
    unit, whole = (inverse, True) if inverse > 0.0 else (1.0, False)
    for b in range(first, last):
        start, stop = b * count // each, (b + 1) * count // each
        block = sums[b]
        for low in range(start, stop, _TILE):
            size = min(_TILE, stop - low)
            fetch(X, picks, min(low + _TILE, stop), min(low + 2 * _TILE, stop))
            for k in range(len(thetas)):
                plain = size == _TILE
                for r in range(size):
                    tile[r] = picked(picks, low + r)
                    labels[r] = y[tile[r]]
                    inners[r], squares[r] = products(X, tile[r], thetas, k)
                    plain &= SMALL <= squares[r] < math.inf
                if plain:
                    for r in range(_TILE):
                        scales[r], norms[r] = 1.0, math.sqrt(squares[r])
                else:
                    for r in range(size):
                        if SMALL <= squares[r] < math.inf:
                            scales[r], norms[r] = 1.0, math.sqrt(squares[r])
                        else:
                            scales[r], inners[r], norms[r] = rescaled(X, tile[r], squares[r], thetas, k)
                _weigh(link, scales, inners, norms, labels, limits, unit, margins, weights)
                if valued:
                    for r in range(size):
                        values[b, k] += envelope_value(link.code, link.parameter, link.bound, margins[r], labels[r])
                # Rows that need care are kept out of the loop that has to be fast.
                if plain:
                    for r in range(0, _TILE, 4):
                        add_four(X, tile, weights, r, whole, block, k)
                else:
                    for r in range(size):
                        add_row(X, tile[r], scales[r], weights[r], whole, block, k)


@njit(cache=True, error_model="numpy", nogil=True)
def curvatures(
    first: int, last: int, rows: Any, y: Floats, picks: Steps, count: int, each: int, thetas: Floats, vectors: Floats,
    loss: tuple[Any, ...], bounds: tuple[Any, ...], traces: Floats, sums: Floats,
) -> None:  # fmt: skip
    """Add traces of Hessians, and their products with a vector, of blocks ``first .. last``."""
    X, link, limits = layout(rows), Link(*loss), Limits(*bounds)
    for b in range(first, last):
        for p in range(b * count // each, (b + 1) * count // each):
            i = picked(picks, p)
            scale, inner, norm = measured(X, i, thetas, 0)
            factor, margin, label = guarded(scale, inner, norm, y[i], limits)
            if factor > 0.0:
                bend = envelope_curvature(link.code, link.parameter, link.bound, margin, label)
                traces[b] += bend * (factor * norm) ** 2
                along = factor * measured(X, i, vectors, 0)[1]
                add_row(X, i, scale, bend * factor * along, False, sums[b], 0)


@njit(cache=True, error_model="numpy")
def write_scaled(
    rows: Any, y: Floats, picks: Steps, start: int, thetas: Floats, loss: tuple[Any, ...], bounds: tuple[Any, ...],
    scaled: Floats, cross: Floats,
) -> None:  # fmt: skip
    """Write guarded rows times the square root of their curvature, and add them times guarded labels to `cross`."""
    X, link, limits = layout(rows), Link(*loss), Limits(*bounds)
    for p in range(len(scaled)):
        i = picked(picks, start + p)
        scale, inner, norm = measured(X, i, thetas, 0)
        factor, margin, label = guarded(scale, inner, norm, y[i], limits)
        bend = envelope_curvature(link.code, link.parameter, link.bound, margin, label)
        write_row(X, i, scale, factor * math.sqrt(bend), scaled[p])
        for j in range(len(cross)):
            cross[j] += label * scaled[p, j]


@njit(cache=True, error_model="numpy", nogil=True)
def write_margins(
    first: int, last: int, rows: Any, picks: Steps, count: int, each: int, thetas: Floats, bounds: tuple[Any, ...],
    margins: Floats,
) -> None:  # fmt: skip
    """Write the margins of the guarded rows of blocks ``first .. last``."""
    X, limits = layout(rows), Limits(*bounds)
    for p in range(first * count // each, last * count // each):
        scale, inner, norm = measured(X, picked(picks, p), thetas, 0)
        margins[p] = guarded(scale, inner, norm, 0.0, limits)[1]
