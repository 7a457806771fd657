"""Corrected counts: what is corrected, what is charged, and that it gains nothing."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from dpfit.core import Answer, Run
from dpfit.mechanisms.counting import Flags
from dpfit.mechanisms.generalized_gaussian import generalized_gaussian
from dpfit.mechanisms.sparse_corrected import sparse_corrected
from dpfit.noise import Source
from dpfit.privacy import Budget, BudgetUnreachable
from dpfit.privacy.accountant import privacy_curve
from dpfit.theory.counting_queries import printed_correction
from oracles.views import viewed

BUDGET = Budget(epsilon=1.0, delta=1e-6)


def planned(number=400, hits=4, budget=BUDGET):
    return sparse_corrected.plan(Answer(n=10, workload=Flags(number)), budget, hits=hits)


def test_at_most_the_planned_number_of_answers_is_corrected():
    """With a threshold far above the search noise, large values are found and removed."""
    plan = planned()
    search = plan.mechanism.correction
    search = replace(
        search, epsilon=2.0, noise_multiplier=1.0, queries=replace(search.queries, threshold=500.0)
    )
    noise = np.zeros(400)
    noise[[3, 40, 41, 200, 300]] = 1000 * np.array([1, -1, 1, 1, -1])
    found = replace(plan.mechanism, correction=search).corrections(noise, Run(Source(1)))
    assert np.flatnonzero(found).tolist() == [3, 40, 41, 200]
    assert found[[3, 40, 41, 200]] == pytest.approx([1000, -1000, 1000, 1000], abs=20)


def test_the_release_is_the_noisy_counts_minus_the_corrections():
    """Same stream of noise: outputs differ from the plain ones in at most ``hits`` places."""
    plan = planned()
    rows = np.ones((5, 400))
    plain = plan.mechanism.noise.add(np.full(400, 5), Flags(400).change("replace"), Source(2))
    released = plan.mechanism.run(viewed(rows), Run(Source(2)))
    assert np.sum(plain != released) <= 4


def test_counts_search_and_answers_are_composed():
    plan = planned()
    counted, corrected = plan.event.events
    assert plan.guarantee.meets(BUDGET)
    assert counted.dimension == 400
    assert [part.times for part in corrected.events] == [4, 4]
    # Without the correction the counts alone would leave room in the budget.
    assert float(privacy_curve(counted, "replace").delta(np.array([1.0]))[0]) < 0.9e-6


def test_it_gains_nothing():
    """The plain mechanism has less noise, and the printed parameters correct nothing."""
    plain = generalized_gaussian.plan(Answer(n=10, workload=Flags(400)), BUDGET)
    assert planned().mechanism.noise.scale > plain.mechanism.noise.scale
    for number in (10**4, 10**6):
        threshold, _ = printed_correction(number, 4.0, 1.0)
        largest = plain.mechanism.noise.errors(Flags(number).change("replace"))
        assert threshold > 3 * largest.max_quantile(0.95) / largest.scale
        assert printed_correction(number, 4.0, 2.0)[1] < 1


def test_other_promises_are_refused():
    with pytest.raises(BudgetUnreachable, match="budget of \\(epsilon, delta\\)"):
        planned(budget=Budget(mu=1.0))


@pytest.mark.parametrize(("number", "hits"), [(100, 5), (100, 20), (300, 1)])
def test_the_predicted_error_is_that_of_simulation(number, hits):
    """Twenty corrections of a hundred answers have far more noise than the answers."""
    plan = sparse_corrected.plan(
        Answer(workload=Flags(number)), Budget(epsilon=1.0, delta=1e-6), hits=hits
    )
    mechanism, source = plan.mechanism, Source(1)
    change, run = mechanism.workload.change("replace"), Run(source)
    largest = []
    for _ in range(80):
        noise = mechanism.noise.add(np.zeros(number, dtype=np.int64), change, source)
        noise = noise.astype(float)
        largest.append(np.abs(noise - mechanism.corrections(noise, run)).max())
    # A standard error is at most 2.5% here.
    assert plan.risk.expected == pytest.approx(np.mean(largest), rel=0.1)


def test_the_predicted_error_in_closed_form():
    """The largest of 100 generalized Gaussian and 5 Gaussian errors, by quadrature."""
    mechanism = planned(100, 5).mechanism
    counts = stats.gennorm(mechanism.noise.shape, scale=mechanism.noise.scale)
    answers = stats.norm(scale=mechanism.correction.noise_multiplier)

    def exceeded(x):
        return 1 - (1 - 2 * counts.sf(x)) ** 100 * (1 - 2 * answers.sf(x)) ** 5

    top = 12 * max(counts.std(), answers.std())
    largest = quad(exceeded, 0, top, points=[counts.std(), 4 * counts.std()], limit=200)[0]
    assert mechanism.risk.expected == pytest.approx(largest, rel=1e-6)
