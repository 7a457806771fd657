"""Generalized linear losses: functions of the margin m = <x, theta> and the label y.

The gradient is slope(m, y) x, so everything about it is a statement on one scalar function. The
formulas live in `dpfit.losses.margin_functions`, compiled once for these classes and the kernels;
docs/explanation/losses.md derives the constants.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfit.losses.base import Bounds, Constant, Loss, parameter_radius
from dpfit.privacy.validate import in_safe_range, positive

if TYPE_CHECKING:
    from dpfit.losses.envelope import LipschitzEnvelope
    from dpfit.losses.margin_functions import MarginFunction

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class GLM(Loss):
    """A loss of the margin and the label.

    A kernel needs four numbers of it: ``code`` and ``parameter`` (see
    `dpfit.losses.margin_functions`), ``slope_bound``, at which the derivative is clipped (finite
    for `LipschitzEnvelope` and `QuantileHuber` only), and ``smoothing`` (`GaussianSmoothed` and
    centred `QuantileHuber` only).
    """

    is_glm: ClassVar[bool] = True
    reads_products: ClassVar[bool] = True
    has_hessian: ClassVar[bool] = True
    slope_relation: ClassVar[str] = "two_sided"
    link: ClassVar[str] = ""
    kink: ClassVar[float] = 0.0
    """Total variation of the slope of a loss that is linear but for one kink; 0 for others."""

    @property
    def is_regression(self) -> bool:
        return not self.binary_labels

    @property
    def code(self) -> int:
        """The number of the loss in `dpfit.losses.margin_functions`."""
        from dpfit.losses import margin_functions

        return int(getattr(margin_functions, self.link))

    @property
    def parameter(self) -> float:
        """The one number that the formulas of a loss may depend on (width, level)."""
        return 0.0

    @property
    def slope_bound(self) -> float:
        """Where the slope is clipped."""
        return math.inf

    @property
    def smoothing(self) -> float:
        """Standard deviation of the Gaussian that smooths the kink; 0 if none does."""
        return 0.0

    @property
    def margin_function(self) -> MarginFunction:
        """What compiled loops know of the loss."""
        from dpfit.losses.margin_functions import MarginFunction

        return MarginFunction(self.code, self.parameter, self.slope_bound, self.smoothing)

    def value(self, margin: ArrayLike, label: ArrayLike) -> Floats:
        """The losses, elementwise."""
        return self._elementwise("values", margin, label)

    def slope(self, margin: ArrayLike, label: ArrayLike) -> Floats:
        """Derivatives in the margin, elementwise; at kinks the subgradient nearest to zero."""
        return self._elementwise("slopes", margin, label)

    def curvature_at(self, margin: ArrayLike, label: ArrayLike) -> Floats:
        """The second derivatives in the margin, elementwise; zero at corners."""
        return self._elementwise("curvatures", margin, label)

    def _elementwise(self, name: str, margin: ArrayLike, label: ArrayLike) -> Floats:
        from dpfit.losses import margin_functions

        function = getattr(margin_functions, name)
        return np.asarray(function(*self.margin_function, _numbers(margin), _numbers(label)))

    @abstractmethod
    def steepest(self, bounds: Bounds, margin: float) -> float:
        """Largest absolute slope over labels, for margins wrong by ``margin`` or more."""

    def widest_cosine(self, bounds: Bounds, reach: float) -> float:
        """The c >= 0 that maximizes steepest(reach * c) * sqrt(1 - c**2), for a finite ``reach``.

        Two gradients at theta are farthest apart when their rows make the angle arccos(c) with
        theta, on opposite sides of it: tilting towards theta steepens the slope, tilting away
        spreads the rows.
        """
        return 0.0

    def opposite_rows_are_steep(self, bounds: Bounds, reach: float) -> bool:
        """Whether rows at `widest_cosine` both find steepest labels; else no closed form."""
        return True

    def margin_at(self, bounds: Bounds, slope: float) -> float:
        """The margin at which `steepest` reaches ``slope``; negative if steeper at the start."""
        return -math.inf

    def lipschitz(self, bounds: Bounds, radius: float | None = None) -> Constant:
        steepest = self.steepest(bounds, margin_reach(bounds, radius))
        if math.isinf(steepest):
            raise ValueError(
                f"the slope of {self.kind!r} has no bound here: declare label bounds and bound "
                "the domain, "
                "or use a loss of bounded slope (huberized(width), enveloped(slope_bound))"
            )
        return Constant(bounds.row_norm * steepest, exact=True)

    def lipschitz_diff(self, bounds: Bounds, radius: float | None = None) -> Constant:
        single = self.lipschitz(bounds, radius)
        reach = margin_reach(bounds, radius)
        if math.isinf(reach):
            # Rows nearly orthogonal to a far theta have steep slopes and are opposite to each
            # other.
            return Constant(2 * single.value, exact=True)
        if not self.opposite_rows_are_steep(bounds, reach):
            return Constant(2 * single.value, exact=False)
        cosine = self.widest_cosine(bounds, reach)
        spread = math.sqrt((1 - cosine) * (1 + cosine))
        return Constant(
            2 * bounds.row_norm * self.steepest(bounds, reach * cosine) * spread, exact=True
        )

    def value_range(self, bounds: Bounds, radius: float | None = None) -> float:
        """How far apart the loss of one record can be at two parameters, whatever the record.

        Infinite for losses that are not convex, unless they say otherwise. A convex function on an
        interval is largest at an end. As the label moves, so does the
        window through which a function of margin minus label is seen; the range is quasi-convex in
        it, so largest at a bound of the labels.

        >>> labels = Bounds(1.0, -1.0, 1.0)
        >>> [round(loss.value_range(labels, 3.0), 9) for loss in (Logistic(), Absolute())]
        [3.0, 4.0]
        """
        reach = margin_reach(bounds, radius)
        labels = (1.0,) if self.binary_labels else (bounds.label_lower, bounds.label_upper)
        if math.isinf(reach) or not self.convex:
            return math.inf
        return max(
            math.inf if label is None else self._range_at(float(label), reach) for label in labels
        )

    def record_values(self, theta: Floats, rows: Floats, labels: Floats) -> Floats:
        return np.asarray(self.value(np.sum(rows * theta, axis=1), labels))

    def value_at_zero(self, bounds: Bounds) -> float:
        labels = (-1.0, 1.0) if self.binary_labels else bounds.labels
        return max(
            float(self.value(0.0, label)) if math.isfinite(label) else math.inf for label in labels
        )

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
    def curvature(
        self, bounds: Bounds, radius: float | None = None
    ) -> tuple[Constant, Constant | None]:
        """Least and largest second derivative in the margin; ``None`` if the slope jumps."""

    def smoothness(self, bounds: Bounds, radius: float | None = None) -> Constant | None:
        lower, upper = self.curvature(bounds, radius)
        if upper is None:
            return None
        # A loss that is not convex may be most curved where it is concave.
        most = upper if upper.value >= -lower.value else Constant(-lower.value, lower.exact)
        return Constant(bounds.row_norm**2 * most.value, most.exact)

    def enveloped(self, slope_bound: float) -> GLM:
        """Largest convex loss below this one with bounded slope (see `LipschitzEnvelope`).

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
    """The c that maximizes (offset + growth * c) * sqrt(1 - c**2), by its derivative's root."""
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
    slope_relation: ClassVar[str] = "logistic"
    binary_labels: ClassVar[bool] = True

    @property
    def margin_function(self) -> MarginFunction:
        from dpfit.losses.margin_functions import MarginFunction

        return MarginFunction(None)

    def _elementwise(self, name: str, margin: ArrayLike, label: ArrayLike) -> Floats:
        from dpfit.losses import margin_functions

        function = getattr(margin_functions, f"logistic_{name}")
        return np.asarray(function(_numbers(margin), _numbers(label)))

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
    is_quadratic: ClassVar[bool] = True

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
        """The squared loss, linear beyond residuals of this width: its Lipschitz envelope."""
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
        in_safe_range("width", self.width)

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
    kink: ClassVar[float] = 1.0
    binary_labels: ClassVar[bool] = True

    def steepest(self, bounds: Bounds, margin: float) -> float:
        return 1.0

    def curvature(self, bounds: Bounds, radius: float | None = None) -> tuple[Constant, None]:
        parameter_radius(radius)
        return Constant(0.0, exact=True), None


@dataclass(frozen=True)
class SmoothedHinge(GLM):
    """Hinge loss with a parabolic corner: (1 - y m)^2 / (2 width) for y m in [1 - width, 1].

    >>> SmoothedHinge(1.0).value([-1.0, 0.5, 2.0], 1.0).tolist()
    [1.5, 0.125, 0.0]
    """

    kind = "loss_smoothed_hinge"
    link = "SMOOTHED_HINGE"
    slope_relation: ClassVar[str] = "one_sided"
    binary_labels: ClassVar[bool] = True
    width: float

    def __post_init__(self) -> None:
        in_safe_range("width", self.width)

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
        return Constant(1 / self.width if always else 0.0, exact=True), Constant(
            1 / self.width, exact=ever
        )


@dataclass(frozen=True)
class Absolute(GLM):
    """Absolute loss abs(m - y).

    >>> Absolute().slope([1.0, 2.0, 3.0], 2.0).tolist()
    [-1.0, 0.0, 1.0]
    """

    kind = "loss_absolute"
    link = "ABSOLUTE"
    kink: ClassVar[float] = 2.0

    def steepest(self, bounds: Bounds, margin: float) -> float:
        return 1.0

    def curvature(self, bounds: Bounds, radius: float | None = None) -> tuple[Constant, None]:
        parameter_radius(radius)
        return Constant(0.0, exact=True), None
