"""Privacy filters: stop in time when the next step and its cost depend on earlier outputs.

A filter adds up costs in one additive currency and lets a step through only while the sum stays
within a cap fixed beforehand; whatever was let through is then private at the cap. That is a
theorem for exactly these currencies: pure epsilon (Rogers, Roth, Ullman, Vadhan 2016), zCDP and
Renyi at a fixed order (Feldman and Zrnic 2021; Whitehouse, Ramdas, Rogers, Wu 2023) and the square
of the GDP parameter (Smith and Thakurta 2022). Proofs: docs/explanation/filters.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from dpfit.privacy.cost import CostUndefined, privacy_cost
from dpfit.privacy.event import Event, Filtered


class FilterExhausted(Exception):
    """A step that does not fit what is left of the cap."""


@dataclass
class Filter:
    """Adds up the cost of adaptively chosen events and refuses what would pass the cap.

    Costs are exact fractions, so ten tenths of a cap fit and the smallest excess does not.

    >>> from dpfit.privacy.event import ZeroConcentrated
    >>> limit = Filter(Filtered(ZeroConcentrated(0.5)), "replace")
    >>> limit.charge(ZeroConcentrated(0.25)); limit.charge(ZeroConcentrated(0.25))
    >>> limit.fits(ZeroConcentrated(1e-9))
    False
    """

    event: Filtered
    relation: str
    _spent: Fraction = field(default=Fraction(0), init=False)

    @property
    def currency(self) -> str:
        """One of "pure", "zcdp", "gdp"."""
        return self.event.cap.kind

    @property
    def cap(self) -> Fraction:
        """The cap in its currency: epsilon, rho, or mu squared."""
        return privacy_cost(self.event.cap, self.relation, self.currency).amount

    @property
    def left(self) -> Fraction:
        """What is left, in the currency of the cap."""
        return self.cap - self._spent

    @property
    def spent(self) -> Fraction:
        """What was charged so far, in the currency of the cap."""
        return self._spent

    def restore(self, spent: Fraction) -> None:
        """Go on from what an earlier process had charged."""
        if not self._spent <= spent <= self.cap:
            raise ValueError("spent must lie between what was charged and the cap")
        self._spent = spent

    def cost(self, event: Event) -> Fraction:
        """The price of an event in the currency of the cap."""
        try:
            price = privacy_cost(event, self.relation, self.currency)
        except CostUndefined as error:
            raise FilterExhausted(str(error)) from None
        if price.delta:
            raise FilterExhausted("an event with a delta has no cost under a cap without one")
        return price.amount

    def fits(self, event: Event) -> bool:
        """Whether the event may run; does not charge."""
        return self.cost(event) <= self.left

    def charge(self, event: Event) -> None:
        """Charge before running; if it does not fit, raise `FilterExhausted` and charge nothing."""
        price = self.cost(event)
        if price > self.left:
            raise FilterExhausted(
                f"asked for {float(price):.6g}, left {float(self.left):.6g} of "
                f"{float(self.cap):.6g} "
                f"({self.currency} currency); ask for more noise or stop here"
            )
        self._spent += price
