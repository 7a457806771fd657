"""The exponential mechanism on a net of parameters: any loss, convex or not, in few dimensions.

Guarantee: epsilon-DP and bounded range, as `dpfit.mechanisms.exponential`, for any loss whatsoever: what a record says
of a parameter, relative to the centre of the domain, is clamped to Lipschitz constant times distance. A loss with that
constant is not changed by it. Risk: a net of which every point of the domain is within r has a point whose risk is
within lipschitz * r of the least, and the choice loses at most range / (epsilon n) * log(number of points) more.
Reference: [LD] Theorem D.5 on a net; docs/explanation/gibbs.md, section 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Mechanism, Minimize, Risk, Run, Step, Work, require_records
from dpfit.data.dataset import Chunk, Dataset, InMemory
from dpfit.geometry import Box
from dpfit.geometry.base import Domain
from dpfit.losses import Absolute, Bounds
from dpfit.losses.base import Loss
from dpfit.losses.custom import DeclaredLoss, vouched
from dpfit.losses.glm import GLM
from dpfit.losses.guards import BinaryLabels, LabelInterval, RowBall
from dpfit.losses.vector import VectorLoss
from dpfit.mechanisms.exponential import choices
from dpfit.noise import Grid
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.check import count, one_of, positive
from dpfit.privacy.event import BoundedRange, Event

Floats = NDArray[np.float64]

_BITS = 14
"""What one record says is rounded to at most 2**14 steps."""


@dataclass(frozen=True)
class NetChoice(Mechanism):
    """The choice; all fields are public. ``cells`` is the number of cells of the net along each axis."""

    kind = "net_choice"
    epsilon: float
    problem: Minimize
    relation: str
    cells: int

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        count("cells", self.cells)
        one_of("relation", self.relation, ("replace", "add_remove"))
        _bounded(self.problem)

    @property
    def event(self) -> Event:
        return BoundedRange(self.epsilon)

    @cached_property
    def points(self) -> Floats:
        """The net: centres of cubes that cover the domain, each moved to the nearest point of it."""
        domain, half = _bounded(self.problem), self._half
        axis = half * ((2 * np.arange(self.cells) + 1) / self.cells - 1)
        grid = np.stack(np.meshgrid(*[axis] * domain.dimension, indexing="ij"), axis=-1).reshape(-1, domain.dimension)
        centres = domain.centre + grid
        inside = domain.project(centres)
        # Cubes whose centres are farther from the domain than their corners do not meet it.
        met = np.linalg.norm(inside - centres, axis=1) <= self.covering_radius * (1 + 1e-9)
        return np.asarray(inside[met])

    @property
    def covering_radius(self) -> float:
        """No point of the domain is farther than this from the net: projections do not increase distances."""
        return self._half / self.cells * math.sqrt(self.problem.dimension)

    @property
    def _half(self) -> float:
        return _bounded(self.problem).radius(math.inf)

    @property
    def _lipschitz(self) -> float:
        return self.problem.lipschitz("add_remove")

    @property
    def grid(self) -> Grid:
        """The grid of what one record says."""
        return Grid(math.frexp(self._lipschitz * _bounded(self.problem).radius())[1] - _BITS)

    @cached_property
    def limits(self) -> NDArray[np.int64]:
        """The most that one record can say for or against each point, in steps."""
        away = np.linalg.norm(self.points - _bounded(self.problem).centre, axis=1)
        return np.asarray(np.ceil(self._lipschitz * away / self.grid.step * (1 + 1e-12))).astype(np.int64)

    @property
    def range(self) -> int:
        """How differently one record can change the sums of two points, in steps."""
        return 2 * int(self.limits.max()) * (2 if self.relation == "replace" else 1)

    @property
    def scale(self) -> float:
        """How many steps are worth a factor e, rounded up."""
        return math.nextafter(self.range / self.epsilon, math.inf)

    @property
    def work(self) -> Work:
        return Work(values=float(len(self.points)) * self.problem.n, passes=float(len(self.points)))

    @property
    def risk(self) -> Risk:
        problem = self.problem
        steepest = self._lipschitz + problem.ridge * _bounded(problem).reach()
        lost = self.scale * self.grid.step * math.log(len(self.points)) / problem.n
        return Risk(
            steepest * self.covering_radius + lost + self.grid.step, "excess regularized empirical risk (proven bound)"
        )

    def run(self, data: Any, run: Run) -> Floats:
        return self.run_many(data, run, 1)[0]

    def run_many(self, data: Any, run: Run, count: int) -> list[Floats]:
        """Independent choices."""
        sums = self._sums(data)
        return [self.points[one] for one in choices(sums - sums.min(), self.scale, count, run.noise)]

    def _sums(self, data: Any) -> NDArray[np.int64]:
        """The sums of losses at the points, relative to the centre, in steps, with the public ridge."""
        problem = self.problem
        if not isinstance(data, Dataset):
            raise ValueError("the data must be records: dpfit.data.dataset.InMemory(rows, labels), for example")
        if data.width != problem.n_features:
            raise ValueError(f"the plan is for rows of {problem.n_features} numbers, the data have {data.width}")
        if self.relation == "replace" and data.n != problem.n:
            raise ValueError(f"the plan is for n = {problem.n} records, the data have {data.n}")
        ridge = problem.n * problem.ridge / 2 * np.sum(self.points**2, axis=1)
        sums: NDArray[np.int64] = np.round(ridge / self.grid.step).astype(np.int64)
        for chunk in data.chunks():
            losses = _losses(problem, chunk)
            middle = losses(_bounded(problem).centre)
            for j, (point, limit) in enumerate(zip(self.points, self.limits, strict=True)):
                with np.errstate(all="ignore"):
                    said = np.nan_to_num((losses(point) - middle) / self.grid.step, nan=0.0)
                sums[j] += int(np.round(np.clip(said, -limit, limit)).sum())
        return sums


def _losses(problem: Minimize, chunk: Chunk) -> Any:
    """The losses of guarded records as a function of the parameter."""
    loss, bounds = problem.loss, problem.bounds
    given = chunk.rows.toarray() if hasattr(chunk.rows, "toarray") else chunk.rows
    rows, labels = RowBall(bounds.row_norm).apply(given), np.asarray(chunk.labels, dtype=np.float64)
    if isinstance(loss, GLM) and loss.binary_labels:
        labels = BinaryLabels().apply(labels)
    elif bounds.label_lower is not None and bounds.label_upper is not None:
        labels = LabelInterval(bounds.label_lower, bounds.label_upper).apply(labels)
    if isinstance(loss, GLM):
        return lambda theta: loss.value(np.sum(rows * theta, axis=1), labels)
    if isinstance(loss, VectorLoss):
        return lambda theta: loss.value(theta, rows)
    if isinstance(loss, DeclaredLoss):
        return lambda theta: loss.value(theta, rows, labels)
    raise ValueError(f"there is no net for a loss of kind {loss.kind!r}")


def _bounded(problem: Minimize) -> Domain:
    if problem.domain is None or not math.isfinite(problem.domain.radius()):
        raise ValueError("a net needs a bounded domain")
    return problem.domain


@dataclass(frozen=True)
class NetMechanism:
    """Plans a choice from a net."""

    name: str = "exponential_net"

    def plan(self, problem: Minimize, budget: Budget, *, points: int = 4096) -> Step:
        """The net of at most ``points`` cells with the least proven risk.

        >>> problem = Minimize(n=1000, loss=Absolute(), bounds=Bounds(1.0), n_features=1, domain=Box((-1.0,), (1.0,)))
        >>> plan = exponential_net.plan(problem, Budget(epsilon=1.0))
        >>> plan.guarantee.pure, len(plan.mechanism.points)
        (1.0, 256)
        """
        require_records(self.name, budget)
        if not isinstance(problem, Minimize):
            raise ValueError(f"{self.name} solves a Minimize problem, not {getattr(problem, 'kind', problem)!r}")
        d = problem.dimension
        if 2**d > count("points", points, least=2):
            raise ValueError(f"a net in {d} dimensions has at least {2**d} points; it is for few dimensions")
        if not isinstance(problem.loss, GLM | VectorLoss | DeclaredLoss):
            raise ValueError(f"there is no net for a loss of kind {problem.loss.kind!r}")
        epsilon = calibrate(lambda level: BoundedRange(1 / level), budget).epsilon
        most = next(k for k in range(points, 1, -1) if k**d <= points)
        sizes = sorted({max(2, round(most * 2 ** (-j / 4))) for j in range(4 * most.bit_length())})
        choice = min(
            (NetChoice(epsilon, problem, budget.relation, cells) for cells in sizes),
            key=lambda mechanism: mechanism.risk.expected,
        )
        return Step(choice, _basis(problem.loss, budget))

    def example(self, relation: str) -> tuple[Minimize, Any, Any]:
        """Absolute deviations on an interval: records at one end, of which one moves to the other end, or leaves."""
        domain = Box((-1.0,), (1.0,))
        problem = Minimize(n=4, loss=Absolute(), bounds=Bounds(1.0, -1.0, 1.0), n_features=1, domain=domain)
        rows, labels = np.ones((4, 1)), np.array([1.0, -1.0, 1.0, 1.0])
        if relation == "add_remove":
            return problem, InMemory(rows, labels), InMemory(rows[:-1], labels[:-1])
        return problem, InMemory(rows, labels), InMemory(rows, np.append(labels[:-1], -1.0))


def _basis(loss: Loss, budget: Budget) -> Basis:
    assumptions = [
        Assumption("what a record says of a parameter is clamped to Lipschitz constant x distance", "enforced")
    ]
    if budget.relation == "add_remove":
        assumptions.append(Assumption("the number n that scales the ridge was not read off the data", "declared"))
    # Library functions may round the loss of a record differently in another batch, by less than the grid resolves
    # but for ties: hence not "exact".
    theorem = "exponential mechanism, bounded range [ASAP, Lemma 5; LD, Theorem D.5]"
    return vouched(Basis(theorem, budget.relation, budget.unit, tuple(assumptions), "idealised"), loss)


exponential_net = NetMechanism()
