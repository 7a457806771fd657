"""Which sampler draws from a Gibbs density, chosen from public facts.

Exact rejection is fast where proposals are likely to be accepted. Else a proximal Markov chain
draws: preconditioned, or with a step that a pilot chain finds. The choice affects work, never
privacy: the certificate of each sampler holds for every dataset. Reference:
docs/explanation/certificates.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpfit.core import Minimize
from dpfit.geometry import Box
from dpfit.privacy.validate import option
from dpfit.samplers.discretization import SmoothTarget
from dpfit.samplers.exact_gibbs_rejection import GibbsRejection, remains
from dpfit.samplers.piloted_sampler_winf import (
    PILOT_PROPOSALS,
    PILOT_ROUNDS,
    PilotedSampler,
)
from dpfit.samplers.potential import bounded_domain
from dpfit.samplers.proximal_sampler_winf import REJECTION, PreconditionedSampler, ProximalSampler

Sampler = GibbsRejection | ProximalSampler | PilotedSampler | PreconditionedSampler
SAMPLERS = ("auto", "rejection", "piloted", "proximal", "preconditioned")

ROUNDING = 1e-9
"""Displacement by rounding, at most, relative to the radius of the domain."""
_VISIBLE = 0.01
"""Noise, relative to the least standard deviation of the sample."""
_LEAST_ACCEPTANCE, _LEAST_PROPOSALS = 1e-3, 1e-6
"""Rejection is chosen if a compared proposal, and a proposal at all, are accepted and compared at
least this often.
"""
_NEWTON_STEPS = 6
"""Steps to the anchor of exact rejection; a Hessian counts as many passes as there are dimensions.
"""
_EXPONENT = 1.46
"""Minus the log acceptance x of proposals with the fewest passes, (2 + e^x) / x: steps are
proportional to 1 / x.
"""
_PASSES_PER_STEP = 2 + math.exp(_EXPONENT)
"""Two passes for the anchor of a step, and one for each expected trial."""
_PILOTED_PASSES_PER_STEP = 4.2
"""One pass for the anchor, and trials of the acceptance that the pilot aims at."""
_LONGEST = 20.0
_PATIENCE = 1000
"""Predicted passes, and slopes of a record, beyond which a loss is not what its caller declared."""
_PILOT_PASSES = PILOT_ROUNDS * (1 + PILOT_PROPOSALS) + 1


@dataclass(frozen=True)
class GibbsTarget:
    """Density exp(-t (sum of losses + (n ridge / 2) norm(theta)**2)) on a bounded region."""

    problem: Minimize
    inverse_temperature: float

    @property
    def strong_convexity(self) -> float:
        """Strong convexity of the potential, from the ridge alone."""
        return self.inverse_temperature * self.problem.n * self.problem.ridge

    @property
    def _hessian_trace_bound(self) -> float:
        """Largest trace of one record's Hessian; infinite for non-smooth losses."""
        # The Hessian of a generalized linear loss has one eigenvalue that is not zero.
        rank = 1 if self.problem.loss.is_glm else self.problem.dimension
        return self.problem.constants("replace").smoothness * rank

    @property
    def _trace(self) -> float:
        return self.inverse_temperature * self.problem.n * self._hessian_trace_bound

    @property
    def _slope(self) -> float:
        return (
            self.inverse_temperature * self.problem.n * self.problem.constants("replace").lipschitz
        )

    def smooth_target(self, relation: str) -> SmoothTarget:
        """Return strong convexity and smoothness of the potential, for every dataset."""
        records = self.problem.max_records(relation)
        steep = records * self.problem.constants(relation).smoothness
        return SmoothTarget(
            self.problem.dimension,
            self.strong_convexity,
            self.inverse_temperature * steep + self.strong_convexity,
        )

    def check(self, sampler: Any, relation: str = "replace") -> None:
        """Refuse a target without a certificate, from any sampler or from this one."""
        if not self.problem.loss.convex:
            raise ValueError(
                f"certified samples need a convex loss, got {self.problem.loss.kind!r}"
            )
        if not self.problem.ridge > 0:
            raise ValueError(
                "certified samples need ridge > 0: the strong convexity must come from it"
            )
        if getattr(sampler, "whole_space", False):
            if self.problem.region is not None:
                raise ValueError("the sampler is for the whole space; leave domain out")
            target = self.smooth_target(relation)
            sampler.check(target.dimension, target.strong_convexity, target.smoothness)
            return
        domain = bounded_domain(self.problem)
        if not domain.draws_gaussians:
            raise ValueError(
                f"certified samples need a domain that is a ball or a box, got {domain.kind!r}"
            )
        if isinstance(sampler, ProximalSampler) and (
            sampler.strong_convexity > self.strong_convexity or sampler.radius < domain.radius()
        ):
            raise ValueError(
                "the sampler's certificate is for a target that is more convex, or on a smaller "
                "domain"
            )

    def _rejection_exponent(self, precision: float) -> float:
        """Return -log of a lower bound on the acceptance of tangent proposals of a precision."""
        if math.isfinite(trace := self._trace):
            return trace / (2 * precision)
        # A kink changes the loss by at most its slope times the distance moved, in one direction
        # for a linear model.
        moved = 2 / math.pi if self.problem.loss.is_glm else self.problem.dimension
        return self._slope * math.sqrt(moved / precision)

    @property
    def log_acceptance(self) -> float:
        """Predicted log acceptance of the proposals that exact rejection compares with data.

        The sample is taken to be as wide as the ridge alone makes it. Minus infinity: too many
        proposals fail before they are compared.
        """
        d, domain = self.problem.dimension, bounded_domain(self.problem)
        rate = self.problem.constants("replace").margin_self_concordance
        if math.isinf(rate):
            return -self._rejection_exponent(self.strong_convexity)
        across = rate * domain.diameter()
        within = min(rate * math.sqrt(d / self.strong_convexity), across)
        kept, accepted = (d / 2 * math.log(float(remains(np.asarray(s)))) for s in (across, within))
        # In a box each coordinate may be at a bound, where half of the proposals are lost.
        fitting = -d * math.log(2) if isinstance(domain, Box) else 0.0
        return accepted if kept + fitting > math.log(_LEAST_PROPOSALS) else -math.inf

    def negligible_distance(self, noise: str, noise_multiplier: float) -> float:
        """Return a displacement of negligible noise, but not below the rounding displacement.

        Curvature makes the sample as narrow as its root, corners as narrow as a slope. A boundary
        that stops the minimizer does so in one direction: noise there costs its slope, to be
        compared with the d / (t n) of the sample.
        """
        strong, radius = self.strong_convexity, bounded_domain(self.problem).radius()
        least = 1 / (self._slope + math.sqrt(strong))
        if math.isfinite(self._trace):
            stopped = self.problem.dimension / self._slope
            least = min(stopped, 1 / math.sqrt(self._trace + strong))
        spread = noise_multiplier * (
            1.0 if noise == "gaussian" else math.sqrt(self.problem.dimension + 1)
        )
        return max(min(_VISIBLE * least / (2 * spread), radius / 2), ROUNDING * radius)

    def passes(self, sampler: Sampler) -> float:
        """Return about how many passes over the data one draw of the sampler takes."""
        if isinstance(sampler, ProximalSampler):
            return _PASSES_PER_STEP * sampler.steps
        if isinstance(sampler, PilotedSampler):
            radius = bounded_domain(self.problem).radius()
            steps = sampler.steps(self.strong_convexity, radius, self._likely_step(sampler))
            return _PILOT_PASSES + _PILOTED_PASSES_PER_STEP * steps
        if isinstance(sampler, PreconditionedSampler):
            return self._preconditioned_passes(sampler.distance)
        trials = 1 / math.exp(max(self.log_acceptance, -700.0))
        return _NEWTON_STEPS * (self.problem.dimension + 1.0) + trials

    def most_passes(self, sampler: Sampler) -> float:
        """Return a bound on the expected passes for every dataset, or 0 where none is told apart.

        It covers chains whose step follows the data.
        """
        if not isinstance(sampler, PilotedSampler):
            return 0.0
        radius = bounded_domain(self.problem).radius()
        return _PILOT_PASSES + sampler.most_trials(self.strong_convexity, radius, _PASSES_PER_STEP)

    def cap(self, sampler: Any, passes: float) -> float:
        """Return the most passes of a draw for losses that the caller wrote; infinite for others.

        Where trials succeed as often as planned, a loss that keeps its declarations takes more
        with probability below 1e-40: the cap is many times the sum of geometric variables.
        """
        if self.problem.loss.status != "declared":
            return math.inf
        return max(_PATIENCE * passes, 2 * self.most_passes(sampler))

    @property
    def slope_limit(self) -> float:
        """Norm of a gradient of the potential that no declared loss reaches."""
        return _PATIENCE * self._slope

    def _likely_step(self, sampler: PilotedSampler) -> float:
        """Return the step a pilot is likely to find; at least that of the worst case.

        Corners of a loss are taken to be spread over a distance of half the radius: a subgradient
        of size L then turns around at the rate 2 L / radius.
        """
        trace = self._trace
        if math.isinf(trace):
            trace = 2 * self._slope / bounded_domain(self.problem).radius()
        strong = self.strong_convexity
        likely = 1 / max(trace / (2 * _EXPONENT) - strong, strong / _LONGEST)
        return min(max(likely, sampler.least_step), sampler.longest_step(strong))

    def _preconditioned_passes(self, distance: float) -> float:
        """Return about the passes of the preconditioned chain; infinite without preconditioner."""
        lower, upper = self.problem.constants("replace").margin_curvatures
        if math.isinf(upper):
            return math.inf
        strong, trace = self.strong_convexity, self._trace
        spread = min(
            self.problem.dimension * (upper - lower) / lower if lower > 0 else math.inf,
            trace / strong,
        )
        ratio = bounded_domain(self.problem).radius() * math.sqrt(1 + trace / strong) / distance
        rate = math.log1p(1 / max(spread / (2 * REJECTION) - 1, 0.05))
        return (
            self.problem.dimension + (1 + math.exp(REJECTION)) * math.log(max(ratio, math.e)) / rate
        )

    def sampler(self, name: str, noise: str, noise_multiplier: float) -> Sampler:
        """Return the named sampler, set for the target and for the noise on its draws."""
        option("sampler", name, SAMPLERS)
        if name == "rejection":
            return GibbsRejection()
        if name == "piloted":
            return self.piloted(noise, noise_multiplier)
        if name == "proximal":
            return self.proximal(noise, noise_multiplier)
        if name == "preconditioned":
            if math.isinf(self.problem.constants("replace").margin_curvatures[1]):
                raise ValueError(
                    "the preconditioned sampler needs a smooth generalized linear loss; use "
                    "proximal"
                )
            return PreconditionedSampler(self.negligible_distance(noise, noise_multiplier))
        return self._fastest(noise, noise_multiplier)

    def _fastest(self, noise: str, noise_multiplier: float) -> Sampler:
        """Return exact rejection if acceptance is likely, else the chain with fewer passes."""
        if self.log_acceptance > math.log(_LEAST_ACCEPTANCE):
            return GibbsRejection()
        chain = self.piloted(noise, noise_multiplier)
        # The preconditioned sampler runs one chain at a time, which takes more than passes.
        if 2 * self._preconditioned_passes(chain.distance) < self.passes(chain):
            return PreconditionedSampler(chain.distance)
        return chain

    def piloted(self, noise: str, noise_multiplier: float) -> PilotedSampler:
        """Return the chain whose step follows the data, and is at least that of the worst case."""
        worst = self.proximal(noise, noise_multiplier)
        distance = self.negligible_distance(noise, noise_multiplier)
        return PilotedSampler(distance, worst.step_size)

    def proximal(self, noise: str, noise_multiplier: float) -> ProximalSampler:
        """Return the proximal sampler of fewest passes and a negligible displacement."""
        strong = self.strong_convexity
        # The exponent falls at least like the square root of the precision, so two squares bring it
        # to the target.
        precision = 2 * strong
        while (excess := self._rejection_exponent(precision) / _EXPONENT) > 1.001:
            precision *= excess if math.isfinite(self._trace) else excess**2
        distance = self.negligible_distance(noise, noise_multiplier)
        return ProximalSampler.within(
            distance, strong, bounded_domain(self.problem).radius(), 1 / (precision - strong)
        )
