"""Exact checks: the true curve where the output law can be computed, with no sampling error.

Guarantee: the profile is that of the given laws, up to an estimated error of quadrature; a promise
is called broken only where it is passed by more than that error. Reference:
docs/explanation/accounting.md, section 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from dpfit.audit.bounds import Floats
from dpfit.audit.currency import Currency, Epsilon, currency_of
from dpfit.audit.result import BROKEN, KEPT, Audit, Finding
from dpfit.audit.tradeoff import profile
from dpfit.privacy import Guarantee, gaussian
from dpfit.privacy.validate import non_negative, positive

_NODES = 24
_ROUNDING = 1e-12


def exact_gaussian(
    shift: float,
    sigma: float,
    guarantee: Guarantee,
    *,
    currency: str | Currency | None = None,
    delta: float = 0.0,
    subject: str = "Gaussian noise",
) -> Audit:
    """Check a claim for Gaussian noise of deviation ``sigma`` on a value shifted by ``shift``.

    >>> from dpfit.privacy import Basis, event
    >>> print(exact_gaussian(1.0, 2.0, Guarantee(event.Gaussian(2.0), Basis("Gaussian mechanism"))))
    Gaussian noise: kept; mu is 0.5 exactly, promised 0.5
    """
    mu = non_negative("shift", shift) / positive("sigma", sigma)
    epsilons = _levels(guarantee)
    # The library rounds this profile up by a relative 1e-11 and more; the comparison allows for
    # that.
    true = gaussian.delta(mu, epsilons) * (1 - 1e-9)
    return _verdict(np.stack([true, true]), 0.0, epsilons, guarantee, currency, delta, subject)


def exact_masses(
    first: ArrayLike,
    second: ArrayLike,
    guarantee: Guarantee,
    *,
    error: float = 0.0,
    currency: str | Currency | None = None,
    delta: float = 0.0,
    subject: str = "discrete law",
) -> Audit:
    """Check a promise about two discrete laws, given as probabilities of the same outcomes.

    >>> from dpfit.privacy import Basis, event
    >>> promise = Guarantee(event.Pure(1.0), Basis("randomized response"))
    >>> exact_masses([0.75, 0.25], [0.25, 0.75], promise).verdict
    'broken'
    """
    p, q = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if p.shape != q.shape or p.ndim != 1:
        raise ValueError(
            f"two lists of probabilities of the same outcomes are needed, got {p.shape} and "
            f"{q.shape}"
        )
    for masses in (p, q):
        if not (np.all(masses >= 0) and abs(float(masses.sum()) - 1) <= max(error, 1e-6)):
            raise ValueError(
                "probabilities must be non-negative and add up to 1, they add up to "
                f"{masses.sum():.6g}"
            )
    epsilons = _levels(guarantee)
    return _verdict(
        _hockey_stick(p, q, epsilons), error, epsilons, guarantee, currency, delta, subject
    )


def exact_densities(
    first: Callable[[Floats], Floats],
    second: Callable[[Floats], Floats],
    breaks: Sequence[float],
    guarantee: Guarantee,
    *,
    panels: int = 400,
    currency: str | Currency | None = None,
    delta: float = 0.0,
    subject: str = "density",
) -> Audit:
    """Check a promise about two densities on the line by Gauss-Legendre quadrature.

    ``breaks`` are the ends of the region of integration and the points where a density is not
    smooth, in order. What lies outside and what quadrature misses is estimated from coarser panels
    and the total mass, and allowed for.

    >>> from scipy.stats import laplace
    >>> from dpfit.privacy import Basis, event
    >>> promise = Guarantee(event.Laplace(2.0), Basis("Laplace mechanism"))
    >>> p, q = laplace(0.0, 2.0).pdf, laplace(1.0, 2.0).pdf
    >>> exact_densities(p, q, [-60.0, 0.0, 1.0, 60.0], promise).verdict
    'kept'
    """
    edges = np.asarray(breaks, dtype=np.float64)
    if edges.ndim != 1 or len(edges) < 2 or not bool(np.all(np.diff(edges) > 0)):
        raise ValueError("breaks must be at least two points in increasing order")
    epsilons = _levels(guarantee)
    fine, coarse = (
        _quadrature(first, second, edges, epsilons, number) for number in (panels, panels // 2)
    )
    error = float(np.max(np.abs(fine[0] - coarse[0]))) + fine[1]
    if error > 1e-3:
        raise ValueError(
            f"quadrature errs by about {error:.1g}: widen the breaks, add points or raise panels"
        )
    return _verdict(fine[0], error, epsilons, guarantee, currency, delta, subject)


def _quadrature(
    first: Callable[[Floats], Floats],
    second: Callable[[Floats], Floats],
    edges: Floats,
    epsilons: Floats,
    panels: int,
) -> tuple[Floats, float]:
    """The profile, and the mass that is missing."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    ends = np.unique(np.concatenate([np.linspace(a, b, panels + 1) for a, b in pairwise(edges)]))
    half, middle = np.diff(ends)[:, None] / 2, (ends[1:] + ends[:-1])[:, None] / 2
    points, weight = (middle + half * nodes).ravel(), (half * weights).ravel()
    p, q = np.asarray(first(points)) * weight, np.asarray(second(points)) * weight
    missing = max(abs(1 - float(p.sum())), abs(1 - float(q.sum())))
    return _hockey_stick(p, q, epsilons), missing


def _hockey_stick(p: Floats, q: Floats, epsilons: Floats) -> Floats:
    """Both directions of the profile, shape (2, levels)."""
    rows = [
        [float(np.maximum(a - math.exp(e) * b, 0.0).sum()) for e in epsilons]
        for a, b in ((p, q), (q, p))
    ]
    return np.array(rows)


def _levels(guarantee: Guarantee) -> Floats:
    """Epsilons at which claim and truth are compared: up to a little beyond the claim's."""
    epsilons = profile(guarantee)[0][::5]
    far = float(epsilons[-1])
    known = [guarantee.pure] if math.isfinite(guarantee.pure) else []
    return np.unique(
        np.concatenate([epsilons, known, far * np.array([1.001, 1.01, 1.05, 1.2, 1.5, 2.0])])
    )


def _verdict(
    true: Floats,
    error: float,
    epsilons: Floats,
    guarantee: Guarantee,
    currency: str | Currency | None,
    delta: float,
    subject: str,
) -> Audit:
    money = currency_of(guarantee, currency, delta)
    promised = np.array([guarantee.delta(float(epsilon)) for epsilon in epsilons])
    worst = np.max(true, axis=0)
    gap = worst - error - _ROUNDING - promised
    broken = bool(np.any(gap > 0))
    lower = money.exact(epsilons, np.maximum(worst - error, 0.0))
    at = int(np.argmax(gap))
    if broken and lower <= money.promised(guarantee):
        # Another point of the curve is contradicted: tell it there, halfway between its promised
        # and its true delta.
        money = Epsilon(float(promised[at] + gap[at] / 2))
        lower = money.exact(epsilons, np.maximum(worst - error, 0.0))
    note = (
        f"delta({epsilons[at]:.4g}) is {worst[at]:.4g}, promised {promised[at]:.4g}"
        if broken
        else ""
    )
    return Audit(
        subject=subject,
        promise=guarantee,
        currency=money,
        promised=money.promised(guarantee),
        lower=lower,
        confidence=1.0,
        attack="exact",
        runs=0,
        verdict=BROKEN if broken else KEPT,
        findings=(Finding("exact", lower, broken, note=note),),
    )
