"""How long rows may be in a fit to columns with ranges, by public facts.

Noise is proportional to the largest norm of a row. Rows that are shortened get less noise, and
count for less. The choice decides about accuracy, never about privacy: guards enforce any norm.
Measured: docs/explanation/models.md.
"""

from __future__ import annotations

import math

import numpy as np

from dpfit.losses.base import Loss
from dpfit.privacy import Budget

_CLASSES = (300.0, 1200.0)
"""Levels of `signal` between which the norm grows to the largest one, for losses of classes:
shortened records overstate the effects of columns."""

_NUMBERS = (3_000.0, 30_000.0)
"""The same for regressions: the line through shortened records is that through whole ones."""

_MEANS = (25.0, 100.0)
"""The same for regressions of a mean with a delta: their gradients are clipped anyway."""

_LEAST_SHARE_OF_MEANS = 0.75
"""How much of the way these go at any noise, in logarithms."""

_QUANTILES, _LEAST_OF_QUANTILES = (300.0, 1200.0), 0.75
"""Levels of `signal` between which quantile losses with a delta come to have the norm of other
regressions; below, this multiple of it. Set by benchmarks/quantiles.py."""


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
    least, levels = 0.0, _CLASSES
    if loss.is_regression:
        is_mean = budget.kind != "pure" and not loss.is_quantile
        least, levels = (_LEAST_SHARE_OF_MEANS, _MEANS) if is_mean else (0.0, _NUMBERS)
    clear = math.log(max(signal(budget, n, columns * loss.outputs), 1e-300))
    share = float(np.interp(clear, np.log(levels), (least, 1.0)))
    norm = float(usual * (longest / usual) ** share)
    if loss.is_quantile and budget.kind != "pure":
        # The slopes are clipped nowhere, so short rows are the only guard against much noise.
        lower = float(np.interp(clear, np.log(_QUANTILES), (1.0, 0.0)))
        norm *= _LEAST_OF_QUANTILES**lower
    return norm
