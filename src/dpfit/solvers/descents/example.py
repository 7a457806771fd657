"""A small problem with neighbours whose gradients are as far apart as they can be."""

from __future__ import annotations

import numpy as np

from dpfit.core import Example, Minimize
from dpfit.data.dataset import InMemory
from dpfit.losses import Bounds, Logistic


def opposite_records(relation: str) -> Example:
    """Return records whose gradients point one way, one of which points the other way or leaves."""
    problem = Minimize(n=20, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=2)
    rows, labels = np.tile([[1.0, 0.0], [0.0, 1.0]], (10, 1)), np.tile([1.0, 1.0, -1.0, -1.0], 5)
    if relation == "add_remove":
        return Example(problem, InMemory(rows, labels), InMemory(rows[:-1], labels[:-1]))
    other = np.append(labels[:-1], 1.0)
    return Example(problem, InMemory(rows, labels), InMemory(rows, other))
