"""The exponential mechanism: exact probabilities, every neighbouring pair, hostile scores."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import chisquare

from dpfit.core import Answer, Run
from dpfit.mechanisms.exponential import BestCandidate, ExponentialChoice, exponential
from dpfit.noise import Source
from dpfit.privacy import Budget
from oracles.views import viewed

RELATIONS = ("replace", "add_remove")


def probabilities(mechanism, rows):
    """The law of the choice, from its definition: proportional to exp(-gap / scale)."""
    weights = np.exp(
        -mechanism.gaps(np.asarray(rows, dtype=float).reshape(-1, mechanism.query.candidates))
        / mechanism.scale
    )
    return weights / weights.sum()


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("lower", "upper"), [(0.0, 1.0), (-3.0, 0.1), (1e9, 1e9 + 1)])
def test_log_ratios_of_all_neighbours_have_range_epsilon_at_most_and_attain_it(
    relation, lower, upper
):
    """Three candidates, two records (also one more or fewer), scores at the ends and inside."""
    mechanism = ExponentialChoice(0.8, BestCandidate(3, lower, upper), 2, relation)
    records = [
        np.array(scores)
        for scores in itertools.product((lower, lower / 3 + upper / 1.5, upper), repeat=3)
    ]
    widest = 0.0
    for one, two in itertools.product(records, records):
        base = records[5]
        neighbour = [base] if relation == "add_remove" else [base, two]
        ratios = np.log(probabilities(mechanism, [base, one]) / probabilities(mechanism, neighbour))
        widest = max(widest, np.ptp(ratios))
        assert np.abs(ratios).max() <= 0.8 * (1 + 1e-9)
    assert widest == pytest.approx(0.8, rel=1e-6)


def test_choices_have_the_law():
    mechanism = ExponentialChoice(2.0, BestCandidate(4), 5, "replace")
    rows = np.array(
        [[1, 0, 0.5, 0], [1, 0.2, 0, 0], [0, 1, 1, 0], [1, 1, 0, 0], [1, 0, 1, 0.3]], dtype=float
    )
    drawn = np.ravel(mechanism.run_many(viewed(rows), Run(Source(1)), 50_000))
    # exp(epsilon * score / (2 * span)): scores 4, 2.2, 2.5, 0.3.
    expected = np.exp(2.0 * np.array([4, 2.2, 2.5, 0.3]) / 2)
    assert (
        chisquare(np.bincount(drawn, minlength=4), 50_000 * expected / expected.sum()).pvalue > 1e-6
    )


def test_the_score_lost_is_at_most_predicted():
    """Many equal losers are the worst case; the bound holds, and is within a factor of three."""
    query = BestCandidate(200)
    mechanism = ExponentialChoice(1.0, query, 10, "add_remove")
    score = math.log(200)
    rows = np.zeros((10, 200))
    rows[:, 0] = score / 10
    lost = score * (1 - probabilities(mechanism, rows)[0])
    assert mechanism.risk.expected / 3 <= lost <= mechanism.risk.expected


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308, -5.0])
def test_hostile_scores_count_as_scores_in_the_range(value):
    mechanism = ExponentialChoice(1.0, BestCandidate(2), 2, "replace")
    scores = mechanism.query.scores(np.array([[value, 1.0], [0.0, value]]))
    assert np.all((scores >= 0) & (scores <= 2 * mechanism.query.span))


@pytest.mark.parametrize("relation", RELATIONS)
def test_budgets(relation):
    problem = Answer(n=5, workload=BestCandidate(3))
    for budget in ({"epsilon": 0.5}, {"rho": 0.1}, {"mu": 0.4}, {"epsilon": 0.5, "delta": 1e-6}):
        asked = Budget(**budget, relation=relation)
        assert exponential.plan(problem, asked).guarantee.meets(asked)
    # Bounded range: rho = epsilon^2 / 8, not epsilon^2 / 2.
    assert (
        exponential.plan(problem, Budget(rho=0.1, relation=relation)).mechanism.epsilon
        >= math.sqrt(0.8) * 0.999
    )


def test_refusals():
    with pytest.raises(ValueError, match="lower < upper"):
        BestCandidate(3, 1.0, 1.0)
    plan = exponential.plan(Answer(n=3, workload=BestCandidate(2)), Budget(epsilon=1.0))
    refused = (
        (np.zeros((3, 4)), "2 scores"),
        (np.zeros((2, 2)), "n = 3"),
        (np.array([["a", "b"]] * 3), "array of scores"),
    )
    for rows, match in refused:
        with pytest.raises(ValueError, match=match):
            plan.run(rows)
