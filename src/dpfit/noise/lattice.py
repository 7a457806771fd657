"""The power-of-two grid that every released number lives on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from dpfit.noise.source import Floats, Steps, whole

Norm = Literal["l1", "l2", "linf"]

LIMIT = 2**61
"""Steps are kept in ``[-LIMIT, LIMIT]``, which leaves room for one exact addition of noise in
int64.
"""

# Finer steps would be subnormal numbers, and coarser ones would overflow within LIMIT steps.
_FINEST, _COARSEST = -1022, 962

ROUNDING_SHARE = 2.0**-13
"""The part of a sensitivity that `Grid.fitting` lets rounding cost: 0.012%."""


@dataclass(frozen=True)
class Grid:
    """The multiples of ``2**exponent``.

    A value rounded to the grid is an integer number of steps, so that adding noise (another
    integer) is exact and the set of possible outputs is the same for every data set.

    Examples
    --------
    >>> grid = Grid(-2)
    >>> grid.step
    0.25
    >>> grid.quantize([0.3, -1.0, float("nan")])
    array([ 1, -4,  0])
    >>> grid.values(grid.quantize([0.3, -1.0]))
    array([ 0.25, -1.  ])
    """

    exponent: int

    def __post_init__(self) -> None:
        whole("exponent", self.exponent, _FINEST, _COARSEST)

    @property
    def step(self) -> float:
        return math.ldexp(1.0, self.exponent)

    @classmethod
    def fitting(
        cls, sensitivity: float, dimension: int, norm: Norm, integers: bool = False
    ) -> Grid:
        """Choose the coarsest grid whose rounding costs at most 2**-13 of the sensitivity.

        The cost grows with the dimension, so the step shrinks with it. Queries whose values are
        integers already lie on ``INTEGERS`` and lose nothing there; `integers` asks for that grid.

        Examples
        --------
        >>> grid = Grid.fitting(1.0, 1000, "l2")
        >>> grid.rounding(1000, "l2") <= 2**-13 < Grid(grid.exponent + 1).rounding(1000, "l2")
        True
        """
        if not 0 < sensitivity < math.inf:
            raise ValueError(f"sensitivity must be positive and finite, got {sensitivity!r}")
        if integers:
            return INTEGERS
        allowance = ROUNDING_SHARE * sensitivity
        _, above = math.frexp(allowance / _spread(dimension, norm))
        for exponent in range(min(above, _COARSEST), max(above - 3, _FINEST - 1), -1):
            if (grid := cls(exponent)).rounding(dimension, norm) <= allowance:
                return grid
        raise ValueError(
            f"sensitivity {sensitivity!r} is too small for a grid in dimension {dimension}"
        )

    def of_sum(self, rows: int, bound: float, scale: float) -> Grid:
        """Return this grid, or a finer one for the sum of ``rows`` numbers up to ``bound``.

        Equal rows are rounded alike, so their sum is off by up to half a step for each. The step
        keeps that below 2**-13 of the ``scale`` of the noise, as far as integers of 64 bits hold
        the sum and the noise.

        Examples
        --------
        >>> Grid(-13).of_sum(1, 1.0, 1.0), Grid(-13).of_sum(1000, 1.0, 1.0)
        (Grid(exponent=-13), Grid(exponent=-22))
        """
        if not 0 < scale < math.inf:
            return self
        wanted = _exponent(ROUNDING_SHARE * scale) - rows.bit_length()
        held = max(_exponent(bound) + rows.bit_length() - 59, _exponent(scale) - 49)
        return Grid(min(self.exponent, max(wanted, held, _FINEST)))

    def rounding(self, dimension: int, norm: Norm) -> float:
        """Bound how far apart rounding to the grid can move two vectors, rounded up.

        Each of the two moves by at most half a step in each coordinate. So if ``norm(x - y)`` is at
        most the sensitivity, the rounded vectors differ by at most the sensitivity plus this
        number. The same holds for sums of rounded rows of which one is replaced (of which one is
        added or removed: half of it).

        Examples
        --------
        >>> Grid(-3).rounding(4, "l2"), Grid(-3).rounding(4, "l1"), Grid(-3).rounding(4, "linf")
        (0.25, 0.5, 0.125)
        """
        # A normal float times a power of two is exact; only the square root inside is rounded (up).
        return self.step * _spread(dimension, norm)

    def quantize(self, values: npt.ArrayLike) -> Steps:
        """Round numbers to the grid and return them in steps.

        Ties go to the even step, numbers beyond ``LIMIT`` steps to ``LIMIT`` steps, and NaN to
        zero. These repairs are silent because a message would tell about the data. Saturation does
        not expand distances; a sensitivity is owed for values in which NaN has been read as zero.

        Examples
        --------
        >>> Grid(0).quantize([0.5, 1.5, float("inf")])
        array([                  0,                   2, 2305843009213693952])
        """
        exact = np.asarray(values, dtype=np.float64)
        # Multiplying by a power of two is exact, or far above the limit, or far below half a step.
        with np.errstate(all="ignore"):
            steps = np.rint(np.ldexp(exact, -int(self.exponent)))
        return np.asarray(clamp(np.where(np.isnan(steps), 0.0, steps), LIMIT), dtype=np.int64)

    def sum(self, rows: npt.ArrayLike, bound: float) -> Steps:
        """Sum a matrix's rows exactly, entries clipped to ``[-bound, bound]`` and rounded.

        A floating-point sum depends on the order of its terms and errs with all of them, so
        changing one row can move it by more than that row. Integer sums do not: they are exact, in
        any order, and changing one row moves them by that row's change plus `rounding`. Totals
        saturate at ``LIMIT``, which never happens as long as ``rows * (bound / step + 1) <=
        LIMIT``.

        Examples
        --------
        >>> Grid(-1).sum([[0.5, 9.0], [0.3, -2.0]], bound=4.0)
        array([2, 4])
        """
        if not 0 < bound < math.inf:
            raise ValueError(f"bound must be positive and finite, got {bound!r}")
        matrix = np.asarray(rows, dtype=np.float64)
        if matrix.ndim != 2:
            raise ValueError(f"rows must be a matrix, got an array with {matrix.ndim} axes")
        steps = self.quantize(clamp(matrix, bound))
        if len(steps) * (bound / self.step + 2) <= LIMIT:
            return np.asarray(steps.sum(axis=0, dtype=np.int64))
        # The halves cannot overflow below 2**31 rows; Python integers put them together.
        high, low = steps >> 31, steps & (2**31 - 1)
        totals = (high.sum(axis=0).astype(object) << 31) + low.sum(axis=0).astype(object)
        return np.asarray(np.clip(totals, -LIMIT, LIMIT), dtype=np.int64)

    def values(self, steps: npt.ArrayLike) -> Floats:
        """Turn steps into floating-point numbers (rounded to 53 bits: post-processing).

        Examples
        --------
        >>> Grid(-1).values([1, -3])
        array([ 0.5, -1.5])
        """
        return np.asarray(np.ldexp(np.asarray(steps, dtype=np.float64), int(self.exponent)))


INTEGERS = Grid(0)
"""The grid of the integers, on which integer-valued queries need no rounding."""


def _exponent(value: float) -> int:
    """Return the smallest power of two above a positive number."""
    return math.frexp(value)[1]


def clamp(values: Any, bound: float) -> Any:
    """Clip to ``[-bound, bound]``; NaN stays. On few numbers it takes a third of `np.clip`."""
    return np.minimum(np.maximum(values, -bound), bound)


def _spread(dimension: int, norm: Norm) -> float:
    """Return the norm of the all-ones vector, rounded up."""
    dimension = whole("dimension", dimension, 1, 2**53)
    if norm not in get_args(Norm):
        raise ValueError(f"norm must be one of {', '.join(get_args(Norm))}, got {norm!r}")
    if norm == "linf":
        return 1.0
    if norm == "l1":
        return float(dimension)
    root = math.sqrt(dimension)
    return root if math.isqrt(dimension) ** 2 == dimension else math.nextafter(root, math.inf)
