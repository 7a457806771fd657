"""A private second-moment matrix, and the map of rows that makes them isotropic.

Guarantee: the matrix is one Gaussian release; what follows from it is post-processing. Solvers that
work behind the map bind it late: `preconditioned_gd`, `phased_sgd`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from dpfit.core import Minimize, Run, Transformation, Work
from dpfit.data.chunk import Chunk
from dpfit.data.view import View
from dpfit.geometry.symmetric import pack, unpack
from dpfit.kernels.linear_map import mapped
from dpfit.kernels.rounding import sum_error
from dpfit.losses.base import Bounds
from dpfit.privacy import Assumption, Basis, Budget
from dpfit.solvers.perturbation.sufficient_statistics import ROUNDINGS, NoisyStatistics

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SecondMoments(NoisyStatistics):
    """The mean of x x^T over guarded rows, with noise.

    Sensitivity: a record that comes or goes moves the sum by x x^T, of Frobenius norm at most
    row_norm**2. One that is replaced moves it by x x^T - z z^T, whose squared norm is norm(x)**4 +
    norm(z)**4 - 2 <x, z>**2, at most 2 row_norm**4.
    """

    kind = "second_moments"

    @property
    def released(self) -> int:
        return self.problem.n_features * (self.problem.n_features + 1) // 2

    @property
    def sensitivity(self) -> float:
        square, records = self.problem.bounds.row_norm**2, self.problem.max_records(self.relation)
        exact = square * (1.0 if self.relation == "add_remove" else math.sqrt(2))
        return (exact + 2 * sum_error(records, square, factors=ROUNDINGS + 13)) * (1 + 1e-12)

    @property
    def noise_spectral_norm(self) -> float:
        """About the largest eigenvalue of the noise on the mean."""
        return self.deviation * math.sqrt(2 * self.problem.n_features) / self.problem.n

    @property
    def work(self) -> Work:
        return Work(passes=1.0)

    def run(self, data: View, run: Run) -> Floats:
        return unpack(self.with_noise(pack(self.gram(data)), run)) / self.problem.n


class Preconditioner(NamedTuple):
    """Squared contraction factors, usual row norm after the map, largest second moment there."""

    squares: Floats
    usual: float
    moment: float


def isotropic_preconditioner(
    values: Floats, floor: float, row_norm: float, span: float, flattest: float
) -> Preconditioner:
    """Return the map to isotropic second moments; small ones are raised.

    Those below ``floor``, or below ``flattest`` times the largest one, count as that. The shortest
    direction keeps its length, so no row gets longer.

    >>> squares, usual, moment = isotropic_preconditioner(
    ...     np.array([0.09, 0.36]), floor=0.01, row_norm=1.0, span=1.5, flattest=1e-5
    ... )
    >>> squares.round(3).tolist(), round(usual, 3), round(moment, 3)
    ([1.0, 0.25], 0.636, 0.1)
    """
    raised = np.maximum(values, max(floor, flattest * float(values.max())))
    squares = raised.min() / raised
    mean_square = max(float(squares @ values), float(raised.min()))
    return Preconditioner(
        squares, min(row_norm, span * math.sqrt(mean_square)), float(raised.min()) + floor
    )


@dataclass(frozen=True)
class MappedRows(Transformation):
    """Rows A x for a symmetric A (packed), each from its own record; A maps the value back.

    Rows and labels are scaled into their bounds before they are mapped. ``matrix`` is None until it
    is bound.
    """

    kind = "mapped_rows"
    omitted: ClassVar = ("matrix",)
    bounds: Bounds
    binary_labels: bool
    matrix: tuple[float, ...] | None = None

    @cached_property
    def through(self) -> Floats:
        """The matrix A."""
        if self.matrix is None:
            raise ValueError("the geometry is not bound yet: it is what the first stage releases")
        return unpack(np.asarray(self.matrix))

    def transform(self, data: View, run: Run) -> View:
        return data.map(self)

    def __call__(self, chunk: Chunk) -> Chunk:
        guards = {"row_norm": self.bounds.row_norm, "binary": self.binary_labels}
        guards |= (
            {"label_lower": self.bounds.label_lower} if self.bounds.label_lower is not None else {}
        )
        guards |= (
            {"label_upper": self.bounds.label_upper} if self.bounds.label_upper is not None else {}
        )
        return chunk.with_records(*mapped(chunk.rows, chunk.labels, self.through, **guards))  # type: ignore[arg-type]

    def width(self, width: int) -> int:
        """Return the number of columns of mapped rows."""
        return width

    def inverse(self, value: Floats) -> Floats:
        return np.asarray(value @ self.through)


def matrix_basis(problem: Minimize, budget: Budget) -> Basis:
    """Return why the released second moments are private."""
    assumptions = [Assumption("rows are scaled into the declared bound", "enforced")]
    if budget.relation == "add_remove":
        most = problem.max_records(budget.relation)
        assumptions.append(Assumption(f"there are at most {most} records", "declared"))
    return Basis(
        "Gaussian mechanism [Gan22, Fact 15]",
        budget.relation,
        budget.unit,
        tuple(assumptions),
        "bounded",
    )
