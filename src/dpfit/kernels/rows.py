"""Matrix rows for compiled loops, dense or compressed, in a fixed partition into blocks.

What a loop does with a row (`measured`, `add_row`, `advance`, `write_row`) has one name and two
versions, chosen by the type of the matrix when the loop is compiled. So each loss is written once,
for both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpfit.kernels.bounds import Guards as Guards
from dpfit.kernels.prefetch import prefetch
from dpfit.losses.compiled import compiled, overload
from dpfit.losses.guards import as_floats, unmasked
from dpfit.noise.source import Floats, Steps

BLOCKS = 64
"""Blocks of rows in a pass. It does not depend on the number of threads, and therefore neither does
any sum.
"""

LARGEST_BLOCK = 2**22
"""Rows in a block at most: sums of as many integers below 2**31 are exact in float64."""

TILE = 16
"""Rows that are looked at together."""

AHEAD = 24
"""How many rows ahead of their use the memory is asked for them."""

SMALL, UP, DOWN = 2.0**-900, 2.0**600, 2.0**-600
_ACCUMULATED = 2**22
_COPIED = 2**20
_INLINED: Any = {"forceinline": True, "error_model": "numpy"}


class Compressed(NamedTuple):
    """The arrays of a matrix in CSR format, and its number of columns.

    Rows whose column numbers are not increasing or not below the width are values like others that
    are out of bounds: they are measured as not finite and become the neutral record.
    """

    data: npt.NDArray[Any]
    indices: npt.NDArray[Any]
    indptr: npt.NDArray[Any]
    width: int


def is_compressed(X: Any) -> bool:
    """Whether a matrix is sparse in CSR format; other sparse formats are refused.

    >>> from scipy.sparse import csr_array
    >>> is_compressed(csr_array((2, 3))), is_compressed(np.eye(2))
    (True, False)
    """
    layout = getattr(X, "format", None)
    if layout is None or not hasattr(X, "tocsr"):
        return False
    if layout != "csr" or len(X.shape) != 2:
        raise ValueError(f"a sparse matrix must be in CSR format (tocsr()), got {layout!r}")
    return True


def width_of(X: Any) -> int:
    """The number of columns of rows as the loops take them."""
    return int(Compressed(*X).width if isinstance(X, tuple) else X.shape[1])


def as_rows(X: Any) -> Any:
    """Return a matrix of real numbers, dense or CSR, without copying it."""
    compressed = is_compressed(X)
    matrix = X if compressed else np.asarray(unmasked("X", X))
    if matrix.ndim != 2:
        raise ValueError(f"X must be a matrix, got an array with {matrix.ndim} axes")
    if compressed and not _has_rows(matrix):
        raise ValueError(
            "the row pointers of a CSR matrix must increase from zero, up to at most its stored "
            "entries"
        )
    return _real("X", matrix)


def with_valid_columns(X: Any) -> Any:
    """Return a CSR matrix in which every entry has a column.

    An entry with a column number outside the width becomes NaN in the first column. Its record is
    then the neutral one.
    """
    rows = as_rows(X)
    outside = (rows.indices < 0) | (rows.indices >= rows.shape[1])
    if outside.any():
        if not rows.shape[1]:
            return type(rows)(rows.shape)
        rows = rows.copy() if rows.dtype.kind == "f" else as_floats(rows)
        rows.data[outside], rows.indices[outside] = np.nan, 0
    return rows


def _has_rows(X: Any) -> bool:
    """Whether CSR rows lie within its arrays; scipy does not check, and writes elsewhere."""
    pointers, stored = X.indptr, min(len(X.data), len(X.indices))
    if pointers.shape != (X.shape[0] + 1,) or pointers[0] != 0 or pointers[-1] > stored:
        return False
    return bool((pointers[:-1] <= pointers[1:]).all())


def as_labels(y: npt.ArrayLike, rows: int) -> Floats:
    """Return one float64 label per row, converted once if they are of another type."""
    labels = np.asarray(unmasked("y", y))
    if labels.shape != (rows,):
        raise ValueError(
            f"y must have one label for each of the {rows} rows, got shape {labels.shape}"
        )
    return read_only(np.ascontiguousarray(as_floats(_real("y", labels))))


def as_points(name: str, theta: npt.ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Return a finite float64 parameter of a shape; parameters are public, so others raise."""
    point = np.ascontiguousarray(_real(name, np.asarray(theta)), dtype=np.float64)
    if point.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {point.shape}")
    if not np.isfinite(point).all():
        raise ValueError(f"{name} must be finite")
    return read_only(point)


def as_index(index: npt.ArrayLike) -> Steps:
    """Return numbers of rows; a mask is none, and neither are floats."""
    picks = np.asarray(index)
    if picks.ndim != 1 or (len(picks) and picks.dtype.kind not in "iu"):
        raise ValueError("index must be a vector of integers")
    # Integers too large for the type become negative ones, which no row has.
    return np.ascontiguousarray(picks, dtype=np.int64)


def as_picks(index: npt.ArrayLike | None, rows: int) -> tuple[Steps, int]:
    """Return the rows of a pass and their number; for all rows, an empty index and n."""
    if index is None:
        return read_only(np.empty(0, dtype=np.int64)), rows
    picks = as_index(index)
    # Negative ones are the largest of all without their sign.
    if len(picks) and not picks.view(np.uint64).max() < rows:
        raise ValueError(f"index must be in [0, {rows})")
    return read_only(picks), len(picks)


def _real(name: str, array: Any) -> Any:
    if array.dtype.kind not in "fiub":
        # The name of a type of texts would tell how long the longest one is.
        raise ValueError(f"{name} must hold real numbers")
    return array


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a read-only view: compiled code is specialized on it, so one version serves."""
    view = array.view()
    view.flags.writeable = False
    return view


def clamped(values: Any, row_max: float) -> Any:
    """Return floats clamped to ``[-row_max, row_max]``; infinite ones become NaN.

    Each number depends on itself only. A NaN makes its record the neutral one, as an infinity does.

    >>> clamped(np.array([0.5, -3.0, math.inf]), 1.0)
    array([ 0.5, -1. ,  nan])
    """
    most = values.dtype.type(min(row_max, float(np.finfo(values.dtype).max)))
    if float(most) > row_max:
        most = np.nextafter(most, values.dtype.type(0))
    kept = np.clip(values, -most, most)
    kept[np.isinf(values)] = math.nan
    return kept


def pieces(
    X: Any, y: Floats, index: npt.ArrayLike | None, row_max: float = math.inf
) -> Iterator[tuple[Any, Floats, Steps, int]]:
    """Yield the rows of a pass as the loops take them: ``(rows, labels, picks, count)``.

    C-contiguous float64 and float32 data is one piece, itself, and so is a CSR matrix in canonical
    format (stored duplicates would make norms wrong; a matrix that has some is copied). Anything
    else (Fortran order, strided views, integers, foreign byte order) is copied piece by piece into
    at most 8 MiB, so that the loops are compiled for one layout only and a record gives the same
    bits in all of them. So is everything whose entries are clamped to ``row_max``, if that is
    finite.

    Examples
    --------
    >>> X = np.asfortranarray(np.arange(6.0).reshape(3, 2))
    >>> [(rows.flags.c_contiguous, count) for rows, _, _, count in pieces(X, np.zeros(3), None)]
    [(True, 3)]
    """
    picks, count = as_picks(index, X.shape[0])
    if is_compressed(X):
        compressed = _compressed(X)
        if row_max < math.inf:
            kept = read_only(clamped(compressed.data, row_max))
            compressed = compressed._replace(data=kept)
        yield tuple(compressed), y, picks, count
        return
    direct = X.flags.c_contiguous and X.flags.aligned and row_max == math.inf
    if direct and X.dtype in (np.float64, np.float32):
        yield read_only(X), y, picks, count
        return
    dtype = np.float32 if X.dtype == np.float32 else np.float64
    size = max(1, _COPIED // max(1, X.shape[1]))
    for start in range(0, count, size):
        chosen = (
            picks[start : start + size] if len(picks) else slice(start, min(start + size, count))
        )
        rows = np.ascontiguousarray(as_floats(X[chosen], dtype))
        rows = read_only(rows if row_max == math.inf else clamped(rows, row_max))
        yield rows, read_only(np.ascontiguousarray(y[chosen])), as_picks(None, 0)[0], len(rows)


def _compressed(X: Any) -> Compressed:
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    if X.dtype not in (np.float64, np.float32):
        X = as_floats(X)
    return Compressed(read_only(X.data), read_only(X.indices), read_only(X.indptr), int(X.shape[1]))


def blocks(rows: int, width: int) -> int:
    """Return how many blocks a pass of `rows` rows with `width` accumulators per block is cut into.

    It is 64, fewer where there are few rows or where 64 sets of accumulators would take more than
    32 MiB (then at least 8), and more where blocks would have more than `LARGEST_BLOCK` rows. It
    depends on sizes only.

    Examples
    --------
    >>> blocks(10**6, 50), blocks(100, 50), blocks(10**6, 10**6), blocks(0, 3)
    (64, 2, 8, 1)
    """
    wanted = min(BLOCKS, max(8, _ACCUMULATED // max(1, width)), -(-rows // 64))
    return max(1, wanted, -(-rows // LARGEST_BLOCK))


def _is_array(rows: Any) -> bool:
    """Whether a type of numba is that of an array; a compressed matrix is a tuple."""
    from numba import types

    return isinstance(rows, types.Array)


@compiled(forceinline=True)
def picked(picks: Steps, p: int) -> int:
    """Return the row at position `p` of a pass."""
    return picks[p] if len(picks) else p


# Sums of dense rows may be reassociated into vector lanes. They are compiled once, on their own,
# for contiguous rows and without peeling for alignment, so that their order, and thus their bits,
# depend on the length of the row only.
def products(X: Any, i: int, Theta: Floats, k: int) -> tuple[float, float]:
    """Return the inner product of ``X[i]`` and ``Theta[k]``, and the squared norm of ``X[i]``."""
    raise NotImplementedError


@overload(products, fastmath={"reassoc", "nsz", "contract"})
def _products(X: Any, i: int, Theta: Floats, k: int) -> Any:
    def dense(X: Any, i: int, Theta: Floats, k: int) -> tuple[float, float]:
        inner, square = 0.0, 0.0
        for j in range(X.shape[1]):
            entry = np.float64(X[i, j])
            inner += entry * Theta[k, j]
            square += entry * entry
        return inner, square

    def compressed(X: Any, i: int, Theta: Floats, k: int) -> tuple[float, float]:
        return compressed_products(X, i, 1.0, Theta, k)

    return dense if _is_array(X) else compressed


def scaled_products(X: Any, i: int, scale: float, Theta: Floats, k: int) -> tuple[float, float]:
    """Return the products of ``scale * X[i]``."""
    raise NotImplementedError


# In the given order: reassociated, squares of huge entries would be taken before they are scaled.
@overload(scaled_products, fastmath=False)
def _scaled_products(X: Any, i: int, scale: float, Theta: Floats, k: int) -> Any:
    def dense(X: Any, i: int, scale: float, Theta: Floats, k: int) -> tuple[float, float]:
        inner, square = 0.0, 0.0
        for j in range(X.shape[1]):
            entry = scale * X[i, j]
            inner += entry * Theta[k, j]
            square += entry * entry
        return inner, square

    def compressed(X: Any, i: int, scale: float, Theta: Floats, k: int) -> tuple[float, float]:
        return compressed_products(X, i, scale, Theta, k)

    return dense if _is_array(X) else compressed


@compiled()
def compressed_products(
    X: Compressed, i: int, scale: float, Theta: Floats, k: int
) -> tuple[float, float]:
    """Return the products of ``scale * X[i]``; NaN for a row that is not well formed."""
    inner, square, last = 0.0, 0.0, -1
    for t in range(X.indptr[i], X.indptr[i + 1]):
        j = X.indices[t]
        if not last < j < X.width:
            return 0.0, math.nan
        last = j
        entry = scale * X.data[t]
        inner += entry * Theta[k, j]
        square += entry * entry
    return inner, square


def fetch(X: Any, y: Floats, picks: Steps, first: int, last: int) -> None:
    """Prefetch the rows ``first .. last`` of a pass, and their labels."""
    raise NotImplementedError


@overload(fetch, error_model="numpy")
def _fetch(X: Any, y: Floats, picks: Steps, first: int, last: int) -> Any:
    def dense(X: Any, y: Floats, picks: Steps, first: int, last: int) -> None:
        for p in range(first, last):
            prefetch(X, picked(picks, p))
            if len(picks):
                prefetch(y, picks[p])

    def compressed(X: Any, y: Floats, picks: Steps, first: int, last: int) -> None:
        pass

    return dense if _is_array(X) else compressed


def advance(
    X: Any, tile: Steps, width: int, Theta: Floats, k: int, inners: Floats, squares: Floats,
    old: Steps, old_width: int, weights: Floats, whole: bool, sums: Floats, old_k: int,
) -> None:  # fmt: skip
    """Write a tile's products with ``Theta[k]``; add the last tile's to ``sums[old_k]``.

    Nothing is written if the width is zero instead of the number of columns, and nothing added if
    the old one is. Old rows must be finite.
    """
    raise NotImplementedError


@overload(advance, fastmath={"reassoc", "nsz", "contract"})
def _advance(
    X: Any, tile: Steps, width: int, Theta: Floats, k: int, inners: Floats, squares: Floats,
    old: Steps, old_width: int, weights: Floats, whole: bool, sums: Floats, old_k: int,
) -> Any:  # fmt: skip
    # Four rows of either tile in turns: while rows that are at hand are added, the memory brings
    # others. Each sum of products comes from one and the same loop, whose order, and thus whose
    # bits, depend on the length of rows only.
    def dense(
        X: Any, tile: Steps, width: int, Theta: Floats, k: int, inners: Floats, squares: Floats,
        old: Steps, old_width: int, weights: Floats, whole: bool, sums: Floats, old_k: int,
    ) -> None:  # fmt: skip
        for t in range(0, TILE, 4):
            a, b, c, d = tile[t], tile[t + 1], tile[t + 2], tile[t + 3]
            inner_a = inner_b = inner_c = inner_d = 0.0
            square_a = square_b = square_c = square_d = 0.0
            for j in range(width):
                slope = Theta[k, j]
                entry_a, entry_b = np.float64(X[a, j]), np.float64(X[b, j])
                entry_c, entry_d = np.float64(X[c, j]), np.float64(X[d, j])
                inner_a += entry_a * slope
                inner_b += entry_b * slope
                inner_c += entry_c * slope
                inner_d += entry_d * slope
                square_a += entry_a * entry_a
                square_b += entry_b * entry_b
                square_c += entry_c * entry_c
                square_d += entry_d * entry_d
            inners[t], inners[t + 1], inners[t + 2], inners[t + 3] = (
                inner_a,
                inner_b,
                inner_c,
                inner_d,
            )
            squares[t], squares[t + 1], squares[t + 2], squares[t + 3] = (
                square_a,
                square_b,
                square_c,
                square_d,
            )
            a, b, c, d = old[t], old[t + 1], old[t + 2], old[t + 3]
            p, q, r, s = weights[t], weights[t + 1], weights[t + 2], weights[t + 3]
            if whole:
                for j in range(old_width):
                    pair = np.rint(p * X[a, j]) + np.rint(q * X[b, j])
                    sums[old_k, j] += pair + (np.rint(r * X[c, j]) + np.rint(s * X[d, j]))
            else:
                for j in range(old_width):
                    sums[old_k, j] += (p * X[a, j] + q * X[b, j]) + (r * X[c, j] + s * X[d, j])

    def compressed(
        X: Any, tile: Steps, width: int, Theta: Floats, k: int, inners: Floats, squares: Floats,
        old: Steps, old_width: int, weights: Floats, whole: bool, sums: Floats, old_k: int,
    ) -> None:  # fmt: skip
        if old_width:
            for r in range(TILE):
                add_row(X, old[r], 1.0, weights[r], whole, sums, old_k)
        if width:
            for r in range(TILE):
                inners[r], squares[r] = compressed_products(X, tile[r], 1.0, Theta, k)

    return dense if _is_array(X) else compressed


@compiled(error_model="numpy", forceinline=True)
def measured(X: Any, i: int, Theta: Floats, k: int) -> tuple[float, float, float]:
    """Return ``(scale, inner, norm)``: a power of two, and the two products of ``scale * X[i]``.

    The scale is 1 unless squares would overflow or underflow. The norm is NaN for a row that is not
    finite.
    """
    inner, square = products(X, i, Theta, k)
    if SMALL <= square < math.inf:
        return 1.0, inner, math.sqrt(square)
    # As an integer and not as a literal, of which each would have its own version.
    return rescaled(X, i, square, Theta, int(k))


@compiled(error_model="numpy")
def rescaled(X: Any, i: int, square: float, Theta: Floats, k: int) -> tuple[float, float, float]:
    """Return what `measured` does, if the squared norm was tiny, huge or not a number."""
    # Largest entries are below 2**-450 or above 2**485 here; scaled ones are in [2**-474, 2**424],
    # far from both ends.
    scale = UP if square < SMALL else DOWN
    inner, square = scaled_products(X, i, scale, Theta, k)
    return scale, inner, (math.sqrt(square) if square < math.inf else math.nan)


def add_row(X: Any, i: int, scale: float, weight: float, whole: bool, sums: Floats, k: int) -> None:
    """Add ``weight * scale * X[i]`` to ``sums[k]``, rounded to whole numbers if asked for."""
    raise NotImplementedError


@overload(add_row, fastmath={"contract"})
def _add_row(X: Any, i: int, scale: float, weight: float, whole: bool, sums: Floats, k: int) -> Any:
    def dense(
        X: Any, i: int, scale: float, weight: float, whole: bool, sums: Floats, k: int
    ) -> None:
        if weight == 0.0:
            return
        if whole:
            for j in range(X.shape[1]):
                sums[k, j] += np.rint(weight * (scale * X[i, j]))
        else:
            for j in range(X.shape[1]):
                sums[k, j] += weight * (scale * X[i, j])

    def compressed(
        X: Any, i: int, scale: float, weight: float, whole: bool, sums: Floats, k: int
    ) -> None:
        if weight == 0.0:
            return
        for t in range(X.indptr[i], X.indptr[i + 1]):
            term = weight * (scale * X.data[t])
            sums[k, X.indices[t]] += np.rint(term) if whole else term

    return dense if _is_array(X) else compressed


def add_four(X: Any, tile: Steps, t: int, weights: Floats, sums: Floats, k: int) -> None:
    """Add the four rows of a tile from ``t`` on to ``sums[k]``, as integers; rows are finite."""
    raise NotImplementedError


@overload(add_four, fastmath={"contract"})
def _add_four(X: Any, tile: Steps, t: int, weights: Floats, sums: Floats, k: int) -> Any:
    def dense(X: Any, tile: Steps, t: int, weights: Floats, sums: Floats, k: int) -> None:
        a, b, c, d = tile[t], tile[t + 1], tile[t + 2], tile[t + 3]
        p, q, r, s = weights[t], weights[t + 1], weights[t + 2], weights[t + 3]
        for j in range(X.shape[1]):
            pair = np.rint(p * X[a, j]) + np.rint(q * X[b, j])
            sums[k, j] += pair + (np.rint(r * X[c, j]) + np.rint(s * X[d, j]))

    def compressed(X: Any, tile: Steps, t: int, weights: Floats, sums: Floats, k: int) -> None:
        for r in range(t, t + 4):
            add_row(X, tile[r], 1.0, weights[r], True, sums, k)

    return dense if _is_array(X) else compressed


def write_row(X: Any, i: int, scale: float, weight: float, row: Floats) -> None:
    """Write ``weight * (scale * X[i])``; zero, whatever the row holds, for weight zero."""
    raise NotImplementedError


@overload(write_row)
def _write_row(X: Any, i: int, scale: float, weight: float, row: Floats) -> Any:
    def dense(X: Any, i: int, scale: float, weight: float, row: Floats) -> None:
        if weight == 0.0:
            row[:] = 0.0
        else:
            for j in range(X.shape[1]):
                row[j] = weight * (scale * X[i, j])

    def compressed(X: Any, i: int, scale: float, weight: float, row: Floats) -> None:
        row[:] = 0.0
        if weight != 0.0:
            for t in range(X.indptr[i], X.indptr[i + 1]):
                row[X.indices[t]] = weight * (scale * X.data[t])

    return dense if _is_array(X) else compressed


def layout(X: Any) -> Any:
    """Give the arrays of a compressed matrix their names back.

    Loops are called with plain tuples: numba takes a microsecond to recognize one, but fifty to
    recognize named ones.
    """
    raise NotImplementedError


@overload(layout, **_INLINED)
def _layout(X: Any) -> Any:
    def dense(X: Any) -> Any:
        return X

    def compressed(X: Any) -> Any:
        return Compressed(*X)

    return dense if _is_array(X) else compressed
