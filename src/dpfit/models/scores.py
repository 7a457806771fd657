"""Private scores: the mean score of private records, with noise.

Guarantee: that of a noisy mean. The score of each record lies in a public range, so one record
changes the mean by a known amount.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri
from sklearn.base import BaseEstimator, is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from dpfit.core import Release, Run, Transformation, TransformedPlan
from dpfit.data.table import Table
from dpfit.data.view import View, view_of
from dpfit.ledger import Ledger, account_for
from dpfit.mechanisms.mean import BoundedMean
from dpfit.models.classifiers import class_codes
from dpfit.models.inputs import (
    Column,
    Floats,
    Rows,
    Values,
    as_numbers,
    is_sparse,
    labels_of,
    require_numbers,
    shape_of,
    within_shape,
)
from dpfit.models.leaks import warn_renamed, warn_seeded
from dpfit.models.linear import PrivateModel
from dpfit.models.request import noisy_mean
from dpfit.privacy import Assumption, Basis, Budget, Guarantee

if TYPE_CHECKING:
    from pandas import DataFrame

_WORST_LOSS = math.log(1000.0)
"""A log loss counts at most as much as being surely wrong by 1000 to 1."""

_OF_CLASSIFIERS, _OF_REGRESSORS = ("accuracy", "log_loss"), ("mae", "mse")


@dataclass(frozen=True)
class PrivateScore:
    """A score and its guarantee; the noiseless score is in [``low``, ``high``] at 0.95."""

    metric: str
    value: float
    low: float
    high: float
    release: Release

    @property
    def guarantee(self) -> Guarantee:
        """What is guaranteed about the scored records."""
        return self.release.guarantee


def private_score(
    model: BaseEstimator,
    X: Rows,
    y: Column,
    budget: Budget,
    *,
    metric: str | None = None,
    n_declared: int | None = None,
    ledger: Ledger | str | Path | None = None,
    dataset: str | None = None,
    random_state: int | None = None,
    n_public: int | None = None,
) -> PrivateScore:
    """Score a fitted model on private records, within a budget.

    ``metric``: "accuracy" (classifiers, the default) or "log_loss" (capped at log 1000 per record);
    "mae" (regressors, the default) or "mse", capped at the width of the label range (squared).
    Labels are read as in `fit`: a number counts as the nearest class. A record without an outcome
    scores 0, and the number of records stays. Under add/remove give ``n_declared`` (formerly
    ``n_public``). The model may be a Pipeline. Predictions are made after the ledger was charged.

    >>> from dpfit.models import LogisticRegression
    >>> X = np.linspace(-1, 1, 20_000)[:, None]
    >>> model = LogisticRegression(epsilon=1.0, bounds=(-1, 1)).fit(X, X[:, 0] > 0)
    >>> score = private_score(model, X, X[:, 0] > 0, Budget(epsilon=0.5))
    >>> bool(0.9 < score.value <= 1.0), score.metric
    (True, 'accuracy')
    """
    if not isinstance(budget, Budget):
        raise ValueError(
            "budget must be a dpfit.Budget, such as Budget(epsilon=1.0), got "
            f"{type(budget).__name__}"
        )
    chosen = metric or ("accuracy" if is_classifier(model) else "mae")
    if n_public is not None:
        warn_renamed("n_public", "n_declared")
        n_declared = n_public
    if budget.relation == "add_remove" and n_declared is None:
        raise ValueError("under add/remove the number of records is private: give n_declared")
    check_is_fitted(model)
    top = _largest(model, chosen)
    scored = ScoredRecords(model, X, y)
    if budget.relation == "replace" and n_declared not in (None, len(scored)):
        raise ValueError(
            "with one record replaced their number is public: leave out n_declared, which is "
            f"{n_declared}"
        )
    n = len(scored) if n_declared is None else n_declared
    scores = Scores(chosen, top, _predicts_alone(model))
    plan = TransformedPlan.of(scores, noisy_mean(n, BoundedMean(0.0, top), budget))
    if random_state is not None:
        warn_seeded("score")
    account = account_for(plan, ledger, dataset, delta=budget.delta, why=f"score {chosen}")
    release = plan.run(scored, account=account, random_state=random_state)
    value = float(release.value[0])
    spread = plan.risk.expected if plan.risk else 0.0
    half = spread * (math.log(20) / math.sqrt(2) if budget.kind == "pure" else -ndtri(0.025))
    low, high = (min(max(end, 0.0), top) for end in (value - half, value + half))
    return PrivateScore(chosen, min(max(value, 0.0), top), low, high, release)


class ScoredRecords:
    """Records and the model that they score; only public shapes and dtypes can be wrong."""

    def __init__(self, model: BaseEstimator, X: Rows, y: Column) -> None:
        self.model, self.rows, self.labels = model, X, labels_of(y)
        if not is_classifier(model):
            require_numbers("y", y)
        # A schema takes its columns out of a table, which may be a mapping and may have more.
        reads_tables = getattr(model, "schema", None) is not None or isinstance(X, Mapping)
        rows, *columns = (Table(X).rows,) if reads_tables else shape_of(X)
        if rows != len(self.labels):
            raise ValueError(
                "X and y must have the same shape in their first axis: one label for each record"
            )
        if isinstance(model, PrivateModel) and not reads_tables:
            require_numbers("X", X, axes=2)
        width = getattr(model, "n_features_in_", None)
        if width is not None and not reads_tables and columns != [width]:
            raise ValueError(
                f"X must have the shape of the rows that the model was fitted to: {width} columns"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def scores(self, metric: str, top: float) -> Floats:
        """Return the score of each record, at most ``top``, from that record alone.

        Models of other libraries may refuse a record with a cell that is no number. An error would
        tell of it, so it has the worst score; it is predicted by itself, and the others together,
        whether there is such a record or not.
        """
        given = within_shape(self.rows)
        finite = None if isinstance(self.model, Pipeline | PrivateModel) else _finite_rows(given)
        if finite is None:
            return self._scores(given, self.labels, metric, top)
        scores = np.full(len(self.labels), 0.0 if metric == "accuracy" else top)
        for some in (np.flatnonzero(finite), *np.flatnonzero(~finite)[:, None]):
            with suppress(ValueError) if not finite[some].all() else nullcontext():
                if len(some):
                    scores[some] = self._scores(
                        _picked(given, some), self.labels[some], metric, top
                    )
        return scores

    def _scores(self, rows: Rows, labels: Values, metric: str, top: float) -> Floats:
        """Scores of some records; the labels are read as in training."""
        model = self.model
        if metric in _OF_REGRESSORS:
            width = top if metric == "mae" else math.sqrt(top)
            with np.errstate(over="ignore", invalid="ignore"):
                truth = as_numbers(labels)
                errors = np.fmin(np.abs(truth - model.predict(rows)), width)
            return np.where(np.isnan(truth), 0.0, errors if metric == "mae" else errors**2)
        classes = np.asarray(model.classes_)
        codes = class_codes(classes, labels)
        if metric == "accuracy":
            return np.asarray(class_codes(classes, model.predict(rows)) == codes, dtype=np.float64)
        truth = np.nan_to_num(codes, nan=0.0).astype(np.int64)
        chances = model.predict_proba(rows)[np.arange(len(truth)), truth]
        return np.where(np.isnan(codes), 0.0, np.fmin(-np.log(np.maximum(chances, 1e-300)), top))


@dataclass(frozen=True)
class Scores(Transformation):
    """The score of each record, in [0, top]: predictions are made after the charge.

    ``alone`` says that the model predicts each record from that record alone, to the last bit.
    """

    kind = "scores"
    keeps_records: ClassVar[bool] = False
    metric: str
    top: float
    alone: bool = True

    def transform(self, data: View, run: Run) -> View:
        scored: ScoredRecords = data.given
        return view_of(scored.scores(self.metric, self.top), data.relation, data.unit, data.source)

    def basis(self, inner: Basis) -> Basis:
        if self.alone:
            return inner
        declared = Assumption("the model predicts each record from that record alone", "declared")
        return replace(inner, assumptions=(*inner.assumptions, declared), arithmetic="idealised")


def _picked(rows: Floats | sparse.csr_array | DataFrame, index: NDArray[np.int64]) -> Rows:
    return rows.iloc[index] if hasattr(rows, "iloc") else rows[index]


def _finite_rows(rows: Rows) -> NDArray[np.bool_] | None:
    """Return which rows are finite; None where the dtype is not numeric or always finite."""
    if is_sparse(rows):
        if rows.dtype.kind != "f" or rows.format != "csr":
            return None
        broken = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))[
            ~np.isfinite(rows.data[: rows.indptr[-1]])
        ]
        finite = np.ones(rows.shape[0], dtype=np.bool_)
        finite[broken] = False
        return finite
    whole = np.asarray(rows) if isinstance(rows, np.ndarray) or hasattr(rows, "iloc") else None
    return None if whole is None or whole.dtype.kind != "f" else np.isfinite(whole).all(axis=1)


def _predicts_alone(model: BaseEstimator) -> bool:
    """Return whether predictions are independent of other records, to the bit.

    Models of other libraries may round otherwise.
    """
    return isinstance(model, PrivateModel) and type(model).__module__.startswith("dpfit.")


def _largest(model: BaseEstimator, metric: str) -> float:
    """The largest possible score of a record."""
    if is_classifier(model):
        if metric not in _OF_CLASSIFIERS:
            raise ValueError(
                f"metric of a classifier must be 'accuracy' or 'log_loss', got {metric!r}"
            )
        if metric == "log_loss" and not hasattr(model, "predict_proba"):
            raise ValueError(
                "'log_loss' is for classifiers that predict probabilities; score 'accuracy' instead"
            )
        return 1.0 if metric == "accuracy" else _WORST_LOSS
    if metric not in _OF_REGRESSORS:
        raise ValueError(f"metric of a regressor must be 'mae' or 'mse', got {metric!r}")
    last = model[-1] if isinstance(model, Pipeline) else model
    scaling = getattr(last, "scaling_", None)
    if scaling is None or scaling.label_lower is None:
        raise ValueError(
            f"{metric!r} is for the regressors of dpfit.models (also at the end of a Pipeline)"
        )
    width = float(scaling.label_upper - scaling.label_lower)
    return width if metric == "mae" else width**2
