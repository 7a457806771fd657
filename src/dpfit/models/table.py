"""The estimators, by name: what `dpfit`, model files and the command line offer."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dpfit.models.base import PrivateEstimator


class Estimator(NamedTuple):
    """One estimator: its class, the module that defines it, and its name on the command line."""

    name: str
    module: str
    command: str = ""
    """Empty if the command line does not offer the estimator."""
    is_classifier: bool = False

    def load(self) -> type[PrivateEstimator]:
        """Return the class, imported now."""
        found: type[PrivateEstimator] = getattr(import_module(self.module), self.name)
        return found


ESTIMATORS = {
    row.name: row
    for row in (
        Estimator("LogisticRegression", "dpfit.models.classifiers", "logistic", is_classifier=True),
        Estimator("LinearSVC", "dpfit.models.classifiers", "svc", is_classifier=True),
        Estimator("LinearRegression", "dpfit.models.regressors", "linear"),
        Estimator("Ridge", "dpfit.models.regressors", "ridge"),
        Estimator("HuberRegressor", "dpfit.models.regressors", "huber"),
        Estimator("RobustRegressor", "dpfit.models.regressors", "robust"),
        Estimator("QuantileRegressor", "dpfit.models.regressors", "quantile"),
        Estimator("NetworkRegressor", "dpfit.models.network", "network"),
        Estimator("NetworkClassifier", "dpfit.models.network", "network", is_classifier=True),
        Estimator("BoundedMean", "dpfit.models.location"),
        Estimator("GeometricMedian", "dpfit.models.location"),
    )
}

COMMANDS = {
    command: tuple(row for row in ESTIMATORS.values() if row.command == command)
    for command in dict.fromkeys(row.command for row in ESTIMATORS.values() if row.command)
}
"""The estimators of the command line, by their names there: at most one that predicts a number, and
one that predicts a class."""
