"""Symmetric matrices as vectors of their upper triangle."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def pack(matrix: Floats) -> Floats:
    """Return the upper triangle as a vector of equal norm: off-diagonals times sqrt(2).

    >>> pack(np.array([[1.0, 2.0], [2.0, 3.0]])).round(3).tolist()
    [1.0, 2.828, 3.0]
    """
    upper = np.triu_indices(len(matrix))
    return np.asarray(matrix[upper] * _triangle_scales(upper))


def unpack(vector: Floats) -> Floats:
    """Return the symmetric matrix that `pack` made a vector of.

    >>> unpack(pack(np.array([[1.0, 2.0], [2.0, 3.0]]))).round(12).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    d = (math.isqrt(8 * len(vector) + 1) - 1) // 2
    if d * (d + 1) // 2 != len(vector):
        raise ValueError(f"a packed symmetric matrix has d (d + 1) / 2 entries, got {len(vector)}")
    upper = np.triu_indices(d)
    matrix = np.zeros((d, d))
    matrix[upper] = vector / _triangle_scales(upper)
    return matrix + np.triu(matrix, 1).T


def _triangle_scales(upper: tuple[NDArray[np.intp], ...]) -> Floats:
    return np.where(upper[0] == upper[1], 1.0, math.sqrt(2))
