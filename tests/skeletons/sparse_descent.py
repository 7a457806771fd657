"""Sparse descent in one file: choose columns by noisy Frank-Wolfe steps, then fit them by any solver.

Guarantee. A step answers a sum of clipped gradients by one of 2 d signed corners, drawn with probability proportional
to exp(epsilon * score / (2 * sensitivity)). One record moves every score by at most the sensitivity, so the logarithm
of a probability moves within an interval of length epsilon: bounded range, composed over all steps (Dong, Durfee and
Rogers 2020). The fit sees rows cut to released columns, each record by itself, so neighbours stay neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpfit.core import (
    Algorithm,
    Binding,
    Composition,
    Example,
    Last,
    Minimize,
    Plan,
    Run,
    Stage,
    State,
    Step,
    Transformation,
    TransformedPlan,
)  # fmt: skip
from dpfit.core.algorithm import BOUNDED
from dpfit.core.examples import opposite_records
from dpfit.data.chunk import Chunk
from dpfit.data.view import View
from dpfit.mechanisms.aggregates.aggregate import Aggregate
from dpfit.mechanisms.aggregates.contribution import Contribution, Gradient
from dpfit.noise import Grid
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import BoundedRange, Event, Repeated
from dpfit.solvers.descents.descent import Descent
from dpfit.solvers.descents.optimizer import Optimizer
from dpfit.solvers.gradient.noisy_gd import noisy_gd

SHORT = noisy_gd.using(max_passes=20)


@dataclass(frozen=True)
class SignedCorner(Aggregate):
    """The coordinate and sign along which a sum of contributions falls fastest, by the exponential mechanism."""

    kind = "skeleton_signed_corner"

    @property
    def event(self) -> Event:
        return Repeated(BoundedRange(1 / self.noise_multiplier), self.rounds)

    def answer(self, state: State, contribution: Contribution, data: View, run: Run) -> tuple[State, Any]:
        grid = Grid.fitting(contribution.bound, contribution.dimension, "l2")
        total = grid.values(contribution.total(data, grid))
        # Entries are at most the l2 bound; one step more covers the rounding of a record that is replaced.
        sensitivity = (2 if self.relation == "replace" else 1) * contribution.bound + grid.step
        scores = np.concatenate([-total, total]) / (2 * sensitivity * self.noise_multiplier)
        drawn = int(np.argmax(scores + run.noise.gumbel(len(scores))))
        return state, (drawn % len(total), 1.0 if drawn < len(total) else -1.0)


@dataclass(frozen=True)
class Corners(Optimizer):
    """Frank-Wolfe steps in the l1 ball; the output are the columns that were visited."""

    kind = "skeleton_corners"
    columns: int
    radius: float
    clip_norm: float

    def bounds(self, problem: Minimize) -> tuple[float, ...]:
        return (self.clip_norm,)

    def init(self, problem: Minimize, aggregate: Aggregate, public: Any) -> State:
        return {"point": np.zeros(problem.dimension), "visited": ()}

    def ask(self, problem: Minimize, state: State) -> Gradient:
        return Gradient(problem, state["point"], self.clip_norm)

    def tell(self, problem: Minimize, state: State, answer: tuple[int, float]) -> State:
        column, sign = answer
        corner = np.zeros(problem.dimension)
        corner[column] = sign * self.radius
        weight = 2 / (len(state["visited"]) + 2)
        return {"point": (1 - weight) * state["point"] + weight * corner, "visited": (*state["visited"], column)}

    def result(self, problem: Minimize, state: State) -> Any:
        # Always as many as planned: the first columns fill up what was visited twice.
        return np.array(list(dict.fromkeys((*state["visited"], *range(problem.dimension))))[: self.columns])


@dataclass(frozen=True)
class Columns(Transformation):
    """Rows cut to the chosen columns; a parameter for them has zeros elsewhere."""

    kind = "skeleton_columns"
    chosen: tuple[int, ...]
    n_features: int

    def transform(self, data: View, run: Run) -> View:
        return data.map(self)

    def __call__(self, chunk: Chunk) -> Chunk:
        return chunk.with_records(chunk.rows[:, list(self.chosen)], chunk.labels)

    def width(self, width: int) -> int:
        return len(self.chosen)

    def inverse(self, value: Any) -> Any:
        parameter = np.zeros(self.n_features)
        parameter[list(self.chosen)] = value
        return parameter


@dataclass(frozen=True)
class ChosenBy(Binding):
    """Cut rows to the columns that a stage released."""

    kind = "skeleton_chosen_by"
    stage: str

    def __call__(self, plan: TransformedPlan, released: Mapping[str, Any]) -> Plan:
        chosen = tuple(np.asarray(released[self.stage]).tolist())
        return replace(plan, transformation=replace(plan.transformation, chosen=chosen))

    def stand_in(self, plan: TransformedPlan) -> Mapping[str, Any]:
        return {self.stage: plan.transformation.chosen[::-1]}


class SparseDescent(Algorithm[Minimize]):
    """Choose a few columns privately, then fit them by any solver."""

    name = "sparse_descent"
    summary = "a fit on few columns, chosen privately"
    reference = "Dong, Durfee and Rogers (2020)"
    solves = Minimize
    guarantees = ("approximate", "gdp", "zcdp")
    requires = (BOUNDED,)

    def _plan(
        self, problem: Minimize, budget: Budget, *, columns: int = 1, share: float = 0.5, radius: float = 1.0,
        solver: Algorithm[Minimize] = SHORT, clip_norm: float | None = None,
    ) -> Plan:  # fmt: skip
        """Plan the choice with a share of the budget, and the fit with what remains."""
        clip_norm = problem.constants(budget.relation).lipschitz if clip_norm is None else clip_norm
        moves = Corners(columns, radius, clip_norm)
        clipped = Assumption("the gradient of each record is clipped", "enforced")
        why = Basis("exponential mechanism, bounded range (Dong, Durfee and Rogers 2020)", budget.relation, budget.unit,
                    (clipped,), "idealised")  # fmt: skip

        def choice(level: float) -> Step:
            return Step(Descent(problem, SignedCorner(problem.n, level, columns, budget.relation), moves), why)

        choose = calibrate(choice, budget.split(share)[0])
        few = solver.plan(replace(problem, n_features=columns), budget.remaining_after(choose.event))
        fit = TransformedPlan.of(Columns(tuple(range(columns)), problem.n_features), few)
        return Composition((Stage("columns", choose), Stage("fit", fit, ChosenBy("columns"))), combine=Last())

    def example(self, relation: str) -> Example:
        """Return records of which one points the other way, or leaves."""
        return opposite_records(relation)


sparse_descent = SparseDescent()
