"""Protecting users who contribute several records: cap their rows, then charge for all of them.

Guarantee: that of the plan for groups of ``max_rows`` records, under add/remove of one user with all of its records.
Which rows of a user are kept is random and does not depend on other users, so one user changes at most ``max_rows``
of the kept records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from dpfit.core import Plan, Risk, Run, Work
from dpfit.data.users import bounded_contributions
from dpfit.privacy import Assumption, Basis, Budget
from dpfit.privacy.check import count
from dpfit.privacy.event import Event, Group

_ROUNDING = 2.0**-48


@dataclass(frozen=True)
class PerUser(Plan):
    """A plan on at most ``max_rows`` records of each user."""

    kind = "per_user"
    plan: Plan
    max_rows: int

    def __post_init__(self) -> None:
        count("max_rows", self.max_rows)
        if self.plan.basis.relation != "add_remove" or self.plan.basis.unit != "record":
            raise ValueError("users are protected by a plan for records under add/remove")

    @property
    def event(self) -> Event:
        return Group(self.plan.event, self.max_rows)

    @property
    def basis(self) -> Basis:
        basis = self.plan.basis
        capped = Assumption(f"at most {self.max_rows} records of each user are used", "enforced")
        return replace(
            basis, theorem=f"{basis.theorem}; group privacy", unit="user", assumptions=(*basis.assumptions, capped)
        )

    @property
    def work(self) -> Work:
        return self.plan.work

    @property
    def risk(self) -> Risk | None:
        return self.plan.risk

    def execute(self, data: Any, run: Run) -> Any:
        ids = getattr(data, "users", None)
        if ids is None:
            raise ValueError("the records do not say whose they are: give user ids")
        kept = bounded_contributions(ids, self.max_rows, run.noise)
        return self.plan.execute(data.rows(kept), run)


def record_budget(budget: Budget, max_rows: int) -> Budget:
    """What a record may cost so that ``max_rows`` of them together keep the budget.

    Pure epsilon and mu of a group are at most the number of records times those of one ([Gan22] Fact 9; groups under
    Gaussian DP, Dong, Roth and Su 2022); rho grows with the square.

    >>> round(record_budget(Budget(epsilon=1.0, relation="add_remove", unit="user"), 4).epsilon, 12)
    0.25
    """
    # The promise to a group is rounded up; a little less for each record leaves room for that.
    share = (1 - _ROUNDING) / count("max_rows", max_rows)
    if budget.kind == "pure":
        return Budget(epsilon=float(budget.epsilon or 0.0) * share, relation=budget.relation)
    return Budget(mu=budget.gaussian_mu * share, relation=budget.relation)


def record_budgets(budget: Budget, max_rows: int) -> tuple[Budget, ...]:
    """What a record may cost so that ``max_rows`` of them together keep the budget: any of them does.

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
