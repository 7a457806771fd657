"""The mean of the labels as the start of a descent, for regressions with an intercept.

A descent starts at the origin and shrinks its output towards its start. The origin predicts the
middle of the label range, which may be far from all labels. So a small part of the budget finds the
mean of the labels first, and the descent starts at the constant prediction of that number.

Guarantee: mean and descent composed, mu-GDP. Sensitivity: labels are clipped into their declared
range, so one record moves their sum by the range's largest absolute value (twice that if it is
replaced). Reference: [Gan22] Fact 15; [LD] Lemma C.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dpfit.core import (
    Composition,
    Minimize,
    Plan,
    Run,
    Stage,
    Transformation,
    TransformedPlan,
    Tuning,
)
from dpfit.core.binding import StartAt
from dpfit.data.chunk import Chunk
from dpfit.data.view import View
from dpfit.losses import Squared
from dpfit.losses.base import Bounds
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.event import Composed, Gaussian
from dpfit.solvers.descents.descent import Descent, trajectory_step
from dpfit.solvers.descents.momentum import Momentum, momentum_descent

Floats = NDArray[np.float64]

CENTRE, DESCENT = "centre", "descent"
"""Names of the two stages."""


@dataclass(frozen=True)
class LabelMeanTuning(Tuning):
    """Tuned numbers of the mean of the labels.

    Parameters
    ----------
    share : float
        Largest fraction of the squared GDP budget that the mean gets.
    enough : float
        Standard deviation of the noise on the mean, over the largest label, below which a smaller
        fraction is enough.
    worst : float
        The descent starts at the origin where that standard deviation would be above this number.
    shrinkage : float
        Fraction of the usual shrinkage that is made around the mean. Residuals are smaller there,
        so fewer are clipped, and directions forget more of their noise.
    """

    kind = "label_mean_tuning"
    set_by: str = "benchmarks/calibrate_descents.py"
    share: float = 0.05
    enough: float = 0.03
    worst: float = 0.2
    shrinkage: float = 0.5


TUNING = LabelMeanTuning()


@dataclass(frozen=True)
class ConstantRows(Transformation):
    """Records with the row (1,) and their label; a number becomes the parameter that predicts it.

    Each record is mapped by itself, so neighbours stay neighbours. The number is clipped into the
    label range. The parameter is zero but for the last column, which holds ``intercept`` in each
    row. A record that was shortened as a whole has less there: its label is lengthened again.

    >>> ConstantRows(3, 2.0, -1.0, 1.0).inverse(np.array([-0.5])).tolist()
    [0.0, 0.0, -0.25]
    """

    kind = "constant_rows"
    n_features: int
    intercept: float
    lower: float
    upper: float

    def transform(self, data: View, run: Run) -> View:
        return data.map(self)

    def __call__(self, chunk: Chunk) -> Chunk:
        last = chunk.rows[:, [-1]]
        constants = (last.toarray() if hasattr(last, "toarray") else last).ravel()
        with np.errstate(all="ignore"):
            labels = chunk.labels * (self.intercept / constants)
        return chunk.with_records(np.ones((len(chunk), 1)), labels)

    def width(self, width: int) -> int:
        """Return the number of columns of mapped rows."""
        return 1

    def inverse(self, value: Floats) -> Floats:
        point = np.zeros(self.n_features)
        point[-1] = np.clip(value[0], self.lower, self.upper) / self.intercept
        return point


def can_start_at_constant(problem: Minimize) -> bool:
    """Whether a constant prediction can be released first: it needs an intercept and label bounds.

    A problem with a start or a domain of its own keeps them.
    """
    low, high = problem.bounds.labels
    return (
        problem.intercept is not None
        and problem.loss.is_regression
        and problem.start is None
        and problem.region is None
        and math.isfinite(high - low)
    )


def label_mean_share(problem: Minimize, relation: str, noise_multiplier: float) -> float:
    """Return the fraction of the squared GDP budget for the mean of the labels; 0 for none.

    All that decides is public. Quantiles are not means: see `label_quantile`.
    """
    if problem.loss.is_quantile or not can_start_at_constant(problem):
        return 0.0
    whole = label_mean_noise(problem, relation, noise_multiplier) / problem.bounds.label_size
    share = min(TUNING.share, (whole / TUNING.enough) ** 2)
    return share if whole <= TUNING.worst * math.sqrt(share) else 0.0


def from_constant(first: Descent, descent: Plan, problem: Minimize, budget: Budget) -> Plan:
    """Return the descent that finds a constant prediction, then the one that starts there."""
    constant = TransformedPlan.of(
        ConstantRows(problem.n_features, float(problem.intercept or 1.0), *problem.bounds.labels),
        trajectory_step(first, budget),
    )
    return Composition((Stage(CENTRE, constant), Stage(DESCENT, descent, StartAt(CENTRE))))


def around_constant(descent: Descent) -> Descent:
    """Return a descent that shrinks less, and the intercept not at all: the start is noisy."""
    moves = cast(Momentum, descent.optimizer)
    shrinkage = TUNING.shrinkage * moves.shrinkage
    return replace(descent, optimizer=replace(moves, shrinkage=shrinkage, unshrunk=1))


def label_mean(problem: Minimize, relation: str, noise_multiplier: float) -> Descent:
    """Return the noisy mean of the labels: one step of gradient descent on squared distances.

    From 0, a step of size 1 along the mean of the gradients -y ends at the mean of the labels.

    >>> problem = Minimize(n=100, loss=Squared(), bounds=Bounds(5.0, -1.0, 1.0), n_features=3)
    >>> label_mean(problem, "add_remove", noise_multiplier=2.0).rounds
    1
    """
    low, high = problem.bounds.labels
    alone = Minimize(n=problem.n, loss=Squared(), bounds=Bounds(1.0, low, high), n_features=1)
    size = problem.bounds.label_size
    return momentum_descent(alone, relation, noise_multiplier, 1.0, size, Schedule(1))


def label_mean_noise(problem: Minimize, relation: str, noise_multiplier: float) -> float:
    """Return the standard deviation of the noise on the mean of the labels."""
    mean = label_mean(problem, relation, noise_multiplier)
    return mean.clipped_mean.deviation(mean.asked(problem.bounds.label_size))


def split(budget: Budget, share: float) -> tuple[float, float]:
    """Return the noise multipliers of the mean and the descent, which meet the budget together."""
    whole = calibrate(Gaussian, budget).noise_multiplier
    stages = Composed((Gaussian(whole / math.sqrt(share)), Gaussian(whole / math.sqrt(1 - share))))
    first, rest = (each.noise_multiplier for each in calibrate(stages, budget).events)  # type: ignore[attr-defined]
    return first, rest
