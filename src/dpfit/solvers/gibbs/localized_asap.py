"""A noisy minimizer, then a certified sample in a ball around it: localized sample perturbation.

The first stage releases the minimizer of a strongly convex objective with noise. The second draws a sample of the Gibbs
density of the same objective on a ball around what was released, with a radius that the noise exceeds with probability
``miss`` only. In so small a ball the exponential mechanism can be cold: t = epsilon / (lipschitz * diameter), and exact
rejection is fast. No domain is needed. `LocalizedSample` is the same, of which only the sample is released.

Guarantee: epsilon-DP or mu-GDP for every dataset and for every first output, whether the ball holds the minimizer or
not: that is a matter of accuracy only. (The printed proof needs the ball to hold it, and so shows less.)
Reference: [ASAP] Algorithm 3, Theorem 3, with certified samplers; docs/explanation/gibbs.md, section 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from dpfit.core import Chain, Mechanism, Minimize, Risk, Run, Step, Work, require_records
from dpfit.geometry import L2Ball
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.check import positive
from dpfit.privacy.event import Event, Gaussian
from dpfit.samplers.potential import Floats, bounded_domain
from dpfit.solvers.gibbs.asap_perturb import Change, PerturbedSample, planned_sample
from dpfit.solvers.perturbation.output_perturbation import NoisyMinimizer, gradient_change, output_perturbation

SHARE = {"pure": 0.5, "gaussian": 0.1}
"""The part of epsilon, or of mu**2, for the first stage. The risk is inversely proportional to the product of the two
epsilons; under Gaussian DP the first stage is for speed only."""
_DOWN = 1 - 1e-11


@dataclass(frozen=True)
class LocalSample(PerturbedSample):
    """A sample in a ball around the last of the values released before; the ball's radius is that of the domain."""

    kind = "local_sample"

    @classmethod
    def change(cls, problem: Minimize, relation: str) -> Change:
        """What one record changes wherever the ball is: by constants that hold at every parameter."""
        lipschitz = gradient_change(problem, relation)
        return Change(lipschitz, lipschitz * bounded_domain(problem).diameter())

    @property
    def risk(self) -> Risk:
        expected = super().risk.expected
        return Risk(expected, "excess regularized empirical risk if the ball holds the minimizer (proven bound)")

    @property
    def _ball(self) -> L2Ball:
        if not isinstance(self.problem.domain, L2Ball):
            raise ValueError("a local sample is drawn in a ball")
        return self.problem.domain

    @classmethod
    def farthest(cls, problem: Minimize) -> Minimize:
        """The ball around a point that is farther out than any minimizer of up to twice n records."""
        away = np.zeros(problem.dimension)
        away[0] = 1.001 * _minimizers(problem).norm_bound
        ball = L2Ball(problem.dimension, bounded_domain(problem).radius(), tuple(away.tolist()))
        return replace(problem, domain=ball)

    def bind(self, released: tuple[Any, ...]) -> LocalSample:
        """The ball, moved to what was released last; noise that led away from all minimizers is taken back."""
        if not released:
            return self
        centre = _minimizers(self.problem).project(np.asarray(released[-1], dtype=np.float64))
        ball = replace(self._ball, centred_at=tuple(centre.tolist()))
        return replace(self, problem=replace(self.problem, domain=ball))


def _minimizers(problem: Minimize) -> L2Ball:
    """Where minimizers of up to twice n records are: there the ridge pulls as strongly as all losses can."""
    slope = problem.loss.lipschitz(problem.bounds).value
    return L2Ball(problem.dimension, 2 * slope / problem.ridge)


@dataclass(frozen=True)
class LocalizedSample(Mechanism):
    """The stages as one step that keeps all but the last value inside."""

    kind = "localized_sample"
    stages: Chain

    @property
    def event(self) -> Event:
        return self.stages.event

    @property
    def work(self) -> Work:
        return self.stages.work

    @property
    def risk(self) -> Risk | None:
        return self.stages.risk

    def run(self, data: Any, run: Run) -> Floats:
        return np.asarray(self.stages.execute(data, run)[-1])

    def run_many(self, data: Any, run: Run, count: int) -> Sequence[Floats]:
        """Many draws, of which the minimizer before its noise is found once."""
        return [np.asarray(released[-1]) for released in self.stages.execute_many(data, run, count)]


def local_sample(problem: Minimize, radius: float, budget: Budget, sampler: str = "auto") -> Step:
    """A sample in a ball of that radius, at first around the origin."""
    here = replace(problem, domain=L2Ball(problem.dimension, radius))
    return planned_sample(LocalSample, here, budget, sampler)


def require_local(name: str, problem: Any, budget: Budget) -> None:
    """Refuse what has no constants that hold everywhere, no certificate, or a domain."""
    require_records(name, budget)
    if not isinstance(problem, Minimize):
        raise ValueError(f"{name} solves a Minimize problem, not {getattr(problem, 'kind', problem)!r}")
    if problem.domain is not None:
        raise ValueError(f"{name} finds its own ball and cannot stay within a domain: asap_perturb can")
    if not problem.ridge > 0:
        raise ValueError(f"{name} needs a ridge above zero: it is the strong convexity that promises lean on")
    if not problem.loss.convex:
        raise ValueError(f"{name} needs a convex loss, and {problem.loss.kind!r} is not one")
    gradient_change(problem, budget.relation)


@dataclass(frozen=True)
class LocalizedSamplePerturbation:
    """Plans the two stages."""

    name: str = "localized_asap"

    def plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        share: float | None = None,
        miss: float = 0.01,
        sampler: str = "auto",
    ) -> Chain:
        """A noisy minimizer for ``share`` of the budget, a sample around it for the rest; the value is both.

        ``miss`` is the probability that the ball does not hold the minimizer.

        >>> from dpfit.losses import Bounds, Logistic
        >>> problem = Minimize(n=10_000, loss=Logistic(), bounds=Bounds(1.0), n_features=5, ridge=0.001)
        >>> plan = localized_asap.plan(problem, Budget(epsilon=1.0))
        >>> round(plan.guarantee.pure, 2), round(plan.stages[1].mechanism.problem.domain.norm_bound, 2)
        (1.0, 4.64)
        """
        require_local(self.name, problem, budget)
        if problem.objective != "empirical":
            raise ValueError(
                f"{self.name} is for the empirical objective; regularized_exp_mech also for the population"
            )
        if not 0 < positive("miss", miss) < 1:
            raise ValueError(f"miss must lie strictly between 0 and 1, got {miss!r}")
        first, second = _parts(self.name, budget, share)
        start = output_perturbation.plan(problem, first, ridge=problem.ridge)
        return Chain((start, local_sample(problem, ball_radius(start, miss), second, sampler)))

    def example(self, relation: str) -> tuple[Minimize, Any, Any]:
        """The records of `output_perturbation`, whose minimizer moves by all that it can."""
        return output_perturbation.example(relation)


def _parts(name: str, budget: Budget, share: float | None) -> tuple[Budget, Budget]:
    """The budgets of the two stages: parts of epsilon, or of mu**2."""
    pure = budget.kind == "pure"
    part = SHARE["pure" if pure else "gaussian"] if share is None else positive("share", share)
    if not 0 < part < 1:
        raise ValueError(f"share must lie strictly between 0 and 1, got {share!r}")
    if pure:
        epsilon = _DOWN * positive("epsilon", budget.epsilon)
        return replace(budget, epsilon=part * epsilon), replace(budget, epsilon=(1 - part) * epsilon)
    whole = Budget(mu=_DOWN / calibrate(Gaussian, budget).noise_multiplier, unit=budget.unit, relation=budget.relation)
    mu = positive("mu", whole.mu)
    return replace(whole, mu=math.sqrt(part) * mu), replace(whole, mu=math.sqrt(1 - part) * mu)


def ball_radius(start: Any, miss: float) -> float:
    """How far from the true minimizer the released one is, but with probability ``miss``."""
    mechanism = start.mechanism
    if not isinstance(mechanism, NoisyMinimizer):
        raise TypeError("output_perturbation plans a NoisyMinimizer")
    d, scale = mechanism.problem.dimension, mechanism.noise_multiplier * mechanism.sensitivity
    law = stats.gamma(d) if mechanism.noise == "l2_laplace" else stats.chi(d)
    return float(law.ppf(1 - miss) * scale + mechanism.accuracy.distance)


localized_asap = LocalizedSamplePerturbation()
