"""The unadjusted Langevin algorithm: gradient steps with noise, projected onto the domain.

One step is x <- Proj(x - h grad U(x) + sqrt(2 h) N) and costs one pass over the data. The chain
forgets its start at rate 1 - h m per step for m-strongly convex, M-smooth U and h <= 2 / (m + M),
but it does not sample the target: along an eigenvector of a quadratic U with eigenvalue l its
variance tends to 1 / (l (1 - h l / 2)) instead of 1 / l.

Certificate: none. Privacy of the last point can be had without any convergence, by the last-iterate
accountant; see `dpfit.solvers`. How close to the target the chain is, where U is smooth on the
whole space, is the subject of `dpfit.samplers.discretization`. Reference: [GT20] section 2, [Gan22]
section 3.2; docs/explanation/chains.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpfit.noise import Source
from dpfit.samplers.markov import UncertifiedChain
from dpfit.samplers.potential import Floats, Potential


@dataclass(frozen=True)
class LangevinSampler(UncertifiedChain[Floats]):
    """The chain, from the centre of the domain.

    >>> from dpfit.geometry import L2Ball
    >>> flat = Potential(
    ...     L2Ball(2, 1.0), 4.0, np.zeros(2), lambda x: (np.zeros(len(x)), np.zeros_like(x))
    ... )
    >>> LangevinSampler(steps=20, step_size=0.1).draw(flat, 3, Source()).shape
    (3, 2)
    """

    kind = "ula_sampler"

    def init(self, target: Potential, chains: int, source: Source) -> Floats:
        return np.tile(target.domain.centre, (chains, 1))

    def step(self, state: Floats, target: Potential, source: Source) -> Floats:
        noise = math.sqrt(2 * self.step_size) * source.gaussian(state.shape)
        return target.domain.confine(state - self.step_size * target.energy(state)[1] + noise)

    def points(self, state: Floats) -> Floats:
        return state
