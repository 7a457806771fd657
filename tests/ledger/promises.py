"""Plans that only promise, for tests of what a ledger does with them."""

from dataclasses import dataclass
from typing import Any

from dpfit.privacy import Basis, Guarantee
from dpfit.privacy import event as events


@dataclass(frozen=True)
class Promise:
    event: events.Event
    relation: str = "replace"
    unit: str = "record"

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(self.event, Basis("a promise", relation=self.relation, unit=self.unit))

    def to_json(self) -> dict[str, Any]:
        return self.event.to_json()


@dataclass(frozen=True)
class Outcome:
    private: bool = True


def pure(epsilon: float) -> Promise:
    return Promise(events.Pure(epsilon))


def spend(account, plan, private: bool = True) -> None:
    account.commit(account.reserve(plan), Outcome(private))
