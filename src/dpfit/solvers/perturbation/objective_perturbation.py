"""Objective perturbation: the minimizer of an objective with a random linear term.

It is for generalized linear models and several classes.
Guarantee: the curve of `dpfit.privacy.event.ObjectivePerturbation` composed with a small output
noise; pure with Gamma-norm noise, a Gaussian-like profile with normal noise (not for several
classes). Reference: Chaudhuri, Monteleoni, Sarwate (2011); Iyengar et al. (2019) for approximate
minima; Redberg, Koskela, Wang (2023) for the profile, improved and proven again in
docs/explanation/perturbation.md, sections 3 and 4.

The exact minimizer is never computed. The mechanism releases a point at a certified distance from
it, plus noise that hides this distance: given the exact minimizer, one more mechanism of small
sensitivity. The random term is a normal (or Gamma-norm) vector rounded to a fine grid. The
certified distance includes the rounding, so the proof needs no real numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, gammainccinv

from dpfit.core import Constants, Example, Forecast, Minimize, Plan, Requirement, Risk, Run, Step
from dpfit.data.view import View
from dpfit.losses import Bounds, SmoothedHinge
from dpfit.mechanisms.vector_noise import VectorNoise
from dpfit.noise import Gaussian as Normal
from dpfit.noise import Grid, rounded, rounded_l2_laplace
from dpfit.privacy import Budget, BudgetUnreachable, calibrate, gaussian
from dpfit.privacy import event as events
from dpfit.privacy.calibrate import AtLevel
from dpfit.privacy.event import Composed, Event
from dpfit.privacy.validate import option, positive
from dpfit.solvers.perturbation.base import Perturbation
from dpfit.solvers.perturbation.minimizer import (
    CERTIFIABLE,
    Accuracy,
    CertifiedMinimizer,
    Objective,
)
from dpfit.solvers.perturbation.ridge import RidgeSearch

Floats = NDArray[np.float64]

_OUTPUT_MULTIPLE = {"gaussian": 16.0, "gamma": 200.0}
"""Noise multiplier of the output over that of the linear term: hiding the approximation costs 0.2%
or 0.5% of noise.
"""

_FINENESS = 1e-8
"""Step of the grid of the linear term, relative to the Lipschitz constant of one record."""

_HIDING = 0.01
"""Fraction of the failure probability of `PerturbedMinimizer.reach` that goes to the output noise.
"""

MARGIN_OR_SOFTMAX = Requirement(
    "a generalized linear loss or Softmax",
    "use output_perturbation, which assumes nothing about the Hessian of one record",
    lambda problem, budget, options: bool(problem.loss.slope_relation),
)
"""The theorem bounds how one record's Hessian changes the determinant."""


@dataclass(frozen=True)
class PerturbedMinimizer(CertifiedMinimizer):
    """Minimizer with a ridge and a random linear term, plus a small output noise.

    Guarantee: `ObjectivePerturbation` composed with the output noise; see the module.
    Assumes: generalized linear loss or Softmax (checked); at most 2 n records under add/remove
    (declared). Reference: docs/explanation/perturbation.md, sections 3 and 4.

    Parameters
    ----------
    noise : {"gaussian", "gamma"}
        Distribution of the linear term: normal, or density proportional to exp(-||x|| / scale).
    noise_multiplier : float
        Standard deviation (or scale) of the linear term over the Lipschitz constant of one record.
    output_multiplier : float
        Standard deviation (or scale) of the output noise over twice the distance from the exact
        minimizer.
    """

    kind = "perturbed_minimizer"
    output_multiplier: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.problem.loss.slope_relation:
            raise ValueError(
                f"loss must be {MARGIN_OR_SOFTMAX.text}, got {self.problem.loss.kind!r}"
            )
        option("noise", self.noise, ("gaussian", "gamma"))
        _ = self.event, self.distance

    @property
    def event(self) -> Event:
        template = perturbation_event(self.problem, self.ridge, self.noise)
        return Composed((template.scaled(self.noise_multiplier), self.output_noise.event))

    @property
    def output_noise(self) -> VectorNoise:
        """The noise that hides the distance from the exact minimizer."""
        return VectorNoise(self._law, self.output_multiplier, self.problem.dimension)

    @property
    def _law(self) -> str:
        return _output_law(self.noise)

    @property
    def scale(self) -> float:
        """Standard deviation (or scale) of the linear term."""
        return _scale(self.constants, self.noise_multiplier)

    @property
    def grid(self) -> Grid:
        """Grid of the linear term."""
        return Grid(_exponent(self.constants, self.problem.dimension, self.scale))

    @property
    def longest(self) -> float:
        return _longest(self.problem.dimension, self.noise, self.scale)

    @cached_property
    def distance(self) -> float:
        """Certified distance of the computed minimizer from the exact one before rounding."""
        rounding = self.grid.rounding(self.problem.dimension, "l2") / 2
        return (self.accuracy.distance + rounding / self.strength) * (1 + 1e-12)

    @cached_property
    def risk(self) -> Risk:
        linear = VectorNoise(self._law, 1.0, self.problem.dimension)
        return RidgeSearch(self.problem).predicted_risk(
            self.ridge,
            output=self.output_noise.mean_square(2 * self.distance),
            linear=linear.mean_square(self.scale / self.problem.n),
        )

    def reach(self, level: float) -> tuple[float, bool]:
        """Return a bound on the reach: ||linear term|| / strength, then the output noise.

        It is exact only where the ridge has all the curvature. A projection has no reach that holds
        for all data.
        """
        if self.problem.region is not None:
            return super().reach(level)
        d, fails = self.problem.dimension, 1 - level
        tail = fails * (1 - _HIDING)
        norm = (
            math.sqrt(chdtri(d, tail)) if self.noise == "gaussian" else float(gammainccinv(d, tail))
        )
        hiding = self.output_noise.reach(2 * self.distance, 1 - fails * _HIDING)
        return self.scale * norm / self.strength + self.distance + hiding, False

    def run(self, data: View, run: Run) -> Floats:
        problem, d = self.problem, self.problem.dimension
        steps = self.scale / self.grid.step
        if self.noise == "gaussian":
            linear = rounded(Normal(), steps, d, run.noise)
        else:
            linear = rounded_l2_laplace(steps, d, run.noise)
        minimizer = Objective(problem, data, self.strength, self.grid.values(linear)).minimize(
            self.accuracy
        )
        return problem.project(self.output_noise.added(minimizer, 2 * self.distance, run.noise))


S = TypeVar("S", float, Floats)


def _output_law(noise: str) -> str:
    """Return the distribution of the output noise that goes with a linear term."""
    return "gaussian" if noise == "gaussian" else "l2_laplace"


def _scale(constants: Constants, multiplier: S) -> S:
    """Return the standard deviation (or scale) of the linear term."""
    return multiplier * constants.lipschitz * (1 + 1e-12)


def _longest(dimension: int, noise: str, scale: S) -> S:
    """Return a norm that the linear term exceeds with a probability below 1e-300."""
    return (
        scale
        * (math.sqrt(dimension) + 40 if noise == "gaussian" else 2 * dimension + 1500)
        * (1 + 1e-6)
    )


def _exponent(constants: Constants, dimension: int, scale: float) -> int:
    """Return the exponent of the linear term's grid."""
    return math.floor(
        math.log2(max(_FINENESS * constants.lipschitz, scale * 2.0**-40) / math.sqrt(dimension))
    )


def _rounding(exponent: int, dimension: int) -> float:
    """Return the largest l2 distance to the grid of an exponent; infinite without a grid."""
    try:
        return Grid(exponent).rounding(dimension, "l2") / 2
    except ValueError:
        return math.inf


def perturbation_event(problem: Minimize, ridge: float, noise: str) -> events.ObjectivePerturbation:
    """Return the event of a linear term of noise multiplier one."""
    return events.ObjectivePerturbation(
        1.0, _curvature(problem, ridge), problem.loss.slope_relation, noise
    )


def _curvature(problem: Minimize, ridge: S) -> S:
    """Return the largest curvature of one record over that of the ridge, rounded up."""
    return (
        problem.constants("replace", everywhere=True).smoothness / (problem.n * ridge) * (1 + 1e-12)
    )


def _linear_excess(problem: Minimize, ridges: Floats, noise: str, scales: Floats) -> Floats:
    """Return the predicted excess objective by linear terms, for an isotropic Hessian.

    It is half the squared norm of the term in the inverse Hessian, with a quarter of the
    smoothness: few margins are where the loss is curved most, and in anisotropic data some
    directions are flatter.
    """
    d, smoothness = problem.dimension, problem.constants("replace", everywhere=True).smoothness
    square = d * scales**2 * (1 if noise == "gaussian" else d + 1)
    return square / (2 * float(problem.n) ** 2 * (smoothness / (4 * d) + ridges))


class ObjectivePerturbation(Perturbation):
    """Minimizer with a random linear term, for generalized linear and multiclass losses.

    Use it for few columns or pure epsilon; use `noisy_gd` or `preconditioned_gd` for many columns
    and a delta. Guarantee: epsilon-DP (Gamma-norm noise), or the profile of `ObjectivePerturbation`
    (normal noise). Reference: Iyengar et al. (2019); Redberg, Koskela, Wang (2023), improved;
    docs/explanation/perturbation.md. Work: about 20 passes over the data.

    Parameters
    ----------
    ridge : float, optional
        Coefficient of ||theta||^2 / 2 in the mean objective, that of the problem included. By
        default the ridge with the least predicted risk. A small ridge needs more noise: epsilon
        includes the log-determinant of one record.

    Examples
    --------
    >>> from dpfit.losses import Logistic
    >>> problem = Minimize(n=10_000, loss=Logistic(), bounds=Bounds(1.0), n_features=20)
    >>> plan = objective_perturbation.plan(problem, Budget(epsilon=1, delta=1e-6))
    >>> round(plan.guarantee.epsilon(1e-6), 3)
    1.0
    """

    name = "objective_perturbation"
    summary = (
        "the minimizer of an objective with a random linear term, for linear models and "
        "several classes"
    )
    use_for = "linear models with few columns, or pure epsilon"
    reference = "Iyengar et al. (2019); Redberg, Koskela, Wang (2023), improved"
    requires = (*CERTIFIABLE, MARGIN_OR_SOFTMAX)
    tier = "recommended"
    auto_candidate = True

    def _plan(self, problem: Minimize, budget: Budget, *, ridge: float | None = None) -> Plan:
        """Return a step of least noise: normal, Gamma-norm, or the better of the two."""
        choice = _best_choice(problem, budget, ridge)
        losses = "several classes" if problem.loss.outputs > 1 else "generalized linear models"
        theorem = f"objective perturbation of {losses} [docs/explanation/perturbation.md]"
        template = choice.template(problem)
        multiplier = calibrate(
            lambda level: AtLevel(template.scaled(level), level), choice.budget
        ).level
        return Step(choice.mechanism(problem, multiplier), self._basis(theorem, problem, budget))

    def forecast(self, problem: Minimize, budget: Budget, **options: Any) -> Forecast:
        """Return what `plan` would reach, without calibration; its option is the ridge found."""
        options = {**self._options, **options}
        self.require(problem, budget, options)
        choice = _best_choice(problem, budget, **options)
        curvature = np.array([_curvature(problem, choice.ridge)])
        multiplier = float(
            _quick_multipliers(problem.loss.slope_relation, curvature, choice.budget)[0]
        )
        sketch = choice.mechanism(problem, multiplier)
        return Forecast(sketch.risk, sketch.work, {"ridge": choice.ridge})

    def example(self, relation: str) -> Example:
        """Return records on the hinge's linear side; one is flipped, or is removed.

        The ridge keeps all margins small, so derivatives are at their bound.
        """
        problem = Minimize(
            n=6, loss=SmoothedHinge(0.5), bounds=Bounds(1.0), n_features=2, ridge=20.0
        )
        return self._equal_records(problem, relation, label=1.0)


class _Choice(NamedTuple):
    """A linear term's distribution, the budget it is calibrated to, a ridge, predicted risk."""

    risk: float
    ridge: float
    noise: str
    budget: Budget

    def template(self, problem: Minimize) -> Event:
        """Return the event of a linear term of noise multiplier one and its output noise."""
        hiding = VectorNoise(
            _output_law(self.noise), _OUTPUT_MULTIPLE[self.noise], problem.dimension
        )
        return Composed((perturbation_event(problem, self.ridge, self.noise), hiding.event))

    def mechanism(self, problem: Minimize, multiplier: float) -> PerturbedMinimizer:
        """Return the mechanism at a noise multiplier of the linear term."""
        output = _OUTPUT_MULTIPLE[self.noise] * multiplier
        return PerturbedMinimizer(
            problem, self.budget.relation, self.ridge, self.noise, multiplier, output
        )


def _best_choice(problem: Minimize, budget: Budget, ridge: float | None = None) -> _Choice:
    """Return the choice of least predicted risk, over distributions and free ridges."""
    laws = [
        target
        for target in VectorNoise.targets(budget)
        if target[0] != "gaussian" or problem.loss.is_glm
    ]
    if not laws:
        raise BudgetUnreachable(
            "objective_perturbation with several classes promises an epsilon, and this budget "
            "has none; give epsilon, "
            "or use noisy_gd or output_perturbation"
        )
    return min(
        (_choice(problem, target, law, ridge) for law, target in laws),
        key=lambda choice: choice.risk,
    )


def _choice(problem: Minimize, budget: Budget, law: str, ridge: float | None) -> _Choice:
    """Return the choice at the given ridge, or at the best one, for one noise."""
    noise = "gaussian" if law == "gaussian" else "gamma"
    if ridge is None:
        ridge = RidgeSearch(problem).best(lambda ridges: _predicted(problem, budget, ridges, noise))
    chosen = np.array([positive("ridge", ridge)])
    risk = _predicted(problem, budget, chosen, noise) + RidgeSearch(problem).bias(chosen)
    return _Choice(float(risk[0]), ridge, noise, budget)


def _predicted(problem: Minimize, budget: Budget, ridges: Floats, noise: str) -> Floats:
    """Return the predicted excess at each ridge, with estimates of the calibrated noise.

    It is infinite where the budget leaves no noise multiplier, or no minimizer is certified.
    """
    d, constants = problem.dimension, Accuracy.constants(problem, budget.relation)
    multipliers = _quick_multipliers(
        problem.loss.slope_relation, _curvature(problem, ridges), budget
    )
    risks = np.full(ridges.shape, math.inf)
    possible = np.isfinite(_scale(constants, multipliers)) & (ridges >= problem.ridge)
    ridges, multipliers = ridges[possible], multipliers[possible]
    scales, strengths = _scale(constants, multipliers), problem.n * ridges
    computed = Accuracy.distances(problem, strengths, budget.relation, _longest(d, noise, scales))
    exponents = [_exponent(constants, d, scale) for scale in scales.tolist()]
    roundings = {exponent: _rounding(exponent, d) for exponent in set(exponents)}
    distance = (
        computed + np.array([roundings[exponent] for exponent in exponents]) / strengths
    ) * (1 + 1e-12)
    with np.errstate(over="ignore", invalid="ignore"):
        hiding = multipliers * _OUTPUT_MULTIPLE[noise] * 2 * distance
        excess = RidgeSearch(problem).output_excess(ridges, _output_law(noise), hiding)
        excess += _linear_excess(problem, ridges, noise, scales)
    risks[possible] = np.where(np.isfinite(distance), excess, math.inf)
    return risks


def _quick_multipliers(slopes: str, curvatures: Floats, budget: Budget) -> Floats:
    """Return approximate noise multipliers: the log-determinant charged in full, or free."""
    changes = 1 if budget.relation == "add_remove" else 2
    cost = _log1p(curvatures) if slopes != "softmax" else 2 * curvatures
    if budget.epsilon is not None and budget.kind == "pure":
        steep = {"logistic": 4.0, "softmax": 8.0}.get(slopes, math.inf)
        free = budget.epsilon / changes >= steep * curvatures
        shifts = np.maximum(budget.epsilon - np.where(free, 0.0, cost), 0.0) / changes
        if slopes == "logistic":
            shifts = np.where(
                free, shifts, np.maximum(shifts, _logistic_shifts(curvatures, budget))
            )
        with np.errstate(divide="ignore"):
            return np.asarray(1 / shifts)
    if budget.epsilon is not None and budget.delta:
        epsilon = budget.epsilon / changes
        free = (slopes == "logistic") & (epsilon >= 4 * curvatures)
        left = np.maximum(epsilon - np.where(free, 0.0, cost), 0.0)
        delta = budget.delta / (1 if changes == 1 else 1 + math.exp(min(epsilon, 700.0)))
        mu = np.where(left > 0, gaussian.mu(left, delta), 0.0)
    else:
        whole = (
            budget.mu if budget.mu is not None else math.sqrt(2 * (budget.rho or 0.0))
        ) / changes
        # The log-determinant changes a Gaussian profile most at epsilon = 0, the total variation.
        start = 1 - (1 - float(gaussian.delta(whole, 0.0))) * _exp(cost)
        mu = gaussian.mu(0.0 * start, np.maximum(start, 0.0))
    with np.errstate(divide="ignore"):
        return np.asarray(1 / mu)


def _logistic_shifts(curvatures: Floats, budget: Budget) -> Floats:
    """Return the shifts a that a pure epsilon allows for logistic slopes, where a < r = 4 q.

    One record costs sup_v a v + r v (1 - v) = (a + r)^2 / (4 r), a replaced one a more
    (docs/explanation/perturbation.md, 3.5); this solves the quadratic equation.
    """
    r, half = 4 * curvatures, 1 if budget.relation == "add_remove" else 3
    root = np.sqrt((half**2 - 1) * r**2 + 4 * r * float(budget.epsilon or 0.0))
    return np.asarray(root - half * r)


_log1p, _exp = np.vectorize(math.log1p, otypes=[float]), np.vectorize(math.exp, otypes=[float])
"""Functions of the C library: those of NumPy may differ between processors in the last digit."""


objective_perturbation = ObjectivePerturbation()
