"""Is the ledger the one written, and do its sums hold? All is recomputed from rows."""

from __future__ import annotations

import json
import sqlite3
from fractions import Fraction

from dpfit.ledger import hash_chain, store
from dpfit.ledger.amount import ZERO, short_charge, without
from dpfit.ledger.cap import cap_of
from dpfit.ledger.cost import cost_in_currency
from dpfit.ledger.errors import LedgerDamaged, NotChargeable
from dpfit.ledger.hash_chain import Entry
from dpfit.ledger.register import Registration
from dpfit.ledger.session import sessions
from dpfit.privacy import Guarantee
from dpfit.privacy.cost import Charge
from dpfit.privacy.spec import Json
from dpfit.privacy.validate import real

# Prices that come from curves are doubles; another machine's mathematical library may differ in the
# last digits.
_TOLERANCE = Fraction(1, 10**9)


def verify(db: sqlite3.Connection, expect: str | None = None) -> str:
    """Check pages, schema, chain, totals and prices, and return the hash of the newest row.

    ``expect`` is a hash that an earlier call returned and that was kept elsewhere: it must still be
    in the chain. That detects what no check of the file alone can, a backup put back or a tail cut
    off.
    """
    _check_file(db)
    book = _Book()
    hashes = {hash_chain.GENESIS}
    last = hash_chain.GENESIS
    for number, entry in enumerate(hash_chain.every(db), start=1):
        if entry.id != number or entry.previous != last:
            raise LedgerDamaged(
                f"the chain breaks before entry {entry.id}: a row is missing or was put in"
            )
        book.check(entry)
        last = entry.hash
        hashes.add(last)
    if book.pointers != hash_chain.pointers(db):
        raise LedgerDamaged(
            "the list of datasets does not match the entries; restore the file from a backup"
        )
    if not sessions(db).keys() <= book.reservations:
        raise LedgerDamaged("a session names no reservation; restore the file from a backup")
    if expect is not None and expect not in hashes:
        raise LedgerDamaged(
            f"the ledger does not contain the expected hash {expect}: it is a backup that was "
            "put back, its tail was "
            "cut, or it is another ledger; find the newest copy, or charge again what was spent "
            "since"
        )
    return last


def _check_file(db: sqlite3.Connection) -> None:
    (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise LedgerDamaged(f"the file is damaged; restore it from a backup ({found})")
    schema = {sql for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
    if schema not in (set(store.SCHEMA), {*store.SCHEMA, *store.SESSIONS}):
        raise LedgerDamaged(
            "the table, an index or a trigger of the file was changed; restore it from a backup"
        )


class _Book:
    """The sums kept a second time."""

    def __init__(self) -> None:
        self.pointers: dict[str, tuple[int, int, str]] = {}
        self._known: dict[str, Registration] = {}
        self._spent: dict[str, Charge] = {}
        self._open: dict[int, tuple[str, Charge]] = {}
        self.reservations: set[int] = set()
        self._time = ""
        self._prices: dict[str, Charge] = {}

    def check(self, entry: Entry) -> None:
        """Follow one row; raises if it does not follow from the rows before it."""
        try:
            problem = {
                "register": self._register,
                "reserve": self._reserve,
                "release": self._close,
                "abandon": self._close,
            }[entry.kind](entry)
        except (KeyError, TypeError, ValueError, ZeroDivisionError, NotChargeable) as error:
            problem = f"it cannot be accounted again ({error})"
        if not problem and entry.time < self._time:
            problem = "its time lies before the one of an earlier entry"
        if not problem and entry.spent != self._spent[entry.dataset]:
            problem = "its total is not the sum of the prices so far"
        if problem:
            raise LedgerDamaged(
                f"entry {entry.id} of dataset {entry.dataset!r} is wrong: {problem}"
            )
        self._time = entry.time
        first, _, _ = self.pointers.get(entry.dataset, (entry.id, 0, ""))
        self.pointers[entry.dataset] = (first, entry.id, entry.hash)

    def _register(self, entry: Entry) -> str:
        known = Registration.from_entry(entry)
        currency = known.cap.currency if known.budget.kind == "approximate" else None
        again = cap_of(known.budget, currency, known.delta_share)
        if entry.dataset in self._known:
            return "the dataset was registered before"
        self._known[entry.dataset], self._spent[entry.dataset] = known, Charge(ZERO)
        if again.currency != known.cap.currency or not _covers(again.limit, known.cap.limit):
            return "its limit is not what its budget allows"
        return ""

    def _reserve(self, entry: Entry) -> str:
        known, facts = self._known[entry.dataset], entry.facts
        stored = hash_chain.price_of(entry)
        guarantee = Guarantee.from_json(facts["guarantee"])
        total = short_charge(self._spent[entry.dataset] + stored)
        self._spent[entry.dataset] = total
        self._open[entry.id] = entry.dataset, stored
        self.reservations.add(entry.id)
        if min(stored.amount, stored.delta) < 0 or not _covers(
            stored, self._price(known.cap.currency, facts)
        ):
            return "its price is below what its promise costs"
        if not known.cap.allows(total):
            return "it passes the cap"
        return known.mismatch(guarantee)

    def _close(self, entry: Entry) -> str:
        dataset, price = self._open.pop(entry.reservation or 0, ("", Charge(ZERO)))
        if dataset != entry.dataset:
            return "it closes a reservation that is not open"
        if entry.kind == "abandon":
            if entry.facts["budget"] not in (hash_chain.STAYS_SPENT, hash_chain.GIVEN_BACK):
                return "it does not say what becomes of the budget"
            if entry.facts["budget"] == hash_chain.GIVEN_BACK:
                self._spent[dataset] = without(self._spent[dataset], price)
        return ""

    def _price(self, currency: str, facts: dict[str, Json]) -> Charge:
        """The price again; the same promise is accounted once."""
        key = json.dumps([currency, facts["guarantee"], facts["as_approximate"]], sort_keys=True)
        if key not in self._prices:
            delta = facts["as_approximate"]
            self._prices[key] = cost_in_currency(
                Guarantee.from_json(facts["guarantee"]),
                currency,
                None if delta is None else real("delta", delta),
            )
        return self._prices[key]


def _covers(larger: Charge, smaller: Charge) -> bool:
    """Whether both columns are at least as large, up to the rounding of doubles."""
    pairs = ((larger.amount, smaller.amount), (larger.delta, smaller.delta))
    return all(large >= small * (1 - _TOLERANCE) for large, small in pairs)
