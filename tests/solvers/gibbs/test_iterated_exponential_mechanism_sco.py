"""Two parts of the records: who sees what, what is charged, radii, the proven risk."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

from dpfit.core import Minimize, plan_from_json
from dpfit.data.dataset import InMemory
from dpfit.data.view import View, part_sizes
from dpfit.losses import Bounds, LinearLoss, Logistic
from dpfit.noise import Source
from dpfit.privacy import Budget, BudgetUnreachable, Guarantee
from dpfit.privacy.event import Composed, Parallel
from dpfit.solvers.gibbs.ball_schedule import FirstBall
from dpfit.solvers.gibbs.iterated_exponential_mechanism_sco import (
    iterated_exponential_mechanism_sco,
    population_schedule,
)

RELATIONS = ("replace", "add_remove")


def linear(n=4000, d=1, ridge=1.0):
    return Minimize(
        n=n,
        loss=LinearLoss(),
        bounds=Bounds(1.0),
        n_features=d,
        ridge=ridge,
        objective="population",
    )


@pytest.mark.parametrize("relation", RELATIONS)
def test_each_part_may_spend_the_budget(relation):
    budget = Budget(epsilon=1.0, relation=relation)
    plan = iterated_exponential_mechanism_sco.plan(linear(), budget)
    event = plan.event
    assert isinstance(event, Parallel)
    assert isinstance(event.events[0], Composed)
    assert plan.guarantee.meets(budget)
    assert plan.guarantee.pure > 0.97
    # Both parts, not their sum and not less: the last stage alone has the whole of epsilon.
    assert all(Guarantee(part, plan.basis).pure > 0.97 for part in event.events)
    assert [stage.part for stage in plan.stages[:-1]] == [0] * (len(plan.stages) - 1)
    assert plan.stages[-1].part == 1
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_temperatures_and_risk_in_closed_form():
    """t = 0.98 epsilon / (2 change radius); risk d / (t n_2) + L * difference / (n_2 ridge)."""
    plan = iterated_exponential_mechanism_sco.plan(linear(n=4001), Budget(epsilon=1.0))
    last = plan.final
    radius = last.problem.trust_ball.norm_bound
    assert (
        (plan.stages[0].plan.mechanism.problem.n, last.problem.n)
        == part_sizes(4001, (0.5, 0.5))
        == (2000, 2001)
    )
    assert last.inverse_temperature == pytest.approx(0.98 / (2 * 2.0 * radius), rel=0.01)
    assert plan.risk.expected == pytest.approx(
        2 * 2.0 * radius / (0.98 * 2001) + 2.0 / 2001, rel=0.01
    )


def test_work_counts_each_record_of_a_part_once():
    """A pass over a half is half a pass, and has as many gradients as the half has records."""
    plan = iterated_exponential_mechanism_sco.plan(linear(), Budget(epsilon=1.0))
    passes = [stage.plan.mechanism.work.passes for stage in plan.stages]
    assert plan.work.passes == pytest.approx(sum(passes) / 2)
    assert plan.work.gradients == pytest.approx(plan.work.passes * 4000)


def test_radii():
    problem = linear(n=10**6, d=3, ridge=0.2)
    stages = population_schedule(problem, FirstBall(5.0, 2.0, 1.0), 1e-4, most=6)
    first = len(stages.radii) - 1
    tail = 1e-4 / 2 / first
    drift = 2.0 / 0.2 * math.sqrt(2 * math.log(2 / tail) / (5 * 10**5))
    assert sum(stages.epsilons[:-1]) == pytest.approx(1.0)
    assert stages.epsilons[-1] == 1.0
    for before, spent, after in zip(stages.radii, stages.epsilons, stages.radii[1:], strict=False):
        temperature = spent / (2 * 2.0 * before)
        own = 1.02 * math.sqrt(chi2(3).isf(tail) / (temperature * 5 * 10**5 * 0.2))
        assert after == pytest.approx(own + drift)


def test_the_minimizer_of_a_sample_is_as_near_that_of_the_population_as_the_radii_say():
    """Linear losses: the minimizer is the mean over the ridge; signs are the widest records."""
    random = np.random.default_rng(1)
    for tail in (0.3, 0.05):
        means = random.choice([-1.0, 1.0], size=(4000, 400)).mean(axis=1)
        beyond = np.abs(means) > 2.0 * math.sqrt(2 * math.log(2 / tail) / 400)
        assert beyond.mean() <= tail


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_last_sample_sees_other_records_than_the_balls(relation):
    """With equal noise, first-part rows move the balls and second-part rows do not."""
    n = 400
    plan = iterated_exponential_mechanism_sco.plan(
        linear(n), Budget(epsilon=4.0, relation=relation)
    )
    rows = np.where(np.arange(n) % 4 < 2, 1.0, -1.0)[:, None]
    numbered = View(InMemory(np.arange(n)[:, None], np.zeros(n)), relation, "record", Source(3))
    first, second = (part.whole.rows[:, 0].astype(int) for part in numbered.parts((0.5, 0.5)))
    assert sorted([*first, *second]) == list(range(n))
    even, odd = rows.copy(), rows.copy()
    even[first], odd[second] = 1.0, 1.0
    values = [plan.run(InMemory(r, np.zeros(n)), random_state=3).value for r in (rows, odd, even)]
    assert np.array_equal(values[0][0], values[1][0])
    assert not np.array_equal(values[0][-1], values[1][-1])
    assert not np.array_equal(values[0][0], values[2][0])


def test_the_population_risk_is_below_the_bound():
    """Signs with mean 0.1: the regularized risk is 0.1 x + x^2 / 2 with minimizer -0.1."""
    random, n = np.random.default_rng(2), 4000
    plan = iterated_exponential_mechanism_sco.plan(linear(n), Budget(epsilon=2.0))
    excess = []
    for seed in range(30):
        rows = np.where(random.uniform(size=(n, 1)) < 0.55, 1.0, -1.0)
        x = float(plan.run(InMemory(rows, np.zeros(n)), random_state=seed).value[-1][0])
        excess.append((x + 0.1) ** 2 / 2)
    assert 0 < np.mean(excess) + 6 * np.std(excess) / math.sqrt(30) <= plan.risk.expected


def test_refusals():
    with pytest.raises(ValueError, match="population objective"):
        iterated_exponential_mechanism_sco.plan(
            replace(linear(), objective="empirical"), Budget(epsilon=1.0)
        )
    with pytest.raises(BudgetUnreachable, match="pure epsilon"):
        iterated_exponential_mechanism_sco.plan(linear(), Budget(mu=1.0))
    with pytest.raises(ValueError, match="ridge > 0"):
        iterated_exponential_mechanism_sco.plan(replace(linear(), ridge=0.0), Budget(epsilon=1.0))
    with pytest.raises(ValueError, match="at least two records"):
        iterated_exponential_mechanism_sco.plan(linear(1), Budget(epsilon=1.0))
    logistic = replace(linear(), loss=Logistic())
    with pytest.raises(ValueError, match="whole number of at least 2"):
        iterated_exponential_mechanism_sco.plan(logistic, Budget(epsilon=1.0), most=1)
