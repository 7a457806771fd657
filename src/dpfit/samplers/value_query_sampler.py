"""The alternating sampler on values of single records: a reference implementation for small n.

The chain of `dpfit.samplers.alternating_sampler` with `dpfit.samplers.subsampled_rgo` as its
oracle. No gradient, no smoothness and O(1) records a step; but the precision of the oracle's normal
law must be hundreds of times L**2, where L is the Lipschitz constant of n times a record's loss, so
that the steps are short and many: about 1e7 at n = 300.

Certificate: total variation, that of the exact chain plus that of the oracle times the number of
steps, for every dataset. Reference: [Liu24] Theorem 3.2.3, with explicit constants;
docs/explanation/chains.md, section 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpfit.noise import Source
from dpfit.privacy.validate import probability
from dpfit.samplers.alternating_sampler import AlternatingSampler
from dpfit.samplers.certificate import TotalVariation
from dpfit.samplers.potential import Floats, Potential
from dpfit.samplers.subsampled_rgo import SampledPotential, Truncation, subsampled_rgo

_ROUNDS = 20


@dataclass(frozen=True)
class ValueQuerySampler(AlternatingSampler):
    """The chain, by public numbers; ``lipschitz`` bounds the slope of each averaged function.

    >>> sampler = ValueQuerySampler.certified(
    ...     1e-3, strong_convexity=5.0, lipschitz=1.0, diameter=2.0
    ... )
    >>> sampler.certificate.distance <= 1e-3, sampler.steps < 500
    (True, True)
    """

    kind = "value_query_sampler"

    @staticmethod
    def certified(
        distance: float, strong_convexity: float, lipschitz: float, diameter: float
    ) -> ValueQuerySampler:
        """A chain certified in total variation: half for the steps, half for their oracles."""
        if not 0 < probability("distance", distance) < 1:
            raise ValueError(f"distance must lie between 0 and 1, got {distance!r}")
        steps = 1
        for _ in range(_ROUNDS):
            precision = lipschitz**2 / Truncation.within(distance / (2 * steps)).ratio
            # Where the strong convexity alone is enough precision, any long step will do.
            step_size = 1 / max(precision - strong_convexity, strong_convexity)
            outer = AlternatingSampler.within(
                distance / 2, strong_convexity, lipschitz, diameter, step_size
            )
            if outer.steps <= steps:
                return ValueQuerySampler(
                    outer.steps, strong_convexity, lipschitz, diameter, step_size
                )
            steps = math.ceil(1.01 * outer.steps)
        raise ValueError("distance is too small to be certified")

    @property
    def certificate(self) -> TotalVariation:
        """Of the exact chain, plus an error of the oracle at every step."""
        precision = self.strong_convexity + 1 / self.step_size
        oracle = 0.0 if self.lipschitz == 0 else Truncation(self.lipschitz**2 / precision).error
        return TotalVariation(min(1.0, super().certificate.distance + self.steps * oracle))

    def init(self, target: Potential, chains: int, source: Source) -> Floats:
        if not isinstance(target, SampledPotential) or target.lipschitz > self.lipschitz:
            raise ValueError(
                "a potential of single functions, at most as steep as certified, is needed"
            )
        return super().init(target, chains, source)

    def step(self, state: Floats, target: Potential, source: Source) -> Floats:
        if not isinstance(target, SampledPotential):
            raise ValueError("a potential of single functions is needed")
        noise = math.sqrt(self.step_size) * source.gaussian(state.shape)
        return subsampled_rgo(target, state + noise, self.step_size, source)
