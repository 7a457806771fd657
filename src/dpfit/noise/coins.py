"""Long sequences of coins of which few come up, drawn by the gaps between those that do."""

from __future__ import annotations

import math

import numpy as np

from dpfit.noise.laws import Laplace, Multiprecision
from dpfit.noise.rounded import DOWN, magnitudes
from dpfit.noise.source import Source, Steps, whole

LEAST = 2.0**-50
"""The smallest probability above zero whose gaps fit the sampler."""

_LONG = 2.0**18
"""Gaps of this mean are left open by half a word once in some five hundred times."""


def successes(probability: float, trials: int, source: Source) -> Steps:
    """Draw which of `trials` independent coins come up, each with exactly the given probability.

    The number of failures before a success is geometric, and an exponential variable of mean
    ``-1 / log(1 - probability)`` rounded down has that law exactly (`dpfit.noise.rounded`). So the
    work is proportional to the successes, not to the trials, and the law is that of
    `Source.bernoulli`. Half a word decides nearly all gaps, unless they are long.

    Parameters
    ----------
    probability
        Zero, or between 2**-50 and one.
    trials
        How many coins, at most 2**61.
    source
        Where the bits come from.

    Returns
    -------
    The numbers of the coins that came up, in increasing order, counted from zero.

    Examples
    --------
    >>> successes(1.0, 3, Source()).tolist(), successes(0.0, 3, Source()).tolist()
    ([0, 1, 2], [])
    >>> bool(np.all(np.diff(successes(0.25, 1000, Source())) > 0))
    True
    """
    trials = whole("trials", trials, 0, 2**61)
    if not (probability == 0 or LEAST <= probability <= 1):
        raise ValueError(f"probability must be zero or lie in [2**-50, 1], got {probability!r}")
    if probability == 1:
        return np.arange(trials, dtype=np.int64)
    scale, parts, after = GapScale(probability) if probability else None, [], -1
    while scale is not None and after < trials:
        expected = (trials - after) * probability
        gaps = _gaps(scale, math.ceil(expected + 4 * math.sqrt(expected)) + 4, source)
        # A gap beyond the end is as good as one to the end; then nothing before the end can
        # overflow.
        np.minimum(gaps, trials, out=gaps)
        gaps += 1
        positions = np.cumsum(gaps, out=gaps)
        positions += after
        over = positions >= trials
        ended = int(np.argmax(over)) if over.any() else len(positions)
        parts.append(positions[:ended])
        after = int(positions[-1]) if ended == len(positions) else trials
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _gaps(scale: GapScale, number: int, source: Source) -> Steps:
    """Draw numbers of failures before a success."""
    if scale.value > _LONG:
        return magnitudes(Laplace(), scale, DOWN, source.words(number) >> np.uint64(1), source)
    halves = source.words(-(-number // 2)).astype("<u8").view("<u4")[:number]
    return magnitudes(Laplace(), scale, DOWN, halves, source, length=32)


class GapScale:
    """Mean of the exponential whose floor is the number of failures before a success.

    Examples
    --------
    >>> round(GapScale(0.5).value, 4)
    1.4427
    """

    # Within two units in the last place by the C library's log1p, and half a unit for the quotient.
    error = 2.0**-50

    def __init__(self, probability: float) -> None:
        self._probability = probability
        self.value = -1 / math.log1p(-probability)

    def enclosure(self, context: Multiprecision) -> tuple[Multiprecision, Multiprecision]:
        exact = -1 / context.log1p(-context.mpf(self._probability))
        return exact, exact
