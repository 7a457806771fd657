"""Continuous laws rounded to the integers, drawn exactly.

A draw is the rounding of ``scale * quantile(u)`` for a uniform number ``u`` with endless binary
digits. Floating point sees the first 63 digits, or fewer where those are enough for most draws, and
proposes; an enclosure of everything it does not know decides whether the proposal stands. Near a
rounding boundary it does not, and the boundary's survival probability is compared with ``u`` in
multiprecision, drawing further digits until the two differ. So the output has the law of the
rounded real number, as far as the error bounds in `dpfit.noise.laws` and multiprecision hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy import special

from dpfit.noise.lattice import LIMIT
from dpfit.noise.laws import (
    Gaussian,
    GeneralizedGaussian,
    Law,
    Multiprecision,
    Uniform,
    gamma_survival,
    precision,
)
from dpfit.noise.source import Flags, Floats, Size, Source, Steps, Words, whole
from dpfit.noise.tabulated import tabulated

LARGEST_SCALE = 2.0**50
SMALLEST_SCALE = 2.0**-20

NEAREST = 0.5
DOWN = 1.0
"""Where rounding passes from ``m`` to ``m + 1``: at ``m + NEAREST`` or ``m + DOWN``."""

_DIGITS = 63
"""Digits that floating point sees at most: a word without the bit that is the sign."""

_MANY = 2**12
_BLOCK = 2**13

# Multiprecision works with 64 more bits than are compared, and trusts all but the last 32.
_GUARD = 64
_TRUSTED = 32


def rounded(law: Law, scale: float, size: Size, source: Source) -> Steps:
    """Draw ``rint(scale * X)`` for independent ``X`` of the given law.

    Adding the result to an integer is the same as rounding the integer plus ``scale * X``. So a
    release made with it is post-processing of the continuous mechanism and inherits its privacy
    curve.

    Parameters
    ----------
    law
        `Laplace()`, `Gaussian()` or `GeneralizedGaussian(shape)`.
    scale
        The scale of the noise, in steps of the grid.
    size
        The shape of the result.
    source
        Where the bits come from.

    Examples
    --------
    >>> from dpfit.noise.laws import Laplace
    >>> rounded(Laplace(), 10.0, 4, Source(random_state=1)).dtype
    dtype('int64')
    """
    return signed(law, ExactScale(checked_scale(scale)), NEAREST, source.words(size), source)


def rounded_l2_laplace(scale: float, dimension: int, source: Source) -> Steps:
    """Draw from density prop. to exp(-norm(x) / scale), each coordinate rounded to integer.

    The law is a mixture of normal laws: ``scale * sqrt(V) * Z`` with ``V`` chi-square with
    ``dimension + 1`` degrees of freedom and ``Z`` standard normal, because
    ``exp(-r) = integral of exp(-r**2 / (2 v)) exp(-v / 2) / sqrt(2 pi v) dv``, and the normal
    density's factor ``v**(-dimension / 2)`` is made up for by that of the chi-square law. Given
    ``V`` the coordinates are independent, so a doubtful one is decided without looking at the
    others.

    Examples
    --------
    >>> rounded_l2_laplace(10.0, 3, Source(random_state=1)).shape
    (3,)
    """
    dimension = whole("dimension", dimension, 1)
    mixture = MixtureScale(checked_scale(scale), dimension, source)
    return signed(Gaussian(), mixture, NEAREST, source.words(dimension), source)


def rounded_linf_laplace(scale: float, dimension: int, source: Source) -> Steps:
    """Draw from density prop. to exp(-max(abs(x)) / scale), coordinates rounded to integer.

    The law is a mixture of uniform laws on cubes: ``scale * G * U`` with ``G`` of law
    Gamma(dimension + 1) and ``U`` uniform on ``[-1, 1]**dimension``, because ``exp(-r) = integral
    from r of exp(-g) dg`` and the cube of half-width ``g`` has volume prop. to ``g**dimension``.
    Given ``G`` the coordinates are independent.

    Examples
    --------
    >>> rounded_linf_laplace(10.0, 3, Source(random_state=1)).shape
    (3,)
    """
    dimension = whole("dimension", dimension, 1)
    width = CubeScale(checked_scale(scale), dimension, source)
    return signed(Uniform(), width, NEAREST, source.words(dimension), source)


def checked_scale(scale: float) -> float:
    if not SMALLEST_SCALE <= scale <= LARGEST_SCALE:
        raise ValueError(
            f"scale must lie between 2**-20 and 2**50 steps of the grid, got {scale!r}: "
            "choose another grid or another noise_multiplier"
        )
    return float(scale)


class Digits:
    """A uniform number of (0, 1), known by its first binary digits; more are drawn when needed.

    Examples
    --------
    >>> half = Digits(1, 1, Source())
    >>> half.extend()
    >>> half.length
    65
    """

    def __init__(self, known: int, length: int, source: Source) -> None:
        self.known = known
        self.length = length
        self._source = source

    def extend(self) -> None:
        self.known = self.known << 64 | int(self._source.words(1)[0])
        self.length += 64

    def enclosure(self, context: Multiprecision) -> tuple[Multiprecision, Multiprecision]:
        """Return the smallest and the largest number that begins with the known digits."""
        return context.ldexp(self.known, -self.length), context.ldexp(self.known + 1, -self.length)

    def below(
        self, bounds: Callable[[Multiprecision], tuple[Multiprecision, Multiprecision]]
    ) -> bool:
        """Decide whether the number is smaller than a real number.

        `bounds` encloses that number to the precision of the context that it is given; it may be
        called more than once, each time with a higher precision.
        """
        while True:
            context = precision(self.length + _GUARD)
            smallest, largest = self.enclosure(context)
            lower, upper = bounds(context)
            slack = context.ldexp(1, -self.length - _TRUSTED)
            if largest <= lower * (1 - slack):
                return True
            if smallest >= upper * (1 + slack):
                return False
            self.extend()


class Scale(Protocol):
    """A positive noise factor: known exactly, or drawn and refined as needed."""

    @property
    def value(self) -> float: ...

    @property
    def error(self) -> float:
        """A bound on the relative error of `value`."""
        ...

    def enclosure(self, context: Multiprecision) -> tuple[Multiprecision, Multiprecision]:
        """Return bounds that become tight as the precision of the context grows."""
        ...


@dataclass(frozen=True)
class ExactScale:
    """A scale that is a float, taken for the rational number that it is.

    Examples
    --------
    >>> ExactScale(1.5).error
    0.0
    """

    value: float
    error: float = 0.0

    def enclosure(self, context: Multiprecision) -> tuple[Multiprecision, Multiprecision]:
        exact = context.mpf(self.value)
        return exact, exact


class MixtureScale:
    """The random scale ``scale * sqrt(V)``, V chi-square with ``dimension + 1`` degrees.

    ``V / 2`` has the law Gamma((dimension + 1) / 2) and is the quantile of a uniform number. Every
    enclosure of it is confirmed by survival probabilities of its two ends, so no inverse function
    is trusted.

    Examples
    --------
    >>> MixtureScale(1.0, 5, Source(random_state=1)).error < 2.0**-39
    True
    """

    _QUANTILE_ERROR = 2.0**-42
    _LARGEST_SHAPE = 1e5
    """Above it the float quantile may err by more than that in its lower tail: 1e-9 at a shape of a
    million.
    """

    def __init__(self, scale: float, dimension: int, source: Source) -> None:
        self._scale = scale
        self._shape = self._gamma_shape(dimension)
        self._digits = Digits(int(source.words(1)[0]), 64, source)
        self._proposal = float(
            special.gammainccinv(self._shape, (self._digits.known + 0.5) * 2.0**-64)
        )
        self._refined: tuple[int, Multiprecision, Multiprecision] | None = None
        self.value = float(self._of_gamma(self._proposal, math.sqrt))
        self.error = self._float_error()
        if dimension * self.value * self.error > 1:
            # Several coordinates would be doubtful, and each is dearer than knowing their scale
            # better.
            self._sharpen()

    @staticmethod
    def _gamma_shape(dimension: int) -> float:
        return (dimension + 1) / 2

    def _of_gamma(
        self, gamma: Multiprecision, sqrt: Callable[[Multiprecision], Multiprecision]
    ) -> Multiprecision:
        """The scale, increasing in the Gamma variable, with at most its relative error."""
        return self._scale * sqrt(2 * gamma)

    def _sharpen(self) -> None:
        low, high = self.enclosure(precision(self._digits.length + _GUARD))
        if low > 0:
            self.value = float((low + high) / 2)
            self.error = float((high - low) / low) + 2.0**-50

    def _float_error(self) -> float:
        known = self._digits.known
        if self._shape > self._LARGEST_SHAPE or not 2**24 <= known < 2**64 - 2**24:
            return math.inf
        ends = np.array(
            [math.nextafter(known * 2.0**-64, 0), math.nextafter((known + 1) * 2.0**-64, 1)]
        )
        high, low = special.gammainccinv(self._shape, ends) / self._proposal
        # Four times the error of a quantile covers the three quantiles involved and the rounding of
        # the scale itself.
        return float(max(high - 1, 1 - low)) + 4 * self._QUANTILE_ERROR

    def enclosure(self, context: Multiprecision) -> tuple[Multiprecision, Multiprecision]:
        # A uniform number that may be zero has an unbounded quantile.
        while self._digits.length < context.prec - _GUARD or self._digits.known == 0:
            self._digits.extend()
        if self._refined is None or self._refined[0] < self._digits.length:
            self._refined = (self._digits.length, *self._gamma_enclosure())
            context.prec = self._digits.length + _GUARD
        _, low, high = self._refined
        return self._of_gamma(low, context.sqrt), self._of_gamma(high, context.sqrt)

    def _gamma_enclosure(self) -> tuple[Multiprecision, Multiprecision]:
        """Enclose the Gamma variable to about as many digits as are known of its uniform number."""
        context = precision(self._digits.length + _GUARD)
        smallest, largest = self._digits.enclosure(context)
        centre, density = self._gamma_quantile((smallest + largest) / 2, context)
        slack = context.ldexp(1, -self._digits.length - _TRUSTED)
        width = (largest - smallest) / density + centre * slack
        while True:
            low, high = centre - width, centre + width
            covered_above = gamma_survival(self._shape, high, context) * (1 + slack) <= smallest
            covered_below = (
                low <= 0 or gamma_survival(self._shape, low, context) * (1 - slack) >= largest
            )
            if covered_above and covered_below:
                return max(low, context.zero), high
            width *= 2

    def _gamma_quantile(
        self, tail: Multiprecision, context: Multiprecision
    ) -> tuple[Multiprecision, Multiprecision]:
        """Return the quantile of a tail probability, and the density there.

        Newton's method on the cumulative hazard ``-log(survival)``, which is convex for shapes of
        at least one, converges from everywhere.
        """
        shape = context.mpf(self._shape)
        log_constant = context.loggamma(shape)
        x = context.mpf(self._proposal or self._shape)
        while True:
            survival = gamma_survival(shape, x, context)
            density = context.exp((shape - 1) * context.log(x) - x - log_constant)
            if abs(survival - tail) <= context.ldexp(1, -self._digits.length):
                return x, density
            move = context.log(survival / tail) * survival / density
            x = x + move if x + move > 0 else x / 2


class CubeScale(MixtureScale):
    """The random half-width ``scale * G`` of a cube, with ``G`` of law Gamma(dimension + 1).

    Examples
    --------
    >>> CubeScale(1.0, 5, Source(random_state=1)).error < 2.0**-39
    True
    """

    @staticmethod
    def _gamma_shape(dimension: int) -> float:
        return dimension + 1.0

    def _of_gamma(
        self, gamma: Multiprecision, sqrt: Callable[[Multiprecision], Multiprecision]
    ) -> Multiprecision:
        return self._scale * gamma


def signed(law: Law, scale: Scale, boundary: float, words: Words, source: Source) -> Steps:
    """Turn each word into a sign (last bit) and a rounded magnitude (its other bits)."""
    magnitude = magnitudes(law, scale, boundary, words >> np.uint64(1), source)
    return np.where(words & np.uint64(1), -magnitude, magnitude)


def magnitudes(
    law: Law,
    scale: Scale,
    boundary: float,
    digits: npt.NDArray[np.unsignedinteger],
    source: Source,
    length: int = _DIGITS,
) -> Steps:
    """Round ``scale * quantile(u)`` down or to nearest, for ``u`` by its first digits.

    With fewer than 63 of them, more are drawn for the numbers that need them.
    """
    flat = digits.reshape(-1)
    draft = _draft(law, flat.size)
    rounded, doubtful = np.empty(flat.size, dtype=np.int64), np.empty(flat.size, dtype=np.bool_)
    # In blocks that stay in the processor's cache.
    for start in range(0, flat.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        rounded[block], doubtful[block] = _propose(draft, scale, boundary, flat[block], length)
    unsure = np.flatnonzero(doubtful)
    longer = flat[unsure].astype(np.uint64)
    if length < _DIGITS:
        more = source.words(unsure.size) >> np.uint64(64 - (_DIGITS - length))
        longer = longer << np.uint64(_DIGITS - length) | more
    if length < _DIGITS or draft is not law:
        rounded[unsure], doubtful = _propose(law, scale, boundary, longer, _DIGITS)
        unsure, longer = unsure[doubtful], longer[doubtful]
    for i, known in zip(unsure, longer, strict=True):
        rounded[i] = _decide(
            law, scale, boundary, int(rounded[i]), Digits(int(known), _DIGITS, source)
        )
    return rounded.reshape(digits.shape)


def _draft(law: Law, draws: int) -> Law:
    """A faster but less decisive law, where one exists and enough draws justify its table."""
    if isinstance(law, GeneralizedGaussian) and draws >= _MANY:
        return tabulated(law.shape)
    return law


def _propose(
    law: Law, scale: Scale, boundary: float, digits: npt.NDArray[np.unsignedinteger], length: int
) -> tuple[Steps, Flags]:
    """Return the rounded magnitudes in floating point, and where their enclosure meets a boundary.

    A number ``u`` whose digits are ``h`` is between ``h`` and ``h + 1`` units of ``2**-length``.
    The quantile moves by at most ``steepness`` as ``log(u)`` moves by one, which is within ``1 / (h
    + 1/2)`` of the middle's if ``h >= 1``.
    """
    tail: Floats = digits.astype(np.float64)
    tail += 0.5
    tail *= 2.0**-length
    magnitude = law.quantile(tail)
    magnitude *= scale.value
    # A scale of unknown error makes this infinite or NaN, and no proposal certain.
    with np.errstate(invalid="ignore"):
        half_width = (law.error + scale.error) * magnitude
    # Making `tail` a float rounds twice, which is allowed double.
    half_width += scale.value * law.steepness * 2.0**-51
    half_width += np.divide(scale.value * law.steepness * 2.0**-length, tail, out=tail)
    magnitude -= boundary - NEAREST
    nearest = np.rint(magnitude)
    magnitude -= nearest
    within = np.subtract(NEAREST, np.abs(magnitude, out=magnitude), out=magnitude)
    # Quantiles are trusted for tail probabilities of at least 2**-40.
    certain = (within > half_width) & (digits >= max(2**8, 2 ** (length - 40)))
    return np.minimum(nearest, 2.0 * LIMIT, out=nearest).astype(np.int64), ~certain


def _decide(law: Law, scale: Scale, boundary: float, guess: int, digits: Digits) -> int:
    """Find the integer to which the magnitude is rounded, starting from a guess.

    The magnitude exceeds a threshold exactly if its uniform number is below the threshold's
    survival probability. The result is the smallest integer whose upper boundary is not exceeded.
    """

    def exceeds(integer: int) -> bool:
        def survival(context: Multiprecision) -> tuple[Multiprecision, Multiprecision]:
            low, high = scale.enclosure(context)
            threshold = context.mpf(integer) + boundary
            lower = law.survival(threshold / low, context) if low > 0 else context.zero
            return lower, lower if low == high else law.survival(threshold / high, context)

        return digits.below(survival)

    exceeded, reached, stride = guess - 1, guess, 1
    while exceeds(reached):
        exceeded, reached, stride = reached, reached + stride, 2 * stride
    while exceeded >= 0 and not exceeds(exceeded):
        reached, exceeded, stride = exceeded, exceeded - stride, 2 * stride
    exceeded = max(exceeded, -1)
    while reached - exceeded > 1:
        middle = (reached + exceeded) // 2
        if exceeds(middle):
            exceeded = middle
        else:
            reached = middle
    # Beyond twice the limit, every sum with a value within the limit saturates alike.
    return min(reached, 2 * LIMIT)
