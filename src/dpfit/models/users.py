"""Users who contribute several records: cap the records of each, then charge for all of them.

Guarantee: that of the plan for groups of ``max_rows`` records, under add/remove of one user with
all records. Which records of a user are kept is random and does not depend on other users, so one
user changes at most ``max_rows`` of the kept records. A replaced user may change their number, so
the plan behind the cap is one for add/remove there, too: ``max_rows`` records leave, and as many
enter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from dpfit.core import DataFacts, Run, Transformation
from dpfit.data.users import bounded_contributions
from dpfit.data.view import View
from dpfit.privacy import Assumption, Basis, Budget
from dpfit.privacy.event import Event, Group, Replaced
from dpfit.privacy.validate import integer, option

_ROUNDING = 2.0**-48


@dataclass(frozen=True)
class UserCap(Transformation):
    """At most ``max_rows`` records a user, drawn afresh each run; nobody's are dropped."""

    kind = "user_cap"
    draws: ClassVar[bool] = True
    omitted: ClassVar = ("relation",)
    max_rows: int
    relation: str = "add_remove"

    def __post_init__(self) -> None:
        integer("max_rows", self.max_rows)
        option("relation", self.relation, ("replace", "add_remove"))

    def transform(self, data: View, run: Run) -> View:
        kept = bounded_contributions(data.users, self.max_rows, run.noise)
        kept_view = data.with_fresh_positions(data.rows(kept), unit="record")
        # The number of kept records is private under both relations.
        kept_view.relation = "add_remove"
        return kept_view

    def event(self, inner: Event) -> Event:
        group = Group(inner, self.max_rows)
        return group if self.relation == "add_remove" else Replaced(group)

    def basis(self, inner: Basis) -> Basis:
        if (inner.relation, inner.unit) != ("add_remove", "record"):
            raise ValueError("users are protected by a plan for records under add/remove")
        capped = Assumption(f"at most {self.max_rows} records of each user are used", "enforced")
        return replace(
            inner,
            theorem=f"{inner.theorem}; group privacy",
            relation=self.relation,
            unit="user",
            assumptions=(*inner.assumptions, capped),
        )

    def data_facts(self, inner: DataFacts) -> DataFacts:
        return DataFacts(None, inner.width)


def record_budget(budget: Budget, max_rows: int) -> Budget:
    """Return the add/remove budget of one record: ``max_rows`` together stay within ``budget``.

    Pure epsilon and mu of a group are at most the number of records times those of one ([Gan22]
    Fact 9; groups under Gaussian DP, Dong, Roth and Su 2022); rho grows with the square.

    >>> round(record_budget(Budget(epsilon=1.0, relation="add_remove", unit="user"), 4).epsilon, 12)
    0.25
    """
    # The guarantee for a group is rounded up; a little less for each record leaves room for that.
    share = (1 - _ROUNDING) / integer("max_rows", max_rows)
    if budget.kind == "pure":
        return Budget(epsilon=float(budget.epsilon or 0.0) * share, relation="add_remove")
    return Budget(mu=budget.gaussian_mu * share, relation="add_remove")


def cap_and_budgets(budget: Budget, max_rows: int) -> tuple[UserCap, tuple[Budget, ...]]:
    """Return the cap that protects users within ``budget``, and the budgets of one kept record.

    >>> cap, budgets = cap_and_budgets(Budget(mu=1.0, unit="user"), 5)
    >>> cap.relation, round(budgets[0].mu, 3)
    ('replace', 0.1)
    """
    moved = max_rows if budget.relation == "add_remove" else 2 * max_rows
    return UserCap(max_rows, budget.relation), record_budgets(budget, moved)


def record_budgets(budget: Budget, max_rows: int) -> tuple[Budget, ...]:
    """Return budgets of one record: with each, ``max_rows`` together stay within ``budget``.

    A group of m records under (e, d)-DP has (m e, (exp(m e) - 1) / (exp(e) - 1) d)-DP ([Gan22] Fact
    9).

    >>> record_budgets(Budget(epsilon=1.0, relation="add_remove"), 1)
    (Budget(epsilon=0.9999999999999964, relation='add_remove'),)
    """
    own = record_budget(budget, max_rows)
    if budget.kind != "approximate" or budget.epsilon is None or budget.delta is None:
        return (own,)
    pure = record_budget(replace(budget, delta=None), max_rows)
    epsilon = float(pure.epsilon or 0.0)
    # One over the sum of exp(i e), in a form that does not overflow; 0 leaves a pure budget.
    share = math.exp(epsilon - budget.epsilon) * math.expm1(-epsilon) / math.expm1(-budget.epsilon)
    return own, replace(pure, delta=budget.delta * share)
