"""One self-contained page that says what was released, what is promised, what is assumed, and how good it is."""

from dpfit.report.facts import Estimate, Facts, Quality
from dpfit.report.page import audit_report, report
from dpfit.report.risk import best_guess, odds_tail, recognised

__all__ = ["Estimate", "Facts", "Quality", "audit_report", "best_guess", "odds_tail", "recognised", "report"]
