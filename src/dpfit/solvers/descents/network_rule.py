"""The rule that sets a descent of a network from public facts: clip norm, step size, momentum.

The scales of linear models do not apply: a network has neither a Lipschitz constant nor a curvature
that is known. The rule decides about accuracy, never about privacy.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpfit.core import Minimize
from dpfit.core.notes import Tuning
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.privacy.validate import positive
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
    """

    kind = "network_tuning"
    set_by: str = "benchmarks/nonconvex.py"
    clip_norm: float = 1.0
    step_size: float = 1.0
    momentum: float = 0.9
    average: float = 0.3
    collected_noise: float = 1.0


TUNING = NetworkTuning()


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
