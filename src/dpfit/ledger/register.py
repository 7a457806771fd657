"""What a dataset was registered with."""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dpfit import __version__
from dpfit.ledger import amount, hash_chain
from dpfit.ledger.cap import Cap, cap_of
from dpfit.ledger.errors import LedgerError
from dpfit.privacy import Budget, Guarantee
from dpfit.privacy.spec import Json
from dpfit.privacy.validate import did_you_mean, real


@dataclass(frozen=True)
class Registration:
    """The budget as the caller gave it, and the cap that it became."""

    dataset: str
    budget: Budget
    cap: Cap
    delta_share: float | None
    note: str

    @staticmethod
    def of(
        dataset: str, budget: Budget, currency: str | None, delta_share: float | None, note: str
    ) -> Registration:
        """Convert the budget to a cap, once and for all."""
        if not isinstance(dataset, str) or not dataset.strip() or not dataset.isprintable():
            raise ValueError(f"a dataset needs a name of printable characters, got {dataset!r}")
        return Registration(
            dataset, budget, cap_of(budget, currency, delta_share), delta_share, note
        )

    @property
    def facts(self) -> dict[str, Json]:
        """What the row keeps."""
        return {
            "budget": self.budget.to_json(),
            "currency": self.cap.currency,
            "delta_share": self.delta_share,
            "limit": amount.to_json(self.cap.limit),
            "note": self.note,
            "version": __version__,
        }

    @staticmethod
    def from_entry(entry: hash_chain.Entry) -> Registration:
        """The registration that a row keeps."""
        facts = entry.facts
        given: Any = facts["budget"]  # checked by Budget
        share = facts["delta_share"]
        return Registration(
            entry.dataset,
            Budget(**given),
            Cap(str(facts["currency"]), amount.from_json(facts["limit"])),
            None if share is None else real("delta_share", share),
            str(facts["note"]),
        )

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
                    f"dataset {self.dataset!r} is kept with {name} {mine!r} and the plan "
                    f"promises with {name} "
                    f"{theirs!r}; plan with {name}={mine!r}, or convert the promise "
                    f"with {way}"
                )
        return ""


def check_new_name(name: str, known: Iterable[str]) -> None:
    """Refuse a name that looks like another one: a dataset under two names has two budgets.

    >>> check_new_name("Pat", ["pat"])
    Traceback (most recent call last):
        ...
    ValueError: dataset 'pat' is registered and looks like 'Pat'; use that name, or choose another
    """
    plain = unicodedata.normalize("NFC", name.strip())
    if name != plain:
        raise ValueError(
            f"the name of a dataset must have composed characters and no spaces at its ends, got "
            f"{name!a}; write {plain!a}"
        )
    alphabets = {unicodedata.name(letter, "").split(" ")[0] for letter in name if letter.isalpha()}
    if len(alphabets & _ALIKE) > 1:
        raise ValueError(f"the name of a dataset must be of one alphabet, got {name!a}")
    for other in known:
        if _folded(other) == _folded(name):
            raise ValueError(
                f"dataset {other!r} is registered and looks like {name!r}; use that name, or "
                "choose another"
            )


_ALIKE = {"LATIN", "CYRILLIC", "GREEK"}
"""Alphabets with letters that look the same."""


def _folded(name: str) -> str:
    """A name without case, width and spaces."""
    return "".join(unicodedata.normalize("NFKC", name).casefold().split())


def ends(db: sqlite3.Connection, dataset: str) -> tuple[hash_chain.Entry, hash_chain.Entry]:
    """The row that registered a dataset and its newest one; errors say how to register."""
    rows = hash_chain.registered(db, dataset)
    if rows is None:
        close = did_you_mean(dataset, hash_chain.pointers(db))
        raise LedgerError(
            f"dataset {dataset!r} is not registered; {close}give it a budget with `dpfit ledger "
            "register` or Ledger.register"
        )
    return rows
