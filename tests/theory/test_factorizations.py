"""Factorizations of running sums: coefficients, the worst pattern, errors, the tree."""

from itertools import combinations, pairwise, product

import numpy as np
import pytest

from dpfit.theory import factorizations as theory
from dpfit.theory.factorizations import (
    UNIT,
    cut,
    error_norms,
    numerators,
    participation_norm,
    powers,
)

WORST = {16: 1.94, 64: 2.39, 256: 2.83, 1024: 3.27, 4096: 3.71}
LARGEST_RMS = {(7, 1): 15.6, (30, 1): 52.1, (52, 7): 43.9, (12, 30): 12.8}


def lower(column):
    return np.array(
        [[column[i - j] if i >= j else 0 for j in range(len(column))] for i in range(len(column))]
    )


def patterns(rounds, times, apart):
    """All sets of at most ``times`` steps that lie at least ``apart`` steps from each other."""
    for size in range(1, times + 1):
        for steps in combinations(range(rounds), size):
            if all(b - a >= apart for a, b in pairwise(steps)):
                yield steps


@pytest.mark.parametrize("rounds", WORST)
def test_the_worst_deviation_of_the_square_root_is_the_tabulated_one(rounds):
    column = numerators(powers(rounds, 0.5))
    worst = participation_norm(column) * error_norms(column / UNIT, rounds)[-1]
    assert worst == pytest.approx(np.sum(powers(rounds, 0.5) ** 2), rel=1e-4)
    assert worst == pytest.approx(WORST[rounds], rel=0.005)


def test_the_square_root_times_itself_sums():
    matrix = lower(powers(50, 0.5))
    np.testing.assert_allclose(matrix @ matrix, np.tril(np.ones((50, 50))))


@pytest.mark.parametrize("rounds", range(1, 8))
@pytest.mark.parametrize("exponent", [0.0, 0.3, 0.5, 1.0])
def test_no_pattern_moves_the_releases_further_than_the_densest_first_one(rounds, exponent):
    for length in {1, 2, 4, rounds}:
        column = numerators(cut(powers(rounds, exponent), length))
        matrix = lower(column)
        for times, apart in product(range(1, 5), range(1, 4)):
            # Vectors of all signs: equal ones are the worst.
            worst = max(
                np.linalg.norm(matrix[:, steps] @ np.array(signs))
                for steps in patterns(rounds, times, apart)
                for signs in product((-1, 1), repeat=len(steps))
            )
            assert participation_norm(column, times, apart) * UNIT == pytest.approx(worst, rel=1e-9)


def test_vectors_that_turn_move_the_releases_no_further():
    rng, column = np.random.default_rng(1), numerators(powers(7, 0.5))
    matrix, bound = lower(column) / UNIT, participation_norm(column, 3, 2)
    for steps in patterns(7, 3, 2):
        vectors = rng.normal(size=(len(steps), 3))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        assert np.linalg.norm(matrix[:, steps] @ vectors) <= bound


def test_coefficients_that_rise_are_refused():
    with pytest.raises(ValueError, match="rise"):
        participation_norm(np.array([1.0, 0.5, 0.6]))


@pytest.mark.parametrize(("times", "apart"), LARGEST_RMS)
def test_a_year_of_users_has_the_tabulated_error(times, apart):
    exponent, length = theory.search(365, times, apart)
    column = numerators(cut(powers(365, exponent), length))
    rms = participation_norm(column, times, apart) * theory.rms(error_norms(column / UNIT, 365))
    assert rms <= LARGEST_RMS[times, apart]
    # The matrices say the same, without power series.
    noise = np.tril(np.ones((365, 365))) @ np.linalg.inv(lower(column / UNIT))
    moved = lower(column / UNIT)[:, ::apart][:, :times].sum(axis=1)
    direct = np.linalg.norm(moved) * np.sqrt(np.mean(np.sum(noise**2, axis=1)))
    assert rms == pytest.approx(direct, rel=1e-9)


def test_windows_have_the_error_of_the_matrices():
    column = powers(40, 0.3)
    noise = np.tril(np.ones((40, 40))) @ np.linalg.inv(lower(column))
    weeks = noise - np.pad(noise, ((7, 0), (0, 0)))[:40]
    np.testing.assert_allclose(error_norms(column, 40, 7), np.linalg.norm(weeks, axis=1))


@pytest.mark.parametrize(("rounds", "loss"), [(1000, 1.0002), (10_000, 1.0008), (100_000, 1.0027)])
def test_six_exponentials_are_near_the_ideal(rounds, loss):
    column = theory.expanded(*theory.exponentials(rounds), rounds)
    worst = participation_norm(column) * error_norms(column, rounds)[-1]
    assert 1 <= worst / np.sum(powers(rounds, 0.5) ** 2) <= loss


# The binary tree.


def incidence(rounds):
    nodes = theory.tree_nodes(rounds)
    return np.array(
        [[first <= step <= last for first, last in nodes] for step in range(1, rounds + 1)]
    )


@pytest.mark.parametrize("rounds", [1, 2, 3, 4, 5, 8, 16, 17, 365])
def test_a_leaf_lies_in_as_many_nodes_as_there_are_levels(rounds):
    inside = incidence(rounds).sum(axis=1)
    assert (
        inside.max() == inside[0] == theory.levels(rounds) == theory.tree_norm(rounds, 1, 1, "l1")
    )


def test_index_zero_is_refused():
    """Index 0 had no noise: every period's first sum was released as it is."""
    with pytest.raises(ValueError, match="count from 1"):
        theory.ending(0)


@pytest.mark.parametrize(
    ("rounds", "apart", "times"), list(product((3, 5, 7), (1, 2, 3), (1, 2, 4)))
)
def test_the_tree_bounds_all_patterns(rounds, apart, times):
    nodes = incidence(rounds)
    held = [nodes[list(steps)].sum(axis=0) for steps in patterns(rounds, times, apart)]
    assert max(np.linalg.norm(each) for each in held) <= theory.tree_norm(rounds, times, apart)
    assert max(each.sum() for each in held) <= theory.tree_norm(rounds, times, apart, "l1")


def prefix_covariance(rounds):
    """The covariance of all sums of the tree, for noise of variance 1 in each node."""
    place = {node: number for number, node in enumerate(theory.tree_nodes(rounds))}
    blocks = np.zeros((rounds, len(place)))
    for step in range(1, rounds + 1):
        last = step
        while last:
            blocks[step - 1, place[last - (last & -last) + 1, last]] = 1
            last -= last & -last
    return blocks @ blocks.T


@pytest.mark.parametrize(("rounds", "squared"), [(8, 5), (16, 7), (32, 9)])
def test_an_instance_used_again_after_a_reset_loses_2_l_minus_3(rounds, squared):
    """The planted fault: one tree for two periods. A fresh tree loses L."""
    inverse = np.linalg.inv(prefix_covariance(rounds))
    steps = np.arange(rounds)

    def loss(pattern):
        return pattern @ inverse @ pattern

    assert max(loss(steps >= first) for first in steps) == pytest.approx(theory.levels(rounds))
    worst = max(loss((first <= steps) & (steps < reset)) for first, reset in combinations(steps, 2))
    assert worst == pytest.approx(squared)
    assert squared == 2 * theory.levels(rounds) - 3


@pytest.mark.parametrize(("rounds", "squared"), [(16, 2.77), (64, 3.66)])
def test_a_reset_costs_the_square_root_more_too(rounds, squared):
    matrix = np.tril(np.ones((rounds, rounds)))
    inverse = np.linalg.inv(lower(powers(rounds, 0.5)) @ lower(powers(rounds, 0.5)).T)
    steps = np.arange(rounds)
    worst = max(
        pattern @ inverse @ pattern
        for first, reset in combinations(steps, 2)
        for pattern in [((first <= steps) & (steps < reset)).astype(float)]
    )
    assert worst == pytest.approx(squared, abs=0.005)
    assert worst > participation_norm(powers(rounds, 0.5)) ** 2
    assert matrix.shape == (rounds, rounds)


@pytest.mark.parametrize("rounds", [1, 2, 4, 8, 16])
def test_a_missing_last_level_leaves_the_last_sum_without_a_node(rounds):
    """The planted fault: without the top level no node set covers the sum of all steps."""
    kept = [
        node
        for node in theory.tree_nodes(rounds)
        if node[1] - node[0] + 1 < 2 ** (theory.levels(rounds) - 1)
    ]
    assert (1, rounds) in theory.tree_nodes(rounds)
    assert (1, rounds) not in kept
