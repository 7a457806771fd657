"""Remaining budget, share of a call, final check: compositions keep the whole budget."""

import dataclasses
import math
import time

import numpy as np
import pytest

from dpfit.privacy import Budget, BudgetUnreachable, calibrate, gaussian
from dpfit.privacy import event as ev
from dpfit.privacy.curve import Composition

BUDGETS = {
    "pure": {"epsilon": 0.8},
    "approximate": {"epsilon": 0.8, "delta": 1e-6},
    "large": {"epsilon": 6.0, "delta": 1e-4},
    "small": {"epsilon": 1e-3, "delta": 1e-9},
    "gdp": {"mu": 0.3},
    "zcdp": {"rho": 0.05},
}
RELATIONS = ("replace", "add_remove")

FIRST = {
    "gaussian": ev.Gaussian(1.0),
    "laplace": ev.Laplace(1.0),
    "repeated laplace": ev.Repeated(ev.Laplace(1.0), 7),
    "l2-laplace": ev.L2Laplace(1.0, 3),
    "discrete gaussian": ev.DiscreteGaussian(1.0),
    "discrete laplace": ev.DiscreteLaplace(1.0),
    "stages": ev.Composed((ev.Gaussian(2.0), ev.Laplace(5.0), ev.Pure(1e-5))),
    "sampled": ev.Repeated(ev.Sampled(ev.Gaussian(1.0), 0.1), 20),
    "parallel": ev.Parallel((ev.Gaussian(1.0), ev.Laplace(3.0)), "value"),
    "group": ev.Group(ev.Laplace(1.0), 3),
    "objective": ev.ObjectivePerturbation(1.0, 1e-5, "logistic"),
    "total variation": ev.WithinTotalVariation(ev.Laplace(1.0), 1e-12),
}
"""Noise that is scaled to a share of a budget, and spent first."""

AFTER = {
    "gaussian": ev.Gaussian,
    "many gaussians": lambda level: ev.Repeated(ev.Gaussian(level), 9),
    "laplace": ev.Laplace,
    "bounded range": lambda level: ev.Repeated(ev.BoundedRange(1 / level), 4),
    "declared": lambda level: ev.GaussianPrivate(1 / level),
    "mixed": lambda level: ev.Composed(
        (ev.Gaussian(level), ev.Laplace(2 * level), ev.Pure(0.3 / level))
    ),
    "zcdp": lambda level: ev.ZeroConcentrated(0.5 / level**2),
}
"""What a solver may do with the rest."""


def share_of(template, budget, share):
    """The template with as much noise as meets a share of the budget; None if it never does."""
    part = budget.split(share)[0]
    if budget.kind == "approximate":
        part = dataclasses.replace(
            budget, epsilon=share * budget.epsilon, delta=share * budget.delta
        )
    try:
        return calibrate(template, part)
    except BudgetUnreachable:
        return None


CASES = [
    (kind, relation) for kind in ("pure", "approximate", "gdp", "zcdp") for relation in RELATIONS
]


@pytest.mark.parametrize(
    ("kind", "relation"), [*CASES, ("large", "replace"), ("small", "add_remove")]
)
@pytest.mark.parametrize("name", FIRST)
def test_whatever_keeps_the_remainder_keeps_the_whole(name, kind, relation):
    budget = Budget(**BUDGETS[kind], relation=relation)
    rng = np.random.default_rng([ord(letter) for letter in name + kind + relation])
    first = share_of(FIRST[name], budget, float(rng.uniform(0.05, 0.95)))
    if first is None:
        with pytest.raises(BudgetUnreachable):
            budget.remaining_after(FIRST[name].scaled(1e6))
        return
    rest = budget.remaining_after(first)
    assert (rest.relation, rest.unit) == (budget.relation, budget.unit)
    assert rest.kind == ("gdp" if budget.kind == "approximate" else budget.kind)
    makers = [
        AFTER["laplace" if kind == "pure" else "gaussian"],
        *rng.permutation([*AFTER.values()])[:3],
    ]
    for make in makers:
        try:
            after = calibrate(make, rest)
        except BudgetUnreachable:
            continue
        assert rest.admits(after)
        assert budget.admits(ev.Composed((first, after)))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("kind", BUDGETS)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_hardly_anything_of_the_remainder_is_lost(kind, relation, share):
    """The remainder of a Gaussian event is that of the squares; a percent more would not fit."""
    budget = Budget(**BUDGETS[kind], relation=relation)
    template = ev.Laplace(1.0) if kind == "pure" else ev.Gaussian(1.0)
    first = calibrate(template, budget.split(share)[0])
    rest = budget.remaining_after(first)
    more = calibrate(template, rest).scaled(0.99)
    assert not budget.admits(ev.Composed((first, more)))
    for name in ("epsilon", "mu", "rho"):
        left = getattr(budget.split(share)[1], name)
        if left is not None:
            assert getattr(rest, name) == pytest.approx(left, rel=1e-6)


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_remainder_of_a_grid_is_near_the_largest(relation):
    """Keeping back a percent of delta costs less than a thousandth of the whole, here of mu."""
    budget = Budget(epsilon=1.0, delta=1e-6, relation=relation)
    first = ev.Repeated(ev.Laplace(40.0), 10)
    rest = budget.remaining_after(first).mu
    assert not budget.admits(ev.Composed((first, ev.GaussianPrivate(rest * 1.003))))


@pytest.mark.parametrize(
    ("event", "budget", "hint"),
    [
        (ev.Gaussian(10.0), Budget(epsilon=1.0), "no cost in epsilon"),
        (ev.DiscreteGaussian(0.5), Budget(mu=1.0), "no cost in mu"),
        (ev.Approximate(0.1, 1e-9), Budget(rho=1.0), "no cost in rho"),
        (
            ev.WithinTotalVariation(ev.Laplace(10.0), 1e-9),
            Budget(epsilon=1.0),
            "no cost in epsilon",
        ),
        (ev.Laplace(1.0), Budget(epsilon=1.0), "leaves nothing"),
        (ev.Laplace(0.5), Budget(epsilon=1.0), "leaves nothing"),
        (ev.Gaussian(1.0), Budget(mu=1.0), "leaves nothing"),
        (ev.Gaussian(0.5), Budget(mu=1.0), "leaves nothing"),
        (ev.Approximate(0.1, 1e-5), Budget(epsilon=1.0, delta=1e-6), "leaves nothing"),
        (ev.Gaussian(4.0), Budget(epsilon=1.0, delta=1e-6), "leaves nothing"),
        (
            ev.WithinTotalVariation(ev.Laplace(10.0), 1e-5),
            Budget(epsilon=1.0, delta=1e-6),
            "leaves nothing",
        ),
    ],
)
def test_no_remainder_raises_with_a_hint(event, budget, hint):
    with pytest.raises(BudgetUnreachable, match=hint):
        budget.remaining_after(event)


def test_unit_and_relation_stay():
    budget = Budget(epsilon=1.0, delta=1e-6, unit="user", relation="add_remove")
    for part in (budget.remaining_after(ev.Gaussian(10.0)), budget.per_call(3), budget.per_call(1)):
        assert (part.unit, part.relation) == ("user", "add_remove")


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("kind", BUDGETS)
@pytest.mark.parametrize("calls", [1, 2, 3, 7, 10, 1000])
def test_calls_that_keep_their_share_keep_the_whole(kind, relation, calls):
    budget = Budget(**BUDGETS[kind], relation=relation)
    share = budget.per_call(calls)
    kept = []
    for make in AFTER.values():
        try:
            kept.append(calibrate(make, share))
        except BudgetUnreachable:
            continue
    assert len(kept) >= 2
    for call in kept:
        assert budget.admits(ev.Repeated(call, calls))
    mixed = tuple(kept[i % len(kept)] for i in range(min(calls, 20)))
    assert budget.admits(ev.Composed(mixed))
    loudest = calibrate(ev.Laplace if kind == "pure" else ev.Gaussian, share).scaled(0.99)
    assert not budget.admits(ev.Repeated(loudest, calls))


@pytest.mark.parametrize("calls", [0, -1, 1.5, True])
def test_the_number_of_calls_is_a_whole_number(calls):
    with pytest.raises(ValueError, match="n_calls"):
        Budget(epsilon=1.0).per_call(calls)


def test_the_largest_share_of_a_call_is_found_to_the_last_digit():
    """Ten times the next larger double would be more than the whole."""
    for whole in (1.0, 0.3, 7.7):
        each = Budget(epsilon=whole).per_call(10).epsilon
        assert not Budget(epsilon=whole).admits(ev.Repeated(ev.Pure(math.nextafter(each, 9.0)), 10))


@pytest.mark.parametrize(
    "event",
    [
        ev.Composed((ev.L2Laplace(10.0, 4), ev.L2Laplace(1.2, 9))),
        ev.Repeated(ev.Laplace(10.0), 9),
        ev.Composed((ev.Gaussian(10.0), ev.Gaussian(5.0))),
        ev.Composed((ev.Gaussian(30.0), ev.Laplace(20.0), ev.Repeated(ev.BoundedRange(1e-3), 50))),
    ],
)
def test_closed_forms_are_asked_before_a_grid(event, monkeypatch):
    def no_grid(self):
        raise AssertionError("a grid was made")

    monkeypatch.setattr(Composition, "compose_on_grid", no_grid)
    budget = Budget(epsilon=1.0, delta=1e-6)
    assert budget.admits(event)
    fastest = min(_seconds(budget, event) for _ in range(20))
    assert fastest < 1e-3


def _seconds(budget, event):
    start = time.perf_counter()
    budget.admits(event)
    return time.perf_counter() - start


def test_closed_forms_say_nothing_of_a_total_variation_term():
    """The sampler's distance is part of delta, however small its ideal epsilon."""
    budget = Budget(epsilon=1.0, delta=1e-6)
    assert budget.admits(ev.WithinTotalVariation(ev.Pure(0.5), 2.6e-7))
    assert not budget.admits(ev.WithinTotalVariation(ev.Pure(0.5), 2.7e-7))
    assert not Budget(epsilon=1.0).admits(ev.WithinTotalVariation(ev.Pure(0.5), 1e-12))


# Calibration returns what it was asked to make.


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """Something with an event."""

    noise_multiplier: float

    @property
    def event(self):
        return ev.Gaussian(self.noise_multiplier)


def test_calibrate_returns_what_make_returned():
    made = []

    def make(level):
        made.append(Mechanism(level))
        return made[-1]

    budget = Budget(epsilon=1.0, delta=1e-6)
    found = calibrate(make, budget)
    assert any(found is mechanism for mechanism in made)
    assert len({mechanism.noise_multiplier for mechanism in made}) == len(made) < 40
    assert found.noise_multiplier == calibrate(ev.Gaussian, budget).noise_multiplier
    assert found.noise_multiplier == calibrate(ev.Gaussian(1.0), budget).noise_multiplier
    assert found.noise_multiplier == pytest.approx(1 / gaussian.mu(1.0, 1e-6), rel=1e-9)


def test_an_event_that_holds_an_event_is_not_mistaken_for_its_part():
    """`Repeated` has an attribute ``event``, too: the whole of it must meet the budget."""
    budget = Budget(mu=0.5)
    found = calibrate(lambda level: ev.Repeated(ev.Gaussian(level), 100), budget)
    assert found.event.noise_multiplier == pytest.approx(20.0)


@pytest.mark.parametrize(
    "make", [ev.Gaussian, Mechanism, lambda level: ev.Repeated(ev.DiscreteGaussian(level), 3)]
)
def test_a_pure_budget_is_refused_with_the_way_out(make):
    with pytest.raises(
        BudgetUnreachable, match=r"pure epsilon-DP; give a delta \(below 0.01 / n\)"
    ):
        calibrate(make, Budget(epsilon=1.0))
    with pytest.raises(
        BudgetUnreachable, match=r"pure epsilon-DP; give a delta \(below 0.01 / n\)"
    ):
        _ = Budget(epsilon=1.0).gaussian_mu


# Events recurse once.

SHAPES = (
    ev.Composed((ev.Gaussian(1.0), ev.Pure(0.1))),
    ev.Composed(()),
    ev.Parallel((ev.Laplace(1.0), ev.Gaussian(2.0)), "value"),
    ev.Repeated(ev.Gaussian(1.0), 3),
    ev.Sampled(ev.Gaussian(1.0), 0.1, zero_out=0.5),
    ev.Selected(ev.Laplace(1.0), 0.1, 2.0),
    ev.Filtered(ev.Pure(1.0)),
    ev.WithinTotalVariation(ev.Gaussian(1.0), 1e-9),
    ev.CloseInRenyi(ev.Gaussian(1.0), 28.6, 0.5, 0.5),
    ev.Group(ev.Gaussian(1.0), 3),
    ev.Replaced(ev.Gaussian(1.0)),
    ev.Gaussian(1.0),
    ev.Renyi((2.0, 3.0), (0.1, 0.2)),
)


@pytest.mark.parametrize("event", SHAPES)
def test_parts_are_all_events_inside_and_rebuild_the_event(event):
    inside = []
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        inside += [
            part
            for part in (value if isinstance(value, tuple) else (value,))
            if isinstance(part, ev.Event)
        ]
    assert event.parts == tuple(inside)
    assert event.rebuilt(event.parts) == event
    with pytest.raises(ValueError, match="parts"):
        event.rebuilt((*event.parts, ev.Pure(0.1)))


def test_every_kind_that_holds_events_is_among_these():
    """A kind that does not name its event field would be skipped by every tree walk."""
    holders = {
        cls
        for cls in ev.Event.__subclasses__()
        if {"event", "events", "cap"} & set(cls.__annotations__)
    }
    assert holders == {type(event) for event in SHAPES if type(event).inside}


def test_fold_goes_from_the_leaves_upwards():
    event = ev.Repeated(ev.Composed((ev.Gaussian(1.0), ev.Sampled(ev.Pure(0.1), 0.5))), 3)
    assert event.fold(lambda part, below: f"{part.kind}({' '.join(below)})") == (
        "repeated(composed(gaussian() sampled(pure())))"
    )


@pytest.mark.parametrize("delta", [1e-12, 1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize("epsilon", [1e-8, 1e-6, 1e-5, 1e-4, 1e-2, 1.0, 30.0])
def test_two_gaussian_parts_of_a_split_keep_the_whole(epsilon, delta):
    """At tiny budgets rounding decides: nine settings missed delta by its last digits."""
    budget = Budget(epsilon=epsilon, delta=delta)
    parts = budget.split(0.1)
    assert budget.admits(ev.Composed(tuple(calibrate(ev.Gaussian, part) for part in parts)))
