"""Certified samples: a Gibbs draw, plus noise that covers the sampler's displacement.

The density is proportional to exp(-t (sum of losses + (n ridge / 2) norm(theta)**2)) on a bounded
region, for the declared n. An exact sample is mu-GDP with mu = L sqrt(t / (n ridge)), and has
bounded range t * R: L and R are the Lipschitz constant and the range of what one record changes in
the sum of losses. A sampler within a W-infinity distance of the density, for every dataset, gets
Gaussian or l2-Laplace noise of sensitivity twice that distance.

Reference: [ASAP] Algorithm 2, Theorem 2, Lemmas 4 and 5; docs/explanation/certificates.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpfit.core import Binding, Mechanism, Minimize, Plan, Requirement, Risk, Run, Work
from dpfit.data.view import View
from dpfit.geometry import L2Ball
from dpfit.noise import add_gaussian, add_l2_laplace
from dpfit.privacy.event import BoundedRange, Composed, Event, Gaussian, GaussianPrivate, L2Laplace
from dpfit.privacy.spec import from_json, reads
from dpfit.privacy.validate import non_negative, option, positive
from dpfit.samplers.exact_gibbs_rejection import GibbsRejection
from dpfit.samplers.finite_precision import rejection_rounding
from dpfit.samplers.potential import Floats, Potential, bounded_domain
from dpfit.solvers.gibbs.sampler_choice import ROUNDING, GibbsTarget, Sampler

PROMISES = {
    "gdp": "sample of a strongly log-concave density [Liu24, Theorem 3.4.1]",
    "bounded_range": (
        "sample of a density of bounded range [ASAP, Lemma 5; Dong, Durfee, Rogers 2020]"
    ),
}
"""The theorems by which an exact sample is private."""
_UP, _DOWN = 1 + 1e-12, 1 - 1e-11

BALL_OR_BOX = Requirement(
    "a bounded domain that is a ball or a box",
    "pass domain, an L2Ball or a Box that holds good parameters",
    lambda problem, budget, options: problem.domain is not None and problem.domain.draws_gaussians,
)


class LossSensitivity(NamedTuple):
    """One record's change of the loss sum: the Lipschitz constant of the change, and its range."""

    lipschitz: float
    range: float

    @classmethod
    def of(cls, problem: Minimize, relation: str) -> LossSensitivity:
        """Return the sensitivity on the domain; in a trust ball, for every later centre.

        The range of a difference of two losses is at most the sum of their ranges.
        """
        is_local = problem.trust_ball is not None
        constants = problem.constants(relation, everywhere=is_local)
        lipschitz = constants.require_sensitivity()
        across = lipschitz * problem.region.diameter() if problem.region else math.inf
        single = math.inf if is_local else constants.value_range
        return cls(lipschitz, min(across, single if relation == "add_remove" else 2 * single))

    @staticmethod
    def stability(problem: Minimize) -> float:
        """Return the Lipschitz constant of one loss, times that of the difference of two."""
        everywhere = problem.trust_ball is not None
        one, two = (
            problem.constants(relation, everywhere=everywhere)
            for relation in ("add_remove", "replace")
        )
        return one.require_sensitivity() * two.require_sensitivity()

    def exact_sample(
        self, promise: str, inverse_temperature: float, strong_convexity: float
    ) -> Event:
        """Return the event of a sample of exp(-t (sum of losses + fixed strongly convex term)).

        >>> sensitivity = LossSensitivity(lipschitz=1.0, range=6.0)
        >>> round(sensitivity.exact_sample("bounded_range", 0.5, 2.0).epsilon, 9)
        3.0
        """
        if promise == "gdp":
            return GaussianPrivate(
                _UP * self.lipschitz * math.sqrt(inverse_temperature / strong_convexity)
            )
        return BoundedRange(_UP * inverse_temperature * self.range)

    def inverse_temperature(self, ideal: Event, strong_convexity: float) -> float:
        """Return the largest inverse temperature whose exact sample has the event; rounded down."""
        if isinstance(ideal, GaussianPrivate):
            return _DOWN * ideal.mu**2 * strong_convexity / self.lipschitz**2
        if isinstance(ideal, BoundedRange):
            return _DOWN * ideal.epsilon / self.range
        raise TypeError(f"no sample has an event of kind {ideal.kind!r}")


@dataclass(frozen=True)
class PerturbedSample(Mechanism):
    """Draw of a certified sampler from a Gibbs density, plus noise, projected onto the region.

    Guarantee: that of an exact sample, composed with the noise, for every dataset; no convergence
    is assumed. Sensitivity: twice the sampler's displacement, in l2.
    A problem with a trust ball makes a local sample: its constants and its rounding hold wherever
    the ball is bound.

    Parameters
    ----------
    promise : {"gdp", "bounded_range"}
        The theorem by which an exact sample is private.
    own_ridge : float, optional
        The caller's ridge, where the planner chose that of the problem; the predicted risk then
        counts the difference.
    """

    kind = "perturbed_sample"
    omitted: ClassVar = ("own_ridge",)
    problem: Minimize
    relation: str
    inverse_temperature: float
    sampler: Sampler
    noise: str
    noise_multiplier: float
    promise: str = "gdp"
    own_ridge: float | None = None

    def __post_init__(self) -> None:
        option("relation", self.relation, ("replace", "add_remove"))
        option("noise", self.noise, ("gaussian", "l2_laplace"))
        option("promise", self.promise, tuple(PROMISES))
        positive("inverse_temperature", self.inverse_temperature)
        if self.own_ridge is not None:
            non_negative("own_ridge", self.own_ridge)
        self.target.check(self.sampler)
        if bounded_domain(self.problem).reach() > bounded_domain(self.farthest).reach():
            raise ValueError(
                "trust_ball must be centred where a minimizer can be; use around, which projects"
            )
        if (
            isinstance(self.sampler, GibbsRejection)
            and (claimed := self.sampler.rounding) is not None
        ):
            proven = rejection_rounding(
                self.farthest, self.relation, self.inverse_temperature, claimed.distance
            )
            if proven is None or proven.epsilon > claimed.epsilon:
                raise ValueError(
                    "the sampler's certificate claims less rounding than is proven for this problem"
                )
        _ = self.event, self.sensitivity

    @staticmethod
    def of(mechanism: Mechanism) -> PerturbedSample:
        """Return the mechanism of a step that draws a sample; ValueError for other steps."""
        if not isinstance(mechanism, PerturbedSample):
            raise ValueError(f"the mechanism must be a PerturbedSample, got {mechanism.kind!r}")
        return mechanism

    @property
    def event(self) -> Event:
        dimension = self.problem.dimension
        added = (
            Gaussian
            if self.noise == "gaussian"
            else lambda multiplier: L2Laplace(multiplier, dimension)
        )
        return Composed(
            (self.sampler.certificate.undisplaced(self.ideal), added(self.noise_multiplier))
        )

    @property
    def ideal(self) -> Event:
        """The event of an exact sample."""
        strong, change = (
            self.problem.n * self.problem.ridge,
            LossSensitivity.of(self.problem, self.relation),
        )
        return change.exact_sample(self.promise, self.inverse_temperature, strong)

    @property
    def target(self) -> GibbsTarget:
        """The density, in public facts."""
        return GibbsTarget(self.problem, self.inverse_temperature)

    @property
    def farthest(self) -> Minimize:
        """The problem that bounds rounding: its trust ball is farther out than any `around`."""
        if self.problem.trust_ball is None:
            return self.problem
        away = np.zeros(self.problem.dimension)
        away[0] = 1.001 * self._minimizers.norm_bound
        return self._moved(away)

    def around(self, point: Floats) -> PerturbedSample:
        """Return the sample in the ball around a released point, which is projected first."""
        return replace(
            self, problem=self._moved(self._minimizers.project(np.asarray(point, dtype=np.float64)))
        )

    @property
    def _minimizers(self) -> L2Ball:
        """The ball of all minimizers of at most 2 n records: outside, the ridge dominates."""
        slope = self.problem.constants(self.relation, everywhere=True).lipschitz
        return L2Ball(self.problem.dimension, 2 * slope / self.problem.ridge)

    def _moved(self, centre: Floats) -> Minimize:
        if self.problem.trust_ball is None:
            raise ValueError("the problem must have a trust_ball to be moved, got None")
        ball = replace(self.problem.trust_ball, centred_at=tuple(centre.tolist()))
        return replace(self.problem, trust_ball=ball)

    @property
    def sensitivity(self) -> float:
        """Twice the displacement: on either dataset the draw is that close to the exact sample."""
        domain = bounded_domain(self.problem)
        rounding = ROUNDING * domain.radius() + 1e-14 * domain.reach()
        return 2 * _UP * (self.sampler.certificate.displacement + rounding)

    @property
    def work(self) -> Work:
        passes = self.target.passes(self.sampler)
        most = self.cap if math.isfinite(self.cap) else self.target.most_passes(self.sampler)
        return Work(gradients=passes * self.problem.n, passes=passes, most_passes=most)

    @property
    def risk(self) -> Risk:
        problem, t = self.problem, self.inverse_temperature
        if problem.trust_ball is not None:
            ideal = problem.dimension / (t * problem.n)
            what = "excess regularized empirical risk if the ball holds the minimizer"
            return Risk(ideal + self._risk_of_noise, f"{what} (proven bound)")
        own, what = self.own_ridge, f"excess {problem.objective} risk"
        if own is None:
            own, what = problem.ridge, "excess regularized empirical risk"
        excess = self.excess_bound(problem, own, t) + self._risk_of_noise
        return Risk(excess, f"{what} (proven bound)", proven=True)

    @property
    def _risk_of_noise(self) -> float:
        """Return a bound on what noise and displacement add to the risk, on average.

        Proof: docs/explanation/certificates.md, section 6.
        """
        problem, d = self.problem, self.problem.dimension
        is_local = problem.trust_ball is not None
        domain = bounded_domain(problem)
        constants = problem.constants("add_remove", everywhere=is_local)
        deviation = self.noise_multiplier * self.sensitivity
        if self.noise == "l2_laplace":
            deviation *= math.sqrt(d + 1)
        moved, square = math.sqrt(d) * deviation, d * deviation**2
        slope = constants.lipschitz + problem.ridge * domain.reach()
        if is_local:
            # A ball that holds the minimizer, where the ridge's slope is at most that of the loss.
            slope = 2 * (constants.lipschitz + problem.ridge * domain.radius())
        added = slope * moved
        if isinstance(domain, L2Ball):
            outwards = deviation / 2 + square / (2 * domain.norm_bound)
            added = min(
                added, slope * outwards + (constants.smoothness + problem.ridge) * square / 2
            )
        return added + slope * self.sensitivity / 2

    @staticmethod
    def excess_bound(problem: Minimize, own_ridge: float, inverse_temperature: float) -> float:
        """Return a bound on the expected excess risk of an exact sample, at the chosen ridge."""
        excess = problem.dimension / (inverse_temperature * problem.n)
        if problem.ridge > own_ridge:
            excess += (problem.ridge - own_ridge) * bounded_domain(problem).reach() ** 2 / 2
        if problem.objective == "population":
            excess += LossSensitivity.stability(problem) / (problem.ridge * problem.n)
        return excess

    def run(self, data: View, run: Run) -> Floats:
        return self.run_many(data, run, 1)[0]

    def run_many(self, data: View, run: Run, count: int) -> Sequence[Floats]:
        """Draw independent samples by vectorized chains."""
        target = Potential.gibbs(self.problem, data, self.inverse_temperature)
        limits = count * self.cap, self.target.slope_limit
        samples = target.draw_within(*limits, self.sampler, count, run.noise, run.progress)
        return [self._noisy(sample, run) for sample in samples]

    @property
    def cap(self) -> float:
        """The most passes of a draw for losses that the caller wrote; infinite for others."""
        return self.target.cap(self.sampler, self.target.passes(self.sampler))

    def _noisy(self, sample: Floats, run: Run) -> Floats:
        add = add_gaussian if self.noise == "gaussian" else add_l2_laplace
        noisy = add(
            sample,
            l2_sensitivity=self.sensitivity,
            noise_multiplier=self.noise_multiplier,
            source=run.noise,
        )
        return self.problem.project(noisy)


@dataclass(frozen=True)
class BallAround(Binding):
    """Move a local sample's trust ball to a released point; ridge, radius and event stay."""

    kind = "ball_around"
    stage: str

    def __call__(self, plan: Plan, released: Mapping[str, Any]) -> Plan:
        return plan.map_steps(
            lambda sample: PerturbedSample.of(sample).around(released[self.stage])
        )

    def stand_in(self, plan: Plan) -> Mapping[str, Any]:
        return {self.stage: np.ones(PerturbedSample.of(plan.final).problem.dimension)}


@reads("regularized_sample")
def _read_regularized(value: dict[str, Any]) -> PerturbedSample:
    """Return the sample that had a kind of its own because of ``own_ridge``."""
    return from_json({**value, "kind": PerturbedSample.kind}, PerturbedSample)


@reads("local_sample")
def _read_local(value: dict[str, Any]) -> PerturbedSample:
    """Return the sample whose ball was the domain of its problem."""
    problem = {**value["problem"], "domain": None, "trust_ball": value["problem"]["domain"]}
    return from_json({**value, "kind": PerturbedSample.kind, "problem": problem}, PerturbedSample)
