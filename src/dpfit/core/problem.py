"""Problems: frozen public descriptions of what is asked. There are three kinds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpfit.core.constants import Constants, constants_of
from dpfit.geometry.base import Domain
from dpfit.geometry.l2_ball import L2Ball
from dpfit.geometry.symmetric import unpack
from dpfit.losses.base import Bounds, Loss, Parameters
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import integer, non_negative, option, positive, real

if TYPE_CHECKING:
    from dpfit.kernels.rows import Guards

Floats = NDArray[np.float64]
Vector = tuple[float, ...]


class DataFacts(NamedTuple):
    """What data must be like: the number of units and the width of rows, None where any will do."""

    n: int | None = None
    width: int | None = None


@dataclass(frozen=True, kw_only=True)
class Problem(Spec):
    """What is asked, in public facts only.

    ``n`` is the number of protected units that the caller declares. It is None where no plan
    depends on it, as for counts and streams.
    """

    n: int | None = None

    def __post_init__(self) -> None:
        if self.n is not None:
            integer("n", self.n)

    @property
    def units(self) -> int:
        """The declared number of units; ValueError if the caller did not declare it."""
        if self.n is None:
            raise ValueError(f"{self.kind} needs the number of units here; pass n, a public number")
        return self.n

    @property
    def subject(self) -> Spec:
        """What determines the form of the records: the problem, or the workload it answers."""
        return self

    @property
    def facts(self) -> frozenset[str]:
        """The optional facts that this problem has; an algorithm must support each of them."""
        return frozenset()

    @property
    def data_facts(self) -> DataFacts:
        """What data must be like."""
        return DataFacts(self.n)


@dataclass(frozen=True, kw_only=True)
class Minimize(Problem):
    """Find theta that minimizes the mean loss plus (ridge / 2) * norm(theta - centre)**2.

    The ridge is on every coordinate, the intercept included: the curvature that privacy rests on
    comes from the ridge, never from the data.

    Parameters
    ----------
    n : int
        Number of records (or users) that the caller declares.
    n_features : int
        Number of entries of a row, constant column included.
    domain : Domain, optional
        Set of allowed parameters.
    objective : {"empirical", "population"}
        Which risk the solver should make small. It affects accuracy, never privacy.
    centre : tuple of float, optional
        Centre of the ridge, by default the origin.
    trust_ball : L2Ball, optional
        Ball around a released point to which a stage restricts the parameter.
    ridge_map : tuple of float, optional
        Symmetric matrix A, packed by `dpfit.geometry.symmetric.pack`: the ridge is (ridge / 2) *
        norm(A theta)**2.
    start : tuple of float, optional
        Public or released point from which descents start. It affects accuracy, never privacy.
    public : int, optional
        Number of public records that come with the data.
    intercept : float, optional
        What the last column holds in each row, where it is constant. It affects accuracy, never
        privacy.
    rows_per_user : float, optional
        Typical number of records of one user, a public fact, where users are protected. It affects
        accuracy, never privacy.

    Examples
    --------
    >>> from dpfit.losses import Logistic
    >>> problem = Minimize(
    ...     n=1000, loss=Logistic(), bounds=Bounds(row_norm=2.0), n_features=3, ridge=0.1
    ... )
    >>> problem.constants("replace").smoothness, sorted(problem.facts)
    (1.0, ['ridge'])
    """

    kind = "minimize"
    former: ClassVar = {"features": "n_features"}
    omitted: ClassVar = (
        "centre", "trust_ball", "ridge_map", "start", "public", "intercept", "rows_per_user"
    )  # fmt: skip
    n: int
    loss: Loss
    bounds: Bounds
    n_features: int
    domain: Domain | None = None
    ridge: float = 0.0
    objective: str = "empirical"
    centre: Vector | None = None
    trust_ball: L2Ball | None = None
    ridge_map: Vector | None = None
    start: Vector | None = None
    public: int | None = None
    intercept: float | None = None
    rows_per_user: float | None = None

    def __post_init__(self) -> None:
        integer("n", self.n)
        if (
            self.rows_per_user is not None
            and not 1 <= real("rows_per_user", self.rows_per_user) < math.inf
        ):
            raise ValueError(f"rows_per_user must be at least 1, got {self.rows_per_user!r}")
        option("objective", self.objective, ("empirical", "population"))
        integer("n_features", self.n_features)
        non_negative("ridge", self.ridge)
        if self.public is not None:
            integer("public", self.public, least=0)
        if self.intercept is not None:
            positive("intercept", self.intercept)
        for name in ("domain", "trust_ball"):
            given = getattr(self, name)
            if given is not None and given.dimension != self.dimension:
                raise ValueError(
                    f"the {name} has {given.dimension} dimensions, the parameter {self.dimension}"
                )
        if self.domain is not None and self.trust_ball is not None:
            raise ValueError(
                "domain and trust_ball must not both be given; restrict the domain instead"
            )
        for name in ("centre", "start"):
            given = getattr(self, name)
            if given is not None and len(given) != self.dimension:
                raise ValueError(f"{name} must have {self.dimension} entries, got {len(given)}")
        if self.ridge_map is not None:
            if self.centre is not None:
                raise ValueError(
                    "centre and ridge_map must not both be given; move the centre before the row "
                    "map"
                )
            if self.ridge_matrix.shape != (self.dimension, self.dimension):
                raise ValueError(f"ridge_map must pack a matrix of {self.dimension} rows")

    @property
    def facts(self) -> frozenset[str]:
        given = {
            "ridge": self.ridge > 0,
            "domain": self.domain is not None,
            "centre": self.centre is not None,
            "trust_ball": self.trust_ball is not None,
            "ridge_map": self.ridge_map is not None,
        }
        return frozenset(name for name, is_given in given.items() if is_given)

    @property
    def data_facts(self) -> DataFacts:
        return DataFacts(self.n, self.n_features)

    @cached_property
    def parameters(self) -> Parameters:
        """The parameter of the loss: its size, its public start, and how a flat vector unfolds."""
        return self.loss.parameters(self.n_features)

    @property
    def dimension(self) -> int:
        """Number of entries of the flat parameter."""
        return self.parameters.size

    @property
    def region(self) -> Domain | None:
        """Where the parameter lies: the trust ball, the domain, or None for the whole space."""
        return self.domain if self.trust_ball is None else self.trust_ball

    @property
    def radius(self) -> float | None:
        """Largest norm of the parameter; None where it has no bound."""
        reach = math.inf if self.region is None else self.region.reach()
        return reach if math.isfinite(reach) else None

    @property
    def origin(self) -> Floats:
        """The public point from which descents start; the constants hold there."""
        if self.start is not None:
            return self.project(np.array(self.start))
        return self.parameters.start.copy() if self.region is None else self.region.centre

    @cached_property
    def ridge_matrix(self) -> Floats:
        """The matrix A of the ridge; the identity where no map is given."""
        return (
            np.eye(self.dimension) if self.ridge_map is None else unpack(np.array(self.ridge_map))
        )

    def ridge_gradient(self, theta: Floats) -> Floats:
        """Return the gradient of the ridge at one point or at a stack of points."""
        if self.ridge_map is not None:
            return np.asarray(self.ridge * (theta @ self.ridge_matrix @ self.ridge_matrix))
        return self.ridge * (theta if self.centre is None else theta - np.array(self.centre))

    def project(self, theta: Floats) -> Floats:
        """Return the nearest allowed point."""
        return theta if self.region is None else self.region.project(theta)

    def constants(self, relation: str, norm: str = "l2", everywhere: bool = False) -> Constants:
        """Return the constants of the loss in the region; ``everywhere``: for every parameter.

        ``norm`` measures the parameter, its dual norm the gradients: for "l1" by their largest
        entry. A mechanism whose region is bound late reads ``everywhere=True``: its event must not
        move with the region.
        """
        option("norm", norm, ("l1", "l2"))
        return constants_of(
            self.loss, self.bounds, None if everywhere else self.radius, relation, norm
        )

    def clipped_sensitivity(self, clip_norm: float, relation: str) -> float:
        """Return the largest l2 change by one record of the gradient sum, clipped to ``clip_norm``.

        ``clip_norm`` under add/remove, twice that under replace-one. Where ``clip_norm`` reaches
        the Lipschitz constant nothing is clipped: a replaced record then changes the sum by the
        gradient sensitivity, if guards enforce it.

        >>> from dpfit.losses import Squared
        >>> bounds, ball = Bounds(row_norm=1.0, label_lower=0.0, label_upper=1.0), L2Ball(2, 1.0)
        >>> problem = Minimize(n=10, loss=Squared(), bounds=bounds, n_features=2, domain=ball)
        >>> [
        ...     round(problem.clipped_sensitivity(clip_norm, "replace"), 3)
        ...     for clip_norm in (1.5, 2.0)
        ... ]
        [3.0, 2.598]
        """
        if relation == "add_remove":
            return clip_norm
        constants = self.constants(relation)
        # Declared constants are not enforced: only clipping bounds the sensitivity, by 2 *
        # clip_norm.
        if clip_norm >= constants.lipschitz and constants.status == "enforced":
            # Clipping at the Lipschitz constant moves a gradient by rounding errors, far below this
            # factor.
            return min(2 * clip_norm, constants.gradient_sensitivity * (1 + 2.0**-40))
        return 2 * clip_norm

    @property
    def guards(self) -> Guards:
        """What the kernels enforce on each record, so that the constants hold for any input."""
        guards: Guards = {"row_norm": self.bounds.row_norm}
        if self.bounds.row_max is not None:
            guards["row_max"] = self.bounds.row_max
        if self.bounds.label_lower is not None:
            guards["label_lower"] = self.bounds.label_lower
        if self.bounds.label_upper is not None:
            guards["label_upper"] = self.bounds.label_upper
        if self.loss.binary_labels:
            guards["binary"] = True
        return guards

    def max_records(self, relation: str) -> int:
        """Return the number of records up to which rounding errors are bounded.

        Under add/remove the number of records is private, so bounds are for twice the declared n.
        """
        return self.n if relation == "replace" else 2 * self.n

    def lipschitz(self, relation: str) -> float:
        """Return the gradient sensitivity under the relation; ValueError if there is none."""
        return self.constants(relation).require_sensitivity()


@dataclass(frozen=True, kw_only=True)
class Answer(Problem):
    """Answer a workload of queries at once."""

    kind = "answer"
    workload: Spec

    @property
    def subject(self) -> Spec:
        return self.workload


@dataclass(frozen=True, kw_only=True)
class Interact(Problem):
    """Answer at most ``rounds`` times: adaptive queries, or batches of arriving records."""

    kind = "play"
    workload: Spec
    rounds: int

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("rounds", self.rounds)

    @property
    def data_facts(self) -> DataFacts:
        """Any data: queries declare what one unit changes, and streams arrive."""
        return DataFacts()
