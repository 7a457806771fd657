"""Constants of a problem: what one record can do to a gradient, and how curved the loss is.

Privacy rests on these numbers, so they are computed in one place. They hold for every record within
the declared bounds and every parameter within the radius. A constant that a loss does not have is
infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from dpfit.losses.base import Bounds, Constant, Loss
from dpfit.losses.glm import GLM

_CACHED = 256
"""Searches over ridges and radii ask for the constants of few losses many times."""


@dataclass(frozen=True)
class Constants:
    """Constants of one loss under one neighbouring relation, each computed when it is first read.

    >>> from dpfit.losses import Logistic
    >>> replaced = constants_of(Logistic(), Bounds(row_norm=2.0), None, "replace")
    >>> replaced.lipschitz, replaced.gradient_sensitivity, replaced.smoothness
    (2.0, 4.0, 1.0)
    """

    loss: Loss
    bounds: Bounds
    radius: float | None
    relation: str
    norm: str = "l2"
    """The norm of the parameter; gradients are measured in its dual, l-infinity for "l1"."""

    @cached_property
    def lipschitz(self) -> float:
        """Largest gradient norm of one record; infinite if there is none."""
        return self._lipschitz[0]

    @cached_property
    def gradient_sensitivity(self) -> float:
        """Largest change of the gradient sum by one record, under the relation; may be infinite."""
        return self._sensitivity[0]

    def require_sensitivity(self) -> float:
        """Return the gradient sensitivity; ValueError with a hint if there is none."""
        value, missing = self._sensitivity
        if missing:
            raise ValueError(missing)
        return value

    @cached_property
    def missing(self) -> str:
        """Why the gradients have no bound, with a hint; empty if they have one."""
        return self._lipschitz[1]

    @cached_property
    def smoothness(self) -> float:
        """Lipschitz constant of the gradient of one record; infinite if the gradient jumps."""
        constant = self.loss.smoothness(self.bounds, self.radius)
        if constant is None or math.isinf(self._entries[0]):
            return math.inf
        return constant.value * self._entries[0] ** 2

    @cached_property
    def self_concordance(self) -> float:
        """The M of generalized self-concordance; infinite if none is known."""
        constant = self.loss.self_concordance(self.bounds, self.radius)
        return math.inf if constant is None else constant.value

    @property
    def margin_self_concordance(self) -> float:
        """Generalized self-concordance M of a generalized linear loss; infinite for others."""
        return self.self_concordance if self.loss.is_glm else math.inf

    @cached_property
    def margin_curvatures(self) -> tuple[float, float]:
        """Least and largest second derivative of the loss in the margin; (0, inf) if unknown."""
        if not isinstance(self.loss, GLM):
            return 0.0, math.inf
        lower, upper = self.loss.curvature(self.bounds, self.radius)
        return lower.value, math.inf if upper is None else upper.value

    @cached_property
    def value_range(self) -> float:
        """Largest difference between two values of one record's loss; infinite if none is known."""
        return (
            float(self.loss.value_range(self.bounds, self.radius))
            if isinstance(self.loss, GLM)
            else math.inf
        )

    @cached_property
    def natural_unit(self) -> float:
        """Norm of a parameter that takes the steepest record through its curved part; for accuracy.

        For a smooth loss the Lipschitz constant over the smoothness: 4 / row norm for the logistic
        loss, width / row norm for the Huber loss. A non-smooth loss has a margin of 1, or an error
        of a tenth of the label range.
        """
        if 0 < self.smoothness < math.inf and self.bounded:
            return self.lipschitz / self.smoothness
        low, high = self.bounds.labels
        return (0.1 * (high - low) if math.isfinite(high - low) else 1.0) / self.bounds.row_norm

    @property
    def smooth(self) -> bool:
        """Whether the gradient is Lipschitz."""
        return math.isfinite(self.smoothness)

    @property
    def bounded(self) -> bool:
        """Whether the gradients have a bound."""
        return math.isfinite(self.lipschitz)

    @property
    def convex(self) -> bool:
        """Whether the loss is convex in the parameter."""
        return self.loss.convex

    @property
    def convex_when_clipped(self) -> bool:
        """Whether clipped gradients belong to a convex loss: generalized linear losses only."""
        return self.loss.convex and self.loss.is_glm

    @property
    def status(self) -> str:
        """Whether constants are enforced by guards or declared by the caller."""
        return self.loss.status

    @cached_property
    def _entries(self) -> tuple[float, str]:
        """Bound on the largest entry of a row over its norm, rounded up; holds for gradients."""
        if self.norm == "l2":
            return 1.0, ""
        if self.bounds.row_max is None or not self.loss.is_glm:
            return (
                math.inf,
                "constants in the l1 norm need a generalized linear loss and row_max; declare "
                "row_max",
            )
        return min(1.0, self.bounds.row_max / self.bounds.row_norm * (1 + 2.0**-50)), ""

    @cached_property
    def _lipschitz(self) -> tuple[float, str]:
        return self._in_norm(lambda: self.loss.lipschitz(self.bounds, self.radius))

    @cached_property
    def _sensitivity(self) -> tuple[float, str]:
        if self.relation == "add_remove":
            return self._lipschitz
        if self.norm == "l1":
            # Two gradients may have opposite signs in the same entry.
            return 2 * self._lipschitz[0], self._lipschitz[1]
        return self._in_norm(lambda: self.loss.lipschitz_diff(self.bounds, self.radius))

    def _in_norm(self, constant: Callable[[], Constant]) -> tuple[float, str]:
        value, missing = _value(constant)
        factor, unknown = self._entries
        return value * factor, missing or unknown


def constants_of(
    loss: Loss, bounds: Bounds, radius: float | None, relation: str, norm: str = "l2"
) -> Constants:
    """Return the constants of a loss, cached by what they depend on.

    A loss of the caller is not cached: the cache would keep its functions alive.
    """
    if loss.status == "declared":
        return Constants(loss, bounds, radius, relation, norm)
    return _cached(loss, bounds, radius, relation, norm)


@lru_cache(maxsize=_CACHED)
def _cached(
    loss: Loss, bounds: Bounds, radius: float | None, relation: str, norm: str
) -> Constants:
    return Constants(loss, bounds, radius, relation, norm)


def _value(constant: Callable[[], Constant]) -> tuple[float, str]:
    try:
        return constant().value, ""
    except ValueError as error:
        return math.inf, str(error)
