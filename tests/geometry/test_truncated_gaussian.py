"""Normal laws on intervals, boxes and balls against quadrature."""

import numpy as np
import pytest
from grids import distribution
from scipy.integrate import quad
from scipy.special import gammainc, gammaincinv
from scipy.stats import kstest, truncnorm

from dpfit.geometry import Box, L1Ball, L2Ball
from dpfit.geometry.truncated_gaussian import _truncated_gamma, gaussian_within, interval_normal
from dpfit.noise import Source

DRAWS = 40_000


@pytest.mark.parametrize(
    ("low", "high"), [(-1.0, 2.0), (3.0, 4.0), (-9.0, -8.0), (20.0, 21.0), (-np.inf, -6.0)]
)
def test_intervals_however_far_in_the_tail(low, high):
    drawn = interval_normal(np.full(DRAWS, 1.0), 0.5, 1 + low / 2, 1 + high / 2, Source(1))
    standard = (drawn - 1) * 2
    assert kstest(standard, truncnorm(low, high).cdf).pvalue > 1e-6


def test_boxes_coordinate_by_coordinate():
    box = Box((0.0, -1.0), (1.0, 5.0))
    drawn = gaussian_within(box, np.tile([2.0, 0.0], (DRAWS, 1)), 4.0, Source(2))
    for axis, (mean, lower, upper) in enumerate([(2.0, 0.0, 1.0), (0.0, -1.0, 5.0)]):
        law = truncnorm((lower - mean) * 2, (upper - mean) * 2, loc=mean, scale=0.5)
        assert kstest(drawn[:, axis], law.cdf).pvalue > 1e-6


@pytest.mark.parametrize(
    ("d", "distance", "precision"),
    [
        (1, 0.5, 4.0),
        (1, 6.0, 30.0),
        (2, 0.0, 1.0),
        (2, 3.0, 50.0),
        (3, 0.9, 20.0),
        (20, 0.0, 5.0),
        (20, 3.0, 2000.0),
        (5, 0.4, 0.01),
    ],
)
def test_balls_along_and_across_the_mean(d, distance, precision):
    """Along the mean: normal density times P(rest fits). Across: a truncated chi-square."""
    ball = L2Ball(d, 1.0, tuple(np.full(d, 0.3)))
    mean = np.array(ball.centre)
    mean[0] += distance
    drawn = gaussian_within(ball, np.tile(mean, (DRAWS, 1)), precision, Source(3)) - ball.centre
    assert np.all(np.linalg.norm(drawn, axis=1) <= 1 + 1e-12)
    a = (d - 1) / 2

    def potential(t):
        room = np.maximum(precision * (1 - t**2) / 2, 1e-300)
        return precision * (t - distance) ** 2 / 2 - (
            np.log(np.maximum(gammainc(a, room), 1e-300)) if d > 1 else 0.0
        )

    assert kstest(drawn[:, 0], distribution(-1.0, 1.0, potential)).pvalue > 1e-6
    if d > 1:
        room = precision * (1 - drawn[:, 0] ** 2) / 2
        rest = precision * np.sum(drawn[:, 1:] ** 2, axis=1) / 2
        assert kstest(gammainc(a, rest) / gammainc(a, room), "uniform").pvalue > 1e-6
        angle = np.sign(drawn[:, 1])
        assert abs(angle.mean()) < 5.0 / np.sqrt(DRAWS)


@pytest.mark.parametrize(("shape", "upper"), [(0.5, 1.0), (5.0, 1.0), (40.0, 3.0), (40.0, 50.0)])
def test_truncated_gamma(shape, upper):
    drawn = _truncated_gamma(shape, np.full(DRAWS, upper), Source(4))
    total = quad(lambda x: x ** (shape - 1) * np.exp(-x), 0, upper)[0]
    mean = quad(lambda x: x**shape * np.exp(-x), 0, upper)[0] / total
    assert drawn.mean() == pytest.approx(mean, abs=6 * drawn.std() / np.sqrt(DRAWS))
    assert kstest(drawn, lambda x: gammainc(shape, x) / gammainc(shape, upper)).pvalue > 1e-6
    assert drawn.max() <= upper
    assert np.quantile(drawn, 0.5) == pytest.approx(
        gammaincinv(shape, gammainc(shape, upper) / 2), rel=0.05
    )


def test_the_far_tail_in_many_dimensions():
    """Where P(rest fits) is 1e-600, nothing underflows, and all points are in the ball."""
    drawn = gaussian_within(
        L2Ball(1500, 1.0), np.full((20, 1500), 50 / np.sqrt(1500)), 2000.0, Source(5)
    )
    assert np.all(np.isfinite(drawn))
    assert np.all(np.linalg.norm(drawn, axis=1) <= 1 + 1e-12)


def test_other_domains_are_refused():
    with pytest.raises(ValueError, match="balls and boxes"):
        gaussian_within(L1Ball(2, 1.0), np.zeros((1, 2)), 1.0, Source(1))
