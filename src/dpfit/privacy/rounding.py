"""Numbers rounded up or down: a stored cost must not be smaller than what it stands for, a remainder not larger."""

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


def down(value: Fraction) -> float:
    """The largest double that is at most ``value``, of values within the range of doubles.

    >>> down(Fraction(1, 10)) <= Fraction(1, 10)
    True
    """
    return -up(-value)


def down_sqrt(value: Fraction) -> float:
    """The largest double whose square is at most ``value``; zero for negative values.

    >>> down_sqrt(Fraction(1, 4)), Fraction(down_sqrt(Fraction(2))) ** 2 < 2
    (0.5, True)
    """
    if value <= 0:
        return 0.0
    root = up_sqrt(value)
    return root if Fraction(root) ** 2 <= value else math.nextafter(root, 0.0)


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
