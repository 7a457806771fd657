"""Quantile losses: with a kink, and with the kink rounded by a parabola."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpfit.losses.base import Bounds, Constant, parameter_radius
from dpfit.losses.glm import GLM, margin_reach
from dpfit.privacy.validate import in_safe_range, positive, real


@dataclass(frozen=True)
class Pinball(GLM):
    """Quantile loss: ``level`` * (y - m) if y >= m, (1 - level) * (m - y) otherwise.

    >>> Pinball(0.9).value(0.0, [1.0, -1.0]).round(3).tolist()
    [0.9, 0.1]
    """

    kind = "loss_pinball"
    link = "PINBALL"
    kink: ClassVar[float] = 1.0
    is_quantile: ClassVar[bool] = True
    level: float

    def __post_init__(self) -> None:
        if not 0 < real("level", self.level) < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, got {self.level!r}")

    @property
    def parameter(self) -> float:
        return float(self.level)

    def steepest(self, bounds: Bounds, margin: float) -> float:
        lower, upper = bounds.labels
        # A label at the margin counts for both sides: margins just beyond it, on rows nearly
        # orthogonal to the parameter say, have the slope of the other side.
        above = self.level if upper >= -margin else 0.0
        return max(above, 1 - self.level if lower <= margin else 0.0)

    def opposite_rows_are_steep(self, bounds: Bounds, reach: float) -> bool:
        """Whether the steeper side of the label is open to margins near zero."""
        lower, upper = bounds.labels
        steepest = self.steepest(bounds, reach)
        return (steepest == self.level and upper >= 0) or (
            steepest == 1 - self.level and lower <= 0
        )

    def curvature(self, bounds: Bounds, radius: float | None = None) -> tuple[Constant, None]:
        parameter_radius(radius)
        return Constant(0.0, exact=True), None


@dataclass(frozen=True)
class QuantileHuber(GLM):
    """Quantile loss whose corner is rounded by a parabola, times ``width``.

    (m - y)^2 / 2 for m - y from -``level`` * width to (1 - ``level``) * width, linear with the
    slopes at these ends beyond: the Moreau envelope of `Pinball`, as `Huber` is that of `Absolute`.
    A. Aravkin, A. Kambadur, A. Lozano, R. Luss, Sparse quantile Huber regression for efficient and
    robust estimation, 2014.

    If ``centred``, labels are moved by (level - 1/2) * width, so that the loss is curved for m - y
    from -width / 2 to width / 2. Its minimizer is then off the quantile by the square of the width
    only: the derivative is that of `Pinball`, averaged over a window around the margin. M.
    Fernandes, E. Guerre, E. Horta, Smoothing quantile regressions, 2021.

    >>> QuantileHuber(0.75, 4.0).slope([-9.0, -1.0, 0.0, 0.5, 9.0], 0.0).tolist()
    [-3.0, -1.0, 0.0, 0.5, 1.0]
    >>> QuantileHuber(0.75, 4.0, centred=True).slope([-9.0, 0.0, 1.0, 9.0], 0.0).tolist()
    [-3.0, -1.0, 0.0, 1.0]
    >>> QuantileHuber(0.75, 4.0).lipschitz(Bounds(1.0))
    Constant(value=3.0, exact=True)
    """

    kind = "loss_quantile_huber"
    omitted: ClassVar = ("centred",)
    is_quantile: ClassVar[bool] = True
    level: float
    width: float
    centred: bool = False

    @property
    def link(self) -> str:  # type: ignore[override]
        return "CENTRED_QUANTILE_HUBER" if self.centred else "QUANTILE_HUBER"

    def __post_init__(self) -> None:
        if not 0 < real("level", self.level) < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, got {self.level!r}")
        in_safe_range("width", self.width)
        positive("level * width and (1 - level) * width", min(self.below, self.above))

    @property
    def slope_span(self) -> float:  # type: ignore[override]
        """The width: the loss is that many times the quantile loss that it stands for."""
        return self.width

    @property
    def below(self) -> float:
        """The size of the slope where the margin is far below the label."""
        return self.level * self.width

    @property
    def above(self) -> float:
        """The slope where the margin is far above the label."""
        return (1 - self.level) * self.width

    @property
    def parameter(self) -> float:
        return self.below if self.below <= self.above else -self.above

    @property
    def slope_bound(self) -> float:
        return max(self.below, self.above)

    def _labels(self, bounds: Bounds) -> tuple[float, float]:
        """Return the range of the labels that are compared with margins."""
        lower, upper = bounds.labels
        return lower + self.smoothing, upper + self.smoothing

    @property
    def smoothing(self) -> float:
        """What is added to the labels of a centred loss."""
        return (self.below - self.above) / 2 if self.centred else 0.0

    def steepest(self, bounds: Bounds, margin: float) -> float:
        lower, upper = self._labels(bounds)
        return max(min(margin - lower, self.above), min(margin + upper, self.below), 0.0)

    def opposite_rows_are_steep(self, bounds: Bounds, reach: float) -> bool:
        """Whether rows orthogonal to the parameter, of margin zero, find steepest labels."""
        return self.steepest(bounds, 0.0) >= self.steepest(bounds, reach)

    def margin_at(self, bounds: Bounds, slope: float) -> float:
        return slope - max(map(abs, self._labels(bounds)))

    def curvature(self, bounds: Bounds, radius: float | None = None) -> tuple[Constant, Constant]:
        reach = margin_reach(bounds, radius)
        lower, upper = self._labels(bounds)
        always = reach - lower < self.above and reach + upper < self.below
        ever = reach - lower > -self.below and -reach - upper < self.above
        return Constant(1.0 if always else 0.0, exact=True), Constant(1.0, exact=ever)
