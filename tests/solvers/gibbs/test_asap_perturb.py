"""Sample perturbation: promises against exact laws, closed forms, refusals, the audit."""

import json
import math
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from grids import cells, masses, proximal_kernel
from scipy.stats import kstest, norm

from dpfit.audit import audit_plan
from dpfit.core import Minimize, Run, Step, plan_from_json
from dpfit.data.dataset import InMemory
from dpfit.geometry import Box, L1Ball, L2Ball
from dpfit.losses import (
    Absolute,
    Bounds,
    CustomLoss,
    Hinge,
    Huber,
    LinearLoss,
    Logistic,
    Pinball,
    SmoothedHinge,
    Squared,
)
from dpfit.noise import Grid, Source
from dpfit.privacy import Budget, accountant, gaussian
from dpfit.privacy.event import BoundedRange, GaussianPrivate
from dpfit.privacy.spec import Spec
from dpfit.samplers.certificate import WithinWasserstein
from dpfit.samplers.exact_gibbs_rejection import GibbsRejection
from dpfit.samplers.piloted_sampler_winf import PilotedSampler
from dpfit.samplers.proximal_sampler_winf import PreconditionedSampler, ProximalSampler
from dpfit.solvers.gibbs.asap_perturb import asap_perturb
from dpfit.solvers.gibbs.perturbed_sample import PROMISES, LossSensitivity, PerturbedSample

RELATIONS = ("replace", "add_remove")
BALL = L2Ball(1, 1.0)


def logistic(n=5, ridge=0.1, domain=BALL):
    return Minimize(
        n=n,
        loss=Logistic(),
        bounds=Bounds(1.0),
        n_features=domain.dimension,
        domain=domain,
        ridge=ridge,
    )


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_ideal_is_priced_by_the_change_of_one_record(relation):
    """mu = L sqrt(t / (n ridge)), epsilon = t L diameter, L = 2 (replaced) or 1 (added)."""
    problem = Minimize(
        n=8, loss=LinearLoss(), bounds=Bounds(1.0), n_features=2, domain=L2Ball(2, 3.0), ridge=0.25
    )
    change = 2.0 if relation == "replace" else 1.0
    common = (problem, relation, 0.5, GibbsRejection())
    assert PerturbedSample(*common, "gaussian", 1.0).ideal.mu == pytest.approx(
        change * math.sqrt(0.5 / 2.0)
    )
    ranged = PerturbedSample(*common, "l2_laplace", 1.0, "bounded_range")
    assert ranged.ideal.epsilon == pytest.approx(0.5 * change * 6.0)


RANGED = [
    Logistic(),
    Hinge(),
    SmoothedHinge(0.5),
    Absolute(),
    Pinball(0.2),
    Huber(0.5),
    Squared(),
    Squared().enveloped(1.2),
]


@pytest.mark.parametrize("loss", RANGED, ids=str)
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_range_is_that_of_losses_not_of_slopes(loss, relation):
    """Brute force over records and theta: never above; attained for any added record."""
    bounds, radius = Bounds(1.0, -0.4, 0.4), 1.5
    problem = Minimize(
        n=4, loss=loss, bounds=bounds, n_features=2, domain=L2Ball(2, radius), ridge=0.1
    )
    angles, lengths = np.linspace(0, 2 * math.pi, 61), np.linspace(0, radius, 16)
    points = np.stack([np.outer(lengths, f(angles)).ravel() for f in (np.cos, np.sin)], axis=1)
    labels = (-1.0, 1.0) if loss.binary_labels else (-0.4, 0.0, 0.4)
    turns = np.linspace(0, 2 * math.pi, 13)
    values = [
        loss.value(points @ [math.cos(turn), math.sin(turn)] * np.ones(len(points)), label)
        for turn in turns
        for label in labels
    ]
    if relation == "add_remove":
        largest = max(np.ptp(v) for v in values)
    else:
        largest = max(np.ptp(v - w) for v in values for w in values)
    change = LossSensitivity.of(problem, relation)
    assert largest <= change.range <= change.lipschitz * 3.0 * (1 + 1e-9)
    if relation == "add_remove" or isinstance(loss, Logistic | Hinge):
        assert largest > 0.99 * change.range
    if isinstance(loss, Logistic):
        assert change.range == pytest.approx(radius if relation == "add_remove" else 2 * radius)


EXACT = [
    {"epsilon": 1.0, "delta": 1e-3},
    {"epsilon": 0.5, "delta": 1e-2},
    {"mu": 0.8},
    {"rho": 0.2},
]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("budget", EXACT, ids=str)
@pytest.mark.parametrize("promise", ["bounded_range", "gdp"])
def test_either_promise_covers_the_densities_and_not_with_a_tenth_less(promise, budget, relation):
    """1-D linear losses, any sum of others: hockey sticks by quadrature, both directions.

    The worst of many densities stays below the promised curve at every level. A promise of nine
    tenths of the range, or of mu, is broken: the range near its end, where it promises zero, and mu
    everywhere, for these densities attain it.
    """
    ridge, radius = (0.0004, 1.0) if promise == "bounded_range" else (0.4, 12.0)
    problem = Minimize(
        n=50,
        loss=LinearLoss(),
        bounds=Bounds(1.0),
        n_features=1,
        domain=L2Ball(1, radius),
        ridge=ridge,
    )
    asked = Budget(**budget, relation=relation)
    plan = asap_perturb.plan(problem, asked)
    assert plan.mechanism.promise == promise
    assert plan.basis.theorem.startswith(PROMISES[promise])
    assert plan.guarantee.meets(asked)
    x, _ = cells(-radius, radius, 20_000)
    t, (size,) = plan.mechanism.inverse_temperature, vars(plan.mechanism.ideal).values()
    levels = size * np.array([0.0, 0.2, 0.5, 0.8, 0.91, 0.95, 0.99])
    lost = np.zeros(len(levels))
    for others in np.linspace(-49, 49, 99):
        sums = (others - 1, others if relation == "add_remove" else others + 1)
        one, two = (masses(t * (total * x + 50 * ridge / 2 * x**2)) for total in sums)
        for p, q in ((one, two), (two, one)):
            lost = np.maximum(lost, [np.maximum(p - math.exp(e) * q, 0).sum() for e in levels])
    kind = type(plan.mechanism.ideal)
    promised, less = (
        accountant.privacy_curve(kind(share * size), relation).delta(levels) for share in (1.0, 0.9)
    )
    assert np.all(lost <= promised + 1e-5)
    assert np.any(lost > 1.001 * less + 1e-12)
    if promise == "gdp":
        assert lost == pytest.approx(promised, rel=2e-3)


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_promise_that_allows_the_colder_density_is_taken(relation):
    """Closed forms: r / range against mu**2 n ridge / lipschitz**2, less noise's share."""
    asked, change = (
        Budget(epsilon=1.0, delta=1e-6, relation=relation),
        (2.0 if relation == "replace" else 1.0),
    )
    r, mu = 1.0015914888, gaussian.mu(1.0, 1e-6)
    even = (
        r * change / (mu**2 * 100 * 2.0)
    )  # the ridge at which both allow the same on a ball of radius one
    for factor, promise in ((0.9, "bounded_range"), (1.1, "gdp")):
        problem = Minimize(
            n=100,
            loss=LinearLoss(),
            bounds=Bounds(1.0),
            n_features=3,
            domain=L2Ball(3, 1.0),
            ridge=factor * even,
        )
        mechanism = asap_perturb.plan(problem, asked).mechanism
        exact = max(r / (2 * change), mu**2 * 100 * problem.ridge / change**2)
        assert mechanism.promise == promise
        assert 0.98 * exact <= mechanism.inverse_temperature <= exact


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    "budget", [{"epsilon": 1.0}, {"mu": 0.7}, {"rho": 0.3}, {"epsilon": 1.0, "delta": 1e-6}]
)
def test_budgets_are_spent_and_no_more(budget, relation):
    asked = Budget(**budget, relation=relation)
    for sampler in ("rejection", "proximal", "preconditioned"):
        plan = asap_perturb.plan(logistic(), asked, sampler=sampler)
        assert plan.guarantee.meets(asked)
        colder = replace(
            plan.mechanism, inverse_temperature=plan.mechanism.inverse_temperature * 1.02
        )
        if sampler == "rejection":
            assert not Step(colder, plan.basis).guarantee.meets(asked)
        assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan
        expected = BoundedRange if plan.mechanism.promise == "bounded_range" else GaussianPrivate
        assert isinstance(plan.mechanism.ideal, expected)
        assert (asked.kind, plan.mechanism.noise) != ("pure", "gaussian")


@dataclass(frozen=True)
class Displaced(Spec):
    """Exact sampler of a linear loss, off by all it declares, away from the neighbour."""

    kind = "test_displaced_sampler"
    distance: float

    @property
    def certificate(self):
        return WithinWasserstein(self.distance)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_two_displacements_are_the_sensitivity(share):
    """Normals shifted by s, displaced away from each other: mu = (s + 2 D) / sd.

    By Cauchy and Schwarz that is at most the promise, and equal to it at the worst distance: no
    constant can be less.
    """
    problem = Minimize(
        n=6,
        loss=LinearLoss(),
        bounds=Bounds(1.0),
        n_features=1,
        domain=L2Ball(1, 30.0),
        ridge=1 / 6,
    )
    t, attained = 0.25, 0.0
    for distance in np.geomspace(1e-3, 100, 200):
        ideal = 2 * math.sqrt(t)
        multiplier = math.sqrt(1 - share) / math.sqrt(share) / ideal
        mechanism = PerturbedSample(
            problem, "replace", t, Displaced(float(distance)), "gaussian", multiplier
        )
        noise = multiplier * mechanism.sensitivity
        exact = (2.0 + 2 * distance) / math.sqrt(1 / t + noise**2)
        promised = math.hypot(ideal, 1 / multiplier)
        assert Step(
            mechanism, asap_perturb.plan(problem, Budget(mu=1.0)).basis
        ).guarantee.mu == pytest.approx(promised)
        assert exact <= promised * (1 + 1e-9)
        attained = max(attained, exact / promised)
    assert attained > 0.999


def chain_law(mechanism, x, rows, labels):
    """The exact law of the chain's last state on the grid."""
    problem, t, sampler = mechanism.problem, mechanism.inverse_temperature, mechanism.sampler
    losses = np.logaddexp(0, -labels * x[:, None] * rows).sum(axis=1)
    kernel = proximal_kernel(
        x, t * (losses + problem.n * problem.ridge / 2 * x**2), sampler.step_size
    )
    law = np.zeros(len(x))
    law[len(x) // 2] = 1.0
    return law @ np.linalg.matrix_power(kernel, sampler.steps)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    ("promise", "noise"),
    [("gdp", "gaussian"), ("bounded_range", "gaussian"), ("bounded_range", "l2_laplace")],
)
@pytest.mark.parametrize("steps", [1, 2, 6])
def test_what_is_released_keeps_the_promise_after_few_steps(promise, noise, relation, steps):
    """An unconverged chain, convolved with its noise, both hockey-stick directions."""
    problem = logistic(n=4, ridge=0.25)
    t = 3.0
    sampler = ProximalSampler(t * 4 * 0.25 * (1 - 1e-12), 1.0, 0.5, steps)
    mechanism = PerturbedSample(problem, relation, t, sampler, noise, 1.5, promise)
    x, width = cells(-1.0, 1.0, 400)
    rows, labels = np.array([1.0, 1.0, 0.5, 1.0]), np.array([1.0, -1.0, 1.0, 1.0])
    other = (
        (rows[:-1], labels[:-1])
        if relation == "add_remove"
        else (rows, np.append(labels[:-1], -1.0))
    )
    scale = mechanism.noise_multiplier * mechanism.sensitivity
    z = np.arange(-1 - 12 * scale, 1 + 12 * scale, max(width, scale / 20))
    density = (norm.pdf if noise == "gaussian" else lambda v: np.exp(-np.abs(v)) / 2)(
        (z[:, None] - x) / scale
    ) / scale
    p, q = (
        density @ chain_law(mechanism, x, *data) * (z[1] - z[0]) for data in ((rows, labels), other)
    )
    promised = Step(
        mechanism, asap_perturb.plan(problem, Budget(mu=1.0, relation=relation)).basis
    ).guarantee
    for one, two in ((p, q), (q, p)):
        if noise == "l2_laplace":
            assert np.max(np.log(one / two)) <= promised.pure
        for epsilon in (0.0, 0.3, 1.0):
            assert (
                np.maximum(one - math.exp(epsilon) * two, 0).sum() <= promised.delta(epsilon) + 1e-6
            )


@pytest.mark.parametrize("sampler", ["rejection", "proximal"])
def test_linear_losses_release_a_normal_law(sampler):
    """N(-sum a_i / (n ridge), 1 / (t n ridge)); the noise adds less than a percent."""
    problem, data, _ = asap_perturb.example("replace")
    plan = asap_perturb.plan(problem, Budget(mu=1.0), sampler=sampler)
    t = plan.mechanism.inverse_temperature
    assert t == pytest.approx((1 - 0.05**2) * 1.0 / 4, rel=0.01)
    released = np.array(plan.mechanism.run_many(data, Run(Source(1)), 4000))
    for axis, mean in enumerate((-6.0, 0.0)):
        assert kstest(released[:, axis], norm(mean, 1 / math.sqrt(t)).cdf).pvalue > 1e-6


@pytest.mark.slow
def test_run_and_run_many_have_one_law():
    plan = asap_perturb.plan(logistic(), Budget(mu=1.0), sampler="proximal")
    data = InMemory(np.ones((5, 1)), np.ones(5))
    many = np.ravel(plan.mechanism.run_many(data, Run(Source(2)), 1000))
    single = [float(plan.run(data, random_state=seed).value[0]) for seed in range(60)]
    assert kstest(many, single).pvalue > 1e-6


def test_noise_is_hardly_visible_and_the_output_stays_in_the_domain():
    for budget in (Budget(mu=0.2), Budget(epsilon=1.0)):
        mechanism = asap_perturb.plan(logistic(1000, 0.01), budget, sampler="proximal").mechanism
        deviation = 1 / math.sqrt(mechanism.inverse_temperature * 1000 * (0.25 + 0.01))
        assert mechanism.noise_multiplier * mechanism.sensitivity <= 0.0101 * deviation
        value = mechanism.run(InMemory(np.full((1000, 1), 9.0), np.ones(1000)), Run(Source(3)))
        assert BALL.contains(value)


def test_samplers_are_chosen_from_public_facts():
    small = logistic(10_000, 0.01, L2Ball(5, 0.1))
    large = logistic(10_000, 0.001, L2Ball(20, 5.0))
    assert isinstance(asap_perturb.plan(small, Budget(mu=1.0)).mechanism.sampler, GibbsRejection)
    assert isinstance(asap_perturb.plan(large, Budget(mu=1.0)).mechanism.sampler, PilotedSampler)
    corners = replace(logistic(10, 0.5), loss=Hinge())
    steps = asap_perturb.plan(corners, Budget(mu=1.0), sampler="proximal").mechanism.sampler.steps
    assert 1 <= steps < 500


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308, -0.0])
@pytest.mark.parametrize(
    "domain", [L2Ball(2, 2.0), Box((-1.0, 0.0), (1.0, 2.0))], ids=["ball", "box"]
)
def test_hostile_records_are_repaired(value, domain):
    data = InMemory(
        np.array([[value, 1.0], [1.0, value], [0.0, 1.0]]), np.array([value, 1.0, -1.0])
    )
    problem = Minimize(
        n=3, loss=Squared(), bounds=Bounds(1.0, -1.0, 1.0), n_features=2, domain=domain, ridge=0.1
    )
    for sampler in ("rejection", "proximal", "preconditioned"):
        released = (
            asap_perturb.plan(problem, Budget(mu=1.0), sampler=sampler)
            .run(data, random_state=1)
            .value
        )
        assert domain.contains(released)


def test_refusals_come_before_the_data():
    for problem, match in (
        (replace(logistic(), domain=None), "bounded domain"),
        (replace(logistic(), ridge=0.0), "ridge > 0"),
        (logistic(domain=L1Ball(2, 1.0)), "a ball or a box"),
    ):
        with pytest.raises(ValueError, match=match):
            asap_perturb.plan(problem, Budget(mu=1.0))
    with pytest.raises(ValueError, match="convex loss"):
        asap_perturb.plan(replace(logistic(), loss=custom(is_convex=False)), Budget(mu=1.0))
    with pytest.raises(ValueError, match="smooth generalized linear loss"):
        asap_perturb.plan(
            replace(logistic(), loss=Hinge()), Budget(mu=1.0), sampler="preconditioned"
        )
    with pytest.raises(ValueError, match="protects records"):
        asap_perturb.plan(logistic(), Budget(mu=1.0, unit="user"))
    mechanism = asap_perturb.plan(logistic(), Budget(mu=1.0), sampler="proximal").mechanism
    for changed in (
        {"strong_convexity": mechanism.sampler.strong_convexity * 1.01},
        {"radius": 0.5},
    ):
        with pytest.raises(ValueError, match="certificate"):
            replace(mechanism, sampler=replace(mechanism.sampler, **changed))


def custom(**facts):
    return CustomLoss(
        value_function=lambda theta, rows, labels: np.abs(rows @ theta),
        gradient_function=lambda theta, rows, labels: np.sign(rows @ theta)[:, None] * rows,
        lipschitz_bound=1.0,
        **facts,
    )


def test_what_the_caller_only_says_is_called_declared():
    plan = asap_perturb.plan(replace(logistic(), loss=custom(is_convex=True)), Budget(mu=1.0))
    assert "declared" in {a.status for a in plan.basis.assumptions}
    assert "declared" not in {
        a.status for a in asap_perturb.plan(logistic(), Budget(mu=1.0)).basis.assumptions
    }


def test_the_preconditioned_chain_is_chosen_where_it_saves_passes():
    """d = 40, ball of radius two: too many for rejection, and the plain chain is slow."""
    wide = logistic(100_000, 0.001, L2Ball(40, 2.0))
    chosen, plain = (
        asap_perturb.plan(wide, Budget(mu=0.2), sampler=name) for name in ("auto", "proximal")
    )
    assert isinstance(chosen.mechanism.sampler, PreconditionedSampler)
    assert 2 * chosen.work.passes < plain.work.passes
    assert chosen.mechanism.sampler.certificate.displacement > 0


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_audit_reaches_the_promise_and_finds_a_temperature_that_is_too_low(relation):
    """Linear losses are tight: the audit shows 80% of mu = 1, and refutes twice t."""
    problem, data, neighbour = asap_perturb.example(relation)
    plan = asap_perturb.plan(problem, Budget(mu=1.0, relation=relation))
    kept = audit_plan(plan, data, neighbour, runs=10_000, confidence=1 - 1e-6, random_state=1)
    assert kept.verdict == "kept"
    assert kept.lower >= 0.8 * kept.promised

    @dataclass(frozen=True)
    class Colder(PerturbedSample):
        def run_many(self, data, run, count):
            colder = replace(
                plan.mechanism, inverse_temperature=2 * plan.mechanism.inverse_temperature
            )
            return colder.run_many(data, run, count)

    faulty = Step(
        Colder(
            **{field.name: getattr(plan.mechanism, field.name) for field in fields(plan.mechanism)}
        ),
        plan.basis,
    )
    assert (
        audit_plan(
            faulty, data, neighbour, runs=10_000, confidence=1 - 1e-6, random_state=2
        ).verdict
        == "broken"
    )


class TestFinitePrecision:
    """Where rounding is proven to do little, it is paid for, and the basis says so."""

    @staticmethod
    def problem(**changes):
        ball = L2Ball(20, 1.0)
        fixed = Minimize(
            n=10_000, loss=Logistic(), bounds=Bounds(1.0), n_features=20, domain=ball, ridge=0.01
        )
        return replace(fixed, **changes)

    @pytest.mark.parametrize("relation", ["replace", "add_remove"])
    @pytest.mark.parametrize(
        "spent", [{"epsilon": 1.0}, {"mu": 0.3}, {"epsilon": 1.0, "delta": 1e-6}, {"rho": 0.05}]
    )
    def test_the_price_is_in_the_event_and_within_the_budget(self, relation, spent):
        budget = Budget(relation=relation, **spent)
        plan = asap_perturb.plan(self.problem(), budget)
        mechanism, rounding = plan.mechanism, plan.mechanism.sampler.rounding
        assert plan.basis.arithmetic == "bounded"
        ideal, paid = mechanism.ideal, mechanism.event.events[0]
        if mechanism.promise == "gdp":
            assert paid.mu == pytest.approx(
                ideal.mu + 2 * gaussian.from_pure(rounding.epsilon), rel=1e-12
            )
        else:
            assert paid.epsilon == pytest.approx(ideal.epsilon + 4 * rounding.epsilon, rel=1e-12)
        assert plan.guarantee.meets(budget)
        # The sample is at most a little warmer than without the price.
        free = replace(mechanism, sampler=GibbsRejection())
        assert (
            1
            < (
                paid.mu / free.ideal.mu
                if mechanism.promise == "gdp"
                else paid.epsilon / ideal.epsilon
            )
            < 1.01
        )
        assert mechanism.sensitivity >= 2 * rounding.distance
        counted = "there are at most 20000 records" in [a.text for a in plan.basis.assumptions]
        assert counted == (relation == "add_remove")

    def test_less_than_is_proven_is_refused(self):
        mechanism = asap_perturb.plan(self.problem(), Budget(mu=0.3)).mechanism
        claimed = mechanism.sampler.rounding
        for less in (
            replace(claimed, epsilon=0.99 * claimed.epsilon),
            replace(claimed, distance=1e-12),
        ):
            with pytest.raises(ValueError, match="less rounding than is proven"):
                replace(mechanism, sampler=GibbsRejection(less))

    @pytest.mark.parametrize("sampler", ["proximal", "preconditioned"])
    def test_chains_are_idealised(self, sampler):
        assert (
            asap_perturb.plan(self.problem(), Budget(mu=0.3), sampler=sampler).basis.arithmetic
            == "idealised"
        )

    def test_so_is_what_has_no_proof_or_a_dear_one(self):
        box = Box((-1.0, -1.0), (1.0, 1.0))
        for changes in (
            {"domain": box, "n_features": 2},
            {"loss": Absolute(), "domain": L2Ball(2, 1.0), "n_features": 2, "n": 100},
            {"n": 10**9},
        ):
            plan = asap_perturb.plan(self.problem(**changes), Budget(mu=0.3), sampler="rejection")
            assert plan.basis.arithmetic == "idealised"
            assert plan.mechanism.sampler == GibbsRejection()

    def test_the_release_is_on_a_public_grid(self):
        """Outputs are integer steps, alike for all data, but for the boundary."""
        problem = self.problem(n=50, n_features=2, domain=L2Ball(2, 3.0), ridge=0.5)
        plan = asap_perturb.plan(problem, Budget(mu=0.5))
        mechanism = plan.mechanism
        step = Grid.fitting(mechanism.sensitivity, 2, "l2").step
        rows = np.random.default_rng(1).normal(size=(50, 2))
        values = np.array(mechanism.run_many(InMemory(rows, np.ones(50)), Run(Source(1)), 50))
        inside = np.linalg.norm(values, axis=1) < 2.999
        assert inside.any()
        steps = values[inside] / step
        assert np.array_equal(steps, np.rint(steps))
