"""How strong a quadratic to add: noise falls with it, bias grows with it.

Only public facts enter. The predictions decide about accuracy, never about privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpfit.core import Minimize
from dpfit.solvers.perturbation.minimizer import smoothest, steepest

_DECADES = 26
_POINTS = 209


def parameter_size(problem: Minimize) -> float:
    """The norm that a good parameter is taken to have where nothing is known: one that moves margins by about one unit.

    A unit is 1, or what takes a loss through its curved part (slope bound over largest curvature) if that is less. Rows
    of norm r in d isotropic directions need a parameter of norm sqrt(d) / r for that.
    """
    unit = min(1.0, steepest(problem) * problem.bounds.row_norm / smoothest(problem))
    size = unit * math.sqrt(problem.features) / problem.bounds.row_norm
    return size if problem.radius is None else min(size, problem.radius)


def bias(problem: Minimize, ridge: float) -> float:
    """What the ridge beyond that of the problem adds to the objective at a parameter of the usual size."""
    return max(ridge - problem.ridge, 0.0) * parameter_size(problem) ** 2 / 2


def best_ridge(problem: Minimize, noise: Callable[[float], float]) -> float:
    """The ridge, at least that of the problem, with the smallest predicted excess of noise and bias together."""
    largest = 1e12 * smoothest(problem)
    candidates = np.geomspace(largest * 10.0**-_DECADES, largest, _POINTS)
    if problem.ridge:
        candidates = np.append(problem.ridge, candidates[candidates > problem.ridge])
    risks = [noise(float(ridge)) + bias(problem, float(ridge)) for ridge in candidates]
    if not math.isfinite(min(risks)):
        raise ValueError("no ridge gives a certified minimizer here: the declared n is too large for double precision")
    return float(candidates[int(np.argmin(risks))])
