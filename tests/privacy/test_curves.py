"""Leaf curves and sampling rules against quadrature or closed forms, both directions."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from dpfit.privacy import event as ev
from dpfit.privacy import gaussian, renyi
from dpfit.privacy.accountant import privacy_curve
from oracles import continuous, discrete
from oracles.continuous import rule

EPSILONS = np.array([0.0, 0.05, 0.2, 0.5, 1.0, 2.0, 4.0])


def profile(event, epsilons, relation="replace"):
    return privacy_curve(event, relation).profile(np.asarray(epsilons, dtype=float))


def delta(event, epsilon, relation="replace"):
    return float(privacy_curve(event, relation).delta(np.array([float(epsilon)]))[0])


def assert_above(value, truth, numerical=0.0):
    """``numerical`` is the error of the reference, never of the bound."""
    assert value >= truth * (1 - 1e-12) - numerical, f"{value!r} is below the truth {truth!r}"


def assert_close_above(value, truth, tight, numerical=0.0):
    assert_above(value, truth, numerical)
    assert value <= truth * (1 + tight) + numerical + 1e-12, f"{value!r} is loose against {truth!r}"


# Laplace


@pytest.mark.parametrize("multiplier", [0.3, 1.0, 4.0, 100.0])
def test_laplace_matches_quadrature(multiplier):
    shift = 1 / multiplier
    edges = np.unique(np.concatenate([np.linspace(-40, 40 + shift, 400), [0.0, shift]]))
    pair = continuous.generalized_gaussian_pair(1.0, 1.0, shift)
    for epsilon in EPSILONS:
        for value, truth in zip(
            profile(ev.Laplace(multiplier), [epsilon])[:, 0],
            continuous.both_directions(*pair, epsilon, edges),
            strict=True,
        ):
            assert_close_above(value, truth, 1e-9, numerical=1e-12)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.9, 0.1), (1 / 3, 1 / 3, 1 / 3)])
def test_several_laplace_coordinates_stay_below_the_one_dimensional_curve(shares):
    """The multiplier is scale over *l1* sensitivity: spreading the change costs no more."""
    shift = 1.5
    losses, weights = np.zeros(1), np.ones(1)
    for share in shares:
        h = shift * share
        x, w = rule(np.linspace(0.0, h, 12))
        loss = np.concatenate([[h, -h], h - 2 * x])
        mass = np.concatenate([[0.5, 0.5 * math.exp(-h)], w * 0.5 * np.exp(-x)])
        losses, weights = (
            np.add.outer(losses, loss).ravel(),
            np.multiply.outer(weights, mass).ravel(),
        )
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    for epsilon in (0.0, 0.3, 0.9, 1.4):
        truth = float(weights @ np.maximum(-np.expm1(epsilon - losses), 0.0))
        assert truth > 0
        assert truth <= delta(ev.Laplace(1 / shift), epsilon) + 1e-9


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 5.0])
def test_laplace_renyi_matches_quadrature(multiplier):
    shift = 1 / multiplier
    x, w = rule(np.unique(np.concatenate([np.linspace(-60, 60 + shift, 600), [0.0, shift]])))
    for order in (1.5, 2.0, 5.0, 20.0):
        log_terms = -order * np.abs(x) + (order - 1) * np.abs(x - shift) - math.log(2)
        truth = float(logsumexp(log_terms, b=w)) / (order - 1)
        value = float(privacy_curve(ev.Laplace(multiplier), "replace").renyi(np.array([order]))[0])
        assert_close_above(value, truth, 1e-8, numerical=1e-11)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-7, 1e-4])
@pytest.mark.parametrize("kind", [ev.Pure, ev.RandomizedResponse])
def test_renyi_of_a_tiny_epsilon_is_not_below_the_truth(kind, epsilon):
    """log near one loses a tiny epsilon: the bound must be rounded up, never to nothing."""
    for order in (1.001, 2.0, 50.0):
        # R_a = a eps^2 / 2 (1 + O(eps^2 a^2)) for randomized response; the relative error here is
        # below 1e-4.
        truth = order * epsilon**2 / 2 * (1 - 1e-4)
        value = float(privacy_curve(kind(epsilon), "replace").renyi(np.array([order]))[0])
        assert truth * (1 - 1e-3) <= value


# l2-Laplace


@pytest.mark.parametrize("multiplier", [0.3, 1.0, 10.0])
def test_l2_laplace_in_one_dimension_is_laplace(multiplier):
    one, laplace = (
        profile(ev.L2Laplace(multiplier, 1), EPSILONS),
        profile(ev.Laplace(multiplier), EPSILONS),
    )
    assert np.all(one >= laplace * (1 - 1e-12))
    np.testing.assert_allclose(one, laplace, rtol=1e-3, atol=1e-12)


@pytest.mark.parametrize(
    ("multiplier", "dimension"), [(1.0, 2), (0.3, 2), (1.0, 3), (10.0, 3), (0.5, 10)]
)
def test_l2_laplace_matches_quadrature(multiplier, dimension):
    """Cylindrical coordinates with bisection, against the library's radius-and-angle integral."""
    shift = 1 / multiplier
    for share in (0.0, 0.13, 0.5, 0.9):
        truth = continuous.l2_laplace_delta(shift, dimension, share * shift)
        for value in profile(ev.L2Laplace(multiplier, dimension), [share * shift])[:, 0]:
            assert_close_above(value, truth, 1e-2, numerical=1e-11)


@pytest.mark.parametrize(("multiplier", "dimension"), [(0.25, 2), (0.25, 3), (0.2, 10), (0.2, 50)])
def test_l2_laplace_matches_monte_carlo(multiplier, dimension):
    shift = 1 / multiplier
    losses = continuous.l2_laplace_losses(shift, dimension, 400_000, seed=7)
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        estimate, width = continuous.monte_carlo_delta(losses, epsilon)
        # The reverse direction is the same law by reflection; test it through the change of
        # measure.
        reverse = float(np.maximum(np.exp(-losses) - math.exp(epsilon), 0.0).mean())
        for value in profile(ev.L2Laplace(multiplier, dimension), [epsilon])[:, 0]:
            assert abs(value - estimate) <= width + 1e-3 * value
            assert value >= reverse - 8 * math.exp(shift) / math.sqrt(len(losses))


def test_l2_laplace_does_not_crash_in_high_dimension():
    values = profile(ev.L2Laplace(1.0, 10_000), [0.0, 0.01, 0.1])[0]
    assert values[0] == pytest.approx(2 * norm.cdf(0.5 / math.sqrt(10_000)) - 1, rel=1e-2)
    assert np.all(np.diff(values) < 0)


# Generalized Gaussian


@pytest.mark.parametrize("dimension", [1, 10, 1000])
def test_shape_two_is_the_gaussian_mechanism(dimension):
    """[Gan22] Definition 19: shape 2 has variance scale^2 / 2, not scale^2."""
    scale = 6.0 * math.sqrt(dimension)
    mu = math.sqrt(2 * dimension) / scale
    for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0):
        truth = float(continuous.gaussian_delta(mu, epsilon))
        assert_close_above(
            delta(ev.GeneralizedGaussian(scale, 2.0, dimension), epsilon), truth, 1e-6
        )


def test_shape_one_is_the_composition_of_laplace():
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        grid = delta(ev.GeneralizedGaussian(1.5, 1.0, 4), epsilon)
        assert grid == delta(ev.Repeated(ev.Laplace(1.5), 4), epsilon)
    assert privacy_curve(ev.GeneralizedGaussian(1.5, 1.0, 4), "replace").pure == pytest.approx(
        4 / 1.5
    )


def two_coordinates(p, scale, shifts, epsilon):
    """Hockey-stick of two coordinates: quadrature over the first, exact curve of the second."""
    first_p, first_q = continuous.generalized_gaussian_pair(p, scale, shifts[0])
    reach = scale * 60 ** (1 / p)
    x, w = rule(np.unique(np.concatenate([np.linspace(-reach, reach, 120), [0.0, shifts[0]]])))
    y, v = rule(np.unique(np.concatenate([np.linspace(-reach, reach, 120), [0.0, shifts[1]]])))
    second_p, second_q = continuous.generalized_gaussian_pair(p, scale, shifts[1])
    loss = (first_p(x) - first_q(x))[:, None] + (second_p(y) - second_q(y))[None, :]
    mass = (w * np.exp(first_p(x)))[:, None] * (v * np.exp(second_p(y)))[None, :]
    return float(np.sum(mass * np.maximum(-np.expm1(epsilon - loss), 0.0)))


@pytest.mark.parametrize(
    ("shifts", "expected"),
    [
        ((1, 1), 0.119421),
        ((1, -1), 0.119421),
        ((0.9, 0.9), 0.0937),
        ((1, 0.5), 0.0686),
        ((1, 0), 0.0568),
        ((0.5, 0.5), 0.0162),
    ],
)
def test_no_shift_beats_all_ones(shifts, expected):
    truth = two_coordinates(4.0, 3.0, shifts, 1.0)
    assert truth == pytest.approx(expected, abs=6e-5)
    assert delta(ev.GeneralizedGaussian(3.0, 4.0, 2), 1.0) >= truth - 2e-6


@pytest.mark.parametrize(
    ("epsilon", "expected"), [(0.1, 0.271319), (1.0, 0.119421), (2.0, 0.047587)]
)
def test_profiles_match_quadrature(epsilon, expected):
    assert delta(ev.GeneralizedGaussian(3.0, 4.0, 2), epsilon) == pytest.approx(expected, rel=2e-4)
    assert delta(ev.GeneralizedGaussian(3.0, 4.0, 2), epsilon) >= expected - 1e-6


def test_no_random_shift_beats_all_ones():
    rng = np.random.default_rng(5)
    for p, scale in ((1.5, 1.0), (3.0, 2.0)):
        worst = {e: delta(ev.GeneralizedGaussian(scale, p, 2), e) for e in (0.1, 1.0)}
        for shifts in rng.uniform(-1, 1, (8, 2)):
            for epsilon, bound in worst.items():
                assert two_coordinates(p, scale, shifts, epsilon) <= bound + 1e-6


@pytest.mark.parametrize("shape", [1.1, 1.5, 3.0, 4.0, 10.0])
@pytest.mark.parametrize("multiplier", [0.5, 3.0, 100.0])
def test_one_coordinate_matches_quadrature(shape, multiplier):
    pair = continuous.generalized_gaussian_pair(shape, multiplier, 1.0)
    reach = multiplier * 80 ** (1 / shape)
    fan = np.geomspace(1e-12, 1, 200) * reach
    edges = np.unique(
        np.concatenate(
            [np.linspace(-reach, reach + 1, 800), fan, -fan, 1 + fan, 1 - fan, [0.0, 1.0]]
        )
    )
    for epsilon in (0.0, 0.1 / multiplier, 1 / multiplier, 0.5, 2.0):
        for value, truth in zip(
            profile(ev.GeneralizedGaussian(multiplier, shape, 1), [epsilon])[:, 0],
            continuous.both_directions(*pair, epsilon, edges),
            strict=True,
        ):
            assert_close_above(value, truth, 1e-6, numerical=1e-13)


def test_one_coordinate_with_a_tiny_shift_is_still_an_upper_bound():
    """Survival functions agree to eight digits: a relative allowance of 1e-9 is too small."""
    h, p = 1e-8, 1.001
    truth = 4.9521106337581606e-09  # mpmath, 40 digits, at epsilon = 1e-10
    assert float(profile(ev.GeneralizedGaussian(1 / h, p, 1), [1e-10])[0, 0]) >= truth


# Scales of [Gan22] Theorem 34 at epsilon = 1, delta = 1e-6. They have three or more digits, so
# delta is within 1% plus what half a unit of the last digit changes (delta moves about 20 times as
# fast as the scale, in relative terms).
@pytest.mark.parametrize(
    ("dimension", "shape", "scale"),
    [
        (10, 2, 18.89),
        (10, 3, 27.20),
        (100, 2, 59.75),
        (100, 3, 75.30),
        (100, 4, 89.32),
        (1000, 2, 188.93),
        (1000, 3, 233.24),
        (1000, 4, 270.53),
        (1000, 6, 333.55),
        (10_000, 3, 735.91),
        (10_000, 4, 851.29),
        (10_000, 6, 1043.3),
        (100_000, 4, 2690.7),
        (100_000, 5, 3009.0),
    ],
)
def test_scales_match_the_tabulated_ones(dimension, shape, scale):
    digits = 0.005 / scale if scale < 1000 else 0.05 / scale
    assert delta(ev.GeneralizedGaussian(scale, float(shape), dimension), 1.0) == pytest.approx(
        1e-6, rel=0.01 + 30 * digits
    )


def test_renyi_divergences_match_the_tabulated_ones():
    """RDP/alpha: 0.027984 at 2, 0.028023 at 20, near mu^2/2 = 0.028014; epsilon 1.0786.

    The epsilon is that at delta = 1e-6.
    """
    orders = np.array([2.0, 20.0])
    value = (
        privacy_curve(ev.GeneralizedGaussian(851.29, 4.0, 10_000), "replace").renyi(orders) / orders
    )
    np.testing.assert_allclose(value, [0.027984, 0.028023], atol=2e-6)
    all_orders = privacy_curve(ev.GeneralizedGaussian(851.29, 4.0, 10_000), "replace").renyi(
        renyi.ORDERS
    )
    # On a coarser grid of orders the conversion gives 1.0786, an upper bound; the exact epsilon is
    # 1.
    assert 1.0780 < renyi.epsilon(renyi.ORDERS, all_orders, 1e-6) <= 1.0786
    usable = np.isfinite(all_orders)
    classical = np.min(all_orders[usable] + math.log(1e6) / (renyi.ORDERS[usable] - 1))
    assert classical == pytest.approx(1.2736, abs=1e-3)


@pytest.mark.parametrize(
    ("multiplier", "shape", "order"),
    [
        (5.0, 1.1, 2.0),
        (5.0, 1.02, 2.0),
        (5.0, 1.1, 3.0),
        (1.0, 1.5, 10.0),
        (2.0, 4.0, 2.0),
        (2.0, 4.0, 10.0),
        (100.0, 4.0, 200.0),
        (100.0, 4.0, 900.0),
        (10.0, 6.0, 3.0),
        (10.0, 6.0, 50.0),
        (20.0, 10.0, 3.0),
        (20.0, 10.0, 10.0),
        (0.5, 3.0, 200.0),
    ],
)
def test_generalized_gaussian_renyi_is_an_upper_bound(multiplier, shape, order):
    """Kinks at 0 and the shift below shape 2, needle peaks at large orders: hard to integrate."""
    h = math.nextafter(1 / multiplier, math.inf)
    truth = continuous.generalized_gaussian_renyi(h, shape, order)
    value = float(
        privacy_curve(ev.GeneralizedGaussian(multiplier, shape, 1), "replace").renyi(
            np.array([order])
        )[0]
    )
    assert value >= truth * (1 - 1e-11) - 1e-13 / (order - 1)
    assert value <= truth * (1 + 1e-3)


def test_renyi_at_whole_orders_given_as_integers():
    """An integer array must not turn divergences into truncated integers."""
    for event in (
        ev.GeneralizedGaussian(2.0, 4.0, 1),
        ev.Laplace(2.0),
        ev.Sampled(ev.Gaussian(1.0), 0.1),
    ):
        law = privacy_curve(event, "add_remove")
        np.testing.assert_allclose(law.renyi(np.array([2, 5])), law.renyi(np.array([2.0, 5.0])))


# Randomized response, bounded range, approximate


@pytest.mark.parametrize("categories", [2, 3, 10])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_randomized_response_is_exact(epsilon, categories):
    pair = discrete.randomized_response(epsilon, categories)
    for at in (0.0, 0.3 * epsilon, 0.9 * epsilon, epsilon, 2 * epsilon):
        for value, truth in zip(
            profile(ev.RandomizedResponse(epsilon, categories), [at])[:, 0],
            (discrete.hockey_stick(*pair, at), discrete.hockey_stick(pair[1], pair[0], at)),
            strict=True,
        ):
            assert_close_above(value, truth, 1e-12, numerical=1e-15)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_bounded_range_is_the_supremum_over_two_point_pairs(epsilon):
    levels = np.linspace(0, epsilon, 4001)[1:-1]
    for at in np.array([0.0, 0.2, 0.7, 0.99]) * epsilon:
        truth = max(discrete.worse(discrete.bounded_range(epsilon, t), at) for t in levels)
        assert_close_above(delta(ev.BoundedRange(epsilon), at), truth, 1e-5)


def test_bounded_range_covers_the_exponential_mechanism():
    """Brute force over score vectors: scores differ by 1 either way, so the range is 2."""
    scale, worst = 0.6, {0.0: 0.0, 0.4: 0.0, 0.9: 0.0}
    for scores in itertools.product((0, 1, 2), repeat=4):
        for change in itertools.product((-1, 0, 1), repeat=4):
            pair = tuple(
                discrete.exponential_mechanism(np.array(s, float), scale)
                for s in (scores, np.add(scores, change))
            )
            for epsilon in worst:
                worst[epsilon] = max(worst[epsilon], discrete.hockey_stick(*pair, epsilon))
    for epsilon, truth in worst.items():
        assert (
            0.8 * delta(ev.BoundedRange(2 * scale), epsilon)
            <= truth
            <= delta(ev.BoundedRange(2 * scale), epsilon)
        )


@pytest.mark.parametrize("epsilon", [0.5, 1.5])
def test_bounded_range_composition_covers_adaptive_two_point_mechanisms(epsilon):
    """The second level may depend on the first output; the curve covers every choice."""
    levels = np.linspace(0, epsilon, 14)[1:-1]
    for at in np.array([0.0, 0.5, 1.0, 1.5]) * epsilon:
        best = 0.0
        for first in levels:
            p, q = discrete.bounded_range(epsilon, first)
            total = 0.0
            for i in range(2):
                total += max(
                    float(np.maximum(p[i] * a - math.exp(at) * q[i] * b, 0.0).sum())
                    for a, b in (discrete.bounded_range(epsilon, second) for second in levels)
                )
            best = max(best, total)
        bound = delta(ev.Repeated(ev.BoundedRange(epsilon), 2), at)
        assert best <= bound * (1 + 1e-12)
        assert bound <= 1.35 * best + 1e-3


@pytest.mark.parametrize("epsilon", [1e-3, 0.3, 1.0, 3.0, 12.0, 40.0])
def test_bounded_range_gdp_constant(epsilon):
    """The Gaussian curve is above bounded range's and touches it at 0: mu is least."""
    law = privacy_curve(ev.BoundedRange(epsilon), "replace")
    levels = np.linspace(0, 1.5 * epsilon, 4001)
    own = law.delta(levels)
    assert np.all(gaussian.delta(law.mu, levels) >= own * (1 - 1e-9) - 1e-15)
    assert gaussian.delta(0.99 * law.mu, levels)[0] < own[0]
    assert law.mu == pytest.approx(gaussian.from_pure(epsilon / 2))


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_bounded_range_zcdp_constant(epsilon):
    """eps^2/8, which the midway two-point pair nearly attains at small orders and epsilons."""
    for level in np.linspace(0, epsilon, 41)[1:-1]:
        for order in (1.01, 2.0, 8.0, 64.0):
            bound = float(
                privacy_curve(ev.BoundedRange(epsilon), "replace").renyi(np.array([order]))[0]
            )
            assert discrete.renyi(*discrete.bounded_range(epsilon, level), order) <= bound + 1e-13
    near = discrete.renyi(*discrete.bounded_range(0.3, 0.15), 1.01) / 1.01
    assert near >= 0.98 * 0.3**2 / 8


@pytest.mark.parametrize("times", [1, 2, 4])
def test_approximate_leaf_composes_as_the_worst_pair(times):
    pair = discrete.product([discrete.approximate(0.7, 0.01)] * times)
    for at in (0.0, 0.35, 0.7, 1.5, 3.0):
        truth = discrete.worse(pair, at)
        assert_close_above(delta(ev.Repeated(ev.Approximate(0.7, 0.01), times), at), truth, 1e-2)


# Poisson sampling under add/remove


@pytest.mark.parametrize(
    ("rate", "multiplier"), [(0.1, 1.0), (0.01, 0.5), (0.5, 2.0), (0.9, 1.0), (1.0, 3.0)]
)
@pytest.mark.parametrize("times", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [ev.Gaussian, ev.Laplace])
def test_poisson_add_remove_matches_quadrature(kind, rate, multiplier, times):
    """Both directions of the mixture; 2- and 3-fold by averaging the closed form."""
    oracle = continuous.poisson_gaussian if kind is ev.Gaussian else continuous.poisson_laplace
    cells = {1: 40, 2: 2000, 3: 110}[times]
    pair = oracle(rate, multiplier, cells)
    quieter = oracle(rate, 0.995 * multiplier, cells)
    event = ev.Repeated(ev.Sampled(kind(multiplier), rate), times)
    # Error of the reference, seen by halving its cells: the averaged closed form bends sharply.
    error = {1: 1e-12, 2: 1e-9, 3: 3e-7}[times]
    for epsilon in (0.0, 0.02, 0.1, 0.5, 1.0):
        forward, reverse = profile(event, [epsilon], "add_remove")[:, 0]
        assert_above(forward, pair.forward(epsilon, times), error)
        assert_above(reverse, pair.reverse(epsilon, times), error)
        if times == 1:
            assert_close_above(forward, pair.forward(epsilon, 1), 1e-9, error)
            assert_close_above(reverse, pair.reverse(epsilon, 1), 1e-9, error)
        # Tight: half a percent less noise has a larger delta than the one claimed.
        worst = max(quieter.forward(epsilon, times), quieter.reverse(epsilon, times))
        assert max(forward, reverse) <= worst + error + 1e-12


def test_sampled_gaussian_renyi_is_an_upper_bound_in_both_directions():
    x, w = rule(np.linspace(-60, 120, 2400))
    for rate, multiplier in ((0.1, 1.0), (0.01, 0.7), (0.6, 3.0)):
        mu = 1 / multiplier
        base = norm.logpdf(x)
        mixed = np.logaddexp(math.log1p(-rate) + base, math.log(rate) + norm.logpdf(x - mu))
        values = privacy_curve(ev.Sampled(ev.Gaussian(multiplier), rate), "add_remove")
        for order in (1.5, 2.0, 3.7, 10.0, 40.0):
            bound = float(values.renyi(np.array([order]))[0])
            forward = float(logsumexp(order * mixed + (1 - order) * base, b=w)) / (order - 1)
            reverse = float(logsumexp(order * base + (1 - order) * mixed, b=w)) / (order - 1)
            assert max(forward, reverse) <= bound * (1 + 1e-10) + 1e-13
            if order in (2.0, 10.0, 40.0):
                assert bound <= forward * (1 + 1e-6) + 1e-12


# Sampling under replace-one: actual mechanisms on tiny datasets


def subsets(n, method, rate=None, size=None):
    """All samples with their probabilities."""
    if method == "poisson":
        for mask in itertools.product((0, 1), repeat=n):
            yield (
                [i for i in range(n) if mask[i]],
                math.prod(rate if bit else 1 - rate for bit in mask),
            )
    else:
        chosen = list(itertools.combinations(range(n), size))
        for sample in chosen:
            yield list(sample), 1 / len(chosen)


def scalar_law(data, samples, sigma):
    return continuous.normal_mixture(
        [w for _, w in samples], [sum(data[i] for i in s) for s, _ in samples], sigma
    )


def worst_scalar(n, samples, sigma, epsilon, values=(-1.0, 0.0, 1.0)):
    edges = np.linspace(-n - 9 * sigma, n + 9 * sigma, 260)
    worst = 0.0
    for rest in itertools.combinations_with_replacement(values, n - 1):
        laws = {x: scalar_law((x, *rest), samples, sigma) for x in values}
        for a, b in itertools.permutations(values, 2):
            worst = max(worst, continuous.hockey_stick(laws[a], laws[b], epsilon, edges))
    return worst


@pytest.mark.parametrize(("n", "size"), [(3, 1), (4, 2), (3, 2)])
@pytest.mark.parametrize("sigma", [1.0, 3.0])
def test_without_replacement_covers_scalar_sums(n, size, sigma):
    samples = list(subsets(n, "fixed", size=size))
    event = ev.Sampled(ev.Gaussian(sigma / 2), size / n, "without_replacement")
    for epsilon in (0.0, 0.2, 0.7):
        truth, bound = worst_scalar(n, samples, sigma, epsilon), delta(event, epsilon)
        assert truth <= bound * (1 + 1e-9)
        assert truth >= (0.5 if epsilon else 0.9) * bound, (
            "a curve this loose would hide a wrong rule"
        )


@pytest.mark.parametrize("rate", [0.2, 0.6])
@pytest.mark.parametrize("sigma", [1.0, 3.0])
def test_poisson_replace_one_covers_scalar_sums(rate, sigma):
    """A record leaving changes a sum by half of what replacing it does: zero_out = 1/2."""
    samples = list(subsets(3, "poisson", rate=rate))
    event = ev.Sampled(ev.Gaussian(sigma / 2), rate, "poisson", zero_out=0.5)
    loose = ev.Sampled(ev.Gaussian(sigma / 2), rate, "poisson")
    for epsilon in (0.0, 0.2, 0.7):
        truth, bound = worst_scalar(3, samples, sigma, epsilon), delta(event, epsilon)
        assert truth <= bound * (1 + 1e-9)
        assert bound <= delta(loose, epsilon) * (1 + 1e-12)
        if epsilon == 0.0:
            assert truth >= 0.9 * bound, "a curve this loose would hide a wrong rule"


@pytest.mark.parametrize("rate", [0.2, 0.6])
def test_poisson_replaced_covers_scalar_sums(rate):
    """Add/remove promise (multiplier sigma / 1) turned into replace-one: one leaves, one enters."""
    sigma, samples = 1.5, list(subsets(3, "poisson", rate=rate))
    event = ev.Replaced(ev.Sampled(ev.Gaussian(sigma), rate))
    for epsilon in (0.0, 0.2, 0.7):
        truth, bound = worst_scalar(3, samples, sigma, epsilon), delta(event, epsilon)
        assert truth <= bound * (1 + 1e-9)
        if epsilon == 0.0:
            assert truth >= 0.9 * bound, "a curve this loose would hide a wrong rule"


@pytest.mark.parametrize("method", ["poisson", "without_replacement"])
def test_sampling_covers_plane_sums(method):
    """2-D sums of vectors in the unit disc, all samples, on a grid (error about 1e-6)."""
    sigma, n = 1.2, 3
    samples = list(
        subsets(n, "poisson", rate=1 / 3) if method == "poisson" else subsets(n, "fixed", size=1)
    )
    event = ev.Sampled(
        ev.Gaussian(sigma / 2), 1 / 3, method, zero_out=0.5 if method == "poisson" else 1.0
    )
    axis = np.arange(-9.0, 9.0, 0.04)
    angles = np.array([0.0, math.pi / 2, math.pi])
    points = np.vstack([np.column_stack([np.cos(angles), np.sin(angles)]), [[0.0, 0.0]]])

    def density(data):
        total = np.zeros((len(axis), len(axis)))
        for sample, weight in samples:
            mean = points[[data[i] for i in sample]].sum(axis=0) if sample else np.zeros(2)
            total += weight * np.outer(
                norm.pdf(axis, mean[0], sigma), norm.pdf(axis, mean[1], sigma)
            )
        return total * 0.04**2

    for rest in ((0, 1), (2, 2), (3, 1)):
        laws = [density((x, *rest)) for x in range(len(points))]
        for a, b in itertools.permutations(laws, 2):
            for epsilon in (0.0, 0.3):
                assert discrete.hockey_stick(a, b, epsilon) <= delta(event, epsilon) + 1e-6


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_sampling_rates_zero_and_one(relation):
    gaussian = ev.Gaussian(1.3)
    for epsilon in EPSILONS:
        assert delta(ev.Sampled(gaussian, 0.0), epsilon, relation) == 0.0
        assert delta(ev.Sampled(gaussian, 1.0), epsilon, relation) == pytest.approx(
            delta(gaussian, epsilon, relation), rel=1e-9
        )


def test_without_replacement_is_refused_under_add_remove():
    with pytest.raises(ValueError, match="without replacement needs relation='replace'"):
        privacy_curve(ev.Sampled(ev.Gaussian(1.0), 0.5, "without_replacement"), "add_remove")


@pytest.mark.parametrize("sigma", [0.7, 2.0, 5.0])
def test_discrete_gaussian_is_covered_by_zcdp(sigma):
    """Exact masses on the integers; shift 1 in both directions."""
    k = np.arange(-400, 401)
    p = np.exp(-(k**2) / (2 * sigma**2))
    q = np.exp(-((k - 1) ** 2) / (2 * sigma**2))
    p, q = p / p.sum(), q / q.sum()
    for epsilon in EPSILONS:
        truth = max(discrete.hockey_stick(p, q, epsilon), discrete.hockey_stick(q, p, epsilon))
        assert truth <= delta(ev.DiscreteGaussian(sigma), epsilon)
    assert privacy_curve(ev.DiscreteGaussian(sigma), "replace").mu > 1 / sigma, (
        "it is not as GDP as normal noise"
    )


@pytest.mark.parametrize("scale", [0.7, 3.0])
def test_discrete_laplace_is_covered_by_pure(scale):
    k = np.arange(-200, 201)
    p, q = np.exp(-np.abs(k) / scale), np.exp(-np.abs(k - 1) / scale)
    p, q = p / p.sum(), q / q.sum()
    for epsilon in EPSILONS:
        assert (
            discrete.hockey_stick(p, q, epsilon)
            <= delta(ev.DiscreteLaplace(scale), epsilon) + 1e-15
        )
