"""Counts over tables: histograms, marginals, ranges, predicates, of least noise error."""

from dpfit.queries.axes import Axis, Bins, Categories
from dpfit.queries.count import CountResult, count, plan_count
from dpfit.queries.histogram import Histogram
from dpfit.queries.marginals import Marginals
from dpfit.queries.predicates import Condition, Predicate, Predicates, where
from dpfit.queries.ranges import Ranges
from dpfit.queries.workload import TableQueries

__all__ = [
    "Axis",
    "Bins",
    "Categories",
    "Condition",
    "CountResult",
    "Histogram",
    "Marginals",
    "Predicate",
    "Predicates",
    "Ranges",
    "TableQueries",
    "count",
    "plan_count",
    "where",
]
