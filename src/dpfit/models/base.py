"""Shared by estimators: parameters, declared number of records, run, fitted attributes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from sklearn.base import BaseEstimator
from sklearn.utils import Tags

from dpfit.core import Plan, Release
from dpfit.core.runner import Progress
from dpfit.data.dataset import Dataset
from dpfit.ledger import Ledger, account_for, currency_of
from dpfit.models.leaks import warn_caller, warn_renamed, warn_seeded
from dpfit.models.scaling import Scaling
from dpfit.privacy import Budget, Guarantee
from dpfit.privacy.validate import did_you_mean, integer, probability

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound="PrivateEstimator")

FORMER = {"neighbours": "relation", "n_public": "n_declared"}
"""Former names of parameters, which work in this version."""


_NO_PROGRESS: Progress | None = None


@dataclass(eq=False, repr=False)
class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """What every private estimator knows: its budget, its neighbouring relation, its ledger.

    Parameters are fields of dataclasses, so that concrete models add their own to those they
    inherit. A former name is a parameter, too, None by default: it warns when it is used, so that
    cloning a model does not warn.
    """

    epsilon: float = 1.0
    delta: float = 0.0
    _: KW_ONLY
    relation: str = "replace"
    n_declared: int | None = None
    ledger: Ledger | str | Path | None = None
    dataset: str | None = None
    random_state: int | None = None
    neighbours: str | None = None
    n_public: int | None = None

    report_progress = _NO_PROGRESS  # an annotation would make it a parameter
    """Set it on a model: `fit` calls it with the share of the planned work that is done, where a
    solver tells.
    """

    def _budget(self, n: int, unit: str = "record") -> Budget:
        """Return the budget of a fit to ``n`` units; delta must be far below 1 / n."""
        integer("n", n)
        if self.epsilon is None:
            raise ValueError(
                "epsilon must be a number above 0, got None; smaller means more private, 1 is "
                "common"
            )
        if self.delta and probability("delta", self.delta) >= 1 / n:
            warn_caller(
                f"delta = {self.delta:g} is not far below 1 / n = {1 / n:g}: releasing a random "
                f"{unit} outright would "
                "be allowed; take delta below 0.01 / n"
            )
        return Budget(
            epsilon=self.epsilon, delta=self.delta or None, relation=self._relation, unit=unit
        )

    @property
    def _relation(self) -> str:
        relation = _current("neighbours", self.neighbours, self.relation)
        if relation not in ("replace", "add_remove"):
            close = did_you_mean(relation, ("replace", "add_remove")).rstrip()
            raise ValueError(
                f"relation must be 'replace' or 'add_remove', got {relation!r}"
                + (f"; {close}" if close else "")
            )
        return str(relation)

    def _declared_n(self, records: int) -> int:
        """Return the number of records that plans may use."""
        given = _current("n_public", self.n_public, self.n_declared)
        given = None if given is None else integer("n_declared", given)
        if self._relation == "replace":
            if given not in (None, records):
                raise ValueError(
                    "with relation='replace' the number of records is public, and there are "
                    f"{records}: leave out "
                    f"n_declared, which is {given}"
                )
            return records
        if given is None:
            raise ValueError(
                "with relation='add_remove' the number of records is private: give n_declared, a "
                "number near it that "
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

    def _run(self, plan: Plan, data: Dataset) -> Release:
        """Run a plan, charged to the ledger if there is one."""
        if self.random_state is not None:
            warn_seeded("fit")
        account = account_for(
            plan, self.ledger, self.dataset, delta=self.delta, why=type(self).__name__
        )
        return plan.run(
            data, account=account, random_state=self.random_state, progress=self.report_progress
        )

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

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        return tags


def _current(former: str, given: T | None, value: T) -> T:
    """Return the value of a renamed parameter, or what was given under the former name."""
    if given is None:
        return value
    warn_renamed(former, FORMER[former])
    return given


def atomic_fit(fit: Callable[Concatenate[M, P], M]) -> Callable[Concatenate[M, P], M]:
    """Return a `fit` that restores the model if it raises, and that explains missing weights.

    The signature stays that of ``fit``: scikit-learn hands weights to models that name them there.
    The former name ``user_id`` of ``user_ids`` works in this version. User ids are passed by name:
    elsewhere the third argument is a weight.
    """

    @wraps(fit)
    def whole(self: M, /, *args: P.args, **named: P.kwargs) -> M:
        # The third argument of other libraries is sample_weight, never ids of users.
        weighted = named.pop("sample_weight", None) is not None
        if weighted or (len(args) > 2 and args[2] is not None):
            raise TypeError(
                ("" if weighted else "fit takes user_ids by name, as in user_ids=ids. ")
                + f"{type(self).__name__} takes no sample_weight: a weight multiplies what one "
                "record can do, and the "
                "noise is set for records that count once. Fit without weights; where fit has "
                "user_ids, rows may be "
                "repeated instead, with the record's number as user id and max_rows_per_user at "
                "the largest weight"
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

    return whole
