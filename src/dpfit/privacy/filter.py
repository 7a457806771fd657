"""Privacy filters: stop in time when the next step and its cost are chosen after seeing earlier outputs.

A filter adds up costs in one additive currency and lets a step through only while the sum stays within a cap fixed
beforehand; whatever was let through is then private at the cap. That is a theorem for exactly these currencies:
pure epsilon (Rogers, Roth, Ullman, Vadhan 2016), zCDP and Renyi at a fixed order (Feldman and Zrnic 2021;
Whitehouse, Ramdas, Rogers, Wu 2023) and the square of the GDP parameter (Smith and Thakurta 2022).
Proofs: docs/explanation/filters.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

from dpfit.privacy import account
from dpfit.privacy.event import Event, Filtered, GaussianPrivate, Pure, ZeroConcentrated


class FilterExhausted(Exception):
    """A step that does not fit what is left of the cap."""


@dataclass
class Filter:
    """Adds up the cost of adaptively chosen events and refuses what would pass the cap.

    Costs are exact fractions of the numbers accounted (rounded up), so ten tenths of a cap fit and the smallest
    excess does not.

    >>> limit = Filter(Filtered(ZeroConcentrated(0.5)), "replace")
    >>> limit.charge(ZeroConcentrated(0.25)); limit.charge(ZeroConcentrated(0.25))
    >>> limit.fits(ZeroConcentrated(1e-9))
    False
    """

    event: Filtered
    relation: str
    _spent: Fraction = field(default=Fraction(0), init=False)

    @property
    def cap(self) -> Fraction:
        """The cap in its currency: epsilon, rho, or mu squared."""
        match self.event.cap:
            case Pure(epsilon=epsilon):
                return Fraction(epsilon)
            case ZeroConcentrated(rho=rho):
                return Fraction(rho)
            case GaussianPrivate(mu=mu):
                return Fraction(mu) ** 2
        raise ValueError("a filter's cap must be a Pure, GaussianPrivate or ZeroConcentrated event")

    @property
    def left(self) -> Fraction:
        """What is left, in the currency of the cap."""
        return self.cap - self._spent

    def cost(self, event: Event) -> Fraction:
        """The price of an event in the currency of the cap."""
        curve = account.curve(event, self.relation)
        match self.event.cap:
            case Pure():
                price, power = curve.pure, 1
            case ZeroConcentrated():
                price, power = curve.rho, 1
            case _:
                price, power = curve.mu, 2
        if math.isinf(price) or account.total_variation(event):
            raise FilterExhausted(
                f"an event of kind {event.kind!r} has no cost in the currency of this filter ({self.event.cap.kind})"
            )
        return Fraction(price) ** power

    def fits(self, event: Event) -> bool:
        """Whether the event may run; does not charge."""
        return self.cost(event) <= self.left

    def charge(self, event: Event) -> None:
        """Charge before running; raises `FilterExhausted` and charges nothing if it does not fit."""
        price = self.cost(event)
        if price > self.left:
            raise FilterExhausted(
                f"asked for {float(price):.6g}, left {float(self.left):.6g} of {float(self.cap):.6g} "
                f"({self.event.cap.kind} currency); ask for more noise or stop here"
            )
        self._spent += price
