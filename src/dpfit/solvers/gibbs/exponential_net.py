"""The exponential mechanism on a net of parameters: any loss, convex or not, in few dimensions.

Guarantee: epsilon-DP and bounded range, as `dpfit.mechanisms.exponential`, for every loss. The
value of a record at a parameter, relative to the centre of the domain, is clamped to Lipschitz
constant times distance; a loss with that constant is not changed. Risk: if every point of the
domain is within r of the net, some point of the net has a risk within lipschitz * r of the least.
The choice loses at most range / (epsilon n) * log(number of points) more. Reference: [LD] Theorem
D.5 on a net; docs/explanation/gibbs.md, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpfit.core import (
    Algorithm,
    Example,
    Mechanism,
    Minimize,
    Plan,
    Requirement,
    Risk,
    Run,
    Step,
    Work,
)
from dpfit.core.algorithm import BOUNDED_DOMAIN
from dpfit.data.chunk import Chunk
from dpfit.data.dataset import Dataset, InMemory
from dpfit.data.view import View
from dpfit.geometry import Box
from dpfit.geometry.base import Domain
from dpfit.losses import Absolute, Bounds
from dpfit.losses.base import Loss
from dpfit.losses.custom import declared_basis
from dpfit.losses.guards import BinaryLabels, LabelInterval, RowBall
from dpfit.noise import Grid, choices
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import BoundedRange, Event
from dpfit.privacy.validate import integer, option, positive

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]

_BITS = 14
"""The clamped value of one record is rounded to at most 2**14 steps."""


@dataclass(frozen=True)
class NetChoice(Mechanism):
    """Point of a net, chosen by the exponential mechanism from clamped sums of losses.

    Guarantee: bounded range epsilon, for every loss and dataset. ``cells`` is the number of cells
    along each axis.
    """

    kind = "net_choice"
    epsilon: float
    problem: Minimize
    relation: str
    cells: int

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        integer("cells", self.cells)
        option("relation", self.relation, ("replace", "add_remove"))
        _bounded(self.problem)

    @property
    def event(self) -> Event:
        return BoundedRange(self.epsilon)

    @cached_property
    def points(self) -> Floats:
        """The net: centres of cubes that cover the domain, each projected onto the domain."""
        domain, half = _bounded(self.problem), self._half
        axis = half * ((2 * np.arange(self.cells) + 1) / self.cells - 1)
        grid = np.stack(np.meshgrid(*[axis] * domain.dimension, indexing="ij"), axis=-1).reshape(
            -1, domain.dimension
        )
        centres = domain.centre + grid
        inside = domain.project(centres)
        # Cubes whose centres are farther from the domain than their corners do not meet it.
        met = np.linalg.norm(inside - centres, axis=1) <= self.covering_radius * (1 + 1e-9)
        return np.asarray(inside[met])

    @property
    def covering_radius(self) -> float:
        """Largest distance of a domain point from the net; projections do not increase it."""
        return self._half / self.cells * math.sqrt(self.problem.dimension)

    @property
    def _half(self) -> float:
        return _bounded(self.problem).radius(math.inf)

    @property
    def _lipschitz(self) -> float:
        return self.problem.constants("add_remove").require_sensitivity()

    @property
    def grid(self) -> Grid:
        """The grid of one record's clamped values."""
        return Grid(math.frexp(self._lipschitz * _bounded(self.problem).radius())[1] - _BITS)

    @cached_property
    def limits(self) -> Steps:
        """Largest absolute value of one record at each point, in steps."""
        away = np.linalg.norm(self.points - _bounded(self.problem).centre, axis=1)
        return np.asarray(np.ceil(self._lipschitz * away / self.grid.step * (1 + 1e-12))).astype(
            np.int64
        )

    @property
    def range(self) -> int:
        """Largest difference of what one record changes in the sums of two points, in steps."""
        return 2 * int(self.limits.max()) * (2 if self.relation == "replace" else 1)

    @property
    def scale(self) -> float:
        """Steps that change a probability by a factor e; rounded up."""
        return math.nextafter(self.range / self.epsilon, math.inf)

    @property
    def work(self) -> Work:
        return Work(values=float(len(self.points)) * self.problem.n, passes=float(len(self.points)))

    @property
    def risk(self) -> Risk:
        lost = self.scale * self.grid.step * math.log(len(self.points)) / self.problem.n
        meaning = "excess regularized empirical risk (proven bound)"
        return Risk(self._coarse + lost + self.grid.step, meaning, proven=True)

    @property
    def expected(self) -> float:
        """Bound on the risk without the points, which take time: as if all cells were used."""
        problem, domain = self.problem, _bounded(self.problem)
        widest = (4 if self.relation == "replace" else 2) * self._lipschitz * domain.radius()
        cells = problem.dimension * math.log(self.cells)
        return self._coarse + widest / self.epsilon * cells / problem.n

    @property
    def _coarse(self) -> float:
        """How much the best point of the net loses to the best point of the domain."""
        steepest = self._lipschitz + self.problem.ridge * _bounded(self.problem).reach()
        return steepest * self.covering_radius

    def run(self, data: View, run: Run) -> Floats:
        return self.run_many(data, run, 1)[0]

    def run_many(self, data: View, run: Run, count: int) -> list[Floats]:
        """Draw independent choices."""
        sums = self.sums(data)
        return [
            self.points[one] for one in choices(sums - sums.min(), self.scale, count, run.noise)
        ]

    def sums(self, data: Dataset) -> Steps:
        """Return sums of losses at the points, relative to the centre, plus ridge; in steps."""
        ridge = self.problem.n * self.problem.ridge / 2 * np.sum(self.points**2, axis=1)
        sums: Steps = np.round(ridge / self.grid.step).astype(np.int64) + data.reduce(
            ClampedLosses(self)
        )
        return sums


@dataclass(frozen=True)
class ClampedLosses:
    """Sum of a chunk's clamped losses at each net point, in integer steps: any order is exact."""

    choice: NetChoice

    def __call__(self, chunk: Chunk, /) -> Steps:
        choice, losses = self.choice, _losses(self.choice.problem, chunk)
        middle = losses(_bounded(choice.problem).centre)
        sums = np.zeros(len(choice.points), dtype=np.int64)
        for j, (point, limit) in enumerate(zip(choice.points, choice.limits, strict=True)):
            with np.errstate(all="ignore"):
                values = np.nan_to_num((losses(point) - middle) / choice.grid.step, nan=0.0)
            sums[j] = int(np.round(np.clip(values, -limit, limit)).sum())
        return sums


def _losses(problem: Minimize, chunk: Chunk) -> Callable[[Floats], Floats]:
    """Return the losses of guarded records as a function of the parameter."""
    loss, bounds = problem.loss, problem.bounds
    given = chunk.rows.toarray() if hasattr(chunk.rows, "toarray") else chunk.rows
    rows, labels = RowBall(bounds.row_norm).apply(given), np.asarray(chunk.labels, dtype=np.float64)
    if loss.binary_labels:
        labels = BinaryLabels().apply(labels)
    elif bounds.label_lower is not None and bounds.label_upper is not None:
        labels = LabelInterval(bounds.label_lower, bounds.label_upper).apply(labels)
    return lambda theta: loss.record_values(theta, rows, labels)


def _bounded(problem: Minimize) -> Domain:
    if problem.domain is None or not math.isfinite(problem.domain.radius()):
        raise ValueError("a net needs a bounded domain")
    return problem.domain


POINTS = 4096
MOST_POINTS = 2_000_000
"""Cells that are always allowed, and that are allowed by default."""

VALUES = 1e9
"""Evaluations of one record's loss that are allowed by default: a minute or two."""

WITHIN = 1.02
"""A larger net must lower the bound by more than this factor."""

ONE_OUTPUT = Requirement(
    "a loss with values for single records",
    "there is no net for several classes; use noisy_gd",
    lambda problem, budget, options: problem.loss.outputs == 1 or problem.loss.status == "declared",
)
FEW_DIMENSIONS = Requirement(
    "few dimensions: a net has at least 2**dimension points",
    "raise points, or use posterior_release",
    lambda problem, budget, options: 2**problem.dimension <= (options.get("points") or POINTS),
)


class ExponentialNet(Algorithm[Minimize]):
    """Choice of a point on a net by the exponential mechanism.

    Use it for non-convex losses in up to about four dimensions; use `posterior_release` for convex
    ones. Guarantee: pure epsilon-DP and bounded range, for every loss and dataset.
    Reference: [LD] Theorem D.5; [ASAP] Lemma 5. Work: one pass for each point of the net.

    Parameters
    ----------
    points : int, optional
        Largest number of cells. By default as many as help, within 1e9 values of the loss and 2e6
        cells; 4096 are always allowed.
    """

    name = "exponential_net"
    summary = "the exponential mechanism on a net: any loss, convex or not, in few dimensions"
    reference = "[LD] Theorem D.5; [ASAP] Lemma 5"
    solves = Minimize
    guarantees = ("pure", "approximate", "gdp", "zcdp")
    requires = (BOUNDED_DOMAIN, ONE_OUTPUT, FEW_DIMENSIONS)
    supports = frozenset({"ridge", "domain"})
    tier = "specialised"

    def _plan(self, problem: Minimize, budget: Budget, *, points: int | None = None) -> Plan:
        """Return the net with about the smallest excess-risk bound.

        >>> problem = Minimize(
        ...     n=1000,
        ...     loss=Absolute(),
        ...     bounds=Bounds(1.0),
        ...     n_features=1,
        ...     domain=Box((-1.0,), (1.0,)),
        ... )
        >>> plan = exponential_net.plan(problem, Budget(epsilon=1.0))
        >>> plan.guarantee.pure, len(plan.final.points), round(plan.risk.expected, 3)
        (1.0, 173, 0.026)
        """
        d, most = problem.dimension, max(POINTS, min(MOST_POINTS, int(VALUES / problem.n)))
        if points is not None:
            most = integer("points", points, least=2)
        epsilon = calibrate(lambda level: BoundedRange(1 / level), budget).epsilon
        finest = max(2, math.floor(most ** (1 / d) * (1 + 1e-12)))
        sizes = sorted(
            {max(2, round(finest * 2 ** (-j / 4))) for j in range(4 * finest.bit_length())}
        )
        nets = [NetChoice(epsilon, problem, budget.relation, cells) for cells in sizes]
        most_useful = WITHIN * min(net.expected for net in nets)
        choice = next(net for net in nets if net.expected <= most_useful)
        return Step(choice, _basis(problem.loss, budget))

    def example(self, relation: str) -> Example:
        """Absolute deviations on an interval: a record moves between the bounds, or is removed."""
        domain = Box((-1.0,), (1.0,))
        problem = Minimize(
            n=4, loss=Absolute(), bounds=Bounds(1.0, -1.0, 1.0), n_features=1, domain=domain
        )
        rows, labels = np.ones((4, 1)), np.array([1.0, -1.0, 1.0, 1.0])
        if relation == "add_remove":
            return Example(problem, InMemory(rows, labels), InMemory(rows[:-1], labels[:-1]))
        return Example(
            problem, InMemory(rows, labels), InMemory(rows, np.append(labels[:-1], -1.0))
        )


def _basis(loss: Loss, budget: Budget) -> Basis:
    assumptions = [
        Assumption(
            "what a record says of a parameter is clamped to Lipschitz constant x distance",
            "enforced",
        )
    ]
    if budget.relation == "add_remove":
        assumptions.append(
            Assumption("the number n that scales the ridge was not read off the data", "declared")
        )
    # Library functions may round the loss of a record differently in another batch, by less than
    # the grid resolves but for ties: hence not "exact".
    theorem = "exponential mechanism, bounded range [ASAP, Lemma 5; LD, Theorem D.5]"
    return declared_basis(
        Basis(theorem, budget.relation, budget.unit, tuple(assumptions), "idealised"), loss
    )


exponential_net = ExponentialNet()
