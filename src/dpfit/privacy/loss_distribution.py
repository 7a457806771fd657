"""Privacy-loss distributions on a grid: pessimistic rounding, FFT, a proven error term.

A privacy profile is the function H(epsilon) = sup_S P(S) - exp(epsilon) Q(S); it is convex in
exp(epsilon). Joining its values on a grid by straight lines (in exp(epsilon)) gives a larger
profile, which is that of a distribution of losses on the grid ("connect the dots", Doroshenko,
Ghazi, Kamath, Kumar, Manurangsi 2022). Larger profiles stay larger under composition, so the sum of
independent grid losses bounds the composition. docs/explanation/accounting.md has the proofs, the
aliasing term and the floating-point term included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

Array = NDArray[np.float64]

LARGEST_GRID = 2**22
"""Points of the largest transform; beyond it the grid gets coarser (looser, still sound)."""

_UNIT_ROUNDOFF = 2.0**-53
_FFT_ERROR_PER_LEVEL = 6.0
"""Units of roundoff on one path through one level of a transform, radix 2 to 5: a complex product
and a sum.
"""
_POWER_ERROR = 6.0
"""Units of roundoff, per factor, of a complex power computed as exp(times * log z) with |arg z| at
most pi.
"""

_BLOCKS = 4096
_LARGEST_EXPONENT = 600.0
_TILT = 7.0
"""Largest log of the tilted total: what rounding may grow by at epsilon zero, where delta is large.
"""


class GridTooLarge(Exception):
    """The window of a composition exceeds the largest grid at this step; use a coarser step."""


@dataclass(frozen=True)
class LossDistribution:
    """Masses of the privacy loss at ``step * (first + i)`` >= 0, plus the mass at infinity.

    Rounding may have taken ``error * exp(-error_rate * epsilon)`` from the profile at epsilon;
    `delta` gives it back.
    """

    step: float
    first: int
    masses: Array
    infinity: float
    error: float = 0.0
    error_rate: float = 0.0

    @property
    def losses(self) -> Array:
        """The finite losses."""
        return np.asarray(self.step * (self.first + np.arange(len(self.masses))), dtype=np.float64)

    def lost(self, epsilon: Array) -> Array:
        """The part of `delta` that pays for the grid and for rounding."""
        return np.asarray(
            self.infinity + self.error * np.exp(-self.error_rate * np.minimum(epsilon, 700.0))
        )

    def delta(self, epsilon: Array) -> Array:
        """Upper bound on the profile at non-negative ``epsilon``."""
        losses, above, weighted = self._suffix_sums
        index = np.searchsorted(losses, epsilon, side="right")
        # Where exp() ends, the probability of a larger loss is the bound.
        finite = (
            above[index]
            - np.where(epsilon <= 700.0, np.exp(np.minimum(epsilon, 700.0)), 0.0) * weighted[index]
        )
        # Suffix sums of up to N terms lose at most N units of roundoff relative to their own size.
        slack = 2 * (len(losses) + 2) * _UNIT_ROUNDOFF * above[index]
        return np.asarray(np.clip(np.maximum(finite, 0.0) + slack + self.lost(epsilon), 0.0, 1.0))

    @cached_property
    def _suffix_sums(self) -> tuple[Array, Array, Array]:
        """Losses, P(loss >= each), Q(loss >= each); the last entries are zero."""
        losses, masses = self.losses, self.masses
        above = np.append(np.cumsum(masses[::-1])[::-1], 0.0)
        return losses, above, np.append(np.cumsum((masses * np.exp(-losses))[::-1])[::-1], 0.0)


def discretize(forward: Array, reverse: Array, step: float) -> tuple[Array, float]:
    """Masses at losses -m*step .. m*step and infinity, for profiles above the given ones.

    ``forward[j]`` and ``reverse[j]`` are values (or upper bounds, convex in exp(epsilon)) of
    H(P||Q) and H(Q||P) at epsilon = j * step, j = 0 .. m. The second difference of a profile in
    exp(epsilon) is the mass of Q, and exp(epsilon) times it that of P; negative losses come from
    the reverse profile, so that nothing is computed as one minus something small.
    """
    positive, mirrored = _second_differences(forward, step), _second_differences(reverse, step)
    decay = np.exp(-step * np.arange(1, len(forward)))
    negative = mirrored * decay
    infinity = float(forward[-1])
    # A deficit at zero (profiles that are bounds, not exact) leaves a total above one, which stays
    # sound.
    zero = max(0.0, 1.0 - infinity - float(positive.sum()) - float(negative.sum()))
    masses = np.concatenate([negative[::-1], [zero], positive])
    infinity += _shortfall(forward, positive, infinity, step)
    # Rows that do not start alike would leave Q with more mass than P; at infinity, P makes up for
    # it.
    start, other = (float(sums @ (1 - decay)) for sums in (positive, mirrored))
    return masses, infinity + max(0.0, other + float(reverse[-1]) - start - infinity)


def _second_differences(profile: Array, step: float) -> Array:
    """exp(epsilon) times the change of slope in exp(epsilon), at step, 2 step, ..; then flat."""
    change = np.append(np.diff(profile), 0.0)
    return np.asarray(
        np.maximum(change[1:] / math.expm1(step) + change[:-1] / math.expm1(-step), 0.0)
    )


def _shortfall(profile: Array, positive: Array, infinity: float, step: float) -> float:
    """Largest shortfall of the rounded profile; added as mass at infinity, it closes the gap."""
    losses = step * np.arange(1, len(profile))
    above = np.append(np.cumsum(positive[::-1])[::-1], 0.0)
    weighted = np.append(np.cumsum((positive * np.exp(-losses))[::-1])[::-1], 0.0)
    reached = infinity + above - np.exp(step * np.arange(len(profile))) * weighted
    return max(0.0, float(np.max(profile - reached)))


def compose(
    parts: Sequence[tuple[Array, float, int]], step: float, tail: float
) -> LossDistribution:
    """The loss of all parts together: (masses, mass at infinity, times) on one symmetric grid.

    Losses are added modulo a window outside which the sum falls with probability at most ``tail``
    (Chernoff), which is added to the mass at infinity. Before the transforms masses are tilted by
    exp(rate * loss), which brings the rare large losses that decide delta to the middle; the
    rounding errors of the transforms are then small against delta.
    """
    if any(infinity >= 1.0 or not masses.any() for masses, infinity, _ in parts):
        return LossDistribution(step, 0, np.zeros(1), 1.0)
    low, high, rate = _window(parts, step, tail)
    if high - low + 1 > LARGEST_GRID:
        raise GridTooLarge
    size = next_fast_len(max(high - low + 1, 16), real=True)
    # Each output of a transform is a sum over paths of log2(size) levels, so its error is relative
    # to the l1 norm.
    unit = _FFT_ERROR_PER_LEVEL * math.log2(size) * _UNIT_ROUNDOFF
    log_magnitude, relative_error = np.zeros(size // 2 + 1), np.zeros(size // 2 + 1)
    product = np.ones(size // 2 + 1, dtype=complex)
    log_finite = log_scale = 0.0
    for masses, infinity, times in parts:
        reach = len(masses) // 2
        index = np.arange(-reach, reach + 1)
        tilted = masses * np.exp(rate * step * index)
        total = float(tilted.sum())
        folded = np.bincount(index % size, weights=tilted / total, minlength=size)
        transform = rfft(folded)
        magnitude = np.abs(transform) + unit
        product *= transform**times
        log_magnitude += times * np.log(magnitude)
        relative_error += times * (unit / magnitude + _POWER_ERROR * _UNIT_ROUNDOFF)
        log_finite += times * math.log1p(-infinity)
        log_scale += times * math.log(total)
    circular = np.maximum(irfft(product, size), 0.0)
    # Parseval and Cauchy-Schwarz: the l1 error in loss space is at most the l2 norm of the error in
    # frequency space.
    with np.errstate(over="ignore", invalid="ignore"):
        rounding = math.sqrt(2 * float(np.sum((np.exp(log_magnitude) * relative_error) ** 2)))
    rounding += unit * math.sqrt(size) * float(np.sqrt(np.sum(circular**2)))
    first = max(low, 0)
    kept = np.arange(first, low + size)
    if log_scale > _LARGEST_EXPONENT or not math.isfinite(rounding) or not len(kept):
        return LossDistribution(step, 0, np.zeros(1), 1.0)
    # Logarithms and exponentials of the untilting err by a few units times their size.
    slack = 1 + 4 * _UNIT_ROUNDOFF * (log_scale + rate * step * (high + size) + 16) * (
        1 + sum(t for _, _, t in parts)
    )
    masses = circular[kept % size] * np.exp(log_scale - rate * step * kept) * slack
    # An error at loss s counts (1 - exp(epsilon - s)) exp(-rate s) <= exp(-rate epsilon) / (1 +
    # rate).
    error = rounding * math.exp(log_scale) / (1 + rate) * slack
    return LossDistribution(
        step, first, masses, min(1.0, -math.expm1(log_finite) + tail), error, rate
    )


def _window(
    parts: Sequence[tuple[Array, float, int]], step: float, tail: float
) -> tuple[int, int, float]:
    """Grid window of the summed loss (each side fails with at most tail / 2), and a tilt.

    The tilt is the largest rate at which the exponential moment of the sum stays moderate. The
    upper end holds for the tilted masses too, whose excess would come back at the lower end as if
    it were likely.
    """
    reach = sum(times * (len(masses) // 2) for masses, _, times in parts)
    budget = math.log(2 / tail)
    blocks = [_blocks(masses, step) for masses, _, _ in parts]
    spread = math.sqrt(
        sum(t * float(w @ x**2) for (x, w), (_, _, t) in zip(blocks, parts, strict=True))
    )
    furthest = max(float(np.max(np.abs(x))) for x, _ in blocks)
    rates = np.geomspace(0.25, 128, 37) / max(spread, step)
    above, below = (
        [
            sum(
                t * _log_moment(sign * x, w, rate)
                for (x, w), (_, _, t) in zip(blocks, parts, strict=True)
            )
            for rate in rates
        ]
        for sign in (1.0, -1.0)
    )
    usable = [
        r
        for r, moment in zip(rates, above, strict=True)
        if moment < _TILT and r * furthest < _LARGEST_EXPONENT
    ]
    tilt = float(max((r for r in usable if r < rates[-1] / 2), default=0.0))
    high = min(
        (m + budget) / (r - tilt) for r, m in zip(rates, above, strict=True) if r > 1.05 * tilt
    )
    low = min((m + budget) / r for r, m in zip(rates, below, strict=True))
    return (
        *(
            sign * min(reach, math.ceil(min(end, 1e9) / step) + 1)
            for sign, end in ((-1, low), (1, high))
        ),
        tilt,
    )


def _blocks(masses: Array, step: float) -> tuple[Array, Array]:
    """Fewer losses with at least the same moment generating function, on both sides.

    The masses of a block go to its two ends such that their mean stays: exp() is convex, so its
    mean only grows.
    """
    reach, size = len(masses) // 2, len(masses)
    width = max(1, size // _BLOCKS)
    starts = np.arange(0, size, width)
    ends = np.minimum(starts + width, size - 1)
    weights = np.add.reduceat(masses, starts)
    means = np.add.reduceat(masses * np.arange(size), starts) / np.where(weights > 0, weights, 1.0)
    share = np.where(
        weights > 0, np.clip((means - starts) / np.maximum(ends - starts, 1), 0.0, 1.0), 0.0
    )
    losses = step * (np.concatenate([starts, ends]) - reach)
    return losses, np.concatenate([weights * (1 - share), weights * share])


def _log_moment(losses: Array, weights: Array, rate: float) -> float:
    """log of the moment generating function, without overflow."""
    present = weights > 0
    exponents = rate * losses[present]
    largest = float(np.max(exponents, initial=0.0))
    return largest + math.log(float(weights[present] @ np.exp(exponents - largest)) or 1e-300)


def lower_hull(profile: Array, step: float) -> Array:
    """The largest function below ``profile`` that is convex in exp(epsilon), on the same grid.

    A true profile is convex, so it lies below the hull of any of its upper bounds.
    """
    gamma = np.exp(step * np.arange(len(profile)))
    keep: list[int] = []
    for j in range(len(profile)):
        while len(keep) >= 2:
            a, b = keep[-2], keep[-1]
            if (profile[b] - profile[a]) * (gamma[j] - gamma[a]) < (profile[j] - profile[a]) * (
                gamma[b] - gamma[a]
            ):
                break
            keep.pop()
        keep.append(j)
    return np.asarray(np.interp(gamma, gamma[keep], profile[keep]))
