"""What data might look like, where nothing is known of them: a few stand-ins on which risks are predicted.

Reference: none; docs/explanation/choosing.md says how they were chosen and how well they predict.

Only public facts enter. Predictions decide about accuracy, never about privacy.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Minimize
from dpfit.losses.vector import VectorLoss

Floats = NDArray[np.float64]

_BENT = 0.5
"""The share of the largest curvature that the mean loss has: not all margins are where the loss bends most."""

_SIZES = (0.5, 2.5)
"""Deviations of the margins at the best parameter, in units of the loss: labels that are hard and easy to predict."""

_DECAY = 2.5
"""How fast curvatures fall along a power law."""

_LENGTHS = (1.0, 0.7)
"""Lengths of rows over their declared bound: a bound that is just right, and one that is generous."""

_LEVEL = 0.8
"""The share of the curvature that lies in one direction where columns are positive: that of their common level."""


class Supposed(NamedTuple):
    """A stand-in: curvatures of the mean loss, and squared coordinates of the best parameter, in the same directions.

    ``size`` is the deviation of the margins at the best parameter, in units of the loss, ``length`` that of rows over
    their bound.
    """

    curvatures: Floats
    squares: Floats
    size: float
    length: float = 1.0

    def excess(self, errors: Floats, ridge: float | Floats) -> float:
        """What squared errors of the coordinates add to the mean objective."""
        return float(np.sum((self.curvatures + ridge) * errors)) / 2


def margin_unit(problem: Minimize, unit: float) -> float:
    """The margin that matters: 1, or what takes the loss through its curved part if that is less.

    ``unit`` is the size of a parameter that does so, see `dpfit.solvers.gradient.noisy_gd.natural_unit`.
    """
    return min(1.0, unit * problem.bounds.row_norm)


def suppositions(problem: Minimize, slope: float, unit: float) -> tuple[Supposed, ...]:
    """Stand-ins for the data of a problem whose loss has a slope bound and a natural unit of the parameter.

    Three spectra (equal in all directions, a power law, positive columns with an intercept) with a parameter of random
    direction, for each of two sizes of margins and two lengths of rows. Shorter rows bend the loss less, and the same
    margins take a larger parameter.

    >>> from dpfit.losses import Bounds, Logistic
    >>> problem = Minimize(n=1000, loss=Logistic(), bounds=Bounds(1.0), features=10)
    >>> [round(float(s.curvatures.sum()), 5) for s in suppositions(problem, slope=1.0, unit=4.0)][:4]
    [0.125, 0.06125, 0.125, 0.06125]
    """
    d, total = problem.dimension, _BENT * slope / unit
    longest = math.inf if problem.radius is None else problem.radius**2 / d
    supposed = []
    for (shares, moved), size, length in itertools.product(_spectra(problem), _SIZES, _LENGTHS):
        square = (size * margin_unit(problem, unit) / (length * problem.bounds.row_norm)) ** 2 / float(shares @ moved)
        supposed.append(Supposed(length**2 * total * shares, min(square, longest) * moved, size, length))
    return tuple(supposed)


def _spectra(problem: Minimize) -> list[tuple[Floats, Floats]]:
    """Shares of the curvature in each direction, and which directions (0 or 1) the parameter uses."""
    d = problem.dimension
    everywhere = np.ones(d)
    if isinstance(problem.loss, VectorLoss):
        # A record is a point, not a direction: it bends the loss along all axes.
        return [(everywhere, everywhere)]
    if d == 1:
        return [(everywhere, everywhere)]
    falling = np.arange(1, d + 1.0) ** -_DECAY
    level = np.append(_LEVEL, np.full(d - 1, (1 - _LEVEL) / (d - 1)))
    return [
        (everywhere / d, everywhere),
        (falling / falling.sum(), everywhere),
        # Labels do not depend on the common level, which has no variance.
        (level, np.append(0.0, np.ones(d - 1))),
    ]
