"""Adaptive steps: closed forms without noise, the subtraction of noise, the event, stacking."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from dpfit.core import Minimize
from dpfit.core.mechanism import Run
from dpfit.data.dataset import InMemory
from dpfit.losses import Bounds, DenseLayers, Huber, Squared
from dpfit.mechanisms.aggregates.clipped_mean import ClippedMean
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.noise import Source
from dpfit.privacy import Budget
from dpfit.solvers.descents.adaptive import Adaptive
from dpfit.solvers.descents.descent import Descent
from dpfit.solvers.descents.momentum import Momentum
from dpfit.solvers.gradient.noisy_gd import noisy_gd

PROBLEM = Minimize(n=1000, loss=Huber(0.2), bounds=Bounds(1.0, -1.0, 1.0), n_features=2)


def path(rule, gradient, variance=0.0, start=(0.0, 0.0)):
    """Points of the rule on answers without noise, by ask and tell alone."""
    problem = replace(PROBLEM, start=start)
    state = rule.init(problem, ClippedMean(1000, 1.0, rule.steps, "replace"), None)
    state["variance"] = variance
    points = []
    for _ in range(rule.steps):
        state = rule.tell(problem, state, gradient(rule.ask(problem, state).point))
        points.append(state["point"])
    return np.array(points), rule.result(problem, state)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_on_a_line_each_step_has_the_planned_length(momentum, scale):
    """Equal gradients g: the corrected means are g and g**2, so steps have the sign of g."""
    rule = Adaptive(0.5, 1.0, 10, momentum=momentum)
    points, result = path(rule, lambda point: scale * np.array([3.0, -0.1]))
    walked = np.cumsum(0.5 * (1 - np.arange(10) / 10))
    np.testing.assert_allclose(points, np.outer(walked, [-1.0, 1.0]), rtol=1e-9)
    np.testing.assert_allclose(result, points[7:].mean(axis=0))


def test_on_a_quadratic_the_path_is_the_closed_form_and_ignores_the_curvatures():
    """Two steps by hand on curvatures h: the second moves by m / sqrt(v) with weights 0.9, 0.99."""
    rule = Adaptive(0.1, 1.0, 4, momentum=0.9, memory=0.99)
    for curvatures in ([1.0, 1.0], [1e-3, 50.0]):
        h = np.array(curvatures)
        points, _ = path(rule, lambda point, h=h: h * point, start=(1.0, -1.0))
        first = 0.9
        mean = (0.9 * 0.1 * 1.0 + 0.1 * first) / (1 - 0.9**2)
        square = (0.99 * 0.01 * 1.0 + 0.01 * first**2) / (1 - 0.99**2)
        second = first - 0.1 * 0.75 * mean / np.sqrt(square)
        np.testing.assert_allclose(points[:2, 0], [first, second], rtol=1e-12)
        np.testing.assert_allclose(points[:, 1], -points[:, 0], rtol=1e-9)


@pytest.mark.parametrize("noise", [0.5, 5.0])
def test_the_noise_variance_is_taken_out_of_second_moments(noise):
    """The mean of the estimates is the squared gradient within 2%; with noise left in, far off."""
    rule, rng = Adaptive(0.1, 1.0, 5, memory=0.999), np.random.default_rng(0)
    answers = 1.0 + noise * rng.standard_normal((3000, 2000))
    square = np.zeros(2000)
    for answer in answers:
        square = 0.999 * square + 0.001 * answer**2
    found = square / (1 - 0.999**3000) - noise**2
    assert found.mean() == pytest.approx(1.0, abs=0.02 * max(1.0, noise**2 / 10))
    least = noise**2 * np.sqrt(2 * 0.001 / 1.999)
    np.testing.assert_allclose(
        rule.signal(square, 3000, noise**2), np.maximum(found, least), rtol=0.06
    )
    # What noise makes of the second moment has the declared standard deviation.
    pure = np.zeros(2000)
    for answer in noise * rng.standard_normal((3000, 2000)):
        pure = 0.999 * pure + 0.001 * answer**2
    floor = float(rule.signal(np.zeros(1), 3000, noise**2)[0])
    assert (pure / (1 - 0.999**3000)).std() == pytest.approx(floor, rel=0.1)


@pytest.mark.parametrize("unit", ["record", "user"])
def test_the_event_does_not_depend_on_the_rule(unit):
    budget = Budget(epsilon=1.0, delta=1e-6, unit=unit)
    problem = replace(PROBLEM, rows_per_user=3.0 if unit == "user" else None)
    plans = [
        noisy_gd.using(optimizer=rule).plan(problem, budget, max_passes=30)
        for rule in ("momentum", "adaptive", Adaptive(0.1, 0.2, 30))
    ]
    assert len({plan.event for plan in plans}) == 1
    assert plans[1].mechanism.optimizer.kind == "adaptive"
    assert plans[2].mechanism.optimizer == Adaptive(0.1, 0.2, 30)


def test_columns_of_very_different_scales_are_fitted():
    """Along the short column the curvature is 400 times smaller; noise is small."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(-0.7, 0.7, (4000, 2)) * [1.0, 0.05]
    labels = rows @ [0.4, 4.0]
    problem = replace(PROBLEM, n=4000, loss=Squared(), bounds=Bounds(1.0, -1.0, 1.0))
    errors = {}
    for rule in ("momentum", "adaptive"):
        plan = noisy_gd.plan(
            problem, Budget(mu=300.0), optimizer=rule, clip_norm=1.0, max_passes=300
        )
        found = plan.output(plan.run(InMemory(rows, labels), random_state=1).value)
        errors[rule] = float(np.sqrt(np.mean((rows @ found - labels) ** 2)))
    assert errors["adaptive"] < 0.5 * errors["momentum"]


NETWORK = replace(PROBLEM, loss=DenseLayers((8,)))


def test_a_network_takes_adaptive_steps_of_a_given_size():
    plan = noisy_gd.plan(
        NETWORK, Budget(mu=50.0), optimizer="adaptive", step_size=0.1, max_passes=100
    )
    assert plan.mechanism.optimizer == Adaptive(0.1, 1.0, 100)
    rows = np.random.default_rng(0).uniform(-0.7, 0.7, (1000, 2))
    labels = 2 * rows[:, 0] ** 2
    found = plan.run(InMemory(rows, labels), random_state=1).value
    assert NETWORK.loss.value(found, rows, labels).mean() < 0.2 * labels.var() / 2


@pytest.mark.parametrize(
    ("problem", "options", "match"),
    [
        (NETWORK, {"optimizer": "adaptive"}, "needs a step_size.*pass step_size, about 10 / max"),
        (PROBLEM, {"optimizer": "adaptive", "step_size": 0.1}, "needs step_size to be left out"),
        (PROBLEM, {"optimizer": Adaptive(0.1, 0.2, 300), "clip_norm": 0.5}, "to the Optimizer"),
        (NETWORK, {"optimizer": Adaptive(0.1, 0.2, 300), "step_size": 0.5}, "to the Optimizer"),
        (NETWORK, {"clip_norm": np.inf}, "needs a finite clip_norm; leave it out"),
        (NETWORK, {"optimizer": "adaptive", "step_size": 0.1, "clip_norm": np.inf}, "finite clip"),
        (PROBLEM, {"filtered": True, "optimizer": "adaptive"}, "leave filtered out"),
        (NETWORK, {"filtered": True, "clip_norm": 1.0}, "leave filtered out"),
    ],
)
def test_no_option_is_ignored(problem, options, match):
    with pytest.raises(ValueError, match=match):
        noisy_gd.plan(problem, Budget(epsilon=1.0, delta=1e-6), **options)


def test_stacked_runs_have_the_bits_of_the_rule_for_one():
    rows, labels = np.eye(2)[[0, 1] * 500] * 0.7, np.linspace(-1, 1, 1000)
    plan = noisy_gd.plan(PROBLEM, Budget(mu=1.0), optimizer="adaptive", max_passes=20)
    data, mechanism = InMemory(rows, labels), plan.mechanism
    one = mechanism.run_many(data, Run(Source(3)), 1)[0]
    assert np.array_equal(one, mechanism.run(data, Run(Source(3))))
    many = np.array(mechanism.run_many(data, Run(Source(4)), 400))
    single = np.array([mechanism.run(data, Run(Source(seed))) for seed in range(200)])
    assert np.abs(many.mean(axis=0) - single.mean(axis=0)).max() < 5 * single.std() / np.sqrt(100)


@dataclass(frozen=True)
class Signs(Adaptive):
    """A rule of a researcher, in one method."""

    kind = "test_signs"

    def tell(self, problem, state, answer):
        point = state["point"] - self.step_size * np.sign(answer)
        return state | {"step": state["step"] + 1, "point": point}

    def result(self, problem, state):
        return state["point"]


def test_a_rule_of_ones_own_is_swapped_in_with_one_line():
    plan = noisy_gd.plan(PROBLEM, Budget(mu=1.0), max_passes=20, optimizer=Signs(0.01, 0.2, 20))
    rows, labels = np.tile([[0.8, 0.0]], (1000, 1)), np.full(1000, 1.0)
    found = plan.output(plan.run(InMemory(rows, labels), random_state=1).value)
    assert found[0] == pytest.approx(0.2)


def test_invalid_arguments_raise_with_a_hint():
    with pytest.raises(ValueError, match="'momentum', 'adaptive'"):
        noisy_gd.plan(PROBLEM, Budget(mu=1.0), optimizer="adam")
    with pytest.raises(ValueError, match="30 rounds, got 300"):
        noisy_gd.plan(PROBLEM, Budget(mu=1.0), optimizer=Adaptive(0.1, 0.2, 30))
    mean = ClippedMean(1000, 1.0, 30, "replace", schedule=Schedule(30))
    with pytest.raises(ValueError, match="equal noise in all rounds"):
        Descent(PROBLEM, mean, Adaptive(0.1, 0.2, 30))
    for wrong in ({"momentum": 1.0}, {"memory": -0.1}, {"average": 2.0}, {"steps": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            replace(Adaptive(0.1, 0.2, 30), **wrong)
    momentum = Momentum(0.1, 0.2, Schedule(30))
    plan = noisy_gd.plan(PROBLEM, Budget(mu=1.0), max_passes=30, optimizer=momentum)
    assert plan.mechanism.optimizer == momentum
