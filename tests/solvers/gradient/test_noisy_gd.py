"""Noisy GD: sensitivity by brute force, exact quadratic laws, trajectory budget."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from dpfit.core import Minimize, resume
from dpfit.core.mechanism import Run
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import (
    Bounds,
    CustomLoss,
    Hinge,
    Huber,
    HuberDistance,
    Logistic,
    Pinball,
    Softmax,
    Squared,
)
from dpfit.mechanisms.aggregates.clipped_mean import ClippedMean
from dpfit.mechanisms.aggregates.contribution import Gradient
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.noise import Grid, Source
from dpfit.privacy import Budget, BudgetUnreachable
from dpfit.solvers.descents.descent import Descent
from dpfit.solvers.descents.momentum import Momentum, momentum_descent
from dpfit.solvers.gradient.langevin import langevin
from dpfit.solvers.gradient.noisy_gd import noisy_gd


def logistic(n=1000, d=5, **more):
    return Minimize(n=n, loss=Logistic(), bounds=Bounds(1.0), n_features=d, **more)


def descent(
    problem, relation, noise_multiplier, steps, step_size, clip_norm, shrinkage=0.0, **weights
):
    schedule = Schedule(steps, **weights)
    return momentum_descent(
        problem, relation, noise_multiplier, step_size, clip_norm, schedule, shrinkage
    )


def sensitivity(mechanism):
    return mechanism.aggregate.scale(mechanism.asked(mechanism.optimizer.clip_norm))[1]


@pytest.mark.parametrize("growth", [0.0, 0.01, 0.3])
def test_the_steps_share_the_budget_exactly(growth):
    mechanism = descent(logistic(), "replace", 2.5, 70, 0.1, 1.0, growth=growth)
    spent = math.fsum(1 / mechanism.aggregate.multipliers**2)
    assert spent <= 1 / 2.5**2
    assert spent == pytest.approx(1 / 2.5**2, rel=1e-9)
    # With weights w the inverse variances grow like their root.
    assert mechanism.aggregate.multipliers[0] / mechanism.aggregate.multipliers[
        -1
    ] == pytest.approx((1 - growth) ** (-69 / 4))


@pytest.mark.parametrize("noise_decay", [1e-9, 0.5, 4.0, 1e9])
@pytest.mark.parametrize("steps", [1, 2, 70, 3000])
def test_steps_that_spend_unequally_spend_no_more(noise_decay, steps):
    mechanism = descent(logistic(), "replace", 2.5, steps, 1e-3, 1.0, noise_decay=noise_decay)
    spent = math.fsum(1 / mechanism.aggregate.multipliers**2)
    assert spent <= 1 / 2.5**2
    assert spent == pytest.approx(1 / 2.5**2, rel=1e-9)
    # No step is left with less than its even part of two fifths.
    assert mechanism.aggregate.multipliers.max() <= 2.5 * math.sqrt(steps / 0.4) * (1 + 1e-9)


def farthest(mechanism):
    """Largest move of the noised sum by a corner record, or by its replacement."""
    problem, clip = mechanism.problem, mechanism.optimizer.clip_norm
    d, grid = problem.dimension, Grid.fitting(clip, problem.dimension, "l2")
    corners = [np.array(p) for p in itertools.product((-9.0, 0.0, 0.6, 9.0), repeat=2)] + [
        np.array([np.nan, 1.0])
    ]
    records = list(itertools.product(corners, (-1.0, 1.0, 7.0)))
    largest = 0.0
    for start in ([0.0, 0.0], [2.0, 0.0], [-1.0, 1.5], [-0.5, -0.5]):
        point = problem.domain.project(np.resize(start, d))
        alone = np.array([_sum(problem, [record], point, grid, clip) for record in records])
        together = _sum(problem, records, point, grid, clip)
        assert np.array_equal(alone.sum(axis=0), together)  # records do not interact
        moves = (
            alone
            if mechanism.aggregate.relation == "add_remove"
            else (alone[:, None] - alone[None]).reshape(-1, d)
        )
        largest = max(largest, np.linalg.norm(moves, axis=1).max() * grid.step)
    return largest


LOSSES = [Logistic(), Hinge(), Huber(0.7), Softmax(3), HuberDistance(0.5)]


def in_a_ball(loss):
    domain = L2Ball(2 * loss.outputs, 2.0)
    return Minimize(n=3, loss=loss, bounds=Bounds(1.0, -1.0, 1.0), n_features=2, domain=domain)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("clip", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_no_neighbour_moves_the_sum_further_than_declared(relation, clip, loss):
    mechanism = descent(in_a_ball(loss), relation, 1.0, 1, 0.1, clip)
    largest = farthest(mechanism)
    assert largest <= sensitivity(mechanism)
    if clip < 1.0:
        assert largest >= 0.9 * sensitivity(mechanism)


@pytest.mark.parametrize(
    ("level", "labels"), [(0.1, (0.0, 1.0)), (0.9, (0.0, 1.0)), (0.9, (-1.0, 0.0)), (0.5, (0, 1))]
)
def test_quantiles_of_labels_that_begin_at_zero_have_enough_noise(level, labels):
    """Opposite rows nearly orthogonal to theta, both margins just beyond a zero label."""
    problem = Minimize(
        n=2, loss=Pinball(level), bounds=Bounds(1.0, *labels), n_features=2, domain=L2Ball(2, 1.0)
    )
    mechanism = noisy_gd.plan(problem, Budget(mu=1.0), max_passes=2).mechanism
    grid, rows = (
        Grid.fitting(mechanism.optimizer.clip_norm, 2, "l2"),
        np.array([[1e-9, 1.0], [1e-9, -1.0]]),
    )
    moves = [
        np.subtract(
            *(
                _sum(problem, [(row, label)], point, grid, mechanism.optimizer.clip_norm)
                for row in rows
            )
        )
        for point, label in itertools.product(([1.0, 0.0], [-1.0, 0.0]), labels)
    ]
    largest = np.linalg.norm(moves, axis=1).max() * grid.step
    assert 0.99 * sensitivity(mechanism) <= largest <= sensitivity(mechanism)


def test_what_the_caller_says_of_a_difference_is_not_relied_on():
    linear = CustomLoss(
        value_function=lambda theta, rows, labels: rows @ theta,
        gradient_function=lambda theta, rows, labels: rows,
        lipschitz_bound=1.0,
        lipschitz_diff_bound=0.1,  # wrong
    )
    problem = Minimize(n=3, loss=linear, bounds=Bounds(1.0), n_features=2)
    assert sensitivity(descent(problem, "replace", 1.0, 1, 0.1, 1.0)) >= 2.0


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize(
    "loss", [Logistic(), Huber(0.7), Softmax(3), HuberDistance(0.5)], ids=lambda loss: loss.kind
)
def test_no_neighbour_moves_the_sum_of_langevin_further_than_declared(relation, loss):
    mechanism = langevin.plan(
        in_a_ball(loss), Budget(mu=1.0, relation=relation), max_passes=4
    ).mechanism
    assert farthest(mechanism) <= sensitivity(mechanism)


def _sum(problem, records, point, grid, clip):
    data = InMemory(np.array([x for x, _ in records]), np.array([y for _, y in records]))
    return data.clipped_sum(problem.loss, point, grid=grid, clip=clip, **problem.guards)


@pytest.mark.parametrize("momentum", [0.0, 0.6])
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_on_a_quadratic_the_output_has_the_predicted_law(momentum, relation):
    n, steps, size, multiplier, clip, ridge = 1000, 6, 0.4, 2.0, 50.0, 0.1
    problem = Minimize(n=n, loss=Huber(100.0), bounds=Bounds(1.0), n_features=1, ridge=ridge)
    mechanism = descent(
        problem, relation, multiplier, steps, size, clip, momentum=momentum, average=0.5
    )
    labels = np.tile([1.0, -2.0, 3.0, 2.0], 250)
    data = InMemory(np.ones((n, 1)), labels)
    # theta <- theta + velocity is linear: follow how each step's noise arrives in the average.
    moved = 2 * clip if relation == "replace" else clip
    deviation = size / n * moved * multiplier * math.sqrt(steps)
    mean, gains = _linear(
        labels.mean(),
        steps,
        size,
        momentum,
        1 + ridge,
        mechanism.optimizer.schedule.average_weights,
    )
    outputs = np.array(mechanism.run_many(data, Run(Source(5)), 20_000))[:, 0]
    scale = deviation * math.sqrt(math.fsum(gains**2))
    assert abs(outputs.mean() - mean) < 6 * scale / math.sqrt(len(outputs))
    # Six standard errors of a variance are 6%; noise that is 10% off is 20%.
    assert outputs.var() == pytest.approx(scale**2, rel=0.06)
    single = np.array([mechanism.run(data, Run(Source(seed)))[0] for seed in range(300)])
    assert single.std() == pytest.approx(scale, rel=0.35)


def _linear(target, steps, size, momentum, curvature, weights):
    def run(noise):
        point = velocity = total = 0.0
        for k in range(steps):
            velocity = momentum * velocity - size * (curvature * point - target) + noise[k]
            point += velocity
            total += weights[k] * point
        return total

    mean = run(np.zeros(steps))
    return mean, np.array([run(np.eye(steps)[k]) - mean for k in range(steps)])


def test_plans_meet_their_budget_and_pure_ones_are_refused():
    for budget in (
        Budget(epsilon=1, delta=1e-6),
        Budget(mu=0.7),
        Budget(rho=0.1),
        Budget(mu=1, relation="add_remove"),
    ):
        assert noisy_gd.plan(logistic(), budget).guarantee.meets(budget)
    with pytest.raises(BudgetUnreachable, match="output_perturbation"):
        noisy_gd.plan(logistic(), Budget(epsilon=1))
    with pytest.raises(ValueError, match="clip_norm"):
        noisy_gd.plan(replace(logistic(), loss=Squared()), Budget(mu=1))
    with pytest.raises(ValueError, match="Minimize"):
        noisy_gd.plan(3, Budget(mu=1))


def test_a_flat_direction_collects_the_trusted_noise():
    """The rule's S lets noise of 0.7 natural units, for any n, into a flat direction."""
    problem = logistic(n=100_000, d=2)
    mechanism = noisy_gd.plan(problem, Budget(mu=0.5), max_passes=50).mechanism
    data = InMemory(np.tile([[1.0, 0.0]], (1000, 1)), np.ones(1000))
    moves, multiplier = mechanism.optimizer, mechanism.aggregate.noise_multiplier
    even = {"momentum": moves.schedule.momentum, "average": 0.0}
    tight = descent(
        problem,
        "add_remove",
        multiplier,
        50,
        moves.step_size,
        moves.clip_norm,
        moves.shrinkage,
        **even,
    )
    moved = sensitivity(tight) / sensitivity(mechanism)
    outputs = np.array(tight.run_many(data, Run(Source(2)), 400))[:, 1]
    expected = moves.time * sensitivity(mechanism) * multiplier / problem.n
    # The last steps' momentum has not arrived yet: a little less than the full time.
    assert 0.6 * expected * moved < outputs.std() < 1.1 * expected * moved
    assert expected <= 0.7 * 4 * 1.001


@pytest.mark.parametrize(
    "rows", [np.full((7, 3), np.nan), np.full((7, 3), 1e300), np.zeros((7, 3))]
)
@pytest.mark.parametrize("budget", [1e-6, 1.0, 1e6])
def test_any_data_and_budget_give_numbers(rows, budget):
    problem = logistic(n=7, d=3)
    plan = noisy_gd.plan(problem, Budget(mu=budget, relation="add_remove"), max_passes=20)
    value = plan.run(InMemory(rows, np.full(7, np.inf)), random_state=1).value
    assert value.shape == (3,)
    assert np.isfinite(value).all()


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="1 / ridge"):
        descent(logistic(ridge=2.0), "replace", 1.0, 5, 0.6, 1.0)
    with pytest.raises(ValueError, match="clip_norm must be"):
        descent(
            logistic(), "replace", 1.0, 5, 0.6, 9e-101
        )  # the passes over the data could not clip so hard
    with pytest.raises(ValueError, match="momentum"):
        descent(logistic(), "replace", 1.0, 5, 0.6, 1.0, momentum=1.0)
    with pytest.raises(ValueError, match="infinite noise"):
        descent(logistic(), "replace", 1.0, 5000, 0.6, 1.0, growth=0.9)
    with pytest.raises(ValueError, match="give one of them"):
        descent(logistic(), "replace", 1.0, 50, 0.1, 1.0, growth=0.1, noise_decay=1.0)
    plan = noisy_gd.plan(logistic(n=5, d=1), Budget(mu=1.0), max_passes=2)
    with pytest.raises(ValueError, match="n = 5"):
        plan.run(InMemory(np.ones((4, 1)), np.ones(4)))


def test_iterates_stay_in_the_domain():
    ball = L2Ball(2, 0.5)
    plan = noisy_gd.plan(logistic(n=10, d=2, domain=ball), Budget(mu=0.01), max_passes=10)
    value = plan.run(InMemory(np.ones((10, 2)), np.ones(10)), random_state=3).value
    assert np.linalg.norm(value) <= 0.5 + 1e-12


@pytest.mark.parametrize(("mu", "why"), [(1e-10, "grid"), (1e12, "without noise")])
def test_noise_that_cannot_be_drawn_is_refused_when_it_is_planned(mu, why):
    problem = Minimize(n=100, loss=Logistic(), bounds=Bounds(1.0), n_features=3)
    with pytest.raises(ValueError, match=why):
        noisy_gd.plan(problem, Budget(mu=mu))


def test_a_descent_whose_parts_do_not_fit_is_refused():
    problem, schedule = logistic(), Schedule(5)
    with pytest.raises(ValueError, match="same schedule"):
        Descent(problem, ClippedMean(1000, 1.0, 5, "replace"), Momentum(0.1, 1.0, schedule))
    with pytest.raises(ValueError, match="n = 1000"):
        Descent(
            problem,
            ClippedMean(999, 1.0, 5, "replace", schedule=schedule),
            Momentum(0.1, 1.0, schedule),
        )
    with pytest.raises(ValueError, match="5 steps"):
        ClippedMean(1000, 1.0, 5, "replace", schedule=Schedule(6))


def test_a_start_outside_of_the_domain_is_projected():
    """A hint from an earlier stage must not move gradients beyond the constants of the domain."""
    problem = Minimize(
        n=3,
        loss=Squared(),
        bounds=Bounds(1.0, -1.0, 1.0),
        n_features=1,
        domain=L2Ball(1, 0.5),
        start=(40.0,),
    )
    mechanism = noisy_gd.plan(problem, Budget(mu=1.0), max_passes=3).mechanism
    state = mechanism.optimizer.init(problem, mechanism.aggregate, None)
    assert state["point"] == pytest.approx([0.5])


def test_outside_of_the_radius_only_clipping_bounds_the_sensitivity():
    ball = L2Ball(1, 0.5)
    problem = Minimize(
        n=3, loss=Squared(), bounds=Bounds(1.0, -1.0, 1.0), n_features=1, domain=ball
    )
    inside, outside = (
        Gradient(problem, np.array([point]), 4.0).sensitivity("replace") for point in (0.5, 40.0)
    )
    assert inside == pytest.approx(problem.constants("replace").gradient_sensitivity)
    assert outside == 8.0
    # Labels -1 and 1 at 40: gradients 41 and 39, both clipped; and a row of -1 turns the sign.
    moves = [
        _sum(problem, [(np.array([x]), 1.0)], np.array([40.0]), Grid(-10), 4.0) for x in (-1.0, 1.0)
    ]
    assert np.abs(np.subtract(*moves)).max() * 2.0**-10 <= outside


def test_a_descent_can_be_opened_and_stopped_early():
    problem = logistic(n=20, d=2)
    plan = noisy_gd.plan(problem, Budget(mu=1.0), max_passes=10)
    data = InMemory(np.tile(np.eye(2), (10, 1)), np.ones(20))
    whole = plan.run(data, random_state=3).value
    with plan.open(data, random_state=3) as interaction:
        first = [interaction.step() for _ in range(10)]
    assert np.array_equal(interaction.close().value, whole)
    assert np.shape(first) == (10, 2)
    with plan.open(data, random_state=3) as stopped:
        stopped.step()
    assert np.isfinite(stopped.close().value).all()


def test_a_stored_descent_goes_on(tmp_path):
    problem = logistic(n=20, d=2)
    plan = noisy_gd.plan(problem, Budget(mu=1e6), max_passes=6)
    data = InMemory(np.tile(np.eye(2), (10, 1)), np.ones(20))
    interaction = plan.open(data, store=tmp_path / "state")
    for _ in range(3):
        interaction.step()
    again = resume(plan, tmp_path / "state", data)
    again.drive(())
    assert again.close().value == pytest.approx(plan.run(data).value, rel=1e-3)
