"""The filtered mean: its lemmas on random clusters, its levels against tabulated ones, its law."""

import json
import math
import subprocess
import sys
import textwrap
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import trapezoid

from dpfit.audit.auditor import audit_plan, audit_runs
from dpfit.audit.runs import CallableRuns
from dpfit.core import Answer, Halted, Interact, Interaction, Minimize, Run, Step
from dpfit.core.runner import InteractionClosed, resume
from dpfit.data.dataset import InMemory
from dpfit.data.view import View
from dpfit.ledger import Ledger
from dpfit.losses import Bounds, Logistic
from dpfit.mechanisms.above_threshold import AboveThreshold, ThresholdQueries
from dpfit.mechanisms.aggregates import filtered_mean as filtered_mean_file
from dpfit.mechanisms.aggregates import inlier_levels
from dpfit.mechanisms.aggregates.filtered_mean import FilteredMean, filter_basis, plan_filter
from dpfit.mechanisms.aggregates.inlier_levels import (
    Ramp,
    best_ramp,
    false_answer,
    least_n,
    margin_for,
    plan_levels,
    score_test,
    sensitivity,
)
from dpfit.mechanisms.aggregates.user_means import Query, Rows, UserMean
from dpfit.mechanisms.aggregates.user_vectors import UserVectors
from dpfit.mechanisms.filtered_mean import filtered_mean
from dpfit.mechanisms.filtered_means import filtered_means
from dpfit.mechanisms.user_means import UserMeans
from dpfit.noise import Grid, Source, add_gaussian
from dpfit.privacy import Budget, Guarantee, gaussian
from dpfit.privacy.accountant import privacy_curve
from dpfit.privacy.event import Composed, Gaussian, Pure
from dpfit.solvers.gradient.noisy_gd import noisy_gd

BUDGET = Budget(epsilon=1, delta=1e-6, unit="user")


def users_at(values):
    values = np.asarray(values, dtype=float)
    return InMemory(values, np.zeros(len(values)), np.arange(len(values)))


# Levels.

OVERHEAD = {
    (1, 1): (14.5, 6.7, 4.0, 2.95, 2.31, 2.14),
    (1, 100): (None, 23.9, 9.3, 4.80, 2.68, 2.24),
    (1, 1000): (None, 30.5, 10.1, 5.15, 2.74, 2.26),
    (4, 1): (6.4, 3.7, 2.85, 2.45, 2.17, 2.10),
    (4, 100): (19.2, 8.0, 4.4, 3.09, 2.33, 2.14),
    (4, 1000): (23.4, 8.6, 4.7, 3.20, 2.36, 2.15),
}
"""Noise over that of clipping at the same radius with the whole budget, by n, with delta 1e-6."""


@pytest.mark.parametrize(("epsilon", "rounds"), OVERHEAD)
def test_noise_is_the_tabulated_multiple_of_that_of_clipping(epsilon, rounds, monkeypatch):
    """Within 1% of the table, which has two or three digits.

    The table leaves half of delta to false passes, before the event divides it by the overlap.
    """
    monkeypatch.setattr(inlier_levels, "least_overlap", lambda epsilon, mu: 1.0)
    sizes = (300, 1000, 3000, 10**4, 10**5, 10**6)
    for n, expected in zip(sizes, OVERHEAD[epsilon, rounds], strict=True):
        levels = plan_levels(n, rounds, epsilon, 1e-6)
        if expected is None:
            assert levels is None
            continue
        found = levels.noise * n * gaussian.mu(epsilon, 1e-6) / (2 * math.sqrt(rounds))
        digit = 0.05 if f"{expected}"[::-1].find(".") == 1 else 0.005
        assert abs(found - expected) <= 0.01 * expected + digit, (n, found, expected)


@pytest.mark.parametrize(
    ("share", "two", "one"),
    [
        (2 / 3, 24.0, 24.0),
        (0.75, 16.0, 16.0),
        (0.80, 13.3, 13.3),
        (0.85, 11.4, 11.4),
        (0.90, 10.0, 9.00),
        (0.95, 8.89, 6.22),
        (0.98, 8.33, 4.83),
    ],
)
def test_sensitivities_are_the_tabulated_ones(share, two, one):
    n = 10**6
    floor = share * n
    both = n * sensitivity(n, floor, Ramp(n // 2, math.floor(floor) - 1, True))
    ramps = [Ramp(n // 2, int(high), False) for high in np.linspace(n // 2 + 1, n, 4000)]
    single = n * min(sensitivity(n, floor, ramp) for ramp in ramps)
    assert both == pytest.approx(two, rel=5e-3)
    assert single == pytest.approx(one, rel=5e-3)
    assert n * sensitivity(n, floor, best_ramp(n, floor)) <= min(two, one) * 1.005


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0, 8.0])
@pytest.mark.parametrize("rounds", [1, 100])
def test_what_has_levels_has_a_plan_with_the_noise_of_its_levels(epsilon, rounds):
    """At large epsilon, too, where the event divides false passes by a small overlap."""
    budget = Budget(epsilon=epsilon, delta=1e-6, unit="user")
    least = least_n(rounds, epsilon, 1e-6)
    assert budget.admits(plan_filter(least, rounds, 1.0, budget).event)
    mean = plan_filter(3 * least, rounds, 1.0, budget)
    expected = plan_levels(3 * least, rounds, epsilon, 1e-6).noise
    assert 0.9 <= mean.deviation / expected <= 1.0


def test_the_overlap_is_a_lower_bound():
    for epsilon, mu in ((0.1, 0.2), (1.0, 0.5), (6.0, 0.3), (3.0, 3.0)):
        parts = Composed((Pure(epsilon), Gaussian(1 / mu)))
        likely = float(privacy_curve(parts, "replace").delta(np.zeros(1))[0])
        overlap = inlier_levels.least_overlap(epsilon, mu)
        assert 0.2 * (1 - likely) <= overlap <= (1 - likely) * (1 + 1e-9)


def test_the_smallest_n_is_named_and_enough():
    for rounds in (1, 100):
        least = least_n(rounds, 1.0, 1e-6)
        assert plan_levels(least, rounds, 1.0, 1e-6) is not None
        assert plan_levels(least - 2, rounds, 1.0, 1e-6) is None
    problem = Interact(n=200, workload=UserVectors(2, 1.0, spread=0.1), rounds=100)
    with pytest.raises(ValueError, match=f"at least {least} users.*staged_user_mean"):
        filtered_means.plan(problem, BUDGET)


def beyond(x, scale):
    """Probability that Laplace noise is above x."""
    tail = np.exp(-np.abs(x) / scale) / 2
    return np.where(x > 0, tail, 1 - tail)


def over_the_threshold(function, scale, kinks):
    """Mean of a function of the threshold's noise, by Gauss-Legendre quadrature between kinks."""
    if not scale:
        return float(function(np.zeros(1))[0])
    ends = np.unique(np.concatenate([np.arange(-60, 61) * scale, kinks]))
    nodes, weights = np.polynomial.legendre.leggauss(24)
    middle, half = (ends[1:] + ends[:-1]) / 2, (ends[1:] - ends[:-1]) / 2
    r = middle[:, None] + half[:, None] * nodes
    density = np.exp(-np.abs(r) / scale) / (2 * scale)
    return float(np.sum(function(r) * density * weights * half[:, None]))


@pytest.mark.parametrize("rounds", [1, 3])
def test_false_answers_are_as_likely_as_quadrature_says(rounds):
    """The union bound over rounds is at most 10% above the exact one at large margins."""
    test = score_test(0.5, 0.0, rounds)
    step = test.grid.step
    b1, b2 = test.threshold_scale * step, test.query_scale * step
    for margin in (130.0, 200.0):
        exact = over_the_threshold(
            lambda r, margin=margin: (
                -np.expm1(rounds * np.log1p(-np.minimum(beyond(margin + r, b2), 1 - 1e-15)))
            ),
            b1,
            np.array([-margin]),
        )
        found = false_answer(margin + 2 * step, test)
        assert exact * (1 - 1e-8) <= found <= 1.1 * exact
        assert margin_for(found, test) == pytest.approx(margin + 2 * step, rel=1e-6)


@pytest.mark.parametrize(("share", "rounds"), [(0.35, 4), (0.5, 3), (0.0, 1)])
def test_transcripts_of_the_threshold_keep_epsilon_by_quadrature(share, rounds):
    """The worst neighbours: all queries move one way, the last one the other way.

    A test with a threshold that is drawn in every round loses more, and so does one that takes the
    sensitivity for half of what it is.
    """
    epsilon, moved = 0.7, 2.0
    test = AboveThreshold(epsilon, ThresholdQueries(0.0, moved, halt="below"), rounds, share)
    b1, b2 = (s * test.grid.step for s in (test.threshold_scale, test.query_scale))
    test_scale = max(b1, b2)

    def halts_last(queries, b1, b2):
        """Log probability that all rounds pass but the last."""

        def given(r):
            passes = np.prod([beyond(r - q, b2) for q in queries[:-1]], axis=0)
            return passes * beyond(queries[-1] - r, b2)

        return math.log(over_the_threshold(given, b1, np.array(queries)))

    def worst(b1, b2):
        """Largest loss: passes at one level, then a halt."""
        losses = []
        for level in (-3.0, -0.6, 0.0, 0.9, 3.0):
            for last in (-3.0, 0.0, 1.2, 3.0):
                queries = [level * test_scale] * (rounds - 1) + [last * test_scale]
                other = [q - moved for q in queries[:-1]] + [queries[-1] + moved]
                losses.append(abs(halts_last(queries, b1, b2) - halts_last(other, b1, b2)))
        return max(losses)

    assert 0.25 * epsilon <= worst(b1, b2) <= epsilon + 1e-6
    assert worst(b1 / 2, b2 / 2) > epsilon
    if b1:
        # Ten rounds of a threshold that is drawn again lose ten times what one does.
        passes = [halts_last([q], b1, b2) for q in (60.0, 60.0 + moved)]
        assert 10 * abs(passes[0] - passes[1]) > epsilon


# Lemmas.


def clusters(rng, n, d):
    """Points at a few places of a grid, with ties at the radius."""
    places = rng.integers(-3, 4, (rng.integers(1, 5), d))
    weights = rng.dirichlet(np.full(len(places), 0.4))
    values = places[rng.choice(len(places), n, p=weights)].astype(float)
    return values + rng.integers(-1, 2, (n, d)) * (rng.random() < 0.5)


def ratio_to_the_lemma(rng):
    """Largest observed change over the bound of the lemma, for one pair of neighbours."""
    n, d = int(rng.integers(6, 60)), int(rng.integers(1, 3))
    values = clusters(rng, n, d)
    other = values.copy()
    other[0] = clusters(rng, 1, d)[0] if rng.random() < 0.7 else values[rng.integers(n)]
    radius = float(rng.integers(1, 5))
    low = -(-n // 2)
    two_radii = bool(rng.random() < 0.5)
    # The rounding of values is exact here: the radius is a power of two times their grid.
    counts, scores = [], []
    for each in (values, other):
        squares = ((each[:, None] - each[None]) ** 2).sum(axis=2)
        scores.append((squares <= radius**2).sum() / n)
        counts.append((squares <= (radius * (1 + two_radii)) ** 2).sum(axis=1))
    floor = min(scores)
    assert abs(scores[0] - scores[1]) < 2
    top = math.floor(floor) - 1 if two_radii else n
    if floor <= low + 1 or top <= low:
        return 0.0
    ramp = Ramp(low, int(rng.integers(low + 1, top + 1)), two_radii)
    bound = radius * sensitivity(n, floor, ramp)
    means = []
    for each, near in zip((values, other), counts, strict=True):
        weights = np.clip(near - low, 0, ramp.high - low)
        means.append(weights @ each / weights.sum())
    return float(np.linalg.norm(means[0] - means[1])) / bound


@pytest.mark.parametrize("pairs", [2000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_no_replaced_value_moves_the_mean_further_than_the_lemmas_say(pairs):
    rng = np.random.default_rng(11)
    largest = max(ratio_to_the_lemma(rng) for _ in range(pairs))
    assert 0.1 < largest <= 1.0  # the search finds changes; none beyond the bound


# The mechanism.


def aggregate(n=400, rounds=1, budget=BUDGET, radius=1.0, **options):
    return plan_filter(n, rounds, radius, budget, **options)


def answered(mean, values, seed):
    view = View(users_at(values), "replace", "user", Source(seed))
    run = Run(Source(seed + 10**6))
    asked = UserMean(Rows(values.shape[1], 1e6), mean.radius)
    return mean.step(mean.init(view, run), asked, view, run)[1]


def test_concentrated_values_give_their_mean_and_gaussian_noise():
    """Deviation within 10% and no bias: 700 runs, false alarm below 1e-6."""
    rng = np.random.default_rng(1)
    values = 1e4 + 0.2 * rng.uniform(-1, 1, (400, 3))
    mean = aggregate()
    answers = [answered(mean, values, seed) for seed in range(240)]
    kept = np.array([a for a in answers if not isinstance(a, Halted)])
    assert len(kept) >= 200
    errors = ((kept - values.mean(axis=0)) / mean.deviation).ravel()
    assert abs(errors.mean()) < 5 / math.sqrt(len(errors))
    spread = (errors**2).sum()
    assert stats.chi2.sf(spread, len(errors)) > 1e-6
    assert stats.chi2.cdf(spread, len(errors)) > 1e-6
    # 10% more or less noise than the event pays for would be seen, and a fifth of it, too.
    assert stats.chi2.sf(spread * 1.1**2, len(errors)) < 0.05
    assert stats.chi2.cdf(spread * 0.9**2, len(errors)) < 0.05


def noise_of_queries(rounds, sessions=40, d=20):
    """Squared errors of all answers over the variance that the event charges, and their number.

    Each of T answers may spend mu / sqrt(T), where mu is that of the Gaussian part of the event.
    """
    problem = Interact(n=700, workload=UserVectors(d, 9.0, spread=0.5), rounds=rounds)
    plan = filtered_means.plan(problem, BUDGET)
    mean = plan.mechanism.aggregate
    noise = next(part for part in plan.event.events if isinstance(part, Gaussian))
    moved = mean.radius * sensitivity(700, mean.floor, Ramp(mean.low, mean.high, mean.two_radii))
    deviation = moved * noise.noise_multiplier * math.sqrt(rounds)
    values = 0.02 * np.random.default_rng(2).uniform(-1, 1, (700, d))
    data, errors = users_at(values), []
    for seed in range(sessions):
        answers = plan.run(data, queries=(None,) * rounds, random_state=seed).value
        errors += [(answer - values.mean(axis=0)) / deviation for answer in answers]
    assert len(errors) > 0.7 * sessions * rounds
    return float(np.sum(np.square(errors))), np.size(errors)


@pytest.mark.parametrize("rounds", [2, 5])
def test_the_noise_of_a_query_grows_with_the_number_of_queries(rounds, monkeypatch):
    """Chi-square, false alarm 2e-6; 10% less or more noise fails, and so does noise for one."""
    spread, degrees = noise_of_queries(rounds)
    assert 1e-6 < stats.chi2.cdf(spread, degrees) < 1 - 1e-6
    for factor in (0.9, 1.1):
        assert not 1e-6 < stats.chi2.cdf(spread * factor**2, degrees) < 1 - 1e-6

    def of_one_query(steps, *, noise_multiplier, **options):
        return add_gaussian(steps, noise_multiplier=noise_multiplier / math.sqrt(rounds), **options)

    monkeypatch.setattr(filtered_mean_file, "add_gaussian", of_one_query)
    assert stats.chi2.cdf(*noise_of_queries(rounds, sessions=10)) < 1e-6


def test_outliers_far_away_have_no_weight():
    mean = aggregate(n=2000, outliers=0.05)
    values = np.zeros((2000, 2))
    values[:100] = 1e5
    answers = [answered(mean, values, seed) for seed in range(5)]
    kept = [a for a in answers if not isinstance(a, Halted)]
    assert kept
    assert max(np.abs(a).max() for a in kept) < 6 * mean.deviation


def test_honest_data_halt_as_often_as_allowed_and_scattered_data_always():
    """At most gamma and three deviations in 400 runs; the score of honest data is n."""
    mean = aggregate(rejected=0.05)
    halted = 0
    for seed in range(400):
        run = Run(Source(seed))
        passes = mean.test.compare(mean.test.init(None, run), float(mean.n), run)[1]
        halted += not passes
    assert halted <= 400 * 0.05 + 3 * math.sqrt(400 * 0.05 * 0.95)
    assert halted >= 1  # the margin is not wasted either
    scattered = np.arange(400.0)[:, None] * 10
    assert all(isinstance(answered(mean, scattered, seed), Halted) for seed in range(5))


@pytest.mark.parametrize("cell", [np.nan, np.inf, -np.inf, 1e308])
def test_a_user_that_is_no_number_has_no_weight(cell):
    values = np.zeros((2000, 2))
    values[:3] = cell
    mean = aggregate(n=2000, outliers=0.05)
    answers = [answered(mean, values, seed) for seed in range(3)]
    kept = [a for a in answers if not isinstance(a, Halted)]
    assert kept
    assert max(np.abs(a).max() for a in kept) < 6 * mean.deviation


def test_the_weighted_mean_is_exact():
    mean = aggregate()
    values = np.vstack([np.zeros((300, 1)), np.full((99, 1), 1 / 3), [[np.nan]]])
    rounded = mean.rounded(values)
    near, within = mean.counts(rounded)
    counts = within if mean.two_radii else near
    weights = np.clip(counts - mean.low, 0, mean.high - mean.low)
    weights[-1] = 0
    exact = np.nansum(weights[:, None] * rounded, axis=0) * mean.values_grid.step / weights.sum()
    for grid in (Grid(-30), mean.values_grid, Grid(-2)):
        steps = mean.weighted_mean(rounded, counts, grid)
        assert abs(grid.values(steps)[0] - exact[0]) <= grid.step / 2 * (1 + 1e-9)


@pytest.mark.parametrize("centre", [0.0, 1e5, -3e7])
def test_a_mean_far_away_is_found_exactly(centre):
    """Thirty million radii away the weighted mean is that of exact integers."""
    mean, rng = aggregate(), np.random.default_rng(4)
    values = centre + 0.3 * rng.uniform(-1, 1, (400, 2))
    rounded = mean.rounded(values)
    assert np.abs(rounded * mean.values_grid.step - values).max() <= mean.values_grid.step / 2
    near, within = mean.counts(rounded)
    counts = within if mean.two_radii else near
    steps = mean.weighted_mean(rounded, counts, mean.values_grid)
    sums = [sum(map(int, column)) for column in rounded.T]
    assert np.abs(steps - [round(Fraction(total, 400)) for total in sums]).max() <= 1


def exact_delta(mean, value, other, epsilon, noise=1.0):
    """Hockey-stick divergence of (halt, noisy mean) in one dimension, by quadrature."""
    laws = []
    for values in (value, other):
        rounded = mean.rounded(values)
        near, within = mean.counts(rounded)
        counts = within if mean.two_radii else near
        weights = np.clip(counts - mean.low, 0, mean.high - mean.low)
        weights = np.where(np.isfinite(values[:, 0]), weights, 0)
        centre = weights @ np.nan_to_num(rounded[:, 0]) / max(weights.sum(), 1)
        test = mean.test
        law = stats.laplace(scale=test.query_scale * test.grid.step)
        laws.append((law.sf(mean.threshold - mean.score(near)), centre * mean.values_grid.step))
    (p, m), (q, k) = laws
    sigma = noise * mean.deviation
    line = np.linspace(min(m, k) - 12 * sigma, max(m, k) + 12 * sigma, 4001)
    gap = p * stats.norm.pdf(line, m, sigma) - math.exp(epsilon) * q * stats.norm.pdf(
        line, k, sigma
    )
    return max(0.0, (1 - p) - math.exp(epsilon) * (1 - q)) + trapezoid(np.maximum(gap, 0), line)


def near_the_threshold(rng, mean):
    """Clusters at -r/2, r/2 and 2.4 r; the score is within three noise scales of the threshold."""
    n, scale = mean.n, mean.test.query_scale * mean.test.grid.step
    while True:
        far = int(rng.integers(0, n // 4))
        left = int(rng.integers(0, n - far))
        score = ((n - far) ** 2 + far**2) / n
        if abs(score - mean.threshold) < 3 * scale:
            break
    values = np.concatenate([np.full(left, -0.5), np.full(n - far - left, 0.5), np.full(far, 2.4)])
    other = values.copy()
    place = rng.choice([0, left, n - 1])
    other[min(place, n - 1)] = rng.choice([-0.5, 0.5, 2.4, 40.0])
    return values[:, None], other[:, None]


def largest_ratio(mean, pairs, noise=1.0):
    """Largest delta of the exact law, over that of the event, both ways, at three epsilons."""
    curve, rng, largest = privacy_curve(mean.event, "replace"), np.random.default_rng(3), 0.0
    for _ in range(pairs):
        value, other = near_the_threshold(rng, mean)
        for pair in ((value, other), (other, value)):
            for epsilon in (0.0, 0.3, 1.0):
                allowed = float(curve.delta(np.array([epsilon]))[0])
                largest = max(largest, exact_delta(mean, *pair, epsilon, noise) / allowed)
    return largest


def test_no_pair_of_neighbours_loses_more_than_the_event_by_the_exact_law():
    """60 pairs of clusters near the threshold; the test is what such pairs tell apart."""
    budget = Budget(epsilon=1.0, delta=1e-3)
    mean = plan_filter(120, 1, 1.0, budget, rejected=0.3)
    assert 0.3 < largest_ratio(mean, 60) <= 1.0


def test_the_exact_law_near_the_threshold_catches_a_quiet_test_and_quiet_noise():
    """A score of sensitivity 1, or a fiftieth of the noise of the mean: the lemma is loose."""
    budget = Budget(epsilon=1.0, delta=1e-3)
    mean = plan_filter(120, 1, 1.0, budget, rejected=0.3)
    assert largest_ratio(mean, 20, noise=0.02) > 1
    quiet = replace(mean)
    quiet.__dict__["test"] = AboveThreshold(
        2 * mean.epsilon, mean.test.queries, mean.rounds, mean.test.share
    )
    quiet.__dict__["event"] = mean.event
    assert largest_ratio(quiet, 20) > 1


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [filtered_mean, filtered_means], ids=lambda a: a.name)
def test_an_attack_near_the_threshold_finds_no_more_than_is_guaranteed(algorithm):
    problem, data, neighbour = algorithm.example("replace")
    plan = algorithm.plan(problem, BUDGET)
    audit = audit_plan(plan, data, neighbour, runs=800, delta=1e-6, random_state=1)
    assert audit.verdict == "kept", str(audit)


def without_a_majority():
    """61 of 120 values are within reach of each other until one leaves: then no value has weight.

    Their mean is 1e4 before, and 0 after.
    """
    value = np.concatenate([np.full(61, 1e4), np.linspace(-9e4, -1e4, 59)])[:, None]
    other = value.copy()
    other[0] = -1e6
    return value, other


def test_the_filter_without_its_test_breaks_the_event():
    """The same pair of neighbours, with the test and without it, by the exact law."""
    mean = plan_filter(120, 1, 1.0, Budget(epsilon=1.0, delta=1e-3), rejected=0.3)
    allowed = float(privacy_curve(mean.event, "replace").delta(np.array([1.0]))[0])
    untested = replace(mean)
    object.__setattr__(untested, "threshold", -1e9)
    for pair in (without_a_majority(), without_a_majority()[::-1]):
        assert exact_delta(mean, *pair, 1.0) <= allowed
        assert exact_delta(untested, *pair, 1.0) > 10 * allowed


# Planted faults, in the code that runs; the audit sees its outputs only.


def sharp(n, noise_multiplier, epsilon, threshold, floor, rounds=1):
    """A filtered mean whose event is nearly that of its noise, or of its test, alone."""
    low, high, two_radii = best_ramp(n, floor)
    return FilteredMean(
        n, noise_multiplier, rounds, "replace", per="user", epsilon=epsilon, radius=1.0,
        threshold=threshold, floor=floor, low=low, high=high, two_radii=two_radii,
    )  # fmt: skip


ASKED = UserMean(Rows(1, 9.0), 1.0)


def audited(mean, value, other, guarantee, delta, runs=2500):
    """Audit answers of a filtered mean; vectors and pairs of a table are computed once."""
    views = [View(users_at(each), "replace", "user", Source(1)) for each in (value, other)]
    vectors = {id(view): mean.vectors(ASKED, view) for view in views}
    counts = {id(view): mean.counts(mean.rounded(vectors[id(view)])) for view in views}

    mean = replace(mean)

    def answer(view, source):
        run = Run(source)
        object.__setattr__(mean, "vectors", lambda asked, data: vectors[id(data)])
        object.__setattr__(mean, "counts", lambda values: counts[id(view)])
        released = mean.step(mean.init(view, run), ASKED, view, run)[1]
        return None if isinstance(released, Halted) else released

    return audit_runs(
        CallableRuns(answer), *views, guarantee, runs=runs, delta=delta, random_state=1
    ).verdict


def promised(mean):
    return Guarantee(mean.event, filter_basis(BUDGET))


@pytest.mark.slow
def test_a_fifth_of_the_noise_is_caught(monkeypatch):
    """A user moves from one end of the radius to the other, past all others; mu = 1."""
    mean = sharp(3000, 1.0, 0.2, 2990.0, 2900.0)
    value, other = np.zeros((2, 3000, 1))
    value[0], other[0] = -1.0, 1.0
    assert audited(mean, value, other, promised(mean), 0.2) == "kept"

    def quiet(steps, *, noise_multiplier, **options):
        return add_gaussian(steps, noise_multiplier=noise_multiplier / 5, **options)

    monkeypatch.setattr(filtered_mean_file, "add_gaussian", quiet)
    assert audited(mean, value, other, promised(mean), 0.2) == "broken"


@pytest.mark.slow
def test_a_score_charged_with_sensitivity_one_is_caught(monkeypatch):
    """A user joins the others, so that the score rises by nearly 2; epsilon = 1."""
    settings = (150, 200.0, 1.0, 146.0, 120.0)
    value, other = np.zeros((2, 150, 1))
    value[:2], other[:1] = 3.0, 3.0
    honest = sharp(*settings)
    assert audited(honest, value, other, promised(honest), 0.02) == "kept"
    monkeypatch.setattr(inlier_levels, "SCORE_SENSITIVITY", 1.0)
    assert audited(sharp(*settings), value, other, promised(honest), 0.02) == "broken"


def test_a_filter_without_its_test_is_caught(monkeypatch):
    """The same pair of neighbours: with the test all runs halt, without it none does."""
    mean = plan_filter(120, 1, 1.0, Budget(epsilon=1.0, delta=1e-3), rejected=0.3)
    pair = without_a_majority()
    assert audited(mean, *pair, promised(mean), 0.02) == "kept"
    monkeypatch.setattr(AboveThreshold, "compare", lambda self, state, value, run: (state, True))
    assert audited(mean, *pair, promised(mean), 0.02) == "broken"


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [filtered_mean, filtered_means], ids=lambda a: a.name)
def test_an_attack_on_the_noise_of_an_entry(algorithm, monkeypatch):
    """A user moves past all others, inside the radius, so that scores hardly differ.

    A fortieth of the noise is caught: the lemma is loose for such a pair.
    """
    workload = UserVectors(1, 9.0, spread=0.5)
    problem = Answer(n=400, workload=workload)
    if algorithm is filtered_means:
        problem = Interact(n=400, workload=workload, rounds=3)
    plan = algorithm.plan(problem, Budget(epsilon=8.0, delta=1e-6, unit="user"))
    value, other = np.zeros((2, 400, 1))
    value[0], other[0] = -1.0, 1.0
    pair, options = (users_at(value), users_at(other)), {"delta": 0.12, "random_state": 1}
    assert audit_plan(plan, *pair, runs=700, **options).verdict == "kept"

    def quiet(steps, *, noise_multiplier, **options):
        return add_gaussian(steps, noise_multiplier=noise_multiplier / 40, **options)

    monkeypatch.setattr(filtered_mean_file, "add_gaussian", quiet)
    assert audit_plan(plan, *pair, runs=700, **options).verdict == "broken"


def transcripts(rounds=12, runs=40):
    """Numbers of answers on a score at the threshold, with hardly any noise of queries."""
    mean = sharp(60, 1.0, 0.5, 60.0, 55.0, rounds)
    mean.test.__dict__["query_scale"] = 2.0**-20
    view = View(users_at(np.zeros((60, 1))), "replace", "user", Source(1))
    found = set()
    for seed in range(runs):
        run = Run(Source(seed))
        state, passed = mean.init(view, run), 0
        while passed < rounds:
            state, answer = mean.step(state, ASKED, view, run)
            if isinstance(answer, Halted):
                break
            passed += 1
        found.add(passed)
    return found


def test_a_threshold_that_is_drawn_again_is_caught(monkeypatch):
    """With one threshold for all rounds, equal scores all pass or halt at once."""
    assert transcripts() == {0, 12}
    redraws(monkeypatch)
    assert len(transcripts()) > 2


def redraws(monkeypatch):
    """Plant a fault: every round draws the noise of the threshold afresh."""
    exact = FilteredMean.answer

    def redrawn(self, state, contribution, data, run):
        state = state | {"test": self.test.init(data, run)}
        return exact(self, state, contribution, data, run)

    monkeypatch.setattr(FilteredMean, "answer", redrawn)


def halting(plan, data, rounds):
    """Ask for means that nobody agrees on until the interaction refuses; count the answers."""
    interaction, answers = plan.open(data, random_state=2), 0
    scattered = Query(lambda rows, labels: rows[0] * 1e3, 2)
    for _ in range(3 * rounds):
        try:
            interaction.step(scattered)
        except InteractionClosed:
            return answers, interaction
        answers += 1
    return answers, interaction


def test_a_session_that_is_reset_after_a_halt_is_caught(monkeypatch):
    """A halt is the last answer, also of a session that is stored and resumed."""
    problem = Interact(n=700, workload=UserVectors(2, 9.0, spread=1.0), rounds=3)
    plan = filtered_means.plan(problem, BUDGET)
    data = users_at(np.arange(1400.0).reshape(700, 2))
    answers, interaction = halting(plan, data, 3)
    assert answers == 1
    assert interaction.close().halted
    forgets_halts(monkeypatch)
    assert halting(plan, data, 3)[0] > 3


def forgets_halts(monkeypatch):
    """Plant a fault: a halt is forgotten, and the state is drawn again."""
    exact = Interaction._answer

    def resets(self, query, data):
        answer = exact(self, query, data)
        if self._halted:
            self._halted, self._steps = False, 0
            self._state = self._mechanism.init(data, self._run)
        return answer

    monkeypatch.setattr(Interaction, "_answer", resets)


@pytest.mark.slow
def test_a_session_that_is_reset_after_a_halt_is_caught_by_an_audit(monkeypatch):
    """A user joins the others; a test that is asked until it passes tells it; epsilon = 1."""
    mean = sharp(150, 200.0, 1.0, 148.0, 120.0)
    plan = Step(UserMeans(mean, UserVectors(1, 9.0), 1.0), filter_basis(BUDGET))
    value, other = np.zeros((2, 150, 1))
    value[:2], other[:1] = 3.0, 3.0

    def halts(data, source):
        """Ask until the session ends, at most twelve times; count the halts."""
        session, halts = plan.open(data, random_state=int(source.integers(2**62, 1)[0])), 0
        while not session.done and halts < 12:
            halts += session.step() is None
        return np.array([float(halts)])

    pair = users_at(value), users_at(other)
    options = {"runs": 1500, "delta": 1e-3, "random_state": 1}
    found = audit_runs(CallableRuns(halts), *pair, plan.guarantee, **options)
    assert found.verdict == "kept"
    forgets_halts(monkeypatch)
    found = audit_runs(CallableRuns(halts), *pair, plan.guarantee, **options)
    assert found.verdict == "broken"


def test_the_event_covers_false_passes():
    """An independent account: delta_F plus the curve of test and means, at every epsilon tried."""
    mean = aggregate(n=1000, rounds=10)
    curve = privacy_curve(mean.event, "replace")
    b = [s * mean.test.grid.step for s in (mean.test.threshold_scale, mean.test.query_scale)]
    margin = mean.threshold - mean.floor - 2 - 2 * mean.test.grid.step
    false = 10 / 2 * (b[1] ** 2 * math.exp(-margin / b[1]) - b[0] ** 2 * math.exp(-margin / b[0]))
    false /= b[1] ** 2 - b[0] ** 2
    assert false == pytest.approx(mean.false_pass, rel=1e-9)
    mu = 1 / mean.noise_multiplier
    for epsilon in (0.5, 1.0, 2.0):
        # One bit of randomized response and a Gaussian, composed by hand.
        p = 1 / (1 + math.exp(-mean.epsilon))
        shifted = [gaussian.delta(mu, max(epsilon + s * mean.epsilon, 0)) for s in (-1, 1)]
        if epsilon < mean.epsilon:
            continue
        exact = p * shifted[0] + (1 - p) * shifted[1]
        assert float(curve.delta(np.array([epsilon]))[0]) >= false + exact * (1 - 1e-6)
    assert BUDGET.admits(mean.event)


def test_scores_move_by_less_than_two():
    mean, rng = aggregate(), np.random.default_rng(8)
    for _ in range(50):
        values = clusters(rng, 400, 2)
        other = values.copy()
        other[0] = rng.choice([0.0, 3.0, 1e9, np.nan])
        scores = [mean.score(mean.counts(mean.rounded(each))[0]) for each in (values, other)]
        assert abs(scores[0] - scores[1]) < inlier_levels.SCORE_SENSITIVITY


# The entries.


def test_an_interaction_answers_until_it_halts():
    problem = Interact(n=700, workload=UserVectors(2, 9.0, spread=1.0), rounds=3)
    plan = filtered_means.plan(problem, BUDGET)
    data = users_at(np.zeros((700, 2)))
    interaction = plan.open(data, random_state=2)
    assert interaction.step() is not None
    # The rows of user k are worth 100 k: nobody is near anybody.
    counter = iter(range(10**6))
    scattered = Query(lambda rows, labels: np.full(2, 100.0 * next(counter)), 2)
    assert interaction.step(scattered) is None
    assert interaction.done
    with pytest.raises(InteractionClosed):
        interaction.step()
    assert interaction.close().halted
    release = plan.run(data, queries=(None,) * 5, random_state=4)
    assert len(release.value) <= 3


@pytest.mark.slow
def test_a_killed_session_is_charged_whole_and_stays_halted(tmp_path):
    """A process dies after a round and after the halt; both times another one resumes it."""
    ledger = Ledger.create(tmp_path / "ledger")
    ledger.register("people", Budget(epsilon=2.0, delta=1e-5, unit="user"), currency="pure")
    problem = Interact(n=700, workload=UserVectors(2, 9.0, spread=1.0), rounds=5)
    plan, data = filtered_means.plan(problem, BUDGET), users_at(np.zeros((700, 2)))
    script = textwrap.dedent(f"""
        import os, sys
        import numpy as np
        from dpfit.core import plan_from_json
        from dpfit.core.runner import resume
        from dpfit.data.dataset import InMemory
        from dpfit.ledger import Ledger
        from dpfit.mechanisms.aggregates.user_means import Query
        import json
        plan = plan_from_json(json.loads({json.dumps(json.dumps(plan.to_json()))}))
        data = InMemory(np.zeros((700, 2)), np.zeros(700), np.arange(700))
        account = Ledger({str(tmp_path / "ledger")!r}).account("people", as_approximate=1e-6)
        store, users = {str(tmp_path / "state")!r}, iter(range(10**6))
        if sys.argv[1] == "open":
            assert plan.open(data, store=store, account=account).step() is not None
        else:
            session = resume(plan, store, data, account=account)
            assert session.step(Query(lambda rows, y: np.full(2, 9.0 * next(users)), 2)) is None
        os._exit(9)
    """)
    for when in ("open", "resume"):
        found = subprocess.run([sys.executable, "-c", script, when], check=False)
        assert found.returncode == 9
    session = resume(
        plan, tmp_path / "state", data, account=ledger.account("people", as_approximate=1e-6)
    )
    assert session.done
    with pytest.raises(InteractionClosed):
        session.step()
    assert session.close().halted
    assert [entry.kind for entry in ledger.entries("people")].count("reserve") == 1


def test_bad_input_is_refused_before_anything_is_charged():
    problem = Answer(n=400, workload=UserVectors(2, 9.0, spread=1.0))
    with pytest.raises(ValueError, match=r"needs relation='replace'.*use user_mean or staged"):
        filtered_mean.plan(problem, replace(BUDGET, relation="add_remove"))
    with pytest.raises(ValueError, match=r"give a budget of.*cap the rows of each user"):
        filtered_mean.plan(problem, Budget(epsilon=1.0, unit="user"))
    for name, value in (("radius", 0.0), ("radius", -1.0), ("outliers", 0.5), ("rejected", 0.0)):
        with pytest.raises(ValueError, match=name):
            filtered_mean.plan(problem, BUDGET, **{name: value})
    with pytest.raises(ValueError, match="spread of users"):
        filtered_mean.plan(Answer(n=400, workload=UserVectors(2, 9.0)), BUDGET)
    plan = filtered_mean.plan(problem, BUDGET)
    with pytest.raises(ValueError, match="user ids"):
        plan.run(InMemory(np.zeros((400, 2)), np.zeros(400)))
    with pytest.raises(ValueError, match="n = 400 users, the data have 399"):
        plan.run(users_at(np.zeros((399, 2))))
    with pytest.raises(ValueError, match="replace"):
        FilteredMean(400, 1.0, 1, "add_remove", threshold=399, floor=300, low=200, high=250)


def test_descent_takes_filtered_means():
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(1000 * 20, 2)) / 2
    labels = np.where(rng.random(20_000) < 1 / (1 + np.exp(-3 * rows[:, 0])), 1.0, -1.0)
    data = InMemory(rows, labels, np.repeat(np.arange(1000), 20))
    problem = Minimize(n=1000, loss=Logistic(), bounds=Bounds(2.0), n_features=2, rows_per_user=20)
    plan = noisy_gd.plan(problem, BUDGET, filtered=True, max_passes=5)
    assert isinstance(plan.mechanism.aggregate, FilteredMean)
    release = plan.run(data, random_state=1)
    assert np.isfinite(release.value).all()
    with pytest.raises(ValueError, match="relation='replace'"):
        noisy_gd.plan(problem, replace(BUDGET, relation="add_remove"), filtered=True)
