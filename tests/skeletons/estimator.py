"""An estimator in one file, scikit-learn style: public facts, problem, plan, release.

Guarantee. That of the plan, which is made from arguments only: `fit` reads the records in
``plan.run`` alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfit.core import Algorithm, Minimize, Plan
from dpfit.core.registry import find
from dpfit.data.dataset import InMemory
from dpfit.losses import Bounds, Logistic
from dpfit.privacy import Budget


class TinyClassifier:
    """Logistic regression without an intercept, by any solver given by name or as an object."""

    def __init__(
        self, epsilon: float = 1.0, delta: float = 1e-6, row_norm: float = 1.0, n: int = 1000,
        n_features: int = 2, solver: str | Algorithm[Minimize] = "noisy_gd",
    ) -> None:  # fmt: skip
        self.epsilon, self.delta, self.row_norm = epsilon, delta, row_norm
        self.n, self.n_features, self.solver = n, n_features, solver

    def plan(self) -> Plan:
        """Return the plan: no record is needed for it."""
        bounds = Bounds(row_norm=self.row_norm)
        problem = Minimize(n=self.n, loss=Logistic(), bounds=bounds, n_features=self.n_features)
        return find(self.solver, "minimize").plan(
            problem, Budget(epsilon=self.epsilon, delta=self.delta or None)
        )

    def fit(self, rows: ArrayLike, labels: ArrayLike, **run: Any) -> TinyClassifier:
        """Fit; keywords go to `Plan.run`, an account for example."""
        self.release_ = self.plan().run(InMemory(rows, labels), **run)
        self.guarantee_, self.coef_ = self.release_.guarantee, self.release_.output
        return self

    def predict(self, rows: ArrayLike) -> NDArray[np.float64]:
        """Return labels -1 and 1."""
        return np.where(np.asarray(rows) @ self.coef_ > 0, 1.0, -1.0)
