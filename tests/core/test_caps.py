"""No interaction answers beyond its cap, in whatever order its adversarial queries come."""

import numpy as np
import pytest

from dpfit.catalogue import ENTRIES
from dpfit.core import InteractionClosed
from dpfit.privacy import Budget, FilterExhausted
from dpfit.privacy.accountant import privacy_curve
from dpfit.privacy.event import Composed, Filtered

BUDGETS = {
    "pure": {"epsilon": 1.0},
    "approximate": {"epsilon": 1.0, "delta": 1e-6},
    "gdp": {"mu": 1.0},
    "zcdp": {"rho": 0.5},
}

_ADDS = {"pure": "pure", "gdp": "mu", "zcdp": "rho"}
"""What adds up under a filter's cap, by the kind of its event."""


@pytest.fixture(scope="module")
def planned():
    """Every entry with a plan."""
    return {row: _planned(row, row.guarantees[0], row.relations[0]) for row in ENTRIES}


@pytest.fixture(scope="module")
def openable(planned):
    """The entries whose plans are opened on data."""
    return {
        row: plan
        for row, plan in planned.items()
        if plan.interactive is not None and not plan.observes
    }


def _planned(row, kind, relation):
    algorithm = row.load()
    return algorithm.plan(
        algorithm.example(relation).problem, Budget(**BUDGETS[kind], relation=relation)
    )


def test_descents_searches_and_filters_can_be_opened(openable):
    names = {row.name for row in openable}
    assert {"noisy_gd", "above_threshold", "sparse_vector", "under_filter"} <= names


def test_no_entry_that_drives_itself_makes_more_steps_than_planned(openable):
    for row, plan in openable.items():
        if plan.interactive.self_driven:
            _attack(plan, row.load().example(row.relations[0]).data, (None,), 0)


def test_the_cap_holds_for_every_order_of_adversarial_queries(openable):
    asked = [row for row, plan in openable.items() if not plan.interactive.self_driven]
    assert len(asked) >= 3
    for row, relation in [(each, relation) for each in asked for relation in each.relations]:
        _, data, neighbour = row.load().example(relation)
        for kind in row.guarantees:
            plan = _planned(row, kind, relation)
            queries = plan.interactive.adversarial(data, neighbour)
            for seed in range(6):
                _attack(plan, data, queries, seed)


def test_streams_take_no_batch_beyond_their_horizon_in_any_order(planned):
    observing = [row for row, plan in planned.items() if plan.observes]
    assert "prefix_sums" in {row.name for row in observing}
    for row, relation in [(each, relation) for each in observing for relation in each.relations]:
        batches = row.load().example(relation).data
        for kind in row.guarantees:
            plan = _planned(row, kind, relation)
            for seed in range(3):
                _feed(plan, batches, np.random.default_rng(seed))


def _feed(plan, batches, rng):
    """Feed random batches of the example, then three more."""
    session = plan.open(random_state=int(rng.integers(100)))
    for _ in range(plan.interactive.rounds):
        session.observe(batches[rng.integers(len(batches))])
    last = session.last
    for _ in range(3):
        with pytest.raises(InteractionClosed):
            session.observe(batches[rng.integers(len(batches))])
    np.testing.assert_array_equal(session.last, last)


def _attack(plan, data, queries, seed):
    """Ask random adversarial queries until the interaction ends; then ask all of them again."""
    rng = np.random.default_rng(seed)
    interaction = plan.open(data, random_state=seed)
    answered, refused, charged = 0, 0, []
    rounds = plan.interactive.rounds
    while answered < rounds + 3 and refused < 3:
        query = queries[rng.integers(len(queries))]
        try:
            interaction.step(query)
        except (InteractionClosed, FilterExhausted):
            refused += 1
            continue
        answered += 1
        charged.append(query)
    assert refused == 3
    assert answered <= rounds
    if isinstance(plan.event, Filtered):
        spent = Composed(tuple(query.event for query in charged))
        adds = _ADDS[plan.event.cap.kind]
        cap, paid = (privacy_curve(e, plan.basis.relation) for e in (plan.event.cap, spent))
        assert getattr(paid, adds) <= getattr(cap, adds) * (1 + 1e-12)
    else:
        for query in queries:
            with pytest.raises(InteractionClosed):
                interaction.step(query)
    interaction.close()
    with pytest.raises(InteractionClosed):
        interaction.step(queries[0])
