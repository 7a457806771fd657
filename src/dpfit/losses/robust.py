"""Regression losses that level off, so that labels far away stop pulling. They are not convex.

Slopes are bounded, so every descent on clipped gradients takes these losses. What rests on
convexity refuses them: last-iterate accounting, phases, perturbed minimizers and Gibbs samples.
docs/explanation/losses.md derives the constants.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from dpfit.losses.base import Bounds, Constant
from dpfit.losses.glm import GLM, Huber, margin_reach
from dpfit.privacy.validate import in_safe_range

START = 0.4
"""Width of the Huber loss whose fit is the start, over the width of the loss itself."""


@dataclass(frozen=True)
class Redescending(GLM):
    """A loss of the residual t = m - y whose slope rises to a peak and falls again to zero.

    Parameters
    ----------
    width : float
        The residual beyond which labels pull less and less, in units of the labels.
    """

    has_hessian: ClassVar[bool] = False
    slope_relation: ClassVar[str] = ""
    width: float

    def __post_init__(self) -> None:
        in_safe_range("width", self.width)

    @property
    def parameter(self) -> float:
        return float(self.width)

    @property
    def convex(self) -> bool:
        return False

    @property
    def convex_start(self) -> Huber:
        """Huber's loss, linear beyond `START` times the width."""
        return Huber(START * self.width)

    def narrowed(self, width: float) -> Self:
        """Return the loss of this width, or the loss itself where that is narrower."""
        return replace(self, width=min(self.width, width))

    @abstractmethod
    def _steepest_between(self, least: float, most: float) -> float:
        """Return the largest absolute slope at residuals of size ``least`` to ``most``."""

    def steepest(self, bounds: Bounds, margin: float) -> float:
        return self._steepest_between(*residuals(bounds, margin))

    def opposite_rows_are_steep(self, bounds: Bounds, reach: float) -> bool:
        """Whether rows orthogonal to the parameter, of margin zero, find steepest labels."""
        return self.steepest(bounds, 0.0) >= self.steepest(bounds, reach)

    def value_range(self, bounds: Bounds, radius: float | None = None) -> float:
        """How far apart the loss of one record can be at two parameters, rounded up.

        The loss rises with the size of the residual from 0, so it is at most its value at the
        largest one, and it changes by at most the steepest slope times the change of the margin.
        Infinite radii are allowed: the loss is bounded.
        """
        reach = margin_reach(bounds, radius)
        largest = float(self.value(residuals(bounds, reach)[1], 0.0))
        return min(largest, 2 * reach * self.steepest(bounds, reach)) * (1 + 1e-12)


def residuals(bounds: Bounds, margin: float) -> tuple[float, float]:
    """Return the least and the largest absolute residual of margins of at most ``margin``.

    >>> residuals(Bounds(1.0, 0.5, 2.0), 0.25)
    (0.25, 2.25)
    """
    lower, upper = bounds.labels
    return max(0.0, lower - margin, -upper - margin), bounds.label_size + margin


@dataclass(frozen=True)
class GemanMcClure(Redescending):
    """Loss (width^2 / 2) u / (1 + u), u = (t / width)^2, of the residual t = m - y.

    Its slope t / (1 + u)^2 is at most 3 sqrt(3) width / 16, at t = width / sqrt(3). Its curvature
    (1 - 3 u) / (1 + u)^3 lies in [-1/4, 1]. Near zero it is the squared loss; a far label costs
    width^2 / 2 at most. Reference: Geman and McClure (1987).

    >>> GemanMcClure(1.0).value([0.0, 1.0, 1e9], 0.0).tolist()
    [0.0, 0.25, 0.5]
    >>> round(GemanMcClure(2.0).lipschitz(Bounds(1.0)).value, 4)
    0.6495
    """

    kind = "loss_geman_mcclure"
    link = "GEMAN_MCCLURE"

    def _steepest_between(self, least: float, most: float) -> float:
        peak = self.width / math.sqrt(3)
        if least <= peak <= most:
            return 3 * math.sqrt(3) / 16 * self.width
        gap = (most if most < peak else least) / self.width
        return self.width * (gap / (1 + gap * gap) ** 2)

    def curvature(self, bounds: Bounds, radius: float | None = None) -> tuple[Constant, Constant]:
        """The curvature falls until u = 1, where it is -1/4, and rises towards zero from there."""
        least, most = residuals(bounds, margin_reach(bounds, radius))
        ends = [float(self.curvature_at(gap, 0.0)) for gap in (least, most)]
        lower = -0.25 if least <= self.width <= most else min(ends)
        return Constant(lower, exact=True), Constant(max(ends), exact=True)


@dataclass(frozen=True)
class TruncatedAbsolute(Redescending):
    """Loss min(abs(t), width) of the residual t = m - y: slope 1 up to the width, 0 beyond.

    Its slope jumps at 0 and at the width, so it is for methods that take losses with kinks.

    >>> TruncatedAbsolute(2.0).value([0.5, 1.0, 9.0], 0.0).tolist()
    [0.5, 1.0, 2.0]
    >>> TruncatedAbsolute(2.0).slope([0.5, 9.0], 0.0).tolist()
    [1.0, 0.0]
    """

    kind = "loss_truncated_absolute"
    link = "TRUNCATED_ABSOLUTE"

    def _steepest_between(self, least: float, most: float) -> float:
        return 1.0

    def lipschitz(self, bounds: Bounds, radius: float | None = None) -> Constant:
        return Constant(bounds.row_norm, exact=self._is_open(bounds, margin_reach(bounds, radius)))

    def opposite_rows_are_steep(self, bounds: Bounds, reach: float) -> bool:
        return self._is_open(bounds, 0.0)

    def _is_open(self, bounds: Bounds, margin: float) -> bool:
        """Whether some label is nearer than the width; else all slopes are zero."""
        return residuals(bounds, margin)[0] < self.width

    def curvature(self, bounds: Bounds, radius: float | None = None) -> tuple[Constant, None]:
        """The slope falls by a jump at the width."""
        return Constant(-math.inf, exact=False), None
