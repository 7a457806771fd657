"""Sums of gradients over the records of each user, in one pass, for every loss and layout of rows.

A record adds its guarded, clipped gradient, rounded to whole steps of a fine grid, to the sum of
its user. Integers add exactly, so a user's sum depends on the records of this user alone: on no
other user, on no order of rows, and on no cut of the data into chunks. `clipped_total` then takes
the mean of each user minus a centre, clips it, rounds it to the grid of the release, and adds.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from dpfit.kernels import glm
from dpfit.kernels.bounds import Guards, Limits, limits
from dpfit.kernels.fixed_point import LARGEST_BLOCK, inverse_step
from dpfit.kernels.passes import _Loop, _loop, _points, _turned
from dpfit.kernels.prefetch import prefetch
from dpfit.kernels.rows import (
    AHEAD,
    SMALL,
    TILE,
    add_four,
    add_row,
    advance,
    as_labels,
    as_points,
    as_rows,
    fetch,
    layout,
    measured,
    picked,
    pieces,
    rescaled,
    width_of,
)
from dpfit.kernels.threads import n_threads, spread
from dpfit.losses.base import Loss
from dpfit.losses.compiled import compiled
from dpfit.losses.glm import GLM
from dpfit.losses.margin_functions import MarginFunction
from dpfit.noise.lattice import LIMIT, Grid
from dpfit.noise.source import Floats, Steps

_PRIVATE = 2**24
"""Entries of the sums of all threads together, at most; beyond it one thread adds."""

_BATCH = 2**12
"""Records of a loss without a loop of its own here whose gradients are held at a time."""


def user_sums(
    X: Any,
    y: npt.ArrayLike,
    codes: Steps,
    n_users: int,
    theta: npt.ArrayLike,
    loss: Loss,
    *,
    grid: Grid,
    index: npt.ArrayLike | None = None,
    **guards: Unpack[Guards],
) -> tuple[Steps, Steps]:
    """Sum the clipped gradients of each user's records exactly, each rounded to a grid.

    Parameters
    ----------
    X, y, theta, loss, index
        As in `dpfit.kernels.passes.clipped_sum`, at one parameter.
    codes
        The number of each row's user; a negative number is nobody, who adds nothing.
    n_users
        Number of users, those without a row included.
    grid
        Where contributions are rounded to. Its step must be in ``(clip / 2**31, clip]``.
    **guards
        Bounds to enforce; `clip` is required, and holds for each record.

    Returns
    -------
    sums, counts
        Sums in steps, of shape (n_users, d), and the number of usable rows of each user. A row or
        label that is not finite is not usable.

    Examples
    --------
    >>> from dpfit.losses import Squared
    >>> rows, users = [[3.0, 4.0], [1.0, 0.0], [math.nan, 0.0]], np.array([1, 0, 1])
    >>> user_sums(rows, [0.0, -1.0, 0.0], users, 3, [1.0, 0.0], Squared(), clip=1.0, grid=Grid(-3))
    (array([[8, 0],
           [5, 6],
           [0, 0]]), array([1, 1, 0]))
    """
    rows, given = as_rows(X), np.asarray(theta)
    n = rows.shape[0]
    loop = _loop(loss, rows.shape[1], given.shape[-1] if given.ndim else 0)
    point = _turned(_points("theta", given[np.newaxis], loop.point))
    inverse = inverse_step(grid, guards.get("clip", math.inf))
    enforced: Guards = {**guards, **loop.labels}
    bounds = tuple(limits(sum(loop.point), **enforced))
    numbers, labels = np.arange(n), as_labels(y, n)
    sums = np.zeros((n_users, point[0].size), dtype=np.int64)
    counts = np.zeros(n_users, dtype=np.int64)
    for part, chosen, picks, count in pieces(rows, numbers, index):
        whole = chosen is numbers
        own, users = (labels, codes) if whole else (labels[chosen], codes[chosen])
        each = _shares(count, sums.size)
        floats, usable = np.zeros((each, *sums.shape)), np.zeros((each, n_users), dtype=np.int64)
        common = part, own, users, picks, count, each, point, loop.loss, bounds, inverse
        add = glm_sums if isinstance(loss, GLM) else _sums_by(loss, loop)
        spread(add, each, count * rows.shape[1], *common, floats, usable)
        for block, seen in zip(floats, usable, strict=True):
            sums += block.astype(np.int64)
            counts += seen
    return _restored(sums, loop.point), counts


def _shares(count: int, entries: int) -> int:
    """Return the number of shares of a pass; sums are exact, so it changes no bit."""
    threads = n_threads()
    shares = threads if threads * entries <= _PRIVATE else 1
    return max(1, shares, -(-count // LARGEST_BLOCK))


def _restored(sums: Steps, point: tuple[int, ...]) -> Steps:
    """Return the sums with matrices in C order: loops hold them transposed."""
    if len(point) == 1:
        return sums
    turned = sums.reshape(len(sums), *point[::-1]).swapaxes(1, 2)
    return np.ascontiguousarray(turned).reshape(len(sums), -1)


@compiled(error_model="numpy", nogil=True)
def glm_sums(
    first: int, last: int, rows: Any, y: Floats, codes: Steps, picks: Steps, count: int, each: int,
    thetas: Floats, loss: tuple[Any, ...], bounds: tuple[Any, ...], inverse: float, sums: Floats,
    counts: Steps,
) -> None:  # fmt: skip
    """Add the gradients of blocks ``first .. last`` to the sums of their users, in whole steps."""
    X, link, checked = layout(rows), MarginFunction(*loss), Limits(*bounds)
    tile, users, width = np.zeros(TILE, np.int64), np.zeros(TILE, np.int64), sums.shape[2]
    scales, inners, squares, norms = np.ones(TILE), np.zeros(TILE), np.ones(TILE), np.ones(TILE)
    labels, weights = np.zeros(TILE), np.zeros(TILE)
    for b in range(first, last):
        start, stop = b * count // each, (b + 1) * count // each
        block, seen = sums[b], counts[b]
        fetch(X, y, picks, start, min(start + AHEAD, stop))
        for low in range(start, stop, TILE):
            size = min(TILE, stop - low)
            fetch(X, y, picks, low + AHEAD, min(low + AHEAD + TILE, stop))
            for r in range(TILE):
                # A tile that is not full ends with copies of its last row, which are not summed.
                tile[r] = picked(picks, min(low + r, stop - 1))
                labels[r], users[r] = y[tile[r]], codes[tile[r]]
                prefetch(block, max(users[r], 0))
            advance(X, tile, width, thetas, 0, inners, squares, tile, 0, weights, True, block, 0)
            plain = size == TILE
            for r in range(TILE):
                scales[r], norms[r] = 1.0, math.sqrt(squares[r])
                plain &= (SMALL <= squares[r] < math.inf) & (abs(labels[r]) < math.inf)
                plain &= users[r] >= 0
            if not plain:
                for r in range(size):
                    if not SMALL <= squares[r] < math.inf:
                        scales[r], inners[r], norms[r] = rescaled(X, tile[r], squares[r], thetas, 0)
            glm.weigh(link, scales, inners, norms, labels, checked, inverse, weights)
            for t in range(0, TILE, 4):
                same = users[t] == users[t + 1] == users[t + 2] == users[t + 3]
                if plain and same:
                    seen[users[t]] += 4
                    add_four(X, tile, t, weights, block, users[t])
                    continue
                for r in range(t, min(t + 4, size)):
                    if users[r] >= 0 and norms[r] < math.inf and abs(labels[r]) < math.inf:
                        seen[users[r]] += 1
                        add_row(X, tile[r], scales[r], weights[r], True, block, users[r])


def _sums_by(loss: Loss, loop: _Loop) -> Any:
    """Return what `glm_sums` is, of a loss whose own loop gives the gradient of each record."""

    def add(
        first: int, last: int, rows: Any, y: Floats, codes: Steps, picks: Steps, count: int,
        each: int, thetas: Floats, known: Any, bounds: tuple[Any, ...], inverse: float,
        sums: Floats, counts: Steps,
    ) -> None:  # fmt: skip
        for b in range(first, last):
            stop = (b + 1) * count // each
            for low in range(b * count // each, stop, _BATCH):
                size = min(_BATCH, stop - low)
                chosen = picks[low : low + size] if len(picks) else np.arange(low, low + size)
                usable = np.empty(size, dtype=np.bool_)
                origin = np.zeros((1, width_of(rows)))
                _write_usable(rows, y, chosen, loss.reads_labels, origin, usable)
                terms = np.zeros((size, *thetas.shape))
                if loop.each_record is not None:
                    terms[:, 0] = loop.each_record(
                        rows, y, chosen, thetas[0], loss, bounds, inverse
                    )
                else:
                    # A block for each record: the sum of a block is the gradient of the record.
                    loop.run(
                        0, size, rows, y, chosen, size, size, thetas, known, bounds, inverse, False,
                        np.zeros((size, 1)), terms,
                    )  # fmt: skip
                _scatter(terms.reshape(size, -1), codes, chosen, usable, sums[b], counts[b])

    return add


@compiled(error_model="numpy")
def _write_usable(
    rows: Any, y: Floats, picks: Steps, labelled: bool, origin: Floats, usable: Any
) -> None:
    """Write whether each row, and its label where labels are read, is finite."""
    X = layout(rows)
    for p in range(len(picks)):
        label = y[picks[p]] if labelled else 0.0
        usable[p] = measured(X, picks[p], origin, 0)[2] < math.inf and abs(label) < math.inf


@compiled()
def _scatter(
    terms: Floats, codes: Steps, picks: Steps, usable: Any, sums: Floats, counts: Steps
) -> None:
    for p in range(len(picks)):
        user = codes[picks[p]]
        if user >= 0 and usable[p]:
            counts[user] += 1
            for j in range(terms.shape[1]):
                sums[user, j] += terms[p, j]


def user_means(sums: Steps, counts: Steps, grid: Grid) -> Floats:
    """Return the mean of each user, NaN for a user without a usable row.

    >>> user_means(np.array([[4, 2], [0, 0]]), np.array([2, 0]), Grid(0))
    array([[ 2.,  1.],
           [nan, nan]])
    """
    with np.errstate(invalid="ignore"):
        return np.asarray(grid.values(sums) / np.where(counts > 0, counts, np.nan)[:, np.newaxis])


def clipped_total(means: Floats, centre: npt.ArrayLike, *, radius: float, grid: Grid) -> Steps:
    """Add ``clip(mean - centre, radius)`` of all users exactly, each rounded to the grid.

    A user's term depends on this user alone. Its norm is at most ``radius`` before rounding, which
    moves each coordinate by at most half a step. So adding or removing a user moves the total by at
    most ``radius + grid.rounding(d, "l2") / 2``, replacing one by at most ``2 * radius +
    grid.rounding(d, "l2")``. A user whose mean is not finite adds nothing.

    >>> means = np.array([[3.0, 4.0], [0.5, 0.0], [np.nan, 0.0]])
    >>> clipped_total(means, 0.0, radius=1.0, grid=Grid(-3))
    array([9, 6])
    """
    given = np.ascontiguousarray(means, dtype=np.float64)
    width = given.shape[1]
    inverse = inverse_step(grid, radius)
    point = as_points("centre", np.broadcast_to(centre, (width,)), (width,))
    steps = np.zeros(width, dtype=np.int64)
    _add_clipped(given, point, limits(width, clip=radius).clip, inverse, steps)
    return np.clip(steps, -LIMIT, LIMIT)


@compiled(error_model="numpy")
def _add_clipped(
    means: Floats, centre: Floats, radius: float, inverse: float, steps: Steps
) -> None:
    for u in range(len(means)):
        largest = 0.0
        for j in range(means.shape[1]):
            largest = max(largest, abs(means[u, j] - centre[j]))
            if math.isnan(means[u, j]):
                largest = math.inf
        if not 0.0 < largest < math.inf:
            continue
        # Squares of entries over the largest neither overflow nor all underflow.
        square = 0.0
        for j in range(means.shape[1]):
            entry = (means[u, j] - centre[j]) / largest
            square += entry * entry
        reach = min(largest * math.sqrt(square), math.inf)
        factor = min(1.0, radius / reach)
        for j in range(means.shape[1]):
            steps[j] += np.int64(np.rint(factor * (means[u, j] - centre[j]) * inverse))
