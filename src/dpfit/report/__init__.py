"""One self-contained page: what was released, guaranteed and assumed, and its accuracy."""

from dpfit.report.facts import Estimate, Facts, Quality
from dpfit.report.figures import series_figure
from dpfit.report.page import audit_report, report
from dpfit.report.risk import best_guess, odds_tail, recognised

__all__ = [
    "Estimate",
    "Facts",
    "Quality",
    "audit_report",
    "best_guess",
    "odds_tail",
    "recognised",
    "report",
    "series_figure",
]
