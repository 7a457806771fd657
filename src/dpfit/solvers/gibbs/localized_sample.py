"""A certified sample on a small ball around a noisy minimizer: what a pure promise buys if the domain is not small.

A sample of bounded range pays for the diameter of its domain. So a first share of epsilon is spent on where to look:
the minimizer of the strongly convex objective with l2-Laplace noise. The sample is drawn on a ball around it, whose
radius is a quantile of that noise; both are public when the sample is drawn. The radius is about usefulness only: the
promise holds wherever the minimizer is.

Guarantee: the epsilons of the minimizer, of the sample and of its noise add up (adaptive composition). Arithmetic:
idealised, as `asap_perturb`. Reference: [ASAP] Algorithm 3 with certified samples in place of its chain, which does not
need the event that its Theorem 3 conditions on; docs/explanation/certificates.md, section 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from scipy import special

from dpfit.core import Cost, Mechanism, Risk, Run
from dpfit.geometry import L2Ball
from dpfit.privacy import Budget, calibrate
from dpfit.privacy.check import one_of, positive
from dpfit.privacy.event import BoundedRange, Composed, Event, L2Laplace
from dpfit.samplers.potential import Floats
from dpfit.solvers.gibbs.asap_perturb import PerturbedSample, planned_sampler, require_strongly_convex
from dpfit.solvers.perturbation.output_perturbation import NoisyMinimizer, gradient_change

SHARES = (0.49, 0.49, 0.02)
"""The parts of epsilon for the minimizer, the sample and its noise. The risk has the product of the first two."""
MISSED = 0.01
"""How often the ball may miss the minimizer."""
_DOWN = 1 - 1e-11


@dataclass(frozen=True)
class LocalizedSample(Mechanism):
    """The noisy minimizer and the sample around it; all fields are public.

    ``sample_epsilon`` is the range of the sample's density; ``noise_multiplier`` is of the noise on the sample.
    """

    kind = "localized_sample"
    minimizer: NoisyMinimizer
    sample_epsilon: float
    noise_multiplier: float
    sampler: str = "auto"

    def __post_init__(self) -> None:
        one_of("noise of the minimizer", self.minimizer.noise, ("l2_laplace",))
        positive("sample_epsilon", self.sample_epsilon)
        _ = self.event, self.around((0.0,) * self.minimizer.problem.dimension)

    @property
    def event(self) -> Event:
        noise = L2Laplace(self.noise_multiplier, self.minimizer.problem.dimension)
        return Composed((self.minimizer.event, BoundedRange(self.sample_epsilon), noise))

    @property
    def radius(self) -> float:
        """Within which of the noisy minimizer the true one is, but for one time in a hundred."""
        quantile = float(special.gammaincinv(self.minimizer.problem.dimension, 1 - MISSED))
        return quantile * self.minimizer.noise_multiplier * self.minimizer.sensitivity

    @property
    def inverse_temperature(self) -> float:
        """The range of the density is this times what one record changes times the diameter of the ball."""
        change = gradient_change(self.minimizer.problem, self.minimizer.relation)
        return _DOWN * self.sample_epsilon / (change * 2 * self.radius)

    def around(self, centre: Sequence[float]) -> PerturbedSample:
        """The sample on the ball around a released point."""
        given = self.minimizer.problem
        ball = L2Ball(given.dimension, self.radius, tuple(centre))
        local = replace(given, domain=ball, ridge=self.minimizer.ridge)
        require_strongly_convex(local)
        t, noise, multiplier = self.inverse_temperature, "l2_laplace", self.noise_multiplier
        drawn = planned_sampler(self.sampler, local, t, noise, multiplier)
        return PerturbedSample(local, self.minimizer.relation, t, drawn, noise, multiplier)

    @property
    def cost(self) -> Cost:
        return self.minimizer.cost + self.around((0.0,) * self.minimizer.problem.dimension).cost

    @property
    def risk(self) -> Risk:
        excess = self.minimizer.problem.dimension / (self.inverse_temperature * self.minimizer.problem.n)
        meaning = "excess regularized empirical risk, if the ball holds the minimizer (99%; proven bound)"
        return Risk(excess, meaning)

    def run(self, data: Any, run: Run) -> Floats:
        return self._drawn(data, run, self.minimizer.run(data, run.part(0.0, 0.1)))

    def run_many(self, data: Any, run: Run, count: int) -> list[Floats]:
        """Many draws, of which the minimizer before its noise is found once."""
        return [self._drawn(data, run, centre) for centre in self.minimizer.run_many(data, run.part(0.0, 0.0), count)]

    def _drawn(self, data: Any, run: Run, centre: Floats) -> Floats:
        drawn = self.around(centre.tolist()).run(data, run.part(0.1, 0.9))
        domain = self.minimizer.problem.domain
        return drawn if domain is None else domain.project(drawn)


def calibrated_shares(dimension: int, budget: Budget) -> tuple[float, float, float]:
    """The multiplier of the minimizer's noise, the range of the sample and the multiplier of its noise."""
    first, second, third = SHARES

    def shared(level: float) -> Event:
        start, end = (L2Laplace(level / share, dimension) for share in (first, third))
        return Composed((start, BoundedRange(second / level), end))

    events = calibrate(shared, budget).to_json()["events"]
    return events[0]["noise_multiplier"], events[1]["epsilon"], events[2]["noise_multiplier"]
