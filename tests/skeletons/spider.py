"""SPIDER in one file: gradients and cheap differences, charged to a privacy filter.

Guarantee. Each call adds Gaussian noise to a sum of vectors whose norm clipping bounds, and charges
its event to the filter before it draws. Which call comes next, and at which bound, depends on
released answers only. So all calls together satisfy the cap, for any order and number of calls
(Smith and Thakurta 2022). The filter halts the descent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Algorithm, Example, Halted, Minimize, Plan, Run, State, Step
from dpfit.core.algorithm import BOUNDED, MARGIN_LOSS, SMOOTH
from dpfit.core.examples import opposite_records
from dpfit.data.chunk import Chunk
from dpfit.data.dataset import Dataset
from dpfit.data.tasks import Saturated
from dpfit.data.view import View
from dpfit.losses.guards import BinaryLabels, RowBall, clip_gradients
from dpfit.mechanisms.aggregates.aggregate import Aggregate
from dpfit.mechanisms.aggregates.contribution import Contribution, Gradient
from dpfit.noise import Grid, add_gaussian
from dpfit.privacy import Assumption, Basis, Budget, FilterExhausted, calibrate
from dpfit.privacy.event import Event, Filtered, Gaussian, GaussianPrivate
from dpfit.solvers.descents.descent import Descent
from dpfit.solvers.descents.optimizer import Optimizer

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Difference(Contribution):
    """The difference of a record's gradients at two public points, clipped to ``bound``."""

    problem: Minimize
    point: Floats
    before: Floats
    bound: float

    @property
    def dimension(self) -> int:
        return len(self.point)

    def total(self, data: Dataset, grid: Grid) -> NDArray[np.int64]:
        def task(chunk: Chunk) -> Saturated:
            loss, rows = self.problem.loss, RowBall(self.problem.bounds.row_norm).apply(chunk.rows)
            labels = BinaryLabels().apply(chunk.labels) if loss.binary_labels else chunk.labels
            slopes = [
                loss.slope(np.sum(rows * at, axis=1), labels) for at in (self.point, self.before)
            ]
            clipped = clip_gradients((slopes[0] - slopes[1])[:, np.newaxis] * rows, self.bound)
            return Saturated(grid.sum(clipped, self.bound))

        return data.reduce(task).steps


@dataclass(frozen=True)
class Metered(Aggregate):
    """Means with Gaussian noise under a cap of ``calls`` gradients; a difference costs 1/4."""

    kind = "skeleton_metered"
    calls: int = 4

    @property
    def event(self) -> Event:
        return Filtered(GaussianPrivate(1 / self.noise_multiplier))

    def answer(
        self, state: State, contribution: Contribution, data: View, run: Run
    ) -> tuple[State, Any]:
        multiplier = (
            self.noise_multiplier
            * math.sqrt(self.calls)
            * (2 if isinstance(contribution, Difference) else 1)
        )
        try:
            run.charge(Gaussian(multiplier))
        except FilterExhausted:
            return state, Halted()  # what was charged is public
        grid = Grid.fitting(contribution.bound, contribution.dimension, "l2")
        change = (2 if self.relation == "replace" else 1) * contribution.bound
        noise = {
            "l2_sensitivity": change + grid.rounding(contribution.dimension, "l2"),
            "noise_multiplier": multiplier,
        }
        return state, add_gaussian(
            contribution.total(data, grid), source=run.noise, grid=grid, **noise
        ) / self.n


@dataclass(frozen=True)
class Spider(Optimizer):
    """Gradient steps on a running estimate, refreshed once the path exceeds ``drift``."""

    kind = "skeleton_spider"
    step_size: float
    clip_norm: float
    smoothness: float
    drift: float

    def bounds(self, problem: Minimize) -> tuple[float, ...]:
        return (self.clip_norm,)

    def init(self, problem: Minimize, aggregate: Aggregate, public: Any) -> State:
        start = problem.project(problem.origin)
        return {"point": start, "before": start, "estimate": np.zeros_like(start), "path": math.inf}

    def ask(self, problem: Minimize, state: State) -> Contribution:
        if state["path"] > self.drift:
            return Gradient(problem, state["point"], self.clip_norm)
        moved = float(np.linalg.norm(state["point"] - state["before"]))
        # The least bound keeps the grid within the range of doubles where the point did not move.
        bound = min(2 * self.clip_norm, max(self.smoothness * moved, 1e-9 * self.clip_norm))
        return Difference(problem, state["point"], state["before"], bound)

    def tell(self, problem: Minimize, state: State, answer: Floats) -> State:
        refreshed = state["path"] > self.drift
        estimate = answer if refreshed else state["estimate"] + answer
        point = problem.project(state["point"] - self.step_size * estimate)
        path = (0.0 if refreshed else state["path"]) + float(np.linalg.norm(point - state["point"]))
        return {"point": point, "before": state["point"], "estimate": estimate, "path": path}

    def result(self, problem: Minimize, state: State) -> Floats:
        return state["point"]


class SpiderDescent(Algorithm[Minimize]):
    """Variance-reduced descent under a privacy filter."""

    name = "spider"
    summary = "variance-reduced descent under a privacy filter"
    reference = "Smith and Thakurta (2022); docs/explanation/filters.md"
    solves = Minimize
    guarantees = ("approximate", "gdp", "zcdp")
    requires = (MARGIN_LOSS, SMOOTH, BOUNDED)
    supports = frozenset({"domain"})

    def _plan(
        self, problem: Minimize, budget: Budget, *, steps: int = 12, step_size: float = 0.5,
        drift: float = 1.0, clip_norm: float | None = None,
    ) -> Plan:  # fmt: skip
        """Plan a descent capped by the budget; it ends after ``steps`` or at the cap."""
        constants = problem.constants(budget.relation)
        moves = Spider(step_size, clip_norm or constants.lipschitz, constants.smoothness, drift)
        clipped = Assumption("gradients and differences of each record are clipped", "enforced")
        why = Basis("privacy filter for Gaussian DP (Smith and Thakurta "
                    "2022)", budget.relation, budget.unit,
                    (clipped,), "idealised")  # fmt: skip

        def make(level: float) -> Step:
            return Step(
                Descent(problem, Metered(problem.n, level, steps, budget.relation), moves), why
            )

        return calibrate(make, budget)

    def example(self, relation: str) -> Example:
        """Return records of which one points the other way, or leaves."""
        return opposite_records(relation)


spider = SpiderDescent()
