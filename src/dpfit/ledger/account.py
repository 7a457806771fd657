"""A dataset's account for the runner: reserve before data are read, commit on release."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from dpfit import __version__
from dpfit.ledger import amount, hash_chain, session, store
from dpfit.ledger.cost import cost_in_currency
from dpfit.ledger.errors import (
    BudgetExceeded,
    LedgerDamaged,
    LedgerError,
    NotChargeable,
    SessionCopied,
)
from dpfit.ledger.hash_chain import GIVEN_BACK, STAYS_SPENT, price_of
from dpfit.ledger.register import Registration, ends
from dpfit.privacy import Guarantee
from dpfit.privacy.cost import Charge
from dpfit.privacy.spec import Json
from dpfit.privacy.validate import probability


class Chargeable(Protocol):
    """What an account needs to know of a plan."""

    @property
    def guarantee(self) -> Guarantee:
        """What is promised."""

    def to_json(self) -> Mapping[str, Json]:
        """The plan as plain values."""


class Released(Protocol):
    """What an account needs to know of a release."""

    @property
    def private(self) -> bool:
        """False when the caller set the RNG seed."""


class Reservation(NamedTuple):
    """A row that set budget aside; its hash tells it from a row of the same number in another file.

    State files of interactions hold it as a pair.
    """

    number: int
    hash: str


@dataclass(frozen=True)
class DatasetAccount:
    """Spends from one dataset of a ledger file; a mere address, like its ledger.

    Made by `dpfit.ledger.Ledger.account`.

    With ``as_approximate``, a delta, every plan is charged as the (epsilon, delta) promise that it
    implies; without, a plan that has no cost in the dataset's currency is refused.

    ``opening`` names one opening of a stored session, by a random key: reserving again after a kill
    returns the reservation of that key, as long as it has no state file.
    """

    path: Path
    dataset: str
    who: str = ""
    why: str = ""
    as_approximate: float | None = None
    opening: str = ""

    def __post_init__(self) -> None:
        if (
            self.as_approximate is not None
            and not 0 < probability("as_approximate", self.as_approximate) < 1
        ):
            raise ValueError(
                f"as_approximate is a delta between 0 and 1, got {self.as_approximate!r}"
            )

    def reserve(self, plan: Chargeable) -> Reservation:
        """Charge a plan, durably, or raise with nothing charged; touch data only afterwards."""
        with store.reading(self.path) as db:
            registration = Registration.from_entry(ends(db, self.dataset)[0])
        guarantee = plan.guarantee
        if mismatch := registration.mismatch(guarantee):
            raise NotChargeable(mismatch)
        # Accounting can be slow and needs no lock: a registration never changes.
        asked = cost_in_currency(guarantee, registration.cap.currency, self.as_approximate)
        facts = self._facts(plan, asked)
        with store.writing(self.path) as db:
            if self.opening and (held := self._held(db, facts)):
                return held
            _, newest = ends(db, self.dataset)
            total = amount.short_charge(newest.spent + asked)
            if registration.cap.allows(total):
                entry = hash_chain.append(db, self.dataset, "reserve", facts, total)
                return Reservation(entry.id, entry.hash)
        raise self._refusal(registration, newest.spent, asked, guarantee)

    def _held(self, db: sqlite3.Connection, facts: Mapping[str, Json]) -> Reservation | None:
        """Return the reservation that an interrupted opening left; None if there is none."""
        for entry in hash_chain.every(db, self.dataset):
            if entry.kind != "reserve" or entry.facts.get("opening") != self.opening:
                continue
            closed = hash_chain.closing(db, entry.id)
            if closed is not None and closed.gives_back:
                continue
            if closed is not None or session.newest(db, entry.id) is not None:
                raise LedgerError(
                    f"the opening was completed by reservation {entry.id}; resume its state file"
                )
            if hash_chain.fingerprint(entry.facts["plan"]) != hash_chain.fingerprint(facts["plan"]):
                raise LedgerError(
                    f"reservation {entry.id} is the opening of another plan; open that one"
                )
            return Reservation(entry.id, entry.hash)
        return None

    def commit(self, token: Reservation, release: Released) -> None:
        """Record that the release happened."""
        self._close(token, "release", {"private": bool(release.private)})

    def abandon(self, token: Reservation, why: str = "", *, touched: bool = True) -> None:
        """Record that the release will not happen.

        Data that may have been read keep the budget spent. With ``touched=False`` the caller claims
        that no record was read between `reserve` and this call; the ledger then gives the budget
        back. ``why`` must not depend on records.
        """
        if not isinstance(touched, bool):
            raise ValueError(
                "touched is True if a record may have been read since reserve, else False"
            )
        self._close(
            token, "abandon", {"why": why, "budget": STAYS_SPENT if touched else GIVEN_BACK}
        )

    def advance(
        self, token: Reservation | tuple[int, str], step: int, mark: str, previous: str
    ) -> None:
        """Record the newest step of a stored session, and the random mark of its line.

        A line that follows the newest one is recorded; the newest one may be recorded again. Any
        other line is of a copied state file: it would give one step a second answer.
        """
        token = Reservation(*token)
        with store.writing(self.path) as db:
            self._reserved(db, token)
            newest = session.newest(db, token.number)
            if newest == (step, mark):
                return
            self._require_open(db, token)
            known = session.Newest(-1, "") if newest is None else newest
            if not (known.mark == previous and known.step < step):
                raise SessionCopied(
                    "the state file is a copy or a backup: the ledger knows another file of this "
                    f"session, with {max(known.step, 0)} steps; go on with that file"
                )
            session.record(db, token.number, step, mark)

    def _close(
        self, token: Reservation | tuple[int, str], kind: str, facts: dict[str, Json]
    ) -> None:
        token = Reservation(*token)
        with store.writing(self.path) as db:
            _, newest = ends(db, self.dataset)
            reserved = self._reserved(db, token)
            self._require_open(db, token)
            back = facts.get("budget") == GIVEN_BACK
            moved = session.newest(db, token.number)
            if back and moved is not None and moved.step:
                raise LedgerError(
                    f"reservation {token.number} has answered {moved.step} steps; its budget stays "
                    "spent"
                )
            total = amount.without(newest.spent, price_of(reserved)) if back else newest.spent
            hash_chain.append(db, self.dataset, kind, facts, total, token.number)

    def _reserved(self, db: sqlite3.Connection, token: Reservation) -> hash_chain.Entry:
        reserved = hash_chain.by_number(db, token.number)
        if reserved is None or reserved.hash != token.hash or reserved.dataset != self.dataset:
            raise LedgerDamaged(
                f"reservation {token.number} of dataset {self.dataset!r} is not in the "
                f"ledger {self.path}; the "
                "file was replaced by another one or by a backup, so what was spent since "
                "must be charged again"
            )
        return reserved

    def _require_open(self, db: sqlite3.Connection, token: Reservation) -> None:
        if closed := hash_chain.closing(db, token.number):
            raise LedgerError(
                f"reservation {token.number} was closed already, by entry {closed.id}"
            )

    def _facts(self, plan: Chargeable, asked: Charge) -> dict[str, Json]:
        name = getattr(plan, "algorithm", None)
        return {
            **({"algorithm": name} if isinstance(name, str) and name else {}),
            "plan": plan.to_json(),
            "guarantee": plan.guarantee.to_json(),
            "as_approximate": self.as_approximate,
            "price": amount.to_json(asked),
            "version": __version__,
            "who": self.who,
            "why": self.why,
            **({"opening": self.opening} if self.opening else {}),
        }

    def _refusal(
        self, registration: Registration, spent: Charge, asked: Charge, guarantee: Guarantee
    ) -> BudgetExceeded:
        cap, budget = registration.cap, registration.budget
        currency_mismatch = asked.amount > cap.limit.amount and guarantee.meets(budget)
        return BudgetExceeded(
            self.dataset, budget, cap.currency, cap.limit, spent, asked, currency_mismatch
        )
