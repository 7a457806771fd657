"""The account of one dataset, as the runner uses it: reserve before data is touched, commit with the release."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from dpfit import __version__
from dpfit.ledger import amount, chain, store
from dpfit.ledger.chain import GIVEN_BACK, STAYS_SPENT, price_of
from dpfit.ledger.errors import BudgetExceeded, LedgerDamaged, LedgerError, NotChargeable
from dpfit.ledger.price import price
from dpfit.ledger.register import Registration, ends
from dpfit.privacy import Guarantee
from dpfit.privacy.charge import Charge
from dpfit.privacy.check import probability


class Chargeable(Protocol):
    """What an account needs to know of a plan."""

    @property
    def guarantee(self) -> Guarantee:
        """What is promised."""

    def to_json(self) -> dict[str, Any]:
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
    """Spends from one dataset of a ledger file. Made by `dpfit.ledger.Ledger.account`; a mere address, like its ledger.

    With ``as_approximate``, a delta, every plan is charged as the (epsilon, delta) promise that it implies; without, a
    plan that has no price in the dataset's currency is refused.
    """

    path: Path
    dataset: str
    who: str = ""
    why: str = ""
    as_approximate: float | None = None

    def __post_init__(self) -> None:
        if self.as_approximate is not None and not 0 < probability("as_approximate", self.as_approximate) < 1:
            raise ValueError(f"as_approximate is a delta between 0 and 1, got {self.as_approximate!r}")

    def reserve(self, plan: Chargeable) -> Reservation:
        """Charge a plan, durably, or raise with nothing charged; the time to touch the data is after this returns."""
        with store.reading(self.path) as db:
            registration = Registration.from_entry(ends(db, self.dataset)[0])
        guarantee = plan.guarantee
        if mismatch := registration.mismatch(guarantee):
            raise NotChargeable(mismatch)
        # Accounting can be slow and needs no lock: a registration never changes.
        asked = price(guarantee, registration.cap.currency, self.as_approximate)
        facts = self._facts(plan, asked)
        with store.writing(self.path) as db:
            _, newest = ends(db, self.dataset)
            total = amount.short_charge(newest.spent + asked)
            if registration.cap.allows(total):
                entry = chain.append(db, self.dataset, "reserve", facts, total)
                return Reservation(entry.id, entry.hash)
        raise self._refusal(registration, newest.spent, asked, guarantee)

    def commit(self, token: Reservation, release: Released) -> None:
        """Record that the release happened."""
        self._close(token, "release", {"private": bool(release.private)})

    def abandon(self, token: Reservation, why: str = "", *, touched: bool = True) -> None:
        """Record that the release will not happen.

        Data that may have been read keep the budget spent. With ``touched=False`` the caller claims that no record was
        read between `reserve` and this call; the ledger then gives the budget back. ``why`` must not depend on records.
        """
        if not isinstance(touched, bool):
            raise ValueError("touched is True if a record may have been read since reserve, else False")
        self._close(token, "abandon", {"why": why, "budget": STAYS_SPENT if touched else GIVEN_BACK})

    def _close(self, token: Reservation | tuple[int, str], kind: str, facts: dict[str, Any]) -> None:
        token = Reservation(*token)
        with store.writing(self.path) as db:
            _, newest = ends(db, self.dataset)
            reserved = chain.by_number(db, token.number)
            if reserved is None or reserved.hash != token.hash or reserved.dataset != self.dataset:
                raise LedgerDamaged(
                    f"reservation {token.number} of dataset {self.dataset!r} is not in the ledger {self.path}; the "
                    "file was replaced by another one or by a backup, so what was spent since must be charged again"
                )
            if closed := chain.closing(db, token.number):
                raise LedgerError(f"reservation {token.number} was closed already, by entry {closed.id}")
            back = facts.get("budget") == GIVEN_BACK
            total = amount.without(newest.spent, price_of(reserved)) if back else newest.spent
            chain.append(db, self.dataset, kind, facts, total, token.number)

    def _facts(self, plan: Chargeable, asked: Charge) -> dict[str, Any]:
        name = getattr(plan, "algorithm", None)
        return {
            **({"algorithm": name} if isinstance(name, str) and name else {}),
            "plan": plan.to_json(),
            "guarantee": plan.guarantee.to_json(),
            "as_approximate": self.as_approximate,
            "price": {"amount": amount.text(asked.amount), "delta": amount.text(asked.delta)},
            "version": __version__,
            "who": self.who,
            "why": self.why,
        }

    def _refusal(
        self, registration: Registration, spent: Charge, asked: Charge, guarantee: Guarantee
    ) -> BudgetExceeded:
        cap, budget = registration.cap, registration.budget
        dear = asked.amount > cap.limit.amount and guarantee.meets(budget)
        return BudgetExceeded(self.dataset, budget, cap.currency, cap.limit, spent, asked, dear)
