"""What the dataset's common budget has paid for, and what is left of it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpfit.core import Plan
from dpfit.ledger import Entry, Ledger, Status
from dpfit.ledger.hash_chain import price_of
from dpfit.privacy import Budget
from dpfit.privacy.spec import digest
from dpfit.report import words
from dpfit.report.blocks import section, table, tile
from dpfit.report.markup import Markup, name_of, tag

_MOST_ROWS = 12


@dataclass(frozen=True)
class LedgerView:
    """A dataset's status and its rows, read at one moment each."""

    status: Status
    entries: tuple[Entry, ...]

    @staticmethod
    def read(ledger: Ledger, dataset: str) -> LedgerView:
        """The book of a dataset as it stands."""
        return LedgerView(ledger.status(dataset), tuple(ledger.entries(dataset)))

    @property
    def used(self) -> float:
        """The share that is spent, of the scarcer of the two columns."""
        status = self.status
        return max(
            _share(status.spent.amount, status.cap.amount),
            _share(status.spent.delta, status.cap.delta) if status.cap.delta else 0.0,
        )

    def row_of(self, plan: Plan) -> Entry | None:
        """Return the newest reservation for a plan, found by fingerprint; None if there is none.

        A plan that was read from a file is compared as the file has it: its JSON form may have
        changed since.
        """
        wanted = plan.fingerprints
        rows = (entry for entry in reversed(self.entries) if entry.kind == "reserve")
        return next((entry for entry in rows if digest(entry.facts["plan"]) in wanted), None)

    def outcome(self, reserved: Entry) -> str:
        """What became of a reservation."""
        end = next((entry for entry in self.entries if entry.reservation == reserved.id), None)
        if end is None:
            return "reserved, no release recorded"
        if end.kind == "abandon":
            return f"given up; the budget {'was given back' if end.gives_back else 'stays spent'}"
        return (
            "released"
            if end.facts.get("private", True)
            else "released with an RNG seed: not private"
        )


def budget_tile(book: LedgerView) -> Markup:
    """What is left, as a share."""
    left = 100 - min(words.up(100 * book.used, 0), 100)
    return tile(f"{left:.0f} %", "of the dataset’s budget is left for everything that comes later")


def budget_section(book: LedgerView, plan: Plan | None) -> Markup:
    """Spent and left, and what for."""
    status = book.status
    spent = min(words.up(100 * book.used, 0), 100)
    return section(
        "The budget of the dataset",
        tag(
            "p",
            "All releases about ",
            name_of(status.dataset),
            f" together may cost at most {_amount(status.budget)}, for each "
            f"{_unit(status.budget)}. The ledger adds "
            "up, and refuses what would go beyond.",
        ),
        tag(
            "div",
            tag("div", style=f"width:{spent:.0f}%"),
            class_="bar",
            role="img",
            aria_label=f"{spent:.0f} % of the budget is spent",
        ),
        tag("p", f"{spent:.0f} % is spent. ", _next(status.fits)),
        tag("p", _recorded(book, plan), class_="note") if plan is not None else Markup(),
        _history(book),
        tag(
            "p",
            "Newest row of the dataset, to compare with the ledger: ",
            tag("code", book.entries[-1].hash),
            class_="note",
        ),
    )


def _history(book: LedgerView) -> Markup:
    reserved = [entry for entry in book.entries if entry.kind == "reserve"]
    if not reserved:
        return tag("p", "Nothing has been spent yet.")
    rows = [
        (
            tag("time", entry.time[:10]),
            _purpose(entry),
            f"{words.up(100 * _price(entry, book.status), 1):g} %",
            book.outcome(entry),
        )
        for entry in reserved[-_MOST_ROWS:]
    ]
    earlier = len(reserved) - len(rows)
    more = (
        tag("p", f"{earlier} earlier rows are in the ledger.", class_="note")
        if earlier
        else Markup()
    )
    return Markup(table(("Day", "What for", "Share", "Outcome"), rows, numeric=(2,)) + more)


def _purpose(entry: Entry) -> Markup:
    name = entry.algorithm.replace("_", " ")
    by = f", {entry.facts['who']}" if entry.facts.get("who") else ""
    return tag("span", name_of(str(entry.facts.get("why") or name)), tag("small", f"{name}{by}"))


def _price(entry: Entry, status: Status) -> float:
    price = price_of(entry)
    return max(
        _share(price.amount, status.cap.amount),
        _share(price.delta, status.cap.delta) if status.cap.delta else 0.0,
    )


def _percent(share: float) -> str:
    return f"{words.up(100 * share, 1):g} %"


def _share(part: Fraction, whole: Fraction) -> float:
    return float(part / whole)


def _recorded(book: LedgerView, plan: Plan | None) -> str:
    row = book.row_of(plan) if plan is not None else None
    if row is None:
        return "No row of the ledger is for this plan: this release was not paid from this budget."
    return f"The newest row of the ledger for this plan is number {row.id} ({book.outcome(row)})."


def _next(fits: Budget | None) -> str:
    return f"The next release may cost at most {_amount(fits)}." if fits else "Nothing is left."


def _amount(budget: Budget) -> str:
    """A budget in words."""
    if budget.epsilon is not None:
        where = f" at delta = {words.power(budget.delta)}" if budget.delta else ""
        return f"epsilon = {words.room(budget.epsilon)}{where}"
    name, value = ("mu", budget.mu) if budget.mu is not None else ("rho", budget.rho or 0.0)
    return f"{name} = {words.room(value)}"


def _unit(budget: Budget) -> str:
    return "record" if budget.unit == "record" else "person"
