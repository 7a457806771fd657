"""Directed rounding: a stored cost is never below, a remainder never above the true value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, Context
from fractions import Fraction

SMALLEST = math.ulp(0.0)
"""The smallest positive double: the bound on a probability that is positive, however small."""


def up_to_digits(value: float, digits: int) -> float:
    """Return the smallest number of that many significant digits that is at least ``value``.

    >>> up_to_digits(1.00004, 4), up_to_digits(0.1, 4), up_to_digits(0.9999999999999983, 4)
    (1.001, 0.1, 1.0)
    """
    return float(Context(digits, ROUND_CEILING).create_decimal(repr(float(value))))


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
    """A double at least the square root of ``value``; the root itself if it is a double."""
    if value > Fraction(2) ** 1023:
        return math.inf
    if 0 < value < Fraction(2) ** -900:
        # Squares of small doubles are no doubles: the root of a larger number is scaled back.
        root = math.ldexp(up_sqrt(value * 2**1200), -600)
        return root if Fraction(root) ** 2 >= value else math.nextafter(root, math.inf)
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
    """Exact sum of squares of doubles, each with a multiplicity; None if one is infinite."""
    total = Fraction(0)
    for value, times in parts:
        if math.isinf(value):
            return None
        total += Fraction(value) ** 2 * times
    return total
