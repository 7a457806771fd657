"""The rule that sets a descent from public facts: clipping norm, step size, momentum, schedule, shrinkage.

The rule decides about accuracy, never about privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpfit.core import Minimize
from dpfit.core.notes import Tuning
from dpfit.losses.glm import Pinball, QuantileHuber
from dpfit.losses.vector import VectorLoss
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.solvers.descents.descent import Descent
from dpfit.solvers.descents.momentum import Momentum, momentum_descent
from dpfit.solvers.descents.predicted import collected
from dpfit.solvers.descents.scales import (
    CLIP,
    gradient_bound,
    is_regression,
    isotropic_curvature,
    parameter_scale,
    relative_noise,
)


@dataclass(frozen=True)
class DescentTuning(Tuning):
    """Tuned numbers of `tune_descent` and `default_clip_norm`.

    Parameters
    ----------
    margin_noise, residual_noise : pair of float
        Levels of noise between which gradients come to be clipped at `CLIP`: of `relative_noise`, for regression
        losses times the root of the dimension.
    min_clip : float
        Least clipping norm of regression losses, as a share of the gradient bound.
    loud, quiet : pair of float
        Levels of `relative_noise` times the root of n between which regression losses come to be clipped at
        ``min_clip``, and behind a map at `CLIP`.
    collected_noise : float
        Noise that a flat direction may collect, in units of `parameter_scale`.
    forgetting_time : float
        How long a direction must be descended to forget its noise, in units of the inverse curvature.
    average, average_at_corners : float
        Fraction of the iterates that are averaged. Losses with corners take short steps: fewer iterates are late.
    decay, decay_behind_map : float
        How much of the forgetting of isotropic rows the noise schedule counts on; less if rows are not known.
    shrinkage : float
        How much of James and Stein's shrinkage is made: half has three quarters of the gain.
    """

    kind = "descent_tuning"
    set_by: str = "benchmarks/calibrate_auto.py"
    margin_noise: tuple[float, float] = (0.003, 0.009)
    residual_noise: tuple[float, float] = (0.0005, 0.0015)
    min_clip: float = 0.2
    loud: tuple[float, float] = (0.25, 1.65)
    quiet: tuple[float, float] = (0.045, 0.15)
    collected_noise: float = 0.7
    forgetting_time: float = 1.0
    average: float = 0.6
    average_at_corners: float = 0.4
    decay: float = 0.15
    decay_behind_map: float = 0.3
    shrinkage: float = 0.5


TUNING = DescentTuning()


def default_clip_norm(problem: Minimize, relation: str, noise_multiplier: float, *, behind_map: bool = False) -> float:
    """Return the clipping norm where the caller gives none; infinite if gradients have no bound.

    Clipping lowers the noise but moves the minimizer: the more noise, the more is clipped. The minimizer of a clipped
    margin loss is another one. A regression loss only cares less for outliers: where errors are symmetric, its
    minimizer moves no more than that of a sample does. So it is clipped at less noise, and harder where noise adds
    more than that. Behind a map that makes rows isotropic, nothing is clipped where noise adds less than a sample.
    """
    bound = gradient_bound(problem)
    # The two slopes of a quantile loss say which quantile it is about: clipping the steeper one would change that.
    if isinstance(problem.loss, Pinball | QuantileHuber) or not math.isfinite(bound):
        return bound
    noise = relative_noise(problem, relation, noise_multiplier)
    if not is_regression(problem):
        return bound * float(np.interp(noise, TUNING.margin_noise, (1.0, CLIP)))
    level = math.log(noise * math.sqrt(problem.n))
    if behind_map:
        quiet = np.interp(level, np.log(TUNING.quiet), (1.0, CLIP))
    else:
        quiet = np.interp(noise * math.sqrt(problem.dimension), TUNING.residual_noise, (1.0, CLIP))
    loud = np.interp(level, np.log(TUNING.loud), (CLIP, TUNING.min_clip))
    return bound * float(loud if loud < CLIP else quiet)


def tune_descent(
    problem: Minimize,
    relation: str,
    noise_multiplier: float,
    *,
    max_passes: int,
    clip_norm: float | None = None,
    moment: float = math.inf,
) -> Descent:
    """Return a descent set from public facts: as long as a direction without curvature collects little noise.

    After time S = steps * step_size / (1 - momentum) such a direction has collected noise of deviation
    S * sensitivity * noise_multiplier / n, whatever the number of steps. Curved directions forget theirs. S is set so
    that this is ``collected_noise`` times `parameter_scale`. It is less if not even isotropic rows would bend the loss
    enough to forget the noise. The descent makes all passes that are allowed, with steps in the stable range.
    Momentum is used only if these steps do not come to S; it remembers a twenty-fourth of the passes at most.
    Where the second ``moment`` of rows in any direction is known, the stable range is wider, and momentum, which
    rings between the flat parts of a loss, is not needed.
    """
    mapped = math.isfinite(moment)
    if clip_norm is None:
        clip_norm = default_clip_norm(problem, relation, noise_multiplier, behind_map=mapped)
    if not math.isfinite(clip_norm):
        raise ValueError("clip_norm must be given for a loss whose gradients have no bound; or bound labels or slopes")
    scale, constants = parameter_scale(problem), problem.constants(relation)
    curvature = isotropic_curvature(problem, clip_norm)
    time = TUNING.collected_noise * scale * problem.n
    time /= noise_multiplier * problem.clipped_sensitivity(clip_norm, relation)
    time *= min(1.0, time * curvature / TUNING.forgetting_time)
    momentum = max(0.0, 1 - 24 / max_passes)
    if constants.smooth:
        bend = constants.smoothness * min(1.0, moment / problem.bounds.row_norm**2) + problem.ridge
        # Steps of 1.5 (1 + momentum) / bend come to the time if (1 + momentum) / (1 - momentum) is at least this.
        needed = time * bend / (1.5 * max_passes)
        momentum = min(momentum, max(0.0, (needed - 1) / (needed + 1))) if not mapped else 0.0
        longest = 1.5 * (1 + momentum) / bend
    else:
        longest = (1 - momentum) * scale / clip_norm
    if problem.ridge:
        longest = min(longest, 1 / problem.ridge)
    step_size = min(longest, time * (1 - momentum) / max_passes)
    average = TUNING.average if constants.smooth else TUNING.average_at_corners
    decay = TUNING.decay_behind_map if mapped else TUNING.decay
    noise_decay = decay * max_passes * step_size / (1 - momentum) * curvature
    schedule = Schedule(max_passes, momentum, average, noise_decay=noise_decay)
    descent = momentum_descent(problem, relation, noise_multiplier, step_size, clip_norm, schedule)
    optimizer = Momentum(step_size, clip_norm, schedule, _shrinkage(descent, step_size, clip_norm))
    return replace(descent, optimizer=optimizer)


def _shrinkage(descent: Descent, step_size: float, clip_norm: float) -> float:
    """The squared length by which `james_stein` shrinks the output of a descent.

    The noise is that of isotropic rows. With a part c of (d - 2) / d of its mean square, the mean squared error falls
    by c (2 - c) of what it does with all of it. Where rows favour a direction, the parameter is longer and noise less
    along it, and half spoils much less. There is none in a domain, where noise is cut off, and none for losses of
    points: these have no size that says little.
    """
    problem, schedule = descent.problem, descent.clipped_mean.schedule
    if problem.region is not None or isinstance(problem.loss, VectorLoss) or schedule is None:
        return 0.0
    time = schedule.steps * step_size / (1 - schedule.momentum)
    decay = time * (isotropic_curvature(problem, clip_norm) + problem.ridge)
    return TUNING.shrinkage * max(0, problem.dimension - 2) * float(collected(descent, np.array([decay]))[0])
