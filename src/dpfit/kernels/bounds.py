"""Public bounds that the compiled loops enforce on every record.

A record is a row ``x`` and, for most losses, a label ``y``. Before anything is computed from it, it
is repaired into the declared bounds, so that the constants of a loss hold for any input:

- a row with an entry that is not finite, or whose label is not finite, becomes the neutral record:
  ``x = 0`` with label 0 clamped to the label bounds (+1 for binary labels);
- each entry of ``x`` is clamped to ``[-row_max, row_max]`` (`dpfit.kernels.rows.clamped`);
- then ``x`` is scaled into the ball of radius `row_norm`, which makes no entry larger; labels are
  clamped or mapped to +-1;
- a gradient ``slope * x`` is scaled into the ball of radius `clip`.

None of this depends on other records, nor on the position of the record.

Why the bounds hold for floating-point numbers
----------------------------------------------
Let ``u = 2**-53``. The squared norm of a row is a sum of ``d`` products, so that its relative error
is at most ``gamma(d + 1) = (d + 1) u / (1 - (d + 1) u)`` in any order of summation, with or without
fused operations; underflow is excluded by rescaling rows whose squared norm is outside of
``[2**-900, inf)``. The square root halves the error and adds ``u``; the quotient, the coefficient,
the product with an entry and the rounding of the shrunk bound itself add at most ``8 u`` more. So
it is enough to aim at ``bound * (1 - (d + 16) u)``, which is what `limits` does: the real number
``norm(coefficient * x)`` is at most ``bound``, with no "up to rounding".
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypedDict, Unpack

from dpfit.losses.compiled import compiled

_LEAST, _MOST = 1e-100, 1e100


class Guards(TypedDict, total=False):
    """The public bounds that a pass enforces; a missing one is no bound.

    Attributes
    ----------
    row_norm
        Radius of the l2 ball that rows are scaled into.
    row_max
        Bound on the absolute entries of rows, which are clamped one by one.
    clip
        Bound on the l2 norm of each record's gradient.
    label_lower, label_upper
        The interval that labels are clamped to.
    binary
        Whether labels are mapped to +1 (if positive) and -1 (if not).
    """

    row_norm: float
    row_max: float
    clip: float
    label_lower: float
    label_upper: float
    binary: bool


class Limits(NamedTuple):
    """Guards for compiled loops: radii shrunk by a bound on their own rounding errors.

    `dpfit.kernels.rows.pieces` enforces ``row_max`` before a loop sees a row.
    """

    row_norm: float
    clip: float
    lower: float
    upper: float
    binary: bool


def limits(terms: int, **guards: Unpack[Guards]) -> Limits:
    """Validate public bounds and shrink the radii by ``(terms + 16) * 2**-53``.

    Parameters
    ----------
    terms
        Number of products that are summed in a norm.
    **guards
        See `Guards`.

    Examples
    --------
    >>> limits(3, row_norm=2.0).row_norm < 2.0, limits(3).clip
    (True, inf)
    """
    if unknown := guards.keys() - Guards.__annotations__.keys():
        raise TypeError(f"there is no guard named {', '.join(sorted(unknown))}")
    lower, upper = (
        float(guards.get("label_lower", -math.inf)),
        float(guards.get("label_upper", math.inf)),
    )
    if not lower <= upper or lower == math.inf or upper == -math.inf:
        raise ValueError(f"label bounds must be an interval, got [{lower!r}, {upper!r}]")
    most_entry(guards)
    return Limits(
        _shrunk("row_norm", guards.get("row_norm", math.inf), terms),
        _shrunk("clip", guards.get("clip", math.inf), terms),
        lower,
        upper,
        bool(guards.get("binary", False)),
    )


def most_entry(guards: Guards) -> float:
    """Return the bound on the absolute entries of rows; infinite if there is none."""
    return _magnitude("row_max", guards.get("row_max", math.inf))


def _shrunk(name: str, bound: float, terms: int) -> float:
    return _magnitude(name, bound) * (1.0 - (terms + 16) * 2.0**-53)


def _magnitude(name: str, bound: float) -> float:
    bound = float(bound)
    # Beyond these magnitudes products could underflow, and the proof with them.
    if not (bound == math.inf or _LEAST <= bound <= _MOST):
        raise ValueError(f"{name} must be infinite or in [{_LEAST}, {_MOST}], got {bound!r}")
    return bound


@compiled(error_model="numpy", forceinline=True)
def guarded(
    scale: float, inner: float, norm: float, label: float, limits: Limits
) -> tuple[float, float, float]:
    """Return ``(factor, margin, label)`` of the repaired record, row ``factor * (scale * x)``.

    The factor of the neutral record is zero.
    """
    # Without branches, so that several records can be guarded at once.
    finite = (norm < math.inf) & (abs(label) < math.inf)
    factor = min(1.0 / scale, limits.row_norm * (1.0 / norm)) if finite else 0.0
    margin = factor * inner if finite else 0.0
    known = label if finite else (1.0 if limits.binary else 0.0)
    if limits.binary:
        return factor, margin, 2.0 * (known > 0.0) - 1.0
    return factor, margin, min(max(known, limits.lower), limits.upper)


@compiled(error_model="numpy", forceinline=True)
def clipped(slope: float, factor: float, norm: float, clip: float) -> float:
    """Return the clipped coefficient of ``scale * x`` in ``slope * factor * (scale * x)``.

    Examples
    --------
    >>> (
    ...     clipped(3.0, 1.0, 2.0, math.inf),
    ...     clipped(-3.0, 1.0, 2.0, 1.0),
    ...     clipped(math.nan, 1.0, 2.0, 1.0),
    ... )
    (3.0, -0.5, 0.0)
    """
    # A slope that overflowed still has a sign; one that is not a number, or of the neutral record,
    # has no say. Taking a minimum instead of a decision matters for speed: whether a record is
    # clipped is as hard to predict as data is.
    weight = min(abs(slope) * factor, clip * (1.0 / norm))
    return math.copysign(weight, slope) if weight > 0.0 else 0.0
