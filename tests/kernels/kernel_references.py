"""Plain references in extended precision, record by record, for the kernels."""

import math
from fractions import Fraction

import numpy as np

from dpfit.losses import (
    Absolute,
    GemanMcClure,
    Hinge,
    Huber,
    LipschitzEnvelope,
    Logistic,
    Pinball,
    QuantileHuber,
    SmoothedHinge,
    Squared,
    TruncatedAbsolute,
)

LOSSES = {
    "logistic": Logistic(),
    "squared": Squared(),
    "huber": Huber(0.7),
    "hinge": Hinge(),
    "smoothed hinge": SmoothedHinge(0.5),
    "pinball": Pinball(0.3),
    "quantile huber": QuantileHuber(0.3, 0.8),
    "quantile huber, steep below": QuantileHuber(0.8, 0.8),
    "quantile huber, centred": QuantileHuber(0.8, 0.8, centred=True),
    "quantile huber, centred, steep above": QuantileHuber(0.3, 0.8, centred=True),
    "absolute": Absolute(),
    "geman mcclure": GemanMcClure(0.8),
    "truncated absolute": TruncatedAbsolute(0.8),
    "enveloped logistic": LipschitzEnvelope(Logistic(), 0.4),
    "enveloped squared": LipschitzEnvelope(Squared(), 0.8),
    "enveloped pinball": LipschitzEnvelope(Pinball(0.3), 0.5),
}
BINARY = {"logistic", "hinge", "smoothed hinge", "enveloped logistic"}


def length(x):
    """The l2 norm of finite floats without overflow."""
    x = np.asarray(x, dtype=np.longdouble)
    return np.sqrt((x * x).sum())


def repaired(
    x, label, *, row_norm=math.inf, label_lower=-math.inf, label_upper=math.inf, binary=False
):
    """The guarded record."""
    x = np.asarray(x, dtype=np.longdouble)
    if not (np.isfinite(x).all() and math.isfinite(label)):
        return np.zeros_like(x), (1.0 if binary else min(max(0.0, label_lower), label_upper))
    if length(x) > row_norm:
        x = x * (row_norm / length(x))
    return x, (
        (1.0 if label > 0 else -1.0) if binary else min(max(float(label), label_lower), label_upper)
    )


def glm(X, y, theta, loss, *, clip=math.inf, **guards):
    """Sums of values, gradients and curvature matrices."""
    d = len(theta)
    value, gradient = np.longdouble(0), np.zeros(d, np.longdouble)
    hessian = np.zeros((d, d), np.longdouble)
    theta = np.asarray(theta, dtype=np.longdouble)
    for row, raw in zip(X, y, strict=True):
        x, label = repaired(row, raw, **guards)
        margin = float(x @ theta)
        value += float(loss.value(margin, label))
        term = float(loss.slope(margin, label)) * x
        if length(term) > clip:
            term = term * (clip / length(term))
        gradient += term
        hessian += float(loss.curvature_at(margin, label)) * np.outer(x, x)
    return float(value), gradient.astype(float), hessian.astype(float)


def moved_at_most(before, after, grid, bound):
    """Whether two sums of steps are within an l2 distance, in exact arithmetic."""
    step = Fraction(2) ** grid.exponent
    square = sum(
        (int(a) - int(b)) ** 2 for a, b in zip(np.ravel(before), np.ravel(after), strict=True)
    )
    return square * step * step <= Fraction(bound) ** 2


def close(actual, expected, relative=1e-10):
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    return bool(np.all(np.abs(np.asarray(actual) - np.asarray(expected)) <= relative * scale))
