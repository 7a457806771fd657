"""What all estimators share: parameters, the declared number of records, the run, fitted attributes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import wraps
from typing import Any, ClassVar, TypeVar, cast

from sklearn.base import BaseEstimator

from dpfit.core import Plan, Release
from dpfit.ledger import account_for, currency_of
from dpfit.models.leaks import warn_caller, warn_renamed, warn_seeded
from dpfit.models.scaling import Scaling
from dpfit.privacy import Budget, Guarantee
from dpfit.privacy.check import count, probability

Fit = TypeVar("Fit", bound=Callable[..., Any])

FORMER = {"neighbours": "relation", "n_public": "n_declared"}
"""Former names of parameters, which work in this version."""


@dataclass(eq=False, repr=False)
class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """What every private estimator knows: its budget, its neighbouring relation, its ledger.

    Parameters are fields of dataclasses, so that concrete models add their own to those they inherit. A former name is
    a parameter, too, None by default: it warns when it is used, so that cloning a model does not warn.
    """

    epsilon: float = 1.0
    delta: float = 0.0
    _: KW_ONLY
    relation: str = "replace"
    n_declared: int | None = None
    ledger: Any = None
    dataset: str | None = None
    random_state: int | None = None
    neighbours: Any = None
    n_public: Any = None

    report_progress: ClassVar[Callable[[float], None] | None] = None
    """Set it on a model: `fit` calls it with the share of the planned work that is done, where a solver tells."""

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

    def _current(self, name: str) -> Any:
        """Return a parameter that had another name, from the old name if that was given."""
        old = next(old for old, new in FORMER.items() if new == name)
        given = getattr(self, old, None)
        if given is None:
            return getattr(self, name)
        warn_renamed(old, name)
        return given

    @property
    def _relation(self) -> str:
        relation = self._current("relation")
        if relation not in ("replace", "add_remove"):
            raise ValueError(f"relation must be 'replace' or 'add_remove', got {relation!r}")
        return str(relation)

    def _declared_n(self, records: int) -> int:
        """Return the number of records that plans may use."""
        given = self._current("n_declared")
        given = None if given is None else count("n_declared", given)
        if self._relation == "replace":
            if given not in (None, records):
                raise ValueError(
                    f"with relation='replace' the number of records is public, and there are {records}: leave out "
                    f"n_declared, which is {given}"
                )
            return records
        if given is None:
            raise ValueError(
                "with relation='add_remove' the number of records is private: give n_declared, a number near it that "
                "was not read off the data"
            )
        return given

    @property
    def _least_records(self) -> int:
        """How many records there must be; under add/remove whether there are any is private."""
        return 1 if self._relation == "replace" else 0

    @property
    def _currency(self) -> str | None:
        """The currency in which the ledger charges the plan; None without a ledger."""
        return currency_of(self.ledger, self.dataset)

    def _run(self, plan: Plan, data: Any) -> Release:
        """Run a plan, charged to the ledger if there is one."""
        if self.random_state is not None:
            warn_seeded("fit")
        account = account_for(plan, self.ledger, self.dataset, delta=self.delta, why=type(self).__name__)
        return plan.run(data, account=account, random_state=self.random_state, progress=self.report_progress)

    def _set_fitted(self, release: Release, scaling: Scaling) -> None:
        """Set the attributes of every fitted estimator."""
        self.plan_ = release.plan
        self.guarantee_ = self._shown(release.plan)
        self.private_ = release.private
        self.scaling_ = scaling
        self.n_iter_ = int(max(1.0, release.plan.work.passes))

    def _shown(self, plan: Plan) -> Guarantee:
        """Return the guarantee of a plan, printed at the delta of the budget."""
        return replace(plan.guarantee, shown_at=self.delta) if self.delta else plan.guarantee

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        return tags


def atomic_fit(fit: Fit) -> Fit:
    """Return a `fit` that leaves the model as it was if it raises, and that says why it takes no weights.

    The signature stays that of ``fit``: scikit-learn hands weights to models that name them there. The former name
    ``user_id`` of ``user_ids`` works in this version.
    """

    @wraps(fit)
    def whole(self: Any, *args: Any, sample_weight: Any = None, **named: Any) -> Any:
        if sample_weight is not None:
            raise TypeError(
                f"{type(self).__name__} takes no sample_weight: a weight multiplies what one record can do, and the "
                "noise is set for records that count once. Fit without weights; where fit has user_ids, rows may be "
                "repeated instead, with the record's number as user id and max_rows_per_user at the largest weight"
            )
        if "user_id" in named:
            warn_renamed("user_id", "user_ids")
            named["user_ids"] = named.pop("user_id")
        before = dict(self.__dict__)
        try:
            return fit(self, *args, **named)
        except BaseException:
            self.__dict__ = before
            raise

    return cast(Fit, whole)
