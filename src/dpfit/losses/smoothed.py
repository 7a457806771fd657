"""Losses with one kink, smoothed exactly by a Gaussian: hinge, pinball and absolute loss.

A kink with a jump of V in the slope becomes a slope that rises along a normal distribution
function, so the curvature is at most V / (width sqrt(2 pi)). The closed form matters for privacy:
a quadrature is a staircase with jumps (docs/explanation/phases.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpfit.losses.base import Bounds, Constant
from dpfit.losses.glm import GLM
from dpfit.privacy.validate import in_safe_range

_LARGEST_DENSITY = 1 / math.sqrt(2 * math.pi)


@dataclass(frozen=True)
class GaussianSmoothed(GLM):
    """The mean of a loss under normal shifts of the margin, of standard deviation ``width``.

    It is convex, lies above the loss by at most V width / sqrt(2 pi), and has curvature at most
    V / (width sqrt(2 pi)). V is the total variation of the slope: 2 for the absolute loss, 1 for
    hinge and pinball loss.

    Examples
    --------
    >>> from dpfit.losses import Absolute, Hinge
    >>> GaussianSmoothed(Absolute(), 0.5).slope([-2.0, 0.0, 2.0], 0.0).round(4).tolist()
    [-0.9999, 0.0, 0.9999]
    >>> round(GaussianSmoothed(Hinge(), 1.0).smoothness(Bounds(2.0)).value, 4)
    1.5958
    """

    kind = "loss_gaussian_smoothed"
    slope_relation = ""
    loss: GLM
    width: float

    def __post_init__(self) -> None:
        in_safe_range("width", self.width)
        if not isinstance(self.loss, GLM) or not self.loss.kink:
            kind = getattr(self.loss, "kind", type(self.loss).__name__)
            raise ValueError(
                f"there is no closed form for {kind!r} under Gaussian shifts; take Absolute, Hinge "
                "or Pinball, or a smooth loss"
            )
        # Labels are read as the loss reads them.
        object.__setattr__(self, "binary_labels", self.loss.binary_labels)
        object.__setattr__(self, "is_quantile", self.loss.is_quantile)

    @property
    def code(self) -> int:
        return self.loss.code

    @property
    def parameter(self) -> float:
        return self.loss.parameter

    @property
    def smoothing(self) -> float:
        return float(self.width)

    @property
    def gap(self) -> float:
        """How far it lies above the loss, at most; never below."""
        return self.loss.kink * self.width * _LARGEST_DENSITY

    def steepest(self, bounds: Bounds, margin: float) -> float:
        # Shifts reach both sides of the kink.
        return self.loss.steepest(Bounds(bounds.row_norm), math.inf)

    def opposite_rows_are_steep(self, bounds: Bounds, reach: float) -> bool:
        return False

    def curvature(self, bounds: Bounds, radius: float | None = None) -> tuple[Constant, Constant]:
        upper = self.loss.kink * _LARGEST_DENSITY / self.width
        return Constant(0.0, exact=False), Constant(upper, exact=False)


def smoothing_width(kink: float, row_norm: float, step_size: float, ridge: float = 0.0) -> float:
    """Return the least width for which a gradient step does not expand distances.

    The step theta - step_size * (slope x + ridge theta) needs step_size * (M + ridge) <= 2, where
    M = row_norm^2 * kink / (width sqrt(2 pi)). Hence width >= step_size * row_norm^2 * kink /
    ((2 - step_size * ridge) sqrt(2 pi)). It is rounded up.

    >>> round(smoothing_width(2.0, 1.0, 0.1), 6)
    0.039894
    """
    room = 2 - step_size * ridge
    if not room > 0:
        raise ValueError(
            f"step_size * ridge must be below 2, got {step_size * ridge:.3g}; reduce step_size"
        )
    return step_size * row_norm**2 * kink * _LARGEST_DENSITY / room * (1 + 2.0**-40)
