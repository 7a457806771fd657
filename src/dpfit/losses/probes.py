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

_ROWS = 16
_RNG_SEED = 37
_TOLERANCE = 1e-6
_ROW_SCALES = (1e-3, 0.1, 0.5, 0.9, 1.0)
SCALES = (1e-3, 1e-2, 0.1, 0.25, 0.5, 0.7, 0.85, 0.95, 1.0)
"""Shares of the way from the domain's centre to its boundary."""


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
    rows, labels = probe_records(bounds, n_features, points)
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
    found = float(np.linalg.norm(gradients, axis=-1).max())
    _at_most("lipschitz_bound", steepest, found, "the norm of a gradient")
    if loss.lipschitz_diff_bound is not None:
        found = max(_widest(each) for each in gradients)
        what = "the norm of a difference of two gradients"
        _at_most("lipschitz_diff_bound", loss.lipschitz_diff_bound, found, what)
    lengths = np.linalg.norm(points[:, None] - points[None], axis=2)
    apart = np.where(lengths > _TOLERANCE * lengths.max(), lengths, np.inf)
    rises = np.abs(values[:, None] - values[None]) - _rounding(values)
    found = float(np.max(rises / apart[..., None]))
    _at_most("lipschitz_bound", steepest, found, "a difference of values over the distance")
    if loss.smoothness_bound is not None:
        # Along a ray the secant of two points is at most the largest one of neighbours.
        turns = np.linalg.norm(np.diff(gradients, axis=0), axis=2) - _rounding(gradients)
        found = float(np.max(turns / np.diag(apart, 1)[:, None]))
        what = "a difference of gradients over the distance"
        _at_most("smoothness_bound", loss.smoothness_bound, found, what)
    if loss.is_convex and not _above_tangents(points, values, gradients):
        raise ValueError(
            "is_convex must be False, or value and gradient must belong together: on public "
            "probe rows the loss is below its tangent; mend them, or declare is_convex=False"
        )


def probe_records(bounds: Bounds, n_features: int, along: Floats) -> tuple[Floats, Floats]:
    """Return public rows and labels within the bounds.

    Some rows have random directions. Others are parallel to parameters, of both signs and of many
    norms, each with the smallest and the largest label: margins reach all sizes that they can.
    """
    source = Source(_RNG_SEED)
    rows = source.uniform_sphere(n_features, _ROWS)
    rows[1::2] *= source.uniform((_ROWS // 2, 1))
    ways = [rows]
    lengths = np.linalg.norm(along, axis=1, keepdims=True)
    if along.shape[1] == n_features and lengths.max() > 0:
        # The last point of each ray is the farthest one.
        ends = (along / np.where(lengths > 0, lengths, 1.0))[len(SCALES) - 1 :: len(SCALES)]
        ways += [scale * ends for scale in _ROW_SCALES]
    rows = np.concatenate(ways) * bounds.row_norm
    lower, upper = bounds.label_lower, bounds.label_upper
    if lower is None or upper is None:
        lower, upper = -1.0, 1.0
    labels = np.repeat([lower, upper], len(rows))
    if bounds.label_lower is not None:
        labels[: _ROWS // 2] = lower + (upper - lower) * source.uniform((_ROWS // 2,))
    return np.tile(rows, (2, 1)), labels


def _rounding(numbers: Floats) -> float:
    """Return the error allowed in numbers that may have been computed in single precision."""
    return _TOLERANCE * float(np.abs(numbers).max())


def _widest(gradients: Floats) -> float:
    """Return the largest distance of two rows."""
    gram = gradients @ gradients.T
    squares = np.diag(gram)
    return float(np.sqrt(max(0.0, (squares[:, None] + squares - 2 * gram).max())))


def _above_tangents(points: Floats, values: Floats, gradients: Floats) -> bool:
    """Whether the loss of each row is at every point at least each of its tangents."""
    offset = points - points.mean(axis=0)
    rises = gradients @ offset.T
    here = np.einsum("jrd,jd->jr", gradients, offset)
    above = values[None] - values[:, None] - (rises - here[..., None]).transpose(0, 2, 1)
    scale = np.abs(values).max() + np.abs(gradients).max() * np.abs(offset).max()
    return bool(above.min() >= -_TOLERANCE * scale)


def _at_most(name: str, declared: float, found: float, what: str) -> None:
    if found > declared * (1 + _TOLERANCE):
        raise ValueError(
            f"{name} must be at least {found:.6g}, {what} on public probe rows, got {declared:g}; "
            "declare a larger one, or declare tighter bounds of rows and labels"
        )
