"""The Metropolis-adjusted Langevin algorithm on a convex domain.

A proposal is y = x - h grad U(x) + sqrt(2 h) N. It is accepted with probability min(1, r), where

    r = exp(U(x) - U(y)) q(x | y) / q(y | x),    log q(b | a) = -norm(b - a + h grad U(a))**2 / (4
    h),

and never outside the domain, where the target has no mass. So the chain is reversible with respect
to exp(-U) on the domain, which is its only stationary law, for any step size and for subgradients,
too. (In the printed algorithm the two densities of the target are swapped, which targets about 1 /
exp(-U); and it runs without constraints, then starts anew if the end is outside. A Metropolis step
that refuses to leave needs no restarts and has no failures.)

A step costs one pass over the data: value and gradient at the proposal are the state of the next
step if it is accepted. Certificate: none, since no explicit rate is known to hold. Reference:
[ASAP] Algorithm 1, corrected; docs/explanation/chains.md, section 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpfit.noise import Source
from dpfit.samplers.markov import UncertifiedChain
from dpfit.samplers.potential import Floats, Potential


class Adjusted(NamedTuple):
    """Points (k, d) with the potential (k,) and its subgradients (k, d) there."""

    points: Floats
    values: Floats
    gradients: Floats


@dataclass(frozen=True)
class MetropolisLangevin(UncertifiedChain[Adjusted]):
    """The chain, from the centre of the domain.

    >>> from dpfit.geometry import L2Ball
    >>> flat = Potential(
    ...     L2Ball(2, 1.0), 4.0, np.zeros(2), lambda x: (np.zeros(len(x)), np.zeros_like(x))
    ... )
    >>> MetropolisLangevin(steps=20, step_size=0.1).draw(flat, 3, Source()).shape
    (3, 2)
    """

    kind = "constrained_mala"

    def init(self, target: Potential, chains: int, source: Source) -> Adjusted:
        start = np.tile(target.domain.centre, (chains, 1))
        return Adjusted(start, *target.energy(start))

    def step(self, state: Adjusted, target: Potential, source: Source) -> Adjusted:
        noise = source.gaussian(state.points.shape)
        proposal = (
            state.points - self.step_size * state.gradients + math.sqrt(2 * self.step_size) * noise
        )
        inside = target.domain.encloses(proposal)
        if not inside.all():
            proposal = np.where(inside[:, None], proposal, state.points)
        values, gradients = target.energy(proposal)
        # Minus log r. A gap that is not a number is no reason to move.
        back = proposal - self.step_size * gradients - state.points
        gap = values - state.values + (_square(back) / (2 * self.step_size) - _square(noise)) / 2
        kept = inside & (source.exponential(len(gap)) >= gap)
        if kept.all():
            return Adjusted(proposal, values, gradients)
        if not kept.any():
            return state
        moved = kept[:, None]
        return Adjusted(
            np.where(moved, proposal, state.points),
            np.where(kept, values, state.values),
            np.where(moved, gradients, state.gradients),
        )

    def points(self, state: Adjusted) -> Floats:
        return state.points


def _square(vectors: Floats) -> Floats:
    return np.asarray(np.einsum("kj,kj->k", vectors, vectors))
