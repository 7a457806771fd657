"""Events, guarantees and budgets as values: what is valid, and which errors are raised."""

import json
import math

import numpy as np
import pytest

from dpfit.privacy import Assumption, Basis, Budget, Guarantee, calibrate, event_from_json
from dpfit.privacy import event as ev
from dpfit.privacy.accountant import privacy_curve

EVENTS = [
    ev.Gaussian(1.5),
    ev.Laplace(2),
    ev.L2Laplace(1.0, 3),
    ev.GeneralizedGaussian(3.0, 4.0, 2),
    ev.DiscreteLaplace(2.0),
    ev.DiscreteGaussian(2.0),
    ev.ObjectivePerturbation(4.0, 0.05, "logistic"),
    ev.ObjectivePerturbation(2.0, 0.05, "two_sided", "gamma"),
    ev.RandomizedResponse(1.0, 5),
    ev.Pure(0.5),
    ev.BoundedRange(0.5),
    ev.Approximate(0.5, 1e-6),
    ev.GaussianPrivate(0.3),
    ev.ZeroConcentrated(0.1),
    ev.Renyi((1.5, 2.0, 8.0), (0.1, 0.2, 0.9)),
    ev.Composed((ev.Gaussian(1.0), ev.Pure(0.1))),
    ev.Repeated(ev.Laplace(3.0), 7),
    ev.Parallel((ev.Gaussian(1.0), ev.Pure(0.1)), "value"),
    ev.Sampled(ev.Gaussian(1.0), 0.1, "poisson", 0.5),
    ev.Sampled(ev.Gaussian(1.0), 0.1, "without_replacement"),
    ev.Selected(ev.Laplace(3.0), 0.2, 0.5),
    ev.Filtered(ev.ZeroConcentrated(0.5)),
    ev.WithinTotalVariation(ev.Gaussian(1.0), 1e-9),
    ev.CloseInRenyi(ev.Gaussian(1.0), 28.6, 0.5, 0.5),
    ev.Group(ev.Sampled(ev.Gaussian(1.0), 0.1), 3),
    ev.Replaced(ev.Gaussian(1.0)),
]


def test_every_kind_of_event_is_in_the_list():
    """A new kind without a round trip is found here."""
    known = {
        cls
        for cls in vars(ev).values()
        if isinstance(cls, type) and issubclass(cls, ev.Event) and cls.kind
    }
    assert known == {type(event) for event in EVENTS}


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: e.kind)
def test_json_round_trip(event):
    back = event_from_json(json.loads(json.dumps(event.to_json())))
    assert back == event
    assert hash(back) == hash(event)


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: e.kind)
def test_a_guarantee_read_back_gives_equal_numbers(event):
    basis = Basis(
        "theorem", "replace", "record", (Assumption("rows in the ball", "enforced"),), "bounded"
    )
    given = Guarantee(event, basis)
    back = Guarantee.from_json(json.loads(json.dumps(given.to_json())))
    assert back == given
    privacy_curve.cache_clear()
    assert [back.delta(e) for e in (0.0, 0.5, 2.0)] == [given.delta(e) for e in (0.0, 0.5, 2.0)]
    assert (back.pure, back.mu, back.rho) == (given.pure, given.mu, given.rho)


HOSTILE = [
    None,
    3,
    "gaussian",
    [],
    {},
    {"kind": None},
    {"kind": []},
    {"kind": {}},
    {"kind": "nonsense"},
    {"kind": "event"},
    {"kind": "basis", "theorem": "t"},
    {"kind": "gaussian"},
    {"kind": "gaussian", "noise_multiplier": "1"},
    {"kind": "gaussian", "noise_multiplier": True},
    {"kind": "gaussian", "noise_multiplier": None},
    {"kind": "gaussian", "noise_multiplier": math.nan},
    {"kind": "gaussian", "noise_multiplier": math.inf},
    {"kind": "gaussian", "noise_multiplier": 0},
    {"kind": "gaussian", "noise_multiplier": -1.0},
    {"kind": "gaussian", "noise_multiplier": 1.0, "extra": 1},
    {"kind": "gaussian", "noise_multiplier": [1.0]},
    {"kind": "gaussian", "noise_multiplier": {"kind": "pure", "epsilon": 1.0}},
    {"kind": "pure", "epsilon": -0.1},
    {"kind": "pure", "epsilon": 10**400},
    {"kind": "approximate", "epsilon": 1.0, "delta": 1.5},
    {"kind": "approximate", "epsilon": 1.0, "delta": -1e-9},
    {"kind": "repeated", "event": {"kind": "pure", "epsilon": 1.0}, "times": 1.5},
    {"kind": "repeated", "event": {"kind": "pure", "epsilon": 1.0}, "times": -1},
    {"kind": "repeated", "event": {"kind": "pure", "epsilon": 1.0}, "times": True},
    {"kind": "repeated", "event": {"kind": "nonsense"}, "times": 1},
    {"kind": "repeated", "event": 5, "times": 1},
    {
        "kind": "repeated",
        "event": {"kind": "assumption", "text": "t", "status": "declared"},
        "times": 1,
    },
    {"kind": "composed", "events": [1, 2]},
    {"kind": "composed", "events": {"kind": "pure", "epsilon": 1.0}},
    {"kind": "composed", "events": "ab"},
    {"kind": "composed"},
    {"kind": "parallel", "events": [], "by": "row"},
    {"kind": "parallel", "events": [], "by": ["index"]},
    {"kind": "sampled", "event": {"kind": "pure", "epsilon": 1.0}, "rate": 1.1},
    {
        "kind": "sampled",
        "event": {"kind": "pure", "epsilon": 1.0},
        "rate": 0.1,
        "method": "bernoulli",
    },
    {"kind": "sampled", "event": {"kind": "pure", "epsilon": 1.0}, "rate": 0.1, "zero_out": 0.1},
    {"kind": "selected", "event": {"kind": "pure", "epsilon": 1.0}, "stop": 1.0},
    {"kind": "selected", "event": {"kind": "pure", "epsilon": 1.0}, "stop": 0.1, "eta": -1.0},
    {"kind": "renyi", "orders": [], "values": []},
    {"kind": "renyi", "orders": [2.0], "values": [0.1, 0.2]},
    {"kind": "renyi", "orders": [2.0, 1.5], "values": [0.1, 0.2]},
    {"kind": "renyi", "orders": [1.0], "values": [0.1]},
    {"kind": "renyi", "orders": ["2"], "values": [0.1]},
    {"kind": "renyi", "orders": 2.0, "values": 0.1},
    {"kind": "filtered", "cap": {"kind": "approximate", "epsilon": 1.0, "delta": 0.1}},
    {"kind": "group", "event": {"kind": "pure", "epsilon": 1.0}, "size": 0},
    {"kind": "generalized_gaussian", "noise_multiplier": 1.0, "shape": 0.5, "dimension": 1},
    {"kind": "l2_laplace", "noise_multiplier": 1.0, "dimension": 0},
    {"kind": "within_total_variation", "event": {"kind": "pure", "epsilon": 1.0}, "distance": 2.0},
]


@pytest.mark.parametrize("value", HOSTILE, ids=lambda v: repr(v)[:60])
def test_hostile_json_is_a_value_error(value):
    with pytest.raises(ValueError, match=r"\w"):
        event_from_json(value)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"schema": None},
        {"event": None},
        {"event": {"kind": "basis", "theorem": "t"}},
        {"basis": None},
        {"basis": {}},
        {"basis": {"kind": "basis"}},
        {"basis": {"kind": "basis", "theorem": ""}},
        {"basis": {"kind": "basis", "theorem": 3}},
        {"basis": {"kind": "basis", "theorem": "t", "relation": "swap"}},
        {"basis": {"kind": "basis", "theorem": "t", "unit": "household"}},
        {"basis": {"kind": "basis", "theorem": "t", "arithmetic": "fast"}},
        {"basis": {"kind": "basis", "theorem": "t", "extra": 1}},
        {"basis": {"kind": "basis", "theorem": "t", "assumptions": ["a"]}},
        {
            "basis": {
                "kind": "basis",
                "theorem": "t",
                "assumptions": [{"kind": "assumption", "text": "a", "status": "hoped"}],
            }
        },
        {"basis": {"kind": "basis", "theorem": "t", "assumptions": 5}},
    ],
    ids=lambda v: repr(v)[:60],
)
def test_hostile_guarantee_json_is_a_value_error(change):
    good = Guarantee(ev.Pure(1.0), Basis("t")).to_json()
    assert Guarantee.from_json(good).pure == 1.0
    with pytest.raises(ValueError, match=r"\w"):
        Guarantee.from_json(good | change)


@pytest.mark.parametrize("value", [None, [], "x", {}, {"schema": 1}])
def test_what_is_no_guarantee_at_all(value):
    with pytest.raises(ValueError, match="not a guarantee of schema 1"):
        Guarantee.from_json(value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "exactly one of epsilon, mu and rho, got none"),
        ({"epsilon": 1.0, "mu": 1.0}, "got epsilon and mu"),
        ({"epsilon": -1.0}, "epsilon must be a finite number above 0, got -1.0"),
        ({"epsilon": 0}, "epsilon must be a finite number above 0"),
        ({"epsilon": math.nan}, "epsilon must be a number"),
        ({"epsilon": math.inf}, "finite"),
        ({"epsilon": True}, "epsilon must be a number, got True"),
        ({"epsilon": "1"}, "epsilon must be a number, got '1'"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta must be below 1"),
        ({"epsilon": 1.0, "delta": 1.5}, "delta must lie between 0 and 1"),
        ({"epsilon": 1.0, "delta": -1e-9}, "delta must lie between 0 and 1"),
        ({"epsilon": 1.0, "delta": math.nan}, "delta must be a number"),
        ({"mu": 1.0, "delta": 1e-6}, "delta goes with epsilon, not with mu"),
        ({"rho": -0.1}, "rho must be a finite number above 0"),
        ({"epsilon": 1.0, "unit": "house"}, "unit must be one of 'record', 'user'"),
        ({"epsilon": 1.0, "relation": "swap"}, "relation must be one of 'replace', 'add_remove'"),
    ],
)
def test_bad_budgets_say_what_is_allowed(arguments, words):
    with pytest.raises(ValueError, match=words):
        Budget(**arguments)


@pytest.mark.parametrize(
    "budget",
    [
        Budget(epsilon=1.0),
        Budget(epsilon=1.0, delta=1e-6, unit="user"),
        Budget(mu=1),
        Budget(rho=0.1, relation="add_remove"),
    ],
)
def test_budget_round_trip(budget):
    assert Budget(**json.loads(json.dumps(budget.to_json()))) == budget


def test_a_zero_delta_is_a_pure_budget():
    assert Budget(epsilon=1.0, delta=0.0).kind == "pure"


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (
            Basis("a"),
            Basis("b", relation="add_remove"),
            r"relation 'replace' and 'add_remove'; convert one with to_relation",
        ),
        (
            Basis("a"),
            Basis("b", unit="user"),
            r"unit 'record' and 'user'; convert one with to_user",
        ),
    ],
)
@pytest.mark.parametrize("combine", [Guarantee.compose, Guarantee.parallel])
def test_relations_and_units_never_mix(first, second, words, combine):
    with pytest.raises(ValueError, match=words):
        combine(Guarantee(ev.Pure(1.0), first), Guarantee(ev.Pure(1.0), second))


def test_bases_merge():
    first = Basis("A", assumptions=(Assumption("x", "enforced"),), arithmetic="exact")
    second = Basis(
        "B",
        assumptions=(Assumption("x", "enforced"), Assumption("y", "declared")),
        arithmetic="idealised",
    )
    joined = Guarantee(ev.Pure(1.0), first).compose(Guarantee(ev.Pure(0.5), second))
    assert joined.basis.theorem == "A; adaptive composition; B"
    assert joined.basis.assumptions == (Assumption("x", "enforced"), Assumption("y", "declared"))
    assert joined.basis.arithmetic == "idealised"
    assert joined.pure == 1.5
    twice = joined.compose(joined)
    assert twice.basis.theorem == "A; adaptive composition; B"
    assert twice.event == ev.Composed((ev.Pure(1.0), ev.Pure(0.5)) * 2)


def test_a_status_conflict_is_not_swallowed():
    """The same assumption enforced by one and declared by the other stays visible twice."""
    first = Basis("A", assumptions=(Assumption("x", "enforced"),))
    second = Basis("B", assumptions=(Assumption("x", "declared"),))
    assert len(first.joined(second, "rule").assumptions) == 2


def test_to_user_says_what_is_assumed():
    given = Guarantee(ev.Gaussian(4.0), Basis("t")).to_user(4)
    (assumption,) = given.basis.assumptions
    assert assumption.status == "declared"
    assert "4 records" in assumption.text
    assert given.mu == pytest.approx(1.0)
    with pytest.raises(ValueError, match="already"):
        given.to_user(2)


@pytest.mark.parametrize("query", ["delta", "epsilon"])
@pytest.mark.parametrize("value", [-1.0, math.nan, True, "1", None])
def test_bad_queries(query, value):
    with pytest.raises(ValueError, match=r"must be|must lie"):
        getattr(Guarantee(ev.Gaussian(1.0), Basis("t")), query)(value)


def test_numpy_numbers_are_numbers():
    """Plans often hold numpy scalars; they account and serialize like plain numbers."""
    event = ev.Repeated(ev.Sampled(ev.Gaussian(np.float64(1.0)), np.float64(0.1)), np.int64(5))
    plain = ev.Repeated(ev.Sampled(ev.Gaussian(1.0), 0.1), 5)
    assert event == plain
    assert json.dumps(event.to_json()) == json.dumps(plain.to_json())


def test_events_are_immutable():
    with pytest.raises(AttributeError):
        ev.Gaussian(1.0).noise_multiplier = 2.0


def test_a_string_form_names_the_change():
    assert "replaced" in str(Guarantee(ev.Pure(1.0), Basis("t")))
    assert "added or removed" in str(Guarantee(ev.Pure(1.0), Basis("t", "add_remove")))
    assert "user" in str(Guarantee(ev.Pure(1.0), Basis("t", unit="user")))


def test_epsilon_of_a_flat_profile_is_its_first_point():
    """Beyond epsilon the profile is constant: the search must return its first point."""
    promise = Guarantee(ev.Approximate(10.0, 1e-5), Basis("test"))
    assert promise.epsilon(1e-5) == pytest.approx(10.0, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 2.0, 3.0, 4.0, 1e-6, 1e6])
@pytest.mark.parametrize("share", [0.1, 0.9])
def test_the_parts_of_a_pure_budget_together_keep_it(epsilon, share):
    """Each part is met to the last digit, and their sum is rounded up."""
    whole = Budget(epsilon=epsilon)
    parts = tuple(calibrate(ev.Laplace(1.0), part) for part in whole.split(share))
    assert Guarantee(ev.Composed(parts), Basis("a test", "replace", "record", (), "exact")).meets(
        whole
    )


def test_a_budget_in_words_keeps_all_digits():
    for given, words in (
        (Budget(epsilon=0.1 + 0.2), "epsilon 0.30000000000000004"),
        (Budget(epsilon=1, delta=1e-6), "(epsilon 1, delta 1e-6)"),
        (Budget(mu=0.5, unit="user"), "mu 0.5 for users"),
        (Budget(rho=2.5, relation="add_remove"), "rho 2.5 under add/remove"),
    ):
        assert str(given) == words


def test_a_misspelt_name_in_python_gets_a_suggestion():
    import dpfit
    from dpfit.data.schema import Category, Number, Schema
    from dpfit.losses import Bounds, Logistic
    from dpfit.queries import count
    from dpfit.solvers.gradient.noisy_gd import noisy_gd

    rows, labels = np.zeros((4, 1)), np.array([True, False] * 2)
    schema = Schema((Category("ward", ("A", "B")), Number("age", 0, 90)))
    table = {"ward": ["A"], "age": [3]}
    problem = dpfit.Minimize(n=10, loss=Logistic(), bounds=Bounds(1.0), n_features=2)
    budget = Budget(mu=1.0)
    for call, suggestion in (
        (lambda: dpfit.LogisticRegresion, "LogisticRegression"),
        (lambda: dpfit.LogisticRegression(solver="nosy_gd").fit(rows, labels), "noisy_gd"),
        (lambda: dpfit.LogisticRegression(relation="repalce").fit(rows, labels), "replace"),
        (lambda: noisy_gd.plan(problem, budget, max_pases=3), "max_passes"),
        (lambda: count(table, schema, by="wrad", epsilon=1.0), "ward"),
        (lambda: count({"wrd": ["A"], "age": [3]}, schema, by="ward", epsilon=1.0), "wrd"),
        (lambda: count(table, schema, by="ward", epsilon=1.0, noise="laplac"), "laplace"),
        (lambda: Budget(mu=1.0, unit="usr"), "user"),
        (lambda: Schema((), scale="unti"), "unit"),
    ):
        with pytest.raises(Exception, match=f"did you mean '{suggestion}'"):
            call()
