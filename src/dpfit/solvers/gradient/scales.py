"""How large things are in a problem: gradients, parameters that matter, noise beside them, curvature.

Reference: none; all of it follows from public facts, and decides about accuracy, never about privacy. The one exception
is `change`, the sensitivity of a clipped sum.
"""

from __future__ import annotations

import math

from dpfit.core import Minimize
from dpfit.losses.glm import GLM, Logistic
from dpfit.losses.softmax import Softmax
from dpfit.losses.vector import VectorLoss

CLIP = 0.6
"""The share of the Lipschitz constant at which gradients are clipped where there is much noise."""


def unclipped(problem: Minimize) -> float:
    """The clipping norm at which nothing is clipped; infinity for a loss without a Lipschitz constant."""
    try:
        return problem.lipschitz("add_remove")
    except ValueError:
        return math.inf


def relative_noise(problem: Minimize, relation: str, noise_multiplier: float) -> float:
    """The norm of the noise on a mean of gradients that are not clipped, over that of the steepest one."""
    steepest = unclipped(problem)
    noise = change(problem, steepest, relation) * noise_multiplier * math.sqrt(problem.dimension)
    return noise / (problem.n * steepest)


def change(problem: Minimize, clip: float, relation: str) -> float:
    """How far one record moves the sum of clipped gradients."""
    if relation == "add_remove":
        return clip
    # What the caller says of a loss is not enough: clipping makes sure of twice the norm, and of no less.
    if clip >= unclipped(problem) and problem.loss.status == "enforced":
        # Nothing is clipped, up to rounding errors far below this factor.
        return min(2 * clip, problem.lipschitz("replace") * (1 + 2.0**-40))
    return 2 * clip


def natural_unit(problem: Minimize) -> float:
    """The size of a parameter that matters: moving by it takes the steepest record through its curved part.

    For a smooth loss the Lipschitz constant over the smoothness: 4 / row norm for the logistic loss, width / row norm
    for the Huber loss. Losses with corners have a margin of 1, or an error of a tenth of the label range.
    """
    loss, bounds = problem.loss, problem.bounds
    smoothness = loss.smoothness(bounds, problem.radius)
    steepest = unclipped(problem)
    if smoothness is not None and smoothness.value > 0 and math.isfinite(steepest):
        return steepest / smoothness.value
    low, high = bounds.labels
    return (0.1 * (high - low) if math.isfinite(high - low) else 1.0) / bounds.row_norm


def trusted_unit(problem: Minimize) -> float:
    """The size of a parameter beside which noise is judged: the natural unit, or what spans what labels ask for.

    A narrow Huber loss is curved over small residuals only, but the parameter that explains labels is as large as the
    labels ask for: a quarter of their range. A hinge with a narrow corner asks for margins from -1 to 1.
    """
    low, high = problem.bounds.labels
    smooth = problem.loss.smoothness(problem.bounds, problem.radius) is not None
    # The unit of a loss with corners is one of labels already, and the size of its steps.
    if not smooth or not isinstance(problem.loss, GLM):
        return natural_unit(problem)
    span = 0.25 * (high - low) if of_residuals(problem) else 2.0
    return max(natural_unit(problem), span / problem.bounds.row_norm if math.isfinite(span) else 0.0)


def even_curvature(problem: Minimize, clip: float) -> float:
    """About the curvature of the mean loss that descent feels in each direction if rows favour none of them."""
    directions = 1 if isinstance(problem.loss, VectorLoss) else problem.dimension
    slope = slope_bound(problem, clip)
    return felt(problem, min(1.0, clip / slope)) * slope / (2 * natural_unit(problem) * directions)


def slope_bound(problem: Minimize, clip: float) -> float:
    """The bound on gradients; where they have none of their own, that of clipping."""
    steepest = unclipped(problem)
    return steepest if math.isfinite(steepest) else clip


def felt(problem: Minimize, share: float) -> float:
    """The part of the curvature where slopes are below a share of their bound.

    Over margins that are spread evenly, curvature is spread evenly over slopes. Labels that follow the probabilities of
    a logistic loss make slope s as rare as 1 - s.
    """
    return 1 - (1 - share) ** 2 if isinstance(problem.loss, Logistic | Softmax) else share


def of_residuals(problem: Minimize) -> bool:
    """Whether the loss compares with the record, and not with a class."""
    return isinstance(problem.loss, VectorLoss) or (isinstance(problem.loss, GLM) and not problem.loss.binary_labels)
