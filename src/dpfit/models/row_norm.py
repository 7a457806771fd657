"""How long rows may be in a fit to columns with ranges, by public facts.

Noise is proportional to the largest norm of a row. Rows that are shortened get less noise, and
count for less. The choice decides about accuracy, never about privacy: guards enforce any norm.
Measured: docs/explanation/models.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpfit.core.notes import Tuning
from dpfit.losses.base import Loss
from dpfit.privacy import Budget


@dataclass(frozen=True)
class RowNormTuning(Tuning):
    """Tuned numbers of `longest_row`: levels of `signal` between which rows become whole.

    Parameters
    ----------
    classes : pair of float
        For losses of classes: shortened records overstate the effects of columns.
    numbers : pair of float
        For regressions: the line through shortened records is that through whole ones.
    means : pair of float
        For regressions of a mean with a delta: their gradients are clipped anyway.
    least_share_of_means : float
        How much of the way these go at any noise, in logarithms.
    quantiles : pair of float
        For quantile losses with a delta: levels between which they come to have the norm of other
        regressions. Set by benchmarks/quantiles.py, as the next.
    least_of_quantiles : float
        Below these levels, the multiple of that norm.
    """

    kind = "row_norm_tuning"
    set_by: str = "rules of thumb; measured by benchmarks/learning.py"
    classes: tuple[float, float] = (300.0, 1200.0)
    numbers: tuple[float, float] = (3_000.0, 30_000.0)
    means: tuple[float, float] = (25.0, 100.0)
    least_share_of_means: float = 0.75
    quantiles: tuple[float, float] = (300.0, 1200.0)
    least_of_quantiles: float = 0.75


TUNING = RowNormTuning()


def signal(budget: Budget, n: int, dimension: int) -> float:
    """How far a sum over n records stands out of the noise of a budget, from public facts."""
    if budget.kind == "pure":
        return n * float(budget.epsilon or 0.0) / dimension
    return n * budget.gaussian_mu / math.sqrt(dimension)


def norm_of_uniform_rows(columns: int) -> float:
    """Return a norm just above that of most rows with columns that are uniform on [-1, 1].

    Their mean squares are 1 / 3. A smaller norm would shorten most rows; with a larger one a
    record could do more than records do.
    """
    return math.sqrt(min(columns, 2 + columns / 3))


def longest_row(loss: Loss, budget: Budget, n: int, columns: int) -> float:
    """Return the norm to which rows with entries in [-1, 1] are shortened.

    >>> from dpfit.losses import Logistic
    >>> [
    ...     round(longest_row(Logistic(), Budget(epsilon=epsilon), 10_000, 25), 3)
    ...     for epsilon in (0.1, 2.0, 10.0)
    ... ]
    [3.215, 4.394, 5.0]
    """
    usual = norm_of_uniform_rows(columns)
    longest = math.sqrt(columns) * (1 + 2.0**-40)
    least, levels = 0.0, TUNING.classes
    if loss.is_regression:
        is_mean = budget.kind != "pure" and not loss.is_quantile
        least, levels = (
            (TUNING.least_share_of_means, TUNING.means) if is_mean else (0.0, TUNING.numbers)
        )
    clear = math.log(max(signal(budget, n, columns * loss.outputs), 1e-300))
    share = float(np.interp(clear, np.log(levels), (least, 1.0)))
    norm = float(usual * (longest / usual) ** share)
    if loss.is_quantile and budget.kind != "pure":
        # The slopes are clipped nowhere, so short rows are the only guard against much noise.
        lower = float(np.interp(clear, np.log(TUNING.quantiles), (1.0, 0.0)))
        norm *= TUNING.least_of_quantiles**lower
    return norm
