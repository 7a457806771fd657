"""The Gaussian curve against fifty-digit references and tabulated numbers."""

import math

import mpmath
import numpy as np
import pytest

from dpfit.privacy import gaussian
from oracles.continuous import gaussian_delta

EPSILONS = (0.0, 0.1, 1.0, 8.0, 30.0)
MUS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.2367, 0.5, 1.0, 2.0, 5.0, 10.0)


def assert_upper_and_tight(mu, epsilon, slack=1e-6):
    truth = gaussian_delta(mu, epsilon)
    value = float(gaussian.delta(mu, epsilon))
    if truth < 1e-290:  # below this doubles have no relative accuracy; the value must vanish too
        assert value <= 1e-289
        return
    assert mpmath.mpf(value) >= truth, (
        f"mu={mu!r} epsilon={epsilon!r}: {value!r} is below {float(truth)!r}"
    )
    assert mpmath.mpf(value) <= truth * (1 + mpmath.mpf(slack))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("mu", MUS)
def test_delta_is_an_upper_bound_and_tight(mu, epsilon):
    """Catches a lost term, a wrong sign, or cancellation in the tail."""
    assert_upper_and_tight(mu, epsilon)


def test_delta_far_in_the_tail_is_still_an_upper_bound():
    """Deltas of 1e-290 to 1: the rounding allowance must grow with the tail."""
    rng = np.random.default_rng(20240501)
    for mu, distance in zip(10 ** rng.uniform(-6, 1, 1500), rng.uniform(0, 36, 1500), strict=True):
        assert_upper_and_tight(float(mu), float(max(0.0, (mu / 2 + distance) * mu)))


def test_tiny_mu_far_in_the_tail():
    """1e-14/mu alone is too small: the gap of the terms shrinks with mu *and* the tail."""
    assert_upper_and_tight(5.623413251903491e-06, 0.00011246826503806983)


@pytest.mark.parametrize("mu", MUS)
def test_delta_at_epsilon_zero_is_total_variation(mu):
    truth = 2 * mpmath.ncdf(mpmath.mpf(mu) / 2) - 1
    assert truth <= mpmath.mpf(float(gaussian.delta(mu, 0.0))) <= truth * (1 + mpmath.mpf("1e-6"))


@pytest.mark.parametrize(
    ("epsilon", "delta", "mu"),
    [
        (1, 1e-6, 0.23670),
        (1, 1e-5, 0.26805),
        (0.1, 1e-6, 0.02754),
        (0.5, 1e-6, 0.12411),
        (2, 1e-6, 0.44833),
        (4, 1e-6, 0.83786),
        (8, 1e-6, 1.53155),
    ],
)
def test_mu_matches_the_tabulated_values(epsilon, delta, mu):
    assert gaussian.mu(epsilon, delta) == pytest.approx(mu, abs=5.1e-6)


def test_sigma_matches_the_tabulated_value():
    assert 1 / gaussian.mu(1, 1e-6) == pytest.approx(4.22468, abs=5.1e-6)


GN2 = [
    # epsilon, delta, t_A, t_B, exact t, delta(t_B)/delta, delta when t_B is doubled (erratum E-P1)
    (0.1, 1e-6, 0.0195, 0.0195, 0.0275, 5.6e-4, 6.8e-5),
    (0.5, 1e-6, 0.0967, 0.0976, 0.1241, 3.4e-3, 4.1e-4),
    (1, 1e-6, 0.1916, 0.1952, 0.2367, 8.8e-3, 1.05e-3),
    (2, 1e-6, 0.3766, 0.3904, 0.4483, 2.9e-2, 3.3e-3),
    (4, 1e-6, 0.7289, 0.7808, 0.8379, 0.15, 1.5e-2),
    (8, 1e-6, 1.3766, 1.5616, 1.5315, 1.76, 0.10),
    (16, 1e-6, 2.5089, 3.1232, 2.7129, 81.6, 0.66),
    (8, 1e-9, 1.1580, 1.2640, 1.2622, 1.06, 1.5e-2),
    (8, 1e-2, 2.0838, 2.8601, 2.4488, 5.05, 0.90),
    (4, 0.2, 1.7820, 2.9548, 2.3800, 2.11, 0.98),
]


@pytest.mark.parametrize(("epsilon", "delta", "t_a", "t_b", "exact", "ratio", "doubled"), GN2)
def test_closed_forms_match_the_tabulated_values(epsilon, delta, t_a, t_b, exact, ratio, doubled):
    mu = gaussian.mu(epsilon, delta)
    seed = epsilon / math.sqrt(2 * math.log(1 / (2 * delta)))
    assert gaussian.closed_form_mu(epsilon, delta) == pytest.approx(t_a, abs=5.1e-5)
    assert seed == pytest.approx(t_b, abs=5.1e-5)
    assert mu == pytest.approx(exact, abs=5.1e-5)
    assert float(gaussian.delta(seed, epsilon)) / delta == pytest.approx(ratio, rel=0.02)
    assert float(gaussian.delta(2 * seed, epsilon)) == pytest.approx(doubled, rel=0.05)


@pytest.mark.parametrize(
    ("epsilon", "delta", "t_a", "t_b", "exact", "ratio", "doubled"), [r for r in GN2 if r[5] > 1]
)
def test_printed_t_b_breaks_the_promise(epsilon, delta, t_a, t_b, exact, ratio, doubled):
    """Regression of the erratum: the seed's closed form promises more privacy than there is."""
    seed = epsilon / math.sqrt(2 * math.log(1 / (2 * delta)))
    assert gaussian_delta(seed, epsilon) > delta
    assert gaussian.mu(epsilon, delta) < seed


@pytest.mark.parametrize("delta", [1e-12, 1e-9, 1e-6, 1e-3, 0.1, 0.4, 0.49])
@pytest.mark.parametrize("epsilon", [1e-4, 0.1, 1.0, 8.0, 30.0])
def test_closed_form_never_exceeds_the_exact_mu(epsilon, delta):
    assert gaussian.closed_form_mu(epsilon, delta) <= gaussian.mu(epsilon, delta)


@pytest.mark.parametrize(
    ("epsilon", "delta", "truth"), [(10, 1e-6, 1.15e-6), (10, 1e-3, 2.0e-3), (20, 1e-6, 1.0e-4)]
)
def test_classical_formula_is_violated(epsilon, delta, truth):
    """[Liu24] Lemma 10.6.6: sigma^2 = 2 log(2/delta)/eps^2 fails near epsilon 10."""
    sigma = math.sqrt(2 * math.log(2 / delta)) / epsilon
    actual = float(gaussian_delta(1 / sigma, epsilon))
    assert actual == pytest.approx(truth, rel=0.03)
    assert actual > delta
    assert 1 / gaussian.mu(epsilon, delta) > sigma


@pytest.mark.parametrize("mu", [1e-4, 1e-2, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.1, 1.0, 8.0])
def test_mu_round_trip_is_safe_and_close(mu, epsilon):
    delta = float(gaussian.delta(mu, epsilon))
    if not 1e-290 < delta < 0.999:
        pytest.skip("delta outside what a double can invert")
    back = gaussian.mu(epsilon, delta)
    assert back <= mu
    assert back >= mu * (1 - 1e-8)
    assert gaussian_delta(back, epsilon) <= mpmath.mpf(delta)


@pytest.mark.parametrize("delta", [1e-200, 1e-30, 1e-9, 1e-6, 1e-2, 0.3])
@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 5.0, 30.0])
def test_epsilon_round_trip_is_safe_and_close(mu, delta):
    epsilon = gaussian.epsilon(mu, delta)
    assert gaussian_delta(mu, epsilon) <= mpmath.mpf(delta)
    if epsilon > 0:
        assert gaussian_delta(mu, epsilon * (1 - 1e-7)) > mpmath.mpf(delta)


def test_delta_grows_with_mu_and_falls_with_epsilon():
    mus, epsilons = np.geomspace(1e-3, 10, 60), np.linspace(0, 8, 60)
    table = gaussian.delta(mus[:, None], epsilons[None, :])
    assert np.all(np.diff(table, axis=0) >= 0)
    assert np.all(np.diff(table, axis=1) <= 0)


@pytest.mark.parametrize(
    ("epsilon", "mu"), [(0.1, 0.12531), (0.5, 0.62389), (1, 1.23204), (2, 2.35796), (4, 4.19448)]
)
def test_pure_to_gaussian_matches_the_tabulated_values(epsilon, mu):
    assert gaussian.from_pure(epsilon) == pytest.approx(mu, abs=5.1e-6)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 4.0, 20.0])
def test_pure_to_gaussian_dominates_and_touches(epsilon):
    """from_pure's tradeoff is below randomized response and touches it at 1/(1 + e^eps)."""
    mu = gaussian.from_pure(epsilon)
    touch = 1 / (1 + math.exp(epsilon))
    x = np.append(np.linspace(1e-6, 1 - 1e-6, 2001), touch)
    pure = np.maximum.reduce(
        [np.zeros_like(x), 1 - np.exp(epsilon) * x, np.exp(-epsilon) * (1 - x)]
    )
    assert np.all(gaussian.tradeoff(mu, x) <= pure + 1e-15)
    assert float(gaussian.tradeoff(mu, touch)) == pytest.approx(touch, rel=1e-9)


def test_three_releases_compose_to_the_root_of_three():
    assert math.sqrt(3) * 0.1367 == pytest.approx(0.2367, abs=1e-4)
    assert math.sqrt(3 * gaussian.mu(1, 1e-6) ** 2 / 3) == pytest.approx(0.2367, abs=1e-4)


@pytest.mark.parametrize(
    "call",
    [
        lambda: gaussian.delta(-1.0, 1.0),
        lambda: gaussian.delta(1.0, -1.0),
        lambda: gaussian.delta(math.nan, 1.0),
        lambda: gaussian.delta(1.0, math.nan),
        lambda: gaussian.epsilon(-1.0, 1e-6),
        lambda: gaussian.epsilon(1.0, 1.5),
        lambda: gaussian.epsilon(1.0, -1e-6),
        lambda: gaussian.epsilon(1.0, math.nan),
        lambda: gaussian.mu(-1.0, 1e-6),
        lambda: gaussian.mu(1.0, 2.0),
        lambda: gaussian.mu(math.nan, 1e-6),
        lambda: gaussian.from_pure(-1.0),
        lambda: gaussian.from_pure(True),
    ],
)
def test_nonsense_is_rejected(call):
    with pytest.raises(ValueError, match=r"must be|must lie"):
        call()


@pytest.mark.parametrize(
    ("mu", "epsilon", "expected"),
    [
        (0.0, 0.0, 0.0),
        (0.0, 1.0, 0.0),
        (math.inf, 1.0, 1.0),
        (1.0, math.inf, 0.0),
        (1e6, 1.0, 1.0),
        (1e-300, 1.0, 2e-323),
    ],
)
def test_limits(mu, epsilon, expected):
    assert float(gaussian.delta(mu, epsilon)) == expected


def test_an_array_of_budgets_is_inverted_as_one_by_one():
    """Rounded down: the curve of the result passes below every point; a little more does not."""
    epsilon, delta = (
        grid.ravel()
        for grid in np.meshgrid([0.0, 1e-6, 0.01, 1.0, 30.0], [1e-30, 1e-6, 0.3, 0.999])
    )
    found = gaussian.mu(epsilon, delta)
    one_by_one = [gaussian.mu(float(e), float(d)) for e, d in zip(epsilon, delta, strict=True)]
    assert found == pytest.approx(one_by_one, rel=1e-7)
    assert found[delta >= 1e-6] == pytest.approx(np.array(one_by_one)[delta >= 1e-6], rel=1e-9)
    assert (gaussian.delta(found, epsilon) <= delta).all()
    known = found > 0
    assert (gaussian.delta(found[known] * (1 + 1e-4), epsilon[known]) > delta[known]).all()


def test_the_ends_of_an_array_are_those_of_numbers():
    ends = [(math.inf, 0.5), (1.0, 0.0), (math.inf, 0.0), (1.0, 1.0), (0.0, 0.0)]
    epsilon, delta = (np.array(column) for column in zip(*ends, strict=True))
    assert gaussian.mu(epsilon, delta).tolist() == [gaussian.mu(*end) for end in ends]
    assert gaussian.mu(np.array([]), 1e-6).shape == (0,)
    assert gaussian.mu(np.ones((2, 3)), 1e-6).shape == (2, 3)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(-1.0, 0.1), (math.nan, 0.1), (1.0, 1.1), (1.0, -0.1), (1.0, math.nan)]
)
def test_nonsense_in_an_array_is_rejected(epsilon, delta):
    with pytest.raises(ValueError, match="must be at least 0"):
        gaussian.mu(np.array([1.0, epsilon]), np.array([0.1, delta]))
