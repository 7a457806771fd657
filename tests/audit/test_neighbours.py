"""Adversarial pairs are neighbours, and the search finds the pair that hurts."""

from itertools import islice

import numpy as np
import pytest

from dpfit.audit import CallableRuns, random_pairs, record_pairs, user_pairs, worst_pair
from dpfit.audit.neighbours import require_neighbours
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
    hurts = [bool(np.sum(p.data >= 1.0) == 2) != bool(np.sum(p.neighbour >= 1.0) == 2) for p in candidates]
    assert any(hurts)
    assert not all(hurts)
    worst = worst_pair(CallableRuns(leaky), candidates, runs=60, random_state=1)
    assert hurts[next(i for i, pair in enumerate(candidates) if pair is worst)]


def test_bad_input_is_said():
    with pytest.raises(ValueError, match="no pairs"):
        worst_pair(CallableRuns(leaky), [])
    with pytest.raises(ValueError, match="relation must be one of"):
        list(record_pairs(3, 1, 0.0, 1.0, "swap"))
    with pytest.raises(ValueError, match="at least 2"):
        list(record_pairs(1, 1, 0.0, 1.0, "replace"))
