"""How a certified sample spends its budget: theorem, temperature, noise and rounding.

The plan relies on the theorem that allows the larger inverse temperature. A small fixed part of the
budget is for the noise. Where rounding has a proven bound, its cost is taken from the inverse
temperature, if it is below 2%. Which theorem is better where: docs/explanation/gibbs.md, section 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dpfit.core import Minimize, Step
from dpfit.geometry import L2Ball
from dpfit.geometry.base import Domain
from dpfit.losses.custom import DeclaredLoss, MissingLoss, declared_basis
from dpfit.losses.probes import SCALES, check_declarations
from dpfit.noise import Source
from dpfit.privacy import Assumption, Basis, Budget, calibrate
from dpfit.privacy.event import BoundedRange, Composed, Event, Gaussian, GaussianPrivate, L2Laplace
from dpfit.samplers.exact_gibbs_rejection import GibbsRejection
from dpfit.samplers.finite_precision import rejection_rounding
from dpfit.samplers.potential import Floats, bounded_domain
from dpfit.solvers.gibbs.perturbed_sample import PROMISES, LossSensitivity, PerturbedSample
from dpfit.solvers.gibbs.sampler_choice import GibbsTarget

NOISE_SHARE = {
    ("gdp", "gaussian"): 0.05,
    ("bounded_range", "gaussian"): 0.005,
    ("bounded_range", "l2_laplace"): 0.02,
}
"""The mu or epsilon of the noise, over that of the exact sample with it.

Squares of mu add up, so 5% of it cost 0.13%. Beside a bounded range, Gaussian noise costs what its
tail reaches at delta, about five times its mu.
"""
_ROUNDING = ((1.0, 0.002), (3.0, 0.002), (10.0, 0.002), (10.0, 0.02))
"""What is tried for a guarantee that holds in floating point: a displacement, in negligible ones,
and the largest part of mu or epsilon that it may cost. Noise of a tenth of the least deviation
costs less than a hundredth of the budget does.
"""
_PROBES, _RANDOM_RAYS, _RNG_SEED = 9, 2, 36


@dataclass(frozen=True)
class SampleBudget:
    """A budget for one certified sample of a problem with a ridge on a ball or a box."""

    problem: Minimize
    budget: Budget

    @classmethod
    def in_ball(cls, problem: Minimize, radius: float, budget: Budget) -> SampleBudget:
        """Return the budget of a local sample: in a ball of this radius, bound later."""
        return cls(replace(problem, trust_ball=L2Ball(problem.dimension, radius)), budget)

    @property
    def promises(self) -> tuple[str, ...]:
        """The theorems that can meet the budget: a density with normal tails is not pure."""
        return ("bounded_range",) if self.budget.kind == "pure" else tuple(PROMISES)

    @property
    def sensitivity(self) -> LossSensitivity:
        """What one record changes in the sum of losses."""
        return LossSensitivity.of(self.problem, self.budget.relation)

    @property
    def strong_convexity(self) -> float:
        """Strong convexity of the summed objective."""
        return self.problem.n * self.problem.ridge

    def max_inverse_temperature(self, promise: str) -> float:
        """Return the largest inverse temperature of an exact sample without noise.

        >>> from dpfit.losses import Bounds, LinearLoss
        >>> ball = L2Ball(1, 1.5)
        >>> problem = Minimize(
        ...     n=10, loss=LinearLoss(), bounds=Bounds(1.0), n_features=1, domain=ball, ridge=0.1
        ... )
        >>> budget = SampleBudget(problem, Budget(epsilon=1.5))
        >>> round(budget.max_inverse_temperature("bounded_range"), 9)
        0.25
        """
        ideal = calibrate(lambda level: _ideal(promise, 1 / level), self.budget)
        return self.sensitivity.inverse_temperature(ideal, self.strong_convexity)

    def step(self, sampler: str = "auto", own_ridge: float | None = None) -> Step:
        """Return the sample of largest inverse temperature in the budget, by the better theorem."""
        problem, budget = self.problem, self.budget
        self.check_declarations()
        promise = max(self.promises, key=self.max_inverse_temperature)
        noise = "l2_laplace" if budget.kind == "pure" else "gaussian"
        share = NOISE_SHARE[promise, noise]
        rest = math.sqrt(1 - share**2) if promise == "gdp" else 1 - share

        def stages(level: float) -> _Stages:
            added = (
                Gaussian(level / share)
                if noise == "gaussian"
                else L2Laplace(level / share, problem.dimension)
            )
            return _Stages(_ideal(promise, rest / level), added)

        fitted = calibrate(stages, budget)
        t, multiplier = (
            self.sensitivity.inverse_temperature(fitted.ideal, self.strong_convexity),
            fitted.multiplier,
        )
        drawn = GibbsTarget(problem, t).sampler(sampler, noise, multiplier)
        sample = _with_rounding(
            PerturbedSample(
                problem, budget.relation, t, drawn, noise, multiplier, promise, own_ridge
            )
        )
        return Step(sample, self._basis(sample))

    def check_declarations(self) -> None:
        """Test what the caller declared of the loss, on public probe rows."""
        loss = self.problem.loss
        if isinstance(loss, DeclaredLoss) and not isinstance(loss, MissingLoss):
            bounds, features = self.problem.bounds, self.problem.n_features
            check_declarations(loss, bounds, features, probe_points(bounded_domain(self.problem)))

    def _basis(self, sample: PerturbedSample) -> Basis:
        """Return why a certified sample is private."""
        promise, sampler = sample.promise, sample.sampler
        assumptions, arithmetic, relation = self.assumptions, "idealised", self.budget.relation
        assumptions += work_assumption(sample.cap)
        if isinstance(sampler, GibbsRejection) and sampler.rounding is not None:
            arithmetic = "bounded"
            if relation == "add_remove":
                # Sums of more numbers round more; a check of the number of records would depend on
                # the records.
                most = self.problem.max_records(relation)
                assumptions += (Assumption(f"there are at most {most} records", "declared"),)
        theorem = f"{PROMISES[promise]}, perturbed [ASAP, Theorem 2]"
        return declared_basis(
            Basis(theorem, relation, self.budget.unit, assumptions, arithmetic), self.problem.loss
        )

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What the guarantee of an exact sample assumes."""
        status = self.problem.loss.status
        assumptions = (
            Assumption(
                "rows and labels are scaled and clamped into the declared bounds", "enforced"
            ),
            Assumption(
                "the losses are convex and their constants hold within these bounds", status
            ),
        )
        if self.budget.relation == "replace":
            return assumptions
        return *assumptions, Assumption(
            "the number n that scales the ridge was not read off the data", "declared"
        )


def probe_points(domain: Domain) -> Floats:
    """Return public points on rays from the centre to the boundary, then random ones.

    The rays end at corners of a box: along the first axis, the diagonal and random directions.

    >>> bool(L2Ball(3, 2.0).contains(probe_points(L2Ball(3, 2.0))).all())
    True
    """
    d, source = domain.dimension, Source(_RNG_SEED)
    ways = np.concatenate([np.eye(1, d), np.ones((1, d)), source.gaussian((_RANDOM_RAYS, d))])
    ends = domain.linear_minimizer(np.concatenate([ways, -ways]))
    rays = domain.centre + np.array(SCALES)[:, None] * (ends - domain.centre)[:, None, :]
    # Rounding may put a point outside.
    inside = domain.project(rays.reshape(-1, d))
    return np.concatenate([inside, domain.sample(source, _PROBES)])


def work_assumption(cap: float) -> tuple[Assumption, ...]:
    """Return what a cap on passes assumes of the caller's loss; nothing without a cap."""
    if math.isinf(cap):
        return ()
    return (Assumption(f"a draw takes at most {cap:.3g} passes over the data", "declared"),)


class _Stages(NamedTuple):
    """An exact sample, then noise."""

    ideal: GaussianPrivate | BoundedRange
    noise: Gaussian | L2Laplace

    @property
    def event(self) -> Event:
        return Composed((self.ideal, self.noise))

    @property
    def multiplier(self) -> float:
        return self.noise.noise_multiplier


def _ideal(promise: str, size: float) -> GaussianPrivate | BoundedRange:
    return GaussianPrivate(size) if promise == "gdp" else BoundedRange(size)


def _with_rounding(sample: PerturbedSample) -> PerturbedSample:
    """Return the sample with a rounding certificate that costs at most 2% of mu or epsilon."""
    if not isinstance(sample.sampler, GibbsRejection):
        return sample
    found = (_rounded(sample, wider, worth) for wider, worth in _ROUNDING)
    return next((rounded for rounded in found if rounded is not None), sample)


def _rounded(sample: PerturbedSample, wider: float, worth: float) -> PerturbedSample | None:
    """Return the sample with a certificate of so many negligible distances, or None if dear."""
    whole, radius, share = sample.ideal, bounded_domain(sample.problem).radius(), 0.0
    while share <= worth:
        t = sample.inverse_temperature * (1 - share) ** (2 if sample.promise == "gdp" else 1)
        target = GibbsTarget(sample.problem, t)
        negligible = target.negligible_distance(sample.noise, sample.noise_multiplier)
        distance = min(wider * negligible, radius / 8)
        bound = rejection_rounding(sample.farthest, sample.relation, t, distance)
        if bound is None:
            return None
        cost = _level(bound.undisplaced(whole)) / _level(whole) - 1
        if cost <= share:
            return replace(sample, inverse_temperature=t, sampler=GibbsRejection(bound))
        share = 1.01 * cost
    return None


def _level(event: Event) -> float:
    """Return the mu of a GDP event, the epsilon of a bounded range."""
    if isinstance(event, GaussianPrivate):
        return event.mu
    if isinstance(event, BoundedRange):
        return event.epsilon
    raise TypeError(f"no sample has an event of kind {event.kind!r}")
