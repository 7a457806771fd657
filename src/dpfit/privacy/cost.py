"""Privacy costs in an additive currency, as exact fractions: what filters and ledgers add up.

Currencies are pure epsilon, zCDP rho and the square of the GDP parameter; in each of them costs of
adaptively chosen events add, and a cap on the sum is a promise (docs/explanation/filters.md). An
(epsilon, delta)-DP mechanism pays its delta in a second column, which adds too. Numbers that a
caller wrote down are taken as the decimal fractions they look like, so that ten tenths make one; a
noise multiplier is taken as the exact double that scales the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpfit.privacy import accountant
from dpfit.privacy import event as events
from dpfit.privacy.event import Event
from dpfit.privacy.validate import option

CURRENCIES = ("pure", "zcdp", "gdp")


class CostUndefined(ValueError):
    """An event that has no sound cost in a currency."""


@dataclass(frozen=True)
class Charge:
    """An amount of a currency, and a probability of losing everything."""

    amount: Fraction
    delta: Fraction = Fraction(0)

    def __add__(self, other: Charge) -> Charge:
        return Charge(self.amount + other.amount, self.delta + other.delta)

    def __mul__(self, times: int | Fraction) -> Charge:
        return Charge(self.amount * times, self.delta * times)


def decimal(value: float) -> Fraction:
    """The decimal fraction that a number looks like.

    >>> decimal(0.1) * 10
    Fraction(1, 1)
    """
    if math.isinf(value):
        raise CostUndefined("an infinite guarantee has no cost")
    return Fraction(repr(float(value)))


def privacy_cost(event: Event, relation: str, currency: str) -> Charge:
    """Return the privacy cost of ``event``; `CostUndefined` with a hint if there is no sound one.

    >>> privacy_cost(events.Repeated(events.Gaussian(10.0), 100), "replace", "gdp").amount
    Fraction(1, 1)
    """
    option("currency", currency, CURRENCIES)
    match event:
        case events.Composed(events=parts):
            return sum(
                (privacy_cost(part, relation, currency) for part in parts), Charge(Fraction(0))
            )
        case events.Repeated(event=inner, times=times):
            return privacy_cost(inner, relation, currency) * times
        case events.Parallel(events=parts, by="index") if parts:
            costs = [privacy_cost(part, relation, currency) for part in parts]
            return Charge(max(cost.amount for cost in costs), max(cost.delta for cost in costs))
        case events.Filtered(cap=cap):
            return privacy_cost(cap, relation, currency)
        case events.Approximate(epsilon=epsilon, delta=delta):
            return Charge(
                privacy_cost(events.Pure(epsilon), relation, currency).amount, decimal(delta)
            )
        case events.Group(event=inner, size=size) if not privacy_cost(
            inner, relation, currency
        ).delta:
            return privacy_cost(inner, relation, currency) * (
                size if currency == "pure" else size**2
            )
    exact = _exact(event, currency)
    return Charge(exact if exact is not None else _accounted(event, relation, currency))


def _exact(event: Event, currency: str) -> Fraction | None:
    """Return the cost of a leaf by its formula, where that is a rational one."""
    match event:
        case events.Gaussian(noise_multiplier=m) | events.DiscreteGaussian(noise_multiplier=m):
            if currency == "gdp" and isinstance(event, events.DiscreteGaussian):
                return None
            return _squared_shift(m, currency)
        case events.GaussianPrivate(mu=mu):
            return {"gdp": decimal(mu) ** 2, "zcdp": decimal(mu) ** 2 / 2}.get(currency)
        case events.ZeroConcentrated(rho=rho):
            return decimal(rho) if currency == "zcdp" else None
        case events.BoundedRange(epsilon=epsilon) if currency == "zcdp":
            return decimal(epsilon) ** 2 / 8
        case events.Laplace(noise_multiplier=m) | events.L2Laplace(noise_multiplier=m):
            return _pure(1 / Fraction(m), currency)
        case events.DiscreteLaplace(noise_multiplier=m):
            return _pure(1 / Fraction(m), currency)
        case (
            events.Pure(epsilon=e)
            | events.RandomizedResponse(epsilon=e)
            | events.BoundedRange(epsilon=e)
        ):
            return _pure(decimal(e), currency)
    return None


def _squared_shift(multiplier: float, currency: str) -> Fraction | None:
    square = 1 / Fraction(multiplier) ** 2
    return {"gdp": square, "zcdp": square / 2}.get(currency)


def _pure(epsilon: Fraction, currency: str) -> Fraction | None:
    return {"pure": epsilon, "zcdp": epsilon**2 / 2}.get(currency)


def _accounted(event: Event, relation: str, currency: str) -> Fraction:
    """Return the cost by the event's curve, a double that is rounded up."""
    curve = accountant.privacy_curve(event, relation)
    cost = {"pure": curve.pure, "zcdp": curve.rho, "gdp": curve.mu}[currency]
    if accountant.total_variation(event):
        raise CostUndefined(
            "an approximate sampler's total-variation term has no cost in an additive currency; "
            "guarantee it as "
            "(epsilon, delta) first"
        )
    if math.isinf(cost):
        raise CostUndefined(
            f"an event of kind {event.kind!r} has no cost in {currency} currency; use another "
            "currency, or "
            "guarantee it as (epsilon, delta) with an Approximate event"
        )
    return Fraction(cost) ** (2 if currency == "gdp" else 1)
