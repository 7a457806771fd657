"""Normal and exponential numbers on a fine grid with unbounded tails, for exact samplers.

Ordinary generators stop somewhere (the usual normal ones at 8 to 13 deviations), and are off by an
error that nobody states. A pure promise is about all events, so the end of a tail is enough to
break it. These numbers are the rounding of exact draws (`dpfit.noise.rounded`): each is within
``FINENESS``, or ``COARSENESS``, of a variable that has precisely the law. (Normal numbers beyond
2**17, exponential ones beyond 2**23 are also rounded to 53 bits.)

They are still floats: never to be added to data and released. That is what `dpfit.noise.additive`
is for.
"""

from __future__ import annotations

import numpy as np

from dpfit.noise.laws import Gaussian, Laplace
from dpfit.noise.rounded import rounded
from dpfit.noise.source import Floats, Size, Source

_NORMAL_STEPS = 2.0**36
"""In a unit: as many as floating point decides without the help of multiprecision in nearly all
draws.
"""
_EXPONENTIAL_STEPS = 2.0**30
"""Fewer, so that the largest number that is not cut is larger."""

FINENESS = 0.5 / _NORMAL_STEPS
COARSENESS = 0.5 / _EXPONENTIAL_STEPS
LARGEST = 2.0**31
"""Beyond it exponential numbers may be cut, normal ones beyond 2**25."""


def fine_gaussian(size: Size, source: Source) -> Floats:
    """Draw standard normal numbers within ``FINENESS`` of exact ones.

    Examples
    --------
    >>> drawn = fine_gaussian(3, Source())
    >>> bool(np.all(drawn * 2**36 == np.rint(drawn * 2**36)))
    True
    """
    return np.asarray(rounded(Gaussian(), _NORMAL_STEPS, size, source) / _NORMAL_STEPS)


def fine_exponential(size: Size, source: Source) -> Floats:
    """Draw numbers with density exp(-x), within ``COARSENESS`` of exact ones.

    The chance that such a number is at least g is exp(-g) up to a factor of exp(2 * COARSENESS +
    2**-53 * g), for every g up to ``LARGEST``. (A uniform number of 53 bits that is compared with
    exp(-g) is wrong from g = 36 on.)

    Examples
    --------
    >>> bool(np.all(fine_exponential(3, Source()) >= 0))
    True
    """
    return np.asarray(
        np.abs(rounded(Laplace(), _EXPONENTIAL_STEPS, size, source)) / _EXPONENTIAL_STEPS
    )
