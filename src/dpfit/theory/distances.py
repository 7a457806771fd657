"""W-infinity distances of samples and grid laws: oracles for tests of samplers.

A finite sample never certifies a W-infinity distance: an atom of mass 1e-6 is missed by most of
them. Reference: [ASAP] Definition 7, Lemmas 22 and 26.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

Floats = NDArray[np.float64]


def quantile_distance(
    positions: ArrayLike, first: ArrayLike, second: ArrayLike, *, ignored: float = 0.0
) -> float:
    """W-infinity distance of two laws on the line, by masses at equal sorted positions.

    It is the largest distance of equal quantiles. Those beyond ``ignored`` from either end are left
    out, where masses are known up to rounding errors only.

    >>> quantile_distance([0.0, 1.0, 5.0], [0.5, 0.5, 0.0], [0.5, 0.499999, 1e-6])
    4.0
    """
    x, p, q = (np.asarray(values, dtype=np.float64) for values in (positions, first, second))
    if x.ndim != 1 or p.shape != x.shape or q.shape != x.shape or np.any(np.diff(x) <= 0):
        raise ValueError("give increasing positions and as many masses of each law")
    P, Q = np.cumsum(p) / p.sum(), np.cumsum(q) / q.sum()
    # Between two neighbouring values of either distribution function both quantiles are constant.
    levels = np.unique(np.concatenate([[0.0], P, Q, [1.0]]))
    middles = (levels[1:] + levels[:-1]) / 2
    middles = middles[(middles > ignored) & (middles < 1 - ignored) & (np.diff(levels) > 1e-15)]
    ends = len(x) - 1
    one, two = (x[np.minimum(np.searchsorted(F, middles), ends)] for F in (P, Q))
    return float(np.abs(one - two).max(initial=0.0))


def bottleneck_distance(first: ArrayLike, second: ArrayLike) -> float:
    """W-infinity distance of two samples of equal size: least radius of a perfect matching.

    Of order N**2.5 in time and N**2 in memory.

    >>> bottleneck_distance([[0.0, 0.0], [1.0, 0.0]], [[1.0, 0.5], [0.0, 0.0]])
    0.5
    """
    x, y = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if x.ndim != 2 or x.shape != y.shape or not len(x):
        raise ValueError("give two samples (N, d) of the same size")
    apart = np.sqrt(np.maximum(0.0, np.sum((x[:, None] - y) ** 2, axis=2)))
    radii = np.unique(apart)
    low, high = 0, len(radii) - 1
    while low < high:
        middle = (low + high) // 2
        matched = maximum_bipartite_matching(csr_matrix(apart <= radii[middle]), perm_type="column")
        low, high = (low, middle) if np.all(matched >= 0) else (middle + 1, high)
    return float(radii[low])
