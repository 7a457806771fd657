"""Gaussian widths, noise profiles and risk bounds of mirror descent, against exact laws."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import brentq, minimize_scalar

from dpfit.theory import mirror_descent as bounds
from dpfit.theory.gaussian_width import gaussian_width, squared_dual_norm

DRAWS = np.random.default_rng(0).standard_normal((200_000, 6))
RADII = np.array([3.0, 1.0, 1.0, 0.5, 0.1, 0.0])


@pytest.mark.parametrize(("norm", "dual"), [(1, math.inf), (2, 2), (math.inf, 1)])
def test_widths_are_those_of_simulation(norm, dual):
    """The standard error is 0.13% at most, the tolerance six of them."""
    values = np.linalg.norm(DRAWS * RADII, ord=dual, axis=1)
    width = gaussian_width(RADII, norm)
    assert width == pytest.approx(values.mean(), abs=6 * values.std() / math.sqrt(len(values)))


def test_widths_have_closed_forms_scale_and_grow_with_the_set():
    for d in (1, 2, 7, 300):
        exact = math.sqrt(2) * math.exp(math.lgamma((d + 1) / 2) - math.lgamma(d / 2))
        assert gaussian_width(np.ones(d)) == pytest.approx(exact, rel=1e-9)
    for norm in (1, 2, math.inf):
        assert gaussian_width(5 * RADII, norm) == pytest.approx(5 * gaussian_width(RADII, norm))
        assert gaussian_width(RADII + 0.1, norm) > gaussian_width(RADII, norm)
    one, two, most = (gaussian_width(np.ones(1000), norm) for norm in (1, 2, math.inf))
    assert one == pytest.approx(math.sqrt(2 * math.log(2000)), rel=0.15)  # not log(1000) = 6.9
    assert one < two < most


def test_the_squared_dual_norm_is_squared_width_plus_at_most_the_largest_square():
    squares = np.linalg.norm(DRAWS * RADII, axis=1) ** 2
    assert squared_dual_norm(RADII) == pytest.approx(squares.mean(), rel=0.02)
    variance = squared_dual_norm(RADII) - gaussian_width(RADII) ** 2
    assert 0 < variance <= RADII.max() ** 2


def test_invalid_axes_are_refused():
    for wrong in ([], [0.0], [-1.0, 2.0], [math.inf], [[1.0]]):
        with pytest.raises(ValueError, match="radii"):
            gaussian_width(wrong)
    with pytest.raises(ValueError, match="norm"):
        gaussian_width([1.0], 3)
    with pytest.raises(ValueError, match="curvatures"):
        bounds.drift(1.0, 1.0, [0.0, 1.0])


def simulated(h, steps, sizes, deviation, start, draws, rng):
    """Mean excess of noisy mirror descent over zero on F = x' diag(h) x / 2."""
    points, total = np.tile(start, (draws, 1)), 0.0
    for size in sizes:
        total = total + points / steps
        noisy = h * points + deviation * rng.standard_normal(points.shape)
        points = points - size * noisy / h
    return float((0.5 * total**2 @ h).mean())


def test_the_drift_is_the_mean_squared_dual_norm_of_the_steepest_gradient():
    h, gradient = np.array([0.2, 1.0, 5.0]), np.array([2.0, 0.0, 0.0])
    noisy = gradient + 0.7 * np.random.default_rng(1).standard_normal((200_000, 3))
    exact = float((noisy**2 / h).sum(axis=1).mean())
    assert bounds.drift(2.0, 0.7, h) == pytest.approx(exact, rel=0.01)


def test_the_fixed_step_bound_is_met_on_quadratics_and_nearly_attained_on_slopes():
    """On a linear loss without noise the telescoped inequality loses only the last divergence."""
    rng = np.random.default_rng(2)
    h = np.array([0.2, 1.0, 5.0])
    for deviation in (0.0, 0.3, 2.0):
        start = rng.standard_normal(3)
        d = float(0.5 * h @ start**2)
        steep = float(np.linalg.norm(h * 3 * np.abs(start))) + 6 * deviation
        a = bounds.drift(steep, deviation, h)
        size = bounds.best_step_size(50, d, a)
        found = simulated(h, 50, [size] * 50, deviation, start, 2000, rng)
        assert found <= bounds.fixed_step_bound(50, size, d, a)
    # One flat direction with |slope| = L, compared with the point that two step lengths reach.
    steps, size, steep = 1000, 0.001, 1.0
    travelled = steps * size * steep
    losses = -steep * travelled * np.arange(steps) / steps
    best = -steep * travelled  # theta* is where the last step ends: its divergence is spent fully
    excess = float(losses.mean() - best)
    bound = bounds.fixed_step_bound(steps, size, travelled**2 / 2, bounds.drift(steep, 0.0, [1.0]))
    assert excess == pytest.approx(bound, rel=0.002)


def test_the_best_step_size_is_the_minimizer_of_the_bound():
    best = bounds.best_step_size(70, 0.03, 5.0)
    sizes = best * np.geomspace(0.5, 2.0, 101)
    values = [bounds.fixed_step_bound(70, size, 0.03, 5.0) for size in sizes]
    assert int(np.argmin(values)) == 50
    assert values[50] == pytest.approx(math.sqrt(2 * 0.03 * 5.0 / 70))


@pytest.mark.parametrize("delay", [0.0, 3.0])
def test_the_falling_step_bound_is_attained_by_noise_on_the_average_of_a_slope(delay):
    """F = the mirror map: x_{t+1} = x_t - (x_t + b_t) / (t + t0) from zero.

    The sum of (t + t0 - 1) x_t^2 - (t + t0) x_{t+1}^2 telescopes exactly, so with L^2 the mean
    squared gradient only the last divergence is lost.
    """
    rng, steps, deviation, h = np.random.default_rng(3), 400, 0.5, 2.0
    points, start = np.full(4000, 0.3), 0.3
    values = squares = 0.0
    for t in range(1, steps + 1):
        values = values + (h * points**2 / 2).mean() / steps
        size = 1 / (t + delay)
        squares = squares + ((h * points) ** 2).mean() * size / steps
        noise = deviation * rng.standard_normal(points.shape)
        points = points - size * (h * points + noise) / h
    # The gradient enters the bound by its largest norm; its weighted mean gives the exact value.
    harmonic = sum(1 / (t + delay) for t in range(1, steps + 1))
    mean_square = squares * steps / harmonic
    a = bounds.drift(math.sqrt(mean_square), deviation, [h])
    bound = bounds.falling_step_bound(steps, 1.0, delay, h * start**2 / 2, a)
    last = (steps + delay) * float((h * points**2 / 2).mean()) / steps
    # For F equal to the map, F(x) - F* = <gradient, x - x*> - divergence exactly.
    assert values + last == pytest.approx(bound, rel=0.03)


def test_coupled_runs_are_as_stable_as_claimed_and_a_tenth_more_is_attained():
    """Two gradients of norm L differ in one of n records, along the flattest direction."""
    h, c, n, lipschitz = np.array([0.1, 1.0]), 1.0, 50, 1.0
    one = other = np.zeros(2)
    for t in range(1, 3001):
        size = 1 / (c * t)
        push = np.array([lipschitz / n, 0.0])
        one, other = one - size * (h * one + push) / h, other - size * (h * other - push) / h
    moved = lipschitz * float(np.linalg.norm(one - other))
    claimed = bounds.stability(lipschitz, h, c, n)
    assert 0.99 * claimed <= moved <= claimed * (1 + 1e-12)


def test_the_noise_profile_is_that_of_simulation():
    h, size, deviation = np.array([0.1, 1.0, 4.0]), 0.3, 0.5
    noise = -size * deviation * DRAWS[:, :3] / h
    for direction in (np.array([1.0, 0, 0]), np.array([0.6, 0.0, 0.8]), np.ones(3) / math.sqrt(3)):
        exact = float(np.abs(noise @ direction).mean())
        assert bounds.noise_profile(h, direction, size, deviation) == pytest.approx(exact, rel=0.01)


def test_the_profile_bound_holds_for_a_separable_map_and_is_nearly_attained():
    """Psi = sum of m x^2 / 2 + (k_i - m) log cosh x: its Hessians are diagonal everywhere."""
    m, tops, size, deviation, reach = 0.2, np.array([1.0, 3.0]), 0.005, 0.4, 3.0

    def slope(x, top):
        return m * x + (top - m) * np.tanh(x)

    def curvature(x, top):
        return m + (top - m) / np.cosh(x) ** 2

    ends = np.linspace(-60, 60, 400_001)
    middle = np.array([0.4, -0.2])
    noise = size * deviation * DRAWS[:, :2]
    moved = np.stack(
        [
            np.interp(slope(x, top) - part, slope(ends, top), ends) - x
            for x, top, part in zip(middle, tops, noise.T, strict=True)
        ],
        axis=1,
    )
    radius = size * deviation * (1 + reach) * math.sqrt(2)

    def floor(x, top):
        """The fixed point: the least curvature within radius / itself."""
        return brentq(lambda w: curvature(abs(x) + radius / w, top) - w, m * 1.0001, top)

    floors = np.array([floor(x, top) for x, top in zip(middle, tops, strict=True)])
    for direction in np.eye(2):
        found = float(np.abs(moved @ direction).mean())
        bound = bounds.noise_profile_bound(floors, direction, size, deviation, least=m, reach=reach)
        assert found <= bound <= 1.06 * found
        # With curvatures a tenth larger, the bound is broken.
        assert found > bounds.noise_profile_bound(
            1.1 * floors, direction, size, deviation, least=m, reach=reach
        )


@pytest.mark.parametrize("reach", [0.0, 0.5])
def test_the_tail_of_the_profile_bound_is_that_of_the_chi_law(reach):
    """With curvatures so high nearby that only noise beyond the ellipsoid counts."""
    direction, size, deviation, least = np.array([0.6, 0.0, -0.8]), 0.3, 0.5, 0.2
    bound = bounds.noise_profile_bound(
        [1e12] * 3, direction, size, deviation, least=least, reach=reach
    )
    edge = (1 + reach) * math.sqrt(3)
    beyond = quad(lambda r: r * stats.chi(3).pdf(r), edge, 40, points=[6.0])[0]
    assert bound == pytest.approx(size * deviation * 1.4 / least * beyond / math.sqrt(3))


def test_start_divergence_and_trusted_slope_on_simulated_means():
    """Gradients are the 2 d signed unit vectors: V = L = 1, and the covariance is I / d."""
    rng, d, n = np.random.default_rng(5), 4, 200
    chosen, signs = rng.integers(d, size=(4000, n)), rng.choice([-1.0, 1.0], size=(4000, n))
    means = np.stack([(signs * (chosen == j)).mean(axis=1) for j in range(d)], axis=1)
    h = np.full(d, 0.3)
    divergences = 0.5 * (means**2 / h).sum(axis=1)
    # The variance is the same in all directions here and so the bound is an equality.
    assert bounds.start_divergence(1.0, h, n) == pytest.approx(divergences.mean(), rel=0.05)
    for failure in (0.1, 0.01):
        beyond = np.linalg.norm(means, axis=1) > bounds.trusted_slope(1.0, n, failure)
        assert beyond.mean() <= failure
    # In one dimension Hoeffding's exponent is attained: half the slope is left often.
    signs = rng.choice([-1.0, 1.0], size=(20_000, n)).mean(axis=1)
    assert (np.abs(signs) > bounds.trusted_slope(1.0, n, 0.05) / 2).mean() > 0.05


def test_the_trusted_slope_is_attained_by_means_of_signs_deep_in_the_tail():
    """The exact binomial tail, at a failure so small that Hoeffding's exponent decides."""
    n, failure = 10**6, 1e-100

    def beyond(slope):
        return 2 * stats.binom.sf(math.ceil(n * (1 + slope) / 2) - 1, n, 0.5)

    slope = bounds.trusted_slope(1.0, n, failure)
    assert beyond(slope) <= failure < beyond(0.95 * slope)


@pytest.mark.parametrize("failure", [0.5, 0.01])
def test_the_trusted_slope_has_the_best_exponential_moment(failure):
    """E exp(s norm of the sum) is below 2 exp(n s^2 c^2 / 2), c the longest centred gradient."""
    n, lipschitz, mean = 300, 0.7, 0.2
    slope = bounds.trusted_slope(lipschitz, n, failure, mean)

    def log_tail(s):
        return math.log(2) + n * (s * (lipschitz + mean)) ** 2 / 2 - s * n * slope

    least = minimize_scalar(log_tail, bounds=(0.0, 1.0), method="bounded").fun
    assert math.exp(least) == pytest.approx(failure, rel=1e-6)


def test_the_sum_of_inverse_curvatures_is_never_above_chi():
    rng = np.random.default_rng(6)
    for _ in range(300):
        h = 10 ** rng.uniform(-4, 0, size=rng.integers(1, 30))
        for n in (1, 100, 10**6):
            assert bounds.chi(h, n, 0.3) >= (1 / h).sum() * (1 - 1e-12)
    # Equal curvatures attain it where log(1 / delta) is one.
    for n in (16, 100):
        assert bounds.chi([0.25] * 3, n, math.exp(-1)) == pytest.approx(12)
    # The example of the theorem: one eigenvalue k^-1.5, the others 1 / k, enough public records.
    k = 100
    h = np.r_[k**-1.5, np.full(k - 1, 1 / k)]
    assert (1 / h).sum() == pytest.approx(k**2, rel=0.1)
    assert bounds.chi(h, int(k**2.5), 1e-6) > 9 * k**2


def test_with_enough_public_records_the_matrix_is_within_a_factor_two():
    """Rows are scaled unit vectors: the eigenvalues are independent binomial shares."""
    d, failure = 5, 0.05
    n = bounds.enough_public(d, 1 / d, failure)
    counts = np.random.default_rng(7).multinomial(n, np.full(d, 1 / d), size=20_000)
    outside = ((counts * d / n < 0.5) | (counts * d / n > 2)).any(axis=1)
    assert outside.mean() <= failure
    fewer = np.random.default_rng(8).multinomial(n // 4, np.full(d, 1 / d), size=20_000)
    assert ((fewer * d / (n // 4) < 0.5) | (fewer * d / (n // 4) > 2)).any(axis=1).mean() > failure


def test_the_number_of_public_records_is_needed_deep_in_the_tail():
    """A thousand unit rows, equally likely: half of a share is missed by exact binomial tails."""
    d, failure = 1000, 1e-200

    def missed(n):
        # Shares are nearly independent, and the upper tail is far smaller.
        return d * stats.binom.cdf(math.ceil(n / (2 * d)) - 1, n, 1 / d)

    n = bounds.enough_public(d, 1 / d, failure)
    assert missed(n) <= failure < missed(round(0.95 * n))


def test_the_number_of_public_records_has_the_best_exponential_moment():
    """Poisson counts missing half of their mean, for each of d directions and both ends."""
    d, least, failure = 20, 0.05, 0.5

    def chance(n):
        mean = n * least

        def log_tail(s):
            return mean * math.expm1(-s) + s * mean / 2

        best = minimize_scalar(log_tail, bounds=(0.0, 5.0), method="bounded").fun
        return 2 * d * math.exp(best)

    n = bounds.enough_public(d, least, failure)
    assert chance(n) <= failure < chance(n - 1)
