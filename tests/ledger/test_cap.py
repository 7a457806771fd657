"""An (epsilon, delta) cap is converted once, soundly and without waste."""

from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from dpfit.ledger.cap import cap_of
from dpfit.privacy import Basis, Budget, Guarantee
from dpfit.privacy import event as events
from dpfit.privacy.cost import decimal

GRID = [(e, d) for e in (0.01, 0.1, 1.0, 3.3, 10.0) for d in (1e-12, 1e-6, 1e-3, 0.1)]


def exact_gaussian_delta(squared_mu: Fraction, epsilon: float) -> mp.mpf:
    """delta(epsilon) of Gaussian DP with 50 digits."""
    with mp.workdps(50):
        mu = mp.sqrt(mp.mpf(squared_mu.numerator) / squared_mu.denominator)
        eps = mp.mpf(repr(epsilon))
        return mp.ncdf(-eps / mu + mu / 2) - mp.exp(eps) * mp.ncdf(-eps / mu - mu / 2)


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
@pytest.mark.parametrize("share", [None, 0.25, 0.5, 0.9])
def test_a_gdp_cap_promises_the_budget_and_nearly_nothing_less(epsilon, delta, share):
    limit = cap_of(Budget(epsilon=epsilon, delta=delta), "gdp", share).limit
    column = mp.mpf(limit.delta.numerator) / limit.delta.denominator
    total = column + (1 - column) * exact_gaussian_delta(limit.amount, epsilon)
    assert limit.delta == decimal(delta) * decimal(share or 0)
    assert total <= delta
    assert total >= delta * (1 - 1e-7)


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
@pytest.mark.parametrize("share", [None, 0.5])
def test_a_zcdp_cap_promises_the_budget(epsilon, delta, share):
    limit = cap_of(Budget(epsilon=epsilon, delta=delta), "zcdp", share).limit
    left = (decimal(delta) - limit.delta) / (1 - limit.delta)
    for factor, within in ((1.0, True), (1.0001, False)):
        promise = Guarantee(events.ZeroConcentrated(float(limit.amount) * factor), Basis("zCDP"))
        assert (promise.delta(epsilon) <= left) == within


def test_a_mixture_of_leaks_and_gaussians_stays_below_the_formula():
    """Adaptive leaks of total D and GDP: D + (1 - D) delta_C(epsilon), and it is attained."""
    mu, column, epsilon = 0.8, 0.03, 0.5
    x = np.linspace(-12, 12, 480_001)
    step = x[1] - x[0]
    first, second = (np.exp(-((x - shift) ** 2) / 2) / np.sqrt(2 * np.pi) for shift in (mu, 0.0))
    formula = column + (1 - column) * float(exact_gaussian_delta(Fraction(mu) ** 2, epsilon))
    # The leak is drawn after the Gaussian answer, with a probability that depends on it; then all
    # is revealed.
    for leak in (
        np.full_like(x, column),
        np.where(x > 0.5, column, column / 3),
        np.where(x < 0.5, column, 0.0),
    ):
        plain = (
            np.maximum((1 - leak) * first - np.exp(epsilon) * (1 - leak) * second, 0).sum() * step
        )
        assert (leak * first).sum() * step + plain <= formula + 1e-9
    assert column + (1 - column) * np.maximum(
        first - np.exp(epsilon) * second, 0
    ).sum() * step == pytest.approx(formula)


def test_other_budgets_are_their_own_caps():
    assert cap_of(Budget(epsilon=0.1)).limit.amount == Fraction(1, 10)
    assert cap_of(Budget(rho=0.1)).limit.amount == Fraction(1, 10)
    assert cap_of(Budget(mu=0.1)).limit.amount == Fraction(1, 100)
    pure = cap_of(Budget(epsilon=0.1, delta=1e-6), "pure").limit
    assert (pure.amount, pure.delta) == (Fraction(1, 10), Fraction(1, 10**6))


@pytest.mark.parametrize(
    ("budget", "choice", "message"),
    [
        (Budget(epsilon=1.0), {"currency": "gdp"}, "its own currency"),
        (Budget(mu=1.0), {"delta_share": 0.5}, "its own currency"),
        (Budget(epsilon=1.0, delta=1e-6), {"currency": "gold"}, "must be one of"),
        (
            Budget(epsilon=1.0, delta=1e-6),
            {"currency": "pure", "delta_share": 0.5},
            "leave delta_share out",
        ),
        (Budget(epsilon=1.0, delta=1e-6), {"delta_share": 1.0}, "below 1"),
        (Budget(epsilon=1.0, delta=1e-6), {"delta_share": 2.0}, "between 0 and 1"),
    ],
)
def test_choices_without_a_meaning_are_refused(budget, choice, message):
    with pytest.raises(ValueError, match=message):
        cap_of(budget, **choice)
