"""The minimizer of a strongly convex objective, with noise.

Guarantee: epsilon-DP with epsilon = 1 / noise multiplier (l2-Laplace noise), or mu-GDP with mu = 1 / noise multiplier
(Gaussian noise). Reference: [ASAP] Algorithm 4, Lemma 18 with its constant corrected (docs/errata.md);
docs/explanation/perturbation.md, sections 1 and 2.

One record moves the gradient of the summed objective by at most the Lipschitz constant of what changes, so the
minimizer by at most that over n * ridge, n being the declared number. The minimizer is found to a certified distance,
which the sensitivity includes twice. A domain is met by projecting what was released.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Mechanism, Minimize, Plan, Risk, Run, Step, Work, require_records
from dpfit.data.dataset import Dataset, InMemory
from dpfit.losses import Bounds, Huber
from dpfit.losses.custom import vouched
from dpfit.noise import add_gaussian, add_l2_laplace
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.check import one_of, positive
from dpfit.privacy.event import Event, Gaussian, L2Laplace
from dpfit.solvers.perturbation.minimizer import (
    Accuracy,
    Objective,
    accuracy,
    distances,
    largest_count,
    minimize,
    smoothest,
    steepest,
)
from dpfit.solvers.perturbation.ridge import best_ridge, mean_square, predicted_risk

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NoisyMinimizer(Mechanism):
    """The noisy minimizer itself; all fields are public.

    ``ridge`` is the whole coefficient of the quadratic in the mean objective, that of the problem included.
    """

    kind = "noisy_minimizer"
    problem: Minimize
    relation: str
    ridge: float
    noise: str
    noise_multiplier: float

    def __post_init__(self) -> None:
        one_of("relation", self.relation, ("replace", "add_remove"))
        one_of("noise", self.noise, ("gaussian", "l2_laplace"))
        if positive("ridge", self.ridge) < self.problem.ridge:
            raise ValueError(f"ridge must be at least that of the problem, {self.problem.ridge!r}, got {self.ridge!r}")
        _ = self.event, self.sensitivity

    @property
    def event(self) -> Event:
        if self.noise == "gaussian":
            return Gaussian(self.noise_multiplier)
        return L2Laplace(self.noise_multiplier, self.problem.dimension)

    @cached_property
    def accuracy(self) -> Accuracy:
        """How far the computed minimizer is from the true one, at most."""
        return accuracy(self.problem, self.problem.n * self.ridge, self.relation)

    @property
    def sensitivity(self) -> float:
        """How far one record moves the computed minimizer, at most; rounded up."""
        return sensitivity(self.problem, self.relation, self.problem.n * self.ridge, self.accuracy.distance)

    @property
    def work(self) -> Work:
        return newton_cost(self.problem)

    @property
    def risk(self) -> Risk:
        scale = self.noise_multiplier * self.sensitivity
        return predicted_risk(
            self.problem, self.ridge, output=mean_square(self.noise, scale, self.problem.dimension), linear=0.0
        )

    def run(self, data: Any, run: Run) -> Floats:
        return self._noisy(self._minimizer(data), run)

    def run_many(self, data: Any, run: Run, count: int) -> Sequence[Floats]:
        """Many draws around one minimizer, which does not depend on the noise."""
        minimizer = self._minimizer(data)
        return [self._noisy(minimizer, run) for _ in range(count)]

    def _minimizer(self, data: Any) -> Floats:
        records = require_data(data, self.problem, self.relation)
        linear = np.zeros(self.problem.dimension)
        return minimize(Objective(self.problem, records, self.problem.n * self.ridge, linear), self.accuracy)

    def _noisy(self, minimizer: Floats, run: Run) -> Floats:
        add = add_gaussian if self.noise == "gaussian" else add_l2_laplace
        noisy = add(
            minimizer, l2_sensitivity=self.sensitivity, noise_multiplier=self.noise_multiplier, source=run.noise
        )
        return noisy if self.problem.domain is None else self.problem.domain.project(noisy)


S = TypeVar("S", float, Floats)


def sensitivity(problem: Minimize, relation: str, strength: S, distance: S) -> S:
    """How far one record moves a minimizer that is computed to a certified ``distance``; rounded up."""
    return (gradient_change(problem, relation) / strength + 2 * distance) * (1 + 1e-12)


def gradient_change(problem: Minimize, relation: str) -> float:
    """How far one record moves the summed gradient, at any parameter whatsoever."""
    loss = problem.loss
    constant = loss.lipschitz if relation == "add_remove" else loss.lipschitz_diff
    return constant(problem.bounds, None).value


def require_data(data: Any, problem: Minimize, relation: str) -> Dataset:
    """The records; only their number (where it is public) and width can be wrong."""
    if not isinstance(data, Dataset):
        raise ValueError("the data must be records: dpfit.data.dataset.InMemory(rows, labels), for example")
    if data.width != problem.n_features:
        raise ValueError(f"the plan is for rows of {problem.n_features} numbers, the data have {data.width}")
    if relation == "replace" and data.n != problem.n:
        raise ValueError(f"the plan is for n = {problem.n} records, the data have {data.n}")
    return data


def newton_cost(problem: Minimize) -> Work:
    """A Newton minimization takes about ten gradients and ten Hessians."""
    return Work(gradients=10.0 * problem.n, passes=20.0)


def excess(problem: Minimize, ridges: Floats, noise: str, scales: Floats) -> Floats:
    """Predicted increase of the mean objective by noise on the parameter, for isotropic rows, for each ridge and scale.

    Their Hessian is the largest curvature over the dimension in every direction. Far out, losses grow linearly.
    """
    d = problem.dimension
    square = d * scales**2 * (1 if noise == "gaussian" else d + 1)
    quadratic = (smoothest(problem) / d + ridges) * square / 2
    return np.minimum(quadratic, steepest(problem) * np.sqrt(square) + ridges * square / 2)


@dataclass(frozen=True)
class OutputPerturbation:
    """Plans a noisy minimizer."""

    name: str = "output_perturbation"

    def plan(self, problem: Minimize, budget: Budget, *, ridge: float | None = None) -> Plan:
        """One step with the smallest noise that meets the budget: l2-Laplace, Gaussian, or the better of the two.

        ``ridge`` is the whole ridge in the mean objective; by default it is at least that of the problem and chosen for
        the smallest predicted risk.

        >>> from dpfit.losses import Logistic
        >>> problem = Minimize(n=10_000, loss=Logistic(), bounds=Bounds(1.0), n_features=20, ridge=0.01)
        >>> plan = output_perturbation.plan(problem, Budget(epsilon=1.0), ridge=0.01)
        >>> plan.guarantee.pure, round(plan.mechanism.sensitivity, 6)
        (1.0, 0.02)
        """
        require_smooth(self.name, problem, budget)
        plans = [self._plan(problem, budget, ridge, *choice) for choice in noises(budget)]
        return min(plans, key=lambda plan: _expected(plan))

    def _plan(self, problem: Minimize, budget: Budget, ridge: float | None, noise: str, target: Budget) -> Step:
        template = Gaussian(1.0) if noise == "gaussian" else L2Laplace(1.0, problem.dimension)
        multiplier = calibrate(template, target).noise_multiplier
        if ridge is None:
            ridge = best_ridge(problem, lambda ridges: _predicted(problem, budget.relation, ridges, noise, multiplier))
        return Step(NoisyMinimizer(problem, budget.relation, ridge, noise, multiplier), _basis(problem, budget))

    def example(self, relation: str) -> tuple[Minimize, Any, Any]:
        """Records far from what is fitted, all on one side, one of which moves to the other side or leaves.

        Their gradients are at the bound and opposite, so the minimizer moves by all of its sensitivity.
        """
        problem = Minimize(n=6, loss=Huber(1.0), bounds=Bounds(1.0, -5.0, 5.0), n_features=2, ridge=0.5)
        return problem, *agreeing_records(relation, label=5.0)


def agreeing_records(relation: str, label: float) -> tuple[InMemory, InMemory]:
    """Six equal records, one of which gets the opposite label or leaves."""
    rows, labels = np.tile([1.0, 0.0], (6, 1)), np.full(6, label)
    if relation == "add_remove":
        return InMemory(rows, labels), InMemory(rows[:-1], labels[:-1])
    return InMemory(rows, labels), InMemory(rows, np.append(labels[:-1], -label))


def require_smooth(name: str, problem: Any, budget: Budget) -> None:
    """Refuse what has no certified minimizer."""
    require_records(name, budget)
    if not isinstance(problem, Minimize):
        raise ValueError(f"{name} solves a Minimize problem, not {getattr(problem, 'kind', type(problem).__name__)!r}")
    smoothest(problem)
    steepest(problem)


def noises(budget: Budget) -> tuple[tuple[str, Budget], ...]:
    """Which laws of noise can meet a budget, and what each is to promise.

    l2-Laplace noise promises pure epsilon. That is more than an (epsilon, delta) budget asks for, and still less noise
    in few dimensions: its square grows with the square of the dimension, but has no logarithm of 1 / delta.
    """
    if budget.kind not in ("pure", "approximate"):
        return (("gaussian", budget),)
    pure = ("l2_laplace", Budget(epsilon=budget.epsilon, unit=budget.unit, relation=budget.relation))
    return (pure,) if budget.kind == "pure" else (("gaussian", budget), pure)


def _expected(plan: Step) -> float:
    return math.inf if plan.risk is None else plan.risk.expected


def _predicted(problem: Minimize, relation: str, ridges: Floats, noise: str, multiplier: float) -> Floats:
    """Predicted excess by noise at each ridge; infinite where no minimizer is certified."""
    strengths = problem.n * ridges
    moved = sensitivity(problem, relation, strengths, distances(problem, strengths, relation))
    with np.errstate(over="ignore", invalid="ignore"):
        risks = excess(problem, ridges, noise, multiplier * moved)
    return np.where(np.isfinite(moved), risks, math.inf)


def minimizer_assumptions(problem: Minimize, budget: Budget) -> tuple[Assumption, ...]:
    """What a certified minimizer rests on."""
    bounded = Assumption("rows and labels are scaled and clamped into the declared bounds", "enforced")
    constants = Assumption("the constants of the loss hold within these bounds", problem.loss.status)
    if budget.relation == "replace":
        return bounded, constants
    return (
        bounded,
        constants,
        Assumption("the number n that scales the ridge was not read off the data", "declared"),
        Assumption(f"there are at most {largest_count(problem, budget.relation)} records", "declared"),
    )


def _basis(problem: Minimize, budget: Budget) -> Basis:
    theorem = "sensitivity of a strongly convex minimizer [ASAP, Lemma 18, corrected]"
    basis = Basis(theorem, budget.relation, budget.unit, minimizer_assumptions(problem, budget), "bounded")
    return vouched(basis, problem.loss)


output_perturbation = OutputPerturbation()
