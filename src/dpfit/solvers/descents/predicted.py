"""Predicted excess risk of a descent, on reference designs.

Only public facts enter, and they decide about accuracy, never about privacy. Evidence:
docs/explanation/choosing.md.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Minimize, Risk
from dpfit.core.reference_designs import (
    Design,
    clipping_excess_risk,
    power_mean_risk,
    reference_designs,
    within,
)
from dpfit.solvers.descents.descent import Descent
from dpfit.solvers.descents.momentum import Momentum, shrinkage_factor
from dpfit.solvers.descents.scales import (
    TUNING,
    effective_curvature_fraction,
    gradient_bound,
    natural_unit,
    slope_bound,
    user_radius,
)

Floats = NDArray[np.float64]

_DIRECTIONS = 500
"""In how many directions a descent is followed, at most, to predict its risk."""


def predicted_risk(descent: Descent) -> Risk:
    """Return the power mean of `risk_on` over the reference designs."""
    problem = descent.problem
    design = reference_designs(
        problem, slope_bound(problem, _moves(descent).clip_norm), natural_unit(problem)
    )
    return Risk(
        power_mean_risk(design, lambda each: risk_on(each, descent, problem.ridge)),
        "excess empirical risk",
    )


def risk_on(design: Design, descent: Descent, ridge: float | Floats) -> float:
    """Return what the start leaves, noise adds and clipping biases, on one reference design.

    Exact on a quadratic before the output is shrunk: `Schedule.remaining` of the start, and
    `collected` noise. A clipped slope does not bend: descent feels `effective_curvature_fraction`
    of the curvature.
    """
    problem, moves = descent.problem, _moves(descent)
    per = descent.aggregate.per
    decay = moves.time * (effective_curvatures(design, problem, moves.clip_norm, per) + ridge)
    # Beyond so many directions curvatures lie close together, and a few of them tell of the others.
    few = (
        decay
        if len(decay) <= _DIRECTIONS
        else np.geomspace(max(decay.min(), 1e-300), max(decay.max(), 1e-300), _DIRECTIONS)
    )
    remaining, variance = moves.schedule.remaining(few), collected(descent, few)
    if few is not decay:
        remaining, variance = np.interp(decay, few, remaining), np.interp(decay, few, variance)
    length = float(np.sum(design.squares * (1 - remaining) ** 2 + variance))
    factor = float(shrinkage_factor(np.array(length), moves.shrinkage, moves.reached, moves.least))
    left = design.squares * (1 - factor * (1 - remaining)) ** 2
    excess = design.excess(left + factor**2 * variance, ridge)
    bias = clip_bias(problem, moves.clip_norm, design, per)
    return excess + bias + _user_bias(descent, design)


def effective_curvatures(
    design: Design, problem: Minimize, clip_norm: float, per: str = "record"
) -> Floats:
    """Return the curvatures that descent with clipped gradients has on a design."""
    whole = slope_bound(problem, clip_norm) if per == "record" else user_radius(problem)
    share = min(1.0, clip_norm / (whole * design.length))
    if design.errors:
        fraction = within(share, design.errors) / within(1.0, design.errors)
    else:
        fraction = effective_curvature_fraction(problem, share)
    return fraction * design.curvatures


def collected(descent: Descent, decay: Floats) -> Floats:
    """Return the noise variance of the output by direction (see `Schedule.influence`).

    It is that of one release, summed over the time of the descent, where nothing is forgotten and
    all steps spend the same.
    """
    moves = _moves(descent)
    deviation = descent.clipped_mean.deviation(descent.asked(moves.clip_norm))
    influence = moves.schedule.influence(decay) / moves.schedule.steps
    fractions = moves.schedule.budget_fractions[:, np.newaxis]
    return np.asarray((moves.time * deviation) ** 2 * np.sum(influence**2 / fractions, axis=0))


def clip_bias(problem: Minimize, clip_norm: float, design: Design, per: str = "record") -> float:
    """Excess by clipping; none where rows are so short that nothing is clipped.

    A margin loss is off by a share of what its margins are worth, as measured (``clip_bias``). A
    regression loss is off by what a sample of so many records is off in so many dimensions
    (`clipping_excess_risk`).
    """
    slope = gradient_bound(problem)
    whole = (slope if per == "record" else user_radius(problem)) * design.length
    if not math.isfinite(slope) or clip_norm >= whole:
        return 0.0
    share = clip_norm / whole
    if design.errors:
        off = clipping_excess_risk(share, design.errors) * slope * natural_unit(problem)
        return off * problem.dimension / problem.n
    return (
        TUNING.clip_bias
        * (1 - share)
        / (1 - TUNING.clip)
        * slope
        * design.deviation
        / problem.bounds.row_norm
    )


def _user_bias(descent: Descent, design: Design) -> float:
    """Excess by clipping means of few rows at `user_radius`; that of means of many rows is small.

    The mean of m gradients is nearly symmetric, so clipping moves no minimizer, if m is large. At
    two rows it is about what clipping a record at ``user_clip`` does; it falls as ``few_rows``
    says, and as the clip norm grows to twice `user_radius`, which hardly clips any.
    """
    problem, rows = descent.problem, descent.problem.rows_per_user or 1.0
    if descent.aggregate.per == "record" or rows <= 1 or not math.isfinite(gradient_bound(problem)):
        return 0.0
    off = (
        TUNING.clip_bias
        * (1 - TUNING.user_clip)
        / (1 - TUNING.clip)
        * min(1.0, (TUNING.few_rows / rows) ** 2)
    )
    off *= max(0.0, 2 - _moves(descent).clip_norm / user_radius(problem)) ** 2
    return off * gradient_bound(problem) * design.deviation / problem.bounds.row_norm


def _moves(descent: Descent) -> Momentum:
    if not isinstance(descent.optimizer, Momentum):
        raise ValueError(
            f"risks are predicted for descents with momentum, got {descent.optimizer.kind!r}"
        )
    return descent.optimizer
