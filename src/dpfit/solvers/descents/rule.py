"""The rule that sets a descent from public facts: clip norm, steps, momentum, shrinkage.

The rule decides about accuracy, never about privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpfit.core import Minimize
from dpfit.core.notes import Tuning
from dpfit.core.reference_designs import half_range
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.solvers.descents.descent import Descent
from dpfit.solvers.descents.momentum import Momentum, momentum_descent
from dpfit.solvers.descents.predicted import collected
from dpfit.solvers.descents.quantiles import quantile_time
from dpfit.solvers.descents.scales import (
    TUNING as SCALES,
)
from dpfit.solvers.descents.scales import (
    gradient_bound,
    isotropic_curvature,
    parameter_scale,
    relative_noise,
    user_radius,
)


@dataclass(frozen=True)
class DescentTuning(Tuning):
    """Tuned numbers of `tune_descent` and `default_clip_norm`.

    Parameters
    ----------
    margin_noise, residual_noise : pair of float
        Levels of noise between which gradients come to be clipped at `SCALES.clip`: of
        `relative_noise`,
        for regression losses times the root of the dimension.
    min_clip : float
        Least clipping norm of regression losses, as a share of the gradient bound.
    loud, quiet : pair of float
        Levels of `relative_noise` times the root of n between which regression losses come to be
        clipped at ``min_clip``, and behind a map at `SCALES.clip`.
    collected_noise : float
        Noise that a flat direction may collect, in units of `parameter_scale`.
    forgetting_time : float
        How long a direction must be descended to forget its noise, in units of the inverse
        curvature.
    average, average_at_corners : float
        Fraction of the iterates that are averaged. Losses with corners take short steps: fewer
        iterates are late.
    decay, decay_behind_map : float
        How much of the forgetting of isotropic rows the noise schedule counts on; less if rows are
        not known.
    shrinkage : float
        How much of James and Stein's shrinkage is made: half has three quarters of the gain.
    class_noise : pair of float (this and the next two by benchmarks/calibrate_descents.py)
        Levels of `relative_noise` between which a loss of several classes comes to be clipped at
        ``class_clip`` instead of `SCALES.clip`.
    class_clip : float
        Least clipping norm of a loss of several classes, as a share of the gradient bound.
    class_factor : float
        Least factor of the output of a loss of several classes, as a share of the fraction of the
        way that the descent comes.
    user_noise : pair of float (this and the next by benchmarks/users.py --tune)
        Levels of noise between which the clip norm of users rises to ``user_factor`` radii: of the
        noise norm of one release of the whole budget, over the clip norm.
    user_factor : float
        Largest clip norm of users, in units of `user_radius`.
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
    class_noise: tuple[float, float] = (0.02, 0.06)
    class_clip: float = 0.35
    class_factor: float = 0.25
    user_noise: tuple[float, float] = (0.003, 0.03)
    user_factor: float = 2.0


TUNING = DescentTuning()


def default_clip_norm(
    problem: Minimize,
    relation: str,
    noise_multiplier: float,
    *,
    behind_map: bool = False,
    per: str = "record",
) -> float:
    """Return the clipping norm where the caller gives none; infinite if gradients have no bound.

    Clipping lowers the noise but moves the minimizer: the more noise, the more is clipped. The
    minimizer of a clipped margin loss is another one. A regression loss only cares less for
    outliers: where errors are symmetric, its minimizer moves no more than that of a sample does. So
    it is clipped at less noise, and harder where noise adds more than that. Behind a map that makes
    rows isotropic, nothing is clipped where noise adds less than a sample. A loss of several
    classes is clipped harder at much noise: its gradients stay near the bound for longer. Means
    over the records of a user are clipped at `user_radius` at much noise; twice that clips hardly
    any.
    """
    if per == "user" and (problem.rows_per_user or 1.0) > 1:
        change = 1 if relation == "add_remove" else 2
        level = change * noise_multiplier * math.sqrt(problem.dimension) / problem.n
        factors = (TUNING.user_factor, 1.0)
        wide = np.interp(math.log(level), np.log(TUNING.user_noise), factors)
        return user_radius(problem) * float(wide)
    bound = gradient_bound(problem)
    # The two slopes of a quantile loss say which quantile it is about: clipping the steeper one
    # would change that.
    if problem.loss.is_quantile or not math.isfinite(bound):
        return bound
    noise = relative_noise(problem, relation, noise_multiplier)
    if _has_classes(problem):
        levels, shares = (
            (*TUNING.margin_noise, *TUNING.class_noise),
            (1.0, SCALES.clip, SCALES.clip, TUNING.class_clip),
        )
        return bound * float(np.interp(noise, levels, shares))
    if not problem.loss.is_regression:
        return bound * float(np.interp(noise, TUNING.margin_noise, (1.0, SCALES.clip)))
    level = math.log(noise * math.sqrt(problem.n))
    if behind_map:
        quiet = np.interp(level, np.log(TUNING.quiet), (1.0, SCALES.clip))
    else:
        quiet = np.interp(
            noise * math.sqrt(problem.dimension), TUNING.residual_noise, (1.0, SCALES.clip)
        )
    loud = np.interp(level, np.log(TUNING.loud), (SCALES.clip, TUNING.min_clip))
    return bound * float(loud if loud < SCALES.clip else quiet)


def tune_descent(
    problem: Minimize,
    relation: str,
    noise_multiplier: float,
    *,
    max_passes: int,
    clip_norm: float | None = None,
    moment: float = math.inf,
    per: str = "record",
) -> Descent:
    """Return a descent set from public facts; its length limits noise in flat directions.

    After time S = steps * step_size / (1 - momentum) such a direction has collected noise of
    deviation S * sensitivity * noise_multiplier / n, whatever the number of steps. Curved
    directions forget theirs. S is set so that this is ``collected_noise`` times `parameter_scale`.
    It is less if not even isotropic rows would bend the loss enough to forget the noise; several
    classes are descended for all of S, and `_shrunk_by_progress` decides from the output. The
    descent makes all passes that are allowed, with steps in the stable range. Momentum is used only
    if these steps do not come to S; it remembers a twenty-fourth of the passes at most. Where the
    second ``moment`` of rows in any direction is known, the stable range is wider, and momentum,
    which rings between the flat parts of a loss, is not needed.
    """
    mapped = math.isfinite(moment)
    if clip_norm is None:
        clip_norm = default_clip_norm(
            problem, relation, noise_multiplier, behind_map=mapped, per=per
        )
    if not math.isfinite(clip_norm):
        raise ValueError(
            "clip_norm must be given for a loss whose gradients have no bound; or bound labels "
            "or slopes"
        )
    scale, constants = parameter_scale(problem), problem.constants(relation)
    curvature = isotropic_curvature(problem, clip_norm, per)
    shrinks_by_progress = _has_classes(problem) and problem.region is None
    time = TUNING.collected_noise * scale * problem.n
    time /= noise_multiplier * problem.clipped_sensitivity(clip_norm, relation)
    if not shrinks_by_progress:
        time *= min(1.0, time * curvature / TUNING.forgetting_time)
    if problem.loss.is_quantile and math.isfinite(half_range(problem)):
        sensitivity = problem.clipped_sensitivity(clip_norm, relation)
        time = quantile_time(problem, noise_multiplier * sensitivity / problem.n)
    momentum = max(0.0, 1 - 24 / max_passes)
    if constants.smooth:
        bend = constants.smoothness * min(1.0, moment / problem.bounds.row_norm**2) + problem.ridge
        # Steps of 1.5 (1 + momentum) / bend come to the time if (1 + momentum) / (1 - momentum) is
        # at least this.
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
    descent = momentum_descent(
        problem, relation, noise_multiplier, step_size, clip_norm, schedule, per=per
    )
    moves = Momentum(step_size, clip_norm, schedule)
    if shrinks_by_progress:
        moves = _shrunk_by_progress(descent, moves, curvature)
    else:
        moves = replace(moves, shrinkage=_shrinkage(descent, step_size, clip_norm))
    return replace(descent, optimizer=moves)


def _has_classes(problem: Minimize) -> bool:
    """Whether the loss has a logit for each of several classes."""
    return problem.loss.slope_relation == "softmax"


def _shrunk_by_progress(descent: Descent, moves: Momentum, curvature: float) -> Momentum:
    """Return the optimizer of several classes, whose output is shrunk by as much as it is noise.

    A descent of time S without curvature ends at -S times a mean gradient, noise included. Where
    the loss has the curvature h, the best multiple of that point is James and Stein's factor over
    the fraction of the way that was made, 1 - exp(-h S). A shorter descent and a shrunk output
    both guard against noise: making both costs most where the minimizer is far away, as for
    classes that rows separate. So the descent is long, and the norm of the released output says
    how much of it is noise. This is post-processing of released values.
    """
    problem = descent.problem
    decay = np.array([moves.time * (curvature + problem.ridge)])
    return replace(
        moves,
        shrinkage=problem.dimension * float(collected(descent, decay)[0]),
        # Momentum may overshoot, and at a tiny budget a descent does not move.
        reached=float(np.clip(1 - moves.schedule.remaining(decay)[0], 1e-12, 1.0)),
        least=TUNING.class_factor * min(1.0, moves.time * curvature),
    )


def _shrinkage(descent: Descent, step_size: float, clip_norm: float) -> float:
    """The squared length by which `james_stein` shrinks the output of a descent.

    The noise is that of isotropic rows. With a part c of (d - 2) / d of its mean square, the mean
    squared error falls by c (2 - c) of what it does with all of it. Where rows favour a direction,
    the parameter is longer and noise less along it, and half spoils much less. There is none in a
    domain, where noise is cut off, and none for losses of points: these have no size that says
    little.
    """
    problem, schedule = descent.problem, descent.clipped_mean.schedule
    if problem.region is not None or not problem.loss.reads_labels or schedule is None:
        return 0.0
    time = schedule.steps * step_size / (1 - schedule.momentum)
    curvature = isotropic_curvature(problem, clip_norm, descent.aggregate.per)
    decay = time * (curvature + problem.ridge)
    return (
        TUNING.shrinkage
        * max(0, problem.dimension - 2)
        * float(collected(descent, np.array([decay]))[0])
    )
