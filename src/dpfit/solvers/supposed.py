"""What data might look like, where nothing is known of them: a few stand-ins on which risks are predicted.

Reference: none; docs/explanation/choosing.md says how they were chosen and how well they predict.

Only public facts enter. Predictions decide about accuracy, never about privacy.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
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
"""The share of the largest curvature that a mean loss of many classes has: not all margins are where it bends most."""

_SIZES, _ERRORS = (0.5, 2.5), (1.0, 0.5)
"""Labels that are hard and easy to predict: deviations of the log-odds of classes; of margins, and of the errors that
are left at the best parameter, in units of a loss of residuals."""

_DECAY = 2.5
"""How fast curvatures fall along a power law."""

_LENGTHS, _SPREAD_LENGTH = (1.0, 0.7), 0.5
"""Lengths of rows over their declared bound: one that is just right, one that is generous; and one that cuts few rows
whose lengths are spread, as those of normal columns of unequal scales are."""

_LEVEL, _SPREAD = 0.4, 0.2
"""Mean and deviation of columns that are positive, over their range."""

_POWER = 0.5
"""The power by which risks on stand-ins are averaged."""


class Supposed(NamedTuple):
    """A stand-in: curvatures of the mean loss, and squared coordinates of the best parameter, in the same directions.

    ``deviation`` is that of the margins at the best parameter, ``length`` that of rows over their bound; ``weight``
    says how much this stand-in counts. ``errors`` is the deviation of residuals there, over the width of the loss; zero
    for losses of classes.
    """

    curvatures: Floats
    squares: Floats
    deviation: float
    length: float = 1.0
    weight: float = 1.0
    errors: float = 0.0

    def excess(self, errors: Floats, ridge: float | Floats) -> float:
        """What squared errors of the coordinates add to the mean objective."""
        return float(np.sum((self.curvatures + ridge) * errors)) / 2


class Margins(NamedTuple):
    """Margins at the best parameter: their deviation, the mean curvature of the loss in them, and the deviation of what
    they leave of labels over the width of the loss (zero for losses of classes)."""

    deviation: float
    curvature: float
    errors: float = 0.0


def supposed_margins(problem: Minimize, slope: float, unit: float) -> tuple[Margins, ...]:
    """What a loss makes of labels that are hard and easy to predict.

    A loss of two classes is fitted to labels whose log-odds are normal. For others the margin that matters is 1, or
    what takes the loss through its curved part if that is less (``unit`` is the size of a parameter that does so, see
    `dpfit.solvers.gradient.scales.natural_unit`). A loss of residuals has the share of the largest curvature,
    ``slope / unit``, that normal errors within its width meet; one of many classes half of it.
    """
    if isinstance(problem.loss, GLM) and problem.loss.binary_labels:
        return tuple(fitted_margins(problem.loss, size) for size in _SIZES)
    longest = problem.bounds.row_norm
    steepest, deviations = slope / (unit * longest**2), [size * min(1.0, unit * longest) for size in _SIZES]
    if not isinstance(problem.loss, GLM | VectorLoss):
        return tuple(Margins(deviation, _BENT * steepest) for deviation in deviations)
    return tuple(
        Margins(deviation, within(1.0, errors) * steepest, errors)
        for deviation, errors in zip(deviations, _ERRORS, strict=True)
    )


def within(width: float, errors: float) -> float:
    """The probability that a normal error of a given deviation is at most ``width``."""
    return math.erf(width / (errors * math.sqrt(2)))


@lru_cache(maxsize=512)
def off_by_clipping(share: float, errors: float) -> float:
    """The excess by which the minimizer of a clipped Huber loss is off that of the loss itself, for normal errors.

    Per dimension over number of records, in units of the loss (its curvature times its squared width). Both minimizers
    err by the mean of what each record adds, clip(error) / probability of not being clipped, and by the inverse
    curvature of the rows (Huber, 1964): the excess is half the mean square of the difference, times the curvature.

    >>> round(off_by_clipping(0.6, 1.0), 4), off_by_clipping(1.0, 0.5)
    (0.0165, 0.0)
    """
    normal = np.linspace(-8.0, 8.0, 8001)
    weights = np.exp(-(normal**2) / 2)
    residuals, whole = errors * normal, within(1.0, errors)
    apart = np.clip(residuals, -share, share) / within(share, errors) - np.clip(residuals, -1, 1) / whole
    return 0.5 * whole * float(np.average(apart**2, weights=weights))


@lru_cache(maxsize=128)
def fitted_margins(loss: GLM, size: float) -> Margins:
    """The scale at which normal margins explain labels best whose log-odds have a given deviation, by a fine sum.

    The mean curvature is integrated by parts, so a corner is no hindrance: a hinge is bent where few margins are.

    >>> from dpfit.losses import Hinge, Logistic
    >>> [tuple(round(x, 2) for x in fitted_margins(loss, 2.5)[:2]) for loss in (Logistic(), Hinge())]
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
    direction, for each of two sizes of margins and the lengths of rows that go with the spectrum. Shorter rows bend the
    loss less, and the same margins take a larger parameter. All spectra count the same.

    >>> from dpfit.losses import Bounds, Logistic
    >>> problem = Minimize(n=1000, loss=Logistic(), bounds=Bounds(1.0), n_features=10)
    >>> [round(float(s.curvatures.sum()), 5) for s in suppositions(problem, slope=1.0, unit=4.0)][:4]
    [0.23604, 0.11566, 0.13108, 0.06423]
    """
    d = problem.dimension
    longest = math.inf if problem.radius is None else problem.radius**2 / d
    supposed = []
    for shares, moved, lengths in _spectra(problem):
        for margins, length in itertools.product(supposed_margins(problem, slope, unit), lengths):
            square = (margins.deviation / (length * problem.bounds.row_norm)) ** 2 / float(shares @ moved)
            curvatures = (length * problem.bounds.row_norm) ** 2 * margins.curvature * shares
            supposed.append(
                Supposed(
                    curvatures=curvatures,
                    squares=min(square, longest) * moved,
                    deviation=margins.deviation,
                    length=length,
                    weight=1 / len(lengths),
                    errors=margins.errors,
                )
            )
    return tuple(supposed)


def typical(supposed: Sequence[Supposed], risk: Callable[[Supposed], float]) -> float:
    """What to expect of data that may be like any of the stand-ins: a power mean of the risks on them.

    Solvers are compared by ratios. The mean is decided by the worst of the stand-ins, the geometric mean by the best of
    them as much; this lies in between.

    >>> stand_ins = [Supposed(np.ones(1), np.ones(1), size) for size in (0.01, 0.01, 1.0)]
    >>> round(typical(stand_ins, lambda stand_in: stand_in.deviation), 6)
    0.16
    """
    powers = [risk(each) ** _POWER for each in supposed]
    return float(np.average(powers, weights=[each.weight for each in supposed]) ** (1 / _POWER))


class Spectrum(NamedTuple):
    """Shares of the curvature in each direction, which directions (0 or 1) the parameter uses, and lengths of rows."""

    shares: Floats
    moved: Floats
    lengths: tuple[float, ...] = _LENGTHS


def _spectra(problem: Minimize) -> list[Spectrum]:
    """What rows may look like."""
    d = problem.dimension
    everywhere = np.ones(d)
    if isinstance(problem.loss, VectorLoss):
        # A record is a point, not a direction: it bends the loss along all axes.
        return [Spectrum(everywhere, everywhere)]
    if d == 1:
        return [Spectrum(everywhere, everywhere)]
    falling = np.arange(1, d + 1.0) ** -_DECAY
    # An intercept and columns with one level: all of that lies in one direction.
    level = np.append(1 + (d - 1) * _LEVEL**2, np.full(d - 1, _SPREAD**2))
    return [
        Spectrum(everywhere / d, everywhere),
        Spectrum(falling / falling.sum(), everywhere, (_SPREAD_LENGTH,)),
        # Labels do not depend on the common level, which has no variance. Columns of at most 1 have rows of sqrt(d).
        Spectrum(level / level.sum(), np.append(0.0, np.ones(d - 1)), (math.sqrt(level.sum() / d),)),
    ]
