"""The scalar functions behind generalized linear losses, compiled once and shared by losses and kernels.

A generalized linear loss is a function of the margin m = <x, theta> and the label y. Each is known here by a code and
one parameter, so that one compiled pass serves all of them: the switch costs a nanosecond per row, not per entry.

| code | loss | parameter |
|---|---|---|
| LOGISTIC | log(1 + exp(-y m)), y in {-1, 1} | |
| SQUARED | (m - y)^2 / 2 | |
| HUBER | squared within ``parameter`` of the label, linear beyond | width |
| HINGE | max(0, 1 - y m), y in {-1, 1} | |
| SMOOTHED_HINGE | the hinge with its corner rounded by a parabola of width ``parameter`` | width |
| PINBALL | quantile loss: parameter * (y - m) above the margin, (parameter - 1) * (y - m) below | level |
| ABSOLUTE | abs(m - y) | |
| QUANTILE_HUBER | squared, linear where m - y is below -``parameter`` (above it, for a negative one) | smaller side |

Quantile Huber has two sides and one parameter: the larger side is where its slope is clipped, as that of an envelope.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import njit

LOGISTIC, SQUARED, HUBER, HINGE, SMOOTHED_HINGE, PINBALL, ABSOLUTE, QUANTILE_HUBER = range(8)


_TERMS = tuple(1.0 / math.factorial(k) for k in range(13, -1, -1))
_PER_OCTAVE = 1.0 / math.log(2.0)
_OCTAVE_UPPER = float.fromhex("0x1.62e42fee00000p-1")
_OCTAVE_LOWER = float.fromhex("0x1.a39ef35793c76p-33")
"""Together log(2); the upper part has 32 bits."""
_ALIGNED = 1.5 * 2.0**52 + 1023.0


class Link(NamedTuple):
    """What a compiled loop knows of a loss: code, parameter, and where the slope is clipped (see the envelope)."""

    code: int
    parameter: float = 0.0
    bound: float = math.inf


@njit(cache=True, forceinline=True)
def value(code: int, parameter: float, margin: float, label: float) -> float:
    """The loss of one example."""
    if code == LOGISTIC:
        z = label * margin
        return max(-z, 0.0) + math.log1p(math.exp(-abs(z)))
    if code == SQUARED:
        return 0.5 * (margin - label) ** 2
    if code == HUBER:
        gap = abs(margin - label)
        return 0.5 * gap * gap if gap <= parameter else parameter * (gap - 0.5 * parameter)
    if code == HINGE:
        return max(0.0, 1.0 - label * margin)
    if code == SMOOTHED_HINGE:
        short = 1.0 - label * margin
        if short <= 0.0:
            return 0.0
        return short * short / (2.0 * parameter) if short < parameter else short - 0.5 * parameter
    if code == PINBALL:
        gap = label - margin
        return parameter * gap if gap >= 0.0 else (parameter - 1.0) * gap
    if code == QUANTILE_HUBER:
        gap = label - margin if parameter >= 0.0 else margin - label
        side = abs(parameter)
        return 0.5 * gap * gap if gap <= side else side * (gap - 0.5 * side)
    return abs(margin - label)


@njit(cache=True, forceinline=True)
def decay(x: float) -> float:
    """Return ``exp(-x)`` for x >= 0 within two units in the last place, and at least ``exp(-708)``.

    Written with the four operations only, it is computed for several rows at once, and its bits are the same wherever
    and with whichever library of elementary functions a loop is compiled.

    >>> decay(0.0), round(decay(1.0), 15)
    (1.0, 0.367879441171442)
    """
    # -x = k log(2) + r with a whole number k and abs(r) <= log(2) / 2; the product with the upper part is exact.
    x = max(-x, -708.0)
    k = np.rint(x * _PER_OCTAVE)
    r = (x - k * _OCTAVE_UPPER) - k * _OCTAVE_LOWER
    tail = 0.0
    for term in _TERMS:
        tail = tail * r + term
    # Added to this number, k + 1023 sits in the lowest bits, from where it is moved to those of the exponent.
    power = np.int64(np.float64(k + _ALIGNED).view(np.int64) << 52).view(np.float64)
    return tail * power


@njit(cache=True, forceinline=True)
def logistic_slope(margin: float, label: float) -> float:
    """The derivative of the logistic loss in the margin."""
    # One exponential and no branch on z, which is as hard to predict as data is.
    z = label * margin
    tail = decay(abs(z))
    return -label * (tail if z >= 0.0 else 1.0) / (1.0 + tail)


@njit(cache=True, forceinline=True)
def slope(code: int, parameter: float, margin: float, label: float) -> float:
    """The derivative in the margin; at a corner the subgradient closest to zero."""
    if code == LOGISTIC:
        return logistic_slope(margin, label)
    if code == SQUARED:
        return margin - label
    if code == HUBER:
        return min(max(margin - label, -parameter), parameter)
    if code == HINGE:
        return -label if label * margin < 1.0 else 0.0
    if code == SMOOTHED_HINGE:
        return -label * min(max((1.0 - label * margin) / parameter, 0.0), 1.0)
    if code == PINBALL:
        gap = label - margin
        return -parameter if gap > 0.0 else (1.0 - parameter if gap < 0.0 else 0.0)
    if code == QUANTILE_HUBER:
        return max(margin - label, -parameter) if parameter >= 0.0 else min(margin - label, -parameter)
    return 1.0 if margin > label else (-1.0 if margin < label else 0.0)


@njit(cache=True, forceinline=True)
def curvature(code: int, parameter: float, margin: float, label: float) -> float:
    """The second derivative in the margin, where it exists; zero at corners."""
    if code == LOGISTIC:
        tail = math.exp(-abs(margin))
        return tail / ((1.0 + tail) * (1.0 + tail))
    if code == SQUARED:
        return 1.0
    if code == HUBER:
        return 1.0 if abs(margin - label) < parameter else 0.0
    if code == SMOOTHED_HINGE:
        short = 1.0 - label * margin
        return 1.0 / parameter if 0.0 < short < parameter else 0.0
    if code == QUANTILE_HUBER:
        gap = label - margin if parameter >= 0.0 else margin - label
        return 1.0 if gap < abs(parameter) else 0.0
    return 0.0


@njit(cache=True, forceinline=True)
def crossing(code: int, parameter: float, level: float, label: float) -> float:
    """The margin at which the slope passes the ``level``, which must lie inside the range of slopes."""
    if code == LOGISTIC:
        return label * math.log((1.0 - abs(level)) / abs(level))
    if code == HINGE:
        return label
    if code == SMOOTHED_HINGE:
        return label * (1.0 - parameter * abs(level))
    if code in (SQUARED, HUBER, QUANTILE_HUBER):
        return label + level
    return label


@njit(cache=True, forceinline=True)
def envelope_value(code: int, parameter: float, bound: float, margin: float, label: float) -> float:
    """The largest convex minorant in the margin whose slope stays within ``bound``; the loss itself for infinity."""
    steep = slope(code, parameter, margin, label)
    if abs(steep) <= bound:
        return value(code, parameter, margin, label)
    level = bound if steep > 0.0 else -bound
    touch = crossing(code, parameter, level, label)
    return value(code, parameter, touch, label) + level * (margin - touch)


@njit(cache=True, forceinline=True)
def envelope_slope(code: int, parameter: float, bound: float, margin: float, label: float) -> float:
    """The derivative of the envelope: the slope, clipped."""
    return min(max(slope(code, parameter, margin, label), -bound), bound)


@njit(cache=True, forceinline=True)
def envelope_curvature(code: int, parameter: float, bound: float, margin: float, label: float) -> float:
    """The second derivative of the envelope, zero where the slope is clipped."""
    if abs(slope(code, parameter, margin, label)) >= bound:
        return 0.0
    return curvature(code, parameter, margin, label)


# The same functions elementwise over arrays, compiled at the first call. They are in this file because the cache on
# disk is renewed when the file of a function changes, but not when the file of a function that it calls does.


def _value(code: int, parameter: float, bound: float, margin: float, label: float) -> float:
    return envelope_value(code, parameter, bound, margin, label)


def _slope(code: int, parameter: float, bound: float, margin: float, label: float) -> float:
    return envelope_slope(code, parameter, bound, margin, label)


def _curvature(code: int, parameter: float, bound: float, margin: float, label: float) -> float:
    return envelope_curvature(code, parameter, bound, margin, label)


_vectorize: Any = numba.vectorize
values, slopes, curvatures = (_vectorize(cache=True)(function) for function in (_value, _slope, _curvature))
