"""Privacy of an implementation whose laws are close in Renyi divergence to those of a mechanism."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpfit.privacy import renyi
from dpfit.privacy.curve import Curve, both

Array = NDArray[np.float64]

_SHARES, _ROUNDS = 33, 3
"""Shares of epsilon that closeness may take, in rounds ever nearer to the best; each is sound."""
_LARGEST = 700.0
"""Beyond this exponentials overflow; a profile decreases, so its value here holds beyond."""
_UP = 1 + 1e-13


class CloseInRenyi(Curve):
    """An implementation within Renyi divergences of one order of a mechanism, for every dataset.

    Let P, P' be the implementation's laws on neighbouring datasets, R, R' those of the mechanism.
    Divergences of P from R and of R' from P' give P(S) <= exp(c) R(S) + b and R'(S) <= exp(c) P'(S)
    + b' for every c >= 0. So delta(epsilon) <= b + exp(c) delta_0(epsilon - 2 c) + exp(epsilon - c)
    b', where delta_0 is the profile of the mechanism. A total variation xi gives delta_0(epsilon) +
    (1 + exp(epsilon)) xi (Pinsker). The profile is the least of these.
    Proof: docs/explanation/certificates.md, section 2.
    """

    convex = False

    def __init__(self, ideal: Curve, order: float, forward: float, backward: float) -> None:
        self._ideal, self._order = ideal, order
        self._forward, self._backward = forward, backward
        self._distance = math.sqrt(min(forward, backward) / 2) * _UP
        self.closed_form = ideal.closed_form

    def profile(self, epsilon: Array) -> Array:
        epsilon = np.minimum(epsilon, _LARGEST)
        growth = np.exp(epsilon) * _UP
        best = self._ideal.delta(epsilon) + (1 + growth) * self._distance
        if self._order > 1 and max(self._forward, self._backward) < math.inf:
            best = np.minimum(best, self._chained(epsilon))
        return both(np.minimum(best, 1.0))

    def _chained(self, epsilon: Array) -> Array:
        """Return the least of the three deltas' sums over the shares that closeness may take."""
        low, high = np.zeros_like(epsilon), epsilon / 2
        best, at = np.full_like(epsilon, math.inf), low
        for _ in range(_ROUNDS):
            width = (high - low) / (_SHARES - 1)
            for index in range(_SHARES):
                spent = np.minimum(low + index * width, epsilon / 2)
                total = self._at(epsilon, spent)
                at, best = np.where(total < best, spent, at), np.minimum(best, total)
            low, high = np.maximum(at - width, 0.0), np.minimum(at + width, epsilon / 2)
        return best

    def _at(self, epsilon: Array, spent: Array) -> Array:
        between = np.maximum(epsilon - 2 * spent * _UP, 0.0)
        total = (
            self._beyond(self._forward, spent)
            + np.exp(spent) * self._ideal.delta(between)
            + np.exp(epsilon - spent) * self._beyond(self._backward, spent)
        )
        return np.asarray(total * _UP)

    def _beyond(self, divergence: float, level: Array) -> Array:
        """Return the delta at which two laws of this divergence are within ``level``."""
        return renyi.delta(np.array([self._order]), np.array([divergence]), level)
