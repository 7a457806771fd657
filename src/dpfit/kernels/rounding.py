"""What rounding can add to a floating-point sum, whatever its order.

Theorem. Let ``u = 2**-53`` and let terms ``t_1 .. t_n`` be added in float64 along any binary tree
in which every term passes through at most ``m`` additions, ``m u < 1``. Then, with ``gamma(m) = m u
/ (1 - m u)``,

    abs(computed - sum(t)) <= gamma(m) * sum(abs(t)).

Proof. An addition returns ``(a + b) (1 + e)`` with ``abs(e) <= u``; this holds without exception,
because sums of floats that are subnormal are exact. Unfolding the tree, the computed sum is the sum
of ``t_i`` times a product of at most ``m`` factors ``1 + e``. Such a product differs from 1 by at
most ``(1 + u)**m - 1 <= gamma(m)``. []

If a term is itself a product ``t = a b`` that was rounded, one more factor enters (``m + 1`` in
place of ``m``), and, if it underflows, an absolute error of at most ``2**-1075``. A fused
multiply-add only leaves factors out.

A pass that adds at most ``r`` rows in each of ``b`` blocks and then the blocks has ``m <= r + b``:
it is enough to know how many terms meet in a block, not in which order. Hence the theorem covers
BLAS, which does not say.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable

from dpfit.noise.source import Floats


def pairwise(start: tuple[Floats, ...], parts: Iterable[tuple[Floats, ...]]) -> tuple[Floats, ...]:
    """Sum tuples of arrays with at most ``2 log2(number) + 2`` additions each, keeping few.

    However many pieces data come in, their sum is hardly worse than that of one piece.

    Examples
    --------
    >>> import numpy as np
    >>> pairwise((np.zeros(1),), ((np.full(1, 0.1),) for _ in range(1023)))
    (array([102.3]),)
    """
    waiting: list[tuple[int, tuple[Floats, ...]]] = []
    for part in itertools.chain((start,), parts):
        size, total = 1, part
        while waiting and waiting[-1][0] == size:
            total, size = _added(waiting.pop()[1], total), 2 * size
        waiting.append((size, total))
    return functools.reduce(_added, (part for _, part in reversed(waiting)))


def _added(some: tuple[Floats, ...], more: tuple[Floats, ...]) -> tuple[Floats, ...]:
    return tuple(a + b for a, b in zip(some, more, strict=True))


def gamma(additions: int) -> float:
    """Return a bound on the relative error of a sum of `additions` roundings a term.

    Examples
    --------
    >>> 1000 < gamma(1000) / 2**-53 < 1000.000001
    True
    """
    if not 0 <= additions <= 2**50:
        raise ValueError(f"additions must be in [0, 2**50], got {additions}")
    # The numerator and the difference are exact; two steps up pay for the quotient.
    relative = additions * 2.0**-53
    return (
        math.nextafter(math.nextafter(relative / (1.0 - relative), math.inf), math.inf)
        if additions
        else 0.0
    )


def sum_error(rows: int, bound: float, *, blocks: int = 1, factors: int = 1) -> float:
    """Bound the error of a blocked sum of vectors or matrices, in l2 or Frobenius norm.

    With terms of norm at most `bound`, the theorem holds in every coordinate, and the vector of
    ``sum(abs(t))`` has at most the norm ``rows * bound``. Two neighbouring data sets both err, so
    that a sensitivity grows by twice this number.

    Parameters
    ----------
    rows
        Number of terms (at most).
    bound
        Bound on the norm of each term. For ``x x^T`` with ``norm(x) <= r`` it is ``r**2``.
    blocks
        Number of blocks of ``ceil(rows / blocks)`` terms, or fewer.
    factors
        Roundings within a term: 1 for a product of two floats; for the rows that `glm_hessian`
        multiplies, each entry of which is rounded before, 7 (two entries with at most three
        roundings each, and the product).

    Examples
    --------
    >>> sum_error(10**6, 1.0, blocks=64) < 2e-6
    True
    """
    if rows < 0 or blocks < 1 or factors < 0 or not 0 <= bound < math.inf:
        raise ValueError(
            "rows and factors must not be negative, blocks must be positive and bound finite"
        )
    relative = gamma(-(-rows // blocks) + blocks + factors)
    # Three more steps up for the two products and the sum, and the underflow of products at its
    # largest.
    error = relative * rows * bound + rows * 2.0**-1022
    return error * (1.0 + 2.0**-50)
