"""What a sampler promises about the law of what it draws, for every dataset.

A certificate turns the event of the ideal mechanism, which draws from the target itself, into the
event of what is run. Proofs: docs/explanation/certificates.md, section 2, and
docs/explanation/chains.md, section 3.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from dpfit.privacy import gaussian
from dpfit.privacy.event import (
    BoundedRange,
    CloseInRenyi,
    Event,
    GaussianPrivate,
    Pure,
    WithinTotalVariation,
)
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import non_negative, probability, real


class NotCertified(ValueError):
    """A certificate is too weak for what is to be promised."""


@dataclass(frozen=True)
class Certificate(Spec, ABC):
    """How far the law of a draw is from its target, at most; holds for every dataset."""

    @abstractmethod
    def event(self, ideal: Event) -> Event:
        """Return the event of releasing a draw, where the target's release has event ``ideal``."""

    def undisplaced(self, ideal: Event) -> Event:
        """Return the event of releasing an undisplaced draw: noise covers the displacement."""
        return ideal

    def implies(self, other: Certificate) -> bool:
        """Whether it is ``other``, or a certificate of its kind with a smaller number."""
        if type(self) is not type(other):
            return False
        mine, theirs = list(vars(self).values()), list(vars(other).values())
        return mine == theirs or (len(mine) == 1 and mine[0] <= theirs[0])

    @property
    def displacement(self) -> float:
        """How far each draw is surely from the target, under some coupling; raises if unbounded."""
        raise NotCertified(f"a certificate of kind {self.kind!r} bounds no distance between draws")


@dataclass(frozen=True)
class Exact(Certificate):
    """The draw has the target's law, in real arithmetic."""

    kind = "certificate_exact"

    def event(self, ideal: Event) -> Event:
        return ideal

    @property
    def displacement(self) -> float:
        return 0.0


@dataclass(frozen=True)
class WithinWasserstein(Certificate):
    """Draw and target have a coupling within ``distance`` (Euclidean W-infinity).

    Alone this promises nothing: neighbouring laws may be disjoint and still this close. Noise of
    the size of the distance makes it a promise (`dpfit.solvers.gibbs.perturbed_sample`).
    """

    kind = "certificate_wasserstein"
    distance: float

    def __post_init__(self) -> None:
        non_negative("distance", self.distance)

    def event(self, ideal: Event) -> Event:
        raise NotCertified(
            "a W-infinity certificate promises nothing without noise: perturb the sample"
        )

    @property
    def displacement(self) -> float:
        return self.distance


@dataclass(frozen=True)
class Displaced(Certificate):
    """Draws within ``distance`` of a law whose log density ratio to the target is within epsilon.

    What finite precision makes of an exact sampler. As for `WithinWasserstein`, there is no promise
    without noise.

    >>> Displaced(1e-6, 1e-9).undisplaced(Pure(1.0))
    Pure(epsilon=1.000002)
    """

    kind = "certificate_displaced"
    epsilon: float
    distance: float

    def __post_init__(self) -> None:
        non_negative("epsilon", self.epsilon)
        non_negative("distance", self.distance)

    def event(self, ideal: Event) -> Event:
        raise NotCertified("a displaced draw promises nothing without noise: perturb the sample")

    def undisplaced(self, ideal: Event) -> Event:
        if isinstance(ideal, BoundedRange):
            # On both sides the logarithm of the density moves by epsilon at most, so its range
            # grows by four of them.
            return BoundedRange(ideal.epsilon + 4 * self.epsilon)
        return WithinMaxDivergence(self.epsilon).event(ideal)

    @property
    def displacement(self) -> float:
        return self.distance


@dataclass(frozen=True)
class WithinGaussian(Certificate):
    """Draw and target are as hard to tell apart as two unit normal laws at distance ``mu``.

    The Renyi divergence of order a is then at most a * mu**2 / 2, in both directions.

    >>> WithinGaussian(0.01).event(GaussianPrivate(0.5))
    GaussianPrivate(mu=0.52)
    """

    kind = "certificate_gaussian"
    mu: float

    def __post_init__(self) -> None:
        non_negative("mu", self.mu)

    def event(self, ideal: Event) -> Event:
        return GaussianPrivate(_gaussian(ideal) + 2 * self.mu)


@dataclass(frozen=True)
class WithinMaxDivergence(Certificate):
    """The density relative to the target lies between exp(-epsilon) and exp(epsilon).

    >>> WithinMaxDivergence(0.1).event(BoundedRange(1.0))
    Pure(epsilon=1.2)
    """

    kind = "certificate_max_divergence"
    epsilon: float

    def __post_init__(self) -> None:
        non_negative("epsilon", self.epsilon)

    def event(self, ideal: Event) -> Event:
        if isinstance(ideal, Pure | BoundedRange):
            return Pure(ideal.epsilon + 2 * self.epsilon)
        return GaussianPrivate(_gaussian(ideal) + 2 * gaussian.from_pure(self.epsilon))


@dataclass(frozen=True)
class TotalVariation(Certificate):
    """The probabilities of any set differ by at most ``distance``.

    >>> TotalVariation(1e-9).event(Pure(1.0))
    WithinTotalVariation(event=Pure(epsilon=1.0), distance=1e-09)
    """

    kind = "certificate_total_variation"
    distance: float

    def __post_init__(self) -> None:
        probability("distance", self.distance)

    def event(self, ideal: Event) -> Event:
        return WithinTotalVariation(ideal, self.distance)


@dataclass(frozen=True)
class WithinChiSquare(Certificate):
    """Chi-square divergence of draw from target: the variance of the density ratio.

    Half its root bounds the total variation (Cauchy and Schwarz), and by that it is priced.

    >>> WithinChiSquare(4e-18).event(Pure(1.0))
    WithinTotalVariation(event=Pure(epsilon=1.0), distance=1e-09)
    """

    kind = "certificate_chi_square"
    divergence: float

    def __post_init__(self) -> None:
        non_negative("divergence", self.divergence)

    @property
    def total_variation(self) -> TotalVariation:
        """The weaker certificate."""
        return TotalVariation(min(1.0, math.sqrt(self.divergence) / 2))

    def event(self, ideal: Event) -> Event:
        return self.total_variation.event(ideal)


@dataclass(frozen=True)
class WithinRenyi(Certificate):
    """Renyi divergences of this order between the law of the draw and the target, both ways.

    Either may be infinite. The privacy cost is the smaller one of two: both directions as (epsilon,
    delta)-closeness, or total variation (divergences grow with the order, so Pinsker applies).

    >>> from dpfit.privacy.accountant import privacy_curve
    >>> import numpy as np
    >>> close = privacy_curve(WithinRenyi(28.6, 0.5, 0.5).event(Pure(1.0)), "replace")
    >>> float(close.delta(np.array([3.0]))[0]) < 1e-6
    True
    """

    kind = "certificate_renyi"
    order: float
    forward: float
    backward: float

    def __post_init__(self) -> None:
        if not real("order", self.order) >= 1:
            raise ValueError(f"order must be at least 1, got {self.order!r}")
        non_negative("forward", self.forward)
        non_negative("backward", self.backward)

    @property
    def total_variation(self) -> TotalVariation:
        """The weaker certificate."""
        return TotalVariation(min(1.0, math.sqrt(min(self.forward, self.backward) / 2)))

    def implies(self, other: Certificate) -> bool:
        return (
            isinstance(other, WithinRenyi)
            and self.order >= other.order
            and self.forward <= other.forward
            and self.backward <= other.backward
        )

    def event(self, ideal: Event) -> Event:
        return CloseInRenyi(ideal, self.order, self.forward, self.backward)


@dataclass(frozen=True)
class Uncertified(Certificate):
    """Nothing is known about the law of the draw."""

    kind = "certificate_none"

    def event(self, ideal: Event) -> Event:
        raise NotCertified(
            "this sampler has no certificate, so nothing can be promised about its draws"
        )


def _gaussian(ideal: Event) -> float:
    if not isinstance(ideal, GaussianPrivate):
        raise NotCertified(
            f"this certificate adds to mu-GDP, not to an event of kind {ideal.kind!r}"
        )
    return ideal.mu
