"""Samples as they come: what each certificate costs, exact laws of chains, what is refused."""

import json
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from grids import cells, masses, proximal_kernel
from scipy.stats import kstest, norm

from dpfit.core import Minimize, Run, Step, plan_from_json
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import Bounds, Logistic
from dpfit.noise import Source
from dpfit.privacy import Budget, BudgetUnreachable, gaussian
from dpfit.privacy.spec import Spec
from dpfit.samplers.certificate import (
    Exact,
    NotCertified,
    TotalVariation,
    Uncertified,
    WithinGaussian,
    WithinMaxDivergence,
    WithinWasserstein,
)
from dpfit.samplers.constrained_mala import MetropolisLangevin
from dpfit.samplers.exact_gibbs_rejection import GibbsRejection
from dpfit.samplers.proximal_sampler_winf import ProximalSampler
from dpfit.solvers.gibbs.asap_perturb import asap_perturb
from dpfit.solvers.gibbs.dp_from_sampler_closeness import CertifiedSample, dp_from_sampler_closeness

RELATIONS = ("replace", "add_remove")


def logistic(n=100, ridge=0.1, d=1):
    return Minimize(
        n=n, loss=Logistic(), bounds=Bounds(1.0), n_features=d, domain=L2Ball(d, 1.0), ridge=ridge
    )


@dataclass(frozen=True)
class Says(Spec):
    """A sampler that says something about itself, and draws exactly."""

    kind = "test_says_sampler"
    certificate: Spec

    def draw(self, target, chains, source, progress=None):
        return GibbsRejection().draw(target, chains, source)


def ideal_mu(plan, relation):
    change = plan.mechanism.problem.constants(relation).gradient_sensitivity
    return change * math.sqrt(plan.mechanism.inverse_temperature / (100 * 0.1))


@pytest.mark.parametrize("relation", RELATIONS)
def test_what_each_certificate_costs(relation):
    """mu + 2 a; epsilon + 2 k; delta + (1 + exp(epsilon)) xi."""

    def planned(budget, certificate):
        return dp_from_sampler_closeness.plan(
            logistic(),
            Budget(**budget, relation=relation),
            certificate=certificate,
            sampler=lambda t: Says(certificate),
        )

    assert ideal_mu(planned({"mu": 0.5}, Exact()), relation) == pytest.approx(0.5)
    assert ideal_mu(planned({"mu": 0.5}, WithinGaussian(0.1)), relation) == pytest.approx(0.3)
    pure = planned({"epsilon": 1.0}, WithinMaxDivergence(0.2)).mechanism
    # log(1 + exp(-m)) varies by one over margins in [-1, 1].
    assert pure.inverse_temperature == pytest.approx(0.6 / (2.0 if relation == "replace" else 1.0))
    close = planned({"epsilon": 1.0, "delta": 1e-5}, TotalVariation(1e-6))
    assert gaussian.delta(ideal_mu(close, relation), 1.0) == pytest.approx(
        1e-5 - (1 + math.e) * 1e-6, rel=1e-3
    )
    assert close.guarantee.delta(1.0) <= 1e-5


def test_the_default_chain_is_as_close_as_it_must_be_and_not_much_closer():
    plan = dp_from_sampler_closeness.plan(logistic(10_000, 0.01, 20), Budget(mu=0.5))
    sampler, asked = plan.mechanism.sampler, 0.0005 * 0.5
    assert sampler.gaussian_certificate.mu <= asked * (1 + 1e-9)
    assert replace(sampler, steps=sampler.steps - 1).gaussian_certificate.mu > asked
    # Noise that hides the distance takes more steps, and more of the budget.
    noisy = asap_perturb.plan(
        logistic(10_000, 0.01, 20), Budget(mu=0.5), sampler="proximal"
    ).mechanism
    assert sampler.steps < noisy.sampler.steps
    assert plan.mechanism.inverse_temperature > 0.999 * noisy.inverse_temperature


def chain_law(mechanism, x, rows, labels):
    """The exact law of the chain's last state on the grid, and its target."""
    problem, t, sampler = mechanism.problem, mechanism.inverse_temperature, mechanism.sampler
    losses = np.logaddexp(0, -labels * x[:, None] * rows).sum(axis=1)
    kernel = proximal_kernel(
        x, t * (losses + problem.n * problem.ridge / 2 * x**2), sampler.step_size
    )
    law = np.zeros(len(x))
    law[len(x) // 2] = 1.0
    return law @ np.linalg.matrix_power(kernel, sampler.steps), masses(
        t * (losses + problem.n * problem.ridge / 2 * x**2)
    )


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("steps", [2, 3, 6])
def test_the_promise_of_a_chain_far_from_converged_holds(relation, steps):
    """The law on a grid, both directions; also the closeness behind the guarantee."""
    problem, t = logistic(4, 0.25), 3.0
    sampler = ProximalSampler(t * (1 - 1e-12), 1.0, 0.8, steps)
    certificate = sampler.gaussian_certificate
    mechanism = CertifiedSample(problem, relation, t, sampler, certificate)
    x, _ = cells(-1.0, 1.0, 400)
    rows, labels = np.array([1.0, 1.0, 0.5, 1.0]), np.array([1.0, -1.0, 1.0, 1.0])
    other = (
        (rows[:-1], labels[:-1])
        if relation == "add_remove"
        else (rows, np.append(labels[:-1], -1.0))
    )
    (p, exact), (q, _) = chain_law(mechanism, x, rows, labels), chain_law(mechanism, x, *other)
    for one, two, mu in ((p, q, mechanism.event.mu), (p, exact, certificate.mu)):
        for a, b in ((one, two), (two, one)):
            for epsilon in (0.0, 0.3, 1.0):
                assert (
                    np.maximum(a - math.exp(epsilon) * b, 0).sum()
                    <= gaussian.delta(mu, epsilon) + 1e-6
                )


def test_linear_losses_release_a_normal_law():
    problem, data, _ = asap_perturb.example("replace")
    plan = dp_from_sampler_closeness.plan(problem, Budget(mu=1.0))
    t = plan.mechanism.inverse_temperature
    assert t == pytest.approx(0.999**2 / 4)
    released = np.array(plan.mechanism.run_many(data, Run(Source(1)), 1500))
    for axis, mean in enumerate((-6.0, 0.0)):
        assert kstest(released[:, axis], norm(mean, 1 / math.sqrt(t)).cdf).pvalue > 1e-6


def test_nothing_is_promised_without_a_certificate_but_by_word():
    options = {"certificate": Uncertified(), "sampler": lambda t: Says(Uncertified())}
    with pytest.raises(NotCertified, match="no certificate"):
        dp_from_sampler_closeness.plan(logistic(), Budget(mu=0.5), **options)
    plan = dp_from_sampler_closeness.plan(
        logistic(), Budget(mu=0.5), allow_uncertified=True, **options
    )
    assert any(a.status == "declared" and "NOT CERTIFIED" in a.text for a in plan.basis.assumptions)
    assert "NOT CERTIFIED" in plan.explain()
    assert plan.guarantee.mu == pytest.approx(0.5)
    with pytest.raises(NotCertified):
        replace(plan.mechanism, allow_uncertified=False)


def test_a_metropolis_chain_runs_on_the_word_of_the_caller():
    chain = MetropolisLangevin(steps=5, step_size=0.01)
    options = {
        "certificate": chain.certificate,
        "sampler": lambda t: chain,
        "allow_uncertified": True,
    }
    plan = dp_from_sampler_closeness.plan(logistic(20, 0.1), Budget(mu=1.0), **options)
    value = plan.run(InMemory(np.ones((20, 1)), np.ones(20)), random_state=1).value
    assert value.shape == (1,)
    assert abs(value[0]) <= 1.0


def test_a_sampler_must_give_what_the_promise_rests_on():
    certificate = WithinGaussian(0.1)
    for said in (WithinGaussian(0.11), WithinWasserstein(1e-9), Uncertified()):
        with pytest.raises(NotCertified, match="does not give"):
            dp_from_sampler_closeness.plan(
                logistic(),
                Budget(mu=0.5),
                certificate=certificate,
                sampler=lambda t, said=said: Says(said),
            )
    better = dp_from_sampler_closeness.plan(
        logistic(),
        Budget(mu=0.5),
        certificate=certificate,
        sampler=lambda t: Says(WithinGaussian(0.01)),
    )
    assert better.guarantee.mu == pytest.approx(0.5)
    # Of a sampler that was brought along nothing is known but what it says; of the default chain it
    # is proven.
    assert any("as close as" in a.text and a.status == "declared" for a in better.basis.assumptions)
    own = dp_from_sampler_closeness.plan(logistic(), Budget(mu=0.5))
    assert not any("as close as" in a.text for a in own.basis.assumptions)
    # A W-infinity certificate promises nothing without noise.
    with pytest.raises(NotCertified, match="perturb"):
        dp_from_sampler_closeness.plan(
            logistic(),
            Budget(mu=0.5),
            certificate=WithinWasserstein(1e-9),
            sampler=lambda t: GibbsRejection(),
        )


def test_certificates_are_for_their_target():
    plan = dp_from_sampler_closeness.plan(logistic(), Budget(mu=0.5))
    sampler = plan.mechanism.sampler
    for changed in ({"strong_convexity": sampler.strong_convexity * 1.01}, {"radius": 0.5}):
        with pytest.raises((ValueError, NotCertified), match="certificate"):
            replace(plan.mechanism, sampler=replace(sampler, **changed))
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert isinstance(plan, Step)
    assert plan.basis.arithmetic == "idealised"


def test_refusals():
    with pytest.raises(BudgetUnreachable, match="pure epsilon"):
        dp_from_sampler_closeness.plan(logistic(), Budget(epsilon=1.0))
    with pytest.raises(ValueError, match="both a certificate and a sampler"):
        dp_from_sampler_closeness.plan(logistic(), Budget(mu=1.0), certificate=Exact())
    data = InMemory(np.ones((3, 1)), np.ones(3))
    with pytest.raises(ValueError, match="n = 100"):
        dp_from_sampler_closeness.plan(logistic(), Budget(mu=1.0)).run(data, random_state=1)
