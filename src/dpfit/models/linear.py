"""Linear models: from rows, labels and public facts to a request, and from its release to coefficients."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as scipy_sparse
from sklearn.utils.validation import check_is_fitted

from dpfit.core import Algorithm, Plan, Release
from dpfit.data.dataset import InMemory
from dpfit.data.schema import Schema
from dpfit.losses.base import Loss
from dpfit.mechanisms.private_bounds import ColumnRanges
from dpfit.models.base import PrivateEstimator
from dpfit.models.inputs import labels_of, require_as_many, require_numbers, validated
from dpfit.models.intervals import Ends, NoiseInterval, noise_bound
from dpfit.models.leaks import FROM_DATA, RANGES_LEAK, is_from_data
from dpfit.models.ranges import column_bounds, ranges_from_data
from dpfit.models.request import LossObjective, Request
from dpfit.models.scaling import Scaling
from dpfit.privacy import Budget
from dpfit.privacy.check import count, one_of, positive

Floats = NDArray[np.float64]


@dataclass(eq=False, repr=False)
class PrivateModel(PrivateEstimator):
    """A linear model fitted under differential privacy; see the concrete models for their parameters."""

    _: KW_ONLY
    max_rows_per_user: int | None = None
    schema: Schema | None = None
    row_norm: float | None = None
    bounds: Any = None
    fit_intercept: bool = True
    ridge: float = 0.0
    solver: str | Algorithm[Any] = "auto"
    max_passes: int | None = None
    public: Any = None

    def plan(self, n: int, n_features: int | None = None, *, by_user: bool = False, sparse: bool = False) -> Plan:
        """Return what `fit` would do on ``n`` records of ``n_features`` columns: no data needed, nothing spent.

        A schema knows the number of columns. ``by_user`` is for a fit with user ids, ``sparse`` for a sparse matrix:
        its columns are not centred.
        """
        self._require_schema()
        columns = n_features if self.schema is None else len(self.schema.names)
        return self._request(n, count("n_features", columns), by_user=by_user, sparse=sparse).plan()

    def _require_schema(self) -> None:
        if not isinstance(self.schema, Schema | None):
            raise ValueError(
                f"schema must be a dpfit.Schema, got {type(self.schema).__name__}; Schema.read reads one from a file"
            )

    def _losses(self, budget: Budget, n: int, n_features: int) -> tuple[Loss, ...]:
        """Return the losses that the model offers, the preferred one first."""
        raise NotImplementedError

    def _label_bounds(self) -> tuple[float, float] | None:
        """Return the public range of the labels, where the model has one."""
        return None

    _labels_have_range = False

    def _leaks(self) -> tuple[str, ...]:
        """Return facts about the records, other than ranges, that the guarantee does not cover."""
        return ()

    def _public_scaling(self, columns: int) -> tuple[Scaling, ColumnRanges | None]:
        """Return the scaling by what is declared, and the ranges that are left to find."""
        label = self._label_bounds()
        low = high = None
        if self.schema is not None and (self.bounds is not None or self.row_norm is not None):
            raise ValueError("a schema bounds the rows: give either schema, or bounds and row_norm")
        if isinstance(self.bounds, str):
            one_of("bounds, if not a pair (lower, upper),", self.bounds, ("private", FROM_DATA))
        elif self.bounds is not None:
            low, high = column_bounds(self.bounds, columns)
        # Rows that are capped as they are need no ranges.
        raw = self.bounds is None and (self.row_norm is not None or self.schema is not None)
        norm = self._norm(columns)
        has_constant = self.schema is not None and self.schema.intercept
        constant = (norm if raw else 1.0) if self.fit_intercept and not has_constant else 0.0
        scaling = Scaling(norm, constant, low, high, *(label or (None, None)))
        missing_columns = columns if low is None and not raw else 0
        missing_labels = self._labels_have_range and label is None
        if not missing_columns and not missing_labels:
            return scaling, None
        return scaling, ColumnRanges(missing_columns, missing_labels)

    def _norm(self, columns: int) -> float:
        """Return the norm that rows are capped at: the declared one, or just above that of uniform rows.

        Columns that are uniform on [-1, 1] have mean squares of 1 / 3. A smaller norm would shorten most rows, a larger
        one would let one record do more than records do.
        """
        if self.schema is not None:
            return self.schema.bound
        uniform = math.sqrt(min(columns, 2 + columns / 3))
        return uniform if self.row_norm is None else positive("row_norm", self.row_norm)

    def _request(self, n: int, columns: int, *, by_user: bool, sparse: bool, data: InMemory | None = None) -> Request:
        """Return the public facts of a fit; ``data`` are read for ranges only, and only if these are "from_data"."""
        scaling, missing = self._public_scaling(columns)
        # Centred columns of a sparse matrix would have no zeros left.
        scaling, leaks = replace(scaling, centred=not sparse), self._leaks()
        if missing is not None and data is not None and is_from_data(self.bounds):
            scaling, missing, leaks = ranges_from_data(scaling, missing, data), None, (*leaks, RANGES_LEAK)
        budget = self._budget(n)
        if by_user and (budget.relation != "add_remove" or self.max_rows_per_user is None):
            raise ValueError(
                "to protect users give relation='add_remove', n_declared and max_rows_per_user, the largest number "
                "of records of one user that are used"
            )
        objective = LossObjective(
            self._losses,
            self.solver,
            (-1.0, 1.0) if self._labels_have_range else (None, None),
            self.ridge,
            self.max_passes,
            None if self.public is None else len(self._public_pair()[1]),
        )
        max_rows = count("max_rows_per_user", self.max_rows_per_user) if by_user else None
        return Request(n, columns, budget, objective, scaling, missing, max_rows, self._currency, leaks)

    def _release(self, rows: Any, labels: Any, user_ids: Any = None) -> tuple[Release, Scaling, Floats]:
        """Plan, charge, run; returns the release, the scaling that was used and the weights."""
        if user_ids is not None:
            require_as_many("user_ids", user_ids, len(labels))
        data = InMemory(rows, labels, user_ids, self._public_records())
        request = self._request(
            self._declared_n(data.n),
            data.width,
            by_user=user_ids is not None,
            sparse=scipy_sparse.issparse(data.matrix),
            data=data,
        )
        release = self._run(request.plan(), data)
        return release, request.used_scaling(release), np.asarray(release.output, dtype=np.float64)

    def _public_records(self) -> InMemory | None:
        """Return the records that need no protection, read as the private ones are."""
        if self.public is None:
            return None
        rows, labels = self._public_pair()
        return InMemory(self._known_rows(rows), self._public_labels(labels))

    def _known_rows(self, X: Any) -> Any:
        """Return more rows like those of the fit."""
        if self.schema is not None:
            return self.schema.matrix(X)
        return validated(
            self,
            X,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            # Under add/remove a paid score may be one of no records.
            ensure_min_samples=0,
            reset=False,
        )

    def _public_pair(self) -> tuple[Any, Any]:
        try:
            rows, labels = self.public
            len(labels)
        except (TypeError, ValueError):
            raise ValueError("public must be a pair (X0, y0) of public records and their labels") from None
        return rows, labels

    def _public_labels(self, labels: Any) -> Floats:
        return np.asarray(labels, dtype=np.float64)

    def _validated(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Return rows and labels. Only public facts can be wrong: shapes, types, names; values are repaired later."""
        self._require_schema()
        if self.schema is None:
            require_numbers("X", X, axes=2)
        rows = validated(
            self,
            X if self.schema is None else self.schema.matrix(X),
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_min_samples=self._least_records,
        )
        if self.schema is not None:
            self.feature_names_in_ = np.array([column.name for column in self.schema.columns], dtype=object)
            self.n_features_in_ = len(self.feature_names_in_)
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        labels = labels_of(y)
        require_as_many("y", labels, rows.shape[0])
        return rows, labels

    def _rows(self, X: Any) -> Any:
        """Return rows to predict for, bounded as in training."""
        check_is_fitted(self)
        if self.schema is None:
            require_numbers("X", X, axes=2)
        return self.scaling_.rows(self._known_rows(X), finite=True)

    def noise_interval(self, level: float = 0.95) -> NoiseInterval:
        """Return intervals that hold the coefficients and intercepts without noise, each with probability ``level``.

        The intervals cover privacy noise alone: neither the sampling of the records, nor a ridge, clipping, or the
        choice of a user's rows. They come from the plan and from released values, so they cost nothing and hold for
        all records. With ``solver="output_perturbation"`` the probability is ``level`` exactly. After
        ``objective_perturbation`` it is at least ``level``, and the intervals are wide where the ridge is small. For
        other solvers the effect of noise depends on the records: AttributeError.

        >>> X = np.linspace(-1, 1, 2000)[:, None]
        >>> from dpfit.models import LogisticRegression
        >>> model = LogisticRegression(1.0, bounds=(-1, 1), solver="output_perturbation").fit(X, X[:, 0] > 0)
        >>> lower, upper = model.coef_noise_interval_
        >>> bool((lower < model.coef_).all() and (model.coef_ < upper).all()), model.noise_interval().exact
        (True, True)
        """
        check_is_fitted(self)
        length, exact = noise_bound(self.plan_, level)
        coef, intercept = self.scaling_.leverage(np.shape(self.coef_)[-1])
        return NoiseInterval(
            Ends.around(self.coef_, length * coef), Ends.around(self.intercept_, length * intercept), level, exact
        )

    @property
    def coef_noise_interval_(self) -> Ends:
        """`noise_interval` of the coefficients at level 0.95: privacy noise alone."""
        return self.noise_interval().coef

    @property
    def intercept_noise_interval_(self) -> Ends:
        """`noise_interval` of the intercepts at level 0.95: privacy noise alone."""
        return self.noise_interval().intercept

    def fit(self, X: Any, y: Any, user_ids: Any = None) -> Self:
        raise NotImplementedError
