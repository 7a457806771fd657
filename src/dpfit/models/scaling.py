"""From raw rows to bounded ones: a public or released range for each column, record by record."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from dpfit.core import Binding, DataFacts, Plan, Run, Transformation
from dpfit.data.chunk import Chunk
from dpfit.data.view import View
from dpfit.mechanisms.private_bounds import ColumnRanges
from dpfit.models.inputs import Floats, Matrix, is_sparse
from dpfit.privacy.validate import positive

_SILENT = np.errstate(over="ignore", invalid="ignore")
"""A warning about a number that overflows would tell that some record has such a number."""

_TILE = 2**17
"""Entries that are scaled at a time: 1 MB of doubles."""


@dataclass(frozen=True)
class Scaling(Transformation):
    """A row map: columns from [lower, upper] to [-1, 1], rows into a ball, a constant added.

    Each record is mapped by itself, so neighbours stay neighbours. Without ``lower`` and ``upper``
    columns are left as they are. Labels are scaled like columns if their range is given. If not
    ``centred``, columns are divided by the bound that is farther from zero, and nothing else: so a
    sparse matrix stays sparse. ``through_origin`` leaves the labels uncentred, too: a model without
    an intercept then predicts 0 for a row of zeros.

    With ``shortens_records`` a row that is longer than ``row_norm`` is shortened together with its
    constant and its label, by one factor. A linear model of records that are shortened so is one
    of the whole records: rows to predict for are then not shortened.

    >>> scaling = Scaling(row_norm=2.0, constant=1.0, lower=(0.0, 0.0), upper=(2.0, 4.0))
    >>> scaling.rows(np.array([[1.0, 9.0], [2.0, 2.0]]))
    array([[0., 1., 1.],
           [1., 0., 1.]])
    >>> scaling.bound
    2.23606797749979
    """

    kind = "scaling"
    rowwise: ClassVar[bool] = True
    omitted: ClassVar = ("through_origin", "shortens_records")
    row_norm: float
    constant: float = 0.0
    lower: tuple[float, ...] | None = None
    upper: tuple[float, ...] | None = None
    label_lower: float | None = None
    label_upper: float | None = None
    centred: bool = True
    through_origin: bool = False
    shortens_records: bool = False

    def __post_init__(self) -> None:
        positive("row_norm", self.row_norm)
        if (self.lower is None) != (self.upper is None) or len(self.lower or ()) != len(
            self.upper or ()
        ):
            raise ValueError("lower and upper must have one entry each for every column")
        ends = [*zip(self.lower or (), self.upper or (), strict=True)]
        if self.label_lower is not None and self.label_upper is not None:
            ends.append((self.label_lower, self.label_upper))
        if not all(-math.inf < low < high < math.inf for low, high in ends):
            raise ValueError("a range needs finite lower < upper in every column")
        if not all(high / 2 - low / 2 >= sys.float_info.min for low, high in ends):
            # Half of it would be 0, or its inverse infinite, and a warning would depend on the
            # records.
            raise ValueError("a range must be at least 1e-307 wide: give the column another unit")

    @property
    def bound(self) -> float:
        """The largest norm of a row, constant included; what the solvers are told."""
        return math.hypot(self.row_norm, self.constant)

    @_SILENT
    def rows(self, rows: Matrix, *, finite: bool = False) -> Matrix:
        """The bounded rows.

        What is not a number stays so, since the kernels replace such a record as a whole, and cap
        rows that need nothing else; ``finite`` is for rows to predict for: it puts zeros there.
        """
        return self._bounded(rows, finite)[0]

    def _bounded(self, rows: Matrix, finite: bool) -> tuple[Matrix, Floats]:
        """Return the bounded rows, and the factors that shortened them."""
        if is_sparse(rows):
            if not self._ranges()[0].any():
                return self._sparse_rows(rows, finite)
            rows = rows.toarray()
        number, columns = rows.shape
        factors = np.ones(number)
        if self.lower is None and not self.constant and not finite:
            return rows, factors
        capped = np.empty((number, columns + bool(self.constant)))
        tile = max(1, _TILE // max(1, columns))  # temporary arrays stay small
        for start in range(0, number, tile):
            matrix = self._in_ranges(rows[start : start + tile], finite)
            factors[start : start + tile] = self._factors(_squared_norms(matrix), finite)
            shorter = factors[start : start + tile, None]
            np.multiply(matrix, shorter, out=capped[start : start + tile, :columns])
        if self.constant:
            capped[:, -1] = self._constants(factors)
        return capped, factors

    def shortened_by(self, rows: Matrix) -> Floats:
        """Return the factor by which a fit would have shortened each row to predict for."""
        if not self.shortens_records:
            return np.ones(rows.shape[0])
        if is_sparse(rows):
            squares = np.asarray(rows.multiply(rows).sum(axis=1)).ravel() - self.constant**2
        else:
            dense = np.asarray(rows, dtype=np.float64)
            squares = _squared_norms(dense[:, :-1] if self.constant else dense)
        return self._factors(squares, finite=False)

    def _in_ranges(self, rows: Matrix, finite: bool) -> Floats:
        """Dense rows as doubles, each column scaled from its range to [-1, 1]."""
        matrix = np.asarray(rows, dtype=np.float64)
        if self.lower is not None:
            middle, half = self._ranges()
            matrix = np.clip((matrix - middle) / half, -1.0, 1.0)
        return _finite(matrix) if finite else matrix

    def _factors(self, squares: Floats, finite: bool) -> Floats:
        """What scales each row into the ball."""
        if finite and self.shortens_records:
            return np.ones(len(squares))
        lengths = np.sqrt(squares)
        return np.where(lengths > self.row_norm, self.row_norm / np.maximum(lengths, 1e-300), 1.0)

    def _constants(self, factors: Floats) -> Floats:
        """The constant column."""
        return self.constant * (factors if self.shortens_records else np.ones(len(factors)))

    def _sparse_rows(self, rows: sparse.csr_array, finite: bool) -> tuple[sparse.csr_array, Floats]:
        matrix = sparse.csr_array(rows, dtype=np.float64)
        if self.lower is not None:
            half = self._ranges()[1]
            matrix = sparse.csr_array(
                matrix @ sparse.dia_array((1 / half, 0), shape=(len(half), len(half)))
            )
            np.clip(matrix.data, -1.0, 1.0, out=matrix.data)
        if self.lower is None and not self.constant and not finite:
            return matrix, np.ones(matrix.shape[0])
        if finite:
            matrix.data = _finite(matrix.data)
        squares = np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel()
        factors = self._factors(squares, finite)
        matrix = sparse.csr_array(
            sparse.dia_array((factors, 0), shape=(len(factors),) * 2) @ matrix
        )
        if not self.constant:
            return matrix, factors
        last = self._constants(factors)[:, None]
        return sparse.csr_array(sparse.hstack([matrix, last])), factors

    @_SILENT
    def labels(self, labels: ArrayLike) -> ArrayLike:
        """The labels in [-1, 1] if they have a range, else as they are."""
        if self.label_lower is None:
            return labels
        middle, half = self.label_range
        return np.clip((np.asarray(labels, dtype=np.float64) - middle) / half, -1.0, 1.0)

    def within(self, found: ColumnRanges, released: object) -> Scaling:
        """The scaling with the ranges that were not declared, as they were released."""
        low, high = map(tuple, np.asarray(released, dtype=np.float64).tolist())
        scaling = self
        if found.labels:
            scaling = replace(scaling, label_lower=low[-1], label_upper=high[-1])
        if found.columns:
            scaling = replace(scaling, lower=low[: found.columns], upper=high[: found.columns])
        return scaling

    def __call__(self, chunk: Chunk) -> Chunk:
        """Return the bounded records of a chunk."""
        rows, factors = self._records(chunk.rows)
        labels = self.labels(chunk.labels)
        if self.shortens_records and self.label_lower is not None:
            labels = np.asarray(labels) * factors
        return chunk.with_records(rows, labels)

    @_SILENT
    def _records(self, rows: Matrix) -> tuple[Matrix, Floats]:
        return self._bounded(rows, finite=False)

    def width(self, width: int) -> int:
        """Return the number of columns of bounded rows."""
        return width + bool(self.constant)

    def transform(self, data: View, run: Run) -> View:
        return data.map(self)

    def data_facts(self, inner: DataFacts) -> DataFacts:
        return DataFacts(
            inner.n, None if inner.width is None else inner.width - bool(self.constant)
        )

    def unscaled(self, weights: Floats) -> tuple[Floats, Floats]:
        """Coefficients and intercepts in units of raw columns and labels; a row per output."""
        weights = np.atleast_2d(weights)
        middle, half = self._ranges()
        label_middle, label_half = self.label_range
        shares = weights[:, :-1] if self.constant else weights
        intercept = weights[:, -1] * self.constant if self.constant else np.zeros(len(weights))
        coefficients = shares / half
        return coefficients * label_half, (
            intercept - (coefficients * middle).sum(axis=1)
        ) * label_half + label_middle

    def leverage(self, columns: int) -> tuple[Floats, float]:
        """Largest move of coefficients and intercept if the scaled weights move by one.

        They are linear functions of the weights up to constants: these are the norms of them.

        >>> Scaling(row_norm=1.0, constant=1.0, lower=(0.0,), upper=(4.0,)).leverage(1)
        (array([0.5]), 1.4142135623730951)
        """
        middle, half = (np.broadcast_to(each, (columns,)) for each in self._ranges())
        label_half = self.label_range[1]
        return label_half / half, label_half * math.hypot(
            self.constant, float(np.linalg.norm(middle / half))
        )

    def _ranges(self) -> tuple[Floats, Floats]:
        """What is subtracted from each column, and what the rest is divided by."""
        if self.lower is None:
            return np.zeros(1), np.ones(1)
        low, high = np.array(self.lower), np.array(self.upper)
        if not self.centred or self.through_origin:
            return np.zeros(len(low)), np.maximum(np.abs(low), np.abs(high))
        return low / 2 + high / 2, high / 2 - low / 2

    @property
    def label_range(self) -> tuple[float, float]:
        """Offset and divisor of the labels; (0, 1) if they have no range."""
        if self.label_lower is None or self.label_upper is None:
            return 0.0, 1.0
        if self.through_origin:
            return 0.0, max(abs(self.label_lower), abs(self.label_upper))
        return (
            self.label_lower / 2 + self.label_upper / 2,
            self.label_upper / 2 - self.label_lower / 2,
        )


def _squared_norms(matrix: Floats) -> Floats:
    """Squared norms of rows, each rounded as if its row were the only one.

    Beyond 8192 columns einsum would add up a single row in other pieces than one of several.
    """
    # In Fortran order einsum would add up in an order that depends on the number of rows.
    rows = np.ascontiguousarray(matrix)
    parts = (rows[:, start : start + 8192] for start in range(0, rows.shape[1] or 1, 8192))
    return np.asarray(sum(np.einsum("ij,ij->i", part, part) for part in parts))


def _finite(values: Floats) -> Floats:
    return np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


@dataclass(frozen=True)
class ScaledBy(Binding):
    """Scale records by ranges that ``stage`` released; ``found`` names columns and labels."""

    kind = "scaled_by"
    stage: str
    found: ColumnRanges

    def __call__(self, plan: Plan, released: Mapping[str, object]) -> Plan:
        # `dpfit.models.request` binds plans behind a Scaling only.
        return plan.map_transformation(
            lambda scaling: cast(Scaling, scaling).within(self.found, released[self.stage])
        )

    def stand_in(self, plan: Plan) -> Mapping[str, object]:
        return {self.stage: (np.full(self.found.number, -1.0), np.ones(self.found.number))}
