"""Promises and their arithmetic: no data, no randomness, no files."""

from dpfit.privacy import event, gaussian, renyi
from dpfit.privacy.budget import Budget
from dpfit.privacy.calibrate import BudgetUnreachable, calibrate
from dpfit.privacy.event import Event, event_from_json
from dpfit.privacy.filter import Filter, FilterExhausted
from dpfit.privacy.guarantee import Assumption, Basis, Guarantee

__all__ = [
    "Assumption",
    "Basis",
    "Budget",
    "BudgetUnreachable",
    "Event",
    "Filter",
    "FilterExhausted",
    "Guarantee",
    "calibrate",
    "event",
    "event_from_json",
    "gaussian",
    "renyi",
]
