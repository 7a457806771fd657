"""Means of users: exact Gaussian laws, sensitivities, stages, attacks, planted faults."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dpfit.audit.auditor import audit_runs
from dpfit.audit.runs import PlanRuns
from dpfit.core import Answer, Interact, InteractionClosed, Minimize
from dpfit.data.dataset import Blocks, InMemory
from dpfit.data.view import View
from dpfit.losses import Bounds, Logistic
from dpfit.mechanisms.aggregates import user_means as user_means_file
from dpfit.mechanisms.aggregates.clipped_mean import ClippedMean
from dpfit.mechanisms.aggregates.contribution import Gradient
from dpfit.mechanisms.aggregates.sampling import FixedSize
from dpfit.mechanisms.aggregates.user_means import Query, Rows, UserMean
from dpfit.mechanisms.aggregates.user_vectors import UserVectors, stage_fractions
from dpfit.mechanisms.filtered_mean import filtered_mean
from dpfit.mechanisms.filtered_means import filtered_means
from dpfit.mechanisms.staged_user_mean import stage_radii, staged_user_mean
from dpfit.mechanisms.user_mean import user_mean
from dpfit.mechanisms.user_means import user_means
from dpfit.noise import Source
from dpfit.privacy import Budget
from dpfit.privacy.event import Gaussian, Repeated, Sampled
from dpfit.solvers.gradient.dp_sgd import dp_sgd
from dpfit.solvers.gradient.noisy_gd import noisy_gd

RELATIONS = ("replace", "add_remove")


def budget(relation="replace", mu=1.0):
    return Budget(mu=mu, relation=relation, unit="user")


def people(seed=0, users=30, most=9, d=3, centre=0.0):
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(users), rng.integers(1, most, users))
    rows = centre + rng.normal(size=(len(ids), d)) / 4
    order = rng.permutation(len(ids))
    return InMemory(rows[order], np.zeros(len(ids)), ids[order])


def means_of(data):
    ids = np.asarray(data.users).astype(int)
    return np.array([data.matrix[ids == user].mean(axis=0) for user in np.unique(ids)])


@pytest.mark.parametrize("relation", RELATIONS)
def test_without_clipping_the_error_is_the_gaussian_of_the_plan(relation):
    """Chi-square of 400 runs, false alarm 1e-6; a noise that is 10% off fails."""
    data, problem = people(), Answer(n=30, workload=UserVectors(3, 5.0))
    plan = user_mean.plan(problem, budget(relation), radius=2.0)
    sensitivity = 2.0 * (2 if relation == "replace" else 1)
    assert plan.mechanism.deviation == pytest.approx(sensitivity / 30, rel=1e-3)
    values = np.array([plan.run(data, random_state=seed).value for seed in range(400)])
    spread = ((values - means_of(data).mean(axis=0)) ** 2).sum() / (sensitivity / 30) ** 2
    assert 1e-6 < stats.chi2.cdf(spread, 1200) < 1 - 1e-6
    for factor in (0.9, 1.1):
        assert not 1e-3 < stats.chi2.cdf(spread * factor**2, 1200) < 1 - 1e-3


def assert_chi_square(errors, deviation):
    """False alarm 2e-6; a standard deviation that is 10% off fails."""
    spread, degrees = np.sum(np.square(errors)) / deviation**2, np.size(errors)
    assert 1e-6 < stats.chi2.cdf(spread, degrees) < 1 - 1e-6
    for factor in (0.9, 1.1):
        assert not 1e-6 < stats.chi2.cdf(spread * factor**2, degrees) < 1 - 1e-6


@pytest.mark.parametrize("relation", RELATIONS)
def test_without_clipping_the_error_of_stages_is_the_gaussian_of_the_last_one(relation):
    """Half of squared mu is for the last stage, whose centre is the release before."""
    data, problem = people(d=16), Answer(n=30, workload=UserVectors(16, 5.0, spread=2.0))
    plan = staged_user_mean.plan(problem, budget(relation, mu=20.0))
    moved = 2 if relation == "replace" else 1
    noise = [moved * 5.0 / 30 * 2 / 20]  # a quarter of squared mu for each of the first two
    radii = [5.0]
    for fraction in (0.25, 0.5):
        radii.append(2.0 + 1.3 * noise[-1] * math.sqrt(16))
        noise.append(moved * radii[-1] / 30 / (20 * math.sqrt(fraction)))
    assert plan.mechanism.radii == pytest.approx(radii, rel=1e-6)
    expected = means_of(data).mean(axis=0)
    errors = [plan.run(data, random_state=seed).value - expected for seed in range(250)]
    assert_chi_square(errors, noise[-1])


@pytest.mark.parametrize("relation", RELATIONS)
def test_without_clipping_the_error_of_a_query_is_its_share_of_the_gaussian(relation):
    """Three queries, plain, of a function and around a centre, each with a third of squared mu."""
    data, problem = people(d=6), Interact(n=30, workload=UserVectors(6, 5.0), rounds=3)
    plan = user_means.plan(problem, budget(relation), radius=3.0)
    moved = 2 if relation == "replace" else 1
    deviation, expected = moved * 3.0 / 30 * math.sqrt(3), means_of(data).mean(axis=0)
    queries = (
        None,
        lambda rows, labels: rows.mean(axis=0),
        Query(lambda rows, labels: 100 + rows.mean(axis=0), 6, np.full(6, 100.5)),
    )
    answers = np.array(
        [plan.run(data, queries=queries, random_state=seed).value for seed in range(90)]
    )
    answers[:, 2] -= 100
    for asked in range(3):
        assert (
            1e-6
            < stats.chi2.cdf(((answers[:, asked] - expected) ** 2).sum() / deviation**2, 540)
            < 1 - 1e-6
        )
    assert_chi_square(answers - expected, deviation)


def largest_move(relation, trials=150):
    """Largest move of a sum by one user, over what is charged.

    Users have one row or 40, near and far, with rows that are not numbers, at any centre.
    """
    rng, worst = np.random.default_rng(2), 0.0
    mean = ClippedMean(9, 1.0, 1, relation, per="user")
    for trial in range(trials):
        centre = rng.normal(size=2) * rng.choice([0.0, 1.0, 100.0])
        asked = UserMean(Rows(2, 1e4), 0.5, centre)
        grid, allowed = mean.scale(asked)
        rows, ids = rng.normal(size=(60, 2)) * 10.0 ** rng.integers(-3, 4), rng.integers(0, 9, 60)
        other = np.where((ids == 4)[:, None], -100 * rows, rows)
        other[(ids == 4) & (rng.random(60) < 0.2)] = np.nan
        first, second = InMemory(rows, np.zeros(60), ids), InMemory(other, np.zeros(60), ids)
        if relation == "add_remove":
            second = first.rows(np.flatnonzero(ids != 4))
        totals = [
            asked.total(View(each, relation, "user", Source(trial)), grid)
            for each in (first, second)
        ]
        moved = np.linalg.norm(grid.values(totals[0] - totals[1]))
        worst = max(worst, moved / allowed)
    return worst


@pytest.mark.parametrize("relation", RELATIONS)
def test_no_user_moves_the_sum_further_than_is_paid_for(relation):
    assert 0.99 < largest_move(relation) <= 1.0


def test_a_user_of_one_row_is_a_record():
    """With one row for each user the sums are those of records, bit for bit."""
    problem = Minimize(n=20, loss=Logistic(), bounds=Bounds(1.0), n_features=2)
    rng = np.random.default_rng(1)
    data = InMemory(rng.normal(size=(20, 2)), rng.choice([-1.0, 1.0], 20), np.arange(20))
    asked = Gradient(problem, np.array([0.3, -0.2]), 0.25)
    by_user = ClippedMean(20, 1.0, 1, "replace", per="user")
    grid, sensitivity = by_user.scale(asked)
    assert (grid, sensitivity) == ClippedMean(20, 1.0, 1, "replace").scale(asked)
    view = View(data, "replace", "user", Source(1))
    difference = by_user.of_unit(asked).total(view, grid) - asked.total(data, grid)
    # A record is rounded twice here, to a finer grid first.
    assert np.abs(difference).max() <= 20


def test_users_in_blocks_are_users_in_memory():
    data = people(seed=5)
    cuts = range(0, data.n, 7)
    blocks = Blocks(data.n, 3, lambda: (
        (data.matrix[i : i + 7], data.labels[i : i + 7], data.users[i : i + 7]) for i in cuts
    ))  # fmt: skip
    plan = user_mean.plan(Answer(n=30, workload=UserVectors(3, 5.0)), budget())
    np.testing.assert_array_equal(
        plan.run(blocks, random_state=3).value, plan.run(data, random_state=3).value
    )


def test_one_user_may_be_spelt_in_three_ways():
    rows = np.array([[1.0], [2.0], [6.0], [9.0]])
    ids = np.array([7, "7", 7.0, "8"], dtype=object)
    view = View(InMemory(rows, np.zeros(4), ids), "replace", "user", Source(1))
    np.testing.assert_allclose(Rows(1, 100.0).vectors(view), [[3.0], [9.0]], atol=1e-6)
    assert view.n_units == 2


def test_unusable_rows_are_neutral_in_silence():
    nan, inf = math.nan, math.inf
    rows = np.array([[1.0], [nan], [inf], [1e300], [2.0], [5.0]])
    ids = np.array(["a", "a", "b", "c", "d", None], dtype=object)
    view = View(InMemory(rows, np.zeros(6), ids), "replace", "user", Source(1))
    vectors = Rows(1, 4.0).vectors(view)
    np.testing.assert_allclose(vectors, [[1.0], [nan], [4.0], [2.0]], atol=1e-6)
    asked = UserMean(Rows(1, 4.0), 1.5, np.array([1.0]))
    grid, _ = ClippedMean(4, 1.0, 1, "replace", per="user").scale(asked)
    # a: 0, b: nothing, c: 1.5 of 3, d: 1.
    assert grid.values(asked.total(view, grid))[0] == pytest.approx(2.5, abs=1e-3)


def test_one_user_with_most_rows_counts_as_much_as_others():
    rows = np.append(np.full(900, 5.0), np.zeros(100))[:, None]
    ids = np.append(np.zeros(900), np.arange(1, 101)).astype(int)
    view = View(InMemory(rows, np.zeros(1000), ids), "replace", "user", Source(1))
    assert Rows(1, 9.0).vectors(view).sum() == pytest.approx(5.0, rel=1e-6)


# Stages.


def test_stages_share_the_budget_and_shrink():
    for stages in (1, 2, 3, 5):
        assert sum(stage_fractions(stages)) == 1.0
    problem = Answer(n=3000, workload=UserVectors(10, 100.0, spread=1.0))
    plan = staged_user_mean.plan(problem, budget())
    mechanism = plan.mechanism
    multipliers = [mechanism.stage(i).multipliers[0] for i in range(3)]
    assert sum(m**-2.0 for m in multipliers) <= mechanism.noise_multiplier**-2
    radii = stage_radii(100.0, 1.0, 3, 2 * mechanism.noise_multiplier / 3000, 10)
    assert mechanism.radii == radii
    assert radii[0] > radii[1] > radii[2] > 1.0


def test_stages_find_a_mean_far_away():
    """Three stages at n = 3000 and 1000 spreads: the median error is that of the last noise."""
    rng = np.random.default_rng(3)
    values = 1000 * np.array([0.6, 0.8, 0.0]) + 0.3 * rng.normal(size=(3000, 3))
    data = InMemory(values, np.zeros(3000), np.arange(3000))
    problem = Answer(n=3000, workload=UserVectors(3, 2000.0, spread=1.0))
    plan = staged_user_mean.plan(problem, budget())
    errors = [plan.run(data, random_state=s).value - values.mean(axis=0) for s in range(20)]
    assert np.median(np.abs(errors)) < 1.5 * plan.mechanism.deviation
    one = user_mean.plan(problem, budget())
    assert one.mechanism.deviation > 100 * plan.mechanism.deviation


# Queries.


def test_queries_are_answered_by_the_mean_over_users():
    data = people(seed=4)
    problem = Interact(n=30, workload=UserVectors(1, 5.0), rounds=3)
    plan = user_means.plan(problem, budget(mu=1e4))
    interaction = plan.open(data, random_state=1)
    rows = interaction.step(lambda rows, labels: rows.max(keepdims=True)[:1, 0])
    ids = np.asarray(data.users).astype(int)
    expected = np.mean([data.matrix[ids == user].max() for user in range(30)])
    assert rows[0] == pytest.approx(expected, abs=0.01)
    centred = interaction.step(
        Query(lambda rows, labels: [len(rows) + 100.0], 1, np.array([101.0]))
    )
    sizes = np.clip(np.bincount(ids) - 1.0, -5, 5)
    assert centred[0] == pytest.approx(101 + sizes.mean(), abs=0.01)
    failing = interaction.step(lambda rows, labels: 1 / 0)
    assert abs(failing[0]) < 0.01
    assert interaction.done
    with pytest.raises(InteractionClosed):
        interaction.step()


@pytest.mark.parametrize("algorithm", [user_means, filtered_means], ids=lambda a: a.name)
def test_that_queries_read_one_user_at_a_time_is_declared(algorithm):
    problem = Interact(n=800, workload=UserVectors(1, 5.0, spread=1.0), rounds=2)
    paid = Budget(epsilon=1.0, delta=1e-6, unit="user")
    plan = algorithm.plan(problem, paid)
    assert user_means_file.OWN_ROWS in plan.guarantee.basis.assumptions
    assert user_means_file.OWN_ROWS.status == "declared"
    assert "from the rows and labels of this user alone" in plan.explain()
    for one in (user_mean, staged_user_mean, filtered_mean):
        whole = one.plan(Answer(n=800, workload=problem.workload), paid)
        assert user_means_file.OWN_ROWS not in whole.guarantee.basis.assumptions


def test_a_query_that_keeps_something_of_a_user_breaks_what_is_declared():
    """What is kept of one user counts for all others, too: the sum moves four times as far."""
    data, totals = people(users=8), []
    for sign in (1.0, -1.0):
        rows = np.where((np.asarray(data.users) == "0")[:, None], sign * 9.0, data.matrix)
        kept = []

        def vector(rows, labels, kept=kept):
            kept.append(rows[0])
            return kept[0]

        view = View(InMemory(rows, data.labels, data.users), "replace", "user", Source(1))
        asked = UserMean(Query(vector, 3), 0.5)
        grid, allowed = ClippedMean(8, 1.0, 1, "replace", per="user").scale(asked)
        totals.append(grid.values(asked.total(view, grid)))
    assert np.linalg.norm(totals[0] - totals[1]) > 4 * allowed


# Attacks and planted faults.


def one_user(relation, rows_of_user=8):
    """Users at zero; one pulls one way, or the other way, under another id, or not at all."""
    rows = np.append(np.zeros(12), np.full(rows_of_user, 5.0))[:, None]
    ids = np.append(np.arange(12), np.full(rows_of_user, 50))
    data = InMemory(rows, np.zeros(len(rows)), ids)
    if relation == "add_remove":
        return data, data.rows(np.arange(12))
    # The new user has another id, and another number of rows.
    other = np.append(np.zeros(12), np.full(3, -5.0))[:, None]
    return data, InMemory(other, np.zeros(15), np.append(np.arange(12), np.full(3, -7)))


def attacked(plan, relation, runs=300):
    pair = one_user(relation)
    return audit_runs(PlanRuns(plan), *pair, plan.guarantee, runs=runs, random_state=1)


def planned(relation, algorithm=user_mean, **options):
    problem = Answer(n=13, workload=UserVectors(1, 5.0, spread=1.0))
    return algorithm.plan(problem, budget(relation, mu=2.0), **options)


@pytest.mark.parametrize("runs", [300, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("algorithm", [user_mean, staged_user_mean], ids=lambda a: a.name)
def test_an_attack_on_a_user_finds_no_more_than_is_guaranteed(algorithm, relation, runs):
    audit = attacked(planned(relation, algorithm), relation, runs)
    assert audit.verdict == "kept", str(audit)
    if algorithm is user_mean and runs > 1000:
        assert audit.lower >= 0.4 * audit.promised


def broken(plan, relation="replace", **options):
    audit = attacked(plan, relation, **options)
    return audit.verdict == "broken"


def test_half_the_sensitivity_is_caught(monkeypatch):
    """rho is charged where a replaced user moves the sum by 2 rho."""
    plan = planned("replace")
    monkeypatch.setattr(UserMean, "sensitivity", lambda self, relation: self.radius)
    assert broken(plan)


def test_a_user_s_rows_counted_as_records_are_caught(monkeypatch):
    def as_records(self, data):
        grid = user_means_file.fine_grid(self.row_norm)
        record = View(data.dataset, data.relation, "record", data.source)
        zero, guards = np.zeros(self.dimension), {"clip": self.row_norm}
        loss = user_means_file.LinearLoss()
        return record.unit_means(loss, zero, grid=grid, **guards)

    plan = planned("add_remove")
    monkeypatch.setattr(user_means_file.Rows, "vectors", as_records)
    assert broken(plan, "add_remove")


def test_a_centre_that_was_not_released_is_caught(monkeypatch):
    """The first two stages are used without noise; the last one adds little, and little noise."""
    plan = planned("replace", staged_user_mean)
    plan = replace(plan, mechanism=replace(plan.mechanism, radii=(5.0, 5.0, 0.05)))
    assert attacked(plan, "replace").verdict == "kept"
    exact = ClippedMean.step

    def quiet(self, state, asked, data, run):
        state, answer = exact(self, state, asked, data, run)
        if asked.radius == 5.0:
            grid, _ = self.scale(asked)
            answer = grid.values(asked.total(data, grid)) / self.n
        return state, answer

    monkeypatch.setattr(ClippedMean, "step", quiet)
    assert broken(plan)


def test_users_who_count_twice_are_caught(monkeypatch):
    plan = planned("add_remove")
    exact = user_means_file.Rows.vectors
    monkeypatch.setattr(
        user_means_file.Rows, "vectors", lambda self, data: np.vstack([exact(self, data)] * 2)
    )
    assert broken(plan, "add_remove")


def largest_move_in_a_sample(trials=30):
    """Largest move of the sum over five of nine users by one of them, over what is charged."""
    rng, worst = np.random.default_rng(3), 0.0
    mean = ClippedMean(9, 1.0, 1, "replace", FixedSize(5), per="user")
    asked = UserMean(Rows(1, 1e4), 0.5)
    grid, allowed = mean.scale(asked)
    ids = np.append(np.arange(9), rng.integers(0, 9, 30))
    for trial in range(trials):
        rows = rng.normal(size=(len(ids), 1))
        pair = [np.where((ids == 4)[:, None], sign * 9.0, rows) for sign in (-1, 1)]
        totals = []
        for each in pair:
            view = View(InMemory(each, np.zeros(len(ids)), ids), "replace", "user", Source(trial))
            totals.append(asked.total(mean.sampling.take(view, 0, 1), grid))
        moved = float(np.linalg.norm(grid.values(totals[0] - totals[1])))
        worst = max(worst, moved / allowed)
    return worst


def test_users_sampled_with_replacement_are_caught(monkeypatch):
    """A user that is drawn k times moves the sum of a sample k times as far."""
    assert 0.99 < largest_move_in_a_sample() <= 1.0

    def with_replacement(self, *, rate=None, size=None):
        chosen = self.source.integers(self.n_units, size)
        rows = [np.flatnonzero(self._units.codes == user) for user in chosen]
        part = self.dataset.take(np.concatenate(rows))
        again = np.repeat(np.arange(size), [len(each) for each in rows])
        return View(InMemory(part.rows, part.labels, again), "replace", "user", self.source)

    monkeypatch.setattr(View, "sample", with_replacement)
    assert largest_move_in_a_sample() > 1.5


# Descent.


def test_noisy_gd_plans_for_users_under_both_relations():
    problem = Minimize(n=1000, loss=Logistic(), bounds=Bounds(1.0), n_features=5, rows_per_user=50)
    for relation in RELATIONS:
        plan = noisy_gd.plan(problem, replace(budget(relation, mu=0.3)))
        assert plan.basis.unit == "user"
        assert plan.mechanism.aggregate.per == "user"
        assert plan.work.gradients == 0
        assert "mean of each user" in plan.explain()
        for mu, factor in ((0.01, 1.0), (10.0, 2.0)):
            paid = budget(relation, mu=mu)
            clip_norm = noisy_gd.plan(problem, paid).mechanism.optimizer.clip_norm
            assert clip_norm == pytest.approx(factor * 0.4 / math.sqrt(50))
    given = noisy_gd.plan(problem, budget(), clip_norm=0.2)
    assert given.mechanism.optimizer.clip_norm == 0.2
    with pytest.raises(ValueError, match="rows_per_user must be at least 1"):
        replace(problem, rows_per_user=0.5)


def one_against_twelve(relation):
    """All eight rows of one user pull against those of the others; they turn, or leave.

    Under replace-one the rows that turn have another user id, which sorts before the others.
    """
    problem = Minimize(n=13, loss=Logistic(), bounds=Bounds(1.0), n_features=1, rows_per_user=8)
    rows, ids = np.ones((20, 1)), np.append(np.arange(12), np.full(8, 50))
    data = InMemory(rows, np.ones(20), ids)
    if relation == "add_remove":
        return problem, data, data.rows(np.arange(12))
    other = np.append(np.arange(12), np.full(8, -7))
    return problem, data, InMemory(rows, np.append(np.ones(12), -np.ones(8)), other)


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_descent_on_users_survives_an_attack_and_half_its_noise_does_not(relation):
    problem, data, neighbour = one_against_twelve(relation)
    plan = noisy_gd.plan(problem, budget(relation, mu=2.0), max_passes=4)
    audit = audit_runs(PlanRuns(plan), data, neighbour, plan.guarantee, runs=300, random_state=1)
    assert audit.verdict == "kept", str(audit)
    mean = plan.mechanism.aggregate
    loud = replace(mean, noise_multiplier=mean.noise_multiplier / 5)
    faulty = replace(plan, mechanism=replace(plan.mechanism, aggregate=loud))
    audit = audit_runs(PlanRuns(faulty), data, neighbour, plan.guarantee, runs=300, random_state=1)
    assert audit.verdict == "broken", str(audit)


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_dp_sgd_samples_users_and_a_fifth_of_its_noise_is_caught(relation):
    """The rows of all other users are zero."""
    problem, *pair = one_against_twelve(relation)
    alone = [
        replace(each, matrix=each.matrix * np.isin(each.users, ["50", "-7"])[:, None])
        for each in pair
    ]
    paid = Budget(epsilon=2.0, delta=1e-3, relation=relation, unit="user")
    plan = dp_sgd.plan(problem, paid, steps=4, batch=11.7)
    mean, half = plan.mechanism.aggregate, 0.5 if relation == "replace" else 1.0
    sampled = Sampled(Gaussian(mean.noise_multiplier), 11.7 / 13, zero_out=half)
    assert plan.event == Repeated(sampled, 4)
    assert (mean.per, plan.basis.unit) == ("user", "user")
    assert paid.admits(plan.event)
    assert plan.mechanism.optimizer.clip_norm == pytest.approx(0.4 / math.sqrt(8))
    pair = *alone, plan.guarantee
    audit = audit_runs(PlanRuns(plan), *pair, runs=700, delta=0.05, random_state=1)
    assert audit.verdict == "kept", str(audit)
    loud = replace(mean, noise_multiplier=mean.noise_multiplier / 5)
    faulty = replace(plan, mechanism=replace(plan.mechanism, aggregate=loud))
    audit = audit_runs(PlanRuns(faulty), *pair, runs=700, delta=0.05, random_state=1)
    assert audit.verdict == "broken", str(audit)


def test_one_step_of_dp_sgd_on_all_users_is_their_mean_and_gaussian_noise():
    """Chi-square of 400 runs, false alarm 1e-6; a noise that is 10% off fails."""
    data = people()
    data = InMemory(data.matrix / 9, np.where(data.matrix[:, 0] > 0, 1.0, -1.0), data.users)
    problem = Minimize(n=30, loss=Logistic(), bounds=Bounds(1.0), n_features=3)
    paid = Budget(epsilon=2.0, delta=1e-6, unit="user")
    options = {"steps": 1, "batch": 30.0, "clip_norm": 0.5, "learning_rate": 0.1, "averaged": 0.0}
    plan = dp_sgd.plan(problem, paid, **options)
    halved = InMemory(-data.matrix * data.labels[:, None] / 2, data.labels, data.users)
    expected = -0.1 * means_of(halved).mean(axis=0)
    deviation = 0.1 * 2 * 0.5 * plan.mechanism.aggregate.noise_multiplier / 30
    values = np.array([plan.run(data, random_state=seed).value for seed in range(400)])
    spread = ((values - expected) ** 2).sum() / deviation**2
    assert 1e-6 < stats.chi2.cdf(spread, 1200) < 1 - 1e-6
    for factor in (0.9, 1.1):
        assert not 1e-3 < stats.chi2.cdf(spread * factor**2, 1200) < 1 - 1e-3


def test_methods_that_need_a_gradient_field_refuse_users_with_a_hint():
    from dpfit.catalogue import ENTRIES

    refused = 0
    for row in ENTRIES:
        algorithm = row.load()
        if row.problem != "minimize" or "user" in algorithm.units:
            continue
        kind = algorithm.guarantees[-1]
        amounts = {"pure": {"epsilon": 1.0}, "approximate": {"epsilon": 1.0, "delta": 1e-6}}
        amounts |= {"gdp": {"mu": 1.0}, "zcdp": {"rho": 0.5}}
        problem = algorithm.example("replace").problem
        with pytest.raises(ValueError, match=r"to_user\(max_rows\)"):
            algorithm.plan(problem, Budget(**amounts[kind], unit="user"))
        refused += 1
    assert refused >= 10


def test_bad_input_is_refused_with_its_name():
    problem = Answer(n=30, workload=UserVectors(3, 5.0))
    for radius in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="radius"):
            user_mean.plan(problem, budget(), radius=radius)
    with pytest.raises(ValueError, match="centre must have 3 entries"):
        user_mean.plan(problem, budget(), centre=(1.0,))
    with pytest.raises(ValueError, match=r"pure epsilon.*cap the rows of each user"):
        user_mean.plan(problem, Budget(epsilon=1.0, unit="user"))
    with pytest.raises(ValueError, match="rounds"):
        Interact(n=30, workload=UserVectors(3, 5.0), rounds=0)
    with pytest.raises(ValueError, match="rows of 3 entries"):
        user_mean.plan(problem, budget()).run(people(d=2))
    with pytest.raises(ValueError, match="user ids"):
        user_mean.plan(problem, budget()).run(InMemory(np.zeros((30, 3)), np.zeros(30)))
