"""Synthetic problems with a known optimum, to calibrate and judge the choice of solver."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize as minimized

from dpfit.core import Minimize, Run
from dpfit.data.dataset import InMemory
from dpfit.data.view import view_of
from dpfit.losses import Bounds, Huber, Logistic, SmoothedHinge
from dpfit.noise import Source
from dpfit.privacy import Budget

Floats = NDArray[np.float64]

LOSSES: dict[str, Any] = {
    "logistic": Logistic(),
    "huber": Huber(0.2),
    "smoothed_hinge": SmoothedHinge(0.5),
}
MARGINS = {"small": 0.5, "large": 3.0}
"""Standard deviation of the margins at the true parameter, for losses of binary labels."""
SIGNALS = {"small": (0.1, 0.2), "large": (0.4, 0.1)}
"""Standard deviations of signal and noise in the labels, for the Huber loss."""


@dataclass(frozen=True)
class Case:
    """One problem with its budget: how records are drawn, and what may be spent on them.

    ``design``: "isotropic" (uniform on the sphere), "power_law" (normal, deviation of column j
    falls as j**-power), "positive" (columns in [0, 1] with a common factor, and an intercept),
    "one_hot" (``power`` + 1 categories each).
    """

    loss: str
    n: int
    d: int
    design: str
    power: float
    size: str
    epsilon: float
    delta: float
    relation: str
    rng_seed: int

    @property
    def problem(self) -> Minimize:
        labels = (-1.0, 1.0) if self.loss == "huber" else (None, None)
        return Minimize(
            n=self.n, loss=LOSSES[self.loss], bounds=Bounds(1.0, *labels), n_features=self.d
        )

    @property
    def budget(self) -> Budget:
        return Budget(epsilon=self.epsilon, delta=self.delta or None, relation=self.relation)

    @cached_property
    def records(self) -> InMemory:
        """Rows of norm at most one and their labels."""
        rng = np.random.default_rng(self.rng_seed)
        rows = _rows(self, rng)
        direction = rng.standard_normal(self.d)
        margins = rows @ direction
        margins = (margins - margins.mean()) / margins.std()
        if self.loss == "huber":
            signal, noise = SIGNALS[self.size]
            return InMemory(
                rows, np.clip(signal * margins + noise * rng.standard_normal(self.n), -1, 1)
            )
        chance = 1 / (1 + np.exp(-MARGINS[self.size] * margins))
        return InMemory(rows, np.where(rng.random(self.n) < chance, 1.0, -1.0))

    def loss_at(self, thetas: Floats) -> Floats:
        """The mean loss at each of some parameters."""
        link = LOSSES[self.loss]
        labels = self.records.labels
        return np.array(
            [float(np.mean(link.value(self.records.matrix @ theta, labels))) for theta in thetas]
        )

    @cached_property
    def least(self) -> float:
        """The smallest mean loss, found without privacy."""

        def objective(theta: Floats) -> tuple[float, Floats]:
            value, gradient = self.records.gradient(LOSSES[self.loss], theta, **self.problem.guards)
            return float(value) / self.n, np.asarray(gradient) / self.n

        options = {"maxiter": 5000, "maxfun": 20000, "ftol": 1e-15, "gtol": 1e-9}
        return float(
            minimized(objective, np.zeros(self.d), jac=True, method="L-BFGS-B", options=options).fun
        )

    def excess(self, plan: Any, runs: int) -> Floats:
        """Excess risks of independent runs of a plan."""
        run = Run(Source(self.rng_seed))
        data = view_of(self.records, plan.basis.relation, plan.basis.unit, run.noise)
        values = plan.execute_many(data, run, runs)
        # A composition releases what its stages found on the way, and the parameter last.
        return self.loss_at(np.asarray([plan.output(value) for value in values])) - self.least


def _rows(case: Case, rng: np.random.Generator) -> Floats:
    shape = (case.n, case.d)
    if case.design == "isotropic":
        rows = rng.standard_normal(shape)
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    if case.design == "power_law":
        deviations = np.arange(1, case.d + 1.0) ** -case.power
        rows = rng.standard_normal(shape) * deviations / (2 * np.linalg.norm(deviations))
        return np.asarray(rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True)))
    if case.design == "one_hot":
        levels = round(case.power) + 1
        rows = np.zeros(shape)
        for first in range(0, case.d, levels):
            rows[
                np.arange(case.n),
                np.minimum(first + rng.binomial(levels - 1, 0.4, case.n), case.d - 1),
            ] = 1.0
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    common = rng.standard_normal((case.n, 1))
    columns = 1 / (1 + np.exp(1 - 0.8 * common - 0.8 * rng.standard_normal(shape)))
    columns[:, 0] = 1.0
    return np.asarray(columns / np.sqrt(case.d))
