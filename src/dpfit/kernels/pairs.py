"""How many points lie near each point: a plain compiled loop over pairs.

The answer for a pair depends on this pair alone: differences in a fixed order, whose squares are
added in a fixed order. A shortcut by inner products would not have this property: its last bits
depend on where a pair stands in the matrix.
"""

from __future__ import annotations

import math

import numpy as np

from dpfit.losses.compiled import compiled
from dpfit.noise.source import Floats, Steps


def near_counts(points: Floats, radius: float, wider: float) -> tuple[Steps, Steps]:
    """Count the points within ``radius`` and within ``wider`` of each point, itself included.

    A point that is not finite is near itself alone. Work: n**2 d / 2.

    >>> near_counts(np.array([[0.0], [1.0], [3.0], [np.nan]]), 1.0, 2.0)
    (array([2, 2, 1, 1]), array([2, 3, 2, 1]))
    """
    if not 0 < radius <= wider < math.inf:
        raise ValueError(f"radii must be positive and in order, got {radius!r} and {wider!r}")
    given = np.ascontiguousarray(points, dtype=np.float64)
    near, within = np.ones((2, len(given)), dtype=np.int64)
    _count(given, radius * radius, wider * wider, near, within)
    return near, within


@compiled(error_model="numpy", nogil=True)
def _count(points: Floats, least: float, most: float, near: Steps, within: Steps) -> None:
    for i in range(len(points)):
        for j in range(i):
            square = 0.0
            # Partial sums do not fall: a pair that is too far stays so, and NaN is never near.
            for k in range(points.shape[1]):
                gap = points[i, k] - points[j, k]
                square += gap * gap
                if not square <= most:
                    break
            if square <= most:
                within[i] += 1
                within[j] += 1
                if square <= least:
                    near[i] += 1
                    near[j] += 1
