"""Chains of closeness: implementation, target, the neighbour's target, its implementation.

Reference: [GT20] Section 1 and Fact 4, [Gan22] Fact 46; the printed (3 epsilon, 3 delta) is false
(docs/errata.md).
"""

from __future__ import annotations

import math

from dpfit.privacy import renyi

Indistinguishable = tuple[float, float]
"""(epsilon, delta), in both directions."""


def hockey_stick_triangle(first: Indistinguishable, second: Indistinguishable) -> Indistinguishable:
    """P, Q (e1, d1)- and Q, R (e2, d2)-close: P(S) <= exp(e1 + e2) R(S) + d1 + exp(e1) d2.

    The other direction has d2 + exp(e2) d1; the larger of the two is given.

    >>> hockey_stick_triangle((0.0, 1e-6), (0.0, 2e-6))
    (0.0, 3e-06)
    """
    (e1, d1), (e2, d2) = first, second
    return e1 + e2, max(d1 + math.exp(e1) * d2, d2 + math.exp(e2) * d1)


def sampler_privacy(ideal: Indistinguishable, closeness: Indistinguishable) -> Indistinguishable:
    """Guarantee of a sampler with ``closeness`` to a mechanism of ``ideal``, on all datasets.

    At (1, delta) three times: (3, (1 + e + e^2) delta), not 3 delta.

    >>> epsilon, delta = sampler_privacy((1.0, 1e-6), (1.0, 1e-6))
    >>> epsilon, round(delta * 1e6, 2)
    (3.0, 11.11)
    """
    (e, d), (a, b) = ideal, closeness
    # Both directions of the chain are the same by symmetry: P to R, R to R', R' to P'.
    return e + 2 * a, b + math.exp(a) * d + math.exp(a + e) * b


def renyi_sampler_privacy(
    order: float, ideal: float, closeness: float, *, q1: float = 2.0, q2: float = 2.0
) -> float:
    """The Renyi divergence of a sampler's laws on neighbours: two weak triangle inequalities.

    ``ideal`` and ``closeness`` are divergences divided by their order, as those of zCDP and of
    Gaussian closeness are (rho, and mu**2 / 2): D_a <= a * rho at every order. For three Gaussian
    shifts that add up, the exact value is order * (sqrt(ideal) + 2 sqrt(closeness))**2, which is
    below.

    >>> renyi_sampler_privacy(2.0, 0.1, 0.0, q1=1e9, q2=1 + 1e-9) >= 0.2
    True
    """
    b = (q1 * order - 1) / (q1 - 1)
    c = (q2 * b - 1) / (q2 - 1)
    inner = renyi.weak_triangle(b, q2, ideal * q2 * b, closeness * c)
    return renyi.weak_triangle(order, q1, closeness * q1 * order, inner)
