"""Choice of the ridge that is added: noise falls with the ridge, bias grows with it.

Only public facts enter. The predictions affect accuracy, never privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Constants, Minimize, Risk
from dpfit.core.reference_designs import Design, power_mean_risk, reference_designs

Floats = NDArray[np.float64]

_DECADES = 26
_POINTS = 209

_MARGIN = 0.5
"""Assumed standard deviation of margins, in units of the loss."""


@dataclass(frozen=True)
class RidgeSearch:
    """The excess risk by noise and by bias of one problem, at any ridge."""

    problem: Minimize

    @cached_property
    def constants(self) -> Constants:
        """Constants for every parameter; those used here are equal under both relations."""
        return self.problem.constants("replace", everywhere=True)

    @property
    def _curved(self) -> float:
        """Smoothness of the loss; the Lipschitz constant for linear losses (no curvature)."""
        return self.constants.smoothness or self.constants.lipschitz

    @cached_property
    def parameter_size(self) -> float:
        """Assumed norm of the best parameter: one that moves margins by half a unit.

        A unit is 1, or the width of the curved part of the loss (Lipschitz constant over
        smoothness) if that is less. Rows of norm r in d isotropic directions need a parameter of
        norm sqrt(d) / r to move margins by 1. Half of it was measured: a slightly larger ridge
        costs less than a smaller one (docs/explanation/choosing-evidence.md).
        """
        problem = self.problem
        unit = min(1.0, self.constants.lipschitz * problem.bounds.row_norm / self._curved)
        size = _MARGIN * unit * math.sqrt(problem.n_features) / problem.bounds.row_norm
        return size if problem.radius is None else min(size, problem.radius)

    def bias(self, ridges: Floats) -> Floats:
        """Return the excess objective by ridges beyond the problem's, at `parameter_size`."""
        return np.maximum(ridges - self.problem.ridge, 0.0) * self.parameter_size**2 / 2

    def output_excess(self, ridges: Floats, noise: str, scales: Floats) -> Floats:
        """Return the predicted excess objective by noise of some scales, for isotropic rows.

        Their Hessian is smoothness / d in every direction. For large noise, losses grow linearly.
        """
        d, constants = self.problem.dimension, self.constants
        square = d * scales**2 * (1 if noise == "gaussian" else d + 1)
        quadratic = (constants.smoothness / d + ridges) * square / 2
        return np.minimum(quadratic, constants.lipschitz * np.sqrt(square) + ridges * square / 2)

    def best(self, noise: Callable[[Floats], Floats]) -> float:
        """Return the ridge, at least the problem's, of least noise excess and bias, isotropic rows.

        ``noise`` predicts the excess by noise for an array of ridges, infinite where no minimizer
        is certified. The least `predicted_risk` is at a ridge two to four times as large, which is
        no better on average: better for small parameters in skewed data, worse for large ones
        (docs/explanation/choosing-evidence.md).
        """
        least, largest = self.problem.ridge, 1e12 * self._curved
        candidates = np.geomspace(largest * 10.0**-_DECADES, largest, _POINTS)
        if least:
            candidates = np.append(least, candidates[candidates > least])
        risks = noise(candidates) + self.bias(candidates)
        if not math.isfinite(risks.min()):
            raise ValueError(
                "no ridge gives a certified minimizer in double precision: n is too large, or "
                "bounds are too far from "
                "1; scale rows and labels"
            )
        return float(candidates[int(np.argmin(risks))])

    def predicted_risk(self, ridge: float, *, output: float, linear: float) -> Risk:
        """Return the power mean over designs of the excess risk by bias and noise at a ridge.

        ``output`` is the variance of the noise on each coordinate of the minimizer, ``linear`` that
        of each coordinate of a linear term in the mean objective. The ridge beyond that of the
        problem shrinks a coordinate of curvature h by its fraction of h + ridge, which also divides
        a linear term.
        """
        problem, slope = self.problem, self.constants.lipschitz

        def risk(design: Design) -> float:
            whole = design.curvatures + ridge
            # Quotients before squares: squares of curvatures near 1e-200 underflow.
            shrunk = ((ridge - problem.ridge) / whole) ** 2 * design.squares
            return design.excess(output + linear / whole / whole + shrunk, problem.ridge)

        designs = reference_designs(problem, slope, slope / self._curved)
        return Risk(power_mean_risk(designs, risk), "excess empirical risk")
