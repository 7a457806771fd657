"""Generalized Gaussian counts: exact curves, calibrated scales, audits, best shapes."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import chi2, gennorm

from dpfit.audit import Fixed, LikelihoodRatio, Mu, PlanRuns, TradeOff, audit_runs
from dpfit.core import Answer, Run
from dpfit.mechanisms.additive import NoisySums, PowerNoise
from dpfit.mechanisms.counting import Flags
from dpfit.mechanisms.gaussian_counts import gaussian_counts
from dpfit.mechanisms.generalized_gaussian import generalized_gaussian
from dpfit.noise import Source
from dpfit.privacy import Budget, gaussian
from dpfit.privacy.accountant import privacy_curve
from dpfit.theory.best_shape import best_shape, calibrated_scale
from dpfit.theory.generalized_gaussian import IndependentErrors
from oracles import continuous
from oracles.views import viewed

RELATIONS = ("replace", "add_remove")
SHAPES = (1.0, 1.5, 2.0, 3.0, 4.0, 8.0)
BUDGET = Budget(epsilon=1.0, delta=1e-6)


def promised(scale, shape, changed, epsilon, relation="replace"):
    """Both directions of the promise of noisy counts, ``changed`` of which move."""
    max_per_record = changed if relation == "add_remove" else math.ceil(changed / 2)
    number = 2 * changed if relation == "add_remove" else changed
    mechanism = NoisySums(PowerNoise(scale, shape), Flags(number, max_per_record), relation)
    return privacy_curve(mechanism.event, relation).profile(np.array([epsilon]))[:, 0]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_one_moving_count_is_the_curve_by_quadrature(shape, relation):
    for scale in (0.7, 4.0):
        pair = continuous.generalized_gaussian_pair(shape, scale, 1.0)
        reach = scale * 80 ** (1 / shape)
        fan = np.geomspace(1e-12, 1, 200) * reach
        edges = np.unique(
            np.concatenate(
                [np.linspace(-reach, reach + 1, 800), fan, -fan, 1 + fan, 1 - fan, [0.0, 1.0]]
            )
        )
        for epsilon in (0.0, 0.1, 0.9):
            truth = continuous.both_directions(*pair, epsilon, edges)
            for value, exact in zip(
                promised(scale, shape, 1, epsilon, relation), truth, strict=True
            ):
                assert exact - 1e-12 <= value <= exact * (1 + 1e-6) + 1e-12


def composed(scale, shape, changed, epsilons, step=2e-4):
    """Brackets of delta: one coordinate's loss self-convolved, rounded down and up."""
    losses, mass, _ = continuous.log_ratio_grid(1 / scale, shape, 4000, 45 ** (1 / shape))
    brackets = []
    for rounding in (np.floor, np.ceil):
        cells = rounding(losses / step).astype(int)
        first = cells.min()
        one = np.bincount(cells - first, weights=mass)
        total = one
        for _ in range(changed - 1):
            total = np.maximum(
                np.convolve(total, one) if len(total) < 4000 else _convolve(total, one), 0.0
            )
        levels = step * (changed * first + np.arange(len(total)))
        brackets.append([float(total @ np.maximum(-np.expm1(e - levels), 0.0)) for e in epsilons])
    return brackets


def _convolve(one, two):
    from scipy.signal import fftconvolve

    return fftconvolve(one, two)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("shape", "scale"), [(1.5, 6.0), (3.0, 9.0), (4.0, 12.0), (8.0, 25.0)])
@pytest.mark.parametrize("changed", [2, 8])
def test_several_moving_counts_are_the_convolution(shape, scale, changed, relation):
    epsilons = (0.1, 0.5, 1.0)
    low, high = composed(scale, shape, changed, epsilons)
    for epsilon, below, above in zip(epsilons, low, high, strict=True):
        for value in promised(scale, shape, changed, epsilon, relation):
            assert below * (1 - 1e-6) - 1e-10 <= value <= above * (1 + 2e-3) + 1e-10
    # A scale off by 10% leaves the bracket.
    assert float(promised(0.9 * scale, shape, changed, 0.5, relation)[0]) > high[1] * 1.01


def test_a_thousand_moving_counts_against_the_monte_carlo_loss():
    """20,000 losses, each the sum of 1000 independent coordinates; 5.2 standard deviations."""
    shape, changed = 4.0, 1000
    scale = calibrated_scale(changed, shape, Budget(epsilon=1.0, delta=0.01))
    rng = np.random.default_rng(11)
    total = []
    for _ in range(20):
        # |X|^p is Gamma(1/p); sums over coordinates in blocks keep memory small.
        x = rng.gamma(1 / shape, size=(1000, changed)) ** (1 / shape) * np.where(
            rng.random((1000, changed)) < 0.5, -1, 1
        )
        total.append((np.abs(x - 1 / scale) ** shape - np.abs(x) ** shape).sum(axis=1))
    losses = np.concatenate(total)
    for epsilon in (0.2, 0.6, 1.0):
        estimate, width = continuous.monte_carlo_delta(losses, epsilon)
        value = float(promised(scale, shape, changed, epsilon)[0])
        assert abs(value - estimate) <= width + 2e-3 * value
    # With a scale off by 10% the estimate would not fit.
    estimate, width = continuous.monte_carlo_delta(losses, 0.2)
    assert float(promised(0.9 * scale, shape, changed, 0.2)[0]) > estimate + width + 2e-3


@pytest.mark.parametrize("number", [10, 1000, 10**6])
def test_shape_two_is_the_analytic_gaussian_mechanism(number):
    scale = calibrated_scale(number, 2.0, BUDGET)
    assert scale / math.sqrt(2) == pytest.approx(
        math.sqrt(number) / gaussian.mu(1.0, 1e-6), rel=2e-4
    )


def test_the_scale_falls_as_the_budget_grows():
    by_epsilon = [calibrated_scale(50, 4.0, Budget(epsilon=e, delta=1e-6)) for e in (0.5, 1.0, 2.0)]
    by_delta = [calibrated_scale(50, 4.0, Budget(epsilon=1.0, delta=d)) for d in (1e-8, 1e-6, 1e-4)]
    assert by_epsilon == sorted(by_epsilon, reverse=True)
    assert by_delta == sorted(by_delta, reverse=True)


@pytest.mark.parametrize(
    ("number", "shape"), [(100, 2.8), (1000, 3.7), (10_000, 4.2), (10**5, 4.65), (10**6, 5.0)]
)
def test_the_best_shapes_match_the_tabulated_ones(number, shape):
    """Large-k scaling gives 3.0 at k = 100, exact calibration 2.8; errors are flat there."""
    chosen = best_shape(number, number, BUDGET, "max")
    assert chosen == pytest.approx(shape, abs=0.1)


@pytest.mark.parametrize("minimize", ["max", "average", 0.95])
def test_no_other_shape_errs_less(minimize):
    def size(shape):
        return IndependentErrors(shape, calibrated_scale(200, shape, BUDGET), 200).size(minimize)

    chosen = size(best_shape(200, 200, BUDGET, minimize))
    assert all(chosen <= size(shape) * 1.002 for shape in (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0))


@pytest.mark.parametrize(
    ("number", "gain"), [(1000, 0.12), (10_000, 0.18), (10**5, 0.22), (10**6, 0.25)]
)
def test_the_largest_error_is_below_that_of_gaussian_noise(number, gain):
    ours = generalized_gaussian.plan(Answer(n=10, workload=Flags(number)), BUDGET).risk.expected
    theirs = IndependentErrors(
        2.0, math.sqrt(2 * number) / gaussian.mu(1.0, 1e-6), number
    ).expected_max
    assert 1 - ours / theirs >= gain


def test_slopes_of_the_largest_error_over_four_decades():
    """Gaussian: sqrt(k log k), log slope 0.559 here; the best shape stays near sqrt(k)."""
    numbers = np.array([10**2, 10**3, 10**4, 10**5, 10**6])
    logs = np.log(numbers)
    problems = [Answer(n=1, workload=Flags(int(k))) for k in numbers]
    best, normal = (
        np.polyfit(
            logs, np.log([law.plan(problem, BUDGET).risk.expected for problem in problems]), 1
        )[0]
        for law in (generalized_gaussian, gaussian_counts)
    )
    rate = np.polyfit(logs, 0.5 * (logs + np.log(logs)), 1)[0]
    assert abs(normal - rate) < 0.01
    assert 0.5 < best < normal - 0.025


def test_drawn_noise_has_the_rounded_law():
    """Chi-square on 60 integers, 40,000 draws (some tabulated), 1e-9; sees a 5% scale."""
    scale, shape, draws = 12.0, 3.7, 40_000
    mechanism = NoisySums(PowerNoise(scale, shape), Flags(draws), "replace")
    noise = mechanism.run(viewed(np.zeros((1, draws))), Run(Source(4)))
    cells = np.arange(-16, 17)
    counts = np.array([np.sum(noise == cell) for cell in cells])

    def statistic(assumed):
        kept = gennorm(shape, scale=assumed)
        expected = draws * (kept.cdf(cells + 0.5) - kept.cdf(cells - 0.5))
        return float(np.sum((counts - expected) ** 2 / expected))

    assert statistic(scale) < chi2.isf(1e-9, len(cells))
    assert statistic(1.05 * scale) > chi2.isf(1e-9, len(cells))


@dataclass(frozen=True)
class Balanced(Mu):
    """The GDP parameter of the promise where false alarms and misses are equal."""

    def promised(self, guarantee):
        return float(-2 * ndtri(TradeOff(guarantee).balanced))


# Twenty queries that all move by one, near mu = 1.
SHAPE, NUMBER = 4.0, 20
NEIGHBOURS = np.zeros((3, NUMBER)), np.vstack([np.zeros((2, NUMBER)), np.ones((1, NUMBER))])


def audited(factor):
    """The shipped mechanism, its noise times a factor, against the promise without the factor."""
    plan = generalized_gaussian.using(shape=SHAPE).plan(
        Answer(n=3, workload=Flags(NUMBER)), Budget(epsilon=1.0, delta=0.1)
    )
    scale = plan.mechanism.noise.scale
    noise = replace(plan.mechanism.noise, scale=factor * scale)
    return audit_runs(
        PlanRuns(replace(plan, mechanism=replace(plan.mechanism, noise=noise))),
        *NEIGHBOURS,
        plan.guarantee,
        runs=10_000,
        attacks=(
            LikelihoodRatio(
                lambda y: ((np.abs(y) / scale) ** SHAPE - (np.abs(y - 1) / scale) ** SHAPE).sum(
                    axis=1
                )
            ),
        ),
        strategy=Fixed(0.0),
        currency=Balanced(),
        random_state=1,
    )


def test_ten_thousand_runs_find_four_fifths_of_the_promise():
    audit = audited(1.0)
    assert 0.8 * audit.promised <= audit.lower <= audit.promised
    assert audit.kept


def test_noise_times_four_fifths_is_caught():
    assert audited(0.8).broken


@pytest.mark.parametrize("relation", RELATIONS)
def test_no_subset_of_moving_counts_is_told_apart_better(relation):
    """Two of five counts move under add/remove, four under replace-one; more would break it."""
    workload = Flags(5, max_per_record=2)
    budget = Budget(epsilon=1.0, delta=1e-3, relation=relation)
    plan = generalized_gaussian.plan(Answer(n=3, workload=workload), budget, shape=3.0)
    changed = workload.max_changed_answers(relation)
    assert plan.event.dimension == changed == (2 if relation == "add_remove" else 4)
    more = replace(plan.event, dimension=changed + 1)
    assert float(privacy_curve(more, relation).delta(np.array([1.0]))[0]) > 1.1e-3
