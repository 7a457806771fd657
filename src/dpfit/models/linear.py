"""Linear models: rows, labels and public facts to a request; its release to coefficients."""

from __future__ import annotations

import math
from collections.abc import Sized
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from scipy import sparse as scipy_sparse
from sklearn.utils.validation import check_is_fitted

from dpfit.core import Interaction, Plan, Release, resume
from dpfit.core.algorithm import Minimizer
from dpfit.core.notes import MissingOutcomes, Tuned
from dpfit.data.dataset import InMemory
from dpfit.data.schema import Schema
from dpfit.data.table import Table
from dpfit.data.users import count_users
from dpfit.ledger import account_for
from dpfit.losses.base import Loss
from dpfit.mechanisms.private_bounds import ColumnRanges
from dpfit.models.base import PrivateEstimator
from dpfit.models.inputs import (
    Column,
    Floats,
    Matrix,
    Rows,
    Values,
    labels_of,
    require_as_many,
    require_numbers,
    row_products,
    validated,
)
from dpfit.models.intervals import Ends, NoiseInterval, noise_bound
from dpfit.models.leaks import FROM_DATA, RANGES_LEAK, is_from_data, warn_seeded
from dpfit.models.ranges import TUNING as RANGES
from dpfit.models.ranges import ColumnBounds, column_bounds, ranges_from_data
from dpfit.models.request import LossObjective, Request, named_solver
from dpfit.models.row_norm import TUNING as ROW_NORM
from dpfit.models.row_norm import longest_row, norm_of_uniform_rows
from dpfit.models.scaling import Scaling
from dpfit.models.summary import Summary, summarize
from dpfit.privacy import Budget
from dpfit.privacy.validate import integer, option, positive
from dpfit.solvers.gradient.sparse_descent import released_columns


@dataclass(eq=False, repr=False)
class PrivateModel(PrivateEstimator):
    """A linear model fitted under differential privacy; parameters: see concrete models."""

    _: KW_ONLY
    max_rows_per_user: int | None = None
    rows_per_user: float | None = None
    n_users: int | None = None
    schema: Schema | None = None
    row_norm: float | None = None
    bounds: ColumnBounds | str | None = None
    fit_intercept: bool = True
    ridge: float = 0.0
    solver: str | Minimizer = "auto"
    max_passes: int | None = None
    l1_radius: float | None = None
    public: tuple[Rows, Sized] | None = None

    def plan(
        self, n: int, n_features: int | None = None, *, by_user: bool = False, sparse: bool = False
    ) -> Plan:
        """Return what `fit` would do on ``n`` records of ``n_features`` columns, without data.

        Nothing is spent.

        A schema knows the number of columns. ``by_user`` is for a fit with user ids: under
        replace-one ``n`` is then the number of users. ``sparse`` is for a sparse matrix: its
        columns are not centred.
        """
        self._require_schema()
        columns = n_features if self.schema is None else len(self.schema.names)
        users = n if by_user and self._relation == "replace" else None
        return self._request(
            n, integer("n_features", columns), by_user=by_user, sparse=sparse, users=users
        ).plan()

    def _require_schema(self) -> None:
        if not isinstance(self.schema, Schema | None):
            raise ValueError(
                f"schema must be a dpfit.Schema, got {type(self.schema).__name__}; Schema.read "
                "reads one from a file"
            )

    def _losses(self, budget: Budget, n: int, n_features: int) -> tuple[Loss, ...]:
        """Return the losses that the model offers, the preferred one first."""
        raise NotImplementedError

    def _label_bounds(self) -> tuple[float, float] | None:
        """Return the public range of the labels, where the model has one."""
        return None

    _labels_have_range = False

    rows_are_scaled = False
    """Set it on a model whose rows have entries in [-1, 1] already, as those of a schema."""

    rows_have_constant = False
    """Set it on a model without an intercept whose rows hold a constant column: labels are then
    centred.
    """

    missing_outcomes = "drop"
    """What plans say of missing outcomes if there is no schema; set it where types are refused."""

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
            option("bounds, if not a pair (lower, upper),", self.bounds, ("private", FROM_DATA))
        elif self.bounds is not None:
            low, high = column_bounds(self.bounds, columns)
        # Rows that are capped as they are need no ranges.
        raw = self.bounds is None and (self.row_norm is not None or self.schema is not None)
        norm = self._norm(columns)
        has_constant = self.schema is not None and self.schema.intercept
        scaled = self.schema is not None or self.rows_are_scaled
        if self.l1_radius is not None and raw and not scaled:
            raise ValueError(
                "l1_radius needs columns in [-1, 1]; pass bounds, which scale them, with or "
                "without row_norm"
            )
        entry = norm if raw and self.l1_radius is None else 1.0
        constant = entry if self.fit_intercept and not has_constant else 0.0
        label_lower, label_upper = label or (None, None)
        has_intercept = self.fit_intercept or has_constant or self.rows_have_constant
        # Rows that are capped as they are, with labels that are classes, are not centred anyway.
        through_origin = not has_intercept and (not raw or self._labels_have_range)
        scaling = Scaling(
            norm,
            constant,
            low,
            high,
            label_lower,
            label_upper,
            through_origin=through_origin,
            shortens_records=not raw,
        )
        missing_columns = columns if low is None and not raw else 0
        missing_labels = self._labels_have_range and label is None
        if not missing_columns and not missing_labels:
            return scaling, None
        return scaling, ColumnRanges(missing_columns, missing_labels)

    def _constant_column(self, scaling: Scaling) -> float | None:
        """Return what the last column of scaled rows holds, where it is constant."""
        return scaling.constant or (1.0 if self._rows_have_constant else None)

    @property
    def _rows_have_constant(self) -> bool:
        """Whether the last column of rows is constant before the scaling adds one."""
        return self.rows_have_constant or (self.schema is not None and self.schema.intercept)

    def _norm(self, columns: int) -> float:
        """Return the norm that caps rows: the declared one, or just above that of uniform rows."""
        if self.schema is not None:
            return self.schema.bound
        uniform = norm_of_uniform_rows(columns)
        if self.l1_radius is not None:
            uniform = math.sqrt(columns) * (1 + 2.0**-40)
        return uniform if self.row_norm is None else positive("row_norm", self.row_norm)

    def _loss_of_records(self, budget: Budget, n: int, n_features: int) -> Loss:
        """Return the loss of one record, which is the same whoever is protected."""
        return self._losses(replace(budget, unit="record"), n, n_features)[0]

    def _finds_row_norm(self, scaling: Scaling) -> bool:
        return scaling.shortens_records and self.row_norm is None and self.l1_radius is None

    def _shortening(self, scaling: Scaling, budget: Budget, n: int, columns: int) -> Scaling:
        """Return the scaling with the norm that rows of scaled columns get where none is declared.

        A multiple of the norm of uniform rows where noise is large, and the largest norm, so that
        nothing is shortened, where it is small.
        """
        if not self._finds_row_norm(scaling):
            return scaling
        loss = self._loss_of_records(budget, n, columns)
        return replace(scaling, row_norm=longest_row(loss, budget, n, columns))

    def _request(
        self,
        n: int,
        columns: int,
        *,
        by_user: bool,
        sparse: bool,
        data: InMemory | None = None,
        users: int | None = None,
    ) -> Request:
        """Return the public facts of a fit; ``data`` serve ranges, and only if "from_data".

        ``users`` is the number of users where it is public.
        """
        scaling, missing = self._public_scaling(columns)
        # Centred columns of a sparse matrix would have no zeros left.
        scaling, leaks = replace(scaling, centred=not sparse), self._leaks()
        if missing is not None and data is not None and is_from_data(self.bounds):
            scaling, missing, leaks = (
                ranges_from_data(scaling, missing, data),
                None,
                (*leaks, RANGES_LEAK),
            )
        max_rows = n_users = None
        if by_user:
            n, max_rows, n_users = self._user_facts(n, users)
        budget = self._budget(n_users or n, "user" if by_user else "record")
        scaling = self._shortening(scaling, budget, n_users or n, columns)
        objective = LossObjective(
            self._losses,
            self.solver,
            (-1.0, 1.0) if self._labels_have_range else (None, None),
            self.ridge,
            self.max_passes,
            None if self.public is None else len(_checked_pair(self.public)[1]),
            intercept=self._constant_column(scaling) if self._labels_have_range else None,
            rows_per_user=self._typical_rows() if by_user else None,
            l1_radius=self.l1_radius,
            has_constant=self._rows_have_constant,
        )
        rule = self.missing_outcomes if self.schema is None else self.schema.missing
        tunings = [ROW_NORM] * self._finds_row_norm(scaling) + [RANGES] * (missing is not None)
        return Request(
            n,
            columns,
            budget,
            objective,
            scaling,
            missing,
            max_rows,
            self._currency,
            leaks,
            notes=(MissingOutcomes(rule), *map(Tuned, tunings)),
            n_users=n_users,
            dropped=self._dropped_risk(n, n_users, scaling.width(columns), budget),
        )

    def _dropped_risk(self, kept: int, n_users: int | None, features: int, budget: Budget) -> float:
        """Return the excess risk of a fit on kept rows over one on all rows, both without noise.

        The minimizer of n log-likelihoods has the excess risk d / (2 n). Other losses have none
        predicted.
        """
        loss = self._loss_of_records(budget, kept, features)
        if n_users is None or loss.slope_relation not in ("logistic", "softmax"):
            return 0.0
        every = max(kept, n_users * self._typical_rows())
        return features * loss.outputs / 2 * (1 / kept - 1 / every)

    def _typical_rows(self) -> float:
        """Return the public typical number of rows of a user."""
        if self.rows_per_user is None:
            return float(self.max_rows_per_user or 1)
        return positive("rows_per_user", self.rows_per_user)

    def _user_facts(self, n: int, users: int | None) -> tuple[int, int | None, int | None]:
        """Return the number of records that a cap leaves, the cap, and the number of users.

        The number of records is private; that of users is public under replace-one.
        """
        if self.max_rows_per_user is None and self.rows_per_user is None:
            raise ValueError(
                "to protect users give max_rows_per_user, the largest number of records of one "
                "user that are used, or rows_per_user, a typical number that is public"
            )
        given = None if self.n_users is None else integer("n_users", self.n_users)
        if None not in (given, users) and given != users:
            raise ValueError(
                f"with relation='replace' the number of users is public, and there are {users}: "
                f"leave out n_users, which is {given}"
            )
        n_users, most = users if given is None else given, self.max_rows_per_user
        if most is not None:
            most = integer("max_rows_per_user", most)
        if n_users is not None:
            kept = self._typical_rows() if most is None else min(most, self._typical_rows())
            return max(1, round(n_users * kept)), most, n_users
        if most is None:
            raise ValueError(
                "with relation='add_remove' the number of users is private: give n_users, a "
                "number near it that was not read off the data"
            )
        return n, most, None

    def _set_weights(self, weights: Floats, scaling: Scaling) -> None:
        """Set the fitted attributes that follow from the released weights."""
        raise NotImplementedError

    def _outputs(self, rows: Matrix) -> Floats:
        """Return what the weights make of scaled rows."""
        return row_products(rows, self.weights_)

    def _release(
        self, rows: Matrix, labels: Values, user_ids: Column = None
    ) -> tuple[Release, Scaling, Floats]:
        """Plan, charge, run; returns the release, the scaling that was used and the weights."""
        if user_ids is not None:
            require_as_many("user_ids", user_ids, len(labels))
        data = InMemory(rows, labels, user_ids, self._public_records())
        by_user = data.users is not None
        request = self._request(
            self._declared_records(data, by_user),
            data.width,
            by_user=by_user,
            sparse=scipy_sparse.issparse(data.matrix),
            data=data,
            users=count_users(data.users) if by_user and self._relation == "replace" else None,
        )
        release = self._run(request.plan(), data)
        return release, request.used_scaling(release), np.asarray(release.output, dtype=np.float64)

    def _open(self, rows: Matrix, store: str | Path | None) -> tuple[Interaction, Scaling]:
        """Open a session for all batches, charged in full, or resume it from its state file."""
        known = self.__dict__.get("plan_")
        exists = store is not None and Path(store).exists()
        if known is not None and known.observes:
            if not exists:
                raise ValueError(
                    "this model is a copy of one that learns from batches, without its session; "
                    "pass its store= to resume it, or a new model to open and charge another"
                )
            plan, scaling = known, self.scaling_
        else:
            plan, scaling = self._stream_plan(rows)
        account = account_for(
            plan, self.ledger, self.dataset, delta=self.delta, why=type(self).__name__
        )
        if store is not None and exists:
            return resume(plan, store, account=account), scaling
        if self.random_state is not None:
            warn_seeded("partial_fit")
        session = plan.open(store=store, account=account, random_state=self.random_state)
        return session, scaling

    def _stream_plan(self, rows: Matrix) -> tuple[Plan, Scaling]:
        """Return the plan for all batches, from declared facts and the shape of a batch."""
        if self.n_declared is None:
            raise ValueError(
                "learning from batches needs n_declared: the number of records of all batches "
                "together, declared before the first one"
            )
        request = self._request(
            integer("n_declared", self.n_declared),
            rows.shape[1],
            by_user=False,
            sparse=scipy_sparse.issparse(rows),
        )
        if request.missing is not None or not isinstance(request.objective, LossObjective):
            raise ValueError(
                "learning from batches needs bounds, row_norm or schema: ranges cannot be found "
                "before the records arrive"
            )
        solver = named_solver(self.solver).using(stream=True)
        objective = replace(request.objective, solver=solver)
        return replace(request, objective=objective).plan(), request.scaling

    def _declared_records(self, data: InMemory, by_user: bool) -> int:
        """Return the number of records that plans may use; users need none."""
        facts = self.n_users is not None or self.max_rows_per_user is None
        if by_user and (facts or self._relation == "replace"):
            return 1
        return self._declared_n(data.n)

    def _public_records(self) -> InMemory | None:
        """Return the records that need no protection, read as the private ones are."""
        if self.public is None:
            return None
        rows, labels = _checked_pair(self.public)
        return InMemory(self._known_rows(rows), self._public_labels(labels))

    def _known_rows(self, X: Rows) -> Matrix:
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

    def _public_labels(self, labels: Column) -> Floats:
        return np.asarray(labels, dtype=np.float64)

    def _validated(self, X: Rows, y: Column) -> tuple[Matrix, Values]:
        """Return rows and labels. Only public facts raise: shapes, types, names; values do not.

        Values are repaired later.
        """
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
            self.feature_names_in_ = np.array(
                [column.name for column in self.schema.columns], dtype=object
            )
            self.n_features_in_ = len(self.feature_names_in_)
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        labels = labels_of(y)
        require_as_many("y", labels, rows.shape[0])
        if self.schema is not None:
            self.schema.check_outcomes(Table({"y": y}), "y")
        return rows, labels

    def _rows(self, X: Rows) -> Matrix:
        """Return rows to predict for, bounded as in training."""
        check_is_fitted(self)
        if self.schema is None:
            require_numbers("X", X, axes=2)
        return self.scaling_.rows(self._known_rows(X), finite=True)

    def _set_fitted(self, release: Release, scaling: Scaling) -> None:
        super()._set_fitted(release, scaling)
        self.chosen_indices_ = released_columns(release)

    @property
    def chosen_columns_(self) -> tuple[str | int, ...] | None:
        """Names of the columns that were chosen privately and fitted, in the order of the table.

        They are numbers if the columns have no names, and None if the solver chooses no columns.
        The choice is released: a chosen column may have a coefficient of zero.
        """
        check_is_fitted(self)
        if self.chosen_indices_ is None:
            return None
        return tuple(self._column_name(column) for column in self.chosen_indices_.tolist())

    def _column_name(self, column: int) -> str | int:
        """Return the name of a coefficient's column, or its number if it has none."""
        names = getattr(self, "feature_names_in_", None)
        names = names if self.schema is None else self.schema.names
        return column if names is None else str(names[column])

    def summary(self) -> Summary:
        """Return coefficients by column, chosen columns and guarantee; it prints as a table.

        >>> X = np.linspace(-1, 1, 20_000)[:, None]
        >>> from dpfit.models import LogisticRegression
        >>> model = LogisticRegression(1.0, bounds=(-1, 1)).fit(X, X[:, 0] > 0)
        >>> [name for name, values in model.summary().coefficients]
        ['column 0', 'intercept']
        """
        check_is_fitted(self)
        return summarize(self)

    def noise_interval(self, level: float = 0.95) -> NoiseInterval:
        """Return intervals for noiseless coefficients and intercepts, each at ``level``.

        The intervals cover privacy noise alone: neither the sampling of the records, nor a ridge,
        clipping, or the choice of a user's rows. They come from the plan and from released values,
        so they cost nothing and hold for all records. With ``solver="output_perturbation"`` the
        probability is ``level`` exactly. After ``objective_perturbation`` it is at least ``level``,
        and the intervals are wide where the ridge is small. For other solvers the effect of noise
        depends on the records: AttributeError.

        >>> X = np.linspace(-1, 1, 2000)[:, None]
        >>> from dpfit.models import LogisticRegression
        >>> model = LogisticRegression(1.0, bounds=(-1, 1), solver="output_perturbation").fit(
        ...     X, X[:, 0] > 0
        ... )
        >>> lower, upper = model.coef_noise_interval_
        >>> (
        ...     bool((lower < model.coef_).all() and (model.coef_ < upper).all()),
        ...     model.noise_interval().exact,
        ... )
        (True, True)
        """
        check_is_fitted(self)
        length, exact = noise_bound(self.plan_, level)
        coef, intercept = self.scaling_.leverage(np.shape(self.coef_)[-1])
        return NoiseInterval(
            Ends.around(self.coef_, length * coef),
            Ends.around(self.intercept_, length * intercept),
            level,
            exact,
        )

    @property
    def coef_noise_interval_(self) -> Ends[Floats]:
        """`noise_interval` of the coefficients at level 0.95: privacy noise alone."""
        return self.noise_interval().coef

    @property
    def intercept_noise_interval_(self) -> Ends[Floats] | Ends[float]:
        """`noise_interval` of the intercepts at level 0.95: privacy noise alone."""
        return self.noise_interval().intercept

    def fit(self, X: Rows, y: Column, user_ids: Column = None) -> Self:
        raise NotImplementedError


def _checked_pair(public: tuple[Rows, Sized]) -> tuple[Rows, Sized]:
    try:
        rows, labels = public
        len(labels)
    except (TypeError, ValueError):
        raise ValueError(
            "public must be a pair (X0, y0) of public records and their labels"
        ) from None
    return rows, labels
