"""Exact draws from a Gibbs density by rejection from one normal law.

On the domain the potential is at least its tangent plane at an anchor of the domain plus a function
that starts out as the quadratic of its Hessian there and, for generalized self-concordant losses,
bends away from it no faster than a known rate: the minorant. A normal law of lower precision,
restricted to the domain, is an envelope of the minorant. Proposals that do not survive the minorant
are rejected without a look at the data; the others are accepted with probability exp(-(U(x) -
minorant(x))), which leaves exactly the target. For quadratic losses nothing is rejected; for
logistic ones about one pass in two or three is kept wherever the sample is concentrated.

Certificate: exact, in real arithmetic; on balls also one that floating point keeps
(`dpfit.samplers.finite_precision`): normal and exponential numbers are fine ones with unbounded
tails, what a proposal's density is follows from the numbers it was made of, and every gap that is
compared is at least zero up to a proven error. Nothing is capped. Reference: [ASAP] Remark 11, with
the envelope that makes it work; docs/explanation/certificates.md, sections 3 and 8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpfit.geometry import Box, L2Ball
from dpfit.geometry.base import Domain
from dpfit.geometry.quadratic import quadratic_minimizer, smallest_shift, spectrum
from dpfit.kernels.rounding import gamma
from dpfit.noise import Source, fine_exponential, fine_gaussian
from dpfit.privacy.spec import Spec
from dpfit.samplers.certificate import Displaced, Exact
from dpfit.samplers.exact_rgo import TangentRejection
from dpfit.samplers.potential import Floats, Potential

_NEWTON_STEPS = 50
_HALVINGS = 30
_NEAR = 0.01
"""How far the anchor may be above the minimum, in units of the logarithm of a density."""
_BATCH = 4096
_SWEEPS = 3
_TANGENT = 1.0
"""The exponent of the acceptance up to which a tangent plane is good enough."""
_ANCHOR_STEPS = 20
FARTHEST = 2.5
"""In radii of the domain: more than the distance of two points in it, of which one was rounded."""


@dataclass(frozen=True)
class GibbsRejection(Spec):
    """The sampler; ``rounding`` is the distance that finite precision adds, where known."""

    kind = "exact_gibbs_rejection"
    rounding: Displaced | None = None

    @property
    def certificate(self) -> Exact | Displaced:
        """Every draw has the target's law: in real arithmetic, or up to what rounding does."""
        return self.rounding or Exact()

    def draw(
        self,
        target: Potential,
        chains: int,
        source: Source,
        progress: Callable[[float], None] | None = None,
    ) -> Floats:
        """Independent draws, (chains, d); no progress is reported, as trials left are private.

        >>> from dpfit.geometry import L2Ball
        >>> flat = Potential(
        ...     L2Ball(2, 1.0), 4.0, np.zeros(2), lambda x: (np.zeros(len(x)), np.zeros_like(x))
        ... )
        >>> GibbsRejection().draw(flat, 3, Source()).shape
        (3, 2)
        """
        boxed = isinstance(target.domain, Box)
        if target.hessian is not None:
            point, curvature = anchor(target, target.hessian)
            boxed &= bool(np.trace(curvature) <= 2 * _TANGENT * target.strength)
        elif not boxed:
            point, curvature = tangent_anchor(target), np.zeros((len(target.centre),) * 2)
        if boxed:
            # In a box the coordinates of an uncorrelated normal law are drawn within their
            # intervals.
            centres = np.tile(target.centre, (chains, 1))
            return TangentRejection(target, centres, target.strength).draw(source)
        return self._enveloped(target, point, curvature, chains, source)

    def _enveloped(
        self, target: Potential, point: Floats, curvature: Floats, chains: int, source: Source
    ) -> Floats:
        value, gradient = (part[0] for part in target.convex(point[None]))
        added, pull = (
            target.strength * np.eye(len(point)),
            target.strength * (point - target.centre),
        )
        minorant = Minorant(
            point, gradient, curvature, target.bending, farthest(target.domain, point)
        )
        envelope = Envelope(target.domain, minorant, added, pull)
        if self.rounding is not None and not envelope.trusted:
            # A tangent plane has no matrix whose root could be wrong.
            minorant = Minorant(point, gradient, np.zeros_like(curvature), 0.0, minorant.reach)
            envelope = Envelope(target.domain, minorant, added, pull)
        drawn = np.empty((0, len(point)))
        while len(drawn) < chains:
            proposal = envelope.propose(min(_BATCH, chains - len(drawn)), source)
            gap = target.convex(proposal)[0] - value - minorant.above(proposal)
            drawn = np.concatenate([drawn, proposal[fine_exponential(len(gap), source) >= gap]])
        return drawn


@dataclass(frozen=True, eq=False)
class Minorant:
    """What a convex function exceeds its value at an anchor by, at least.

    If its Hessian at the anchor is at least ``curvature``, and falls with the distance s by no more
    than a factor exp(-bending * s), that is <gradient, x - anchor> + remains(bending * s) * |x -
    anchor|^2_curvature / 2. ``reach`` is the largest distance that is asked for.
    """

    anchor: Floats
    gradient: Floats
    curvature: Floats
    bending: float
    reach: float

    @property
    def least(self) -> Floats:
        """The matrix of a quadratic below this function wherever it is asked for."""
        return np.asarray(remains(np.asarray(self.bending * self.reach)) * self.curvature)

    def above(self, points: Floats) -> Floats:
        """The lower bound at points (k, d)."""
        offset = points - self.anchor
        return np.asarray(offset @ self.gradient + self._quadratic(offset) * self._remains(offset))

    def bend(self, points: Floats) -> Floats:
        """By how much it exceeds its tangent plane plus the quadratic of ``least``."""
        offset = points - self.anchor
        left = self._remains(offset) - remains(np.asarray(self.bending * self.reach))
        return np.asarray(self._quadratic(offset) * np.maximum(left, 0.0))

    def _quadratic(self, offset: Floats) -> Floats:
        return np.asarray(np.sum(offset @ self.curvature * offset, axis=1) / 2)

    def _remains(self, offset: Floats) -> Floats:
        return remains(self.bending * np.linalg.norm(offset, axis=1))


def remains(s: Floats) -> Floats:
    """2 (exp(-s) - 1 + s) / s**2: the mean of exp(-s u) over u in [0, 1] with density 2 (1 - u).

    >>> remains(np.array([0.0, 1.0])).round(6).tolist()
    [1.0, 0.735759]
    """
    small, series = np.minimum(s, 0.05), np.ones_like(s)
    for k in range(9, 2, -1):
        series = 1 - small / k * series
    large = np.maximum(s, 0.05)
    return np.asarray(np.where(s < 0.05, series, 2 * (np.expm1(-large) + large) / large**2))


class Envelope:
    """Draws prop. to exp(-minorant(x) - <pull, x - anchor> - <x - anchor, added (x - anchor)> / 2).

    Proposals are normal, by the quadratic below the minorant, plus a fence: a quadratic that is
    zero on the boundary of the domain and negative inside, without which a normal law whose mean is
    outside, or that is wider than the domain, might never meet it. What the quadratic and the fence
    are too low by is rejected again, without the data.

    A proposal is ``mean + factor z``, z standard normal, and its density is read off z. So the
    factor need not be precisely a root of the covariance: what it is off by is part of the
    rejection, and it is made larger by more than that, so that there is something to reject.
    Likewise any mean would do; ``slope`` is what is left of the gradient.
    """

    def __init__(self, domain: Domain, minorant: Minorant, added: Floats, pull: Floats) -> None:
        self.domain, self.minorant, self.middle = domain, minorant, np.asarray(domain.centre)
        precision, offset = minorant.least + added, minorant.anchor - self.middle
        linear = precision @ offset - (minorant.gradient + pull)
        if isinstance(domain, Box):
            half = (np.asarray(domain.upper) - np.asarray(domain.lower)) / 2
            self.weight = _box_fence(precision, linear, half)
        elif isinstance(domain, L2Ball):
            half = np.full(len(offset), domain.norm_bound / len(offset) ** 0.5)
            self.weight = np.full(len(offset), _ball_fence(precision, linear, domain.norm_bound))
        else:
            raise ValueError(f"there is a sampler for balls and boxes, not for {domain.kind!r}")
        self.depth = float(self.weight @ half**2) / 2
        self.precision = precision + np.diag(self.weight)
        values, axes = spectrum(self.precision)
        self.mean = domain.project(self.middle + axes @ (axes.T @ linear / values))
        pulled = self.weight * (self.mean - self.middle) + precision @ (self.mean - minorant.anchor)
        self.slope = minorant.gradient + pull + pulled
        self.tilt = FARTHEST * domain.radius() * float(np.linalg.norm(self.slope))
        factor = axes * values**-0.5
        self.excess = _root_error(factor, self.precision)
        self.factor = (1 + self.excess) * factor

    @property
    def trusted(self) -> bool:
        """Whether proposals are proven to be at least as wide as the quadratic asks for."""
        return self.excess < 0.25

    def propose(self, number: int, source: Source) -> Floats:
        """At least one draw and at most ``number``, from as many trials as it takes."""
        trials = number
        while True:
            normal = fine_gaussian((trials, len(self.mean)), source)
            trial = self.mean + normal @ self.factor.T
            inside = self.domain.contains(trial, tolerance=0.0)
            trial, normal = trial[inside], normal[inside]
            kept = fine_exponential(len(trial), source) >= self.gap(trial, normal)
            if kept.any():
                return np.asarray(trial[kept][:number])
            trials = min(2 * trials, _BATCH)

    def gap(self, trial: Floats, normal: Floats) -> Floats:
        """Envelope potential minus the proposals' potential, up to a constant; at least zero."""
        offset = trial - self.mean
        fence = self.depth - (trial - self.middle) ** 2 @ self.weight / 2
        wider = (np.sum(offset @ self.precision * offset, axis=1) - np.sum(normal**2, axis=1)) / 2
        return np.asarray(
            fence + self.minorant.bend(trial) + wider + (offset @ self.slope + self.tilt)
        )


def _root_error(factor: Floats, precision: Floats) -> float:
    """A proven bound on norm(factor^T precision factor - I), with rounding included."""
    d = len(factor)
    deviation = np.linalg.norm(factor.T @ precision @ factor - np.eye(d))
    sizes = np.linalg.norm(np.abs(factor.T) @ np.abs(precision) @ np.abs(factor)) + d
    return float(deviation + gamma(4 * d + 16) * sizes) * (1 + 2.0**-20)


def _ball_fence(precision: Floats, linear: Floats, radius: float) -> float:
    """The weight q for which the fewest fenced proposals fail; zero if none is needed.

    A fence multiplies what is proposed in all by exp(q R^2 / 2) E exp(-q |x|^2 / 2), a convex
    function of q that is least where the mean square of the fenced law is R^2 (the Chernoff bound
    of being in the ball).
    """
    values, axes = spectrum(precision)
    return smallest_shift(values, axes.T @ linear, radius, 1.0)


def _box_fence(precision: Floats, linear: Floats, half: Floats) -> Floats:
    """A fence for a box, one weight a coordinate: sweeps fit each mean square in turn."""
    values, axes = spectrum(precision)
    weight, covariance = np.zeros(len(half)), axes / values @ axes.T
    for _ in range(_SWEEPS):
        for i, bound in enumerate(half**2):
            variance, mean = covariance[i, i], covariance[i] @ linear
            if weight[i] == 0 and variance + mean**2 <= bound:
                continue
            # With precision 1 / u the mean square is u + (u mean / variance)^2.
            u = 2 * bound / (1 + (1 + 4 * bound * (mean / variance) ** 2) ** 0.5)
            more = max(1 / u - 1 / variance, -weight[i])
            covariance = covariance - np.outer(covariance[i], covariance[i]) * more / (
                1 + more * variance
            )
            weight[i] += more
    return weight


def farthest(domain: Domain, point: Floats) -> float:
    """How far from the point the domain goes, at most."""
    return domain.radius() + float(np.linalg.norm(point - domain.centre))


def anchor(target: Potential, hessian: Callable[[Floats], Floats]) -> tuple[Floats, Floats]:
    """A domain point near the potential's minimizer, and the Hessian of f, by Newton's method.

    A poor one would only be slow.
    """
    point = target.domain.project(target.centre)
    height, slope = _potential(target, point)
    for _ in range(_NEWTON_STEPS):
        curvature = hessian(point)
        precision = curvature + target.strength * np.eye(len(point))
        way = quadratic_minimizer(target.domain, point, slope, precision) - point
        if -(slope @ way + way @ precision @ way / 2) < _NEAR:
            return point, curvature
        for halving in range(_HALVINGS):
            there = target.domain.project(point + 0.5**halving * way)
            lower, steepness = _potential(target, there)
            if lower < height:
                break
        else:
            return point, curvature
        point, height, slope = there, lower, steepness
    return point, hessian(point)


def tangent_anchor(target: Potential) -> Floats:
    """Such a point for potentials whose Hessian is not known, by projected gradient steps."""
    planes = TangentRejection(target, target.centre[None], target.strength)
    for _ in range(_ANCHOR_STEPS):
        planes.improve()
    return np.asarray(planes.seen.point[0])


def _potential(target: Potential, point: Floats) -> tuple[float, Floats]:
    value, gradient = (part[0] for part in target.convex(point[None]))
    offset = point - target.centre
    return float(value + target.strength / 2 * offset @ offset), np.asarray(
        gradient + target.strength * offset
    )
