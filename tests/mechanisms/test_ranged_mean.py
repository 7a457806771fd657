"""Private range, then mean: the first release sets the second sensitivity, not epsilon."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from dpfit.core import Answer, plan_from_json
from dpfit.mechanisms.mean import BoundedMean
from dpfit.mechanisms.ranged_mean import PrivateRange, ranged_mean
from dpfit.privacy import Budget


def test_noise_follows_the_released_range():
    """Records in 1% of the declared range: a narrow released range and narrow second noise."""
    problem = Answer(n=5000, workload=BoundedMean(0.0, 1000.0))
    plan = ranged_mean.plan(problem, Budget(epsilon=1, delta=1e-6), bins=100)
    data = np.linspace(501.0, 509.0, 5000)
    (low, high), mean = plan.run(data, random_state=1).value
    assert (low, high) == (500.0, 510.0)
    assert mean[0] == pytest.approx(
        505.0, abs=0.1
    )  # noise 0.009; it would be 0.94 for the declared range
    assert plan.stages[1].binding.bound(
        plan.stages[1].plan, {"range": (low, high)}
    ).risk.expected == pytest.approx(plan.risk.expected / 100, rel=1e-3)


def test_without_any_bin_above_the_noise_the_declared_range_stays():
    problem = Answer(n=5, workload=BoundedMean(-1.0, 1.0))
    plan = ranged_mean.plan(problem, Budget(mu=1e-3))
    (low, high), _ = plan.run(np.zeros(5), random_state=0).value
    assert (low, high) == (-1.0, 1.0)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_the_plan_is_the_same_for_neighbours_and_round_trips(relation):
    problem, data, neighbour = ranged_mean.example(relation)
    plans = [
        ranged_mean.plan(problem, Budget(mu=1.0, relation=relation)) for _ in (data, neighbour)
    ]
    assert plans[0] == plans[1] == plan_from_json(json.loads(json.dumps(plans[0].to_json())))
    assert plans[0].guarantee.mu == pytest.approx(1.0)


def hockey_stick(plan, data, neighbour, epsilon):
    """Exact: bins pass their thresholds independently, the mean is Gaussian given the range."""
    first, second = plan.mechanisms
    edges = np.linspace(first.lower, first.upper, first.bins + 1)
    spread = first.noise_multiplier * first.sensitivity

    def passes(rows):
        counts = np.histogram(rows, edges)[0]
        return norm.sf((first.threshold - counts) / spread)

    p, q = passes(data), passes(neighbour)
    total = 0.0
    ranges: dict[tuple[float, float], list[float]] = {}
    for pattern in itertools.product([0, 1], repeat=first.bins):
        kept = np.flatnonzero(pattern)
        span = (edges[kept[0]], edges[kept[-1] + 1]) if len(kept) else (first.lower, first.upper)
        weights = ranges.setdefault(span, [0.0, 0.0])
        for index, chance in enumerate((p, q)):
            weights[index] += float(np.prod(np.where(pattern, chance, 1 - chance)))
    for (low, high), (weight, other) in ranges.items():
        if weight == 0:
            continue
        bound = replace(second, query=BoundedMean(low, high))
        centre = (low + high) / 2
        shift = (
            abs(
                sum(np.clip(data, low, high) - centre) - sum(np.clip(neighbour, low, high) - centre)
            )
            / second.n
        )
        mu, eps = shift / bound.risk.expected, epsilon - np.log(weight / max(other, 1e-300))
        if mu == 0:
            total += max(weight - np.exp(epsilon) * other, 0.0)
        else:
            total += weight * (
                norm.cdf(-eps / mu + mu / 2) - np.exp(eps) * norm.cdf(-eps / mu - mu / 2)
            )
    return total


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 2.0])
def test_the_promise_holds_exactly_on_adversarial_neighbours(relation, epsilon):
    plan = ranged_mean.plan(
        Answer(n=6, workload=BoundedMean(0.0, 4.0)),
        Budget(mu=1.0, relation=relation),
        bins=4,
        share=0.4,
    )
    low, far = np.full(6, 0.5), np.append(np.full(5, 0.5), 3.5)
    pairs = [(low, far)] if relation == "replace" else [(far, far[:-1]), (low, low[:-1])]
    for data, neighbour in pairs:
        for one, two in ((data, neighbour), (neighbour, data)):
            assert hockey_stick(plan, one, two, epsilon) <= plan.guarantee.delta(epsilon) + 1e-12


def test_halving_the_noise_of_the_range_would_break_the_promise():
    """A test of the test: the exact curve sees a first stage with a fifth of its noise."""
    plan = ranged_mean.plan(
        Answer(n=6, workload=BoundedMean(0.0, 4.0)), Budget(mu=1.0), bins=4, share=0.4
    )
    stage = plan.stages[0]
    quiet = PrivateRange(stage.plan.mechanism.noise_multiplier / 5, 0.0, 4.0, 4, "replace")
    broken = replace(
        plan, stages=(replace(stage, plan=replace(stage.plan, mechanism=quiet)), plan.stages[1])
    )
    low, far = np.full(6, 0.5), np.append(np.full(5, 0.5), 3.5)
    assert hockey_stick(broken, far, low, 0.5) > plan.guarantee.delta(0.5)
