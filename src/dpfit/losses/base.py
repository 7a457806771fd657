"""What every loss knows about itself, given the declared bounds of the records."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import in_safe_range, non_negative, real

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Constant:
    """A bound that holds for all examples and parameters within the declared bounds.

    ``exact`` says that some example attains or approaches it; otherwise the best constant may be
    smaller. Exactness is claimed for parameters of dimension two and more.

    >>> float(Constant(0.25, exact=True))
    0.25
    """

    value: float
    exact: bool

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True)
class Bounds(Spec):
    """The declared public bounds of all records; `dpfit.losses.guards` make them true.

    Parameters
    ----------
    row_norm
        Largest Euclidean norm of a feature vector, intercept included; between 1e-100 and 1e100.
    label_lower, label_upper
        Range of the labels; ``None`` is no bound. Losses of binary labels and of classes do not
        look at it.
    row_max : float, optional
        Largest absolute entry of a feature vector, for constants in the l1 norm. The kernels
        clamp entries one by one, then scale rows into the ball of ``row_norm``.

    Examples
    --------
    >>> Bounds(1.0, label_lower=-2.0, label_upper=1.0).label_size
    2.0
    """

    kind = "record_bounds"
    omitted: ClassVar = ("row_max",)
    row_norm: float
    label_lower: float | None = None
    label_upper: float | None = None
    row_max: float | None = None

    def __post_init__(self) -> None:
        in_safe_range("row_norm", self.row_norm)
        if self.row_max is not None:
            in_safe_range("row_max", self.row_max)
        ends = [
            real(name, end)
            for name, end in (("label_lower", self.label_lower), ("label_upper", self.label_upper))
            if end is not None
        ]
        if any(math.isinf(end) for end in ends):
            raise ValueError("a label range has finite ends; write None for no bound")
        if any(abs(end) > 1e100 for end in ends):
            raise ValueError(
                "the ends of a label range lie between -1e100 and 1e100; write None for no bound"
            )
        if len(ends) == 2 and not ends[0] < ends[1]:
            raise ValueError(f"a label range needs lower < upper, got [{ends[0]!r}, {ends[1]!r}]")

    @property
    def labels(self) -> tuple[float, float]:
        """The label range, with infinite ends where there is no bound."""
        lower = -math.inf if self.label_lower is None else self.label_lower
        return lower, math.inf if self.label_upper is None else self.label_upper

    @property
    def label_size(self) -> float:
        """Largest absolute value of a label."""
        return max(abs(end) for end in self.labels)


def parameter_radius(radius: float | None) -> float:
    """The radius of the ball of parameters; infinity stands for the whole space, as does ``None``.

    A radius beyond 1e100, whose products could overflow, is that of the whole space, which has the
    larger constants.
    """
    checked = math.inf if radius is None else non_negative("radius", radius)
    return checked if checked <= 1e100 else math.inf


class Parameters(NamedTuple):
    """The parameter of a loss: size, public start, and the form that the loss reads."""

    size: int
    start: NDArray[np.float64]
    unravel: Callable[[NDArray[np.float64]], Any]


@dataclass(frozen=True)
class Loss(Spec, ABC):
    """A loss of one example, as a function of the parameter theta.

    Constants are with respect to the Euclidean norm, over all examples within the declared bounds
    and all theta with norm at most ``radius`` (``None``: the whole space). Two Lipschitz constants
    are kept apart: `lipschitz` is what one example added or removed can do, `lipschitz_diff` what
    one example replaced can do.
    """

    is_glm: ClassVar[bool] = False
    """Whether the loss is a function of the margin and the label."""
    binary_labels: ClassVar[bool] = False
    """Whether labels are read as +1 (if positive) and -1 (if not)."""
    reads_labels: ClassVar[bool] = True
    """Whether records have labels; a loss of a row alone compares it with a parameter of the same
    dimension.
    """
    reads_products: ClassVar[bool] = False
    """Whether a row enters only by its inner products with the parameter."""
    has_hessian: ClassVar[bool] = False
    """Whether the kernels compute Hessians of the loss."""
    is_quadratic: ClassVar[bool] = False
    """Whether the Hessian of a record is the same at every parameter."""
    is_quantile: ClassVar[bool] = False
    """Whether the two largest derivatives say which quantile is fitted, so that clipping would
    change it.
    """
    slope_span: ClassVar[float] = 1.0
    """Difference of the largest and the least derivative of a quantile loss: its unit."""
    slope_relation: ClassVar[str] = ""
    """Relation of derivative and curvature, as in `ObjectivePerturbation.slopes`; empty where none
    is proven.
    """
    status: ClassVar[str] = "enforced"
    """How the constants enter a guarantee's basis: enforced (proven, given guards) or declared by
    the caller.
    """

    arithmetic: ClassVar[str] = "exact"
    """Whether private sums of gradients are exact, or *idealised*: real numbers are assumed."""

    @property
    def has_own_parameters(self) -> bool:
        """Whether the parameter has a form of its own, such as layers: scales of linear models, and
        predictions that rest on them, do not apply.
        """
        return False

    @property
    def outputs(self) -> int:
        """How many numbers the parameter has for each entry of a row."""
        return 1

    @property
    def is_regression(self) -> bool:
        """Whether the loss compares a prediction with a number or a point, and not with a class."""
        return False

    def parameters(self, n_features: int) -> Parameters:
        """Return the parameter for ``n_features``: zeros, or a matrix for several outputs.

        >>> from dpfit.losses import Softmax
        >>> Softmax(3).parameters(2).unravel(np.arange(6.0)).shape
        (2, 3)
        """
        size = n_features * self.outputs
        shape = (n_features, self.outputs) if self.outputs > 1 else (n_features,)
        return Parameters(size, np.zeros(size), lambda flat: flat.reshape(shape))

    @property
    def convex(self) -> bool:
        """Whether the loss is convex in theta for every example."""
        return True

    @property
    def convex_start(self) -> Loss | None:
        """A convex loss whose fit is a good start for this one; None where the origin is."""
        return None

    @abstractmethod
    def lipschitz(self, bounds: Bounds, radius: float | None = None) -> Constant:
        """Largest gradient norm of one example's loss; ValueError with a hint if unbounded."""

    def lipschitz_diff(self, bounds: Bounds, radius: float | None = None) -> Constant:
        """Largest distance of two examples' gradients at equal theta; at most 2 `lipschitz`."""
        return Constant(2 * self.lipschitz(bounds, radius).value, exact=False)

    @abstractmethod
    def smoothness(self, bounds: Bounds, radius: float | None = None) -> Constant | None:
        """Lipschitz constant of one example's gradient; ``None`` if the gradient jumps."""

    def record_values(self, theta: Floats, rows: Floats, labels: Floats) -> Floats:
        """Return losses of records at one parameter, shape (n,); ValueError where undefined."""
        raise ValueError(f"a loss of kind {self.kind!r} gives no values of single records")

    def value_at_zero(self, bounds: Bounds) -> float:
        """Largest loss of one example at theta = 0; infinite where none is known."""
        return math.inf

    def self_concordance(self, bounds: Bounds, radius: float | None = None) -> Constant | None:
        """M with abs(D3 l[u, u, v]) <= M norm(v) D2 l[u, u] for all u, v; ``None`` if unknown.

        F. Bach, Self-concordant analysis for logistic regression, Electronic Journal of Statistics
        4, 2010.
        """
        return None
