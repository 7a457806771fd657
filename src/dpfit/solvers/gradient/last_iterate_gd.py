"""Full-batch descent on a ridge-regularized convex loss of which only the last iterate is released.

Guarantee: mu-GDP for the last iterate, with mu from the contraction of the steps: more steps cost (almost) nothing.
Reference: [LD] Lemma I.2, sharpened; docs/explanation/trajectory.md, Theorem 2, with its rounding
section. Refused: losses with corners, clipped losses that are not generalized linear, steps above 2 / curvature.

theta_k = project(theta_{k-1} - step_size * (gradient sum / n + ridge * theta_{k-1}) + noise). Where the whole
trajectory costs steps * (shift / noise)**2, the last iterate costs at most shift**2 / noise**2 * 2 / (step_size *
ridge): the noise may be chosen without regard to the number of steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Minimize, Plan, Risk, Run, Step, Work
from dpfit.losses.custom import vouched
from dpfit.noise import Grid, add_gaussian
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.check import count, moderate, one_of, positive
from dpfit.privacy.event import Gaussian, GaussianPrivate
from dpfit.privacy.last_iterate import last_iterate_mu
from dpfit.solvers.gradient.noisy_gd import opposite_records, require_minimize, start
from dpfit.solvers.gradient.scales import change, unclipped
from dpfit.solvers.gradient.side_by_side import SideBySide

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LastIterateGD(SideBySide):
    """The descent itself; ``noise`` is the standard deviation added to the parameter at each step."""

    kind = "last_iterate_gd"
    problem: Minimize
    relation: str
    noise: float
    steps: int
    step_size: float
    clip: float

    def __post_init__(self) -> None:
        one_of("relation", self.relation, ("replace", "add_remove"))
        count("steps", self.steps)
        moderate("clip", self.clip)
        for name in ("noise", "step_size"):
            positive(name, getattr(self, name))
        if not self.problem.loss.convex:
            raise ValueError("the steps of last_iterate_gd contract for convex losses only: use noisy_gd")
        if not self.problem.loss.is_glm and self.clip < unclipped(self.problem):
            raise ValueError("clipping the gradients of a loss that is not generalized linear breaks the contraction")
        if self.step_size * (smoothness(self.problem) + self.problem.ridge) > 2:
            raise ValueError("step_size must be at most 2 / (smoothness + ridge)")

    @property
    def event(self) -> GaussianPrivate:
        k = np.ones(self.steps)
        domain = self.problem.domain
        return GaussianPrivate(
            last_iterate_mu(
                self.contraction * k,
                self.shift * k,
                self.noise * k,
                diameter=None if domain is None or not math.isfinite(domain.diameter()) else domain.diameter(),
            )
        )

    @property
    def work(self) -> Work:
        return Work(gradients=float(self.steps) * self.problem.n, passes=float(self.steps))

    @property
    def risk(self) -> Risk:
        """Stationary variance of the slowest direction in every direction, plus what the start has left."""
        problem = self.problem
        variance = self.noise**2 / (self.step_size * problem.ridge * (2 - self.step_size * problem.ridge))
        return Risk(
            0.5 * problem.dimension * variance * (smoothness(problem) / problem.n_features + problem.ridge),
            "excess empirical risk from the noise",
        )

    @property
    def iterations(self) -> int:
        return self.steps

    @property
    def contraction(self) -> float:
        """The Lipschitz constant of a gradient step, rounded up."""
        ridge, curved = self.problem.ridge, smoothness(self.problem) + self.problem.ridge
        factor = max(abs(1 - self.step_size * ridge), abs(1 - self.step_size * curved))
        return factor + 2.0**-50

    @property
    def most_records(self) -> int:
        """Up to how many records the steps contract as claimed; only under add/remove can there be more than n.

        With k records the curvature is at most k / n * smoothness + ridge, and a step of 1 + contraction over that is
        the longest that contracts by no less.
        """
        steep = (2 - self.step_size * self.problem.ridge) / self.step_size - self.problem.ridge
        per_record = max(smoothness(self.problem), 1e-300)
        claimed = max(self.problem.n * 1.0, min(self.problem.n * steep / per_record, 2.0**53) * (1 - 1e-12))
        return math.floor(claimed)

    @property
    def grid(self) -> Grid:
        """The grid of the parameter."""
        return Grid.fitting(self._exact_shift, self.problem.dimension, "l2")

    @property
    def _exact_shift(self) -> float:
        return self.step_size / self.problem.n * change(self.problem, self.clip, self.relation)

    @property
    def shift(self) -> float:
        """How far apart the steps on neighbouring data can be, with what the grid of the parameter adds, rounded up."""
        rounding = self.grid.rounding(self.problem.dimension, "l2")
        return (self._exact_shift + (1 + self.contraction) * rounding) * (1 + 2.0**-40)

    def init(self, data: Any, run: Run) -> Floats:
        """The public start."""
        if self.relation == "replace" and len(data) != self.problem.n:
            raise ValueError(f"the plan is for n = {self.problem.n} records, the data have {len(data)}")
        return start(self.problem)

    def step(self, state: Floats, index: int, data: Any, run: Run) -> Floats:
        """One gradient step, with noise on the parameter."""
        problem, grid = self.problem, self.grid
        pass_over = data.gradient if state.ndim == 1 else data.gradients
        _, total = pass_over(problem.loss, state, clip=self.clip, **problem.guards)
        moved = grid.quantize(state - self.step_size * (total / problem.n + problem.ridge * state))
        # As integers: the rounding is in `shift` already.
        noisy = add_gaussian(
            moved, l2_sensitivity=self.shift, noise_multiplier=self.noise / self.shift, source=run.noise, grid=grid
        )
        return noisy if problem.domain is None else problem.domain.project(noisy)


def smoothness(problem: Minimize) -> float:
    """The smoothness of one record's loss; refused where there is none."""
    constant = problem.loss.smoothness(problem.bounds, problem.radius)
    if constant is None or not math.isfinite(constant.value):
        raise ValueError(
            f"last_iterate_gd needs a smooth loss, which {problem.loss.kind!r} is not: use a smoothed one "
            "(SmoothedHinge, Huber), or noisy_gd"
        )
    return constant.value


@dataclass(frozen=True)
class LastIterateGDAlgorithm:
    """Plans a descent whose last iterate is all that leaves."""

    name: str = "last_iterate_gd"

    def plan(self, problem: Minimize, budget: Budget, *, max_passes: int = 200, clip: float | None = None) -> Plan:
        """Steps of 1 / (smoothness + ridge), and the least noise that meets the budget for that many.

        >>> from dpfit.losses import Bounds, Logistic
        >>> problem = Minimize(n=10_000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=20, ridge=0.01)
        >>> plan = last_iterate_gd.plan(problem, Budget(mu=0.5))
        >>> round(plan.guarantee.mu, 4)
        0.5
        """
        require_minimize(self.name, problem, budget)
        if not problem.ridge > 0:
            raise ValueError("last_iterate_gd needs ridge > 0: the curvature that forgets must come from the ridge")
        size = 1 / (smoothness(problem) + problem.ridge)
        limit = unclipped(problem) if clip is None else positive("clip", clip)
        if not math.isfinite(limit):
            raise ValueError("the gradients of this loss have no bound here: give clip=, or bound labels or slopes")
        mu = 1 / calibrate(Gaussian, budget).noise_multiplier
        # mu is exactly proportional to 1 / noise, but for a bounded domain; a few rounds settle that.
        mechanism = LastIterateGD(problem, budget.relation, 1.0, max_passes, size, limit)
        mechanism = replace(mechanism, noise=mechanism.shift)
        for _ in range(60):
            reached = mechanism.event.mu
            if reached <= mu and reached >= mu * (1 - 1e-9):
                break
            mechanism = replace(mechanism, noise=mechanism.noise * reached / mu * (1 + 2.0**-45))
        # At very small budgets delta is computed to eight digits only: a little more noise where these decide.
        more = 1e-9
        while not (step := Step(mechanism, last_iterate_basis(mechanism, budget))).guarantee.meets(budget):
            mechanism, more = replace(mechanism, noise=mechanism.noise * (1 + more)), 2 * more
        return step

    def example(self, relation: str) -> tuple[Minimize, Any, Any]:
        """The records of `noisy_gd`, with a ridge."""
        problem, data, neighbour = opposite_records(relation)
        return replace(problem, ridge=0.1), data, neighbour


def last_iterate_basis(mechanism: LastIterateGD, budget: Budget) -> Basis:
    """Why the last iterate is private."""
    assumptions = [
        Assumption("each record is scaled into the declared bounds, its gradient is clipped", "enforced"),
        Assumption("the loss is convex and its constants hold within these bounds", mechanism.problem.loss.status),
        Assumption("only the last iterate is released", "enforced"),
    ]
    if budget.relation == "add_remove":
        # Counting the records instead would be a decision that depends on them.
        assumptions += [
            Assumption("the number n that divides the sums was not read off the data", "declared"),
            Assumption(f"there are at most {mechanism.most_records} records", "declared"),
        ]
    theorem = "contraction of noisy steps (docs/explanation/trajectory.md, Theorem 2)"
    basis = Basis(theorem, budget.relation, budget.unit, tuple(assumptions), "idealised")
    return vouched(basis, mechanism.problem.loss)


last_iterate_gd = LastIterateGDAlgorithm()
