"""Adaptive steps: each coordinate moves by its mean gradient over the root of its second moment.

Noise adds its variance to second moments, which would shrink all steps alike. The variance is
public, so it is subtracted.
"""

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
from dpfit.privacy.validate import in_safe_range, integer, positive, probability
from dpfit.solvers.descents.network_rule import TUNING as NETWORKS
from dpfit.solvers.descents.optimizer import Optimizer
from dpfit.solvers.descents.rule import default_clip_norm
from dpfit.solvers.descents.scales import parameter_scale

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Adaptive(Optimizer):
    """Adam on noisy means, with the noise variance subtracted from second moments.

    With decaying means m of the answers and v of their squares, both corrected for their start at
    zero, step k moves by step_size * (1 - k / steps) * m / sqrt(v - noise variance). What is left
    of v is at least one standard deviation of what noise makes of v, so that noise alone is never
    scaled up to a full step. The output averages the last iterates.

    Use it where columns have very different scales and `preconditioned_gd` does not take the loss.
    `Momentum` has less error where columns are alike.
    Guarantee: that of the aggregate; the rule reads released answers only.
    Reference: Kingma and Ba (2015); Tang, Shpilevskiy and Lecuyer (2024) for the subtraction.

    Parameters
    ----------
    step_size : float
        Length of the first step of a coordinate, in units of the parameter.
    clip_norm : float
        Bound on the gradient of each record.
    steps : int
        Number of steps, over which the step size falls to zero.
    momentum, memory : float
        Decay of the means of answers and of squared answers.
    average : float
        Fraction of the iterates, from the end, that the output averages.

    Examples
    --------
    >>> from dpfit.losses import Bounds, Huber
    >>> from dpfit.privacy import Budget
    >>> from dpfit.solvers.gradient.noisy_gd import noisy_gd
    >>> problem = Minimize(n=1000, loss=Huber(0.2), bounds=Bounds(1.0, -1.0, 1.0), n_features=3)
    >>> noisy_gd.using(optimizer="adaptive").plan(problem, Budget(mu=0.5)).guarantee.mu
    0.5
    """

    kind = "adaptive"
    stacks: ClassVar[bool] = True
    step_size: float
    clip_norm: float
    steps: int
    momentum: float = 0.9
    memory: float = 0.99
    average: float = 0.3

    def __post_init__(self) -> None:
        positive("step_size", self.step_size)
        in_safe_range("clip_norm", self.clip_norm)
        integer("steps", self.steps)
        probability("average", self.average)
        for name in ("momentum", "memory"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), got {getattr(self, name)!r}")

    def check(self, problem: Minimize, aggregate: Aggregate) -> None:
        if not isinstance(aggregate, ClippedMean) or aggregate.schedule is not None:
            raise ValueError(
                "adaptive steps need a clipped mean with equal noise in all rounds; leave out "
                "the schedule, or use Momentum"
            )
        if aggregate.rounds != self.steps:
            raise ValueError(f"aggregate must have {self.steps} rounds, got {aggregate.rounds}")

    def bounds(self, problem: Minimize) -> tuple[float, ...]:
        return (self.clip_norm,)

    def init(self, problem: Minimize, aggregate: Any, public: Dataset | None) -> State:
        point = problem.project(problem.origin)
        asked = Gradient(problem, point, self.clip_norm)
        return {
            "step": 0,
            "variance": float(aggregate.round_deviations(asked)[0]) ** 2,
            "point": point,
            "mean": np.zeros_like(point),
            "square": np.zeros_like(point),
            "average": np.zeros_like(point),
        }

    def ask(self, problem: Minimize, state: State) -> Gradient:
        return Gradient(problem, state["point"], self.clip_norm)

    def tell(self, problem: Minimize, state: State, answer: Any) -> State:
        index, point = state["step"], state["point"]
        answer = answer + problem.ridge_gradient(point)
        mean = self.momentum * state["mean"] + (1 - self.momentum) * answer
        square = self.memory * state["square"] + (1 - self.memory) * answer**2
        corrected = mean / (1 - self.momentum ** (index + 1))
        root = np.sqrt(self.signal(square, index + 1, state["variance"]))
        rate = self.step_size * (1 - index / self.steps)
        # Where all answers were zero the root is, too, and the point stays.
        moved = np.divide(corrected, root, out=np.zeros_like(root), where=root > 0)
        point = problem.project(point - rate * moved)
        average = state["average"] + (point if index >= self._first_averaged else 0.0)
        return state | {
            "step": index + 1, "point": point, "mean": mean, "square": square, "average": average,
        }  # fmt: skip

    def signal(self, square: Floats, steps: int, variance: float) -> Floats:
        """Return the estimated mean squared gradient: the second moment without the noise.

        The mean of squares has the noise variance times sqrt(2 sum of squared weights) as its
        standard deviation, which is the least value that is returned.
        """
        whole = 1 - self.memory**steps
        squares = (1 - self.memory) / (1 + self.memory) * (1 - self.memory ** (2 * steps))
        least = variance * math.sqrt(2 * squares) / whole
        return np.maximum(square / whole - variance, least)

    @property
    def _first_averaged(self) -> int:
        return min(self.steps - 1, round((1 - self.average) * self.steps))

    def result(self, problem: Minimize, state: State) -> Floats:
        # After fewer steps than planned the last iterate stands for the rest.
        count = self.steps - self._first_averaged
        left = self.steps - max(state["step"], self._first_averaged)
        return np.asarray((state["average"] + left * state["point"]) / count)


REACH = 20.0
"""How far a coordinate may move at most, in units of `parameter_scale`; set on logistic losses with
columns whose scales fall like 1 / k and 1 / k^2 (docs/explanation/robust.md)."""


def tune_adaptive(
    problem: Minimize,
    relation: str,
    noise_multiplier: float,
    steps: int,
    clip_norm: float | None = None,
    step_size: float | None = None,
    per: str = "record",
) -> Adaptive:
    """Return adaptive steps set from public facts, for accuracy only.

    A loss with parameters of its own has no known scale: it needs a step size.
    """
    if step_size is not None:
        return Adaptive(step_size, NETWORKS.clip_norm if clip_norm is None else clip_norm, steps)
    if clip_norm is None:
        clip_norm = default_clip_norm(problem, relation, noise_multiplier, per=per)
    # Steps fall to zero, so their sum is half of the first one times their number.
    return Adaptive(2 * REACH * parameter_scale(problem) / steps, clip_norm, steps)
