"""Counts of near points against all pairs of numpy, with ties, in any order."""

import numpy as np
import pytest

from dpfit.kernels.pairs import near_counts


def brute(points, radius):
    with np.errstate(invalid="ignore"):
        squares = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    return ((squares <= radius**2) | np.eye(len(points), dtype=bool)).sum(axis=1)


@pytest.mark.parametrize("d", [1, 2, 7])
def test_counts_are_those_of_all_pairs(d):
    rng = np.random.default_rng(d)
    points = rng.integers(-4, 5, (120, d)).astype(float)  # many ties at the radius
    points[5], points[6, 0] = np.nan, np.inf
    for radius in (1.0, 2.0, 3.0):
        near, within = near_counts(points, radius, 2 * radius)
        np.testing.assert_array_equal(near, brute(points, radius))
        np.testing.assert_array_equal(within, brute(points, 2 * radius))
        order = rng.permutation(120)
        np.testing.assert_array_equal(near_counts(points[order], radius, radius)[0], near[order])


def test_known_counts():
    same, far = np.zeros((9, 2)), np.arange(9.0)[:, None] * 100
    assert near_counts(same, 1.0, 1.0)[0].tolist() == [9] * 9
    assert near_counts(far, 1.0, 1.0)[0].tolist() == [1] * 9
    clusters = np.append(np.zeros(6), np.full(3, 50.0))[:, None]
    assert near_counts(clusters, 1.0, 1.0)[0].sum() == 6**2 + 3**2
    with pytest.raises(ValueError, match="in order"):
        near_counts(same, 2.0, 1.0)
