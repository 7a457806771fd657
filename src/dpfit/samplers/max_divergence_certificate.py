"""A chain with a bounded density ratio to its target, for all data: pure DP without noise.

The proximal chain comes within a distance D of its target in W-infinity. One last step of another
kind turns distance into a density ratio: noise z of density proportional to exp(-slope * norm(z)),
then a draw from exp(-U(x) - slope * norm(x - y)), which is convex again. The target stays
invariant, and a logarithm of a density that changes by at most ``slope`` per unit makes the two
laws of y, and so of what is drawn, differ by a factor of at most exp(slope * D).

A reference for few records and dimensions: the last draw is by tangent rejection without a strong
quadratic to help it, so its trials grow exponentially with the Lipschitz constant of U over the
root of its strong convexity. Certificate: max-divergence, in real arithmetic; unrounded outputs are
not private in floating point (docs/explanation/certificates.md, sections 8 and 9).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpfit.noise import Source
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import positive
from dpfit.samplers.certificate import WithinMaxDivergence
from dpfit.samplers.exact_rgo import TangentRejection
from dpfit.samplers.potential import Floats, Potential
from dpfit.samplers.proximal_sampler_winf import ProximalSampler


@dataclass(frozen=True)
class MaxDivergenceSampler(Spec):
    """A proximal chain and the slope of the noise of its last step; both are public."""

    kind = "max_divergence_certificate"
    chain: ProximalSampler
    slope: float

    def __post_init__(self) -> None:
        positive("slope", self.slope)

    @staticmethod
    def within(
        epsilon: float, strong_convexity: float, radius: float, step_size: float, slope: float
    ) -> MaxDivergenceSampler:
        """The fewest steps that keep the logarithm of the density ratio within epsilon.

        >>> sampler = MaxDivergenceSampler.within(
        ...     0.01, strong_convexity=1.0, radius=1.0, step_size=1.0, slope=1.0
        ... )
        >>> sampler.chain.steps, sampler.certificate.epsilon <= 0.01
        (7, True)
        """
        distance = positive("epsilon", epsilon) / positive("slope", slope)
        return MaxDivergenceSampler(
            ProximalSampler.within(distance, strong_convexity, radius, step_size), slope
        )

    @property
    def certificate(self) -> WithinMaxDivergence:
        """The slope times how far the chain is from its target before the last step."""
        return WithinMaxDivergence(self.slope * self.chain.certificate.distance)

    def draw(
        self,
        target: Potential,
        chains: int,
        source: Source,
        progress: Callable[[float], None] | None = None,
    ) -> Floats:
        """The last states of independent chains, (chains, d).

        >>> from dpfit.geometry import L2Ball
        >>> flat = Potential(
        ...     L2Ball(2, 1.0), 4.0, np.zeros(2), lambda x: (np.zeros(len(x)), np.zeros_like(x))
        ... )
        >>> MaxDivergenceSampler.within(0.01, 4.0, 1.0, step_size=1.0, slope=2.0).draw(
        ...     flat, 3, Source()
        ... ).shape
        (3, 2)
        """
        states = self.chain.draw(target, chains, source, progress)
        shape, d = states.shape, states.shape[1]
        # The norm of a vector of density exp(-slope * norm) is a Gamma variable of order d.
        length = source.gamma(float(d), shape[0]) / self.slope
        noisy = states + length[:, None] * source.uniform_sphere(d, shape[0])
        return np.concatenate([_last(target, y, self.slope, source) for y in noisy])


def _last(target: Potential, y: Floats, slope: float, source: Source) -> Floats:
    """One draw of density proportional to exp(-U(x) - slope * norm(x - y)), (1, d)."""

    def convex(points: Floats) -> tuple[Floats, Floats]:
        values, gradients = target.convex(points)
        offset = points - y
        length = np.linalg.norm(offset, axis=1)
        away = offset / np.where(length > 0, length, 1.0)[:, None]
        return np.asarray(values + slope * length), np.asarray(gradients + slope * away)

    pulled = Potential(target.domain, target.strength, target.centre, convex)
    return TangentRejection(pulled, target.centre[None], target.strength).draw(source)
