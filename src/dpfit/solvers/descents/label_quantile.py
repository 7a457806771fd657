"""The quantile of the labels as the start of a descent, for quantile losses with an intercept.

The slopes of a quantile loss are small on one side. So a descent from the middle of the label range
may not reach a quantile near its end. A small part of the budget finds the quantile of the
labels first, by a descent on labels alone. The second descent starts at that constant prediction.

Guarantee: both descents composed, mu-GDP. Sensitivity: slopes are clipped, so one record moves
their sum by the steeper slope at most (by the sum of both slopes if it is replaced). Reference:
[Gan22] Fact 15; [LD] Lemma C.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

from dpfit.core import Minimize, Tuning
from dpfit.core.reference_designs import half_range
from dpfit.losses import Pinball, QuantileHuber
from dpfit.losses.base import Bounds
from dpfit.solvers.descents.descent import Descent
from dpfit.solvers.descents.label_mean import can_start_at_constant
from dpfit.solvers.descents.momentum import Momentum
from dpfit.solvers.descents.quantiles import quantile_time
from dpfit.solvers.descents.rule import tune_descent


@dataclass(frozen=True)
class LabelQuantileTuning(Tuning):
    """Tuned numbers of the quantile of the labels.

    Parameters
    ----------
    share : float
        Largest fraction of the squared GDP budget that the quantile gets.
    enough : float
        Standard deviation of the noise on a mean slope, over the sum of both slopes, below which a
        smaller fraction is enough.
    worst : float
        The descent starts at the origin where that standard deviation would be above this number.
    passes : int
        Number of passes over the labels.
    width : float
        Width over which the corner is rounded, over half the label range.
    least_time : float
        The descent starts at the origin if the remaining passes allow less than this fraction of
        the total step size that noise allows. Set after a look at benchmarks/weak_spots.py.
    """

    kind = "label_quantile_tuning"
    set_by: str = "benchmarks/quantiles.py"
    share: float = 0.05
    enough: float = 0.01
    worst: float = 0.2
    passes: int = 50
    width: float = 0.1
    least_time: float = 0.8


TUNING = LabelQuantileTuning()


def label_quantile_share(problem: Minimize, noise_multiplier: float, passes: int) -> float:
    """Return the fraction of the squared GDP budget for the quantile of the labels; 0 for none."""
    if (
        not problem.loss.is_quantile
        or not can_start_at_constant(problem)
        or passes <= TUNING.passes
    ):
        return 0.0
    whole = noise_multiplier / problem.n
    share = min(TUNING.share, (whole / TUNING.enough) ** 2)
    return share if whole <= TUNING.worst * math.sqrt(share) else 0.0


def label_quantile(problem: Minimize, relation: str, noise_multiplier: float) -> Descent:
    """Return the descent to the quantile of the labels, on rows (1,).

    >>> problem = Minimize(n=100, loss=Pinball(0.9), bounds=Bounds(5.0, -1.0, 1.0), n_features=3)
    >>> label_quantile(problem, "add_remove", noise_multiplier=2.0).rounds
    50
    """
    level = float(cast(Pinball | QuantileHuber, problem.loss).level)
    loss = QuantileHuber(level, TUNING.width * half_range(problem), centred=True)
    bounds = Bounds(1.0, *problem.bounds.labels)
    alone = Minimize(n=problem.n, loss=loss, bounds=bounds, n_features=1)
    return tune_descent(alone, relation, noise_multiplier, max_passes=TUNING.passes)


def has_time(descent: Descent) -> bool:
    """Whether a descent on a quantile loss can take nearly all the time that noise allows."""
    moves = cast(Momentum, descent.optimizer)
    deviation = descent.clipped_mean.deviation(descent.asked(moves.clip_norm))
    return moves.time >= TUNING.least_time * quantile_time(descent.problem, deviation)
