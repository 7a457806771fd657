"""Which algorithms of the catalogue take losses that are not convex, and what the others say."""

import numpy as np
import pytest

from dpfit.core import Minimize
from dpfit.core.registry import entries
from dpfit.data.dataset import InMemory
from dpfit.geometry import L1Ball, L2Ball
from dpfit.losses import Bounds, GemanMcClure, TruncatedAbsolute
from dpfit.privacy import Budget
from dpfit.solvers.auto import auto
from dpfit.solvers.descents.one_pass import OnePass
from dpfit.solvers.gradient.last_iterate_gd import LastIterateDescent
from dpfit.solvers.gradient.noisy_gd import noisy_gd
from dpfit.solvers.gradient.phased_sgd import phased_sgd

SMOOTH, KINKED = GemanMcClure(0.5), TruncatedAbsolute(0.5)
BUDGET = Budget(epsilon=1.0, delta=1e-6)
TAKES = {
    "dp_sgd", "exponential_net", "ftrl", "langevin", "localized", "noisy_gd", "preconditioned_gd",
    "robust_gd", "sparse_descent", "underdamped_gibbs_sampler",
}  # fmt: skip
"""Their guarantees hold for any loss with clipped gradients or bounded values."""
SQUARED_ONLY = {"sufficient_statistics"}


def problem(loss, **facts):
    bounds = Bounds(1.0, -1.0, 1.0, row_max=1.0)
    return Minimize(n=1000, loss=loss, bounds=bounds, n_features=2, **facts)


def problems(loss):
    """A problem with each set of facts that some algorithm asks for."""
    for domain in (None, L2Ball(2, 1.0), L1Ball(2, 1.0)):
        for ridge in (0.0, 0.1):
            for objective in ("empirical", "population"):
                yield problem(loss, domain=domain, ridge=ridge, objective=objective)
    yield problem(loss, public=100)


@pytest.mark.parametrize("loss", [SMOOTH, KINKED], ids=lambda loss: loss.kind)
@pytest.mark.parametrize("name", sorted(row.name for row in entries(problem=Minimize.kind)))
def test_an_algorithm_takes_the_loss_or_asks_for_a_convex_one(name, loss):
    """By what it declares: `require` refuses before anything is planned or charged."""
    (row,) = (row for row in entries(problem=Minimize.kind) if row.name == name)
    algorithm, refusals = row.load(), []
    for each in problems(loss):
        for budget in (BUDGET, Budget(epsilon=1.0)):
            try:
                algorithm.require(each, budget, {})
            except ValueError as refusal:
                refusals.append(str(refusal))
                continue
            assert name in TAKES
            break
    smooth_only = name in ("langevin", "underdamped_gibbs_sampler") and loss is KINKED
    if name in TAKES and not smooth_only:
        assert len(refusals) < 2 * len(list(problems(loss)))
    elif name not in SQUARED_ONLY and not smooth_only:
        assert any("needs a convex" in each and "; use " in each for each in refusals)
        assert all("use output_perturbation" not in each for each in refusals)


def test_mechanisms_that_lean_on_convexity_refuse_the_loss_themselves():
    with pytest.raises(ValueError, match="convex"):
        OnePass(problem(SMOOTH), "replace", "gaussian", 4.0, step_size=0.1, clip_norm=1.0)
    with pytest.raises(ValueError, match="convex"):
        LastIterateDescent(problem(SMOOTH, ridge=0.1), "replace", 4.0, 10, 0.1, 0.2)
    with pytest.raises(ValueError, match="noisy_gd or ftrl"):
        phased_sgd.plan(problem(SMOOTH), BUDGET)


def test_a_pure_budget_is_refused_with_solvers_that_can_do_it():
    with pytest.raises(ValueError, match=r"give a delta.*exponential_net"):
        noisy_gd.plan(problem(SMOOTH), Budget(epsilon=1.0))
    with pytest.raises(ValueError, match=r"no solver can do this.*give a delta"):
        auto.plan(problem(SMOOTH), Budget(epsilon=1.0))


@pytest.mark.parametrize("loss", [SMOOTH, KINKED], ids=lambda loss: loss.kind)
def test_auto_plans_and_its_fit_ignores_far_labels(loss):
    """Three in ten labels are 1; the others follow a line through 0."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(-0.7, 0.7, (20_000, 2))
    labels = np.where(rng.random(20_000) < 0.3, 1.0, rows @ [0.3, -0.2])
    facts = Minimize(n=20_000, loss=loss, bounds=Bounds(1.0, -1.0, 1.0), n_features=2)
    plan = auto.plan(facts, Budget(mu=1.0))
    assert plan.algorithm in TAKES
    found = plan.output(plan.run(InMemory(rows, labels), random_state=0).value)
    assert np.linalg.norm(found - [0.3, -0.2]) < 0.1
