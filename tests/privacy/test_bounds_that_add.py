"""Guarantees that add, integer noise, extreme losses: enumeration and closed forms."""

import itertools
import math
import time

import mpmath as mp
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as reference

from dpfit.models import LogisticRegression
from dpfit.privacy import Basis, Budget, Guarantee, gaussian
from dpfit.privacy import event as ev
from dpfit.privacy.accountant import privacy_curve
from dpfit.privacy.calibrate import calibrate
from dpfit.privacy.rounding import up_sqrt, up_to_digits
from oracles import discrete

RELATIONS = ("replace", "add_remove")


def promise(event, relation="replace"):
    return Guarantee(event, Basis("test", relation))


# (epsilon, delta) guarantees


@pytest.mark.parametrize(
    ("parts", "delta", "epsilon"),
    [
        ((ev.Approximate(1.0, 1e-8), ev.Approximate(2.0, 1e-8)), 2e-8, 3.0),
        ((ev.Pure(0.7), ev.Approximate(0.3, 1e-8), ev.Pure(0.11)), 1e-8, 1.11),
        ((ev.Approximate(0.5, 5e-7), ev.Approximate(0.5, 5e-7)), 1e-6, 1.0),
        ((ev.Approximate(0.5, 5e-21), ev.Approximate(0.5, 5e-21)), 1e-20, 1.0),
        (
            (ev.Parallel((ev.Approximate(0.5, 5e-7), ev.Pure(0.1))), ev.Approximate(0.5, 5e-7)),
            1e-6,
            1.0,
        ),
    ],
)
def test_epsilons_and_deltas_add(parts, delta, epsilon):
    assert promise(ev.Composed(parts)).epsilon(delta) == pytest.approx(epsilon, rel=1e-9)
    assert promise(ev.Composed(parts)).epsilon(delta) <= epsilon


def test_two_guarantees_lose_everything_unless_neither_does():
    event = ev.Composed((ev.Approximate(1.0, 0.1), ev.Approximate(2.0, 0.2)))
    assert promise(event).delta(3.0) == pytest.approx(0.28, rel=1e-11)
    exact = discrete.product([discrete.approximate(1.0, 0.1), discrete.approximate(2.0, 0.2)])
    for epsilon in (0.0, 0.5, 1.0, 2.0, 2.9, 3.0, 4.0):
        truth = discrete.worse(exact, epsilon)
        assert truth * (1 - 1e-12) <= promise(event).delta(epsilon) <= truth * 1.001


def test_what_is_not_lost_keeps_its_other_bounds():
    """Noise beside an (epsilon, delta) guarantee composes as beside the pure one, delta apart."""
    noise = ev.Repeated(ev.Gaussian(5.0), 20)
    alone = promise(ev.Composed((noise, ev.Pure(0.1))))
    beside = promise(ev.Composed((noise, ev.Approximate(0.1, 1e-9))))
    for epsilon in (0.5, 3.0, 12.0):
        assert beside.delta(epsilon) == pytest.approx(
            1e-9 + (1 - 1e-9) * alone.delta(epsilon), rel=1e-9
        )


@pytest.mark.parametrize("size", [2, 3])
def test_groups_of_composed_guarantees(size):
    parts = ((0.3, 1e-9), (0.2, 2e-9))
    grouped = promise(ev.Group(ev.Composed(tuple(ev.Approximate(*part) for part in parts)), size))
    deltas = [d * math.expm1(size * e) / math.expm1(e) for e, d in parts]
    assert grouped.delta(size * 0.5 + 1e-12) <= sum(deltas) * (1 + 1e-9)
    # The chain of the whole, which is looser: deltas grow with the sum of the epsilons.
    assert grouped.delta(size * 0.5 + 1e-12) <= 3e-9 * math.expm1(size * 0.5) / math.expm1(0.5)


def test_a_group_is_at_most_the_chain_of_the_whole():
    event = ev.Repeated(ev.Sampled(ev.Gaussian(2.0), 0.01), 100)
    one, group = promise(event, "add_remove"), promise(ev.Group(event, 2), "add_remove")
    for epsilon in (1.0, 2.0, 3.0):
        assert group.delta(epsilon) <= one.delta(epsilon / 2) * (1 + math.exp(epsilon / 2)) * (
            1 + 1e-9
        )


@pytest.mark.parametrize("delta", [1e-20, 1e-14, 1e-30])
def test_pure_parts_beside_noise_below_what_a_grid_resolves(delta):
    mu = gaussian.mu(0.4, delta)
    event = ev.Composed((ev.GaussianPrivate(mu), ev.Pure(0.35), ev.L2Laplace(4.0, 3)))
    assert promise(event).delta(1.0) <= delta * (1 + 1e-9)
    assert promise(event).epsilon(delta) <= 1.0 + 1e-9


def test_noise_beside_a_sample_below_what_a_grid_resolves():
    """Basic composition finds the split of epsilon at which two deltas add up to the budget."""
    single = ev.ObjectivePerturbation(4.0, 0.05, "logistic")
    share = promise(single, "add_remove").epsilon(5e-21)
    event = ev.Composed((ev.GaussianPrivate(gaussian.mu(1.0, 5e-21)), single))
    assert promise(event, "add_remove").delta(1.0 + share) <= 1e-20 * (1 + 1e-6)


@pytest.mark.parametrize(
    ("options", "records", "by_user"),
    [
        ({"epsilon": 1.0, "delta": 1e-20}, (300, 1), False),
        (
            {
                "epsilon": 10.0,
                "delta": 1e-20,
                "relation": "add_remove",
                "n_declared": 1000,
                "max_rows_per_user": 10,
            },
            (1000, 3),
            True,
        ),
    ],
)
def test_plans_keep_budgets_with_a_tiny_delta(options, records, by_user):
    plan = LogisticRegression(**options).plan(*records, by_user=by_user)
    assert plan.guarantee.epsilon(options["delta"]) <= options["epsilon"]


# zCDP and Renyi guarantees


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
def test_rho_adds(delta):
    together, one = (
        promise(ev.Repeated(ev.ZeroConcentrated(0.005), 50)),
        promise(ev.ZeroConcentrated(0.25)),
    )
    assert together.epsilon(delta) == pytest.approx(one.epsilon(delta), rel=1e-9)
    assert promise(ev.Repeated(ev.ZeroConcentrated(0.005), 50)).epsilon(1e-6) == pytest.approx(
        3.543, abs=1e-3
    )


def test_renyi_values_add_at_the_same_orders():
    part = ev.Renyi((2.0, 8.0, 32.0), (0.01, 0.04, 0.16))
    whole = ev.Renyi((2.0, 8.0, 32.0), (0.1, 0.4, 1.6))
    assert promise(ev.Repeated(part, 10)).epsilon(1e-6) == pytest.approx(
        promise(whole).epsilon(1e-6), rel=1e-9
    )


def test_rho_beside_noise_is_at_most_the_sum():
    event = ev.Composed(
        (ev.Repeated(ev.ZeroConcentrated(0.005), 20), ev.Gaussian(2.0), ev.Laplace(4.0))
    )
    rho = 20 * 0.005 + 1 / 8 + 1 / 32
    assert promise(event).epsilon(1e-6) <= promise(ev.ZeroConcentrated(rho)).epsilon(1e-6) * (
        1 + 1e-9
    )


# Large losses


def test_epsilons_above_seven_hundred_are_finite():
    epsilon = promise(ev.Repeated(ev.Gaussian(0.5), 500)).epsilon(1e-3)
    with mp.workdps(700):
        mu, level = mp.sqrt(2000), mp.mpf(epsilon)
        tails = [mp.erfc((level / mu + side * mu / 2) / mp.sqrt(2)) / 2 for side in (-1, 1)]
        assert tails[0] - mp.e**level * tails[1] == pytest.approx(1e-3, rel=1e-8)


@pytest.mark.parametrize(
    "event",
    [
        ev.Repeated(ev.Sampled(ev.Gaussian(0.01), 0.01), 100),
        ev.Composed((ev.Repeated(ev.Laplace(0.1), 60), ev.Gaussian(0.05))),
        ev.Composed((ev.Pure(900.0), ev.Gaussian(1.0))),
        ev.Composed((ev.Pure(900.0), ev.Approximate(1.0, 1e-9))),
        ev.Group(ev.Sampled(ev.Gaussian(0.1), 0.5), 30),
        ev.Repeated(ev.ZeroConcentrated(50.0), 50),
        ev.Repeated(ev.DiscreteGaussian(0.3), 500),
    ],
)
@pytest.mark.parametrize("relation", RELATIONS)
def test_large_losses_have_finite_bounds(event, relation):
    given = promise(event, relation)
    epsilon = given.epsilon(1e-6)
    assert 0 < epsilon < math.inf
    assert given.delta(epsilon) <= 1e-6
    assert given.delta(2 * epsilon) <= given.delta(epsilon)


def test_pure_parts_shift_the_curve_of_noise():
    shifted = promise(ev.Composed((ev.Pure(900.0), ev.Gaussian(1.0)))).epsilon(1e-6)
    assert shifted <= 900 + promise(ev.Gaussian(1.0)).epsilon(1e-6) + 1e-6


def test_no_finite_epsilon_is_still_infinite():
    assert promise(ev.Approximate(1.0, 1e-3)).epsilon(1e-4) == math.inf


# Integer noise


def masses(sigma, shift, width):
    """Masses of discrete Gaussian noise at 0 and at an integer shift."""
    k = np.arange(-width, width + 1)
    p, q = (np.exp(-((k - at) ** 2) / (2 * sigma**2)) for at in (0, shift))
    return p / p.sum(), q / q.sum()


VECTORS = [(1,), (2,), (3,), (1, 1), (2, 1), (1, 1, 1)]


@pytest.mark.parametrize("multiplier", [0.6, 0.8, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("spare", [1.0, 1.03, 1.4])
def test_discrete_gaussian_covers_every_integer_change(multiplier, vector, spare):
    """Any vector, any sensitivity that is at least its norm: the noise multiplier alone decides."""
    sigma = multiplier * spare * math.hypot(*vector)
    width = math.ceil((14 if len(vector) < 3 else 7) * sigma) + 4
    pair = discrete.product([masses(sigma, shift, width) for shift in vector])
    for relation, epsilon in itertools.product(
        RELATIONS, (0.0, 0.1, 0.3, 0.7, 1.0, 1.5, 2.5, 4.0, 6.0)
    ):
        truth = discrete.worse(pair, epsilon)
        assert (
            promise(ev.DiscreteGaussian(multiplier), relation).delta(epsilon)
            >= truth * (1 - 1e-9) - 1e-14
        )


@pytest.mark.parametrize("sigma", [0.58, 0.7, 1.0, 1.5, 3.0, 10.0])
def test_cells_of_the_discrete_gaussian_are_no_wider_than_its_mu(sigma):
    """The GDP parameter of a unit shift is the widest cell in normal quantiles."""
    with mp.workdps(40):
        last = math.ceil(14 * sigma) + 6
        weights = [mp.exp(-(mp.mpf(k) ** 2) / (2 * mp.mpf(sigma) ** 2)) for k in range(40 * last)]
        total = weights[0] + 2 * mp.fsum(weights[1:])
        tails = [mp.fsum(weights[k:]) / total for k in range(1, last)]
        edges = [_normal_tail_inverse(tail) for tail in tails]
    cells = [2 * edges[0], *(b - a for a, b in itertools.pairwise(edges))]
    bound = gaussian.discrete_mu(sigma)
    assert max(cells) <= bound
    assert bound <= max(cells) * (1 + 0.005 / sigma**4) or sigma < 1


def _normal_tail_inverse(tail):
    x = mp.sqrt(-2 * mp.log(tail)) if tail < 0.3 else mp.mpf(0)
    for _ in range(60):
        here = mp.erfc(x / mp.sqrt(2)) / 2
        x += (mp.log(here) - mp.log(tail)) * here / mp.npdf(x)
    return x


@pytest.mark.parametrize(
    ("sigma", "times", "tight"),
    [(10.0, 1, 2e-3), (10.0, 50, 1e-3), (3.0, 20, 1e-2), (1.0, 5, 0.08)],
)
def test_discrete_gaussian_against_dp_accounting(sigma, times, tight):
    exact = reference.from_discrete_gaussian_mechanism(
        sigma, value_discretization_interval=1e-4
    ).self_compose(times)
    for delta in (1e-3, 1e-6, 1e-9):
        truth = exact.get_epsilon_for_delta(delta)
        event = ev.Repeated(ev.DiscreteGaussian(sigma), times)
        assert (
            truth * (1 - 2e-4) - 2e-4 * times
            <= promise(event).epsilon(delta)
            <= truth * (1 + tight)
        )


def test_discrete_gaussian_is_calibrated_as_normal_noise():
    found = calibrate(ev.Repeated(ev.DiscreteGaussian(1.0), 50), Budget(epsilon=1, delta=1e-6))
    normal = calibrate(ev.Repeated(ev.Gaussian(1.0), 50), Budget(epsilon=1, delta=1e-6))
    assert 1 < found.event.noise_multiplier / normal.event.noise_multiplier < 1.0001


def test_little_discrete_noise_is_zcdp_only():
    curve = privacy_curve(ev.DiscreteGaussian(0.5), "replace")
    assert math.isinf(curve.mu)
    assert curve.rho == 2.0


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8])
def test_discrete_laplace_is_exact_for_groups(scale, steps):
    k = np.arange(-math.ceil(45 * scale) - 2, math.ceil(45 * scale) + steps + 3)
    p, q = np.exp(-np.abs(k) / scale), np.exp(-np.abs(k - steps) / scale)
    pair = p / p.sum(), q / q.sum()
    event = ev.Group(ev.DiscreteLaplace(scale), steps)
    levels = np.concatenate(
        [np.linspace(0, steps / scale, 23), np.arange(steps + 1) / scale, [1.1 * steps / scale]]
    )
    for relation, epsilon in itertools.product(RELATIONS, levels):
        truth = discrete.worse(pair, epsilon)
        found = promise(event, relation).delta(epsilon)
        assert truth * (1 - 1e-12) - 1e-15 <= found <= truth * (1 + 1e-9) + 1e-13


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("sensitivity", [1, 2, 5])
def test_a_larger_sensitivity_of_discrete_laplace_loses_no_more(steps, sensitivity):
    k = np.arange(-400, 400)
    p, q = (np.exp(-np.abs(k - at) / (2.0 * sensitivity)) for at in (0, steps * sensitivity))
    pair = p / p.sum(), q / q.sum()
    for epsilon in np.linspace(0, steps / 2.0, 40):
        found = promise(ev.Group(ev.DiscreteLaplace(2.0), steps)).delta(epsilon)
        assert found >= discrete.worse(pair, epsilon) * (1 - 1e-12) - 1e-15


def test_composed_groups_of_discrete_laplace_against_dp_accounting():
    exact = reference.from_discrete_laplace_mechanism(
        1 / 4.0, sensitivity=5, value_discretization_interval=1e-4
    )
    found = promise(ev.Repeated(ev.Group(ev.DiscreteLaplace(4.0), 5), 10))
    for delta in (1e-3, 1e-6):
        truth = exact.self_compose(10).get_epsilon_for_delta(delta)
        assert truth * (1 - 1e-3) <= found.epsilon(delta) <= truth * (1 + 2e-3)


# Small losses


def test_gaussian_delta_of_tiny_mu_is_above_the_truth():
    for mu, level in itertools.product(
        [1e-300, 1e-100, 1e-16, 1e-9, 9.9e-6], [0.0, 0.5, 3.0, 20.0, 37.0]
    ):
        epsilon = mu * level
        with mp.workdps(700):
            a, b = (mp.mpf(epsilon) / mp.mpf(mu) + side * mp.mpf(mu) / 2 for side in (-1, 1))
            truth = (
                mp.erfc(a / mp.sqrt(2)) - mp.exp(mp.mpf(epsilon)) * mp.erfc(b / mp.sqrt(2))
            ) / 2
            assert truth <= mp.mpf(float(gaussian.delta(mu, epsilon)))
            assert truth < 1e-290 or float(gaussian.delta(mu, epsilon)) <= truth * (1 + 1e-9)


@pytest.mark.parametrize(
    "event",
    [
        ev.GaussianPrivate(1e-16),
        ev.Repeated(ev.GaussianPrivate(1e-200), 2),
        ev.Repeated(ev.Laplace(1e17), 100),
        ev.BoundedRange(1e-170),
        ev.ZeroConcentrated(1e-20),
        ev.Sampled(ev.Gaussian(1e9), 1e-9),
        ev.Gaussian(1.0),
    ],
)
def test_no_loss_is_rounded_to_none(event):
    given = promise(event)
    assert given.delta(0.0) > 0
    assert given.epsilon(5e-324) > 0
    level = min(given.pure * (1 - 1e-9), 1e3)
    assert given.delta(level) > 0


def test_one_hundred_tiny_laplace_answers():
    """Half the mean of |L1 + .. + L100|, losses +-1e-17: at most sqrt(100) times 1e-17."""
    found = promise(ev.Repeated(ev.Laplace(1e17), 100)).delta(0.0)
    assert 3e-17 < found < 6e-17


@pytest.mark.parametrize(
    "event", [ev.GaussianPrivate(0.0), ev.ZeroConcentrated(0.0), ev.Sampled(ev.Gaussian(1.0), 0.0)]
)
def test_what_reveals_nothing_costs_nothing(event):
    assert promise(event).epsilon(0.0) == 0
    assert promise(event).delta(0.0) == 0


def test_the_root_of_a_tiny_number_ends():
    from fractions import Fraction

    start = time.perf_counter()
    assert up_sqrt(Fraction(1e-200) ** 2) == 1e-200
    assert up_sqrt(Fraction(5e-324) ** 2 / 2) == 5e-324
    assert time.perf_counter() - start < 1


# Printing


@pytest.mark.parametrize("value", [1.00004, 0.123449, 1.0, 0.1, 700.04, 1234.4, 1e-7, 0.30009])
def test_printed_epsilons_are_not_below_the_value(value):
    shown = float(str(promise(ev.Pure(value))).split(",")[0].removeprefix("epsilon = "))
    assert value <= shown <= value * 1.0011


def test_a_calibrated_budget_is_printed_as_it_was_asked_for():
    budget = Budget(epsilon=1.0, delta=1e-6)
    events = (
        ev.Gaussian(1.0),
        ev.Composed((ev.Gaussian(1.0), ev.Laplace(2.0))),
        ev.Repeated(ev.Sampled(ev.Gaussian(1.0), 0.01), 100),
    )
    for event in events:
        assert str(promise(calibrate(event, budget))).startswith("epsilon = 1 at")
    assert str(promise(calibrate(ev.Laplace, Budget(epsilon=1.0)))).startswith("epsilon = 1,")


def test_printed_digits_round_up():
    assert up_to_digits(1.00004, 4) == 1.001
    assert up_to_digits(0.9999999999999983, 4) == 1.0
    assert up_to_digits(math.inf, 4) == math.inf
