"""Fine numbers: their law, their grid, and tails that do not end."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from dpfit.noise import Source, fine_exponential, fine_gaussian
from dpfit.noise.fine import COARSENESS, FINENESS


def test_laws():
    """Kolmogorov and Smirnov's test; false alarms below 1e-6."""
    assert stats.kstest(fine_gaussian(100_000, Source(1)), "norm").pvalue > 1e-6
    assert stats.kstest(fine_exponential(100_000, Source(2)), "expon").pvalue > 1e-6
    assert fine_gaussian((2, 3), Source(3)).shape == (2, 3)


@pytest.fixture(autouse=True)
def precision():
    with mpmath.workprec(250):
        yield


@pytest.mark.parametrize("uniform", [0.3, 2.0**-20, 2.0**-62])
def test_draws_are_within_their_error_of_the_quantile(scripted, uniform):
    """The tail probability's first 63 digits are set, so the number is known to 2**-63."""
    digits = int(uniform * 2**63)
    tail = (mpmath.mpf(digits) + mpmath.mpf(1) / 2) / 2**63
    more = [0x9E3779B97F4A7C15] * 40
    slack = 4 * 2.0**-63 / float(tail)
    normal = fine_gaussian(1, scripted([digits << 1, *more]))[0]
    assert abs(normal - mpmath.sqrt(2) * mpmath.erfinv(1 - tail)) <= FINENESS + slack
    exponential = fine_exponential(1, scripted([digits << 1, *more]))[0]
    assert abs(exponential + mpmath.log(tail)) <= COARSENESS + slack


def test_tails_have_no_end(scripted):
    """A uniform with 130 leading zeros; 53 or 64 bits stop at 37 and 44, or at 8 to 13."""
    words = [0, 0, 2**60] + [12345] * 40
    assert fine_exponential(1, scripted(words))[0] == pytest.approx(
        (63 + 64 + 4) * math.log(2), abs=0.01
    )
    normal = fine_gaussian(1, scripted(words))[0]
    assert math.log(math.erfc(normal / math.sqrt(2))) == pytest.approx(
        -(63 + 64 + 4) * math.log(2), abs=0.01
    )


def test_a_gap_of_sixty_is_survived_as_often_as_it_should_be(scripted):
    """Acceptance at gap 60 has probability 2**-86.6: decided beyond the first word."""
    for zeros, survives in ((86, False), (87, True)):
        # The tail probability is just below 2**-zeros.
        known = (2 ** (127 - zeros) - 1) << 1
        words = [0, known >> 1] + [2**63] * 40
        assert (fine_exponential(1, scripted(words))[0] >= 60) == survives


def test_numbers_are_on_their_grids():
    normal, exponential = fine_gaussian(1000, Source(4)), fine_exponential(1000, Source(5))
    for drawn, error in ((normal, FINENESS), (exponential, COARSENESS)):
        steps = drawn / (2 * error)
        assert np.array_equal(steps, np.rint(steps))
    assert exponential.min() >= 0
