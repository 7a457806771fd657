"""A chain that approaches its target in W-infinity at every step, from any start.

One step adds normal noise of variance ``step_size`` and draws from the restricted Gaussian oracle
there. If U is m-strongly convex on a bounded convex domain, two chains can be coupled so that each
step divides their distance by 1 + step_size * m, surely. So after t steps from the centre the chain
is within radius / (1 + step_size * m)**t of a draw from the target; no warm start, no smoothness,
no mixing time is assumed.

Preconditioned, noise and oracle follow a matrix that lies below all Hessians of U. In its norm U is
1-strongly convex, so that the chain is fast along every direction, not only along the steepest.

Certificates: W-infinity; and, one step later, Gaussian closeness (no noise is needed then).
Reference: [Liu24] Algorithm 13; docs/explanation/certificates.md, sections 4 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpfit.geometry.quadratic import quadratic_minimizer, spectrum
from dpfit.noise import Source
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import integer, positive
from dpfit.samplers.certificate import WithinGaussian, WithinWasserstein
from dpfit.samplers.exact_gibbs_rejection import Envelope, Minorant
from dpfit.samplers.exact_rgo import exact_rgo
from dpfit.samplers.potential import Floats, Potential

_UP = 1 + 1e-12
REJECTION = 1.2
"""The exponent of the acceptance that a preconditioned step aims at: with one pass for the anchor,
about the best.
"""
_LARGEST_STEP = 20.0
_TRIALS = 6
_TICKS = 100


@dataclass(frozen=True)
class ProximalSampler(Spec):
    """The chain, by public numbers: strong convexity, radius of the domain, and steps."""

    kind = "proximal_sampler_winf"
    strong_convexity: float
    radius: float
    step_size: float
    steps: int

    def __post_init__(self) -> None:
        positive("strong_convexity", self.strong_convexity)
        positive("radius", self.radius)
        positive("step_size", self.step_size)
        integer("steps", self.steps)

    @staticmethod
    def within(
        distance: float, strong_convexity: float, radius: float, step_size: float
    ) -> ProximalSampler:
        """The fewest steps that come within a distance of the target.

        >>> ProximalSampler.within(1e-3, strong_convexity=1.0, radius=1.0, step_size=1.0).steps
        10
        """
        positive("distance", distance)
        rate = math.log1p(
            positive("step_size", step_size) * positive("strong_convexity", strong_convexity)
        )
        steps = max(1, math.ceil(math.log(_UP * positive("radius", radius) / distance) / rate))
        return ProximalSampler(strong_convexity, radius, step_size, steps)

    @property
    def certificate(self) -> WithinWasserstein:
        """Distance to the target at the end: radius / (1 + step_size * strong_convexity)**steps."""
        return WithinWasserstein(self._distance(self.steps))

    @property
    def gaussian_certificate(self) -> WithinGaussian:
        """Gaussian closeness at the end: the distance one step before, over the step's noise."""
        return WithinGaussian(self._distance(self.steps - 1) / math.sqrt(self.step_size))

    def _distance(self, steps: int) -> float:
        return (
            self.radius
            * math.exp(-steps * math.log1p(self.step_size * self.strong_convexity))
            * _UP
        )

    def init(self, target: Potential, chains: int) -> Floats:
        """All chains at the centre of the domain."""
        if target.strength < self.strong_convexity or target.domain.radius() > self.radius:
            raise ValueError(
                "the certificate is for another target: more strongly convex, or on a smaller "
                "domain"
            )
        return np.tile(target.domain.centre, (chains, 1))

    def step(self, state: Floats, target: Potential, source: Source) -> Floats:
        """Noise, then the oracle."""
        return exact_rgo(
            target,
            state + math.sqrt(self.step_size) * source.gaussian(state.shape),
            self.step_size,
            source,
        )

    def draw(
        self,
        target: Potential,
        chains: int,
        source: Source,
        progress: Callable[[float], None] | None = None,
    ) -> Floats:
        """Last states of independent chains, (chains, d); ``progress`` gets the share of steps.

        >>> from dpfit.geometry import L2Ball
        >>> flat = Potential(
        ...     L2Ball(2, 1.0), 4.0, np.zeros(2), lambda x: (np.zeros(len(x)), np.zeros_like(x))
        ... )
        >>> ProximalSampler.within(1e-6, 4.0, 1.0, step_size=1.0).draw(flat, 3, Source()).shape
        (3, 2)
        """
        state = self.init(target, chains)
        for index in range(self.steps):
            state = self.step(state, target, source)
            if progress is not None:
                progress((index + 1) / self.steps)
        return state


@dataclass(frozen=True)
class PreconditionedSampler(Spec):
    """The chain in the norm of a matrix below all Hessians, certified by final distance only.

    The matrix, the step and the number of steps follow from the data and stay inside.
    """

    kind = "preconditioned_sampler_winf"
    distance: float

    def __post_init__(self) -> None:
        positive("distance", self.distance)

    @property
    def certificate(self) -> WithinWasserstein:
        """The Euclidean distance that was asked for."""
        return WithinWasserstein(self.distance)

    def draw(
        self,
        target: Potential,
        chains: int,
        source: Source,
        progress: Callable[[float], None] | None = None,
    ) -> Floats:
        """Last states of independent chains, (chains, d); ``progress`` gets hundredths of work.

        >>> from dpfit.geometry import L2Ball
        >>> steep = np.diag([100.0, 1.0])
        >>> bowl = Potential(
        ...     L2Ball(2, 1.0),
        ...     1.0,
        ...     np.zeros(2),
        ...     lambda x: (np.sum(x @ steep * x, axis=1) / 2, x @ steep),
        ...     sandwich=lambda: (steep, steep),
        ... )
        >>> PreconditionedSampler(1e-6).draw(bowl, 3, Source()).shape
        (3, 2)
        """
        if target.sandwich is None:
            raise ValueError(
                "there is a preconditioner for generalized linear losses without corners only"
            )
        steps = PreconditionedSteps(target, *target.sandwich())
        number = steps.number(self.distance)
        drawn, ticks = [], Ticks(progress)
        for chain in range(chains):
            state = steps.init()
            for index in range(number):
                state = steps.step(state, source)
                ticks.tell((chain * number + index + 1) / (chains * number))
            drawn.append(state.point)
        return np.array(drawn)


class Ticks:
    """Tells hundredths of the work only: how many steps there are depends on the data."""

    def __init__(self, progress: Callable[[float], None] | None) -> None:
        self.progress, self.told = progress, 0

    def tell(self, done: float) -> None:
        while self.progress is not None and self.told < int(done * _TICKS):
            self.told += 1
            self.progress(self.told / _TICKS)


@dataclass(frozen=True, eq=False)
class State:
    """A chain's point, with value and gradient there of the potential's data part."""

    point: Floats
    value: float
    gradient: Floats


class PreconditionedSteps:
    """Noise of covariance step_size / metric, then the oracle in the norm of the metric.

    The oracle draws from exp(-U(x) - |x - y|^2_metric / (2 step_size)).
    """

    def __init__(
        self, target: Potential, lower: Floats, upper: Floats, step_size: float | None = None
    ) -> None:
        self.target, self.lower = target, lower
        identity = np.eye(len(lower))
        self.metric = lower + target.strength * identity
        self.values, self.axes = spectrum(self.metric)
        # The acceptance is about exp(-spread / (2 (1 + 1 / step_size))).
        spread = float(
            np.sum(np.sum((upper - lower) @ self.axes * self.axes, axis=0) / self.values)
        )
        self.step_size = step_size or 1 / max(spread / (2 * REJECTION) - 1, 1 / _LARGEST_STEP)
        self.added = self.metric / self.step_size + target.strength * identity
        self.model = (lower + upper) / 2 + self.added

    def number(self, distance: float) -> int:
        """Steps that come within a Euclidean distance of the target, from the domain's centre."""
        least = max(self.values[0] - 1e-9 * self.values[-1], self.target.strength)
        ratio = self.target.domain.radius() * math.sqrt(self.values[-1] / least) / distance
        return max(1, math.ceil(math.log(_UP * ratio) / math.log1p(self.step_size)))

    def init(self) -> State:
        """At the centre of the domain."""
        return self._state(np.asarray(self.target.domain.centre))

    def step(self, state: State, source: Source) -> State:
        """Noise, then the oracle by rejection from a minorant; each anchor takes one pass."""
        noise = self.axes @ (
            source.gaussian(len(self.values)) * np.sqrt(self.step_size / self.values)
        )
        pulled = (
            self.target.strength * self.target.centre
            + self.metric @ (state.point + noise) / self.step_size
        )
        best = state
        while True:
            anchor = self._anchor(best, pulled)
            minorant = Minorant(anchor.point, anchor.gradient, self.lower, 0.0, 0.0)
            envelope = Envelope(
                self.target.domain, minorant, self.added, self.added @ anchor.point - pulled
            )
            best = min(best, anchor, key=lambda seen: self._height(seen, pulled))
            for _ in range(_TRIALS):
                proposal = envelope.propose(1, source)
                trial = self._state(proposal[0])
                if (
                    source.exponential(1)[0]
                    >= trial.value - anchor.value - minorant.above(proposal)[0]
                ):
                    return trial
                # Anchors may follow from rejected proposals: each trial is exact whatever came
                # before.
                best = min(best, trial, key=lambda seen: self._height(seen, pulled))

    def _anchor(self, near: State, pulled: Floats) -> State:
        slope = near.gradient + self.added @ near.point - pulled
        return self._state(quadratic_minimizer(self.target.domain, near.point, slope, self.model))

    def _height(self, state: State, pulled: Floats) -> float:
        return float(state.value + state.point @ (self.added @ state.point / 2 - pulled))

    def _state(self, point: Floats) -> State:
        value, gradient = self.target.convex(point[None])
        return State(point, float(value[0]), gradient[0])
