"""Renyi bounds under several norms: never below a shift, and attained to 2%."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gamma

from dpfit.privacy import accountant
from dpfit.privacy.event import GeneralizedGaussian, Renyi
from dpfit.privacy.moved_answers import ORDERS, largest_ratio, log_moments, moved_answers
from dpfit.theory.generalized_gaussian import fisher_information

SHAPES = [1.0, 1.3, 1.7, 2.5, 4.0]


def values(shape, number, l1=math.inf, l2=math.inf, linf=math.inf):
    """The bound at all orders, with implied norms filled in as a workload does."""
    linf = min(linf, l2, l1)
    l1 = min(l1, math.sqrt(number) * l2, number * linf)
    l2 = min(l2, l1, math.sqrt(l1 * linf))
    event = moved_answers(shape, number, l1, l2, linf)
    found = np.full(len(ORDERS), math.inf)
    found[np.isin(ORDERS, event.orders)] = event.values
    return found


def divergences(shape, shifts):
    moved, times = np.unique(shifts, return_counts=True)
    return sum(n * log_moments(shape, float(v)) for v, n in zip(moved, times, strict=True)) / (
        ORDERS - 1
    )


@pytest.mark.parametrize("order", [1.3, 4.0, 30.0])
@pytest.mark.parametrize(("shape", "shift"), [(1.0, 0.4), (1.5, 0.4), (3.0, 0.2), (4.0, 0.05)])
def test_one_moment_by_quadrature(shape, shift, order):
    """An independent oracle: scipy's adaptive quadrature of the definition."""
    index = int(np.argmin(np.abs(ORDERS - order)))
    order = float(ORDERS[index])
    constant = shape / (2 * gamma(1 / shape))

    def integrand(x):
        return constant * math.exp(-order * abs(x) ** shape + (order - 1) * abs(x - shift) ** shape)

    edges = [-60.0, -10.0, -3.0, -1.0, 0.0, shift, 1.0 + shift, 8.0, 60.0]
    total = sum(quad(integrand, a, b, epsrel=1e-11, limit=400)[0] for a, b in pairwise(edges))
    assert log_moments(shape, shift)[index] == pytest.approx(math.log(total), rel=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_moments_are_convex_in_the_shift(shape):
    """What the bound rests on; chords of neighbouring shifts lie above."""
    shifts = np.linspace(0.02, 0.5, 7)
    moments = np.array([log_moments(shape, float(shift)) for shift in shifts])
    finite = np.isfinite(moments).all(axis=0)
    bent = moments[2:, finite] - 2 * moments[1:-1, finite] + moments[:-2, finite]
    assert np.all(bent >= -1e-5 * moments[1:-1, finite])
    assert np.all(np.diff(moments[:, finite] / shifts[:, np.newaxis], axis=0) >= 0)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_shift_within_the_norms_is_told_apart_better(shape):
    number, l1, l2, linf = 6, 0.7, 0.4, 0.25
    bound = values(shape, number, l1, l2, linf)
    rng = np.random.default_rng(5)
    for power in (0.1, 0.5, 1.0, 3.0, 10.0):
        shift = rng.random(number) ** power
        shift *= min(l1 / shift.sum(), l2 / math.sqrt((shift**2).sum()), linf / shift.max())
        assert np.all(divergences(shape, shift) <= bound)


@pytest.mark.parametrize(
    ("shape", "shifts"),
    [(1.3, np.full(400, 0.015)), (1.7, np.full(400, 0.015)), (2.5, [0.3]), (4.0, [0.3])],
)
def test_under_l2_the_worst_shift_is_spread_below_shape_two_and_single_above(shape, shifts):
    """Attained to 2%: grid chords (0.84%), tiny shifts (0.4%), 400 answers for infinity."""
    bound, attained = values(shape, 400, l2=0.3), divergences(shape, shifts)
    small = (ORDERS > 2) & (ORDERS < 10)
    assert np.all(attained <= bound)
    assert np.all(bound[small] <= 1.02 * attained[small])


@pytest.mark.parametrize("shape", SHAPES)
def test_under_l1_and_linf_as_many_answers_as_can_move_by_all_of_linf(shape):
    """Exact where l1 / linf is whole."""
    bound, attained = values(shape, 50, l1=0.8, linf=0.2), divergences(shape, [0.2] * 4)
    usable = np.isfinite(bound)
    np.testing.assert_allclose(bound[usable], attained[usable], rtol=1e-5)
    assert usable.sum() > 10


def test_small_shifts_have_the_fisher_information():
    """order * information * l2^2 / 2, which is what many answers that move a little come to."""
    bound = values(1.5, 10_000, l2=0.01)
    at = int(np.argmin(np.abs(ORDERS - 3)))
    assert bound[at] == pytest.approx(ORDERS[at] * fisher_information(1.5) * 0.01**2 / 2, rel=0.015)


@pytest.mark.parametrize(("shape", "l2"), [(1.5, 0.2), (3.0, 0.1)])
def test_the_promise_covers_exact_curves_in_both_extreme_directions(shape, l2):
    """delta by loss distributions: one answer moves by all of l2, or 64 by an eighth each."""
    number, epsilon = 64, np.array([0.3, 0.6, 1.0])
    l1 = math.sqrt(number) * l2
    promised = accountant.privacy_curve(moved_answers(shape, number, l1, l2, l2), "replace").delta(
        epsilon
    )
    for event in (
        GeneralizedGaussian(1 / l2, shape, 1),
        GeneralizedGaussian(8 / l2, shape, number),
    ):
        assert np.all(accountant.privacy_curve(event, "replace").delta(epsilon) <= promised)


def test_the_ratio_between_two_shifts_is_that_of_the_chord():
    """Against a fine grid: a chord whose ratio peaks between its ends, and another."""
    fine = np.linspace(1.0, 2.0, 100_001)
    for left, right in ((1.0, 4.0), (1.0, 2.2), (1.0, 6.0)):
        chord = left + (right - left) * (fine - 1)
        found = largest_ratio(np.array([1.0, 2.0]), np.array([[left], [right]]))
        assert found[0] == pytest.approx(np.max(chord / fine**2), rel=1e-8)


def test_orders_without_a_bound_are_left_out():
    """Near shape one the divergence is unknown at large orders, and nothing is claimed."""
    event = moved_answers(1.05, 10, 1.0, 0.5, 0.3)
    assert isinstance(event, Renyi)
    assert np.isfinite(event.values).all()
