"""Exact draws from a convex potential plus a strong quadratic: the restricted Gaussian oracle.

The target is proportional to exp(-f(x) - (precision / 2) norm(x - pull)**2) on a convex domain.
Below f lies its tangent plane at any anchor in the domain, so a normal law shifted by the
subgradient and restricted to the domain is an envelope: accepting a proposal x with probability
exp(-(f(x) - tangent(x))) leaves exactly the target, whatever the anchor. A good anchor, near the
minimizer, only makes acceptance likely: at least det(I + Hess f / precision)**(-1/2).

Certificate: exact, in real arithmetic. Trials are never capped; how many it takes depends on the
data and stays inside. Reference: [Liu24] Algorithm 14 with rejection in place of its truncated
series; docs/explanation/certificates.md, section 3.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpfit.geometry.truncated_gaussian import gaussian_within
from dpfit.noise import Source
from dpfit.privacy.validate import positive
from dpfit.samplers.potential import Floats, Potential

Flags = NDArray[np.bool_]
_BISECTIONS = 10
_TINY = 1e-300


def exact_rgo(target: Potential, y: Floats, step_size: float, source: Source) -> Floats:
    """Draw from density prop. to exp(-U(x) - norm(x - y)**2 / (2 step_size)), by row of ``y``.

    >>> from dpfit.geometry import L2Ball
    >>> ball, slope = L2Ball(2, 1.0), np.array([3.0, 0.0])
    >>> linear = Potential(
    ...     ball, 1.0, np.zeros(2), lambda x: (x @ slope, np.tile(slope, (len(x), 1)))
    ... )
    >>> drawn = exact_rgo(linear, np.zeros((1000, 2)), 0.5, Source(1))
    >>> bool(drawn[:, 0].mean() < -0.3), bool(ball.contains(drawn).all())
    (True, True)
    """
    positive("step_size", step_size)
    precision = target.strength + 1 / step_size
    pull = (target.strength * target.centre + y / step_size) / precision
    return TangentRejection(target, pull, precision).draw(source)


class Seen(NamedTuple):
    """Points (k, d) with values (k,) and subgradients (k, d) of f there."""

    point: Floats
    value: Floats
    gradient: Floats

    @staticmethod
    def of(target: Potential, point: Floats) -> Seen:
        """Look at points, by one pass over the data."""
        return Seen(point, *target.convex(point))

    def take(self, chosen: Any) -> Seen:
        """Return some of the points."""
        return Seen(*(part[chosen] for part in self))


class TangentRejection:
    """Rejection by planes below f, for exp(-f(x) - (precision / 2) norm(x - pull)**2).

    There is one density for each row of ``pull``. A plane below f is the tangent at a point where f
    was seen, or a convex combination of such tangents: where corners meet, no single tangent is
    near f. ``near`` are points where f is known already, to start from.
    """

    def __init__(
        self, target: Potential, pull: Floats, precision: float, near: Seen | None = None
    ) -> None:
        self.target, self.pull, self.precision = target, pull, precision
        self.seen = near or Seen.of(target, target.domain.project(pull))
        self.height, self.slope = self._tangent(self.seen)

    def draw(self, source: Source) -> Floats:
        """Return one draw for each row of ``pull``."""
        return self.attempt(source)[0].point

    def attempt(self, source: Source, trials: float = math.inf) -> tuple[Seen, Flags]:
        """Return draws, and which rows have one after so many trials."""
        pending, tried = np.arange(len(self.pull)), 0
        drawn = Seen(*(part.copy() for part in self.seen))
        self.improve()
        while len(pending) and tried < trials:
            tried += 1
            proposal, gap = self.propose(1, source)
            kept = source.exponential(len(pending)) >= gap[:, 0]
            for part, new in zip(drawn, proposal, strict=True):
                part[pending[kept]] = new[kept]
            pending = pending[~kept]
            for name in ("pull", "height", "slope"):
                setattr(self, name, getattr(self, name)[~kept])
            # Planes may follow from rejected proposals: each trial is exact whatever came before.
            self._combine(proposal.take(~kept))
        done = np.ones(len(drawn.point), dtype=bool)
        done[pending] = False
        return drawn, done

    def propose(self, number: int, source: Source) -> tuple[Seen, Floats]:
        """Return proposals, ``number`` for each row, and what f exceeds the plane by, by row."""
        mean = np.repeat(self.pull - self.slope / self.precision, number, axis=0)
        proposal = Seen.of(
            self.target, gaussian_within(self.target.domain, mean, self.precision, source)
        )
        offset = (proposal.point - self._middle).reshape(len(self.pull), number, -1)
        plane = self.height[:, None] + np.einsum("kij,kj->ki", offset, self.slope)
        return proposal, proposal.value.reshape(plane.shape) - plane

    def improve(self) -> None:
        """Look at the point where the density of the plane is largest, by one pass."""
        self.seen = Seen.of(self.target, self._mode(self.slope))
        self._combine(self.seen)

    @property
    def _middle(self) -> Floats:
        return np.asarray(self.target.domain.centre)

    def _mode(self, slope: Floats) -> Floats:
        return self.target.domain.project(self.pull - slope / self.precision)

    def _tangent(self, seen: Seen) -> tuple[Floats, Floats]:
        """Return height at the domain's centre and slope of tangents."""
        rise = np.sum(seen.gradient * (seen.point - self._middle), axis=1)
        return seen.value - rise, seen.gradient

    def _combine(self, seen: Seen) -> None:
        """Take the combination of plane and tangent of the largest acceptance.

        Without a domain the acceptance is inversely proportional to the mass of the envelope; its
        logarithm is least where l(x) + (precision / 2) norm(x - pull)**2 has the largest minimum.
        That is concave in the weight of the tangent, and its slope there is tangent minus plane at
        the minimizer. The domain's mode stands for the minimizer.
        """
        height, slope = self._tangent(seen)
        up, turn = height - self.height, slope - self.slope
        free = self.pull - self.slope / self.precision
        rise = up + np.sum(turn * (free - self._middle), axis=1)
        square = np.maximum(np.sum(turn**2, axis=1), _TINY)
        weight = np.clip(rise * self.precision / square, 0.0, 1.0)
        mode = free - weight[:, None] * turn / self.precision
        if not self.target.domain.contains(mode, tolerance=0.0).all():
            weight = self._weight_within(up, turn)
        self.height = self.height + weight * up
        self.slope = self.slope + weight[:, None] * turn

    def _weight_within(self, up: Floats, turn: Floats) -> Floats:
        """Return the weight of a tangent where the domain matters, by bisection."""
        low, high = np.zeros(len(up)), np.ones(len(up))
        for _ in range(_BISECTIONS):
            weight = (low + high) / 2
            mode = self._mode(self.slope + weight[:, None] * turn) - self._middle
            rises = up + np.sum(turn * mode, axis=1) > 0
            low, high = np.where(rises, weight, low), np.where(rises, high, weight)
        # The ends are exact: one tangent alone is best where f is smooth.
        return np.where(high < 1, np.where(low > 0, (low + high) / 2, 0.0), 1.0)
