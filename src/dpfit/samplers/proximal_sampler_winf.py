"""A chain that comes closer to its target in W-infinity with every step, from any start, for every dataset.

One step adds normal noise of variance ``step_size`` and draws from the restricted Gaussian oracle there. If U is
m-strongly convex on a bounded convex domain, two chains can be coupled so that each step divides their distance by
1 + step_size * m, surely. So after t steps from the centre the chain is within radius / (1 + step_size * m)**t of a
draw from the target; no warm start, no smoothness, no mixing time is assumed.

Certificates: W-infinity; and, one step later, Gaussian closeness (no noise is needed then).
Reference: [Liu24] Algorithm 13; docs/explanation/certificates.md, sections 4 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpfit.noise import Source
from dpfit.privacy.check import count, positive
from dpfit.privacy.record import Record
from dpfit.samplers.certificate import WithinGaussian, WithinWasserstein
from dpfit.samplers.exact_rgo import exact_rgo
from dpfit.samplers.potential import Floats, Potential

_UP = 1 + 1e-12


@dataclass(frozen=True)
class ProximalSampler(Record):
    """The chain, by public numbers: the target's strong convexity and the radius of its domain, and the steps."""

    kind = "proximal_sampler_winf"
    strong_convexity: float
    radius: float
    step_size: float
    steps: int

    def __post_init__(self) -> None:
        positive("strong_convexity", self.strong_convexity)
        positive("radius", self.radius)
        positive("step_size", self.step_size)
        count("steps", self.steps)

    @staticmethod
    def within(distance: float, strong_convexity: float, radius: float, step_size: float) -> ProximalSampler:
        """The fewest steps that come within a distance of the target.

        >>> ProximalSampler.within(1e-3, strong_convexity=1.0, radius=1.0, step_size=1.0).steps
        10
        """
        positive("distance", distance)
        rate = math.log1p(positive("step_size", step_size) * positive("strong_convexity", strong_convexity))
        steps = max(1, math.ceil(math.log(_UP * positive("radius", radius) / distance) / rate))
        return ProximalSampler(strong_convexity, radius, step_size, steps)

    @property
    def certificate(self) -> WithinWasserstein:
        """How far the last state is from the target: radius / (1 + step_size * strong_convexity)**steps."""
        return WithinWasserstein(self._distance(self.steps))

    @property
    def gaussian_certificate(self) -> WithinGaussian:
        """How hard the last state is to tell from the target: the distance one step before, over the step's noise."""
        return WithinGaussian(self._distance(self.steps - 1) / math.sqrt(self.step_size))

    def _distance(self, steps: int) -> float:
        return self.radius * math.exp(-steps * math.log1p(self.step_size * self.strong_convexity)) * _UP

    def init(self, target: Potential, chains: int) -> Floats:
        """All chains at the centre of the domain."""
        if target.strength < self.strong_convexity or target.domain.radius() > self.radius:
            raise ValueError("the certificate is for another target: more strongly convex, or on a smaller domain")
        return np.tile(target.domain.centre, (chains, 1))

    def step(self, state: Floats, target: Potential, source: Source) -> Floats:
        """Noise, then the oracle."""
        return exact_rgo(
            target, state + math.sqrt(self.step_size) * source.gaussian(state.shape), self.step_size, source
        )

    def draw(
        self, target: Potential, chains: int, source: Source, progress: Callable[[float], None] | None = None
    ) -> Floats:
        """The last states of independent chains, (chains, d); ``progress`` is told the share of the steps done.

        >>> from dpfit.geometry import L2Ball
        >>> flat = Potential(L2Ball(2, 1.0), 4.0, np.zeros(2), lambda x: (np.zeros(len(x)), np.zeros_like(x)))
        >>> ProximalSampler.within(1e-6, 4.0, 1.0, step_size=1.0).draw(flat, 3, Source()).shape
        (3, 2)
        """
        state = self.init(target, chains)
        for index in range(self.steps):
            state = self.step(state, target, source)
            if progress is not None:
                progress((index + 1) / self.steps)
        return state
