"""What an algorithm is to the rest of the house."""

from __future__ import annotations

from typing import Any, Protocol

from dpfit.core.plan import Plan
from dpfit.privacy import Budget


def require_records(name: str, budget: Budget) -> None:
    """Refuse a promise to users from an algorithm that bounds what a record does, not what a user does."""
    if budget.unit != "record":
        raise ValueError(
            f"{name} protects single records; for users who contribute several, plan with unit='record' and convert "
            "the guarantee with to_user(max_rows), or reduce the data to one record per user"
        )


class Algorithm(Protocol):
    """A way to solve a kind of problem: it plans, and its plan runs. One per file, one line each in the catalogue."""

    name: str

    def plan(self, problem: Any, budget: Budget, **options: Any) -> Plan:
        """The plan for a problem within a budget; raises if it cannot promise that."""

    def example(self, relation: str) -> tuple[Any, Any, Any]:
        """A small problem with two neighbouring datasets that are hard to hide, for shared tests and audits."""
