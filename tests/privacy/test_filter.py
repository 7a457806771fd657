"""Privacy filters against adversaries that choose each step after seeing the answers so far."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from dpfit.privacy import Filter, FilterExhausted, gaussian
from dpfit.privacy import event as ev
from dpfit.privacy.accountant import privacy_curve
from dpfit.privacy.cost import CostUndefined, privacy_cost
from oracles import discrete
from oracles.continuous import gaussian_delta_any, rule


def limit(cap):
    return Filter(ev.Filtered(cap), "replace")


CAPS = [
    (ev.Pure(1.0), ev.Pure(0.125), 8),
    (ev.ZeroConcentrated(1.0), ev.ZeroConcentrated(0.125), 8),
    (ev.GaussianPrivate(1.0), ev.GaussianPrivate(0.25), 16),
    (ev.Pure(1.0), ev.Laplace(8.0), 8),
    (ev.GaussianPrivate(1.0), ev.Gaussian(4.0), 16),
    (ev.ZeroConcentrated(0.5), ev.Gaussian(4.0), 16),
]


@pytest.mark.parametrize(("cap", "step", "times"), CAPS)
def test_equal_shares_fit_exactly(cap, step, times):
    """Sums are exact: n shares of 1/n fit, not one more, and nothing drifts."""
    purse = limit(cap)
    for _ in range(times):
        purse.charge(step)
    assert purse.left == 0
    assert not purse.fits(step)


def test_ten_tenths_fit():
    """The class promises it: ten charges of a tenth of the cap fit."""
    for whole in (1.0, 0.7, 3.0):
        purse = limit(ev.Pure(whole))
        for _ in range(10):
            purse.charge(ev.Pure(whole / 10))


@pytest.mark.parametrize(("cap", "step", "times"), CAPS[:3])
def test_the_smallest_excess_does_not_fit(cap, step, times):
    purse = limit(cap)
    for _ in range(times - 1):
        purse.charge(step)
    name = {"pure": "epsilon", "zcdp": "rho", "gdp": "mu"}[step.kind]
    more = type(step)(math.nextafter(getattr(step, name), math.inf))
    assert not purse.fits(more)
    with pytest.raises(FilterExhausted):
        purse.charge(more)
    purse.charge(step)


def test_a_refused_step_charges_nothing():
    purse = limit(ev.Pure(1.0))
    purse.charge(ev.Pure(0.75))
    with pytest.raises(FilterExhausted, match=r"asked for 0\.5, left 0\.25 of 1"):
        purse.charge(ev.Pure(0.5))
    assert purse.left == Fraction(1, 4)


def test_a_million_tiny_steps_are_added_without_drift():
    purse = limit(ev.Pure(1.0))
    for _ in range(4096):
        purse.charge(ev.Pure(2.0**-20))
    assert purse.left == 1 - Fraction(4096, 2**20)


@pytest.mark.parametrize(
    ("cap", "event"),
    [
        (ev.Pure(1.0), ev.Gaussian(100.0)),
        (ev.Pure(1.0), ev.Approximate(0.1, 1e-9)),
        (ev.GaussianPrivate(1.0), ev.ZeroConcentrated(1e-6)),
        (ev.GaussianPrivate(1.0), ev.DiscreteGaussian(0.5)),
        (ev.ZeroConcentrated(1.0), ev.Approximate(0.1, 1e-9)),
        (ev.ZeroConcentrated(1.0), ev.WithinTotalVariation(ev.Gaussian(100.0), 1e-12)),
        (ev.Pure(1.0), ev.Composed((ev.Pure(0.1), ev.WithinTotalVariation(ev.Pure(0.1), 1e-12)))),
        (ev.GaussianPrivate(1.0), ev.Renyi((2.0, 4.0), (1e-6, 1e-6))),
    ],
)
def test_events_without_a_price_are_refused(cap, event):
    with pytest.raises(FilterExhausted, match="has no cost"):
        limit(cap).charge(event)


@pytest.mark.parametrize("currency", ["pure", "zcdp", "gdp"])
@pytest.mark.parametrize(
    "event",
    [
        ev.BoundedRange(math.inf),
        ev.Pure(math.inf),
        ev.RandomizedResponse(math.inf),
        ev.Approximate(math.inf, 0.0),
        ev.GaussianPrivate(math.inf),
        ev.ZeroConcentrated(math.inf),
        ev.Group(ev.BoundedRange(math.inf), 2),
    ],
    ids=lambda e: repr(e),
)
def test_an_unbounded_promise_is_never_free(event, currency):
    """A mechanism without any privacy must have no price, least of all zero."""
    with pytest.raises(CostUndefined):
        privacy_cost(event, "replace", currency)


@pytest.mark.parametrize("currency", ["pure", "zcdp", "gdp"])
@pytest.mark.parametrize(
    "event",
    [
        ev.Laplace(3.0),
        ev.RandomizedResponse(0.7, 3),
        ev.BoundedRange(0.7),
        ev.L2Laplace(3.0, 4),
        ev.DiscreteLaplace(3.0),
        ev.Group(ev.Laplace(3.0), 3),
        ev.Group(ev.BoundedRange(0.7), 2),
        ev.Parallel((ev.Laplace(3.0), ev.Pure(0.2))),
        ev.Parallel((ev.Laplace(3.0), ev.Pure(0.2)), "value"),
        ev.Sampled(ev.Laplace(3.0), 0.2),
        ev.Selected(ev.Pure(0.2), 0.1),
        ev.Composed((ev.Laplace(3.0), ev.Repeated(ev.Pure(0.1), 3))),
    ],
    ids=lambda e: e.kind,
)
def test_prices_are_those_of_the_curve(event, currency):
    """Never below the accounted value (but for its rounding), and no formula is a factor off."""
    law = privacy_curve(event, "replace")
    accounted = {"pure": law.pure, "zcdp": law.rho, "gdp": law.mu**2}[currency]
    price = float(privacy_cost(event, "replace", currency).amount)
    # A group in GDP currency pays size^2 times the square of mu(epsilon), a little above mu(size *
    # epsilon)^2.
    assert (
        accounted * (1 - 1e-9) <= price <= accounted * (1.05 if event.kind == "group" else 1 + 1e-9)
    )


def test_a_delta_is_charged_in_its_own_column():
    price = privacy_cost(ev.Repeated(ev.Approximate(0.1, 1e-7), 10), "replace", "pure")
    assert (price.amount, price.delta) == (1, Fraction(1, 10**6))


@pytest.mark.parametrize(
    "cap", [ev.Approximate(1.0, 1e-6), ev.Gaussian(1.0), ev.BoundedRange(1.0), "pure", None]
)
def test_only_additive_currencies_can_cap(cap):
    with pytest.raises(ValueError, match="must be a Pure, GaussianPrivate or ZeroConcentrated"):
        ev.Filtered(cap)


def transcripts(cap, strategy, depth):
    """Transcript laws under both secrets if ``strategy(outputs)`` picks each epsilon.

    A step that the filter refuses ends the interaction, as the runner would.
    """
    laws = []
    for secret in (0, 1):
        law = {}

        def walk(outputs, weight, charged, secret=secret, law=law):
            purse = limit(cap)
            for epsilon in charged:
                purse.charge(ev.RandomizedResponse(epsilon))
            epsilon = strategy(outputs)
            if len(outputs) == depth or not purse.fits(ev.RandomizedResponse(epsilon)):
                law[outputs] = law.get(outputs, 0.0) + weight
                return
            truth = math.exp(epsilon) / (1 + math.exp(epsilon))
            for answer in (0, 1):
                walk(
                    (*outputs, answer),
                    weight * (truth if answer == secret else 1 - truth),
                    (*charged, epsilon),
                )

        walk((), 1.0, ())
        laws.append(law)
    keys = sorted(laws[0])
    assert keys == sorted(laws[1])
    return tuple(np.array([law[key] for key in keys]) for law in laws)


def strategies(choices, depth):
    """All deterministic rules for the first steps: a choice by history below ``depth``."""
    histories = [h for n in range(depth) for h in itertools.product((0, 1), repeat=n)]
    for picks in itertools.product(choices, repeat=len(histories)):
        table = dict(zip(histories, picks, strict=True))
        yield lambda outputs, table=table: table.get(outputs, choices[0])


GREEDY = [
    lambda outputs: 0.5 if not outputs or outputs[-1] else 0.1,
    lambda outputs: 0.1 if not outputs or outputs[-1] else 0.5,
    lambda outputs: 0.05 + 0.3 * abs(sum(2 * o - 1 for o in outputs)),
    lambda outputs: 0.6 / (1 + sum(outputs)),
]


def test_pure_cap_holds_for_every_adaptive_strategy():
    worst = 0.0
    for strategy in [*strategies((0.3, 0.6), 3), *GREEDY]:
        p, q = transcripts(ev.Pure(1.0), strategy, 4)
        worst = max(worst, float(np.max(np.abs(np.log(p / q)))))
    assert worst <= 1.0 + 1e-12
    assert worst >= 0.9, "an adversary that stays far below the cap tests nothing"


def test_zcdp_cap_holds_for_every_adaptive_strategy():
    worst = 0.0
    for strategy in [*strategies((0.4, 0.8), 3), *GREEDY]:
        p, q = transcripts(ev.ZeroConcentrated(0.4), strategy, 4)
        for order in (1.01, 1.5, 2.0, 5.0, 20.0, 100.0):
            divergence = max(discrete.renyi(p, q, order), discrete.renyi(q, p, order))
            assert divergence <= 0.4 * order + 1e-12
            worst = max(worst, divergence / (0.4 * order))
    assert worst >= 0.6, "an adversary that stays far below the cap tests nothing"


@pytest.mark.parametrize("first", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("threshold", [-1.0, 0.0, 0.5, 1.5])
@pytest.mark.parametrize("spend_above", [True, False])
def test_gdp_cap_holds_when_the_second_step_depends_on_the_first(first, threshold, spend_above):
    """The second step has the full remaining budget above a threshold, else none or half."""
    purse = limit(ev.GaussianPrivate(1.0))
    purse.charge(ev.GaussianPrivate(first))
    left = math.sqrt(float(purse.left)) * (1 - 1e-12)
    purse.charge(ev.GaussianPrivate(left))
    x, w = rule(np.unique(np.append(np.linspace(-10, 11, 300), threshold)))
    for rest in (0.0, 0.5 * left):
        second = np.where((x > threshold) == spend_above, left, rest)
        for epsilon in (0.0, 0.2, 1.0, 2.0):
            forward = w @ (
                norm.pdf(x - first)
                * gaussian_delta_any(second, epsilon - (first * x - first**2 / 2))
            )
            reverse = w @ (
                norm.pdf(x) * gaussian_delta_any(second, epsilon + (first * x - first**2 / 2))
            )
            assert max(forward, reverse) <= float(gaussian.delta(1.0, epsilon)) + 1e-10


def test_gdp_cap_is_attained_without_adaptivity():
    """The oracle above attains the cap without adaptivity, so it sees too large a cap."""
    first, left = 0.6, 0.8
    x, w = rule(np.linspace(-10, 11, 300))
    forward = w @ (
        norm.pdf(x - first)
        * gaussian_delta_any(np.full_like(x, left), 1.0 - (first * x - first**2 / 2))
    )
    assert forward == pytest.approx(float(gaussian.delta(1.0, 1.0)), rel=1e-8)
