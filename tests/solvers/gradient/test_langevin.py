"""The proven risk: against exact moments on quadratics, its rates, its refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dpfit.core import Minimize
from dpfit.core.mechanism import Run
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import Absolute, Bounds, CustomLoss, Hinge, Huber, Logistic
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.noise import Source
from dpfit.privacy import Budget
from dpfit.solvers.descents.momentum import momentum_descent
from dpfit.solvers.gradient.langevin import langevin, risk_bound


def problem(n=10_000, d=20, ridge=0.0, objective="empirical"):
    return Minimize(
        n=n,
        loss=Logistic(),
        bounds=Bounds(1.0),
        n_features=d,
        domain=L2Ball(d, 1.0),
        ridge=ridge,
        objective=objective,
    )


def sensitivity(mechanism):
    return mechanism.aggregate.scale(mechanism.asked(mechanism.optimizer.clip_norm))[1]


def bound(**facts):
    return langevin.plan(problem(**facts), Budget(mu=0.25), max_passes=3000).risk.expected


def slope(values, at):
    return np.polyfit(np.log(at), np.log(values), 1)[0]


def test_rates_in_n_and_d():
    sizes = [3e3, 1e4, 3e4]
    assert slope([bound(n=int(n)) for n in sizes], sizes) == pytest.approx(-1, abs=0.06)
    assert slope([bound(n=int(n), ridge=0.1) for n in sizes], sizes) == pytest.approx(-2, abs=0.1)
    widths = [5, 20, 80]
    assert slope([bound(d=d) for d in widths], widths) == pytest.approx(0.5, abs=0.05)
    assert slope([bound(d=d, ridge=0.1) for d in widths], widths) == pytest.approx(1, abs=0.1)


def test_the_bound_is_that_of_the_formula():
    """Constant weights: radius**2 / (2 step K) + step d noise**2 K / (2 (1 - step M))."""
    mechanism = momentum_descent(problem(), "add_remove", 4.0, 1.0, 1.0, Schedule(50))
    noise = 4.0 * sensitivity(mechanism) / 10_000
    expected = 1 / (2 * 50) + 20 * noise**2 * 50 / (2 * 0.75)
    assert risk_bound(mechanism) == pytest.approx(expected, rel=1e-12)
    population = replace(mechanism, problem=problem(objective="population"))
    assert risk_bound(population) - risk_bound(mechanism) == pytest.approx(
        ((1 + math.tanh(0.5)) / 2) ** 2 * 51 / 10_000, rel=1e-9
    )


def test_the_bound_under_strong_convexity_is_that_of_the_formula():
    """Weights that grow, summed one by one."""
    steps, size, ridge = 60, 0.8, 0.2
    facts = problem(ridge=ridge, objective="population")
    mechanism = momentum_descent(
        facts, "replace", 4.0, size, 1.0, Schedule(steps, growth=size * ridge)
    )
    w = (1 - size * ridge) ** -np.arange(1.0, steps + 1)
    noises = mechanism.aggregate.multipliers * sensitivity(mechanism) / facts.n
    lipschitz = (1 + math.tanh(0.5)) / 2  # of the logistic loss, at margins up to one
    curved = 0.25 + ridge
    expected = (1 + size**2 * 20 * (w * noises**2).sum() / (1 - size * curved)) / (
        2 * size * w.sum()
    )
    expected += lipschitz * 2 * lipschitz / (ridge * facts.n) * (1 - steps / w.sum())
    assert risk_bound(mechanism) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("ridge", [0.0, 0.2])
def test_the_measured_risk_of_a_quadratic_stays_below(ridge):
    """One dimension, quadratic near the optimum: mean excess over 4,000 runs against the bound."""
    n = 200
    facts = Minimize(
        n=n,
        loss=Huber(4.0),
        bounds=Bounds(1.0, -1.0, 1.0),
        n_features=1,
        domain=L2Ball(1, 1.0),
        ridge=ridge,
    )
    plan = langevin.plan(facts, Budget(mu=0.5), max_passes=200)
    labels = np.where(np.arange(n) % 4 < 3, 0.9, -0.3)
    outputs = np.array(
        plan.mechanism.run_many(InMemory(np.ones((n, 1)), labels), Run(Source(7)), 4000)
    )[:, 0]
    best = labels.mean() / (1 + ridge)
    excess = (1 + ridge) / 2 * (outputs - best) ** 2
    error = excess.std() / math.sqrt(len(excess))
    assert excess.mean() + 6 * error <= plan.risk.expected
    assert excess.mean() >= plan.risk.expected / 100  # the bound is not vacuous here


@pytest.mark.parametrize(("loss", "jump"), [(Hinge(), 1.0), (Absolute(), 2.0)], ids=str)
@pytest.mark.parametrize("ridge", [0.0, 0.05])
def test_the_bound_with_a_kink_is_the_least_over_widths(loss, jump, ridge):
    """Start + noise / (1 - step (jump / (w sqrt(2 pi)) + ridge)) + jump w / sqrt(2 pi)."""
    facts = replace(problem(ridge=ridge), loss=loss, bounds=Bounds(1.0, -1.0, 1.0))
    plan = langevin.plan(facts, Budget(mu=0.25), max_passes=500)
    moves, noises = plan.mechanism.optimizer, plan.mechanism.aggregate.multipliers
    noises = noises * sensitivity(plan.mechanism) / facts.n
    size, k = moves.step_size, np.arange(1.0, moves.schedule.steps + 1)
    w = (1 - size * ridge) ** -k
    heat = size**2 * 20 * (w * noises**2).sum() / (2 * size * w.sum())
    widths = np.geomspace(1e-3, 1.0, 20_001)
    room = 1 - size * (jump / (widths * math.sqrt(2 * math.pi)) + ridge)
    curved = np.where(room > 0, heat / np.where(room > 0, room, 1.0), np.inf)
    gap = jump * widths / math.sqrt(2 * math.pi)
    expected = 1 / (2 * size * w.sum()) + np.min(curved + gap)
    assert plan.risk.expected == pytest.approx(expected, rel=1e-5)
    assert risk_bound(plan.mechanism) == pytest.approx(plan.risk.expected, rel=1e-9)
    smoothed = plan.mechanism.problem.loss
    assert smoothed.width == pytest.approx(widths[np.argmin(curved + gap)], rel=1e-3)


def test_the_bound_with_a_kink_falls_like_the_root_of_the_passes():
    facts = replace(problem(n=10**7), loss=Hinge())
    passes = [50, 200, 800]
    bounds = [langevin.plan(facts, Budget(mu=1.0), max_passes=k).risk.expected for k in passes]
    assert slope(bounds, passes) == pytest.approx(-0.5, abs=0.02)
    # Without noise the least over steps and widths is radius jump / sqrt(pi passes).
    assert bounds == pytest.approx([1 / math.sqrt(math.pi * k) for k in passes], rel=0.02)


def test_the_measured_risk_of_a_loss_with_a_kink_stays_below():
    """One dimension, absolute loss: the median is -0.3 or 0.9, which three of four labels are."""
    n = 200
    facts = Minimize(
        n=n, loss=Absolute(), bounds=Bounds(1.0, -1.0, 1.0), n_features=1, domain=L2Ball(1, 1.0)
    )
    plan = langevin.plan(facts, Budget(mu=0.5), max_passes=200)
    labels = np.where(np.arange(n) % 4 < 3, 0.9, -0.3)
    outputs = np.array(
        plan.mechanism.run_many(InMemory(np.ones((n, 1)), labels), Run(Source(7)), 2000)
    )
    losses = np.abs(outputs - labels).mean(axis=1)
    excess = losses - np.abs(0.9 - labels).mean()
    assert np.all(excess >= -1e-12)
    error = excess.std() / math.sqrt(len(excess))
    assert plan.risk.expected / 100 <= excess.mean() <= plan.risk.expected - 6 * error


def test_strong_convexity_shapes_the_noise():
    weak, strong = (langevin.plan(problem(ridge=r), Budget(mu=0.25)).mechanism for r in (0.0, 0.1))
    assert weak.optimizer.schedule.growth == 0.0
    assert strong.optimizer.schedule.growth == pytest.approx(0.1 * strong.optimizer.step_size)
    assert strong.aggregate.multipliers[0] > 2 * strong.aggregate.multipliers[-1]


@pytest.mark.parametrize("ridge", [0.1, 1.0])
def test_what_is_planned_under_strong_convexity_can_be_run(ridge):
    """First steps of a long schedule had noise beyond a grid: charged, then an error."""
    facts = problem(n=3000, d=20, ridge=ridge)
    mechanism = langevin.plan(facts, Budget(mu=0.25)).mechanism
    value = mechanism.run(InMemory(np.tile(np.eye(20), (150, 1)), np.ones(3000)), Run(Source(4)))
    assert np.linalg.norm(value) <= 1 + 1e-9


def test_averages_survive_where_the_last_iterate_stalls():
    """[LD] Appendix H: the norm on the unit ball; iterates stay off the kink, averages do not."""
    from dpfit.losses import HuberDistance

    d = 30
    facts = Minimize(
        n=1000, loss=HuberDistance(0.05), bounds=Bounds(1.0), n_features=d, domain=L2Ball(d, 1.0)
    )
    mechanism = langevin.plan(facts, Budget(mu=0.5), max_passes=300).mechanism
    data = InMemory(np.zeros((1000, d)), np.zeros(1000))
    value = mechanism.run(data, Run(Source(3)))
    assert np.linalg.norm(value) <= risk_bound(mechanism) + 0.05


def test_what_has_no_bound_is_refused():
    with pytest.raises(ValueError, match="bounded domain"):
        langevin.plan(replace(problem(), domain=None), Budget(mu=1.0))
    corners = CustomLoss(
        value_function=lambda theta, rows, labels: np.abs(rows @ theta),
        gradient_function=lambda theta, rows, labels: np.sign(rows @ theta)[:, None] * rows,
        lipschitz_bound=1.0,
    )
    with pytest.raises(ValueError, match="smooth loss"):
        langevin.plan(replace(problem(), loss=corners), Budget(mu=1.0))
    with pytest.raises(ValueError, match="no momentum"):
        risk_bound(momentum_descent(problem(), "replace", 1.0, 0.1, 1.0, Schedule(10, 0.5)))


def test_the_risk_is_proven_for_convex_losses_only():
    assert langevin.plan(problem(), Budget(mu=1.0), max_passes=10).risk.proven
    bent = CustomLoss(
        value_function=lambda theta, rows, labels: np.sin(rows @ theta),
        gradient_function=lambda theta, rows, labels: np.cos(rows @ theta)[:, None] * rows,
        lipschitz_bound=1.0,
        smoothness_bound=1.0,
    )
    risk = langevin.plan(replace(problem(), loss=bent), Budget(mu=1.0), max_passes=10).risk
    assert not risk.proven
    assert "proven" not in risk.meaning
