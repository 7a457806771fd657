"""Exact draws from a Gibbs density by rejection from one normal law.

On the domain the potential is at least its tangent plane at an anchor of the domain plus a quadratic with a matrix H
below all its Hessians. So the normal law of precision H restricted to the domain is an envelope, and accepting x with
probability exp(-(U(x) - minorant(x))) leaves exactly the target. For quadratic losses every proposal in the domain is
accepted; for generalized self-concordant ones (logistic) about exp(-d M radius / 2) of them. The data are read only for
proposals in the domain.

Certificate: exact, in real arithmetic. Nothing is capped. Reference: [ASAP] Remark 11, with the envelope that makes it
work; docs/explanation/certificates.md, section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from dpfit.geometry import Box, L2Ball
from dpfit.geometry.base import Domain
from dpfit.noise import Source
from dpfit.privacy.record import Record
from dpfit.samplers.certificate import Exact
from dpfit.samplers.exact_rgo import tangent_rejection
from dpfit.samplers.potential import Floats, Potential

_NEWTON_STEPS = 50
_BATCH = 1024


@dataclass(frozen=True)
class GibbsRejection(Record):
    """The sampler; it has nothing to set."""

    kind = "exact_gibbs_rejection"

    @property
    def certificate(self) -> Exact:
        """Every draw has the target's law."""
        return Exact()

    def draw(
        self, target: Potential, chains: int, source: Source, progress: Callable[[float], None] | None = None
    ) -> Floats:
        """Independent draws, (chains, d). How many trials are left is private, so there is no progress to tell.

        >>> from dpfit.geometry import L2Ball
        >>> flat = Potential(L2Ball(2, 1.0), 4.0, np.zeros(2), lambda x: (np.zeros(len(x)), np.zeros_like(x)))
        >>> GibbsRejection().draw(flat, 3, Source()).shape
        (3, 2)
        """
        if target.curvature is None:
            return tangent_rejection(target, np.tile(target.centre, (chains, 1)), target.strength, source)
        return _quadratic_rejection(target, target.curvature(), chains, source)


def _quadratic_rejection(target: Potential, curvature: Floats, chains: int, source: Source) -> Floats:
    precision = curvature + target.strength * np.eye(len(curvature))
    anchor = _anchor(target, precision)
    value, gradient = (part[0] for part in target.convex(anchor[None]))
    envelope = _Envelope(target, anchor, gradient + target.strength * (anchor - target.centre), precision)
    drawn = np.empty((0, len(anchor)))
    while len(drawn) < chains:
        proposal = envelope.propose(min(_BATCH, 2 * (chains - len(drawn))), source)
        offset = proposal - anchor
        gap = target.convex(proposal)[0] - value - offset @ gradient - np.sum(offset @ curvature * offset, axis=1) / 2
        drawn = np.concatenate([drawn, proposal[source.exponential(len(gap)) >= gap]])
    return drawn[:chains]


class _Envelope:
    """Draws prop. to exp(-<slope, x - anchor> - <x - anchor, precision (x - anchor)> / 2) on the domain.

    Where the domain stops the minimizer, the mean of that normal law is outside, perhaps far. A fence is a quadratic
    that is zero on the boundary and negative inside; with it the law peaks on the boundary, near the minimizer, and
    what the fence adds inside is rejected again. It costs no look at the data.
    """

    def __init__(self, target: Potential, anchor: Floats, slope: Floats, precision: Floats) -> None:
        self.domain, self.middle = target.domain, np.asarray(target.domain.centre)
        half = _half_widths(target.domain)
        # How hard the potential pushes outwards at the anchor, along the radius or along each coordinate.
        outwards = -slope * (anchor - self.middle) / half
        push = np.maximum(outwards.sum() if isinstance(target.domain, L2Ball) else outwards, 0.0)
        self.weight = np.broadcast_to(push / half, anchor.shape)
        self.depth = float(np.sum(np.broadcast_to(push * half, anchor.shape))) / 2
        if isinstance(target.domain, L2Ball):
            self.depth /= len(anchor)
        fenced = precision + np.diag(self.weight)
        self.lower = np.linalg.cholesky(fenced)
        self.mean = anchor - cho_solve((self.lower, True), slope + self.weight * (anchor - self.middle))

    def propose(self, number: int, source: Source) -> Floats:
        """At least one draw, from as many trials as it takes."""
        found = np.empty((0, len(self.mean)))
        while not len(found):
            normal = source.gaussian((number, len(self.mean)))
            trial = self.mean + solve_triangular(self.lower, normal.T, lower=True, trans="T").T
            trial = trial[self.domain.contains(trial, tolerance=0.0)]
            fence = self.depth - (trial - self.middle) ** 2 @ self.weight / 2
            found = trial[source.exponential(len(trial)) >= fence]
            number = min(2 * number, _BATCH)
        return found


def _half_widths(domain: Domain) -> Floats:
    """The radius of a ball, half the widths of a box."""
    if isinstance(domain, L2Ball):
        return np.asarray(domain.norm_bound)
    if isinstance(domain, Box):
        return np.asarray((np.asarray(domain.upper) - np.asarray(domain.lower)) / 2)
    raise ValueError(f"there is a sampler for balls and boxes, not for {domain.kind!r}")


def _anchor(target: Potential, precision: Floats) -> Floats:
    """A point of the domain near the minimizer of the potential; a poor one would only be slow."""
    factor = cho_factor(precision)
    point = target.domain.project(target.centre)
    height, slope = _potential(target, point)
    smallest = 1 / float(np.trace(precision))
    for _ in range(_NEWTON_STEPS):
        newton = -cho_solve(factor, slope)
        tries = [newton * 0.5**j for j in range(4)] + [-slope * smallest * 4.0**j for j in range(-2, 6)]
        points = target.domain.project(point + np.array(tries))
        values, gradients = target.convex(points)
        heights = values + target.strength / 2 * np.sum((points - target.centre) ** 2, axis=1)
        best = int(np.argmin(heights))
        if not heights[best] < height - 1e-6:
            break
        point, height = points[best], float(heights[best])
        slope = gradients[best] + target.strength * (point - target.centre)
    return point


def _potential(target: Potential, point: Floats) -> tuple[float, Floats]:
    value, gradient = (part[0] for part in target.convex(point[None]))
    offset = point - target.centre
    return float(value + target.strength / 2 * offset @ offset), np.asarray(gradient + target.strength * offset)
