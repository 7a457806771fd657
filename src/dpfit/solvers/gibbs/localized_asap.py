"""A noisy minimizer, then a certified sample in a ball around it: localized sample perturbation.

The first stage releases the minimizer of a strongly convex objective with noise. The second stage
draws a sample of the Gibbs density of the same objective, on a ball around the released point. The
noise exceeds the radius of the ball with probability ``miss`` only. In a small ball the inverse
temperature is large, t = epsilon / (lipschitz * diameter), and exact rejection is fast. No domain
is needed.

Guarantee: epsilon-DP or mu-GDP for every dataset and every first output, whether the ball holds the
minimizer or not. That is a matter of accuracy only. (The printed proof needs the ball to hold it,
and so shows less.) Reference: [ASAP] Algorithm 3, Theorem 3, with certified samplers;
docs/explanation/gibbs.md, section 5.
"""

from __future__ import annotations

import math
from dataclasses import replace

from scipy import stats

from dpfit.core import Algorithm, Composition, Example, Minimize, Plan, Requirement, Stage
from dpfit.core.algorithm import BOUNDED_EVERYWHERE, CONVEX, NO_DOMAIN, RIDGE, SMOOTH
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.event import Gaussian
from dpfit.privacy.validate import positive
from dpfit.solvers.gibbs.perturbed_sample import BallAround
from dpfit.solvers.gibbs.sample_budget import SampleBudget
from dpfit.solvers.perturbation.output_perturbation import NoisyMinimizer, OutputPerturbation

SHARE = {"pure": 0.5, "gaussian": 0.1}
"""The part of epsilon, or of mu**2, for the first stage.

The risk is inversely proportional to the product of the two epsilons. Under GDP the first stage is
for speed only.
"""
_DOWN = 1 - 1e-11

EMPIRICAL = Requirement(
    "the empirical objective",
    "use regularized_exp_mech for the population",
    lambda problem, budget, options: problem.objective == "empirical",
)


class LocalizedAsap(Algorithm[Minimize]):
    """Noisy minimizer, then a certified sample in a ball around it; the value is both.

    Use it without a domain, for a ridge of the problem; use `asap_perturb` on a domain.
    Guarantee: that of the budget, for every dataset. Reference: [ASAP] Theorem 3, with certified
    samplers.
    """

    name = "localized_asap"
    summary = "a noisy minimizer, then a certified sample in a ball around it; needs no domain"
    reference = "[ASAP] Algorithm 3, Theorem 3, with certified samplers"
    solves = Minimize
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    requires = (
        replace(NO_DOMAIN, hint="use asap_perturb, which stays within a domain"),
        RIDGE, CONVEX, BOUNDED_EVERYWHERE, SMOOTH, EMPIRICAL,
    )  # fmt: skip
    supports = frozenset({"ridge"})

    def _plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        share: float | None = None,
        miss: float = 0.01,
        sampler: str = "auto",
    ) -> Composition:
        """Return a noisy minimizer for ``share`` of the budget and a sample near it for the rest.

        ``miss`` is the probability that the ball does not hold the minimizer.

        >>> from dpfit.losses import Bounds, Logistic
        >>> problem = Minimize(
        ...     n=10_000, loss=Logistic(), bounds=Bounds(1.0), n_features=5, ridge=0.001
        ... )
        >>> plan = localized_asap.plan(problem, Budget(epsilon=1.0))
        >>> round(plan.guarantee.pure, 2), round(plan.final.problem.trust_ball.norm_bound, 2)
        (1.0, 4.64)
        """
        return Composition(self.stages(problem, budget, share, miss, sampler))

    def stages(
        self,
        problem: Minimize,
        budget: Budget,
        share: float | None = None,
        miss: float = 0.01,
        sampler: str = "auto",
    ) -> tuple[Stage, Stage]:
        """Return the stages "minimizer" and "sample"."""
        if not 0 < positive("miss", miss) < 1:
            raise ValueError(f"miss must lie strictly between 0 and 1, got {miss!r}")
        first, second = _budgets(budget, share)
        start = OutputPerturbation().plan(problem, first, ridge=problem.ridge)
        sample = SampleBudget.in_ball(problem, _ball_radius(start, miss), second).step(sampler)
        return Stage("minimizer", start), Stage("sample", sample, BallAround("minimizer"))

    def example(self, relation: str) -> Example:
        """The records of `output_perturbation`, whose minimizer moves as far as it can."""
        return Example(*OutputPerturbation().example(relation))


def _budgets(budget: Budget, share: float | None) -> tuple[Budget, Budget]:
    """Return the budgets of the two stages: parts of epsilon, or of mu**2."""
    pure = budget.kind == "pure"
    part = SHARE["pure" if pure else "gaussian"] if share is None else positive("share", share)
    if not 0 < part < 1:
        raise ValueError(f"share must lie strictly between 0 and 1, got {share!r}")
    if pure:
        epsilon = _DOWN * positive("epsilon", budget.epsilon)
        return replace(budget, epsilon=part * epsilon), replace(
            budget, epsilon=(1 - part) * epsilon
        )
    whole = Budget(
        mu=_DOWN / calibrate(Gaussian, budget).noise_multiplier,
        unit=budget.unit,
        relation=budget.relation,
    )
    mu = positive("mu", whole.mu)
    return replace(whole, mu=math.sqrt(part) * mu), replace(whole, mu=math.sqrt(1 - part) * mu)


def _ball_radius(start: Plan, miss: float) -> float:
    """Return a bound on the released minimizer's error that fails with probability ``miss``."""
    minimizer = start.final
    if not isinstance(minimizer, NoisyMinimizer):
        raise TypeError("output_perturbation plans a NoisyMinimizer")
    d, scale = minimizer.problem.dimension, minimizer.noise_multiplier * minimizer.sensitivity
    law = stats.gamma(d) if minimizer.noise == "l2_laplace" else stats.chi(d)
    return float(law.ppf(1 - miss) * scale + minimizer.accuracy.distance)


localized_asap = LocalizedAsap()
