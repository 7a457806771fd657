"""Signed corners: exact laws on neighbours, sensitivity by brute force, and planted faults."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from dpfit.core import Minimize, Run
from dpfit.data.dataset import InMemory
from dpfit.data.view import View
from dpfit.geometry import L1Ball
from dpfit.losses import Absolute, Bounds, Logistic
from dpfit.mechanisms.aggregates import signed_corner
from dpfit.mechanisms.aggregates.contribution import Gradient
from dpfit.mechanisms.aggregates.signed_corner import EntryGradient, SignedCorner
from dpfit.noise import Source
from dpfit.privacy.accountant import privacy_curve
from dpfit.privacy.event import BoundedRange, Repeated
from dpfit.solvers.descents.corners import Corners

HOSTILE = np.array([0.0, 1.0, -1.0, 0.3, 7.0, -1e300, 5e-324, np.inf, np.nan])
EPSILONS = np.linspace(0.1, 1.5, 8)
ROUNDS = 2


def problem_of(d, loss=None, n=6, row_norm=None):
    bounds = Bounds(math.sqrt(d) if row_norm is None else row_norm, -1.0, 1.0, row_max=1.0)
    ball = L1Ball(d, 0.2)
    return Minimize(n=n, loss=loss or Absolute(), bounds=bounds, n_features=d, domain=ball)


def neighbours(d, relation):
    """One record pulls all columns one way; in the neighbour it pulls back, or has left."""
    rows = np.tile(np.where(np.arange(d) % 2, 0.5, -0.5), (5, 1))
    rows, labels = np.vstack([rows, np.ones(d)]), np.array([1.0, -1.0, 1.0, -1.0, 1.0, 1.0])
    data = InMemory(rows, labels)
    if relation == "add_remove":
        return data, InMemory(rows[:-1], labels[:-1])
    return data, InMemory(rows, np.append(labels[:-1], -1.0))


def law(corner, problem, data):
    """Return the probability of each sequence of answers, with points that follow the answers."""
    moves = Corners(ROUNDS, problem.n_features, 0.2)

    def later(state, made):
        if made == ROUNDS:
            return np.ones(1)
        asked = moves.ask(problem, state)
        weights = np.exp(-corner.gaps(asked, data) / corner.scale(asked))
        answers = [(int(column), sign) for sign in (1.0, -1.0) for column in asked.columns]
        rest = [later(moves.tell(problem, state, answer), made + 1) for answer in answers]
        return np.concatenate([w * r for w, r in zip(weights / weights.sum(), rest, strict=True)])

    return later(moves.init(problem, corner, None), 0)


def worst_share(d, relation, level=1.5, pair=None):
    """Return the largest true delta over the claimed one, over epsilons and both directions."""
    problem = problem_of(d)
    corner = SignedCorner(problem.n, level, ROUNDS, relation)
    one, two = (law(corner, problem, data) for data in pair or neighbours(d, relation))
    claimed = privacy_curve(corner.event, relation).delta(EPSILONS)
    true = [
        max(np.maximum(p - math.exp(epsilon) * q, 0).sum() for p, q in ((one, two), (two, one)))
        for epsilon in EPSILONS
    ]
    return max(t / c for t, c in zip(true, claimed, strict=True) if c > 1e-9)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("d", [3, 4, 5])
def test_the_exact_law_of_two_answers_stays_within_the_claimed_profile(d, relation):
    assert 0.8 < worst_share(d, relation) <= 1.0


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_random_neighbours_with_hostile_entries_stay_within_the_claimed_profile(relation):
    """All sequences of two signed columns, on pairs of datasets of at most 6 records."""
    rng, worst = np.random.default_rng(9), 0.0
    for trial in range(60):
        d, n = 3 + trial % 3, int(rng.integers(1, 7))
        rows = rng.choice(HOSTILE, (n + 1, d))
        rows[-2:] = rng.choice([-1.0, 1.0], (2, d)) * rng.choice([1.0, 1e9])
        data = InMemory(rows, rng.choice([-1.0, 1.0, 9.0], n + 1))
        other = data.rows(np.append(np.arange(n - 1), n))
        pair = data if relation == "add_remove" else data.rows(np.arange(n)), other
        worst = max(worst, worst_share(d, relation, pair=pair))
    assert 0.6 < worst <= 1.0


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_planted_faults_break_the_claimed_profile(relation, monkeypatch):
    honest_gaps, honest_scale = SignedCorner.gaps, SignedCorner.scale

    def sign_from_the_data(self, contribution, data):
        """Scores are absolute sums, and the corner against the gradient is answered."""
        sums = contribution.total(data, contribution.grid)[contribution.columns]
        gaps = np.abs(sums).max() - np.abs(sums)
        far = np.full(len(sums), 10**12)
        return np.concatenate([np.where(sums < 0, gaps, far), np.where(sums < 0, far, gaps)])

    uncharged = property(lambda self: BoundedRange(1 / self.noise_multiplier))

    def norm_for_entry(self, relation):
        """An even share of the row norm stands for the largest entry."""
        return self.problem.bounds.row_norm / 3 * (1 if relation == "add_remove" else 2)

    faults = {
        "the sign is read off the data": (SignedCorner, "gaps", sign_from_the_data),
        "half the scale": (SignedCorner, "scale", lambda self, one: honest_scale(self, one) / 2),
        "columns are chosen again without a charge": (SignedCorner, "event", uncharged),
        "the row norm for the largest entry": (EntryGradient, "sensitivity", norm_for_entry),
    }
    for owner, name, fault in faults.values():
        with monkeypatch.context() as planted:
            planted.setattr(owner, name, fault)
            assert worst_share(3, relation) > 1.05
    assert SignedCorner.gaps is honest_gaps


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_the_scale_is_twice_the_sensitivity_over_epsilon(relation):
    """Oracle: 4 L B / epsilon_0 if a record is replaced, 2 L B / epsilon_0 if it leaves.

    The logistic slope is at most 1 / (1 + exp(-m)) at margins up to m = B norm_1(theta).
    """
    problem = Minimize(
        n=9, loss=Logistic(), bounds=Bounds(5.0, row_max=0.5), n_features=4, domain=L1Ball(4, 9.0)
    )
    corner = SignedCorner(9, 1 / 0.2, 3, relation)
    for point, slope in ((np.zeros(4), 0.5), (np.array([2.0, 0, -3, 1]), 1 / (1 + math.exp(-3)))):
        asked = EntryGradient(problem, point, 4)
        expected = (4 if relation == "replace" else 2) * slope * 0.5 / 0.2
        assert corner.scale(asked) * asked.grid.step == pytest.approx(expected, rel=2e-3)
        assert corner.scale(asked) * asked.grid.step >= expected
    assert corner.event == Repeated(BoundedRange(0.2), 3)


def largest_change(problem, relation, trials=60):
    """Return the largest change of an entry of the sum, over the declared sensitivity."""
    rng, d, worst = np.random.default_rng(7), problem.n_features, 0.0
    asked = EntryGradient(problem, np.append(0.1, np.zeros(d - 1)), d)
    kinds = (np.asarray, np.asfortranarray, csr_array)
    corners = np.array(list(itertools.product((-1.0, 1.0), repeat=d)))
    for trial in range(trials):
        n = int(rng.integers(1, 7))
        rows, labels = rng.choice(HOSTILE, (n + 1, d)), rng.choice([-1.0, 1.0, 9.0], n + 1)
        rows[n], rows[0] = corners[trial % len(corners)], 7 * corners[trial // 3 % len(corners)]
        if trial % 5 == 0:
            # One entry as long as the row may be.
            rows[n] = problem.bounds.row_norm * np.eye(d)[trial // 5 % d]
        kept = np.arange(n)
        other = kept if relation == "add_remove" else np.append(kept[1:], n)
        first = np.append(kept, n) if relation == "add_remove" else kept
        sums = [
            asked.total(InMemory(kinds[trial % 3](rows[which]), labels[which]), asked.grid)
            for which in (first, other)
        ]
        moved = np.abs(sums[0] - sums[1]).max() * asked.grid.step
        worst = max(worst, moved / asked.sensitivity(relation))
    return worst


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("row_norm", [1.2, math.sqrt(3), 50.0])
def test_no_hostile_record_moves_an_entry_further_than_declared(relation, row_norm):
    problem = problem_of(3, row_norm=row_norm)
    change = largest_change(problem, relation)
    assert change <= 1.0
    if row_norm > 1.5:
        assert change > 0.99


@pytest.mark.parametrize("row_norm", [0.8, 50.0])
def test_all_pairs_of_hostile_records_move_an_entry_by_the_declared_sum_at_most(row_norm):
    """Sums are integers of grid steps that records add to, so one record at a time is enough."""
    problem = problem_of(2, row_norm=row_norm)
    asked = EntryGradient(problem, np.array([0.1, -0.05]), 2)
    records = [
        (row, label)
        for row in itertools.product(HOSTILE, repeat=2)
        for label in (1.0, -1.0, 9.0, np.nan)
    ]
    rows, labels = np.array([row for row, _ in records]), np.array([each for _, each in records])
    single = np.array(
        [asked.total(InMemory(rows[[i]], labels[[i]]), asked.grid) for i in range(len(records))]
    )
    rng = np.random.default_rng(4)
    for _ in range(100):
        some = rng.choice(len(records), 6)
        together = asked.total(InMemory(rows[some], labels[some]), asked.grid)
        np.testing.assert_array_equal(together, single[some].sum(axis=0))
    step = asked.grid.step
    assert np.abs(single).max() * step <= asked.sensitivity("add_remove")
    spans = (single.max(axis=0) - single.min(axis=0)) * step
    assert spans.max() <= asked.sensitivity("replace")
    if row_norm > 1.5:
        assert spans.max() > 0.99 * asked.sensitivity("replace")


def test_bounds_of_the_row_norm_do_not_replace_those_of_entries(monkeypatch):
    problem = problem_of(3, row_norm=math.sqrt(3))
    with monkeypatch.context() as planted:
        # Fault: an even share of the row norm stands for the largest entry.
        even = property(lambda self: self.problem.bounds.row_norm / 3 * (1 + 1e-9))
        planted.setattr(EntryGradient, "entry_bound", even)
        assert largest_change(problem, "add_remove") > 1.1
    with monkeypatch.context() as planted:
        # Fault: rows are scaled into the ball of their norm, and entries are not clamped.
        honest = Minimize.guards
        planted.setattr(
            Minimize,
            "guards",
            property(lambda self: {k: v for k, v in honest.fget(self).items() if k != "row_max"}),
        )
        assert largest_change(problem, "add_remove") > 1.1


def test_answers_follow_the_exact_law():
    problem = problem_of(3)
    data, _ = neighbours(3, "replace")
    corner, asked = SignedCorner(6, 1.5, 1, "replace"), EntryGradient(problem, np.zeros(3), 3)
    weights = np.exp(-corner.gaps(asked, data) / corner.scale(asked))
    source, runs = Source(random_state=3), 3000
    view = View(data, "replace", "record", source)
    answers = [corner.answer({}, asked, view, Run(source))[1] for _ in range(runs)]
    counts = [answers.count((j, sign)) for sign in (1.0, -1.0) for j in range(3)]
    expected = runs * weights / weights.sum()
    # The 1 - 1e-7 quantile of chi-square with 5 degrees of freedom is 41.8.
    assert ((np.array(counts) - expected) ** 2 / expected).sum() < 41.8
    assert min(counts) > 0


def test_other_contributions_and_samples_are_refused():
    problem = problem_of(3)
    corner = SignedCorner(6, 1.0, 1, "replace")
    with pytest.raises(ValueError, match="needs bounded entries, got Gradient"):
        corner.check_scale(Gradient(problem, np.zeros(3), 1.0))
    with pytest.raises(ValueError, match="too large to draw"):
        replace(corner, noise_multiplier=1e9).check_scale(EntryGradient(problem, np.zeros(3), 3))
    with pytest.raises(ValueError, match="see all records"):
        replace(corner, sampling=signed_corner_sampling())


def signed_corner_sampling():
    from dpfit.mechanisms.aggregates.sampling import Poisson

    return Poisson(0.5)


def test_the_draw_is_that_of_exact_integers(monkeypatch):
    """A fault in the draw changes the answers: nothing else decides."""
    data, _ = neighbours(3, "replace")
    asked, source = EntryGradient(problem_of(3), np.zeros(3), 3, (1,)), Source(random_state=3)
    view = View(data, "replace", "record", source)
    monkeypatch.setattr(signed_corner, "choices", lambda gaps, scale, count, noise: [3])
    answer = SignedCorner(6, 1.5, 1, "replace").answer({}, asked, view, Run(source))[1]
    assert answer == (2, -1.0)
