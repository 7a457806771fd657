"""The sample around a noisy minimizer: its shares, its laws, its promise."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import gamma, kstest, laplace

from dpfit.core import Minimize, Run, plan_from_json
from dpfit.data.records import Arrays
from dpfit.geometry import L2Ball
from dpfit.losses import Bounds, LinearLoss, Logistic
from dpfit.noise import Source
from dpfit.privacy import Budget
from dpfit.samplers.potential import gibbs
from dpfit.solvers.gibbs.localized_sample import SHARES
from dpfit.solvers.gibbs.posterior_release import posterior_release

RELATIONS = ("replace", "add_remove")
ROWS, LABELS = np.array([[1.0], [0.8], [-0.5], [1.0]]), np.array([1.0, -1.0, 1.0, 1.0])


def problem(loss, d=1, n=4, ridge=0.5, domain=None):
    return Minimize(n=n, loss=loss, bounds=Bounds(1.0), features=d, domain=domain, ridge=ridge)


@pytest.mark.parametrize("relation", RELATIONS)
def test_shares_radius_and_temperature_in_closed_form(relation):
    """B = q_99(Gamma(d)) L / (n ridge e1), t = e2 / (2 L B), with L = 2 or 1 for linear losses."""
    plan = posterior_release.plan(problem(LinearLoss(), 5, 100, 0.1), Budget(epsilon=2.0, relation=relation))
    first, second, third = (2.0 * share for share in SHARES)
    change = 2.0 if relation == "replace" else 1.0
    radius = gamma(5).ppf(0.99) * change / (100 * 0.1 * first)
    m = plan.mechanism
    assert plan.guarantee.pure == pytest.approx(2.0)
    assert 1 / m.minimizer.noise_multiplier == pytest.approx(first)
    assert (m.sample_epsilon, 1 / m.noise_multiplier) == pytest.approx((second, third))
    assert m.radius == pytest.approx(radius, rel=1e-6)
    assert m.inverse_temperature == pytest.approx(second / (2 * change * radius), rel=1e-6)
    assert plan.risk.expected == pytest.approx(5 / (100 * m.inverse_temperature))
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("loss", [LinearLoss(), Logistic()], ids=lambda loss: loss.kind)
def test_the_density_has_the_range_that_is_paid_for(loss, relation):
    """Between neighbours the log density ratio varies over the ball by e2: all of it if losses are linear."""
    plan = posterior_release.plan(problem(loss, n=6), Budget(epsilon=1.0, relation=relation))
    rows = np.ones((6, 1))
    other = rows[:-1] if relation == "add_remove" else np.append(rows[:-1], [[-1.0]], axis=0)
    for centre in (-3.0, 0.0, 1.7):
        sample = plan.mechanism.around((centre,))
        x = np.linspace(centre - plan.mechanism.radius, centre + plan.mechanism.radius, 401)[:, None]
        change = np.subtract(
            *(
                gibbs(sample.problem, Arrays(part, np.ones(len(part))), sample.inverse_temperature).convex(x)[0]
                for part in (rows, other)
            )
        )
        assert np.ptp(change) <= plan.mechanism.sample_epsilon
        if isinstance(loss, LinearLoss):
            assert np.ptp(change) == pytest.approx(plan.mechanism.sample_epsilon)


def test_the_law_is_that_of_the_two_stages():
    """In one dimension by quadrature: a Laplace law around the minimizer, then the density on the interval."""
    plan = posterior_release.plan(problem(Logistic()), Budget(epsilon=4.0))
    m = plan.mechanism
    grid = np.linspace(-40, 40, 16_001)
    U = np.logaddexp(0, -LABELS * grid[:, None] * ROWS[:, 0]).sum(axis=1) + grid**2  # n ridge / 2 = 1
    scale = m.minimizer.noise_multiplier * m.minimizer.sensitivity
    centres = laplace(grid[np.argmin(U)], scale).ppf((np.arange(300) + 0.5) / 300)
    law, density = np.zeros(len(grid)), np.exp(-m.inverse_temperature * U)
    for centre in centres:
        part = density * (np.abs(grid - centre) <= m.radius)
        law += part / part.sum() / len(centres)
    drawn = np.ravel(m.run_many(Arrays(ROWS, LABELS), Run(Source(1)), 1500))
    assert kstest(drawn, lambda x: np.interp(x, grid, np.cumsum(law))).pvalue > 1e-6
    single = [float(plan.run(Arrays(ROWS, LABELS), random_state=seed).value[0]) for seed in range(30)]
    assert kstest(drawn, single).pvalue > 1e-6


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_ridge_is_the_best_for_a_domain(relation):
    """s = 2 L sqrt(d q / (e1 e2)) / R; the bound is larger with 40% more or 30% less."""
    given = problem(LinearLoss(), 3, 1000, 0.0, L2Ball(3, 2.0))
    plan = posterior_release.plan(given, Budget(epsilon=1.0, relation=relation))
    change, q = (2.0 if relation == "replace" else 1.0), gamma(3).ppf(0.99)
    best = 2 * change * math.sqrt(3 * q) / (SHARES[0] * 2.0) / 1000
    assert plan.mechanism.minimizer.ridge == pytest.approx(best)
    assert plan.risk.expected == pytest.approx(best * 4, rel=1e-6)
    for factor in (0.7, 1.4):
        ridge = factor * best
        there = replace(plan.mechanism, minimizer=replace(plan.mechanism.minimizer, ridge=ridge))
        assert there.risk.expected > 1.02 * plan.risk.expected
    assert given.domain.contains(plan.run(Arrays(np.ones((1000, 3)), np.ones(1000)), random_state=2).value)


@pytest.mark.parametrize("sampler", ["rejection", "preconditioned", "proximal"])
def test_the_excess_risk_is_below_the_bound(sampler):
    random = np.random.default_rng(3)
    rows = random.normal(size=(1000, 3))
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    data = Arrays(rows, np.sign(rows @ [0.6, -0.5, 0.2] + 0.3 * random.normal(size=1000)))
    given = problem(Logistic(), 3, 1000, 0.01)
    plan = posterior_release.plan(given, Budget(epsilon=1.0), sampler=sampler)
    drawn = np.array(plan.mechanism.run_many(data, Run(Source(4)), 5))

    def value(points):
        return data.gradients(Logistic(), points, **given.guards)[0] / 1000 + 0.005 * np.sum(points**2, axis=1)

    theta = np.zeros(3)
    for _ in range(300):
        theta -= data.gradient(Logistic(), theta, **given.guards)[1] / 1000 + 0.01 * theta
    excess = value(drawn) - value(theta[None])
    # Excesses are about an exponential law with mean below d / (2 t n) here: five of them are below six bounds.
    assert 0 < excess.mean() <= 6 * plan.risk.expected
    assert plan.basis.arithmetic == "idealised"


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e308])
def test_hostile_records_are_repaired(value):
    data = Arrays(np.array([[value], [1.0], [0.0], [value]]), np.array([value, 1.0, -1.0, 1.0]))
    released = posterior_release.plan(problem(Logistic()), Budget(epsilon=1.0)).run(data, random_state=1).value
    assert np.all(np.isfinite(released))
