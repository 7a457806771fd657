"""Gaussian smoothing of kinks: closed forms, constants, and the least width of a step."""

import json
import math

import numpy as np
import pytest
from scipy.integrate import quad

from dpfit.losses import (
    Absolute,
    Bounds,
    GaussianSmoothed,
    Hinge,
    LipschitzEnvelope,
    Logistic,
    Pinball,
    SmoothedHinge,
    smoothing_width,
)
from dpfit.privacy.spec import from_json

KINKED = (Absolute(), Hinge(), Pinball(0.2), Pinball(0.9))


@pytest.mark.parametrize("loss", KINKED, ids=str)
@pytest.mark.parametrize("width", [0.05, 0.7])
@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_values_and_slopes_are_means_under_normal_shifts(loss, width, label):
    smoothed = GaussianSmoothed(loss, width)
    for margin in (-2.0, -1.03, 0.0, 0.96, 1.0, 1.6):
        for mean, function in ((smoothed.value, loss.value), (smoothed.slope, loss.slope)):
            kinks = [(at - margin) / width for at in (-1.0, 1.0)]
            expected = quad(
                lambda z, f=function, m=margin: (
                    float(f(m + width * z, label)) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
                ),
                -10, 10, points=[k for k in kinks if abs(k) < 10], limit=200,
            )[0]  # fmt: skip
            assert float(mean(margin, label)) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("loss", KINKED, ids=str)
def test_the_curvature_is_that_of_the_slope_and_its_bound_is_sharp(loss):
    smoothed, h = GaussianSmoothed(loss, 0.3), 1e-5
    margins = np.linspace(-3, 3, 601)
    slopes = (smoothed.slope(margins + h, 1.0) - smoothed.slope(margins - h, 1.0)) / (2 * h)
    np.testing.assert_allclose(smoothed.curvature_at(margins, 1.0), slopes, atol=1e-8)
    most = smoothed.smoothness(Bounds(1.0)).value
    assert slopes.max() <= most * (1 + 1e-9)
    assert slopes.max() == pytest.approx(most, rel=1e-3)


@pytest.mark.parametrize("loss", KINKED, ids=str)
def test_the_kink_is_the_total_variation_of_the_slope(loss):
    slopes = loss.slope(np.linspace(-5, 5, 1001), 1.0)
    assert loss.kink == pytest.approx(np.abs(np.diff(slopes)).sum())


@pytest.mark.parametrize("loss", KINKED, ids=str)
def test_constants_hold(loss):
    smoothed, bounds = GaussianSmoothed(loss, 0.1), Bounds(2.0, -1.0, 1.0)
    slopes = smoothed.slope(np.linspace(-9, 9, 999), 1.0)
    assert np.abs(slopes).max() * 2.0 <= smoothed.lipschitz(bounds).value
    assert np.abs(slopes).max() * 2.0 == pytest.approx(smoothed.lipschitz(bounds).value)
    gap = smoothed.value(np.linspace(-3, 3, 601), 1.0) - loss.value(np.linspace(-3, 3, 601), 1.0)
    assert gap.min() >= -1e-15  # rounding
    assert gap.max() == pytest.approx(smoothed.gap)  # at the kink
    assert from_json(json.loads(json.dumps(smoothed.to_json())), GaussianSmoothed) == smoothed


@pytest.mark.parametrize("ridge", [0.0, 0.7])
def test_the_least_width_makes_a_step_as_long_as_it_may_be(ridge):
    width = smoothing_width(2.0, 3.0, 0.25, ridge)
    smoothness = GaussianSmoothed(Absolute(), width).smoothness(Bounds(3.0)).value
    assert 0.25 * (smoothness + ridge) <= 2
    assert 0.25 * (smoothness + ridge) == pytest.approx(2, rel=1e-9)
    with pytest.raises(ValueError, match="reduce step_size"):
        smoothing_width(2.0, 3.0, 0.25, 8.0)


@pytest.mark.parametrize("loss", [Logistic(), SmoothedHinge(0.1), LipschitzEnvelope(Hinge(), 0.5)])
def test_other_losses_have_no_closed_form(loss):
    with pytest.raises(ValueError, match="no closed form"):
        GaussianSmoothed(loss, 0.1)


def test_an_envelope_of_a_smoothed_loss_is_convex_and_meets_it():
    loss = GaussianSmoothed(Absolute(), 0.5).enveloped(0.4)
    margins = np.linspace(-4, 4, 801)
    values = loss.value(margins, 0.0)
    assert np.diff(values, 2).min() > -1e-9
    slopes = loss.slope(margins[:-1] + 0.005, 0.0)
    # Where clipping begins, the mean slope of a cell differs from that in its middle.
    np.testing.assert_allclose(np.diff(values) / 0.01, slopes, atol=1e-3)
    assert np.sum(np.abs(np.diff(values) / 0.01 - slopes) > 1e-4) <= 2
    inside = np.linspace(-0.2, 0.2, 9)
    assert loss.slope(inside, 0.0) == pytest.approx(loss.loss.slope(inside, 0.0))
