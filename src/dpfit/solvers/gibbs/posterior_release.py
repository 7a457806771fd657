"""A certified posterior sample whose ridge is chosen for the least proven risk.

The sum of losses at a sample of exp(-t (sum + (s / 2) norm(theta)**2)) exceeds its minimum over the domain by at most
d / t + s R**2 / 2 in expectation, R being the largest norm in the domain. Under mu-GDP t = mu**2 s / lipschitz**2, so
the bound is least at s = sqrt(2 d) lipschitz / (mu R), where it is sqrt(2 d) lipschitz R / mu.

Guarantee: mu-GDP for every dataset, as `asap_perturb`, which draws the sample. Reference: [Liu24] Theorems 3.1.5 and
3.4.1; [ASAP] Theorem 2; docs/explanation/certificates.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpfit.core import Minimize, Risk, Step, require_records
from dpfit.data.records import Arrays
from dpfit.privacy import Budget, NotReachable
from dpfit.samplers.potential import bounded_domain
from dpfit.solvers.gibbs.asap_perturb import PerturbedSample, asap_perturb, calibrated


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
class PosteriorRelease:
    """Plans a posterior sample."""

    name: str = "posterior_release"

    def plan(self, problem: Minimize, budget: Budget, *, sampler: str = "auto") -> Step:
        """The sample with the least proven risk; ``sampler`` as in `asap_perturb`.

        >>> from dpfit.geometry import L2Ball
        >>> from dpfit.losses import Bounds, Logistic
        >>> ball = L2Ball(20, 1.0)
        >>> problem = Minimize(n=10_000, loss=Logistic(), bounds=Bounds(1.0), features=20, domain=ball)
        >>> plan = posterior_release.plan(problem, Budget(epsilon=1, delta=1e-6))
        >>> round(plan.risk.expected, 4)
        0.0029
        """
        require_records(self.name, budget)
        if budget.kind == "pure":
            raise NotReachable(
                f"{self.name} cannot promise pure epsilon; give a delta (far below 1 / n), mu or rho; asap_perturb can"
            )
        if not isinstance(problem, Minimize):
            raise ValueError(f"{self.name} solves a Minimize problem, not {getattr(problem, 'kind', problem)!r}")
        ridge = max(problem.ridge, least_risk_ridge(problem, budget))
        sample = asap_perturb.plan(replace(problem, ridge=ridge), budget, sampler=sampler)
        m = sample.mechanism
        if not isinstance(m, PerturbedSample):
            raise TypeError("asap_perturb plans a PerturbedSample")
        chosen = PosteriorSample(
            m.problem, m.relation, m.inverse_temperature, m.sampler, m.noise, m.noise_multiplier, problem.ridge
        )
        return Step(chosen, sample.basis)

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


posterior_release = PosteriorRelease()
