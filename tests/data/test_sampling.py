"""Samples have the law that the accounting assumes."""

import itertools

import numpy as np
import pytest
from scipy.stats import binom, chi2

from dpfit.data.sampling import Records, Users, fixed_sample, poisson_sample, random_parts
from dpfit.noise import Source


def test_poisson_includes_each_record_at_the_stated_rate():
    """200,000 records at rate 0.1: binomial count at two-sided 1e-7; a rate of 0.11 would be rejected."""
    size = len(poisson_sample(Records(200_000), 0.1, Source(1)))
    low, high = binom.ppf([5e-8, 1 - 5e-8], 200_000, 0.1)
    assert low <= size <= high
    low, high = binom.ppf([5e-8, 1 - 5e-8], 200_000, 0.11)
    assert not low <= size <= high


def test_poisson_inclusions_are_independent():
    """Sets of 3 records at rate 1/2: all 8 subsets equally likely, 8,000 draws, chi-square at 1e-9."""
    source = Source(2)
    counts = np.zeros(8)
    for _ in range(8000):
        counts[sum(2**i for i in poisson_sample(Records(3), 0.5, source).tolist())] += 1
    assert np.sum((counts - 1000) ** 2 / 1000) < chi2.isf(1e-9, 7)


def test_fixed_samples_are_uniform_over_subsets():
    """All 10 pairs of 5 records, 10,000 draws, chi-square at 1e-9."""
    source = Source(3)
    place = {pair: i for i, pair in enumerate(itertools.combinations(range(5), 2))}
    counts = np.zeros(10)
    for _ in range(10_000):
        counts[place[tuple(fixed_sample(Records(5), 2, source).tolist())]] += 1
    assert np.sum((counts - 1000) ** 2 / 1000) < chi2.isf(1e-9, 9)


def test_parts_are_disjoint_and_uniform():
    source = Source(4)
    counts = np.zeros(4)
    for _ in range(8000):
        first, second = random_parts(Records(4), [1, 2], source)
        assert len({*first.tolist(), *second.tolist()}) == 3
        counts[first[0]] += 1
    assert np.sum((counts - 2000) ** 2 / 2000) < chi2.isf(1e-9, 3)


def test_users_come_with_all_their_rows():
    users = Users(np.array([7, 3, 7, 7, 3, 9]))
    assert users.n == 3
    for size in (1, 2, 3):
        rows = fixed_sample(users, size, Source(5))
        chosen = {users.ids[row] for row in rows}
        assert len(chosen) == size
        assert rows.tolist() == [i for i, one in enumerate(users.ids) if one in chosen]


def test_duplicate_and_mixed_ids_are_users_too():
    assert Users([]).n == 0
    assert len(Users([]).rows(np.zeros(0, dtype=np.int64))) == 0
    assert Users([1, "1", 2.0]).n == 2  # ids are compared as texts


def test_records_that_name_nobody_are_in_no_unit():
    users = Users([None, "ann", float("nan"), "None", "ann"])
    assert users.n == 2
    assert poisson_sample(users, 1.0, Source(0)).tolist() == [1, 3, 4]


def test_bad_requests_are_refused():
    for rate in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="rate must"):
            poisson_sample(Records(3), rate, Source(0))
    with pytest.raises(ValueError, match="cannot draw 4 of 3"):
        fixed_sample(Records(3), 4, Source(0))
    with pytest.raises(ValueError, match="do not fit"):
        random_parts(Records(3), [2, 2], Source(0))
