"""Descent in second-moment geometry: sensitivities, exact quadratic laws, gains."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from dpfit.core import Minimize, Run, Step, TransformedPlan, plan_from_json
from dpfit.data.dataset import Blocks, InMemory
from dpfit.geometry import L2Ball
from dpfit.geometry.symmetric import pack, unpack
from dpfit.losses import Bounds, Huber, Logistic, SmoothedHinge, Softmax
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.noise import Source
from dpfit.privacy import Budget, BudgetUnreachable
from dpfit.solvers.descents.descent import trajectory_basis
from dpfit.solvers.descents.momentum import momentum_descent
from dpfit.solvers.descents.second_moments import (
    MappedRows,
    SecondMoments,
    isotropic_preconditioner,
)
from dpfit.solvers.gradient import preconditioned_gd as preconditioned_module
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.gradient.preconditioned_gd import IsotropicRule, _spread, preconditioned_gd

RELATIONS = ("replace", "add_remove")


def logistic(n=1000, d=3, **more):
    return Minimize(n=n, loss=Logistic(), bounds=Bounds(1.0), n_features=d, **more)


def skewed(n=20_000, d=6, rng_seed=3):
    """Columns of falling scale; labels weigh small and large ones alike."""
    rng = np.random.default_rng(rng_seed)
    rows = rng.standard_normal((n, d)) * 0.3 ** np.arange(d)
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    margins = rows @ (1.5 * 0.3 ** -np.arange(d))
    return rows, np.where(rng.random(n) < 1 / (1 + np.exp(-margins)), 1.0, -1.0)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_no_neighbour_moves_the_second_moments_further_than_declared(relation, d):
    tried = SecondMoments(logistic(4, d), relation, "gaussian", 1.0)
    corners = [np.array(p) for p in itertools.product((-9.0, 0.0, 0.5, 9.0), repeat=d)] + [
        np.full(d, np.nan)
    ]
    alone = [pack(InMemory([x], [1.0]).gram(row_norm=1.0)[0]) for x in corners]
    moves = (
        alone
        if relation == "add_remove"
        else [a - b for a, b in itertools.product(alone, repeat=2)]
    )
    largest = max(np.linalg.norm(move) for move in moves)
    assert largest <= tried.sensitivity
    # Orthogonal rows, which take two dimensions, attain the bound for a replaced record.
    assert largest == pytest.approx(
        tried.sensitivity / (math.sqrt(2) if relation == "replace" and d == 1 else 1)
    )


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_noise_of_the_second_moments_has_the_declared_size(relation):
    tried = SecondMoments(logistic(2, 2), relation, "gaussian", 3.0)
    data, run = InMemory([[1.0, 0.0], [0.0, 0.5]], [1.0, 1.0]), Run(Source(5))
    drawn = np.array([tried.run(data, run) for _ in range(8000)]) * 2
    moved = 3.0 * (math.sqrt(2) if relation == "replace" else 1.0)
    assert np.allclose(drawn, drawn.transpose(0, 2, 1))
    # Six standard errors of a deviation are 5%.
    assert drawn.std(axis=0) == pytest.approx(
        moved * np.array([[1, 0.5**0.5], [0.5**0.5, 1]]), rel=0.05
    )
    assert drawn.mean(axis=0) == pytest.approx(
        np.diag([1.0, 0.25]), abs=6 * moved / math.sqrt(8000)
    )


MOMENTS = [
    np.diag([0.5, 0.02]),
    np.array([[0.3, 0.29], [0.29, 0.3]]),
    -np.eye(2),
    1e6 * np.eye(2),
    np.zeros((2, 2)),
]


@pytest.mark.parametrize(
    "moments", MOMENTS, ids=["long", "diagonal", "negative", "huge", "nothing"]
)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    "loss", [Logistic(), SmoothedHinge(0.5), Huber(0.7)], ids=lambda loss: loss.kind
)
def test_no_neighbour_moves_the_sum_behind_the_map_further_than_declared(moments, relation, loss):
    problem = Minimize(n=6, loss=loss, bounds=Bounds(1.0, -1.0, 1.0), n_features=2)
    rows, descent = IsotropicRule(problem, relation, 1.0, 5, 0.01).mapped(moments)
    clip_norm = descent.optimizer.clip_norm
    grid, sensitivity = descent.aggregate.scale(descent.asked(clip_norm))
    corners = [np.array(p) for p in itertools.product((-9.0, 0.0, 0.6, 9.0), repeat=2)] + [
        np.array([np.nan, 1.0])
    ]
    records = list(itertools.product(corners, (-1.0, 1.0, 7.0)))
    largest = 0.0
    for point in (np.zeros(2), np.array([50.0, -20.0]), np.array([-3.0, -400.0])):
        alone = np.array(
            [_sum(problem, rows, [record], point, grid, clip_norm) for record in records]
        )
        together = _sum(problem, rows, records, point, grid, clip_norm)
        assert np.array_equal(alone.sum(axis=0), together)  # records do not interact
        moves = alone if relation == "add_remove" else (alone[:, None] - alone[None]).reshape(-1, 2)
        largest = max(largest, np.linalg.norm(moves, axis=1).max() * grid.step)
    assert largest <= sensitivity
    # Two steep gradients are opposite only in the limit of long parameters; corners come near that.
    assert largest >= (0.9 if relation == "add_remove" else 0.6) * sensitivity


def _sum(problem, rows, records, point, grid, clip_norm):
    seen = InMemory(np.array([x for x, _ in records]), np.array([y for _, y in records])).map(rows)
    return seen.clipped_sum(problem.loss, point, grid=grid, clip=clip_norm, **problem.guards)


def mapped_descent(
    problem, relation, noise_multiplier, step_size, clip_norm, schedule, matrix, shrinkage=0.0
):
    packed = tuple(pack(matrix).tolist())
    behind = replace(problem, ridge_map=packed)
    descent = momentum_descent(
        behind, relation, noise_multiplier, step_size, clip_norm, schedule, shrinkage
    )
    rows = MappedRows(problem.bounds, bool(problem.guards.get("binary", False)), packed)
    return TransformedPlan(
        rows, Step(descent, trajectory_basis(problem.loss, Budget(mu=1.0, relation=relation)))
    )


def bound(plan, matrix):
    """The second stage as it runs after this release."""
    stage = plan.stages[1]
    return stage.binding.bound(stage.plan, {"moments": matrix})


def test_the_map_makes_moments_alike_and_no_row_longer():
    rng = np.random.default_rng(1)
    root = rng.normal(size=(4, 4))
    moments = root @ np.diag([1.0, 0.1, 0.01, 1e-9]) @ root.T / 50
    spectrum, vectors = np.linalg.eigh(moments)
    squares, usual, moment = isotropic_preconditioner(spectrum, 1e-4, 1.0, 1.5, 1e-5)
    matrix = (vectors * np.sqrt(squares)) @ vectors.T
    values = np.linalg.eigvalsh(matrix @ moments @ matrix)
    assert values[1:] == pytest.approx(np.full(3, values[-1]))
    assert values[0] < values[-1] / 100  # below the floor nothing is known
    assert np.linalg.eigvalsh(matrix)[-1] == pytest.approx(1.0)
    assert usual == pytest.approx(1.5 * math.sqrt(values.sum()))
    assert moment == pytest.approx(values[-1] + 1e-4)


@pytest.mark.parametrize("relation", RELATIONS)
def test_on_a_quadratic_the_output_has_the_predicted_law(relation):
    """Directions do not mix: each recursion, with mapped noise, is followed by hand."""
    n, steps, size, multiplier, clip, ridge = 1000, 5, 0.4, 2.0, 30.0, 0.3
    problem = Minimize(n=n, loss=Huber(100.0), bounds=Bounds(1.0), n_features=2, ridge=ridge)
    shrink = np.array([0.5, 1.0])
    tried = mapped_descent(
        problem, relation, multiplier, size, clip, Schedule(steps, average=0.0), np.diag(shrink)
    )
    data = InMemory(np.tile(np.diag([1.0, 0.6]), (n // 2, 1)), np.tile([8.0, -4.0], n // 2))
    # Curvatures and targets of the objective in the coordinates behind the map.
    curvatures = shrink**2 * (np.array([1.0, 0.36]) / 2 + ridge)
    targets = shrink * np.array([8.0, -0.6 * 4.0]) / 2
    point, gains = np.zeros(2), []
    for _ in range(steps):
        point = point - size * (curvatures * point - targets)
        gains = [gain * (1 - size * curvatures) for gain in gains] + [np.full(2, size)]
    moved = (2 if relation == "replace" else 1) * clip
    scale = (
        shrink
        * moved
        * multiplier
        * math.sqrt(steps)
        / n
        * np.sqrt((np.array(gains) ** 2).sum(axis=0))
    )
    outputs = np.array(tried.execute_many(data, Run(Source(5)), 20_000))
    assert np.all(
        np.abs(outputs.mean(axis=0) - shrink * point) < 6 * scale / math.sqrt(len(outputs))
    )
    # Six standard errors of a variance are 6%; noise that is 10% off is 20%.
    assert outputs.var(axis=0) == pytest.approx(scale**2, rel=0.06)


def test_a_huge_budget_gives_the_optimum_of_the_same_objective_also_with_a_ridge():
    rows, labels = skewed(2000, 4)
    problem = logistic(2000, 4, ridge=0.001)
    _, theta = (
        preconditioned_gd.plan(problem, Budget(mu=1e6))
        .run(InMemory(rows, labels), random_state=1)
        .value
    )
    gradient = -(labels / (1 + np.exp(labels * (rows @ theta)))) @ rows / 2000 + 0.001 * theta
    curvature = (rows.T * 0.2) @ rows / 2000 + 0.001 * np.eye(4)
    # Half the squared Newton decrement: what is left above the minimum.
    assert gradient @ np.linalg.solve(curvature, gradient) / 2 < 1e-8


def categories(loss):
    """Three categories, one rare: mapped, its rows are several times as long."""
    random = np.random.default_rng(3)
    category = random.choice(3, 3000, p=[0.05, 0.3, 0.65])
    middle = np.array([0.6, -0.3, 0.1])[category]
    labels = np.where(random.random(3000) < (1 + middle) / 2, 1.0, -1.0)
    if not loss.binary_labels:
        labels = middle + 0.1 * random.standard_normal(3000)
    return (
        Minimize(n=3000, loss=loss, bounds=Bounds(1.0, -1.0, 1.0), n_features=3),
        category,
        labels,
    )


@pytest.mark.parametrize(
    "loss", [Logistic(), SmoothedHinge(0.5), Huber(0.2)], ids=lambda loss: loss.kind
)
def test_the_longest_steps_settle(loss):
    """Without momentum, which would ring between the flat parts of a loss."""
    problem, category, labels = categories(loss)
    data, plan = (
        InMemory(np.eye(3)[category], labels),
        preconditioned_gd.plan(problem, Budget(mu=1e3)),
    )
    matrix, theta = plan.run(data, random_state=1).value
    moves = bound(plan, matrix).final.optimizer
    assert moves.schedule.momentum == 0.0
    assert (
        moves.step_size * loss.smoothness(Bounds(1.0)).value > 3
    )  # far too long for rows that point one way
    for j in range(3):
        near = theta[j] + np.linspace(-0.01, 0.01, 2001)
        losses = loss.value(near[:, None], labels[category == j]).mean(axis=1)
        assert losses[1000] - losses.min() < 1e-7


def test_a_matrix_of_noise_is_predicted_to_do_harm():
    """Many columns, a small budget: the geometry is random unless moments are public."""
    problem = Minimize(n=2000, loss=Logistic(), bounds=Bounds(1.0), n_features=40)
    budget = Budget(mu=0.3)
    noisy, better = (
        preconditioned_gd.plan(problem, budget, share=share).risk.expected for share in (0.001, 0.1)
    )
    public = preconditioned_gd.plan(problem, budget, second_moments=np.eye(40) / 40).risk.expected
    assert noisy > better > public


def test_noise_on_a_matrix_has_the_spread_that_is_supposed():
    """Against the eigenvalues of a symmetric matrix of noise whose largest is about one."""
    noise = np.random.default_rng(8).standard_normal((400, 400))
    values = np.linalg.eigvalsh((noise + noise.T) / 2) / math.sqrt(2 * 400)
    assert np.sort(_spread(400)) == pytest.approx(
        values, abs=0.05
    )  # the largest and the least stray a little


def test_long_rows_keep_their_say():
    """Gradients are clipped, rows are not scaled: the rare category would say 0.6 / 0.58."""
    problem, category, labels = categories(Huber(0.2))
    plan = preconditioned_gd.plan(problem, Budget(mu=0.5))
    stage, moments = plan.stages[1], np.array([0.05, 0.3, 0.65])
    rule = stage.binding._rule(stage.plan.final)
    assert rule.preconditioner(moments).usual == pytest.approx(0.58, abs=0.03)
    noisy = bound(plan, np.diag(moments))
    quiet = noisy.map_steps(
        lambda d: replace(d, aggregate=replace(d.aggregate, noise_multiplier=1e-6))
    )
    theta = quiet.execute(InMemory(np.eye(3)[category], labels), Run(Source(1)))
    assert theta == pytest.approx([np.median(labels[category == j]) for j in range(3)], abs=0.03)


def test_the_output_is_shrunk_in_the_geometry_in_which_noise_is_round():
    """Squared norms are the mapped ones: 25 there, of which shrinkage takes 5."""
    problem = Minimize(n=100, loss=Logistic(), bounds=Bounds(1.0), n_features=2)
    plan = mapped_descent(
        problem, "replace", 1.0, 0.1, 1.0, Schedule(10), np.diag([1.0, 0.1]), shrinkage=5.0
    )
    state = {
        "step": 10,
        "point": np.zeros(2),
        "velocity": np.zeros(2),
        "average": np.array([3.0, 4.0]),
    }
    value = plan.final.finish({"aggregate": {"round": 10}, "optimizer": state})
    assert plan.transformation.inverse(value) == pytest.approx([2.4, 0.32])


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_it_gains_much_over_plain_descent_where_data_are_skewed(relation):
    """With 10% of the budget for the matrix; unseen directions stay as hard."""
    rows, labels = skewed()
    data, problem, budget = (
        InMemory(rows, labels),
        logistic(20_000, 6),
        Budget(mu=0.5, relation=relation),
    )

    def loss(thetas):
        return np.logaddexp(0, -labels * (np.asarray(thetas) @ rows.T)).mean()

    run, best = Run(Source(7)), 0.0
    weights = np.zeros(6)
    for _ in range(50):
        slopes = 1 / (1 + np.exp(labels * (rows @ weights)))
        step = np.linalg.solve((rows.T * (slopes * (1 - slopes))) @ rows, (labels * slopes) @ rows)
        weights = weights + step
    best = loss([weights])
    plain = loss(noisy_gd.plan(problem, budget).execute_many(data, run, 5)) - best
    noisy = preconditioned_gd.plan(problem, budget, share=0.1)
    private = loss([t for _, t in noisy.execute_many(data, run, 5)]) - best
    moments = rows.T @ rows / len(rows)
    public = preconditioned_gd.plan(problem, budget, second_moments=(moments + moments.T) / 2)
    assert 2.5 * private < plain
    assert 3 * (loss(public.execute_many(data, run, 5)) - best) < plain


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    "limit", [{"epsilon": 1.0, "delta": 1e-6}, {"mu": 0.5}, {"rho": 0.1}], ids=str
)
def test_budgets_are_met_and_plans_written_down(limit, relation):
    budget = Budget(**limit, relation=relation)
    for moments in (None, np.eye(3)):
        plan = preconditioned_gd.plan(logistic(), budget, second_moments=moments)
        assert plan.guarantee.meets(budget)
        assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_the_event_does_not_depend_on_what_was_released():
    plan = preconditioned_gd.plan(logistic(), Budget(mu=1.0), share=0.3)
    unbound, after = plan.stages[1].plan, bound(plan, np.eye(3))
    assert after.event == unbound.event
    assert after.final.aggregate.noise_multiplier == pytest.approx(1 / math.sqrt(0.7), rel=1e-6)
    assert plan.stages[0].plan.mechanism.noise_multiplier == pytest.approx(
        1 / math.sqrt(0.3), rel=1e-6
    )
    assert plan_from_json(after.to_json()) == after
    with pytest.raises(ValueError, match="not bound yet"):
        unbound.execute(InMemory(np.eye(3), np.ones(3)), Run(Source(1)))


def test_a_plan_holds_no_matrix_before_it_is_released():
    plan = preconditioned_gd.plan(logistic(d=40), Budget(mu=1.0))
    assert len(json.dumps(plan.to_json())) < 4000


def test_a_start_is_one_of_the_parameter_and_not_of_the_space_behind_the_map():
    rule = IsotropicRule(logistic(d=2, start=(0.3, -0.8)), "replace", 1.0, 5, 1e-6)
    rows, descent = rule.mapped(np.diag([0.5, 0.02]))
    assert rows.inverse(descent.problem.origin) == pytest.approx([0.3, -0.8])


def test_a_promise_that_leans_on_a_public_matrix_says_so():
    """A matrix computed from the records would be released without noise."""
    private, public = (
        preconditioned_gd.plan(logistic(), Budget(mu=1.0), second_moments=moments)
        for moments in (None, np.eye(3))
    )
    told = [
        [(a.text, a.status) for a in plan.basis.assumptions if "second_moments" in a.text]
        for plan in (private, public)
    ]
    assert told == [[], [("the second_moments were not computed from the data", "declared")]]


def test_what_it_cannot_do_is_refused():
    budget = Budget(mu=1.0)
    with pytest.raises(BudgetUnreachable, match="pure"):
        preconditioned_gd.plan(logistic(), Budget(epsilon=1.0))
    with pytest.raises(ValueError, match="domain"):
        preconditioned_gd.plan(logistic(domain=L2Ball(3, 1.0)), budget)
    with pytest.raises(ValueError, match="generalized linear"):
        preconditioned_gd.plan(
            Minimize(n=9, loss=Softmax(3), bounds=Bounds(1.0), n_features=2), budget
        )
    with pytest.raises(ValueError, match="share"):
        preconditioned_gd.plan(logistic(), budget, share=1.0)
    for matrix in (np.eye(2), np.full((3, 3), np.nan), np.triu(np.ones((3, 3))), -np.eye(3)):
        with pytest.raises(ValueError, match="second_moments must"):
            preconditioned_gd.plan(logistic(), budget, second_moments=matrix)
    with pytest.raises(ValueError, match="n = 5"):
        preconditioned_gd.plan(logistic(5), budget, max_passes=2).run(
            InMemory(np.ones((4, 3)), np.ones(4))
        )


@pytest.mark.parametrize(
    "rows", [np.full((7, 3), np.nan), np.full((7, 3), 1e300), np.zeros((7, 3)), np.eye(7, 3)]
)
@pytest.mark.parametrize("budget", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("relation", RELATIONS)
def test_any_data_and_budget_give_numbers(rows, budget, relation):
    plan = preconditioned_gd.plan(
        logistic(7, ridge=0.1), Budget(mu=budget, relation=relation), max_passes=20
    )
    matrix, theta = plan.run(InMemory(rows, np.full(7, np.inf)), random_state=1).value
    assert (matrix.shape, theta.shape) == ((3, 3), (3,))
    assert np.isfinite(matrix).all()
    assert np.isfinite(theta).all()


def test_blocks_of_records_give_the_same_numbers():
    rows, labels = skewed(300, 3)
    plan = preconditioned_gd.plan(
        logistic(300), Budget(mu=1.0), second_moments=np.diag([1.0, 0.1, 0.01]), max_passes=9
    )
    blocks = Blocks(300, 3, lambda: iter([(rows[:100], labels[:100]), (rows[100:], labels[100:])]))
    whole = plan.run(InMemory(rows, labels), random_state=2).value
    assert np.array_equal(plan.run(blocks, random_state=2).value, whole)


def test_a_packed_matrix_comes_back():
    matrix = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 5.0], [3.0, 5.0, 6.0]])
    assert unpack(pack(matrix)) == pytest.approx(matrix)
    assert np.linalg.norm(pack(matrix)) == pytest.approx(np.linalg.norm(matrix))


@pytest.mark.parametrize("scale", [1e-6, 1e-2, 1.0, 1e3])
@pytest.mark.parametrize("power", [0.0, 3.0])
def test_steps_spend_what_was_planned_whatever_matrix_was_released(scale, power):
    """How they share it follows from the matrix; the sum must not."""
    problem = Minimize(n=5000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=4)
    plan = preconditioned_gd.plan(problem, Budget(mu=0.5))
    matrix = np.diag(scale * np.arange(1, 5.0) ** -power) - 0.3 * scale * np.eye(4)
    aggregate = bound(plan, matrix).final.aggregate
    planned = plan.stages[1].plan.event.noise_multiplier
    spent = math.fsum(1 / aggregate.multipliers**2)
    assert spent <= 1 / planned**2
    assert spent == pytest.approx(1 / planned**2, rel=1e-9)
    assert aggregate.schedule.noise_decay > 0


def test_the_risk_of_a_plan_is_predicted_once(monkeypatch):
    """It takes tens of milliseconds, and planning, choosing and explaining read it."""
    predicted = []
    original = preconditioned_module.power_mean_risk
    monkeypatch.setattr(
        preconditioned_module,
        "power_mean_risk",
        lambda *given: predicted.append(1) or original(*given),
    )
    plan = preconditioned_gd.plan(logistic(), Budget(mu=0.5))
    risk = plan.risk
    assert plan.risk == risk
    assert str(round(risk.expected, 6))[:4] in plan.explain()
    assert len(predicted) == 1
