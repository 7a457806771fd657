"""Gradient steps with momentum, an average of the iterates and James-Stein shrinkage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Minimize, State
from dpfit.data.dataset import Dataset
from dpfit.mechanisms.aggregates.aggregate import Aggregate
from dpfit.mechanisms.aggregates.clipped_mean import ClippedMean
from dpfit.mechanisms.aggregates.contribution import Gradient
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.privacy.check import moderate, non_negative, positive
from dpfit.solvers.descents.descent import Descent
from dpfit.solvers.descents.optimizer import Optimizer

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Momentum(Optimizer):
    """Heavy-ball gradient steps, projected onto the problem's region; the output is an average of iterates.

    Parameters
    ----------
    schedule : Schedule
        Momentum and weights of the iterates; the aggregate's noise follows the same schedule.
    shrinkage : float
        Squared length by which `james_stein` shrinks the output towards the start.
    """

    kind = "momentum"
    omitted: ClassVar = ("shrinkage",)
    stacks: ClassVar[bool] = True
    step_size: float
    clip_norm: float
    schedule: Schedule
    shrinkage: float = 0.0

    def __post_init__(self) -> None:
        positive("step_size", self.step_size)
        moderate("clip_norm", self.clip_norm)
        if non_negative("shrinkage", self.shrinkage) == math.inf:
            raise ValueError("shrinkage must be finite")
        if self.time > 1e100:
            raise ValueError(
                f"steps * step_size / (1 - momentum) must be at most 1e100, got {self.time:.3g}; reduce step_size"
            )

    @property
    def time(self) -> float:
        """The time of the descent: the sum of all step sizes, with what momentum adds."""
        return self.schedule.steps * self.step_size / (1 - self.schedule.momentum)

    def check(self, problem: Minimize, aggregate: Aggregate) -> None:
        if isinstance(aggregate, ClippedMean) and aggregate.schedule != self.schedule:
            raise ValueError("aggregate and optimizer must have the same schedule")
        if self.step_size * problem.ridge > 1:
            raise ValueError(f"step_size must be at most 1 / ridge = {1 / problem.ridge:g}, got {self.step_size!r}")

    def bounds(self, problem: Minimize) -> tuple[float, ...]:
        return (self.clip_norm,)

    def init(self, problem: Minimize, aggregate: Aggregate, public: Dataset | None) -> State:
        point = problem.origin if problem.start is None else problem.project(problem.origin)
        return {"step": 0, "point": point, "velocity": np.zeros_like(point), "average": np.zeros_like(point)}

    def ask(self, problem: Minimize, state: State) -> Gradient:
        return Gradient(problem, state["point"], self.clip_norm)

    def tell(self, problem: Minimize, state: State, answer: Any) -> State:
        point, index = state["point"], state["step"]
        gradient = answer + problem.ridge_gradient(point)
        velocity = self.schedule.momentum * state["velocity"] - self.step_size * gradient
        point = problem.project(point + velocity)
        average = state["average"] + self.schedule.average_weights[index] * point
        return {"step": index + 1, "point": point, "velocity": velocity, "average": average}

    def result(self, problem: Minimize, state: State) -> Floats:
        # After fewer steps than planned the weights do not sum to 1 yet: the last iterate stands for the rest.
        weights = self.schedule.average_weights[state["step"] :]
        average: Floats = state["average"] + weights.sum() * state["point"] if len(weights) else state["average"]
        if not self.shrinkage:
            return average
        origin = problem.origin
        return origin + james_stein(average - origin, self.shrinkage)


def james_stein(points: Floats, shrinkage: float) -> Floats:
    """Shrink points towards the origin by the positive-part James-Stein factor.

    Returns max(0, 1 - shrinkage / ||x||^2) x for each x on the last axis. For isotropic noise of variance v in d > 2
    dimensions, shrinkage = (d - 2) v lowers the mean squared error everywhere.
    Reference: James and Stein (1961); Baranchik (1970).

    >>> james_stein(np.array([[3.0, 4.0], [0.3, 0.4]]), 5.0).round(2).tolist()
    [[2.4, 3.2], [0.0, 0.0]]
    """
    lengths = np.sum(points**2, axis=-1, keepdims=True)
    return np.asarray(points * np.maximum(0.0, 1 - shrinkage / np.maximum(lengths, shrinkage)))


def momentum_descent(
    problem: Minimize, relation: str, noise_multiplier: float, step_size: float, clip_norm: float, schedule: Schedule,
    shrinkage: float = 0.0,
) -> Descent:  # fmt: skip
    """Return the descent with momentum whose noise and average follow one schedule."""
    aggregate = ClippedMean(problem.n, noise_multiplier, schedule.steps, relation, schedule=schedule)
    return Descent(problem, aggregate, Momentum(step_size, clip_norm, schedule, shrinkage))
