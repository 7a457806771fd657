"""Privacy curves and their algebra: composition, worst case, groups, sampling, selection.

A curve knows upper bounds of several kinds at once: pure epsilon, GDP mu, zCDP rho, Renyi divergences and the privacy
profile delta(epsilon) in both directions. Combining curves combines every kind that all parts have, and the answer to
a question is the smallest of the sound answers. A curve holds for one neighbour relation; direction 0 is "with the
record against without it" under add/remove. docs/explanation/accounting.md proves each rule.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from dpfit.privacy import gaussian, loss_distribution, renyi
from dpfit.privacy.loss_distribution import GridTooLarge, LossDistribution
from dpfit.privacy.rounding import up, up_sqrt, weighted_squares, weighted_sum

Array = NDArray[np.float64]

TAIL = 1e-16
"""Probability outside the grid that a composition may lose; it is added to delta, so it is priced, not ignored."""

VARIANCE_TOLERANCE = 2e-4
"""Relative variance that joining the dots may add, up to five times more for very long compositions; calibrated noise
grows by about a third of this."""

_LARGEST_LOSS = 700.0


class Curve(ABC):
    """Upper bounds on how well neighbours can be told apart. Infinity means that the kind gives no bound."""

    pure: float = math.inf
    mu: float = math.inf
    rho: float = math.inf
    convex: bool = True
    """Whether the profile is convex in exp(epsilon), as exact profiles are and minima of bounds need not be."""
    symmetric: bool = True
    """Whether both directions of the profile agree."""
    closed_form: bool = True
    """Whether the profile is cheap and smooth, not read off a grid."""

    @abstractmethod
    def profile(self, epsilon: Array) -> Array:
        """Bounds on delta at non-negative ``epsilon``, shape (2, len(epsilon)): forward and reverse."""

    def renyi(self, orders: Array) -> Array:
        """Bounds on the Renyi divergence, both directions; infinite where there is none."""
        return orders * self.rho if math.isfinite(self.rho) else np.full(orders.shape, math.inf)

    def delta(self, epsilon: Array) -> Array:
        """Bounds on delta, the worse of the two directions."""
        return np.asarray(np.max(self.profile(epsilon), axis=0))

    @cached_property
    def reach(self) -> float:
        """An epsilon beyond which the profile is negligible or flat."""
        if math.isfinite(self.pure):
            return min(self.pure, _LARGEST_LOSS)
        grid = np.geomspace(1e-9, _LARGEST_LOSS, 400)
        values = self.delta(grid)
        small = np.flatnonzero((values <= TAIL * 1e-9) | (values <= values[-1] * (1 + 1e-9)))
        return float(grid[small[0]]) if len(small) else _LARGEST_LOSS

    @cached_property
    def spread(self) -> float:
        """Jeffreys divergence (both KL divergences added), which is the variance of a small privacy loss."""
        grid = self.reach * np.append(0.0, np.geomspace(1e-9, 1.0, 600))
        both = self.profile(grid).sum(axis=0) * (1 + np.exp(-grid))
        return float(np.trapezoid(both, grid))

    def masses(self, step: float, tail: float) -> tuple[tuple[Array, float], ...]:
        """Losses on the grid of width ``step``: masses at -m..m and at infinity, in each direction."""
        grid = np.geomspace(max(step, self.reach * 1e-3), self.reach, 200) if self.reach > step else np.array([step])
        small = np.flatnonzero(self.delta(grid) <= tail)
        last = float(grid[small[0]]) if len(small) else self.reach
        points = min(math.ceil(last / step * (1 - 1e-12)) + 1, loss_distribution.LARGEST_GRID)
        profiles = self.profile(np.asarray(step * np.arange(max(points, 2)), dtype=np.float64))
        if not self.convex:
            profiles = np.stack([loss_distribution.lower_hull(row, step) for row in profiles])
        forward = loss_distribution.discretize(profiles[0], profiles[1], step)
        return (forward,) if self.symmetric else (forward, loss_distribution.discretize(profiles[1], profiles[0], step))


def half_square(value: float) -> float:
    """The zCDP parameter of a GDP or a pure one, rounded up."""
    return up(Fraction(value) ** 2 / 2) if value < 1e100 else math.inf


def both(values: Array) -> Array:
    """One row for each direction of a symmetric profile."""
    return np.stack([values, values])


class Known(Curve):
    """A curve that is given by numbers only: any mechanism with these promises."""

    convex = False

    def __init__(
        self,
        *,
        pure: float = math.inf,
        mu: float = math.inf,
        rho: float = math.inf,
        orders: Array | None = None,
        values: Array | None = None,
    ) -> None:
        self.pure = pure
        self.mu = min(mu, gaussian.from_pure(pure))
        self.rho = min(rho, half_square(pure), half_square(self.mu))
        self._orders, self._values = orders, values
        self.convex = orders is None and math.isinf(rho)

    def renyi(self, orders: Array) -> Array:
        bounds = [super().renyi(orders), renyi.randomized_response(self.pure, orders)]
        if self._orders is not None and self._values is not None:
            bounds.append(_between_orders(self._orders, self._values, orders))
        return np.asarray(np.min(bounds, axis=0))

    def profile(self, epsilon: Array) -> Array:
        if self.convex and math.isfinite(self.pure):
            return both(_pure_profile(self.pure, epsilon))
        if self.convex:
            return both(gaussian.delta(self.mu, epsilon))
        return both(_smallest(self, epsilon))


def _between_orders(known: Array, values: Array, orders: Array) -> Array:
    """Divergence at ``orders`` from known ones: it grows with the order, and nothing is known above the last."""
    index = np.searchsorted(known, orders * (1 - 1e-12))
    return np.where(index < len(known), values[np.minimum(index, len(known) - 1)], math.inf)


def _pure_profile(pure: float, epsilon: Array) -> Array:
    """Binary randomized response: the largest profile among epsilon-DP mechanisms."""
    gap = np.maximum(pure - epsilon, 0.0)
    return np.asarray(-np.expm1(-gap) / (1 + math.exp(-pure)) * (1 + 1e-14))


def _smallest(curve: Curve, epsilon: Array, with_renyi: bool = True) -> Array:
    """The smallest delta that the pure, GDP and Renyi bounds of a curve allow."""
    bounds = [np.ones_like(epsilon)]
    if math.isfinite(curve.pure):
        bounds.append(_pure_profile(curve.pure, epsilon))
    if math.isfinite(curve.mu):
        bounds.append(gaussian.delta(curve.mu, epsilon))
    if with_renyi:
        bounds.append(renyi.delta(renyi.ORDERS, curve.renyi(renyi.ORDERS), epsilon))
    return np.asarray(np.min(bounds, axis=0))


class BoundedRange(Curve):
    """Log density ratio in an interval of length epsilon (Dong, Durfee, Rogers 2020).

    The worst pair has losses t and t - epsilon for some t in [0, epsilon]; the supremum over t is attained midway
    between the queried level and epsilon. All pairs together are as hard to tell apart as a logistic law from itself
    shifted by epsilon, which is as GDP as a pure promise of half the epsilon.
    """

    def __init__(self, epsilon: float) -> None:
        self.pure = epsilon
        self.mu = gaussian.from_pure(epsilon / 2)
        self.rho = up(Fraction(epsilon) ** 2 / 8) if epsilon < 1e100 else math.inf

    def renyi(self, orders: Array) -> Array:
        return np.minimum(super().renyi(orders), renyi.randomized_response(self.pure, orders))

    def profile(self, epsilon: Array) -> Array:
        if self.pure == 0:
            return both(np.zeros_like(epsilon))
        gap = np.maximum(self.pure - epsilon, 0.0)
        return both(np.expm1(-gap / 2) ** 2 / -math.expm1(-self.pure) * (1 + 1e-14))


class RandomizedResponse(Curve):
    """Truth with odds exp(epsilon) to 1 against each of the other categories."""

    def __init__(self, epsilon: float, categories: int) -> None:
        self.pure = epsilon
        self.mu, self.rho = gaussian.from_pure(epsilon), half_square(epsilon)
        self._others = categories - 1

    def profile(self, epsilon: Array) -> Array:
        gap = np.maximum(self.pure - epsilon, 0.0)
        return both(-np.expm1(-gap) / (1 + self._others * math.exp(-self.pure)) * (1 + 1e-14))


class Approximate(Curve):
    """Any (epsilon, delta)-DP mechanism: with probability delta all is lost, else randomized response."""

    def __init__(self, epsilon: float, delta: float) -> None:
        self._epsilon, self._delta = epsilon, delta
        if delta == 0:
            self.pure = epsilon
            self.mu, self.rho = gaussian.from_pure(epsilon), half_square(epsilon)

    def profile(self, epsilon: Array) -> Array:
        return both(self._delta + (1 - self._delta) * _pure_profile(self._epsilon, epsilon))


class Composition(Curve):
    """Curves one after the other, each a number of times; adaptive choice within each curve's promise."""

    convex = False

    def __init__(self, parts: Sequence[tuple[Curve, int]]) -> None:
        flat: dict[int, tuple[Curve, int]] = {}
        for curve, times in parts:
            inner = curve.parts if isinstance(curve, Composition) else ((curve, 1),)
            for part, inside in inner:
                seen = flat.get(id(part), (part, 0))[1]
                if times * inside:
                    flat[id(part)] = (part, seen + times * inside)
        self.parts: tuple[tuple[Curve, int], ...] = tuple(flat.values())
        pure = weighted_sum((c.pure, t) for c, t in self.parts)
        squares = weighted_squares((c.mu, t) for c, t in self.parts)
        rho = weighted_sum((c.rho, t) for c, t in self.parts)
        self.pure = math.inf if pure is None else up(pure)
        self.mu = math.inf if squares is None else up_sqrt(squares)
        self.rho = math.inf if rho is None else up(rho)
        self.symmetric = all(c.symmetric for c, _ in self.parts)
        self.closed_form = all(_is_gaussian(curve) for curve, _ in self.parts)

    def renyi(self, orders: Array) -> Array:
        total = np.zeros(orders.shape)
        for curve, times in self.parts:
            total = total + times * curve.renyi(orders)
        return total

    def profile(self, epsilon: Array) -> Array:
        if not self.parts:
            return both(np.zeros_like(epsilon))
        if len(self.parts) == 1 and self.parts[0][1] == 1:
            return self.parts[0][0].profile(epsilon)
        if self.closed_form:
            return both(gaussian.delta(self.mu, epsilon))
        rows = [distribution.delta(epsilon) for distribution in self._distributions]
        # Where what is lost to the grid is a small part of delta, the grid is tight and Renyi bounds cannot help.
        lost = [distribution.lost(epsilon) for distribution in self._distributions]
        grid_is_tight = bool(np.all(np.max(lost, axis=0) <= 0.01 * np.min(rows, axis=0)))
        return np.minimum(np.stack([rows[0], rows[-1]]), _smallest(self, epsilon, with_renyi=not grid_is_tight))

    @cached_property
    def spread(self) -> float:
        return sum(curve.spread * times for curve, times in self.parts)

    @property
    def _distributions(self) -> tuple[LossDistribution, ...]:
        return _distributions(self)

    def compose_on_grid(self) -> tuple[LossDistribution, ...]:
        """The loss distribution of each direction (one if they agree)."""
        merged = _merge_gaussians(self.parts)
        times = sum(t for _, t in merged)
        variance = sum(c.spread * t for c, t in merged)
        # Joining the dots moves mass within a cell, which adds at most step^2 / 4 to the variance of each loss.
        tolerance = VARIANCE_TOLERANCE * min(max(times / 2e4, 1.0), 5.0)
        step = math.sqrt(4 * tolerance * variance / times) if variance > 0 else 1.0
        # A grid that hits the largest loss of a pure part loses nothing at that corner.
        step = min(
            (c.pure / math.ceil(c.pure / step) for c, _ in merged if step < c.pure < _LARGEST_LOSS), default=step
        )
        longest = max(c.reach for c, _ in merged)
        step = max(step, longest / (loss_distribution.LARGEST_GRID - 2))
        while True:
            try:
                grids = [(curve.masses(step, TAIL / times), count) for curve, count in merged]
                return tuple(_compose(grids, step, d) for d in ((0,) if self.symmetric else (0, 1)))
            except GridTooLarge:
                step *= 2


@lru_cache(maxsize=8)
def _distributions(composition: Composition) -> tuple[LossDistribution, ...]:
    """The last few compositions only: a distribution may take tens of megabytes."""
    return composition.compose_on_grid()


def _compose(
    grids: Sequence[tuple[tuple[tuple[Array, float], ...], int]], step: float, direction: int
) -> LossDistribution:
    parts = [(*masses[min(direction, len(masses) - 1)], times) for masses, times in grids]
    return loss_distribution.compose(parts, step, TAIL)


def _is_gaussian(curve: Curve) -> bool:
    return isinstance(curve, Known) and curve.convex and math.isinf(curve.pure)


def _merge_gaussians(parts: Sequence[tuple[Curve, int]]) -> list[tuple[Curve, int]]:
    """Gaussian parts in one: their exact composition is Gaussian again."""
    others = [(curve, times) for curve, times in parts if not _is_gaussian(curve)]
    square = sum(curve.mu**2 * times for curve, times in parts if _is_gaussian(curve))
    return [*others, (Known(mu=math.sqrt(square)), 1)] if square > 0 else others


class Worst(Curve):
    """Whichever of the curves is worst: the change touches one of them."""

    def __init__(self, curves: Sequence[Curve]) -> None:
        self._curves = tuple({id(curve): curve for curve in curves}.values())
        self.pure = max((c.pure for c in curves), default=0.0)
        self.mu = max((c.mu for c in curves), default=0.0)
        self.rho = max((c.rho for c in curves), default=0.0)
        self.convex = all(c.convex for c in curves)
        self.closed_form = all(c.closed_form for c in curves)
        self.symmetric = all(c.symmetric for c in curves)

    def renyi(self, orders: Array) -> Array:
        return np.asarray(np.max([c.renyi(orders) for c in self._curves] or [np.zeros(orders.shape)], axis=0))

    def profile(self, epsilon: Array) -> Array:
        return np.asarray(np.max([c.profile(epsilon) for c in self._curves] or [both(np.zeros_like(epsilon))], axis=0))


class Symmetrized(Curve):
    """The worse direction of a curve in both directions."""

    def __init__(self, curve: Curve) -> None:
        self._curve = curve
        self.pure, self.mu, self.rho, self.convex = curve.pure, curve.mu, curve.rho, curve.convex
        self.closed_form = curve.closed_form

    def renyi(self, orders: Array) -> Array:
        return self._curve.renyi(orders)

    def profile(self, epsilon: Array) -> Array:
        return both(self._curve.delta(epsilon))


class Group(Curve):
    """A group of ``size`` changes at once: delta(epsilon) <= sum_i exp(i epsilon/size) delta_1(epsilon/size)."""

    convex = False

    def __init__(self, curve: Curve, size: int) -> None:
        self._curve, self._size = curve, size
        self.closed_form = curve.closed_form
        self.pure = _times(curve.pure, size)
        self.mu = _times(curve.mu, size)
        self.rho = _times(curve.rho, size**2)

    def profile(self, epsilon: Array) -> Array:
        share = epsilon / self._size
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            factor = np.where(share > 0, np.expm1(epsilon) / np.expm1(share), self._size)
            stepwise = self._curve.delta(share) * factor
        return both(np.minimum(np.nan_to_num(stepwise, nan=1.0), _smallest(self, epsilon)))


def _times(value: float, times: int) -> float:
    return up(Fraction(value) * times) if math.isfinite(value) else math.inf


class Selected(Curve):
    """The best of a truncated negative binomial number of runs (Liu and Talwar 2019; Papernot and Steinke 2022)."""

    convex = False

    def __init__(self, curve: Curve, stop: float, eta: float) -> None:
        self._curve, self._stop, self._eta = curve, stop, eta
        self.pure = up((2 + Fraction(eta)) * Fraction(curve.pure)) if math.isfinite(curve.pure) else math.inf
        self.mu, self.rho = gaussian.from_pure(self.pure), half_square(self.pure)

    def renyi(self, orders: Array) -> Array:
        base = self._curve.renyi(renyi.ORDERS)
        chosen = renyi.selected(renyi.ORDERS, base, self._stop, self._eta)
        return np.minimum(_between_orders(renyi.ORDERS, chosen, orders), renyi.randomized_response(self.pure, orders))

    def profile(self, epsilon: Array) -> Array:
        return both(_smallest(self, epsilon))
