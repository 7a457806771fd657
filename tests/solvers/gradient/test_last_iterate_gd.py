"""The last iterate: reference values, exact Gaussian laws that attain the bound, refusals."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from dpfit.core import Minimize
from dpfit.core.mechanism import Run
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import (
    Bounds,
    CustomLoss,
    Hinge,
    Huber,
    Logistic,
    QuantileHuber,
    SmoothedHinge,
    Softmax,
    Squared,
)
from dpfit.noise import Source
from dpfit.privacy import Budget, gaussian
from dpfit.privacy.last_iterate import last_iterate_mu, trajectory_mu
from dpfit.solvers.gradient.last_iterate_gd import LastIterateDescent, last_iterate_gd
from dpfit.solvers.gradient.noisy_gd import noisy_gd


@pytest.mark.parametrize(
    ("c", "s", "sigma", "mu"),
    [
        ([0.8] * 10, [0.5] * 10, [1] * 10, 1.3467245712),
        ([0.9] * 30, [1] * 30, [1] * 30, 4.1778756993),
        ([0.5] * 5, [2] * 5, [1] * 5, 3.3574882387),
        ([1, 1], [0.3, 1], [1, 1], 1.0440306509),
        ([1, 0.8, 0.8], [0.2, 0.2, 1], [1, 1, 1], 1.0387609880),
        ([1, 1, 1], [0.5, 0.1, 1], [1, 0.7, 1], 1.1142758807),
        ([2] * 10, [1] * 10, [1] * 10, math.sqrt(10)),  # expanding maps: the trajectory's price
    ],
)
def test_reference_values(c, s, sigma, mu):
    assert last_iterate_mu(c, s, sigma) == pytest.approx(mu, rel=3e-9)
    assert last_iterate_mu(c, s, sigma) >= mu * (1 - 1e-10)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize(
    ("loss", "clip"),
    # Only gradients of generalized linear losses may be clipped.
    [
        *itertools.product(
            [Logistic(), SmoothedHinge(0.5), Huber(0.3), QuantileHuber(0.9, 0.1)], [None, 0.3]
        ),
        (Softmax(3), None),
    ],
    ids=str,
)
def test_no_neighbour_moves_a_step_further_than_declared(loss, clip, relation, monkeypatch):
    """Noiseless steps from one point, on all corner records and their neighbours."""
    monkeypatch.setattr(
        "dpfit.solvers.gradient.last_iterate_gd.add_gaussian",
        lambda moved, *, grid, **_: moved * grid.step,
    )
    problem = Minimize(n=2, loss=loss, bounds=Bounds(1.0, -1.0, 1.0), n_features=2, ridge=0.05)
    mechanism = last_iterate_gd.plan(
        problem, Budget(mu=1.0, relation=relation), clip_norm=clip, max_passes=5
    ).mechanism
    corners = itertools.product(
        [(-9.0, 0.0), (0.0, 9.0), (0.6, 0.8), (0.0, 0.0), (np.nan, 1.0)], (-1.0, 1.0, 7.0)
    )
    records = list(corners)

    def stepped(chosen, point):
        rows, labels = zip(*chosen, strict=True)
        return mechanism.step(point, 0, InMemory(np.array(rows), np.array(labels)), Run(Source(0)))

    for start in ([0.0, 0.0], [0.3, -0.1], [-8.0, 50.0]):
        point = np.resize(start, problem.dimension)
        alone = [stepped([one], point) for one in records]
        for k, one in enumerate(records):
            both = np.array([stepped([one, other], point) for other in records])
            moves = both - alone[k] if relation == "add_remove" else both[:, None] - both[None]
            assert np.linalg.norm(moves, axis=-1).max() <= mechanism.shift


@pytest.mark.parametrize("size", [0.3, 1.0, 1.7])
def test_steps_contract_up_to_the_declared_number_of_records(size):
    problem = Minimize(n=50, loss=Squared(), bounds=Bounds(1.0, -1.0, 1.0), n_features=1, ridge=0.1)
    descent = LastIterateDescent(problem, "add_remove", 1.0, 5, size, 1e9)

    def expansion(records):
        # Every row has norm one, so the curvature of the sum is the number of records.
        data = InMemory(np.ones((records, 1)), np.zeros(records))
        slope = (
            data.gradient(Squared(), [1.0], row_norm=1.0)[1]
            - data.gradient(Squared(), [0.0], row_norm=1.0)[1]
        )
        return abs(1 - size * (slope[0] / problem.n + problem.ridge))

    most = descent.most_records
    assert expansion(most) <= descent.contraction
    assert expansion(most + 2) > descent.contraction
    budget = Budget(mu=1.0, relation="add_remove")
    told = [
        assumption.text
        for assumption in last_iterate_gd.plan(problem, budget, clip_norm=1.0).basis.assumptions
    ]
    assert any("at most" in text and "records" in text for text in told)


def test_a_domain_helps_long_runs_only():
    k = np.ones(200)
    assert last_iterate_mu(k, 0.1 * k, k, diameter=0.3) == pytest.approx(0.3464, rel=1e-3)
    assert last_iterate_mu(k, 0.1 * k, k, diameter=3.0) == pytest.approx(1.0954, rel=1e-3)
    assert last_iterate_mu(k, 0.1 * k, k, diameter=1e9) == pytest.approx(math.sqrt(2), rel=1e-8)


@pytest.mark.parametrize("c", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("diameter", [0.05, 0.3, 1.0])
def test_steps_that_contract_within_a_domain_have_the_price_of_the_closed_form(c, diameter):
    """The best over all steps and the last r, which start at two points a diameter apart."""
    steps, s, sigma = 12, 0.4, 0.7
    last = np.arange(1, steps)
    apart = c**last * diameter + s * (1 - c**last) / (1 - c)
    restarted = apart**2 * (1 - c**2) / ((1 - c ** (2 * last)) * sigma**2)
    whole = (s / sigma) ** 2 * (1 - c**steps) * (1 + c) / ((1 + c**steps) * (1 - c))
    k = np.ones(steps)
    mu = last_iterate_mu(c * k, s * k, sigma * k, diameter=diameter)
    assert mu == pytest.approx(math.sqrt(min(whole, restarted.min())), rel=1e-8)


def test_it_never_costs_more_than_the_trajectory():
    generator = np.random.default_rng(0)
    for _ in range(200):
        size = generator.integers(1, 12)
        c, s, sigma = (
            generator.uniform(0, 1.3, size),
            generator.uniform(0, 2, size),
            generator.uniform(0.3, 2, size),
        )
        last, all_of_it = last_iterate_mu(c, s, sigma), trajectory_mu(s, sigma)
        assert last <= all_of_it * (1 + 1e-8)
        # The linear maps x -> c x with all shifts in one direction have this exact parameter.
        weights = np.append(np.cumprod(c[:0:-1])[::-1], 1.0)
        assert (weights * s).sum() / math.sqrt(((weights * sigma) ** 2).sum()) <= last * (1 + 1e-9)


@pytest.mark.parametrize(
    "columns",
    [
        ([], [], []),
        ([1.0], [1.0], [0.0]),
        ([math.nan], [1.0], [1.0]),
        ([1.0], [-1.0], [1.0]),
        ([1], [1, 1], [1]),
    ],
)
def test_impossible_schedules_are_refused(columns):
    with pytest.raises(ValueError, match=r"step|finite"):
        last_iterate_mu(*columns)


def test_noise_that_is_lost_in_a_sum_is_refused_not_ignored():
    with pytest.raises(ValueError, match="uneven"):
        last_iterate_mu([1.0, 1.0], [0.0, 1.0], [1.0, 1e-9])


@pytest.mark.parametrize("unit", [1e-170, 3e-162, 1e-160, 1e-100, 1e100, 1e160])
@pytest.mark.parametrize("diameter", [None, 0.3])
def test_the_price_does_not_depend_on_the_unit(unit, diameter):
    """Squares of numbers below 1e-162 are zero in double precision, and their price was."""
    c, s, sigma = np.array([1.0, 0.8, 0.9]), np.array([0.2, 0.5, 0.4]), np.array([1.0, 0.7, 1.2])
    scaled = None if diameter is None else diameter * unit
    expected = last_iterate_mu(c, s, sigma, diameter=diameter)
    assert last_iterate_mu(c, s * unit, sigma * unit, diameter=scaled) == pytest.approx(
        expected, rel=1e-12
    )


@pytest.mark.parametrize("ridge", [1.0, 1e60, 1e62, 1e70])
def test_plans_in_tiny_units_meet_their_budget(ridge):
    problem = Minimize(n=1, loss=Logistic(), bounds=Bounds(1e-100), n_features=2, ridge=ridge)
    plan = last_iterate_gd.plan(problem, Budget(mu=0.5), max_passes=5)
    # Steps of 1 / (smoothness + ridge) forget everything but the last shift.
    assert plan.guarantee.meets(Budget(mu=0.5))
    assert plan.mechanism.shift / plan.mechanism.noise == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize("delta", [1e-9, 1e-6])
def test_tiny_budgets_are_met_to_the_last_digit(delta):
    budget = Budget(epsilon=1e-6, delta=delta)
    for n in range(1, 40):
        problem = Minimize(n=n, loss=Logistic(), bounds=Bounds(1.0), n_features=2, ridge=0.1)
        plan = last_iterate_gd.plan(problem, budget, max_passes=5)
        assert plan.guarantee.meets(budget)
        assert plan.guarantee.mu == pytest.approx(gaussian.mu(1e-6, delta), rel=1e-6)


def ridge_problem(loss, n, relation_bounds=None, **more):
    return Minimize(
        n=n, loss=loss, bounds=relation_bounds or Bounds(1.0), n_features=1, ridge=0.3, **more
    )


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_a_nearly_linear_loss_attains_the_promise(relation):
    """Huber far from its corner is linear: output normal, shift known, mu attained."""
    n, steps = 10, 40
    problem = ridge_problem(Huber(1.0), n, Bounds(1.0, -1e6, 1e6))
    plan = last_iterate_gd.plan(problem, Budget(mu=1.0, relation=relation), max_passes=steps)
    mechanism = plan.mechanism
    assert plan.guarantee.mu == pytest.approx(1.0, rel=1e-6)
    c, kept = 1 - mechanism.step_size * 0.3, mechanism.noise
    spread = kept * math.sqrt((1 - c ** (2 * steps)) / (1 - c**2))
    moved = (
        mechanism.step_size / n * (2.0 if relation == "replace" else 1.0) * (1 - c**steps) / (1 - c)
    )
    assert 0.995 < moved / spread <= 1.0
    labels = np.full(n, 1e6)
    other = np.append(labels[:-1], -1e6) if relation == "replace" else labels[:-1]
    runs = 20_000
    one, two = (
        np.array(mechanism.run_many(InMemory(np.ones((len(y), 1)), y), Run(Source(seed)), runs))[
            :, 0
        ]
        for seed, y in ((1, labels), (2, other))
    )
    assert one.std() == pytest.approx(spread, rel=0.035)
    assert one.mean() - two.mean() == pytest.approx(moved, abs=6 * spread * math.sqrt(2 / runs))


@pytest.mark.parametrize("steps", [2, 8])
@pytest.mark.parametrize("record", [5.0, -5.0, 0.2])
def test_the_exact_curve_of_a_curved_loss_is_below_the_promise(steps, record):
    """One dimension: densities on a grid, both directions, several epsilons."""
    loss, n, size, noise, ridge = Huber(1.0), 3, 0.8, 0.35, 0.25
    problem = replace(ridge_problem(loss, n), ridge=ridge)
    mechanism = LastIterateDescent(problem, "replace", noise, steps, size, 1.0)
    grid = np.linspace(-5, 5, 1501)
    width = grid[1] - grid[0]

    def law(labels):
        slopes = sum(np.clip(grid - y, -1, 1) for y in labels)
        centres = grid - size * (slopes / n + ridge * grid)
        start = -size * sum(np.clip(0.0 - y, -1, 1) for y in labels) / n
        density = norm.pdf(grid, start, noise)
        # The normal density is smooth on the scale of the grid: the midpoint rule is exact to
        # 1e-12.
        transition = norm.pdf(grid[None], centres[:, None], noise) * width
        for _ in range(steps - 1):
            density = density @ transition
        return density

    one, two = law([0.5, -0.4, record]), law([0.5, -0.4, -record])
    mu = mechanism.event.mu
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        promised = gaussian.delta(mu, epsilon)
        for p, q in ((one, two), (two, one)):
            assert np.maximum(p - math.exp(epsilon) * q, 0).sum() * width <= promised + 1e-6


def test_many_steps_cost_nothing_more():
    problem = Minimize(n=1000, loss=Logistic(), bounds=Bounds(1.0), n_features=3, ridge=0.1)
    budget = Budget(epsilon=1, delta=1e-6)
    few, many = (
        last_iterate_gd.plan(problem, budget, max_passes=k).mechanism.noise for k in (100, 10_000)
    )
    assert many == pytest.approx(few, rel=0.01)
    usual = [
        np.mean(
            noisy_gd.plan(problem, budget, max_passes=k).mechanism.aggregate.multipliers ** -2.0
        )
        ** -0.5
        for k in (100, 10_000)
    ]
    assert usual[1] == pytest.approx(10 * usual[0])


def test_what_the_theorem_does_not_cover_is_refused():
    budget = Budget(mu=1.0)
    with pytest.raises(ValueError, match="ridge > 0"):
        last_iterate_gd.plan(
            Minimize(n=9, loss=Logistic(), bounds=Bounds(1.0), n_features=1), budget
        )
    with pytest.raises(ValueError, match="smooth loss"):
        last_iterate_gd.plan(ridge_problem(Hinge(), 9), budget)
    softmax = Minimize(n=9, loss=Softmax(3), bounds=Bounds(1.0), n_features=2, ridge=0.1)
    with pytest.raises(ValueError, match="generalized linear"):
        LastIterateDescent(softmax, "replace", 1.0, 5, 0.1, clip_norm=0.5)
    saddle = CustomLoss(
        value_function=abs, gradient_function=abs, lipschitz_bound=1.0, smoothness_bound=1.0
    )
    with pytest.raises(ValueError, match="convex"):
        last_iterate_gd.plan(ridge_problem(saddle, 9), budget)
    with pytest.raises(ValueError, match="clip_norm must be"):
        last_iterate_gd.plan(ridge_problem(Logistic(), 9), budget, clip_norm=9e-101)
    with pytest.raises(ValueError, match="2 / "):
        LastIterateDescent(ridge_problem(Logistic(), 9), "replace", 1.0, 5, 9.0, clip_norm=1.0)


def test_a_domain_keeps_the_iterate():
    problem = ridge_problem(Logistic(), 9, domain=L2Ball(1, 0.1))
    value = (
        last_iterate_gd.plan(problem, Budget(mu=0.1))
        .run(InMemory(np.ones((9, 1)), np.ones(9)), random_state=1)
        .value
    )
    assert abs(value[0]) <= 0.1 + 1e-12


def test_a_start_outside_of_the_domain_moves_no_step_further_than_declared():
    """Squared losses have their constants inside of the domain only."""
    facts = {
        "loss": Squared(),
        "bounds": Bounds(1.0, -1.0, 1.0),
        "n_features": 2,
        "domain": L2Ball(2, 1.0),
    }
    problem = Minimize(n=1, ridge=0.1, start=(9.0, 0.0), **facts)
    mechanism = last_iterate_gd.plan(problem, Budget(mu=1e4), max_passes=1).mechanism
    quiet = replace(mechanism, noise=mechanism.shift * 1e-3)
    # Without a domain to project on, the step itself is seen.
    free = replace(quiet, problem=replace(problem, domain=None))
    ends = [
        free.step(quiet.init(data, Run(Source(1))), 0, data, Run(Source(1)))
        for data in (InMemory([[0.3, 0.95]], [-1.0]), InMemory([[0.3, -0.95]], [-1.0]))
    ]
    assert np.linalg.norm(ends[0] - ends[1]) <= mechanism.shift
