"""Users who contribute several records: cap the records of each, then charge for all of them.

Guarantee: that of the plan for groups of ``max_rows`` records, under add/remove of one user with all records.
Which records of a user are kept is random and does not depend on other users, so one user changes at most ``max_rows``
of the kept records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from dpfit.core import DataFacts, Run, Transformation
from dpfit.data.users import bounded_contributions
from dpfit.data.view import View
from dpfit.privacy import Assumption, Basis, Budget
from dpfit.privacy.check import count
from dpfit.privacy.event import Event, Group

_ROUNDING = 2.0**-48


@dataclass(frozen=True)
class UserCap(Transformation):
    """At most ``max_rows`` records of each user, drawn afresh in each run; records of nobody are dropped."""

    kind = "user_cap"
    draws: ClassVar[bool] = True
    max_rows: int

    def __post_init__(self) -> None:
        count("max_rows", self.max_rows)

    def transform(self, data: View, run: Run) -> View:
        kept = bounded_contributions(data.users, self.max_rows, run.noise)
        return data.with_fresh_positions(data.rows(kept), unit="record")

    def event(self, inner: Event) -> Event:
        return Group(inner, self.max_rows)

    def basis(self, inner: Basis) -> Basis:
        if (inner.relation, inner.unit) != ("add_remove", "record"):
            raise ValueError("users are protected by a plan for records under add/remove")
        capped = Assumption(f"at most {self.max_rows} records of each user are used", "enforced")
        return replace(
            inner, theorem=f"{inner.theorem}; group privacy", unit="user", assumptions=(*inner.assumptions, capped)
        )

    def data_facts(self, inner: DataFacts) -> DataFacts:
        return DataFacts(None, inner.width)


def record_budget(budget: Budget, max_rows: int) -> Budget:
    """Return the budget of one record, so that ``max_rows`` records together stay within ``budget``.

    Pure epsilon and mu of a group are at most the number of records times those of one ([Gan22] Fact 9; groups under
    Gaussian DP, Dong, Roth and Su 2022); rho grows with the square.

    >>> round(record_budget(Budget(epsilon=1.0, relation="add_remove", unit="user"), 4).epsilon, 12)
    0.25
    """
    # The guarantee for a group is rounded up; a little less for each record leaves room for that.
    share = (1 - _ROUNDING) / count("max_rows", max_rows)
    if budget.kind == "pure":
        return Budget(epsilon=float(budget.epsilon or 0.0) * share, relation=budget.relation)
    return Budget(mu=budget.gaussian_mu * share, relation=budget.relation)


def record_budgets(budget: Budget, max_rows: int) -> tuple[Budget, ...]:
    """Return budgets of one record: with each of them, ``max_rows`` records together stay within ``budget``.

    A group of m records under (e, d)-DP has (m e, (exp(m e) - 1) / (exp(e) - 1) d)-DP ([Gan22] Fact 9).

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
