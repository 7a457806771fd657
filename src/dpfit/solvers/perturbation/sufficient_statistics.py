"""Least squares from a noisy Gram matrix and noisy moments, damped in proportion to the noise.

Guarantee: the two stages composed, mu-GDP with Gaussian noise, epsilon-DP with l2-Laplace noise.
Reference: Vu and Slavkovic (2009); Wang (2018), AdaSSP; docs/explanation/perturbation.md, section
5, for the joint sensitivity.

The first stage releases the smallest eigenvalue of the Gram matrix. It sets the damping of the
second stage: none if the data are well conditioned, up to the noise otherwise. The second stage
releases the upper triangle of the Gram matrix and the moments together, with one noise, and solves
for the parameter by postprocessing. Sums are those of BLAS, so the sensitivity includes a bound on
their rounding errors.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpfit.core import (
    Binding,
    Composition,
    Example,
    Mechanism,
    Minimize,
    Plan,
    Requirement,
    Risk,
    Run,
    Stage,
    Step,
    Work,
)
from dpfit.data.dataset import Dataset
from dpfit.data.view import View
from dpfit.geometry.symmetric import pack, unpack
from dpfit.kernels.rounding import sum_error
from dpfit.losses import Bounds, Squared
from dpfit.mechanisms.vector_noise import VectorNoise
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.event import Composed, Event
from dpfit.privacy.validate import in_safe_range, non_negative, option
from dpfit.solvers.perturbation.base import Perturbation

Floats = NDArray[np.float64]

ROUNDINGS = 7
"""Roundings within a product of two guarded entries (`dpfit.kernels.rounding.sum_error`)."""

SQUARED_LOSS = Requirement(
    "the Squared loss",
    "use output_perturbation or noisy_gd",
    lambda problem, budget, options: problem.loss == Squared(),
)
LABEL_RANGE = Requirement(
    "label bounds",
    "declare Bounds(row_norm, label_lower, label_upper)",
    lambda problem, budget, options: 0 < problem.bounds.label_size < math.inf,
)


@dataclass(frozen=True)
class NoisyStatistics(Mechanism):
    """Base of mechanisms that release a vector of statistics with noise of one scale."""

    problem: Minimize
    relation: str
    noise: str
    noise_multiplier: float

    def __post_init__(self) -> None:
        option("relation", self.relation, ("replace", "add_remove"))
        _ = self.event, self.sensitivity

    @property
    @abstractmethod
    def released(self) -> int:
        """Number of statistics that are released."""

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """Largest l2 change of the statistics by one record, with rounding errors, rounded up."""

    @property
    def vector_noise(self) -> VectorNoise:
        """The noise on the statistics."""
        return VectorNoise(self.noise, self.noise_multiplier, self.released)

    @property
    def event(self) -> Event:
        return self.vector_noise.event

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on each statistic."""
        scale = self.noise_multiplier * self.sensitivity
        return scale if self.noise == "gaussian" else scale * math.sqrt(self.released + 1)

    def with_noise(self, values: Floats, run: Run) -> Floats:
        """Return the statistics with noise."""
        return self.vector_noise.added(values, self.sensitivity, run.noise)

    def gram(self, data: Dataset) -> Floats:
        """Return the Gram matrix of guarded rows."""
        zero = np.zeros(self.problem.n_features)
        return np.asarray(data.hessian(Squared(), zero, **self.problem.guards))


@dataclass(frozen=True)
class SmallestEigenvalue(NoisyStatistics):
    """Smallest eigenvalue of the Gram matrix, plus noise.

    Sensitivity: row_norm^2 under both relations. One record adds or removes a matrix between 0 and
    row_norm^2, a replaced one does both; Weyl's inequality.
    """

    kind = "smallest_eigenvalue"

    @property
    def released(self) -> int:
        return 1

    @property
    def sensitivity(self) -> float:
        square, records = self.problem.bounds.row_norm**2, self.problem.max_records(self.relation)
        summed = sum_error(records, square, factors=ROUNDINGS)
        # The error of a computed eigenvalue is a few units of rounding times norm and dimension.
        solved = 2.0**-48 * self.problem.n_features * records * square
        return (square + 2 * (summed + solved)) * (1 + 1e-12)

    def run(self, data: View, run: Run) -> float:
        smallest = np.asarray(np.linalg.eigvalsh(self.gram(data))[:1], dtype=np.float64)
        return float(self.with_noise(smallest, run)[0])


@dataclass(frozen=True)
class NoisyLeastSquares(NoisyStatistics):
    """Least squares from a noisy Gram matrix and noisy moments; `DampedBy` sets ``damping``.

    Sensitivity: sqrt(2) row_norm^2 under add/remove, 3 / sqrt(2) row_norm^2 under replace-one, of
    the Gram matrix and the weighted moments together.
    """

    kind = "noisy_least_squares"
    damping: float = 0.0

    def __post_init__(self) -> None:
        # Products of smaller labels with rows underflow, and the weight of moments may be infinite.
        in_safe_range("the largest absolute value of a label", self.problem.bounds.label_size)
        super().__post_init__()
        non_negative("damping", self.damping)

    @property
    def released(self) -> int:
        d = self.problem.n_features
        return d * (d + 1) // 2 + d

    @property
    def weight(self) -> float:
        """Factor of the moments, which gives them the sensitivity of the Gram matrix."""
        return self.problem.bounds.row_norm / self.problem.bounds.label_size

    @property
    def sensitivity(self) -> float:
        bounds, records = self.problem.bounds, self.problem.max_records(self.relation)
        square = bounds.row_norm**2
        # Proof: docs/explanation/perturbation.md, section 5.
        exact = square * (math.sqrt(2) if self.relation == "add_remove" else 3 / math.sqrt(2))
        # Terms of the Gram matrix and of the weighted moments have the same norm, so they share one
        # bound on errors.
        rounding = math.sqrt(2) * sum_error(records, square, factors=ROUNDINGS + 13)
        return (exact + 2 * rounding) * (1 + 1e-12)

    @property
    def noise_spectral_norm(self) -> float:
        """Approximate spectral norm of the Gram noise; off-diagonal noise has factor 1/sqrt(2)."""
        return self.deviation * math.sqrt(2 * self.problem.n_features)

    @property
    def work(self) -> Work:
        return Work(passes=2.0)

    @property
    def risk(self) -> Risk:
        """Noise, and bias by damping, for isotropic rows at their bound, labels fully explained."""
        problem, d = self.problem, self.problem.n_features
        curvature = problem.bounds.row_norm**2 / d
        square = (problem.bounds.label_size / problem.bounds.row_norm) ** 2 * d
        flatness = problem.n * (curvature + problem.ridge)
        damping = max(0.0, self.noise_spectral_norm - problem.n * curvature)
        variance = (self.deviation / self.weight) ** 2 + self.deviation**2 * square / 2
        noise = d * variance / (2 * problem.n * (flatness + damping))
        return Risk(noise + damping / problem.n * square / 2, "excess empirical risk")

    def run(self, data: View, run: Run) -> Floats:
        d = self.problem.n_features
        moments = -data.gradient(Squared(), np.zeros(d), **self.problem.guards)[1]
        noisy = self.with_noise(np.concatenate([pack(self.gram(data)), self.weight * moments]), run)
        return self.problem.project(self._solved(unpack(noisy[:-d]), noisy[-d:] / self.weight))

    def _solved(self, gram: Floats, moments: Floats) -> Floats:
        """Return the solution of the damped system, with eigenvalues of at least the noise."""
        values, vectors = np.linalg.eigh(gram)
        strength = self.problem.n * self.problem.ridge
        raised = np.maximum(values + self.damping, self.deviation) + strength
        return np.asarray(vectors @ ((vectors.T @ moments) / raised))


@dataclass(frozen=True)
class DampedBy(Binding):
    """Set the damping to what the released eigenvalue lacks of the noise's spectral norm."""

    kind = "damped_by"
    stage: str

    def __call__(self, plan: Plan, released: Mapping[str, Any]) -> Plan:
        smallest = max(float(released[self.stage]), 0.0)

        def damp(mechanism: Mechanism) -> Mechanism:
            if not isinstance(mechanism, NoisyLeastSquares):
                raise ValueError(f"damped_by binds noisy_least_squares, got {mechanism.kind!r}")
            return replace(mechanism, damping=max(0.0, mechanism.noise_spectral_norm - smallest))

        return plan.map_steps(damp)

    def stand_in(self, plan: Plan) -> Mapping[str, Any]:
        return {self.stage: 0.0}


class _Stages(NamedTuple):
    """The mechanisms of both stages."""

    eigenvalue: SmallestEigenvalue
    parameter: NoisyLeastSquares

    @property
    def event(self) -> Event:
        return Composed((self.eigenvalue.event, self.parameter.event))


def _calibrated(problem: Minimize, share: float, noise: str, budget: Budget) -> _Stages:
    """Return both stages with the smallest noise within the budget."""
    parts = [
        1 / part if noise == "l2_laplace" else 1 / math.sqrt(part) for part in (share, 1 - share)
    ]

    def stages(level: float) -> _Stages:
        first = SmallestEigenvalue(problem, budget.relation, noise, parts[0] * level)
        return _Stages(first, NoisyLeastSquares(problem, budget.relation, noise, parts[1] * level))

    return calibrate(stages, budget)


class SufficientStatistics(Perturbation):
    """Least squares from a noisy Gram matrix and noisy moments.

    Use it for linear regression with few columns and labels of a known range.
    Guarantee: mu-GDP (Gaussian noise) or epsilon-DP (l2-Laplace noise), for the eigenvalue and the
    parameter together. Reference: Vu and Slavkovic (2009); Wang (2018), AdaSSP;
    docs/explanation/perturbation.md, section 5. Work: three passes over the data.

    Parameters
    ----------
    share : float, default=0.05
        Fraction of the budget (of mu^2, or of epsilon) for the smallest eigenvalue.

    Examples
    --------
    >>> problem = Minimize(n=10_000, loss=Squared(), bounds=Bounds(1.0, -1.0, 1.0), n_features=5)
    >>> plan = sufficient_statistics.plan(problem, Budget(mu=0.5))
    >>> round(plan.guarantee.mu, 6)
    0.5
    """

    name = "sufficient_statistics"
    summary = "least squares from a noisy Gram matrix and noisy moments"
    reference = "Vu and Slavkovic (2009); Wang (2018)"
    requires = (SQUARED_LOSS, LABEL_RANGE)
    tier = "specialised"

    def _plan(self, problem: Minimize, budget: Budget, *, share: float = 0.05) -> Plan:
        """Return two stages, which release the smallest eigenvalue and the parameter."""
        if not 0 < share < 1:
            raise ValueError(f"share must lie strictly between 0 and 1, got {share!r}")
        stages = [_calibrated(problem, share, *target) for target in VectorNoise.targets(budget)]
        first, second = min(stages, key=lambda pair: pair.parameter.deviation)
        why = self._basis(
            "noisy sufficient statistics [docs/explanation/perturbation.md]", problem, budget
        )
        return Composition(
            (
                Stage("eigenvalue", Step(first, why)),
                Stage("parameter", Step(second, why), DampedBy("eigenvalue")),
            )
        )

    def example(self, relation: str) -> Example:
        """Return equal records, one of which gets the opposite label or is removed."""
        problem = Minimize(
            n=6, loss=Squared(), bounds=Bounds(1.0, -1.0, 1.0), n_features=2, ridge=0.5
        )
        return self._equal_records(problem, relation, label=1.0)


sufficient_statistics = SufficientStatistics()
