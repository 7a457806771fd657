"""The currencies of an audit: the one number in which a bound stands next to a promise."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from dpfit.audit.bounds import Floats, epsilon_lower, mu_lower
from dpfit.audit.tradeoff import TradeOff
from dpfit.privacy import Guarantee, gaussian
from dpfit.privacy.validate import probability


class Currency(ABC):
    """A family of privacy promises with one parameter."""

    name: str

    @abstractmethod
    def lower(self, alpha: ArrayLike, beta: ArrayLike) -> Floats:
        """The smallest parameter that allows error rates at most ``alpha`` and ``beta``."""

    @abstractmethod
    def exact(self, epsilons: Floats, deltas: Floats) -> float:
        """The smallest parameter that allows a profile."""

    @abstractmethod
    def promised(self, guarantee: Guarantee) -> float:
        """The parameter of a promise; refuses promises that have none."""


@dataclass(frozen=True)
class Mu(Currency):
    """Gaussian DP.

    >>> round(float(Mu().lower(0.3085, 0.3085)), 3)
    1.0
    """

    name = "mu"

    def lower(self, alpha: ArrayLike, beta: ArrayLike) -> Floats:
        return mu_lower(alpha, beta)

    def exact(self, epsilons: Floats, deltas: Floats) -> float:
        # Rounding makes far tails of a computed profile too large; deltas below 1e-12 are not
        # trusted.
        pairs = [(e, d) for e, d in zip(epsilons, deltas, strict=True) if d > 1e-12]
        return max((gaussian.mu(float(e), min(float(d), 1.0)) for e, d in pairs), default=0.0)

    def promised(self, guarantee: Guarantee) -> float:
        if math.isinf(guarantee.mu):
            raise ValueError(
                "the promise has no Gaussian-DP parameter; audit it in epsilon, with a delta if "
                "it is not pure"
            )
        return guarantee.mu


@dataclass(frozen=True)
class Epsilon(Currency):
    """Epsilon at a given delta; zero for pure DP."""

    delta: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= probability("delta", self.delta) < 1:
            raise ValueError(f"delta must be below 1, got {self.delta!r}")

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"epsilon at delta = {self.delta:g}" if self.delta else "epsilon"

    def lower(self, alpha: ArrayLike, beta: ArrayLike) -> Floats:
        return epsilon_lower(alpha, beta, self.delta)

    def exact(self, epsilons: Floats, deltas: Floats) -> float:
        over = np.flatnonzero(deltas > self.delta + 1e-12)
        return float(epsilons[over[-1]]) if len(over) else 0.0

    def promised(self, guarantee: Guarantee) -> float:
        value = guarantee.epsilon(self.delta)
        if math.isinf(value):
            known = (
                "audit it in mu, or give a delta"
                if math.isfinite(guarantee.mu)
                else "give a (larger) delta"
            )
            raise ValueError(
                f"the promise has no finite epsilon at delta = {self.delta:g}; {known}"
            )
        return value


@dataclass(frozen=True)
class Balanced(Currency):
    """The mu of the Gaussian guarantee that just allows a test with these equal error rates.

    Every promise has one, read off its trade-off curve where false alarms and misses are equal; of
    a Gaussian promise it is mu.

    >>> round(float(Balanced().lower(0.3085, 0.25)), 3)
    1.0
    """

    name = "mu at equal error rates"

    def lower(self, alpha: ArrayLike, beta: ArrayLike) -> Floats:
        return np.asarray(_mu_of_balanced(np.maximum(alpha, beta)))

    def exact(self, epsilons: Floats, deltas: Floats) -> float:
        return float(
            _mu_of_balanced(np.max((1 - deltas) / (1 + np.exp(np.minimum(epsilons, 700.0)))))
        )

    def promised(self, guarantee: Guarantee) -> float:
        return float(_mu_of_balanced(TradeOff(guarantee).balanced))


def _mu_of_balanced(rate: ArrayLike) -> Floats:
    return np.asarray(np.maximum(-2 * ndtri(np.clip(rate, 0.0, 1.0)), 0.0))


def currency_of(
    guarantee: Guarantee, wanted: str | Currency | None = None, delta: float = 0.0
) -> Currency:
    """The given currency, or the natural one: pure epsilon, else mu, else epsilon at delta.

    >>> from dpfit.privacy import Basis, event
    >>> currency_of(Guarantee(event.Gaussian(2.0), Basis("Gaussian mechanism"))).name
    'mu'
    """
    if isinstance(wanted, Currency):
        found = wanted
    elif wanted is None:
        found = (
            Mu()
            if math.isinf(guarantee.pure) and math.isfinite(guarantee.mu) and not delta
            else Epsilon(delta)
        )
    elif wanted == "mu":
        if delta:
            raise ValueError("delta goes with the currency 'epsilon', not with 'mu'")
        found = Mu()
    elif wanted == "epsilon":
        found = Epsilon(delta)
    elif wanted == "balanced":
        if delta:
            raise ValueError("delta goes with the currency 'epsilon', not with 'balanced'")
        found = Balanced()
    else:
        raise ValueError(f"the currency must be 'mu', 'epsilon' or 'balanced', got {wanted!r}")
    found.promised(guarantee)
    return found
