"""Noisy gradient descent in a geometry in which the data are round: that of their second-moment matrix.

Guarantee: mu-GDP, the release of the matrix and the descent composed; of the descent alone where the matrix is public.
Reference: adaptive composition ([ASAP] Lemma 14), [LD] Lemma C.1; docs/explanation/trajectory.md, Theorem 1 and
"Another geometry".

The first stage releases the mean of x x^T with noise. From that matrix, or a public one, comes a map A that shortens
directions in which rows are long until all are alike. The second stage is `noisy_gd` on the records (A x, y), whose
gradients are clipped at what rows of the usual length there can have; it releases A times the parameter. So descent is
as fast, and noise as small, along the short directions as along the long ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpfit.core import Chain, Mechanism, Minimize, Plan, Risk, Run, Step, Work
from dpfit.data.dataset import Blocks, Dataset, InMemory
from dpfit.kernels.linear_map import mapped
from dpfit.kernels.rounding import sum_error
from dpfit.losses.base import Bounds
from dpfit.losses.glm import GLM
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.check import count, one_of, positive
from dpfit.privacy.event import Event, Gaussian
from dpfit.solvers.gradient.noisy_gd import (
    NoisyGD,
    opposite_records,
    practical_rule,
    require_minimize,
    trajectory_basis,
)
from dpfit.solvers.gradient.predicted import risk_on
from dpfit.solvers.gradient.scales import natural_unit, relative_noise, unclipped
from dpfit.solvers.perturbation.minimizer import largest_count
from dpfit.solvers.perturbation.output_perturbation import require_data
from dpfit.solvers.perturbation.sufficient_statistics import ROUNDINGS, NoisyStatistics, packed, unpacked
from dpfit.solvers.supposed import Supposed, suppositions, typical

Floats = npt.NDArray[np.float64]

SPAN, EASED = 1.5, 0.0001
"""How long a row may be in the new geometry, over the root mean square of rows there, before its gradient is clipped
for its length alone, and what eases that: `EASED` over the relative noise is added, so the bias goes with the noise.
"""

SHARE = 0.07
"""The part of the squared GDP budget that goes to the matrix."""

FLATTEST = 1e-5
"""Directions whose second moment is below this share of the largest one are treated as if it were that share."""


@dataclass(frozen=True)
class SecondMoments(NoisyStatistics):
    """The mean of x x^T over guarded rows, with noise.

    A record that comes or goes moves the sum by x x^T, of Frobenius norm at most row_norm**2; one that is replaced by
    x x^T - z z^T, whose squared norm is norm(x)**4 + norm(z)**4 - 2 <x, z>**2, at most 2 row_norm**4.
    """

    kind = "second_moments"

    @property
    def released(self) -> int:
        return self.problem.n_features * (self.problem.n_features + 1) // 2

    @property
    def sensitivity(self) -> float:
        square, records = self.problem.bounds.row_norm**2, largest_count(self.problem, self.relation)
        exact = square * (1.0 if self.relation == "add_remove" else math.sqrt(2))
        return (exact + 2 * sum_error(records, square, factors=ROUNDINGS + 13)) * (1 + 1e-12)

    @property
    def swing(self) -> float:
        """About the largest eigenvalue of the noise on the mean."""
        return self.deviation * math.sqrt(2 * self.problem.n_features) / self.problem.n

    @property
    def work(self) -> Work:
        return Work(passes=1.0)

    def run(self, data: Any, run: Run) -> Floats:
        noisy = self.with_noise(packed(self.gram(require_data(data, self.problem, self.relation))), run)
        return unpacked(noisy, self.problem.n_features) / self.problem.n


class Geometry(NamedTuple):
    """Squared factors by which directions are shortened, the usual length of rows behind the map, and their largest
    second moment there."""

    squares: Floats
    usual: float
    moment: float


def rounding_geometry(values: Floats, floor: float, row_norm: float, span: float) -> Geometry:
    """What makes second moments alike in all directions, those below ``floor`` being taken as that.

    The shortest direction keeps its length, so no row gets longer.

    >>> squares, usual, moment = rounding_geometry(np.array([0.09, 0.36]), 0.01, 1.0, 1.5)
    >>> squares.round(3).tolist(), round(usual, 3), round(moment, 3)
    ([1.0, 0.25], 0.636, 0.1)
    """
    raised = np.maximum(values, max(floor, FLATTEST * float(values.max())))
    squares = raised.min() / raised
    mean_square = max(float(squares @ values), float(raised.min()))
    return Geometry(squares, min(row_norm, span * math.sqrt(mean_square)), float(raised.min()) + floor)


@dataclass(frozen=True)
class MappedGD(NoisyGD):
    """`NoisyGD` on rows A x for a symmetric matrix A (packed).

    Rows are scaled into the bound of the problem before they are mapped, and after.
    """

    kind = "mapped_gd"
    matrix: tuple[float, ...] = ()

    @cached_property
    def through(self) -> Floats:
        return unpacked(np.asarray(self.matrix), self.problem.n_features)

    def run(self, data: Any, run: Run) -> Any:
        return super().run(self.seen(data), run)

    def run_many(self, data: Any, run: Run, count: int) -> Sequence[Any]:
        return super().run_many(self.seen(data), run, count)

    def seen(self, data: Any) -> Dataset:
        """The records behind the map."""
        records = require_data(data, self.problem, self.relation)
        guards = self.problem.guards
        if isinstance(records, InMemory):
            return InMemory(*mapped(records.matrix, records.labels, self.through, **guards))

        def read() -> Any:
            return (mapped(chunk.rows, chunk.labels, self.through, **guards) for chunk in records.chunks())

        return Blocks(records.n, records.width, read)

    def ridge_gradient(self, point: Floats) -> Floats:
        """The ridge is on the parameter itself, A times the point."""
        return self.problem.ridge * (point @ self.through @ self.through)

    def finish(self, state: tuple[Floats, Floats, Floats]) -> Floats:
        return super().finish(state) @ self.through


@dataclass(frozen=True)
class PreconditionedGD(Mechanism):
    """The descent; ``moments`` (packed) is public, or bound to what the first stage released.

    ``floor`` is the second moment below which the matrix says nothing.
    """

    kind = "preconditioned_gd"
    problem: Minimize
    relation: str
    noise_multiplier: float
    steps: int
    floor: float
    moments: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        one_of("relation", self.relation, ("replace", "add_remove"))
        count("steps", self.steps)
        positive("floor", self.floor)
        _ = self.event

    def bind(self, released: tuple[Any, ...]) -> PreconditionedGD:
        return replace(self, moments=tuple(packed(np.asarray(released[-1])).tolist()))

    @property
    def event(self) -> Event:
        return Gaussian(self.noise_multiplier)

    @property
    def work(self) -> Work:
        return Work(gradients=float(self.steps) * self.problem.n, passes=float(self.steps))

    @cached_property
    def risk(self) -> Risk:
        """What is `typical` of the predictions for `noisy_gd` on stand-ins for the data, each seen in its geometry.

        Moments get the noise that the matrix has, so where it is mostly noise it is predicted to do harm.
        """
        problem = self.problem

        def risk(supposed: Supposed) -> float:
            shares = supposed.curvatures / supposed.curvatures.sum()
            moments = (supposed.length * problem.bounds.row_norm) ** 2 * shares
            geometry = self.rounded(moments + self.floor * _spread(len(moments)))
            squares = geometry.squares
            seen = supposed._replace(
                curvatures=supposed.curvatures * squares,
                squares=supposed.squares / squares,
                length=math.sqrt(float(squares @ moments)) / geometry.usual,
            )
            return risk_on(seen, self.rule(geometry), problem.ridge * squares)

        supposed = suppositions(problem, unclipped(problem), natural_unit(problem))
        return Risk(typical(supposed, risk), "excess empirical risk")

    @cached_property
    def descent(self) -> MappedGD:
        """The descent in the geometry of the moments, by the same rule as `noisy_gd`."""
        if self.moments is None:
            raise ValueError("the geometry is not bound yet: it is what the first stage releases")
        values, vectors = np.linalg.eigh(unpacked(np.asarray(self.moments), self.problem.n_features))
        geometry = self.rounded(values)
        matrix = (vectors * np.sqrt(geometry.squares)) @ vectors.T
        rule = replace(self.rule(geometry), problem=self.problem)
        settings = {field.name: getattr(rule, field.name) for field in fields(NoisyGD)}
        return MappedGD(**settings, matrix=tuple(packed(matrix).tolist()))

    def rounded(self, values: Floats) -> Geometry:
        """The geometry for second moments with these eigenvalues."""
        span = SPAN + EASED / relative_noise(self.problem, self.relation, self.noise_multiplier)
        return rounding_geometry(values, self.floor, self.problem.bounds.row_norm, span)

    def rule(self, geometry: Geometry) -> NoisyGD:
        """The descent behind the map, as if no row were longer than usual there; longer ones have clipped gradients."""
        bounds = self.problem.bounds
        seen = replace(self.problem, bounds=Bounds(geometry.usual, bounds.label_lower, bounds.label_upper))
        return practical_rule(seen, self.relation, self.noise_multiplier, max_passes=self.steps, moment=geometry.moment)

    def run(self, data: Any, run: Run) -> Any:
        return self.descent.run(data, run)

    def run_many(self, data: Any, run: Run, count: int) -> Sequence[Any]:
        return self.descent.run_many(data, run, count)


@dataclass(frozen=True)
class PreconditionedGDAlgorithm:
    """Plans a second-moment matrix and a descent in its geometry."""

    name: str = "preconditioned_gd"

    def plan(
        self,
        problem: Minimize,
        budget: Budget,
        *,
        second_moments: npt.ArrayLike | None = None,
        share: float = SHARE,
        max_passes: int = 300,
    ) -> Plan:
        """Matrix, then descent; with public ``second_moments`` (the mean of x x^T) the descent alone.

        One of the passes is that for the matrix. ``share`` is the part of the squared GDP budget that goes to it. The
        value of the release is matrix and parameter, or the parameter alone.

        >>> from dpfit.losses import Logistic
        >>> problem = Minimize(n=10_000, loss=Logistic(), bounds=Bounds(row_norm=1.0), n_features=3)
        >>> round(preconditioned_gd.plan(problem, Budget(mu=0.5)).guarantee.mu, 6)
        0.5
        """
        require_minimize(self.name, problem, budget)
        if not isinstance(problem.loss, GLM):
            raise ValueError(f"{self.name} maps rows: it needs a generalized linear loss, use noisy_gd")
        if problem.domain is not None:
            raise ValueError(f"{self.name} has no domain: a projection in its geometry would be another one; use ridge")
        if not math.isfinite(unclipped(problem)):
            raise ValueError(f"{self.name} needs gradients with a bound: bound labels or slopes")
        if second_moments is not None:
            public = _checked(second_moments, problem.n_features)
            multiplier = calibrate(Gaussian, budget).noise_multiplier
            descent = PreconditionedGD(problem, budget.relation, multiplier, max_passes, 1e-300, public)
            why = trajectory_basis(problem.loss, budget)
            public_matrix = Assumption("the second_moments were not computed from the data", "declared")
            return Step(descent, replace(why, assumptions=(*why.assumptions, public_matrix)))
        if count("max_passes", max_passes) < 2:
            raise ValueError(f"{self.name} needs two passes, for the matrix and a step; or give public second_moments")
        if not 0 < share < 1:
            raise ValueError(f"share must lie strictly between 0 and 1, got {share!r}")
        whole = calibrate(Gaussian, budget).noise_multiplier
        bases = _matrix_basis(problem, budget), trajectory_basis(problem.loss, budget)

        def stages(level: float) -> Chain:
            first = SecondMoments(problem, budget.relation, "gaussian", whole / math.sqrt(share) * level)
            rest = whole / math.sqrt(1 - share) * level
            second = PreconditionedGD(problem, budget.relation, rest, max_passes - 1, first.swing)
            return Chain((Step(first, bases[0]), Step(second, bases[1])))

        return calibrate(stages, budget)

    def example(self, relation: str) -> tuple[Minimize, Any, Any]:
        """Records whose gradients point one way, one of which points the other way or leaves."""
        return opposite_records(relation)


def _spread(number: int) -> Floats:
    """Eigenvalues of a large symmetric matrix of noise, over the largest of them, in an order that means nothing.

    Their law is a semicircle (Wigner, 1955).
    """
    values = np.linspace(-1.0, 1.0, 1001)
    below = 0.5 + (values * np.sqrt(1 - values**2) + np.arcsin(values)) / np.pi
    even = np.interp((np.arange(number) + 0.5) / number, below, values)
    return np.asarray(even[np.argsort(np.arange(number) * (math.sqrt(5) - 1) / 2 % 1)])


def _checked(second_moments: npt.ArrayLike, n_features: int) -> tuple[float, ...]:
    matrix = np.asarray(second_moments, dtype=np.float64)
    if (
        matrix.shape != (n_features, n_features)
        or not np.isfinite(matrix).all()
        or not np.array_equal(matrix, matrix.T)
    ):
        raise ValueError(f"second_moments must be a finite symmetric matrix of {n_features} rows and columns")
    if not np.linalg.eigvalsh(matrix)[-1] > 0:
        raise ValueError("second_moments must have a positive eigenvalue")
    return tuple(packed(matrix).tolist())


def _matrix_basis(problem: Minimize, budget: Budget) -> Basis:
    assumptions = [Assumption("rows are scaled into the declared bound", "enforced")]
    if budget.relation == "add_remove":
        most = largest_count(problem, budget.relation)
        assumptions.append(Assumption(f"there are at most {most} records", "declared"))
    return Basis("Gaussian mechanism [Gan22, Fact 15]", budget.relation, budget.unit, tuple(assumptions), "bounded")


preconditioned_gd = PreconditionedGDAlgorithm()
