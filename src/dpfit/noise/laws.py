"""Symmetric laws of noise on the line, each known by the survival function of its magnitude."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy import special

from dpfit.noise.source import Floats

Multiprecision = Any
"""A number of mpmath, whose types are not annotated."""


class Law(Protocol):
    """A symmetric law of scale one with a log-concave density.

    Floating point evaluates `quantile`, which proposes a draw; multiprecision evaluates `survival`,
    which decides it where floating point cannot. A log-concave density has an increasing hazard
    rate, so the quantile moves by at most ``steepness / u`` per unit of the tail probability ``u``,
    where ``1 / steepness`` is the hazard rate at zero.
    """

    @property
    def error(self) -> float:
        """A bound on the relative error of `quantile` in floating point, for the float ``u``."""
        ...

    @property
    def steepness(self) -> float:
        """The inverse of the density of the magnitude at zero."""
        ...

    def quantile(self, tail: Floats) -> Floats:
        """Return the ``x`` with ``P(abs(X) > x) = tail``."""
        ...

    def survival(self, x: Multiprecision, context: Multiprecision) -> Multiprecision:
        """Return ``P(abs(X) > x)`` to the precision of the context."""
        ...


@dataclass(frozen=True)
class Laplace:
    """The law with density exp(-abs(x)) / 2.

    Examples
    --------
    >>> round(float(Laplace().quantile(np.array(0.1))), 4)
    2.3026
    """

    error = 2.0**-49
    steepness = 1.0

    def quantile(self, tail: Floats) -> Floats:
        return np.asarray(-np.log(tail))

    def survival(self, x: Multiprecision, context: Multiprecision) -> Multiprecision:
        return context.exp(-x)


@dataclass(frozen=True)
class Gaussian:
    """The standard normal law.

    Examples
    --------
    >>> round(float(Gaussian().quantile(np.array(0.05))), 4)
    1.96
    """

    error = 2.0**-47
    steepness = 1.2534

    def quantile(self, tail: Floats) -> Floats:
        return np.asarray(-special.ndtri(0.5 * tail))

    def survival(self, x: Multiprecision, context: Multiprecision) -> Multiprecision:
        return context.erfc(x / context.sqrt(2))


@dataclass(frozen=True)
class GeneralizedGaussian:
    """The law with density prop. to exp(-abs(x)**shape), for a shape of at least one.

    Shape one is the Laplace law, shape two is normal with variance one half. The magnitude is a
    power of a Gamma variable: ``abs(X)**shape`` has the law Gamma(1/shape).

    Examples
    --------
    >>> bool(np.isclose(GeneralizedGaussian(1.0).quantile(np.array(0.1)), -np.log(0.1)))
    True
    """

    shape: float

    error = 2.0**-42
    steepness = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.shape <= 100:
            raise ValueError(f"shape must lie between 1 and 100, got {self.shape!r}")

    def quantile(self, tail: Floats) -> Floats:
        linear = (1 - tail) * math.gamma(1 + 1 / self.shape)
        with np.errstate(under="ignore"):
            power = special.gammainccinv(1 / self.shape, tail) ** (1 / self.shape)
            # Near zero the density is flat to one part in 2**60, where the Gamma quantile would
            # underflow.
            flat = linear**self.shape < 2.0**-60
        return np.asarray(np.where(flat, linear, power))

    def survival(self, x: Multiprecision, context: Multiprecision) -> Multiprecision:
        shape = context.mpf(self.shape)
        return gamma_survival(1 / shape, x**shape, context)


@dataclass(frozen=True)
class Uniform:
    """The uniform law on [-1, 1].

    Examples
    --------
    >>> float(Uniform().quantile(np.array(0.25)))
    0.75
    """

    error = 2.0**-52
    steepness = 1.0

    def quantile(self, tail: Floats) -> Floats:
        return np.asarray(1 - tail)

    def survival(self, x: Multiprecision, context: Multiprecision) -> Multiprecision:
        return max(1 - x, context.zero)


def gamma_survival(
    shape: Multiprecision, x: Multiprecision, context: Multiprecision
) -> Multiprecision:
    """Return the probability that a Gamma(shape) variable exceeds ``x``.

    Examples
    --------
    >>> context = precision(100)
    >>> context.nstr(gamma_survival(1, context.mpf(2), context), 5) == context.nstr(
    ...     context.exp(-2), 5
    ... )
    True
    """
    if x < 1:
        # The lower tail has a short series here, and the subtraction loses no more than a dozen
        # bits.
        return 1 - context.gammainc(shape, 0, x, regularized=True)
    return context.gammainc(shape, x, regularized=True)


# One multiprecision context for each thread: the global one of mpmath is shared by all of them.
_own = threading.local()


def precision(bits: int) -> Multiprecision:
    """Return this thread's multiprecision context, set to the given number of bits.

    Examples
    --------
    >>> precision(200).prec
    200
    """
    if not hasattr(_own, "context"):
        # Few draws need it, and it would add a tenth to the time of importing dpfit.
        import mpmath

        _own.context = mpmath.MPContext()
    _own.context.prec = bits
    return _own.context
