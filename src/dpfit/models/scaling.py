"""From raw rows to bounded ones: a public or released range for each column, record by record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpfit.core import Binding, DataFacts, Plan, Run, Transformation
from dpfit.data.chunk import Chunk
from dpfit.data.view import View
from dpfit.mechanisms.private_bounds import ColumnRanges
from dpfit.privacy.check import positive

Floats = NDArray[np.float64]

_SILENT = np.errstate(over="ignore", invalid="ignore")
"""A warning about a number that overflows would tell that some record has such a number."""


@dataclass(frozen=True)
class Scaling(Transformation):
    """A row map: columns scaled from [lower, upper] to [-1, 1], rows scaled into a ball, a constant appended.

    Each record is mapped by itself, so neighbours stay neighbours. Without ``lower`` and ``upper`` columns are left as
    they are. Labels are scaled like columns if their range is given. If not ``centred``, columns are divided by the
    bound that is farther from zero, and nothing else: so a sparse matrix stays sparse.

    >>> scaling = Scaling(row_norm=2.0, constant=1.0, lower=(0.0, 0.0), upper=(2.0, 4.0))
    >>> scaling.rows(np.array([[1.0, 9.0], [2.0, 2.0]]))
    array([[0., 1., 1.],
           [1., 0., 1.]])
    >>> scaling.bound
    2.23606797749979
    """

    kind = "scaling"
    row_norm: float
    constant: float = 0.0
    lower: tuple[float, ...] | None = None
    upper: tuple[float, ...] | None = None
    label_lower: float | None = None
    label_upper: float | None = None
    centred: bool = True

    def __post_init__(self) -> None:
        positive("row_norm", self.row_norm)
        if (self.lower is None) != (self.upper is None) or len(self.lower or ()) != len(self.upper or ()):
            raise ValueError("give as many lower as upper ends")
        ends = [*zip(self.lower or (), self.upper or (), strict=True)]
        if self.label_lower is not None and self.label_upper is not None:
            ends.append((self.label_lower, self.label_upper))
        if not all(-math.inf < low < high < math.inf for low, high in ends):
            raise ValueError("a range needs finite lower < upper in every column")

    @property
    def bound(self) -> float:
        """The largest norm of a row, constant included; what the solvers are told."""
        return math.hypot(self.row_norm, self.constant)

    @_SILENT
    def rows(self, rows: Any, *, finite: bool = False) -> Any:
        """The bounded rows.

        What is not a number stays so, since the kernels replace such a record as a whole, and cap rows that need
        nothing else; ``finite`` puts zeros there and caps all rows.
        """
        if sparse.issparse(rows):
            if not self._ranges()[0].any():
                return self._sparse_rows(rows, finite)
            rows = rows.toarray()
        if self.lower is None and not self.constant and not finite:
            return rows
        matrix = np.asarray(rows, dtype=np.float64)
        if self.lower is not None:
            middle, half = self._ranges()
            matrix = np.clip((matrix - middle) / half, -1.0, 1.0)
        if finite:
            matrix = _finite(matrix)
        factors = self._factors(_squared_norms(matrix))
        capped = np.empty((len(matrix), matrix.shape[1] + bool(self.constant)))
        np.multiply(matrix, factors[:, None], out=capped[:, : matrix.shape[1]])
        if self.constant:
            capped[:, -1] = self.constant
        return capped

    def _factors(self, squares: Floats) -> Floats:
        """What scales each row into the ball."""
        lengths = np.sqrt(squares)
        return np.where(lengths > self.row_norm, self.row_norm / np.maximum(lengths, 1e-300), 1.0)

    def _sparse_rows(self, rows: Any, finite: bool) -> Any:
        matrix = sparse.csr_array(rows, dtype=np.float64)
        if self.lower is not None:
            half = self._ranges()[1]
            matrix = sparse.csr_array(matrix @ sparse.dia_array((1 / half, 0), shape=(len(half), len(half))))
            np.clip(matrix.data, -1.0, 1.0, out=matrix.data)
        if self.lower is None and not self.constant and not finite:
            return matrix
        if finite:
            matrix.data = _finite(matrix.data)
        factors = self._factors(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
        matrix = sparse.csr_array(sparse.dia_array((factors, 0), shape=(len(factors),) * 2) @ matrix)
        if not self.constant:
            return matrix
        return sparse.csr_array(sparse.hstack([matrix, np.full((matrix.shape[0], 1), self.constant)]))

    @_SILENT
    def labels(self, labels: Any) -> Any:
        """The labels in [-1, 1] if they have a range, else as they are."""
        if self.label_lower is None:
            return labels
        middle, half = self._label_range()
        return np.clip((np.asarray(labels, dtype=np.float64) - middle) / half, -1.0, 1.0)

    def within(self, found: ColumnRanges, released: tuple[Any, Any]) -> Scaling:
        """The scaling with the ranges that were not declared, as they were released."""
        low, high = (tuple(map(float, ends)) for ends in released)
        scaling = self
        if found.labels:
            scaling = replace(scaling, label_lower=low[-1], label_upper=high[-1])
        if found.columns:
            scaling = replace(scaling, lower=low[: found.columns], upper=high[: found.columns])
        return scaling

    def __call__(self, chunk: Chunk) -> Chunk:
        """Return the bounded records of a chunk."""
        return chunk.with_records(self.rows(chunk.rows), self.labels(chunk.labels))

    def width(self, width: int) -> int:
        """Return the number of columns of bounded rows."""
        return width + bool(self.constant)

    def transform(self, data: View, run: Run) -> View:
        return data.map(self)

    def data_facts(self, inner: DataFacts) -> DataFacts:
        return DataFacts(inner.n, None if inner.width is None else inner.width - bool(self.constant))

    def unscaled(self, weights: Floats) -> tuple[Floats, Floats]:
        """Coefficients and intercepts in the units of the raw columns and labels; one row per output."""
        weights = np.atleast_2d(weights)
        middle, half = self._ranges()
        label_middle, label_half = self._label_range()
        shares = weights[:, :-1] if self.constant else weights
        intercept = weights[:, -1] * self.constant if self.constant else np.zeros(len(weights))
        coefficients = shares / half
        return coefficients * label_half, (intercept - (coefficients * middle).sum(axis=1)) * label_half + label_middle

    def leverage(self, columns: int) -> tuple[Floats, float]:
        """How far coefficients and intercept move, at most, if the scaled weights of an output move by one.

        They are linear functions of the weights up to constants: these are the norms of them.

        >>> Scaling(row_norm=1.0, constant=1.0, lower=(0.0,), upper=(4.0,)).leverage(1)
        (array([0.5]), 1.4142135623730951)
        """
        middle, half = (np.broadcast_to(each, (columns,)) for each in self._ranges())
        label_half = self._label_range()[1]
        return label_half / half, label_half * math.hypot(self.constant, float(np.linalg.norm(middle / half)))

    def _ranges(self) -> tuple[Floats, Floats]:
        """What is subtracted from each column, and what the rest is divided by."""
        if self.lower is None:
            return np.zeros(1), np.ones(1)
        low, high = np.array(self.lower), np.array(self.upper)
        if not self.centred:
            return np.zeros(len(low)), np.maximum(np.abs(low), np.abs(high))
        return low / 2 + high / 2, high / 2 - low / 2

    def _label_range(self) -> tuple[float, float]:
        if self.label_lower is None or self.label_upper is None:
            return 0.0, 1.0
        return self.label_lower / 2 + self.label_upper / 2, self.label_upper / 2 - self.label_lower / 2


def _squared_norms(matrix: Floats) -> Floats:
    """Squared norms of rows, each rounded as if its row were the only one.

    Beyond 8192 columns einsum would add up a single row in other pieces than one of several.
    """
    parts = (matrix[:, start : start + 8192] for start in range(0, matrix.shape[1] or 1, 8192))
    return np.asarray(sum(np.einsum("ij,ij->i", part, part) for part in parts))


def _finite(values: Floats) -> Floats:
    return np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


@dataclass(frozen=True)
class ScaledBy(Binding):
    """Scale records by the ranges that ``stage`` released; ``found`` says which columns and labels they are of."""

    kind = "scaled_by"
    stage: str
    found: ColumnRanges

    def __call__(self, plan: Plan, released: Mapping[str, Any]) -> Plan:
        # The bound plan is a TransformedPlan of a Scaling: `dpfit.models.request` makes no other.
        scaling: Scaling = plan.transformation  # type: ignore[attr-defined]
        return replace(plan, transformation=scaling.within(self.found, released[self.stage]))  # type: ignore[call-arg]

    def stand_in(self, plan: Plan) -> Mapping[str, Any]:
        return {self.stage: (np.full(self.found.number, -1.0), np.ones(self.found.number))}
