"""The privacy of the last iterate of a noisy contraction: energy of a lower convex hull.

U_k = f_k(U_{k-1}) + sigma_k N(0, I) for k = 1..K, where f_k is c_k-Lipschitz and two neighbouring
data sets have maps that are at most s_k apart. With w_k = c_{k+1} ... c_K, the points (sum of (w_i
sigma_i)**2, sum of w_i s_i) over i <= k have a greatest convex minorant; the sum of slope**2 *
width over its edges is mu**2 for U_K alone. It never exceeds the sum of (s_k / sigma_k)**2, which
is what the whole trajectory costs.

Reference: [LD] Lemma I.2, replaced by an exact statement: docs/explanation/trajectory.md, Theorem 2
("shifted interpolation"; Bok, Su and Altschuler 2024 for constant coefficients). What it does not
cover: averages, momentum, several iterates, maps without a Lipschitz constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfit.privacy.validate import positive

_SLACK = 1 + 2.0**-30
"""More than all rounding errors of the sums below, for up to 2**20 steps."""


def trajectory_mu(shift: ArrayLike, noise: ArrayLike) -> float:
    """The GDP parameter of all iterates together: the root of the sum of (shift / noise)**2.

    >>> trajectory_mu([0.3, 0.4], [1.0, 1.0]) >= 0.5
    True
    """
    s, sigma = _columns(shift, noise)
    return math.sqrt(math.fsum((s / sigma) ** 2)) * _SLACK


def last_iterate_mu(
    contraction: ArrayLike, shift: ArrayLike, noise: ArrayLike, *, diameter: float | None = None
) -> float:
    """The GDP parameter of the last iterate alone.

    ``diameter`` bounds the set that every iterate is mapped into after its noise (by a 1-Lipschitz
    map); the start is public. Constant coefficients c < 1 have a closed form:

    >>> c, s, K = 0.9, 1.0, 30
    >>> closed = s * math.sqrt((1 - c**K) * (1 + c) / ((1 + c**K) * (1 - c)))
    >>> round(last_iterate_mu([c] * K, [s] * K, [1.0] * K), 6) == round(closed, 6) == 4.177876
    True
    """
    c, s, sigma = _columns(contraction, shift, noise)
    if len(c) > 2**20:
        raise ValueError("the accountant is proven for at most 2**20 steps")
    # In units of the last noise, by a power of two: squares of very small noise would be lost, and
    # the price with them.
    _, exponent = math.frexp(float(sigma[-1]))
    with np.errstate(over="ignore", under="ignore"):
        s, sigma = np.ldexp(s, -exponent), np.ldexp(sigma, -exponent)
    energy = _hull_energy(*_points(c, s, sigma), 0.0)
    if diameter is not None:
        span = float(np.ldexp(positive("diameter", diameter), -exponent))
        # Any set of restarts is sound; a geometric one costs O(K log K) and loses little.
        for last in _geometric(len(c) - 1):
            times, sums = _points(c[-last:], s[-last:], sigma[-last:])
            energy = min(energy, _hull_energy(times, sums, span * float(np.prod(c[-last:]))))
    return math.sqrt(energy) * _SLACK


def _columns(*columns: ArrayLike) -> list[NDArray[np.float64]]:
    arrays = [np.asarray(column, dtype=np.float64) for column in columns]
    if any(a.ndim != 1 or a.shape != arrays[0].shape for a in arrays) or not len(arrays[0]):
        raise ValueError("give one number per step in each column, and at least one step")
    if (
        not all(np.isfinite(a).all() and (a >= 0).all() for a in arrays)
        or not (arrays[-1] > 0).all()
    ):
        raise ValueError(
            "contractions and shifts are finite and at least 0, noise is finite and above 0"
        )
    return arrays


def _points(
    c: NDArray[np.float64], s: NDArray[np.float64], sigma: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The times and sums; steps whose weight underflows are dropped, without visible effect."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        weights = np.append(np.cumprod(c[:0:-1])[::-1], 1.0)
        increments = (weights * sigma) ** 2
        times, sums = np.cumsum(increments), np.cumsum(weights * s)
    # Differences of these sums are accurate if no increment is lost in its sum.
    if not np.isfinite([times, sums]).all() or (increments < 2.0**-21 * times).any():
        raise ValueError(
            "the noise or the expansion of the steps is too uneven; account for the trajectory "
            "instead"
        )
    return times, sums


def _hull_energy(times: NDArray[np.float64], sums: NDArray[np.float64], offset: float) -> float:
    """Energy of the greatest convex minorant of the origin and points (times, offset + sums)."""
    hull: list[tuple[float, float]] = [(0.0, 0.0)]
    for point in zip(times.tolist(), (offset + sums).tolist(), strict=True):
        if point[0] <= hull[-1][0]:
            continue
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) >= _slope(hull[-2], point):
            hull.pop()
        hull.append(point)
    return math.fsum((b[1] - a[1]) ** 2 / (b[0] - a[0]) for a, b in pairwise(hull))


def _slope(a: tuple[float, float], b: tuple[float, float]) -> float:
    return (b[1] - a[1]) / (b[0] - a[0])


def _geometric(most: int) -> Sequence[int]:
    """About 24 numbers per octave from 1 to ``most``."""
    if most < 1:
        return ()
    steps = np.unique(np.round(2.0 ** np.arange(0, math.log2(most) + 1e-9, 1 / 24)).astype(int))
    return [int(k) for k in np.append(steps, most) if 1 <= k <= most]
