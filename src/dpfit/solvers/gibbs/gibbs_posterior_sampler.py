"""One sample of a posterior by Langevin steps that are private whether they have converged or not.

The target is proportional to exp(-t (sum of losses + (n ridge / 2) norm(theta)**2)), n being the declared number: a
posterior whose likelihood is raised to the power t, with a normal prior of precision t n ridge. One Langevin step of
length h on it is a step of noisy gradient descent with step size h t n and noise sqrt(2 h), so the chain is that of
`last_iterate_gd`, and its last state is mu-GDP by the contraction of its steps. An exact sample is mu-GDP with
mu = lipschitz * sqrt(t / (n ridge)); the chain is never less private than that, after any number of steps.

Guarantee: mu-GDP for every dataset; no convergence is assumed. How close the sample is to the target is a matter of
accuracy only. Arithmetic: idealised, as for `last_iterate_gd`.
Reference: [GT20] Section 1.2 (application), with the privacy of [LD] Lemma I.2, sharpened; docs/explanation/gibbs.md,
section 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from dpfit.core import Minimize, Risk, Step
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.check import positive
from dpfit.privacy.event import Gaussian
from dpfit.solvers.gradient.last_iterate_gd import LastIterateGD, last_iterate_basis, last_iterate_gd, smoothness
from dpfit.solvers.gradient.noisy_gd import require_minimize
from dpfit.solvers.gradient.scales import change, unclipped

_MOST_STEPS = 2**20
"""What the accountant is proven for."""


@dataclass(frozen=True)
class LangevinSample(LastIterateGD):
    """The chain; all fields are public. Its noise and its step size say which density it samples."""

    kind = "langevin_sample"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.step_size * self._curved < 1:
            raise ValueError("step_size must be below 1 / (smoothness + ridge), or the chain is far from its target")

    @property
    def inverse_temperature(self) -> float:
        """The t of the target: noise**2 = 2 step_size / (n t)."""
        return 2 * self.step_size / (self.problem.n * self.noise**2)

    @property
    def risk(self) -> Risk:
        """What the chain's stationary law exceeds the minimum by, and what is left of the start.

        Proof: docs/explanation/gibbs.md, section 1.
        """
        problem, left = self.problem, self.contraction**self.steps
        ideal = problem.dimension / (self.inverse_temperature * problem.n)
        if problem.domain is None:
            stationary = ideal / (1 - self.step_size * self._curved / 2)
            away = left * (self.clip / problem.ridge + math.sqrt(stationary / problem.ridge))
            remaining = away * math.sqrt(self._curved * stationary) + self._curved * away**2 / 2
        else:
            stationary = ideal / (1 - self.step_size * self._curved)
            steepest = self.clip + problem.ridge * problem.domain.reach()
            remaining = steepest * left * problem.domain.diameter()
        return Risk(stationary + remaining, "excess regularized empirical risk (proven bound)")

    @property
    def _curved(self) -> float:
        return smoothness(self.problem) + self.problem.ridge


@dataclass(frozen=True)
class GibbsPosteriorSampler:
    """Plans a posterior sample."""

    name: str = "gibbs_posterior_sampler"

    def plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        prior_precision: float | None = None,
        tolerance: float = 1e-3,
        step: float = 0.5,
        clip: float | None = None,
    ) -> Step:
        """The coldest posterior that the budget allows, by as many steps as bring the start down to ``tolerance``.

        The prior is that of the problem's ridge, or normal with ``prior_precision``. ``step`` is relative to
        1 / smoothness: a quadratic of that smoothness is sampled with a variance too large by 1 / (1 - step / 2), one
        of less curvature by less.

        >>> from dpfit.losses import Bounds, Logistic
        >>> problem = Minimize(n=10_000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=20, ridge=0.01)
        >>> plan = gibbs_posterior_sampler.plan(problem, Budget(epsilon=1, delta=1e-6))
        >>> plan.mechanism.steps, round(plan.mechanism.inverse_temperature, 2)
        (356, 1.42)
        """
        require_minimize(self.name, problem, budget)
        if not (0 < positive("tolerance", tolerance) < 1 and 0 < positive("step", step) < 1):
            raise ValueError("tolerance and step must lie strictly between 0 and 1")
        limit = unclipped(problem) if clip is None else positive("clip", clip)
        if not math.isfinite(limit):
            raise ValueError("the gradients of this loss have no bound here: give clip=, or bound labels or slopes")
        mu = 1 / calibrate(Gaussian, budget).noise_multiplier

        def chain(ridge: float) -> LangevinSample:
            return _chain(replace(problem, ridge=ridge), budget.relation, mu, tolerance, step, limit)

        if prior_precision is None:
            if not problem.ridge > 0:
                raise ValueError(f"{self.name} needs a prior: a ridge above zero, or prior_precision=")
            return _planned(chain(problem.ridge), budget)
        if problem.ridge:
            raise ValueError("give the problem a ridge or the plan a prior_precision, not both")
        precision = positive("prior_precision", prior_precision) / problem.n
        # An exact sample would have t = mu sqrt(precision) / lipschitz; that of the chain is near it, and inversely
        # proportional to the ridge but for the length of its steps.
        temperature = mu * math.sqrt(precision * problem.n) / change(problem, limit, budget.relation)
        for _ in range(20):
            temperature = math.sqrt(temperature * chain(precision / temperature).inverse_temperature)
        return _planned(chain(precision / temperature), budget)

    def example(self, relation: str) -> tuple[Minimize, Any, Any]:
        """The records of `last_iterate_gd`."""
        return last_iterate_gd.example(relation)


def _chain(problem: Minimize, relation: str, mu: float, tolerance: float, step: float, clip: float) -> LangevinSample:
    """The chain of the least noise that is mu-GDP."""
    size = step / (smoothness(problem) + problem.ridge)
    steps = math.ceil(math.log(tolerance) / math.log1p(-size * problem.ridge))
    if steps > _MOST_STEPS:
        raise ValueError(
            f"the chain would need {steps} steps, and at most {_MOST_STEPS} can be accounted for: "
            "take a larger ridge (or prior_precision), tolerance or step"
        )
    chain = LangevinSample(problem, relation, 1.0, steps, size, clip)
    chain = replace(chain, noise=chain.shift)
    # mu is proportional to 1 / noise, but for a bounded domain; a few rounds settle that.
    while not mu * (1 - 1e-9) <= (reached := chain.event.mu) <= mu:
        chain = replace(chain, noise=chain.noise * reached / mu * (1 + 2.0**-45))
    return chain


def _planned(chain: LangevinSample, budget: Budget) -> Step:
    return Step(chain, last_iterate_basis(chain, budget))


gibbs_posterior_sampler = GibbsPosteriorSampler()
