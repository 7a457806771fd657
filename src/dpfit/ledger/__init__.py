"""The persisted budget of a dataset: one file, exact amounts, charged before data is touched."""

from dpfit.ledger.account import DatasetAccount, Reservation
from dpfit.ledger.charging import account_for, currency_of
from dpfit.ledger.errors import (
    BudgetExceeded,
    LedgerDamaged,
    LedgerError,
    LedgerUnavailable,
    NotChargeable,
    SessionCopied,
)
from dpfit.ledger.hash_chain import Entry
from dpfit.ledger.ledger import Ledger, Status

__all__ = [
    "BudgetExceeded",
    "DatasetAccount",
    "Entry",
    "Ledger",
    "LedgerDamaged",
    "LedgerError",
    "LedgerUnavailable",
    "NotChargeable",
    "Reservation",
    "SessionCopied",
    "Status",
    "account_for",
    "currency_of",
]
