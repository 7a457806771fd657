"""The promised trade-off curve: the smallest miss rate that a promise leaves to any test.

Every test between neighbours with false-alarm rate alpha and miss rate beta obeys, at each epsilon
and in both directions, ``1 - beta <= exp(epsilon) alpha + delta(epsilon)`` and ``1 - alpha <=
exp(epsilon) beta + delta(epsilon)``. The curve is the upper envelope of these lines (Dong, Roth, Su
2022, Proposition 6); finitely many of them give a curve that is not above it, so it is contradicted
less often, never more often.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from dpfit.audit.bounds import Floats, least_runs, upper_rate
from dpfit.privacy import Guarantee

_POINTS = 1500


class TradeOff:
    """The trade-off curve of a guarantee's delta(epsilon), the worse direction in both.

    >>> from dpfit.privacy import Basis, event
    >>> promise = TradeOff(Guarantee(event.Gaussian(1.0), Basis("Gaussian mechanism")))
    >>> round(float(promise.miss(0.05)), 3)
    0.74
    >>> bool(promise.contradicted(0.05, 0.70)), bool(promise.contradicted(0.05, 0.75))
    (True, False)
    """

    def __init__(self, guarantee: Guarantee) -> None:
        self.epsilons, self.deltas = profile(guarantee)
        self._slopes = np.exp(np.minimum(self.epsilons, 700.0))

    def miss(self, alpha: ArrayLike) -> Floats:
        """The smallest promised miss rate at false-alarm rates ``alpha``."""
        a = np.asarray(alpha, dtype=np.float64)[..., None]
        steep = 1 - self.deltas - self._slopes * a
        flat = (1 - self.deltas - a) / self._slopes
        return np.asarray(np.maximum(np.maximum(steep, flat).max(axis=-1), 0.0))

    def contradicted(self, alpha: ArrayLike, beta: ArrayLike) -> np.bool_:
        """Whether no pair of rates up to these upper bounds is allowed: the curve decreases."""
        # The envelope is computed in floating point; 1e-12 is far above its error and far below any
        # bound's width.
        return np.any(np.asarray(beta) < self.miss(alpha) - 1e-12)

    def contradicted_delta(self, alpha: float, beta: float) -> float:
        """Return the guaranteed delta at the epsilon where these rates exceed the profile most.

        >>> from dpfit.privacy import Basis, event
        >>> promise = TradeOff(Guarantee(event.Gaussian(1.0), Basis("Gaussian mechanism")))
        >>> round(promise.contradicted_delta(0.05, 0.70), 1)
        0.1
        """
        found = np.maximum(1 - beta - self._slopes * alpha, 1 - alpha - self._slopes * beta)
        return float(self.deltas[int(np.argmax(found - self.deltas))])

    @property
    def balanced(self) -> float:
        """The rate at which promised false alarms and misses are equal."""
        return float(np.max((1 - self.deltas) / (1 + self._slopes)))

    def runs_needed(self, failure: float) -> int:
        """Evaluated runs a side after which a twice too good test contradicts the claim.

        Twice in the currency of the balanced error rate: 2 Phi^-1 of it, which is mu for a Gaussian
        promise.
        """
        promised = self.balanced
        twice = float(ndtr(2 * ndtri(promised)))
        if promised - twice < 1e-6:
            return 10**12
        return least_runs(
            lambda n: float(upper_rate(min(np.ceil(twice * n), n), n, failure / 2)) < promised
        )


def profile(guarantee: Guarantee, reach: float | None = None) -> tuple[Floats, Floats]:
    """The promise as points (epsilon, delta), dense near zero, total variation priced in."""
    curve, distance = guarantee.curve, guarantee.total_variation
    far = curve.reach if reach is None else reach
    epsilons = np.asarray(far * np.linspace(0.0, 1.0, _POINTS) ** 1.5)
    deltas = curve.delta(epsilons) + (1 + np.exp(np.minimum(epsilons, 700.0))) * distance
    deltas = np.where(epsilons >= guarantee.pure, 0.0, np.clip(deltas, 0.0, 1.0))
    return epsilons, np.asarray(deltas)
