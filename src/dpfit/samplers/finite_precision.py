"""Finite precision in exact rejection: a proven bound from public facts, for all data.

A draw of `dpfit.samplers.exact_gibbs_rejection` on a ball is an exact normal vector, rounded; a
linear map of it, rounded; comparisons of computed gaps with exact exponential numbers, rounded; and
a computed test whether the point is in the ball. Up to a displacement of the point, each of these
is the exact thing times a factor near one: computed gaps are off by a bounded amount, and mass that
the test of the ball lets through, or cuts off, near the boundary is moved along its ray into the
last ``margin`` of it. All bounds are from the declared bounds of the records, the loss constants
and sizes, with u = 2**-53 and generous whole constants; none is from the data.

Theorem and proof: docs/explanation/certificates.md, section 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpfit.core import Minimize
from dpfit.geometry import L2Ball
from dpfit.kernels.rounding import gamma
from dpfit.noise.fine import COARSENESS, FINENESS, LARGEST
from dpfit.samplers.certificate import Displaced

_LARGEST = 2.0**16
"""Up to which fine normal numbers have no other rounding than that to their grid."""


def rejection_rounding(
    problem: Minimize, relation: str, inverse_temperature: float, distance: float
) -> Displaced | None:
    """Distance of float64 rejection from a draw of the target; ``None`` where unbounded.

    There is one on balls, for the losses of this library with bounded labels, as long as nothing
    overflows and the rounding of the Hessian is small against the ridge. ``distance`` is what draws
    may be displaced by, most of which is the width of the shell in which the mass near the boundary
    is moved: the wider it is, the smaller is the factor.

    >>> from dpfit.losses import Bounds, Logistic
    >>> ball = L2Ball(20, 1.0)
    >>> problem = Minimize(
    ...     n=10_000, loss=Logistic(), bounds=Bounds(1.0), n_features=20, domain=ball, ridge=0.01
    ... )
    >>> bound = rejection_rounding(problem, "replace", 0.5, distance=1e-6)
    >>> bound.epsilon < 1e-4, bound.distance
    (True, 1e-06)
    """
    if not isinstance(problem.region, L2Ball) or problem.loss.status == "declared":
        return None
    if not math.isfinite(largest := largest_value(problem)):
        return None
    sizes = _Sizes.of(problem, problem.max_records(relation), inverse_temperature, largest)
    return sizes.bound(distance) if sizes.small else None


def largest_value(problem: Minimize) -> float:
    """Largest absolute loss of a record on the domain; infinite if label bounds are missing."""
    loss, bounds, radius = problem.loss, problem.bounds, _wide(problem)
    slope = loss.lipschitz(bounds, radius).value
    # Losses of the distance from the parameter to a row grow at most by the slope on the way from
    # the row to zero.
    start = loss.value_at_zero(bounds) if loss.reads_labels else slope * bounds.row_norm
    return start + slope * radius


def _wide(problem: Minimize) -> float:
    """The domain's reach, slightly enlarged for the rounding of margins.

    Computed margins can be larger than any real one, and constants of some losses jump where the
    largest margin meets a bound of the labels.
    """
    return 1.001 * (problem.radius or 0.0)


@dataclass(frozen=True)
class _Sizes:
    """Bounds of everything that enters a gap, for every dataset; lengths are Euclidean."""

    d: int
    radius: float
    reach: float
    row_norm: float
    argument: float
    """Length of the parameter, or of its offset from a row: what is computed with a relative error.
    """
    records: int
    value: float
    """Of the sum of losses, times the inverse temperature, as all that follows."""
    slope: float
    bend: float
    """Trace of the Hessian of the sum; zero if the loss has none."""
    bending: float
    strength: float

    @classmethod
    def of(
        cls, problem: Minimize, records: int, inverse_temperature: float, largest: float
    ) -> _Sizes:
        loss, bounds, ball = problem.loss, problem.bounds, problem.region
        if ball is None:
            raise ValueError("the bounds are for a ball")
        times = inverse_temperature * records
        rate = problem.constants("replace").margin_self_concordance
        wide = _wide(problem)
        # Counted also where no Hessian is used: on a smaller domain one may be. (Its logarithm then
        # changes by the margin's change at most, as for the logistic loss.)
        smooth = loss.smoothness(bounds, wide)
        margin = 0.0 if loss.reads_products else bounds.row_norm
        return cls(
            problem.dimension, ball.radius(), ball.reach(), bounds.row_norm, ball.reach() + margin,
            records, times * largest, times * loss.lipschitz(bounds, wide).value,
            times * smooth.value if smooth else 0.0,
            rate if math.isfinite(rate) else bounds.row_norm,
            inverse_temperature * problem.n * problem.ridge,
        )  # fmt: skip

    @property
    def precision(self) -> float:
        """Norm of the proposals' precision: Hessian, ridge, fence; also of absolute entries."""
        linear = self.slope + 2 * (self.bend + self.strength) * (self.reach + self.radius)
        fence = 2 * (self.d / self.radius**2 + linear / self.radius)
        return 1.01 * self.bend + self.strength + fence

    @property
    def deviations(self) -> float:
        """Norm of the normal vector of a proposal in the ball.

        The quadratic form is at least as large.
        """
        return 2.3 * self.radius * math.sqrt(self.precision)

    @property
    def summing(self) -> float:
        """Relative error of a sum: at most an eighth of the records meet in a block."""
        return gamma(self.records // 4 + 1000)

    @property
    def squaring(self) -> float:
        """Relative error of the Hessian, which BLAS sums in an order that it does not tell."""
        return gamma(2 * self.records + 1000)

    @property
    def terms(self) -> float:
        """Size of all terms of the gaps that do not read the data, together."""
        return 32 * (self.slope * self.radius + self.precision * self.radius**2)

    @property
    def small(self) -> bool:
        """Whether fine numbers are uncut and Hessian rounding is small against the ridge."""
        fine = (
            self.deviations < _LARGEST
            and self.terms + 2 * self.value < LARGEST
            and self.records < 2**40
        )
        return fine and self.bend * (self.squaring + 1e-9) < self.strength / 4

    @property
    def mapped(self) -> float:
        """How far a computed proposal is from the map of its rounded normal vector."""
        # The factor of proposals has norm two over the root of the ridge at most.
        widest = 2 * math.sqrt(self.d / self.strength)
        return gamma(self.d + 4) * (widest * (self.deviations + 1) + self.reach + 2 * self.radius)

    @property
    def point(self) -> float:
        """How far it is from the map of the exact normal vector."""
        return self.mapped + 2 * math.sqrt(self.d / self.strength) * FINENESS

    @property
    def outside(self) -> float:
        """Distance from the ball within which the computed test may be wrong, either way."""
        return gamma(self.d + 8) * (self.radius + self.reach)

    @property
    def steepness(self) -> float:
        """Lipschitz constant of the potential near the ball."""
        return 1.01 * (self.slope + self.strength * (self.reach + 2 * self.radius))

    @property
    def gap(self) -> float:
        """Joint error of the two computed gaps, cut at zero, against the exact, uncut ones."""
        # Losses: margins (or distances) have a relative error, which the slope turns into one of
        # the value. Once for the point, once for the anchor, and twice for the tangent plane, whose
        # slopes are those at computed margins.
        off = gamma(3 * self.d + 32)
        margins = 4 * off * self.slope * self.argument
        # Rounding of the losses themselves, of their slopes and of their sums.
        sums = (
            2
            * (self.summing + gamma(self.d + 32))
            * (self.value + self.slope * (self.reach + 2 * self.radius))
        )
        # The Hessian enters by at most half the square of the largest distance, its point by the
        # gradient's change.
        relative = self.squaring + gamma(64) + 4 * off * self.bending * self.reach
        hessian = 4 * self.radius**2 * self.bend * (relative + off * self.reach / self.radius)
        others = gamma(4 * self.d + 64) * self.terms
        # What a gap can be below zero: proposals are off the map, and the ball is a little larger
        # than it is.
        bent = 2 * self.bend * self.radius**2 * (self.bending + self.row_norm**2 * self.radius)
        below = (
            4 * self.precision * self.radius * (self.mapped + self.outside)
            + (self.slope + bent) * self.outside
        )
        # The density of the exact normal vector, the potential at the exact point, and the
        # exponential numbers.
        moved = (
            2 * self.deviations * math.sqrt(self.d) * FINENESS
            + self.steepness * self.point
            + 8 * COARSENESS
        )
        return margins + sums + hessian + others + below + moved

    def bound(self, distance: float) -> Displaced | None:
        """The factor at that displacement; ``None`` if the ball's margin is too narrow or wide."""
        off = self.point + self.outside
        margin = (distance - off - self.point) * (1 - 2.0**-50)
        if not off < margin < self.radius / 4:
            return None
        # The density along a ray is r^(d - 1) exp(-U), whose logarithm changes at most at this
        # rate.
        rate = (self.d - 1) / (self.radius - margin) + self.steepness
        moved = off / margin * math.exp(min(rate * (margin + off), 700.0))
        if not moved < 0.5:
            return None
        return Displaced(2 * self.gap + 2 * math.atanh(moved), distance)
