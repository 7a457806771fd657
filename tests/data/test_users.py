"""User ids: one user is one code, and each contributes a bounded number of records."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpfit.data.users import bounded_contributions
from dpfit.noise import Source


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 4), st.integers(0, 1000))
def test_contributions_are_bounded(users, most, seed):
    ids = np.array(users, dtype=np.int64)
    kept = bounded_contributions(ids, most, Source(seed))
    assert np.all(np.diff(kept) > 0)
    counts, full = np.bincount(ids[kept], minlength=6), np.bincount(ids, minlength=6)
    assert counts.tolist() == np.minimum(full, most).tolist()


def test_kept_rows_are_uniform_among_a_user_s_rows():
    """Chi-square on the 10 pairs of five rows, 4000 draws, 1e-9; taking the first two fails."""
    ids = np.array(["b", "a", "a", "b", "a", "a", "a", "c"])
    source = Source(5)
    pairs = [
        tuple(k for k in bounded_contributions(ids, 2, source) if ids[k] == "a")
        for _ in range(4000)
    ]
    counts = np.unique(np.array(pairs), axis=0, return_counts=True)[1]
    assert len(counts) == 10
    assert np.sum((counts - 400.0) ** 2 / 400) < stats.chi2.isf(1e-9, 9)


def test_empty_ids_do_not_hide_the_rows_of_a_user():
    nan = math.nan
    ids = np.array([nan, 3, 3, 2, 2, 1, 1, 1, 1, nan, 3, nan], dtype=object)
    kept = bounded_contributions(ids, 1, Source(0))
    assert sorted(ids[kept].tolist()) == [1, 2, 3]


def test_hostile_users():
    assert bounded_contributions([], 1, Source(0)).tolist() == []
    assert bounded_contributions([math.nan, math.nan, 1.0], 1, Source(0)).tolist() == [2]
    assert bounded_contributions(["bob", "bob", None, None], 2, Source(0)).tolist() == [0, 1]
    assert bounded_contributions(
        np.array(["Alice", 1, None, "1"], dtype=object), 2, Source(0)
    ).tolist() == [0, 1, 3]
    assert bounded_contributions([2**53, 2**53 + 1, None], 1, Source(0)).tolist() == [0, 1]
    assert bounded_contributions(["a", "a\0", 10**5000], 1, Source(0)).tolist() == [0, 1]
    with pytest.raises(ValueError, match="max_rows"):
        bounded_contributions([1, 2], 0, Source(0))
    with pytest.raises(ValueError, match=r"shape \(n,\)"):
        bounded_contributions([[1, 2]], 1, Source(0))
