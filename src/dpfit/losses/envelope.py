"""The Lipschitz envelope: a generalized linear loss with clipped slope, still convex."""

from __future__ import annotations

from dataclasses import dataclass

from dpfit.losses.base import Bounds, Constant
from dpfit.losses.glm import GLM, capped_cosine, margin_reach
from dpfit.privacy.validate import in_safe_range, positive


@dataclass(frozen=True)
class LipschitzEnvelope(GLM):
    """The largest convex loss below ``loss`` whose slope in the margin stays within ``bound``.

    It is the Pasch-Hausdorff envelope inf_u loss(u) + bound * abs(m - u). Its slope is that of the
    loss, clipped: a clipped increasing function increases, so it is again the derivative of a
    convex function. That holds because the slope is a scalar; clipped per-example gradients in
    general are no gradient field (docs/explanation/losses.md). `GLM.enveloped` takes a simpler loss
    where one is equal, such as `Huber` for the squared loss.

    References
    ----------
    R. T. Rockafellar, R. J.-B. Wets, Variational Analysis, Example 9.11.

    Examples
    --------
    >>> from dpfit.losses import Logistic
    >>> LipschitzEnvelope(Logistic(), 0.5).slope([-100.0, 0.0, 100.0], 1.0).round(3).tolist()
    [-0.5, -0.5, -0.0]
    """

    kind = "loss_lipschitz_envelope"
    loss: GLM
    bound: float

    def __post_init__(self) -> None:
        in_safe_range("bound", self.bound)
        if not isinstance(self.loss, GLM) or isinstance(self.loss, LipschitzEnvelope):
            raise ValueError(
                "an envelope is of a generalized linear loss that is not itself an envelope (use "
                "its enveloped()). For "
                "other losses there is none to compute: clip gradients (noisy_gd, dp_sgd), or "
                "take HuberDistance in "
                "place of SquaredDistance (docs/explanation/losses.md)"
            )
        if not self.loss.convex:
            raise ValueError(
                f"an envelope needs a convex loss, got {self.loss.kind!r}: its slope falls again, "
                "so clipped slopes belong to no convex loss; use the loss as it is, or clip "
                "gradients (noisy_gd)"
            )
        # Labels are read as the loss reads them.
        object.__setattr__(self, "binary_labels", self.loss.binary_labels)

    @property
    def code(self) -> int:
        return self.loss.code

    @property
    def parameter(self) -> float:
        return self.loss.parameter

    @property
    def slope_bound(self) -> float:
        return min(float(self.bound), self.loss.slope_bound)

    @property
    def smoothing(self) -> float:
        return self.loss.smoothing

    def steepest(self, bounds: Bounds, margin: float) -> float:
        return min(self.loss.steepest(bounds, margin), self.bound)

    def widest_cosine(self, bounds: Bounds, reach: float) -> float:
        if self.loss.steepest(bounds, reach) <= self.bound:
            return self.loss.widest_cosine(bounds, reach)
        clipped_from = capped_cosine(self.loss.margin_at(bounds, self.bound), reach)
        return min(self.loss.widest_cosine(bounds, reach), clipped_from)

    def opposite_rows_are_steep(self, bounds: Bounds, reach: float) -> bool:
        return self.loss.opposite_rows_are_steep(bounds, reach)

    def curvature(
        self, bounds: Bounds, radius: float | None = None
    ) -> tuple[Constant, Constant | None]:
        lower, upper = self.loss.curvature(bounds, radius)
        if self.loss.steepest(bounds, margin_reach(bounds, radius)) < self.bound:
            return lower, upper
        return Constant(0.0, exact=True), None if upper is None else Constant(
            upper.value, exact=False
        )

    def self_concordance(self, bounds: Bounds, radius: float | None = None) -> Constant | None:
        unclipped = self.loss.steepest(bounds, margin_reach(bounds, radius)) < self.bound
        return self.loss.self_concordance(bounds, radius) if unclipped else None

    def enveloped(self, slope_bound: float) -> GLM:
        return self.loss.enveloped(min(self.bound, positive("slope_bound", slope_bound)))
