"""Above threshold: transcripts by quadrature, known broken variants, dead after halting."""

import json
import math

import numpy as np
import pytest
from scipy.stats import chi2, laplace

from dpfit.core import Interact, InteractionClosed, plan_from_json
from dpfit.mechanisms.above_threshold import ThresholdQueries, above_threshold
from dpfit.privacy import Budget


def planned(epsilon=1.0, threshold=0.0, sensitivity=1.0, halt="above", rounds=6):
    problem = Interact(n=10, workload=ThresholdQueries(threshold, sensitivity, halt), rounds=rounds)
    return above_threshold.plan(problem, Budget(epsilon=epsilon))


def halting_law(answers, epsilon, sensitivity=1.0, threshold=0.0, fresh_threshold=False):
    """P(halt at each query), and of never halting, by quadrature over the threshold noise."""
    b1, b2 = 2 * sensitivity / epsilon, 4 * sensitivity / epsilon
    nodes, weights = np.polynomial.legendre.leggauss(40)
    edges = np.concatenate(
        [-np.geomspace(40 * b1, 1e-3, 25), [0.0], np.geomspace(1e-3, 40 * b1, 25)]
    )
    half, middle = np.diff(edges)[:, None] / 2, (edges[1:] + edges[:-1])[:, None] / 2
    rho, weight = (middle + half * nodes).ravel(), (half * weights).ravel()
    weight = weight * laplace.pdf(rho, scale=b1)
    above = np.array([laplace.sf(threshold + rho - q, scale=b2) for q in answers])
    if fresh_threshold:
        above = np.repeat((above @ weight)[:, None], len(rho), axis=1)
    stay = np.vstack([np.ones_like(rho), np.cumprod(1 - above, axis=0)])
    return np.append((stay[:-1] * above) @ weight, stay[-1] @ weight)


def sequences():
    rng = np.random.default_rng(7)
    for _ in range(40):
        base = rng.uniform(-6, 6, size=6)
        yield base, base + rng.uniform(-1, 1, size=6)
    for level in (-4.0, 0.0, 3.0):
        base = np.full(6, level)
        yield (
            base,
            base + np.array([1, 1, 1, 1, 1, -1.0]),
        )  # all up, the last one down: the worst pair
        yield base, base - np.array([1, 1, 1, 1, 1, -1.0])


def worst_ratio(epsilon, sensitivity=1.0, **variant):
    ratios = [
        np.max(
            np.abs(np.log(halting_law(a, epsilon, **variant) / halting_law(b, epsilon, **variant)))
        )
        for a, b in sequences()
    ]
    return max(ratios) * sensitivity


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_no_transcript_is_more_than_epsilon_apart(epsilon):
    ratio = worst_ratio(epsilon)
    assert ratio <= epsilon + 1e-9
    assert ratio > 0.6 * epsilon  # the quadrature has teeth


def test_broken_variants_are_seen():
    """Half the noise exceeds epsilon; so does a threshold redrawn for every query."""
    assert worst_ratio(2.0) > 1.0
    far = np.zeros(40)
    shifted = far + 1.0
    redrawn = np.abs(
        np.log(
            halting_law(far, 1.0, fresh_threshold=True)
            / halting_law(shifted, 1.0, fresh_threshold=True)
        )
    )
    assert redrawn[-1] > 1.0


@pytest.mark.parametrize("halt", ["above", "below"])
def test_halting_times_follow_the_law(halt):
    """Chi-square on 7 outcomes, 3,000 runs, 1e-9; rejects the law of a 15% larger epsilon."""
    answers = np.array([-3.0, -1.0, 0.0, 1.0, 2.0, 4.0])
    sign = 1.0 if halt == "above" else -1.0
    plan = planned(epsilon=1.0, halt=halt)
    counts = np.zeros(7)
    for seed in range(3000):
        queries = [lambda data, value=value: sign * value for value in answers]
        transcript = plan.run(np.zeros(10), queries, random_state=seed).value
        halted = transcript[-1] == (halt == "above")
        counts[len(transcript) - 1 if halted else 6] += 1

    def statistic(epsilon):
        expected = 3000 * halting_law(answers, epsilon)
        return float(np.sum((counts - expected) ** 2 / expected))

    assert statistic(1.0) < chi2.isf(1e-9, 6)
    assert statistic(1.4) > chi2.isf(1e-9, 6)


def test_it_is_dead_after_halting():
    session = planned(epsilon=50.0, threshold=0.0).open(np.zeros(3), random_state=0)
    assert session.step(lambda data: -10.0) is False
    assert session.step(lambda data: 10.0) is True
    assert session.done
    with pytest.raises(InteractionClosed):
        session.step(lambda data: -10.0)
    assert session.close().value == (False, True)


def test_it_ends_after_the_planned_number_of_rounds():
    plan = planned(epsilon=50.0, rounds=3)
    assert plan.run(np.zeros(3), [lambda data: -100.0] * 10, random_state=0).value == (
        False,
        False,
        False,
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e308])
def test_queries_that_are_not_numbers_are_bounded(value):
    assert planned(threshold=5.0).open(np.zeros(3), random_state=0).step(lambda data: value) in (
        True,
        False,
    )


def test_bad_plans_and_queries_are_refused():
    with pytest.raises(ValueError, match="sensitivity must be a finite number above 0"):
        ThresholdQueries(1.0, sensitivity=0.0)
    with pytest.raises(ValueError, match="threshold must be finite"):
        ThresholdQueries(math.inf)
    with pytest.raises(ValueError, match="pure epsilon"):
        above_threshold.plan(
            Interact(n=1, workload=ThresholdQueries(1.0), rounds=1), Budget(mu=1.0)
        )
    with pytest.raises(TypeError, match="function"):
        planned().open(np.zeros(3)).step(3.0)


def test_the_plan_round_trips():
    plan = planned()
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
