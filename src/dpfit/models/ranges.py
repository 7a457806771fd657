"""Ranges of columns and labels that are not declared: how a budget is shared with the stage that finds them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from dpfit.core import Chain, Plan
from dpfit.data.dataset import InMemory
from dpfit.mechanisms.private_bounds import ColumnRanges
from dpfit.models.leaks import LeakWarning, warn_caller
from dpfit.models.scaling import Scaling
from dpfit.privacy import Budget, gaussian
from dpfit.solvers.auto import Chosen

BOUNDS_SHARE = 0.1
"""The part of the budget that goes to private bounds."""

_LARGE = 100.0
"""The epsilon above which noise in ranges is nothing, and accountants lose more than it on Gaussian noise with other.
"""

_NOISELESS = 1e4
"""The pure epsilon above which noise in a fit is nothing, too, up to thousands of columns."""


def ends(bounds: Any, columns: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Lower and upper ends, one for each column."""
    try:
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (columns,)) for end in bounds)
    except (TypeError, ValueError):
        raise ValueError(
            f"bounds must be a pair (lower, upper) of numbers or of {columns} numbers each, 'private' or 'from_data'"
        ) from None
    return tuple(low.tolist()), tuple(high.tolist())


def shares(budget: Budget, missing: ColumnRanges | None) -> list[tuple[Budget | None, Budget]]:
    """How a budget may be shared between finding ranges and fitting; each way keeps it.

    Two Gaussian mechanisms share the square of mu. After ranges as good as those, what is left of epsilon and delta
    (which add up) may go to a fit with noise of another kind, or on samples. A large epsilon is shared as a pure one.
    """
    if missing is None:
        return [(None, one) for one in _with_pure(budget)]
    first, second = budget.split(BOUNDS_SHARE)
    ways: list[tuple[Budget | None, Budget]] = [(first, second)]
    if first.mu is None or not budget.epsilon or not budget.delta:
        return ways
    if budget.epsilon > _LARGE:
        return [*ways, replace(budget, delta=None).split(BOUNDS_SHARE)]
    left = budget.epsilon - gaussian.epsilon(first.mu, budget.delta / 2)
    return [*ways, (first, replace(budget, epsilon=left, delta=budget.delta / 2))] if left > 0 else ways


def after(first: Plan, plan: Plan) -> Plan:
    """A plan that follows another stage."""
    if isinstance(plan, Chosen):
        return replace(plan, plan=after(first, plan.plan))
    return Chain((first, *(plan.stages if isinstance(plan, Chain) else (plan,))))


def read_off(scaling: Scaling, missing: ColumnRanges, data: InMemory) -> Scaling:
    """Ranges read off the data: not private, for tests and comparisons."""
    warn_caller(
        "bounds='from_data' reads ranges off the records: the guarantee does not cover what they tell", LeakWarning
    )
    rows = data.matrix.toarray() if hasattr(data.matrix, "toarray") else np.asarray(data.matrix, dtype=np.float64)
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
    return replace(found, label_lower=lowest, label_upper=max(highest, lowest + max(1e-9, 1e-9 * abs(lowest))))


def is_noiseless(budget: Budget) -> bool:
    """Whether a budget buys minimizers without noise to speak of: these are exact, and descents only come near."""
    return budget.kind == "pure" and budget.epsilon is not None and budget.epsilon > _NOISELESS


def _with_pure(budget: Budget) -> list[Budget]:
    """A pure promise keeps the budget, too: where there is little noise, its minimizers are nearer than descents."""
    large = budget.kind == "approximate" and budget.epsilon is not None and budget.epsilon > _LARGE
    return [budget, replace(budget, delta=None)] if large else [budget]
