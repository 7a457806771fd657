"""What a dataset was registered with."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpfit import __version__
from dpfit.ledger import amount, chain
from dpfit.ledger.cap import Cap, cap_of
from dpfit.ledger.errors import LedgerError
from dpfit.privacy import Budget, Guarantee
from dpfit.privacy.charge import Charge


@dataclass(frozen=True)
class Registration:
    """The budget as the caller gave it, and the cap that it became."""

    dataset: str
    budget: Budget
    cap: Cap
    delta_share: float | None
    note: str

    @staticmethod
    def of(dataset: str, budget: Budget, currency: str | None, delta_share: float | None, note: str) -> Registration:
        """Convert the budget to a cap, once and for all."""
        if not isinstance(dataset, str) or not dataset or not dataset.isprintable():
            raise ValueError(f"a dataset needs a name of printable characters, got {dataset!r}")
        return Registration(dataset, budget, cap_of(budget, currency, delta_share), delta_share, note)

    @property
    def facts(self) -> dict[str, Any]:
        """What the row keeps."""
        limit = self.cap.limit
        return {
            "budget": self.budget.to_json(),
            "currency": self.cap.currency,
            "delta_share": self.delta_share,
            "limit": {"amount": amount.text(limit.amount), "delta": amount.text(limit.delta)},
            "note": self.note,
            "version": __version__,
        }

    @staticmethod
    def from_entry(entry: chain.Entry) -> Registration:
        """The registration that a row keeps."""
        facts = entry.facts
        limit = Charge(Fraction(facts["limit"]["amount"]), Fraction(facts["limit"]["delta"]))
        budget = Budget(**facts["budget"])
        return Registration(entry.dataset, budget, Cap(facts["currency"], limit), facts["delta_share"], facts["note"])

    def same(self, other: Registration) -> bool:
        """Whether both were made with the same facts; the limit follows from them."""
        mine, theirs = ((r.budget, r.cap.currency, r.delta_share, r.note) for r in (self, other))
        return mine == theirs

    def mismatch(self, guarantee: Guarantee) -> str:
        """Why a promise cannot be added to this dataset's, or nothing if it can."""
        for name, way in (("unit", "to_user(max_rows)"), ("relation", "to_relation('replace')")):
            mine, theirs = getattr(self.budget, name), getattr(guarantee.basis, name)
            if mine != theirs:
                return (
                    f"dataset {self.dataset!r} is kept with {name} {mine!r} and the plan promises with {name} "
                    f"{theirs!r}; plan with Budget({name}={mine!r}, ...), or convert the promise with {way}"
                )
        return ""


def ends(db: sqlite3.Connection, dataset: str) -> tuple[chain.Entry, chain.Entry]:
    """The row that registered a dataset and its newest one, or an error that says how to register it."""
    rows = chain.registered(db, dataset)
    if rows is None:
        raise LedgerError(
            f"dataset {dataset!r} is not registered; give it a budget with `dpfit ledger register` or Ledger.register"
        )
    return rows
