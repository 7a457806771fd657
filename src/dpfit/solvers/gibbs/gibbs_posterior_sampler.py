"""One posterior sample by Langevin steps that are private whether or not the chain has converged.

The target density is proportional to exp(-t (sum of losses + (n ridge / 2) norm(theta)**2)), n
being the declared number: a posterior with its likelihood raised to the power t and a normal prior
of precision t n ridge. A Langevin step of length h is a step of noisy gradient descent with step
size h t n and noise sqrt(2 h). So the chain is that of `last_iterate_gd`, and its last state is
mu-GDP by the contraction of its steps. An exact sample is mu-GDP with mu = lipschitz * sqrt(t / (n
ridge)); the chain has at most this mu after any number of steps.

Guarantee: mu-GDP for every dataset. Convergence affects accuracy only. Arithmetic: idealised, as
for `last_iterate_gd`. Reference: [GT20] Section 1.2 (application), with the privacy of [LD] Lemma
I.2, sharpened; docs/explanation/gibbs.md, section 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpfit.core import Algorithm, Example, Minimize, Plan, Risk, Step
from dpfit.core.algorithm import BOUNDED, CONVEX, SMOOTH, Requirement
from dpfit.core.examples import opposite_records
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.event import Gaussian
from dpfit.privacy.validate import positive
from dpfit.solvers.gradient.last_iterate_gd import LastIterateDescent

_MOST_STEPS = 2**20
"""Largest number of steps for which the accountant is proven."""

_PRIOR = Requirement(
    "a prior",
    "pass ridge > 0 in the problem, or prior_precision",
    lambda problem, budget, options: (
        problem.ridge > 0 or options.get("prior_precision") is not None
    ),
)


@dataclass(frozen=True)
class LangevinSample(LastIterateDescent):
    """Last state of a Langevin chain; noise and step size determine the density that it samples.

    It is a `LastIterateDescent` with a smaller step: guarantee, sensitivity and assumptions are the
    same.
    """

    kind = "langevin_sample"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.step_size * self.curvature < 1:
            raise ValueError(
                f"step_size must be below 1 / (smoothness + ridge) = {1 / self.curvature:g}, got "
                f"{self.step_size:g}: "
                "the chain would be far from its target"
            )

    @property
    def inverse_temperature(self) -> float:
        """The t of the target: noise**2 = 2 step_size / (n t)."""
        return 2 * self.step_size / (self.problem.n * self.noise**2)

    @property
    def risk(self) -> Risk:
        """Excess risk of the stationary distribution, plus what is left of the start.

        Proof: docs/explanation/gibbs.md, section 1.
        """
        problem, left = self.problem, self.contraction**self.steps
        ideal = problem.dimension / (self.inverse_temperature * problem.n)
        if problem.region is None:
            stationary = ideal / (1 - self.step_size * self.curvature / 2)
            away = left * (self.clip_norm / problem.ridge + math.sqrt(stationary / problem.ridge))
            remaining = away * math.sqrt(self.curvature * stationary) + self.curvature * away**2 / 2
        else:
            stationary = ideal / (1 - self.step_size * self.curvature)
            steepest = self.clip_norm + problem.ridge * problem.region.reach()
            remaining = steepest * left * problem.region.diameter()
        return Risk(stationary + remaining, "excess regularized empirical risk (proven bound)")


class GibbsPosteriorSampler(Algorithm[Minimize]):
    """One sample of a tempered posterior by private Langevin steps.

    Use it for a random sample with a known temperature; use `last_iterate_gd` for a point estimate.
    Guarantee: mu-GDP for every dataset, whether or not the chain has converged.
    Reference: [GT20] Section 1.2 (application); [LD] Lemma I.2, sharpened;
    docs/explanation/gibbs.md, section 1. Work: log(1 / tolerance) / (step_size * ridge) passes over
    the data, about.
    """

    name = "gibbs_posterior_sampler"
    summary = (
        "one posterior sample by Langevin steps that are private whether they have converged or not"
    )
    reference = "[GT20] Section 1.2 (application); [LD] Lemma I.2, sharpened"
    solves = Minimize
    guarantees = ("approximate", "gdp", "zcdp")
    requires = (CONVEX, SMOOTH, BOUNDED, _PRIOR)
    supports = frozenset({"ridge", "domain"})

    def _plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        prior_precision: float | None = None,
        tolerance: float = 1e-3,
        step: float = 0.5,
        clip_norm: float | None = None,
    ) -> Plan:
        """Plan the posterior of the largest inverse temperature that the budget allows.

        The prior is that of the problem's ridge, or normal with ``prior_precision``. There are as
        many steps as reduce the influence of the start to ``tolerance``. ``step`` is relative to 1
        / (smoothness + ridge): in a direction of this curvature the variance is too large by 1 / (1
        - step / 2), elsewhere by less.

        >>> from dpfit.losses import Bounds, Logistic
        >>> problem = Minimize(
        ...     n=10_000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=20, ridge=0.01
        ... )
        >>> plan = gibbs_posterior_sampler.plan(problem, Budget(epsilon=1, delta=1e-6))
        >>> plan.mechanism.steps, round(plan.mechanism.inverse_temperature, 2)
        (356, 1.42)
        """
        if not (0 < positive("tolerance", tolerance) < 1 and 0 < positive("step", step) < 1):
            raise ValueError(
                f"tolerance and step must lie strictly between 0 and 1, got {tolerance!r} and "
                f"{step!r}"
            )
        lipschitz = problem.constants(budget.relation).lipschitz
        limit = lipschitz if clip_norm is None else positive("clip_norm", clip_norm)
        mu = 1 / calibrate(Gaussian, budget).noise_multiplier

        def chain(ridge: float) -> LangevinSample:
            return _chain(
                replace(problem, ridge=ridge), budget.relation, mu, tolerance, step, limit
            )

        if prior_precision is None:
            sample = chain(problem.ridge)
        elif problem.ridge:
            raise ValueError("ridge and prior_precision must not both be given; leave one out")
        else:
            precision = positive("prior_precision", prior_precision) / problem.n
            # An exact sample would have t = mu sqrt(precision) / sensitivity. That of the chain is
            # near it, and inversely proportional to the ridge but for the length of its steps.
            sensitivity = problem.clipped_sensitivity(limit, budget.relation)
            temperature = mu * math.sqrt(precision * problem.n) / sensitivity
            for _ in range(20):
                temperature = math.sqrt(
                    temperature * chain(precision / temperature).inverse_temperature
                )
            sample = chain(precision / temperature)
        sample = sample.within(budget)
        return Step(sample, sample.basis(budget))

    def example(self, relation: str) -> Example:
        """Return opposite records, with a ridge."""
        return opposite_records(relation, ridge=0.1)


def _chain(
    problem: Minimize, relation: str, mu: float, tolerance: float, step: float, clip_norm: float
) -> LangevinSample:
    """Return the chain with the smallest noise that is mu-GDP."""
    size = step / (problem.constants(relation).smoothness + problem.ridge)
    steps = math.ceil(math.log(tolerance) / math.log1p(-size * problem.ridge))
    if steps > _MOST_STEPS:
        raise ValueError(
            f"the chain would need {steps} steps, and at most {_MOST_STEPS} can be accounted "
            "for; increase ridge (or "
            "prior_precision), tolerance or step"
        )
    return LangevinSample(problem, relation, 1.0, steps, size, clip_norm).with_mu(mu)


gibbs_posterior_sampler = GibbsPosteriorSampler()
