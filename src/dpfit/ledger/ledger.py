"""The handle of a ledger file."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from dpfit.ledger import amount, hash_chain, store
from dpfit.ledger.account import DatasetAccount
from dpfit.ledger.errors import LedgerDamaged, LedgerError
from dpfit.ledger.hash_chain import Entry
from dpfit.ledger.register import Registration, check_new_name, ends
from dpfit.ledger.verify import verify
from dpfit.privacy import Budget
from dpfit.privacy.cost import Charge
from dpfit.privacy.spec import Json

_SCHEMA = 1


@dataclass(frozen=True)
class Status:
    """State of a dataset's budget; exact amounts: epsilon, rho or mu^2, and sum of deltas."""

    dataset: str
    budget: Budget
    currency: str
    cap: Charge
    spent: Charge
    note: str
    reservations: int
    releases: int
    abandoned: int

    @property
    def left(self) -> Charge:
        """What may still be spent."""
        return self.cap + self.spent * -1

    @property
    def fits(self) -> Budget | None:
        """Largest budget of a further plan, to six decimals; None if nothing remains."""
        return amount.largest_budget(self.budget, self.currency, self.left)

    def to_json(self) -> dict[str, Json]:
        """A dictionary of plain values, amounts as exact text."""
        charges = {"cap": self.cap, "spent": self.spent, "left": self.left}
        return {
            "dataset": self.dataset,
            "budget": self.budget.to_json(),
            "currency": self.currency,
            **{name: amount.to_json(charge) for name, charge in charges.items()},
            "note": self.note,
            "reservations": self.reservations,
            "releases": self.releases,
            "abandoned": self.abandoned,
        }


class Ledger:
    """The budgets of datasets, kept in a file on a local disk.

    A ledger object is an address: copying it (as scikit-learn's ``clone`` does) gives the same
    object, pickling it gives the path, and threads, forked children and workers all spend from the
    same file.

    >>> import tempfile
    >>> ledger = Ledger.create(tempfile.mkdtemp() + "/budgets.ledger")
    >>> ledger.register("patients", Budget(epsilon=1.0))
    >>> ledger.status("patients").left.amount
    Fraction(1, 1)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Absolute, so that a worker in another directory finds the same file.
        self._path = Path(os.path.abspath(path))

    @staticmethod
    def create(path: str | os.PathLike[str]) -> Ledger:
        """Write an empty ledger file and return its handle; existing files are never touched."""
        ledger = Ledger(path)
        store.create(ledger.path)
        return ledger

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._path

    def register(
        self,
        dataset: str,
        cap: Budget,
        *,
        currency: str | None = None,
        delta_share: float | None = None,
        note: str = "",
    ) -> None:
        """Give a dataset its budget, once; registering again with the same facts changes nothing.

        ``currency`` and ``delta_share`` say how an (epsilon, delta) budget is kept: see
        `dpfit.ledger.cap.cap_of`.
        """
        wanted = Registration.of(dataset, cap, currency, delta_share, note)
        with store.writing(self.path) as db:
            if (rows := hash_chain.registered(db, dataset)) is None:
                _refuse_to_start_over(db, dataset)
                check_new_name(dataset, hash_chain.pointers(db))
                hash_chain.append(db, dataset, "register", wanted.facts, Charge(amount.ZERO))
            elif not wanted.same(known := Registration.from_entry(rows[0])):
                raise LedgerError(
                    f"dataset {dataset!r} is registered with {known.budget} in "
                    f"{known.cap.currency} currency; a "
                    "budget cannot be changed, since promises were made under it"
                )

    def account(
        self, dataset: str, who: str = "", why: str = "", as_approximate: float | None = None
    ) -> DatasetAccount:
        """The account for ``plan.run(data, account=ledger.account("patients"))``."""
        return DatasetAccount(self.path, dataset, who, why, as_approximate)

    def datasets(self) -> list[str]:
        """The names of all datasets, in order of registration."""
        with store.reading(self.path) as db:
            return list(hash_chain.pointers(db))

    def currency(self, dataset: str) -> str:
        """Return the currency in which the ledger adds up the plans of a dataset.

        Work: two rows, whatever the length of the history.
        """
        with store.reading(self.path) as db:
            return Registration.from_entry(ends(db, dataset)[0]).cap.currency

    def status(self, dataset: str) -> Status:
        """The cap of a dataset, what is spent and what is left."""
        rows = self.entries(dataset)
        return _status(Registration.from_entry(rows[0]), rows)

    def entries(self, dataset: str) -> list[Entry]:
        """All rows of a dataset, oldest first."""
        with store.reading(self.path) as db:
            first, newest = ends(db, dataset)
            rows = list(hash_chain.every(db, dataset))
        if not rows or (rows[0], rows[-1]) != (first, newest):
            raise LedgerDamaged(
                f"rows of dataset {dataset!r} cannot be found; run `dpfit ledger verify`"
            )
        return rows

    def verify(self, expect: str | None = None) -> str:
        """Check the whole file and return its newest row's hash: `dpfit.ledger.verify.verify`.

        A file that has a log or an unfinished write beside it is refused: a copy of the file alone
        would differ.
        """
        with store.verifying(self.path) as db:
            return verify(db, expect)

    def export(self) -> dict[str, Json]:
        """All of the ledger as plain values that JSON can hold."""
        with store.reading(self.path) as db:
            entries = list(hash_chain.every(db))
        registrations = [
            Registration.from_entry(entry) for entry in entries if entry.kind == "register"
        ]
        of = {
            known.dataset: [entry for entry in entries if entry.dataset == known.dataset]
            for known in registrations
        }
        return {
            "schema": _SCHEMA,
            "head": entries[-1].hash if entries else hash_chain.GENESIS,
            "datasets": [_status(known, of[known.dataset]).to_json() for known in registrations],
            "entries": [entry.to_json() for entry in entries],
        }

    def __copy__(self) -> Ledger:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Ledger:
        return self

    def __reduce__(self) -> tuple[type[Ledger], tuple[str]]:
        return Ledger, (str(self.path),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"


def _refuse_to_start_over(db: sqlite3.Connection, dataset: str) -> None:
    """Refuse a dataset with rows but no entry in the list: the list is damaged."""
    if next(hash_chain.every(db, dataset), None) is not None:
        raise LedgerDamaged(f"the list of datasets has lost {dataset!r}; run `dpfit ledger verify`")


def _status(known: Registration, entries: list[Entry]) -> Status:
    count = Counter(entry.kind for entry in entries)
    return Status(
        known.dataset,
        known.budget,
        known.cap.currency,
        known.cap.limit,
        entries[-1].spent,
        known.note,
        count["reserve"],
        count["release"],
        count["abandon"],
    )
