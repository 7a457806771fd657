"""Numbers rounded up: a privacy parameter that is stored as a double must not be smaller than what it stands for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction


def up(value: Fraction) -> float:
    """The smallest double that is at least ``value``.

    >>> up(Fraction(1, 10)) >= Fraction(1, 10)
    True
    """
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def up_sqrt(value: Fraction) -> float:
    """A double that is at least the square root of ``value``, and the root itself where that is a double."""
    if value > Fraction(2) ** 1023:
        return math.inf
    root = math.sqrt(up(value))
    while Fraction(root) ** 2 < value:
        root = math.nextafter(root, math.inf)
    while (below := math.nextafter(root, 0.0)) < root and Fraction(below) ** 2 >= value:
        root = below
    return root


def weighted_sum(parts: Iterable[tuple[float, int]]) -> Fraction | None:
    """The exact sum of doubles, each taken a number of times; None if one of them is infinite."""
    total = Fraction(0)
    for value, times in parts:
        if math.isinf(value):
            return None
        total += Fraction(value) * times
    return total


def weighted_squares(parts: Iterable[tuple[float, int]]) -> Fraction | None:
    """The exact sum of squares of doubles, each taken a number of times; None if one of them is infinite."""
    total = Fraction(0)
    for value, times in parts:
        if math.isinf(value):
            return None
        total += Fraction(value) ** 2 * times
    return total
