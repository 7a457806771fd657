"""Sizes in a problem: of gradients, of parameters that matter, of noise beside them, of curvature.

All follow from public facts. They decide about accuracy, never about privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpfit.core import Minimize, Tuning
from dpfit.core.reference_designs import half_range


@dataclass(frozen=True)
class ScaleTuning(Tuning):
    """Tuned numbers of sizes and of predicted risks.

    Parameters
    ----------
    clip : float
        The share of the Lipschitz constant at which gradients are clipped where there is much
        noise.
    clip_bias : float
        Excess risk by clipping the gradients of a classification loss at ``clip``, over the
        Lipschitz constant and the standard deviation of margins.
    user_clip : float
        Radius of a user's mean gradient over the Lipschitz constant and the inverse root of its
        rows. About the standard deviation of a logistic slope: near the optimum the mean of m
        gradients is as long as this over the root of m.
    few_rows : float
        Rows of a user up to which clipping its mean costs as much as clipping a record; beyond, the
        cost falls with the square of the rows. Set on 3000 users of 2 rows, 2000 of 5 and 4000 of
        10.
    quantile_density : float
        Assumed density of residuals at a quantile, over half the label range: that of normal ones
        at the quantile 0.75, whose standard deviation is 0.14.
    """

    kind = "scale_tuning"
    set_by: str = "benchmarks/calibrate_auto.py"
    clip: float = 0.6
    clip_bias: float = 0.0019
    user_clip: float = 0.4
    few_rows: float = 2.0
    quantile_density: float = 2.3


TUNING = ScaleTuning()


def user_radius(problem: Minimize) -> float:
    """Return the clip norm of a user's mean gradient; infinite if gradients have no bound.

    A user of one row is a record, which is clipped at the Lipschitz constant.
    """
    rows = 1.0 if problem.rows_per_user is None else problem.rows_per_user
    return gradient_bound(problem) * (TUNING.user_clip / math.sqrt(rows) if rows > 1 else 1.0)


def clip_share(problem: Minimize, clip_norm: float, per: str = "record") -> float:
    """Return the clipping norm over that from which on hardly anything is clipped, at most 1."""
    bound = slope_bound(problem, clip_norm) if per == "record" else user_radius(problem)
    return min(1.0, clip_norm / bound)


def gradient_bound(problem: Minimize) -> float:
    """Return the smallest clip norm that clips nothing; infinite without a Lipschitz constant."""
    return problem.constants("add_remove").lipschitz


def relative_noise(problem: Minimize, relation: str, noise_multiplier: float) -> float:
    """Return the noise norm of the unclipped mean gradient over the Lipschitz constant."""
    bound = gradient_bound(problem)
    noise = (
        problem.clipped_sensitivity(bound, relation)
        * noise_multiplier
        * math.sqrt(problem.dimension)
    )
    return noise / (problem.n * bound)


def natural_unit(problem: Minimize) -> float:
    """Return the norm of a parameter that takes the steepest record through its curved part."""
    return problem.constants("add_remove").natural_unit


def parameter_scale(problem: Minimize) -> float:
    """Return the parameter norm that noise is compared with: natural unit or label scale.

    A narrow Huber loss is curved over small residuals only, but the parameter that explains labels
    spans a quarter of their range. A hinge with a narrow corner asks for margins from -1 to 1.
    """
    low, high = problem.bounds.labels
    # The unit of a loss with corners is one of labels already, and the size of its steps.
    if not _has_smoothness(problem) or not problem.loss.is_glm:
        return natural_unit(problem)
    span = 0.25 * (high - low) if problem.loss.is_regression else 2.0
    return max(
        natural_unit(problem), span / problem.bounds.row_norm if math.isfinite(span) else 0.0
    )


def isotropic_curvature(problem: Minimize, clip_norm: float, per: str = "record") -> float:
    """Return the approximate effective curvature of each direction for isotropic rows."""
    directions = problem.dimension if problem.loss.reads_labels else 1
    if problem.loss.is_quantile and math.isfinite(half_range(problem)):
        inside = min(1.0, TUNING.quantile_density * problem.loss.slope_span / half_range(problem))
        return inside * problem.bounds.row_norm**2 / directions
    slope = slope_bound(problem, clip_norm)
    fraction = effective_curvature_fraction(problem, clip_share(problem, clip_norm, per))
    return fraction * slope / (2 * natural_unit(problem) * directions)


def slope_bound(problem: Minimize, clip_norm: float) -> float:
    """Return the bound on gradients; where they have none of their own, that of clipping."""
    bound = gradient_bound(problem)
    return bound if math.isfinite(bound) else clip_norm


def effective_curvature_fraction(problem: Minimize, share: float) -> float:
    """Return the part of the curvature where slopes are below a share of their bound.

    Over margins that are spread evenly, curvature is spread evenly over slopes. Labels that follow
    the probabilities of a logistic loss make slope s as rare as 1 - s.
    """
    return 1 - (1 - share) ** 2 if problem.loss.slope_relation in ("logistic", "softmax") else share


def _has_smoothness(problem: Minimize) -> bool:
    return problem.constants("add_remove").smooth
