"""One-dimensional Gibbs laws and proximal chains on a grid, without dpfit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Array = np.ndarray


def cells(lower: float, upper: float, number: int) -> tuple[Array, float]:
    """Midpoints of equal cells, and their width."""
    width = (upper - lower) / number
    return lower + width * (np.arange(number) + 0.5), width


def masses(potential: Array) -> Array:
    """Normalized exp(-potential)."""
    weights = np.exp(-(potential - potential.min()))
    return weights / weights.sum()


def proximal_kernel(x: Array, potential: Array, step_size: float, nodes: int = 500) -> Array:
    """Transition matrix: add N(0, step_size), draw from exp(-potential - (x-y)^2/(2 step_size))."""
    reach = 7 * np.sqrt(step_size)
    y = np.linspace(x[0] - reach, x[-1] + reach, nodes)
    square = (x[:, None] - y) ** 2 / (2 * step_size)
    forward = np.exp(-square)
    forward /= forward.sum(axis=1, keepdims=True)
    exponent = -(potential[:, None] + square)
    back = np.exp(exponent - exponent.max(axis=0))
    back /= back.sum(axis=0)
    return forward @ back.T


def quantile_distance(p: Array, q: Array, x: Array, ignored: float = 1e-9) -> float:
    """Largest distance of equal quantiles on one grid: W-infinity up to a cell.

    Quantiles beyond ``ignored`` from either end are those of rounding errors.
    """
    P, Q = np.cumsum(p), np.cumsum(q)
    levels = np.concatenate([P, Q])
    levels = levels[(levels > ignored) & (levels < 1 - ignored)]
    ends = len(x) - 1
    return float(
        np.abs(
            x[np.minimum(np.searchsorted(P, levels), ends)]
            - x[np.minimum(np.searchsorted(Q, levels), ends)]
        ).max()
    )


def distribution(
    lower: float, upper: float, potential: Callable[[Array], Array], number: int = 20_001
):
    """The distribution function of exp(-potential) on an interval."""
    x = np.linspace(lower, upper, number)
    density = np.exp(-(potential(x) - potential(x).min()))
    F = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return lambda at: np.interp(at, x, F / F[-1])
