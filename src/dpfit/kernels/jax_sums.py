"""Sums of clipped gradients of JAX models: one compiled function for each chunk of records.

The function makes the gradient of each record of a chunk, clips and rounds it, and adds. A scan
calls it for one chunk after the other, so that no more than one chunk of gradients is in memory.

Why the declared sensitivity holds for any input. A record's gradient g, float32 or float64, is cast
to float64. Its norm is the root of a float64 sum of squares: off by a relative error of at most
``(d / 2 + 1) 2**-53``, or not finite. Records whose norm is not finite add zero. Others are
multiplied by ``min(1, C / norm)`` with the C of `dpfit.kernels.bounds`, which is shrunk by ``(d +
16) 2**-53``: so what is rounded has a norm of at most the declared one. After rounding to the grid
the row is measured again, and adds zero if it is longer than ``C / step + sqrt(d) / 2``: a compiler
that evaluated the norm in another way could not break the bound. Integers below 2**53 are added
exactly.

What is idealised: XLA does not state that the last bits of a record's gradient are independent of
the other records of its chunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from dpfit.kernels.bounds import Limits
from dpfit.kernels.guarded_rows import write_guarded
from dpfit.kernels.rows import width_of
from dpfit.losses.custom import JaxLoss
from dpfit.losses.model import double_precision, import_jax
from dpfit.noise.source import Floats, Steps

CHUNK = 64
"""Records whose gradients are in memory together; larger chunks fall out of the cache."""

_ROWS = 2**14
"""Records that are passed to one call, at most."""

Program = Callable[..., Any]


def gradients(
    first: int,
    last: int,
    X: Any,
    y: Floats,
    picks: Steps,
    count: int,
    each: int,
    thetas: Floats,
    loss: JaxLoss,
    bounds: tuple[Any, ...],
    inverse: float,
    valued: bool,
    values: Floats,
    sums: Floats,
) -> None:
    """Add values and gradients of blocks ``first .. last``; an inverse step rounds gradients."""
    start, stop, clip = first * count // each, last * count // each, Limits(*bounds).clip
    programs = _programs(loss.flat_function, loss.dtype)
    for low, arrays in _pieces(X, y, picks, start, stop, bounds, loss):
        # Whole steps are exact in any block; a block gets no more records than it is made for.
        b = first + (low - start) * (last - first) // max(1, stop - start)
        for k, theta in enumerate(thetas):
            with double_precision():
                if valued:
                    values[b, k] += float(programs["values"](theta, *arrays))
                name = "steps" if inverse > 0.0 else "sums"
                sums[b, k] += np.asarray(programs[name](theta, *arrays, clip, inverse))


def rounded_gradients(
    X: Any, y: Floats, picks: Steps, theta: Floats, loss: JaxLoss, bounds: tuple[Any, ...],
    inverse: float,
) -> Floats:  # fmt: skip
    """Return the clipped gradient of each picked record, in whole steps."""
    programs, clip = _programs(loss.flat_function, loss.dtype), Limits(*bounds).clip
    parts = [np.empty((0, len(theta)))]
    for low, arrays in _pieces(X, y, picks, 0, len(picks), bounds, loss):
        with double_precision():
            rows = np.asarray(programs["rows"](theta, *arrays, clip, inverse))
        parts.append(rows[: min(_ROWS, len(picks) - low)])
    return np.concatenate(parts)


def _pieces(
    X: Any, y: Floats, picks: Steps, start: int, stop: int, bounds: tuple[Any, ...], loss: JaxLoss
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield guarded rows, labels, marks of records that count and the number of chunks, by piece.

    The number of rows of a piece is a power of two, so that few shapes are compiled. Records that
    are not finite do not count for a model, whose biases would learn from the neutral record.
    """
    length = min(_ROWS, CHUNK << max(0, -(-(stop - start) // CHUNK) - 1).bit_length())
    rows, labels = np.zeros((length, width_of(X))), np.zeros(length)
    usable = np.zeros(length, dtype=np.bool_)
    for low in range(start, stop, length):
        size = min(length, stop - low)
        write_guarded(X, y, picks, low, bounds, rows[:size], labels[:size], usable[:size])
        if not loss.has_own_parameters:
            usable[:size] = True
        usable[size:] = False
        yield low, (rows, labels, usable, -(-size // CHUNK))


@lru_cache(maxsize=64)
def _programs(function: Callable[..., Any], dtype: str) -> dict[str, Program]:
    """Return the compiled passes over a piece of records."""
    jax = import_jax()
    jnp, lax = jax.numpy, jax.lax
    values_of = jax.vmap(function, in_axes=(None, 0))
    gradients_of = jax.vmap(jax.grad(function), in_axes=(None, 0))

    def examples(theta: Any, rows: Any, labels: Any) -> tuple[Any, Any]:
        return theta.astype(dtype), (rows.astype(dtype), labels.astype(dtype))

    def terms(theta: Any, rows: Any, labels: Any, usable: Any, clip: Any) -> Any:
        given = gradients_of(*examples(theta, rows, labels)).astype(jnp.float64)
        return clipped_rows(given, usable, clip)

    def steps(theta: Any, rows: Any, labels: Any, usable: Any, clip: Any, inverse: Any) -> Any:
        bounded = jnp.rint(terms(theta, rows, labels, usable, clip) * inverse)
        return within(bounded, clip * inverse)

    def values(theta: Any, rows: Any, labels: Any, usable: Any) -> Any:
        found = values_of(*examples(theta, rows, labels)).astype(jnp.float64)
        return jnp.where(usable & jnp.isfinite(found), found, 0.0)

    def scanned(part: Program, zero: Callable[[Any], Any]) -> Program:
        def run(theta: Any, rows: Any, labels: Any, usable: Any, chunks: Any, *bounds: Any) -> Any:
            def add(i: Any, total: Any) -> Any:
                cut = (
                    lax.dynamic_slice_in_dim(a, i * CHUNK, CHUNK) for a in (rows, labels, usable)
                )
                return total + part(theta, *cut, *bounds).sum(axis=0)

            return lax.fori_loop(0, chunks, add, zero(theta))

        compiled: Program = jax.jit(run)
        return compiled

    def each_row(theta: Any, rows: Any, labels: Any, usable: Any, chunks: Any, *bounds: Any) -> Any:
        def cut(given: Any) -> Any:
            return given.reshape(-1, CHUNK, *given.shape[1:])

        found = lax.map(
            lambda one: steps(theta, *one, *bounds), (cut(rows), cut(labels), cut(usable))
        )
        return found.reshape(-1, found.shape[-1])

    def unrounded(theta: Any, rows: Any, labels: Any, usable: Any, clip: Any, _: Any) -> Any:
        return terms(theta, rows, labels, usable, clip)

    return {
        "steps": scanned(steps, jnp.zeros_like),
        "sums": scanned(unrounded, jnp.zeros_like),
        "values": scanned(values, lambda theta: jnp.zeros(())),
        "rows": jax.jit(each_row),
    }


def clipped_rows(terms: Any, usable: Any, clip: Any) -> Any:
    """Scale float64 rows into the ball of radius ``clip``; others than finite ones become zero."""
    jnp = import_jax().numpy
    norms = row_norms(terms)
    kept = usable & jnp.isfinite(norms)
    factors = jnp.minimum(1.0, clip / norms)
    return jnp.where(kept[:, None], terms * factors[:, None], 0.0)


def row_norms(terms: Any) -> Any:
    """Return the norm of each row; infinite or NaN for a row that is not finite, or above 1e154."""
    jnp = import_jax().numpy
    return jnp.sqrt(jnp.sum(terms * terms, axis=1))


def within(steps: Any, radius: Any) -> Any:
    """Return rounded rows, zero in place of rows that rounding does not bring within the radius."""
    jnp = import_jax().numpy
    longest = radius + 0.5 * math.sqrt(steps.shape[1])
    return jnp.where(jnp.sum(steps * steps, axis=1, keepdims=True) <= longest**2, steps, 0.0)
