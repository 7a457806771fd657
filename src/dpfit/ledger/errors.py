"""Ledger errors: each is raised before data are read, with a hint."""

from __future__ import annotations

from fractions import Fraction

from dpfit.ledger.amount import SYMBOLS, largest_budget, shown, shown_apart, shown_left
from dpfit.privacy import Budget
from dpfit.privacy.cost import Charge


class LedgerError(Exception):
    """Base of all errors of a ledger."""


class LedgerUnavailable(LedgerError):
    """The file is missing, locked, read-only or has no room; nothing was charged."""


class LedgerDamaged(LedgerError):
    """The file is not a ledger, or is no longer the one that was written."""


class NotChargeable(LedgerError):
    """A plan whose promise cannot be added to what the dataset's ledger adds up."""


class SessionCopied(LedgerError):
    """A state file that is not the newest of its session; no answer may leave."""


class BudgetExceeded(LedgerError):
    """A plan that does not fit what is left; nothing was charged.

    ``cap``, ``spent``, ``asked`` and ``left`` are exact; ``share`` is the largest part of what was
    asked that fits, and ``fits`` a budget to plan with instead (None if nothing worth naming is
    left). ``currency_mismatch`` marks a guarantee within the cap whose cost in the currency is
    above it.

    >>> cap, spent, asked = (Charge(Fraction(tenths, 10)) for tenths in (10, 9, 2))
    >>> print(BudgetExceeded("patients", Budget(epsilon=1.0), "pure", cap, spent, asked))
    over budget on dataset 'patients': asked epsilon 0.2, left 0.1 (cap 1, spent 0.9); plan with
    epsilon 0.1
    """

    def __init__(
        self,
        dataset: str,
        budget: Budget,
        currency: str,
        cap: Charge,
        spent: Charge,
        asked: Charge,
        currency_mismatch: bool = False,
    ) -> None:
        # All arguments are kept as such, so that the error survives the way back from a worker
        # process.
        super().__init__(dataset, budget, currency, cap, spent, asked, currency_mismatch)
        self.dataset, self.budget, self.currency = dataset, budget, currency
        self.cap, self.spent, self.asked = cap, spent, asked
        self._currency_mismatch = currency_mismatch
        self.left = cap + spent * -1

    @property
    def share(self) -> Fraction:
        """The largest part of what was asked that fits."""
        pairs = ((self.left.amount, self.asked.amount), (self.left.delta, self.asked.delta))
        return min(left / asked for left, asked in pairs if asked)

    @property
    def fits(self) -> Budget | None:
        """A budget to plan with that fits what is left."""
        return largest_budget(self.budget, self.currency, self.left)

    def __str__(self) -> str:
        columns = [
            (
                SYMBOLS[self.currency],
                self.asked.amount,
                self.left.amount,
                self.cap.amount,
                self.spent.amount,
            )
        ]
        if self.asked.delta:
            columns.append(
                ("delta", self.asked.delta, self.left.delta, self.cap.delta, self.spent.delta)
            )
        parts = []
        for symbol, asked, left, cap, spent in columns:
            asked_, left_ = shown_apart(asked, left)
            left_ = "0" if shown_left(left, cap) == "0" else left_
            parts.append(
                f"asked {symbol} {asked_}, left {left_} (cap {shown(cap)}, spent {shown(spent)})"
            )
        return f"over budget on dataset {self.dataset!r}: {' and '.join(parts)}; {self._way_out()}"

    def _way_out(self) -> str:
        if self.asked.delta and not self.cap.delta:
            return (
                "the cap keeps no delta column, so plan without a delta, or keep one when "
                "registering a dataset"
            )
        if self._currency_mismatch:
            return (
                f"the guarantee fits the budget, but its cost in {self.currency} currency "
                "exceeds the cap; plan with Gaussian noise (give a delta), or register a dataset "
                "with currency='pure' and charge with as_approximate=delta"
            )
        return f"plan with {self.fits}" if self.fits else "nothing is left"
