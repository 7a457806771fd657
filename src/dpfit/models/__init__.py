"""Models with the interface of scikit-learn, fitted under differential privacy."""

from dpfit.models.classifiers import LinearSVC, LogisticRegression
from dpfit.models.files import ModelFileDamaged, load, save
from dpfit.models.leaks import LeakWarning
from dpfit.models.location import BoundedMean, GeometricMedian
from dpfit.models.regressors import HuberRegressor, LinearRegression, QuantileRegressor, Ridge
from dpfit.models.scores import PrivateScore, private_score

__all__ = [
    "BoundedMean",
    "GeometricMedian",
    "HuberRegressor",
    "LeakWarning",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "ModelFileDamaged",
    "PrivateScore",
    "QuantileRegressor",
    "Ridge",
    "load",
    "private_score",
    "save",
]
