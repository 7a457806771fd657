"""Composition, groups, relations, disjoint parts, selection, total variation."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as reference
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dpfit.privacy import Basis, Guarantee
from dpfit.privacy import event as ev
from dpfit.privacy.accountant import privacy_curve, total_variation
from oracles import continuous, discrete


def promise(event, relation="replace"):
    return Guarantee(event, Basis("test", relation=relation))


def delta(event, epsilon, relation="replace"):
    return promise(event, relation).delta(float(epsilon))


# Discrete mechanisms by enumeration


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("times", [2, 3, 6])
def test_randomized_response_composes_to_the_optimum(epsilon, times):
    """Kairouz, Oh and Viswanath's exact points; a percent of slack for the grid of losses."""
    event = ev.Repeated(ev.RandomizedResponse(epsilon), times)
    for misses in range(1, times // 2 + 1):
        at, truth = discrete.kairouz(epsilon, times, misses)
        assert truth == pytest.approx(
            discrete.worse(discrete.product([discrete.randomized_response(epsilon)] * times), at)
        )
        assert truth * (1 - 1e-12) <= delta(event, at) <= 1.01 * truth + 1e-12


@pytest.mark.parametrize("order", range(3))
def test_heterogeneous_composition_covers_enumeration(order):
    pairs = [
        (ev.RandomizedResponse(1.0, 4), discrete.randomized_response(1.0, 4)),
        (ev.Approximate(0.3, 0.01), discrete.approximate(0.3, 0.01)),
        (ev.BoundedRange(0.8), discrete.bounded_range(0.8, 0.4)),
        (ev.Pure(0.5), discrete.randomized_response(0.5)),
    ]
    pairs = pairs[order:] + pairs[:order]
    pair = discrete.product([p for _, p in pairs])
    event = ev.Composed(tuple(e for e, _ in pairs))
    for at in (0.0, 0.2, 0.7, 1.3, 2.0):
        truth = discrete.worse(pair, at)
        assert truth * (1 - 1e-12) <= delta(event, at) <= 1.25 * truth + 1e-3


@pytest.mark.parametrize("rate", [0.1, 0.5])
@pytest.mark.parametrize("times", [1, 2, 5])
def test_sampled_randomized_response_both_directions(rate, times):
    """An asymmetric pair: swapping the directions anywhere shows here."""
    event = ev.Repeated(ev.Sampled(ev.RandomizedResponse(1.5), rate), times)
    p, q = discrete.product([discrete.poisson(discrete.randomized_response(1.5), rate)] * times)
    for at in (0.0, 0.05, 0.2, 0.5, 1.0):
        forward, reverse = privacy_curve(event, "add_remove").profile(np.array([at]))[:, 0]
        assert discrete.hockey_stick(p, q, at) * (1 - 1e-12) <= forward
        assert discrete.hockey_stick(q, p, at) * (1 - 1e-12) <= reverse
        assert max(forward, reverse) <= 1.02 * discrete.worse((p, q), at) + 2e-4


def test_nested_asymmetric_sampling():
    """Sample, run four sampled responses, repeat: the inner curve is a two-sided grid."""
    inner = discrete.product([discrete.poisson(discrete.randomized_response(2.0), 0.2)] * 4)
    p, q = discrete.product([discrete.poisson(inner, 0.3)] * 2)
    event = ev.Repeated(
        ev.Sampled(ev.Repeated(ev.Sampled(ev.RandomizedResponse(2.0), 0.2), 4), 0.3), 2
    )
    for at in (0.0, 0.1, 0.3, 0.8):
        forward, reverse = privacy_curve(event, "add_remove").profile(np.array([at]))[:, 0]
        assert (
            discrete.hockey_stick(p, q, at) * (1 - 1e-12)
            <= forward
            <= 1.02 * discrete.hockey_stick(p, q, at) + 2e-4
        )
        assert discrete.hockey_stick(q, p, at) * (1 - 1e-12) <= reverse


def test_gaussian_with_randomized_response_matches_a_sum_of_closed_forms():
    """delta(Gaussian, response) = sum over outputs o of P(o) delta_mu(eps - loss(o))."""
    mu, pairs = 0.8, [discrete.randomized_response(0.7), discrete.randomized_response(1.1, 3)]
    p, q = discrete.product(pairs)
    event = ev.Composed(
        (ev.Gaussian(1 / mu), ev.RandomizedResponse(0.7), ev.RandomizedResponse(1.1, 3))
    )
    for at in (0.0, 0.5, 1.0, 2.5, 4.0):
        truth = float(p @ continuous.gaussian_delta_any(np.full(len(p), mu), at - np.log(p / q)))
        assert truth * (1 - 1e-9) <= delta(event, at) <= truth * 1.01


# Against the reference implementation


SETTINGS = [
    ("gaussian", 0.01, 1000, 1.0),
    ("gaussian", 0.1, 100, 2.0),
    ("gaussian", 1.0, 20, 5.0),
    ("gaussian", 0.001, 5000, 0.8),
    ("laplace", 1.0, 20, 5.0),
    ("laplace", 0.1, 50, 1.0),
]


@pytest.mark.parametrize(("law", "rate", "times", "multiplier"), SETTINGS)
def test_between_the_brackets_of_dp_accounting(law, rate, times, multiplier):
    """At least the optimistic estimate, at most 1% above the pessimistic, by epsilon."""
    build = getattr(reference, f"from_{law}_mechanism")
    arguments = {"sampling_prob": rate, "value_discretization_interval": 1e-4}
    high = build(multiplier, **arguments, use_connect_dots=True).self_compose(times)
    low = build(
        multiplier, **arguments, pessimistic_estimate=False, use_connect_dots=False
    ).self_compose(times)
    noise = ev.Gaussian if law == "gaussian" else ev.Laplace
    ours = promise(ev.Repeated(ev.Sampled(noise(multiplier), rate), times), "add_remove")
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        assert ours.delta(epsilon) >= low.get_delta_for_epsilon(epsilon) * (1 - 1e-9) - 1e-14
    for target in (1e-2, 1e-4, 1e-6, 1e-9):
        assert ours.epsilon(target) <= 1.01 * high.get_epsilon_for_delta(target) + 1e-6


# Groups and relations, on counting mechanisms whose every law is written out


LAW = discrete.count_mechanism(6, 0.8)
LAW_EPSILON = discrete.count_epsilon(LAW, 6)
LEVELS = (0.0, 0.1, 0.3, 0.6, 1.2)


def test_group_of_pure_covers_counts():
    for size in (2, 3):
        for at in LEVELS:
            truth = max(discrete.worse((LAW(c), LAW(c + size)), at) for c in range(7 - size))
            assert truth <= delta(ev.Group(ev.Pure(LAW_EPSILON), size), at) + 1e-15


@pytest.mark.parametrize("size", [2, 3, 5])
def test_group_of_approximate_promises(size):
    """Counts revealed with probability 0.01: covered, and no more than it implies."""
    lost, total = 0.01, 0.01 * sum(math.exp(k * LAW_EPSILON) for k in range(size))
    event = ev.Group(ev.Approximate(LAW_EPSILON, lost), size)
    for at in LEVELS:
        told = max(discrete.worse((LAW(c), LAW(c + size)), at) for c in range(7 - size))
        assert lost + (1 - lost) * told <= delta(event, at) + 1e-15
        assert delta(event, at) == pytest.approx(
            delta(ev.Approximate(size * LAW_EPSILON, total), at), rel=1e-11
        )
    # Far too many changes promise nothing, and raise nothing.
    assert delta(ev.Group(ev.Approximate(1.0, 1e-9), 2000), 1.0) == 1.0


@pytest.mark.parametrize("size", [2, 3, 5])
def test_group_of_randomized_responses(size):
    """Each member answers once: the truth is a product, so composition is not skipped."""
    pair = discrete.product([discrete.randomized_response(0.4)] * size)
    for at in LEVELS:
        assert (
            discrete.worse(pair, at)
            <= delta(ev.Group(ev.RandomizedResponse(0.4), size), at) + 1e-15
        )


@pytest.mark.parametrize(("kind", "size"), [(ev.Gaussian, 2), (ev.Gaussian, 7), (ev.Laplace, 3)])
def test_group_of_noise_scales_the_shift(kind, size):
    for at in LEVELS:
        assert delta(ev.Group(kind(5.0), size), at) == pytest.approx(
            delta(kind(5.0 / size), at), rel=1e-9
        )


@pytest.mark.parametrize("rate", [0.2, 0.7])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_group_of_sampled_counts_under_add_remove(rate, size):
    event = ev.Group(ev.Sampled(ev.Pure(LAW_EPSILON), rate), size)
    for rest in ((), (1,), (1, 1), (0, 1, 1)):
        for added in itertools.combinations_with_replacement((0, 1), size):
            pair = (
                discrete.sampled_counts((*rest, *added), rate, LAW),
                discrete.sampled_counts(rest, rate, LAW),
            )
            for at in LEVELS:
                assert discrete.worse(pair, at) <= delta(event, at, "add_remove") + 1e-15


@pytest.mark.parametrize("rate", [0.2, 0.7, 1.0])
def test_replaced_sampled_counts(rate):
    """to_relation('replace'): one record leaves and another enters, against all tiny datasets."""
    given = promise(ev.Sampled(ev.Pure(LAW_EPSILON), rate), "add_remove").to_relation("replace")
    assert given.basis.relation == "replace"
    for rest in ((), (1,), (0, 1, 1)):
        pair = (
            discrete.sampled_counts((1, *rest), rate, LAW),
            discrete.sampled_counts((0, *rest), rate, LAW),
        )
        for at in LEVELS:
            assert discrete.worse(pair, at) <= given.delta(at) + 1e-15


def test_replaced_gaussian_is_twice_the_shift():
    given = promise(ev.Gaussian(4.0), "add_remove").to_relation("replace")
    for at in LEVELS:
        assert given.delta(at) == pytest.approx(delta(ev.Gaussian(2.0), at), rel=1e-9)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_to_user_covers_users_with_fewer_rows_too(rows):
    given = promise(ev.Sampled(ev.Pure(LAW_EPSILON), 0.4), "add_remove").to_user(rows)
    assert given.basis.unit == "user"
    for own in range(1, rows + 1):
        pair = (
            discrete.sampled_counts((1,) * own + (1, 0), 0.4, LAW),
            discrete.sampled_counts((1, 0), 0.4, LAW),
        )
        for at in LEVELS:
            assert discrete.worse(pair, at) <= given.delta(at) + 1e-15


def test_replace_to_add_remove_is_refused():
    with pytest.raises(ValueError, match="says nothing about adding or removing"):
        promise(ev.Gaussian(1.0)).to_relation("add_remove")


# Disjoint parts


def test_parts_chosen_by_index_cost_the_worst_part():
    event = ev.Parallel((ev.RandomizedResponse(0.5), ev.RandomizedResponse(1.5)))
    for at in LEVELS:
        assert delta(event, at) == pytest.approx(
            discrete.worse(discrete.randomized_response(1.5), at), rel=1e-12
        )


def histogram(records, laws):
    """Law of one noisy count per part, independent given the records (part, value)."""
    counts = [sum(value for part, value in records if part == index) for index in range(len(laws))]
    return np.multiply.outer(*[law(c) for law, c in zip(laws, counts, strict=True)]).ravel()


def test_parts_chosen_by_value_cover_moves_and_changes_within():
    """Replace-one: a record moves or changes inside a part; add/remove touches one."""
    laws = (discrete.count_mechanism(4, 0.6), discrete.count_mechanism(4, 1.0))
    parts = tuple(ev.Pure(discrete.count_epsilon(law, 4)) for law in laws)
    event = ev.Parallel(parts, by="value")
    possible = list(itertools.product((0, 1), (0, 1)))
    for rest in itertools.combinations_with_replacement(possible, 2):
        for old, new in itertools.permutations(possible, 2):
            pair = histogram((*rest, old), laws), histogram((*rest, new), laws)
            for at in LEVELS:
                assert discrete.worse(pair, at) <= delta(event, at) + 1e-15
        for old in possible:
            pair = histogram((*rest, old), laws), histogram(rest, laws)
            for at in LEVELS:
                assert discrete.worse(pair, at) <= delta(event, at, "add_remove") + 1e-15


def test_parts_chosen_by_value_are_not_priced_as_one():
    """A move flips both parts' responses: the exact cost is the composition of two."""
    event = ev.Parallel((ev.RandomizedResponse(1.0), ev.RandomizedResponse(1.0)), by="value")
    pair = discrete.product([discrete.randomized_response(1.0)] * 2)
    for at in LEVELS:
        truth = discrete.worse(pair, at)
        assert truth * (1 - 1e-12) <= delta(event, at) <= 1.01 * truth + 1e-12


# Selection


BASES = {
    "response": ([discrete.randomized_response(0.8)], ev.RandomizedResponse(0.8)),
    "two responses": (
        [discrete.randomized_response(0.5), discrete.randomized_response(0.9)],
        ev.Composed((ev.RandomizedResponse(0.5), ev.RandomizedResponse(0.9))),
    ),
    "three categories": ([discrete.randomized_response(0.6, 3)], ev.RandomizedResponse(0.6, 3)),
}


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("eta", [-0.5, 0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("stop", [0.05, 0.5])
def test_selection_covers_the_exact_law_of_the_winner(base, eta, stop):
    """All score orders: hockey-stick and Renyi divergence of the winner's exact law."""
    pairs, event = BASES[base]
    p, q = discrete.product(pairs)
    law = privacy_curve(ev.Selected(event, stop, eta), "replace")
    orders = np.array([1.5, 2.0, 4.0, 16.0, 64.0])
    bounds = law.renyi(orders)
    for ranking in itertools.permutations(range(len(p))):
        order = list(ranking)
        a, b = (
            discrete.best_of_runs(p[order], stop, eta),
            discrete.best_of_runs(q[order], stop, eta),
        )
        for at in (0.0, 0.3, 0.8, 1.5, 2.5):
            assert discrete.worse((a, b), at) <= float(law.delta(np.array([at]))[0]) + 1e-14
        for alpha, bound in zip(orders, bounds, strict=True):
            assert max(discrete.renyi(a, b, alpha), discrete.renyi(b, a, alpha)) <= bound + 1e-12


def test_selection_attains_three_epsilon():
    """Geometric runs: a middle output that gains as those above lose attains e^(3 eps)."""
    epsilon, stop, top, middle = 0.5, 1e-7, 1e-2, 1e-5
    q = np.array([1 - top - middle, middle, top])
    p = np.array([0.0, middle * math.exp(epsilon), top * math.exp(-epsilon)])
    p[0] = 1 - p.sum()
    assert np.max(np.abs(np.log(p / q))) <= epsilon * (1 + 1e-12)
    a, b = discrete.best_of_runs(p, stop, 1.0), discrete.best_of_runs(q, stop, 1.0)
    bound = privacy_curve(ev.Selected(ev.Pure(epsilon), stop), "replace").pure
    assert 2.95 * epsilon <= math.log(a[1] / b[1]) <= bound
    assert bound == pytest.approx(3 * epsilon)


# Total variation


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_total_variation_price_is_attained_by_two_points(epsilon):
    """[ASAP] Section 3.1: (1 + e^eps) xi, with equality."""
    xi = 1e-3
    p, q = discrete.randomized_response(epsilon)
    move = np.array([xi, -xi])
    truth = discrete.hockey_stick(p + move, q - move, epsilon)
    event = ev.WithinTotalVariation(ev.RandomizedResponse(epsilon), xi)
    assert truth == pytest.approx((1 + math.exp(epsilon)) * xi, rel=1e-9)
    assert truth * (1 - 1e-12) <= delta(event, epsilon) <= truth * (1 + 1e-9)


def test_total_variation_adds_up_over_a_composition():
    """Two approximate responses, enumerated, each worst against its side."""
    xi, epsilon = 1e-3, 0.6
    p, q = discrete.randomized_response(epsilon)
    move = np.array([xi, -xi])
    pair = discrete.product([(p + move, q - move)] * 2)
    event = ev.Repeated(ev.WithinTotalVariation(ev.RandomizedResponse(epsilon), xi), 2)
    assert total_variation(event) == 2 * xi
    for at in (0.0, 0.3, 0.6, 1.2):
        assert discrete.worse(pair, at) <= delta(event, at)


def test_total_variation_of_a_selection_counts_the_expected_runs():
    xi, epsilon, stop = 1e-4, 0.5, 0.1
    p, _ = discrete.randomized_response(epsilon)
    move = np.array([xi, -xi])
    event = ev.Selected(ev.WithinTotalVariation(ev.RandomizedResponse(epsilon), xi), stop)
    assert total_variation(event) == pytest.approx(xi / stop)
    exact = discrete.best_of_runs(p, stop, 1.0)
    moved = discrete.best_of_runs(p - move, stop, 1.0)
    distance = 0.5 * float(np.abs(exact - moved).sum())
    assert distance <= total_variation(event)


def test_total_variation_rules_out_pure_gdp_and_zcdp():
    given = promise(ev.WithinTotalVariation(ev.Gaussian(2.0), 1e-9))
    assert (given.pure, given.mu, given.rho) == (math.inf, math.inf, math.inf)


def test_budget_of_a_sampler_close_in_total_variation():
    """delta0 = 0.99e-6 and xi = 2.69e-9 at epsilon 1 give 1e-6; (2/3, 1/3) gives 1.24e-6."""
    xi = 0.01e-6 / (1 + math.e)
    assert xi == pytest.approx(2.69e-9, rel=1e-3)
    assert delta(ev.WithinTotalVariation(ev.GaussianPrivate(0.23659), xi), 1.0) == pytest.approx(
        1e-6, rel=1e-3
    )
    spread = 2 * math.log(1 / (2 * 2e-6 / 3))
    printed = math.sqrt(spread + 2) - math.sqrt(spread)
    total = delta(ev.WithinTotalVariation(ev.GaussianPrivate(printed), 1e-6 / 3), 1.0)
    assert total == pytest.approx(1.24e-6, rel=0.01)


# Properties


LEAVES = st.one_of(
    st.floats(0.3, 20).map(ev.Gaussian),
    st.floats(0.3, 20).map(ev.Laplace),
    st.floats(0.01, 3).map(ev.Pure),
    st.floats(0.01, 3).map(ev.BoundedRange),
    st.floats(0.01, 3).map(ev.RandomizedResponse),
    st.floats(1e-4, 0.5).map(ev.ZeroConcentrated),
    st.tuples(st.floats(0.01, 2), st.floats(0, 1e-3)).map(lambda t: ev.Approximate(*t)),
    st.tuples(st.floats(0.5, 10), st.sampled_from([1.0, 1.5, 2.0, 4.0]), st.integers(1, 3)).map(
        lambda t: ev.GeneralizedGaussian(*t)
    ),
)
EVENTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: ev.Composed(tuple(parts))),
        st.tuples(inner, st.integers(0, 20)).map(lambda t: ev.Repeated(*t)),
        st.tuples(inner, st.sampled_from([0.0, 1e-6, 0.01, 0.3, 1.0])).map(
            lambda t: ev.Sampled(*t)
        ),
        st.tuples(inner, st.integers(1, 3)).map(lambda t: ev.Group(*t)),
        st.lists(inner, min_size=1, max_size=2).map(lambda parts: ev.Parallel(tuple(parts))),
        st.tuples(inner, st.floats(0.01, 0.9)).map(lambda t: ev.Selected(*t)),
    ),
    max_leaves=3,
)
RELATIONS = st.sampled_from(["replace", "add_remove"])
PROPERTY = settings(
    max_examples=30, deadline=None, derandomize=True, database=None, phases=[Phase.generate]
)


@PROPERTY
@given(EVENTS, RELATIONS)
def test_delta_falls_with_epsilon_and_is_a_probability(event, relation):
    values = privacy_curve(event, relation).delta(np.linspace(0, 6, 25))
    assert np.all((values >= 0) & (values <= 1))
    assert np.all(np.diff(values) <= 1e-12)


@PROPERTY
@given(EVENTS, EVENTS, RELATIONS, st.floats(0, 4))
def test_composing_more_never_decreases_delta(first, second, relation, at):
    one, two = promise(first, relation), promise(second, relation)
    both = one.compose(two).delta(at)
    for alone in (one, two):
        # A lone curve may be a closed form or a looser bound than its grid: compare with the better
        # of the two.
        gridded = alone.compose(promise(ev.Pure(0.0), relation)).delta(at)
        assert both >= min(alone.delta(at), gridded) * (1 - 1e-3) - 1e-12


@PROPERTY
@given(EVENTS, RELATIONS, st.floats(0.05, 4))
def test_more_noise_never_increases_delta(event, relation, at):
    assert delta(event.scaled(1.3), at, relation) <= delta(event, at, relation) * (1 + 1e-9) + 1e-12


@PROPERTY
@given(EVENTS, RELATIONS, st.sampled_from([1e-12, 1e-6, 1e-3, 0.1]))
def test_epsilon_and_delta_are_consistent(event, relation, target):
    given = promise(event, relation)
    epsilon = given.epsilon(target)
    if math.isfinite(epsilon):
        assert given.delta(epsilon) <= target
        if epsilon > 1e-6:
            assert given.delta(epsilon * (1 - 1e-6)) >= target * (
                1 - 1e-3
            ) or given.pure <= epsilon * (1 + 1e-9)


def test_nothing_costs_nothing():
    for event in (
        ev.Composed(()),
        ev.Repeated(ev.Gaussian(1.0), 0),
        ev.Pure(0.0),
        ev.Parallel(()),
        ev.GaussianPrivate(0.0),
    ):
        for relation in ("replace", "add_remove"):
            given = promise(event, relation)
            assert (given.delta(0.0), given.epsilon(1e-9), given.pure) == (0.0, 0.0, given.pure)
    assert promise(ev.Composed(())).pure == 0.0


EXTREMES = {
    "full rate, a million steps": (
        ev.Repeated(ev.Sampled(ev.Gaussian(1000.0), 1.0), 10**6),
        "add_remove",
    ),
    "a flat curve with noise": (
        ev.Composed((ev.Gaussian(1.0), ev.Group(ev.Approximate(1.0, 3e-4), 3))),
        "replace",
    ),
    "a billion steps": (ev.Repeated(ev.Sampled(ev.Gaussian(10.0), 1e-4), 10**9), "add_remove"),
    "noise 1e-3": (ev.Repeated(ev.Sampled(ev.Gaussian(1e-3), 0.01), 100), "add_remove"),
    "noise 1e6": (ev.Repeated(ev.Sampled(ev.Gaussian(1e6), 0.01), 100), "add_remove"),
    "rate 1e-9": (ev.Repeated(ev.Sampled(ev.Gaussian(1.0), 1e-9), 1000), "add_remove"),
    "rate 1e-9, replace": (ev.Repeated(ev.Sampled(ev.Gaussian(1.0), 1e-9), 1000), "replace"),
    "laplace noise 1e-3": (ev.Repeated(ev.Laplace(1e-3), 3), "replace"),
    "laplace noise 1e6, a billion": (ev.Repeated(ev.Laplace(1e6), 10**9), "replace"),
    "l2-laplace noise 1e-3": (ev.L2Laplace(1e-3, 3), "replace"),
    "l2-laplace noise 1e6": (ev.L2Laplace(1e6, 3), "replace"),
    "generalized noise 1e-3": (ev.GeneralizedGaussian(1e-3, 4.0, 10), "replace"),
    "generalized noise 1e6": (ev.GeneralizedGaussian(1e6, 4.0, 10), "replace"),
    "generalized shape 30": (ev.GeneralizedGaussian(1.0, 30.0, 2), "replace"),
    "pure 1e3 twice": (ev.Repeated(ev.Pure(1e3), 2), "replace"),
    "bounded range 1e3 twice": (ev.Repeated(ev.BoundedRange(1e3), 2), "replace"),
    "response 1e3 twice": (ev.Repeated(ev.RandomizedResponse(1e3, 4), 2), "replace"),
    "approximate 1e3": (ev.Repeated(ev.Approximate(1e3, 1e-30), 2), "replace"),
    "selected pure 1e3": (ev.Selected(ev.Pure(1e3), 0.1), "replace"),
    "infinite pure": (ev.Repeated(ev.Pure(math.inf), 2), "replace"),
    "pure 1e200": (ev.Repeated(ev.Pure(1e200), 2), "replace"),
    "bounded range 1e200": (ev.BoundedRange(1e200), "replace"),
    "gdp 1e200": (ev.Repeated(ev.GaussianPrivate(1e200), 2), "replace"),
    "laplace noise 1e-160": (ev.Laplace(1e-160), "replace"),
    "gaussian noise 1e160": (ev.Gaussian(1e160), "replace"),
}


@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_values_neither_crash_nor_warn(name):
    event, relation = EXTREMES[name]
    given = promise(event, relation)
    values = [given.delta(at) for at in (0.0, 1.0, 1e3)]
    assert all(0 <= value <= 1 for value in values)
    assert values == sorted(values, reverse=True)
    assert given.epsilon(1e-6) <= given.epsilon(1e-30) * (1 + 1e-9)


def test_a_mechanism_without_privacy_has_delta_one():
    assert delta(ev.Repeated(ev.Laplace(1e-3), 3), 1.0) >= 1 - 1e-9
    assert delta(ev.Repeated(ev.Pure(100.0), 3), 1.0) >= 1 - 1e-9


def test_a_total_variation_term_at_a_huge_epsilon_does_not_overflow():
    assert delta(ev.WithinTotalVariation(ev.Gaussian(1.0), 1e-9), 1e3) == 1.0


@pytest.mark.parametrize(
    "wrap", [lambda e: ev.Group(e, 1), lambda e: ev.WithinTotalVariation(e, 0.0), lambda e: e]
)
@pytest.mark.parametrize("method", ["poisson", "without_replacement"])
def test_in_a_sample_a_record_may_take_a_place_in_another_part(wrap, method):
    """Whatever surrounds the parts, a group of one is one record: 1.43, not 0.62."""
    parts = ev.Parallel((ev.Laplace(1.0), ev.Laplace(1.0)))
    by_value = ev.Sampled(ev.Parallel(parts.events, "value"), 0.5, method)
    assert privacy_curve(ev.Sampled(wrap(parts), 0.5, method), "replace").pure >= privacy_curve(
        by_value, "replace"
    ).pure * (1 - 1e-12)
