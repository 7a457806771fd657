"""Scalar functions of generalized linear losses, compiled once for losses and kernels.

A generalized linear loss is a function of the margin m = <x, theta> and the label y. Each is known
here by a code and one parameter, so that one compiled pass serves all of them: the switch costs a
nanosecond per row, not per entry.

| code | loss | parameter |
|---|---|---|
| LOGISTIC | log(1 + exp(-y m)), y in {-1, 1} | |
| SQUARED | (m - y)^2 / 2 | |
| HUBER | squared within ``parameter`` of the label, linear beyond | width |
| HINGE | max(0, 1 - y m), y in {-1, 1} | |
| SMOOTHED_HINGE | the hinge with its corner rounded by a parabola of width ``parameter`` | width |
| PINBALL | quantile loss: parameter * (y - m) above the margin, (parameter - 1) * (y - m) below |
level |
| ABSOLUTE | abs(m - y) | |
| QUANTILE_HUBER | squared, linear where m - y is below -``parameter`` (above it, for a negative
one) | smaller side |
| CENTRED_QUANTILE_HUBER | the same, of labels moved by ``smoothing``, which centres the curved part
at m = y | smaller side |
| GEMAN_MCCLURE | (w^2 / 2) u / (1 + u), u = ((m - y) / w)^2, not convex | width w |
| TRUNCATED_ABSOLUTE | min(abs(m - y), w), not convex | width w |

Quantile Huber has two sides and one parameter: the larger side is where its slope is clipped, as
that of an envelope.

Hinge, pinball and absolute loss are sums of a line and a ramp max(0, e). With ``smoothing`` s > 0
the ramp is its mean under normal shifts of standard deviation s, e Phi(e / s) + s phi(e / s), whose
slope is Phi(e / s). No other loss is smoothed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpfit.losses.compiled import compiled, elementwise

LOGISTIC, SQUARED, HUBER, HINGE, SMOOTHED_HINGE, PINBALL, ABSOLUTE, QUANTILE_HUBER = range(8)
CENTRED_QUANTILE_HUBER, GEMAN_MCCLURE, TRUNCATED_ABSOLUTE = 8, 9, 10


_TERMS = tuple(1.0 / math.factorial(k) for k in range(13, -1, -1))
_PER_OCTAVE = 1.0 / math.log(2.0)
_OCTAVE_UPPER = float.fromhex("0x1.62e42fee00000p-1")
_OCTAVE_LOWER = float.fromhex("0x1.a39ef35793c76p-33")
"""Together log(2); the upper part has 32 bits."""
_ALIGNED = 1.5 * 2.0**52 + 1023.0


class MarginFunction(NamedTuple):
    """A loss for compiled loops: code, parameter, slope bound, and Gaussian smoothing of a kink.

    The code is None for the logistic loss itself: numba compiles a version without the switch,
    which takes half the time.
    """

    code: int | None
    parameter: float = 0.0
    bound: float = math.inf
    smoothing: float = 0.0


inlined = compiled(forceinline=True, error_model="numpy")


_ROOT_HALF = math.sqrt(0.5)
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)


@inlined
def ramp(excess: float, smoothing: float) -> float:
    """Return max(0, excess), or its mean under normal shifts of ``excess``."""
    if smoothing == 0.0:
        return max(0.0, excess)
    t = excess / smoothing
    mean = excess * ramp_slope(excess, smoothing) + smoothing * _DENSITY * math.exp(-0.5 * t * t)
    return max(mean, max(0.0, excess))


@inlined
def ramp_slope(excess: float, smoothing: float) -> float:
    """Return the derivative of `ramp` for positive smoothing: a normal distribution function."""
    return 0.5 * math.erfc(-_ROOT_HALF * (excess / smoothing))


@inlined
def ramp_curvature(excess: float, smoothing: float) -> float:
    """Return the second derivative of `ramp` for positive smoothing: a normal density."""
    t = excess / smoothing
    return _DENSITY * math.exp(-0.5 * t * t) / smoothing


@inlined
def relative_gap(width: float, margin: float, label: float) -> float:
    """Return (margin - label) / width, capped where its square would overflow."""
    return min(max((margin - label) / width, -1e100), 1e100)


@inlined
def logistic_value(margin: float, label: float) -> float:
    """The logistic loss."""
    z = label * margin
    return max(-z, 0.0) + math.log1p(math.exp(-abs(z)))


@inlined
def value(code: int, parameter: float, smoothing: float, margin: float, label: float) -> float:
    """The loss of one example."""
    if code == LOGISTIC:
        return logistic_value(margin, label)
    if code == SQUARED:
        return 0.5 * (margin - label) ** 2
    if code == HUBER:
        gap = abs(margin - label)
        return 0.5 * gap * gap if gap <= parameter else parameter * (gap - 0.5 * parameter)
    if code == HINGE:
        return ramp(1.0 - label * margin, smoothing)
    if code == SMOOTHED_HINGE:
        short = 1.0 - label * margin
        if short <= 0.0:
            return 0.0
        return short * short / (2.0 * parameter) if short < parameter else short - 0.5 * parameter
    if code == PINBALL:
        if smoothing > 0.0:
            return ramp(margin - label, smoothing) + parameter * (label - margin)
        gap = label - margin
        return parameter * gap if gap >= 0.0 else (parameter - 1.0) * gap
    if code == QUANTILE_HUBER:
        gap = label - margin if parameter >= 0.0 else margin - label
        side = abs(parameter)
        return 0.5 * gap * gap if gap <= side else side * (gap - 0.5 * side)
    if code == GEMAN_MCCLURE:
        away = relative_gap(parameter, margin, label) ** 2
        return 0.5 * parameter * (parameter * (away / (1.0 + away)))
    if code == TRUNCATED_ABSOLUTE:
        return min(abs(margin - label), parameter)
    if smoothing > 0.0:
        return 2.0 * ramp(margin - label, smoothing) + (label - margin)
    return abs(margin - label)


@inlined
def decay(x: float) -> float:
    """Return ``exp(-x)`` for x >= 0 within two units in the last place, and at least ``exp(-708)``.

    Written with the four operations only, it is computed for several rows at once, and its bits are
    the same wherever and with whichever library of elementary functions a loop is compiled.

    >>> decay(0.0), round(decay(1.0), 15)
    (1.0, 0.367879441171442)
    """
    # -x = k log(2) + r with a whole number k and abs(r) <= log(2) / 2; the product with the upper
    # part is exact.
    x = max(-x, -708.0)
    k = np.rint(x * _PER_OCTAVE)
    r = (x - k * _OCTAVE_UPPER) - k * _OCTAVE_LOWER
    tail = 0.0
    for term in _TERMS:
        tail = tail * r + term
    # Added to this number, k + 1023 sits in the lowest bits, from where it is moved to those of the
    # exponent.
    power = np.int64(np.float64(k + _ALIGNED).view(np.int64) << 52).view(np.float64)
    return tail * power


@inlined
def logistic_slope(margin: float, label: float) -> float:
    """The derivative of the logistic loss in the margin."""
    # One exponential and no branch on z, which is as hard to predict as data is.
    z = label * margin
    tail = decay(abs(z))
    return -label * (tail if z >= 0.0 else 1.0) / (1.0 + tail)


@inlined
def slope(code: int, parameter: float, smoothing: float, margin: float, label: float) -> float:
    """The derivative in the margin; at a corner the subgradient closest to zero."""
    if code == LOGISTIC:
        return logistic_slope(margin, label)
    if smoothing > 0.0:
        return smoothed_slope(code, parameter, smoothing, margin, label)
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
        return (
            max(margin - label, -parameter) if parameter >= 0.0 else min(margin - label, -parameter)
        )
    if code == GEMAN_MCCLURE:
        gap = relative_gap(parameter, margin, label)
        more = 1.0 + gap * gap
        return parameter * (gap / more / more)
    if code == TRUNCATED_ABSOLUTE and abs(margin - label) >= parameter:
        return 0.0
    return 1.0 if margin > label else (-1.0 if margin < label else 0.0)


@inlined
def smoothed_slope(
    code: int, parameter: float, smoothing: float, margin: float, label: float
) -> float:
    """The derivative of a loss whose kink is smoothed."""
    if code == HINGE:
        return -label * ramp_slope(1.0 - label * margin, smoothing)
    rising = ramp_slope(margin - label, smoothing)
    return rising - parameter if code == PINBALL else 2.0 * rising - 1.0


@inlined
def logistic_curvature(margin: float) -> float:
    """The second derivative of the logistic loss in the margin."""
    tail = math.exp(-abs(margin))
    return tail / ((1.0 + tail) * (1.0 + tail))


@inlined
def curvature(code: int, parameter: float, smoothing: float, margin: float, label: float) -> float:
    """The second derivative in the margin, where it exists; zero at corners."""
    if smoothing > 0.0:
        if code == HINGE:
            return ramp_curvature(1.0 - label * margin, smoothing)
        weight = 1.0 if code == PINBALL else 2.0
        return weight * ramp_curvature(margin - label, smoothing)
    if code == LOGISTIC:
        return logistic_curvature(margin)
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
    if code == GEMAN_MCCLURE:
        away = relative_gap(parameter, margin, label) ** 2
        more = 1.0 + away
        return (1.0 - 3.0 * away) / more / more / more
    return 0.0


@inlined
def crossing(code: int, parameter: float, smoothing: float, level: float, label: float) -> float:
    """The margin where the slope passes ``level``, which must be inside the slope range."""
    if smoothing > 0.0:
        low, high = label - 40.0 * smoothing, label + 40.0 * smoothing
        for _ in range(80):
            middle = 0.5 * (low + high)
            if smoothed_slope(code, parameter, smoothing, middle, label) < level:
                low = middle
            else:
                high = middle
        return 0.5 * (low + high)
    if code == LOGISTIC:
        return label * math.log((1.0 - abs(level)) / abs(level))
    if code == HINGE:
        return label
    if code == SMOOTHED_HINGE:
        return label * (1.0 - parameter * abs(level))
    if code in (SQUARED, HUBER, QUANTILE_HUBER):
        return label + level
    return label


@inlined
def envelope_value(
    code: int | None, parameter: float, bound: float, smoothing: float, margin: float, label: float
) -> float:
    """Largest convex minorant in the margin of slope within ``bound``; the loss if infinite."""
    if code is None:
        return logistic_value(margin, label)
    if code == CENTRED_QUANTILE_HUBER:
        code, label, smoothing = QUANTILE_HUBER, label + smoothing, 0.0
    steep = slope(code, parameter, smoothing, margin, label)
    if abs(steep) <= bound:
        return value(code, parameter, smoothing, margin, label)
    level = bound if steep > 0.0 else -bound
    touch = crossing(code, parameter, smoothing, level, label)
    return value(code, parameter, smoothing, touch, label) + level * (margin - touch)


@inlined
def envelope_slope(
    code: int | None, parameter: float, bound: float, smoothing: float, margin: float, label: float
) -> float:
    """The derivative of the envelope: the slope, clipped."""
    if code is None:
        return min(max(logistic_slope(margin, label), -bound), bound)
    if code == CENTRED_QUANTILE_HUBER:
        code, label, smoothing = QUANTILE_HUBER, label + smoothing, 0.0
    return min(max(slope(code, parameter, smoothing, margin, label), -bound), bound)


@inlined
def envelope_curvature(
    code: int | None, parameter: float, bound: float, smoothing: float, margin: float, label: float
) -> float:
    """The second derivative of the envelope, zero where the slope is clipped."""
    if code is None:
        return logistic_curvature(margin)
    if code == CENTRED_QUANTILE_HUBER:
        code, label, smoothing = QUANTILE_HUBER, label + smoothing, 0.0
    if abs(slope(code, parameter, smoothing, margin, label)) >= bound:
        return 0.0
    return curvature(code, parameter, smoothing, margin, label)


# The same functions elementwise over arrays.


@elementwise
def values(
    code: int, parameter: float, bound: float, smoothing: float, margin: float, label: float
) -> float:
    return envelope_value(code, parameter, bound, smoothing, margin, label)


@elementwise
def slopes(
    code: int, parameter: float, bound: float, smoothing: float, margin: float, label: float
) -> float:
    return envelope_slope(code, parameter, bound, smoothing, margin, label)


@elementwise
def curvatures(
    code: int, parameter: float, bound: float, smoothing: float, margin: float, label: float
) -> float:
    return envelope_curvature(code, parameter, bound, smoothing, margin, label)


@elementwise
def logistic_values(margin: float, label: float) -> float:
    return envelope_value(None, 0.0, math.inf, 0.0, margin, label)


@elementwise
def logistic_slopes(margin: float, label: float) -> float:
    return envelope_slope(None, 0.0, math.inf, 0.0, margin, label)


@elementwise
def logistic_curvatures(margin: float, label: float) -> float:
    return envelope_curvature(None, 0.0, math.inf, 0.0, margin, label)
