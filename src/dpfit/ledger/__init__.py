"""The persisted budget of a dataset: one file, exact amounts, charged before data is touched."""

from dpfit.ledger.account import DatasetAccount, Reservation
from dpfit.ledger.chain import Entry
from dpfit.ledger.charging import account_for, currency_of
from dpfit.ledger.errors import BudgetExceeded, LedgerDamaged, LedgerError, LedgerUnavailable, NotChargeable
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
    "Status",
    "account_for",
    "currency_of",
]
