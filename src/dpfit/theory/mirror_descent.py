"""Risk of noisy mirror descent whose mirror map is a public loss, with explicit constants.

Nothing here is about privacy: noise enters by its standard deviation. Proofs:
docs/explanation/public-data.md, section 4. Reference: [Gan22] Theorems 76, 81, 83, 86 and 87, with
the corrections that are said there.

Notation: the mirror map has a Hessian of at least sum h_i v_i v_i^T on the set, h_i being the
``curvatures``; the gradients have norms of at most ``lipschitz``, and each step has a noise of
standard deviation ``deviation`` in each coordinate.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dpfit.privacy.validate import integer, non_negative, positive, probability
from dpfit.theory.gaussian_width import checked_axes

Floats = NDArray[np.float64]


def start_divergence(gradient_deviation: float, curvatures: ArrayLike, n_public: int) -> float:
    """Bound on the mean Bregman divergence from the public minimizer to that of the population.

    It is V**2 / (2 n min h): V**2 bounds the variance of a record's public gradient there.

    >>> start_divergence(1.0, [0.5, 1.0], 100)
    0.01
    """
    least = float(_checked(curvatures).min())
    return non_negative("gradient_deviation", gradient_deviation) ** 2 / (
        2 * least * integer("n_public", n_public)
    )


def drift(lipschitz: float, deviation: float, curvatures: ArrayLike) -> float:
    """Bound on the mean squared dual norm of a noisy gradient: L**2 / min h + deviation**2 sum 1/h.

    >>> drift(1.0, 0.5, [0.5, 1.0])
    2.75
    """
    inverses = 1 / _checked(curvatures)
    steep = non_negative("lipschitz", lipschitz) ** 2 * float(inverses.max())
    return steep + non_negative("deviation", deviation) ** 2 * float(inverses.sum())


def best_step_size(steps: int, divergence: float, drift: float) -> float:
    """The fixed step size with the least `fixed_step_bound`: sqrt(2 D / (T A)).

    >>> best_step_size(200, 0.01, 1.0)
    0.01
    """
    return math.sqrt(2 * divergence / (integer("steps", steps) * positive("drift", drift)))


def fixed_step_bound(steps: int, step_size: float, divergence: float, drift: float) -> float:
    """Bound on E F(mean of the points) - F(theta*), F convex: D / (eta T) + eta A / 2.

    D is the divergence from the start to theta*, A the `drift`; the mean is over the points at
    which gradients were taken. Reference: [Gan22] Theorem 83.

    >>> fixed_step_bound(200, 0.01, 0.01, 1.0)
    0.01
    """
    return divergence / (positive("step_size", step_size) * integer("steps", steps)) + (
        step_size * drift / 2
    )


def falling_step_bound(
    steps: int, similarity: float, delay: float, divergence: float, drift: float
) -> float:
    """Bound on E F(mean) - F(theta*) with step sizes 1 / (c (t + t0)), t from 1.

    F is strongly convex relative to the mirror map, with the constant c = ``similarity``. The bound
    is (c t0 D + A sum 1 / (2 c (t + t0))) / T with the ``delay`` t0. Reference: [Gan22] Theorem 76.

    >>> round(falling_step_bound(100, 1.0, 0.0, 0.01, 1.0), 5)
    0.02594
    """
    c, t0 = positive("similarity", similarity), non_negative("delay", delay)
    harmonic = float(special.digamma(integer("steps", steps) + t0 + 1) - special.digamma(t0 + 1))
    return (c * t0 * divergence + drift * harmonic / (2 * c)) / steps


def stability(lipschitz: float, curvatures: ArrayLike, similarity: float, n: int) -> float:
    """What one replaced record changes in a loss after steps 1 / (c (t + t0)): 2 L^2 / (c n min h).

    It bounds the population risk less the empirical one. The first step must not overshoot:
    1 + t0 is at least the largest relative curvature over c.

    >>> stability(1.0, [0.1, 1.0], 0.5, 1000)
    0.04
    """
    least = float(_checked(curvatures).min())
    scale = positive("similarity", similarity) * integer("n", n) * least
    return 2 * non_negative("lipschitz", lipschitz) ** 2 / scale


def trusted_slope(
    lipschitz: float, n_public: int, failure: float, mean_gradient: float = 0.0
) -> float:
    """Bound on the norm of the public gradient at the population's minimizer, but for ``failure``.

    It is (L + norm of the mean gradient) sqrt(2 log(2 / failure) / n): Hoeffding's inequality for
    vectors (Pinelis, 1994). Reference: [Gan22] Lemma 78.

    >>> round(trusted_slope(1.0, 1000, 0.01), 4)
    0.1029
    """
    spread = 2 * math.log(2 / probability("failure", failure)) / integer("n_public", n_public)
    return (non_negative("lipschitz", lipschitz) + mean_gradient) * math.sqrt(spread)


def enough_public(dimension: int, least: float, failure: float) -> int:
    """Public records from which on the mean of x x^T is within a factor 2 of its expectation.

    ``least`` is the smallest eigenvalue of the expectation, norm(x) <= 1. Reference: matrix
    Chernoff bound on whitened rows; [Gan22] Lemma 80.

    >>> enough_public(20, 0.05, 0.01)
    1082
    """
    needed = math.log(2 * integer("dimension", dimension) / probability("failure", failure))
    return math.ceil(needed / ((1 - math.log(2)) / 2 * positive("least", least)))


def chi(curvatures: ArrayLike, n_public: int, delta: float) -> float:
    """The factor of the private term in [Gan22] Theorem 76, at most which sum 1 / h stands here.

    It is max(1 / min h, n max h) * sum min(1, log(1 / delta) / (h**2 n)). Where log(1 / delta) is
    at least 1, each of its terms is at least 1 / h: so `falling_step_bound` is never larger.

    >>> round(chi([0.05] * 20, 1000, 1e-6)), round(sum(1 / h for h in [0.05] * 20))
    (1000, 400)
    """
    h, logs = _checked(curvatures), math.log(1 / probability("delta", delta))
    n = integer("n_public", n_public)
    largest = max(1 / float(h.min()), float(h.max()) * n)
    return largest * float(np.minimum(1.0, logs / (h**2 * n)).sum())


def noise_profile(
    curvatures: ArrayLike, direction: ArrayLike, step_size: float, deviation: float
) -> float:
    """E abs(<noisy - noiseless, v>) after a step of a quadratic mirror map: exact.

    ``direction`` is v in the eigenbasis. Reference: [Gan22] Theorem 81.

    >>> round(noise_profile([0.1, 1.0], [1.0, 0.0], 0.5, 0.2), 4)
    0.7979
    """
    h, v = _checked(curvatures), np.asarray(direction, dtype=np.float64)
    size = positive("step_size", step_size) * non_negative("deviation", deviation)
    return math.sqrt(2 / math.pi) * size * float(np.linalg.norm(v / h))


def noise_profile_bound(
    nearby: ArrayLike,
    direction: ArrayLike,
    step_size: float,
    deviation: float,
    *,
    least: float,
    reach: float = 1.0,
) -> float:
    """Bound on E abs(<noisy - noiseless, v>) for a mirror map whose Hessians share eigenvectors.

    ``nearby`` are lower bounds w_i of the eigenvalues in the ellipsoid around the noiseless point
    whose half-axes are step_size * deviation * (1 + ``reach``) * sqrt(d) / w_i, and ``least`` is a
    lower bound everywhere. Beyond the ellipsoid the exact chi tail stands for the printed one, and
    the sum of abs(v_i) / w_i for the root of its squares, which holds along eigenvectors only.
    Reference: [Gan22] Theorem 87, corrected.

    >>> inside = noise_profile([0.1, 1.0], [1.0, 0.0], 0.5, 0.2)
    >>> far = noise_profile_bound([0.1, 1.0], [1.0, 0.0], 0.5, 0.2, least=0.1, reach=5.0)
    >>> round(far / inside, 6)
    1.0
    """
    w, v = _checked(nearby), np.abs(np.asarray(direction, dtype=np.float64))
    size = positive("step_size", step_size) * non_negative("deviation", deviation)
    d = len(w)
    mean_norm = math.sqrt(2) * math.exp(special.gammaln((d + 1) / 2) - special.gammaln(d / 2))
    beyond = mean_norm * float(special.gammaincc((d + 1) / 2, (1 + reach) ** 2 * d / 2))
    # Given its norm, noise has coordinates of a mean size of at most norm / sqrt(d).
    tail = float(v.sum()) / positive("least", least) * beyond / math.sqrt(d)
    return size * (math.sqrt(2 / math.pi) * float((v / w).sum()) + tail)


def _checked(curvatures: ArrayLike) -> Floats:
    h = checked_axes("curvatures", curvatures)
    if not (h > 0).all():
        raise ValueError("curvatures must be positive")
    return h
