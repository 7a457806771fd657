"""How far apart two diffusions on neighbouring datasets are after a long time.

It tends to the divergence of their stationary laws. The last-iterate accountant
(`dpfit.privacy.last_iterate`) is smaller wherever that divergence is only known to be that of a
Lipschitz change; this bound is the smaller one where the stationary laws are known to be closer,
as for losses of small range. Reference: [LD] Lemma I.1, with corrected constants;
docs/explanation/chains.md, section 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dpfit.privacy import renyi
from dpfit.privacy.validate import non_negative, real
from dpfit.samplers.discretization import SmoothTarget


def long_run_divergence(
    order: float,
    target: SmoothTarget,
    radius: float,
    time: float,
    stationary: Callable[[float], float],
) -> float:
    """Renyi divergence of two diffusions dX = -grad f(X) dt + sqrt(2) dB, both from N(0, I / m).

    The minima of both potentials lie within ``radius`` of zero. ``stationary`` bounds the Renyi
    divergences of their stationary laws at any order. Infinite before the order of the start has
    risen high enough, at t0 = log((3 order - 1) q**2 / (q - 1)) / (2 m), q = max(2, M / m).

    >>> target = SmoothTarget(5, 1.0, 2.0)
    >>> found = [
    ...     long_run_divergence(2.0, target, 1.0, t, lambda a: 0.01 * a) for t in (1.0, 10.0, 100.0)
    ... ]
    >>> found[0], round(found[1], 3), round(found[2], 5)
    (inf, 0.274, 0.06667)
    """
    if not real("order", order) > 1:
        raise ValueError(f"order must be above 1, got {order!r}")
    m, high = target.strong_convexity, 3 * order
    square = m * non_negative("radius", radius) ** 2
    ratio = target.dimension / 2 * math.log(target.condition)
    q = max(2.0, target.condition)
    first = 1 + (q - 1) / q**2
    start = math.log((high - 1) * q**2 / (q - 1)) / (2 * m)
    if non_negative("time", time) < start:
        return math.inf
    # From the start to the law of the first diffusion, through N(minimizer, I / m).
    apart = (q + 1) * (q + 1 - 1 / q) * square / 2 + target.condition * ratio
    raised = (1 - 1 / first) / (1 - 1 / high) * apart
    forward = raised * math.exp(-2 * m * (time - start) / high)
    # From the second stationary law to its diffusion, at the order that is left.
    left = high - 2
    reverse = (left - 0.5) / (left - 1) * ratio + (2 * left - 1) * square / 2
    backward = reverse * math.exp(-2 * m * time / left)
    between = renyi.weak_triangle((high - 1) / 2, 2.0, stationary(high - 1), backward)
    return renyi.weak_triangle(order, 3.0, forward, between)
