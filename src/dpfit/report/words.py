"""The promise in plain words. Shares and chances that bound a risk are rounded up."""

from __future__ import annotations

import math

from dpfit.privacy import Basis, Guarantee
from dpfit.privacy.rounding import up_to_digits

_EXACT = 1e-9
"""Relative difference below which a number counts as the round one that was asked for."""

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

ARITHMETIC = {
    "exact": (
        "All steps that touch the data are computed in integers or in enclosed bounds: "
        "no rounding error can weaken the promise."
    ),
    "bounded": (
        "Rounding errors of the computer have a proven bound, and the promise includes them."
    ),
    "idealised": (
        "The proof assumes exact real numbers. The computer rounds, and the promise does not "
        "include these errors."
    ),
}
"""What each kind of arithmetic means for the promise."""

STATUS = {
    "enforced": "made true by the program, for any data",
    "declared": "stated by the analyst",
}
"""What each status of an assumption means."""


NOT_PROMISED = (
    "That nothing is learnt about people in general. If smoking harms, results like these may "
    "show it, and that says "
    "something about every smoker, also about those who are not in the data.",
    "Anything about other results from the same data. Every further release adds to what can be "
    "learnt; a common "
    "budget keeps count.",
    "That the data are safe from theft, or that running times and computer memory give nothing "
    "away: the promise is "
    "about what is published.",
)
"""What readers tend to take for promised."""


def change(basis: Basis) -> str:
    """What the promise makes no visible difference.

    >>> change(Basis("Laplace mechanism"))
    'one record were replaced by any other'
    """
    whose = "one record" if basis.unit == "record" else "all records of one person"
    other = "any other" if basis.unit == "record" else "any others"
    change = f"replaced by {other}" if basis.relation == "replace" else "added or left out"
    return f"{whose} were {change}"


def question(basis: Basis) -> str:
    """What the attacker wants to know."""
    if basis.unit == "record":
        if basis.relation == "replace":
            return "whether a certain record is in the data, or another one in its place"
        return "whether a certain record is in the data at all"
    if basis.relation == "replace":
        return "whether a certain person’s records are in the data, or other records in their place"
    return "whether a certain person’s records are in the data at all"


def protected(basis: Basis) -> str:
    """Whom the promise is made to, and against what.

    >>> protected(Basis("Laplace mechanism", "add_remove"))
    'each record; data with it and data without it look alike'
    """
    single = basis.unit == "record"
    who, it = ("each record", "it") if single else ("a person with all of its rows", "them")
    instead = "with another in its place" if single else "with others in their place"
    return (
        f"{who}; data with {it} and data "
        f"{instead if basis.relation == 'replace' else f'without {it}'} look alike"
    )


def quoted(guarantee: Guarantee, delta: float) -> tuple[float, float]:
    """The usually quoted point of the curve: pure epsilon, else epsilon at ``delta``."""
    return (
        (guarantee.pure, 0.0)
        if math.isfinite(guarantee.pure)
        else (guarantee.epsilon(delta), delta)
    )


def up(value: float, digits: int) -> float:
    """A number rounded up after ``digits`` decimals.

    >>> up(0.54123, 3), up(0.5, 3)
    (0.542, 0.5)
    """
    scale = 10.0**digits
    return math.ceil(value * scale * (1 - _EXACT)) / scale


def bound(value: float) -> str:
    """An upper bound with three digits, rounded up.

    >>> bound(1.0), bound(0.23671), bound(1234.5)
    ('1', '0.237', '1240')
    """
    if not 0 < value < math.inf:
        return "unlimited" if value else "0"
    return f"{up_to_digits(value, 3):.10g}"


def room(value: float) -> str:
    """What may still be spent, with three digits, rounded down.

    >>> room(1.46949), room(2.0)
    ('1.46', '2')
    """
    digits = 2 - math.floor(math.log10(value))
    return f"{math.floor(value * 10.0**digits * (1 + _EXACT)) / 10.0**digits:.10g}"


def power(value: float) -> str:
    """A small probability as a power of ten.

    >>> power(1e-6), power(2.5e-7), power(0.01)
    ('10⁻⁶', '2.5 · 10⁻⁷', '0.01')
    """
    if value >= 1e-3:
        return f"{value:g}"
    digits, exponent = f"{value:.3e}".split("e")
    raised = f"10{str(int(exponent)).translate(_SUPERSCRIPT)}"
    return raised if float(digits) == 1 else f"{float(digits):g} · {raised}"


def out_of(share: float, many: int = 100) -> str:
    """A share as a number out of many, rounded up to one decimal.

    >>> out_of(0.5471), out_of(0.0012, 1000)
    ('54.8 in 100', '1.2 in 1,000')
    """
    return f"{min(up(share * many, 1), many):.10g} in {many:,}"


def chance(probability: float) -> str:
    """A probability for people, rounded up.

    >>> chance(0.0), chance(0.123), chance(0.0003)
    ('never', '12.3 in 100', '1 in 3,300')
    """
    if probability <= 0:
        return "never"
    if probability > 0.01:
        return out_of(probability)
    if probability < 1e-9:
        return "less than 1 in a billion"
    many = math.floor(1 / probability * (1 + _EXACT))
    size = 10 ** (len(str(many)) - 2)
    return f"1 in {many // size * size:,}"


def figure(value: float) -> str:
    """A number with four digits.

    >>> figure(0.123456), figure(51.3), figure(1234567.0)
    ('0.1235', '51.3', '1,235,000')
    """
    shown = f"{value + 0.0:.4g}" if abs(value) < 1e4 else f"{float(f'{value:.4g}'):,.0f}"
    return shown.replace("-", "\N{MINUS SIGN}")
