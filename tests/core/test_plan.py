"""The five shapes of plans: what they promise, what they run, and that they can be written down."""

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from dpfit.core import (
    BindingChangedTheEvent,
    Chain,
    Iterative,
    Key,
    Mechanism,
    Run,
    Scored,
    Select,
    Split,
    Step,
    Until,
    Work,
    plan_from_json,
)
from dpfit.privacy import Basis
from dpfit.privacy import event as events

WHY = Basis("Gaussian mechanism")


@dataclass(frozen=True)
class Shifted(Mechanism):
    """The sum of the data plus a late-bound centre plus noise; enough to see what the shapes do."""

    kind = "test_shifted"
    noise_multiplier: float
    centre: float = 0.0

    @property
    def event(self) -> events.Event:
        return events.Gaussian(self.noise_multiplier)

    def bind(self, released: tuple[Any, ...]) -> "Shifted":
        return replace(self, centre=released[-1]) if released else self

    def run(self, data: Any, run: Run) -> float:
        return self.centre + float(np.sum(data)) + self.noise_multiplier * float(run.noise.gaussian(1)[0])


@dataclass(frozen=True)
class Deceitful(Shifted):
    """Lowers its noise when bound."""

    kind = "test_deceitful"

    def bind(self, released: tuple[Any, ...]) -> "Deceitful":
        return replace(self, noise_multiplier=self.noise_multiplier / 2)


@dataclass(frozen=True)
class Coin(Mechanism):
    """Randomized response on one bit, scored by its own output."""

    kind = "test_coin"
    epsilon: float

    @property
    def event(self) -> events.Event:
        return events.RandomizedResponse(self.epsilon)

    def run(self, data: Any, run: Run) -> Scored:
        truth = bool(np.sum(data))
        keep = bool(run.noise.bernoulli(1 / (1 + np.exp(-self.epsilon)), 1)[0])
        answer = truth if keep else not truth
        return Scored(float(answer), answer)


@dataclass(frozen=True)
class Sign(Key):
    kind = "test_sign"

    def parts(self, rows: Any) -> Any:
        return (np.asarray(rows) > 0).astype(int)


@dataclass(frozen=True)
class Countdown(Iterative):
    kind = "test_countdown"
    iterations: int = 4

    @property
    def event(self) -> events.Event:
        return events.Pure(0.0)

    def init(self, data: Any, run: Run) -> int:
        return 0

    def step(self, state: int, index: int, data: Any, run: Run) -> int:
        return state + index

    def finish(self, state: int) -> str:
        return f"total {state}"


def step(multiplier: float = 1.0, **fields: Any) -> Step:
    return Step(Shifted(multiplier, **fields), WHY)


def test_a_chain_composes_and_binds_to_what_was_released():
    chain = Chain((step(4.0), step(3.0)))
    assert chain.guarantee.mu == pytest.approx((1 / 16 + 1 / 9) ** 0.5)
    first, second = chain.run(np.zeros(3), random_state=1).value
    plain = step(3.0).mechanism
    assert first != 0
    assert abs(second - first) < 40  # noise 3 around the released centre
    bound = chain.stages[1].bound((first,))
    assert bound.mechanism == replace(plain, centre=first)
    assert bound.event == chain.stages[1].event


def test_binding_must_not_change_the_event():
    chain = Chain((step(), Step(Deceitful(2.0), WHY)))
    with pytest.raises(BindingChangedTheEvent, match="only geometry may be bound"):
        chain.run(np.zeros(2), random_state=1)


def test_a_split_gives_each_plan_its_own_rows():
    data = np.array([1.0, 10.0, 100.0, 1000.0])
    by_index = Split((step(1e-9), step(1e-9)), by="index").run(data, random_state=0).value
    assert by_index == pytest.approx((101.0, 1010.0), abs=1e-6)
    signed = np.array([-1.0, 2.0, -3.0, 4.0])
    by_value = Split((step(1e-9), step(1e-9)), by="value", key=Sign()).run(signed, random_state=0).value
    assert by_value == pytest.approx((-4.0, 6.0), abs=1e-6)


def test_coins_put_each_row_in_one_part_with_equal_chances():
    """600 rows in 3 parts: binomial(600, 1/3) counts, two-sided 1e-7."""
    parts = Split((step(1e-9),) * 3, by="coin").run(np.ones(600), random_state=3).value
    assert sum(parts) == pytest.approx(600)
    low, high = binom.ppf([5e-8, 1 - 5e-8], 600, 1 / 3)
    assert all(low <= part <= high for part in parts)


def test_a_split_costs_the_worst_part_and_moved_records_cost_two():
    parts = (step(2.0), step(4.0))
    assert Split(parts, by="index").guarantee.mu == pytest.approx(0.5)
    by_value = Split(parts, by="value", key=Sign())
    assert by_value.guarantee.mu == pytest.approx(0.5 * 2**0.5)
    assert any(a.status == "declared" and "enters" in a.text for a in by_value.basis.assumptions)
    removed = tuple(replace(part, why=replace(WHY, relation="add_remove")) for part in parts)
    assert Split(removed, by="value", key=Sign()).guarantee.mu == pytest.approx(0.5)


def test_index_parts_are_refused_under_add_remove():
    part = replace(step(), why=replace(WHY, relation="add_remove"))
    with pytest.raises(ValueError, match="by='coin'"):
        Split((part, part), by="index")


def test_mixed_relations_and_units_are_refused():
    for change in ({"relation": "add_remove"}, {"unit": "user"}):
        with pytest.raises(ValueError, match="convert one"):
            Chain((step(), replace(step(), why=replace(WHY, **change))))


def test_selection_returns_the_best_of_a_geometric_number_of_runs():
    """P(winner says yes) = sum_k stop (1-stop)^(k-1) (1 - (1-p)^k); 4000 draws, two-sided 1e-7."""
    stop, epsilon = 0.3, 1.0
    plan = Select(Step(Coin(epsilon), Basis("randomized response")), stop)
    assert plan.guarantee.pure == pytest.approx(3 * epsilon)
    no = 1 / (1 + np.exp(-epsilon))  # the truth is no
    expected = 1 - stop * no / (1 - (1 - stop) * no)
    wins = sum(plan.run(np.zeros(1), random_state=seed).value.value for seed in range(4000))
    low, high = binom.ppf([5e-8, 1 - 5e-8], 4000, expected)
    assert low <= wins <= high
    low, high = binom.ppf([5e-8, 1 - 5e-8], 4000, expected * 1.2)
    assert not low <= wins <= high


def test_iterations_are_driven_by_the_runner_with_progress():
    seen: list[float] = []
    plan = Chain((Step(Countdown(), WHY), Step(Countdown(2), WHY)))
    assert plan.run(np.zeros(1), progress=seen.append).value == ("total 6", "total 1")
    assert seen == pytest.approx([0.125, 0.25, 0.375, 0.5, 0.75, 1.0])


def test_progress_of_stages_follows_their_planned_cost():
    """Three passes for one step, one for the other: the first ends at three quarters."""

    @dataclass(frozen=True)
    class Priced(Countdown):
        kind = "test_priced_countdown"

        @property
        def work(self):
            return Work(passes=float(self.iterations))

    seen: list[float] = []
    Chain((Step(Priced(3), WHY), Step(Priced(1), WHY))).run(np.zeros(1), progress=seen.append)
    assert seen == pytest.approx([0.25, 0.5, 0.75, 1.0])


@pytest.mark.parametrize(
    "plan",
    [
        step(2.5),
        Chain((step(1.0), step(2.0))),
        Split((step(1.0), step(2.0)), by="value", key=Sign()),
        Select(Step(Coin(0.5), WHY), 0.25),
        Until(events.GaussianPrivate(0.5), WHY),
        Chain((Split((step(1.0), Chain((step(2.0), step(3.0))))), Until(events.Pure(1.0), WHY))),
    ],
    ids=lambda plan: plan.kind,
)
def test_plans_round_trip_through_json(plan):
    text = json.dumps(plan.to_json(), allow_nan=False)
    again = plan_from_json(json.loads(text))
    assert again == plan
    assert hash(again) == hash(plan)
    assert again.guarantee.to_json() == plan.guarantee.to_json()
    assert again.explain() == plan.explain()


def test_json_of_something_else_is_not_a_plan():
    for value in ({"kind": "gaussian", "noise_multiplier": 1.0}, {"kind": "no_such_plan"}, [], "step", None):
        with pytest.raises(ValueError, match="kind must name a known Plan"):
            plan_from_json(value)


def test_explain_says_what_is_promised_and_why():
    text = Chain((step(4.2247), step(1e6))).explain()
    for part in ("gaussian (noise multiplier 4.225), then", "epsilon = 1 at delta = 1e-6", "one record replaced"):
        assert part in text
    assert "adaptive composition" in text
    for part in (step(4.2247), step(1e6)):
        assert part.explain() in text


def test_explain_says_each_kind_of_part_once():
    text = Split((step(4.2247),) * 3, by="index").explain()
    assert text.count(step(4.2247).explain()) == 1
    assert "part       1 of 1" in text


def test_costs_add_up():
    assert Chain((step(), step(), step())).work == Work(passes=3.0)
    assert Select(Step(Coin(1.0), WHY), 0.25).work == Work(passes=4.0)
