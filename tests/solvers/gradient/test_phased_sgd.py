"""Phases of SGD: coupled runs on adversarial records, planted faults, exact laws, gains."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from scipy.special import erf

from dpfit.audit import Fixed, PlanRuns, Projection, audit_runs
from dpfit.audit.auditor import audit_algorithm
from dpfit.core import Minimize, Run, Step, plan_from_json
from dpfit.core.reference_designs import Design
from dpfit.data.dataset import Blocks, InMemory
from dpfit.data.files import records, scan_parquet
from dpfit.data.schema import Number, Schema
from dpfit.data.view import View
from dpfit.geometry import L2Ball
from dpfit.kernels.one_pass import Pace, Walk
from dpfit.losses import (
    Absolute,
    Bounds,
    CustomLoss,
    GaussianSmoothed,
    Hinge,
    Huber,
    HuberDistance,
    Logistic,
    Pinball,
    Softmax,
    Squared,
    smoothing_width,
)
from dpfit.mechanisms.vector_noise import VectorNoise
from dpfit.noise import Source
from dpfit.privacy import Basis, Budget
from dpfit.solvers.descents.one_pass import OnePass
from dpfit.solvers.descents.phases import Phases, remaining, sampling_variance, shares_of
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.gradient.phased_sgd import phased_sgd

RELATIONS = ("replace", "add_remove")
BUDGET = Budget(epsilon=1, delta=1e-6)


def problem_of(loss, n, d=2, **more):
    bounds = Bounds(1.0) if loss.binary_labels else Bounds(1.0, -1e3, 1e3)
    return Minimize(n=n, loss=loss, bounds=bounds, n_features=d, **more)


# Movement: coupled runs with the noise off.


def expanding(slope, n, step_size):
    """Records on which two runs diverge fastest; the first one differs.

    Each is nearly orthogonal to their difference, with a label between the two predictions.
    """
    rows, labels = np.zeros((n, n)), np.zeros(n)
    rows[0, 0] = 1.0
    here, there = np.zeros(n), np.zeros(n)
    here[0], there[0] = -step_size * slope(9.0), -step_size * slope(-9.0)
    tilts = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, 400)])
    for t in range(1, n):
        apart = here - there
        length = np.linalg.norm(apart)
        pulls = slope(tilts * length / 2) - slope(-tilts * length / 2)
        grown = length**2 - 2 * step_size * pulls * tilts * length + (step_size * pulls) ** 2
        tilt = tilts[np.argmax(grown)]
        rows[t] = tilt * apart / length
        rows[t, t] = math.sqrt(1 - tilt**2)
        labels[t] = rows[t] @ (here + there) / 2
        here = here - step_size * slope(rows[t] @ here - labels[t]) * rows[t]
        there = there - step_size * slope(rows[t] @ there - labels[t]) * rows[t]
    return rows, labels


def movement_on(slope, n=1000, step_size=0.1):
    """Movement of the average over the second half, in units of 2 * step_size, in NumPy."""
    rows, labels = expanding(slope, n, step_size)
    averages = []
    for first in (-9.0, 9.0):
        point, kept = np.zeros(n), []
        for t, row in enumerate(rows):
            kept.append(point)
            residual = row @ point - (labels[t] if t else first)
            point = point - step_size * slope(residual) * row
        averages.append(np.mean([*kept, point][n // 2 :], axis=0))
    return np.linalg.norm(averages[0] - averages[1]) / (2 * step_size)


def absolute_slope(width):
    return lambda e: erf(e / (width * math.sqrt(2))) if width else np.sign(e)


HALF = 0.5 + (np.arange(256) + 1) / 512
"""Marks of an average over the second half of a pass."""
WIDTH = smoothing_width(2.0, 1.0, 0.1)
FAULTS = {"no smoothing": 0.0, "half the width": 1 / 2, "a step of 3 / curvature": 2 / 3}
"""Widths over the least one. A total variation of 1 for 2 is half the width."""
LEAST = {"no smoothing": 18.0, "half the width": 8.0, "a step of 3 / curvature": 5.0}


def test_steps_of_the_least_width_move_as_far_as_declared_and_no_further():
    assert 0.999 < movement_on(absolute_slope(WIDTH)) <= 1 + 1e-9


@pytest.mark.parametrize("fault", FAULTS)
def test_narrower_smoothing_expands_distances(fault):
    assert movement_on(absolute_slope(FAULTS[fault] * WIDTH)) > LEAST[fault]


def test_a_quadrature_of_64_nodes_expands_distances():
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    weights = weights / weights.sum()
    assert movement_on(lambda e: np.sign(np.add.outer(e, WIDTH * nodes)) @ weights) > 4


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_planted_faults_of_the_mechanism_move_it_further_than_its_sensitivity(fault, monkeypatch):
    """The adversarial records through the kernel, at n = 1000; checks of the mechanism are off."""
    problem, n = problem_of(Absolute(), 1000, 1000), 1000
    one = phased_sgd.plan(problem, BUDGET, phases=1, time=0.1 * n, clip_norm=1.0).final
    width = one.problem.loss.width * FAULTS.get(fault, 1.0)
    if fault in FAULTS:
        loss = GaussianSmoothed(Absolute(), width) if width else Absolute()
        with pytest.raises(ValueError, match="expand distances"):
            replace(one, problem=replace(one.problem, loss=loss))
        monkeypatch.setattr(OnePass, "curvature", 1e-9)
        one = replace(one, problem=replace(one.problem, loss=loss))
    rows, labels = expanding(absolute_slope(width), n, 0.1)
    averages = []
    for first in (-9.0, 9.0):
        walk = Walk(np.zeros(n), HALF, one.pace)
        positions, whole = (np.arange(n) + 0.5) / n, np.append(first, labels[1:])
        walk.visit(rows, whole, positions, one.problem.loss, **one.problem.guards, clip=1.0)
        averages.append(walk.average)
    moved = np.linalg.norm(averages[0] - averages[1]) / one.sensitivity
    if fault is None:
        assert 0.99 < moved <= 1
    else:
        assert moved > LEAST[fault]


def test_clipped_steps_on_a_loss_of_points_expand_distances_and_are_refused():
    """A convex quadratic of curvature 1, whose clipped gradient is that of no convex function.

    Each of 1000 records turns its quadratic such that two runs diverge fastest.
    """
    curvatures, clip, step_size = np.array([1.0, 0.01]), 0.1, 2.0

    def step(points):
        gradients = curvatures * points
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        return points - step_size * gradients * np.minimum(1.0, clip / norms)

    rng = np.random.default_rng(5)
    middles = rng.normal(size=(2000, 2)) * [0.3, 30.0]
    ways = rng.normal(size=(2000, 2))
    ways /= np.linalg.norm(ways, axis=1, keepdims=True)
    declared = length = 2 * step_size * clip
    for _ in range(1000):
        half = length / 2 * ways
        length = np.linalg.norm(step(middles + half) - step(middles - half), axis=1).max()
    assert length > 4 * declared
    problem = Minimize(n=9, loss=HuberDistance(1.0), bounds=Bounds(1.0), n_features=2)
    with pytest.raises(ValueError, match="may expand distances"):
        OnePass(problem, "replace", "gaussian", 1.0, step_size=0.1, clip_norm=1.0)


def in_visiting_order(rows, labels, relation="replace", seed=3):
    """The records, stored such that a view of this seed visits them in the given order."""
    n, order = len(labels), []
    blank = View(InMemory(np.zeros((n, 1)), np.zeros(n)), relation, "record", Source(seed))
    blank.fold(lambda state, chunk: order.extend(chunk.index), None)
    stored, kept = np.empty_like(rows), np.empty_like(labels)
    stored[order], kept[order] = rows, labels
    return InMemory(stored, kept), order


@pytest.mark.parametrize("loss", [Absolute(), Pinball(0.5)], ids=str)
def test_the_planned_mechanism_is_not_expanding(loss):
    """The adversarial records, through the mechanism that is planned, in its own visiting order."""
    n = 200
    problem = problem_of(loss, n, n)
    plan = phased_sgd.plan(problem, BUDGET, phases=1, time=0.1 * n, clip_norm=1.0)
    one = plan.stages[0].plan.mechanism
    assert one.step_size == pytest.approx(0.1)
    assert one.problem.loss.width == pytest.approx(smoothing_width(loss.kink, 1.0, 0.1))
    scale = loss.kink / 2
    rows, labels = expanding(lambda e: scale * absolute_slope(one.problem.loss.width)(e), n, 0.1)
    averages = []
    for first in (-9.0, 9.0):
        data, _ = in_visiting_order(rows, np.append(first, labels[1:]))
        averages.append(one.average(View(data, "replace", "record", Source(3))))
    moved = np.linalg.norm(averages[0] - averages[1])
    assert 0.98 * scale * one.movement < moved <= one.sensitivity
    half = replace(one.problem, loss=GaussianSmoothed(loss, one.problem.loss.width / 2))
    with pytest.raises(ValueError, match="expand distances"):
        replace(one, problem=half)


@pytest.mark.parametrize("relation", RELATIONS)
def test_no_neighbour_moves_an_average_further_than_declared(relation):
    rng, worst = np.random.default_rng(1), {}
    losses = [Logistic(), Huber(0.5), Absolute(), Hinge(), Pinball(0.9)]
    for trial in range(400):
        loss, n = losses[trial % 5], int(rng.integers(2, 30))
        more = [{}, {"ridge": 0.5}, {"trust_ball": L2Ball(2, 0.3)}][trial % 3]
        problem = problem_of(loss, n, **more)
        plan = phased_sgd.plan(
            problem,
            Budget(mu=1.0, relation=relation),
            phases=1,
            time=float(n * rng.choice([0.05, 0.5, 1.3])),
            clip_norm=float(rng.choice([0.3, 1.0])),
        )
        one = plan.stages[0].plan.mechanism
        rows, labels = rng.normal(size=(n, 2)), rng.choice([-1.0, 1.0], n)
        rows[-1], other = rng.normal(size=2) * 9, rng.normal(size=2) * 9
        changed = InMemory(np.vstack([rows[:-1], other]), np.append(labels[:-1], -labels[-1]))
        if relation == "add_remove":
            changed = InMemory(rows[:-1], labels[:-1])
        averages = [
            one.average(View(data, relation, "record", Source(trial)))
            for data in (InMemory(rows, labels), changed)
        ]
        moved = float(np.linalg.norm(averages[0] - averages[1]))
        assert moved <= one.sensitivity <= one.movement * (1 + 1e-8)
        worst[loss] = max(worst.get(loss, 0.0), moved / one.movement)
    assert min(worst.values()) > 0.3


@pytest.mark.parametrize("loss", [Huber(1.0), GaussianSmoothed(Absolute(), 0.5)], ids=str)
def test_brute_force_over_all_small_datasets_attains_the_bound(loss):
    """All sequences of up to 6 records of three kinds; each record is replaced or left out."""
    smoothness = loss.smoothness(Bounds(1.0)).value
    step_size, kinds = 2 / smoothness, ((1.0, 5.0), (1.0, 0.0), (1.0, -5.0))
    cache = {}

    def average(records, times):
        if (records, times) not in cache:
            walk = Walk(np.zeros(1), HALF, Pace(step_size))
            if records:
                rows, labels = (
                    np.array([[x] for x, _ in records]),
                    np.array([y for _, y in records]),
                )
                walk.visit(rows, labels, np.array(times), loss, row_norm=1.0, clip=1.0)
            cache[records, times] = float(walk.average[0])
        return cache[records, times]

    worst = {"replace": 0.0, "add_remove": 0.0}
    for n in range(1, 7):
        times = tuple((r + 0.5) / n for r in range(n))
        for drawn in itertools.product(kinds, repeat=n):
            here = average(drawn, times)
            for i in range(n) if n < 6 else (0, 3):
                for other in kinds:
                    moved = abs(here - average((*drawn[:i], other, *drawn[i + 1 :]), times))
                    worst["replace"] = max(worst["replace"], moved)
                less = average(drawn[:i] + drawn[i + 1 :], times[:i] + times[i + 1 :])
                worst["add_remove"] = max(worst["add_remove"], abs(here - less))
    assert worst["replace"] <= 2 * step_size * (1 + 1e-12)
    assert worst["replace"] == pytest.approx(2 * step_size, rel=1e-3)
    assert worst["add_remove"] <= step_size * (1 + 1e-12)
    assert worst["add_remove"] == pytest.approx(step_size, rel=1e-3)


def test_a_ridge_acts_between_records_so_a_missing_one_costs_no_more():
    """A record without a gradient is left out, far from the centre of the ridge: nothing moves."""
    rows, labels = np.array([[1.0], [0.0], [1.0], [0.0]]), np.ones(4)
    problem = problem_of(Logistic(), 4, 1, ridge=0.5, centre=(50.0,))
    one = OnePass(problem, "add_remove", "gaussian", 1.0, step_size=1.0, clip_norm=0.01)
    whole, less = (
        one.average(View(InMemory(rows[:m], labels[:m]), "add_remove", "record", Source(2)))
        for m in (4, 3)
    )
    assert whole[0] > 5
    assert abs(whole[0] - less[0]) <= 1e-12


@pytest.mark.parametrize("phases", [1, 2, 4])
def test_every_phase_descends_to_the_minimum_with_the_ridge(phases):
    """A quadratic of curvature 1 with a ridge of 1/2: the label 0.9 gives 0.6."""
    n, problem = (
        6000,
        Minimize(n=6000, loss=Huber(9.0), bounds=Bounds(1.0, -1, 1), n_features=1, ridge=0.5),
    )
    signs = np.where(np.arange(n) % 2, 1.0, -1.0)
    plan = phased_sgd.plan(problem, Budget(mu=1e4), phases=phases, time=30.0, clip_norm=9.0)
    found = plan.run(InMemory(signs[:, np.newaxis], 0.9 * signs), random_state=1).output
    assert found[0] == pytest.approx(0.6, abs=0.01)


def test_points_stay_in_the_ball_between_records():
    """A centre outside of it would draw them out, and a record would move them back."""
    ball = L2Ball(1, 0.1)
    problem = problem_of(Logistic(), 4, 1, ridge=0.5, centre=(50.0,), trust_ball=ball)
    one = OnePass(problem, "add_remove", "gaussian", 1.0, step_size=1.0, clip_norm=0.01)
    data = InMemory(np.zeros((4, 1)), np.ones(4))
    for rows in (data, InMemory(data.matrix[:1], data.labels[:1])):
        assert abs(one.average(View(rows, "add_remove", "record", Source(2)))[0]) <= 0.1 + 1e-12


# Relations: parts and averages must not depend on how many records there are.


def average_of(times, labels):
    walk = Walk(np.zeros(1), HALF, Pace(0.1))
    walk.visit(np.ones((len(labels), 1)), labels, times, Huber(1.0), row_norm=1.0, clip=1.0)
    return walk.average[0]


def average_by_number(times, labels):
    """Planted fault: the average over the second half of the steps, by their numbers."""
    points = np.cumsum(0.1 * np.sign(labels))
    return points[len(points) // 2 :].mean()


def average_by_rank(times, labels):
    """Planted fault: positions that are ranks."""
    return average_of((np.arange(len(labels)) + 0.5) / len(labels), labels)


@pytest.mark.parametrize(
    ("average", "least", "most"),
    [(average_of, 0.99, 1 + 1e-9), (average_by_number, 1.49, 2), (average_by_rank, 1.2, 2)],
)
def test_positional_averages_move_further_under_add_remove(average, least, most):
    """A record that leaves shifts the numbers of all later ones, and so the average."""
    labels = np.append(-1e3, np.full(1000, 1e3))
    times = np.sort(np.random.default_rng(1).random(1001))
    whole = average(times, labels)
    moved = max(
        abs(whole - average(np.delete(times, i), np.delete(labels, i))) for i in (0, 500, 1000)
    )
    assert least < moved / 0.1 <= most


def visited(parts):
    """The labels that each part visits, in order."""
    seen = []
    for part in parts:
        labels = []
        part.fold(lambda state, chunk, kept=labels: kept.extend(chunk.labels.tolist()), None)
        seen.append(labels)
    return seen


def view_of(labels, relation, seed=5):
    return View(InMemory(np.zeros((len(labels), 2)), labels), relation, "record", Source(seed))


def only_one_differs(whole, other, changed):
    """Whether each record is visited once, and two datasets that differ by one record do so only.

    ``changed`` maps the label of this record to its new one, or to None if it is removed.
    """
    labels = list(itertools.chain(*whole))
    expected = [[changed.get(v, v) for v in part] for part in whole]
    expected = [[v for v in part if v is not None] for part in expected]
    return len(set(labels)) == len(labels) and expected == other


@pytest.mark.parametrize("relation", RELATIONS)
def test_each_record_is_visited_once_and_its_part_depends_on_itself_only(relation):
    n = 60
    plan = phased_sgd.plan(problem_of(Logistic(), n), Budget(mu=1.0, relation=relation), phases=3)
    assert [stage.part for stage in plan.stages] == [0, 1, 2]
    names = np.arange(float(n))
    whole = visited(view_of(names, relation).parts(plan.shares))
    assert sorted(itertools.chain(*whole)) == names.tolist()
    # One field goes from the smallest to the largest value, or one record leaves.
    replaced, changed = np.append(999.0, names[1:]), {0.0: 999.0}
    if relation == "add_remove":
        replaced, changed = names[:-1], {n - 1.0: None}
    other = visited(view_of(replaced, relation).parts(plan.shares))
    assert only_one_differs(whole, other, changed)


SHARES = shares_of(3)


def by_number(labels):
    """Positions that are ranks, which replace-one allows, where a record is removed."""
    return view_of(labels, "replace").parts(SHARES)


def by_sorted_blocks(labels):
    """The blocks of a file that is sorted by a field."""
    ordered = np.sort(labels)
    blocks = [(np.zeros((10, 2)), part) for part in np.split(ordered, len(ordered) // 10)]
    data = Blocks(len(ordered), 2, lambda: iter(blocks), None, 10, blocks.__getitem__)
    return View(data, "replace", "record", Source(5)).by_blocks().parts(SHARES)


def overlapping(labels):
    """Parts that begin before the one before ends."""
    view, cuts = view_of(labels, "replace"), np.cumsum((0.0, *SHARES))
    return [view.between(max(0.0, a - 0.1), b) for a, b in itertools.pairwise(cuts)]


@pytest.mark.parametrize(
    ("fault", "labels", "changed"),
    [
        (by_number, np.arange(59.0), {59.0: None}),
        (by_sorted_blocks, np.append(999.0, np.arange(1.0, 60)), {0.0: 999.0}),
        (overlapping, np.append(999.0, np.arange(1.0, 60)), {0.0: 999.0}),
    ],
)
def test_planted_faults_in_the_parts_are_caught(fault, labels, changed):
    whole, other = (visited(fault(each)) for each in (np.arange(60.0), labels))
    assert not only_one_differs(whole, other, changed)


def test_the_order_of_visits_is_random():
    first, second = (visited(view_of(np.arange(60.0), "replace", s).parts(SHARES)) for s in (1, 2))
    assert first != second
    assert sorted(first[0]) != sorted(second[0])


# Noise and guarantee.


@pytest.mark.parametrize("noise", ["gaussian", "l2_laplace"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_noise_has_the_declared_size(noise, relation):
    one = OnePass(problem_of(Logistic(), 3, 50), relation, noise, 2.0, step_size=0.5, clip_norm=0.8)
    data = InMemory(np.eye(3, 50), [1.0, -1.0, 1.0])
    drawn = []
    for seed in range(400):
        averaged = one.average(View(data, relation, "record", Source(seed)))
        view = View(data, relation, "record", Source(seed))
        drawn.append(one.run(view, Run(Source(10**6 + seed))) - averaged)
    moved = 0.5 * 0.8 * (2 if relation == "replace" else 1)
    expected = 2.0 * moved * (math.sqrt(51) if noise == "l2_laplace" else 1.0)
    # Six standard errors of the deviation of 20,000 numbers are 3%, and 5% where a radius of
    # relative deviation 1/7 is common to 50 of them.
    assert np.std(drawn) == pytest.approx(expected, rel=0.06)
    assert one.sensitivity == pytest.approx(moved, rel=1e-9)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    "terms", [{"epsilon": 1.0}, {"epsilon": 1.0, "delta": 1e-6}, {"mu": 0.5}, {"rho": 0.1}]
)
def test_all_phases_together_cost_what_one_does(relation, terms):
    budget = Budget(**terms, relation=relation)
    plans = [
        phased_sgd.plan(problem_of(Hinge(), 1000, 30), budget, phases=k, time=5.0) for k in (1, 4)
    ]
    multipliers = [{stage.plan.mechanism.noise_multiplier for stage in p.stages} for p in plans]
    assert multipliers[0] == multipliers[1]
    for plan in plans:
        assert budget.admits(plan.event)
        assert plan.work.passes == pytest.approx(1.0)
        assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_pure_noise_is_smaller_in_few_dimensions():
    """Root mean squares of 5.5 and 9.4 sensitivities in 5 dimensions."""
    for d, noise, size in ((5, "l2_laplace", 5.5), (40, "gaussian", 26.8)):
        plan = phased_sgd.plan(problem_of(Logistic(), 10**5, d), BUDGET)
        one = plan.stages[0].plan.mechanism
        assert one.noise == noise
        root = math.sqrt(d * one.vector_noise.mean_square(1.0))
        assert root == pytest.approx(size, rel=0.01)


def test_rounding_of_many_steps_is_charged():
    one = OnePass(problem_of(Logistic(), 10**7, 20), "replace", "gaussian", 1.0, 1e-4, 1.0)
    assert 1 + 1e-4 < one.sensitivity / one.movement < 1.2
    # A quarter of the steps, which reach a quarter as far.
    part = replace(one, share=0.25)
    charged = [each.sensitivity / each.movement - 1 for each in (one, part)]
    assert charged[1] == pytest.approx(charged[0] / 16, rel=0.01)
    whole = replace(part, relation="add_remove")
    assert whole.most_steps == 2 * 10**7


def test_a_pass_takes_no_more_records_than_its_rounding_errors_are_charged_for():
    problem = problem_of(Logistic(), 40)
    one = OnePass(problem, "replace", "gaussian", 1.0, step_size=1.0, clip_norm=1.0, share=0.25)
    data = InMemory(np.zeros((40, 2)), np.ones(40))
    view = View(data, "replace", "record", Source(1))
    assert one.average(view.between(0.0, 0.25)).shape == (2,)
    with pytest.raises(ValueError, match="at most 11 records, got 40"):
        one.average(view)


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [("pure",), ("gdp",)], ids=str)
@pytest.mark.parametrize("relation", RELATIONS)
def test_an_audit_keeps_it(relation, kinds):
    found = audit_algorithm(
        phased_sgd.using(phases=2, time=2.0), kinds, relation=relation, runs=800, random_state=1
    )
    assert found.verdict == "kept", str(found)


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "share"), [("gaussian", 0.8), ("l2_laplace", 0.5)])
def test_an_audit_catches_less_noise(noise, share):
    """One record far from its label, which moves the average by all that the noise is made for."""
    problem = problem_of(Huber(1.0), 1, 1)
    right = OnePass(problem, "replace", noise, 1.0, step_size=0.5, clip_norm=1.0)
    why = Basis("Feldman, Koren and Talwar (2020)", "replace", "record", (), "bounded")
    data, other = (InMemory([[1.0]], [label]) for label in (1000.0, -1000.0))
    options = {
        "runs": 5000 if noise == "gaussian" else 2500,
        "attacks": (Projection((np.array([0.5]), np.array([-0.5]))),),
        "strategy": Fixed(0.5),
        "currency": "balanced",
        "random_state": 4,
    }
    for multiplier, verdict in ((1.0, "kept"), (share, "broken")):
        tried = Step(replace(right, noise_multiplier=multiplier), why)
        found = audit_runs(PlanRuns(tried), data, other, Step(right, why).guarantee, **options)
        assert found.verdict == verdict, str(found)


# The rule.


@pytest.mark.parametrize("tail", [0.05, 0.5, 1.0])
def test_the_closed_forms_are_integrals(tail):
    late = np.linspace(1 - tail, 1, 200_001)
    for decay in (0.3, 2.0, 30.0):
        assert remaining(np.array([decay]), tail)[0] == pytest.approx(
            np.exp(-decay * late).mean(), rel=1e-4
        )
        u = (np.arange(20_000) + 0.5) / 20_000
        start = np.maximum(u, 1 - tail)
        weights = (np.exp(-decay * (start - u)) - np.exp(-decay * (1 - u))) / (decay * tail)
        assert sampling_variance(np.array([decay]), tail)[0] == pytest.approx(
            np.mean(weights**2), rel=1e-3
        )


@pytest.mark.parametrize("tail", [0.05, 0.5])
def test_the_predicted_risk_is_that_of_a_quadratic(tail):
    """One dimension, squared loss: start, noise and sample errors in 6000 runs of the recursion."""
    n, spread, phases = 400, 0.7, 3
    problem = Minimize(n=n, loss=Huber(50.0), bounds=Bounds(1.0, -60, 60), n_features=1)
    noise = VectorNoise("gaussian", 0.05, 1)
    found = Phases(problem, "replace", noise, 50.0, phases, factor=3.0)
    design = Design(np.ones(1), np.array([4.0]), 2.0, errors=1e-9, gradient_noise=spread**2)
    rng, points = np.random.default_rng(8), np.zeros(6000)
    for i, share in enumerate(shares_of(phases)):
        step_size, kept, count = found.step_size(6.0, i), [], round(n * share)
        for t in range(count):
            points = points - step_size * (points - 2.0 - spread * rng.standard_normal(6000))
            if t >= round(count * (1 - tail)):
                kept.append(points)
        deviation = noise.noise_multiplier * 2 * step_size * 50.0
        points = np.mean(kept, axis=0) + deviation * rng.standard_normal(6000)
    # Six standard errors of a mean square of 6000 are 11%.
    predicted = found.risk_on(design, np.array([6.0]), np.array([tail]))[0]
    assert np.mean((points - 2.0) ** 2) / 2 == pytest.approx(predicted, rel=0.12)


def test_fewer_records_get_fewer_or_shorter_phases():
    times = []
    for n in (10**4, 10**6):
        plan = phased_sgd.plan(problem_of(Logistic(), n, 20), BUDGET)
        times.append(plan.stages[0].plan.mechanism.step_size * n / len(plan.stages))
    assert times[0] < times[1] / 2


@pytest.mark.parametrize("loss", [Logistic(), Hinge()], ids=str)
def test_one_pass_learns(loss):
    rng, n = np.random.default_rng(2), 50_000
    rows = rng.standard_normal((n, 5)) / 4
    labels = np.where(rows @ [3.0, -3.0, 2.0, 0.0, 0.0] + 0.3 * rng.logistic(size=n) > 0, 1.0, -1.0)
    plan = phased_sgd.plan(problem_of(loss, n, 5), BUDGET)
    theta = plan.run(InMemory(rows, labels), random_state=1).output
    losses = [float(loss.value(rows @ at, labels).mean()) for at in (theta, 0 * theta)]
    assert losses[0] < 0.7 * losses[1]


# Files.


def in_blocks(n=1000, size=64, d=2, seed=1):
    """Records in blocks, and the list of the blocks that were read."""
    rng = np.random.default_rng(seed)
    rows, labels, read = rng.normal(size=(n, d)), rng.choice([-1.0, 1.0], n), []

    def block(number):
        read.append(number)
        part = slice(number * size, (number + 1) * size)
        return rows[part], labels[part]

    def blocks():
        return (block(i) for i in range(-(-n // size)))

    return Blocks(n, d, blocks, None, size, block), InMemory(rows, labels), read


def test_by_blocks_a_file_is_read_once():
    data, held, read = in_blocks()
    plan = phased_sgd.plan(problem_of(Logistic(), 1000), BUDGET, phases=3, by_blocks=True)
    plan.run(data, random_state=1)
    assert sorted(read) == list(range(16))
    assert read != sorted(read)
    assert any("order of rows" in a.text for a in plan.basis.assumptions if a.status == "declared")
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    read.clear()
    without = phased_sgd.plan(problem_of(Logistic(), 1000), BUDGET, phases=3)
    without.run(data, random_state=1)
    assert len(read) == 3 * 16
    assert not any("order of rows" in a.text for a in without.basis.assumptions)
    plan.run(held, random_state=1)  # data in memory have positions of their own


def test_by_blocks_mapped_rows_of_a_file_are_read_once_for_the_map_and_once_for_the_phases():
    data, _, read = in_blocks()
    plan = phased_sgd.plan(problem_of(Logistic(), 1000), BUDGET, mapped=True, by_blocks=True)
    assert len(plan.plan.stages[1].plan.mechanisms) > 1
    plan.run(data, random_state=1)
    assert sorted(read) == sorted([*range(16)] * 2)


def test_by_blocks_each_record_is_visited_once_by_one_phase():
    data, held, _ = in_blocks()
    view, seen = View(data, "replace", "record", Source(2)).by_blocks(), []
    for part in view.parts((0.3, 0.3, 0.4)):
        part.fold(lambda _, chunk: seen.extend(map(tuple, chunk.rows.tolist())), None)
    assert len(seen) == 1000
    assert set(seen) == set(map(tuple, held.matrix.tolist()))
    assert [part.n for part in view.parts((0.3, 0.3, 0.4))] == [300, 300, 400]


def test_by_blocks_needs_replace_one():
    """Under add/remove a missing row would move every later block boundary."""
    budget = Budget(epsilon=1, delta=1e-6, relation="add_remove")
    with pytest.raises(ValueError, match="by_blocks needs relation='replace'"):
        phased_sgd.plan(problem_of(Logistic(), 1000), budget, by_blocks=True)
    with pytest.raises(ValueError, match="positions by blocks"):
        View(in_blocks()[0], "add_remove", "record", Source(1)).by_blocks()


def test_row_groups_of_a_parquet_file_are_blocks(tmp_path):
    rng = np.random.default_rng(3)
    columns = {"x": rng.uniform(-1, 1, 1000), "y": rng.choice([-1.0, 1.0], 1000)}
    schema = Schema((Number("x", -1, 1),), target=Number("y", -1, 1), row_norm=2.0)
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=128)
    data = scan_parquet(tmp_path / "a.parquet", schema)
    assert data.block_size == 128
    plan = phased_sgd.plan(
        Minimize(n=1000, loss=Hinge(), bounds=Bounds(2.0), n_features=data.width),
        BUDGET,
        by_blocks=True,
    )
    held = records(parquet.read_table(tmp_path / "a.parquet"), schema)
    assert np.isfinite(plan.run(data, random_state=1).output).all()
    for number in range(8):
        np.testing.assert_array_equal(
            data.read_block(number)[0], held.matrix[128 * number : 128 * (number + 1)]
        )
    with parquet.ParquetWriter(tmp_path / "b.parquet", pa.table(columns).schema) as file:
        for low, high in ((0, 100), (100, 400), (400, 1000)):
            file.write_table(pa.table(columns).slice(low, high - low))
    assert scan_parquet(tmp_path / "b.parquet", schema).block_size is None


# Behind a map.


def test_mapped_phases_scale_with_the_rows_behind_the_map():
    """Steps fall with the square of the row norm, clip norms with the norm, and the event stays."""
    plan = phased_sgd.plan(problem_of(Hinge(), 10**5, 4), BUDGET, mapped=True)
    assert plan.work.passes == pytest.approx(2.0)
    assert [stage.name for stage in plan.stages] == ["moments", "phases"]
    stage = plan.stages[1]
    moments = np.diag([0.9, 0.09, 0.009, 0.001])
    bound = stage.binding.bound(stage.plan, {"moments": moments})
    through = bound.transformation.through
    np.testing.assert_allclose(
        np.diag(through @ moments @ through) / np.diag(through @ moments @ through)[0],
        np.ones(4), rtol=0.05,
    )  # fmt: skip
    for planned, scaled in zip(stage.plan.mechanisms, bound.mechanisms, strict=True):
        ratio = scaled.problem.bounds.row_norm / planned.problem.bounds.row_norm
        assert ratio < 0.2
        assert scaled.step_size == pytest.approx(planned.step_size / ratio**2)
        assert scaled.clip_norm == pytest.approx(planned.clip_norm * ratio)
        assert scaled.step_size * scaled.curvature <= 2
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.guarantee.epsilon(1e-6) == pytest.approx(1.0, rel=1e-3)


def test_rows_behind_the_map_are_as_long_as_the_steps_allow():
    """Shortened rows of a smooth loss would tell of a longer parameter; steps stay in their bound.

    A kink is smoothed for rows of the usual length, and its steps allow no longer ones.
    """
    moments = np.diag([0.9, 0.09, 0.009, 0.001])
    lengths = {}
    for name, loss in {"smooth": Logistic(), "kinked": Hinge()}.items():
        plan = phased_sgd.plan(problem_of(loss, 10**5, 4), BUDGET, mapped=True)
        bound = plan.stages[1].binding.bound(plan.stages[1].plan, {"moments": moments})
        lengths[name] = [one.problem.bounds.row_norm for one in bound.mechanisms]
        for one in bound.mechanisms:
            used = one.step_size * one.curvature / 2
            assert used <= 1
            assert used > 1 - 1e-9 or one.problem.bounds.row_norm == 1.0
    assert min(lengths["smooth"]) > 3 * max(lengths["kinked"])


def test_a_tail_outside_of_the_pass_is_refused():
    one = phased_sgd.plan(problem_of(Logistic(), 1000), BUDGET).final
    for tail in (0.0, 1.5, math.nan):
        with pytest.raises(ValueError, match=r"tail must be in \(0, 1\]"):
            replace(one, tail=tail)


def test_a_short_tail_where_noise_decides_and_half_of_the_pass_where_records_do():
    few, many = (
        phased_sgd.plan(problem_of(Logistic(), n, 8), BUDGET).final for n in (10**4, 10**7)
    )
    assert (few.tail, many.tail) == (0.05, 0.5)


def test_a_map_helps_where_columns_are_of_unequal_scales():
    rng, n, d = np.random.default_rng(4), 60_000, 6
    rows = rng.standard_normal((n, d)) / np.arange(1.0, d + 1) ** 1.5
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True) / 2)
    labels = np.where(
        rng.random(n) < 1 / (1 + np.exp(-rows @ (2.0 * np.arange(1.0, d + 1)))), 1.0, -1.0
    )
    problem = Minimize(n=n, loss=Logistic(), bounds=Bounds(2.0), n_features=d)
    risks = []
    for mapped in (False, True):
        plan = phased_sgd.plan(problem, BUDGET, mapped=mapped)
        outputs = [plan.run(InMemory(rows, labels), random_state=s).output for s in range(4)]
        risks.append(np.mean([Logistic().value(rows @ theta, labels).mean() for theta in outputs]))
    assert risks[1] < risks[0] - 0.003


@pytest.mark.parametrize(
    ("problem", "budget", "message"),
    [
        (
            problem_of(Logistic(), 99, ridge=0.1),
            BUDGET,
            "mapped does not support ridge: .*; leave mapped out",
        ),
        (
            problem_of(Logistic(), 99, domain=L2Ball(2, 1.0)),
            BUDGET,
            "mapped does not support domain",
        ),
        (problem_of(Logistic(), 99), Budget(epsilon=1.0), "mapped needs a delta"),
    ],
)
def test_a_map_with_a_ridge_a_domain_or_a_pure_budget_is_refused(problem, budget, message):
    with pytest.raises(ValueError, match=message):
        phased_sgd.plan(problem, budget, mapped=True)


# Bad input.


@pytest.mark.parametrize(
    ("problem", "options", "message"),
    [
        (problem_of(Logistic(), 5), {"phases": 3}, "phases=3 needs n of at least 10"),
        (problem_of(Logistic(), 100), {"phases": 1, "time": 900.0}, "time must be at most 800"),
        (problem_of(Hinge(), 100, ridge=1.0), {"phases": 1, "time": 900.0}, "at most 199.8"),
        (problem_of(Hinge().enveloped(0.5), 100), {}, "a kink with a closed form"),
        (Minimize(n=99, loss=Softmax(3), bounds=Bounds(1.0), n_features=2), {}, "generalized"),
        (Minimize(n=99, loss=HuberDistance(1.0), bounds=Bounds(1.0), n_features=2), {}, "gener"),
        (problem_of(Logistic(), 100), {"max_passes": 0}, "max_passes"),
        (problem_of(Logistic(), 100), {"mapped": True, "max_passes": 1}, "mapped takes 2 passes"),
        (problem_of(Logistic(), 100), {"phases": 0}, "phases"),
        (problem_of(Logistic(), 100), {"time": -1.0}, "time"),
        (problem_of(Logistic(), 100), {"clip_norm": 0.0}, "clip_norm"),
        (Minimize(n=99, loss=Squared(), bounds=Bounds(1.0), n_features=2), {}, "clip_norm"),
    ],
)  # fmt: skip
def test_bad_problems_and_options_are_refused_when_planned(problem, options, message):
    with pytest.raises(ValueError, match=message):
        phased_sgd.plan(problem, BUDGET, **options)


def test_the_longest_time_that_is_not_refused_can_be_planned():
    """The refusal names the bound of the proof, not less and not more."""
    for problem, most in (
        (problem_of(Logistic(), 100), 800.0),
        (problem_of(Logistic(), 100, ridge=0.75), 200.0),
        (problem_of(Hinge(), 100, ridge=0.5), 399.6),
    ):
        plan = phased_sgd.plan(problem, BUDGET, phases=1, time=most * (1 - 1e-9))
        one = plan.stages[0].plan.mechanism
        assert one.step_size * one.curvature <= 2
        with pytest.raises(ValueError, match="reduce time"):
            phased_sgd.plan(problem, BUDGET, phases=1, time=most * (1 + 1e-9))


def test_a_loss_of_the_caller_is_refused():
    loss = CustomLoss(
        value_function=lambda theta, rows, labels: np.abs(rows @ theta),
        gradient_function=lambda theta, rows, labels: np.sign(rows @ theta)[:, None] * rows,
        lipschitz_bound=1.0,
        smoothness_bound=1.0,
        is_convex=True,
    )
    problem = Minimize(n=100, loss=loss, bounds=Bounds(1.0), n_features=2)
    with pytest.raises(ValueError, match="generalized linear loss"):
        phased_sgd.plan(problem, BUDGET)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("loss", [Logistic(), Absolute()], ids=str)
def test_odd_records_give_a_model(loss, relation):
    rows = np.array([[math.nan], [math.inf], [1e300], [1.0], [0.0], [-1e-300]] * 3)
    labels = np.array([1.0, math.nan, 7.0, -math.inf, 1.0, 1.0] * 3)
    budget = Budget(epsilon=1, delta=1e-6, relation=relation)
    for phases in (1, 4):
        plan = phased_sgd.plan(problem_of(loss, 18, 1), budget, phases=phases)
        assert np.isfinite(plan.run(InMemory(rows, labels), random_state=1).output).all()
    assert np.isfinite(
        plan.run(InMemory(np.ones((18, 1)), np.ones(18)), random_state=1).output
    ).all()


def test_without_a_delta_there_is_pure_noise():
    plan = phased_sgd.plan(problem_of(Absolute(), 1000), Budget(epsilon=1.0))
    assert plan.guarantee.pure == pytest.approx(1.0)


def test_it_has_a_fraction_of_the_work_of_a_descent():
    problem = problem_of(Logistic(), 10**6, 20)
    assert (
        phased_sgd.plan(problem, BUDGET).work.passes * 300
        == noisy_gd.plan(problem, BUDGET).work.passes
    )
