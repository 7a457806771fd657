"""What every loss knows about itself, given the declared bounds of the records."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpfit.privacy.check import moderate, non_negative, number
from dpfit.privacy.spec import Spec


@dataclass(frozen=True)
class Constant:
    """A bound that holds for all examples and parameters within the declared bounds.

    ``exact`` says that some example attains or approaches it; otherwise the best constant may be smaller. Exactness is
    claimed for parameters of dimension two and more.

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
        Range of the labels; ``None`` is no bound. Losses of binary labels and of classes do not look at it.

    Examples
    --------
    >>> Bounds(1.0, label_lower=-2.0, label_upper=1.0).label_size
    2.0
    """

    kind = "record_bounds"
    row_norm: float
    label_lower: float | None = None
    label_upper: float | None = None

    def __post_init__(self) -> None:
        moderate("row_norm", self.row_norm)
        ends = [
            number(name, end)
            for name, end in (("label_lower", self.label_lower), ("label_upper", self.label_upper))
            if end is not None
        ]
        if any(math.isinf(end) for end in ends):
            raise ValueError("a label range has finite ends; write None for no bound")
        if any(abs(end) > 1e100 for end in ends):
            raise ValueError("the ends of a label range lie between -1e100 and 1e100; write None for no bound")
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

    A radius beyond 1e100, whose products could overflow, is that of the whole space, which has the larger constants.
    """
    checked = math.inf if radius is None else non_negative("radius", radius)
    return checked if checked <= 1e100 else math.inf


class Parameters(NamedTuple):
    """The parameter of a loss: the size of the flat vector, its public start, and the form that the loss reads."""

    size: int
    start: NDArray[np.float64]
    unravel: Callable[[NDArray[np.float64]], Any]


@dataclass(frozen=True)
class Loss(Spec, ABC):
    """A loss of one example, as a function of the parameter theta.

    Constants are with respect to the Euclidean norm, over all examples within the declared bounds and all theta with
    norm at most ``radius`` (``None``: the whole space). Two Lipschitz constants are kept apart: `lipschitz` is what one
    example added or removed can do, `lipschitz_diff` what one example replaced can do.
    """

    is_glm: ClassVar[bool] = False
    status: ClassVar[str] = "enforced"
    """How the constants enter a guarantee's basis: enforced (proven, given guards) or declared by the caller."""

    @property
    def outputs(self) -> int:
        """How many numbers the parameter has for each entry of a row."""
        return 1

    def parameters(self, n_features: int) -> Parameters:
        """Return the parameter for rows of ``n_features`` entries: a vector of zeros, or a matrix of several outputs.

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

    @abstractmethod
    def lipschitz(self, bounds: Bounds, radius: float | None = None) -> Constant:
        """Largest norm of the gradient of one example's loss; ValueError with a way out where there is none."""

    def lipschitz_diff(self, bounds: Bounds, radius: float | None = None) -> Constant:
        """Largest distance between the gradients of two examples at the same theta; at most twice `lipschitz`."""
        return Constant(2 * self.lipschitz(bounds, radius).value, exact=False)

    @abstractmethod
    def smoothness(self, bounds: Bounds, radius: float | None = None) -> Constant | None:
        """Lipschitz constant of the gradient of one example's loss; ``None`` if the gradient jumps."""

    def self_concordance(self, bounds: Bounds, radius: float | None = None) -> Constant | None:
        """The M of generalized self-concordance, abs(D3 l[u, u, v]) <= M norm(v) D2 l[u, u]; ``None`` if none is known.

        F. Bach, Self-concordant analysis for logistic regression, Electronic Journal of Statistics 4, 2010.
        """
        return None
