"""Exact amounts: how they are written, how they stay short, and how they are shown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from dpfit.privacy import Budget, gaussian
from dpfit.privacy.cost import Charge
from dpfit.privacy.rounding import up
from dpfit.privacy.spec import Json

SYMBOLS = {"pure": "epsilon", "zcdp": "rho", "gdp": "mu^2"}
"""What an amount of a currency is called."""

ZERO = Fraction(0)

_LONGEST = 512
_GRID = 2**256
_MILLION = 10**6


def text(value: Fraction) -> str:
    """The exact amount as ``numerator/denominator``.

    >>> text(Fraction("0.1"))
    '1/10'
    """
    return f"{value.numerator}/{value.denominator}"


def to_json(charge: Charge) -> dict[str, Json]:
    """Return both columns of a charge as exact strings."""
    return {"amount": text(charge.amount), "delta": text(charge.delta)}


def from_json(value: Json) -> Charge:
    """Return the charge that `to_json` wrote.

    >>> from_json({"amount": "1/10", "delta": "0/1"}).amount
    Fraction(1, 10)
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"a charge has an amount and a delta, got {type(value).__name__}")
    return Charge(Fraction(str(value["amount"])), Fraction(str(value["delta"])))


def short(value: Fraction) -> Fraction:
    """The amount, or the next multiple of 2^-256 above it if its denominator exceeds 512 bits.

    Sums of many unrelated fractions would otherwise grow with every row. Rounding up is sound, and
    so small that 10^60 rows could not show it.

    >>> short(Fraction(1, 3))
    Fraction(1, 3)
    >>> short(Fraction(1, 3**400)) == Fraction(1, 2**256)
    True
    """
    if value.denominator.bit_length() <= _LONGEST:
        return value
    return Fraction(math.ceil(value * _GRID), _GRID)


def short_charge(charge: Charge) -> Charge:
    """Both columns of a charge, kept short."""
    return Charge(short(charge.amount), short(charge.delta))


def without(total: Charge, price: Charge) -> Charge:
    """Return a total after one of its prices is given back.

    Totals are rounded up only, so the result is at least the exact sum of the other prices.

    >>> without(Charge(Fraction(1, 2)), Charge(Fraction(1, 3))).amount
    Fraction(1, 6)
    """
    return short_charge(total + price * -1)


def shown(value: Fraction, digits: int = 6) -> str:
    """The amount for people.

    >>> shown(Fraction(1, 3))
    '0.333333'
    """
    return f"{up(value):.{digits}g}"


def shown_left(left: Fraction, cap: Fraction, digits: int = 6) -> str:
    """What is left, for people: 0 below a billionth of the cap, which no plan can use.

    >>> shown_left(Fraction(1, 10**15), Fraction(1)), shown_left(Fraction(1, 10), Fraction(1))
    ('0', '0.1')
    """
    return "0" if left < cap / 10**9 else shown(left, digits)


def shown_apart(first: Fraction, second: Fraction) -> tuple[str, str]:
    """Two amounts for people, with enough digits to differ, or exact if digits do not help.

    >>> shown_apart(Fraction(1, 10), Fraction("0.1000000001"))
    ('0.1', '0.1000000001')
    """
    for digits in (6, 12, 17):
        pair = shown(first, digits), shown(second, digits)
        if pair[0] != pair[1] or first == second:
            return shown(first, digits), shown(second, digits)
    return text(first), text(second)


def largest_budget(cap: Budget, currency: str, left: Charge) -> Budget | None:
    """Largest budget, to six decimals, within what remains under a cap; None if none is.

    >>> largest_budget(Budget(mu=1.0), "gdp", Charge(Fraction(1, 4)))
    Budget(mu=0.5)
    """
    found = _parameters(cap, currency, left)
    if not any(found.values()):
        return None
    epsilon, delta, mu, rho = (found.get(name) for name in ("epsilon", "delta", "mu", "rho"))
    return replace(cap, epsilon=epsilon, delta=delta, mu=mu, rho=rho)


def _parameters(cap: Budget, currency: str, left: Charge) -> dict[str, float | None]:
    if currency == "pure":
        epsilon = _decimals(left.amount)
        return {"epsilon": epsilon, "delta": _below(left.delta) or None} if epsilon else {}
    if currency == "zcdp":
        return {"rho": _decimals(left.amount) or None}
    mu = math.isqrt(math.floor(max(left.amount, ZERO) * _MILLION**2)) / _MILLION
    epsilon = (
        _decimals(Fraction(gaussian.epsilon(mu, cap.delta) * (1 - 1e-9))) if cap.delta else 0.0
    )
    return {"epsilon": epsilon, "delta": cap.delta} if epsilon else {"mu": mu or None}


def _decimals(value: Fraction) -> float:
    """The amount, cut off after six decimals."""
    return math.floor(value * _MILLION) / _MILLION


def _below(value: Fraction) -> float:
    """A short decimal that is at most ``value``."""
    if value <= 0:
        return 0.0
    places = 6 - math.floor(math.log10(up(value)))
    return float(Fraction(math.floor(value * 10**places), 10**places))
