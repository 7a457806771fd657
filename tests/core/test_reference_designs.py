"""Reference designs: their margins, spectra and lengths, and the power mean over them."""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from dpfit.core import Minimize
from dpfit.core.reference_designs import (
    Design,
    clipping_excess_risk,
    fitted_margins,
    power_mean_risk,
    reference_designs,
)
from dpfit.geometry import L2Ball
from dpfit.losses import Bounds, Hinge, Huber, Logistic, SmoothedHinge


def logistic(n=10_000, d=20, **more):
    return Minimize(n=n, loss=Logistic(), bounds=Bounds(1.0), n_features=d, **more)


@pytest.mark.parametrize(("share", "errors"), [(0.2, 1.0), (0.6, 1.0), (0.6, 0.5), (0.9, 2.0)])
def test_what_clipping_costs_residuals_is_an_integral(share, errors):
    """Against adaptive quadrature of Huber's influence functions."""

    def influence(error, clip):
        return np.clip(error, -clip, clip) / (2 * norm.cdf(clip / errors) - 1)

    def density(error):
        return (influence(error, share) - influence(error, 1.0)) ** 2 * norm.pdf(
            error, scale=errors
        )

    ends = (-12 * errors, -1.0, -share, share, 1.0, 12 * errors)
    mean = sum(quad(density, low, high)[0] for low, high in itertools.pairwise(ends))
    assert clipping_excess_risk(share, errors) == pytest.approx(
        0.5 * (2 * norm.cdf(1 / errors) - 1) * mean, rel=1e-4
    )


def test_all_spectra_count_the_same_and_rows_are_as_long_as_their_columns_make_them():
    problem = logistic(d=9)
    designs = reference_designs(problem, slope=1.0, unit=4.0)
    groups = [
        [each for each in designs if len(set(each.curvatures)) == kinds] for kinds in (1, 9, 2)
    ]
    assert [round(sum(each.weight for each in group), 12) for group in groups] == [2, 2, 2]
    # A column of ones and eight of mean 0.4 and deviation 0.2, none beyond 1: rows of at most 3.
    lengths = [{round(each.length, 12) for each in group} for group in groups]
    assert lengths == [{1.0, 0.7}, {0.5}, {round(math.sqrt(1 + 8 * 0.2) / 3, 12)}]


def test_the_power_mean_weighs_roots():
    designs = [
        Design(np.ones(1), np.ones(1), size, weight=weight)
        for size, weight in ((4.0, 1.0), (25.0, 2.0))
    ]
    assert power_mean_risk(designs, lambda each: each.deviation) == pytest.approx(
        ((2 + 2 * 5) / 3) ** 2
    )


def test_designs_have_the_margins_they_claim():
    problem = Minimize(n=100, loss=Huber(0.2), bounds=Bounds(2.0, -1.0, 1.0), n_features=7)
    for design in reference_designs(problem, slope=0.4, unit=0.1):
        # Of the largest curvature, 0.4 / 0.1, as much is met as there are errors within the width
        # of the loss; rows of norm 2 or less turn the parameter into margins.
        shares = design.curvatures / design.curvatures.sum()
        met = 2 * norm.cdf(1 / design.errors) - 1
        assert design.errors == {0.1: 1.0, 0.5: 0.5}[round(design.deviation, 6)]
        assert design.curvatures.sum() == pytest.approx(4.0 * met * design.length**2)
        squared_norm = (2 * design.length) ** 2
        assert squared_norm * shares @ design.squares == pytest.approx(design.deviation**2)
        assert design.deviation in (pytest.approx(0.5 * 0.2), pytest.approx(2.5 * 0.2))


@pytest.mark.parametrize("size", [0.5, 2.5])
@pytest.mark.parametrize(
    "loss", [Logistic(), SmoothedHinge(0.5), Hinge()], ids=lambda loss: loss.kind
)
def test_margins_are_those_of_a_fit_to_labels(loss, size):
    """Against a fit to normal log-odds with random labels, and its loss's second difference."""
    rng = np.random.default_rng(11)
    logits = rng.standard_normal(400_000)
    labels = np.where(rng.random(len(logits)) < 1 / (1 + np.exp(-size * logits)), 1.0, -1.0)
    scales = np.linspace(0.3, 3.0, 109)
    found = fitted_margins(loss, size)
    best = scales[np.argmin([loss.value(scale * logits, labels).mean() for scale in scales])]
    assert found.deviation == pytest.approx(best, abs=0.08)

    def shifted(by):
        return loss.value(labels * found.deviation * logits + by, 1.0).mean()

    second = (shifted(0.2) - 2 * shifted(0.0) + shifted(-0.2)) / 0.2**2
    assert found.curvature == pytest.approx(second, rel=0.05)


def test_designs_stay_inside_the_domain():
    problem = logistic(d=6, domain=L2Ball(6, 0.01))
    assert max(s.squares.sum() for s in reference_designs(problem, 1.0, 4.0)) <= 0.01**2 * (
        1 + 1e-12
    )
