"""A score that is paid for.

Guarantee: that of a noisy mean. The score of each record lies in a public range, so one record moves their mean by a
known amount; the budget pays for the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.base import is_classifier

from dpfit.core import Answer, Release
from dpfit.ledger import account_for
from dpfit.mechanisms.mean import BoundedMean, gaussian_mean, laplace_mean
from dpfit.privacy import Budget, Guarantee

Floats = NDArray[np.float64]

_WORST_LOSS = math.log(1000.0)
"""A log loss counts at most as much as being surely wrong by 1000 to 1."""


@dataclass(frozen=True)
class PrivateScore:
    """A score with the interval that the noise alone leaves open (with probability 0.95), and its guarantee."""

    metric: str
    value: float
    low: float
    high: float
    release: Release

    @property
    def guarantee(self) -> Guarantee:
        """What is promised about the scored records."""
        return self.release.guarantee


def private_score(
    model: Any,
    X: Any,
    y: Any,
    budget: Budget,
    *,
    metric: str | None = None,
    n_public: int | None = None,
    ledger: Any = None,
    dataset: str | None = None,
    random_state: int | None = None,
) -> PrivateScore:
    """Score a fitted model on private records, within a budget.

    ``metric``: "accuracy" (classifiers, the default) or "log_loss" (capped at log 1000 per record); "mae" (regressors,
    the default) or "mse", capped at the width of the label range (squared). Under add/remove give ``n_public``.

    >>> from dpfit.models import LogisticRegression
    >>> X = np.linspace(-1, 1, 20_000)[:, None]
    >>> model = LogisticRegression(epsilon=1.0, bounds=(-1, 1)).fit(X, X[:, 0] > 0)
    >>> score = private_score(model, X, X[:, 0] > 0, Budget(epsilon=0.5))
    >>> bool(0.9 < score.value <= 1.0), score.metric
    (True, 'accuracy')
    """
    chosen = metric or ("accuracy" if is_classifier(model) else "mae")
    if budget.relation == "add_remove" and n_public is None:
        raise ValueError("under add/remove the number of records is private: give n_public")
    scores, top = _scores(model, X, y, chosen)
    problem = Answer(n=len(scores) if n_public is None else n_public, workload=BoundedMean(0.0, top))
    algorithm = laplace_mean if budget.kind == "pure" else gaussian_mean
    plan = algorithm.plan(problem, budget)
    account = account_for(plan, ledger, dataset, delta=budget.delta, why=f"score {chosen}")
    release = plan.run(scores, account=account, random_state=random_state)
    value = float(release.value[0])
    spread = plan.risk.expected if plan.risk else 0.0
    half = spread * (-ndtri(0.025) if algorithm is gaussian_mean else math.log(20) / math.sqrt(2))
    low, high = (min(max(end, 0.0), top) for end in (value - half, value + half))
    return PrivateScore(chosen, min(max(value, 0.0), top), low, high, release)


def _scores(model: Any, X: Any, y: Any, metric: str) -> tuple[Floats, float]:
    """The score of each record, and the largest possible one; only shapes and names can be wrong."""
    if is_classifier(model):
        truth = np.asarray(y)
        if metric == "accuracy":
            return np.asarray(model.predict(X) == truth, dtype=np.float64), 1.0
        if metric == "log_loss":
            places = {label: place for place, label in enumerate(model.classes_.tolist())}
            chances = model.predict_proba(X)
            picked = np.array([places.get(label, 0) for label in truth.tolist()])
            return np.minimum(-np.log(np.maximum(chances[np.arange(len(picked)), picked], 1e-300)), _WORST_LOSS), (
                _WORST_LOSS
            )
        raise ValueError(f"metric of a classifier must be 'accuracy' or 'log_loss', got {metric!r}")
    low, high = model.scaling_.label_lower, model.scaling_.label_upper
    width = float(high - low)
    errors = np.nan_to_num(np.abs(np.asarray(y, dtype=np.float64) - model.predict(X)), nan=width, posinf=width)
    if metric == "mae":
        return np.minimum(errors, width), width
    if metric == "mse":
        return np.minimum(errors, width) ** 2, width**2
    raise ValueError(f"metric of a regressor must be 'mae' or 'mse', got {metric!r}")
