"""Losses that level off: formulas, bounds on slopes, extreme input, what refuses them."""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad

from dpfit.core import Minimize
from dpfit.kernels.passes import clipped_sum, curvature_trace, gradient, hessian
from dpfit.losses import (
    Bounds,
    GaussianSmoothed,
    GemanMcClure,
    LipschitzEnvelope,
    Loss,
    TruncatedAbsolute,
)
from dpfit.noise import Grid
from dpfit.privacy.spec import from_json

WIDTHS = (0.3, 1.0, 7.0)
BOTH = (GemanMcClure, TruncatedAbsolute)


@pytest.mark.parametrize("width", WIDTHS)
def test_geman_mcclure_has_the_printed_slope_and_curvature(width):
    """Slope and curvature by integration and on a grid; a constant off by 10% fails."""
    loss, grid = GemanMcClure(width), np.linspace(-20 * width, 20 * width, 400_001)
    slopes, bends = loss.slope(grid, 0.0), loss.curvature_at(grid, 0.0)
    assert np.abs(slopes).max() == pytest.approx(0.3248 * width, rel=1e-3)
    assert loss.lipschitz(Bounds(2.0)).value == pytest.approx(2 * np.abs(slopes).max(), rel=1e-8)
    assert bends.min() == pytest.approx(-0.25, rel=1e-6)
    assert bends.max() == pytest.approx(1.0, rel=1e-6)
    assert loss.smoothness(Bounds(2.0)).value == 4.0
    for end in (0.4 * width, 3.0 * width):
        assert quad(lambda t: float(loss.slope(t, 0.0)), 0, end)[0] == pytest.approx(
            float(loss.value(end, 0.0)), rel=1e-8
        )
        assert quad(lambda t: float(loss.curvature_at(t, 0.0)), 0, end)[0] == pytest.approx(
            float(loss.slope(end, 0.0)), rel=1e-8
        )
    u = (1.7 / width) ** 2
    assert float(loss.value(3.0, 1.3)) == pytest.approx(width**2 / 2 * u / (1 + u))


def test_where_all_labels_are_far_the_loss_is_flatter_and_concave():
    """Labels of 3 to 5, margins up to 1: residuals of 2 to 6 widths."""
    loss, bounds = GemanMcClure(1.0), Bounds(1.0, 3.0, 5.0)
    assert loss.lipschitz(bounds, 1.0).value == pytest.approx(2 / 25)
    lower, upper = loss.curvature(bounds, 1.0)
    assert (lower.value, upper.value) == pytest.approx((-11 / 125, -107 / 37**3))
    assert loss.smoothness(bounds, 1.0).value == pytest.approx(11 / 125)
    assert not TruncatedAbsolute(1.0).lipschitz(bounds, 1.0).exact


@pytest.mark.parametrize("width", WIDTHS)
def test_truncated_absolute_is_the_absolute_loss_up_to_the_width(width):
    loss = TruncatedAbsolute(width)
    residuals = np.array([-2.0, -0.5, 0.0, 0.5, 1.0, 2.0]) * width
    assert loss.value(residuals, 0.0) == pytest.approx(np.minimum(np.abs(residuals), width))
    assert loss.slope(residuals, 0.0).tolist() == [0, -1, 0, 1, 0, 0]
    assert loss.lipschitz(Bounds(3.0)).value == 3.0
    assert loss.smoothness(Bounds(3.0)) is None
    assert not loss.curvature_at(residuals, 0.0).any()


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("width", [1e-100, 1.0, 1e100])
def test_extreme_margins_give_finite_values_within_the_bound(kind, width):
    loss = kind(width)
    margins = np.array([0.0, 5e-324, 1e-150, 1.0, 1e200, 1.8e308, np.inf, -np.inf])
    value, slope = loss.value(margins, 0.0), loss.slope(margins, 0.0)
    most = loss.lipschitz(Bounds(1.0)).value
    assert np.isfinite(value).all()
    assert np.isfinite(slope).all()
    assert np.isfinite(loss.curvature_at(margins, 0.0)).all()
    assert (np.abs(slope) <= most * (1 + 1e-15)).all()
    assert slope[-1] == 0.0 or abs(slope[-1]) < 1e-90 * most


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("radius", [0.2, 1.0, None])
def test_no_record_loses_more_than_the_value_range(kind, radius):
    """All labels, all pairs of margins."""
    loss, bounds = kind(0.7), Bounds(2.0, -1.0, 0.5)
    reach = 2.0 * (60.0 if radius is None else radius)
    margins, labels = np.linspace(-reach, reach, 4001), np.linspace(-1.0, 0.5, 61)
    values = loss.value(margins[:, None], labels)
    found = float((values.max(axis=0) - values.min(axis=0)).max())
    assert found <= loss.value_range(bounds, radius)
    assert found >= 0.75 * loss.value_range(bounds, radius)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("clip", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_no_neighbour_moves_the_sum_further_than_declared(kind, clip, relation):
    """Brute force over tables of up to 3 hostile records; at the peak the bound is attained."""
    loss, grid, theta = kind(0.5), Grid(-30), np.array([0.3, -0.4])
    peak = 0.5 / math.sqrt(3)
    problem = Minimize(n=3, loss=loss, bounds=Bounds(1.0, -2.0, 2.0), n_features=2)
    clip = min(clip, problem.constants("add_remove").lipschitz)
    rows = [[0.6, -0.8], [-0.6, 0.8], [0.8, 0.6], [1e30, np.nan], [1e30, 1e30], [0.0, 0.0]]
    labels = [-2.0, 2.0, 0.5 - peak, -0.5 + peak, peak, -peak, 0.2, np.inf, np.nan, 1e300]
    records = list(itertools.product(rows, labels))
    guards = {"clip": clip, "row_norm": 1.0, "label_lower": -2.0, "label_upper": 2.0}

    def total(chosen):
        X = np.array([row for row, _ in chosen]).reshape(-1, 2)
        return clipped_sum(X, np.array([y for _, y in chosen]), theta, loss, grid=grid, **guards)

    alone = np.array([total([record]) for record in records]) * grid.step
    fixed = [records[4], records[13]]
    assert np.array_equal(total([*fixed, records[2]]) - total(fixed), total([records[2]]))
    bound = problem.clipped_sensitivity(clip, relation)
    moved = alone[:, None] - alone if relation == "replace" else alone
    largest = float(np.linalg.norm(moved, axis=-1).max())
    assert largest <= bound * (1 + 1e-7)
    assert largest >= 0.99 * bound


def test_what_needs_convexity_refuses_with_a_way_out():
    for loss in (GemanMcClure(1.0), TruncatedAbsolute(1.0)):
        assert not loss.convex
        with pytest.raises(ValueError, match=r"needs a convex loss.*clip gradients"):
            LipschitzEnvelope(loss, 0.1)
        with pytest.raises(ValueError, match="needs a convex loss"):
            loss.enveloped(0.1)
        assert loss.enveloped(2.0) is loss
        with pytest.raises(ValueError, match="no closed form"):
            GaussianSmoothed(loss, 0.1)
        for curved in (hessian, curvature_trace):
            with pytest.raises(ValueError, match="no Hessian pass"):
                curved([[1.0]], [0.0], [0.0], loss)
        assert gradient([[1.0]], [0.0], [0.0], loss)[0] == 0.0


@pytest.mark.parametrize("kind", BOTH)
def test_widths_are_positive_and_losses_are_stored(kind):
    for width in (0.0, -1.0, math.nan, math.inf, "wide", None, True):
        with pytest.raises(ValueError, match="width"):
            kind(width)
    assert from_json(kind(0.25).to_json(), Loss) == kind(0.25)
