"""Quadratic functions on domains: spectra of their matrices, and constrained minimizers."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from dpfit.geometry.base import Domain, Floats
from dpfit.geometry.l2_ball import L2Ball

_MODEL_STEPS = 200


def spectrum(matrix: Floats) -> tuple[Floats, Floats]:
    """Return eigenvalues and eigenvectors of a positive definite matrix.

    Eigenvalues below 1e-15 times the largest one are rounding errors, and are raised to it.

    >>> spectrum(np.diag([4.0, 0.0]))[0].tolist()
    [4e-15, 4.0]
    """
    values, axes = np.linalg.eigh(matrix)
    return np.maximum(values, 1e-15 * values[-1]), axes


def smallest_shift(values: Floats, along: Floats, radius: float, width: float) -> float:
    """Return the least q >= 0 with sum_i width / (v_i + q) + (a_i / (v_i + q))^2 <= R^2.

    ``values`` are the v_i > 0, ``along`` the a_i, ``radius`` is R. With width 0 it is the
    multiplier of a quadratic that is minimized in a ball.

    >>> round(smallest_shift(np.array([1.0]), np.array([3.0]), radius=1.0, width=0.0), 9)
    2.0
    """

    def excess(weight: float) -> float:
        return (
            float(np.sum(width / (values + weight)) + np.sum((along / (values + weight)) ** 2))
            / radius**2
            - 1
        )

    if excess(0.0) <= 0:
        return 0.0
    high = len(values) / radius**2 + float(np.linalg.norm(along)) / radius
    while excess(high) > 0:
        high *= 2
    return float(brentq(excess, 0.0, high, rtol=1e-12))


def quadratic_minimizer(domain: Domain, point: Floats, slope: Floats, precision: Floats) -> Floats:
    """Approximate argmin in the domain of <slope, x - p> + <x - p, precision (x - p)> / 2.

    Here p is ``point``.

    It is exact in a ball, up to rounding. In other domains it takes 200 accelerated projected
    gradient steps.

    >>> quadratic_minimizer(L2Ball(1, 1.0), np.zeros(1), np.array([-3.0]), np.eye(1)).tolist()
    [1.0]
    """
    values, axes = spectrum(precision)
    free = point - axes @ (axes.T @ slope / values)
    if domain.contains(free, tolerance=0.0):
        return np.asarray(free)
    if isinstance(domain, L2Ball):
        along = axes.T @ (precision @ (point - domain.centre) - slope)
        weight = smallest_shift(values, along, domain.norm_bound, 0.0)
        return domain.project(domain.centre + axes @ (along / (values + weight)))
    step = 1 / float(values[-1])
    last, look, momentum = point, point, 1.0
    for _ in range(_MODEL_STEPS):
        found = domain.project(look - step * (slope + precision @ (look - point)))
        faster = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        look = found + (momentum - 1) / faster * (found - last)
        last, momentum = found, faster
    return last
