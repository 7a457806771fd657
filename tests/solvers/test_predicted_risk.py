"""Predicted risks against exact laws on quadratics, and the rule that sets a descent."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dpfit.core import Minimize
from dpfit.core.mechanism import Run
from dpfit.core.reference_designs import Design, clipping_excess_risk, reference_designs
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import Bounds, Huber, HuberDistance, Logistic, SmoothedHinge
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.noise import Source
from dpfit.privacy import Budget
from dpfit.solvers.descents import predicted, scales
from dpfit.solvers.descents.momentum import Momentum, momentum_descent
from dpfit.solvers.descents.rule import TUNING, default_clip_norm, tune_descent
from dpfit.solvers.gradient.langevin import langevin
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.perturbation import ridge
from dpfit.solvers.perturbation.objective_perturbation import objective_perturbation
from dpfit.solvers.perturbation.output_perturbation import output_perturbation

LENGTHS = np.array([1.0, 0.5, 0.25])
"""Of rows along the axes: the objective is a quadratic of known curvature."""
CURVATURES, RIDGE = LENGTHS**2 / 3, 0.002
LEAST = np.array([0.3, -0.5, 0.8])
"""The minimizer."""


def logistic(n=10_000, d=20, **more):
    return Minimize(n=n, loss=Logistic(), bounds=Bounds(1.0), n_features=d, **more)


@pytest.fixture
def quadratic(monkeypatch):
    """A problem, its data, and the truth in place of the reference designs."""
    rows = np.tile(np.diag(LENGTHS), (100, 1))
    truth = Design(CURVATURES, LEAST**2, 1.0)
    for place in (ridge, predicted):
        monkeypatch.setattr(place, "reference_designs", lambda *_: (truth,))
    problem = Minimize(
        n=300, loss=Huber(50.0), bounds=Bounds(1.0, -1.0, 1.0), n_features=3, ridge=RIDGE
    )
    return problem, InMemory(rows, rows @ (LEAST * (1 + RIDGE / CURVATURES)))


def descent(
    problem, relation, noise_multiplier, steps, step_size, clip_norm, shrinkage=0.0, **weights
):
    schedule = Schedule(steps, **{"average": TUNING.average, **weights})
    return momentum_descent(
        problem, relation, noise_multiplier, step_size, clip_norm, schedule, shrinkage
    )


def excess(thetas):
    """The mean objective above its minimum."""
    return ((CURVATURES + RIDGE) * (np.asarray(thetas) - LEAST) ** 2).sum(axis=1) / 2


@pytest.mark.parametrize(
    "budget", [Budget(epsilon=9.0, delta=1e-6), Budget(epsilon=30.0)], ids=["normal", "gamma"]
)
def test_the_risk_of_a_perturbed_objective_is_exact_on_a_quadratic(quadratic, budget):
    problem, data = quadratic
    mechanism, run = (
        objective_perturbation.plan(problem, budget, ridge=0.2).mechanism,
        Run(Source(1)),
    )
    reached = excess([mechanism.run(data, run) for _ in range(2000)])
    assert reached.mean() == pytest.approx(mechanism.risk.expected, rel=0.09)


@pytest.mark.parametrize("budget", [Budget(mu=3.0), Budget(epsilon=30.0)], ids=["normal", "gamma"])
def test_the_risk_of_a_noisy_minimizer_is_exact_on_a_quadratic(quadratic, budget):
    problem, data = quadratic
    mechanism = output_perturbation.plan(problem, budget, ridge=0.2).mechanism
    reached = excess(mechanism.run_many(data, Run(Source(2)), 4000))
    assert reached.mean() == pytest.approx(mechanism.risk.expected, rel=0.09)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("noise_decay", [0.0, 3.0], ids=["even", "shared out"])
@pytest.mark.parametrize("bent", [0.01, 5.0, 200.0], ids=["flat", "between", "curved"])
def test_what_is_predicted_of_a_descent_is_exact_on_a_quadratic(bent, noise_decay, momentum):
    """One record (1, y) under a Huber loss is a quadratic.

    What is left of the start, and the variance of the output, are found by following every start
    and every kick through the descent itself.
    """
    steps = 400
    problem = Minimize(n=1, loss=Huber(1.0), bounds=Bounds(1.0, -1.0, 1.0), n_features=1)
    size = bent / steps * (1 - momentum)
    mechanism = descent(
        problem, "add_remove", 1.0, steps, size, 1.0, momentum=momentum, noise_decay=noise_decay
    )
    schedule = mechanism.optimizer.schedule
    starts = np.append(1.0, np.zeros(steps))
    points, velocities, outputs = starts.copy(), np.zeros(steps + 1), np.zeros(steps + 1)
    for k in range(steps):
        velocities = momentum * velocities - size * points
        velocities[k + 1] += size
        points = points + velocities
        outputs += schedule.average_weights[k] * points
    assert schedule.remaining(np.array([bent]))[0] == pytest.approx(outputs[0], rel=1e-9)
    variance = float(outputs[1:] ** 2 @ mechanism.aggregate.multipliers**2)
    assert float(predicted.collected(mechanism, np.array([bent]))[0]) == pytest.approx(
        variance, rel=1e-9
    )


def test_a_few_directions_tell_of_many(monkeypatch):
    """And of a million without a row of numbers for each step in memory."""
    problem, budget = logistic(n=30_000, d=1500), Budget(epsilon=1, delta=1e-6)
    few = noisy_gd.plan(problem, budget).risk.expected
    monkeypatch.setattr(predicted, "_DIRECTIONS", 1500)
    assert few == pytest.approx(noisy_gd.plan(problem, budget).risk.expected, rel=1e-4)


def test_noise_is_least_where_it_would_be_remembered():
    """At the rate of the noise schedule, the variance is nearly the least possible.

    At no other rate is it much more than with equal shares.
    """
    problem = logistic(n=100)
    decay, rates = 4.0, np.geomspace(0.01, 1000, 40)
    shared, even = (
        descent(problem, "add_remove", 1.0, 500, 0.1, 1.0, noise_decay=x) for x in (decay, 0.0)
    )
    influence = shared.optimizer.schedule.influence(np.array([decay]))
    # One record changes the mean of 100 by 1 / 100, and the noise multiplier is 1.
    least = float(np.sum(influence / 500) ** 2) * (500 * 0.1 / 100) ** 2
    at_rate = [float(predicted.collected(each, np.array([decay]))[0]) for each in (shared, even)]
    assert least < at_rate[0] < 1.05 * least
    assert at_rate[1] > 1.19 * least
    assert np.all(predicted.collected(shared, rates) < 1.06 * predicted.collected(even, rates))


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.4, 0.6, 1.0])
def test_a_clipped_loss_bends_less(share):
    """Residuals spread evenly beyond the width: variance by the effective curvature."""
    n, width, steps = 200, 0.5, 1000
    problem = Minimize(n=n, loss=Huber(width), bounds=Bounds(1.0, -1.0, 1.0), n_features=1)
    mechanism = descent(problem, "add_remove", 0.1, steps, 0.1, share * width)
    data = InMemory(np.ones((n, 1)), np.linspace(-1, 1, n))
    outputs = np.array(mechanism.run_many(data, Run(Source(9)), 4000))
    felt = np.array([0.1 * steps * scales.effective_curvature_fraction(problem, share) * width])
    # Six standard errors of a variance are 13%; without the share it would be off by 2.8 at a share
    # of 0.6.
    assert outputs.var() == pytest.approx(float(predicted.collected(mechanism, felt)[0]), rel=0.16)


def test_slopes_of_logistic_labels_are_rarely_steep():
    """Curvature of evenly spread margins with the loss's own labels, unclipped."""
    margins = np.linspace(-40, 40, 400_001)
    steep = 1 / (1 + np.exp(margins))  # of a label that is 1, which has probability 1 - steep
    bends = steep * (1 - steep) * (1 - steep)
    felt = bends[steep <= 0.6].sum() / bends.sum()
    assert felt == pytest.approx(scales.effective_curvature_fraction(logistic(), 0.6), rel=1e-3)


@pytest.mark.parametrize(
    ("loss", "unit"),
    [(Huber(0.2), 0.5), (Huber(0.7), 0.7), (Logistic(), 4.0), (SmoothedHinge(0.5), 2.0)],
    ids=str,
)
def test_noise_is_judged_beside_what_labels_ask_for(loss, unit):
    problem = Minimize(n=10**6, loss=loss, bounds=Bounds(1.0, -1.0, 1.0), n_features=2)
    assert scales.parameter_scale(problem) == pytest.approx(unit)
    mechanism = noisy_gd.plan(problem, Budget(mu=1e-3, relation="add_remove")).mechanism
    moves = mechanism.optimizer
    assert (
        moves.time * moves.clip_norm * mechanism.aggregate.noise_multiplier / 10** 6
        == pytest.approx(0.7 * unit)
    )


@pytest.mark.parametrize(
    ("loss", "noises", "shares"),
    [
        (Logistic(), [0.0027, 0.003, 0.006, 0.009, 0.09], [1.0, 1.0, 0.8, 0.6, 0.6]),
        (
            Huber(0.2),
            [2e-4, 2.5e-4, 5e-4, 7.5e-4, 0.0025, math.sqrt(0.0025 * 0.0165), 0.0165, 0.1],
            [1.0, 1.0, 0.8, 0.6, 0.6, 0.4, 0.2, 0.2],
        ),
    ],
    ids=["margin", "residual"],
)
def test_gradients_are_clipped_the_more_the_more_noise_there_is(loss, noises, shares):
    """Set by the relative noise; residual losses count it times sqrt(d), here 2.

    Where there is much of it, it counts times the square root of the number of records, here 100,
    on a logarithmic scale.
    """
    problem = Minimize(n=10_000, loss=loss, bounds=Bounds(1.0, -1.0, 1.0), n_features=4)

    def share(noise):
        return default_clip_norm(problem, "add_remove", noise * 10_000 / 2) / scales.gradient_bound(
            problem
        )

    assert [share(noise) for noise in noises] == pytest.approx(shares)


def test_behind_a_map_residuals_are_clipped_only_where_noise_is_more_than_a_sample_is_off():
    """By the relative noise times the root of n, here 100, on a logarithmic scale."""
    problem = Minimize(n=10_000, loss=Huber(0.2), bounds=Bounds(1.0, -1.0, 1.0), n_features=4)
    for level, share in zip(
        (0.01, 0.045, math.sqrt(0.045 * 0.15), 0.15, 0.25, 2.0),
        (1, 1, 0.8, 0.6, 0.6, 0.2),
        strict=True,
    ):
        clip = default_clip_norm(problem, "add_remove", level / 100 * 10_000 / 2, behind_map=True)
        assert clip == pytest.approx(0.2 * share)


@pytest.mark.slow
@pytest.mark.parametrize("errors", [1.0, 0.5])
def test_a_clipped_loss_of_residuals_is_off_by_what_a_sample_is(errors):
    """The excess of the clipped minimizer over the other, on forty samples, over the closed form.

    It is a mean of 40 * 6 squares of nearly normal numbers: a standard error of 9%.
    """
    rng = np.random.default_rng(3)
    n, d, width, clip = 2000, 6, 0.2, 0.6
    problem = Minimize(n=n, loss=Huber(width), bounds=Bounds(1.0, -1.5, 1.5), n_features=d)
    excess = []
    for _ in range(40):
        rows = rng.standard_normal((n, d))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        data = InMemory(rows, errors * width * rng.standard_normal(n))
        values = []
        for share in (clip, 1.0):
            mechanism = descent(problem, "replace", 1e-9, 300, 5.0, share * width, average=0.0)
            values.append(
                float(data.gradient(Huber(width), mechanism.run(data, Run(Source(1))))[0]) / n
            )
        excess.append(values[0] - values[1])
    assert np.mean(excess) == pytest.approx(
        clipping_excess_risk(clip, errors) * width**2 * d / n, rel=0.5
    )


def test_momentum_is_taken_only_where_steps_do_not_suffice():
    """Decay up to 24 / passes; between, steps are the longest stable, momentum does the rest."""
    seen = []
    for n in (100, 3000, 10**7):
        moves = tune_descent(
            logistic(n=n, d=5), "add_remove", 4.0, max_passes=240, clip_norm=0.6
        ).optimizer
        momentum = moves.schedule.momentum
        time = 240 * moves.step_size / (1 - momentum)
        longest = 1.5 * (1 + momentum) / 0.25
        wanted = 0.7 * 4.0 * n / (4.0 * 0.6)
        wanted *= min(1.0, wanted * (0.84 / (2 * 4.0 * 5)))
        assert time == pytest.approx(min(wanted, 240 * longest / (1 - momentum)))
        seen.append((momentum, moves.step_size / longest))
    assert seen[0][0] == 0.0
    assert seen[0][1] < 1
    assert 0 < seen[1][0] < 0.9
    assert seen[1][1] == pytest.approx(1.0)
    assert seen[2] == pytest.approx((0.9, 1.0))


def test_what_a_descent_leaves_of_the_start(quadratic):
    problem, data = quadratic
    mechanism = descent(problem, "replace", 1e-9, 500, 10.0 / 500, scales.gradient_bound(problem))
    left = excess(mechanism.run_many(data, Run(Source(4)), 1)).mean()
    assert left == pytest.approx(predicted.predicted_risk(mechanism).expected, rel=0.05)


@pytest.mark.parametrize("mu", [0.02, 0.5], ids=["noise", "both"])
def test_what_langevin_predicts_is_exact_on_a_quadratic(quadratic, mu):
    """Starts and noises of all steps, followed one by one; the output is their weighted mean."""
    problem = replace(quadratic[0], domain=L2Ball(3, 2.0))
    budget = Budget(mu=mu, relation="add_remove")
    mechanism = langevin.plan(problem, budget, max_passes=40, step_size=0.9).mechanism
    # Predictors are at most 2 and labels at least -1: gradients are at most 3 long.
    deviations = mechanism.aggregate.multipliers * 3 / 300
    weights = (1 - 0.9 * RIDGE) ** -np.arange(1.0, 41)
    weights /= weights.sum()
    left, kicks, output = -LEAST, np.zeros((40, 3)), np.zeros((41, 3))
    for k, weight in enumerate(weights):
        left = left * (1 - 0.9 * (CURVATURES + RIDGE))
        kicks = kicks * (1 - 0.9 * (CURVATURES + RIDGE))
        kicks[k] = 0.9 * deviations[k]
        output += weight * np.vstack([left, kicks])
    exact = ((CURVATURES + RIDGE) * output**2).sum() / 2
    assert predicted.predicted_risk(mechanism).expected == pytest.approx(exact, rel=1e-6)


def round_problem(d, pull=0.0):
    """Rows along all axes; half of the residuals exceed the width: half the curvature.

    The minimizer is ``pull`` along every axis.
    """
    problem = Minimize(n=40 * d, loss=Huber(1.0), bounds=Bounds(1.0, -60.0, 60.0), n_features=d)
    rows = np.tile(np.eye(d), (40, 1))
    return problem, InMemory(
        rows, rows @ np.full(d, pull) + np.repeat([0.0, 0.0, 50.0, -50.0], 10 * d)
    )


def unshrunk(rule):
    return replace(rule, optimizer=replace(rule.optimizer, shrinkage=0.0))


@pytest.mark.parametrize("d", [3, 12])
def test_as_much_is_taken_off_as_noise_has_added(d):
    """Half of (d - 2) / d of its mean square, measured on isotropic rows."""
    problem, data = round_problem(d)
    rule = tune_descent(problem, "add_remove", 2e-3 * 40 * d, max_passes=100, clip_norm=1.0)
    noisy = np.array(unshrunk(rule).run_many(data, Run(Source(5)), 12_000 // d))
    # The standard error of the mean of 12,000 squares is 1.3%.
    assert rule.optimizer.shrinkage == pytest.approx((d - 2) / 2 * (noisy**2).mean(), rel=0.08)


@pytest.mark.parametrize(
    ("pull", "less"), [(0.0, (0.34, 0.41)), (0.06, (0.67, 0.76)), (1.0, (0.98, 1.01))]
)
def test_shrinking_takes_away_what_is_noise_and_leaves_what_is_not(pull, less):
    """Mean squared errors over those unshrunk, 12 dimensions, noise deviation about 0.06.

    Where there is only noise, half of the shrinkage leaves 1 - 3/4 * 10/12 of it.
    Predicted with mean squares in place of squares, which is off by a tenth of the noise where
    there is only noise.
    """
    problem, data = round_problem(12, pull)
    rule = tune_descent(problem, "add_remove", 2e-3 * 480, max_passes=100, clip_norm=1.0)
    errors = [
        ((np.array(each.run_many(data, Run(Source(6)), 500)) - pull) ** 2).mean()
        for each in (rule, unshrunk(rule))
    ]
    assert less[0] <= errors[0] / errors[1] <= less[1]
    design = Design(np.full(12, 1 / 24), np.full(12, pull**2), 1.0)
    risk = predicted.risk_on(design, rule, 0.0)
    assert risk == pytest.approx(errors[0] * 12 / 48, rel=0.05, abs=errors[1] * 12 / 48 * 0.1)


def test_nothing_is_shrunk_in_a_domain_for_points_or_in_two_dimensions():
    def shrinkage(problem):
        return tune_descent(problem, "add_remove", 1.0, max_passes=50).optimizer.shrinkage

    glm = Minimize(n=500, loss=Logistic(), bounds=Bounds(1.0), n_features=5)
    assert shrinkage(glm) > 0
    points = Minimize(n=500, loss=HuberDistance(0.5), bounds=Bounds(1.0), n_features=5)
    for other in (replace(glm, domain=L2Ball(5, 1.0)), replace(glm, n_features=2), points):
        assert shrinkage(other) == 0
    for invalid in (-1.0, math.inf):
        with pytest.raises(ValueError, match="shrinkage"):
            Momentum(0.1, 1.0, Schedule(5), shrinkage=invalid)


def test_clipping_is_predicted_to_cost_margin_losses_only_where_it_clips():
    def risk(loss, clip, stand_in=0):
        problem = Minimize(n=10**9, loss=loss, bounds=Bounds(1.0, -1.0, 1.0), n_features=5)
        plan = noisy_gd.plan(
            problem, Budget(mu=1e3), clip_norm=clip * scales.gradient_bound(problem)
        )
        design = reference_designs(
            problem, scales.gradient_bound(problem), scales.natural_unit(problem)
        )[stand_in]
        assert design.length == (1.0, 0.7)[stand_in]
        return predicted.risk_on(design, plan.mechanism, 0.0)

    assert risk(Logistic(), 0.6) > 100 * risk(Logistic(), 1.0)
    # Rows of the full length: half as much beyond the clip. Rows of 0.7 of it: (1 - 6 / 7) / 0.4 as
    # much, or nothing.
    assert risk(Logistic(), 0.8) == pytest.approx(0.5 * risk(Logistic(), 0.6), rel=0.01)
    assert risk(Logistic(), 0.6, 1) == pytest.approx(risk(Logistic(), 0.6) / 2.8, rel=0.01)
    assert risk(Logistic(), 0.8, 1) < 0.01 * risk(Logistic(), 0.8)
    assert risk(Huber(0.2), 0.6) < 0.01 * risk(Logistic(), 0.6)
