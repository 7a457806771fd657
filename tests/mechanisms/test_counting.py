"""Shared by counting algorithms: sensitivities, repair of bad rows, errors, intervals."""

import itertools
import json

import numpy as np
import pytest

from dpfit.core import Answer, plan_from_json
from dpfit.mechanisms.additive import PowerNoise
from dpfit.mechanisms.counting import Flags, max_changed_answers
from dpfit.mechanisms.gaussian_counts import gaussian_counts
from dpfit.mechanisms.generalized_gaussian import generalized_gaussian
from dpfit.mechanisms.k_norm import k_norm
from dpfit.mechanisms.laplace_counts import laplace_counts
from dpfit.mechanisms.mean import BoundedMean
from dpfit.privacy import Budget, BudgetUnreachable
from oracles.views import viewed

RELATIONS = ("replace", "add_remove")
APPROXIMATE = {"epsilon": 1.0, "delta": 1e-6}


def all_changes(workload, relation):
    """How every neighbour change moves the answers, over all records there are."""
    records = [np.array([row]) for row in itertools.product([0.0, 1.0], repeat=workload.number)]
    answers = [workload.sums(record) for record in records]
    nothing = np.zeros(workload.number, dtype=np.int64)
    if relation == "add_remove":
        return np.array([answer - nothing for answer in answers])
    return np.array([one - two for one, two in itertools.product(answers, repeat=2)])


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    ("number", "max_per_record"), [(1, None), (4, None), (4, 1), (5, 2), (5, 3), (5, 5)]
)
def test_sensitivities_by_brute_force(number, max_per_record, relation):
    workload = Flags(number, max_per_record)
    changes = all_changes(workload, relation)
    assert workload.max_changed_answers(relation) == np.max(np.abs(changes).sum(axis=1))
    norms = {"l1": 1, "l2": 2, "linf": np.inf}
    for norm, order in norms.items():
        largest = np.max(np.linalg.norm(changes, order, axis=1))
        assert workload.sensitivity(norm, relation) == pytest.approx(largest, rel=1e-15)
        assert workload.sensitivity(norm, relation) >= largest


def test_a_partition_has_the_sensitivities_of_one_cell():
    """l1 and l2: 1 under add/remove, 2 and sqrt(2) under replace-one, for any cells."""
    for number in (2, 50, 10**6):
        assert [
            Flags(number, 1).sensitivity(norm, "add_remove") for norm in ("l1", "l2", "linf")
        ] == [1, 1, 1]
        sizes = [Flags(number, 1).sensitivity(norm, "replace") for norm in ("l1", "l2", "linf")]
        assert sizes == pytest.approx([2, 2**0.5, 1])


def test_rows_that_break_the_rules_are_repaired():
    """More flags than allowed, numbers that are not flags, cells that are not numbers."""
    rows = np.array([[1, 1, 1], [np.nan, 7.0, -2.0], [np.inf, 0, 0], [0, 0, 0]])
    assert Flags(3, max_per_record=1).sums(rows).tolist() == [2, 1, 0]
    assert Flags(3).sums(rows).tolist() == [2, 2, 2]
    assert Flags(3).sums(np.zeros((0, 3))).tolist() == [0, 0, 0]


def test_bad_workloads_and_data_are_refused():
    with pytest.raises(
        ValueError, match="number of queries must be a whole number of at least 1, got 0"
    ):
        Flags(0)
    with pytest.raises(ValueError, match="max_per_record must be at most"):
        Flags(3, max_per_record=4)
    with pytest.raises(ValueError, match="max_per_record must be a whole number of at least 1"):
        Flags(3, max_per_record=0)
    with pytest.raises(ValueError, match="records of 3 flags"):
        Flags(3).sums(np.zeros((2, 4)))
    with pytest.raises(ValueError, match="array of flags"):
        Flags(3).sums(np.array([["a", "b", "c"]]))
    with pytest.raises(ValueError, match="relation"):
        max_changed_answers(3, 1, "swap")


@pytest.mark.parametrize("shape", [0.99, 0.0, -2.0, float("nan"), 101.0])
def test_shapes_outside_of_the_log_concave_ones_are_refused(shape):
    with pytest.raises(ValueError, match="shape"):
        PowerNoise(3.0, shape)


def test_budgets_that_a_law_cannot_keep_are_refused():
    problem = Answer(n=10, workload=Flags(3))
    for budget in (Budget(epsilon=1.0), Budget(mu=1.0), Budget(rho=0.5)):
        with pytest.raises(BudgetUnreachable, match="budget of \\(epsilon, delta\\)"):
            generalized_gaussian.plan(problem, budget)
    with pytest.raises(BudgetUnreachable, match="pure"):
        gaussian_counts.plan(problem, Budget(epsilon=1.0))
    with pytest.raises(ValueError, match="answers CountingQueries"):
        laplace_counts.plan(Answer(n=10, workload=BoundedMean(0.0, 1.0)), Budget(epsilon=1.0))
    with pytest.raises(ValueError, match="protects records"):
        k_norm.plan(problem, Budget(epsilon=1.0, unit="user"))
    with pytest.raises(ValueError, match="minimize"):
        laplace_counts.plan(problem, Budget(epsilon=1.0), minimize="median")


@pytest.mark.parametrize(
    "algorithm", [laplace_counts, gaussian_counts, generalized_gaussian, k_norm]
)
def test_intervals_cover_as_often_as_they_say(algorithm):
    """Each and all counts: 8000 runs, binomial bounds of 5.5 standard deviations (4e-8)."""
    workload = Flags(6)
    plan = algorithm.plan(Answer(n=10, workload=workload), Budget(**APPROXIMATE))
    from dpfit.core import Run
    from dpfit.noise import Source

    rows = np.eye(6)
    runs = 8000
    noisy = np.array(plan.mechanism.run_many(viewed(rows), Run(Source(3)), runs))
    errors = np.abs(noisy - workload.sums(rows))
    for level in (0.5, 0.9):
        spread = 5.5 * np.sqrt(level * (1 - level) / runs)
        each = np.mean(errors <= plan.mechanism.half_width(level), axis=0)
        together = np.mean(
            np.max(errors, axis=1) <= plan.mechanism.half_width(level, simultaneous=True)
        )
        # On the integers coverage is at least the level, and above it by at most the mass of one
        # more integer.
        slack = np.mean(errors == plan.mechanism.half_width(level)) + 0.02
        assert np.all(each >= level - spread)
        assert np.all(each <= level + slack + spread)
        top = (
            np.mean(np.max(errors, axis=1) == plan.mechanism.half_width(level, simultaneous=True))
            + 0.02
        )
        assert level - spread <= together <= level + top + spread
    with pytest.raises(ValueError, match="level"):
        plan.mechanism.half_width(1.0)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("algorithm", [laplace_counts, gaussian_counts])
def test_the_scale_of_histograms_does_not_depend_on_their_size(algorithm, relation):
    """Closed forms: scale changed / epsilon, deviation sqrt(changed) / mu."""
    moved = 1 if relation == "add_remove" else 2
    for number in (2, 1000):
        problem = Answer(n=10, workload=Flags(number, max_per_record=1))
        if algorithm is laplace_counts:
            plan = algorithm.plan(problem, Budget(epsilon=0.5, relation=relation))
            assert plan.mechanism.errors.scale == pytest.approx(moved / 0.5)
        else:
            plan = algorithm.plan(problem, Budget(mu=0.5, relation=relation))
            assert plan.mechanism.errors.scale / 2**0.5 == pytest.approx(moved**0.5 / 0.5)


@pytest.mark.parametrize(
    "algorithm", [laplace_counts, gaussian_counts, generalized_gaussian, k_norm]
)
def test_noise_has_the_spread_that_is_predicted(algorithm):
    """Mean absolute noise of 40,000 draws within 3%: six standard deviations; sees 10%."""
    from dpfit.core import Run
    from dpfit.noise import Source

    plan = algorithm.plan(Answer(n=10, workload=Flags(40)), Budget(**APPROXIMATE))
    noise = np.array(plan.mechanism.run_many(viewed(np.zeros((1, 40))), Run(Source(9)), 2000))
    assert np.mean(np.abs(noise)) == pytest.approx(plan.mechanism.errors.average, rel=0.03)
    assert np.mean(np.max(np.abs(noise), axis=1)) == pytest.approx(
        plan.mechanism.errors.expected_max, rel=0.03
    )
    assert plan.risk.expected == plan.mechanism.errors.expected_max
    assert np.all(noise == np.rint(noise))


def test_plans_round_trip():
    plan = generalized_gaussian.plan(Answer(n=10, workload=Flags(30)), Budget(**APPROXIMATE))
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert "30 answers" in plan.explain()
