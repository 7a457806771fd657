"""Reference designs: synthetic problems on which solvers predict their excess risk.

`auto` sees public facts only: neither the spectrum of the data nor the norm of the optimum.
It averages each solver's risk over eight quadratic problems that differ in both.
Designs affect accuracy, never privacy. Evidence: docs/explanation/choosing.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from dpfit.core.problem import Minimize
from dpfit.losses.glm import GLM

Floats = NDArray[np.float64]

_MEAN_CURVATURE = 0.5
"""Mean curvature of a loss of several classes over its smoothness: few margins are where the
curvature is largest.
"""

_SIZES, _ERRORS = (0.5, 2.5), (1.0, 0.5)
"""Labels that are hard and easy to predict: standard deviations of the log-odds of classes, or of
margins; and those
of the residuals at the best parameter, over the width of a regression loss."""

_QUANTILE_SIZES, _QUANTILE_ERRORS = (0.1, 0.3), (0.2, 0.05)
"""For quantile losses: standard deviations of margins and of normal residuals, over half the label
range."""

_DECAY = 2.5
"""Exponent of the power law of curvatures."""

_LENGTHS, _SPREAD_LENGTH = (1.0, 0.7), 0.5
"""Norms of rows over their declared bound: a tight bound and a loose one; and a bound that few rows
exceed, for norms
that vary as those of normal columns of unequal scales do."""

_LEVEL, _SPREAD = 0.4, 0.2
"""Mean and standard deviation of positive columns, over their range."""

_POWER = 0.5
"""Exponent of the power mean of risks."""


class Design(NamedTuple):
    """A quadratic problem: curvatures of the mean loss, squared coordinates of the optimum.

    ``deviation`` is the standard deviation of the margins at the best parameter, ``length`` the
    norm of rows over their bound, ``weight`` the weight in the power mean. ``errors`` is the
    standard deviation of the residuals over the width of a regression loss; zero for a
    classification loss. The gradient of a record has variance ``gradient_noise`` times the
    curvature, in each direction.
    """

    curvatures: Floats
    squares: Floats
    deviation: float
    length: float = 1.0
    weight: float = 1.0
    errors: float = 0.0
    unit: float = 1.0
    rounding: float = 0.0
    """The loss over the one that it stands for, and the excess of that one at the minimizer: see
    `quantile_margins`."""
    gradient_noise: float = 1.0

    def excess(self, errors: Floats, ridge: float | Floats) -> float:
        """Return the increase of the mean objective by squared errors of the coordinates."""
        return float(np.sum((self.curvatures + ridge) * errors)) / 2


class Margins(NamedTuple):
    """Margins at the best parameter: their standard deviation, and the mean curvature of the loss.

    ``errors`` is the standard deviation of the residuals over the width of a regression loss; zero
    for others. ``noise`` is the mean squared slope over the mean curvature: 1 where the loss is the
    negative log-likelihood of the labels.
    """

    deviation: float
    curvature: float
    errors: float = 0.0
    unit: float = 1.0
    rounding: float = 0.0
    noise: float = 1.0


def reference_margins(problem: Minimize, slope: float, unit: float) -> tuple[Margins, ...]:
    """Return the margins of a loss for labels that are hard and easy to predict.

    A loss of two classes is fitted to labels with normal log-odds. For others the scale of margins
    is 1, or the width of the curved part of the loss if that is less (``unit`` is the norm of a
    parameter with such margins, see `Constants.natural_unit`). The mean curvature of a regression
    loss is ``slope / unit`` times the probability of a residual within its width; that of a loss of
    several classes half of ``slope / unit``.
    """
    if isinstance(problem.loss, GLM) and problem.loss.binary_labels:
        return tuple(fitted_margins(problem.loss, size) for size in _SIZES)
    if problem.loss.is_quantile and math.isfinite(half_range(problem)):
        return tuple(
            quantile_margins(problem, size, errors)
            for size, errors in zip(_QUANTILE_SIZES, _QUANTILE_ERRORS, strict=True)
        )
    longest = problem.bounds.row_norm
    curvature, deviations = (
        slope / (unit * longest**2),
        [size * min(1.0, unit * longest) for size in _SIZES],
    )
    if not problem.loss.is_regression:
        return tuple(Margins(deviation, _MEAN_CURVATURE * curvature) for deviation in deviations)
    return tuple(
        Margins(
            deviation,
            within(1.0, errors) * curvature,
            errors,
            slope * unit * _mean_square_within(errors) / within(1.0, errors),
        )
        for deviation, errors in zip(deviations, _ERRORS, strict=True)
    )


def half_range(problem: Minimize) -> float:
    """Return half the width of the label range; infinite where labels have none."""
    low, high = problem.bounds.labels
    return (high - low) / 2


def quantile_margins(problem: Minimize, size: float, errors: float) -> Margins:
    """Return the margins of a quantile loss, for normal residuals; sizes are over half the range.

    The mean curvature is the probability of a residual in the curved part, whose middle is at the
    quantile. A corner that is rounded over a width w moves the quantile by w**2 / 24 times the
    logarithmic derivative of the density there (Fernandes, Guerre, Horta 2021). Risks are those of
    the loss with the corner: ``unit`` is what the rounded one is a multiple by.
    """
    loss = problem.loss
    deviation = errors * half_range(problem)
    level, width = float(loss.level), loss.slope_span  # type: ignore[attr-defined]
    point = NormalDist().inv_cdf(level)
    density = NormalDist().pdf(point) / deviation
    if not loss.smoothness(problem.bounds):
        return Margins(size * half_range(problem), density)
    half = width / (2 * deviation)
    inside = NormalDist().cdf(point + half) - NormalDist().cdf(point - half)
    moved = min(abs(point) * width**2 / (24 * deviation), width)
    return Margins(
        size * half_range(problem),
        inside,
        unit=width,
        rounding=density * moved**2 / 2,
    )


def within(width: float, errors: float) -> float:
    """Return P(|error| <= width) for normal errors of standard deviation ``errors``."""
    return math.erf(width / (errors * math.sqrt(2)))


@lru_cache(maxsize=512)
def _mean_square_within(errors: float) -> float:
    """Return the mean of min(1, error^2) for normal errors."""
    normal = np.linspace(-8.0, 8.0, 8001)
    return float(
        np.average(np.minimum(1.0, (errors * normal) ** 2), weights=np.exp(-(normal**2) / 2))
    )


@lru_cache(maxsize=512)
def clipping_excess_risk(share: float, errors: float) -> float:
    """Return the excess risk of the clipped Huber minimizer over the loss's own, for normal errors.

    Multiply by dimension / n, in units of curvature times squared width. The influence of a record
    on either minimizer is clip(error) / P(not clipped), times the inverse curvature of the rows
    (Huber, 1964). The excess is half the mean squared difference of the two, times the curvature.

    >>> round(clipping_excess_risk(0.6, 1.0), 4), clipping_excess_risk(1.0, 0.5)
    (0.0165, 0.0)
    """
    normal = np.linspace(-8.0, 8.0, 8001)
    weights = np.exp(-(normal**2) / 2)
    residuals, whole = errors * normal, within(1.0, errors)
    apart = (
        np.clip(residuals, -share, share) / within(share, errors)
        - np.clip(residuals, -1, 1) / whole
    )
    return 0.5 * whole * float(np.average(apart**2, weights=weights))


@lru_cache(maxsize=128)
def fitted_margins(loss: GLM, size: float) -> Margins:
    """Return the best scale of normal margins; ``size`` is the standard deviation of log-odds.

    Means are sums over a fine grid. The mean curvature is integrated by parts, so the loss may have
    kinks.

    >>> from dpfit.losses import Hinge, Logistic
    >>> [
    ...     tuple(round(x, 2) for x in fitted_margins(loss, 2.5)[:2])
    ...     for loss in (Logistic(), Hinge())
    ... ]
    [(2.5, 0.13), (1.92, 0.29)]
    """
    margins = np.linspace(-8.0, 8.0, 8001)
    # (m, y) and (-m, -y) have equal loss and weight, so y = 1 suffices.
    probabilities = 1 / (1 + np.exp(-size * margins))
    weights = np.exp(-(margins**2) / 2) * probabilities
    weights /= weights.sum()

    def mean(scale: float) -> float:
        return float(weights @ loss.value(scale * margins, 1.0))

    scale = float(minimize_scalar(mean, bounds=(0.0, 10.0 * size), method="bounded").x)
    falls = weights * (margins - size * (1 - probabilities))
    slopes = loss.slope(scale * margins, 1.0)
    curvature = float(falls @ slopes) / scale
    return Margins(scale, curvature, noise=float(weights @ slopes**2) / curvature)


def reference_designs(problem: Minimize, slope: float, unit: float) -> tuple[Design, ...]:
    """Return the designs for a loss with Lipschitz constant ``slope`` and parameter norm ``unit``.

    There are three spectra: isotropic, a power law, and positive columns with an intercept. The
    parameter has a random direction. Each spectrum comes with two scales of margins and its own
    norms of rows; all have equal weight. Shorter rows have less curvature, and the same margins
    need a larger parameter.

    >>> from dpfit.losses import Bounds, Logistic
    >>> problem = Minimize(n=1000, loss=Logistic(), bounds=Bounds(1.0), n_features=10)
    >>> [
    ...     round(float(s.curvatures.sum()), 5)
    ...     for s in reference_designs(problem, slope=1.0, unit=4.0)
    ... ][:4]
    [0.23604, 0.11566, 0.13108, 0.06423]
    """
    d = problem.dimension
    largest = math.inf if problem.radius is None else problem.radius**2 / d
    designs = []
    for shares, moved, lengths in _spectra(problem):
        for margins, length in itertools.product(reference_margins(problem, slope, unit), lengths):
            square = (margins.deviation / (length * problem.bounds.row_norm)) ** 2 / float(
                shares @ moved
            )
            curvatures = (length * problem.bounds.row_norm) ** 2 * margins.curvature * shares
            designs.append(
                Design(
                    curvatures=curvatures,
                    squares=min(square, largest) * moved,
                    deviation=margins.deviation,
                    length=length,
                    weight=1 / len(lengths),
                    errors=margins.errors,
                    unit=margins.unit,
                    rounding=margins.rounding,
                    gradient_noise=margins.noise,
                )
            )
    return tuple(designs)


def start_risk(problem: Minimize) -> float:
    """Return the predicted excess risk of the zero parameter, which ignores the columns.

    It is infinite where gradients have no bound.
    """
    constants = problem.constants("add_remove")
    if not constants.bounded:
        return math.inf
    designs = reference_designs(problem, constants.lipschitz, constants.natural_unit)
    return power_mean_risk(designs, lambda design: design.excess(design.squares, problem.ridge))


def power_mean_risk(designs: Sequence[Design], risk: Callable[[Design], float]) -> float:
    """Return the power mean, with exponent 1/2, of the risks on the designs.

    Solvers are compared by ratios. The largest risk dominates the mean, and the smallest one counts
    as much in the geometric mean; this mean lies in between.

    >>> designs = [Design(np.ones(1), np.ones(1), size) for size in (0.01, 0.01, 1.0)]
    >>> round(power_mean_risk(designs, lambda design: design.deviation), 6)
    0.16
    """
    risks = np.array([risk(design) / design.unit + design.rounding for design in designs])
    return float(power_mean(risks, [design.weight for design in designs]))


def power_mean(
    risks: Floats, weights: Sequence[float] | Floats, exponent: float = _POWER
) -> Floats:
    """Return the weighted power mean of the risks along the first axis.

    >>> risks = np.array([1.0, 4.0])
    >>> float(power_mean(risks, [0.5, 0.5])), float(power_mean(risks, [1, 1], -1.0))
    (2.25, 1.6)
    """
    return np.asarray(np.average(risks**exponent, axis=0, weights=weights) ** (1 / exponent))[()]


class Spectrum(NamedTuple):
    """Fractions of curvature by direction, the parameter's directions (0 or 1), row norms."""

    shares: Floats
    moved: Floats
    lengths: tuple[float, ...] = _LENGTHS


def _spectra(problem: Minimize) -> list[Spectrum]:
    """Return the spectra of rows."""
    d = problem.dimension
    everywhere = np.ones(d)
    if not problem.loss.reads_labels:
        # The loss of a point is curved along all axes.
        return [Spectrum(everywhere, everywhere)]
    if d == 1:
        return [Spectrum(everywhere, everywhere)]
    falling = np.arange(1, d + 1.0) ** -_DECAY
    # An intercept and columns with a common mean: one direction holds most of the curvature.
    level = np.append(1 + (d - 1) * _LEVEL**2, np.full(d - 1, _SPREAD**2))
    return [
        Spectrum(everywhere / d, everywhere),
        Spectrum(falling / falling.sum(), everywhere, (_SPREAD_LENGTH,)),
        # Labels do not depend on the common mean. Columns of at most 1 have rows of norm at most
        # sqrt(d).
        Spectrum(
            level / level.sum(), np.append(0.0, np.ones(d - 1)), (math.sqrt(level.sum() / d),)
        ),
    ]
