"""The choice of the noise: the best of four by predicted error, and it says why."""

import json

import numpy as np
import pytest

from dpfit.core import Answer, plan_from_json
from dpfit.mechanisms.counting import Flags
from dpfit.mechanisms.counts import counts
from dpfit.mechanisms.gaussian_counts import gaussian_counts
from dpfit.mechanisms.generalized_gaussian import generalized_gaussian
from dpfit.mechanisms.k_norm import k_norm
from dpfit.mechanisms.laplace_counts import laplace_counts
from dpfit.privacy import Budget, BudgetUnreachable

BUDGETS = {
    "pure": Budget(epsilon=1.0),
    "approximate": Budget(epsilon=1.0, delta=1e-6),
    "gdp": Budget(mu=0.5),
    "zcdp": Budget(rho=0.1),
}


def planned(number, max_per_record=None, budget=BUDGETS["approximate"], **options):
    return counts.plan(Answer(workload=Flags(number, max_per_record)), budget, **options)


@pytest.mark.parametrize(
    ("number", "max_per_record", "budget", "label"),
    [
        (50, None, "approximate", "K-norm"),
        (100, None, "approximate", "K-norm"),
        (150, None, "approximate", "generalized Gaussian"),
        (1000, None, "approximate", "generalized Gaussian"),
        (1000, 1, "approximate", "Laplace"),
        (1000, 1, "pure", "Laplace"),
        (1000, None, "pure", "K-norm"),
        (1000, None, "gdp", "Gaussian"),
        (1000, 1, "zcdp", "Gaussian"),
    ],
)
def test_who_wins(number, max_per_record, budget, label):
    assert planned(number, max_per_record, BUDGETS[budget]).considered[0].name.startswith(label)


def test_k_norm_wins_up_to_a_hundred_and_some_queries():
    """The crossover at (1, 1e-6) is at 125 queries; shape 3 alone gives about 115."""
    assert planned(120).considered[0].name == "K-norm"
    assert planned(130).considered[0].name != "K-norm"


@pytest.mark.parametrize("number", [1, 115, 3000])
@pytest.mark.parametrize("minimize", ["max", "average", 0.95])
def test_it_is_never_worse_than_any_single_law(number, minimize):
    """Gaussian noise above all: the choice is made by the exact numbers that are compared here."""
    plan = planned(number, minimize=minimize)
    assert plan.guarantee.meets(BUDGETS["approximate"])
    chosen = plan.mechanism.errors.size(minimize)
    for law in (laplace_counts, gaussian_counts, generalized_gaussian, k_norm):
        single = law.plan(
            Answer(n=10, workload=Flags(number)), BUDGETS["approximate"], minimize=minimize
        )
        assert chosen <= single.mechanism.errors.size(minimize)
    errors = [candidate.risk for candidate in plan.considered]
    assert errors == sorted(errors)
    assert errors[0] == chosen


def test_it_says_why():
    line = planned(1000).explain().splitlines()[-1]
    assert line.startswith(
        "chosen     generalized Gaussian (p = 3.72), for its expected largest error: 399.7, "
        "Gaussian 459,"
    )
    assert "K-norm 1000" in line
    assert "0.9 quantile" in planned(1000, minimize=0.9).explain()
    assert "average error" in planned(1000, minimize="average").explain()


@pytest.mark.parametrize("budget", BUDGETS)
def test_every_kind_of_budget_is_kept(budget):
    plan = planned(10, budget=BUDGETS[budget])
    assert plan.guarantee.meets(BUDGETS[budget])
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    noisy = plan.run(np.ones((4, 10)), random_state=1).value
    assert noisy.shape == (10,)


def test_laws_can_be_named():
    assert planned(1000, noise=("gaussian",)).considered[0].name == "Gaussian"
    with pytest.raises(ValueError, match="'cauchy'"):
        planned(10, noise=("cauchy",))
    with pytest.raises(ValueError, match="nothing"):
        planned(10, noise=())
    with pytest.raises(BudgetUnreachable, match="pure"):
        planned(10, budget=BUDGETS["pure"], noise=("gaussian", "generalized_gaussian"))
