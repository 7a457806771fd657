"""The rule that sets a descent of a network from public facts: clip norm, step size, momentum.

The scales of linear models do not apply: a network has neither a Lipschitz constant nor a curvature
that is known. The rule decides about accuracy, never about privacy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dpfit.core import Minimize
from dpfit.core.notes import Tuning
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.privacy import Budget
from dpfit.privacy.validate import integer, positive
from dpfit.solvers.descents.descent import Descent
from dpfit.solvers.descents.momentum import momentum_descent


@dataclass(frozen=True)
class NetworkTuning(Tuning):
    """Tuned numbers of `tune_network`.

    Parameters
    ----------
    clip_norm : float
        Clip norm. It suits losses of size 1 whose parameters are of size 1.
    step_size : float
        Step size where noise is small.
    momentum, average : float
        Momentum, and the fraction of the iterates that the output averages.
    collected_noise : float
        Standard deviation that a parameter may collect over the descent: at more noise steps are
        shorter.
    sampled_steps : int
        Steps on samples.
    sampled_passes : float
        Passes that they make together.
    """

    kind = "network_tuning"
    set_by: str = "benchmarks/nonconvex.py"
    clip_norm: float = 1.0
    step_size: float = 1.0
    momentum: float = 0.9
    average: float = 0.3
    collected_noise: float = 1.0
    sampled_steps: int = 1000
    sampled_passes: float = 20.0


TUNING = NetworkTuning()


class SampledRule(NamedTuple):
    """Numbers of a descent on samples."""

    steps: int
    batch: float
    clip_norm: float
    learning_rate: float


def tune_network(
    problem: Minimize,
    relation: str,
    noise_multiplier: float,
    *,
    max_passes: int,
    clip_norm: float | None = None,
    step_size: float | None = None,
    per: str = "record",
) -> Descent:
    """Return a descent for a loss with parameters of its own; all passes are made.

    A parameter that no gradient moves collects noise of standard deviation ``steps * step_size / (1
    - momentum) * sensitivity * noise_multiplier / n``: it is kept at most ``collected_noise``.
    """
    clip = TUNING.clip_norm if clip_norm is None else positive("clip_norm", clip_norm)
    momentum = min(TUNING.momentum, 1 - 1 / max_passes)
    if step_size is None:
        noise = noise_multiplier * problem.clipped_sensitivity(clip, relation) / problem.n
        longest = TUNING.collected_noise * (1 - momentum) / (max_passes * noise)
        step_size = min(TUNING.step_size, longest)
    schedule = Schedule(max_passes, momentum, TUNING.average)
    size = positive("step_size", step_size)
    return momentum_descent(problem, relation, noise_multiplier, size, clip, schedule, per=per)


def sampled_rule(
    problem: Minimize, budget: Budget, steps: int | None, momentum: float, clip_norm: float | None
) -> SampledRule:
    """Return the numbers of `dp_sgd` for a loss with parameters of its own, from public facts."""
    steps = TUNING.sampled_steps if steps is None else integer("steps", steps)
    clip = TUNING.clip_norm if clip_norm is None else positive("clip_norm", clip_norm)
    batch = problem.n * min(1.0, TUNING.sampled_passes / steps)
    noise = problem.clipped_sensitivity(clip, budget.relation) / (budget.gaussian_mu * problem.n)
    longest = TUNING.collected_noise * (1 - momentum) / (steps * noise)
    return SampledRule(steps, batch, clip, min(TUNING.step_size, longest))
