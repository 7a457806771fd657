"""The minimizer of an objective with a random linear term, for generalized linear models and several classes.

Guarantee: the curve of `dpfit.privacy.event.ObjectivePerturbation` composed with a small output noise; pure with
Gamma-norm noise, a Gaussian-like profile with normal noise (not for several classes). Reference: Chaudhuri, Monteleoni,
Sarwate (2011); Iyengar et al. (2019) for approximate minima; Redberg, Koskela, Wang (2023) for the profile, improved
and proven again in docs/explanation/perturbation.md, sections 3 and 4.

The exact minimizer is never computed. What is released is a point at a certified distance from it plus noise that hides
that distance: given the exact minimizer, one more mechanism of small sensitivity. The random term is a normal (or
Gamma-norm) vector rounded to a fine grid; the rounding is part of the certified distance, so no real number is assumed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Mechanism, Minimize, Plan, Risk, Run, Step, Work
from dpfit.losses import GLM, Bounds, Logistic, SmoothedHinge, Softmax
from dpfit.noise import Gaussian as Normal
from dpfit.noise import Grid, add_gaussian, add_l2_laplace, rounded, rounded_l2_laplace
from dpfit.privacy import Basis, Budget, NotReachable, calibrate, gaussian
from dpfit.privacy.calibrate import AtLevel
from dpfit.privacy.check import one_of, positive
from dpfit.privacy.event import Composed, Event, Gaussian, L2Laplace, ObjectivePerturbation
from dpfit.solvers.perturbation.minimizer import Accuracy, Objective, accuracy, distances, minimize, smoothest, steepest
from dpfit.solvers.perturbation.output_perturbation import (
    agreeing_records,
    excess,
    minimizer_assumptions,
    newton_cost,
    noises,
    require_data,
    require_smooth,
)
from dpfit.solvers.perturbation.ridge import best_ridge, bias, mean_square, predicted_risk

Floats = NDArray[np.float64]

_OUTPUT_MULTIPLE = {"gaussian": 16.0, "gamma": 200.0}
"""Noise multiplier of the output over that of the linear term: hiding the approximation costs 0.2% or 0.5% of noise."""

_FINENESS = 1e-8
"""Step of the grid of the linear term, relative to the largest gradient of one record."""


@dataclass(frozen=True)
class PerturbedMinimizer(Mechanism):
    """The minimizer of the perturbed objective itself; all fields are public.

    ``noise_multiplier`` is the standard deviation (or scale) of the linear term over the largest norm of one record's
    gradient, ``output_multiplier`` that of the output noise over twice the distance from the exact minimizer. ``ridge``
    is the whole coefficient of the quadratic in the mean objective, that of the problem included.
    """

    kind = "perturbed_minimizer"
    problem: Minimize
    relation: str
    ridge: float
    noise: str
    noise_multiplier: float
    output_multiplier: float

    def __post_init__(self) -> None:
        one_of("relation", self.relation, ("replace", "add_remove"))
        one_of("noise", self.noise, ("gaussian", "gamma"))
        if positive("ridge", self.ridge) < self.problem.ridge:
            raise ValueError(f"ridge must be at least that of the problem, {self.problem.ridge!r}, got {self.ridge!r}")
        _ = self.event, self.distance

    @property
    def event(self) -> Event:
        d, out = self.problem.dimension, self.output_multiplier
        template = perturbation_event(self.problem, self.ridge, self.noise)
        first = template.scaled(self.noise_multiplier)
        return Composed((first, Gaussian(out) if self.noise == "gaussian" else L2Laplace(out, d)))

    @property
    def strength(self) -> float:
        """The coefficient of the quadratic in the summed objective."""
        return self.problem.n * self.ridge

    @property
    def scale(self) -> float:
        """Standard deviation (or scale) of the linear term."""
        return _scale(self.problem, self.noise_multiplier)

    @property
    def grid(self) -> Grid:
        """Where the linear term is rounded to."""
        return Grid(*_exponents(self.problem, [self.scale]))

    @cached_property
    def accuracy(self) -> Accuracy:
        """How far the computed minimizer is from the true one of the same objective, at most."""
        longest = _longest(self.problem, self.noise, self.scale)
        return accuracy(self.problem, self.strength, self.relation, linear=longest)

    @property
    def distance(self) -> float:
        """How far what is computed is from the exact minimizer with the linear term before rounding, at most."""
        rounding = _rounding(self.problem, self.grid.exponent)
        return (self.accuracy.distance + rounding / self.strength) * (1 + 1e-12)

    @property
    def work(self) -> Work:
        return newton_cost(self.problem)

    @property
    def risk(self) -> Risk:
        d, hiding = self.problem.dimension, self.output_multiplier * 2 * self.distance
        return predicted_risk(
            self.problem,
            self.ridge,
            output=mean_square(self.noise, hiding, d),
            linear=mean_square(self.noise, self.scale / self.problem.n, d),
        )

    def run(self, data: Any, run: Run) -> Floats:
        problem, d = self.problem, self.problem.dimension
        records = require_data(data, problem, self.relation)
        steps = self.scale / self.grid.step
        if self.noise == "gaussian":
            linear, add = rounded(Normal(), steps, d, run.noise), add_gaussian
        else:
            linear, add = rounded_l2_laplace(steps, d, run.noise), add_l2_laplace
        objective = Objective(problem, records, self.strength, self.grid.values(linear))
        theta = add(
            minimize(objective, self.accuracy),
            l2_sensitivity=2 * self.distance,
            noise_multiplier=self.output_multiplier,
            source=run.noise,
        )
        return theta if problem.domain is None else problem.domain.project(theta)


S = TypeVar("S", float, Floats)


def _scale(problem: Minimize, multiplier: S) -> S:
    """Standard deviation (or scale) of the linear term."""
    return multiplier * steepest(problem) * (1 + 1e-12)


def _longest(problem: Minimize, noise: str, scale: S) -> S:
    """A length beyond which the linear term has a probability below 1e-300."""
    d = problem.dimension
    return scale * (math.sqrt(d) + 40 if noise == "gaussian" else 2 * d + 1500) * (1 + 1e-6)


def _exponents(problem: Minimize, scales: Sequence[float]) -> list[int]:
    """Of the grids to which linear terms of these scales are rounded."""
    step, spread = _FINENESS * steepest(problem), math.sqrt(problem.dimension)
    return [math.floor(math.log2(max(step, scale * 2.0**-40) / spread)) for scale in scales]


def _rounding(problem: Minimize, exponent: int) -> float:
    """How far rounding to a grid moves the linear term, at most; infinite if there is no such grid."""
    try:
        return Grid(exponent).rounding(problem.dimension, "l2") / 2
    except ValueError:
        return math.inf


def perturbation_event(problem: Minimize, ridge: float, noise: str) -> ObjectivePerturbation:
    """What a linear term of noise multiplier one does."""
    curvature = smoothest(problem) / (problem.n * ridge) * (1 + 1e-12)
    return ObjectivePerturbation(1.0, curvature, _slopes(problem), noise)


def _slopes(problem: Minimize) -> str:
    """How slopes and curvatures of a record go together."""
    if isinstance(problem.loss, Softmax):
        return "softmax"
    if isinstance(problem.loss, Logistic):
        return "logistic"
    return "one_sided" if isinstance(problem.loss, SmoothedHinge) else "two_sided"


def _linear_excess(problem: Minimize, ridges: Floats, noise: str, scales: Floats) -> Floats:
    """Predicted increase of the mean objective: half the squared linear term in the inverse of an isotropic Hessian.

    A quarter of the largest curvature is counted on: most margins are not where the loss bends most, and where rows
    favour some directions the others are flatter.
    """
    d = problem.dimension
    square = d * scales**2 * (1 if noise == "gaussian" else d + 1)
    return square / (2 * problem.n**2 * (smoothest(problem) / (4 * d) + ridges))


@dataclass(frozen=True)
class ObjectivePerturbationAlgorithm:
    """Plans the minimizer of a perturbed objective."""

    name: str = "objective_perturbation"

    def plan(self, problem: Minimize, budget: Budget, *, ridge: float | None = None) -> Plan:
        """One step with the smallest noise that meets the budget: normal, Gamma-norm, or the better of the two.

        ``ridge`` is the whole ridge in the mean objective; by default it is at least that of the problem and chosen for
        the smallest predicted risk. A weak one makes noise dear: the log-determinant of one record is paid in epsilon.

        >>> problem = Minimize(n=10_000, loss=Logistic(), bounds=Bounds(1.0), n_features=20)
        >>> plan = objective_perturbation.plan(problem, Budget(epsilon=1, delta=1e-6))
        >>> round(plan.guarantee.epsilon(1e-6), 3)
        1.0
        """
        mechanism = _calibrated(problem, *self._best_choice(problem, budget, ridge)[1:])
        losses = "several classes" if isinstance(problem.loss, Softmax) else "generalized linear models"
        theorem = f"objective perturbation of {losses} [docs/explanation/perturbation.md]"
        basis = Basis(theorem, budget.relation, budget.unit, minimizer_assumptions(problem, budget), "bounded")
        return Step(mechanism, basis)

    def sketch(self, problem: Minimize, budget: Budget) -> PerturbedMinimizer:
        """About the mechanism of the plan, without the cost of calibrating its noise; it may miss the budget."""
        _, ridge, noise, target = self._best_choice(problem, budget, None)
        event = perturbation_event(problem, ridge, noise)
        multiplier = float(_quick_multiplier(event.slopes, event.curvature, target))
        output = multiplier * _OUTPUT_MULTIPLE[noise]
        return PerturbedMinimizer(problem, budget.relation, ridge, noise, multiplier, output)

    def _best_choice(self, problem: Minimize, budget: Budget, ridge: float | None) -> _Choice:
        """The law of noise, and the ridge where it is not given, with the smallest predicted risk."""
        require_smooth(self.name, problem, budget)
        if not isinstance(problem.loss, GLM | Softmax):
            raise ValueError(
                f"{self.name} needs a generalized linear loss or Softmax: it rests on what a record's Hessian can be; "
                "use output_perturbation"
            )
        laws = [(law, target) for law, target in noises(budget) if law != "gaussian" or isinstance(problem.loss, GLM)]
        if not laws:
            raise NotReachable(
                f"{self.name} with several classes promises an epsilon, and this budget has none: give epsilon, or use "
                "noisy_gd or output_perturbation"
            )
        return min((_choice(problem, target, law, ridge) for law, target in laws), key=lambda choice: choice.risk)

    def example(self, relation: str) -> tuple[Minimize, Any, Any]:
        """Records on the steep side of the hinge, one of which gets the other label or leaves.

        The ridge keeps all margins small, so slopes are at their bound.
        """
        problem = Minimize(n=6, loss=SmoothedHinge(0.5), bounds=Bounds(1.0), n_features=2, ridge=20.0)
        return problem, *agreeing_records(relation, label=1.0)


class _Choice(NamedTuple):
    """A law of noise, what it is to promise, a ridge, and the risk that is predicted for them."""

    risk: float
    ridge: float
    noise: str
    budget: Budget


def _choice(problem: Minimize, budget: Budget, law: str, ridge: float | None) -> _Choice:
    """The given ridge, or the best one, for a law of noise."""
    noise = "gaussian" if law == "gaussian" else "gamma"
    if ridge is None:
        ridge = best_ridge(problem, lambda ridges: _predicted(problem, budget, ridges, noise))
    chosen = np.array([positive("ridge", ridge)])
    risk = _predicted(problem, budget, chosen, noise) + bias(problem, chosen)
    return _Choice(float(risk[0]), ridge, noise, budget)


def _calibrated(problem: Minimize, ridge: float, noise: str, budget: Budget) -> PerturbedMinimizer:
    """The mechanism with the smallest noise for a budget."""
    first, multiple = perturbation_event(problem, ridge, noise), _OUTPUT_MULTIPLE[noise]
    second = Gaussian(multiple) if noise == "gaussian" else L2Laplace(multiple, problem.dimension)
    found = calibrate(lambda m: AtLevel(Composed((first, second)).scaled(m), m), budget).level
    return PerturbedMinimizer(problem, budget.relation, ridge, noise, found, multiple * found)


def _predicted(problem: Minimize, budget: Budget, ridges: Floats, noise: str) -> Floats:
    """Predicted excess by noise at each ridge, with a quick guess of the noise in place of its calibration."""
    slopes = perturbation_event(problem, float(ridges[0]), noise).slopes
    curvatures = smoothest(problem) / (problem.n * ridges) * (1 + 1e-12)
    multipliers, risks = _quick_multiplier(slopes, curvatures, budget), np.full(ridges.shape, math.inf)
    can = np.isfinite(_scale(problem, multipliers)) & (ridges >= problem.ridge)
    ridges, multipliers = ridges[can], multipliers[can]
    scales, strengths = _scale(problem, multipliers), problem.n * ridges
    exact = distances(problem, strengths, budget.relation, _longest(problem, noise, scales))
    exponents = _exponents(problem, scales.tolist())
    moved = {exponent: _rounding(problem, exponent) for exponent in set(exponents)}
    distance = (exact + np.array([moved[exponent] for exponent in exponents]) / strengths) * (1 + 1e-12)
    law = "gaussian" if noise == "gaussian" else "l2_laplace"
    with np.errstate(over="ignore", invalid="ignore"):
        hiding = excess(problem, ridges, law, multipliers * _OUTPUT_MULTIPLE[noise] * 2 * distance)
        found = hiding + _linear_excess(problem, ridges, noise, scales)
    risks[can] = np.where(np.isfinite(distance), found, math.inf)
    return risks


def _quick_multiplier(slopes: str, curvature: float | Floats, budget: Budget) -> Floats:
    """About the noise that meets a budget: as if the log-determinant were lost at once, unless it is free."""
    changes = 1 if budget.relation == "add_remove" else 2
    price = _log1p(curvature) if slopes != "softmax" else 2 * curvature
    if budget.epsilon is not None and budget.kind == "pure":
        steep = {"logistic": 4.0, "softmax": 8.0}.get(slopes, math.inf)
        free = budget.epsilon / changes >= steep * curvature
        left = np.maximum(budget.epsilon - np.where(free, 0.0, price), 0.0)
        with np.errstate(divide="ignore"):
            return changes / left
    if budget.epsilon is not None and budget.delta:
        epsilon = budget.epsilon / changes
        free = (slopes == "logistic") & (epsilon >= 4 * curvature)
        left = np.maximum(epsilon - np.where(free, 0.0, price), 0.0)
        delta = budget.delta / (1 if changes == 1 else 1 + math.exp(min(epsilon, 700.0)))
        mu = np.where(left > 0, gaussian.mu(left, delta), 0.0)
    else:
        whole = (budget.mu if budget.mu is not None else math.sqrt(2 * (budget.rho or 0.0))) / changes
        # Total variation is where the log-determinant hurts a Gaussian promise most.
        start = 1 - (1 - float(gaussian.delta(whole, 0.0))) * _exp(price)
        mu = gaussian.mu(0.0 * start, np.maximum(start, 0.0))
    with np.errstate(divide="ignore"):
        return 1 / np.asarray(mu)


_log1p, _exp = np.vectorize(math.log1p, otypes=[float]), np.vectorize(math.exp, otypes=[float])
"""Functions of the C library: those of NumPy may differ from one processor to another in the last digit."""


objective_perturbation = ObjectivePerturbationAlgorithm()
