"""Ranges that are not declared: how a budget is shared with the stage that finds them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dpfit.core.notes import Tuning
from dpfit.data.dataset import InMemory
from dpfit.mechanisms.private_bounds import ColumnRanges
from dpfit.models.leaks import LeakWarning, warn_caller
from dpfit.models.scaling import Scaling
from dpfit.privacy import Budget, gaussian

ColumnBounds: TypeAlias = Iterable[ArrayLike]
"""A pair (lower, upper): numbers, or one number for each column."""


@dataclass(frozen=True)
class RangesTuning(Tuning):
    """Tuned numbers of private ranges.

    Parameters
    ----------
    share : float
        The part of the budget that finds ranges.
    large : float
        Epsilon above which the noise in ranges is negligible, and accountants lose more than it on
        mixed noise.
    noiseless : float
        Pure epsilon above which the noise in a fit is negligible, up to thousands of columns.
    """

    kind = "ranges_tuning"
    set_by: str = "rules of thumb; measured by benchmarks/learning.py"
    share: float = 0.1
    large: float = 100.0
    noiseless: float = 1e4


TUNING = RangesTuning()


def column_bounds(
    bounds: ColumnBounds, columns: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return lower and upper bounds, one for each column."""
    try:
        low, high = (
            np.broadcast_to(np.asarray(end, dtype=np.float64), (columns,)) for end in bounds
        )
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"bounds must be a pair (lower, upper) of numbers or of {columns} numbers each, "
            "'private' or 'from_data'"
        ) from None
    return tuple(low.tolist()), tuple(high.tolist())


def shares(
    budget: Budget, missing: ColumnRanges | None, *, compare: bool = True
) -> list[tuple[Budget | None, Budget]]:
    """Return ways to share a budget between finding ranges and fitting; each stays within it.

    Two Gaussian mechanisms share the square of mu. After ranges as good as those, the rest of
    epsilon and delta (which add up) may go to a fit with noise of another kind, or on samples. A
    large epsilon is shared as a pure one. Without ``compare`` there is one way.
    """
    if missing is None:
        return [(None, one) for one in (_with_pure(budget) if compare else [budget])]
    first, second = budget.split(TUNING.share)
    ways: list[tuple[Budget | None, Budget]] = [(first, second)]
    if not compare or first.mu is None or not budget.epsilon or not budget.delta:
        return ways
    if budget.epsilon > TUNING.large:
        return [*ways, replace(budget, delta=None).split(TUNING.share)]
    left = budget.epsilon - gaussian.epsilon(first.mu, budget.delta / 2)
    return (
        [*ways, (first, replace(budget, epsilon=left, delta=budget.delta / 2))]
        if left > 0
        else ways
    )


def ranges_from_data(scaling: Scaling, missing: ColumnRanges, data: InMemory) -> Scaling:
    """Return the scaling with ranges from the records: not private, for tests only."""
    warn_caller(
        "bounds='from_data' reads ranges off the records: the guarantee does not cover what they "
        "tell",
        LeakWarning,
    )
    rows = (
        data.matrix.toarray()
        if hasattr(data.matrix, "toarray")
        else np.asarray(data.matrix, dtype=np.float64)
    )
    finite = np.where(np.isfinite(rows), rows, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        low, high = np.nanmin(finite, axis=0), np.nanmax(finite, axis=0)
    low, high = np.nan_to_num(low, nan=-1.0), np.nan_to_num(high, nan=1.0)
    high = np.where(high > low, high, low + np.maximum(1.0, np.abs(low)))
    found = replace(scaling, lower=tuple(low.tolist()), upper=tuple(high.tolist()))
    if not missing.labels:
        return found
    labels = np.asarray(data.labels, dtype=np.float64)
    labels = labels[np.isfinite(labels)] if np.isfinite(labels).any() else np.array([-1.0, 1.0])
    lowest, highest = float(labels.min()), float(labels.max())
    return replace(
        found, label_lower=lowest, label_upper=max(highest, lowest + max(1e-9, 1e-9 * abs(lowest)))
    )


def is_noiseless(budget: Budget) -> bool:
    """Return whether minimizers have negligible noise: they are exact, descents are not."""
    return (
        budget.kind == "pure" and budget.epsilon is not None and budget.epsilon > TUNING.noiseless
    )


def _with_pure(budget: Budget) -> list[Budget]:
    """Return a large budget with and without delta: pure minimizers may be the nearest."""
    large = (
        budget.kind == "approximate"
        and budget.epsilon is not None
        and budget.epsilon > TUNING.large
    )
    return [budget, replace(budget, delta=None)] if large else [budget]
