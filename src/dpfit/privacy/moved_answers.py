"""Noise of density exp(-|x|^p) on answers that move within l1, l2 and l-infinity norms.

The Renyi divergence of independent coordinates is the sum of those of single ones, so what is
needed is the largest sum over all vectors within the bounds. The log moment D(v) = (order - 1) *
divergence of one coordinate that moves by v is convex in v with D(0) = 0, for every log-concave
noise. That gives an upper bound from finitely many values of D, for any shape and all bounds at
once; docs/explanation/queries.md, section 6, has the proof.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpfit.privacy.event import Renyi
from dpfit.privacy.laws import GeneralizedGaussian, Laplace

Floats = NDArray[np.float64]

ORDERS: Floats = 1 + np.geomspace(0.3, 900.0, 28)

_RATIO = 1.2
"""Between two points of the grid of shifts; chords of a parabola are then at most 0.84% too high.
"""
_SMALL = 0.004
"""What answers that move by less than the smallest shift of the grid cost at most, as a share of
the whole.
"""
_SLACK = 1e-6
"""For the error of the quadrature, most of it at tiny shifts, where the moment is a small
difference of large terms.
"""


def moved_answers(shape: float, number: int, l1: float, l2: float, linf: float) -> Renyi:
    """A bound on the Renyi divergence of ``number`` answers, noise scale 1, shifts in all norms.

    For shape 2 it is order * l2^2, the divergence of normal noise of variance 1/2, and what the
    grid of shifts adds:

    >>> event = moved_answers(2.0, 100, l1=5.0, l2=0.5, linf=0.3)
    >>> bool(np.all(np.array(event.values) <= 1.013 * ORDERS * 0.5**2))
    True
    """
    whole = log_moments(shape, linf)
    # A convex function that is 0 at 0 lies below its chords: D(v) <= v D(linf) / linf.
    bound = l1 / linf * whole
    # By Hoelder's inequality l2 says more than the others only if its square is below their
    # product.
    if l2**2 < l1 * linf * (1 - 1e-9):
        bound = np.minimum(bound, _by_l2(shape, number, l2, linf, whole))
    bound = bound * (1 + _SLACK)
    usable = np.isfinite(bound)
    return Renyi(tuple(ORDERS[usable].tolist()), tuple((bound / (ORDERS - 1))[usable].tolist()))


def _by_l2(shape: float, number: int, l2: float, linf: float, whole: Floats) -> Floats:
    """Largest sum of D over shifts of an l2 norm: squares times max D(v) / v^2, and tiny shifts."""
    first = math.floor(math.log(min(l2 * math.sqrt(_SMALL / number), linf)) / math.log(_RATIO))
    last = math.ceil(math.log(linf) / math.log(_RATIO)) - 1
    shifts = [*(_RATIO**step for step in range(first, last + 1)), linf]
    moments = np.array([*(grid_moments(shape, step) for step in range(first, last + 1)), whole])
    steepest = largest_ratio(np.array(shifts), moments)
    return np.asarray(l2**2 * steepest + number * moments[0])


def largest_ratio(shifts: Floats, moments: Floats) -> Floats:
    """Largest D(v) / v^2 between the first and last shift, for convex D with D(0) = 0.

    Between two shifts D is below its chord a + b v, and (a + b v) / v^2 is largest at an end or, if
    it lies between them, at v = -2 a / b, where it is b^2 / (-4 a).

    >>> v = np.array([1.0, 1.2])
    >>> largest_ratio(v, (v**2)[:, np.newaxis])
    array([1.00833333])
    """
    low, high = shifts[:-1, np.newaxis], shifts[1:, np.newaxis]
    ends = np.max(moments / shifts[:, np.newaxis] ** 2, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        slope = (moments[1:] - moments[:-1]) / (high - low)
        start = moments[:-1] - slope * low
        top = -2 * start / slope
        between = np.where((start < 0) & (top > low) & (top < high), slope**2 / (-4 * start), 0.0)
    ratios = np.maximum(ends, np.max(between, axis=0, initial=0.0))
    return np.asarray(np.where(np.isfinite(moments).all(axis=0), ratios, math.inf))


@lru_cache(maxsize=4096)
def grid_moments(shape: float, step: int) -> Floats:
    """`log_moments` at a point of the grid of shifts."""
    return log_moments(shape, _RATIO**step)


def log_moments(shape: float, shift: float) -> Floats:
    """D(shift) at all `ORDERS`, for one answer with noise of scale one."""
    law = Laplace(shift) if shape == 1 else GeneralizedGaussian(shift, shape)
    return np.asarray((ORDERS - 1) * law.renyi(ORDERS))
