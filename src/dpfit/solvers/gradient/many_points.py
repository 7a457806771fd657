"""Sums of clipped gradients at many points at once, by the quickest pass that there is for the loss and the data."""

from __future__ import annotations

from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from dpfit.data.dataset import Dataset
from dpfit.kernels.bounds import Guards
from dpfit.kernels.many_points import EVERY_RECORD, Flags, many_clipped_sums
from dpfit.losses.base import Loss
from dpfit.losses.glm import GLM
from dpfit.losses.vector import LinearLoss
from dpfit.noise import Grid

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]


def clipped_sums(
    data: Dataset, loss: Loss, points: Floats, *, grid: Grid, taken: Flags | None = None, **guards: Unpack[Guards]
) -> Steps:
    """What `Dataset.clipped_sum` gives, at each of the points (k, d).

    With ``taken`` (k, n) each point has a batch of its own: the records that are marked for it.

    >>> from dpfit.data.dataset import InMemory
    >>> from dpfit.losses import Squared
    >>> records = InMemory([[3.0, 4.0], [1.0, 0.0]], [0.0, -1.0])
    >>> clipped_sums(records, Squared(), np.array([[1.0, 0.0], [0.0, 0.0]]), clip=1.0, grid=Grid(-3))
    array([[13,  6],
           [ 8,  0]])
    """
    if isinstance(loss, LinearLoss) and taken is None:
        # The gradient of a linear loss is the record, wherever it is taken.
        return np.tile(data.clipped_sum(loss, points[0], grid=grid, **guards), (len(points), 1))
    whole = data.whole
    if isinstance(loss, GLM) and whole is not None and isinstance(whole.rows, np.ndarray):
        marks = EVERY_RECORD if taken is None else taken
        return many_clipped_sums(whole.rows, whole.labels, points, loss, grid=grid, taken=marks, **guards)
    if taken is None:
        return data.clipped_sum(loss, points, grid=grid, **guards)
    batches = zip(points, taken, strict=True)
    return np.array(
        [data.clipped_sum(loss, point, grid=grid, index=np.flatnonzero(marks), **guards) for point, marks in batches]
    )
