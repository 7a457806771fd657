"""Bounds between discretized Langevin chains and their diffusions and targets.

The target is exp(-f) on the whole space, f m-strongly convex and M-smooth with its minimum at x*;
the chain is `dpfit.samplers.ula_sampler`, x <- x - h grad f(x) + sqrt(2 h) N, without constraints,
from N(x*, v I), with v = 1 / m (start "wide") or v = 1 / M (start "narrow"). P is its law after N
steps, Q that of the diffusion dX = -grad f(X) dt + sqrt(2) dB from the same start at the time N h,
R the target. `dpfit.samplers.certified_langevin` draws from such a start.

Everything here is a function of public numbers, true for every f of the class. The bounds are
proven and far from sharp: they ask for thousands of times more steps than it takes. They are here
to say what a proof of closeness costs. Releases of this library lean on exact draws, on the
W-infinity chain, or on privacy of the chain itself. Proofs: docs/explanation/chains.md, section 5.
References: [GT20], [Gan22] chapter 3, with corrected constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import erf

from dpfit.privacy import renyi
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import integer, non_negative, option, positive, probability, real
from dpfit.samplers.certificate import TotalVariation, WithinRenyi
from dpfit.samplers.ula_sampler import LangevinSampler
from dpfit.samplers.underdamped_langevin_sampler import UnderdampedLangevin

STARTS = ("wide", "narrow")

_SPLITS = 1 + np.geomspace(1e-3, 1e3, 61)
"""Hoelder exponents that are tried where two bounds are chained."""


@dataclass(frozen=True)
class SmoothTarget(Spec):
    """A class of targets: dimension d, strong convexity m and smoothness M.

    >>> SmoothTarget(20, 1.0, 10.0).condition
    10.0
    """

    kind = "smooth_target"
    dimension: int
    strong_convexity: float
    smoothness: float

    def __post_init__(self) -> None:
        integer("dimension", self.dimension)
        positive("strong_convexity", self.strong_convexity)
        if positive("smoothness", self.smoothness) < self.strong_convexity:
            raise ValueError("smoothness must be at least strong_convexity")

    @property
    def condition(self) -> float:
        """The condition number M / m."""
        return self.smoothness / self.strong_convexity

    def start_variance(self, start: str) -> float:
        """Variance of the start around the minimizer: 1 / m if "wide", 1 / M if "narrow"."""
        wide = option("start", start, STARTS) == "wide"
        return 1 / (self.strong_convexity if wide else self.smoothness)

    def variance_bound(self, chain: LangevinSampler, start_variance: float) -> float:
        """An s for which s times a chi-square variable dominates norm(x - x*)**2 at every step."""
        if chain.step_size > 2 / (self.strong_convexity + self.smoothness):
            raise ValueError("step_size must be at most 2 / (strong_convexity + smoothness)")
        stationary = 1 / (self.strong_convexity * (1 - chain.step_size * self.strong_convexity / 2))
        return max(non_negative("start_variance", start_variance), stationary)


def langevin_movement(
    target: SmoothTarget, chain: LangevinSampler, start_variance: float, failure: float
) -> float:
    """Bound on the chain's movement in any step, in continuous time, up to a failure.

    [GT20] Lemma 7 with its constant made explicit, and without a factor M that its proof does not
    need.

    >>> target, sampler = SmoothTarget(20, 1.0, 10.0), LangevinSampler(1000, 1e-4)
    >>> round(langevin_movement(target, sampler, 1.0, 1e-6), 4)
    0.1668
    """
    h, s = chain.step_size, math.sqrt(target.variance_bound(chain, start_variance))
    radius = math.sqrt(target.dimension) + math.sqrt(
        2 * math.log(2 * chain.steps / _failure(failure))
    )
    return (h * target.smoothness * s + math.sqrt(2 * h)) * radius


def movement_mu(smoothness: float, movement: float, time: float) -> float:
    """GDP closeness of chain and diffusion as paths, both stopped once a step moves too far.

    [GT20] Lemma 5: drifts then differ by at most smoothness * movement, under noise of variance 2
    per unit of time.

    >>> movement_mu(10.0, 0.1, 0.5)
    0.5
    """
    apart = non_negative("smoothness", smoothness) * non_negative("movement", movement)
    return apart * math.sqrt(non_negative("time", time) / 2)


def langevin_discretization(
    order: float, target: SmoothTarget, chain: LangevinSampler, start_variance: float
) -> WithinRenyi:
    """Renyi divergences of P from Q and of Q from P; infinite where the bound says nothing.

    At order one: the relative entropy of P from Q alone, which has a simple bound that quadratics
    attain on paths. [GT20] Theorem 9 by Girsanov's formula, with M**2 in place of M**4.

    >>> chain, target = LangevinSampler(10_000, 1e-4), SmoothTarget(10, 1.0, 5.0)
    >>> found = langevin_discretization(5.0, target, chain, 1.0)
    >>> round(found.forward, 3), round(found.backward, 3)
    (0.113, 0.141)
    >>> round(langevin_discretization(1.0, target, chain, 1.0).forward, 5)
    0.00626
    """
    h, time, M, d = (
        chain.step_size,
        chain.steps * chain.step_size,
        target.smoothness,
        target.dimension,
    )
    s = target.variance_bound(chain, start_variance)
    if _order(order) == 1:
        return WithinRenyi(1.0, M**2 * d * time * h / 4 * (1 + h * M**2 * s / 3), math.inf)

    def moment(weight: float) -> float:
        a = weight * M**2 / 2
        jump, pull = 4 * h * math.sqrt(a), 8 / 3 * a * time * h**2 * M**2 * s
        if jump >= math.pi / 2 or pull >= 1:
            return math.inf
        return -d / 4 * (chain.steps * _log_cosine(jump) + math.log1p(-pull))

    return _girsanov(order, moment)


def lipschitz_discretization(
    order: float, dimension: int, smoothness: float, lipschitz: float, chain: LangevinSampler
) -> WithinRenyi:
    """The same for f that is Lipschitz and smooth, convex or not, from any start.

    [GT20] Theorem 12 by Girsanov's formula, with M**2 in place of M**4. A linear f costs nothing.

    >>> lipschitz_discretization(5.0, 10, 0.0, 3.0, LangevinSampler(100, 0.1)).forward
    0.0
    """
    integer("dimension", dimension)
    h, time = chain.step_size, chain.steps * chain.step_size
    M, B = non_negative("smoothness", smoothness), non_negative("lipschitz", lipschitz)
    if _order(order) == 1:
        return WithinRenyi(1.0, M**2 * time * (dimension * h / 4 + h**2 * B**2 / 12), math.inf)

    def moment(weight: float) -> float:
        a = weight * M**2 / 2
        jump = 2 * h * math.sqrt(2 * a)
        if jump >= math.pi / 2:
            return math.inf
        return -chain.steps * dimension / 2 * _log_cosine(jump) + 2 / 3 * a * h**2 * time * B**2

    return _girsanov(order, moment)


def langevin_mixing(
    order: float, target: SmoothTarget, time: float, start: str = "wide"
) -> WithinRenyi:
    """Renyi divergences of Q from R and of R from Q.

    The wide start is bounded in both directions; the narrow one only of Q from R, but at every
    order from the beginning. [GT20] Lemmas 10, 11, 13, 14 and 15, with rate 2 m / order in both
    directions.

    >>> found = langevin_mixing(2.0, SmoothTarget(20, 1.0, 10.0), 5.0)
    >>> round(found.forward, 4), round(found.backward, 4)
    (0.892, 0.1551)
    >>> round(langevin_mixing(2.0, SmoothTarget(20, 1.0, 10.0), 5.0, "narrow").forward, 4)
    0.1551
    """
    m, condition = target.strong_convexity, target.condition
    ratio = target.dimension / 2 * math.log(condition)
    if ratio == 0:
        return WithinRenyi(order, 0.0, 0.0)
    decayed = math.exp(-2 * m * non_negative("time", time) / _order(order)) * ratio
    if option("start", start, STARTS) == "narrow":
        return WithinRenyi(order, decayed, math.inf)
    # The start has finite divergence from the target at order 1 + 1 / condition only; the diffusion
    # raises the order.
    wait = max(0.0, math.log((order - 1) * condition)) / (2 * m) if order > 1 else 0.0
    if time < wait:
        return WithinRenyi(order, math.inf, decayed)
    reached = 1 + math.exp(2 * m * wait) / condition
    raised = ratio * condition / (condition + 1) * reached / (reached - 1)
    return WithinRenyi(order, math.exp(-2 * m * (time - wait) / reached) * raised, decayed)


def langevin_certificate(
    order: float, target: SmoothTarget, chain: LangevinSampler, start: str = "wide"
) -> WithinRenyi:
    """Renyi divergences of P from R and of R from P, at an order above one.

    From the wide start in both directions, [GT20] Theorem 1; from the narrow one of P from R only,
    [GT20] Theorem 6. The two bounds above, chained by Hoelder's inequality.

    >>> target = SmoothTarget(2, 1.0, 2.0)
    >>> found = langevin_certificate(2.0, target, LangevinSampler(60_000, 1e-4))
    >>> found.forward < 0.05, found.backward < 0.05
    (True, True)
    """
    if not _order(order) > 1:
        raise ValueError(f"order must be above 1, got {order!r}")
    time, variance = chain.steps * chain.step_size, target.start_variance(start)
    forward, backward = [], []
    for q in _SPLITS.tolist():
        high, low = q * order, (q * order - 1) / (q - 1)
        path = langevin_discretization(high, target, chain, variance).forward
        mixed = langevin_mixing(low, target, time, start).forward
        forward.append(renyi.weak_triangle(order, q, path, mixed))
        mixed = langevin_mixing(high, target, time, start).backward
        path = langevin_discretization(low, target, chain, variance).backward
        backward.append(renyi.weak_triangle(order, q, mixed, path))
    return WithinRenyi(order, min(forward), min(backward))


def langevin_total_variation(target: SmoothTarget, chain: LangevinSampler) -> TotalVariation:
    """Total variation of P and R from the start N(x*, I / M), by relative entropies (Pinsker).

    >>> target, sampler = SmoothTarget(20, 1.0, 10.0), LangevinSampler(10**8, 1e-7)
    >>> round(langevin_total_variation(target, sampler).distance, 4)
    0.016
    """
    time, start = chain.steps * chain.step_size, target.start_variance("narrow")
    discretized = langevin_discretization(1.0, target, chain, start).forward
    mixed = langevin_mixing(1.0, target, time, "narrow").forward
    return TotalVariation(min(1.0, math.sqrt(discretized / 2) + math.sqrt(mixed / 2)))


def underdamped_discretization(
    order: float, dimension: int, smoothness: float, chain: UnderdampedLangevin
) -> WithinRenyi:
    """Renyi divergences of the underdamped chain from its diffusion and back.

    From the minimum of f, with velocities N(0, u I); f need not be convex. At order one: the
    relative entropy of the chain from the diffusion alone. [GT20] Theorem 16: the kinetic energy
    spent bounds how stale gradients are.

    >>> chain = UnderdampedLangevin(10_000, 1e-3, friction=2.0)
    >>> found = underdamped_discretization(1.0, 20, 10.0, chain)
    >>> round(found.forward, 5), found.total_variation.distance < 0.03
    (0.00128, True)
    >>> round(underdamped_discretization(8.0, 20, 10.0, chain).backward, 4)
    0.022
    """
    stale = chain.velocity_variance * (smoothness * chain.step_size) ** 2 / (4 * chain.friction)
    if _order(order) == 1:
        energy = _kinetic(dimension, smoothness, chain)
        return WithinRenyi(1.0, stale * energy / 2, math.inf)
    return _girsanov(
        order, lambda weight: kinetic_moment(weight * stale, dimension, smoothness, chain)
    )


def kinetic_moment(
    weight: float, dimension: int, smoothness: float, chain: UnderdampedLangevin
) -> float:
    """Bound on log E exp(weight * V), V the integral of the chain's squared speed over its time.

    It tends to the exact value for long chains with short steps. Infinite for large weights.

    >>> chain = UnderdampedLangevin(1000, 0.01, friction=2.0)
    >>> round(kinetic_moment(0.01, 3, 0.5, chain), 4), kinetic_moment(0.6, 3, 0.5, chain)
    (0.3095, inf)
    """
    g, gamma, u = _friction(smoothness, chain), chain.friction, chain.velocity_variance
    root = g**2 - 4 * gamma * u * non_negative("weight", weight)
    if root < 0:
        return math.inf
    # The smaller root of rate g - rate^2 gamma u = weight.
    rate = 2 * weight / (g + math.sqrt(root))
    time = chain.steps * chain.step_size
    return integer("dimension", dimension) * (rate * gamma * u * time - math.log1p(-rate * u) / 2)


def _kinetic(dimension: int, smoothness: float, chain: UnderdampedLangevin) -> float:
    """Bound on the expected integral of the squared speed."""
    u, time = chain.velocity_variance, chain.steps * chain.step_size
    start = u * integer("dimension", dimension) / 2
    return (start + chain.friction * u * dimension * time) / _friction(smoothness, chain)


def _friction(smoothness: float, chain: UnderdampedLangevin) -> float:
    """The friction that is left when stale gradients have taken their part."""
    taken = chain.velocity_variance * positive("smoothness", smoothness) * chain.step_size
    if taken > chain.friction:
        raise ValueError("step_size must be at most friction / (velocity_variance * smoothness)")
    return chain.friction - taken / 2


def underdamped_speed(
    dimension: int, smoothness: float, chain: UnderdampedLangevin, failure: float
) -> float:
    """Largest speed of the underdamped chain, up to a failure, from the same start.

    Times the step size it bounds movements, for `movement_mu` with smoothness * sqrt(u / gamma):
    [GT20] Lemma for Theorem 16 with its constant made explicit. It does not depend on the step.

    >>> round(underdamped_speed(20, 10.0, UnderdampedLangevin(1000, 1e-3, friction=2.0), 1e-6), 1)
    15.3
    """
    u, gamma, d = chain.velocity_variance, chain.friction, integer("dimension", dimension)
    _friction(smoothness, chain)
    log = math.log(2 / _failure(failure))
    start = u / 2 * (math.sqrt(d) + math.sqrt(2 * log)) ** 2
    return math.sqrt(2 * (start + gamma * u * d * chain.steps * chain.step_size + 2 * u * log))


def stopped_total_variation(mu: float, failure: float) -> TotalVariation:
    """Total variation of chain and diffusion, mu-close unless a stopping event occurs.

    The chain alone has to be likely to stay within the movement.

    >>> stopped_total_variation(0.0, 1e-6).distance
    1e-06
    """
    return TotalVariation(
        min(
            1.0, float(erf(non_negative("mu", mu) / math.sqrt(8))) + probability("failure", failure)
        )
    )


def _girsanov(order: float, moment: Callable[[float], float]) -> WithinRenyi:
    """Path divergences, both ways, from log E_P exp(weight * squared drift difference).

    By Girsanov's theorem and the Cauchy-Schwarz inequality.
    """
    r = order - 1
    return WithinRenyi(
        order, moment(2 * r**2 + r) / (2 * r), moment(2 * order**2 - order) / (2 * r)
    )


def _log_cosine(x: float) -> float:
    return math.log1p(-2 * math.sin(x / 2) ** 2)


def _order(order: float) -> float:
    if real("order", order) < 1:
        raise ValueError(f"order must be at least 1, got {order!r}")
    return order


def _failure(failure: float) -> float:
    if not 0 < probability("failure", failure) < 1:
        raise ValueError(f"failure must lie between 0 and 1, got {failure!r}")
    return failure
