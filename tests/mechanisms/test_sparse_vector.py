"""Sparse vector: transcripts by quadrature, fresh noise after hits, caps, broken variants."""

import json
import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from dpfit.core import Interact, InteractionClosed, Run, plan_from_json
from dpfit.mechanisms import sparse_vector as module
from dpfit.mechanisms.sparse_vector import SparseQueries, sparse_vector
from dpfit.noise import Source
from dpfit.privacy import Budget
from mechanisms.test_above_threshold import halting_law
from oracles.views import viewed


def planned(budget=None, rounds=20, **facts):
    problem = Interact(
        n=10, workload=SparseQueries(**{"threshold": 0.0, "hits": 2} | facts), rounds=rounds
    )
    return sparse_vector.plan(problem, budget or Budget(epsilon=1.0))


def constant(value):
    return lambda data: value


def transcript_law(answers, epsilon):
    """P of each ordered pair of two hits: two searches, the second from the first's end."""
    first = halting_law(answers, epsilon)
    return {
        (i, j): first[i] * second
        for i in range(len(answers) - 1)
        for j, second in enumerate(halting_law(answers[i + 1 :], epsilon), start=i + 1)
    }


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_finding_two_hits_costs_twice_the_search(share):
    """All pairs of places of hits, by quadrature; answers aside."""
    plan = sparse_vector.plan(
        Interact(n=10, workload=SparseQueries(0.0, 2, answers=False), rounds=6),
        Budget(epsilon=1.0),
        share=share,
    )
    epsilon = plan.mechanism.epsilon
    assert 2 * epsilon == pytest.approx(1.0, rel=1e-9)
    rng = np.random.default_rng(3)
    worst = 0.0
    for base in (np.zeros(5), np.full(5, -3.0), rng.uniform(-4, 4, 5)):
        for move in (np.array([1, 1, -1, 1, -1.0]), rng.uniform(-1, 1, 5)):
            one, two = transcript_law(base, epsilon), transcript_law(base + move, epsilon)
            worst = max(
                worst, max(abs(math.log(one[key] / two[key])) for key in one if one[key] > 1e-12)
            )
    assert worst <= 1.0 + 1e-9
    assert worst > 0.5


@pytest.mark.parametrize(
    "budget",
    [Budget(epsilon=1.0), Budget(epsilon=1.0, delta=1e-6), Budget(mu=1.0), Budget(rho=0.5)],
)
def test_both_parts_are_charged_together(budget):
    plan = planned(budget)
    assert plan.guarantee.meets(budget)
    found, answered = plan.event.events
    assert found.times == answered.times == 2
    assert plan.mechanism.noise == ("laplace" if budget.kind == "pure" else "gaussian")
    if budget.kind == "pure":
        assert 2 * found.event.epsilon + 2 / answered.event.noise_multiplier == pytest.approx(1.0)
        assert 2 * found.event.epsilon == pytest.approx(0.6)


def test_the_split_is_better_than_the_printed_one():
    """[Gan22] Theorem 36: ten hits at (1, 1e-6), deviation 805 sqrt(2); ours is far below."""
    from dpfit.theory.counting_queries import monograph_sparse_vector

    plan = planned(Budget(epsilon=1.0, delta=1e-6), hits=10)
    threshold, query, answer = monograph_sparse_vector(10, 1.0, 1e-6)
    assert plan.mechanism.noise_multiplier < 0.05 * answer * math.sqrt(2)
    assert 2 / plan.mechanism.epsilon < threshold
    assert 4 / plan.mechanism.epsilon < query


def test_hits_end_it_and_rounds_end_it():
    plan = planned(Budget(epsilon=100.0), threshold=50.0)
    session = plan.open(np.zeros(3), random_state=0)
    assert session.step(constant(0.0)) is None
    assert session.step(constant(100.0)) == pytest.approx(100.0, abs=3.0)
    assert not session.done
    assert session.step(constant(200.0)) == pytest.approx(200.0, abs=3.0)
    with pytest.raises(InteractionClosed):
        session.step(constant(0.0))
    answers = session.close().value
    assert [answer is None for answer in answers] == [True, False, False]
    short = planned(Budget(epsilon=100.0), threshold=50.0, rounds=3)
    assert short.run(np.zeros(3), [constant(0.0)] * 9, random_state=0).value == (None, None, None)


def test_without_answers_it_says_true_and_absolute_values_count():
    plan = planned(Budget(epsilon=100.0), threshold=50.0, answers=False)
    assert plan.run(np.zeros(3), [constant(100.0), constant(-100.0)], random_state=0).value == (
        True,
        None,
    )
    both = planned(Budget(epsilon=100.0), threshold=50.0, absolute=True)
    assert both.run(np.zeros(3), [constant(-100.0)], random_state=0).value[0] == pytest.approx(
        -100.0, abs=3.0
    )


def test_answers_have_noise_of_their_own_law():
    """Deviations of 2000 answers: Kolmogorov-Smirnov at 1e-9; 15% less noise is seen."""
    plan = planned(Budget(epsilon=1.0), threshold=-1e4, hits=1)
    scale = plan.mechanism.noise_multiplier
    errors = np.array(
        [
            plan.run(np.zeros(3), [constant(7.0)], random_state=seed).value[0] - 7
            for seed in range(2000)
        ]
    )
    assert stats.kstest(errors, stats.laplace(scale=scale).cdf).pvalue > 1e-9
    assert stats.kstest(errors, stats.laplace(scale=1.3 * scale).cdf).pvalue < 1e-6


def test_the_threshold_is_drawn_again_after_a_hit(monkeypatch):
    """Every search draws its own threshold: as many as hits, and one more that waits."""
    opened = []
    true_init = module.AboveThreshold.init

    def counting_init(self, data, run):
        opened.append(self)
        return true_init(self, data, run)

    monkeypatch.setattr(module.AboveThreshold, "init", counting_init)
    planned(Budget(epsilon=100.0), threshold=50.0, hits=3).run(
        np.zeros(3), [constant(100.0), constant(0.0), constant(100.0)], random_state=0
    )
    assert len(opened) == 3


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e308])
def test_queries_that_are_not_numbers_are_bounded(value):
    answer = planned(threshold=5.0).open(np.zeros(3), random_state=0).step(constant(value))
    assert answer is None or math.isfinite(answer)


def test_bad_plans_and_queries_are_refused():
    for facts, words in (
        ({"hits": 0}, "hits"),
        ({"sensitivity": 0.0}, "sensitivity"),
        ({"threshold": math.inf}, "finite"),
    ):
        with pytest.raises(ValueError, match=words):
            planned(**facts)
    with pytest.raises(ValueError, match="share"):
        sparse_vector.plan(
            Interact(n=1, workload=SparseQueries(0.0), rounds=1), Budget(epsilon=1.0), share=0.0
        )
    with pytest.raises(TypeError, match="function"):
        planned().open(np.zeros(3)).step(3.0)


def test_the_plan_round_trips():
    plan = planned()
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize("budget", [Budget(epsilon=1.0), Budget(epsilon=1.0, delta=1e-6)])
def test_the_predicted_error_is_that_of_the_answers(budget):
    """Queries far above the threshold are all answered; a standard error is at most 2.2%."""
    queries = SparseQueries(threshold=0.0, hits=4)
    plan = sparse_vector.plan(Interact(n=10, workload=queries, rounds=4), budget)
    errors, data = [], viewed(np.zeros(10))
    for seed in range(500):
        run = Run(Source(seed))
        state = plan.mechanism.init(data, run)
        for _ in range(4):
            state, _ = plan.mechanism.answer(state, 1e6, run)
        errors.append(max(abs(answer - 1e6) for answer in state["answers"]))
    assert plan.risk.expected == pytest.approx(np.mean(errors), rel=0.1)
    assert "4 answers" in plan.risk.meaning


def test_the_predicted_error_in_closed_form():
    """Four answers take 40% of epsilon: harmonic numbers for Laplace, quadrature for Gaussians."""
    queries = SparseQueries(threshold=0.0, hits=4, sensitivity=3.0)
    problem = Interact(n=10, workload=queries, rounds=4)
    plan = sparse_vector.plan(problem, Budget(epsilon=2.0))
    scale = 3.0 * 4 / (0.4 * 2.0)
    assert plan.risk.expected == pytest.approx(scale * (1 + 1 / 2 + 1 / 3 + 1 / 4))
    mechanism = sparse_vector.plan(problem, Budget(epsilon=2.0, delta=1e-6)).mechanism
    law = stats.norm(scale=3.0 * mechanism.noise_multiplier)
    largest = quad(lambda x: 1 - (1 - 2 * law.sf(x)) ** 4, 0, 12 * law.std())[0]
    assert mechanism.risk.expected == pytest.approx(largest)


def test_the_predicted_distance_in_closed_form():
    """Queries have noise of 4 / epsilon' and thresholds of 2 / epsilon', epsilon' a third each."""
    queries = SparseQueries(threshold=0.0, hits=3, answers=False)
    mechanism = sparse_vector.plan(
        Interact(n=10, workload=queries, rounds=50), Budget(epsilon=1.0)
    ).mechanism
    query = 2 / (1 - mechanism.search.share) / mechanism.epsilon
    threshold = 1 / mechanism.search.share / mechanism.epsilon
    expected = query * sum(1 / k for k in range(1, 51)) + threshold * (1 + 1 / 2 + 1 / 3)
    assert mechanism.epsilon == pytest.approx(1 / 3)
    assert mechanism.risk.expected == pytest.approx(expected, rel=1e-3)  # the grid's rounding


def test_queries_beyond_the_predicted_distance_are_seldom_misjudged():
    """The distance is at most 1.4 times the largest difference of noises that decides."""
    queries = SparseQueries(threshold=0.0, hits=1, answers=False)
    plan = sparse_vector.plan(Interact(n=10, workload=queries, rounds=50), Budget(epsilon=1.0))
    search, random = plan.mechanism.search, np.random.default_rng(0)
    step = search.grid.step
    noise = random.laplace(scale=search.query_scale * step, size=(20_000, 50))
    noise -= random.laplace(scale=search.threshold_scale * step, size=(20_000, 1))
    exact = np.abs(noise).max(axis=1).mean()
    assert exact <= plan.risk.expected <= 1.4 * exact
    assert "misjudged" in plan.risk.meaning
