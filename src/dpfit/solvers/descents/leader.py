"""Follow the regularized leader: the start minus a multiple of the sum of all gradients so far."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Minimize, State
from dpfit.data.dataset import Dataset
from dpfit.mechanisms.aggregates.aggregate import Aggregate
from dpfit.mechanisms.aggregates.contribution import Gradient
from dpfit.mechanisms.aggregates.prefix_sums import PrefixSums
from dpfit.privacy.validate import in_safe_range, positive, probability
from dpfit.solvers.descents.optimizer import Optimizer

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Leader(Optimizer):
    """The start minus step_size times the running sum of mean gradients, projected.

    The running sum has the noise of one estimate, not the sum of the noise of all steps. The
    output is the mean of the last points.

    Parameters
    ----------
    average : float
        Fraction of the points, from the end, that the output averages; 0 gives the last point.
    """

    kind = "leader"
    omitted: ClassVar = ("average",)
    step_size: float
    clip_norm: float
    average: float = 0.5

    def __post_init__(self) -> None:
        positive("step_size", self.step_size)
        in_safe_range("clip_norm", self.clip_norm)
        probability("average", self.average)

    def check(self, problem: Minimize, aggregate: Aggregate) -> None:
        if not isinstance(aggregate, PrefixSums):
            raise ValueError(f"{self.kind} needs running sums, got {aggregate.kind!r}")
        if self.step_size * problem.ridge > 1:
            raise ValueError(
                f"step_size must be at most 1 / ridge = {1 / problem.ridge:g}, got "
                f"{self.step_size!r}"
            )

    def bounds(self, problem: Minimize) -> tuple[float, ...]:
        return (self.clip_norm,)

    def init(self, problem: Minimize, aggregate: Aggregate, public: Dataset | None) -> State:
        start = problem.project(problem.origin)
        rounds = aggregate.rounds
        return {
            "point": start,
            "ridge": np.zeros_like(start),
            "total": np.zeros_like(start),
            "steps": 0,
            "first": min(rounds, rounds - math.floor(self.average * rounds) + 1),
            "batch": problem.n / rounds,
        }

    def ask(self, problem: Minimize, state: State) -> Gradient:
        return Gradient(problem, state["point"], self.clip_norm)

    def tell(self, problem: Minimize, state: State, answer: Any) -> State:
        ridge = state["ridge"] + problem.ridge_gradient(state["point"])
        moved = self.step_size * (answer / state["batch"] + ridge)
        point, steps = problem.project(problem.origin - moved), state["steps"] + 1
        total = state["total"] + point if steps >= state["first"] else state["total"]
        return state | {"point": point, "ridge": ridge, "total": total, "steps": steps}

    def result(self, problem: Minimize, state: State) -> Floats:
        count = state["steps"] - state["first"] + 1
        return np.asarray(state["total"] / count if count > 0 else state["point"])
