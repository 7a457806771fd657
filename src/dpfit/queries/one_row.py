"""One row of each user: tables in which a user is a record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from dpfit.core import Run, Transformation
from dpfit.data.table import Table
from dpfit.data.users import bounded_contributions
from dpfit.data.view import OpaqueView, View
from dpfit.privacy import Assumption, Basis


class UserTable(Table):
    """A table with the column that says whose record a row is."""

    has_users = True

    def __init__(self, source: object, user: str) -> None:
        super().__init__(source)
        self.users = self.texts(user)


@dataclass(frozen=True)
class OneRowOfEachUser(Transformation):
    """One row of each user, drawn afresh in each run; rows of nobody are dropped.

    A user who joins, leaves or is replaced is then one record that does: the guarantee for records
    is one for users.
    """

    kind = "one_row_of_each_user"
    draws: ClassVar[bool] = True

    def transform(self, data: View, run: Run) -> View:
        table = data.given
        kept = bounded_contributions(table.users, 1, run.noise)
        return OpaqueView(table.taken(kept), data.relation, "record", run.noise)

    def basis(self, inner: Basis) -> Basis:
        one = Assumption("one row of each user is used", "enforced")
        return replace(inner, unit="user", assumptions=(*inner.assumptions, one))
