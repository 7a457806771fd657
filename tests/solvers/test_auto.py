"""The choice of a solver: predictions against exact laws, the ranking, and what is planned."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from dpfit.solvers.supposed import Supposed, fitted_margins, off_by_clipping, suppositions, typical
from scipy.integrate import quad
from scipy.stats import norm

from dpfit.core import Minimize
from dpfit.core.mechanism import Run
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import Bounds, Hinge, Huber, HuberDistance, Logistic, SmoothedHinge, Softmax, Squared
from dpfit.noise import Source
from dpfit.privacy import Budget, NotReachable
from dpfit.solvers import auto as module
from dpfit.solvers.auto import auto
from dpfit.solvers.gradient import noisy_gd as descent
from dpfit.solvers.gradient import predicted, scales
from dpfit.solvers.gradient.noisy_gd import NoisyGD, noisy_gd
from dpfit.solvers.gradient.preconditioned_gd import preconditioned_gd
from dpfit.solvers.perturbation import ridge
from dpfit.solvers.perturbation.objective_perturbation import ObjectivePerturbationAlgorithm, objective_perturbation
from dpfit.solvers.perturbation.output_perturbation import output_perturbation

SOLVERS = {
    "noisy_gd": noisy_gd,
    "objective_perturbation": objective_perturbation,
    "output_perturbation": output_perturbation,
    "preconditioned_gd": preconditioned_gd,
}
LENGTHS = np.array([1.0, 0.5, 0.25])
"""Of rows along the axes: the objective is a quadratic of known curvature."""
CURVATURES, RIDGE = LENGTHS**2 / 3, 0.002
LEAST = np.array([0.3, -0.5, 0.8])
"""The minimizer."""


def logistic(n=10_000, d=20, **more):
    return Minimize(n=n, loss=Logistic(), bounds=Bounds(1.0), n_features=d, **more)


@pytest.fixture
def quadratic(monkeypatch):
    """A problem, its data, and the truth in place of what is supposed."""
    rows = np.tile(np.diag(LENGTHS), (100, 1))
    truth = Supposed(CURVATURES, LEAST**2, 1.0)
    for place in (ridge, predicted):
        monkeypatch.setattr(place, "suppositions", lambda *_: (truth,))
    problem = Minimize(n=300, loss=Huber(50.0), bounds=Bounds(1.0, -1.0, 1.0), n_features=3, ridge=RIDGE)
    return problem, InMemory(rows, rows @ (LEAST * (1 + RIDGE / CURVATURES)))


def excess(thetas):
    """The mean objective above its minimum."""
    return ((CURVATURES + RIDGE) * (np.asarray(thetas) - LEAST) ** 2).sum(axis=1) / 2


@pytest.mark.parametrize("budget", [Budget(epsilon=9.0, delta=1e-6), Budget(epsilon=30.0)], ids=["normal", "gamma"])
def test_the_risk_of_a_perturbed_objective_is_exact_on_a_quadratic(quadratic, budget):
    problem, data = quadratic
    mechanism, run = objective_perturbation.plan(problem, budget, ridge=0.2).mechanism, Run(Source(1))
    reached = excess([mechanism.run(data, run) for _ in range(2000)])
    assert reached.mean() == pytest.approx(mechanism.risk.expected, rel=0.09)


@pytest.mark.parametrize("budget", [Budget(mu=3.0), Budget(epsilon=30.0)], ids=["normal", "gamma"])
def test_the_risk_of_a_noisy_minimizer_is_exact_on_a_quadratic(quadratic, budget):
    problem, data = quadratic
    mechanism = output_perturbation.plan(problem, budget, ridge=0.2).mechanism
    reached = excess(mechanism.run_many(data, Run(Source(2)), 4000))
    assert reached.mean() == pytest.approx(mechanism.risk.expected, rel=0.09)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("forgets", [0.0, 3.0], ids=["even", "shared out"])
@pytest.mark.parametrize("bent", [0.01, 5.0, 200.0], ids=["flat", "between", "curved"])
def test_what_is_predicted_of_a_descent_is_exact_on_a_quadratic(bent, forgets, momentum):
    """One record (1, y) under a Huber loss is a quadratic; what is left of the start, and the variance of the output,
    by following every start and every kick through the descent itself."""
    steps = 400
    problem = Minimize(n=1, loss=Huber(1.0), bounds=Bounds(1.0, -1.0, 1.0), n_features=1)
    size = bent / steps * (1 - momentum)
    mechanism = NoisyGD(problem, "add_remove", 1.0, steps, size, 1.0, momentum, forgets=forgets)
    starts = np.append(1.0, np.zeros(steps))
    points, velocities, outputs = starts.copy(), np.zeros(steps + 1), np.zeros(steps + 1)
    for k in range(steps):
        velocities = momentum * velocities - size * points
        velocities[k + 1] += size
        points = points + velocities
        outputs += mechanism.shares[k] * points
    assert mechanism.remaining(np.array([bent]))[0] == pytest.approx(outputs[0], rel=1e-9)
    variance = float(outputs[1:] ** 2 @ mechanism.multipliers**2)
    assert float(mechanism.collected(np.array([bent]))[0]) == pytest.approx(variance, rel=1e-9)


def test_a_few_directions_tell_of_many(monkeypatch):
    """And of a million without a row of numbers for each step in memory."""
    problem, budget = logistic(n=30_000, d=1500), Budget(epsilon=1, delta=1e-6)
    few = noisy_gd.plan(problem, budget).risk.expected
    monkeypatch.setattr(predicted, "_DIRECTIONS", 1500)
    assert few == pytest.approx(noisy_gd.plan(problem, budget).risk.expected, rel=1e-4)


def test_noise_is_least_where_it_would_be_remembered():
    """At the rate for which noise is shared out, nearly the least variance that is possible; at no other rate much more
    than with equal shares."""
    problem = logistic(n=100)
    forgets, rates = 4.0, np.geomspace(0.01, 1000, 40)
    shared, even = (NoisyGD(problem, "add_remove", 1.0, 500, 0.1, 1.0, forgets=x) for x in (forgets, 0.0))
    least = float(np.sum(shared.influence(np.array([forgets])) / 500) ** 2) * (500 * 0.1 * shared.noise) ** 2
    at_rate = [float(each.collected(np.array([forgets]))[0]) for each in (shared, even)]
    assert least < at_rate[0] < 1.05 * least
    assert at_rate[1] > 1.19 * least
    assert np.all(shared.collected(rates) < 1.06 * even.collected(rates))


@pytest.mark.parametrize("share", [0.4, 0.6, 1.0])
def test_a_clipped_loss_bends_less(share):
    """Residuals spread evenly beyond the width: the variance of a long descent is that of the curvature it feels."""
    n, width, steps = 2000, 0.5, 1000
    problem = Minimize(n=n, loss=Huber(width), bounds=Bounds(1.0, -1.0, 1.0), n_features=1)
    mechanism = NoisyGD(problem, "add_remove", 1.0, steps, 0.1, share * width)
    data = InMemory(np.ones((n, 1)), np.linspace(-1, 1, n))
    outputs = np.array(mechanism.run_many(data, Run(Source(9)), 4000))
    felt = np.array([0.1 * steps * scales.felt(problem, share) * width])
    # Six standard errors of a variance are 13%; without the share it would be off by 2.8 at a share of 0.6.
    assert outputs.var() == pytest.approx(float(mechanism.collected(felt)[0]), rel=0.16)


def test_slopes_of_logistic_labels_are_rarely_steep():
    """The curvature of margins spread evenly, with labels as likely as the loss says, where slopes are not clipped."""
    margins = np.linspace(-40, 40, 400_001)
    steep = 1 / (1 + np.exp(margins))  # of a label that is 1, which has probability 1 - steep
    bends = steep * (1 - steep) * (1 - steep)
    felt = bends[steep <= 0.6].sum() / bends.sum()
    assert felt == pytest.approx(scales.felt(logistic(), 0.6), rel=1e-3)


@pytest.mark.parametrize(
    ("loss", "unit"), [(Huber(0.2), 0.5), (Huber(0.7), 0.7), (Logistic(), 4.0), (SmoothedHinge(0.5), 2.0)], ids=str
)
def test_noise_is_judged_beside_what_labels_ask_for(loss, unit):
    problem = Minimize(n=10**6, loss=loss, bounds=Bounds(1.0, -1.0, 1.0), n_features=2)
    assert scales.trusted_unit(problem) == pytest.approx(unit)
    mechanism = noisy_gd.plan(problem, Budget(mu=1e-3, relation="add_remove")).mechanism
    time = mechanism.steps * mechanism.step_size / (1 - mechanism.momentum)
    assert time * mechanism.clip * mechanism.noise_multiplier / 10**6 == pytest.approx(0.7 * unit)


@pytest.mark.parametrize(
    ("loss", "noises", "shares"),
    [
        (Logistic(), [0.0027, 0.003, 0.006, 0.009, 0.09], [1.0, 1.0, 0.8, 0.6, 0.6]),
        (
            Huber(0.2),
            [2e-4, 2.5e-4, 5e-4, 7.5e-4, 0.0025, math.sqrt(0.0025 * 0.0165), 0.0165, 0.1],
            [1.0, 1.0, 0.8, 0.6, 0.6, 0.4, 0.2, 0.2],
        ),
    ],
    ids=["margin", "residual"],
)
def test_gradients_are_clipped_the_more_the_more_noise_there_is(loss, noises, shares):
    """By the relative noise; for losses of residuals it counts times the root of the dimension, here 2, and where there
    is much of it, times that of the number of records, here 100, on a logarithmic scale."""
    problem = Minimize(n=10_000, loss=loss, bounds=Bounds(1.0, -1.0, 1.0), n_features=4)

    def share(noise):
        return descent.usual_clip(problem, "add_remove", noise * 10_000 / 2) / scales.unclipped(problem)

    assert [share(noise) for noise in noises] == pytest.approx(shares)


def test_behind_a_map_residuals_are_clipped_only_where_noise_is_more_than_a_sample_is_off():
    """By the relative noise times the root of the number of records, here 100, on a logarithmic scale."""
    problem = Minimize(n=10_000, loss=Huber(0.2), bounds=Bounds(1.0, -1.0, 1.0), n_features=4)
    for level, share in zip(
        (0.01, 0.045, math.sqrt(0.045 * 0.15), 0.15, 0.25, 2.0), (1, 1, 0.8, 0.6, 0.6, 0.2), strict=True
    ):
        clip = descent.usual_clip(problem, "add_remove", level / 100 * 10_000 / 2, behind_map=True)
        assert clip == pytest.approx(0.2 * share)


@pytest.mark.parametrize("errors", [1.0, 0.5])
def test_a_clipped_loss_of_residuals_is_off_by_what_a_sample_is(errors):
    """The excess of the clipped minimizer over the other, on forty samples, over the closed form.

    It is a mean of 40 * 6 squares of nearly normal numbers: a standard error of 9%.
    """
    rng = np.random.default_rng(3)
    n, d, width, clip = 2000, 6, 0.2, 0.6
    problem = Minimize(n=n, loss=Huber(width), bounds=Bounds(1.0, -1.5, 1.5), n_features=d)
    excess = []
    for _ in range(40):
        rows = rng.standard_normal((n, d))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        data = InMemory(rows, errors * width * rng.standard_normal(n))
        values = []
        for share in (clip, 1.0):
            mechanism = NoisyGD(problem, "replace", 1e-9, 300, 5.0, share * width, average=0.0)
            values.append(float(data.gradient(Huber(width), mechanism.run(data, Run(Source(1))))[0]) / n)
        excess.append(values[0] - values[1])
    assert np.mean(excess) == pytest.approx(off_by_clipping(clip, errors) * width**2 * d / n, rel=0.5)


@pytest.mark.parametrize(("share", "errors"), [(0.2, 1.0), (0.6, 1.0), (0.6, 0.5), (0.9, 2.0)])
def test_what_clipping_costs_residuals_is_an_integral(share, errors):
    """Against adaptive quadrature of Huber's influence functions."""

    def influence(error, clip):
        return np.clip(error, -clip, clip) / (2 * norm.cdf(clip / errors) - 1)

    def density(error):
        return (influence(error, share) - influence(error, 1.0)) ** 2 * norm.pdf(error, scale=errors)

    ends = (-12 * errors, -1.0, -share, share, 1.0, 12 * errors)
    mean = sum(quad(density, low, high)[0] for low, high in itertools.pairwise(ends))
    assert off_by_clipping(share, errors) == pytest.approx(0.5 * (2 * norm.cdf(1 / errors) - 1) * mean, rel=1e-4)


def test_momentum_is_taken_only_where_steps_do_not_suffice():
    """Up to 24 / passes of forgetting; in between steps are the longest that are stable, and momentum does the rest."""
    seen = []
    for n in (100, 3000, 10**7):
        mechanism = descent.practical_rule(logistic(n=n, d=5), "add_remove", 4.0, max_passes=240, clip=0.6)
        time = 240 * mechanism.step_size / (1 - mechanism.momentum)
        longest = 1.5 * (1 + mechanism.momentum) / 0.25
        wanted = 0.7 * 4.0 * n / (4.0 * 0.6)
        wanted *= min(1.0, wanted * (0.84 / (2 * 4.0 * 5)))
        assert time == pytest.approx(min(wanted, 240 * longest / (1 - mechanism.momentum)))
        seen.append((mechanism.momentum, mechanism.step_size / longest))
    assert seen[0][0] == 0.0
    assert seen[0][1] < 1
    assert 0 < seen[1][0] < 0.9
    assert seen[1][1] == pytest.approx(1.0)
    assert seen[2] == pytest.approx((0.9, 1.0))


def test_what_a_descent_leaves_of_the_start(quadratic):
    problem, data = quadratic
    mechanism = NoisyGD(problem, "replace", 1e-9, 500, 10.0 / 500, scales.unclipped(problem))
    left = excess(mechanism.run_many(data, Run(Source(4)), 1)).mean()
    assert left == pytest.approx(predicted.predicted_risk(mechanism).expected, rel=0.05)


def round_problem(d, pull=0.0):
    """Rows along all axes alike; half of the residuals are beyond the width of the loss, so it has half its curvature.

    The minimizer is ``pull`` along every axis.
    """
    problem = Minimize(n=40 * d, loss=Huber(1.0), bounds=Bounds(1.0, -60.0, 60.0), n_features=d)
    rows = np.tile(np.eye(d), (40, 1))
    return problem, InMemory(rows, rows @ np.full(d, pull) + np.repeat([0.0, 0.0, 50.0, -50.0], 10 * d))


@pytest.mark.parametrize("d", [3, 12])
def test_as_much_is_taken_off_as_noise_has_added(d):
    """Half of (d - 2) / d of its mean square, which is measured on rows that favour no direction."""
    problem, data = round_problem(d)
    rule = descent.practical_rule(problem, "add_remove", 2e-3 * 40 * d, max_passes=100, clip=1.0)
    noisy = np.array(replace(rule, shrink=0.0).run_many(data, Run(Source(5)), 12_000 // d))
    # The standard error of the mean of 12,000 squares is 1.3%.
    assert rule.shrink == pytest.approx((d - 2) / 2 * (noisy**2).mean(), rel=0.08)


@pytest.mark.parametrize(("pull", "less"), [(0.0, (0.34, 0.41)), (0.06, (0.67, 0.76)), (1.0, (0.98, 1.01))])
def test_shrinking_takes_away_what_is_noise_and_leaves_what_is_not(pull, less):
    """Mean square errors, over those without it, in 12 dimensions; noise has a deviation of about 0.06 in each.

    Where there is only noise, half of the shrinkage leaves 1 - 3/4 * 10/12 of it.
    Predicted with mean squares in place of squares, which is off by a tenth of the noise where there is only noise.
    """
    problem, data = round_problem(12, pull)
    rule = descent.practical_rule(problem, "add_remove", 2e-3 * 480, max_passes=100, clip=1.0)
    errors = [
        ((np.array(each.run_many(data, Run(Source(6)), 500)) - pull) ** 2).mean()
        for each in (rule, replace(rule, shrink=0.0))
    ]
    assert less[0] <= errors[0] / errors[1] <= less[1]
    supposed = Supposed(np.full(12, 1 / 24), np.full(12, pull**2), 1.0)
    risk = predicted.risk_on(supposed, rule, 0.0)
    assert risk == pytest.approx(errors[0] * 12 / 48, rel=0.05, abs=errors[1] * 12 / 48 * 0.1)


def test_nothing_is_shrunk_in_a_domain_for_points_or_in_two_dimensions():
    rule = descent.practical_rule
    glm = Minimize(n=500, loss=Logistic(), bounds=Bounds(1.0), n_features=5)
    assert rule(glm, "add_remove", 1.0, max_passes=50).shrink > 0
    points = Minimize(n=500, loss=HuberDistance(0.5), bounds=Bounds(1.0), n_features=5)
    for other in (replace(glm, domain=L2Ball(5, 1.0)), replace(glm, n_features=2), points):
        assert rule(other, "add_remove", 1.0, max_passes=50).shrink == 0
    with pytest.raises(ValueError, match="shrink"):
        NoisyGD(glm, "add_remove", 1.0, 5, 0.1, 1.0, shrink=-1.0)
    with pytest.raises(ValueError, match="shrink"):
        NoisyGD(glm, "add_remove", 1.0, 5, 0.1, 1.0, shrink=math.inf)


def test_clipping_is_predicted_to_cost_margin_losses_only_where_it_clips():
    def risk(loss, clip, stand_in=0):
        problem = Minimize(n=10**9, loss=loss, bounds=Bounds(1.0, -1.0, 1.0), n_features=5)
        plan = noisy_gd.plan(problem, Budget(mu=1e3), clip=clip * scales.unclipped(problem))
        supposed = suppositions(problem, scales.unclipped(problem), scales.natural_unit(problem))[stand_in]
        assert supposed.length == (1.0, 0.7)[stand_in]
        return predicted.risk_on(supposed, plan.mechanism, 0.0)

    assert risk(Logistic(), 0.6) > 100 * risk(Logistic(), 1.0)
    # Rows of the full length: half as much beyond the clip. Rows of 0.7 of it: (1 - 6 / 7) / 0.4 as much, or nothing.
    assert risk(Logistic(), 0.8) == pytest.approx(0.5 * risk(Logistic(), 0.6), rel=0.01)
    assert risk(Logistic(), 0.6, 1) == pytest.approx(risk(Logistic(), 0.6) / 2.8, rel=0.01)
    assert risk(Logistic(), 0.8, 1) < 0.01 * risk(Logistic(), 0.8)
    assert risk(Huber(0.2), 0.6) < 0.01 * risk(Logistic(), 0.6)


def test_all_spectra_count_the_same_and_rows_are_as_long_as_their_columns_make_them():
    problem = logistic(d=9)
    supposed = suppositions(problem, slope=1.0, unit=4.0)
    groups = [[each for each in supposed if len(set(each.curvatures)) == kinds] for kinds in (1, 9, 2)]
    assert [round(sum(each.weight for each in group), 12) for group in groups] == [2, 2, 2]
    # A column of ones and eight of mean 0.4 and deviation 0.2, none beyond 1: rows of at most 3.
    lengths = [{round(each.length, 12) for each in group} for group in groups]
    assert lengths == [{1.0, 0.7}, {0.5}, {round(math.sqrt(1 + 8 * 0.2) / 3, 12)}]


def test_what_is_typical_weighs_roots():
    stand_ins = [Supposed(np.ones(1), np.ones(1), size, weight=weight) for size, weight in ((4.0, 1.0), (25.0, 2.0))]
    assert typical(stand_ins, lambda each: each.deviation) == pytest.approx(((2 + 2 * 5) / 3) ** 2)


def test_stand_ins_have_the_margins_they_claim():
    problem = Minimize(n=100, loss=Huber(0.2), bounds=Bounds(2.0, -1.0, 1.0), n_features=7)
    for supposed in suppositions(problem, slope=0.4, unit=0.1):
        # Of the largest curvature, 0.4 / 0.1, as much is met as there are errors within the width of the loss; rows of
        # norm 2 or less turn the parameter into margins.
        shares = supposed.curvatures / supposed.curvatures.sum()
        met = 2 * norm.cdf(1 / supposed.errors) - 1
        assert supposed.errors == {0.1: 1.0, 0.5: 0.5}[round(supposed.deviation, 6)]
        assert supposed.curvatures.sum() == pytest.approx(4.0 * met * supposed.length**2)
        squared_norm = (2 * supposed.length) ** 2
        assert squared_norm * shares @ supposed.squares == pytest.approx(supposed.deviation**2)
        assert supposed.deviation in (pytest.approx(0.5 * 0.2), pytest.approx(2.5 * 0.2))


@pytest.mark.parametrize("size", [0.5, 2.5])
@pytest.mark.parametrize("loss", [Logistic(), SmoothedHinge(0.5), Hinge()], ids=lambda loss: loss.kind)
def test_margins_are_those_of_a_fit_to_labels(loss, size):
    """Against a fit to normal log-odds with random labels, and the second difference of its mean loss."""
    rng = np.random.default_rng(11)
    logits = rng.standard_normal(400_000)
    labels = np.where(rng.random(len(logits)) < 1 / (1 + np.exp(-size * logits)), 1.0, -1.0)
    scales = np.linspace(0.3, 3.0, 109)
    found = fitted_margins(loss, size)
    best = scales[np.argmin([loss.value(scale * logits, labels).mean() for scale in scales])]
    assert found.deviation == pytest.approx(best, abs=0.08)

    def shifted(by):
        return loss.value(labels * found.deviation * logits + by, 1.0).mean()

    second = (shifted(0.2) - 2 * shifted(0.0) + shifted(-0.2)) / 0.2**2
    assert found.curvature == pytest.approx(second, rel=0.05)


def test_stand_ins_stay_inside_the_domain():
    problem = logistic(d=6, domain=L2Ball(6, 0.01))
    assert max(s.squares.sum() for s in suppositions(problem, 1.0, 4.0)) <= 0.01**2 * (1 + 1e-12)


BUDGETS = [Budget(epsilon=0.1, delta=1e-6), Budget(epsilon=3.0, relation="add_remove"), Budget(mu=1.0), Budget(rho=0.1)]
LOSSES = [Logistic(), Huber(0.2), SmoothedHinge(0.5)]


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda b: b.kind)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_the_plan_is_that_of_the_solver_with_the_smallest_risk(loss, budget):
    problem = Minimize(n=3000, loss=loss, bounds=Bounds(1.0, -1.0, 1.0), n_features=8)
    chosen = auto.plan(problem, budget)
    assert chosen.plan == SOLVERS[chosen.considered[0].name].plan(problem, budget)
    risks = [candidate.risk for candidate in chosen.considered]
    assert risks == sorted(risks)
    assert chosen.guarantee.meets(budget)
    expected = set(SOLVERS) - ({"noisy_gd", "preconditioned_gd"} if budget.kind == "pure" else set())
    assert {candidate.name for candidate in chosen.considered} == expected
    for candidate in chosen.considered:
        assert f"considered {candidate.name}: predicted risk {candidate.risk:.3g}" in chosen.explain()
    assert sorted(refusal.split()[0].rstrip(":") for refusal in chosen.left_out) == sorted(set(SOLVERS) - expected)
    assert all(f"left out   {refusal}" in chosen.explain() for refusal in chosen.left_out)


def test_it_says_why_this_one():
    least, next_one = auto.plan(logistic(), Budget(epsilon=1.0)).considered[:2]
    why = f"{least.name}: the least predicted risk, {least.risk / next_one.risk:.2g} of that of {next_one.name}"
    assert f"chosen     {why}" in auto.plan(logistic(), Budget(epsilon=1.0)).explain()
    alone = auto.plan(replace(logistic(), loss=Hinge()), Budget(mu=1.0)).explain()
    assert "chosen     noisy_gd: the only one that can do this" in alone


@pytest.mark.parametrize(("n", "epsilon"), list(itertools.product([500, 20_000], [0.1, 5.0])))
def test_a_sketch_is_close_to_the_plan(n, epsilon):
    budget = Budget(epsilon=epsilon, delta=1e-6)
    sketch = objective_perturbation.sketch(logistic(n=n), budget)
    planned = objective_perturbation.plan(logistic(n=n), budget).mechanism
    assert (sketch.ridge, sketch.noise) == (planned.ridge, planned.noise)
    assert sketch.risk.expected == pytest.approx(planned.risk.expected, rel=0.15)


def test_losers_are_not_calibrated(monkeypatch):
    problem, budget = logistic(n=30_000, d=100), Budget(epsilon=0.1, delta=1e-6)
    monkeypatch.setattr(module, "FACTORS", {**module.FACTORS, "noisy_gd": 1e-9})

    def refuse(*_, **__):
        raise AssertionError("a solver that lost was planned")

    monkeypatch.setattr(ObjectivePerturbationAlgorithm, "plan", refuse)
    assert auto.plan(problem, budget).considered[0].name == "noisy_gd"


@pytest.mark.parametrize("name", SOLVERS)
def test_the_factors_decide(monkeypatch, name):
    monkeypatch.setattr(module, "FACTORS", {**module.FACTORS, name: 1e-9})
    assert auto.plan(logistic(), Budget(epsilon=1.0, delta=1e-6)).considered[0].name == name


def test_the_next_best_is_planned_if_the_best_cannot_be(monkeypatch):
    monkeypatch.setattr(module, "FACTORS", {**module.FACTORS, "objective_perturbation": 1e-9})
    before = auto.plan(logistic(), Budget(epsilon=1.0, delta=1e-6))

    def unreachable(*_, **__):
        raise NotReachable("no noise meets this budget")

    monkeypatch.setattr(ObjectivePerturbationAlgorithm, "plan", unreachable)
    after = auto.plan(logistic(), Budget(epsilon=1.0, delta=1e-6))
    assert after.considered == before.considered[1:]


def test_losses_with_corners_are_left_to_descent():
    problem = Minimize(n=1000, loss=Hinge(), bounds=Bounds(1.0), n_features=5)
    assert [c.name for c in auto.plan(problem, Budget(epsilon=1.0, delta=1e-6)).considered] == ["noisy_gd"]
    with pytest.raises(ValueError, match=r"no solver can do this: noisy_gd cannot.*; objective_perturbation: .*corner"):
        auto.plan(problem, Budget(epsilon=1.0))


@pytest.mark.parametrize(
    "problem",
    [
        Minimize(n=1000, loss=Softmax(3), bounds=Bounds(1.0), n_features=4),
        Minimize(n=1000, loss=HuberDistance(0.1), bounds=Bounds(1.0), n_features=3, domain=L2Ball(3, 1.0)),
        Minimize(n=1000, loss=Squared(), bounds=Bounds(1.0, -1.0, 1.0), n_features=3, domain=L2Ball(3, 2.0)),
        logistic(n=1, d=1),
        logistic(n=10**8, d=1, ridge=0.3),
    ],
    ids=["softmax", "distance", "squared", "tiny", "ridge"],
)
@pytest.mark.parametrize("mu", [1e-4, 1.0, 1e4])
def test_predictions_are_finite_for_every_loss_and_budget(problem, mu):
    for candidate in auto.plan(problem, Budget(mu=mu)).considered:
        assert 0 < candidate.risk < np.inf


def test_large_tables_get_no_matrix():
    for problem in (logistic(d=module.MOST_COLUMNS + 1), logistic(n=round(module.MOST_NUMBERS), d=2)):
        considered = {candidate.name for candidate in auto.plan(problem, Budget(mu=1.0)).considered}
        assert "preconditioned_gd" not in considered


def test_max_passes_is_kept():
    chosen = auto.plan(Minimize(n=99, loss=Hinge(), bounds=Bounds(1.0), n_features=2), Budget(mu=1.0), max_passes=7)
    assert chosen.work.passes == 7
    assert {c.name for c in auto.plan(logistic(), Budget(mu=1.0), max_passes=7).considered} == {
        "noisy_gd",
        "preconditioned_gd",
    }
    with pytest.raises(ValueError, match=r"objective_perturbation: takes 20 passes, 7 are allowed"):
        auto.plan(logistic(), Budget(epsilon=1.0), max_passes=7)


def test_the_better_solver_is_picked_where_the_difference_is_clear():
    """Many columns and a middling budget: a descent. Few columns and a large one: anything but noise on the output."""
    rng = np.random.default_rng(5)
    perturbations = ("objective_perturbation", "output_perturbation")
    for n, d, epsilon, beaten in ((3000, 60, 2.0, perturbations), (2000, 5, 8.0, perturbations[1:])):
        rows = rng.standard_normal((n, d))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        labels = np.where(rng.random(n) < 1 / (1 + np.exp(-4 * np.sqrt(d) * rows[:, 0])), 1.0, -1.0)
        data, problem, budget = InMemory(rows, labels), logistic(n=n, d=d), Budget(epsilon=epsilon, delta=1e-6)
        losses = {}
        for name, solver in SOLVERS.items():
            values = solver.plan(problem, budget).execute_many(data, Run(Source(6)), 8)
            thetas = np.array([value[-1] if isinstance(value, tuple) else value for value in values])
            losses[name] = np.log1p(np.exp(-labels * (thetas @ rows.T))).mean(axis=1)
        picked = auto.plan(problem, budget).considered[0].name
        for name, reached in losses.items():
            margin = 5 * reached.std() / np.sqrt(8)
            assert losses[picked].mean() < reached.mean() + (-margin if name in beaten else margin)
