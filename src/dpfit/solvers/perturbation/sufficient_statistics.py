"""Least squares from a noisy Gram matrix and noisy moments, damped as much as the noise asks for.

Guarantee: the two stages composed, mu-GDP with Gaussian noise, epsilon-DP with l2-Laplace noise. Reference: Vu and
Slavkovic (2009); Wang (2018), AdaSSP; docs/explanation/perturbation.md, section 5, for the joint sensitivity.

The first stage releases the smallest eigenvalue of the Gram matrix, from which the second takes its damping: none where
the data are well conditioned, as much as the noise where they are not. The second stage releases the upper triangle of
the Gram matrix and the moments together, with one noise, and solves for the parameter: all that follows the noise is
free. Sums are those of BLAS, so a bound on their rounding errors is part of the sensitivity.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpfit.core import Chain, Mechanism, Minimize, Risk, Run, Step, Work, require_records
from dpfit.data.dataset import Dataset
from dpfit.kernels.rounding import sum_error
from dpfit.losses import Bounds, Squared
from dpfit.noise import add_gaussian, add_l2_laplace
from dpfit.privacy import Basis, Budget, calibrate
from dpfit.privacy.check import moderate, non_negative, one_of
from dpfit.privacy.event import Composed, Event, Gaussian, L2Laplace
from dpfit.solvers.perturbation.minimizer import largest_count
from dpfit.solvers.perturbation.output_perturbation import agreeing_records, minimizer_assumptions, noises, require_data

Floats = NDArray[np.float64]

ROUNDINGS = 7
"""Roundings within a product of two guarded entries (`dpfit.kernels.rounding.sum_error`)."""


@dataclass(frozen=True)
class NoisyStatistics(Mechanism):
    """What stages that release statistics have in common: a vector with noise of one scale."""

    problem: Minimize
    relation: str
    noise: str
    noise_multiplier: float

    def __post_init__(self) -> None:
        one_of("relation", self.relation, ("replace", "add_remove"))
        one_of("noise", self.noise, ("gaussian", "l2_laplace"))
        _ = self.event, self.sensitivity

    @property
    @abstractmethod
    def released(self) -> int:
        """How many numbers get noise."""

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """How far one record moves them in l2 norm, rounding errors included, rounded up."""

    @property
    def event(self) -> Event:
        if self.noise == "gaussian":
            return Gaussian(self.noise_multiplier)
        return L2Laplace(self.noise_multiplier, self.released)

    @property
    def deviation(self) -> float:
        """Root mean square of the noise on each number."""
        scale = self.noise_multiplier * self.sensitivity
        return scale if self.noise == "gaussian" else scale * math.sqrt(self.released + 1)

    def with_noise(self, values: Floats, run: Run) -> Floats:
        add = add_gaussian if self.noise == "gaussian" else add_l2_laplace
        return add(values, l2_sensitivity=self.sensitivity, noise_multiplier=self.noise_multiplier, source=run.noise)

    def gram(self, records: Dataset) -> Floats:
        zero = np.zeros(self.problem.n_features)
        return np.asarray(records.hessian(Squared(), zero, **self.problem.guards))


def packed(matrix: Floats) -> Floats:
    """A symmetric matrix as a vector of the same norm: its upper triangle, off-diagonal entries times sqrt(2).

    >>> packed(np.array([[1.0, 2.0], [2.0, 3.0]])).round(3).tolist()
    [1.0, 2.828, 3.0]
    """
    upper = np.triu_indices(len(matrix))
    return np.asarray(matrix[upper] * _triangle_scales(upper))


def unpacked(vector: Floats, dimension: int) -> Floats:
    """The symmetric matrix that `packed` made a vector of."""
    upper = np.triu_indices(dimension)
    matrix = np.zeros((dimension, dimension))
    matrix[upper] = vector / _triangle_scales(upper)
    return matrix + np.triu(matrix, 1).T


def _triangle_scales(upper: tuple[Any, ...]) -> Floats:
    return np.where(upper[0] == upper[1], 1.0, math.sqrt(2))


@dataclass(frozen=True)
class SmallestEigenvalue(NoisyStatistics):
    """The smallest eigenvalue of the Gram matrix, with noise.

    One record adds or takes away a matrix between 0 and row_norm**2, replacing one does both: by Weyl's inequality the
    eigenvalue moves by at most row_norm**2 in either case.
    """

    kind = "smallest_eigenvalue"

    @property
    def released(self) -> int:
        return 1

    @property
    def sensitivity(self) -> float:
        square, records = self.problem.bounds.row_norm**2, largest_count(self.problem, self.relation)
        summed = sum_error(records, square, factors=ROUNDINGS)
        # Eigenvalues of a symmetric matrix are computed to a few units of its norm times its dimension.
        solved = 2.0**-48 * self.problem.n_features * records * square
        return (square + 2 * (summed + solved)) * (1 + 1e-12)

    def run(self, data: Any, run: Run) -> float:
        gram = self.gram(require_data(data, self.problem, self.relation))
        return float(self.with_noise(np.asarray(np.linalg.eigvalsh(gram)[:1], dtype=np.float64), run)[0])


@dataclass(frozen=True)
class NoisyLeastSquares(NoisyStatistics):
    """The parameter from noisy statistics; ``damping`` is bound to what the first stage released."""

    kind = "noisy_least_squares"
    damping: float = 0.0

    def __post_init__(self) -> None:
        # Products of smaller labels with rows may vanish, and their weight may not be finite.
        moderate("the largest absolute value of a label", self.problem.bounds.label_size)
        super().__post_init__()
        non_negative("damping", self.damping)

    @property
    def released(self) -> int:
        d = self.problem.n_features
        return d * (d + 1) // 2 + d

    @property
    def weight(self) -> float:
        """Moments are multiplied by this, so that they move as far as the Gram matrix."""
        return self.problem.bounds.row_norm / self.problem.bounds.label_size

    @property
    def sensitivity(self) -> float:
        bounds, records = self.problem.bounds, largest_count(self.problem, self.relation)
        square = bounds.row_norm**2
        # sqrt(2) for a record that comes or goes, 3 / sqrt(2) for one that is replaced: see docs.
        exact = square * (math.sqrt(2) if self.relation == "add_remove" else 3 / math.sqrt(2))
        # Gram matrix and weighted moments have terms of the same norm, and errors of the same bound.
        rounding = math.sqrt(2) * sum_error(records, square, factors=ROUNDINGS + 13)
        return (exact + 2 * rounding) * (1 + 1e-12)

    @property
    def swing(self) -> float:
        """About the largest eigenvalue of the noise on the Gram matrix, off-diagonal noise is divided by sqrt(2)."""
        return self.deviation * math.sqrt(2 * self.problem.n_features)

    def bind(self, released: tuple[Any, ...]) -> NoisyLeastSquares:
        return replace(self, damping=max(0.0, self.swing - max(float(released[-1]), 0.0)))

    @property
    def work(self) -> Work:
        return Work(passes=2.0)

    @property
    def risk(self) -> Risk:
        """For isotropic rows of full length and a parameter that explains labels: noise, and bias by damping."""
        problem, d = self.problem, self.problem.n_features
        curvature = problem.bounds.row_norm**2 / d
        square = (problem.bounds.label_size / problem.bounds.row_norm) ** 2 * d
        flatness = problem.n * (curvature + problem.ridge)
        damping = max(0.0, self.swing - problem.n * curvature)
        variance = (self.deviation / self.weight) ** 2 + self.deviation**2 * square / 2
        noise = d * variance / (2 * problem.n * (flatness + damping))
        return Risk(noise + damping / problem.n * square / 2, "excess empirical risk")

    def run(self, data: Any, run: Run) -> Floats:
        records = require_data(data, self.problem, self.relation)
        d = self.problem.n_features
        zero = np.zeros(d)
        moments = -records.gradient(Squared(), zero, **self.problem.guards)[1]
        noisy = self.with_noise(np.concatenate([packed(self.gram(records)), self.weight * moments]), run)
        theta = self._solved(unpacked(noisy[:-d], d), noisy[-d:] / self.weight)
        return theta if self.problem.domain is None else self.problem.domain.project(theta)

    def _solved(self, gram: Floats, moments: Floats) -> Floats:
        """The solution of the damped system, in which eigenvalues below the noise are raised to it."""
        values, vectors = np.linalg.eigh(gram)
        strength = self.problem.n * self.problem.ridge
        raised = np.maximum(values + self.damping, self.deviation) + strength
        return np.asarray(vectors @ ((vectors.T @ moments) / raised))


class _Stages(NamedTuple):
    """An eigenvalue, then the parameter."""

    eigenvalue: SmallestEigenvalue
    parameter: NoisyLeastSquares

    @property
    def event(self) -> Event:
        return Composed((self.eigenvalue.event, self.parameter.event))


def _calibrated(problem: Minimize, share: float, noise: str, budget: Budget) -> _Stages:
    """Both stages with the smallest noise for a budget."""
    parts = [1 / part if noise == "l2_laplace" else 1 / math.sqrt(part) for part in (share, 1 - share)]

    def stages(level: float) -> _Stages:
        first = SmallestEigenvalue(problem, budget.relation, noise, parts[0] * level)
        return _Stages(first, NoisyLeastSquares(problem, budget.relation, noise, parts[1] * level))

    return calibrate(stages, budget)


@dataclass(frozen=True)
class SufficientStatistics:
    """Plans least squares from noisy statistics."""

    name: str = "sufficient_statistics"

    def plan(self, problem: Minimize, budget: Budget, *, share: float = 0.05) -> Chain:
        """Two stages; ``share`` is the part of the budget (of squared GDP, or epsilon) that goes to the eigenvalue.

        The value of the release is the eigenvalue and the parameter.

        >>> problem = Minimize(n=10_000, loss=Squared(), bounds=Bounds(1.0, -1.0, 1.0), n_features=5)
        >>> plan = sufficient_statistics.plan(problem, Budget(mu=0.5))
        >>> round(plan.guarantee.mu, 6)
        0.5
        """
        require_records(self.name, budget)
        if not isinstance(problem, Minimize) or problem.loss != Squared():
            raise ValueError(f"{self.name} solves Minimize problems with the Squared loss")
        if not math.isfinite(problem.bounds.label_size) or problem.bounds.label_size == 0:
            raise ValueError(f"{self.name} needs declared label bounds: Bounds(row_norm, label_lower, label_upper)")
        if not 0 < share < 1:
            raise ValueError(f"share must lie strictly between 0 and 1, got {share!r}")
        stages = [_calibrated(problem, share, *choice) for choice in noises(budget)]
        first, second = min(stages, key=lambda pair: pair[1].deviation)
        theorem = "noisy sufficient statistics [docs/explanation/perturbation.md]"
        why = Basis(theorem, budget.relation, budget.unit, minimizer_assumptions(problem, budget), "bounded")
        return Chain((Step(first, why), Step(second, why)))

    def example(self, relation: str) -> tuple[Minimize, Any, Any]:
        """Equal records, one of which gets the opposite label or leaves."""
        problem = Minimize(n=6, loss=Squared(), bounds=Bounds(1.0, -1.0, 1.0), n_features=2, ridge=0.5)
        return problem, *agreeing_records(relation, label=1.0)


sufficient_statistics = SufficientStatistics()
