"""Localized samples: radius, temperature, exact log ratios for any ball, errors."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from grids import cells, masses
from scipy.stats import chi, gamma, kstest, laplace

from dpfit.core import Minimize, Run, plan_from_json
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import Absolute, Bounds, CustomLoss, Huber, LinearLoss, Logistic, Squared
from dpfit.noise import Source
from dpfit.privacy import Budget, accountant
from dpfit.privacy.spec import from_json
from dpfit.solvers.gibbs.asap_perturb import asap_perturb
from dpfit.solvers.gibbs.localized_asap import localized_asap
from dpfit.solvers.gibbs.perturbed_sample import BallAround, PerturbedSample
from dpfit.solvers.gibbs.posterior_release import posterior_release
from dpfit.solvers.gibbs.sample_budget import SampleBudget

RELATIONS = ("replace", "add_remove")


ROWS, LABELS = np.array([[1.0], [0.8], [-0.5], [1.0]]), np.array([1.0, -1.0, 1.0, 1.0])


def logistic(d=1, n=4, ridge=0.5):
    return Minimize(n=n, loss=Logistic(), bounds=Bounds(1.0), n_features=d, ridge=ridge)


def huber(n=50, d=3, ridge=0.2):
    return Minimize(n=n, loss=Huber(1.0), bounds=Bounds(1.0, -5.0, 5.0), n_features=d, ridge=ridge)


@pytest.mark.parametrize("relation", RELATIONS)
def test_radius_and_temperature_under_a_pure_budget(relation):
    """99% quantile of Gamma(d) * change / (n ridge eps_1); t = eps_2 / (change diameter)."""
    plan = localized_asap.plan(huber(), Budget(epsilon=2.0, relation=relation))
    change = 2.0 if relation == "replace" else 1.0
    radius = gamma(3).ppf(0.99) * change / (50 * 0.2) / 1.0
    local = plan.stages[1].plan.mechanism
    assert local.problem.trust_ball.norm_bound == pytest.approx(radius, rel=1e-3)
    assert local.inverse_temperature == pytest.approx(0.98 * 1.0 / (change * 2 * radius), rel=2e-3)
    assert plan.guarantee.pure <= 2.0
    assert plan.guarantee.pure == pytest.approx(2.0, rel=1e-2)
    exact = 3 * change * 2 * radius / (0.98 * 50)
    assert exact < plan.risk.expected < 1.02 * exact  # the rest is what noise adds


@pytest.mark.parametrize("relation", RELATIONS)
def test_radius_and_temperature_under_gdp(relation):
    plan = localized_asap.plan(huber(), Budget(mu=1.0, relation=relation), share=0.2, miss=0.05)
    change = 2.0 if relation == "replace" else 1.0
    radius = chi(3).ppf(0.95) * change / (50 * 0.2) / math.sqrt(0.2)
    local = plan.stages[1].plan.mechanism
    assert local.problem.trust_ball.norm_bound == pytest.approx(radius, rel=1e-3)
    assert local.inverse_temperature == pytest.approx(0.8 * 50 * 0.2 / change**2, rel=0.01)
    assert plan.guarantee.mu <= 1.0
    assert plan.guarantee.mu == pytest.approx(1.0, rel=1e-2)


@pytest.mark.parametrize(
    "budget", [{"epsilon": 0.7}, {"mu": 0.3}, {"rho": 0.1}, {"epsilon": 1.0, "delta": 1e-6}]
)
@pytest.mark.parametrize("relation", RELATIONS)
def test_budgets_are_met_and_plans_survive_json(budget, relation):
    problem = Minimize(n=1000, loss=Logistic(), bounds=Bounds(1.0), n_features=4, ridge=0.01)
    asked = Budget(**budget, relation=relation)
    plan = localized_asap.plan(problem, asked)
    assert plan.guarantee.meets(asked)
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("centre", [0.0, 0.4, 30.0, -1e4])
def test_the_ideal_promise_holds_wherever_the_ball_is(centre, relation):
    """1-D: log ratios of exact densities on the ball; linear losses attain pure DP."""
    problem = Minimize(n=4, loss=Logistic(), bounds=Bounds(1.0), n_features=1, ridge=0.5)
    labels = np.array([1.0, -1.0, 1.0, 1.0])
    for base, budget in (
        (problem, Budget(epsilon=1.0, relation=relation)),
        (problem, Budget(mu=1.0, relation=relation)),
        (replace(problem, loss=LinearLoss()), Budget(epsilon=1.0, relation=relation)),
    ):
        step = SampleBudget.in_ball(base, 0.7, budget).step()
        bound = BallAround("first").bound(step, {"first": np.array([centre])}).mechanism
        assert bound.event == step.event
        # No minimizer of up to twice n records is beyond twice the slope over the ridge.
        centre = min(max(centre, -4.0), 4.0)
        assert bound.problem.trust_ball == L2Ball(1, 0.7, (centre,))
        x, _ = cells(centre - 0.7, centre + 0.7, 2000)
        other = labels[:-1] if relation == "add_remove" else np.append(labels[:-1], -1.0)
        potentials = []
        for rows in (labels, other):
            margins = rows * x[:, None]
            losses = (
                margins if isinstance(base.loss, LinearLoss) else np.logaddexp(0, -margins)
            ).sum(axis=1)
            potentials.append(bound.inverse_temperature * (losses + 4 * 0.5 / 2 * x**2))
        if budget.kind == "pure":
            spread = np.ptp(potentials[0] - potentials[1])
            assert spread <= bound.ideal.epsilon
            if isinstance(base.loss, LinearLoss):
                assert spread > 0.99 * bound.ideal.epsilon
        else:
            one, two = map(masses, potentials)
            for p, q in ((one, two), (two, one)):
                for epsilon in (0.0, 0.3, 1.0):
                    lost = np.maximum(p - math.exp(epsilon) * q, 0).sum()
                    assert (
                        lost
                        <= accountant.privacy_curve(bound.ideal, relation).delta(
                            np.array([epsilon])
                        )[0]
                        + 1e-6
                    )


def test_the_second_stage_samples_the_density_of_its_ball():
    problem = Minimize(n=5, loss=LinearLoss(), bounds=Bounds(1.0), n_features=1, ridge=1.0)
    step = SampleBudget.in_ball(problem, 0.5, Budget(epsilon=3.0)).step()
    local = BallAround("first").bound(step, {"first": np.array([-0.8])}).mechanism
    rows = np.array([[1.0], [0.5], [1.0], [-0.25], [1.0]])
    drawn = np.ravel(local.run_many(InMemory(rows, np.zeros(5)), Run(Source(1)), 1500))
    x = np.linspace(-1.3, -0.3, 10_001)
    density = np.exp(-local.inverse_temperature * (3.25 * x + 2.5 * x**2))
    F = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    assert kstest(drawn, lambda at: np.interp(at, x, F / F[-1])).pvalue > 1e-6


def test_the_ball_holds_the_minimizer_as_often_as_it_should():
    problem, miss = huber(n=6, d=2, ridge=0.5), 0.3
    plan = localized_asap.plan(problem, Budget(epsilon=1.0), miss=miss)
    data = InMemory(np.tile([1.0, 0.0], (6, 1)), np.full(6, 5.0))
    # Huber losses of slope 1 far from the labels: the minimizer is 1 / ridge along the first axis.
    starts = np.array(plan.stages[0].plan.mechanism.run_many(data, Run(Source(2)), 800))
    inside = (
        np.linalg.norm(starts - [2.0, 0.0], axis=1)
        <= plan.stages[1].plan.mechanism.problem.trust_ball.norm_bound
    )
    assert inside.mean() == pytest.approx(1 - miss, abs=6 * math.sqrt(0.21 / 800))


def test_the_excess_risk_is_below_the_bound():
    random = np.random.default_rng(4)
    rows = random.normal(size=(2000, 2)) * [0.5, 0.05]
    labels = np.sign(rows @ [2.0, 3.0] + 0.2 * random.normal(size=2000))
    problem = Minimize(n=2000, loss=Logistic(), bounds=Bounds(1.0), n_features=2, ridge=0.01)
    data, plan = InMemory(rows, labels), localized_asap.plan(problem, Budget(epsilon=1.0))

    def value(points):
        return data.gradients(Logistic(), points, **problem.guards)[0] / 2000 + 0.005 * np.sum(
            points**2, axis=1
        )

    theta = np.zeros(2)
    for _ in range(300):
        theta = theta - 4.0 * (
            data.gradient(Logistic(), theta, **problem.guards)[1] / 2000 + 0.01 * theta
        )
    released = np.array([plan.run(data, random_state=seed).value[1] for seed in range(100)])
    excess = value(released) - value(theta[None])[0]
    assert 0 < excess.mean() + 6 * excess.std() / math.sqrt(100) <= plan.risk.expected


@pytest.mark.slow
def test_the_law_is_that_of_the_two_stages():
    """1-D quadrature: a Laplace law around the minimizer, then the density.

    `posterior_release` has the stages of `localized_asap` and keeps the first value inside.
    """
    plan = posterior_release.plan(logistic(), Budget(epsilon=4.0))
    assert plan.stages == localized_asap.plan(logistic(), Budget(epsilon=4.0)).stages
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    first, second = (stage.plan.mechanism for stage in plan.stages)
    radius = second.problem.trust_ball.norm_bound
    grid = np.linspace(-40, 40, 16_001)
    U = (
        np.logaddexp(0, -LABELS * grid[:, None] * ROWS[:, 0]).sum(axis=1) + grid**2
    )  # n ridge / 2 = 1
    scale = first.noise_multiplier * first.sensitivity
    centres = laplace(grid[np.argmin(U)], scale).ppf((np.arange(300) + 0.5) / 300)
    law, density = np.zeros(len(grid)), np.exp(-second.inverse_temperature * U)
    for centre in centres:
        part = density * (np.abs(grid - centre) <= radius)
        law += part / part.sum() / len(centres)
    drawn = np.ravel(plan.execute_many(InMemory(ROWS, LABELS), Run(Source(1)), 1500))
    assert kstest(drawn, lambda x: np.interp(x, grid, np.cumsum(law))).pvalue > 1e-6
    single = [
        float(plan.run(InMemory(ROWS, LABELS), random_state=seed).value[0]) for seed in range(30)
    ]
    assert kstest(drawn, single).pvalue > 1e-6


def test_a_ball_is_bound_to_local_samples_only():
    """A domain of the caller does not move, and a minimizer has no ball."""
    ball = BallAround("first")
    fixed = asap_perturb.plan(replace(logistic(), domain=L2Ball(1, 1.0)), Budget(mu=1.0))
    start = localized_asap.plan(logistic(), Budget(mu=1.0)).stages[0].plan
    for plan, match in ((fixed, "trust_ball"), (start, "PerturbedSample")):
        with pytest.raises(ValueError, match=match):
            ball.check(plan)


def test_a_ball_beyond_all_minimizers_is_refused():
    """Rounding is bounded only for balls around minimizers; beyond, too little is claimed."""
    sample = SampleBudget.in_ball(logistic(), 0.5, Budget(mu=1.0)).step().mechanism
    for away, kept in (
        (4.0, True),
        (4.1, False),
        (1e9, False),
    ):  # twice the slope over the ridge is 4
        problem = replace(sample.problem, trust_ball=L2Ball(1, 0.5, (away,)))
        if kept:
            assert replace(sample, problem=problem).event == sample.event
        else:
            with pytest.raises(ValueError, match="where a minimizer can be"):
                replace(sample, problem=problem)


@pytest.mark.parametrize("name", ["localized_asap", "iterated_exponential_mechanism"])
def test_local_samples_of_earlier_versions_are_read(name):
    """Their ball was the domain and is now the trust ball; the event is unchanged."""
    stored = json.loads(
        (Path(__file__).parents[2] / f"fixtures/v0_1/plans/{name}.json").read_text()
    )
    for case in stored.values():
        value, event = case["plan"]["stages"][-1]["mechanism"], case["event"]["events"][-1]
        sample = from_json(value, PerturbedSample)
        assert sample.event.to_json() == event
        assert sample.problem.trust_ball.norm_bound == value["problem"]["domain"]["norm_bound"]
        assert sample.around(np.full(sample.problem.dimension, 1e9)).event == sample.event


@pytest.mark.parametrize("sampler", ["rejection", "preconditioned", "proximal"])
def test_any_sampler_keeps_the_bound(sampler):
    random = np.random.default_rng(3)
    rows = random.normal(size=(1000, 3))
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    data = InMemory(rows, np.sign(rows @ [0.6, -0.5, 0.2] + 0.3 * random.normal(size=1000)))
    given = logistic(3, 1000, 0.01)
    plan = posterior_release.plan(given, Budget(epsilon=1.0), sampler=sampler)
    drawn = np.array(plan.execute_many(data, Run(Source(4)), 5))

    def value(points):
        return data.gradients(Logistic(), points, **given.guards)[0] / 1000 + 0.005 * np.sum(
            points**2, axis=1
        )

    theta = np.zeros(3)
    for _ in range(300):
        theta -= data.gradient(Logistic(), theta, **given.guards)[1] / 1000 + 0.01 * theta
    excess = value(drawn) - value(theta[None])
    # Excesses are about an exponential law with mean below d / (2 t n) here: five of them are below
    # six bounds.
    assert 0 < excess.mean() <= 6 * plan.risk.expected
    assert plan.basis.arithmetic == ("bounded" if sampler == "rejection" else "idealised")


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e308])
def test_hostile_records_are_repaired(value):
    data = InMemory(np.array([[value], [1.0], [0.0], [value]]), np.array([value, 1.0, -1.0, 1.0]))
    released = (
        posterior_release.plan(logistic(), Budget(epsilon=1.0)).run(data, random_state=1).value
    )
    assert np.all(np.isfinite(released))


def test_refusals_come_before_the_data():
    odd = CustomLoss(value_function=abs, gradient_function=abs, lipschitz_bound=1.0)
    for problem, match in (
        (replace(huber(), domain=L2Ball(3, 1.0)), "asap_perturb"),
        (huber(ridge=0.0), "ridge > 0"),
        (replace(huber(), loss=odd), "convex"),
        (replace(huber(), loss=Squared()), "bound at every parameter"),
        (replace(huber(), loss=Absolute()), "smooth loss"),
        (replace(huber(), objective="population"), "regularized_exp_mech"),
    ):
        with pytest.raises(ValueError, match=match):
            localized_asap.plan(problem, Budget(mu=1.0))
    for options in ({"share": 1.0}, {"miss": 1.0}):
        with pytest.raises(ValueError, match="strictly between"):
            localized_asap.plan(huber(), Budget(mu=1.0), **options)
