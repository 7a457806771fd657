"""Corners: equal steps along signed columns, each column once; the result is the columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Minimize, State
from dpfit.data.dataset import Dataset
from dpfit.mechanisms.aggregates.aggregate import Aggregate
from dpfit.mechanisms.aggregates.signed_corner import EntryGradient
from dpfit.solvers.descents.optimizer import Optimizer


@dataclass(frozen=True)
class Corners(Optimizer):
    """Steps of length ``radius / columns`` along the signed columns that an aggregate answers.

    The result is the ``columns`` columns in the order of the answers; all differ. The last point
    is no fit: equal steps exceed small coefficients, so it is not released.
    """

    kind = "corners"
    columns: int
    candidates: int
    radius: float

    def check(self, problem: Minimize, aggregate: Aggregate) -> None:
        if aggregate.rounds != self.columns:
            raise ValueError(f"aggregate must have {self.columns} rounds, got {aggregate.rounds}")
        if self.columns > self.candidates:
            raise ValueError(f"columns must be at most {self.candidates}, got {self.columns}")
        aggregate.check_scale(self.ask(problem, self.init(problem, aggregate, None)))

    def bounds(self, problem: Minimize) -> tuple[float, ...]:
        return ()

    def init(self, problem: Minimize, aggregate: Aggregate, public: Dataset | None) -> State:
        return {"point": np.zeros(problem.dimension), "visited": ()}

    def ask(self, problem: Minimize, state: State) -> EntryGradient:
        return EntryGradient(problem, state["point"], self.candidates, state["visited"])

    def tell(self, problem: Minimize, state: State, answer: tuple[int, float]) -> State:
        column, sign = answer
        point = state["point"].copy()
        point[column] += sign * self.radius / self.columns
        return {"point": point, "visited": (*state["visited"], int(column))}

    def result(self, problem: Minimize, state: State) -> NDArray[np.int64]:
        return np.array(state["visited"], dtype=np.int64)
