"""How every kernel sees data: contiguous rows, guarded one by one, in a fixed partition into blocks.

A record is a row ``x`` and, for most losses, a label ``y``. Before anything is computed from it, it is repaired into
the declared bounds, so that the constants of a loss hold for any input:

- a row with an entry that is not finite, or whose label is not finite, becomes the neutral record: ``x = 0`` with
  label 0 clamped to the label bounds (+1 for binary labels);
- ``x`` is scaled into the ball of radius `row_norm`, labels are clamped or mapped to +-1;
- a gradient ``slope * x`` is scaled into the ball of radius `clip`.

None of this depends on other records, nor on the position of the record.

Why the bounds hold for floating-point numbers
----------------------------------------------
Let ``u = 2**-53``. The squared norm of a row is a sum of ``d`` products, so that its relative error is at most
``gamma(d + 1) = (d + 1) u / (1 - (d + 1) u)`` in any order of summation, with or without fused operations; underflow is
excluded by rescaling rows whose squared norm is outside of ``[2**-900, inf)``. The square root halves the error and
adds ``u``; the quotient, the coefficient, the product with an entry and the rounding of the shrunk bound itself add
at most ``8 u`` more. So it is enough to aim at ``bound * (1 - (d + 16) u)``, which is what `limits` does: the real
number ``norm(coefficient * x)`` is at most ``bound``, with no "up to rounding".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
from numba import njit

from dpfit.losses.links import ABSOLUTE
from dpfit.noise.source import Floats, Steps

BLOCKS = 64
"""Blocks of rows in a pass. It does not depend on the number of threads, and therefore neither does any sum."""

LARGEST_BLOCK = 2**22
"""Rows in a block at most: sums of as many integers below 2**31 are exact in float64."""

_ACCUMULATED = 2**22
_COPIED = 2**20
SMALL, UP, DOWN = 2.0**-900, 2.0**600, 2.0**-600
_LEAST, _MOST = 1e-100, 1e100


class Guards(TypedDict, total=False):
    """The public bounds that a kernel enforces; a missing one is no bound.

    Attributes
    ----------
    row_norm
        Radius of the l2 ball that rows are scaled into.
    clip
        Bound on the l2 norm of each record's gradient.
    label_lower, label_upper
        The interval that labels are clamped to.
    binary
        Whether labels are mapped to +1 (if positive) and -1 (if not).
    """

    row_norm: float
    clip: float
    label_lower: float
    label_upper: float
    binary: bool


class Limits(NamedTuple):
    """The guards as the compiled loops use them: radii shrunk by a bound on their own rounding errors."""

    row_norm: float
    clip: float
    lower: float
    upper: float
    binary: bool


def limits(terms: int, **guards: Unpack[Guards]) -> Limits:
    """Validate public bounds and shrink the radii by ``(terms + 16) * 2**-53``.

    Parameters
    ----------
    terms
        Number of products that are summed in a norm.
    **guards
        See `Guards`.

    Examples
    --------
    >>> limits(3, row_norm=2.0).row_norm < 2.0, limits(3).clip
    (True, inf)
    """
    if unknown := guards.keys() - Guards.__annotations__.keys():
        raise TypeError(f"there is no guard named {', '.join(sorted(unknown))}")
    lower, upper = float(guards.get("label_lower", -math.inf)), float(guards.get("label_upper", math.inf))
    if not lower <= upper or lower == math.inf or upper == -math.inf:
        raise ValueError(f"label bounds must be an interval, got [{lower!r}, {upper!r}]")
    return Limits(
        _shrunk("row_norm", guards.get("row_norm", math.inf), terms),
        _shrunk("clip", guards.get("clip", math.inf), terms),
        lower,
        upper,
        bool(guards.get("binary", False)),
    )


def _shrunk(name: str, bound: float, terms: int) -> float:
    bound = float(bound)
    # Beyond these magnitudes products could underflow, and the proof with them.
    if not (bound == math.inf or _LEAST <= bound <= _MOST):
        raise ValueError(f"{name} must be infinite or in [{_LEAST}, {_MOST}], got {bound!r}")
    return bound * (1.0 - (terms + 16) * 2.0**-53)


def as_rows(X: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return a matrix of real numbers without copying it."""
    matrix = np.asarray(X)
    if matrix.ndim != 2:
        raise ValueError(f"X must be a matrix, got an array with {matrix.ndim} axes")
    return _real("X", matrix)


def as_labels(y: npt.ArrayLike, rows: int) -> Floats:
    """Return one float64 label per row, converted once if they are of another type."""
    labels = np.asarray(y)
    if labels.shape != (rows,):
        raise ValueError(f"y must have one label for each of the {rows} rows, got shape {labels.shape}")
    return read_only(np.ascontiguousarray(_real("y", labels), dtype=np.float64))


def as_points(name: str, theta: npt.ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Return a finite float64 parameter of the given shape; parameters are public, so bad ones are refused."""
    point = np.ascontiguousarray(_real(name, np.asarray(theta)), dtype=np.float64)
    if point.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {point.shape}")
    if not np.isfinite(point).all():
        raise ValueError(f"{name} must be finite")
    return read_only(point)


def as_loss(code: int, parameter: float) -> tuple[int, float]:
    """Return a loss of `dpfit.losses.links` after checking that there is one."""
    if code not in range(ABSOLUTE + 1):
        raise ValueError(f"there is no generalized linear loss with code {code!r}")
    if not math.isfinite(parameter):
        raise ValueError(f"the parameter of a loss must be finite, got {parameter!r}")
    return int(code), float(parameter)


def as_picks(index: npt.ArrayLike | None, rows: int) -> tuple[Steps, int]:
    """Return the rows of a pass and how many there are; all rows are an empty index and the number of rows."""
    if index is None:
        return read_only(np.empty(0, dtype=np.int64)), rows
    picks = np.asarray(index)
    if picks.ndim != 1 or (len(picks) and picks.dtype.kind not in "iu"):
        raise ValueError("index must be a vector of integers")
    picks = np.ascontiguousarray(picks, dtype=np.int64)
    if len(picks) and not (picks.min() >= 0 and picks.max() < rows):
        raise ValueError(f"index must be in [0, {rows})")
    return read_only(picks), len(picks)


def _real(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold real numbers, got {array.dtype}")
    return array


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a read-only view; compiled code is specialized on it, so that all arrays share one version."""
    view = array.view()
    view.flags.writeable = False
    return view


def pieces(X: npt.NDArray[Any], y: Floats, index: npt.ArrayLike | None) -> Iterator[tuple[Any, Floats, Steps, int]]:
    """Yield the rows of a pass as C-contiguous float arrays: ``(rows, labels, picks, count)``.

    C-contiguous float64 and float32 data is one piece, itself. Anything else (Fortran order, strided views, integers,
    foreign byte order) is copied piece by piece into at most 8 MiB, so that the loops are compiled for one layout
    only and a record gives the same bits in all of them.

    Examples
    --------
    >>> X = np.asfortranarray(np.arange(6.0).reshape(3, 2))
    >>> [(rows.flags.c_contiguous, count) for rows, _, _, count in pieces(X, np.zeros(3), None)]
    [(True, 3)]
    """
    picks, count = as_picks(index, len(X))
    if X.dtype in (np.float64, np.float32) and X.flags.c_contiguous and X.flags.aligned:
        yield read_only(X), y, picks, count
        return
    dtype = np.float32 if X.dtype == np.float32 else np.float64
    size = max(1, _COPIED // max(1, X.shape[1]))
    for start in range(0, count, size):
        chosen = picks[start : start + size] if len(picks) else slice(start, min(start + size, count))
        rows = read_only(np.ascontiguousarray(X[chosen], dtype=dtype))
        yield rows, read_only(np.ascontiguousarray(y[chosen])), as_picks(None, 0)[0], len(rows)


def blocks(rows: int, width: int) -> int:
    """Return how many blocks a pass of `rows` rows with `width` accumulators per block is cut into.

    It is 64, fewer where there are few rows or where 64 sets of accumulators would take more than 32 MiB (then at least
    8), and more where blocks would have more than `LARGEST_BLOCK` rows. It depends on sizes only.

    Examples
    --------
    >>> blocks(10**6, 50), blocks(100, 50), blocks(10**6, 10**6), blocks(0, 3)
    (64, 2, 8, 1)
    """
    wanted = min(BLOCKS, max(8, _ACCUMULATED // max(1, width)), -(-rows // 64))
    return max(1, wanted, -(-rows // LARGEST_BLOCK))


@njit(cache=True, inline="always")
def picked(picks: Steps, p: int) -> int:
    """Return the row at position `p` of a pass."""
    # Positions in parallel loops are unsigned, and numba would join them with signed ones to a float.
    return int(picks[p]) if len(picks) else int(np.int64(p))


# The sums below may be reassociated into vector lanes. They are compiled once, on their own, for contiguous rows and
# without peeling for alignment, so that their order, and thus their bits, depend on the length of the row only.
@njit(cache=True, fastmath={"reassoc", "nsz", "contract"})
def products(X: npt.NDArray[Any], i: int, Theta: Floats, k: int) -> tuple[float, float]:
    """Return the inner product of ``X[i]`` and ``Theta[k]``, and the squared norm of ``X[i]``."""
    inner, square = 0.0, 0.0
    for j in range(X.shape[1]):
        entry = np.float64(X[i, j])
        inner += entry * Theta[k, j]
        square += entry * entry
    return inner, square


# In the given order: reassociated, squares of huge entries would be taken before they are scaled.
@njit(cache=True)
def scaled_products(X: npt.NDArray[Any], i: int, scale: float, Theta: Floats, k: int) -> tuple[float, float]:
    """Return the inner product of ``scale * X[i]`` and ``Theta[k]``, and the squared norm of ``scale * X[i]``."""
    inner, square = 0.0, 0.0
    for j in range(X.shape[1]):
        entry = scale * X[i, j]
        inner += entry * Theta[k, j]
        square += entry * entry
    return inner, square


@njit(cache=True, inline="always")
def measured(X: npt.NDArray[Any], i: int, Theta: Floats, k: int) -> tuple[float, float, float]:
    """Return ``(scale, inner, norm)``: a power of two, and the two products of ``scale * X[i]``.

    The scale is 1 unless squares would overflow or underflow. The norm is NaN for a row that is not finite.
    """
    inner, square = products(X, i, Theta, k)
    if SMALL <= square < math.inf:
        return 1.0, inner, math.sqrt(square)
    # Largest entries are below 2**-450 or above 2**485 here; scaled ones are in [2**-474, 2**424], far from both ends.
    scale = UP if square < SMALL else DOWN
    inner, square = scaled_products(X, i, scale, Theta, k)
    return scale, inner, (math.sqrt(square) if square < math.inf else math.nan)


@njit(cache=True, error_model="numpy", inline="always")
def guarded(scale: float, inner: float, norm: float, label: float, limits: Limits) -> tuple[float, float, float]:
    """Return ``(factor, margin, label)`` of the repaired record, whose row is ``factor * (scale * x)``.

    The factor of the neutral record is zero.
    """
    if not (norm < math.inf and abs(label) < math.inf):
        return 0.0, 0.0, (1.0 if limits.binary else min(max(0.0, limits.lower), limits.upper))
    factor = min(1.0 / scale, limits.row_norm * (1.0 / norm))
    if limits.binary:
        return factor, factor * inner, (1.0 if label > 0.0 else -1.0)
    return factor, factor * inner, min(max(label, limits.lower), limits.upper)


@njit(cache=True, error_model="numpy", inline="always")
def clipped(slope: float, factor: float, norm: float, clip: float) -> float:
    """Return the coefficient of ``scale * x`` in the gradient ``slope * factor * (scale * x)``, clipped.

    Examples
    --------
    >>> clipped(3.0, 1.0, 2.0, math.inf), clipped(-3.0, 1.0, 2.0, 1.0), clipped(math.nan, 1.0, 2.0, 1.0)
    (3.0, -0.5, 0.0)
    """
    # A slope that overflowed still has a sign; one that is not a number, or of the neutral record, has no say. Taking a
    # minimum instead of a decision matters for speed: whether a record is clipped is as hard to predict as data is.
    weight = min(abs(slope) * factor, clip * (1.0 / norm))
    return math.copysign(weight, slope) if weight > 0.0 else 0.0


@njit(cache=True, fastmath={"contract"})
def add_row(X: npt.NDArray[Any], i: int, scale: float, weight: float, whole: bool, sums: Floats, k: int) -> None:
    """Add ``weight * scale * X[i]`` to ``sums[k]``, rounded to whole numbers if asked for."""
    if weight == 0.0:
        return
    if whole:
        for j in range(X.shape[1]):
            sums[k, j] += np.rint(weight * (scale * X[i, j]))
    else:
        for j in range(X.shape[1]):
            sums[k, j] += weight * (scale * X[i, j])


@njit(cache=True, fastmath={"contract"})
def add_four(X: npt.NDArray[Any], i: Steps, weights: Floats, whole: bool, sums: Floats, k: int) -> None:
    """Add four finite rows at once, which saves three of four passes over the sums."""
    a, b, c, d = i[0], i[1], i[2], i[3]
    p, q, r, s = weights[0], weights[1], weights[2], weights[3]
    if whole:
        for j in range(X.shape[1]):
            sums[k, j] += (np.rint(p * X[a, j]) + np.rint(q * X[b, j])) + (np.rint(r * X[c, j]) + np.rint(s * X[d, j]))
    else:
        for j in range(X.shape[1]):
            sums[k, j] += (p * X[a, j] + q * X[b, j]) + (r * X[c, j] + s * X[d, j])
