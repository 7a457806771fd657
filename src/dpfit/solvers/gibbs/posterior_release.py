"""A certified posterior sample whose ridge is chosen for the least proven risk.

The sum of losses at a sample of exp(-t (sum + (s / 2) norm(theta)**2)) exceeds its minimum over the domain by at most
d / t + s R**2 / 2 in expectation, R being the largest norm in the domain. Under mu-GDP t = mu**2 s / lipschitz**2, so
the bound is least at s = sqrt(2 d) lipschitz / (mu R), where it is sqrt(2 d) lipschitz R / mu.

Under pure epsilon the sample is drawn on a ball around a noisy minimizer (`localized_sample`), whose radius is
q lipschitz / (s epsilon_1), q being a quantile of the Gamma law of order d. With e the root of epsilon_1 epsilon_2 the
bound is then 2 d q (lipschitz / e)**2 / s + s R**2 / 2, least at s = 2 sqrt(d q) lipschitz / (e R).

Guarantee: mu-GDP for every dataset, as `asap_perturb`, which draws the sample; or epsilon-DP. Reference: [Liu24]
Theorems 3.1.5 and 3.4.1; [ASAP] Theorems 2 and 3; docs/explanation/certificates.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from dpfit.core import Minimize, Risk, Step, require_records
from dpfit.data.records import Arrays
from dpfit.privacy import Assumption, Basis, Budget
from dpfit.samplers.potential import bounded_domain
from dpfit.solvers.gibbs.asap_perturb import PerturbedSample, asap_perturb, calibrated
from dpfit.solvers.gibbs.localized_sample import MISSED, LocalizedSample, calibrated_shares
from dpfit.solvers.perturbation.output_perturbation import (
    NoisyMinimizer,
    gradient_change,
    minimizer_assumptions,
    require_smooth,
)


@dataclass(frozen=True)
class PosteriorSample(PerturbedSample):
    """A noisy sample; the ridge of its problem is chosen, ``own_ridge`` is the one that was asked for."""

    kind = "posterior_sample"
    own_ridge: float = 0.0

    @property
    def risk(self) -> Risk:
        added = (self.problem.ridge - self.own_ridge) * bounded_domain(self.problem).reach() ** 2 / 2
        return Risk(super().risk.expected + added, "excess empirical risk of the exact sample (proven bound)")


@dataclass(frozen=True)
class LocalizedPosterior(LocalizedSample):
    """A sample around a noisy minimizer, whose ridge may be larger than that of the problem."""

    kind = "localized_posterior_sample"

    @property
    def risk(self) -> Risk:
        given = self.minimizer.problem
        # Without a domain the ridge is that of the problem.
        reach = 0.0 if given.radius is None else given.radius
        added = (self.minimizer.ridge - given.ridge) * reach**2 / 2
        return Risk(super().risk.expected + added, "excess empirical risk, if the ball holds the minimizer (99%)")


@dataclass(frozen=True)
class PosteriorRelease:
    """Plans a posterior sample."""

    name: str = "posterior_release"

    def plan(self, problem: Minimize, budget: Budget, *, sampler: str = "auto") -> Step:
        """The sample with the least proven risk; ``sampler`` as in `asap_perturb`.

        Under a pure budget the loss must be smooth, and Lipschitz everywhere; there need not be a domain if there is a
        ridge.

        >>> from dpfit.geometry import L2Ball
        >>> from dpfit.losses import Bounds, Logistic
        >>> ball = L2Ball(20, 1.0)
        >>> problem = Minimize(n=10_000, loss=Logistic(), bounds=Bounds(1.0), features=20, domain=ball)
        >>> plan = posterior_release.plan(problem, Budget(epsilon=1, delta=1e-6))
        >>> round(plan.risk.expected, 4)
        0.0029
        >>> ridged = replace(problem, domain=None, ridge=0.01)
        >>> posterior_release.plan(ridged, Budget(epsilon=1)).guarantee.pure
        1.0
        """
        require_records(self.name, budget)
        if not isinstance(problem, Minimize):
            raise ValueError(f"{self.name} solves a Minimize problem, not {getattr(problem, 'kind', problem)!r}")
        if budget.kind == "pure":
            return self._localized(problem, budget, sampler)
        ridge = max(problem.ridge, least_risk_ridge(problem, budget))
        sample = asap_perturb.plan(replace(problem, ridge=ridge), budget, sampler=sampler)
        m = sample.mechanism
        if not isinstance(m, PerturbedSample):
            raise TypeError("asap_perturb plans a PerturbedSample")
        chosen = PosteriorSample(
            m.problem, m.relation, m.inverse_temperature, m.sampler, m.noise, m.noise_multiplier, problem.ridge
        )
        return Step(chosen, sample.basis)

    def _localized(self, problem: Minimize, budget: Budget, sampler: str) -> Step:
        require_smooth(self.name, problem, budget)
        if not problem.loss.convex:
            raise ValueError(f"certified samples need a convex loss, and {problem.loss.kind!r} is not one")
        first, second, noise = calibrated_shares(problem.dimension, budget)
        ridge = max(problem.ridge, localized_ridge(problem, budget.relation, 1 / first, second))
        minimizer = NoisyMinimizer(problem, budget.relation, ridge, "l2_laplace", first)
        chosen = LocalizedPosterior(minimizer, second, noise, sampler)
        convex = Assumption("the losses are convex", problem.loss.status)
        theorem = "noisy minimizer [ASAP, Lemma 18, corrected], then a sample of bounded range around it, perturbed"
        assumptions = (*minimizer_assumptions(problem, budget), convex)
        why = Basis(f"{theorem} [ASAP, Lemma 5, Theorem 2]", budget.relation, budget.unit, assumptions, "idealised")
        return Step(chosen, why)

    def example(self, relation: str) -> tuple[Minimize, Any, Any]:
        """Linear losses that cancel, of which one turns around or leaves."""
        problem, _, _ = asap_perturb.example(relation)
        rows = np.repeat([[1.0, 0.0], [-1.0, 0.0]], 3, axis=0)
        other = rows[:-1] if relation == "add_remove" else np.vstack([rows[:-1], [[1.0, 0.0]]])
        return replace(problem, ridge=0.0), Arrays(rows, np.zeros(6)), Arrays(other, np.zeros(len(other)))


def least_risk_ridge(problem: Minimize, budget: Budget) -> float:
    """sqrt(2 d) lipschitz / (mu R n): where d / t + s R**2 / 2 is least."""
    # At ridge 1 the inverse temperature is mu**2 n / lipschitz**2.
    inverse_temperature, _ = calibrated(replace(problem, ridge=1.0), budget, "gaussian")
    reach = bounded_domain(problem).reach()
    return math.sqrt(2 * problem.dimension / (inverse_temperature * problem.n)) / reach


def localized_ridge(problem: Minimize, relation: str, first: float, second: float) -> float:
    """Where 2 d q lipschitz**2 / (s first second) + s R**2 / 2 is least, over n; zero without a domain."""
    if problem.domain is None or not math.isfinite(reach := problem.domain.reach()):
        if not problem.ridge > 0:
            raise ValueError("certified samples need a ridge above zero, or a bounded domain to choose one for")
        return 0.0
    quantile = float(special.gammaincinv(problem.dimension, 1 - MISSED))
    change = gradient_change(problem, relation)
    return 2 * change * math.sqrt(problem.dimension * quantile / (first * second)) / (reach * problem.n)


posterior_release = PosteriorRelease()
