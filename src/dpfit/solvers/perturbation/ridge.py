"""Choice of the ridge that is added: noise falls with the ridge, bias grows with it.

Only public facts enter. The predictions affect accuracy, never privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Constants, Minimize, Risk
from dpfit.solvers.reference_designs import Design, power_mean_risk, reference_designs

Floats = NDArray[np.float64]

_DECADES = 26
_POINTS = 209

_MARGIN = 0.5
"""Assumed standard deviation of margins, in units of the loss."""


def _constants(problem: Minimize) -> Constants:
    """Return the constants for every parameter; those that are read here are the same under both relations."""
    return problem.constants("replace", everywhere=True)


def parameter_size(problem: Minimize) -> float:
    """Return the assumed norm of the best parameter: one that moves margins by half a unit.

    A unit is 1, or the width of the curved part of the loss (Lipschitz constant over smoothness) if that is less. Rows
    of norm r in d isotropic directions need a parameter of norm sqrt(d) / r to move margins by 1. Half of it was
    measured: a slightly larger ridge costs less than a smaller one (docs/explanation/choosing-evidence.md).
    """
    unit = min(1.0, _constants(problem).lipschitz * problem.bounds.row_norm / _curved(problem))
    size = _MARGIN * unit * math.sqrt(problem.n_features) / problem.bounds.row_norm
    return size if problem.radius is None else min(size, problem.radius)


def _curved(problem: Minimize) -> float:
    """Return the smoothness of the loss; the Lipschitz constant for a linear loss, which has no curvature."""
    return _constants(problem).smoothness or _constants(problem).lipschitz


def bias(problem: Minimize, ridges: Floats) -> Floats:
    """Return the increase of the objective by ridges beyond that of the problem, at `parameter_size`."""
    return np.maximum(ridges - problem.ridge, 0.0) * parameter_size(problem) ** 2 / 2


def predicted_risk(problem: Minimize, ridge: float, *, output: float, linear: float) -> Risk:
    """Return the power mean over the reference designs of the excess risk by bias and noise at a ridge.

    ``output`` is the variance of the noise on each coordinate of the minimizer, ``linear`` that of each coordinate of a
    linear term in the mean objective. The ridge beyond that of the problem shrinks a coordinate of curvature h by its
    fraction of h + ridge, which also divides a linear term.
    """
    slope = _constants(problem).lipschitz

    def risk(design: Design) -> float:
        whole = design.curvatures + ridge
        # Quotients before squares: squares of curvatures near 1e-200 underflow.
        shrunk = ((ridge - problem.ridge) / whole) ** 2 * design.squares
        return design.excess(output + linear / whole / whole + shrunk, problem.ridge)

    designs = reference_designs(problem, slope, slope / _curved(problem))
    return Risk(power_mean_risk(designs, risk), "excess empirical risk")


def output_excess(problem: Minimize, ridges: Floats, noise: str, scales: Floats) -> Floats:
    """Return the predicted increase of the mean objective by noise of some scales, for isotropic rows.

    Their Hessian is smoothness / d in every direction. For large noise, losses grow linearly.
    """
    d, constants = problem.dimension, _constants(problem)
    square = d * scales**2 * (1 if noise == "gaussian" else d + 1)
    quadratic = (constants.smoothness / d + ridges) * square / 2
    return np.minimum(quadratic, constants.lipschitz * np.sqrt(square) + ridges * square / 2)


def best_ridge(problem: Minimize, noise: Callable[[Floats], Floats]) -> float:
    """Return the ridge, at least that of the problem, with the least excess by noise and bias, for isotropic rows.

    ``noise`` predicts the excess by noise for an array of ridges, infinite where no minimizer is certified.
    The least `predicted_risk` is at a ridge two to four times as large, which is no better on average: better for small
    parameters in skewed data, worse for large ones (docs/explanation/choosing-evidence.md).
    """
    largest = 1e12 * _curved(problem)
    candidates = np.geomspace(largest * 10.0**-_DECADES, largest, _POINTS)
    if problem.ridge:
        candidates = np.append(problem.ridge, candidates[candidates > problem.ridge])
    risks = noise(candidates) + bias(problem, candidates)
    if not math.isfinite(risks.min()):
        raise ValueError(
            "no ridge gives a certified minimizer in double precision: n is too large, or bounds are too far from 1; "
            "scale rows and labels"
        )
    return float(candidates[int(np.argmin(risks))])
