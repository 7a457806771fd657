"""Output perturbation: the minimizer of a strongly convex objective, plus noise.

Guarantee: epsilon-DP with epsilon = 1 / noise multiplier (l2-Laplace noise), or mu-GDP with mu = 1
/ noise multiplier (Gaussian noise). Reference: [ASAP] Algorithm 4, Lemma 18 with its constant
corrected (docs/errata.md); docs/explanation/perturbation.md, sections 1 and 2.

One record changes the gradient of the summed objective by at most its gradient sensitivity. So the
minimizer moves by at most gradient sensitivity / (n ridge), where n is the declared number. The
minimizer is computed to a certified distance, which the sensitivity includes twice. A domain is met
by projecting the released parameter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Constants, Example, Minimize, Plan, Risk, Run, Step
from dpfit.data.view import View
from dpfit.losses import Bounds, Huber
from dpfit.mechanisms.vector_noise import VectorNoise
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.event import Event
from dpfit.solvers.perturbation.base import Perturbation
from dpfit.solvers.perturbation.minimizer import (
    CERTIFIABLE,
    Accuracy,
    CertifiedMinimizer,
    Objective,
)
from dpfit.solvers.perturbation.ridge import RidgeSearch

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NoisyMinimizer(CertifiedMinimizer):
    """Minimizer of a ridge-regularized convex objective, plus noise, projected onto the domain.

    Guarantee: mu-GDP (Gaussian) or epsilon-DP (l2-Laplace), mu, epsilon = 1 / noise_multiplier.
    Sensitivity: L / (n ridge) + 2 r in l2, for a gradient sensitivity L and a distance r of the
    computed minimizer. Assumes: convex smooth loss (checked); at most 2 n records under add/remove
    (declared). Reference: [ASAP] Algorithm 4, Lemma 18 with corrected constant (docs/errata.md).

    Examples
    --------
    >>> from dpfit.losses import Logistic
    >>> problem = Minimize(n=1000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=5)
    >>> NoisyMinimizer(problem, "replace", 0.1, "gaussian", noise_multiplier=4.0).event
    Gaussian(noise_multiplier=4.0)
    """

    kind = "noisy_minimizer"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.event, self.sensitivity

    @property
    def vector_noise(self) -> VectorNoise:
        """The noise on the minimizer."""
        return VectorNoise(self.noise, self.noise_multiplier, self.problem.dimension)

    @property
    def event(self) -> Event:
        return self.vector_noise.event

    @property
    def longest(self) -> float:
        return float(np.linalg.norm(self.linear))

    @property
    def linear(self) -> Floats:
        """The linear term that moves the ridge from the origin to its centre."""
        centre = self.problem.centre
        return -self.strength * np.array(centre or [0.0] * self.problem.dimension)

    @cached_property
    def sensitivity(self) -> float:
        """Largest l2 change of the computed minimizer by one record, rounded up."""
        return _sensitivity(self.constants, self.strength, self.accuracy.distance)

    @cached_property
    def risk(self) -> Risk:
        output = self.vector_noise.mean_square(self.sensitivity)
        return RidgeSearch(self.problem).predicted_risk(self.ridge, output=output, linear=0.0)

    def reach(self, level: float) -> tuple[float, bool]:
        """Return the exact reach of the noise in one direction; none holds under projection."""
        if self.problem.region is not None:
            return super().reach(level)
        return self.vector_noise.reach(self.sensitivity, level), True

    def run(self, data: View, run: Run) -> Floats:
        return self._noisy(self._minimizer(data), run)

    def run_many(self, data: View, run: Run, count: int) -> Sequence[Floats]:
        """Draw many outputs around one minimizer, which does not depend on the noise."""
        minimizer = self._minimizer(data)
        return [self._noisy(minimizer, run) for _ in range(count)]

    def _minimizer(self, data: View) -> Floats:
        return Objective(self.problem, data, self.strength, self.linear).minimize(self.accuracy)

    def _noisy(self, minimizer: Floats, run: Run) -> Floats:
        return self.problem.project(self.vector_noise.added(minimizer, self.sensitivity, run.noise))


S = TypeVar("S", float, Floats)


def _sensitivity(constants: Constants, strength: S, distance: S) -> S:
    """Return the largest l2 change of a minimizer with a certified distance, rounded up."""
    return (constants.gradient_sensitivity / strength + 2 * distance) * (1 + 1e-12)


class OutputPerturbation(Perturbation):
    """Minimizer of a ridge-regularized convex objective, plus noise.

    Use it for pure epsilon and any convex smooth loss; `objective_perturbation` has less noise for
    linear models. Guarantee: epsilon-DP, or mu-GDP, for the released parameter.
    Reference: [ASAP] Algorithm 4, Lemma 18 with corrected constant (docs/errata.md).
    Work: about 20 passes over the data.

    Parameters
    ----------
    ridge : float, optional
        Coefficient of ||theta||^2 / 2 in the mean objective, that of the problem included. By
        default the ridge with the least predicted risk.

    Examples
    --------
    >>> from dpfit.losses import Logistic
    >>> problem = Minimize(n=10_000, loss=Logistic(), bounds=Bounds(1.0), n_features=20, ridge=0.01)
    >>> plan = output_perturbation.plan(problem, Budget(epsilon=1.0), ridge=0.01)
    >>> plan.guarantee.pure, round(plan.mechanism.sensitivity, 6)
    (1.0, 0.02)
    """

    name = "output_perturbation"
    summary = "the minimizer of a strongly convex objective, with noise"
    reference = "[ASAP] Algorithm 4, Lemma 18 (corrected); Chaudhuri, Monteleoni, Sarwate (2011)"
    requires = CERTIFIABLE
    supports: ClassVar[frozenset[str]] = Perturbation.supports | {"centre"}
    tier = "specialised"
    auto_candidate = True

    def _plan(self, problem: Minimize, budget: Budget, *, ridge: float | None = None) -> Plan:
        """Return a step of least noise: Gaussian, l2-Laplace, or the better of the two."""
        theorem = "sensitivity of a strongly convex minimizer [ASAP, Lemma 18, corrected]"
        mechanisms = [
            _calibrated(problem, ridge, *target) for target in VectorNoise.targets(budget)
        ]
        best = min(mechanisms, key=lambda mechanism: mechanism.risk.expected)
        return Step(best, self._basis(theorem, problem, budget))

    def example(self, relation: str) -> Example:
        """Return records far from the fit on one side; one is flipped, or is removed.

        Gradients are at their bound and opposite, so the minimizer moves by its whole sensitivity.
        """
        problem = Minimize(
            n=6, loss=Huber(1.0), bounds=Bounds(1.0, -5.0, 5.0), n_features=2, ridge=0.5
        )
        return self._equal_records(problem, relation, label=5.0)


def _calibrated(
    problem: Minimize, ridge: float | None, noise: str, budget: Budget
) -> NoisyMinimizer:
    """Return the mechanism with the smallest noise within the budget."""
    multiplier = calibrate(
        VectorNoise(noise, 1.0, problem.dimension).event, budget
    ).noise_multiplier
    if ridge is None:
        ridge = RidgeSearch(problem).best(
            lambda ridges: _predicted(problem, budget.relation, ridges, noise, multiplier)
        )
    return NoisyMinimizer(problem, budget.relation, ridge, noise, multiplier)


def _predicted(
    problem: Minimize, relation: str, ridges: Floats, noise: str, multiplier: float
) -> Floats:
    """Return the predicted excess by noise at each ridge; infinite without a certificate."""
    strengths = problem.n * ridges
    found = Accuracy.distances(problem, strengths, relation)
    sensitivities = _sensitivity(Accuracy.constants(problem, relation), strengths, found)
    with np.errstate(over="ignore", invalid="ignore"):
        risks = RidgeSearch(problem).output_excess(ridges, noise, multiplier * sensitivities)
    return np.where(np.isfinite(sensitivities), risks, math.inf)


output_perturbation = OutputPerturbation()
