"""Running sums of streams: sensitivity by linear algebra, noise, intervals, users, bad input."""

import math
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy import stats

from dpfit.core import Interact, InteractionClosed, plan_from_json
from dpfit.data.dataset import InMemory
from dpfit.mechanisms.aggregates import encoders
from dpfit.mechanisms.aggregates.encoders import Exponentials, Toeplitz, Tree, encoder_for, scaled
from dpfit.mechanisms.prefix_sums import BoundedRows, StreamSums, prefix_sums
from dpfit.noise import Grid
from dpfit.privacy import Budget
from dpfit.theory import factorizations as theory

ENCODERS = {
    "square root": Toeplitz(30),
    "cut power": Toeplitz(30, 0.4, 7),
    "independent": Toeplitz(30, 0.0, 1),
    "exponentials": Exponentials.of(30),
    "tree": Tree(30),
}
PATTERNS = [(1, 1), (3, 1), (4, 7), (40, 1), (2, 29)]


def problem(rounds=8, dimension=1, **facts):
    return Interact(workload=StreamSums(dimension, **facts), rounds=rounds)


def batch(rows, users=None):
    rows = np.asarray(rows, dtype=float)
    return InMemory(rows, np.zeros(len(rows)), users)


def encoded(encoder, inputs):
    """All releases without noise, as one vector."""
    state, found = encoder.init(inputs.shape[1]), []
    for each in inputs:
        state, released = encoder.encode(state, each)
        found.append(released)
    return np.concatenate(found).ravel()


def matrix_of(encoder, size=2**38):
    """The encoder as a matrix, found by feeding one unit at each step."""
    columns = []
    for step in range(encoder.rounds):
        inputs = np.zeros((encoder.rounds, 1), dtype=np.int64)
        inputs[step] = size
        columns.append(encoded(encoder, inputs) / size / 2.0**encoder.bits)
    return np.array(columns).T


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize(("times", "apart"), PATTERNS)
def test_the_worst_pattern_moves_the_releases_as_far_as_promised(name, times, apart):
    encoder = ENCODERS[name]
    matrix = matrix_of(encoder)
    count = min(times, math.ceil(encoder.rounds / apart))
    found = 0.0
    for first in range(encoder.rounds):
        steps = [first + apart * j for j in range(count) if first + apart * j < encoder.rounds]
        found = max(found, float(np.linalg.norm(matrix[:, steps].sum(axis=1))))
    if name == "tree":
        # For several steps of a user the tree has an upper bound.
        assert found <= encoder.norm(times, apart) * (1 + 1e-9)
        assert times > 1 or found == pytest.approx(encoder.norm(times, apart), rel=1e-9)
    else:
        assert found == pytest.approx(encoder.norm(times, apart), rel=1e-9)


@pytest.mark.parametrize("name", ENCODERS)
def test_without_noise_the_decoder_gives_the_sums(name):
    encoder, rng = ENCODERS[name], np.random.default_rng(1)
    inputs = rng.integers(-(2**30), 2**30, (encoder.rounds, 3))
    state = encoder.init(3)
    for step, each in enumerate(inputs):
        state, released = encoder.encode(state, each)
        state, estimate = encoder.decode(state, released / 2.0**encoder.bits)
        np.testing.assert_allclose(estimate, inputs[: step + 1].sum(axis=0), atol=1)


@pytest.mark.parametrize("name", ENCODERS)
def test_neighbouring_streams_differ_by_the_sensitivity_even_where_sums_saturate(name):
    """Records that are huge, and totals near the end of the range."""
    encoder, rng = ENCODERS[name], np.random.default_rng(2)
    for size in (2**10, 2**40, 2**60):
        inputs = rng.integers(-size, size, (encoder.rounds, 2))
        for step in (0, 5, encoder.rounds - 1):
            vector = np.round(2**12 * np.array([0.6, -0.8])).astype(np.int64)
            other = inputs.copy()
            other[step] += vector
            moved = encoded(encoder, inputs).astype(object) - encoded(encoder, other).astype(object)
            distance = math.sqrt(sum(int(each) ** 2 for each in moved)) / 2.0**encoder.bits
            allowed = float(np.linalg.norm(vector)) * encoder.norm(1, 1)
            assert distance <= allowed + encoder.rounding(2) / 2.0**encoder.bits
            if size == 2**10 and step == 0 and name != "tree":
                assert distance == pytest.approx(allowed, rel=1e-2)


def test_fixed_point_products_are_floors():
    rng = np.random.default_rng(3)
    for _ in range(200):
        value = int(rng.integers(-(2**61), 2**61))
        mantissa, exponent = int(rng.integers(1, 2**16)), int(rng.integers(16, 62))
        found = scaled(np.array([value]), np.array(mantissa), np.array(exponent))
        assert int(found[0]) == value * mantissa >> exponent


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("non_negative", [False, True])
def test_no_pair_of_units_moves_the_releases_further_than_the_noise_covers(relation, non_negative):
    work = StreamSums(2, bound=1.0, times=3, apart=2, non_negative=non_negative)
    plan = prefix_sums.plan(
        Interact(workload=work, rounds=7), Budget(mu=1.0, relation=relation, unit="user")
    )
    aggregate = plan.mechanism.aggregate
    matrix, covered = matrix_of(aggregate.encoder), aggregate.scale(2).sensitivity
    patterns = [
        steps
        for size in range(1, 4)
        for steps in combinations(range(7), size)
        if all(b - a >= 2 for a, b in pairwise(steps))
    ]
    angles = np.linspace(0, math.pi / 2 if non_negative else 2 * math.pi, 5)
    unit = [np.array([math.cos(angle), math.sin(angle)]) for angle in angles]
    one = [np.outer(matrix[:, s].sum(axis=1), v) for s in patterns for v in unit]
    if relation == "add_remove":
        worst = max(np.linalg.norm(each) for each in one)
    else:
        worst = max(np.linalg.norm(a - b) for a in one for b in one)
    assert 0.99 * covered <= worst <= covered


WIDE = 100
"""Entries of a row: each has noise of its own, of the size that one entry would have."""


def errors_of(plan, runs):
    """The errors of the running sums of half-filled rows, (runs * WIDE, steps)."""
    rounds, row = plan.mechanism.rounds, np.full((1, WIDE), 0.5 / WIDE)
    exact = 0.5 / WIDE * np.arange(1, rounds + 1)[:, np.newaxis]
    found = [
        plan.run([batch(row)] * rounds, random_state=seed).value - exact for seed in range(runs)
    ]
    return np.concatenate(found, axis=1).T


@pytest.mark.parametrize("prefix", ["toeplitz", "tree", "independent"])
def test_the_noise_of_every_estimate_has_the_planned_size(prefix):
    plan = prefix_sums.plan(problem(8, WIDE), Budget(mu=0.5, relation="add_remove"), prefix=prefix)
    errors = errors_of(plan, 20)
    sums = plan.mechanism
    for window in (None, 1, 3):
        shown = errors if window is None else errors - np.pad(errors, ((0, 0), (window, 0)))[:, :8]
        spread = np.sqrt(np.mean(shown**2, axis=0)) / sums.deviations(window)
        # 2,000 errors: six deviations of a standard deviation are 0.095.
        np.testing.assert_allclose(spread, 1, atol=0.095)
    covered = np.mean(np.abs(errors) <= sums.half_widths(0.9), axis=0)
    np.testing.assert_allclose(covered, 0.9, atol=0.041)


def test_the_noise_is_that_of_the_budget():
    plan = prefix_sums.plan(problem(64), Budget(mu=0.25, relation="add_remove"))
    assert plan.mechanism.deviations()[-1] == pytest.approx(2.389 / 0.25, rel=0.001)
    replaced = prefix_sums.plan(problem(64), Budget(mu=0.25))
    assert replaced.mechanism.deviations()[-1] == pytest.approx(2 * 2.389 / 0.25, rel=0.001)


@pytest.mark.parametrize("prefix", ["toeplitz", "tree"])
def test_linear_functions_have_their_value_and_their_deviation(prefix):
    plan = prefix_sums.plan(problem(12), Budget(mu=1.0), prefix=prefix)
    sums, rng = plan.mechanism, np.random.default_rng(1)
    totals = np.cumsum(rng.normal(size=10))
    weights = np.vstack([np.ones(10), np.eye(10)[9], [0] * 3 + [1] * 7, rng.normal(size=10)])
    values, widths = sums.linear(weights, totals)
    np.testing.assert_allclose(values[:, 0], weights @ np.diff(totals, prepend=0.0))
    for row, window in ((0, None), (1, 1), (2, 7)):
        assert widths[row] == pytest.approx(sums.half_widths(window=window)[9], rel=1e-9)
    matrix = matrix_of(sums.aggregate.encoder)
    padded = np.pad(weights[3], (0, 2))
    exact = np.linalg.norm(np.linalg.pinv(matrix).T @ padded) if prefix == "toeplitz" else None
    if exact is not None:
        assert widths[3] / widths[0] == pytest.approx(
            exact / np.linalg.norm(np.linalg.pinv(matrix).T @ np.pad(weights[0], (0, 2))), rel=1e-3
        )
    with pytest.raises(ValueError, match="10 steps"):
        sums.linear(np.ones(9), totals)


def test_long_streams_and_wide_vectors_keep_few_numbers():
    encoder = encoder_for(20_000, 1, 1, 1)
    assert isinstance(encoder, Exponentials)
    assert encoder.init(1)["sums"].shape == (6, 1)
    wide = encoder_for(100, 10**6, 1, 1)
    assert len(wide.weights) * 2 <= 12
    users = encoder_for(5000, 1, 52, 7)
    assert users.norm(52, 7) > users.norm(1, 1)


def test_a_long_stream_has_the_error_of_its_prediction(monkeypatch):
    monkeypatch.setattr(encoders, "MAX_STEPS", 4)
    plan = prefix_sums.plan(problem(32, WIDE), Budget(mu=0.5, relation="add_remove"))
    assert isinstance(plan.mechanism.aggregate.encoder, Exponentials)
    errors = errors_of(plan, 10)
    spread = np.sqrt(np.mean(errors**2, axis=0)) / plan.mechanism.deviations()
    np.testing.assert_allclose(spread, 1, atol=0.135)


# Users.


def test_users_are_counted_and_the_rest_of_their_records_dropped():
    plan = prefix_sums.plan(
        problem(6, times=2, apart=2), Budget(mu=1e5, relation="add_remove", unit="user")
    )
    session = plan.open()
    days = [
        (["ann", "bob"], 2),  # both
        (["ann", "cid"], 3),  # ann was there a step ago
        (["ann", "ann", None], 4),  # ann's rows count once, and nobody's not at all
        (["bob"], 5),
        (["ann", "bob"], 5),  # both have had their two steps
        (["dan"], 6),
    ]
    for users, total in days:
        estimate = session.observe(batch(np.ones((len(users), 1)), users))
        assert estimate[0] == pytest.approx(total, abs=0.01)


def test_rows_of_a_user_are_summed_and_bounded_together():
    rows = BoundedRows(2, 1.0, per="user")
    data = batch([[0.3, 0.0], [3.0, 4.0], [0.3, 0.0], [1.0, 1.0]], ["a", "b", "a", None])
    grid = Grid(-20)
    np.testing.assert_allclose(grid.values(rows.total(data, grid)), [1.2, 0.8], atol=1e-5)


def test_data_without_users_are_refused_where_users_are_protected():
    plan = prefix_sums.plan(problem(3, times=2), Budget(mu=1.0, unit="user"))
    session = plan.open()
    with pytest.raises(ValueError, match="user ids"):
        session.observe(batch([[1.0]]))
    assert session.steps == 0


# Bad input.


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("budget", [Budget(mu=1e5), Budget(epsilon=1e7)])
@pytest.mark.parametrize("unit", ["record", "user"])
def test_records_that_are_no_numbers_count_as_zero_in_silence(budget, unit):
    plan = prefix_sums.plan(problem(2, 2, l1_bound=1.0), replace(budget, unit=unit))
    rows = [[np.nan, 1.0], [np.inf, 0.0], [-np.inf, 1.0], [10**400, 0.0], [0.5, 0.5], [1e300, 0.0]]
    session, users = plan.open(), list("abcdef")
    data = InMemory(rows, np.zeros(6), users if unit == "user" else None)
    np.testing.assert_allclose(session.observe(data), [1.5, 0.5], atol=0.01)
    huge = InMemory([[1e308, 1e308], [1e308, 0.0]], np.zeros(2), ["x", "x"])
    moved = session.observe(huge) - session.value[0]
    assert np.linalg.norm(moved) <= (1.0 if unit == "user" else 2.0) + 0.01


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("non_negative", [False, True])
def test_every_row_is_within_its_bound(norm, non_negative):
    rng = np.random.default_rng(4)
    rows = np.concatenate(
        [rng.normal(size=(200, 3)) * 10.0 ** rng.integers(-200, 200, (200, 1)), np.eye(3)]
    )
    bounded = BoundedRows(3, 0.7, norm, non_negative)._bounded(rows)
    assert np.linalg.norm(bounded, 1 if norm == "l1" else 2, axis=1).max() <= 0.7 * (1 + 1e-15)
    assert not non_negative or bounded.min() >= 0
    assert np.linalg.norm(bounded, 1 if norm == "l1" else 2, axis=1).max() >= 0.7 * (1 - 1e-9)


def test_steps_beyond_the_horizon_are_refused():
    with prefix_sums.plan(problem(2), Budget(mu=1.0)).open() as session:
        session.observe(batch([[1.0]]))
        session.observe(batch([[1.0]]))
        with pytest.raises(InteractionClosed):
            session.observe(batch([[1.0]]))


def test_a_longer_horizon_than_planned_would_cost_more():
    """The planted fault: an encoder that goes on moves further than the promise."""
    plan = prefix_sums.plan(problem(8), Budget(mu=1.0))
    assert np.linalg.norm(matrix_of(Toeplitz(9))[:, 0]) > plan.mechanism.aggregate.encoder.norm(
        1, 1
    )
    with pytest.raises(ValueError, match="9 rounds, got 8"):
        replace(plan.mechanism.aggregate, rounds=9)


def test_one_step_is_one_gaussian_release():
    plan = prefix_sums.plan(problem(1), Budget(mu=1.0, relation="add_remove"))
    assert plan.mechanism.deviations() == pytest.approx([1.0], rel=1e-3)


def test_users_with_more_steps_than_fit_cost_what_fits():
    by_user = {"mu": 1.0, "unit": "user"}
    many = prefix_sums.plan(problem(10, times=99, apart=4), Budget(**by_user))
    few = prefix_sums.plan(problem(10, times=3, apart=4), Budget(**by_user))
    assert many.risk.expected == pytest.approx(few.risk.expected, rel=1e-9)


def test_a_pure_budget_takes_the_tree_with_laplace_noise():
    plan = prefix_sums.plan(problem(7), Budget(epsilon=1.0, relation="add_remove"))
    assert plan.mechanism.aggregate.encoder == Tree(7)
    assert plan.guarantee.pure == pytest.approx(1.0)
    # Three levels of scale 3: the sum at step 7 has three nodes.
    assert plan.mechanism.deviations()[-1] == pytest.approx(3 * math.sqrt(2 * 3), rel=1e-3)
    wide = prefix_sums.plan(
        problem(7, WIDE, l1_bound=1.0), Budget(epsilon=1.0, relation="add_remove")
    )
    errors = errors_of(wide, 20)
    spread = np.sqrt(np.mean(errors**2, axis=0)) / plan.mechanism.deviations()
    np.testing.assert_allclose(spread, 1, atol=0.15)
    assert np.mean(np.abs(errors) <= wide.mechanism.half_widths(0.9)) > 0.9
    with pytest.raises(ValueError, match="prefix='tree'"):
        prefix_sums.plan(problem(7), Budget(epsilon=1.0), prefix="toeplitz")


def test_intervals_of_linear_functions_hold_with_laplace_noise():
    """Coverage of each kind of function over 20,000 streams, the entries of wide rows."""
    work = {"dimension": 1000, "l1_bound": 1.0}
    plan = prefix_sums.plan(problem(13, **work), Budget(epsilon=0.5, relation="add_remove"))
    assert plan.mechanism.aggregate.noise == "laplace"
    rng, empty, sums = np.random.default_rng(8), batch(np.zeros((0, 1000))), plan.mechanism
    weights = np.vstack(
        [
            np.eye(11)[4],
            np.ones(11),
            [0] * 4 + [-1] * 3 + [1] * 4,
            np.linspace(0.1, 1, 11),
            [0] * 10 + [1e-3],
            rng.normal(size=11),
        ]
    )
    inside = np.zeros((3, len(weights)))
    levels = (0.5, 0.9, 0.99)
    for seed in range(20):
        totals = plan.run([empty] * 11, random_state=seed).value
        for place, level in enumerate(levels):
            values, widths = sums.linear(weights, totals, level)
            inside[place] += np.mean(np.abs(values) <= widths[:, np.newaxis], axis=1)
    # Six deviations of 20,000 coins.
    for found, level in zip(inside / 20, levels, strict=True):
        slack = 6 * math.sqrt(level * (1 - level) / 20_000)
        np.testing.assert_allclose(found, level, atol=slack)
    narrow = sums.linear(weights[:2], totals)[1]
    np.testing.assert_allclose(narrow[0], sums.half_widths(window=1)[4], rtol=1e-9)
    np.testing.assert_allclose(narrow[1], sums.half_widths()[10], rtol=1e-9)


@pytest.mark.parametrize("rounds", [1, 2, 7, 8, 21])
def test_the_nodes_of_the_tree_are_those_of_its_blocks(rounds):
    tree = Tree(rounds)
    nodes = theory.tree_nodes(rounds)
    blocks = np.zeros((rounds, len(nodes)))
    for step in range(1, rounds + 1):
        last = step
        while last:
            first = last - (last & -last) + 1
            blocks[step - 1, nodes.index((first, last))] = 1.0
            last = first - 1
    weights = np.random.default_rng(1).normal(size=(5, rounds))
    of_sums = weights - np.pad(weights[:, 1:], ((0, 0), (0, 1)))
    direct = of_sums @ blocks
    found = tree.coefficients(weights)
    np.testing.assert_allclose(np.sort(found), np.sort(direct[:, blocks.any(axis=0)]), atol=1e-12)
    for window in (None, 1, 2, 5, rounds, 99):
        kept = np.tril(np.ones((rounds, rounds)))
        if window is not None:
            kept = np.triu(kept, 1 - window)
        np.testing.assert_allclose(tree.window_deviations(window), tree.deviations(kept))


def test_deviations_of_a_long_tree_take_no_quadratic_memory():
    plan = prefix_sums.plan(problem(10**6), Budget(epsilon=1.0))
    assert plan.mechanism.deviations(7).shape == (10**6,)
    assert plan.mechanism.half_widths()[-1] > 0


@pytest.mark.parametrize(
    ("facts", "budget", "match"),
    [
        ({"times": 3}, Budget(mu=1.0), "unit='user'"),
        ({"bound": -1.0}, Budget(mu=1.0), "bound"),
        ({"times": 0}, Budget(mu=1.0), "times"),
    ],
)
def test_invalid_arguments_raise_with_a_hint(facts, budget, match):
    with pytest.raises(ValueError, match=match):
        prefix_sums.plan(problem(3, **facts), budget)


def test_plans_are_read_back_equal():
    for rounds, facts in ((5, {}), (9, {"times": 3, "apart": 2, "non_negative": True})):
        unit = "user" if facts else "record"
        plan = prefix_sums.plan(problem(rounds, **facts), Budget(mu=1.0, unit=unit))
        assert plan_from_json(plan.to_json()) == plan


def test_batches_that_are_all_there_give_what_single_steps_give():
    rng = np.random.default_rng(6)
    for facts, budget in (({}, Budget(mu=1e6)), ({}, Budget(epsilon=1e6))):
        plan = prefix_sums.plan(problem(9, 2, **facts), budget)
        batches = [batch(rng.normal(size=(size, 2))) for size in (3, 0, 1, 5, 2, 0, 0, 4, 1)]
        one, many = plan.open(random_state=1), plan.open(random_state=1)
        single = [one.observe(each) for each in batches]
        many.feed(batches[:4])
        np.testing.assert_allclose(many.last, single[3], atol=1e-3)
        many.feed([*batches[4:], batches[0]])
        assert many.done
        np.testing.assert_allclose(many.close().value, one.close().value, atol=1e-3)
    rows, asked, grid = rng.normal(size=(50, 2)), BoundedRows(2, 1.0), Grid(-20)
    totals = asked.totals(rows, [20, 0, 30], grid)
    exact = [asked.total(batch(part), grid) for part in np.split(rows, [20, 20])]
    np.testing.assert_array_equal(totals, exact)


# Planted faults: each is caught by the checks above.


@dataclass(frozen=True)
class Forgetful(Toeplitz):
    """The first input has no weight later: its noise is not that of the promise."""

    kind = "test_forgetful"

    def encode(self, state, inputs):
        state, released = super().encode(state, inputs)
        return state, released + (inputs << 16 if len(state["inputs"]) > 3 else 0)


def test_an_encoder_that_adds_more_than_its_column_is_caught():
    faulty = Forgetful(30)
    assert np.linalg.norm(matrix_of(faulty), axis=0).max() > faulty.norm(1, 1) * (1 + 1e-6)


# An adversary who chooses the vectors of a user from earlier releases.


def likelihood_ratios(plan, runs, present):
    """Log likelihood ratios of the user's presence, computed by the adversary from the releases.

    The user adds 1 at step 1; at step 3 the adversary picks the sign from the estimate before.
    """
    sums = plan.mechanism
    column = sums.aggregate.encoder.column / theory.UNIT
    sigma, found = sums.aggregate.deviation(1), []
    for seed in range(runs):
        session, totals, vectors = plan.open(random_state=2 * seed + present), [0.0], []
        for step in range(4):
            sign = 1.0 if step != 2 or totals[-1] > 0 else -1.0
            vectors.append(sign if step in (0, 2) else 0.0)
            rows = [[vectors[-1]]] if present and vectors[-1] else np.zeros((0, 1))
            users = ["ann"] * len(rows)
            totals.append(float(session.observe(batch(np.reshape(rows, (-1, 1)), users))[0]))
        releases, moved = (np.convolve(column, part)[:4] for part in (np.diff(totals), vectors))
        found.append(float(moved @ releases - moved @ moved / 2) / sigma**2)
    return np.array(found)


def power_of(plan, runs):
    """How often the adversary is right about a present user, at a twentieth of false alarms."""
    absent, there = (likelihood_ratios(plan, runs, present) for present in (0, 1))
    return float(np.mean(there > np.quantile(absent, 0.95)))


@pytest.mark.slow
def test_an_adaptive_adversary_does_no_better_than_the_guarantee():
    budget = Budget(mu=1.0, relation="add_remove", unit="user")
    plan = prefix_sums.plan(problem(4, times=2, apart=2), budget)
    allowed = stats.norm.sf(stats.norm.isf(0.05) - 1.0)
    # 800 runs: six deviations of the power and of the threshold are 0.13.
    assert allowed - 0.2 < power_of(plan, 800) < allowed + 0.13
    # The planted fault: half the noise.
    quiet = replace(plan.mechanism.aggregate, noise_multiplier=0.5)
    faulty = replace(plan, mechanism=replace(plan.mechanism, aggregate=quiet))
    assert power_of(faulty, 300) > allowed + 0.13


def test_many_equal_rows_are_off_by_one_rounding():
    rows, grid, value = BoundedRows(1, 1.0), Grid(-16), 0.3
    equal = np.full((100_000, 1), value)
    steps = rows.total(InMemory(equal, np.zeros(len(equal))), grid)
    # Rounded one by one, they would be off by 20,000 steps.
    assert abs(steps[0] - len(equal) * value / grid.step) <= 1 + len(equal) * 2.0**-11
    np.testing.assert_array_equal(rows.totals(equal, [len(equal)], grid)[0], steps)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_no_row_moves_an_input_further_than_is_paid_for(relation):
    """Also where its sum is rounded the other way."""
    rng = np.random.default_rng(5)
    problem = Interact(workload=StreamSums(3), rounds=1)
    sums = prefix_sums.plan(problem, Budget(mu=1.0, relation=relation)).final.aggregate
    scale, rows = sums.scale(3), BoundedRows(3, sums.bound)
    others = rng.normal(size=(4, 3)) * 0.3
    worst = 0.0
    for _ in range(300):
        ends = rng.normal(size=(2, 3)) * rng.choice([1e-5, 0.5, 1e3])
        pair = [np.vstack([others, end[None]]) for end in ends]
        pair[1] = others if relation == "add_remove" else pair[1]
        one, two = (rows.total(InMemory(each, np.zeros(len(each))), scale.inputs) for each in pair)
        worst = max(worst, float(np.linalg.norm(one - two)) * scale.inputs.step)
    assert 0.9 * sums._factor * sums.bound <= worst <= scale.sensitivity
