"""The exponential that the loops are compiled with."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf

from dpfit.losses.margin_functions import decay


def test_it_is_within_two_units_in_the_last_place():
    rng = np.random.default_rng(0)
    near_ties = (np.arange(200) + 0.5) * math.log(2.0) * (1.0 + 2.0**-50 * rng.integers(-4, 5, 200))
    arguments = np.concatenate(
        [rng.exponential(20.0, 2000), rng.uniform(0.0, 708.0, 500), near_ties, [0.0, 2.0**-60]]
    )
    with mp.workprec(120):
        exact = [mp.exp(-mpf(float(x))) for x in arguments]
        errors = [abs((mpf(decay(x)) - e) / e) for x, e in zip(arguments, exact, strict=True)]
        assert max(errors) <= 2.0**-51


@pytest.mark.parametrize("x", [708.0, 745.0, 1e300, math.inf])
def test_far_out_it_is_tiny_and_not_zero(x):
    assert decay(x) == pytest.approx(math.exp(-708.0), rel=1e-12)
