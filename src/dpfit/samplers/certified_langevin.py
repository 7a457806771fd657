"""Langevin chains that start where their certificate says: at the minimizer of the potential.

The start is N(z, v I) with v = 1 / m ("wide", bounded in both directions) or 1 / M ("narrow", one
direction, fewer steps), for an m-strongly convex, M-smooth potential U on the whole space. Gradient
steps find z with norm(grad U(z)) <= START_ERROR m sqrt(v), so that N(z, v I) is START_ERROR-close
(Gaussian) to the start N(x*, v I) of the bounds. The number of gradient steps is enough for every
dataset; it stays inside the draw.

Certificate: both Renyi divergences of one order. Arithmetic: idealised. Reference: [GT20] Theorems
1 and 6, [Gan22] Theorems 42 and 49; docs/explanation/chains.md, section 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from dpfit.noise import Source
from dpfit.privacy import renyi
from dpfit.privacy.validate import option, positive
from dpfit.samplers.certificate import WithinRenyi
from dpfit.samplers.discretization import STARTS, SmoothTarget, langevin_certificate
from dpfit.samplers.potential import Floats, Potential
from dpfit.samplers.ula_sampler import LangevinSampler

START_ERROR = 1e-6
"""Distance of the start from N(x*, v I), in standard deviations."""
_RAISE = 1e6
"""How far the order is raised for it: the product with its square is far below any divergence."""
_DOWN = 1 - 1e-9


@dataclass(frozen=True)
class CertifiedLangevin(LangevinSampler):
    """A Langevin chain on the whole space with both Renyi divergences from its target bounded.

    Parameters
    ----------
    target : SmoothTarget
        Dimension, strong convexity and smoothness of the potentials that it may be run on.
    order, divergence : float
        What the certificate states: divergences of this order, each at most ``divergence``.
    start : {"wide", "narrow"}
        Variance of the start: 1 / m, or 1 / M with a certificate for one direction only.

    Examples
    --------
    >>> chain = plan_langevin(2.0, 0.5, SmoothTarget(1, 1.0, 2.0))
    >>> chain.certificate
    WithinRenyi(order=2.0, forward=0.5, backward=0.5)
    """

    kind = "certified_langevin"
    whole_space: ClassVar[bool] = True
    passes_per_step: ClassVar[float] = 1.0
    target: SmoothTarget
    order: float
    divergence: float
    start: str = "wide"

    def __post_init__(self) -> None:
        super().__post_init__()
        option("start", self.start, STARTS)
        found = started_certificate(self.order, self.target, self, self.start)
        if not _reached(found, self.start) <= positive("divergence", self.divergence):
            raise ValueError(
                f"{self.steps} steps of {self.step_size:g} are certified within "
                f"{_reached(found, self.start):g} only; take plan_langevin"
            )

    @property
    def certificate(self) -> WithinRenyi:  # type: ignore[override]
        """Divergences of a draw from the target, and of the target from a draw."""
        backward = self.divergence if self.start == "wide" else math.inf
        return WithinRenyi(self.order, self.divergence, backward)

    def check(self, dimension: int, strong_convexity: float, smoothness: float) -> None:
        """Refuse potentials that the certificate does not cover."""
        mine = self.target
        if (
            dimension != mine.dimension
            or strong_convexity < mine.strong_convexity * _DOWN
            or smoothness > mine.smoothness / _DOWN
        ):
            raise ValueError(
                "the chain's certificate is for potentials of another dimension, strong convexity "
                "or smoothness; plan the chain for this one"
            )

    def init(self, target: Potential, chains: int, source: Source) -> Floats:
        if math.isfinite(target.domain.radius()):
            raise ValueError("the certificate is for a target on the whole space")
        self.check(target.domain.dimension, target.strength, self.target.smoothness)
        deviation = math.sqrt(self.target.start_variance(self.start))
        tolerance = START_ERROR * self.target.strong_convexity * deviation
        middle = minimizer(target, self.target, tolerance)
        return middle + deviation * source.gaussian((chains, self.target.dimension))


def minimizer(potential: Potential, target: SmoothTarget, tolerance: float) -> Floats:
    """Return a point where the gradient has norm at most ``tolerance``, by gradient descent.

    A step of 2 / (m + M) divides the distance to the minimizer by (M + m) / (M - m), so that k
    steps leave a gradient of at most M / m ((M - m) / (M + m))**k times the first one.
    """
    m, M = target.strong_convexity, target.smoothness
    point = np.asarray(potential.centre, dtype=np.float64)[None, :]
    gradient = potential.energy(point)[1]
    ratio = target.condition * float(np.linalg.norm(gradient)) / tolerance
    steps = max(1, math.ceil(math.log(max(ratio, 1.0)) / math.log((M + m) / max(M - m, 1e-9 * M))))
    for _ in range(steps):
        point = point - 2 / (m + M) * gradient
        gradient = potential.energy(point)[1]
    return np.asarray(point[0])


def started_certificate(
    order: float, target: SmoothTarget, chain: LangevinSampler, start: str
) -> WithinRenyi:
    """Return `langevin_certificate` for a start within `START_ERROR` of that of the bounds.

    The two starts have divergence a START_ERROR**2 / 2 at every order a, and the chain cannot
    increase it. So it is chained at a very high order, and the certificate is taken at an order
    that is hardly above.
    """
    q = _RAISE
    raised = (q * order - 1) / (q - 1)
    found = langevin_certificate(raised, target, chain, start)
    forward = renyi.weak_triangle(order, q, q * order * START_ERROR**2 / 2, found.forward)
    small = 1 + (order - 1) / _RAISE
    found = langevin_certificate(small * order, target, chain, start)
    last = (small * order - 1) / (small - 1) * START_ERROR**2 / 2
    return WithinRenyi(order, forward, renyi.weak_triangle(order, small, found.backward, last))


def plan_langevin(
    order: float, divergence: float, target: SmoothTarget, start: str = "wide"
) -> CertifiedLangevin:
    """Return the fewest steps with a certificate of this divergence, over a grid of times.

    [GT20] Theorems 1 and 6 as calculators. The narrow start is certified in one direction: it has
    no privacy cost by divergences, only by total variation.

    >>> plan_langevin(2.0, 0.5, SmoothTarget(2, 1.0, 2.0)).steps < 2000
    True
    """
    positive("divergence", divergence)
    m = target.strong_convexity
    shortest = max(1.0, math.log(order * target.condition)) / (2 * m)

    def certified(time: float, steps: int) -> bool:
        if time / steps > 2 / (m + target.smoothness):
            return False
        chain = LangevinSampler(steps, time / steps)
        return _reached(started_certificate(order, target, chain, start), start) <= divergence

    best: tuple[int, float] | None = None
    for time in (shortest * np.geomspace(1.0, 100.0 * order, 40)).tolist():
        limit = 2**60 if best is None else best[0]
        if certified(time, limit):
            best = _fewest(partial(certified, time), limit, 1e-3), time
    if best is None:
        raise ValueError("there is no certified chain of fewer than 2**60 steps")
    steps, time = _fewest(partial(certified, best[1]), best[0], 1e-6), best[1]
    return CertifiedLangevin(steps, time / steps, target, order, divergence, start)


def _reached(found: WithinRenyi, start: str) -> float:
    return max(found.forward, found.backward) if start == "wide" else found.forward


def _fewest(holds: Callable[[int], bool], high: int, tolerance: float) -> int:
    """Return about the least integer up to ``high`` for which it holds, by bisection."""
    low = 0
    while high - low > 1 and high > low * (1 + tolerance):
        middle = (low + high) // 2 if low == 0 or high < 4 * low else math.isqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
