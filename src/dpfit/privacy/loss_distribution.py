"""Privacy-loss distributions on a grid: pessimistic discretization, composition by FFT, a proven error term.

A privacy profile is the function H(epsilon) = sup_S P(S) - exp(epsilon) Q(S); it is convex in exp(epsilon).
Joining its values on a grid by straight lines (in exp(epsilon)) gives a larger profile, which is that of a
distribution of losses on the grid ("connect the dots", Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022).
Larger profiles stay larger under composition, so the sum of independent grid losses bounds the composition.
docs/explanation/accounting.md has the proofs, the aliasing term and the floating-point term included.
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
"""Units of roundoff on one path through one level of a transform, radix 2 to 5: a complex product and a sum."""
_POWER_ERROR = 6.0
"""Units of roundoff, per factor, of a complex power computed as exp(times * log z) with |arg z| at most pi."""

_BLOCKS = 4096


class GridTooLarge(Exception):
    """The window of a composition does not fit the largest grid at this step; a coarser step will."""


@dataclass(frozen=True)
class LossDistribution:
    """Masses of the privacy loss at ``step * (first + i)``, plus the mass at infinity, for one direction."""

    step: float
    first: int
    masses: Array
    infinity: float

    @property
    def losses(self) -> Array:
        """The finite losses."""
        return np.asarray(self.step * (self.first + np.arange(len(self.masses))), dtype=np.float64)

    def delta(self, epsilon: Array) -> Array:
        """Upper bound on the profile at non-negative ``epsilon``."""
        losses, above, weighted = self._suffix_sums
        epsilon = np.minimum(epsilon, 700.0)  # delta decreases, and exp() ends a little later
        index = np.searchsorted(losses, epsilon, side="right")
        finite = above[index] - np.exp(epsilon) * weighted[index]
        # Suffix sums of up to N terms lose at most N units of roundoff relative to their own size.
        slack = 2 * (len(losses) + 2) * _UNIT_ROUNDOFF * above[index]
        return np.asarray(np.clip(np.maximum(finite, 0.0) + slack + self.infinity, 0.0, 1.0))

    @cached_property
    def _suffix_sums(self) -> tuple[Array, Array, Array]:
        """Non-negative losses, P(loss >= each), Q(loss >= each); the last entries are zero."""
        start = max(0, -self.first)
        losses, masses = self.losses[start:], self.masses[start:]
        above = np.append(np.cumsum(masses[::-1])[::-1], 0.0)
        return losses, above, np.append(np.cumsum((masses * np.exp(-losses))[::-1])[::-1], 0.0)


def discretize(forward: Array, reverse: Array, step: float) -> tuple[Array, float]:
    """Masses at losses -m*step .. m*step of a pair whose profiles lie above the given ones, and its mass at infinity.

    ``forward[j]`` and ``reverse[j]`` are values (or upper bounds, convex in exp(epsilon)) of H(P||Q) and H(Q||P) at
    epsilon = j * step, j = 0 .. m. The second difference of a profile in exp(epsilon) is the mass of Q, and
    exp(epsilon) times it that of P; negative losses come from the reverse profile, so that nothing is computed as
    one minus something small.
    """
    positive, mirrored = _second_differences(forward, step), _second_differences(reverse, step)
    decay = np.exp(-step * np.arange(1, len(forward)))
    negative = mirrored * decay
    infinity = float(forward[-1])
    # A deficit at zero (profiles that are bounds, not exact) leaves a total above one, which stays sound.
    zero = max(0.0, 1.0 - infinity - float(positive.sum()) - float(negative.sum()))
    masses = np.concatenate([negative[::-1], [zero], positive])
    infinity += _shortfall(forward, positive, infinity, step)
    # Rows that do not start alike would leave Q with more mass than P; at infinity, P makes up for it.
    start, other = (float(sums @ (1 - decay)) for sums in (positive, mirrored))
    return masses, infinity + max(0.0, other + float(reverse[-1]) - start - infinity)


def _second_differences(profile: Array, step: float) -> Array:
    """exp(epsilon) times the change of slope in exp(epsilon) at epsilon = step, 2 step, ..; flat after the last."""
    change = np.append(np.diff(profile), 0.0)
    return np.asarray(np.maximum(change[1:] / math.expm1(step) + change[:-1] / math.expm1(-step), 0.0))


def _shortfall(profile: Array, positive: Array, infinity: float, step: float) -> float:
    """How far the profile of the rounded masses falls below the wanted one: added at infinity, it closes the gap."""
    losses = step * np.arange(1, len(profile))
    above = np.append(np.cumsum(positive[::-1])[::-1], 0.0)
    weighted = np.append(np.cumsum((positive * np.exp(-losses))[::-1])[::-1], 0.0)
    reached = infinity + above - np.exp(step * np.arange(len(profile))) * weighted
    return max(0.0, float(np.max(profile - reached)))


def compose(parts: Sequence[tuple[Array, float, int]], step: float, tail: float) -> LossDistribution:
    """The loss of all parts together: (masses, mass at infinity, how many times) on one symmetric grid.

    Losses are added modulo a window outside which the sum falls with probability at most ``tail`` (Chernoff); that
    probability, and a bound on the rounding errors of the transforms, are added to the mass at infinity.
    """
    low, high = _window(parts, step, tail)
    if high - low + 1 > LARGEST_GRID:
        raise GridTooLarge
    size = next_fast_len(max(high - low + 1, 16), real=True)
    # Each output of a transform is a sum over paths of log2(size) levels, so its error is relative to the l1 norm.
    unit = _FFT_ERROR_PER_LEVEL * math.log2(size) * _UNIT_ROUNDOFF
    log_magnitude = np.zeros(size // 2 + 1)
    relative_error = np.zeros(size // 2 + 1)
    product = np.ones(size // 2 + 1, dtype=complex)
    log_finite = 0.0
    for masses, infinity, times in parts:
        reach = len(masses) // 2
        folded = np.bincount(np.arange(-reach, reach + 1) % size, weights=masses, minlength=size)
        total = float(masses.sum())
        transform = rfft(folded)
        magnitude = np.abs(transform) + unit * total
        product *= transform**times
        log_magnitude += times * np.log(magnitude)
        relative_error += times * (unit * total / magnitude + _POWER_ERROR * _UNIT_ROUNDOFF)
        log_finite += times * math.log1p(-min(infinity, 1.0)) if infinity < 1.0 else -math.inf
    circular = np.maximum(irfft(product, size), 0.0)
    # Parseval and Cauchy-Schwarz: the l1 error in loss space is at most the l2 norm of the error in frequency space.
    with np.errstate(over="ignore", invalid="ignore"):
        error_hat = np.exp(log_magnitude) * relative_error
        rounding = math.sqrt(2 * float(np.sum(error_hat**2)))
    rounding += unit * math.sqrt(size) * float(np.sqrt(np.sum(circular**2)))
    masses = circular[np.arange(low, low + size) % size]
    lost = -math.expm1(log_finite)
    return LossDistribution(step, low, masses, min(1.0, lost + tail + rounding))


def _window(parts: Sequence[tuple[Array, float, int]], step: float, tail: float) -> tuple[int, int]:
    """Grid indices between which the summed loss lies, each side failing with probability at most tail / 2."""
    reach = sum(times * (len(masses) // 2) for masses, _, times in parts)
    budget = math.log(2 / tail)
    ends = []
    for sign in (1.0, -1.0):
        blocks = [_blocks(masses, step, sign) for masses, _, _ in parts]
        spread = math.sqrt(sum(t * float(w @ x**2) for (x, w), (_, _, t) in zip(blocks, parts, strict=True)))
        best = math.inf
        for rate in np.geomspace(0.5, 64, 15) / max(spread, step):
            moment = sum(
                times * _log_moment(losses, weights, rate)
                for (losses, weights), (_, _, times) in zip(blocks, parts, strict=True)
            )
            best = min(best, (moment + budget) / rate)
        ends.append(min(reach, math.ceil(best / step) + 1) if math.isfinite(best) else reach)
    return -ends[1], ends[0]


def _blocks(masses: Array, step: float, sign: float) -> tuple[Array, Array]:
    """Signed losses, each rounded up to the end of its block, with the masses of the blocks."""
    reach = len(masses) // 2
    width = -(-len(masses) // _BLOCKS)
    ordered = masses if sign > 0 else masses[::-1]
    starts = np.arange(0, len(masses), width)
    weights = np.add.reduceat(ordered, starts)
    ends = np.minimum(starts + width - 1, len(masses) - 1) - reach
    return step * ends, weights


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
            if (profile[b] - profile[a]) * (gamma[j] - gamma[a]) < (profile[j] - profile[a]) * (gamma[b] - gamma[a]):
                break
            keep.pop()
        keep.append(j)
    return np.asarray(np.interp(gamma, gamma[keep], profile[keep]))
