"""How strong a quadratic to add: noise falls with it, bias grows with it.

Only public facts enter. The predictions decide about accuracy, never about privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Minimize, Risk
from dpfit.solvers.perturbation.minimizer import smoothest, steepest
from dpfit.solvers.supposed import Supposed, suppositions, typical

Floats = NDArray[np.float64]

_DECADES = 26
_POINTS = 209

_MARGIN = 0.5
"""By how many units of the loss margins are taken to move."""


def parameter_size(problem: Minimize) -> float:
    """The norm that a good parameter is taken to have where nothing is known: one that moves margins by half a unit.

    A unit is 1, or what takes a loss through its curved part (slope bound over largest curvature) if that is less. Rows
    of norm r in d isotropic directions need a parameter of norm sqrt(d) / r for one. Half of it, as measured: a ridge
    that is a little too strong costs less than one that is too weak (docs/explanation/choosing-evidence.md).
    """
    unit = min(1.0, steepest(problem) * problem.bounds.row_norm / _curved(problem))
    size = _MARGIN * unit * math.sqrt(problem.n_features) / problem.bounds.row_norm
    return size if problem.radius is None else min(size, problem.radius)


def _curved(problem: Minimize) -> float:
    """The largest curvature of a loss; that of its slope over one for a linear loss, which has none."""
    return smoothest(problem) or steepest(problem)


def bias(problem: Minimize, ridges: Floats) -> Floats:
    """What ridges beyond that of the problem add to the objective at a parameter of the usual size."""
    return np.maximum(ridges - problem.ridge, 0.0) * parameter_size(problem) ** 2 / 2


def predicted_risk(problem: Minimize, ridge: float, *, output: float, linear: float) -> Risk:
    """What is `typical` over `suppositions` of bias and noise at a ridge.

    ``output`` is the variance of the noise on each coordinate of the minimizer, ``linear`` that of each coordinate of a
    linear term in the mean objective. The ridge beyond that of the problem pulls a coordinate of curvature h towards
    zero by its share of h + ridge, which also divides a linear term.
    """
    slope = steepest(problem)

    def risk(supposed: Supposed) -> float:
        whole = supposed.curvatures + ridge
        # Quotients before squares: those of curvatures near 1e-200 vanish.
        pulled = ((ridge - problem.ridge) / whole) ** 2 * supposed.squares
        return supposed.excess(output + linear / whole / whole + pulled, problem.ridge)

    supposed = suppositions(problem, slope, slope / _curved(problem))
    return Risk(typical(supposed, risk), "excess empirical risk")


def mean_square(noise: str, scale: float, dimension: int) -> float:
    """The mean square of each coordinate of normal noise, or of noise with a norm of Gamma distribution."""
    return scale**2 * (1 if noise == "gaussian" else dimension + 1)


def best_ridge(problem: Minimize, noise: Callable[[Floats], Floats]) -> float:
    """The ridge, at least that of the problem, with the smallest excess of noise and bias together, for isotropic rows.

    ``noise`` predicts the excess by noise for all ridges at once, infinite where no minimizer is certified.
    The predictions of `predicted_risk` would ask for two to four times as much: better for small parameters in skewed
    data, worse for large ones, and on the whole no better (docs/explanation/choosing-evidence.md).
    """
    largest = 1e12 * _curved(problem)
    candidates = np.geomspace(largest * 10.0**-_DECADES, largest, _POINTS)
    if problem.ridge:
        candidates = np.append(problem.ridge, candidates[candidates > problem.ridge])
    risks = noise(candidates) + bias(problem, candidates)
    if not math.isfinite(risks.min()):
        raise ValueError(
            "no ridge gives a certified minimizer here: the declared n is too large, or bounds are too far from one, "
            "for double precision"
        )
    return float(candidates[int(np.argmin(risks))])
