"""The noisy mean: sensitivity by brute force, the law of the noise, hostile records."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import chi2, laplace, norm

from dpfit.core import Answer, Run
from dpfit.mechanisms.mean import BoundedMean, NoisyMean, gaussian_mean, laplace_mean
from dpfit.noise import Source
from dpfit.privacy import Budget, BudgetUnreachable
from oracles.views import viewed

ALGORITHMS = {"gaussian": gaussian_mean, "laplace": laplace_mean}


def summed(mechanism: NoisyMean, data: np.ndarray) -> np.ndarray:
    """What is noised: the exact sum, read off a run with hardly any noise."""
    quiet = NoisyMean(mechanism.noise, 1e-9, mechanism.query, mechanism.n, mechanism.relation)
    centre = (mechanism.query.lower + mechanism.query.upper) / 2
    return (quiet.run(viewed(data), Run(Source(0))) - centre) * mechanism.n


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize(
    ("lower", "upper"), [(0.0, 1.0), (-3.0, 5.0), (2.0, 2.5), (-1e9, 1e9), (0.1, 0.7)]
)
def test_no_extreme_neighbour_moves_the_sum_by_more_than_the_sensitivity(
    noise, relation, lower, upper
):
    """All corners (and records out of range), n = 3, d = 2; the largest change is attained."""
    query = BoundedMean(lower, upper, 2)
    mechanism = NoisyMean(noise, 1.0, query, 3, relation)
    declared = mechanism.risk.expected * 3 / (1.0 if noise == "gaussian" else math.sqrt(2))
    entries = [lower, upper, 2 * upper + 1, (lower + upper) / 2, float("nan"), float("inf")]
    rows = [np.array(row) for row in itertools.product(entries, repeat=2)]
    base = np.tile((lower + upper) / 2, (2, 2))
    order = 2 if noise == "gaussian" else 1
    largest = 0.0
    for row in rows:
        with_row = summed(mechanism, np.vstack([base, row]))
        if relation == "add_remove":
            others = [summed(mechanism, base)]
        else:
            others = [summed(mechanism, np.vstack([base, other])) for other in rows[:6] + rows[-6:]]
        largest = max(
            largest, *(float(np.linalg.norm(with_row - other, order)) for other in others)
        )
    assert largest <= declared * (1 + 2e-4)
    assert largest >= declared * 0.99


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_noise_has_the_planned_law(noise):
    """Chi-square on 20 equal cells, 20,000 draws, 1e-9; rejects a scale off by 10%."""
    problem = Answer(n=10, workload=BoundedMean(-1.0, 1.0, 2000))
    plan = ALGORITHMS[noise].plan(problem, Budget(epsilon=1.0, delta=1e-5))
    draws = np.concatenate(
        [plan.run(np.zeros((10, 2000)), random_state=seed).value for seed in range(10)]
    )
    law = (
        norm(scale=plan.risk.expected)
        if noise == "gaussian"
        else laplace(scale=plan.risk.expected / math.sqrt(2))
    )

    def statistic(scale: float) -> float:
        counts = np.histogram(law.cdf(draws / scale), bins=20, range=(0, 1))[0]
        return float(np.sum((counts - 1000.0) ** 2 / 1000.0))

    limit = chi2.isf(1e-9, 19)
    assert statistic(1.0) < limit
    assert statistic(1.1) > limit
    assert statistic(0.9) > limit


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("n", [1, 1000, 2_000_000])
@pytest.mark.parametrize("multiplier", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize(("lower", "upper"), [(0.0, 1.0), (0.0, 1e12), (-1e-3, 2.5)])
def test_equal_records_are_rounded_by_less_than_the_noise(noise, n, multiplier, lower, upper):
    """A million equal records were off by 18 times the noise at epsilon 1: all round alike."""
    mechanism = NoisyMean(noise, multiplier, BoundedMean(lower, upper), n, "replace")
    centre, half = lower / 2 + upper / 2, upper / 2 - lower / 2
    for share in (0.0, 0.3, 0.77, 1.0):
        number = lower + share * (upper - lower)
        steps = mechanism._grid.sum([[number - centre]], half)[0] * n
        error = abs(steps * mechanism._grid.step / n - (number - centre))
        # The second part is a step of the finest grid on which integers hold the sum.
        assert error <= 1e-3 * mechanism.risk.expected + half * n * 2.0**-58
        assert error <= mechanism.reach(0.5)[0]


def test_a_wide_range_costs_no_digits():
    """The error was 4e-7 of the range whatever the budget."""
    numbers = np.random.default_rng(0).uniform(0, 1e12, 5000)
    problem = Answer(n=5000, workload=BoundedMean(0.0, 1e12))
    mean = laplace_mean.plan(problem, Budget(epsilon=1e6)).run(numbers, random_state=1).value
    assert mean == pytest.approx([numbers.mean()], rel=2e-8)  # 50 times the scale of the noise


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_the_plan_meets_its_budget_and_little_less_noise_would_not(relation):
    problem = Answer(n=100, workload=BoundedMean(0.0, 1.0, 3))
    for budget in (
        Budget(epsilon=1, delta=1e-6, relation=relation),
        Budget(mu=0.7, relation=relation),
        Budget(rho=0.1, relation=relation),
    ):
        plan = gaussian_mean.plan(problem, budget)
        assert plan.guarantee.meets(budget)
        less = type(plan)(
            NoisyMean(
                "gaussian",
                plan.mechanism.noise_multiplier * 0.999,
                plan.mechanism.query,
                100,
                relation,
            ),
            plan.why,
        )
        assert not less.guarantee.meets(budget)
    assert laplace_mean.plan(problem, Budget(epsilon=0.5)).guarantee.pure == pytest.approx(
        0.5, rel=2e-5
    )


def test_every_output_lies_on_one_grid_whatever_the_data():
    """The set of outputs is independent of records (before public shift and division)."""
    mechanism = NoisyMean("gaussian", 4.0, BoundedMean(-1.0, 1.0), 4, "replace")
    grid = mechanism._grid
    for data in (np.zeros(4), np.array([0.1, 1e-300, -1.0, 5e-324]), np.full(4, np.inf)):
        values = [gaussian_run(mechanism, data, seed) for seed in range(50)]
        assert all(value * 4 / grid.step == round(value * 4 / grid.step) for value in values)


def gaussian_run(mechanism: NoisyMean, data: np.ndarray, seed: int) -> float:
    return float(mechanism.run(viewed(data), Run(Source(seed)))[0])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324])
def test_hostile_records_are_bounded_silently(bad):
    problem = Answer(n=3, workload=BoundedMean(0.0, 1.0))
    plan = gaussian_mean.plan(problem, Budget(mu=100.0))
    value = plan.run(np.array([0.5, 0.5, bad]), random_state=0).value[0]
    assert 0.0 < value < 1.0


def test_wrong_shapes_and_sizes_are_public_facts_and_said():
    plan = gaussian_mean.plan(Answer(n=3, workload=BoundedMean(0.0, 1.0, 2)), Budget(mu=1.0))
    with pytest.raises(ValueError, match="records of 2 numbers"):
        plan.run(np.zeros((3, 4)))
    with pytest.raises(ValueError, match="n = 3 records, the data have 2"):
        plan.run(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="array of numbers") as error:
        plan.run(np.array([["Alice Smith", "secret"]] * 3))
    assert "Alice" not in str(error.value)


def test_a_cell_that_is_no_number_is_missing_and_no_error_tells_of_it():
    """Cell types are values of records: neighbours must not differ in whether they raise."""
    plan = gaussian_mean.plan(Answer(n=3, workload=BoundedMean(0.0, 1.0)), Budget(mu=1.0))
    texts, numbers = (
        plan.run(cells, random_state=1).value for cells in ([0.5, "Alice", 0.5], [0.5, np.nan, 0.5])
    )
    assert np.array_equal(texts, numbers)


def test_under_add_remove_the_declared_n_is_never_compared_with_the_data():
    plan = gaussian_mean.plan(
        Answer(n=3, workload=BoundedMean(0.0, 1.0)), Budget(mu=1.0, relation="add_remove")
    )
    for rows in (0, 1, 3, 50):
        assert plan.run(np.zeros(rows)).value.shape == (1,)


def test_refusals_say_the_way_out():
    problem = Answer(n=3, workload=BoundedMean(0.0, 1.0))
    with pytest.raises(BudgetUnreachable, match="give a delta"):
        gaussian_mean.plan(problem, Budget(epsilon=1.0))
    with pytest.raises(ValueError, match="to_user"):
        gaussian_mean.plan(problem, Budget(mu=1.0, unit="user"))
    with pytest.raises(ValueError, match="lower < upper"):
        BoundedMean(1.0, 1.0)
    with pytest.raises(ValueError, match="n must be a whole number"):
        Answer(n=0, workload=BoundedMean(0.0, 1.0))
