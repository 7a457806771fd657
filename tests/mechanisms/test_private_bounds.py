"""Ranges from noisy histograms: sensitivity by brute force, the noise's law, what is found."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from scipy.sparse import csr_array

from dpfit.core import Answer
from dpfit.core.mechanism import Run
from dpfit.data.dataset import InMemory
from dpfit.mechanisms.mean import BoundedMean
from dpfit.mechanisms.private_bounds import EDGES, ColumnRanges, private_bounds
from dpfit.noise import Source
from dpfit.privacy import Budget

VALUES = [0.0, -0.0, 1.0, -1.0, 3.0, 1e300, -1e300, math.nan, math.inf, -math.inf, 2.0**-20, 5e-324]


def mechanism(columns, labels, budget):
    return private_bounds.plan(
        Answer(n=100, workload=ColumnRanges(columns, labels)), budget
    ).mechanism


@pytest.mark.parametrize("columns", [2, 0])
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("budget", [{"epsilon": 1.0}, {"mu": 1.0}])
def test_no_record_moves_the_counts_further_than_declared_and_some_do(budget, relation, columns):
    found = mechanism(columns, True, Budget(**budget, relation=relation))
    order = 1 if "epsilon" in budget else 2
    records = list(itertools.product(VALUES, VALUES[:6], VALUES[:4]))
    alone = np.array([found.counts(InMemory([[a, b]], [c])).ravel() for a, b, c in records])
    # A cell that is not a number counts nowhere.
    known = np.array([columns + 1 - (columns > 0 and math.isnan(a)) for a, _, _ in records])
    assert (alone.sum(axis=1) == known).all()
    moves = (
        alone
        if relation == "add_remove"
        else (alone[:, None] - alone[None]).reshape(-1, alone.shape[1])
    )
    farthest = np.linalg.norm(moves, ord=order, axis=1).max()
    assert farthest <= found.sensitivity
    assert farthest == pytest.approx(found.sensitivity)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize(
    ("budget", "spread"), [({"epsilon": 0.5}, math.sqrt(2) / 0.5), ({"mu": 0.25}, 1 / 0.25)]
)
def test_the_noise_has_the_declared_size(budget, spread, relation):
    found = mechanism(3, False, Budget(**budget, relation=relation))
    data = InMemory(np.full((4, 3), 3.0), np.zeros(4))
    noise = np.array(
        [found.noisy_counts(data, Run(Source(seed))) - found.counts(data) for seed in range(200)]
    )
    # 74,400 numbers: six standard errors of the deviation are 2.5% for Laplace noise, 1% for normal
    # noise.
    assert noise.std() == pytest.approx(spread * found.sensitivity, rel=0.03)


def test_ranges_hold_the_values_and_little_else():
    generator = np.random.default_rng(0)
    rows = np.column_stack(
        [generator.uniform(20, 60, 5000), generator.uniform(-0.01, 0.01, 5000), np.zeros(5000)]
    )
    plan = private_bounds.plan(Answer(n=5000, workload=ColumnRanges(3, True)), Budget(epsilon=1.0))
    data = InMemory(rows, generator.uniform(1000, 1999, 5000))
    found = [plan.run(data, random_state=seed).value for seed in range(50)]
    expected = ((16.0, 64.0), (-(2.0**-6), 2.0**-6), (0.0, 2.0**-20), (512.0, 2048.0))
    # Each run may err with probability 0.001: more than four errors in 50 have probability below
    # 1e-8.
    assert sum(tuple(zip(*ranges, strict=True)) == expected for ranges in found) >= 46


def test_without_signal_the_range_is_the_unit_one():
    plan = private_bounds.plan(Answer(n=5, workload=ColumnRanges(1)), Budget(epsilon=1e-4))
    ranges = [
        plan.run(InMemory(np.full((5, 1), 1e6), np.zeros(5)), random_state=seed).value
        for seed in range(50)
    ]
    assert sum(low[0] == -1.0 and high[0] == 1.0 for low, high in ranges) > 40
    assert all(-EDGES[-1] <= low[0] < high[0] <= EDGES[-1] for low, high in ranges)


def test_other_workloads_are_refused():
    with pytest.raises(ValueError, match="ColumnRanges"):
        private_bounds.plan(Answer(n=5, workload=BoundedMean(0.0, 1.0)), Budget(epsilon=1.0))


def stored_cells(rng, n, d, entries):
    """CSR rows with hostile values, cells stored twice, and stored zeros."""
    values = np.array([0.0, -0.0, 1.0, -3.5, 1e300, -1e300, 5e-324, math.nan, math.inf, 0.25])
    places = rng.integers(0, d, n * entries)
    pointers = np.arange(0, n * entries + 1, entries)
    return csr_array((rng.choice(values, n * entries), places, pointers), shape=(n, d))


@pytest.mark.parametrize("labels", [False, True])
def test_sparse_rows_are_counted_as_dense_ones(labels):
    rng, d = np.random.default_rng(1), 7
    query = ColumnRanges(d, labels)
    counted = private_bounds.plan(Answer(n=90, workload=query), Budget(mu=1.0)).mechanism.counts
    for trial in range(20):
        rows = stored_cells(rng, 90, d, 5)
        if trial % 2:
            # The caller's flags are wrong, and there is room behind the last cell.
            rows = csr_array(
                (np.append(rows.data, 9.0), np.append(rows.indices, 0), rows.indptr), shape=(90, d)
            )
            rows.has_canonical_format = rows.has_sorted_indices = True
        outcomes = rng.choice([0.5, -2.0, math.nan], 90)
        dense = stored_once(rows)
        np.testing.assert_array_equal(
            counted(InMemory(rows, outcomes)), counted(InMemory(dense, outcomes))
        )


def stored_once(rows):
    dense = np.zeros(rows.shape)
    with np.errstate(all="ignore"):
        for row, (low, high) in enumerate(itertools.pairwise(rows.indptr)):
            for place in range(low, high):
                dense[row, rows.indices[place]] += rows.data[place]
    return dense


def test_a_cell_that_is_stored_many_times_counts_once():
    """Fault: each stored entry counted, so one record moved its column's counts by 1000."""
    rows = csr_array((np.ones(1000), np.zeros(1000, dtype=int), [0, 1000]), shape=(1, 2))
    one = private_bounds.plan(Answer(n=1, workload=ColumnRanges(2)), Budget(mu=1.0)).mechanism
    counts = one.counts(InMemory(rows, [0.0]))
    assert counts.sum(axis=1).tolist() == [1, 1]
    assert counts[0, np.searchsorted(EDGES, 1000.0, side="right")] == 1


def test_memory_of_sparse_rows_follows_the_stored_entries():
    """As dense rows these are 3.2 GB, and 10 GB in the pieces of before."""
    rng, n, d = np.random.default_rng(2), 20_000, 20_000
    rows = csr_array(
        (rng.random(n * 5), rng.integers(0, d, n * 5), np.arange(0, 5 * n + 1, 5)), shape=(n, d)
    )
    data = InMemory(rows, np.zeros(n))
    one = private_bounds.plan(Answer(n=n, workload=ColumnRanges(d)), Budget(mu=1.0)).mechanism
    tracemalloc.start()
    counts = one.counts(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert counts.sum() == n * d
    assert peak < 3 * counts.nbytes + 200 * rows.nnz
