"""Tests of what the caller declares of a loss, on public probe rows, before there are any data.

Certified samplers rely on declared slopes and on convexity. A declaration cannot be proven by
examples, but a wrong one is often found by a few. Records are never tested: whether a declaration
fails on them would be an output that nobody accounted for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpfit.losses.base import Bounds
from dpfit.losses.custom import DeclaredLoss
from dpfit.noise import Source

Floats = NDArray[np.float64]

_ROWS = 48
_RNG_SEED = 36
_TOLERANCE = 1e-6


def check_declarations(loss: DeclaredLoss, bounds: Bounds, n_features: int, points: Floats) -> None:
    """Raise ValueError if values or gradients at the points contradict a declaration.

    >>> from dpfit.losses.custom import CustomLoss
    >>> steep = CustomLoss(
    ...     value_function=lambda theta, rows, labels: 10 * np.abs(rows @ theta),
    ...     gradient_function=lambda theta, rows, labels: (
    ...         10 * np.sign(rows @ theta)[:, None] * rows
    ...     ),
    ...     lipschitz_bound=1.0,
    ...     is_convex=True,
    ... )
    >>> check_declarations(steep, Bounds(1.0), 2, np.eye(2))
    Traceback (most recent call last):
    ...
    ValueError: lipschitz_bound must be at least 10, the norm of a gradient on public probe rows, \
got 1; declare a larger one, or declare tighter bounds of rows and labels
    """
    rows, labels = probe_records(bounds, n_features)
    with np.errstate(all="ignore"):
        values = np.array([loss.value(point, rows, labels) for point in points])
        gradients = np.array(
            [loss.gradient(point, rows, labels).reshape(len(rows), -1) for point in points]
        )
    if not (np.isfinite(values).all() and np.isfinite(gradients).all()):
        raise ValueError(
            "the loss must be finite, got nan or inf on public probe rows; mend its value or "
            "gradient"
        )
    steepest = np.inf if loss.lipschitz_bound is None else loss.lipschitz_bound
    _at_most("lipschitz_bound", steepest, gradients, "the norm of a gradient")
    if loss.lipschitz_diff_bound is not None:
        differences = gradients[:, :, None] - gradients[:, None, :]
        what = "the norm of a difference of two gradients"
        _at_most("lipschitz_diff_bound", loss.lipschitz_diff_bound, differences, what)
    moved = points[:, None] - points[None]
    lengths = np.where(np.eye(len(points)) > 0, np.inf, np.linalg.norm(moved, axis=2))[:, :, None]
    slopes = (values[:, None] - values[None]) / lengths
    what = "a difference of values over the distance"
    _at_most("lipschitz_bound", steepest, slopes[..., None], what)
    if loss.smoothness_bound is not None:
        turns = (gradients[:, None] - gradients[None]) / lengths[..., None]
        what = "a difference of gradients over the distance"
        _at_most("smoothness_bound", loss.smoothness_bound, turns, what)
    if loss.is_convex:
        above = values[:, None] - values[None] - np.einsum("jrd,ijd->ijr", gradients, moved)
        scale = np.abs(values).max() + np.abs(gradients).max() * np.abs(moved).max()
        if above.min() < -_TOLERANCE * scale:
            raise ValueError(
                "is_convex must be False, or value and gradient must belong together: on public "
                "probe rows the loss is below its tangent; mend them, or declare is_convex=False"
            )


def probe_records(bounds: Bounds, n_features: int) -> tuple[Floats, Floats]:
    """Return public rows and labels within the bounds, half of them as long as these allow."""
    source = Source(_RNG_SEED)
    rows = source.uniform_sphere(n_features, _ROWS) * bounds.row_norm
    rows[1::2] *= source.uniform((_ROWS // 2, 1))
    lower, upper = bounds.label_lower, bounds.label_upper
    if lower is None or upper is None:
        return rows, np.where(np.arange(_ROWS) // 2 % 2 > 0, 1.0, -1.0)
    labels = lower + (upper - lower) * source.uniform((_ROWS,))
    labels[::4], labels[2::4] = lower, upper
    return rows, labels


def _at_most(name: str, declared: float, vectors: Floats, what: str) -> None:
    found = float(np.linalg.norm(vectors, axis=-1).max())
    if found > declared * (1 + _TOLERANCE):
        raise ValueError(
            f"{name} must be at least {found:.6g}, {what} on public probe rows, got {declared:g}; "
            "declare a larger one, or declare tighter bounds of rows and labels"
        )
