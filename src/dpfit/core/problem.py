"""Problems: frozen public descriptions of what is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dpfit.geometry.base import Domain
from dpfit.losses.base import Bounds, Loss
from dpfit.losses.glm import GLM
from dpfit.privacy.check import count, non_negative, one_of
from dpfit.privacy.spec import Spec

if TYPE_CHECKING:
    from dpfit.kernels.rows import Guards


@dataclass(frozen=True, kw_only=True)
class Problem(Spec):
    """What is asked, in public facts only. ``n`` is the number of records the caller declares."""

    n: int

    def __post_init__(self) -> None:
        count("n", self.n)


@dataclass(frozen=True, kw_only=True)
class Minimize(Problem):
    """Find a parameter of small risk: the mean loss of the records plus (ridge / 2) * norm(theta)**2.

    The ridge is on every coordinate, the intercept's too: the curvature that privacy leans on comes from it, never from
    the data. ``features`` is the number of entries of a row, constant column included.
    """

    kind = "minimize"
    former: ClassVar = {"features": "n_features"}
    loss: Loss
    bounds: Bounds
    n_features: int
    domain: Domain | None = None
    ridge: float = 0.0
    objective: str = "empirical"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("objective", self.objective, ("empirical", "population"))
        count("n_features", self.n_features)
        non_negative("ridge", self.ridge)
        if self.domain is not None and self.domain.dimension != self.dimension:
            raise ValueError(f"the domain has {self.domain.dimension} dimensions, the parameter {self.dimension}")

    @property
    def dimension(self) -> int:
        """How many numbers the parameter has."""
        return self.n_features * self.loss.outputs

    @property
    def radius(self) -> float | None:
        """How far from the origin the parameter can be; None in the whole space."""
        return None if self.domain is None else self.domain.reach()

    @property
    def guards(self) -> Guards:
        """What the kernels enforce on each record, so that the constants of the loss hold for any input."""
        guards: Guards = {"row_norm": self.bounds.row_norm}
        if self.bounds.label_lower is not None:
            guards["label_lower"] = self.bounds.label_lower
        if self.bounds.label_upper is not None:
            guards["label_upper"] = self.bounds.label_upper
        if isinstance(self.loss, GLM) and self.loss.binary_labels:
            guards["binary"] = True
        return guards

    def lipschitz(self, relation: str) -> float:
        """How far one record (added or removed, or replaced) moves the sum of gradients, at any parameter."""
        loss, bounds, radius = self.loss, self.bounds, self.radius
        constant = loss.lipschitz if relation == "add_remove" else loss.lipschitz_diff
        return constant(bounds, radius).value


@dataclass(frozen=True, kw_only=True)
class Sample(Problem):
    """Draw from a density that depends on the data."""

    kind = "sample"
    potential: Spec
    domain: Spec | None = None
    draws: int = 1


@dataclass(frozen=True, kw_only=True)
class Answer(Problem):
    """Answer a workload of queries at once."""

    kind = "answer"
    workload: Spec


@dataclass(frozen=True, kw_only=True)
class Interact(Problem):
    """Answer a stream of at most ``rounds`` adaptively chosen queries."""

    kind = "play"
    workload: Spec
    rounds: int

    def __post_init__(self) -> None:
        super().__post_init__()
        count("rounds", self.rounds)
