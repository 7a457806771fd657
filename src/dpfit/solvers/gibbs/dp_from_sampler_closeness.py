"""One sample as it comes from a sampler, with the guarantee that its certificate allows.

If an exact sample is private, then so is a draw whose distribution is close to it on every dataset:
a certificate turns the event of the exact sample into that of the draw. Total variation xi costs (1
+ exp(epsilon)) xi in delta. Gaussian closeness a costs 2 a in mu. A bounded density ratio costs
twice its logarithm in epsilon. (Closeness in (epsilon, delta), three times in a row, costs more
than three deltas: `dpfit.theory.closeness`.) No noise is added: the sample is released with all its
digits.

Guarantee: that of the certificate. Without one the plan refuses, unless ``allow_uncertified``: then
the guarantee is that of an exact sample, on the declared assumption that the sampler has converged.
Arithmetic: idealised. Reference: [GT20] Section 1.2 (corrected), [Liu24] Theorem 3.6.4 (corrected);
docs/explanation/gibbs.md, section 7, and docs/explanation/certificates.md, sections 2 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from dpfit.core import (
    Algorithm,
    Example,
    Mechanism,
    Minimize,
    Plan,
    Requirement,
    Risk,
    Run,
    Step,
    Work,
)
from dpfit.core.algorithm import CONVEX, RIDGE
from dpfit.data.view import View
from dpfit.losses.custom import declared_basis
from dpfit.noise import Source
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.calibrate import AtLevel
from dpfit.privacy.code import code_fingerprint, qualified_name
from dpfit.privacy.event import BoundedRange, Event, Gaussian, GaussianPrivate
from dpfit.privacy.spec import Missing, Spec
from dpfit.privacy.validate import option, positive
from dpfit.samplers.certificate import (
    Certificate,
    NotCertified,
    Uncertified,
    WithinGaussian,
    WithinRenyi,
)
from dpfit.samplers.certified_langevin import CertifiedLangevin, plan_langevin
from dpfit.samplers.markov import chain_target
from dpfit.samplers.potential import Floats, Potential, bounded_domain
from dpfit.samplers.proximal_sampler_winf import ProximalSampler
from dpfit.solvers.gibbs.asap_perturb import AsapPerturb
from dpfit.solvers.gibbs.perturbed_sample import BALL_OR_BOX, PROMISES, LossSensitivity
from dpfit.solvers.gibbs.sample_budget import SampleBudget, work_assumption
from dpfit.solvers.gibbs.sampler_choice import GibbsTarget

CLOSENESS = 0.0005
"""The part of mu that closeness costs for each of two neighbouring datasets."""
_DOWN = 1 - 1e-11
_PASSES_PER_STEP = 7.0


_BALL_BOX_OR_WHOLE_SPACE = Requirement(
    f"{BALL_OR_BOX.text}, or a certificate for the whole space",
    f"{BALL_OR_BOX.hint}; or leave domain out and pass certificate=WithinRenyi(...)",
    lambda problem, budget, options: (
        BALL_OR_BOX.holds(problem, budget, options)
        or (problem.region is None and options.get("certificate") is not None)
    ),
)


class Sampler(Protocol):
    """What draws from a potential: a Spec, or any object of the caller."""

    @property
    def certificate(self) -> Certificate:
        """How far its law is from the target, for every dataset."""

    def draw(
        self,
        target: Potential,
        chains: int,
        source: Source,
        progress: Callable[[float], None] | None = None,
    ) -> Floats:
        """Independent draws, (chains, d)."""


@dataclass(frozen=True)
class DeclaredSampler(Spec):
    """A sampler of the caller that is no Spec, with the certificate that it offers."""

    sampler: Any
    certificate: Certificate

    def __post_init__(self) -> None:
        require_offered(self.sampler, self.certificate)

    @property
    def steps(self) -> float | None:
        """How many steps a draw takes, if the sampler says so."""
        return getattr(self.sampler, "steps", None)

    def draw(
        self,
        target: Potential,
        chains: int,
        source: Source,
        progress: Callable[[float], None] | None = None,
    ) -> Floats:
        """Independent draws, (chains, d)."""
        return np.asarray(self.sampler.draw(target, chains, source, progress))

    def to_json(self) -> dict[str, Any]:
        kind = type(self.sampler)
        code = code_fingerprint(kind, getattr(kind, "draw", None))
        return MissingSampler(qualified_name(kind), code, self.certificate, self.steps).to_json()


@dataclass(frozen=True)
class MissingSampler(Missing, Spec):
    """Stands for a caller's sampler in a plan read from a file; the guarantee is the same."""

    kind = "declared_sampler"
    name: str
    function_fingerprint: str
    certificate: Certificate
    steps: float | None = None

    def refuse(self) -> ValueError:
        return ValueError(
            f"the plan needs the code of the sampler {self.name!r}, which files do not hold; "
            "plan again with "
            "dp_from_sampler_closeness.plan(..., sampler=...)"
        )


@dataclass(frozen=True)
class CertifiedSample(Mechanism):
    """Draw of a sampler whose distribution is close to a Gibbs density, without noise.

    Guarantee: what ``certificate`` leaves of that of an exact sample. ``promise`` names the theorem
    for the latter.
    """

    kind = "certified_sample"
    problem: Minimize
    relation: str
    inverse_temperature: float
    sampler: Spec
    certificate: Certificate
    promise: str = "gdp"
    allow_uncertified: bool = False

    def __post_init__(self) -> None:
        option("relation", self.relation, ("replace", "add_remove"))
        option("promise", self.promise, tuple(PROMISES))
        positive("inverse_temperature", self.inverse_temperature)
        require_offered(self.sampler, self.certificate)
        self._density.check(self.sampler, self.relation)
        _ = self.event

    @property
    def _density(self) -> GibbsTarget:
        """The density, in public facts."""
        return GibbsTarget(self.problem, self.inverse_temperature)

    @property
    def ideal(self) -> Event:
        """The event of an exact sample."""
        strong, change = (
            self.problem.n * self.problem.ridge,
            LossSensitivity.of(self.problem, self.relation),
        )
        return change.exact_sample(self.promise, self.inverse_temperature, strong)

    @property
    def event(self) -> Event:
        return implemented(self.certificate, self.ideal, self.allow_uncertified)

    @property
    def work(self) -> Work:
        steps = getattr(self.sampler, "steps", None)
        each = getattr(self.sampler, "passes_per_step", _PASSES_PER_STEP)
        passes = math.inf if steps is None else each * steps
        return Work(passes=passes, most_passes=self.cap if math.isfinite(self.cap) else 0.0)

    @property
    def cap(self) -> float:
        """The most passes of a draw of the default chain for losses that the caller wrote.

        Infinite for other losses. A sampler of the caller has no cap.
        """
        if not isinstance(self.sampler, ProximalSampler):
            return math.inf
        return self._density.cap(self.sampler, _PASSES_PER_STEP * self.sampler.steps)

    @property
    def risk(self) -> Risk:
        excess = self.problem.dimension / (self.inverse_temperature * self.problem.n)
        return Risk(
            excess,
            "excess regularized empirical risk of the exact sample (proven bound)",
            proven=True,
        )

    def run(self, data: View, run: Run) -> Floats:
        return self.run_many(data, run, 1)[0]

    def run_many(self, data: View, run: Run, count: int) -> Sequence[Floats]:
        """Draw independent samples."""
        target = chain_target(self.problem, data, self.inverse_temperature)
        limits = count * self.cap, self._density.slope_limit
        return list(target.draw_within(*limits, self.sampler, count, run.noise, run.progress))


def implemented(certificate: Certificate, ideal: Event, allow_uncertified: bool = False) -> Event:
    """Return the event of one draw of a sampler, if an exact sample has the event ``ideal``.

    >>> implemented(WithinGaussian(0.01), GaussianPrivate(0.5))
    GaussianPrivate(mu=0.52)
    """
    if isinstance(certificate, Uncertified) and allow_uncertified:
        return ideal
    return certificate.event(ideal)


def require_offered(sampler: Any, certificate: Certificate) -> None:
    """Refuse a certificate unless the sampler gives it or a smaller one of its kind."""
    for name in ("certificate", "gaussian_certificate"):
        given = getattr(sampler, name, None)
        if isinstance(given, Certificate) and given.implies(certificate):
            return
    raise NotCertified(
        f"the sampler does not give the certificate {certificate.kind!r} that the guarantee "
        "rests on"
    )


class DpFromSamplerCloseness(Algorithm[Minimize]):
    """Sample without noise from a sampler whose distribution is close to a Gibbs density.

    Use it for a sampler of your own with a certificate; use `asap_perturb` else.
    Guarantee: that of the certificate. Pure epsilon needs a certificate of the caller.
    Reference: [GT20] Section 1.2, corrected; [Liu24] Theorem 3.6.4, corrected.
    """

    name = "dp_from_sampler_closeness"
    summary = "one sample as it comes from a sampler, with the promise that its certificate allows"
    reference = "[GT20] Section 1.2, corrected; [Liu24] Theorem 3.6.4, corrected"
    solves = Minimize
    guarantees = ("approximate", "gdp", "zcdp")
    requires = (CONVEX, RIDGE, _BALL_BOX_OR_WHOLE_SPACE)
    supports = frozenset({"ridge", "domain"})

    def require(
        self, problem: Any, budget: Budget, options: Mapping[str, Any] | None = None
    ) -> None:
        """Refuse what declared facts exclude; pure budgets only if the default chain draws."""
        if budget.kind == "pure" and (options or {}).get("certificate") is not None:
            budget = replace(budget, delta=0.5)
        super().require(problem, budget, options)

    def _plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        certificate: Certificate | None = None,
        sampler: Callable[[float], Sampler] | None = None,
        allow_uncertified: bool = False,
    ) -> Plan:
        """Return a sample of the largest inverse temperature within the budget, by the sampler.

        By default a proximal chain draws, long enough to be hard to tell from its target. Else
        ``certificate`` says how close the sampler comes, for every dataset, and ``sampler`` makes
        it from the inverse temperature. For a certificate of kind `WithinRenyi` and a smooth loss
        without a domain, a Langevin chain is planned: its steps grow like the square of the order.

        >>> from dpfit.geometry import L2Ball
        >>> from dpfit.losses import Bounds, Logistic
        >>> ball = L2Ball(20, 1.0)
        >>> problem = Minimize(
        ...     n=10_000,
        ...     loss=Logistic(),
        ...     bounds=Bounds(1.0),
        ...     n_features=20,
        ...     domain=ball,
        ...     ridge=0.01,
        ... )
        >>> plan = dp_from_sampler_closeness.plan(problem, Budget(mu=0.5))
        >>> round(plan.guarantee.mu, 6), round(plan.final.ideal.mu, 6)
        (0.5, 0.4995)
        """
        planned = isinstance(certificate, WithinRenyi)
        if (certificate is None) != (sampler is None) and not (planned and sampler is None):
            raise ValueError("give both a certificate and a sampler that has it, or neither")
        if certificate is None:
            mu = _DOWN / calibrate(Gaussian, budget).noise_multiplier
            certificate = WithinGaussian(CLOSENESS * mu)
            budget = Budget(mu=mu, unit=budget.unit, relation=budget.relation)
        SampleBudget(problem, budget).check_declarations()
        pure = budget.kind == "pure"
        temperature = self._coldest(problem, budget, certificate, pure, allow_uncertified)
        if sampler is None:
            make = certified_langevin if planned else proximal
            drawn: Any = make(problem, temperature, certificate, budget.relation)
        else:
            drawn = sampler(temperature)
        if not isinstance(drawn, Spec):
            drawn = DeclaredSampler(drawn, certificate)
        promise = "bounded_range" if pure else "gdp"
        mechanism = CertifiedSample(
            problem, budget.relation, temperature, drawn, certificate, promise, allow_uncertified
        )
        basis = _basis(problem, budget, promise, certificate, brought=sampler is not None)
        declared = (*basis.assumptions, *work_assumption(mechanism.cap))
        return Step(mechanism, replace(basis, assumptions=declared))

    def _coldest(
        self,
        problem: Minimize,
        budget: Budget,
        certificate: Certificate,
        pure: bool,
        allow_uncertified: bool,
    ) -> float:
        """Return the inverse temperature at which the implemented event just meets the budget."""

        def sample(level: float) -> AtLevel:
            ideal = BoundedRange(1 / level) if pure else GaussianPrivate(1 / level)
            return AtLevel(implemented(certificate, ideal, allow_uncertified), level)

        ideal, change = (
            1 / calibrate(sample, budget).level,
            LossSensitivity.of(problem, budget.relation),
        )
        if pure:
            return _DOWN * ideal / change.range
        return _DOWN * ideal**2 * problem.n * problem.ridge / change.lipschitz**2

    def example(self, relation: str) -> Example:
        """That of `asap_perturb`."""
        return AsapPerturb().example(relation)


def certified_langevin(
    problem: Minimize, inverse_temperature: float, certificate: Certificate, relation: str
) -> CertifiedLangevin:
    """Return the Langevin chain that is as close to its target as the certificate says."""
    if not isinstance(certificate, WithinRenyi):
        raise NotCertified(f"the Langevin chain gives no certificate of kind {certificate.kind!r}")
    target = GibbsTarget(problem, inverse_temperature).smooth_target(relation)
    divergence = min(certificate.forward, certificate.backward)
    return plan_langevin(certificate.order, divergence, target)


def proximal(
    problem: Minimize, inverse_temperature: float, certificate: Certificate, relation: str
) -> ProximalSampler:
    """Return the proximal chain that is as close to its target as the certificate says."""
    if not isinstance(certificate, WithinGaussian):
        raise NotCertified(f"the proximal chain gives no certificate of kind {certificate.kind!r}")
    step_size = GibbsTarget(problem, inverse_temperature).proximal("gaussian", 1.0).step_size
    radius, strong = (
        bounded_domain(problem).radius(),
        _DOWN * inverse_temperature * problem.n * problem.ridge,
    )
    # Closeness is the distance one step before the last, over the deviation of that step's noise.
    distance = _DOWN * min(certificate.mu * math.sqrt(step_size), radius)
    before = ProximalSampler.within(distance, strong, radius, step_size)
    return ProximalSampler(strong, radius, step_size, before.steps + 1)


def _basis(
    problem: Minimize, budget: Budget, promise: str, certificate: Certificate, brought: bool
) -> Basis:
    """Return why the sample is private; the certificate of a caller's sampler is declared."""
    theorem, assumptions = f"{PROMISES[promise]}, and", SampleBudget(problem, budget).assumptions
    if isinstance(certificate, Uncertified):
        theorem = f"{theorem} nothing that says how near the sampler comes"
        word = Assumption(
            "NOT CERTIFIED: the sampler draws from its target on every dataset", "declared"
        )
        assumptions = (*assumptions, word)
    else:
        theorem = f"{theorem} closeness to it (docs/explanation/certificates.md, section 2)"
        if brought:
            word = Assumption(
                f"the sampler is as close as {certificate.kind} says, on every dataset", "declared"
            )
            assumptions = (*assumptions, word)
        elif isinstance(certificate, WithinRenyi) and budget.relation == "add_remove":
            # The smoothness of the potential grows with the number of records.
            most = problem.max_records(budget.relation)
            word = Assumption(f"there are at most {most} records", "declared")
            assumptions = (*assumptions, word)
    return declared_basis(
        Basis(theorem, budget.relation, budget.unit, assumptions, "idealised"), problem.loss
    )


dp_from_sampler_closeness = DpFromSamplerCloseness()
