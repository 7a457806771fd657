"""Langevin samples: closed forms, exact laws, sampled density, proven risk, errors."""

import math
from dataclasses import replace

import numpy as np
import pytest
from grids import cells, masses
from scipy.special import expit
from scipy.stats import kstest, norm

from dpfit.audit import PlanRuns, audit_plan, audit_runs
from dpfit.core import Composition, Minimize, Run, Stage
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import Bounds, Hinge, Huber, LinearLoss, Logistic
from dpfit.noise import Source
from dpfit.privacy import Budget, BudgetUnreachable
from dpfit.solvers.gibbs.gibbs_posterior_sampler import LangevinSample, gibbs_posterior_sampler

RELATIONS = ("replace", "add_remove")


def logistic(n=10_000, n_features=20, ridge=0.01, **more):
    return Minimize(
        n=n, loss=Logistic(), bounds=Bounds(1.0), n_features=n_features, ridge=ridge, **more
    )


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_promise_in_closed_form(relation):
    """mu**2 = (change**2 / p) (1 - h p / 2) (1 - c**N) / (1 + c**N), p = t n ridge."""
    plan = gibbs_posterior_sampler.plan(
        logistic(), Budget(epsilon=1, delta=1e-6, relation=relation)
    )
    chain = plan.mechanism
    t, change = chain.inverse_temperature, 2.0 if relation == "replace" else 1.0
    precision, h = t * 10_000 * 0.01, chain.step_size / (t * 10_000)
    c = 1 - h * precision
    square = (
        (change * t) ** 2
        / precision
        * (1 - h * precision / 2)
        * (1 - c**chain.steps)
        / (1 + c**chain.steps)
    )
    assert plan.guarantee.mu == pytest.approx(0.2367043807, rel=1e-6)
    assert math.sqrt(square) == pytest.approx(0.2367043807, rel=2e-3)  # the grid costs a little
    assert math.sqrt(square) <= plan.guarantee.mu
    # Never less private than an exact sample at this temperature, and nearly as private.
    assert 0.98 < plan.guarantee.mu / (change * math.sqrt(t / (10_000 * 0.01))) < 1.0


def test_the_reference_value_of_the_accountant():
    """m = 2, h = 0.1, change 0.7, 13 steps: 0.4444312703; slope 1, t = 0.35, n ridge t = 2."""
    t, n = 0.35, 4
    problem = Minimize(n=n, loss=LinearLoss(), bounds=Bounds(1.0), n_features=1, ridge=2 / (t * n))
    chain = LangevinSample(problem, "replace", math.sqrt(0.2), 13, 0.1 * t * n, 1.0)
    assert chain.inverse_temperature == pytest.approx(t)
    assert chain.event.mu == pytest.approx(0.4444312703, rel=2e-3)
    assert chain.event.mu >= 0.4444312703


@pytest.mark.parametrize("relation", RELATIONS)
def test_linear_losses_give_the_exact_normal_law_and_attain_the_promise(relation):
    n = 6
    problem = Minimize(n=n, loss=LinearLoss(), bounds=Bounds(1.0), n_features=1, ridge=1 / 6)
    plan = gibbs_posterior_sampler.plan(problem, Budget(mu=1.0, relation=relation), step=0.2)
    chain = plan.mechanism
    rows = np.ones((n, 1))
    other = np.vstack([rows[:-1], [[-1.0]]]) if relation == "replace" else rows[:-1]
    t, c = chain.inverse_temperature, 1 - 0.2
    inflation = (1 - c ** (2 * chain.steps)) / (1 - 0.2 / 2)
    deviation = math.sqrt(inflation / (t * n / 6))
    laws = []
    for seed, data in ((1, rows), (2, other)):
        drawn = np.ravel(
            chain.run_many(InMemory(data, np.zeros(len(data))), Run(Source(seed)), 4_000)
        )
        laws.append(norm(-data.sum() * (1 - c**chain.steps), deviation))
        assert kstest(drawn, laws[-1].cdf).pvalue > 1e-6
    attained = abs(laws[0].mean() - laws[1].mean()) / deviation
    assert 0.99 < attained <= 1.0


@pytest.mark.parametrize("step", [0.1, 0.02])
def test_the_chain_samples_the_posterior_it_names(step):
    """Logistic losses in 1-D: the chain's grid law is near its temperature's density only.

    The distance falls with the step, as the discretization does.
    """
    labels, rows = (
        np.array([1.0, 1.0, -1.0, 1.0, 1.0, 1.0]),
        np.array([1.0, 0.5, 1.0, 1.0, -0.7, 1.0]),
    )
    chain = gibbs_posterior_sampler.plan(
        logistic(6, 1, 0.05), Budget(mu=2.0), step=step, tolerance=1e-4
    ).mechanism
    x, width = cells(-15.0, 15.0, 600)
    margins = labels * rows * x[:, None]
    centres = x + chain.step_size * ((labels * rows * expit(-margins)).sum(axis=1) / 6 - 0.05 * x)
    kernel = norm.pdf(x, centres[:, None], chain.noise) * width
    law = np.linalg.matrix_power(kernel, chain.steps)[len(x) // 2]

    def away(t):
        target = masses(t * (np.logaddexp(0, -margins).sum(axis=1) + 6 * 0.05 / 2 * x**2))
        return np.abs(law - target).sum() / 2

    t = chain.inverse_temperature
    assert law.sum() == pytest.approx(1.0, abs=1e-5)
    assert away(t) < 0.12 * step
    assert min(away(0.9 * t), away(1.1 * t)) > 1.5 * away(t)


def test_a_quadratic_is_sampled_with_the_variance_that_the_docstring_says():
    """Wide Huber losses: curvature h gives variance 1 / (t n h) / (1 - step_size h / 2)."""
    problem = Minimize(
        n=50, loss=Huber(1e6), bounds=Bounds(1.0, -1.0, 1.0), n_features=1, ridge=0.1
    )
    plan = gibbs_posterior_sampler.plan(
        problem, Budget(mu=1.0), clip_norm=1e3, step=0.9, tolerance=0.1
    )
    chain = plan.mechanism
    drawn = np.ravel(chain.run_many(InMemory(np.ones((50, 1)), np.ones(50)), Run(Source(4)), 8_000))
    exact = 1 / (chain.inverse_temperature * 50 * 1.1) / (1 - 0.9 / 2)
    assert drawn.var() == pytest.approx(exact, rel=6 * math.sqrt(2 / 8_000))


@pytest.mark.parametrize("domain", [None, L2Ball(3, 1.0)], ids=["space", "ball"])
def test_the_excess_risk_is_below_the_bound(domain):
    random = np.random.default_rng(5)
    rows = random.normal(size=(500, 3))
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    labels = np.sign(rows @ [2.0, -1.0, 0.5] + 0.3 * random.normal(size=500))
    data, problem = InMemory(rows, labels), logistic(500, 3, 0.02, domain=domain)
    plan = gibbs_posterior_sampler.plan(problem, Budget(mu=0.5))
    samples = np.array(plan.mechanism.run_many(data, Run(Source(6)), 80))

    def value(points):
        return data.gradients(Logistic(), points, **problem.guards)[0] / 500 + 0.01 * np.sum(
            points**2, axis=1
        )

    theta = np.zeros(3)
    for _ in range(1000):
        theta = theta - 3.0 * (
            data.gradient(Logistic(), theta, **problem.guards)[1] / 500 + 0.02 * theta
        )
        theta = theta if domain is None else domain.project(theta)
    excess = value(samples) - value(theta[None])[0]
    assert excess.mean() + 6 * excess.std() / math.sqrt(80) <= plan.risk.expected
    assert excess.mean() > 0.1 * plan.risk.expected


def test_a_prior_precision_is_the_ridge_it_amounts_to():
    plan = gibbs_posterior_sampler.plan(
        logistic(ridge=0.0), Budget(epsilon=1, delta=1e-6), prior_precision=1.0
    )
    chain = plan.mechanism
    assert chain.inverse_temperature * 10_000 * chain.problem.ridge == pytest.approx(1.0, rel=1e-6)
    # An exact sample would allow t = mu sqrt(precision) / change = 0.2367 / 2.
    assert chain.inverse_temperature == pytest.approx(0.2367 / 2, rel=0.01)
    assert chain.steps == pytest.approx(4100, rel=0.01)


@pytest.mark.parametrize("n", [1, 7, 30])
def test_tiny_budgets_are_met_to_the_last_digit(n):
    budget = Budget(epsilon=1e-6, delta=1e-6)
    plan = gibbs_posterior_sampler.plan(logistic(n, 2, 0.1), budget, tolerance=0.1)
    assert plan.guarantee.meets(budget)
    assert plan.guarantee.mu == pytest.approx(budget.gaussian_mu, rel=1e-6)


def test_several_samples_are_a_composition_of_plans():
    part = gibbs_posterior_sampler.plan(logistic(50, 1, 0.1), Budget(mu=0.5))
    together = Composition(tuple(Stage(f"sample_{k}", part) for k in range(4)))
    assert together.guarantee.mu == pytest.approx(1.0, rel=1e-6)
    values = together.run(InMemory(np.ones((50, 1)), np.ones(50)), random_state=1).value
    assert len({float(v[0]) for v in values}) == 4


def test_the_number_of_records_that_still_contract_is_declared_under_add_remove_only():
    removed = gibbs_posterior_sampler.plan(logistic(), Budget(mu=1.0, relation="add_remove"))
    # step (k / n 0.25 + 0.01) <= 2 - step 0.01 with step = 0.5 / 0.26.
    assert removed.mechanism.most_records == math.floor(
        10_000 * (4 * 0.26 - 0.02) / 0.25 * (1 - 1e-12)
    )
    assert any("at most 40799 records" in a.text for a in removed.basis.assumptions)
    replaced = gibbs_posterior_sampler.plan(logistic(), Budget(mu=1.0))
    assert not any("at most" in a.text for a in replaced.basis.assumptions)


def test_refusals_are_about_public_facts():
    for problem, options, match in (
        (logistic(ridge=0.0), {}, "needs a prior"),
        (logistic(), {"prior_precision": 1.0}, "not both be given"),
        (replace(logistic(), loss=Hinge()), {}, "smooth loss"),
        (logistic(), {"step": 1.0}, "strictly between"),
        (logistic(ridge=1e-7), {}, "1048576 can be accounted for"),
    ):
        with pytest.raises(ValueError, match=match):
            gibbs_posterior_sampler.plan(problem, Budget(mu=1.0), **options)
    with pytest.raises(BudgetUnreachable, match="pure epsilon"):
        gibbs_posterior_sampler.plan(logistic(), Budget(epsilon=1.0))


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_audit_reaches_the_promise_and_finds_noise_that_is_too_small(relation):
    """Linear losses are tight: the audit shows 80% of mu = 1, and refutes noise times 0.7."""
    n = 6
    problem = Minimize(n=n, loss=LinearLoss(), bounds=Bounds(1.0), n_features=1, ridge=0.5)
    plan = gibbs_posterior_sampler.plan(problem, Budget(mu=1.0, relation=relation), tolerance=0.05)
    rows = np.ones((n, 1))
    other = np.vstack([rows[:-1], [[-1.0]]]) if relation == "replace" else rows[:-1]
    pair = InMemory(rows, np.zeros(n)), InMemory(other, np.zeros(len(other)))
    kept = audit_plan(plan, *pair, runs=10_000, confidence=1 - 1e-6, random_state=1)
    assert kept.verdict == "kept"
    assert kept.lower >= 0.8 * kept.promised
    quiet = replace(plan.mechanism, noise=0.7 * plan.mechanism.noise)
    runs = PlanRuns(replace(plan, mechanism=quiet))
    assert audit_runs(
        runs, *pair, plan.guarantee, runs=10_000, confidence=1 - 1e-6, random_state=2
    ).broken
