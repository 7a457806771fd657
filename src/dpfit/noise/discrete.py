"""Laws on the integers with a closed form, drawn exactly."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpfit.noise.laws import Laplace, Multiprecision
from dpfit.noise.rounded import DOWN, Digits, ExactScale, checked_scale, signed
from dpfit.noise.source import Flags, Floats, Size, Source, Steps

# Proven in `discrete_gaussian`: floating point errs by less than 2**-48 in an acceptance
# probability.
_ACCEPTANCE_ERROR = 2.0**-46


def discrete_laplace(scale: float, size: Size, source: Source) -> Steps:
    """Draw integers with probabilities prop. to exp(-abs(k) / scale).

    Added to an integer query it is exactly pure: epsilon is sensitivity / scale. An exponential
    variable rounded down is geometric; it gets a random sign, and one of the two zeros is rejected
    [1]_.

    References
    ----------
    .. [1] C. L. Canonne, G. Kamath and T. Steinke, The discrete Gaussian for differential privacy,
       NeurIPS 2020, section 5.1.

    Examples
    --------
    >>> discrete_laplace(3.0, 5, Source(random_state=1)).shape
    (5,)
    """
    checked_scale(scale)
    return _accepted(lambda n: _two_sided_geometric(scale, n, source), size)


def choices(gaps: Steps, scale: float, count: int, source: Source) -> list[int]:
    """Draw candidates independently, with weights exp(-gap / scale), by rejection.

    A two-sided geometric draw of scale s is at least g >= 0 with probability proportional to exp(-g
    / s).
    """
    chosen: list[int] = []
    while (missing := count - len(chosen)) > 0:
        trials = missing * len(gaps)
        proposed = source.integers(len(gaps), trials)
        kept = proposed[discrete_laplace(scale, trials, source) >= gaps[proposed]]
        chosen += kept[:missing].tolist()
    return chosen


def discrete_gaussian(sigma: float, size: Size, source: Source) -> Steps:
    """Draw integers with probabilities prop. to exp(-k**2 / (2 sigma**2)).

    Added to an integer query it gives rho-zCDP with rho = sensitivity**2 / (2 sigma**2) [1]_. It is
    not promised as Gaussian DP (mu), because its trade-off curve is not that of the normal law.

    Discrete Laplace proposals of scale ``t = floor(sigma) + 1`` are accepted with probability
    ``exp(-g)``, ``g = (abs(k) - sigma**2 / t)**2 / (2 sigma**2)``. In floating point the difference
    errs by at most ``2**-51 (abs(k) + sigma)``, hence ``g`` by ``2**-51 (2 g + 2 sqrt(2 g)) +
    2**-50 g``, hence ``exp(-g)`` by less than 2**-48. Within 2**-46 of the uniform number,
    multiprecision decides.

    References
    ----------
    .. [1] C. L. Canonne, G. Kamath and T. Steinke, The discrete Gaussian for differential privacy,
       NeurIPS 2020, theorem 4 and algorithm 3.

    Examples
    --------
    >>> discrete_gaussian(3.0, 5, Source(random_state=1)).shape
    (5,)
    """
    checked_scale(sigma)
    width = math.floor(sigma) + 1

    def propose(n: int) -> tuple[Steps, Flags]:
        steps, valid = _two_sided_geometric(float(width), n, source)
        return steps, valid & _accepts(steps, sigma, width, source)

    return _accepted(propose, size)


def _two_sided_geometric(scale: float, n: int, source: Source) -> tuple[Steps, Flags]:
    """Draw signed geometric numbers, and say which of them are not the zero with a minus sign."""
    words = source.words(n)
    steps = signed(Laplace(), ExactScale(scale), DOWN, words, source)
    return steps, (steps != 0) | (words & np.uint64(1) == 0)


def _accepts(steps: Steps, sigma: float, width: int, source: Source) -> Flags:
    """Flip one coin for each proposal, with the acceptance probability of `discrete_gaussian`."""
    digits = source.words(steps.size)
    uniform: Floats = digits.astype(np.float64) * 2.0**-64
    standardized = (np.abs(steps) - sigma * (sigma / width)) / sigma
    with np.errstate(under="ignore"):
        probability = np.exp(-0.5 * standardized**2)
    accepted = uniform < probability
    for i in np.flatnonzero(np.abs(uniform - probability) <= _ACCEPTANCE_ERROR):
        accepted[i] = _decide(abs(int(steps[i])), sigma, width, Digits(int(digits[i]), 64, source))
    return np.asarray(accepted)


def _decide(magnitude: int, sigma: float, width: int, digits: Digits) -> bool:
    def probability(context: Multiprecision) -> tuple[Multiprecision, Multiprecision]:
        exact = context.mpf(sigma)
        value = context.exp(-((magnitude - exact**2 / width) ** 2) / (2 * exact**2))
        return value, value

    return digits.below(probability)


def _accepted(propose: Callable[[int], tuple[Steps, Flags]], size: Size) -> Steps:
    """Make independent proposals until enough of them are accepted."""
    drawn: Steps = np.zeros(size, dtype=np.int64)
    flat = drawn.reshape(-1)
    filled, batch = 0, flat.size
    while filled < flat.size:
        steps, accepted = propose(batch)
        kept = steps[accepted][: flat.size - filled]
        flat[filled : filled + kept.size] = kept
        filled += kept.size
        # More than half are accepted, so twice what is missing mostly ends it.
        batch = 2 * (flat.size - filled)
    return drawn
