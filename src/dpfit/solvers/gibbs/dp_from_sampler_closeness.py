"""One sample as it comes from a sampler, with the promise that its certificate allows.

If an exact sample is private and the sampler's law is close to it on every dataset, then so is the sampler's: a
certificate turns the event of the ideal mechanism into that of what is run. Total variation xi costs
(1 + exp(epsilon)) xi in delta; Gaussian closeness a costs 2 a in mu; a bounded density ratio costs twice its logarithm
in epsilon. (Closeness in (epsilon, delta), three times in a row, costs more than three deltas, as is sometimes said:
`dpfit.theory.closeness`.) No noise is added: what is released is the sample, with all its digits.

Guarantee: that of the certificate. Without one the plan refuses, unless ``allow_uncertified``: then the promise is that
of an exact sample, on the declared assumption that the sampler has converged. Arithmetic: idealised.
Reference: [GT20] Section 1 (corrected), [Liu24] Theorem 3.6.4 (corrected); docs/explanation/gibbs.md, section 7, and
docs/explanation/certificates.md, sections 2 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dpfit.core import Mechanism, Minimize, Risk, Run, Step, Work, require_records
from dpfit.losses.custom import vouched
from dpfit.noise import Source
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.calibrate import AtLevel
from dpfit.privacy.check import one_of, positive
from dpfit.privacy.event import BoundedRange, Event, Gaussian, GaussianPrivate
from dpfit.privacy.spec import Spec
from dpfit.samplers.certificate import Certificate, NotCertified, Uncertified, WithinGaussian
from dpfit.samplers.potential import Floats, Potential, bounded_domain, gibbs
from dpfit.samplers.proximal_sampler_winf import ProximalSampler
from dpfit.solvers.gibbs.asap_perturb import (
    PROMISES,
    PerturbedSample,
    asap_perturb,
    chain,
    exact_sample,
    require_strongly_convex,
    sample_assumptions,
)
from dpfit.solvers.perturbation.output_perturbation import require_data

CLOSENESS = 0.0005
"""The part of mu that each of two datasets pays for the sampler."""
_DOWN = 1 - 1e-11
_PASSES_PER_STEP = 7.0


class Sampler(Protocol):
    """What draws from a potential; a frozen record of public numbers."""

    @property
    def certificate(self) -> Certificate:
        """How far its law is from the target, for every dataset."""

    def draw(
        self, target: Potential, chains: int, source: Source, progress: Callable[[float], None] | None = None
    ) -> Floats:
        """Independent draws, (chains, d)."""


@dataclass(frozen=True)
class CertifiedSample(Mechanism):
    """The sample; all fields are public. ``promise`` says by which theorem an exact sample is private."""

    kind = "certified_sample"
    problem: Minimize
    relation: str
    inverse_temperature: float
    sampler: Spec
    certificate: Certificate
    promise: str = "gdp"
    allow_uncertified: bool = False

    def __post_init__(self) -> None:
        one_of("relation", self.relation, ("replace", "add_remove"))
        one_of("promise", self.promise, tuple(PROMISES))
        positive("inverse_temperature", self.inverse_temperature)
        require_strongly_convex(self.problem)
        require_offered(self.sampler, self.certificate)
        if isinstance(self.sampler, ProximalSampler):
            strong = self.inverse_temperature * self.problem.n * self.problem.ridge
            if self.sampler.strong_convexity > strong or self.sampler.radius < bounded_domain(self.problem).radius():
                raise ValueError(
                    "the sampler's certificate is for a target that is more convex, or on a smaller domain"
                )
        _ = self.event

    @property
    def ideal(self) -> Event:
        """What an exact sample does."""
        strong, change = self.problem.n * self.problem.ridge, PerturbedSample.change(self.problem, self.relation)
        return exact_sample(self.promise, self.inverse_temperature, strong, change)

    @property
    def event(self) -> Event:
        return implemented(self.certificate, self.ideal, self.allow_uncertified)

    @property
    def work(self) -> Work:
        steps = getattr(self.sampler, "steps", None)
        passes = math.inf if steps is None else _PASSES_PER_STEP * steps
        return Work(passes=passes)

    @property
    def risk(self) -> Risk:
        excess = self.problem.dimension / (self.inverse_temperature * self.problem.n)
        return Risk(excess, "excess regularized empirical risk of the exact sample (proven bound)")

    def run(self, data: Any, run: Run) -> Floats:
        return self.run_many(data, run, 1)[0]

    def run_many(self, data: Any, run: Run, count: int) -> Sequence[Floats]:
        """Independent draws."""
        sampler: Any = self.sampler
        records = require_data(data, self.problem, self.relation)
        target = gibbs(self.problem, records, self.inverse_temperature)
        return list(sampler.draw(target, count, run.noise, run.progress))


def implemented(certificate: Certificate, ideal: Event, allow_uncertified: bool = False) -> Event:
    """What releasing one draw of a sampler does, if releasing an exact one does ``ideal``.

    >>> implemented(WithinGaussian(0.01), GaussianPrivate(0.5))
    GaussianPrivate(mu=0.52)
    """
    if isinstance(certificate, Uncertified) and allow_uncertified:
        return ideal
    return certificate.event(ideal)


def require_offered(sampler: Any, certificate: Certificate) -> None:
    """Refuse a certificate that the sampler does not give: the same, or of its kind and with a smaller number."""
    for name in ("certificate", "gaussian_certificate"):
        given = getattr(sampler, name, None)
        if given == certificate:
            return
        if type(given) is type(certificate) and len(vars(certificate)) == 1:
            (reached,), (asked,) = vars(given).values(), vars(certificate).values()
            if reached <= asked:
                return
    raise NotCertified(f"the sampler does not give the certificate {certificate.kind!r} that the promise rests on")


@dataclass(frozen=True)
class SampleFromCloseness:
    """Plans a sample from a sampler that is close to its target."""

    name: str = "dp_from_sampler_closeness"

    def plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        certificate: Certificate | None = None,
        sampler: Callable[[float], Sampler] | None = None,
        allow_uncertified: bool = False,
    ) -> Step:
        """The coldest density whose sample, drawn by the sampler, meets the budget.

        By default a proximal chain, long enough to be hard to tell from its target. Else ``certificate`` is how close
        the sampler comes, for every dataset, and ``sampler`` makes it from the inverse temperature.

        >>> from dpfit.geometry import L2Ball
        >>> from dpfit.losses import Bounds, Logistic
        >>> ball = L2Ball(20, 1.0)
        >>> problem = Minimize(n=10_000, loss=Logistic(), bounds=Bounds(1.0), n_features=20, domain=ball, ridge=0.01)
        >>> plan = dp_from_sampler_closeness.plan(problem, Budget(mu=0.5))
        >>> round(plan.guarantee.mu, 6), round(plan.mechanism.ideal.mu, 6)
        (0.5, 0.4995)
        """
        require_records(self.name, budget)
        if not isinstance(problem, Minimize):
            raise ValueError(f"{self.name} solves a Minimize problem, not {getattr(problem, 'kind', problem)!r}")
        require_strongly_convex(problem)
        if (certificate is None) != (sampler is None):
            raise ValueError("give both a certificate and a sampler that has it, or neither")
        if certificate is None or sampler is None:
            mu = _DOWN / calibrate(Gaussian, budget).noise_multiplier
            certificate = WithinGaussian(CLOSENESS * mu)
            budget = Budget(mu=mu, unit=budget.unit, relation=budget.relation)
        pure = budget.kind == "pure"
        temperature = self._coldest(problem, budget, certificate, pure, allow_uncertified)
        drawn: Any = proximal(problem, temperature, certificate) if sampler is None else sampler(temperature)
        promise = "bounded_range" if pure else "gdp"
        mechanism = CertifiedSample(
            problem, budget.relation, temperature, drawn, certificate, promise, allow_uncertified
        )
        return Step(mechanism, _basis(problem, budget, promise, certificate, brought=sampler is not None))

    def _coldest(
        self, problem: Minimize, budget: Budget, certificate: Certificate, pure: bool, allow_uncertified: bool
    ) -> float:
        """The inverse temperature at which the implemented event just meets the budget."""

        def sample(level: float) -> AtLevel:
            ideal = BoundedRange(1 / level) if pure else GaussianPrivate(1 / level)
            return AtLevel(implemented(certificate, ideal, allow_uncertified), level)

        ideal, change = 1 / calibrate(sample, budget).level, PerturbedSample.change(problem, budget.relation)
        if pure:
            return _DOWN * ideal / change.range
        return _DOWN * ideal**2 * problem.n * problem.ridge / change.lipschitz**2

    def example(self, relation: str) -> tuple[Minimize, Any, Any]:
        """That of `asap_perturb`."""
        return asap_perturb.example(relation)


def proximal(problem: Minimize, inverse_temperature: float, certificate: Certificate) -> ProximalSampler:
    """The proximal chain, with the steps of `asap_perturb`, that is as close to its target as the certificate says."""
    if not isinstance(certificate, WithinGaussian):
        raise NotCertified(f"the proximal chain gives no certificate of kind {certificate.kind!r}")
    step_size, radius = chain(problem, inverse_temperature, "gaussian", 1.0).step_size, bounded_domain(problem).radius()
    strong = _DOWN * inverse_temperature * problem.n * problem.ridge
    # Closeness is the distance one step before the last, over the deviation of that step's noise.
    distance = _DOWN * min(certificate.mu * math.sqrt(step_size), radius)
    before = ProximalSampler.within(distance, strong, radius, step_size)
    return ProximalSampler(strong, radius, step_size, before.steps + 1)


def _basis(problem: Minimize, budget: Budget, promise: str, certificate: Certificate, brought: bool) -> Basis:
    """What the promise rests on; of a sampler that was brought along nothing is known but what it says."""
    theorem, assumptions = f"{PROMISES[promise]}, and", sample_assumptions(problem, budget)
    if isinstance(certificate, Uncertified):
        theorem = f"{theorem} nothing that says how near the sampler comes"
        word = Assumption("NOT CERTIFIED: the sampler draws from its target on every dataset", "declared")
        assumptions = (*assumptions, word)
    else:
        theorem = f"{theorem} closeness to it (docs/explanation/certificates.md, section 2)"
        if brought:
            word = Assumption(f"the sampler is as close as {certificate.kind} says, on every dataset", "declared")
            assumptions = (*assumptions, word)
    return vouched(Basis(theorem, budget.relation, budget.unit, assumptions, "idealised"), problem.loss)


dp_from_sampler_closeness = SampleFromCloseness()
