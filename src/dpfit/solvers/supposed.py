"""What data might look like, where nothing is known of them: a few stand-ins on which risks are predicted.

Reference: none; docs/explanation/choosing.md says how they were chosen and how well they predict.

Only public facts enter. Predictions decide about accuracy, never about privacy.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from dpfit.core import Minimize
from dpfit.losses.glm import GLM
from dpfit.losses.vector import VectorLoss

Floats = NDArray[np.float64]

_BENT = 0.5
"""The share of the largest curvature that the mean loss has: not all margins are where the loss bends most."""

_SIZES = (0.5, 2.5)
"""Labels that are hard and easy to predict: deviations of the log-odds of classes, and of margins in units of a loss of
residuals."""

_DECAY = 2.5
"""How fast curvatures fall along a power law."""

_LENGTHS = (1.0, 0.7)
"""Lengths of rows over their declared bound: a bound that is just right, and one that is generous."""

_LEVEL, _SPREAD = 0.4, 0.2
"""Mean and deviation of columns that are positive, over their range."""


class Supposed(NamedTuple):
    """A stand-in: curvatures of the mean loss, and squared coordinates of the best parameter, in the same directions.

    ``deviation`` is that of the margins at the best parameter, ``length`` that of rows over their bound.
    """

    curvatures: Floats
    squares: Floats
    deviation: float
    length: float = 1.0

    def excess(self, errors: Floats, ridge: float | Floats) -> float:
        """What squared errors of the coordinates add to the mean objective."""
        return float(np.sum((self.curvatures + ridge) * errors)) / 2


class Margins(NamedTuple):
    """Margins at the best parameter: their deviation, and the mean curvature of the loss in them."""

    deviation: float
    curvature: float


def supposed_margins(problem: Minimize, slope: float, unit: float) -> tuple[Margins, ...]:
    """What a loss makes of labels that are hard and easy to predict.

    A loss of classes is fitted to labels whose log-odds are normal. For others the margin that matters is 1, or what
    takes the loss through its curved part if that is less (``unit`` is the size of a parameter that does so, see
    `dpfit.solvers.gradient.noisy_gd.natural_unit`), and half of the largest curvature, ``slope / unit``, is met.
    """
    if isinstance(problem.loss, GLM) and problem.loss.binary_labels:
        return tuple(fitted_margins(problem.loss, size) for size in _SIZES)
    longest = problem.bounds.row_norm
    return tuple(Margins(size * min(1.0, unit * longest), _BENT * slope / (unit * longest**2)) for size in _SIZES)


@lru_cache(maxsize=128)
def fitted_margins(loss: GLM, size: float) -> Margins:
    """The scale at which normal margins explain labels best whose log-odds have a given deviation, by a fine sum.

    The mean curvature is integrated by parts, so a corner is no hindrance: a hinge is bent where few margins are.

    >>> from dpfit.losses import Hinge, Logistic
    >>> [tuple(round(x, 2) for x in fitted_margins(loss, 2.5)) for loss in (Logistic(), Hinge())]
    [(2.5, 0.13), (1.92, 0.29)]
    """
    margins = np.linspace(-8.0, 8.0, 8001)
    # A margin and its label with their signs changed have the same loss and the same weight.
    chances = 1 / (1 + np.exp(-size * margins))
    weights = np.exp(-(margins**2) / 2) * chances
    weights /= weights.sum()

    def mean(scale: float) -> float:
        return float(weights @ loss.value(scale * margins, 1.0))

    scale = float(minimize_scalar(mean, bounds=(0.0, 10.0 * size), method="bounded").x)
    falls = weights * (margins - size * (1 - chances))
    return Margins(scale, float(falls @ loss.slope(scale * margins, 1.0)) / scale)


def suppositions(problem: Minimize, slope: float, unit: float) -> tuple[Supposed, ...]:
    """Stand-ins for the data of a problem whose loss has a slope bound and a natural unit of the parameter.

    Three spectra (equal in all directions, a power law, positive columns with an intercept) with a parameter of random
    direction, for each of two sizes of margins and two lengths of rows. Shorter rows bend the loss less, and the same
    margins take a larger parameter.

    >>> from dpfit.losses import Bounds, Logistic
    >>> problem = Minimize(n=1000, loss=Logistic(), bounds=Bounds(1.0), features=10)
    >>> [round(float(s.curvatures.sum()), 5) for s in suppositions(problem, slope=1.0, unit=4.0)][:4]
    [0.23604, 0.11566, 0.13108, 0.06423]
    """
    d = problem.dimension
    longest = math.inf if problem.radius is None else problem.radius**2 / d
    supposed = []
    for (shares, moved), margins, length in itertools.product(
        _spectra(problem), supposed_margins(problem, slope, unit), _LENGTHS
    ):
        square = (margins.deviation / (length * problem.bounds.row_norm)) ** 2 / float(shares @ moved)
        curvatures = (length * problem.bounds.row_norm) ** 2 * margins.curvature * shares
        supposed.append(Supposed(curvatures, min(square, longest) * moved, margins.deviation, length))
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
    # An intercept and columns with one level: all of that lies in one direction.
    level = np.append(1 + (d - 1) * _LEVEL**2, np.full(d - 1, _SPREAD**2))
    return [
        (everywhere / d, everywhere),
        (falling / falling.sum(), everywhere),
        # Labels do not depend on the common level, which has no variance.
        (level / level.sum(), np.append(0.0, np.ones(d - 1))),
    ]
