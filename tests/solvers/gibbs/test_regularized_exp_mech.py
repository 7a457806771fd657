"""Regularized exponential mechanism: ridges, temperatures, bounds, both risks."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from released_risk import of_sample
from scipy.optimize import minimize_scalar
from scipy.stats import kstest

from dpfit.core import Minimize, Run
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import Bounds, CustomLoss, Hinge, LinearLoss, Logistic
from dpfit.noise import Source
from dpfit.privacy import Budget
from dpfit.privacy.spec import from_json
from dpfit.samplers.exact_gibbs_rejection import GibbsRejection
from dpfit.samplers.potential import Potential
from dpfit.solvers.gibbs.perturbed_sample import PerturbedSample
from dpfit.solvers.gibbs.posterior_release import posterior_release
from dpfit.solvers.gibbs.regularized_exp_mech import regularized_exp_mech

RELATIONS = ("replace", "add_remove")
NOISE = 0.01
"""Noise of the release may take this share of the promise from the sample."""


def linear(n=100, d=8, radius=3.0, **more):
    return Minimize(
        n=n, loss=LinearLoss(), bounds=Bounds(1.0), n_features=d, domain=L2Ball(d, radius), **more
    )


def test_noise_adds_no_more_than_is_predicted():
    """Points on the boundary and within, normal and l2-Laplace noise, projected: means of draws.

    The bound on the mean of J(projection of x + Z) - J(x) is attained up to E z+ <= tau / 2, which
    is 0.4 tau for normal noise.
    """
    d, radius, draws = 4, 2.0, 200_000
    problem = linear(n=50, d=d, radius=radius, ridge=0.02)
    for budget in (Budget(mu=0.3), Budget(epsilon=0.3)):
        plan = regularized_exp_mech.plan(problem, budget)
        m, source = plan.mechanism, Source(4)
        wide = replace(m, noise_multiplier=m.noise_multiplier * 10)
        scale, direction = wide.noise_multiplier * wide.sensitivity, np.eye(1, d)[0]
        if m.noise == "gaussian":
            Z = scale * source.gaussian((draws, d))
        else:
            Z = scale * source.gamma(float(d), draws)[:, None] * source.uniform_sphere(d, draws)
        for x in (
            radius * direction,
            0.99 * radius * direction,
            -radius * direction,
            0 * direction,
        ):
            moved = problem.domain.project(x + Z)
            J = [-v @ direction + 0.01 * np.sum(v**2, axis=-1) for v in (moved, x)]
            added, error = (J[0] - J[1]).mean(), 6 * J[0].std() / math.sqrt(draws)
            predicted = wide._risk_of_noise
            assert added <= predicted + error
            if x[0] == radius:
                assert added > 0.45 * predicted


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_empirical_bound_under_gdp(relation):
    """sqrt(2 d) L R / (mu n), that of `posterior_release`."""
    plan = regularized_exp_mech.plan(linear(), Budget(mu=0.5, relation=relation))
    change = 2.0 if relation == "replace" else 1.0
    assert of_sample(plan) == pytest.approx(math.sqrt(16) * change * 3.0 / (0.5 * 100), rel=NOISE)
    assert plan.risk.expected == pytest.approx(
        posterior_release.plan(linear(), Budget(mu=0.5, relation=relation)).risk.expected, rel=NOISE
    )
    assert plan.guarantee.mu == pytest.approx(0.5)


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_population_bound_under_gdp(relation):
    """R sqrt(2 (d change**2 / (mu n)**2 + 2 / n)): loss differences are 2-Lipschitz, losses 1."""
    problem, change = linear(objective="population"), 2.0 if relation == "replace" else 1.0
    for mu in (0.05, 5.0):
        plan = regularized_exp_mech.plan(problem, Budget(mu=mu, relation=relation), spend_all=True)
        exact = 3.0 * math.sqrt(2 * (8 * change**2 / (mu * 100) ** 2 + 2.0 / 100))
        assert of_sample(plan) == pytest.approx(exact, rel=NOISE)


@pytest.mark.parametrize("relation", RELATIONS)
def test_no_more_is_spent_than_helps_the_population_risk(relation):
    """mu = change sqrt(2 d / (stable n)) at d = 8, n = 100: 0.4 change / sqrt(2).

    The bound grows by sqrt(3 / 2).
    """
    problem, change = linear(objective="population"), 2.0 if relation == "replace" else 1.0
    budget = Budget(mu=5.0, relation=relation)
    plan = regularized_exp_mech.plan(problem, budget, sampler="piloted")
    assert plan.guarantee.mu == pytest.approx(change * math.sqrt(16 / (2.0 * 100)))
    assert of_sample(plan) == pytest.approx(3.0 * math.sqrt(2 * 3.0 / 100), rel=NOISE)
    # A budget below that is spent, and so is any where exact rejection draws.
    small = regularized_exp_mech.plan(problem, Budget(mu=0.1, relation=relation), sampler="piloted")
    assert small.guarantee.mu == pytest.approx(0.1)
    assert regularized_exp_mech.plan(problem, budget).guarantee.mu == pytest.approx(5.0)


@pytest.mark.parametrize("relation", RELATIONS)
def test_pure_budgets_have_the_temperature_of_the_exponential_mechanism(relation):
    """t = epsilon / (change * diameter), risk d / (t n), a tenth for speed; noise takes 2%."""
    change = 2.0 if relation == "replace" else 1.0
    plan = regularized_exp_mech.plan(linear(), Budget(epsilon=1.5, relation=relation))
    assert plan.guarantee.pure == pytest.approx(1.5)
    assert plan.mechanism.inverse_temperature == pytest.approx(1.5 / (change * 6.0), rel=0.03)
    assert of_sample(plan) == pytest.approx(1.1 * 8 * change * 6.0 / (1.5 * 100), rel=0.03)
    population = regularized_exp_mech.plan(
        linear(objective="population"), Budget(epsilon=1.5, relation=relation)
    )
    least = 2.0 * 3.0 / math.sqrt(100)  # R sqrt(2 stable / n)
    assert of_sample(population) == pytest.approx(8 * change * 6.0 / (1.5 * 100) + least, rel=0.15)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("objective", ["empirical", "population"])
def test_the_ridge_minimizes_the_bound(objective, relation):
    """d change^2 / (mu n)^2 / r + r R^2 / 2, and 2 / (r n) for the population, by search."""
    change = 2.0 if relation == "replace" else 1.0
    stable = 2.0 if objective == "population" else 0.0

    def bound(log, sample):
        return sample(math.exp(log)) + math.exp(log) * 9 / 2 + stable / (math.exp(log) * 100)

    def least(sample):
        found = minimize_scalar(bound, bounds=(-9.0, 5.0), args=(sample,), options={"xatol": 1e-9})
        return math.exp(found.x)

    plan = regularized_exp_mech.plan(
        linear(objective=objective), Budget(mu=0.5, relation=relation), spend_all=True
    )
    exact = least(lambda r: 8 * change**2 / (0.5 * 100) ** 2 / r)
    assert plan.mechanism.problem.ridge == pytest.approx(exact, rel=1e-3)
    # A pure sample is as cold for any ridge: what is added costs a tenth of it, or is the best.
    pure = regularized_exp_mech.plan(
        linear(objective=objective), Budget(epsilon=15.0, relation=relation)
    )
    tenth = 0.1 * 8 * change * 6.0 / (15.0 * 100) * 2 / 9
    best = tenth if objective == "empirical" else least(lambda r: 0.0)
    assert pure.mechanism.problem.ridge == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize("n", [10, 200])
@pytest.mark.parametrize("loss", [LinearLoss(), Logistic(), Hinge()], ids=lambda loss: loss.kind)
@pytest.mark.parametrize("budget", [Budget(epsilon=1.0), Budget(mu=0.1)], ids=["pure", "gdp"])
def test_noise_is_a_hundredth_of_the_least_deviation_of_the_sample(loss, budget, n):
    """Of d / (t n L) at a boundary, 1 / sqrt(t n (curvature + r)), 1 / (t n L + sqrt(t n r))."""
    problem = replace(linear(n=n, radius=1.0), loss=loss)
    m = regularized_exp_mech.plan(problem, budget, sampler="piloted").mechanism
    per_slope = m.inverse_temperature * n
    strong = per_slope * m.problem.ridge
    slope = 1 / (1 + math.exp(-1)) if loss.kind == Logistic().kind else 1.0
    if loss.kind == Hinge().kind:
        least = 1 / (per_slope * slope + math.sqrt(strong))
    else:
        curved = 0.25 * per_slope if loss.kind == Logistic().kind else 0.0
        least = min(8 / (per_slope * slope), 1 / math.sqrt(curved + strong))
    deviation = m.noise_multiplier * m.sensitivity * (3.0 if budget.kind == "pure" else 1.0)
    assert deviation == pytest.approx(least / 100, rel=5e-3)  # and rounding


def test_a_ridge_that_was_asked_for_stays_and_is_not_charged_as_bias():
    problem = linear(ridge=7.0)
    for budget in (Budget(epsilon=1.0), Budget(mu=1.0)):
        plan = regularized_exp_mech.plan(problem, budget)
        assert plan.mechanism.problem.ridge == 7.0
        assert of_sample(plan) == pytest.approx(8 / (plan.mechanism.inverse_temperature * 100))


@pytest.mark.parametrize("budget", [Budget(epsilon=4.0), Budget(mu=1.0)], ids=["pure", "gdp"])
def test_the_law_of_the_sample_in_closed_form(budget):
    """Linear losses in one dimension: a normal law restricted to the ball."""
    problem = linear(n=5, d=1, radius=1.0)
    plan = regularized_exp_mech.plan(problem, budget)
    t, ridge = plan.mechanism.inverse_temperature, plan.mechanism.problem.ridge
    rows = np.array([[1.0], [1.0], [0.5], [-0.2], [1.0]])
    drawn = np.ravel(plan.mechanism.run_many(InMemory(rows, np.zeros(5)), Run(Source(1)), 1500))
    x = np.linspace(-1, 1, 20_001)
    density = np.exp(-t * (3.3 * x + 5 * ridge / 2 * x**2))
    F = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    assert kstest(drawn, lambda at: np.interp(at, x, F / F[-1])).pvalue > 1e-6


@pytest.mark.parametrize("n", [4000, 400_000])
def test_noise_falls_with_the_sample_at_the_boundary(n):
    """Equal linear losses, a pure budget: the minimizer is on the boundary.

    The release is at most 1.3 times as far above the minimum as an exact sample; measured by the
    first coordinate, whose excess is 1 + x. Before, noise did not fall with n: ten times.
    """
    d, draws = 20, 400
    problem = linear(n=n, d=d, radius=1.0)
    plan = regularized_exp_mech.plan(problem, Budget(epsilon=1.0))
    sample, first = plan.mechanism, np.eye(1, d)[0]
    target = Potential(
        problem.domain,
        sample.inverse_temperature * n * sample.problem.ridge,
        np.zeros(d),
        lambda x: (
            sample.inverse_temperature * n * x[:, 0],
            np.tile(sample.inverse_temperature * n * first, (len(x), 1)),
        ),
    )
    exact = 1 + GibbsRejection().draw(target, draws, Source(1))[:, 0]
    source = Run(Source(2))
    drawn = GibbsRejection().draw(target, draws, Source(3))
    released = 1 + np.array([sample._noisy(x, source)[0] for x in drawn])
    # The excess is about a Gamma variable of order (d + 1) / 2: deviations of a third of the mean.
    assert released.mean() <= (1.3 + 6 * 0.35 * math.sqrt(2 / draws)) * exact.mean()
    assert exact.mean() < released.mean() + 0.1 * exact.mean() < plan.risk.expected


def test_the_population_risk_is_below_the_bound():
    """Logistic losses, 20% wrong labels; a large sample stands for the population."""
    random, n = np.random.default_rng(3), 60
    ball = L2Ball(2, 0.5)
    problem = Minimize(
        n=n, loss=Logistic(), bounds=Bounds(1.0), n_features=2, domain=ball, objective="population"
    )
    plan = regularized_exp_mech.plan(problem, Budget(mu=1.0), sampler="rejection")

    def draw(size):
        angle = random.uniform(0, 2 * math.pi, size)
        rows = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        return rows, np.sign(rows[:, 0]) * np.where(random.uniform(size=size) < 0.2, -1, 1)

    rows, labels = draw(4000)

    def risk(points):
        return np.logaddexp(0, -labels[:, None] * (rows @ points.T)).mean(axis=0)

    angles = np.linspace(0, 2 * math.pi, 73)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    best = min(risk(r * circle).min() for r in np.linspace(0, 0.5, 21))
    excess = [
        float(
            risk(np.array(plan.mechanism.run_many(InMemory(*draw(n)), Run(Source(k)), 4))).mean()
            - best
        )
        for k in range(20)
    ]
    assert 0 < np.mean(excess) < plan.risk.expected


def test_samples_of_earlier_versions_are_read():
    """A chosen ridge had a mechanism of its own kind; the event and the predicted risk stay."""
    stored = json.loads(
        (Path(__file__).parents[2] / "fixtures/v0_1/plans/regularized_exp_mech.json").read_text()
    )
    asked = {
        "pure": {"epsilon": 1.0},
        "approximate": {"epsilon": 1.0, "delta": 1e-6},
        "gdp": {"mu": 1.0},
    }
    for case, content in stored.items():
        kind, relation = case.split("/")
        budget = Budget(**asked.get(kind, {"rho": 0.5}), relation=relation)
        read = from_json(content["plan"]["mechanism"], PerturbedSample)
        plan = regularized_exp_mech.plan(regularized_exp_mech.example(relation).problem, budget)
        assert content["plan"]["mechanism"]["kind"] == "regularized_sample"
        assert read.event.to_json() == content["event"]
        assert read.risk.expected == pytest.approx(plan.risk.expected, rel=0.1)
        assert read.own_ridge == 0.0


def test_refusals_come_before_the_data():
    with pytest.raises(ValueError, match="bounded domain"):
        regularized_exp_mech.plan(replace(linear(), domain=None), Budget(mu=1.0))
    odd = CustomLoss(value_function=abs, gradient_function=abs, lipschitz_bound=1.0)
    with pytest.raises(ValueError, match="convex"):
        regularized_exp_mech.plan(replace(linear(), loss=odd), Budget(mu=1.0))
    with pytest.raises(ValueError, match="protects records"):
        regularized_exp_mech.plan(replace(linear(), loss=Logistic()), Budget(mu=1.0, unit="user"))
