"""How far privacy noise alone may have moved what a model released: from the plan and released values, never records.

Guarantee: none is needed, and nothing is spent; an interval is a function of what is public already. It covers what the
same procedure would have released without noise, on the same records. It says nothing about how far that is from the
truth about people who are not in the data: such an interval needs the curvature of the objective, released within a
budget. Proofs: docs/explanation/models.md.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import chdtri, gammainccinv, gammaincinv, ndtr, ndtri

from dpfit.core import Chain, Mechanism, Plan, Step
from dpfit.mechanisms.mean import NoisyMean
from dpfit.models.scaling import Scaled
from dpfit.models.users import PerUser
from dpfit.noise import Grid
from dpfit.solvers.auto import Chosen
from dpfit.solvers.perturbation.objective_perturbation import PerturbedMinimizer
from dpfit.solvers.perturbation.output_perturbation import NoisyMinimizer

Floats = NDArray[np.float64]

_HIDING = 0.01
"""The share of the failure probability that goes to the small output noise of objective perturbation."""


class Ends(NamedTuple):
    """Lower and upper ends, in the shape of what they are about."""

    lower: Any
    upper: Any

    @staticmethod
    def around(value: Any, half: Any) -> Ends:
        """The ends of an interval by its middle and half its width."""
        return Ends(value - half, value + half)


class NoiseInterval(NamedTuple):
    """What the coefficients and intercepts would have been without noise, each with probability ``level`` or more.

    ``exact`` says that the probability is ``level``; otherwise it may be much larger, and the ends much farther apart
    than the noise asks for: all that is known is that the objective is strongly convex.
    """

    coef: Ends
    intercept: Ends
    level: float
    exact: bool


class Reach(NamedTuple):
    """How far noise moves a released parameter along one direction of unit length, at most, at a level."""

    length: float
    exact: bool


def noise_reach(plan: Plan, level: float) -> Reach:
    """How far the noise of a plan moves one direction of the released parameter, with probability ``level`` or more.

    AttributeError if no bound follows from public facts.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}")
    match released_by(plan):
        case NoisyMinimizer(problem=problem) as noisy if problem.domain is None:
            scale = (noisy.noise_multiplier, noisy.sensitivity)
            return Reach(_added(noisy.noise, *scale, problem.dimension, level), exact=True)
        case PerturbedMinimizer(problem=problem) as perturbed if problem.domain is None:
            return Reach(_perturbed(perturbed, level), exact=False)
        case NoisyMean() as mean:
            return Reach(_mean(mean, level), exact=True)
        case mechanism:
            raise AttributeError(
                f"how far noise moves what {mechanism.kind!r} releases depends on the records, so there is no interval "
                "from public facts; fit with solver='output_perturbation' to have one"
            )


def released_by(plan: Plan) -> Mechanism:
    """The mechanism whose output is the fitted parameter."""
    match plan:
        case PerUser(plan=inner) | Chosen(plan=inner):
            return released_by(inner)
        case Chain(stages=stages):
            return released_by(stages[-1])
        case Step(mechanism=Scaled(mechanism=mechanism)) | Step(mechanism=mechanism):
            return mechanism
    raise AttributeError(f"no interval is known for a {plan.kind!r} plan")


def _added(noise: str, multiplier: float, sensitivity: float, dimension: int, level: float) -> float:
    """The reach of noise that `dpfit.noise.add_gaussian` or `add_l2_laplace` puts on a vector, roundings included."""
    rounding = Grid.fitting(sensitivity * min(1.0, multiplier), dimension, "l2").rounding(dimension, "l2")
    unit = -float(ndtri((1 - level) / 2)) if noise == "gaussian" else l2_laplace_reach(dimension, level)
    # What is rounded is charged to the sensitivity; value and noise are each rounded by half a step.
    return (multiplier * (sensitivity + rounding) * unit + rounding) * (1 + 1e-9)


def _mean(mechanism: NoisyMean, level: float) -> float:
    """The reach of the noise on each entry of a mean."""
    gaussian = mechanism.noise == "gaussian"
    scale = mechanism.risk.expected / (1.0 if gaussian else math.sqrt(2))
    unit = -float(ndtri((1 - level) / 2)) if gaussian else -math.log1p(-level)
    moved = mechanism.n * scale / mechanism.noise_multiplier
    grid = Grid.fitting(moved, mechanism.query.dimension, "l2" if gaussian else "l1")
    # What is rounded is charged to the sensitivity, at 2**-13 of it at most; noise is rounded by half a step.
    return scale * unit * (1 + 2.0**-13) + grid.step / (2 * mechanism.n)


def _perturbed(mechanism: PerturbedMinimizer, level: float) -> float:
    """Norm of the linear term over the strength of the quadratic, then the noise that hides the approximation."""
    d, fails = mechanism.problem.dimension, 1 - level
    tail = fails * (1 - _HIDING)
    size = math.sqrt(chdtri(d, tail)) if mechanism.noise == "gaussian" else float(gammainccinv(d, tail))
    law = "gaussian" if mechanism.noise == "gaussian" else "l2_laplace"
    hidden = _added(law, mechanism.output_multiplier, 2 * mechanism.distance, d, 1 - fails * _HIDING)
    return mechanism.scale * size / mechanism.strength + mechanism.distance + hidden


def l2_laplace_reach(dimension: int, level: float) -> float:
    """What one coordinate of a vector of density prop. to exp(-norm(x)) stays within, with probability ``level``.

    The vector is sqrt(V) Z with V chi-square of dimension + 1 degrees of freedom and Z standard normal
    (`dpfit.noise.rounded.rounded_l2_laplace`), so a coordinate exceeds t with the mean over V of a normal tail.

    >>> round(l2_laplace_reach(1, 1 - math.exp(-2)), 6)
    2.0
    """
    shape, fails = (dimension + 1) / 2, 1 - level
    low, high = 2 * gammaincinv(shape, 1e-12 * fails), 2 * gammainccinv(shape, 1e-12 * fails)
    # The density of log V falls off quickly on both sides: the trapezoidal rule errs by no more than rounding does.
    logs = np.linspace(math.log(low), math.log(high), 1001)
    exponents = shape * logs - np.exp(logs) / 2
    weights = np.exp(exponents - exponents.max())
    weights, deviations = weights / weights.sum(), np.exp(logs / 2)

    def excess(reach: float) -> float:
        return float(weights @ (2 * ndtr(-reach / deviations))) - fails

    return float(brentq(excess, 0.0, math.sqrt(high) * -float(ndtri(fails / 4)), xtol=1e-12, rtol=1e-12))
