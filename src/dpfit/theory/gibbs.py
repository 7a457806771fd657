"""A priori facts of a sample of exp(-U): excess, distances, tails, stability, density.

All are inequalities with explicit constants. Proofs and the corrections of what is printed:
docs/explanation/gibbs.md, section 8. Reference: [Liu24] Lemma 3.6.1, Corollary 3.3.12, Theorems
3.6.5 to 3.6.7; [ASAP] Lemmas 6, 9, 25 (corrected), Corollary 20; [LD] Lemma D.4.
"""

from __future__ import annotations

import math

from scipy import special, stats

from dpfit.privacy.validate import integer, positive, probability


def expected_excess(dimension: int, inverse_temperature: float) -> float:
    """E F - min F <= d / t for a sample of exp(-t F), convex F; d / (2 t) for quadratics.

    >>> expected_excess(20, 1000.0)
    0.02
    """
    return integer("dimension", dimension) / positive("inverse_temperature", inverse_temperature)


def excess_quantile(dimension: int, inverse_temperature: float, tail: float) -> float:
    """Quantile bound of F - min F: t (F - min F) is stochastically at most Gamma(d).

    >>> round(excess_quantile(1, 2.0, 0.01), 4), round(math.log(100) / 2, 4)
    (2.3026, 2.3026)
    """
    order = float(integer("dimension", dimension))
    return float(special.gammainccinv(order, tail)) / positive(
        "inverse_temperature", inverse_temperature
    )


def distance_quantile(dimension: int, strong_convexity: float, tail: float) -> float:
    """Quantile bound of the distance to the mode: m |x - mode|^2 is at most chi-square.

    >>> round(distance_quantile(1, 4.0, 0.05), 3)
    0.98
    """
    square = float(stats.chi2(integer("dimension", dimension)).isf(tail))
    return math.sqrt(square / positive("strong_convexity", strong_convexity))


def mean_to_mode(dimension: int, strong_convexity: float) -> float:
    """Bound on the distance of mean and mode: sqrt(d / m).

    The printed bound sqrt(3 / m) is false from d = 6 on.

    >>> mean_to_mode(16, 4.0)
    2.0
    """
    return math.sqrt(
        integer("dimension", dimension) / positive("strong_convexity", strong_convexity)
    )


def lipschitz_tail(lipschitz: float, strong_convexity: float, distance: float) -> float:
    """P(a Lipschitz function exceeds its mean by ``distance``) <= exp(-m r^2 / (2 L^2)).

    >>> round(lipschitz_tail(1.0, 4.0, 1.0), 6)
    0.135335
    """
    return math.exp(
        -positive("strong_convexity", strong_convexity) * distance**2 / (2 * lipschitz**2)
    )


def sample_stability(lipschitz_diff: float, strong_convexity: float) -> float:
    """Sure movement of a sample by a change of the potential, coupled: L / m (W-infinity).

    >>> sample_stability(2.0, 100.0)
    0.02
    """
    return positive("lipschitz_diff", lipschitz_diff) / positive(
        "strong_convexity", strong_convexity
    )


def generalization_gap(lipschitz: float, lipschitz_diff: float, strong_convexity: float) -> float:
    """The expected risk of a sample minus its expected mean loss on the records, at most.

    ``strong_convexity`` is that of the sum of losses and regularizer, n ridge. Replacing one record
    moves the sample by lipschitz_diff / (n ridge), and a loss by lipschitz times that.

    >>> generalization_gap(1.0, 2.0, 100.0)
    0.02
    """
    return positive("lipschitz", lipschitz) * sample_stability(lipschitz_diff, strong_convexity)


def gamma_tail_moments(shape: float, scale: float, above: float) -> tuple[float, float]:
    """Bounds on E[X | X > a] and E[X^2 | X > a] for X of law Gamma(shape >= 1, scale).

    >>> gamma_tail_moments(1.0, 1.0, 2.0)
    (3.0, 10.0)
    """
    if positive("shape", shape) < 1:
        raise ValueError(f"shape must be at least 1, got {shape!r}")
    first = shape * scale + above
    return first, shape * (shape + 1) * scale**2 + above**2 + (shape + 1) * above * scale


def log_least_density(dimension: int, oscillation: float, radius: float) -> float:
    """The logarithm of a lower bound on a density exp(-U) on a convex set of diameter 2 radius.

    ``oscillation`` is max U - min U there. By the isodiametric inequality the set is no larger than
    the ball.

    >>> round(log_least_density(1, 0.0, 1.0), 6)
    -0.693147
    """
    d = integer("dimension", dimension)
    return float(
        -oscillation + special.gammaln(d / 2 + 1) - d / 2 * math.log(math.pi) - d * math.log(radius)
    )


def log_variation_for_distance(
    dimension: int, log_density: float, distance: float, norm: int = 2
) -> float:
    """log xi: laws on a ball within total variation xi are within ``distance`` in W-infinity.

    One of them has density at least exp(log_density) on the ball. The numbers are tiny: d
    log(radius / distance) and the oscillation of the potential enter. A sampler that comes close in
    W-infinity by itself (`dpfit.samplers.proximal_sampler_winf`) does not need this.

    >>> round(log_variation_for_distance(1, log_least_density(1, 2.0, 1.0), 0.1), 3)
    -5.689
    """
    d = integer("dimension", dimension)
    if norm not in (1, 2):
        raise ValueError(f"norm must be 1 or 2, got {norm!r}")
    ball = d / 2 * math.log(math.pi) - (d + 1) * math.log(2) - float(special.gammaln(d / 2 + 1))
    shrunk = d / 2 * math.log(d) if norm == 1 else 0.0
    return log_density + ball - shrunk + d * math.log(positive("distance", distance))


def distance_from_variation(
    dimension: int, log_density: float, variation: float, norm: int = 2
) -> float:
    """The inverse: the W-infinity distance that a total variation allows.

    >>> xi = math.exp(log_variation_for_distance(3, -2.0, 0.05))
    >>> round(distance_from_variation(3, -2.0, xi), 12)
    0.05
    """
    at_one = log_variation_for_distance(dimension, log_density, 1.0, norm)
    return math.exp((math.log(probability("variation", variation)) - at_one) / dimension)
