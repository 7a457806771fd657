"""Predicted excess risk of a descent, on reference designs.

Only public facts enter, and they decide about accuracy, never about privacy. Evidence: docs/explanation/choosing.md.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Risk
from dpfit.solvers.descents.descent import Descent
from dpfit.solvers.descents.momentum import Momentum
from dpfit.solvers.descents.scales import (
    CLIP,
    effective_curvature_fraction,
    gradient_bound,
    natural_unit,
    slope_bound,
)
from dpfit.solvers.reference_designs import Design, clipping_excess_risk, power_mean_risk, reference_designs, within

Floats = NDArray[np.float64]

CLIP_BIAS = 0.0019
"""Excess risk by clipping the gradients of a classification loss to 0.6 of their bound, over the Lipschitz constant and
the standard deviation of margins; measured by benchmarks/calibrate_auto.py."""

_DIRECTIONS = 500
"""In how many directions a descent is followed, at most, to predict its risk."""


def predicted_risk(descent: Descent) -> Risk:
    """Return the power mean of `risk_on` over the reference designs."""
    problem = descent.problem
    design = reference_designs(problem, slope_bound(problem, _moves(descent).clip_norm), natural_unit(problem))
    return Risk(power_mean_risk(design, lambda each: risk_on(each, descent, problem.ridge)), "excess empirical risk")


def risk_on(design: Design, descent: Descent, ridge: float | Floats) -> float:
    """Return what the start leaves, what noise adds, and the bias by clipping, on one reference design.

    Exact on a quadratic before the output is shrunk: `Schedule.remaining` of the start, and `collected` noise. A
    clipped slope does not bend: descent feels `effective_curvature_fraction` of the curvature.
    """
    problem, moves = descent.problem, _moves(descent)
    share = min(1.0, moves.clip_norm / (slope_bound(problem, moves.clip_norm) * design.length))
    if design.errors:
        fraction = within(share, design.errors) / within(1.0, design.errors)
    else:
        fraction = effective_curvature_fraction(problem, share)
    decay = moves.time * (fraction * design.curvatures + ridge)
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
    kept = 1 - min(1.0, moves.shrinkage / length) if length else 1.0
    left = design.squares * (1 - kept * (1 - remaining)) ** 2
    return design.excess(left + kept**2 * variance, ridge) + _clip_bias(descent, design)


def collected(descent: Descent, decay: Floats) -> Floats:
    """Return the variance of the noise in the output, for each direction (see `Schedule.influence`).

    It is that of one release, summed over the time of the descent, where nothing is forgotten and all steps spend the
    same.
    """
    moves = _moves(descent)
    deviation = descent.clipped_mean.deviation(descent.asked(moves.clip_norm))
    influence = moves.schedule.influence(decay) / moves.schedule.steps
    fractions = moves.schedule.budget_fractions[:, np.newaxis]
    return np.asarray((moves.time * deviation) ** 2 * np.sum(influence**2 / fractions, axis=0))


def _clip_bias(descent: Descent, design: Design) -> float:
    """Excess by clipping; none where rows are so short that nothing is clipped.

    A margin loss is off by a share of what its margins are worth, as measured (`CLIP_BIAS`). A regression loss is off
    by what a sample of so many records is off in so many dimensions (`clipping_excess_risk`).
    """
    problem, slope, clip_norm = descent.problem, gradient_bound(descent.problem), _moves(descent).clip_norm
    if not math.isfinite(slope) or clip_norm >= slope * design.length:
        return 0.0
    share = clip_norm / (slope * design.length)
    if design.errors:
        off = clipping_excess_risk(share, design.errors) * slope * natural_unit(problem)
        return off * problem.dimension / problem.n
    return CLIP_BIAS * (1 - share) / (1 - CLIP) * slope * design.deviation / problem.bounds.row_norm


def _moves(descent: Descent) -> Momentum:
    if not isinstance(descent.optimizer, Momentum):
        raise ValueError(f"risks are predicted for descents with momentum, got {descent.optimizer.kind!r}")
    return descent.optimizer
