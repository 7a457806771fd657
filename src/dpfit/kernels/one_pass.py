"""One pass of stochastic gradient steps over records in the order of their positions.

A record is guarded and clipped as in `dpfit.kernels.passes`; then the point moves by its gradient.
The average is over the points at fixed positions, `Walk.marks`.

Why one record moves the average no further than declared
---------------------------------------------------------
In real numbers a record moves the point by ``theta -> P(theta - step_size * c(<x, theta>) x)`` with
the clipped slope ``c`` of a convex loss, a guarded row ``x`` that depends on the record only, and a
projection ``P``. It does not expand distances if ``step_size * sup c' * norm(x)^2 <= 2``
(docs/explanation/phases.md). A ridge draws the point to its centre by ``exp(-rate * elapsed)``
between positions, whether or not records are there. A computed step differs from the exact one by
rounding: `step_error` bounds the difference for points of norm at most ``radius``. The two runs of
neighbours each add at most this in every step, and no step makes it more. So ``2 * steps *
step_error`` is added to the sensitivity, and ``2 * average_error`` for the average.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from dpfit.kernels.bounds import Guards, Limits, clipped, guarded, limits
from dpfit.kernels.rounding import gamma
from dpfit.kernels.rows import (
    AHEAD,
    add_row,
    as_labels,
    as_rows,
    fetch,
    layout,
    measured,
    picked,
    pieces,
)
from dpfit.losses.compiled import compiled
from dpfit.losses.glm import GLM
from dpfit.losses.margin_functions import MarginFunction, envelope_slope
from dpfit.noise.source import Floats, Steps

SLOPE_ERROR = 2.0**-46
"""Error of a computed slope for an exact margin, relative to the largest slope.

Formulas take fewer than 20 operations on numbers no larger than that; `decay` is right to two units
in the last place, and libraries compute exp and erfc to a few.
"""


class Pace(NamedTuple):
    """How a point moves.

    Attributes
    ----------
    step_size
        A record moves the point to ``theta - step_size * gradient``.
    rate
        Between positions a and b the distance to the centre shrinks by ``exp(-rate (b - a))``.
    radius
        Radius of the ball around ``ball`` that points are projected onto; infinite for none.
    """

    step_size: float
    rate: float = 0.0
    radius: float = math.inf


class Walk:
    """A point that moves by one record after the other, and the sum of the points at the marks.

    Parameters
    ----------
    start, centre, ball
        Where the point starts, the centre of the ridge and that of the ball.
    marks : array
        Increasing positions in [0, 1] at which points enter the average: a point counts for a mark
        after all records of positions up to it.

    Examples
    --------
    >>> from dpfit.losses.glm import Squared
    >>> walk = Walk(np.zeros(1), np.array([0.5, 1.0]), Pace(0.5))
    >>> walk.visit(np.ones((2, 1)), [4.0, 4.0], np.array([0.25, 0.75]), Squared())
    >>> walk.average
    array([2.5])
    """

    def __init__(
        self,
        start: Floats,
        marks: Floats,
        pace: Pace,
        *,
        centre: Floats | None = None,
        ball: Floats | None = None,
    ) -> None:
        origin = np.zeros_like(start)
        self._points = np.array(
            [start, origin, origin if centre is None else centre, origin if ball is None else ball]
        )
        self.marks, self.pace = np.ascontiguousarray(marks), pace
        self._passed, self._now = 0, 0.0

    def visit(
        self,
        X: Any,
        y: npt.ArrayLike,
        positions: Floats,
        loss: GLM,
        *,
        index: Steps | None = None,
        **guards: Unpack[Guards],
    ) -> None:
        """Move by the records ``index`` of the rows, in this order; positions increase."""
        rows = as_rows(X)
        bounds, link = tuple(limits(rows.shape[1], **guards)), tuple(loss.margin_function)
        fixed, done = (link, bounds, tuple(self.pace)), 0
        for part, labels, picks, count in pieces(rows, as_labels(y, rows.shape[0]), index):
            times = np.ascontiguousarray(positions[done : done + count])
            done += count
            self._passed, self._now = _visit(
                part, labels, picks, count, times, self.marks, self._passed, self._now,
                self._points, *fixed,
            )  # fmt: skip

    @property
    def point(self) -> Floats:
        """Where the walk is."""
        return np.array(self._points[0])

    @property
    def average(self) -> Floats:
        """The mean of the points at the marks; no record comes after those that were visited."""
        points = self._points.copy()
        _to_marks(self.marks, self._passed, self._now, math.inf, points, self.pace.rate)
        return np.asarray(points[1] / len(self.marks))


@compiled(error_model="numpy", forceinline=True)
def _approach(point: Floats, centre: Floats, shrinkage: float) -> None:
    """Multiply the distance to the centre by ``exp(-shrinkage)``."""
    if shrinkage > 0.0:
        kept = math.exp(-shrinkage)
        for j in range(len(point)):
            point[j] = centre[j] + kept * (point[j] - centre[j])


@compiled(error_model="numpy")
def _to_marks(
    marks: Floats, passed: int, now: float, until: float, points: Floats, rate: float
) -> tuple[int, float]:
    """Add ``points[0]`` to ``points[1]`` at each mark before ``until``."""
    while passed < len(marks) and marks[passed] < until:
        _approach(points[0], points[2], rate * (marks[passed] - now))
        now = marks[passed]
        for j in range(points.shape[1]):
            points[1, j] += points[0, j]
        passed += 1
    return passed, now


@compiled(error_model="numpy", nogil=True)
def _visit(
    rows: Any, y: Floats, picks: Steps, count: int, positions: Floats, marks: Floats,
    passed: int, now: float, points: Floats, loss: tuple[Any, ...], bounds: tuple[Any, ...],
    pace: tuple[Any, ...],
) -> tuple[int, float]:  # fmt: skip
    """Move ``points[0]``, add it to ``points[1]`` at marks; return their number, and when."""
    X, link, limit = layout(rows), MarginFunction(*loss), Limits(*bounds)
    step_size, rate, radius = pace
    point, centre, ball = points[0], points[2], points[3]
    for p in range(count):
        if passed < len(marks) and marks[passed] < positions[p]:
            passed, now = _to_marks(marks, passed, now, positions[p], points, rate)
        _approach(point, centre, rate * (positions[p] - now))
        now = positions[p]
        fetch(X, y, picks, min(p + AHEAD, count), min(p + AHEAD + 1, count))
        i = picked(picks, p)
        scale, inner, norm = measured(X, i, points, 0)
        factor, margin, label = guarded(scale, inner, norm, y[i], limit)
        slope = envelope_slope(link.code, link.parameter, link.bound, link.smoothing, margin, label)
        weight = clipped(slope, factor, norm, limit.clip)
        add_row(X, i, scale, -step_size * weight, False, points, 0)
        if radius < math.inf:
            square = 0.0
            for j in range(len(point)):
                square += (point[j] - ball[j]) ** 2
            if square > radius * radius:
                shrink = radius / math.sqrt(square)
                for j in range(len(point)):
                    point[j] = ball[j] + shrink * (point[j] - ball[j])
    return passed, now


def step_error(
    d: int, pace: Pace, *, row_norm: float, clip_norm: float, curvature: float, radius: float
) -> float:
    """Bound the distance between a computed step and the exact one, from points up to ``radius``.

    In units of u = 2**-53: a margin of d products errs by at most (d + 2) row_norm radius, which
    moves the slope by ``curvature`` times that and the gradient by row_norm times as much. A slope
    errs by `SLOPE_ERROR` of clip_norm / row_norm, or of what is clipped to that. The coefficient
    takes six operations; each entry of the point two more, the approach to the centre an
    exponential and six, a projection d + 12. ``radius`` bounds points, centre and ball.
    """
    gradient = gamma(d + 2) * curvature * row_norm**2 * radius + 2 * SLOPE_ERROR * clip_norm
    gradient += gamma(12) * clip_norm
    moved = gamma(4) * (radius + pace.step_size * clip_norm)
    if pace.rate > 0:
        moved += (SLOPE_ERROR + gamma(12)) * 4 * radius
    if pace.radius < math.inf:
        moved += gamma(d + 12) * 4 * radius
    return (pace.step_size * gradient + moved) * (1 + 2.0**-40) + d * 2.0**-1000


def average_error(marks: int, radius: float) -> float:
    """Bound the rounding error of the average of so many points of norm at most ``radius``."""
    return gamma(marks + 4) * radius * (1 + 2.0**-40)
