"""The privacy cost of a guarantee in the currency of a cap."""

from __future__ import annotations

import math

from dpfit.ledger.amount import short_charge
from dpfit.ledger.errors import NotChargeable
from dpfit.privacy import Guarantee
from dpfit.privacy.cost import Charge, CostUndefined, privacy_cost
from dpfit.privacy.event import Approximate


def cost_in_currency(
    guarantee: Guarantee, currency: str, as_approximate: float | None = None
) -> Charge:
    """Return the cost of a guarantee, or, given a delta, of the (epsilon, delta) that it implies.

    The second one is for guarantees without a cost in the currency, and for those that the currency
    makes expensive: a subsampled mechanism costs as much as without subsampling in all but the pure
    currency.

    >>> from dpfit.privacy import Basis
    >>> from dpfit.privacy.event import Gaussian
    >>> guarantee = Guarantee(Gaussian(noise_multiplier=4.0), Basis("Gaussian mechanism"))
    >>> cost_in_currency(guarantee, "gdp").amount
    Fraction(1, 16)
    >>> round(float(cost_in_currency(guarantee, "pure", as_approximate=1e-6).amount), 3)
    1.061
    """
    if as_approximate is not None:
        return short_charge(_approximately(guarantee, currency, as_approximate))
    try:
        return short_charge(guarantee.charge(currency))
    except CostUndefined as error:
        raise NotChargeable(
            f"{error}; or let the account charge it so, with as_approximate=delta, on a dataset "
            "whose cap keeps a "
            "delta column (currency='pure', or a delta_share)"
        ) from None


def _approximately(guarantee: Guarantee, currency: str, delta: float) -> Charge:
    # Costs read numbers as the decimals they look like, half a unit in the last place off at most:
    # lean the safe way.
    target = math.nextafter(delta, 0.0)
    epsilon = guarantee.epsilon(target)
    if math.isinf(epsilon):
        raise NotChargeable(
            f"the plan guarantees no finite epsilon at delta = {delta!r}; plan it with another "
            "budget"
        )
    # Someone who planned for epsilon = 1 should pay 1 and not the 1 + 1e-11 that root finding comes
    # back with.
    round_number = float(f"{epsilon:.9g}")
    if guarantee.delta(math.nextafter(round_number, 0.0)) <= target:
        epsilon = round_number
    else:
        epsilon = math.nextafter(epsilon, math.inf)
    return privacy_cost(Approximate(epsilon, delta), guarantee.basis.relation, currency)
