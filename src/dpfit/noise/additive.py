"""Noise added to values, safe against attacks on floating point.

Each function rounds the values to a power-of-two grid, adds noise that is an integer number of
steps, and returns the sum, which is exact. See docs/explanation/noise.md for the argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dpfit.noise.lattice import LIMIT, Grid, Norm, clamp
from dpfit.noise.laws import Gaussian, GeneralizedGaussian, Laplace, Law
from dpfit.noise.rounded import rounded, rounded_l2_laplace, rounded_linf_laplace
from dpfit.noise.source import Floats, Source, Steps


def add_laplace(
    values: npt.ArrayLike,
    *,
    l1_sensitivity: float,
    noise_multiplier: float,
    source: Source,
    grid: Grid | None = None,
) -> Floats:
    """Add independent Laplace noise of scale ``noise_multiplier * l1_sensitivity``.

    The release is epsilon-DP with epsilon = 1 / noise_multiplier, and keeps the whole privacy curve
    of the continuous Laplace mechanism: it is that mechanism applied to the rounded values, then
    rounded. The rounding of the values is charged to the sensitivity, so the noise is at most
    0.013% larger.

    Parameters
    ----------
    values
        Numbers, rounded to the grid here; or integers (int64), taken for steps of `grid`, in which
        case `grid` is required and the sensitivity must include what rounding them has cost.
    l1_sensitivity
        The largest l1 distance of the values of two neighbouring data sets.
    noise_multiplier
        The scale of the noise divided by the sensitivity.
    source
        Where the randomness comes from.
    grid
        The grid of the outputs; by default `Grid.fitting` for this sensitivity, or scale of noise
        if that is smaller, and dimension.

    Returns
    -------
    Multiples of the grid's step, in the shape of the values. Sums beyond ``2**61`` steps saturate.

    Examples
    --------
    >>> noisy = add_laplace([3.0, 4.0], l1_sensitivity=1.0, noise_multiplier=2.0, source=Source())
    >>> noisy.shape
    (2,)
    """
    _require_positive("l1_sensitivity", l1_sensitivity)
    return _add(
        values, _coordinatewise(Laplace()), l1_sensitivity, "l1", noise_multiplier, source, grid
    )


def add_gaussian(
    values: npt.ArrayLike,
    *,
    l2_sensitivity: float,
    noise_multiplier: float,
    source: Source,
    grid: Grid | None = None,
) -> Floats:
    """Add independent normal noise of standard deviation ``noise_multiplier * l2_sensitivity``.

    The release is mu-GDP with mu = 1 / noise_multiplier: the noise is the continuous normal law
    rounded to the grid, so the curve is that of the continuous mechanism, not of a discrete
    Gaussian. The other parameters, the rounding and the result are as in `add_laplace`.

    Examples
    --------
    >>> noisy = add_gaussian(
    ...     np.zeros((2, 3)), l2_sensitivity=1.0, noise_multiplier=2.0, source=Source()
    ... )
    >>> noisy.shape
    (2, 3)
    """
    _require_positive("l2_sensitivity", l2_sensitivity)
    return _add(
        values, _coordinatewise(Gaussian()), l2_sensitivity, "l2", noise_multiplier, source, grid
    )


def add_l2_laplace(
    values: npt.ArrayLike,
    *,
    l2_sensitivity: float,
    noise_multiplier: float,
    source: Source,
    grid: Grid | None = None,
) -> Floats:
    """Add one noise vector of density prop. to exp(-norm(x) / scale), norm over all values.

    The scale is ``noise_multiplier * l2_sensitivity``. The release is epsilon-DP with
    epsilon = 1 / noise_multiplier. The other parameters, the rounding and the result are as in
    `add_laplace`.

    Examples
    --------
    >>> noisy = add_l2_laplace(
    ...     [3.0, 4.0], l2_sensitivity=1.0, noise_multiplier=2.0, source=Source()
    ... )
    >>> noisy.shape
    (2,)
    """
    _require_positive("l2_sensitivity", l2_sensitivity)
    return _add(values, rounded_l2_laplace, l2_sensitivity, "l2", noise_multiplier, source, grid)


def add_linf_laplace(
    values: npt.ArrayLike,
    *,
    linf_sensitivity: float,
    noise_multiplier: float,
    source: Source,
    grid: Grid | None = None,
) -> Floats:
    """Add one noise vector of density prop. to exp(-max(abs(x)) / scale), over all values.

    The scale is ``noise_multiplier * linf_sensitivity``. The release is epsilon-DP with
    epsilon = 1 / noise_multiplier. The other parameters, the rounding and the result are as in
    `add_laplace`.

    Examples
    --------
    >>> noisy = add_linf_laplace(
    ...     [3.0, 4.0], linf_sensitivity=1.0, noise_multiplier=2.0, source=Source()
    ... )
    >>> noisy.shape
    (2,)
    """
    _require_positive("linf_sensitivity", linf_sensitivity)
    return _add(
        values, rounded_linf_laplace, linf_sensitivity, "linf", noise_multiplier, source, grid
    )


def add_generalized_gaussian(
    values: npt.ArrayLike,
    *,
    linf_sensitivity: float,
    noise_multiplier: float,
    shape: float,
    source: Source,
    grid: Grid | None = None,
) -> Floats:
    """Add independent noise of density prop. to exp(-(abs(x) / scale)**shape), shape >= 1.

    The scale is ``noise_multiplier * linf_sensitivity``; shape two has standard deviation scale /
    sqrt(2). The release keeps the privacy curve of the continuous mechanism at this sensitivity and
    dimension. The other parameters, the rounding and the result are as in `add_laplace`.

    Examples
    --------
    >>> noisy = add_generalized_gaussian(
    ...     np.zeros(3), linf_sensitivity=1.0, noise_multiplier=2.0, shape=4.0, source=Source()
    ... )
    >>> noisy.shape
    (3,)
    """
    _require_positive("linf_sensitivity", linf_sensitivity)
    law = GeneralizedGaussian(shape)
    return _add(
        values, _coordinatewise(law), linf_sensitivity, "linf", noise_multiplier, source, grid
    )


Noise = Callable[[float, int, Source], Steps]
"""Draws a vector of noise in steps, from its scale in steps, its dimension and a source."""


def _coordinatewise(law: Law) -> Noise:
    def noise(scale: float, dimension: int, source: Source) -> Steps:
        return rounded(law, scale, dimension, source)

    return noise


def _add(
    values: npt.ArrayLike,
    noise: Noise,
    sensitivity: float,
    norm: Norm,
    noise_multiplier: float,
    source: Source,
    grid: Grid | None,
) -> Floats:
    _require_positive("noise_multiplier", noise_multiplier)
    array = np.asarray(values)
    if array.size == 0:
        return np.zeros(array.shape)
    if np.issubdtype(array.dtype, np.signedinteger):
        if grid is None:
            raise ValueError("integer values are steps of a grid: pass the grid, or pass floats")
        steps = clamp(array.astype(np.int64, copy=False), LIMIT)
        charged = sensitivity
    elif np.issubdtype(array.dtype, np.floating) and np.can_cast(array.dtype, np.float64):
        # Where there is less noise than the sensitivity, it is the noise that says how fine a grid
        # is fine enough.
        grid = grid or Grid.fitting(sensitivity * min(1.0, noise_multiplier), array.size, norm)
        steps = grid.quantize(array)
        charged = math.nextafter(sensitivity + grid.rounding(array.size, norm), math.inf)
    else:
        raise TypeError(
            f"values must be floats of at most 64 bits or signed integers, got {array.dtype}"
        )
    scale = math.nextafter(noise_multiplier * (charged / grid.step), math.inf)
    drawn = noise(scale, array.size, source).reshape(array.shape)
    # Values within LIMIT and noise within 2 * LIMIT add up in int64; what lies beyond LIMIT is cut.
    return grid.values(clamp(steps + drawn, LIMIT))


def _require_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {value!r}")
