"""Privacy curves and their algebra: composition, worst case, groups, sampling, selection.

A curve knows upper bounds of several kinds at once: pure epsilon, GDP mu, zCDP rho, Renyi
divergences and the privacy profile delta(epsilon) in both directions. Combining curves combines
every kind that all parts have, and the answer to a question is the smallest of the sound answers. A
curve holds for one neighbour relation; direction 0 is "with the record against without it" under
add/remove. docs/explanation/accounting.md proves each rule.
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
from dpfit.privacy.rounding import SMALLEST, up, up_sqrt, weighted_squares, weighted_sum

Array = NDArray[np.float64]

TAIL = 1e-16
"""Probability outside the grid that a composition may lose; it is added to delta, so it is priced,
not ignored.
"""

VARIANCE_TOLERANCE = 2e-4
"""Relative variance that joining the dots may add, up to five times more for very long
compositions; calibrated noise
grows by about a third of this."""

_LARGEST_LOSS = 700.0

_RESOLVED = 1e-13
"""Deltas above this are far above what a grid loses."""

_FEW = 64
"""Levels at which epsilon is split between two parts; a longer vector is a grid that reads the
profile.
"""


class Curve(ABC):
    """Upper bounds on how distinguishable neighbours are; infinity where a kind has no bound."""

    pure: float = math.inf
    mu: float = math.inf
    rho: float = math.inf
    convex: bool = True
    """Whether the profile is convex in exp(epsilon), as exact profiles are and minima of bounds
    need not be.
    """
    symmetric: bool = True
    """Whether both directions of the profile agree."""
    closed_form: bool = True
    """Whether the profile is cheap and smooth, not read off a grid."""
    by_renyi: bool = False
    """Whether the profile is a conversion of Renyi divergences, which compose better than what they
    convert to.
    """
    lost: float = 0.0
    """A probability of losing everything; otherwise `kept` bounds the loss."""

    @property
    def kept(self) -> Curve:
        """The curve apart from what is lost with probability `lost`."""
        return self

    @abstractmethod
    def profile(self, epsilon: Array) -> Array:
        """Bounds on delta at non-negative ``epsilon``, shape (2, len(epsilon)): both directions."""

    def renyi(self, orders: Array) -> Array:
        """Bounds on the Renyi divergence, both directions; infinite where there is none."""
        return orders * self.rho if math.isfinite(self.rho) else np.full(orders.shape, math.inf)

    def delta(self, epsilon: Array) -> Array:
        """Bounds on delta in the worse direction; positive everywhere below the pure epsilon."""
        worse = np.max(self.profile(epsilon), axis=0)
        return np.asarray(np.maximum(worse, np.where(epsilon < self.pure, SMALLEST, 0.0)))

    @cached_property
    def divergences(self) -> Array:
        """Bounds on the Renyi divergences at `renyi.ORDERS`."""
        return self.renyi(renyi.ORDERS)

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
        """Jeffreys divergence (the sum of both KL divergences): the variance of a small loss."""
        grid = self.reach * np.append(0.0, np.geomspace(1e-9, 1.0, 600))
        both = self.profile(grid).sum(axis=0) * (1 + np.exp(-grid))
        # The trapezoidal rule; NumPy 1 has it under another name than NumPy 2.
        return float((np.diff(grid) * (both[1:] + both[:-1]) / 2.0).sum())

    def masses(self, step: float, tail: float) -> tuple[tuple[Array, float], ...]:
        """Losses on the grid of width ``step``: masses at -m..m and infinity, by direction."""
        grid = (
            np.geomspace(max(step, self.reach * 1e-3), self.reach, 200)
            if self.reach > step
            else np.array([step])
        )
        small = np.flatnonzero(self.delta(grid) <= tail)
        last = float(grid[small[0]]) if len(small) else self.reach
        points = min(math.ceil(last / step * (1 - 1e-12)) + 1, loss_distribution.LARGEST_GRID)
        profiles = self.profile(np.asarray(step * np.arange(max(points, 2)), dtype=np.float64))
        if not self.convex:
            profiles = np.stack([loss_distribution.lower_hull(row, step) for row in profiles])
        forward = loss_distribution.discretize(profiles[0], profiles[1], step)
        return (
            (forward,)
            if self.symmetric
            else (forward, loss_distribution.discretize(profiles[1], profiles[0], step))
        )


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
        self.pure = 0.0 if 0.0 in (mu, rho) else pure
        self.mu = min(mu, gaussian.from_pure(self.pure))
        self.rho = min(rho, half_square(self.pure), half_square(self.mu))
        self._orders, self._values = orders, values
        self.convex = orders is None and math.isinf(rho)
        self.by_renyi = not self.convex
        kind = () if math.isfinite(pure) else ("mu",) if math.isfinite(mu) else ("rho",)
        self.adds: tuple[object, ...] = kind if orders is None else tuple(orders)
        """What adds up under composition: squares of mu, rho, or Renyi values at the same orders;
        empty if nothing.
        """

    def added(self, parts: Sequence[tuple[Known, int]]) -> Known:
        """Return the composition of ``parts`` for which the same adds as for this one."""
        rho = weighted_sum((c.rho, t) for c, t in parts)
        if self._orders is not None:
            values = sum(times * np.asarray(curve._values) for curve, times in parts)
            return Known(
                orders=self._orders, values=np.asarray(values * (1 + 2.0**-52 * (len(parts) + 1)))
            )
        if math.isinf(self.mu) and rho is not None:
            return Known(rho=up(rho))
        # On a grid the last digit is covered by the slack of `gaussian.delta`; squares that
        # underflow are not.
        mu = math.sqrt(sum(c.mu**2 * t for c, t in parts))
        if mu < 1e-140:
            mu = up_sqrt(weighted_squares((c.mu, t) for c, t in parts) or Fraction(0))
        smaller = rho is not None and not all(c.convex for c, _ in parts)
        return Known(mu=mu, rho=up(rho) if rho is not None and smaller else math.inf)

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
    """Divergence at ``orders`` from known ones: it grows with the order, unknown above the last."""
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
        bounds.append(renyi.delta(renyi.ORDERS, curve.divergences, epsilon))
    return np.asarray(np.min(bounds, axis=0))


class BoundedRange(Curve):
    """Log density ratio in an interval of length epsilon (Dong, Durfee, Rogers 2020).

    The worst pair has losses t and t - epsilon for some t in [0, epsilon]; the supremum over t is
    attained midway between the queried level and epsilon. All pairs together are as hard to tell
    apart as a logistic law from itself shifted by epsilon, which is as GDP as a pure promise of
    half the epsilon.
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
        root, whole = np.expm1(-gap / 2), -math.expm1(-self.pure)
        # The square of a small number may be none that a double holds.
        return both(
            (root**2 / whole if self.pure > 1e-100 else root * (root / whole)) * (1 + 1e-14)
        )


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
    """Any (epsilon, delta)-DP mechanism: with probability delta all is lost, else it is pure."""

    def __init__(self, epsilon: float, delta: float) -> None:
        self.lost, self._kept = delta, Known(pure=epsilon)
        if delta == 0:
            self.pure, self.mu, self.rho = self._kept.pure, self._kept.mu, self._kept.rho

    @property
    def kept(self) -> Curve:
        return self._kept

    def profile(self, epsilon: Array) -> Array:
        return _with_loss(self.lost, self._kept.profile(epsilon))


def _with_loss(lost: float, kept: Array) -> Array:
    """Return the profile of losing all with probability ``lost``, and otherwise ``kept``."""
    return np.asarray(lost + (1 - lost) * kept)


class Composition(Curve):
    """Curves composed, each a number of times; adaptive choice within each curve's guarantee.

    ``also`` is a curve that bounds the whole composition, known from elsewhere.
    """

    convex = False

    def __init__(self, parts: Sequence[tuple[Curve, int]], also: Curve | None = None) -> None:
        self._also = also
        self._some: dict[tuple[tuple[Curve, int], ...], Composition] = {}
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
        self.by_renyi = any(c.by_renyi for c, _ in self.parts)
        self.lost = _probability_of_loss(self.parts)
        kinds = {_adds(curve) for curve, _ in self.parts}
        self.closed_form = () not in kinds and len(kinds) <= 1 and also is None

    @cached_property
    def _rest(self) -> Composition:
        """The parts without what they lose, composed; they have all kinds of bounds that remain."""
        return Composition([(c.kept, t) for c, t in self.parts])

    @property
    def kept(self) -> Curve:
        return self._rest if self.lost else self

    @cached_property
    def _merged(self) -> list[tuple[Curve, int]]:
        if self.closed_form and self.parts and _adds(self.parts[0][0]) == ("mu",):
            return [(Known(mu=self.mu, rho=self.rho if self.by_renyi else math.inf), 1)]
        return _merge(self.parts)

    def renyi(self, orders: Array) -> Array:
        total = np.zeros(orders.shape)
        for curve, times in self.parts:
            total = total + times * curve.renyi(orders)
        return total

    def profile(self, epsilon: Array) -> Array:
        if not self.parts:
            return both(np.zeros_like(epsilon))
        own = self._own_profile(epsilon)
        return own if self._also is None else np.minimum(own, self._also.profile(epsilon))

    def _own_profile(self, epsilon: Array) -> Array:
        if len(self.parts) == 1 and self.parts[0][1] == 1:
            return self.parts[0][0].profile(epsilon)
        if self.lost:
            return _with_loss(self.lost, self._rest.profile(epsilon))
        if len(self._merged) == 1 and self._merged[0][1] == 1:
            return self._merged[0][0].profile(epsilon)
        rows = [distribution.delta(epsilon) for distribution in self._distributions]
        lost = [distribution.lost(epsilon) for distribution in self._distributions]
        # Where what is lost to the grid is a small part of delta, the grid is tight and other
        # bounds cannot help: but it ends at the largest loss, and is made of conversions where a
        # part is known by its Renyi divergences.
        tight = (
            np.all(np.max(lost, axis=0) <= 0.01 * np.min(rows, axis=0))
            and np.max(epsilon) <= _LARGEST_LOSS
        )
        return np.minimum(
            np.stack([rows[0], rows[-1]]), _smallest(self, epsilon, self.by_renyi or not tight)
        )

    def delta(self, epsilon: Array) -> Array:
        """Bounds on delta; basic composition serves below a grid's resolution and past its end."""
        if self.lost and len(self._rest.parts) > 1:
            return np.minimum(
                super().delta(epsilon), _with_loss(self.lost, self._rest.delta(epsilon))
            )
        worse = super().delta(epsilon)
        if np.all(worse > _RESOLVED) and np.max(epsilon) <= _LARGEST_LOSS:
            return worse
        return np.minimum(worse, self._basic(epsilon))

    def _basic(self, epsilon: Array) -> Array:
        """Basic composition: pure parts take their epsilon, others share the rest; deltas add."""
        if not self.parts or self.lost:
            return np.ones_like(epsilon)
        pure = weighted_sum(
            (c.pure, t) for c, t in self.parts if math.isfinite(c.pure)
        ) or Fraction(0)
        others = [(c, t) for c, t in self._merged if math.isinf(c.pure)]
        left = np.nextafter(epsilon - up(pure), -math.inf) if pure else epsilon
        inside = np.maximum(left, 0.0)
        gaussians = [(c, t) for c, t in others if _adds(c) == ("mu",)]
        rest = [(c, t) for c, t in others if _adds(c) != ("mu",)]
        if gaussians and rest:
            total = _best_split(gaussians[0][0], self._composed(tuple(rest)), inside)
        elif others and pure:
            total = self._composed(tuple(others)).delta(inside)
        else:
            return np.ones_like(epsilon)
        return np.where(left >= 0, np.minimum(total, 1.0), 1.0)

    def _composed(self, parts: tuple[tuple[Curve, int], ...]) -> Curve:
        """The composition of some of the parts, made once."""
        if parts not in self._some:
            self._some[parts] = Composition(parts)
        return self._some[parts]

    @cached_property
    def spread(self) -> float:
        return sum(curve.spread * times for curve, times in self.parts)

    @property
    def _distributions(self) -> tuple[LossDistribution, ...]:
        return _distributions(self)

    def compose_on_grid(self) -> tuple[LossDistribution, ...]:
        """The loss distribution of each direction (one if they agree)."""
        merged = self._merged
        times = sum(t for _, t in merged)
        variance = sum(c.spread * t for c, t in merged)
        # Joining the dots moves mass within a cell, which adds at most step^2 / 4 to the variance
        # of each loss.
        tolerance = VARIANCE_TOLERANCE * min(max(times / 2e4, 1.0), 5.0)
        step = math.sqrt(4 * tolerance * variance / times) if variance > 0 else 1.0
        # A grid that hits the largest loss of a pure part loses nothing at that corner.
        step = min(
            (c.pure / math.ceil(c.pure / step) for c, _ in merged if step < c.pure < _LARGEST_LOSS),
            default=step,
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


def _adds(curve: Curve) -> tuple[object, ...]:
    return curve.adds if isinstance(curve, Known) else ()


def _merge(parts: Sequence[tuple[Curve, int]]) -> list[tuple[Curve, int]]:
    """Return the parts; those that add are merged: squares of mu, rho, Renyi at equal orders."""
    groups: dict[tuple[object, ...], list[tuple[Known, int]]] = {}
    others: list[tuple[Curve, int]] = []
    for curve, times in parts:
        if isinstance(curve, Known) and curve.adds:
            groups.setdefault(curve.adds, []).append((curve, times))
        else:
            others.append((curve, times))
    merged = [group[0][0].added(group) for group in groups.values()]
    return [*others, *((curve, 1) for curve in merged if curve.pure > 0 or not others)]


def _probability_of_loss(parts: Sequence[tuple[Curve, int]]) -> float:
    """Return the probability that any part loses all: 1 - prod(1 - probability of a part)."""
    losing = [(curve.lost, times) for curve, times in parts if curve.lost]
    added = weighted_sum(losing)
    if not added or added >= 1 or any(lost >= 1 for lost, _ in losing):
        return 1.0 if added else 0.0
    exact = -math.expm1(math.fsum(times * math.log1p(-lost) for lost, times in losing)) * (
        1 + 1e-12
    )
    return min(1.0, up(added), exact)


def _best_split(first: Curve, second: Curve, epsilon: Array) -> Array:
    """Return the least sum of two deltas over the ways to share epsilon; every way is sound."""
    if len(epsilon) > _FEW:
        return np.ones_like(epsilon)
    low, high, best = np.zeros_like(epsilon), np.ones_like(epsilon), np.ones_like(epsilon)
    for _ in range(12):
        shares = low + (high - low) * np.linspace(0.0, 1.0, 17)[:, None]
        # Rounded down, so that the two shares are at most the whole.
        levels = shares * epsilon, (1 - shares) * epsilon * (1 - 1e-15)
        totals = first.delta(levels[0].ravel()) + second.delta(levels[1].ravel())
        at = np.argmin(totals.reshape(shares.shape), axis=0)
        best = np.minimum(best, np.min(totals.reshape(shares.shape), axis=0))
        centre, width = np.take_along_axis(shares, at[None, :], axis=0)[0], (high - low) / 16
        low, high = np.maximum(centre - width, 0.0), np.minimum(centre + width, 1.0)
    return best


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
        self.by_renyi = any(c.by_renyi for c in curves)
        self.lost = max((c.lost for c in curves), default=0.0)

    @cached_property
    def kept(self) -> Curve:
        return Worst([c.kept for c in self._curves]) if self.lost else self

    def renyi(self, orders: Array) -> Array:
        return np.asarray(
            np.max([c.renyi(orders) for c in self._curves] or [np.zeros(orders.shape)], axis=0)
        )

    def profile(self, epsilon: Array) -> Array:
        return np.asarray(
            np.max(
                [c.profile(epsilon) for c in self._curves] or [both(np.zeros_like(epsilon))], axis=0
            )
        )


class Symmetrized(Curve):
    """The worse direction of a curve in both directions."""

    def __init__(self, curve: Curve) -> None:
        self._curve = curve
        self.pure, self.mu, self.rho, self.convex = curve.pure, curve.mu, curve.rho, curve.convex
        self.closed_form, self.by_renyi, self.lost = curve.closed_form, curve.by_renyi, curve.lost

    @cached_property
    def kept(self) -> Curve:
        return Symmetrized(self._curve.kept) if self.lost else self

    def renyi(self, orders: Array) -> Array:
        return self._curve.renyi(orders)

    def profile(self, epsilon: Array) -> Array:
        return both(self._curve.delta(epsilon))


class Group(Curve):
    """A group of ``size`` changes: delta(eps) <= sum_i exp(i eps/size) delta_1(eps/size)."""

    convex = False

    def __init__(self, curve: Curve, size: int) -> None:
        self._curve, self._size = curve, size
        self.closed_form, self.by_renyi = curve.closed_form, curve.by_renyi
        self.pure = _times(curve.pure, size)
        self.mu = _times(curve.mu, size)
        self.rho = _times(curve.rho, size**2)

    def profile(self, epsilon: Array) -> Array:
        share = epsilon / self._size
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            factor = np.where(share > 0, np.expm1(epsilon) / np.expm1(share), self._size)
            single = self._curve.delta(share)
            # Beyond the range of exp() the factor is at most exp(epsilon - share) / (1 -
            # exp(-share)).
            large = np.exp(np.log(single) + epsilon - share) / -np.expm1(-share) * (1 + 1e-12)
            stepwise = np.where(
                epsilon > _LARGEST_LOSS, np.where(single > 0, large, 0.0), single * factor
            )
        return both(np.minimum(np.nan_to_num(stepwise, nan=1.0), _smallest(self, epsilon)))


def _times(value: float, times: int) -> float:
    return up(Fraction(value) * times) if math.isfinite(value) else math.inf


class Selected(Curve):
    """The best of a truncated negative binomial number of runs.

    By Liu and Talwar (2019) and Papernot and Steinke (2022).
    """

    convex = False
    by_renyi = True

    def __init__(self, curve: Curve, stop: float, eta: float) -> None:
        self._curve, self._stop, self._eta = curve, stop, eta
        self.pure = (
            up((2 + Fraction(eta)) * Fraction(curve.pure))
            if math.isfinite(curve.pure)
            else math.inf
        )
        self.mu, self.rho = gaussian.from_pure(self.pure), half_square(self.pure)

    def renyi(self, orders: Array) -> Array:
        base = self._curve.divergences
        chosen = renyi.selected(renyi.ORDERS, base, self._stop, self._eta)
        return np.minimum(
            _between_orders(renyi.ORDERS, chosen, orders),
            renyi.randomized_response(self.pure, orders),
        )

    def profile(self, epsilon: Array) -> Array:
        return both(_smallest(self, epsilon))
