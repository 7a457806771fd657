"""The proximal chain with a step that a pilot chain finds on the data.

The plain chain (`dpfit.samplers.proximal_sampler_winf`) needs a step at which proposals are
accepted. From public facts only the worst case is known: all corners of the losses meet at one
point. Where the corners of the records are spread, as they are in data, steps may be hundreds of
times longer. A pilot chain finds such a step. Then the chain starts afresh, with new randomness,
from the point where the pilot ended, and its number of steps follows from step and start.

The certificate is the distance that was asked for. It holds for every dataset, every step and
every start that the pilot can end with, since it holds given these. Step, start and number of steps
never leave the sampler.

A draw from the oracle that many trials did not find is made by an inner plain chain at the step of
the worst case. So no dataset can make the sampler take more than a publicly known number of steps.

Reference: [Liu24] Algorithm 13; docs/explanation/certificates.md, section 4.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dpfit.noise import Source
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import positive
from dpfit.samplers.certificate import WithinWasserstein
from dpfit.samplers.exact_gibbs_rejection import farthest
from dpfit.samplers.exact_rgo import Seen, TangentRejection
from dpfit.samplers.potential import Floats, Potential
from dpfit.samplers.proximal_sampler_winf import ProximalSampler, Ticks

ACCEPTANCE = 0.35
"""Acceptance that the pilot aims at: with one pass for the anchor about the fewest in all."""
PILOT_ROUNDS, PILOT_PROPOSALS = 60, 4
_LARGEST_STEP = 20.0
"""Longest step, times the strong convexity: one step divides distances by 21."""
PATIENCE = 200
"""Trials after which an inner chain makes the draw."""
_SIZES = 100
_INNER = 0.1
"""The share of the distance that inner chains may add to it."""


@dataclass(frozen=True)
class PilotedSampler(Spec):
    """The chain, by the final distance and the step that would do for the worst data.

    >>> from dpfit.geometry import L2Ball
    >>> corner = Potential(
    ...     L2Ball(1, 1.0), 4.0, np.zeros(1), lambda x: (np.abs(x[:, 0]), np.sign(x))
    ... )
    >>> PilotedSampler(1e-6, least_step=0.1).draw(corner, 3, Source(1)).shape
    (3, 1)
    """

    kind = "piloted_sampler_winf"
    distance: float
    least_step: float

    def __post_init__(self) -> None:
        positive("distance", self.distance)
        positive("least_step", self.least_step)

    @property
    def certificate(self) -> WithinWasserstein:
        """The Euclidean distance that was asked for."""
        return WithinWasserstein(self.distance)

    def chain(self, strong_convexity: float, farthest: float, step_size: float) -> ProximalSampler:
        """Return the chain of a step, from a start with this distance to the farthest point."""
        outer = (1 - _INNER) * self.distance
        return ProximalSampler.within(outer, strong_convexity, farthest, step_size)

    def inner_chain(
        self, strong_convexity: float, diameter: float, step_size: float
    ) -> ProximalSampler:
        """Return the chain that makes a draw of the oracle of a step, near enough.

        Errors of single draws add up to the error of one, over 1 - 1 / (1 + step_size * m).
        """
        forgotten = step_size * strong_convexity / (1 + step_size * strong_convexity)
        return ProximalSampler.within(
            _INNER * self.distance * forgotten,
            strong_convexity + 1 / step_size,
            diameter,
            self.least_step,
        )

    def longest_step(self, strong_convexity: float) -> float:
        """The longest step that the pilot may choose."""
        return max(_LARGEST_STEP / strong_convexity, self.least_step)

    def steps(self, strong_convexity: float, radius: float, step_size: float) -> int:
        """Return the most steps at a step size, from any start."""
        return self.chain(strong_convexity, 2 * radius, step_size).steps

    def most_trials(self, strong_convexity: float, radius: float, per_step: float) -> float:
        """Return a bound on all trials, for every dataset, if a plain step takes so many."""
        sizes = np.geomspace(self.least_step, self.longest_step(strong_convexity), _SIZES)

        def inner(step_size: float) -> float:
            return self.inner_chain(strong_convexity, 2 * radius, step_size).steps * per_step

        # Between two sizes of the grid both factors are at most those at the ends.
        return max(
            self.steps(strong_convexity, radius, float(short)) * (PATIENCE + inner(float(long)))
            for short, long in itertools.pairwise(sizes)
        )

    def draw(
        self,
        target: Potential,
        chains: int,
        source: Source,
        progress: Callable[[float], None] | None = None,
    ) -> Floats:
        """Last states of independent chains, (chains, d); ``progress`` gets hundredths of work."""
        step_size, start = self._pilot(target, source)
        distance = farthest(target.domain, start)
        steps = self.chain(target.strength, distance, step_size).steps
        state, ticks = Seen.of(target, np.tile(start, (chains, 1))), Ticks(progress)
        for index in range(steps):
            state = self._step(state, target, step_size, source)
            ticks.tell((index + 1) / steps)
        return state.point

    def _step(self, state: Seen, target: Potential, step_size: float, source: Source) -> Seen:
        """Noise, then the oracle by trials, or by an inner chain if these find nothing."""
        oracle = _oracle(state, target, step_size, source)
        pulls, precision = oracle.pull, oracle.precision
        drawn, done = oracle.attempt(source, PATIENCE)
        if done.all():
            return drawn
        inner = self.inner_chain(target.strength, target.domain.diameter(), step_size)
        points = drawn.point.copy()
        for row in np.flatnonzero(~done):
            local = replace(target, strength=precision, centre=pulls[row])
            points[row] = inner.draw(local, 1, source)[0]
        return Seen.of(target, points)

    def _pilot(self, target: Potential, source: Source) -> tuple[float, Floats]:
        """Return a step for the acceptance aimed at, and where the pilot chain ended.

        Stochastic approximation of the logarithm of the step [Robbins and Monro 1951], from the
        longest step on. The pilot goes to one of a few proposals, by their weights: it never waits.
        """
        least = math.log(self.least_step)
        longest = math.log(self.longest_step(target.strength))
        level, found, settled = longest, 0.0, PILOT_ROUNDS // 2
        state = Seen.of(target, np.asarray(target.domain.centre, dtype=np.float64)[None])
        for index in range(PILOT_ROUNDS):
            oracle = _oracle(state, target, math.exp(level), source)
            oracle.improve()
            proposals, gaps = oracle.propose(PILOT_PROPOSALS, source)
            gaps = np.where(np.isnan(gaps), np.inf, gaps)
            # The least of independent exponential variables of these rates: chosen by weight.
            order = gaps[0] + np.log(source.exponential(PILOT_PROPOSALS))
            state = proposals.take([int(np.argmin(order))])
            accepted = float(np.mean(np.exp(-np.maximum(gaps, 0.0))))
            gain = PILOT_ROUNDS / (PILOT_ROUNDS / 6 + index)
            level = min(max(level + gain * (accepted - ACCEPTANCE), least), longest)
            if index >= settled:
                found += level / (PILOT_ROUNDS - settled)
        return math.exp(min(max(found, least), longest)), state.point[0]


def _oracle(state: Seen, target: Potential, step_size: float, source: Source) -> TangentRejection:
    """Add noise to states, and return the oracle there with the states as first anchors."""
    y = state.point + math.sqrt(step_size) * source.gaussian(state.point.shape)
    precision = target.strength + 1 / step_size
    pull = (target.strength * target.centre + y / step_size) / precision
    return TangentRejection(target, pull, precision, near=state)
