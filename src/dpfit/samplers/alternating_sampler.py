"""The alternating sampler, certified in total variation: noise, then the Gaussian oracle.

It is the chain of `dpfit.samplers.proximal_sampler_winf` from another start: the normal law
N(centre, I / strength) on the domain, which the convex part f of the potential tilts into the
target. If f is L-Lipschitz and the potential m-strongly convex on a domain of diameter D, then

- chi-square: at the start at most exp(b) - 1 with b = min(L**2 / m, L D, (L D)**2 / 4); each step
  divides it by (1 + step_size * m)**2;
- W-infinity: at the start at most min(L / m, D); each step divides it by 1 + step_size * m, and the
  noise of the last one turns a distance r into total variation 2 Phi(r / (2 sqrt(step_size))) - 1.

The total variation is at most the smaller of half the root of the first and the second.
Certificates hold for every dataset for which L is a bound. Reference: [Liu24] Algorithms 13 and 15,
with explicit constants; docs/explanation/chains.md, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import erf

from dpfit.geometry.truncated_gaussian import gaussian_within
from dpfit.noise import Source
from dpfit.privacy.validate import integer, non_negative, positive
from dpfit.samplers.certificate import TotalVariation, WithinChiSquare
from dpfit.samplers.exact_rgo import exact_rgo
from dpfit.samplers.markov import Chain
from dpfit.samplers.potential import Floats, Potential

_UP = 1 + 1e-12
_LARGEST = 700.0


@dataclass(frozen=True)
class AlternatingSampler(Chain[Floats]):
    """The chain, by public numbers of its target: m, the subgradient bound L, diameter D.

    >>> sampler = AlternatingSampler.within(
    ...     1e-9, strong_convexity=10.0, lipschitz=20.0, diameter=2.0, step_size=0.1
    ... )
    >>> sampler.steps, sampler.certificate.distance <= 1e-9
    (33, True)
    """

    kind = "alternating_sampler"
    strong_convexity: float
    lipschitz: float
    diameter: float
    step_size: float

    def __post_init__(self) -> None:
        integer("steps", self.steps)
        positive("strong_convexity", self.strong_convexity)
        non_negative("lipschitz", self.lipschitz)
        positive("diameter", self.diameter)
        positive("step_size", self.step_size)

    @staticmethod
    def within(
        distance: float,
        strong_convexity: float,
        lipschitz: float,
        diameter: float,
        step_size: float,
    ) -> AlternatingSampler:
        """The fewest steps that come within a total variation of the target."""
        positive("distance", distance)

        def sampler(steps: int) -> AlternatingSampler:
            return AlternatingSampler(steps, strong_convexity, lipschitz, diameter, step_size)

        return sampler(_first(lambda steps: sampler(steps).certificate.distance <= distance))

    @property
    def chi_square_certificate(self) -> WithinChiSquare:
        """Of the last state's law from the target."""
        swing = self.lipschitz * self.diameter
        start = _UP * min(self.lipschitz**2 / self.strong_convexity, swing, swing**2 / 4)
        if start == 0:
            return WithinChiSquare(0.0)
        logarithm = start + math.log(-math.expm1(-start)) - 2 * self.steps * self._rate
        return WithinChiSquare(math.exp(logarithm) * _UP if logarithm < _LARGEST else math.inf)

    @property
    def certificate(self) -> TotalVariation:
        """The better of the two."""
        apart = min(self.lipschitz / self.strong_convexity, self.diameter) * math.exp(
            -(self.steps - 1) * self._rate
        )
        smoothed = min(1.0, _UP * float(erf(apart / math.sqrt(8 * self.step_size))))
        return TotalVariation(min(smoothed, self.chi_square_certificate.total_variation.distance))

    @property
    def _rate(self) -> float:
        return math.log1p(self.step_size * self.strong_convexity) / _UP

    def init(self, target: Potential, chains: int, source: Source) -> Floats:
        """Draws of the normal law that the quadratic part of the potential is, on the domain."""
        if target.strength < self.strong_convexity or target.domain.diameter() > self.diameter:
            raise ValueError(
                "the certificate is for another target: more strongly convex, or on a smaller "
                "domain"
            )
        return gaussian_within(
            target.domain, np.tile(target.centre, (chains, 1)), target.strength, source
        )

    def step(self, state: Floats, target: Potential, source: Source) -> Floats:
        noise = math.sqrt(self.step_size) * source.gaussian(state.shape)
        return exact_rgo(target, state + noise, self.step_size, source)

    def points(self, state: Floats) -> Floats:
        return state


def _first(holds: Callable[[int], bool]) -> int:
    """The least integer >= 1 with a monotone condition, by doubling and bisection."""
    high = 1
    while not holds(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
