"""A descent on filtered means of users in one file: it halts once too many users are far from the last mean.

Guarantee. A user contributes one vector, its mean gradient, within ``radius`` of a released centre, or nothing. So a
replaced user moves the sum by at most 2 * radius, and all means are mu-GDP, mu = 1 / noise_multiplier. The number of
users that are far is compared with a secret threshold by `AboveThreshold`: epsilon-DP for all rounds. Transcripts of an
epsilon-DP test on two neighbours are mixtures of two processes, chosen by randomized response (its differences are
non-negative at every prefix), so tests and means may alternate and cost what they cost one after the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Algorithm, Example, Halted, Minimize, Plan, Run, State, Step
from dpfit.core.algorithm import MARGIN_LOSS
from dpfit.data.dataset import InMemory
from dpfit.data.users import user_codes
from dpfit.data.view import View
from dpfit.losses import Bounds, Logistic
from dpfit.losses.guards import clip_gradients
from dpfit.mechanisms.above_threshold import AboveThreshold, ThresholdQueries
from dpfit.mechanisms.aggregates.aggregate import Aggregate
from dpfit.mechanisms.aggregates.contribution import Gradient
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.noise import Grid, add_gaussian
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import Composed, Event, Gaussian, Pure
from dpfit.solvers.descents.descent import Descent
from dpfit.solvers.descents.momentum import Momentum


@dataclass(frozen=True)
class FilteredMean(Aggregate):
    """Means of the users' vectors near the last mean; `Halted` once too many are far from it."""

    kind = "skeleton_filtered_mean"
    units: ClassVar[tuple[str, ...]] = ("user",)
    per: str = "user"
    epsilon: float = 1.0
    radius: float = 1.0

    @cached_property
    def test(self) -> AboveThreshold:
        """The secret threshold: half of the users."""
        return AboveThreshold(self.epsilon, ThresholdQueries(self.n / 2), self.rounds)

    @property
    def event(self) -> Event:
        return Composed((Pure(self.epsilon), Gaussian(self.noise_multiplier)))

    def init(self, data: View, run: Run) -> State:
        return super().init(data, run) | {"test": self.test.init(data, run), "centre": None}

    def answer(self, state: State, contribution: Gradient, data: View, run: Run) -> tuple[State, Any]:
        centre = np.zeros(contribution.dimension) if state["centre"] is None else state["centre"]
        away = clip_gradients(self.vectors(contribution, data), contribution.bound) - centre
        far = np.linalg.norm(away, axis=1) > self.radius
        test, halts = self.test.compare(state["test"], float(far.sum()), run)
        if halts:
            return state | {"test": test}, Halted()
        grid = Grid.fitting(self.radius, len(centre), "l2")
        near = clip_gradients(np.where(far[:, np.newaxis], 0.0, away), self.radius)
        noise = {
            "l2_sensitivity": 2 * self.radius + grid.rounding(len(centre), "l2"),
            "noise_multiplier": self.noise_multiplier * math.sqrt(self.rounds),
        }
        mean = centre + add_gaussian(grid.sum(near, self.radius), source=run.noise, grid=grid, **noise) / self.n
        return state | {"test": test, "centre": mean}, mean

    def vectors(self, contribution: Gradient, data: View) -> NDArray[np.float64]:
        """Return the mean gradient of each user."""
        codes, problem = user_codes(data.users), contribution.problem
        rows = [np.flatnonzero(codes == user) for user in range(codes.max(initial=-1) + 1)]
        sums = [data.gradient(problem.loss, contribution.point, index=own, **problem.guards)[1] for own in rows]
        means = [total / len(own) for total, own in zip(sums, rows, strict=True)]
        return np.array(means).reshape(-1, contribution.dimension)


class FilteredMeanDescent(Algorithm[Minimize]):
    """Gradient descent on filtered means of users."""

    name = "filtered_mean"
    summary = "descent on means of users that agree; halts where they do not"
    reference = "Dwork and Roth (2014) Theorem 3.23; [Liu24] Section 9.2"
    solves = Minimize
    guarantees = ("approximate", "gdp", "zcdp")
    relations = ("replace",)
    units = ("user",)
    requires = (MARGIN_LOSS,)
    supports = frozenset({"ridge", "domain"})

    def _plan(
        self, problem: Minimize, budget: Budget, *, steps: int = 4, radius: float = 0.5, step_size: float = 0.5,
        clip_norm: float = 1.0,
    ) -> Plan:  # fmt: skip
        """Plan a few steps; test and means get noise in proportion."""
        one = Assumption("a user contributes one vector of norm at most radius", "enforced")
        why = Basis("above threshold (Dwork and Roth 2014, Theorem 3.23); Gaussian mechanism [Gan22, Fact 15]",
                    budget.relation, budget.unit, (one,), "idealised")  # fmt: skip
        moves = Momentum(step_size, clip_norm, Schedule(steps))

        def make(level: float) -> Step:
            mean = FilteredMean(problem.n, level, steps, budget.relation, epsilon=1 / level, radius=radius)
            return Step(Descent(problem, mean, moves), why)

        return calibrate(make, budget)

    def example(self, relation: str) -> Example:
        """Return eight users of two records each; all records of one change."""
        problem = Minimize(n=8, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=2)
        rows, users = np.tile([[1.0, 0.0], [0.0, 1.0]], (8, 1)), np.repeat(np.arange(8), 2)
        labels = np.ones(16)
        return Example(problem, InMemory(rows, labels, users), InMemory(rows, np.append(labels[:-2], [-1, -1]), users))


filtered_mean = FilteredMeanDescent()
