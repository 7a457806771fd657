"""The posterior release: its ridge, its bound, its promise."""

import math
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from released_risk import of_sample

from dpfit.audit import audit_plan
from dpfit.core import Minimize, Run, Step
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import Absolute, Bounds, LinearLoss, Logistic
from dpfit.noise import Source
from dpfit.privacy import Budget
from dpfit.solvers.gibbs.asap_perturb import asap_perturb
from dpfit.solvers.gibbs.localized_asap import localized_asap
from dpfit.solvers.gibbs.perturbed_sample import PerturbedSample
from dpfit.solvers.gibbs.posterior_release import posterior_release

RELATIONS = ("replace", "add_remove")


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_ridge_and_the_bound_in_closed_form(relation):
    """Linear: n ridge = sqrt(2 d) L / (mu R), bound sqrt(2 d) L R / (mu n); 5% of mu**2 is noise.

    The ridge is chosen before the noise is, which changes the bound by less than a millionth.
    """
    problem = Minimize(
        n=100, loss=LinearLoss(), bounds=Bounds(1.0), n_features=8, domain=L2Ball(8, 3.0)
    )
    plan = posterior_release.plan(problem, Budget(mu=0.5, relation=relation))
    change, mu = (2.0 if relation == "replace" else 1.0), 0.5 * math.sqrt(1 - 0.05**2)
    assert plan.mechanism.problem.ridge == pytest.approx(
        math.sqrt(16) * change / (0.5 * 3.0) / 100, rel=1e-4
    )
    exact = math.sqrt(16) * change * 3.0 / mu / 100
    assert of_sample(plan) == pytest.approx(exact, rel=2e-3)
    assert plan.guarantee.mu == pytest.approx(0.5, rel=1e-4)
    for factor in (0.7, 1.4):
        other = replace(problem, ridge=plan.mechanism.problem.ridge * factor)
        there = (
            asap_perturb.plan(other, Budget(mu=0.5, relation=relation)).risk.expected
            + other.ridge * 9 / 2
        )
        assert there > plan.risk.expected * 1.02


def test_a_larger_ridge_of_the_problem_stays():
    problem = Minimize(
        n=100, loss=Logistic(), bounds=Bounds(1.0), n_features=2, domain=L2Ball(2, 1.0), ridge=5.0
    )
    plan = posterior_release.plan(problem, Budget(mu=0.5))
    assert plan.mechanism.problem.ridge == 5.0
    exact = 2 / (plan.mechanism.inverse_temperature * 100)
    slope = 1 / (1 + math.exp(-1))
    assert of_sample(plan, slope, curvature=0.25) == pytest.approx(exact)


@pytest.mark.parametrize(
    ("loss", "n"), [(Logistic(), 2000), (Absolute(), 15)], ids=["smooth", "corners"]
)
def test_the_excess_risk_is_below_the_bound(loss, n):
    random = np.random.default_rng(3)
    rows = random.normal(size=(n, 3))
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    labels = np.sign(rows @ [0.6, -0.5, 0.2] + 0.3 * random.normal(size=n))
    data, ball = InMemory(rows, labels), L2Ball(3, 1.0)
    problem = Minimize(n=n, loss=loss, bounds=Bounds(1.0, -1.0, 1.0), n_features=3, domain=ball)
    plan = posterior_release.plan(problem, Budget(mu=1.0))
    samples = np.array(plan.mechanism.run_many(data, Run(Source(4)), 200))

    def value(points):
        return data.gradients(loss, points, **problem.guards)[0] / n

    theta, best = np.zeros(3), math.inf
    for k in range(2000):
        there, slope = data.gradient(loss, theta, **problem.guards)
        best = min(best, there / n)
        theta = ball.project(theta - 2 / math.sqrt(k + 1) * slope / n)
    excess = value(samples) - best
    assert excess.mean() + 6 * excess.std() / math.sqrt(200) <= plan.risk.expected
    assert excess.mean() > 0


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_domain_is_not_localized(relation):
    """Pure: 2 (1 / 0.98 + 0.1) d L R / (epsilon n) on the domain; localization has more."""
    problem = Minimize(
        n=1000, loss=LinearLoss(), bounds=Bounds(1.0), n_features=3, domain=L2Ball(3, 2.0)
    )
    budget, change = Budget(epsilon=1.0, relation=relation), (2.0 if relation == "replace" else 1.0)
    plan = posterior_release.plan(problem, budget)
    whole = of_sample(plan)
    assert whole == pytest.approx(2 * (1 / 0.98 + 0.1) * 3 * change * 2.0 / 1000, rel=2e-3)
    for ridge in np.geomspace(1e-3, 1.0, 30):
        local = localized_asap.plan(replace(problem, domain=None, ridge=float(ridge)), budget)
        assert local.risk.expected + ridge * 2.0**2 / 2 > 1.7 * whole


def test_refusals():
    problem = Minimize(n=10, loss=Logistic(), bounds=Bounds(1.0), n_features=1)
    with pytest.raises(ValueError, match="bounded domain"):
        posterior_release.plan(problem, Budget(mu=1.0))
    with pytest.raises(
        ValueError, match="a bounded domain that is a ball or a box, or a pure budget and ridge > 0"
    ):
        posterior_release.plan(problem, Budget(epsilon=1.0))
    with pytest.raises(ValueError, match="smooth loss where there is no domain"):
        posterior_release.plan(replace(problem, loss=Absolute(), ridge=1.0), Budget(epsilon=1.0))


@dataclass(frozen=True)
class Colder(PerturbedSample):
    """Draws at twice the inverse temperature that it declares."""

    kind = "test_colder_posterior_sample"

    def run_many(self, data, run, count):
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return PerturbedSample(
            **own | {"inverse_temperature": 2 * self.inverse_temperature}
        ).run_many(data, run, count)


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_audit_reaches_the_promise_and_finds_a_temperature_that_is_too_low(relation):
    """Linear losses and a ridge are tight: 80% of mu = 1 is shown; twice t is refuted."""
    problem, data, neighbour = asap_perturb.example(relation)
    plan = posterior_release.plan(problem, Budget(mu=1.0, relation=relation))
    assert plan.mechanism.problem.ridge == problem.ridge
    kept = audit_plan(plan, data, neighbour, runs=10_000, confidence=1 - 1e-6, random_state=1)
    assert kept.verdict == "kept"
    assert kept.lower >= 0.8 * kept.promised
    own = {field.name: getattr(plan.mechanism, field.name) for field in fields(plan.mechanism)}
    faulty = Step(Colder(**own), plan.basis)
    assert (
        audit_plan(
            faulty, data, neighbour, runs=10_000, confidence=1 - 1e-6, random_state=2
        ).verdict
        == "broken"
    )
