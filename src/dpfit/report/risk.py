"""The guarantee as an attacker's gain: upper bounds that follow from the profile.

The attacker knows all records but one, and the whole procedure, and tells two neighbouring datasets
apart. Proofs of the three bounds: docs/how-to/report.md.
"""

from __future__ import annotations

import math

import numpy as np

from dpfit.audit.tradeoff import TradeOff, profile
from dpfit.privacy import Guarantee
from dpfit.privacy.validate import real


def best_guess(guarantee: Guarantee) -> float:
    """Largest probability of a right guess for equally likely datasets: (1 + delta(0)) / 2.

    >>> from dpfit.privacy import Basis, event
    >>> round(best_guess(Guarantee(event.Gaussian(1.0), Basis("Gaussian mechanism"))), 4)
    0.6915
    """
    return (1 + guarantee.delta(0.0)) / 2


def recognised(guarantee: Guarantee, false_alarms: float) -> float:
    """Largest fraction of true cases a test finds at this rate of false alarms.

    >>> from dpfit.privacy import Basis, event
    >>> round(recognised(Guarantee(event.Gaussian(1.0), Basis("Gaussian mechanism")), 0.01), 3)
    0.092
    """
    return float(1 - TradeOff(guarantee).miss(false_alarms))


def odds_tail(guarantee: Guarantee, factor: float) -> float:
    """Largest probability that a release multiplies the odds of the truth beyond ``factor``.

    With D(x) the largest ``P[A] - x Q[A]`` over events A, which is delta(log x) for x >= 1 and
    follows from the other direction for x < 1, it is the smallest ``D(x) / (1 - x / factor)`` over
    x below the factor. Note that delta(log(factor)) itself is no such bound: it is smaller than the
    probability in question.

    >>> from dpfit.privacy import Basis, event
    >>> promise = Guarantee(event.Laplace(1.0), Basis("Laplace mechanism"))
    >>> round(odds_tail(promise, 2.0), 3), odds_tail(promise, 3.0)
    (0.757, 0.0)
    """
    if not 1 < real("factor", factor) < math.inf:
        raise ValueError(f"factor must be a finite number above 1, got {factor!r}")
    if math.log(factor) >= guarantee.pure:
        return 0.0
    epsilons, deltas = profile(guarantee)
    # Beyond 700 the exponential ends, and delta has long been flat.
    epsilons, deltas = epsilons[epsilons < 700], deltas[epsilons < 700]
    x = np.concatenate([np.exp(epsilons), np.exp(-epsilons)])
    d = np.concatenate([deltas, -np.expm1(-epsilons) + np.exp(-epsilons) * deltas])
    below = x < factor
    return float(min(1.0, np.min(d[below] / (1 - x[below] / factor))))
