"""Full-batch descent on a ridge-regularized convex loss; releases only the last iterate.

Guarantee: mu-GDP for the last iterate, with mu from the contraction of the steps: mu stays bounded
as steps are added. Reference: [LD] Lemma I.2, sharpened; docs/explanation/trajectory.md, Theorem 2,
with its section on rounding. Refused: non-smooth losses, clipped losses that are not generalized
linear, steps above 2 / curvature.

theta_k = project(theta_{k-1} - step_size * (gradient sum / n + ridge * theta_{k-1}) + noise). All
iterates together cost mu**2 = steps * (shift / noise)**2. The last iterate costs at most mu**2 =
shift**2 / noise**2 * 2 / (step_size * ridge), for any number of steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Algorithm, Example, Minimize, Plan, Risk, Run, Step, VectorizedLoop, Work
from dpfit.core.algorithm import BOUNDED, CONVEX, DECLARED_N, RIDGE, SMOOTH
from dpfit.core.examples import opposite_records
from dpfit.data.view import View
from dpfit.losses.custom import declared_basis
from dpfit.noise import Grid, add_gaussian
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import Gaussian, GaussianPrivate
from dpfit.privacy.last_iterate import last_iterate_mu
from dpfit.privacy.validate import in_safe_range, integer, option, positive

Floats = NDArray[np.float64]

_STEPS = 200
"""Steps where ``max_passes`` is not given."""


@dataclass(frozen=True)
class LastIterateDescent(VectorizedLoop):
    """Last iterate of noisy gradient descent.

    Guarantee: mu-GDP for the output, mu from the contraction of the steps. Earlier iterates are not
    covered. Sensitivity: one record changes a step by at most ``shift``, in l2.
    Assumes: convex smooth loss (checked); at most ``most_records`` records under add/remove
    (declared). Reference: docs/explanation/trajectory.md, Theorem 2.

    Parameters
    ----------
    noise : float
        Standard deviation of the noise on the parameter, at each step.
    """

    kind = "last_iterate_gd"
    former: ClassVar = {"clip": "clip_norm"}
    problem: Minimize
    relation: str
    noise: float
    steps: int
    step_size: float
    clip_norm: float

    def __post_init__(self) -> None:
        option("relation", self.relation, ("replace", "add_remove"))
        integer("steps", self.steps)
        in_safe_range("clip_norm", self.clip_norm)
        for name in ("noise", "step_size"):
            positive(name, getattr(self, name))
        constants = self.problem.constants(self.relation)
        if not constants.convex:
            raise ValueError(
                "the loss must be convex: only then do gradient steps contract; use noisy_gd"
            )
        if not constants.smooth:
            raise ValueError(
                f"the loss must be smooth, got {self.problem.loss.kind!r}; use a smoothed one, "
                "or noisy_gd"
            )
        if not constants.convex_when_clipped and self.clip_norm < constants.lipschitz:
            raise ValueError(
                f"clip_norm must be at least the Lipschitz constant {constants.lipschitz:g} for "
                "a loss that is not "
                f"generalized linear, got {self.clip_norm:g}: clipped steps might not contract"
            )
        if self.step_size * self.curvature > 2:
            raise ValueError(
                f"step_size must be at most 2 / (smoothness + ridge) = {2 / self.curvature:g}, "
                f"got {self.step_size:g}"
            )

    @property
    def event(self) -> GaussianPrivate:
        k = np.ones(self.steps)
        diameter = math.inf if self.problem.region is None else self.problem.region.diameter()
        return GaussianPrivate(
            last_iterate_mu(
                self.contraction * k,
                self.shift * k,
                self.noise * k,
                diameter=diameter if math.isfinite(diameter) else None,
            )
        )

    def basis(self, budget: Budget) -> Basis:
        """Return why the last iterate is private."""
        loss = self.problem.loss
        assumptions = [
            Assumption(
                "each record is scaled into the declared bounds, its gradient is clipped",
                "enforced",
            ),
            Assumption(
                "the loss is convex and its constants hold within these bounds", loss.status
            ),
            Assumption("only the last iterate is released", "enforced"),
        ]
        if budget.relation == "add_remove":
            # Counting the records instead would be a decision that depends on them.
            assumptions += [
                DECLARED_N,
                Assumption(f"there are at most {self.most_records} records", "declared"),
            ]
        theorem = "contraction of noisy steps (docs/explanation/trajectory.md, Theorem 2)"
        return declared_basis(
            Basis(theorem, budget.relation, budget.unit, tuple(assumptions), "idealised"), loss
        )

    def with_mu(self, mu: float) -> Self:
        """Return the descent with the smallest noise that is mu-GDP, within 1e-9 of mu."""
        found = replace(self, noise=self.shift)
        # mu is proportional to 1 / noise, but for a bounded domain; a few rounds settle that.
        for _ in range(60):
            reached = found.event.mu
            if mu * (1 - 1e-9) <= reached <= mu:
                break
            found = replace(found, noise=found.noise * reached / mu * (1 + 2.0**-45))
        return found

    def within(self, budget: Budget) -> Self:
        """Return the descent with as little more noise as makes the accountant admit it.

        At very small budgets the accountant computes delta to eight digits, and these may decide.
        """
        found, more = self, 1e-9
        while not budget.admits(found.event):
            found, more = replace(found, noise=found.noise * (1 + more)), 2 * more
        return found

    @property
    def work(self) -> Work:
        return Work(gradients=float(self.steps) * self.problem.n, passes=float(self.steps))

    @property
    def risk(self) -> Risk:
        """Stationary variance of the slowest direction, taken for every direction."""
        problem, smoothness = self.problem, self.problem.constants(self.relation).smoothness
        variance = self.noise**2 / (
            self.step_size * problem.ridge * (2 - self.step_size * problem.ridge)
        )
        return Risk(
            0.5 * problem.dimension * variance * (smoothness / problem.n_features + problem.ridge),
            "excess empirical risk from the noise",
        )

    @property
    def iterations(self) -> int:
        return self.steps

    @property
    def curvature(self) -> float:
        """Largest curvature of the objective: smoothness + ridge."""
        return self.problem.constants(self.relation).smoothness + self.problem.ridge

    @cached_property
    def contraction(self) -> float:
        """Lipschitz constant of a gradient step, rounded up."""
        factor = max(
            abs(1 - self.step_size * self.problem.ridge), abs(1 - self.step_size * self.curvature)
        )
        return factor + 2.0**-50

    @property
    def most_records(self) -> int:
        """Largest number of records for which steps contract; above n only under add/remove.

        With k records the curvature is at most k / n * smoothness + ridge. A step contracts by the
        claimed factor if this is at most (1 + factor) / step_size.
        """
        problem = self.problem
        steep = (2 - self.step_size * problem.ridge) / self.step_size - problem.ridge
        per_record = max(problem.constants(self.relation).smoothness, 1e-300)
        claimed = max(problem.n * 1.0, min(problem.n * steep / per_record, 2.0**53) * (1 - 1e-12))
        return math.floor(claimed)

    @cached_property
    def grid(self) -> Grid:
        """The grid of the parameter."""
        return Grid.fitting(self._exact_shift, self.problem.dimension, "l2")

    @property
    def _exact_shift(self) -> float:
        return (
            self.step_size
            / self.problem.n
            * self.problem.clipped_sensitivity(self.clip_norm, self.relation)
        )

    @cached_property
    def shift(self) -> float:
        """Largest distance of steps on neighbouring data, with rounding to the grid, rounded up."""
        rounding = self.grid.rounding(self.problem.dimension, "l2")
        return (self._exact_shift + (1 + self.contraction) * rounding) * (1 + 2.0**-40)

    def init(self, data: View, run: Run) -> Floats:
        """Return the public start."""
        return self.problem.origin

    def step(self, state: Floats, index: int, data: View, run: Run) -> Floats:
        """Make one gradient step, with noise on the parameter."""
        problem, grid = self.problem, self.grid
        pass_over = data.gradient if state.ndim == 1 else data.gradients
        _, total = pass_over(problem.loss, state, **(problem.guards | {"clip": self.clip_norm}))
        moved = grid.quantize(state - self.step_size * (total / problem.n + problem.ridge * state))
        # As integers: the rounding is in `shift` already.
        noisy = add_gaussian(
            moved,
            l2_sensitivity=self.shift,
            noise_multiplier=self.noise / self.shift,
            source=run.noise,
            grid=grid,
        )
        return problem.project(noisy)


class LastIterateGD(Algorithm[Minimize]):
    """Gradient descent that releases the last iterate: noise does not grow with steps.

    Use it for a strongly convex objective and many steps; use `noisy_gd` without a ridge.
    Guarantee: mu-GDP for the last iterate, from the contraction of the steps.
    Reference: [LD] Lemma I.2, sharpened; proof in docs/explanation/trajectory.md, Theorem 2.
    Work: ``max_passes`` passes over the data.
    """

    name = "last_iterate_gd"
    summary = (
        "gradient descent that releases its last iterate only, so further steps cost little privacy"
    )
    reference = "[LD] Lemma I.2, sharpened"
    solves = Minimize
    guarantees = ("approximate", "gdp", "zcdp")
    requires = (CONVEX, SMOOTH, RIDGE, BOUNDED)
    supports = frozenset({"ridge", "domain"})
    tier = "specialised"

    def _plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        max_passes: int | None = None,
        clip_norm: float | None = None,
    ) -> Plan:
        """Plan steps of 1 / (smoothness + ridge) with the smallest noise that meets the budget.

        ``max_passes`` is the number of steps, 200 by default.

        >>> from dpfit.losses import Bounds, Logistic
        >>> problem = Minimize(
        ...     n=10_000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=20, ridge=0.01
        ... )
        >>> plan = last_iterate_gd.plan(problem, Budget(mu=0.5))
        >>> round(plan.guarantee.mu, 4)
        0.5
        """
        constants = problem.constants(budget.relation)
        size = 1 / (constants.smoothness + problem.ridge)
        limit = constants.lipschitz if clip_norm is None else positive("clip_norm", clip_norm)
        steps = _STEPS if max_passes is None else integer("max_passes", max_passes)
        mu = 1 / calibrate(Gaussian, budget).noise_multiplier
        mechanism = (
            LastIterateDescent(problem, budget.relation, 1.0, steps, size, limit)
            .with_mu(mu)
            .within(budget)
        )
        return Step(mechanism, mechanism.basis(budget))

    def example(self, relation: str) -> Example:
        """Return opposite records, with a ridge."""
        return opposite_records(relation, ridge=0.1)


last_iterate_gd = LastIterateGD()
