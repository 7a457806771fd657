"""Answers of declared sensitivities: all laws under all norms, choice and errors."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2, gennorm

from dpfit.audit import LikelihoodRatio, PlanRuns, audit_runs
from dpfit.core import Answer, Run, plan_from_json
from dpfit.mechanisms.additive import KNormNoise, NoisySums, PowerNoise
from dpfit.mechanisms.counting import Flags
from dpfit.mechanisms.declared_answers import DeclaredQueries, declared_answers
from dpfit.noise import Source
from dpfit.privacy import Budget, BudgetUnreachable, accountant, gaussian
from dpfit.privacy.event import GeneralizedGaussian
from dpfit.theory.best_shape import calibrated_scale
from oracles.views import viewed

APPROXIMATE = Budget(epsilon=1.0, delta=1e-6)


def planned(workload, budget=APPROXIMATE, **options):
    return declared_answers.plan(Answer(workload=workload), budget, **options)


@pytest.mark.parametrize(
    "norms",
    [
        {"l1": 3.0},
        {"l2": 1.5},
        {"linf": 0.5},
        {"l1": 3.0, "linf": 0.5},
        {"l1": 2.0, "l2": 1.2, "linf": 0.9},
    ],
)
def test_norms_that_follow_hold_for_every_shift(norms):
    """Ten thousand shifts as large as declared; each norm is attained to 30% by one of them."""
    workload, rng = DeclaredQueries(6, **norms), np.random.default_rng(3)
    shifts = (
        rng.standard_normal((10_000, 6)) * (rng.random((10_000, 6)) < rng.random((10_000, 1)))
        + 1e-9
    )
    orders = {"l1": 1, "l2": 2, "linf": np.inf}
    lengths = {norm: np.linalg.norm(shifts, order, axis=1) for norm, order in orders.items()}
    factors = np.min([bound / lengths[norm] for norm, bound in norms.items()], axis=0)
    for norm in orders:
        largest = np.max(factors * lengths[norm])
        assert (
            0.7 * workload.sensitivity(norm) <= largest <= workload.sensitivity(norm) * (1 + 1e-12)
        )


def test_closed_forms():
    """Laplace l1 / epsilon, Gaussian l2 / mu, K-norm linf / epsilon."""
    workload = DeclaredQueries(50, l1=3.0, l2=0.7, linf=0.2)
    pure = Budget(epsilon=0.5)
    assert planned(workload, pure, noise=("laplace",)).mechanism.noise.scale == pytest.approx(
        6.0, rel=1e-9
    )
    for bounds, norm, scale in (({"linf": 0.2}, "linf", 0.4), ({"l2": 0.7}, "l2", 1.4)):
        vector = planned(DeclaredQueries(50, **bounds), pure, noise=("k_norm",)).mechanism
        assert vector.noise.norm == norm
        assert vector.errors.scale == pytest.approx(scale, rel=1e-9)
    normal = planned(workload, noise=("gaussian",)).mechanism
    deviation = 0.7 / gaussian.mu(1.0, 1e-6)
    assert normal.errors.scale / math.sqrt(2) == pytest.approx(deviation, rel=1e-6)
    assert PowerNoise.of_shape(2.0, workload.change("replace"), APPROXIMATE).scale / math.sqrt(
        2
    ) == pytest.approx(deviation, rel=1e-3)


def test_under_linf_alone_it_is_the_mechanism_of_counting_queries():
    noise = PowerNoise.of_shape(3.0, DeclaredQueries(300, linf=2.5).change("replace"), APPROXIMATE)
    assert noise.bound == "linf"
    assert noise.scale == pytest.approx(2.5 * calibrated_scale(300, 3.0, APPROXIMATE), rel=3e-4)


@pytest.mark.parametrize("shape", [1.0, 1.5, 3.0])
def test_under_l1_one_answer_that_moves_by_all_of_it_is_the_worst(shape):
    """Quadrature in the plane: shifts (a, b) with a + b = 0.9, and one of 0.9."""
    grid = np.linspace(-8.0, 9.0, 1701)
    cell = (grid[1] - grid[0]) ** 2
    law = gennorm(shape)
    epsilon = np.array([0.1, 0.4, 0.7])
    promised = accountant.privacy_curve(GeneralizedGaussian(1 / 0.9, shape, 1), "replace").delta(
        epsilon
    )
    here = np.outer(law.pdf(grid), law.pdf(grid))
    for first in (0.9, 0.7, 0.45):
        there = np.outer(law.pdf(grid - first), law.pdf(grid - (0.9 - first)))
        deltas = np.array([np.maximum(there - math.exp(e) * here, 0).sum() * cell for e in epsilon])
        assert np.all(deltas <= promised * (1 + 1e-3) + 1e-6)
        if first == 0.9:
            np.testing.assert_allclose(deltas, promised, rtol=0.01, atol=1e-6)
        else:
            assert np.all(deltas < 0.99 * promised)


@pytest.mark.parametrize(
    ("norms", "shape", "bound"),
    [
        ({"l1": 1.0}, 1.5, "l1"),
        ({"linf": 1.0}, 3.0, "linf"),
        ({"l2": 1.0}, 1.5, "moments"),
        ({"l1": 60.0, "linf": 1.0}, 3.0, "moments"),
        ({"l2": 1.0}, 2.0, "l2"),
    ],
)
def test_the_scale_is_the_smallest_of_all_bounds_and_needed_to_an_eighth(norms, shape, bound):
    """Exact curve of the worst known shift: no less is safe, and moments lose at most 12%."""
    workload = DeclaredQueries(400, **norms)
    noise = PowerNoise.of_shape(shape, workload.change("replace"), APPROXIMATE)
    assert noise.bound == bound
    moving = {"l1": 1, "linf": 400, "l2": 1, "moments": 60 if "l1" in norms else 400}[bound]
    shift = 1 / math.sqrt(moving) if norms.get("l2") else 1.0
    needed = shift * calibrated_scale(moving, shape, APPROXIMATE)
    assert needed * (1 - 3e-4) <= noise.scale <= needed * (1.12 if bound == "moments" else 1 + 3e-4)


@pytest.mark.parametrize(
    ("norms", "budget", "label"),
    [
        ({"linf": 1.0}, APPROXIMATE, "generalized Gaussian"),
        ({"l1": 1.0}, APPROXIMATE, "Laplace"),
        ({"l2": 1.0}, APPROXIMATE, "Gaussian"),
        ({"l1": 1.0}, Budget(epsilon=1.0), "Laplace"),
        ({"l2": 1.0}, Budget(epsilon=1.0), "K-norm (l2)"),
        ({"linf": 1.0}, Budget(epsilon=1.0), "K-norm"),
        ({"linf": 1.0}, Budget(mu=0.5), "Gaussian"),
        ({"linf": 1.0}, Budget(rho=0.1), "Gaussian"),
    ],
)
def test_who_wins_among_a_thousand_answers(norms, budget, label):
    plan = planned(DeclaredQueries(1000, **norms), budget)
    assert plan.considered[0].name.startswith(label)
    assert plan.guarantee.meets(budget)
    errors = [candidate.risk for candidate in plan.considered]
    assert errors == sorted(errors)
    assert len({candidate.name for candidate in plan.considered}) == len(errors)


def test_in_few_dimensions_one_vector_of_noise_errs_least_under_l2():
    """Gamma(k) radius in l2, k = 5: 3.69, against 5 in the maximum norm and 6.6 Gaussian."""
    plan = planned(DeclaredQueries(5, l2=1.0))
    assert plan.considered[0].name == "K-norm (l2)"
    assert plan.risk.expected == pytest.approx(3.689, abs=2e-3)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_one_vector_of_noise_keeps_its_epsilon_at_every_point(norm):
    """The density at y changes at most by the factor e when answers move by a unit vector."""
    rng, order = np.random.default_rng(4), {"linf": np.inf, "l2": 2}[norm]
    points, moves = rng.standard_normal((2, 2000, 6)) * [[[3.0]], [[1.0]]]
    moves /= np.linalg.norm(moves, order, axis=1, keepdims=True)
    losses = np.linalg.norm(points - moves, order, axis=1) - np.linalg.norm(points, order, axis=1)
    multiplier = planned(
        DeclaredQueries(6, **{norm: 1.0}), Budget(epsilon=1.0), noise=("k_norm",)
    ).mechanism.noise
    assert multiplier.norm == norm
    assert 0.95 < np.max(np.abs(losses)) / multiplier.noise_multiplier <= 1 + 1e-9


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_one_vector_of_noise_has_the_predicted_errors(norm):
    """Mean largest error of 5000 draws, within five standard errors; sees 5%."""
    workload = DeclaredQueries(6, l2=2.0, linf=1.5)
    mechanism = NoisySums(KNormNoise(3.0, norm), workload, "replace")
    largest = np.abs(mechanism.run_many(viewed(np.zeros((1, 6))), Run(Source(3)), 5000)).max(axis=1)
    error = largest.std() / math.sqrt(5000)
    assert abs(largest.mean() - mechanism.errors.expected_max) < 5 * error < 0.04 * largest.mean()


def test_both_norms_together_need_less_noise_than_either():
    """1e5 answers, of which about 2000 can move by one: 15% below the Gaussian."""
    plan = planned(
        DeclaredQueries(100_000, l1=2000.0, linf=1.0), noise=("gaussian", "generalized_gaussian")
    )
    best, other = plan.considered
    assert best.name.startswith("generalized Gaussian")
    assert best.risk < 0.85 * other.risk


def test_the_basis_says_that_sensitivities_are_declared():
    plan = planned(DeclaredQueries(4, l1=3.0, linf=1.0), noise=("gaussian",))
    (assumption,) = plan.basis.assumptions
    assert assumption.status == "declared"
    assert "3 in the l1 norm, 1 in the maximum norm" in assumption.text


@pytest.mark.parametrize(
    ("law", "norms"),
    [("k_norm", {"linf": 1.0}), ("gaussian", {"l2": 1.0}), ("laplace", {"l1": 1.0})],
)
def test_plans_round_trip(law, norms):
    plan = planned(DeclaredQueries(200, **norms), noise=(law,))
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize("bound", ["l1", "linf"])
def test_drawn_noise_has_the_law_that_is_accounted(bound):
    """Chi-square on 40 equal cells, 40,000 draws, false alarm 1e-9; sees a scale 5% off."""
    draws, scale, shape = 40_000, 7.0, 2.7
    workload = DeclaredQueries(draws, l1=3.0, linf=1.0)
    mechanism = NoisySums(PowerNoise(scale, shape, bound), workload, "replace")
    noise = mechanism.run(viewed(np.full((1, draws), 0.3)), Run(Source(9))) - 0.3

    def statistic(assumed):
        edges = gennorm(shape, scale=assumed).ppf(np.linspace(0, 1, 41)[1:-1])
        counts = np.bincount(np.searchsorted(edges, noise), minlength=40)
        return float(np.sum((counts - draws / 40) ** 2) / (draws / 40))

    assert statistic(scale) < chi2.isf(1e-9, 39)
    assert statistic(1.05 * scale) > chi2.isf(1e-9, 39)
    assert statistic(scale / 1.05) > chi2.isf(1e-9, 39)


def test_rounding_is_charged_in_every_norm():
    workload = DeclaredQueries(1000, l1=1.0, linf=0.5)
    for norm in ("l1", "l2", "linf"):
        charged = workload.sensitivity(norm) * workload.growth
        assert workload.sensitivity(norm) + workload.grid.rounding(1000, norm) <= charged
        assert charged <= 1.0002 * workload.sensitivity(norm)


def audited(moved):
    """Twenty answers that all move by ``moved``, against a guarantee for moves of one."""
    plan = planned(DeclaredQueries(20, linf=1.0), Budget(mu=1.0))
    data = np.zeros((2, 20)), np.vstack([np.zeros((1, 20)), np.full((1, 20), moved)])
    score = LikelihoodRatio(lambda y: y.sum(axis=1))
    return audit_runs(
        PlanRuns(plan), *data, plan.guarantee, runs=10_000, attacks=(score,), random_state=2
    )


@pytest.mark.slow
def test_the_audit_finds_four_fifths_of_the_promise_and_a_wrong_declaration():
    """Answers that move 25% more than declared have four fifths of the noise they need."""
    right, wrong = audited(1.0), audited(1.25)
    assert right.kept
    assert 0.8 * right.promised <= right.lower <= right.promised
    assert wrong.broken


def test_contributions_add_up_exactly_whatever_their_order():
    rng = np.random.default_rng(1)
    workload = DeclaredQueries(3, l2=1.0)
    rows = rng.standard_normal((500, 3)) * [1e6, 1.0, 1e-3]
    steps = workload.sums(rows)
    assert np.array_equal(steps, workload.sums(rows[::-1]))
    np.testing.assert_allclose(
        workload.grid.values(steps), rows.sum(axis=0), atol=500 * workload.grid.step
    )


def test_cells_that_are_not_numbers_are_zero_in_silence():
    workload = DeclaredQueries(2, linf=1.0)
    assert np.array_equal(
        workload.sums([[math.nan, 1.0], [1.0, 2.0]]), workload.sums([[0.0, 1.0], [1.0, 2.0]])
    )
    assert np.isfinite(
        planned(workload, noise=("k_norm",)).run([[math.inf, 1.0]], random_state=1).value
    ).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DeclaredQueries(0, l1=1.0), "number of queries"),
        (lambda: DeclaredQueries(5), "declare how far"),
        (lambda: DeclaredQueries(5, l1=0.0), "l1"),
        (lambda: DeclaredQueries(5, l2=-1.0), "l2"),
        (lambda: DeclaredQueries(5, linf=math.inf), "linf"),
        (lambda: DeclaredQueries(5, linf=1.0).sensitivity("l3"), "norm"),
        (lambda: PowerNoise(1.0, 0.9, "l1"), "at least 1"),
        (lambda: PowerNoise(1.0, 3.0, "l2"), "needs shape 2"),
        (lambda: PowerNoise(1.0, 3.0, "norm"), "bound"),
        (lambda: KNormNoise(1.0, "l1"), "norm"),
        (lambda: KNormNoise(0.0), "epsilon"),
        (lambda: planned(Flags(3)), "DeclaredQueries"),
        (lambda: planned(DeclaredQueries(3, l1=1.0), noise=("cauchy",)), "cauchy"),
        (lambda: planned(DeclaredQueries(3, l1=1.0), minimize="worst"), "minimize"),
        (lambda: DeclaredQueries(3, l1=1.0).sums([[1.0, 2.0]]), "records of 3"),
        (lambda: DeclaredQueries(3, l1=1.0).sums(np.array([["a", "b", "c"]])), "array of numbers"),
    ],
)
def test_what_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_budgets_that_a_law_cannot_keep_are_said():
    with pytest.raises(BudgetUnreachable, match="epsilon, delta"):
        planned(DeclaredQueries(3, l1=1.0), Budget(mu=1.0), noise=("generalized_gaussian",))
    with pytest.raises(BudgetUnreachable, match="pure"):
        planned(DeclaredQueries(3, l1=1.0), Budget(epsilon=1.0), noise=("gaussian",))


def test_less_noise_would_not_do():
    workload = DeclaredQueries(400, l2=1.0)
    noise = PowerNoise.of_shape(1.5, workload.change("replace"), APPROXIMATE)
    less = accountant.privacy_curve(
        replace(noise, scale=0.99 * noise.scale).event(workload.change("replace")), "replace"
    )
    assert float(less.delta(np.array([1.0]))[0]) > 1e-6
