"""Adversarial pairs are neighbours, and the search finds the pair that hurts."""

from itertools import islice

import numpy as np
import pytest

from dpfit.audit import (
    CallableRuns,
    audit_entry,
    problem_pairs,
    random_pairs,
    record_pairs,
    search_pair,
    user_pairs,
    worst_pair,
)
from dpfit.audit.neighbours import require_neighbours
from dpfit.core import Answer, Minimize
from dpfit.losses import Bounds, Huber, Logistic
from dpfit.mechanisms.counting import Flags
from dpfit.mechanisms.exponential import BestCandidate
from dpfit.mechanisms.mean import BoundedMean
from dpfit.noise import Source


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_generated_pairs_are_neighbours(relation):
    pairs = [
        *record_pairs(5, 2, -1.0, 3.0, relation),
        *islice(random_pairs(5, 2, -1.0, 3.0, relation, Source(1)), 50),
    ]
    assert len({pair.name for pair in pairs}) == 9
    for pair in pairs:
        require_neighbours(pair.data, pair.neighbour, relation)
    for pair in user_pairs(4, 3, 2, 0.0, 1.0, relation):
        require_neighbours(pair.data, pair.neighbour, relation, "user")
        assert pair.data.shape == (4, 3, 2)


def test_random_pairs_stay_in_bounds():
    for pair in islice(random_pairs(4, 3, -2.0, 5.0, "replace", Source(1)), 100):
        assert pair.data.min() >= -2.0
        assert pair.data.max() <= 5.0


def leaky(data, source):
    """A sum with plenty of noise, unless two records are equal to the upper bound."""
    doubled = int(np.sum(data >= 1.0) == 2)
    return np.rint(64 * (data.sum() / 50 + 20.0 * doubled + source.gaussian(1))) / 64


def test_the_search_finds_the_pair_that_hurts():
    candidates = list(islice(random_pairs(3, 1, 0.0, 1.0, "replace", Source(5)), 30))
    hurts = [
        bool(np.sum(p.data >= 1.0) == 2) != bool(np.sum(p.neighbour >= 1.0) == 2)
        for p in candidates
    ]
    assert any(hurts)
    assert not all(hurts)
    worst = worst_pair(CallableRuns(leaky), candidates, runs=60, random_state=1)
    assert hurts[next(i for i, pair in enumerate(candidates) if pair is worst)]


PROBLEMS = {
    "mean": Answer(n=4, workload=BoundedMean(-1.0, 3.0, 2)),
    "counts": Answer(n=4, workload=Flags(3)),
    "choice": Answer(n=4, workload=BestCandidate(3)),
    "margins": Minimize(n=4, loss=Logistic(), bounds=Bounds(2.0), n_features=2),
    "residuals": Minimize(n=4, loss=Huber(1.0), bounds=Bounds(2.0, -1.0, 5.0), n_features=3),
}


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_pairs_of_a_problem_are_neighbours_of_its_size(name, relation):
    pairs = list(problem_pairs(PROBLEMS[name], relation, Source(1)))
    assert len(pairs) >= 8
    for pair in pairs:
        require_neighbours(pair.data, pair.neighbour, relation)
        assert len(pair.data) == 4


def test_gradients_of_opposite_records_point_in_opposite_directions():
    pair = next(problem_pairs(PROBLEMS["margins"], "replace"))
    slopes = [
        data.gradient(Logistic(), np.zeros(2), index=np.array([3]))[1]
        for data in (pair.data, pair.neighbour)
    ]
    assert slopes[0] == pytest.approx(-slopes[1])
    assert np.linalg.norm(slopes[0]) == pytest.approx(1.0)  # half of the largest norm of a row


def test_the_search_climbs_to_a_leak_that_random_pairs_miss():
    """Only with all records at the upper bound is the leak in their sum visible."""

    def leak(data, source):
        inside = np.clip(np.nan_to_num(data), -1.0, 1.0)
        return (
            np.rint(64 * (4.0 ** (np.sum(inside == 1.0) - 5) * inside.sum() + source.gaussian(1)))
            / 64
        )

    problem = Answer(n=6, workload=BoundedMean(-1.0, 1.0))
    runs = CallableRuns(leak)
    first = search_pair(runs, problem, "replace", rounds=0, width=4, runs=40, random_state=2)
    found = search_pair(runs, problem, "replace", rounds=6, width=8, runs=40, random_state=2)
    assert np.sum(np.nan_to_num(found.data) >= 1.0) >= max(
        5, np.sum(np.nan_to_num(first.data) >= 1.0)
    )


def test_an_entry_is_audited_on_the_pair_that_was_found():
    audit = audit_entry("gaussian_counts", search=True, runs=400, random_state=1)
    assert audit.kept
    assert audit.subject.startswith("gaussian_counts (")
    with pytest.raises(ValueError, match="no pairs of neighbours are known for"):
        audit_entry("above_threshold", search=True, runs=10)


def test_bad_input_is_said():
    with pytest.raises(ValueError, match="no pairs"):
        worst_pair(CallableRuns(leaky), [])
    with pytest.raises(ValueError, match="relation must be one of"):
        list(record_pairs(3, 1, 0.0, 1.0, "swap"))
    with pytest.raises(ValueError, match="at least 2"):
        list(record_pairs(1, 1, 0.0, 1.0, "replace"))


@pytest.mark.slow
def test_a_search_is_never_worse_than_the_example():
    """The example of noisy descent is tight; records found for its problem are not."""
    plain = audit_entry("noisy_gd", mu=1.0, runs=2000, random_state=5)
    searched = audit_entry("noisy_gd", mu=1.0, runs=2000, random_state=5, search=True)
    assert plain.lower > 0.3
    assert searched.lower >= 0.9 * plain.lower
