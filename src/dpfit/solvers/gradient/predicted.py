"""What a descent is expected to leave of the risk, on stand-ins for the data.

Reference: docs/explanation/choosing.md. Only public facts enter, and they decide about accuracy, never about privacy.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Risk
from dpfit.solvers.gradient.scales import CLIP, felt, natural_unit, slope_bound, unclipped
from dpfit.solvers.supposed import Supposed, off_by_clipping, suppositions, typical, within

if TYPE_CHECKING:
    from dpfit.solvers.gradient.noisy_gd import NoisyGD

Floats = NDArray[np.float64]

CLIP_BIAS = 0.0019
"""Excess risk by clipping the gradients of a classification loss to 0.6 of their bound, over the Lipschitz constant and
the standard deviation of margins; measured by benchmarks/calibrate_auto.py."""

_DIRECTIONS = 500
"""In how many directions a descent is followed, at most, to predict its risk."""


def predicted_risk(mechanism: NoisyGD) -> Risk:
    """What is `typical` of `risk_on` over `suppositions`."""
    problem = mechanism.problem
    supposed = suppositions(problem, slope_bound(problem, mechanism.clip), natural_unit(problem))
    return Risk(typical(supposed, lambda each: risk_on(each, mechanism, problem.ridge)), "excess empirical risk")


def risk_on(supposed: Supposed, mechanism: NoisyGD, ridge: float | Floats) -> float:
    """What the start leaves, what noise adds, and the bias by clipping, on a stand-in for the data.

    Exact on a quadratic before the output is shrunk: `NoisyGD.remaining` of the start, and `NoisyGD.collected` noise. A
    clipped slope does not bend: descent feels `felt` of the curvature.
    """
    problem = mechanism.problem
    time = mechanism.steps * mechanism.step_size / (1 - mechanism.momentum)
    share = min(1.0, mechanism.clip / (slope_bound(problem, mechanism.clip) * supposed.length))
    bends = within(share, supposed.errors) / within(1.0, supposed.errors) if supposed.errors else felt(problem, share)
    bent = time * (bends * supposed.curvatures + ridge)
    # Beyond so many directions curvatures lie close together, and a few of them tell of the others.
    few = (
        bent
        if len(bent) <= _DIRECTIONS
        else np.geomspace(max(bent.min(), 1e-300), max(bent.max(), 1e-300), _DIRECTIONS)
    )
    remaining, variance = mechanism.remaining(few), mechanism.collected(few)
    if few is not bent:
        remaining, variance = np.interp(bent, few, remaining), np.interp(bent, few, variance)
    length = float(np.sum(supposed.squares * (1 - remaining) ** 2 + variance))
    kept = 1 - min(1.0, mechanism.shrink / length) if length else 1.0
    left = supposed.squares * (1 - kept * (1 - remaining)) ** 2
    return supposed.excess(left + kept**2 * variance, ridge) + _clip_bias(mechanism, supposed)


def _clip_bias(mechanism: NoisyGD, supposed: Supposed) -> float:
    """Excess by clipping; none where rows are so short that nothing is clipped.

    See `usual_clip`: a margin loss is off by a share of what its margins are worth (as measured, `CLIP_BIAS`), one of
    residuals by what a sample of so many records is off in so many dimensions (`off_by_clipping`).
    """
    problem, slope = mechanism.problem, unclipped(mechanism.problem)
    if not math.isfinite(slope) or mechanism.clip >= slope * supposed.length:
        return 0.0
    share = mechanism.clip / (slope * supposed.length)
    if supposed.errors:
        off = off_by_clipping(share, supposed.errors) * slope * natural_unit(problem)
        return off * problem.dimension / problem.n
    return CLIP_BIAS * (1 - share) / (1 - CLIP) * slope * supposed.deviation / problem.bounds.row_norm
