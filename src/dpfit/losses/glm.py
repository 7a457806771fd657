"""Generalized linear losses: functions of the margin m = <x, theta> and the label y.

The gradient is slope(m, y) x, so everything about it is a statement on one scalar function. The formulas live in
`dpfit.losses.links`, compiled once for these classes and for the kernels; docs/explanation/losses.md derives the
constants.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfit.losses.base import Bounds, Constant, Loss, parameter_radius
from dpfit.privacy.check import moderate, number, positive

if TYPE_CHECKING:
    from dpfit.losses.envelope import LipschitzEnvelope

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class GLM(Loss):
    """A loss of the margin and the label.

    A kernel needs three numbers of it: ``code`` and ``parameter`` (see `dpfit.losses.links`) and ``slope_bound``, at
    which the slope is clipped (infinity for all but a `LipschitzEnvelope` and a `QuantileHuber`).
    """

    is_glm: ClassVar[bool] = True
    link: ClassVar[str] = ""
    binary_labels: ClassVar[bool] = False
    """Whether labels are read as +1 (if positive) and -1 (if not)."""

    @property
    def code(self) -> int:
        """The number of the loss in `dpfit.losses.links`."""
        from dpfit.losses import links

        return int(getattr(links, self.link))

    @property
    def parameter(self) -> float:
        """The one number that the formulas of a loss may depend on (width, level)."""
        return 0.0

    @property
    def slope_bound(self) -> float:
        """Where the slope is clipped."""
        return math.inf

    def value(self, margin: ArrayLike, label: ArrayLike) -> Floats:
        """The losses, elementwise."""
        return self._elementwise("values", margin, label)

    def slope(self, margin: ArrayLike, label: ArrayLike) -> Floats:
        """The derivatives in the margin, elementwise; at a corner the subgradient closest to zero."""
        return self._elementwise("slopes", margin, label)

    def curvature_at(self, margin: ArrayLike, label: ArrayLike) -> Floats:
        """The second derivatives in the margin, elementwise; zero at corners."""
        return self._elementwise("curvatures", margin, label)

    def _elementwise(self, name: str, margin: ArrayLike, label: ArrayLike) -> Floats:
        from dpfit.losses import links

        function = getattr(links, name)
        return np.asarray(function(self.code, self.parameter, self.slope_bound, _numbers(margin), _numbers(label)))

    @abstractmethod
    def steepest(self, bounds: Bounds, margin: float) -> float:
        """Largest size of the slope, over all labels, when the margin is on the wrong side by ``margin`` (or more)."""

    def widest_cosine(self, bounds: Bounds, reach: float) -> float:
        """The cosine c >= 0 that maximizes steepest(reach * c) * sqrt(1 - c**2), for margins up to a finite ``reach``.

        Two gradients at theta are farthest apart when their rows make the angle arccos(c) with theta, on opposite sides
        of it: tilting towards theta steepens the slope, tilting away spreads the rows.
        """
        return 0.0

    def opposite_rows_are_steep(self, bounds: Bounds, reach: float) -> bool:
        """Whether two rows at the `widest_cosine` both find a label of the steepest slope; else no closed form."""
        return True

    def margin_at(self, bounds: Bounds, slope: float) -> float:
        """The margin at which `steepest` comes to ``slope``; negative if it is steeper from the start."""
        return -math.inf

    def lipschitz(self, bounds: Bounds, radius: float | None = None) -> Constant:
        steepest = self.steepest(bounds, margin_reach(bounds, radius))
        if math.isinf(steepest):
            raise ValueError(
                f"the slope of {self.kind!r} has no bound here: declare label bounds and bound the domain, "
                "or use a loss of bounded slope (huberized(width), enveloped(slope_bound))"
            )
        return Constant(bounds.row_norm * steepest, exact=True)

    def lipschitz_diff(self, bounds: Bounds, radius: float | None = None) -> Constant:
        single = self.lipschitz(bounds, radius)
        reach = margin_reach(bounds, radius)
        if math.isinf(reach):
            # Rows nearly orthogonal to a far theta have steep slopes and are opposite to each other.
            return Constant(2 * single.value, exact=True)
        if not self.opposite_rows_are_steep(bounds, reach):
            return Constant(2 * single.value, exact=False)
        cosine = self.widest_cosine(bounds, reach)
        spread = math.sqrt((1 - cosine) * (1 + cosine))
        return Constant(2 * bounds.row_norm * self.steepest(bounds, reach * cosine) * spread, exact=True)

    def value_range(self, bounds: Bounds, radius: float | None = None) -> float:
        """How far apart the loss of one record can be at two parameters, whatever the record.

        A convex function on an interval is largest at an end. As the label moves, so does the window through which a
        function of margin minus label is seen; the range is quasi-convex in it, so largest at a bound of the labels.

        >>> labels = Bounds(1.0, -1.0, 1.0)
        >>> [round(loss.value_range(labels, 3.0), 9) for loss in (Logistic(), Absolute())]
        [3.0, 4.0]
        """
        reach = margin_reach(bounds, radius)
        labels = (1.0,) if self.binary_labels else (bounds.label_lower, bounds.label_upper)
        if math.isinf(reach) or not self.convex:
            return math.inf
        return max(math.inf if label is None else self._range_at(float(label), reach) for label in labels)

    def _range_at(self, label: float, reach: float) -> float:
        """Largest minus least value over margins up to ``reach``, rounded up."""
        low, high = -reach, reach
        largest = float(np.max(self.value([low, high], label)))
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if float(self.slope(middle, label)) < 0 else (low, middle)
        least = float(np.min(self.value([low, high], label)))
        return (largest - least) * (1 + 1e-12) + 1e-15 * abs(largest)

    @abstractmethod
    def curvature(self, bounds: Bounds, radius: float | None = None) -> tuple[Constant, Constant | None]:
        """Smallest and largest second derivative in the margin; the latter is ``None`` if the slope jumps."""

    def smoothness(self, bounds: Bounds, radius: float | None = None) -> Constant | None:
        upper = self.curvature(bounds, radius)[1]
        return None if upper is None else Constant(bounds.row_norm**2 * upper.value, upper.exact)

    def enveloped(self, slope_bound: float) -> GLM:
        """The largest convex loss below this one whose slope stays within the bound (see `LipschitzEnvelope`).

        >>> Squared().enveloped(2.0)
        Huber(width=2.0)
        >>> Logistic().enveloped(0.5)
        LipschitzEnvelope(loss=Logistic(), bound=0.5)
        """
        if self.steepest(_ANYTHING, math.inf) <= positive("slope_bound", slope_bound):
            return self
        return _envelope(self, slope_bound)


_ANYTHING = Bounds(1.0)


def _envelope(loss: GLM, slope_bound: float) -> LipschitzEnvelope:
    from dpfit.losses.envelope import LipschitzEnvelope

    return LipschitzEnvelope(loss, slope_bound)


def margin_reach(bounds: Bounds, radius: float | None) -> float:
    """Largest size of a margin: row norm times parameter norm."""
    return bounds.row_norm * parameter_radius(radius)


def _numbers(values: ArrayLike) -> Floats:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("margins and labels must be arrays of numbers") from None


def _widest_affine(offset: float, growth: float) -> float:
    """The cosine c that maximizes (offset + growth * c) * sqrt(1 - c**2): the positive root of its derivative."""
    return 2 * growth / (offset + math.hypot(offset, math.sqrt(8) * growth)) if growth > 0 else 0.0


def capped_cosine(margin: float, reach: float) -> float:
    """The cosine at which the margin reach * c comes to ``margin``, inside [0, 1]."""
    return min(max(margin / reach, 0.0), 1.0) if reach > 0 else 0.0


@dataclass(frozen=True)
class Logistic(GLM):
    """Logistic loss log(1 + exp(-y m)) of labels -1 and 1.

    >>> Logistic().value([0.0, 100.0], 1.0).round(3).tolist()
    [0.693, 0.0]
    >>> Logistic().lipschitz(Bounds(1.0)), Logistic().lipschitz_diff(Bounds(1.0))
    (Constant(value=1.0, exact=True), Constant(value=2.0, exact=True))
    """

    kind = "loss_logistic"
    link = "LOGISTIC"
    binary_labels: ClassVar[bool] = True

    def steepest(self, bounds: Bounds, margin: float) -> float:
        return 1 / (1 + math.exp(-margin))

    def widest_cosine(self, bounds: Bounds, reach: float) -> float:
        from scipy.optimize import brentq

        def uphill(cosine: float) -> float:
            return reach * (1 - cosine**2) * (1 - self.steepest(bounds, reach * cosine)) - cosine

        return float(brentq(uphill, 0.0, 1.0, xtol=1e-14))

    def margin_at(self, bounds: Bounds, slope: float) -> float:
        return math.log(slope / (1 - slope))

    def curvature(self, bounds: Bounds, radius: float | None = None) -> tuple[Constant, Constant]:
        tail = math.exp(-margin_reach(bounds, radius))
        return Constant(tail / (1 + tail) ** 2, exact=True), Constant(0.25, exact=True)

    def self_concordance(self, bounds: Bounds, radius: float | None = None) -> Constant:
        """Row norm times sup tanh(m / 2), the ratio of third to second derivative."""
        return Constant(bounds.row_norm * math.tanh(margin_reach(bounds, radius) / 2), exact=True)


@dataclass(frozen=True)
class Squared(GLM):
    """Squared loss (m - y)^2 / 2. Its slope is bounded only for bounded labels on a bounded domain.

    >>> Squared().lipschitz(Bounds(1.0, -1.0, 1.0), radius=2.0)
    Constant(value=3.0, exact=True)
    >>> Squared().huberized(1.0).lipschitz(Bounds(1.0))
    Constant(value=1.0, exact=True)
    """

    kind = "loss_squared"
    link = "SQUARED"

    def steepest(self, bounds: Bounds, margin: float) -> float:
        return bounds.label_size + margin

    def widest_cosine(self, bounds: Bounds, reach: float) -> float:
        return _widest_affine(bounds.label_size, reach)

    def margin_at(self, bounds: Bounds, slope: float) -> float:
        return slope - bounds.label_size

    def curvature(self, bounds: Bounds, radius: float | None = None) -> tuple[Constant, Constant]:
        parameter_radius(radius)
        return Constant(1.0, exact=True), Constant(1.0, exact=True)

    def self_concordance(self, bounds: Bounds, radius: float | None = None) -> Constant:
        return Constant(0.0, exact=True)

    def huberized(self, width: float) -> Huber:
        """The squared loss continued linearly where the residual exceeds the width: its Lipschitz envelope."""
        return Huber(width)

    def enveloped(self, slope_bound: float) -> Huber:
        return self.huberized(slope_bound)


@dataclass(frozen=True)
class Huber(GLM):
    """Huber's loss: squared within ``width`` of the label, linear beyond.

    >>> Huber(1.0).value([0.5, 3.0], 0.0).tolist()
    [0.125, 2.5]
    """

    kind = "loss_huber"
    link = "HUBER"
    width: float

    def __post_init__(self) -> None:
        moderate("width", self.width)

    @property
    def parameter(self) -> float:
        return float(self.width)

    def steepest(self, bounds: Bounds, margin: float) -> float:
        return min(bounds.label_size + margin, self.width)

    def widest_cosine(self, bounds: Bounds, reach: float) -> float:
        size = bounds.label_size
        return min(_widest_affine(size, reach), capped_cosine(self.width - size, reach))

    def margin_at(self, bounds: Bounds, slope: float) -> float:
        return slope - bounds.label_size

    def curvature(self, bounds: Bounds, radius: float | None = None) -> tuple[Constant, Constant]:
        reach = margin_reach(bounds, radius)
        lower, upper = bounds.labels
        always = bounds.label_size + reach < self.width
        ever = max(lower - reach, -reach - upper) < self.width
        return Constant(1.0 if always else 0.0, exact=True), Constant(1.0, exact=ever)

    def enveloped(self, slope_bound: float) -> Huber:
        return Huber(min(self.width, positive("slope_bound", slope_bound)))


@dataclass(frozen=True)
class Hinge(GLM):
    """Hinge loss max(0, 1 - y m) of labels -1 and 1.

    >>> Hinge().value([0.5, 2.0], 1.0).tolist()
    [0.5, 0.0]
    """

    kind = "loss_hinge"
    link = "HINGE"
    binary_labels: ClassVar[bool] = True

    def steepest(self, bounds: Bounds, margin: float) -> float:
        return 1.0

    def curvature(self, bounds: Bounds, radius: float | None = None) -> tuple[Constant, None]:
        parameter_radius(radius)
        return Constant(0.0, exact=True), None


@dataclass(frozen=True)
class SmoothedHinge(GLM):
    """Hinge loss whose corner is rounded by a parabola: (1 - y m)^2 / (2 width) for y m in [1 - width, 1].

    >>> SmoothedHinge(1.0).value([-1.0, 0.5, 2.0], 1.0).tolist()
    [1.5, 0.125, 0.0]
    """

    kind = "loss_smoothed_hinge"
    link = "SMOOTHED_HINGE"
    binary_labels: ClassVar[bool] = True
    width: float

    def __post_init__(self) -> None:
        moderate("width", self.width)

    @property
    def parameter(self) -> float:
        return float(self.width)

    def steepest(self, bounds: Bounds, margin: float) -> float:
        return min((1 + margin) / self.width, 1.0)

    def widest_cosine(self, bounds: Bounds, reach: float) -> float:
        return min(_widest_affine(1.0, reach), capped_cosine(self.width - 1, reach))

    def margin_at(self, bounds: Bounds, slope: float) -> float:
        return slope * self.width - 1

    def curvature(self, bounds: Bounds, radius: float | None = None) -> tuple[Constant, Constant]:
        reach = margin_reach(bounds, radius)
        always = reach < 1 and 1 + reach < self.width
        ever = 1 - reach < self.width
        return Constant(1 / self.width if always else 0.0, exact=True), Constant(1 / self.width, exact=ever)


@dataclass(frozen=True)
class Pinball(GLM):
    """Quantile loss: ``level`` * (y - m) for labels above the margin, (1 - level) * (m - y) for labels below it.

    >>> Pinball(0.9).value(0.0, [1.0, -1.0]).round(3).tolist()
    [0.9, 0.1]
    """

    kind = "loss_pinball"
    link = "PINBALL"
    level: float

    def __post_init__(self) -> None:
        if not 0 < number("level", self.level) < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, got {self.level!r}")

    @property
    def parameter(self) -> float:
        return float(self.level)

    def steepest(self, bounds: Bounds, margin: float) -> float:
        lower, upper = bounds.labels
        # A label at the margin counts for both sides: margins just beyond it, on rows nearly orthogonal to the
        # parameter say, have the slope of the other side.
        above = self.level if upper >= -margin else 0.0
        return max(above, 1 - self.level if lower <= margin else 0.0)

    def opposite_rows_are_steep(self, bounds: Bounds, reach: float) -> bool:
        """Whether the steeper side of the label is open to margins near zero."""
        lower, upper = bounds.labels
        steepest = self.steepest(bounds, reach)
        return (steepest == self.level and upper >= 0) or (steepest == 1 - self.level and lower <= 0)

    def curvature(self, bounds: Bounds, radius: float | None = None) -> tuple[Constant, None]:
        parameter_radius(radius)
        return Constant(0.0, exact=True), None


@dataclass(frozen=True)
class QuantileHuber(GLM):
    """Quantile loss whose corner is rounded by a parabola, times ``width``.

    (m - y)^2 / 2 for m - y from -``level`` * width to (1 - ``level``) * width, linear with the slopes at these ends
    beyond: the Moreau envelope of `Pinball`, as `Huber` is that of `Absolute`. A. Aravkin, A. Kambadur, A. Lozano,
    R. Luss, Sparse quantile Huber regression for efficient and robust estimation, 2014.

    >>> QuantileHuber(0.75, 4.0).slope([-9.0, -1.0, 0.0, 0.5, 9.0], 0.0).tolist()
    [-3.0, -1.0, 0.0, 0.5, 1.0]
    >>> QuantileHuber(0.75, 4.0).lipschitz(Bounds(1.0))
    Constant(value=3.0, exact=True)
    """

    kind = "loss_quantile_huber"
    link = "QUANTILE_HUBER"
    level: float
    width: float

    def __post_init__(self) -> None:
        if not 0 < number("level", self.level) < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, got {self.level!r}")
        moderate("width", self.width)
        positive("level * width and (1 - level) * width", min(self.below, self.above))

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

    def steepest(self, bounds: Bounds, margin: float) -> float:
        lower, upper = bounds.labels
        return max(min(margin - lower, self.above), min(margin + upper, self.below), 0.0)

    def opposite_rows_are_steep(self, bounds: Bounds, reach: float) -> bool:
        """Whether rows orthogonal to the parameter, whose margins are zero, find a label of the steepest slope."""
        return self.steepest(bounds, 0.0) >= self.steepest(bounds, reach)

    def margin_at(self, bounds: Bounds, slope: float) -> float:
        return slope - bounds.label_size

    def curvature(self, bounds: Bounds, radius: float | None = None) -> tuple[Constant, Constant]:
        reach = margin_reach(bounds, radius)
        lower, upper = bounds.labels
        always = reach - lower < self.above and reach + upper < self.below
        ever = reach - lower > -self.below and -reach - upper < self.above
        return Constant(1.0 if always else 0.0, exact=True), Constant(1.0, exact=ever)


@dataclass(frozen=True)
class Absolute(GLM):
    """Absolute loss abs(m - y).

    >>> Absolute().slope([1.0, 2.0, 3.0], 2.0).tolist()
    [-1.0, 0.0, 1.0]
    """

    kind = "loss_absolute"
    link = "ABSOLUTE"

    def steepest(self, bounds: Bounds, margin: float) -> float:
        return 1.0

    def curvature(self, bounds: Bounds, radius: float | None = None) -> tuple[Constant, None]:
        parameter_radius(radius)
        return Constant(0.0, exact=True), None
