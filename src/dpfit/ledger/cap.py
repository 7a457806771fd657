"""A budget as a cap in an additive currency, converted once, when a dataset is registered.

Pure epsilon, zCDP rho and the squared GDP parameter are their own caps. An (epsilon, delta) budget
has no additive currency of its own: it is turned into a cap (C, D) on an amount and on a sum of
deltas such that whatever stays within both is (epsilon, delta)-DP, that is D + (1 - D) *
delta_C(epsilon) <= delta. Proof: docs/explanation/ledger.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpfit.privacy import Budget, accountant, gaussian
from dpfit.privacy.cost import CURRENCIES, Charge, decimal
from dpfit.privacy.event import ZeroConcentrated
from dpfit.privacy.validate import option, probability


@dataclass(frozen=True)
class Cap:
    """A limit on an amount of a currency and on a sum of deltas."""

    currency: str
    limit: Charge

    def allows(self, total: Charge) -> bool:
        """Whether a total is within the limit, compared exactly."""
        return total.amount <= self.limit.amount and total.delta <= self.limit.delta


def cap_of(budget: Budget, currency: str | None = None, delta_share: float | None = None) -> Cap:
    """The cap that keeps a budget.

    For an (epsilon, delta) budget the caller may choose the ``currency`` ("gdp" unless told) and
    ``delta_share``, the part of delta that is set aside for plans that promise (epsilon, delta)
    themselves (none unless told; all of it in the pure currency, whose promises need no delta).

    >>> cap_of(Budget(epsilon=0.1))
    Cap(currency='pure', limit=Charge(amount=Fraction(1, 10), delta=Fraction(0, 1)))
    >>> cap_of(Budget(epsilon=1.0, delta=1e-6), currency="pure").limit.delta
    Fraction(1, 1000000)
    >>> round(float(cap_of(Budget(epsilon=1.0, delta=1e-6)).limit.amount) ** 0.5, 4)
    0.2367
    """
    if budget.kind == "approximate":
        return _approximate(budget, currency or "gdp", delta_share)
    if currency not in (None, budget.kind) or delta_share is not None:
        raise ValueError(
            f"a cap of kind {budget.kind!r} is its own currency; currency and delta_share go "
            "with epsilon and delta"
        )
    amount = {
        "pure": lambda: decimal(budget.epsilon or 0),
        "zcdp": lambda: decimal(budget.rho or 0),
        "gdp": lambda: decimal(budget.mu or 0) ** 2,
    }[budget.kind]()
    return Cap(budget.kind, Charge(amount))


def _approximate(budget: Budget, currency: str, delta_share: float | None) -> Cap:
    option("currency", currency, CURRENCIES)
    epsilon, delta = budget.epsilon or 0.0, decimal(budget.delta or 0.0)
    if currency == "pure":
        if delta_share not in (None, 1):
            raise ValueError(
                "in the pure currency all of delta is for plans that need it; leave delta_share out"
            )
        return Cap(currency, Charge(decimal(epsilon), delta))
    column = delta * decimal(probability("delta_share", delta_share or 0.0))
    if column == delta:
        raise ValueError(
            f"delta_share must be below 1 in the {currency} currency, which needs a part of "
            "delta itself"
        )
    target = _down((delta - column) / (1 - column))
    amount = _largest_gdp(epsilon, target) if currency == "gdp" else _largest_zcdp(epsilon, target)
    return Cap(currency, Charge(amount, column))


def _largest_gdp(epsilon: float, delta: float) -> Fraction:
    """The square of the largest mu that is within (epsilon, delta)."""
    # The library's own inverse stops 1e-12 early, which would refuse a plan that spends the whole
    # budget at once.
    start = gaussian.mu(epsilon, delta)
    mu = _last(
        lambda value: float(gaussian.delta(value, epsilon)) <= delta, start, start * (1 + 1e-9)
    )
    return Fraction(mu) ** 2


def _largest_zcdp(epsilon: float, delta: float) -> Fraction:
    """The largest rho that is within (epsilon, delta)."""

    def within(rho: float) -> bool:
        return (
            float(
                accountant.privacy_curve(ZeroConcentrated(rho), "replace").delta(
                    np.array([epsilon])
                )[0]
            )
            <= delta
        )

    high = epsilon + 1.0
    while within(high):
        high *= 2
    low = high
    while not within(low):
        low /= 2
    return Fraction(_last(within, low, high))


def _last(within: Callable[[float], bool], low: float, high: float) -> float:
    """Last double in [``low``, ``high``] found ``within`` by bisection; ``low`` is within."""
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if within(middle) else (low, middle)
    return low


def _down(value: Fraction) -> float:
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, 0.0)
