"""Is this the data that the plan was made for? Asked by the runner, before anything is charged.

Under replace-one the number of records is public, so a wrong number is an error that says it. Under add/remove, and
for users, it is private: nothing compares or prints it.
"""

from __future__ import annotations

from typing import NamedTuple

from dpfit.data.view import OpaqueView, View
from dpfit.privacy import Basis


class DataFacts(NamedTuple):
    """What a plan was made for: the number of units and the width of rows, None where any will do."""

    n: int | None = None
    width: int | None = None


def check_facts(data: View, facts: DataFacts, basis: Basis) -> None:
    """Compare the public facts of data with those of a plan."""
    if facts.width is not None:
        if isinstance(data, OpaqueView):
            got = type(data.given).__name__
            raise ValueError(f"data must be a Dataset, got {got}; wrap it as InMemory(rows, labels)")
        if data.width != facts.width:
            raise ValueError(f"data must have rows of {facts.width} entries, got {data.width}; plan for that width")
    if basis.unit == "user":
        if isinstance(data, OpaqueView) or not data.has_users:
            raise ValueError("the records do not say whose they are: give user ids")
        return
    if basis.relation == "replace" and facts.n is not None and hasattr(data.given, "__len__"):
        n = len(data.given)
        if n != facts.n:
            raise ValueError(f"the plan is for n = {facts.n} records, the data have {n}; plan for that n")
