"""The four shapes of plans: what they promise, what they run, and that they can be written down."""

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from dpfit.core import (
    Binding,
    BindingChangedTheEvent,
    Composition,
    Last,
    Leak,
    Loop,
    Mechanism,
    Run,
    Scored,
    Selection,
    Stage,
    Step,
    Transformation,
    TransformedPlan,
    Work,
    plan_from_json,
)
from dpfit.core.explain import in_words
from dpfit.data.dataset import InMemory
from dpfit.data.view import view_of
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

    def run(self, data: Any, run: Run) -> float:
        return self.centre + total(data) + self.noise_multiplier * float(run.noise.gaussian(1)[0])


def total(data: Any) -> float:
    """The sum of the labels of records, or of plain numbers."""
    return (
        float(np.sum(data.given))
        if data.dataset is None
        else sum(float(c.labels.sum()) for c in data.chunks())
    )


@dataclass(frozen=True)
class CentredAt(Binding):
    """Moves the centre to what a stage released."""

    kind = "test_centred_at"
    stage: str

    def __call__(self, plan, released):
        return plan.map_steps(lambda mechanism: replace(mechanism, centre=released[self.stage]))

    def stand_in(self, plan):
        return {self.stage: 0.0}


@dataclass(frozen=True)
class Deceitful(Binding):
    """Lowers the noise of what it binds; ``tried``: whether planning can find out."""

    kind = "test_deceitful"
    tried: bool = False

    def __call__(self, plan, released):
        return plan.map_steps(
            lambda mechanism: replace(mechanism, noise_multiplier=mechanism.noise_multiplier / 2)
        )

    def stand_in(self, plan):
        return {} if self.tried else None


@dataclass(frozen=True)
class Doubled(Transformation):
    """Every number twice; the value is halved."""

    kind = "test_doubled"

    def transform(self, data, run):
        return view_of(2 * np.asarray(data.given), data.relation, data.unit, run.noise)

    def inverse(self, value):
        return value / 2


@dataclass(frozen=True)
class Pairs(Transformation):
    """Units become two records each."""

    kind = "test_pairs"

    def transform(self, data, run):
        return data

    def event(self, inner):
        return events.Group(inner, 2)

    def basis(self, inner):
        return replace(inner, theorem=f"{inner.theorem}; group privacy")


@dataclass(frozen=True)
class Coin(Mechanism):
    """Randomized response on one bit, scored by its own output."""

    kind = "test_coin"
    epsilon: float

    @property
    def event(self) -> events.Event:
        return events.RandomizedResponse(self.epsilon)

    def run(self, data: Any, run: Run) -> Scored:
        truth = bool(total(data))
        keep = bool(run.noise.bernoulli(1 / (1 + np.exp(-self.epsilon)), 1)[0])
        answer = truth if keep else not truth
        return Scored(float(answer), answer)


@dataclass(frozen=True)
class Countdown(Loop):
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


def two(first: Step, second: Step, binding: Binding | None = None, **options: Any) -> Composition:
    return Composition((Stage("one", first), Stage("two", second, binding)), **options)


def parts(*plans: Step, shares: tuple[float, ...] = (0.5, 0.5)) -> Composition:
    return Composition(
        tuple(Stage(f"part {i}", plan, part=i) for i, plan in enumerate(plans)), shares
    )


def test_a_composition_binds_by_name_to_what_was_released():
    plan = two(step(4.0), step(3.0), CentredAt("one"))
    assert plan.guarantee.mu == pytest.approx((1 / 16 + 1 / 9) ** 0.5)
    release = plan.run(np.zeros(3), random_state=1)
    first, second = release.value
    alone = step(3.0, centre=first)
    assert first != 0
    assert release.stages == {"one": first, "two": second}
    assert release.output == second
    bound = plan.stages[1].binding.bound(plan.stages[1].plan, {"one": first})
    assert bound == alone
    assert bound.event == plan.stages[1].plan.event


def test_a_binding_sees_names_wherever_the_stage_stands():
    """A stage in between does not shift what a binding reads."""
    stages = (
        Stage("one", step(1e-9)),
        Stage("other", step(1e9)),
        Stage("two", step(1e-9), CentredAt("one")),
    )
    one, _, two_ = Composition(stages).run(np.array([5.0]), random_state=1).value
    assert two_ == pytest.approx(one + 5.0, abs=1e-6)


def test_binding_must_not_change_the_event():
    plan = two(step(), step(2.0), Deceitful())
    with pytest.raises(BindingChangedTheEvent, match="only geometry may be bound"):
        plan.run(np.zeros(2), random_state=1)
    with pytest.raises(BindingChangedTheEvent, match="only geometry may be bound"):
        two(step(), step(2.0), Deceitful(tried=True))


def test_only_what_combine_keeps_is_released():
    plan = two(step(1e-9), step(1e-9), combine=Last())
    release = plan.run(np.array([5.0]), random_state=1)
    assert release.value == pytest.approx(5.0, abs=1e-6)
    assert release.stages == {}


def test_events_have_one_form():
    nested = Composition((Stage("a", two(step(1.0), step(2.0))), Stage("b", step(3.0))))
    assert nested.event == events.Composed(tuple(events.Gaussian(m) for m in (1.0, 2.0, 3.0)))
    assert Composition((Stage("only", step(2.0)),)).event == events.Gaussian(2.0)


def test_parts_are_disjoint_and_all_records_are_in_one():
    data = InMemory(np.zeros((4, 1)), [1.0, 10.0, 100.0, 1000.0])
    one, two_ = parts(step(1e-9), step(1e-9)).run(data, random_state=0).value
    assert one + two_ == pytest.approx(1111.0, abs=1e-6)
    assert all(
        sorted(str(round(value)).count(digit) for digit in "1") == [2] for value in (one, two_)
    )


def test_coins_put_each_row_in_one_part_with_equal_chances():
    """600 rows in 3 parts under add/remove: binomial(600, 1/3) counts, two-sided 1e-7."""
    why = replace(WHY, relation="add_remove")
    plan = parts(*(replace(step(1e-9), why=why),) * 3, shares=(1 / 3,) * 3)
    values = plan.run(InMemory(np.zeros((600, 1)), np.ones(600)), random_state=3).value
    assert sum(values) == pytest.approx(600)
    low, high = binom.ppf([5e-8, 1 - 5e-8], 600, 1 / 3)
    assert all(low <= value <= high for value in values)


def test_disjoint_parts_cost_the_worst_of_them():
    assert parts(step(2.0), step(4.0)).guarantee.mu == pytest.approx(0.5)
    both = Composition(
        (Stage("all", step(2.0)), Stage("a", step(2.0), part=0), Stage("b", step(4.0), part=1)),
        (0.5, 0.5),
    )
    assert both.guarantee.mu == pytest.approx(0.5 * 2**0.5)
    assert "parallel composition" in both.basis.theorem


def test_parts_need_shares_and_names():
    for bad in (
        lambda: Composition((Stage("a", step(), part=0),)),
        lambda: Composition((Stage("a", step()), Stage("a", step()))),
        lambda: Composition((Stage("a", step(), part=0),), (0.5, 0.5)),
        lambda: Composition((Stage("a", step(), part=0), Stage("b", step(), part=1)), (0.9, 0.9)),
        lambda: Composition(()),
    ):
        with pytest.raises(ValueError, match=r"stage|share|name"):
            bad()


def test_a_transformation_changes_what_the_plan_sees_and_what_its_value_means():
    plan = TransformedPlan.of(Doubled(), step(1e-9))
    assert plan.run(np.array([1.0, 2.0]), random_state=0).value == pytest.approx(3.0, abs=1e-6)
    assert plan.event == events.Gaussian(1e-9)
    assert plan.explain() == step(1e-9).explain()


def test_a_transformation_that_changes_the_event_says_so():
    plan = TransformedPlan.of(Pairs(), step(2.0))
    assert plan.guarantee.mu == pytest.approx(1.0)
    assert "group privacy" in plan.basis.theorem
    assert "part       1 of 1" in plan.explain()


def test_notes_move_to_the_outer_plan_and_join_its_basis():
    leaky = step().with_notes(Leak("ranges were read off the data"))
    assert leaky.basis.assumptions[-1].text == "ranges were read off the data"
    outer = TransformedPlan.of(Doubled(), leaky)
    assert outer.notes == leaky.notes
    assert outer.plan.notes == ()
    assert outer.basis == leaky.basis


def test_mixed_relations_and_units_are_refused():
    for change in ({"relation": "add_remove"}, {"unit": "user"}):
        with pytest.raises(ValueError, match="convert one"):
            two(step(), replace(step(), why=replace(WHY, **change)))


def test_selection_returns_the_best_of_a_geometric_number_of_runs():
    """P(winner says yes) = sum_k stop (1-stop)^(k-1) (1 - (1-p)^k); 4000 draws, two-sided 1e-7."""
    stop, epsilon = 0.3, 1.0
    plan = Selection(Step(Coin(epsilon), Basis("randomized response")), stop)
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
    plan = two(Step(Countdown(), WHY), Step(Countdown(2), WHY))
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
    two(Step(Priced(3), WHY), Step(Priced(1), WHY)).run(np.zeros(1), progress=seen.append)
    assert seen == pytest.approx([0.25, 0.5, 0.75, 1.0])


@pytest.mark.parametrize(
    "plan",
    [
        step(2.5),
        two(step(1.0), step(2.0), CentredAt("one"), combine=Last()),
        parts(step(1.0), step(2.0)),
        Selection(Step(Coin(0.5), WHY), 0.25),
        TransformedPlan.of(Pairs(), two(step(1.0), step(2.0))),
        step().with_notes(Leak("a leak")),
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
    for value in (
        {"kind": "gaussian", "noise_multiplier": 1.0},
        {"kind": "no_such_plan"},
        [],
        "step",
        None,
    ):
        with pytest.raises(ValueError, match="kind must name a known Plan"):
            plan_from_json(value)


def test_explain_says_what_is_promised_and_why():
    text = two(step(4.2247), step(1e6)).explain()
    for part in (
        "Gaussian noise (noise multiplier 4.225), then",
        "epsilon = 1 at delta = 1e-6",
        "one record replaced",
    ):
        assert part in text
    assert "adaptive composition" in text
    for part in (step(4.2247), step(1e6)):
        assert part.explain() in text


def test_each_event_of_the_privacy_layer_has_words_of_its_own():
    base = events.Gaussian(2.0)
    found = [
        base,
        events.Laplace(2.0),
        events.L2Laplace(2.0, 3),
        events.GeneralizedGaussian(2.0, 1.5, 3),
        events.DiscreteLaplace(2.0),
        events.DiscreteGaussian(2.0),
        events.RandomizedResponse(1.0, 3),
        events.ObjectivePerturbation(2.0, 0.1, "logistic", "gamma"),
        events.Pure(1.0),
        events.BoundedRange(1.0),
        events.Approximate(1.0, 1e-6),
        events.GaussianPrivate(1.0),
        events.ZeroConcentrated(1.0),
        events.Renyi((2.0,), (1.0,)),
        events.Composed((base, events.Pure(1.0))),
        events.Repeated(base, 3),
        events.Parallel((base, base)),
        events.Sampled(base, 0.1, "poisson"),
        events.Selected(base, 0.25),
        events.Filtered(events.Pure(1.0)),
        events.WithinTotalVariation(base, 1e-8),
        events.CloseInRenyi(base, 2.0, 0.1, 0.1),
        events.Group(base, 2),
        events.Replaced(base),
    ]
    assert {type(one) for one in found} == {
        one for one in vars(events).values() if isinstance(one, type) and hasattr(one, "kind")
    } - {events.Event, events.Spec}
    for one in found:
        words = in_words(one)
        assert not set("_{}'=") & set(words.replace("p = ", "")), words


def test_explain_says_each_kind_of_part_once():
    text = parts(*(step(4.2247),) * 3, shares=(0.25, 0.25, 0.5)).explain()
    assert text.count(step(4.2247).explain()) == 1
    assert "part       1 of 1" in text


def test_costs_add_up():
    assert two(two(step(), step()), step()).work == Work(passes=3.0)
    assert parts(step(), step()).work == Work(passes=1.0)
    assert Selection(Step(Coin(1.0), WHY), 0.25).work == Work(passes=4.0)
