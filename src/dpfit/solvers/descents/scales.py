"""Sizes in a problem: of gradients, of parameters that matter, of noise beside them, of curvature.

All follow from public facts. They decide about accuracy, never about privacy.
"""

from __future__ import annotations

import math

from dpfit.core import Minimize
from dpfit.losses.glm import GLM, Logistic
from dpfit.losses.softmax import Softmax
from dpfit.losses.vector import VectorLoss

CLIP = 0.6
"""The share of the Lipschitz constant at which gradients are clipped where there is much noise."""


def gradient_bound(problem: Minimize) -> float:
    """Return the clipping norm at which nothing is clipped; infinite for a loss without a Lipschitz constant."""
    return problem.constants("add_remove").lipschitz


def relative_noise(problem: Minimize, relation: str, noise_multiplier: float) -> float:
    """Return the norm of the noise on a mean of gradients without clipping, over the largest gradient norm."""
    bound = gradient_bound(problem)
    noise = problem.clipped_sensitivity(bound, relation) * noise_multiplier * math.sqrt(problem.dimension)
    return noise / (problem.n * bound)


def natural_unit(problem: Minimize) -> float:
    """Return the size of a parameter that matters: moving by it takes the steepest record through its curved part.

    For a smooth loss it is the Lipschitz constant over the smoothness: 4 / row norm for the logistic loss, width / row
    norm for the Huber loss. Losses with corners have a margin of 1, or an error of a tenth of the label range.
    """
    constants, bounds = problem.constants("add_remove"), problem.bounds
    if constants.smooth and constants.smoothness > 0 and constants.bounded:
        return constants.lipschitz / constants.smoothness
    low, high = bounds.labels
    return (0.1 * (high - low) if math.isfinite(high - low) else 1.0) / bounds.row_norm


def parameter_scale(problem: Minimize) -> float:
    """Return the size of a parameter beside which noise is judged: the natural unit, or what spans the labels.

    A narrow Huber loss is curved over small residuals only, but the parameter that explains labels spans a quarter of
    their range. A hinge with a narrow corner asks for margins from -1 to 1.
    """
    low, high = problem.bounds.labels
    # The unit of a loss with corners is one of labels already, and the size of its steps.
    if not _has_smoothness(problem) or not isinstance(problem.loss, GLM):
        return natural_unit(problem)
    span = 0.25 * (high - low) if is_regression(problem) else 2.0
    return max(natural_unit(problem), span / problem.bounds.row_norm if math.isfinite(span) else 0.0)


def isotropic_curvature(problem: Minimize, clip_norm: float) -> float:
    """Return about the curvature that descent feels in each direction if rows favour no direction."""
    directions = 1 if isinstance(problem.loss, VectorLoss) else problem.dimension
    slope = slope_bound(problem, clip_norm)
    fraction = effective_curvature_fraction(problem, min(1.0, clip_norm / slope))
    return fraction * slope / (2 * natural_unit(problem) * directions)


def slope_bound(problem: Minimize, clip_norm: float) -> float:
    """Return the bound on gradients; where they have none of their own, that of clipping."""
    bound = gradient_bound(problem)
    return bound if math.isfinite(bound) else clip_norm


def effective_curvature_fraction(problem: Minimize, share: float) -> float:
    """Return the part of the curvature where slopes are below a share of their bound.

    Over margins that are spread evenly, curvature is spread evenly over slopes. Labels that follow the probabilities of
    a logistic loss make slope s as rare as 1 - s.
    """
    return 1 - (1 - share) ** 2 if isinstance(problem.loss, Logistic | Softmax) else share


def is_regression(problem: Minimize) -> bool:
    """Return whether the loss compares with the record, and not with a class."""
    return isinstance(problem.loss, VectorLoss) or (isinstance(problem.loss, GLM) and not problem.loss.binary_labels)


def _has_smoothness(problem: Minimize) -> bool:
    return problem.constants("add_remove").smooth
