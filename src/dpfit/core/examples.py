"""Small problems with neighbouring datasets on which several solvers are tested and audited."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpfit.core import Example, Minimize
from dpfit.data.dataset import InMemory
from dpfit.losses import Bounds, Logistic


def opposite_records(relation: str, *, ridge: float = 0.0) -> Example:
    """Return 20 records for a logistic loss; in the neighbour the last is flipped or removed.

    Opposite gradients of norm 1 are the largest change by a replaced record.

    >>> problem, data, neighbour = opposite_records("add_remove", ridge=0.1)
    >>> problem.ridge, len(data), len(neighbour)
    (0.1, 20, 19)
    """
    problem = Minimize(
        n=20, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=2, ridge=ridge
    )
    rows, labels = np.tile([[1.0, 0.0], [0.0, 1.0]], (10, 1)), np.tile([1.0, 1.0, -1.0, -1.0], 5)
    data = InMemory(rows, labels)
    if relation == "add_remove":
        return Example(problem, data, InMemory(rows[:-1], labels[:-1]))
    return Example(problem, data, replace(data, labels=np.append(labels[:-1], 1.0)))
