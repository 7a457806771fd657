"""One sample of a Gibbs density, with noise as large as its sampler may be off: approximate sample perturbation.

The density is proportional to exp(-t (sum of losses + (n ridge / 2) norm(theta)**2)) on a bounded domain, n being the
declared number. Drawn exactly it is mu-GDP with mu = lipschitz * sqrt(t / (n ridge)), and of bounded range t * range,
where lipschitz and range are of what one record changes in the sum of losses. Either holds at any temperature: the plan
leans on the one that allows the colder density. A sampler that is within a distance of it in W-infinity, for every
dataset, gets Gaussian or l2-Laplace noise of sensitivity twice that distance; the two are an adaptive composition.

Guarantee: for every dataset, no convergence is assumed. Arithmetic: bounded where exact rejection draws on a ball and
what rounding can do is known and small, then it is part of the price; else idealised (the sampler uses floating-point
numbers; only the noise is exact). Reference: [ASAP] Algorithm 2, Theorem 2, Lemmas 4 and 5;
docs/explanation/certificates.md; which promise is better where: docs/explanation/gibbs.md, section 9.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dpfit.core import Mechanism, Minimize, Risk, Run, Step, Work, require_records
from dpfit.data.dataset import InMemory
from dpfit.geometry import Box, L2Ball
from dpfit.losses import Bounds, LinearLoss
from dpfit.losses.custom import vouched
from dpfit.losses.glm import GLM
from dpfit.noise import add_gaussian, add_l2_laplace
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.check import one_of, positive
from dpfit.privacy.event import BoundedRange, Composed, Event, Gaussian, GaussianPrivate, L2Laplace
from dpfit.samplers.exact_gibbs_rejection import GibbsRejection, remains
from dpfit.samplers.finite_precision import most_records, rejection_rounding
from dpfit.samplers.potential import Floats, bending, bounded_domain, curvatures, gibbs
from dpfit.samplers.proximal_sampler_winf import REJECTION, PreconditionedSampler, ProximalSampler
from dpfit.solvers.perturbation.output_perturbation import require_data

Sampler = GibbsRejection | ProximalSampler | PreconditionedSampler

PROMISES = {
    "gdp": "sample of a strongly log-concave density [Liu24, Theorem 3.4.1]",
    "bounded_range": "sample of a density of bounded range [ASAP, Lemma 5; Dong, Durfee, Rogers 2020]",
}
"""By which theorem an exact sample is private."""
NOISE_SHARE = {("gdp", "gaussian"): 0.05, ("bounded_range", "gaussian"): 0.005, ("bounded_range", "l2_laplace"): 0.02}
"""The mu or epsilon of the noise, over that of the exact sample with it. Squares of mu add up, so 5% of it cost 0.13%;
beside a bounded range a normal loss costs what its tail reaches at delta, some five times its mu."""
_VISIBLE = 0.01
"""Noise, relative to the least deviation of the sample."""
_ROUNDING = 1e-9
"""What rounding may displace, relative to the radius of the domain."""
_WORTH = 0.02
"""The largest part of mu, or of epsilon, that is paid for a promise that floating point keeps."""
_UP, _DOWN = 1 + 1e-12, 1 - 1e-11
_LEAST_ACCEPTANCE, _LEAST_PROPOSALS = 1e-3, 1e-6
"""How rarely a proposal may be accepted, and be compared with the data at all, for rejection to be chosen."""
_NEWTON_STEPS = 6
"""A Hessian counts as many passes as there are dimensions."""
_EXPONENT = 1.46
"""Of the acceptance of a chain's proposals: x with the fewest passes, (2 + e^x) / x, steps being as many as 1 / x."""
_PASSES_PER_STEP = 2 + math.exp(_EXPONENT)
"""Two for the anchor, and as many as trials are expected."""


class Change(NamedTuple):
    """What one record changes in the sum of losses: the Lipschitz constant of the change, and its range."""

    lipschitz: float
    range: float


def exact_sample(promise: str, inverse_temperature: float, strong_convexity: float, change: Change) -> Event:
    """What an exact sample of exp(-t (sum of losses + a fixed strongly convex function)) does.

    >>> round(exact_sample("bounded_range", 0.5, 2.0, Change(lipschitz=1.0, range=6.0)).epsilon, 9)
    3.0
    """
    if promise == "gdp":
        return GaussianPrivate(_UP * change.lipschitz * math.sqrt(inverse_temperature / strong_convexity))
    return BoundedRange(_UP * inverse_temperature * change.range)


@dataclass(frozen=True)
class PerturbedSample(Mechanism):
    """The noisy sample; all fields are public. ``promise`` says by which theorem an exact sample is private."""

    kind = "perturbed_sample"
    problem: Minimize
    relation: str
    inverse_temperature: float
    sampler: Sampler
    noise: str
    noise_multiplier: float
    promise: str = "gdp"

    def __post_init__(self) -> None:
        one_of("relation", self.relation, ("replace", "add_remove"))
        one_of("noise", self.noise, ("gaussian", "l2_laplace"))
        one_of("promise", self.promise, tuple(PROMISES))
        positive("inverse_temperature", self.inverse_temperature)
        require_strongly_convex(self.problem)
        if isinstance(self.sampler, ProximalSampler):
            strong = self.inverse_temperature * self.problem.n * self.problem.ridge
            if self.sampler.strong_convexity > strong or self.sampler.radius < bounded_domain(self.problem).radius():
                raise ValueError(
                    "the sampler's certificate is for a target that is more convex, or on a smaller domain"
                )
        if isinstance(self.sampler, GibbsRejection) and (claimed := self.sampler.rounding) is not None:
            far, t = self.farthest(self.problem), self.inverse_temperature
            proven = rejection_rounding(far, self.relation, t, claimed.distance)
            if proven is None or proven.epsilon > claimed.epsilon:
                raise ValueError("the sampler's certificate claims less rounding than is proven for this problem")
        _ = self.event, self.sensitivity

    @property
    def event(self) -> Event:
        dimension = self.problem.dimension
        added = Gaussian if self.noise == "gaussian" else lambda multiplier: L2Laplace(multiplier, dimension)
        return Composed((self.sampler.certificate.undisplaced(self.ideal), added(self.noise_multiplier)))

    @property
    def ideal(self) -> Event:
        """What an exact sample does."""
        strong, change = self.problem.n * self.problem.ridge, self.change(self.problem, self.relation)
        return exact_sample(self.promise, self.inverse_temperature, strong, change)

    @classmethod
    def change(cls, problem: Minimize, relation: str) -> Change:
        """What one record changes on the domain; the range of a difference is at most the sum of two ranges."""
        lipschitz, loss = problem.lipschitz(relation), problem.loss
        single = loss.value_range(problem.bounds, problem.radius) if isinstance(loss, GLM) else math.inf
        across = lipschitz * bounded_domain(problem).diameter()
        return Change(lipschitz, min(across, single if relation == "add_remove" else 2 * single))

    @classmethod
    def farthest(cls, problem: Minimize) -> Minimize:
        """The problem for which rounding is bounded; for kinds that move their domain, where that is farthest."""
        return problem

    @property
    def sensitivity(self) -> float:
        """Given the exact sample, the drawn one is in a ball of the displacement around it, on either dataset."""
        domain = bounded_domain(self.problem)
        rounding = _ROUNDING * domain.radius() + 1e-14 * domain.reach()
        return 2 * _UP * (self.sampler.certificate.displacement + rounding)

    @property
    def work(self) -> Work:
        if isinstance(self.sampler, ProximalSampler):
            passes = _PASSES_PER_STEP * self.sampler.steps
        elif isinstance(self.sampler, PreconditionedSampler):
            passes = preconditioned_passes(self.problem, self.inverse_temperature, self.sampler.distance)
        else:
            trials = 1 / math.exp(max(log_acceptance(self.problem, self.inverse_temperature), -700.0))
            passes = _NEWTON_STEPS * (self.problem.dimension + 1.0) + trials
        return Work(gradients=passes * self.problem.n, passes=passes)

    @property
    def risk(self) -> Risk:
        excess = self.problem.dimension / (self.inverse_temperature * self.problem.n)
        return Risk(excess, "excess regularized empirical risk of the exact sample (proven bound)")

    def run(self, data: Any, run: Run) -> Floats:
        return self._drawn(data, run, 1)[0]

    def run_many(self, data: Any, run: Run, count: int) -> Sequence[Floats]:
        """Independent chains side by side."""
        return self._drawn(data, run, count)

    def _drawn(self, data: Any, run: Run, count: int) -> list[Floats]:
        records = require_data(data, self.problem, self.relation)
        target = gibbs(self.problem, records, self.inverse_temperature)
        samples = self.sampler.draw(target, count, run.noise, run.progress)
        return [self._noisy(sample, run) for sample in samples]

    def _noisy(self, sample: Floats, run: Run) -> Floats:
        add = add_gaussian if self.noise == "gaussian" else add_l2_laplace
        noisy = add(sample, l2_sensitivity=self.sensitivity, noise_multiplier=self.noise_multiplier, source=run.noise)
        return bounded_domain(self.problem).project(noisy)


def require_strongly_convex(problem: Minimize) -> None:
    """Refuse targets for which there is no certificate, from public facts."""
    if not problem.loss.convex:
        raise ValueError(f"certified samples need a convex loss, and {problem.loss.kind!r} is not one")
    if not problem.ridge > 0:
        raise ValueError("certified samples need a ridge above zero: it is the strong convexity that promises lean on")
    if not isinstance(domain := bounded_domain(problem), L2Ball | Box):
        raise ValueError(f"certified samples are drawn on balls and boxes, not on {domain.kind!r}")


def bend(problem: Minimize) -> float:
    """The largest trace of one record's Hessian; infinite for losses with corners."""
    constant = problem.loss.smoothness(problem.bounds, problem.radius)
    if constant is None:
        return math.inf
    # The Hessian of a generalized linear loss has one eigenvalue that is not zero.
    return constant.value * (1 if isinstance(problem.loss, GLM) else problem.dimension)


def _rejection_exponent(problem: Minimize, inverse_temperature: float, precision: float) -> float:
    """Minus the log of a lower bound for the acceptance of tangent proposals of that precision, at a good anchor."""
    if math.isfinite(trace := inverse_temperature * problem.n * bend(problem)):
        return trace / (2 * precision)
    slope = inverse_temperature * problem.n * problem.loss.lipschitz(problem.bounds, problem.radius).value
    # A corner bends the loss by at most its slope times the distance moved, along one direction for a linear model.
    moved = 2 / math.pi if isinstance(problem.loss, GLM) else problem.dimension
    return slope * math.sqrt(moved / precision)


def log_acceptance(problem: Minimize, inverse_temperature: float) -> float:
    """About how likely a proposal of exact rejection that is compared with the data is accepted (log).

    From public facts: the sample is taken to be as wide as the ridge alone makes it. Minus infinity where too many
    proposals would fail before they are compared.
    """
    t, d = inverse_temperature, problem.dimension
    strong, domain, rate = t * problem.n * problem.ridge, bounded_domain(problem), bending(problem)
    if math.isinf(rate):
        return -_rejection_exponent(problem, t, strong)
    across = rate * domain.diameter()
    within = min(rate * math.sqrt(d / strong), across)
    kept, accepted = (d / 2 * math.log(float(remains(np.asarray(s)))) for s in (across, within))
    # In a box each coordinate may be at an end, where half of the proposals are lost.
    fitting = -d * math.log(2) if isinstance(domain, Box) else 0.0
    return accepted if kept + fitting > math.log(_LEAST_PROPOSALS) else -math.inf


def planned_sampler(name: str, problem: Minimize, inverse_temperature: float, noise: str, multiplier: float) -> Sampler:
    """The sampler of that name, set for a target and the noise on its draws."""
    one_of("sampler", name, ("auto", "rejection", "proximal", "preconditioned"))
    if name == "rejection":
        return GibbsRejection()
    if name == "preconditioned":
        if math.isinf(curvatures(problem)[1]):
            raise ValueError("there is a preconditioner for generalized linear losses without corners only")
        return PreconditionedSampler(unseen(problem, inverse_temperature, noise, multiplier))
    make = chain if name == "proximal" else chosen_sampler
    return make(problem, inverse_temperature, noise, multiplier)


def chosen_sampler(problem: Minimize, inverse_temperature: float, noise: str, multiplier: float) -> Sampler:
    """Exact rejection where proposals are likely to be accepted; else the chain that needs fewer passes."""
    if log_acceptance(problem, inverse_temperature) > math.log(_LEAST_ACCEPTANCE):
        return GibbsRejection()
    plain = chain(problem, inverse_temperature, noise, multiplier)
    distance = unseen(problem, inverse_temperature, noise, multiplier)
    # One chain at a time takes more than passes.
    if 2 * preconditioned_passes(problem, inverse_temperature, distance) < _PASSES_PER_STEP * plain.steps:
        return PreconditionedSampler(distance)
    return plain


def preconditioned_passes(problem: Minimize, inverse_temperature: float, distance: float) -> float:
    """About how many passes the preconditioned chain takes, from public facts; infinite where there is none."""
    lower, upper = curvatures(problem)
    if math.isinf(upper):
        return math.inf
    strong, bent = inverse_temperature * problem.n * problem.ridge, inverse_temperature * problem.n * bend(problem)
    spread = min(problem.dimension * (upper - lower) / lower if lower > 0 else math.inf, bent / strong)
    ratio = bounded_domain(problem).radius() * math.sqrt(1 + bent / strong) / distance
    rate = math.log1p(1 / max(spread / (2 * REJECTION) - 1, 0.05))
    return problem.dimension + (1 + math.exp(REJECTION)) * math.log(max(ratio, math.e)) / rate


def unseen(problem: Minimize, inverse_temperature: float, noise: str, multiplier: float) -> float:
    """A distance whose noise is hardly visible, and not below what rounding displaces."""
    t = inverse_temperature
    strong = t * problem.n * problem.ridge
    if math.isfinite(bend(problem)):
        least = 1 / math.sqrt(t * problem.n * bend(problem) + strong)
    else:
        slope = t * problem.n * problem.loss.lipschitz(problem.bounds, problem.radius).value
        least = 1 / (slope + math.sqrt(strong))
    spread = multiplier * (1.0 if noise == "gaussian" else math.sqrt(problem.dimension + 1))
    radius = bounded_domain(problem).radius()
    return max(min(_VISIBLE * least / (2 * spread), radius / 2), _ROUNDING * radius)


def chain(problem: Minimize, inverse_temperature: float, noise: str, multiplier: float) -> ProximalSampler:
    """The proximal sampler with steps of the fewest passes in all, and a distance whose noise is hardly visible."""
    t = inverse_temperature
    strong = t * problem.n * problem.ridge
    # The exponent falls at least like the root of the precision, so that two of its squares make it what is wanted.
    precision = 2 * strong
    while (excess := _rejection_exponent(problem, t, precision) / _EXPONENT) > 1.001:
        precision *= excess if math.isfinite(bend(problem)) else excess**2
    distance = unseen(problem, t, noise, multiplier)
    return ProximalSampler.within(distance, strong, bounded_domain(problem).radius(), 1 / (precision - strong))


@dataclass(frozen=True)
class ApproximateSamplePerturbation:
    """Plans a noisy sample."""

    name: str = "asap_perturb"

    def plan(self, problem: Minimize, budget: Budget, *, sampler: str = "auto") -> Step:
        """The coldest density that the budget allows.

        ``sampler`` is "rejection", "proximal", "preconditioned" (generalized linear losses without corners) or "auto".

        >>> from dpfit.losses import Logistic
        >>> ball = L2Ball(20, 1.0)
        >>> problem = Minimize(n=10_000, loss=Logistic(), bounds=Bounds(1.0), n_features=20, domain=ball, ridge=0.01)
        >>> plan = asap_perturb.plan(problem, Budget(mu=0.5), sampler="proximal")
        >>> round(plan.guarantee.mu, 9), plan.mechanism.sampler.steps < 200
        (0.5, True)
        """
        require_records(self.name, budget)
        if not isinstance(problem, Minimize):
            raise ValueError(f"{self.name} solves a Minimize problem, not {getattr(problem, 'kind', problem)!r}")
        return planned_sample(PerturbedSample, problem, budget, sampler)

    def example(self, relation: str) -> tuple[Minimize, Any, Any]:
        """Linear losses on a wide ball, where the sample is a normal law that one record shifts by all it may."""
        problem = Minimize(
            n=6, loss=LinearLoss(), bounds=Bounds(1.0), n_features=2, domain=L2Ball(2, 30.0), ridge=1 / 6
        )
        rows = np.tile([1.0, 0.0], (6, 1))
        if relation == "add_remove":
            return problem, InMemory(rows, np.zeros(6)), InMemory(rows[:-1], np.zeros(5))
        turned = rows.copy()
        turned[-1] = [-1.0, 0.0]
        return problem, InMemory(rows, np.zeros(6)), InMemory(turned, np.zeros(6))


def allowed(promise: str, budget: Budget, strong_convexity: float, change: Change) -> float:
    """The inverse temperature of the coldest exact sample that a promise allows under a budget, without noise.

    >>> round(allowed("bounded_range", Budget(epsilon=1.5), 1.0, Change(lipschitz=1.0, range=6.0)), 9)
    0.25
    """
    return _temperature(calibrate(lambda level: _ideal(promise, 1 / level), budget), strong_convexity, change)


def _ideal(promise: str, size: float) -> GaussianPrivate | BoundedRange:
    return GaussianPrivate(size) if promise == "gdp" else BoundedRange(size)


def _temperature(ideal: Event, strong_convexity: float, change: Change) -> float:
    """The inverse of `exact_sample`, rounded down."""
    if isinstance(ideal, GaussianPrivate):
        return _DOWN * ideal.mu**2 * strong_convexity / change.lipschitz**2
    if isinstance(ideal, BoundedRange):
        return _DOWN * ideal.epsilon / change.range
    raise TypeError(f"no sample does {ideal.kind!r}")


def promises(budget: Budget) -> tuple[str, ...]:
    """Those that can meet a budget: a density with normal tails is not pure."""
    return ("bounded_range",) if budget.kind == "pure" else tuple(PROMISES)


def planned_sample(made: type[PerturbedSample], problem: Minimize, budget: Budget, sampler: str, **own: Any) -> Step:
    """The coldest sample that the budget allows, by whichever promise allows more; ``own`` are fields of its kind."""
    require_strongly_convex(problem)
    strong, change = problem.n * problem.ridge, made.change(problem, budget.relation)
    promise = max(promises(budget), key=lambda name: allowed(name, budget, strong, change))
    noise = "l2_laplace" if budget.kind == "pure" else "gaussian"
    share = NOISE_SHARE[promise, noise]
    rest = math.sqrt(1 - share**2) if promise == "gdp" else 1 - share

    def stages(level: float) -> _Stages:
        added = Gaussian(level / share) if noise == "gaussian" else L2Laplace(level / share, problem.dimension)
        return _Stages(_ideal(promise, rest / level), added)

    fitted = calibrate(stages, budget)
    t, multiplier = _temperature(fitted.ideal, strong, change), fitted.noise.noise_multiplier
    drawn = planned_sampler(sampler, problem, t, noise, multiplier)
    sample = _proven(made(problem, budget.relation, t, drawn, noise, multiplier, promise, **own))
    return Step(sample, sample_basis(problem, budget, promise, sample.sampler))


class _Stages(NamedTuple):
    """An exact sample, then noise."""

    ideal: GaussianPrivate | BoundedRange
    noise: Gaussian | L2Laplace

    @property
    def event(self) -> Event:
        return Composed((self.ideal, self.noise))


def _proven(sample: PerturbedSample) -> PerturbedSample:
    """The sample, paying for what rounding can do with a little of its inverse temperature, if that is worth it."""
    whole, radius, share = sample.ideal, bounded_domain(sample.problem).radius(), 0.0
    while isinstance(sample.sampler, GibbsRejection) and share <= _WORTH:
        t = sample.inverse_temperature * (1 - share) ** (2 if sample.promise == "gdp" else 1)
        distance = min(unseen(sample.problem, t, sample.noise, sample.noise_multiplier), radius / 8)
        bound = rejection_rounding(sample.farthest(sample.problem), sample.relation, t, distance)
        if bound is None:
            break
        price = _level(bound.undisplaced(whole)) / _level(whole) - 1
        if price <= share:
            return replace(sample, inverse_temperature=t, sampler=GibbsRejection(bound))
        share = 1.01 * price
    return sample


def _level(event: Event) -> float:
    """The mu of a Gaussian promise, the epsilon of another."""
    if isinstance(event, GaussianPrivate):
        return event.mu
    if isinstance(event, BoundedRange):
        return event.epsilon
    raise TypeError(f"no sample does {event.kind!r}")


def sample_basis(problem: Minimize, budget: Budget, promise: str, sampler: Sampler) -> Basis:
    """What a certified sample rests on."""
    assumptions, arithmetic = sample_assumptions(problem, budget), "idealised"
    if isinstance(sampler, GibbsRejection) and sampler.rounding is not None:
        arithmetic = "bounded"
        if budget.relation == "add_remove":
            # Sums of more numbers round more; counting the records instead would be a decision that depends on them.
            most = most_records(problem, budget.relation)
            assumptions += (Assumption(f"there are at most {most} records", "declared"),)
    theorem = f"{PROMISES[promise]}, perturbed [ASAP, Theorem 2]"
    return vouched(Basis(theorem, budget.relation, budget.unit, assumptions, arithmetic), problem.loss)


def sample_assumptions(problem: Minimize, budget: Budget) -> tuple[Assumption, ...]:
    """What the promise of an exact sample assumes."""
    assumptions = [
        Assumption("rows and labels are scaled and clamped into the declared bounds", "enforced"),
        Assumption("the losses are convex and their constants hold within these bounds", problem.loss.status),
    ]
    if budget.relation == "add_remove":
        assumptions.append(Assumption("the number n that scales the ridge was not read off the data", "declared"))
    return tuple(assumptions)


asap_perturb = ApproximateSamplePerturbation()
