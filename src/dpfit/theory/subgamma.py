"""Sub-gamma tails: the concentration facts behind [Gan22] chapter 2, as documentation.

X is sub-gamma on the right with variance factor v and scale c if ln E exp(l (X - E X)) <= l^2 v /
(2 (1 - c l)) for 0 < l < 1/c; sums add v and take the largest c. Reference: [Gan22] Definition 20,
Facts 21 to 23, Lemmas 26, 40, 41. Lemma 41's printed proof has a gap, see docs/errata.md; the
statement used here is the stronger one below.
"""

from __future__ import annotations

import math

from scipy.special import gamma


def log_moment_bound(rate: float, variance: float, scale: float) -> float:
    """The bound on ln E exp(rate (X - E X)).

    >>> log_moment_bound(0.5, 2.0, 1.0)
    0.5
    """
    if not 0 <= rate * scale < 1:
        raise ValueError(f"the bound holds for rate * scale below 1, got {rate * scale!r}")
    return rate**2 * variance / (2 * (1 - scale * rate))


def deviation(variance: float, scale: float, tail: float) -> float:
    """Bound on X - E X that fails with ``tail``: sqrt(2 v t) + c t, t = ln(1 / tail).

    >>> round(deviation(1.0, 0.0, math.exp(-2)), 6)
    2.0
    """
    t = math.log(1 / tail)
    return math.sqrt(2 * variance * t) + scale * t


def gradient_mean(shape: float) -> float:
    """E |X|^(p-1) = 1 / Gamma(1/p) for density exp(-|x|^p).

    Both sub-gamma variance factors of |X|^(p-1) have this value, for p >= 2.

    On the left the scale is 0: for Y >= 0, exp(-l Y) <= 1 - l Y + l^2 Y^2 / 2, so E exp(-l (Y - E
    Y)) <= exp(l^2 E[Y^2] / 2), and E[Y^2] = Gamma(2 - 1/p) / Gamma(1/p) <= E[Y] because Gamma <= 1
    on [1, 2].

    >>> [round(p * gradient_mean(p), 3) for p in (2.0, 4.0, 100.0)]
    [1.128, 1.103, 1.006]
    """
    return float(1 / gamma(1 / shape))
