"""Gaussian width of a convex set Q: E max over x in Q of <g, x>, for g standard normal.

It is what Gaussian noise costs in the dual norm of Q. Reference: [Gan22] Section 4.3 (the cross-
polytope has a width of order sqrt(log d), not log d).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import integrate, special

Floats = NDArray[np.float64]


def gaussian_width(radii: ArrayLike, norm: float = 2) -> float:
    """Return the width of the points x with norm(x / radii) <= 1, in the l1, l2 or l-infinity norm.

    So 2 gives an ellipsoid, infinity a box and 1 a cross-polytope with these half-axes.

    >>> round(gaussian_width([1.0] * 20), 4), round(gaussian_width([1.0] * 20, 1), 4)
    (4.4166, 2.1666)
    >>> round(gaussian_width([0.5, 2.0], math.inf), 4)
    1.9947
    """
    axes = checked_axes("radii", radii)
    if norm == math.inf:
        return float(math.sqrt(2 / math.pi) * axes.sum())
    largest = float(axes.max())
    shares = axes[axes > 0] / largest
    if norm == 2:
        return largest * _mean_length(shares)
    if norm == 1:
        return largest * _mean_maximum(shares)
    raise ValueError(f"norm must be 1, 2 or infinity, got {norm!r}")


def squared_dual_norm(radii: ArrayLike) -> float:
    """Return E max <g, x>**2 over the ellipsoid: the sum of the squared half-axes.

    It is the squared width plus a variance, which is at most the largest squared half-axis
    (Poincare's inequality).

    >>> squared_dual_norm([3.0, 4.0])
    25.0
    """
    return float((checked_axes("radii", radii) ** 2).sum())


def checked_axes(name: str, values: ArrayLike) -> Floats:
    """Return a vector of finite numbers, none negative and one positive."""
    axes = np.asarray(values, dtype=np.float64)
    if axes.ndim != 1 or not np.isfinite(axes).all() or (axes < 0).any() or not axes.any():
        raise ValueError(f"{name} must be finite numbers of at least 0, one of them positive")
    return axes


def _mean_length(axes: Floats) -> float:
    """E norm(axes * g), from E sqrt(X) = int_0^inf (1 - E exp(-s X)) s^(-3/2) ds / (2 sqrt(pi)).

    With s = u^2 the integrand (1 - prod (1 + 2 u^2 r^2)^(-1/2)) / u^2 is smooth.
    """
    squares = 2 * axes**2

    def integrand(u: float) -> float:
        return -math.expm1(-0.5 * float(np.log1p(u * u * squares).sum())) / (u * u)

    middle = 1 / math.sqrt(float(squares.sum()))
    parts = [
        integrate.quad(integrand, low, high, epsabs=0, epsrel=1e-11, limit=200)[0]
        for low, high in ((0.0, middle), (middle, 1e3 * middle), (1e3 * middle, math.inf))
    ]
    return float(sum(parts)) / math.sqrt(math.pi)


def _mean_maximum(axes: Floats) -> float:
    """E max abs(axes * g) = int_0^inf 1 - prod P(abs(r g) <= t) dt."""

    def integrand(t: float) -> float:
        return -math.expm1(float(np.log(special.erf(t / (math.sqrt(2) * axes))).sum()))

    with np.errstate(divide="ignore"):
        reach = math.sqrt(2 * math.log(2 * len(axes)))
        parts = [
            integrate.quad(integrand, low, high, epsabs=1e-13, epsrel=1e-11, limit=200)[0]
            for low, high in ((0.0, reach), (reach, 3 * reach), (3 * reach, math.inf))
        ]
    return float(sum(parts))
