"""Underdamped Langevin dynamics with a gradient that is frozen during each step.

    dv = -gamma v dt - u grad U(x) dt + sqrt(2 gamma u) dB,    dx = v dt,

has the stationary density prop. to exp(-U(x) - norm(v)**2 / (2 u)). With the gradient g of the
step's beginning the two equations are linear, and a step of length h draws their exact solution.
With e = exp(-gamma h), position and velocity get the means

    x + (1 - e) v / gamma - (u / gamma) (h - (1 - e) / gamma) g,    e v - (u / gamma) (1 - e) g

and a normal term with, in each coordinate, variances (u / gamma**2) (2 gamma h - 3 + 4 e - e**2)
and u (1 - e**2) and covariance (u / gamma) (1 - e)**2. Positions are projected onto the domain; a
step costs one pass over the data.

Certificate: none. The trajectory of positions and velocities is private by itself, though: see
`trajectory_mu`. Reference: [GT20] section 6, [Gan22] section 3.5; docs/explanation/chains.md,
section 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpfit.noise import Source
from dpfit.privacy.validate import non_negative, positive
from dpfit.samplers.markov import UncertifiedChain
from dpfit.samplers.potential import Floats, Potential

_TERMS = 24


class Moving(NamedTuple):
    """Positions and velocities, (k, d) each."""

    points: Floats
    velocities: Floats


@dataclass(frozen=True)
class UnderdampedLangevin(UncertifiedChain[Moving]):
    """The chain, from the centre of the domain with velocities N(0, u I).

    ``friction`` is gamma, ``velocity_variance`` is u.

    >>> from dpfit.geometry import L2Ball
    >>> flat = Potential(
    ...     L2Ball(2, 1.0), 4.0, np.zeros(2), lambda x: (np.zeros(len(x)), np.zeros_like(x))
    ... )
    >>> UnderdampedLangevin(steps=20, step_size=0.1, friction=2.0).draw(flat, 3, Source()).shape
    (3, 2)
    """

    kind = "underdamped_langevin_sampler"
    friction: float
    velocity_variance: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("friction", self.friction)
        positive("velocity_variance", self.velocity_variance)

    def trajectory_mu(self, sensitivity: float) -> float:
        """GDP parameter of the trajectory, for gradients that change by ``sensitivity`` at most.

        A shift s of the gradient moves the drift of the velocity by u s for a time h, under noise
        of variance 2 gamma u per unit of time, all of which a step reveals: its means then differ
        by exactly s sqrt(u h / (2 gamma)) deviations. Steps compose; the potential may be any,
        convex or not.

        >>> UnderdampedLangevin(steps=100, step_size=0.02, friction=1.0).trajectory_mu(0.5)
        0.5
        """
        time = self.steps * self.step_size
        return non_negative("sensitivity", sensitivity) * math.sqrt(
            self.velocity_variance * time / (2 * self.friction)
        )

    def init(self, target: Potential, chains: int, source: Source) -> Moving:
        start = np.tile(target.domain.centre, (chains, 1))
        return Moving(start, math.sqrt(self.velocity_variance) * source.gaussian(start.shape))

    def step(self, state: Moving, target: Potential, source: Source) -> Moving:
        points, velocities = state
        gradients = target.energy(points)[1]
        decay, u, gamma = (
            -math.expm1(-self.friction * self.step_size),
            self.velocity_variance,
            self.friction,
        )
        position, velocity, joint = self.covariance
        kick = math.sqrt(velocity) * source.gaussian(points.shape)
        along = joint / velocity
        rest = math.sqrt(position - joint * along) * source.gaussian(points.shape)
        drift = (decay / gamma) * velocities - (u / gamma) * (
            self.step_size - decay / gamma
        ) * gradients
        return Moving(
            target.domain.confine(points + drift + along * kick + rest),
            (1 - decay) * velocities - (u / gamma) * decay * gradients + kick,
        )

    def points(self, state: Moving) -> Floats:
        return state.points

    @property
    def covariance(self) -> tuple[float, float, float]:
        """Covariance of a step's noise by coordinate: position, velocity, and their covariance."""
        u, gamma, a = self.velocity_variance, self.friction, self.friction * self.step_size
        decay = -math.expm1(-a)
        if a < 1:
            # 2a - 3 + 4 exp(-a) - exp(-2a), without its cancellation.
            square = math.fsum(
                (-1) ** k * (4 - 2**k) / math.factorial(k) * a**k for k in range(3, _TERMS)
            )
        else:
            square = 2 * a - 4 * decay - math.expm1(-2 * a)
        return u / gamma**2 * square, -u * math.expm1(-2 * a), u / gamma * decay**2
