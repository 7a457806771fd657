"""Private model averaging in one file: groups of users become records of a noisy mean.

Guarantee. A user is in one group, by a position that depends on no value. So a user who is
replaced, added or removed changes one of the models, each of norm at most ``radius``, and moves
their sum by at most 2 * radius: under both relations groups see a replaced record. The trainer is
arbitrary: nothing of it leaves but the noisy mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpfit.core import (
    Algorithm,
    DataFacts,
    Example,
    Mechanism,
    Minimize,
    Plan,
    Requirement,
    Run,
    Step,
    Transformation,
    TransformedPlan,
)  # fmt: skip
from dpfit.data.dataset import InMemory
from dpfit.data.view import View
from dpfit.losses import Bounds, Squared
from dpfit.losses.guards import clip_gradients
from dpfit.noise import Grid, add_gaussian
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import Event, Gaussian

SQUARED = Requirement(
    "a squared loss", "use Squared()", lambda problem, budget, options: problem.loss == Squared()
)


@dataclass(frozen=True)
class MeanOfRows(Mechanism):
    """Mean of ``n`` rows of norm at most ``radius``, replace-one, plus Gaussian noise."""

    kind = "skeleton_mean_of_rows"
    n: int
    radius: float
    noise_multiplier: float

    @property
    def event(self) -> Event:
        return Gaussian(self.noise_multiplier)

    def run(self, data: View, run: Run) -> NDArray[np.float64]:
        grid = Grid.fitting(self.radius, data.width, "l2")
        total = data.reduce(
            lambda chunk: grid.sum(clip_gradients(chunk.rows, self.radius), self.radius)
        )
        sensitivity = 2 * self.radius + grid.rounding(data.width, "l2")
        noise = {"l2_sensitivity": sensitivity, "noise_multiplier": self.noise_multiplier}
        return add_gaussian(total, source=run.noise, grid=grid, **noise) / self.n


@dataclass(frozen=True)
class TrainedGroups(Transformation):
    """One ridge regression for each group of users, in place of the records."""

    kind = "skeleton_trained_groups"
    draws = True
    keeps_records = False
    problem: Minimize
    groups: int
    relation: str

    def transform(self, data: View, run: Run) -> View:
        models = [
            self.model(data.between(g / self.groups, (g + 1) / self.groups))
            for g in range(self.groups)
        ]
        return data.with_fresh_positions(InMemory(models, np.zeros(self.groups)), "record")

    def model(self, group: View) -> NDArray[np.float64]:
        """Return the fit of one group; zeros without records."""
        square, cross = group.gram(**self.problem.guards)
        return np.linalg.solve(square + max(self.problem.ridge, 1e-3) * np.eye(len(cross)), cross)

    def basis(self, inner: Basis) -> Basis:
        return replace(inner, relation=self.relation, unit="user")

    def data_facts(self, inner: DataFacts) -> DataFacts:
        return self.problem.data_facts


class ModelAveraging(Algorithm[Minimize]):
    """Noisy mean of models that are trained on disjoint groups of users."""

    name = "model_averaging"
    summary = "noisy mean of models of disjoint groups of users"
    reference = "[Liu24] Section 8; docs/explanation/accounting.md"
    solves = Minimize
    guarantees = ("approximate", "gdp", "zcdp")
    units = ("user",)
    requires = (SQUARED,)
    supports = frozenset({"ridge"})

    def _plan(
        self, problem: Minimize, budget: Budget, *, groups: int = 4, radius: float = 1.0
    ) -> Plan:
        """Plan one model for each group."""
        one = Assumption("a user is in one group, by a random position", "enforced")
        why = Basis("Gaussian mechanism [Gan22, Fact 15]", "replace", "record", (one,))
        grouped = TrainedGroups(problem, groups, budget.relation)

        def make(level: float) -> TransformedPlan:
            return TransformedPlan.of(grouped, Step(MeanOfRows(groups, radius, level), why))

        return calibrate(make, budget)

    def example(self, relation: str) -> Example:
        """Return eight users of two records each; one changes all labels, or leaves."""
        problem = Minimize(
            n=8, loss=Squared(), bounds=Bounds(1.0, -1.0, 1.0), n_features=2, ridge=0.1
        )
        rows, users = np.tile([[1.0, 0.0], [0.0, 1.0]], (8, 1)), np.repeat(np.arange(8), 2)
        data = InMemory(rows, np.ones(16), users)
        if relation == "add_remove":
            return Example(problem, data, InMemory(rows[:-2], np.ones(14), users[:-2]))
        return Example(problem, data, InMemory(rows, np.append(np.ones(14), [-1, -1]), users))


model_averaging = ModelAveraging()
