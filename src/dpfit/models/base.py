"""What all models share: public facts in, a plan, a run through the one runner, attributes out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial, wraps
from inspect import signature
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dpfit.catalogue import ENTRIES
from dpfit.core import Answer, Minimize, Plan, Release
from dpfit.data.dataset import InMemory
from dpfit.data.schema import Schema
from dpfit.ledger import account_for
from dpfit.losses import Bounds
from dpfit.losses.base import Loss
from dpfit.mechanisms.private_bounds import ColumnRanges, private_bounds
from dpfit.models.inputs import labels_of, require_as_many, require_numbers, validated
from dpfit.models.intervals import Ends, NoiseInterval, noise_reach
from dpfit.models.leaks import FROM_DATA, leaky, warn_caller
from dpfit.models.ranges import after, ends, is_noiseless, read_off, shares
from dpfit.models.scaling import Scaling, scaled
from dpfit.models.users import PerUser, record_budgets
from dpfit.privacy import Budget, Guarantee
from dpfit.privacy.check import count, non_negative, one_of, positive, probability
from dpfit.solvers.auto import auto
from dpfit.solvers.public_data.descent import RECORDS_PER_DIMENSION

Floats = NDArray[np.float64]
Fit = TypeVar("Fit", bound=Callable[..., Any])


@dataclass(eq=False, repr=False)
class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """What every private estimator knows: its budget, its neighbours, its ledger.

    Parameters are the fields of dataclasses, so that concrete models add their own to those they inherit.
    """

    epsilon: float = 1.0
    delta: float = 0.0
    _: KW_ONLY
    neighbours: str = "replace"
    n_public: int | None = None
    ledger: Any = None
    dataset: str | None = None
    random_state: int | None = None

    report_progress: ClassVar[Callable[[float], None] | None] = None
    """Set it on a model to be told by `fit` which share of the planned work is done, where a solver can say."""

    def _budget(self, n: int) -> Budget:
        count("n", n)
        if self.epsilon is None:
            raise ValueError("epsilon must be a number above 0, got None; smaller means more private, 1 is common")
        if self.delta and probability("delta", self.delta) >= 1 / n:
            warn_caller(
                f"delta = {self.delta:g} is not far below 1 / n = {1 / n:g}: releasing a random record outright would "
                "be allowed; take delta below 0.01 / n"
            )
        return Budget(epsilon=self.epsilon, delta=self.delta or None, relation=self._relation)

    @property
    def _relation(self) -> str:
        if self.neighbours not in ("replace", "add_remove"):
            raise ValueError(f"neighbours must be 'replace' or 'add_remove', got {self.neighbours!r}")
        return str(self.neighbours)

    def _public_n(self, records: int) -> int:
        """The number of records that plans may use."""
        given = None if self.n_public is None else count("n_public", self.n_public)
        if self._relation == "replace":
            if given not in (None, records):
                raise ValueError(
                    f"with neighbours='replace' the number of records is public, and there are {records}: leave out "
                    f"n_public, which is {given}"
                )
            return records
        if given is None:
            raise ValueError(
                "with neighbours='add_remove' the number of records is private: give n_public, a number near it that "
                "was not read off the data"
            )
        return given

    @property
    def _least_records(self) -> int:
        """How many records there must be; under add/remove whether there are any is private."""
        return 1 if self._relation == "replace" else 0

    def _run(self, plan: Plan, data: Any) -> Release:
        """Run a plan, charged to the ledger if there is one."""
        if self.random_state is not None:
            warnings.warn(
                "random_state fixes the noise: whoever knows it can subtract the noise, so this fit is not private",
                UserWarning,
                stacklevel=5,
            )
        account = account_for(plan, self.ledger, self.dataset, delta=self.delta, why=type(self).__name__)
        return plan.run(data, account=account, random_state=self.random_state, progress=self.report_progress)

    def _keep(self, release: Release, scaling: Scaling) -> None:
        """The attributes of every fitted estimator."""
        self.plan_ = release.plan
        self.guarantee_ = self._shown(release.plan)
        self.private_ = release.private
        self.scaling_ = scaling
        self.n_iter_ = int(max(1.0, release.plan.work.passes))

    def _shown(self, plan: Plan) -> Guarantee:
        """The promise of a plan, printed at the delta that was asked for."""
        return replace(plan.guarantee, shown_at=self.delta) if self.delta else plan.guarantee

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        return tags


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
    solver: str = "auto"
    max_passes: int | None = None
    public: Any = None

    def plan(self, n: int, n_features: int | None = None, *, by_user: bool = False) -> Plan:
        """What `fit` would do on ``n`` records of ``n_features`` columns: no data needed, nothing spent.

        A schema knows the number of columns. ``by_user`` is for a fit that is told whose the records are.
        """
        self._require_schema()
        columns = n_features if self.schema is None else len(self.schema.names)
        return self._plan(n, count("n_features", columns), by_user=by_user)[0]

    def _require_schema(self) -> None:
        if not isinstance(self.schema, Schema | None):
            raise ValueError(
                f"schema must be a dpfit.Schema, got {type(self.schema).__name__}; Schema.read reads one from a file"
            )

    def _loss(self, scaling: Scaling, budget: Budget, n: int, n_features: int) -> Loss:
        raise NotImplementedError

    def _label_ends(self) -> tuple[float, float] | None:
        """The public range of the labels, where the model has one."""
        return None

    _labels_have_range = False

    def _facts(self, columns: int) -> tuple[Scaling, ColumnRanges | None]:
        """The scaling by what is declared, and the ranges that are left to find."""
        label = self._label_ends()
        low = high = None
        if self.schema is not None and (self.bounds is not None or self.row_norm is not None):
            raise ValueError("a schema bounds the rows: give either schema, or bounds and row_norm")
        if isinstance(self.bounds, str):
            one_of("bounds, if not a pair (lower, upper),", self.bounds, ("private", FROM_DATA))
        elif self.bounds is not None:
            low, high = ends(self.bounds, columns)
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
        """The norm that rows are capped at: the declared one, or just above that of rows that fill their ranges evenly.

        Columns that are uniform on [-1, 1] have mean squares of 1 / 3. Less would shorten most rows, more would let one
        record do more than records do.
        """
        if self.schema is not None:
            return self.schema.bound
        even = math.sqrt(min(columns, 2 + columns / 3))
        return even if self.row_norm is None else positive("row_norm", self.row_norm)

    def _plan(
        self, n: int, columns: int, data: Any = None, *, by_user: bool = False
    ) -> tuple[Plan, Scaling, ColumnRanges | None]:
        """The plan, the scaling by facts that are public, and the ranges that the plan finds for it."""
        scaling, missing = self._facts(columns)
        # Centred columns of a sparse matrix would have no zeros left.
        scaling = replace(scaling, centred=data is None or not sparse.issparse(data.matrix))
        leaks = missing is not None and _is_text(self.bounds, FROM_DATA) and data is not None
        if missing is not None and leaks:
            scaling, missing = read_off(scaling, missing, data), None
        ways = [way for budget in self._record_budgets(n, by_user) for way in shares(budget, missing)]
        planned = [(way[1], partial(self._plan_records, n, columns, scaling, missing, *way)) for way in ways]
        plan = _least_risk([plan for budget, plan in planned if is_noiseless(budget)], [plan for _, plan in planned])
        if leaks:
            plan = leaky(plan, "ranges were read off the data and are not protected")
        return (PerUser(plan, int(self.max_rows_per_user or 0)) if by_user else plan), scaling, missing

    def _record_budgets(self, n: int, by_user: bool) -> tuple[Budget, ...]:
        """What a record may cost: any of them keeps the budget."""
        budget = self._budget(n)
        if not by_user:
            return (budget,)
        if budget.relation != "add_remove" or self.max_rows_per_user is None:
            raise ValueError(
                "to protect users give neighbours='add_remove', n_public and max_rows_per_user, the largest number "
                "of records of one user that are used"
            )
        return record_budgets(budget, count("max_rows_per_user", self.max_rows_per_user))

    def _plan_records(
        self,
        n: int,
        columns: int,
        scaling: Scaling,
        missing: ColumnRanges | None,
        first: Budget | None,
        second: Budget,
    ) -> Plan:
        fitted = scaled(self._solve(n, columns, scaling, second), scaling, missing)
        if missing is None or first is None:
            return fitted
        return after(private_bounds.plan(Answer(n=n, workload=missing), first), fitted)

    def _solve(self, n: int, columns: int, scaling: Scaling, budget: Budget) -> Plan:
        features = columns + bool(scaling.constant)
        labels = (-1.0, 1.0) if self._labels_have_range else (None, None)
        problem = Minimize(
            n=n,
            loss=self._loss(scaling, budget, n, features),
            bounds=Bounds(scaling.bound, *labels),
            n_features=features,
            ridge=non_negative("ridge", self.ridge),
        )
        if self.public is not None:
            if budget.kind == "pure":
                raise ValueError(
                    "a fit that starts from public records needs delta > 0 (far below 1 / n), or no public"
                )
            # With few public records their curvature is a guess, and a plain descent from their fit is safer; with very
            # few their fit may be worse than none.
            records = len(self._public_pair()[1])
            best = "pda_dpmd" if records > 2 * features else "warm_start_gd"
            if self.solver != "auto" or records >= RECORDS_PER_DIMENSION * problem.dimension:
                return self._planned_by(best if self.solver == "auto" else self.solver, problem, budget)
        return self._planned_by(self.solver, problem, budget)

    def _planned_by(self, name: str, problem: Minimize, budget: Budget) -> Plan:
        solvers = {entry.name: entry for entry in ENTRIES if entry.problem == Minimize.kind}
        one_of("solver", name, ("auto", *solvers))
        solver: Any = auto if name == "auto" else solvers[name].load()
        if self.max_passes is None:
            return cast(Plan, solver.plan(problem, budget))
        if "max_passes" not in signature(solver.plan).parameters:
            raise ValueError(f"{name} plans its passes by itself: leave out max_passes, or choose another solver")
        return cast(Plan, solver.plan(problem, budget, max_passes=count("max_passes", self.max_passes)))

    def _release(self, rows: Any, labels: Any, users: Any = None) -> tuple[Release, Scaling, Floats]:
        """Plan, charge, run; returns the release, the scaling that was used and the weights."""
        if users is not None:
            require_as_many("user_id", users, len(labels))
        data = InMemory(rows, labels, users, self._public_records())
        n = self._public_n(data.n)
        plan, scaling, missing = self._plan(n, data.width, data, by_user=users is not None)
        release = self._run(plan, data)
        value = release.value
        if missing is not None:
            scaling = scaling.within(missing, value[0])
        # What the last stage released is the parameter.
        value = value[-1] if isinstance(value, tuple) else value
        return release, scaling, np.asarray(value, dtype=np.float64)

    def _public_records(self) -> InMemory | None:
        """The records that need no protection, read as the private ones are."""
        if self.public is None:
            return None
        rows, labels = self._public_pair()
        return InMemory(self._known_rows(rows), self._public_labels(labels))

    def _known_rows(self, X: Any) -> Any:
        """More rows like those of the fit."""
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
        """Rows and labels. Only public facts can be wrong: shapes, types, names; values are repaired later."""
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
        """Rows to predict for, bounded as in training."""
        check_is_fitted(self)
        if self.schema is None:
            require_numbers("X", X, axes=2)
        return self.scaling_.rows(self._known_rows(X), finite=True)

    def noise_interval(self, level: float = 0.95) -> NoiseInterval:
        """What coefficients and intercepts would have been without privacy noise, each with probability ``level``.

        This covers privacy noise alone: not the choice of the records among all people, not a ridge, not clipping, and
        not which rows of a user are kept. It comes from the plan and from released values, so it costs nothing and
        holds whatever the records are. ``solver="output_perturbation"`` has noise of a known law, and the probability
        is ``level`` exactly. After ``objective_perturbation`` it is at least that, and the ends are far apart where the
        ridge is small. For other solvers the effect of noise depends on the records: AttributeError.

        >>> X = np.linspace(-1, 1, 2000)[:, None]
        >>> from dpfit.models import LogisticRegression
        >>> model = LogisticRegression(1.0, bounds=(-1, 1), solver="output_perturbation").fit(X, X[:, 0] > 0)
        >>> lower, upper = model.coef_noise_interval_
        >>> bool((lower < model.coef_).all() and (model.coef_ < upper).all()), model.noise_interval().exact
        (True, True)
        """
        check_is_fitted(self)
        length, exact = noise_reach(self.plan_, level)
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

    def fit(self, X: Any, y: Any, user_id: Any = None) -> Self:
        raise NotImplementedError


def _is_text(value: Any, text: str) -> bool:
    """Whether a parameter is this text; an array has no one answer to a comparison."""
    return isinstance(value, str) and value == text


def _least_risk(preferred: list[Callable[[], Plan]], plans: list[Callable[[], Plan]]) -> Plan:
    """The plan of least predicted risk among those that can be made, of the preferred ones if there are any.

    It is the first where none predicts any risk.
    """
    for among in (preferred, plans):
        made, refusals = [], []
        for plan in among:
            try:
                made.append(plan())
            except ValueError as refusal:
                refusals.append(refusal)
        if made:
            return min(made, key=lambda plan: math.inf if plan.risk is None else plan.risk.expected)
    raise refusals[0]


def all_or_nothing(fit: Fit) -> Fit:
    """A `fit` that leaves the model as it was if it raises, and that says why it takes no weights.

    The signature stays that of ``fit``: scikit-learn hands weights to models that name them there.
    """

    @wraps(fit)
    def whole(self: Any, *args: Any, sample_weight: Any = None, **named: Any) -> Any:
        if sample_weight is not None:
            raise TypeError(
                f"{type(self).__name__} takes no sample_weight: a weight multiplies what one record can do, and the "
                "noise is set for records that count once. Fit without weights; where fit has user_id, rows may be "
                "repeated instead, with the record's number as user_id and max_rows_per_user at the largest weight"
            )
        before = dict(self.__dict__)
        try:
            return fit(self, *args, **named)
        except BaseException:
            self.__dict__ = before
            raise

    return cast(Fit, whole)
