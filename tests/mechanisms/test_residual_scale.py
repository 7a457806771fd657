"""The scale of residuals: sensitivity by brute force, accuracy, hostile records."""

import itertools
import math

import numpy as np
import pytest

from dpfit.core import Minimize
from dpfit.core.mechanism import Run
from dpfit.data.dataset import InMemory
from dpfit.losses import Bounds, Huber
from dpfit.mechanisms.residual_scale import ResidualScale
from dpfit.noise import Source

BOUNDS = Bounds(1.0, -1.0, 1.0)


def scale(n, relation="replace", multiplier=1.0, **facts):
    problem = Minimize(n=n, loss=Huber(0.1), bounds=BOUNDS, n_features=2, **facts)
    return ResidualScale(problem, relation, multiplier, largest=0.5)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_no_neighbour_moves_the_counts_further_than_declared(relation):
    """All pairs of hostile records, each in one bucket or none; the bound is attained."""
    mechanism = scale(1, relation, start=(0.3, -0.2))
    rows = [[0.6, 0.8], [0.0, 0.0], [1e30, -1e30], [np.nan, 1.0], [np.inf, 0.0]]
    labels = [0.0, 0.01, -5e300, np.nan, np.inf, 0.3]
    counts = [
        mechanism.counts(InMemory([row], [label])) for row, label in itertools.product(rows, labels)
    ]
    assert all(each.sum() in (0, 1) and each.min() == 0 for each in counts)
    pairs = itertools.product(counts, counts) if relation == "replace" else ((c, 0) for c in counts)
    largest = max(float(np.linalg.norm(one - other)) for one, other in pairs)
    assert largest == pytest.approx(mechanism.sensitivity, rel=1e-12)
    assert mechanism.sensitivity == pytest.approx(
        math.sqrt(2) if relation == "replace" else 1.0, rel=1e-12
    )


def test_a_record_counts_alike_whatever_the_others_are():
    rng = np.random.default_rng(0)
    rows, labels = rng.uniform(-0.7, 0.7, (50, 2)), rng.uniform(-1, 1, 50)
    mechanism = scale(50, start=(0.3, -0.2))
    alone = sum(mechanism.counts(InMemory(rows[[i]], labels[[i]])) for i in range(50))
    assert np.array_equal(mechanism.counts(InMemory(rows, labels)), alone)


@pytest.mark.parametrize("spread", [0.01, 0.04, 0.2])
def test_the_median_is_found_within_a_tenth(spread):
    rng = np.random.default_rng(1)
    labels = spread * rng.standard_normal(20_000)
    data = InMemory(np.zeros((20_000, 2)), labels)
    mechanism = scale(20_000, multiplier=30.0)
    run = Run(Source(5))
    found = float(mechanism.run(data, run)[0])
    assert found == pytest.approx(0.6745 * spread, rel=0.1)


def test_extremes_stay_within_the_range():
    """Few records, no records, residuals of zero: values between the least and the largest."""
    for n, labels in ((1000, []), (3, [0.0, 0.0, 0.0]), (3, [1.0, 1.0, 1.0])):
        data = InMemory(np.zeros((len(labels), 2)), np.array(labels, dtype=float))
        mechanism = scale(n, "add_remove", multiplier=1e-3)
        found = float(mechanism.run(data, Run(Source(2)))[0])
        assert 0.5 / 2**10.6 <= found <= 0.5
