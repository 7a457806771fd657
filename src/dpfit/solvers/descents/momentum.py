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
from dpfit.privacy.validate import in_safe_range, integer, non_negative, positive, probability
from dpfit.solvers.descents.descent import Descent
from dpfit.solvers.descents.optimizer import Optimizer

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Momentum(Optimizer):
    """Heavy-ball gradient steps, projected onto the region; the output averages iterates.

    Parameters
    ----------
    schedule : Schedule
        Momentum and weights of the iterates; the aggregate's noise follows the same schedule.
    shrinkage : float
        Squared length by which `james_stein` shrinks the output towards the start.
    reached : float
        Fraction of the way to the minimizer that the descent comes where rows favour no direction.
    least : float
        Least factor by which `james_stein` multiplies the output.
    unshrunk : int
        Number of last coordinates that are not shrunk: an intercept, say.
    """

    kind = "momentum"
    omitted: ClassVar = ("shrinkage", "reached", "least", "unshrunk")
    stacks: ClassVar[bool] = True
    step_size: float
    clip_norm: float
    schedule: Schedule
    shrinkage: float = 0.0
    reached: float = 1.0
    least: float = 0.0
    unshrunk: int = 0

    def __post_init__(self) -> None:
        positive("step_size", self.step_size)
        in_safe_range("clip_norm", self.clip_norm)
        if non_negative("shrinkage", self.shrinkage) == math.inf:
            raise ValueError("shrinkage must be finite")
        if not 0 < self.reached <= 1:
            raise ValueError(f"reached must lie in (0, 1], got {self.reached!r}")
        probability("least", self.least)
        integer("unshrunk", self.unshrunk, least=0)
        if self.time > 1e100:
            raise ValueError(
                f"steps * step_size / (1 - momentum) must be at most 1e100, got {self.time:.3g}; "
                "reduce step_size"
            )

    @property
    def time(self) -> float:
        """The time of the descent: the sum of all step sizes, with what momentum adds."""
        return self.schedule.steps * self.step_size / (1 - self.schedule.momentum)

    def check(self, problem: Minimize, aggregate: Aggregate) -> None:
        if isinstance(aggregate, ClippedMean):
            # Samples have even noise: their schedule is of the iterates only.
            shared = self.schedule if aggregate.sampling.sees_all else None
            if aggregate.schedule != shared:
                raise ValueError("aggregate and optimizer must have the same schedule")
        if self.step_size * problem.ridge > 1:
            raise ValueError(
                f"step_size must be at most 1 / ridge = {1 / problem.ridge:g}, got "
                f"{self.step_size!r}"
            )

    def bounds(self, problem: Minimize) -> tuple[float, ...]:
        return (self.clip_norm,)

    def init(self, problem: Minimize, aggregate: Aggregate, public: Dataset | None) -> State:
        point = problem.origin if problem.start is None else problem.project(problem.origin)
        return {
            "step": 0,
            "point": point,
            "velocity": np.zeros_like(point),
            "average": np.zeros_like(point),
        }

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
        # After fewer steps than planned the weights do not sum to 1 yet: the last iterate stands
        # for the rest.
        weights = self.schedule.average_weights[state["step"] :]
        average: Floats = (
            state["average"] + weights.sum() * state["point"] if len(weights) else state["average"]
        )
        if not self.shrinkage:
            return average
        origin = problem.origin
        moved = average - origin
        shrunk = moved[..., : moved.shape[-1] - self.unshrunk]
        shrunk[...] = james_stein(shrunk, self.shrinkage, self.reached, self.least)
        return np.asarray(origin + moved)


def james_stein(
    points: Floats, shrinkage: float, reached: float = 1.0, least: float = 0.0
) -> Floats:
    """Shrink points towards the origin by the positive-part James-Stein factor.

    Returns max(0, 1 - shrinkage / ||x||^2) x for each x on the last axis. For isotropic noise of
    variance v in d > 2 dimensions, shrinkage = (d - 2) v lowers the mean squared error everywhere.
    A point that came the fraction ``reached`` of the way is shrunk already, so the factor is
    divided by ``reached``. It is at least ``least`` and at most 1.
    Reference: James and Stein (1961); Baranchik (1970).

    >>> james_stein(np.array([[3.0, 4.0], [0.3, 0.4]]), 5.0).round(2).tolist()
    [[2.4, 3.2], [0.0, 0.0]]
    """
    squares = np.sum(points**2, axis=-1, keepdims=True)
    return np.asarray(points * shrinkage_factor(squares, shrinkage, reached, least))


def shrinkage_factor(squares: Floats, shrinkage: float, reached: float, least: float) -> Floats:
    """Return the factor of `james_stein` for points of these squared norms.

    >>> shrinkage_factor(np.array([25.0, 10.0, 1.0]), 5.0, reached=0.8, least=0.1).tolist()
    [1.0, 0.625, 0.1]
    """
    factor = 1 - shrinkage / np.maximum(squares, shrinkage) if shrinkage else np.ones_like(squares)
    return np.asarray(np.clip(factor / reached, least, 1.0))


def momentum_descent(
    problem: Minimize,
    relation: str,
    noise_multiplier: float,
    step_size: float,
    clip_norm: float,
    schedule: Schedule,
    shrinkage: float = 0.0,
    per: str = "record",
) -> Descent:
    """Return the descent with momentum whose noise and average follow one schedule."""
    aggregate = ClippedMean(
        problem.n, noise_multiplier, schedule.steps, relation, per=per, schedule=schedule
    )
    return Descent(problem, aggregate, Momentum(step_size, clip_norm, schedule, shrinkage))
