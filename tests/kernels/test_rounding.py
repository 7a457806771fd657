"""The rounding bound holds for the worst-conditioned sums, and BLAS satisfies it."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfit.kernels.passes import gram
from dpfit.kernels.rounding import gamma, sum_error
from dpfit.kernels.rows import BLOCKS, LARGEST_BLOCK, blocks


def blocked(terms, count):
    """Add in float64 within blocks and then across."""
    parts = [sum(part.tolist(), 0.0) for part in np.array_split(terms, count)]
    return sum(parts, 0.0)


@settings(max_examples=100)
@given(st.integers(0, 2**50))
def test_gamma_is_an_upper_bound(additions):
    u = Fraction(1, 2**53)
    exact = additions * u / (1 - additions * u)
    assert Fraction(gamma(additions)) >= exact
    assert Fraction(gamma(additions)) <= exact * (1 + 8 * u)


@settings(max_examples=100)
@given(
    st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=60),
    st.integers(1, 8),
)
def test_any_terms(terms, count):
    terms = np.array(terms)
    exact = sum(map(Fraction, terms.tolist()))
    largest = float(np.abs(terms).max())
    error = abs(Fraction(blocked(terms, count)) - exact)
    assert error <= Fraction(sum_error(len(terms), largest, blocks=count, factors=0))


@pytest.mark.parametrize("small", [2.0**-53, 2.0**-54 * 1.99, 1e-16])
def test_cancellation_and_absorbed_terms(small):
    terms = np.array([1.0] + [small] * 2000 + [-1.0] + [small] * 2000)
    error = abs(Fraction(blocked(terms, 3)) - sum(map(Fraction, terms.tolist())))
    assert 0 < error <= Fraction(gamma(1334 + 3)) * sum(map(abs, map(Fraction, terms.tolist())))
    assert error <= Fraction(sum_error(len(terms), 1.0, blocks=3))


def test_gram_keeps_to_it():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 3)) * 10.0 ** rng.integers(-8, 1, (3000, 1))
    square, _ = gram(X, np.zeros(3000))
    exact = [
        [sum(Fraction(r[i]) * Fraction(r[j]) for r in X.tolist()) for j in range(3)]
        for i in range(3)
    ]
    error = sum((Fraction(square[i, j]) - exact[i][j]) ** 2 for i in range(3) for j in range(3))
    bound = max(math.fsum(x * x for x in row) for row in X) * (1 + 1e-15)
    assert error <= Fraction(sum_error(3000, bound, factors=7)) ** 2


def test_partition_depends_on_sizes_only():
    assert blocks(10**7, 100) == BLOCKS
    assert blocks(1, 1) == 1
    for rows in (0, 1, 63, 64, 65, 10**6, 10**9, 10**10):
        for width in (0, 1, 10**3, 10**8):
            assert -(-rows // blocks(rows, width)) <= LARGEST_BLOCK


@pytest.mark.parametrize("bad", [-1, 2**51])
def test_public_facts_are_checked(bad):
    with pytest.raises(ValueError, match="additions"):
        gamma(bad)
    with pytest.raises(ValueError, match="bound"):
        sum_error(1, math.inf)
