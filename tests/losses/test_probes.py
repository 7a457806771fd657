"""Wrong declarations are found on public rows, before there are data; right ones pass."""

import numpy as np
import pytest

from dpfit.geometry import Box, L2Ball
from dpfit.losses import Bounds, CustomLoss, Logistic
from dpfit.losses.probes import SCALES, check_declarations, probe_records
from dpfit.solvers.gibbs.sample_budget import probe_points

POINTS = probe_points(L2Ball(3, 1.0))


def of_margins(value, slope, **declared):
    """A loss of the margin, declared convex with slope one."""
    return CustomLoss(
        value_function=lambda theta, rows, labels: value(rows @ theta, labels),
        gradient_function=lambda theta, rows, labels: slope(rows @ theta, labels)[:, None] * rows,
        **({"lipschitz_bound": 1.0, "is_convex": True} | declared),
    )


def absolute(scale=1.0, **declared):
    return of_margins(
        lambda m, y: scale * np.abs(m - y), lambda m, y: scale * np.sign(m - y), **declared
    )


RIGHT = {
    "absolute": absolute(),
    "logistic": of_margins(Logistic().value, Logistic().slope, smoothness_bound=0.25),
    "not convex": of_margins(lambda m, y: -np.abs(m), lambda m, y: -np.sign(m), is_convex=False),
    "single precision": of_margins(
        lambda m, y: Logistic().value(m, y).astype(np.float32),
        lambda m, y: Logistic().slope(m, y).astype(np.float32),
        smoothness_bound=0.25,
    ),
    "equal slopes": of_margins(
        lambda m, y: m, lambda m, y: np.ones_like(m), lipschitz_diff_bound=2.0
    ),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("bounds", [Bounds(1.0), Bounds(1.0, -1.0, 1.0)], ids=["free", "bounded"])
def test_right_declarations_pass(name, bounds):
    check_declarations(RIGHT[name], bounds, 3, POINTS)


WRONG = {
    "a slope larger by a tenth": (absolute(1.1), "lipschitz_bound must be at least 1.1"),
    "a steep value with a gradient that hides it": (
        of_margins(lambda m, y: 3 * np.abs(m - y), lambda m, y: np.sign(m - y)),
        "lipschitz_bound must be at least",
    ),
    "a concave loss": (
        of_margins(lambda m, y: -np.abs(m), lambda m, y: -np.sign(m)),
        "is_convex must be False, or value and gradient must belong together",
    ),
    "a gradient of another loss": (
        of_margins(lambda m, y: np.abs(m), lambda m, y: -np.sign(m)),
        "is_convex must be False, or value and gradient must belong together",
    ),
    "a curvature larger by a tenth": (
        of_margins(
            lambda m, y: m**2 / 4, lambda m, y: m / 2, lipschitz_bound=2.0, smoothness_bound=0.45
        ),
        "smoothness_bound must be at least 0.49",
    ),
    "differences larger by a tenth": (
        absolute(lipschitz_diff_bound=1.7),
        "lipschitz_diff_bound must be at least",
    ),
    "no numbers": (
        of_margins(lambda m, y: np.where(m > 0, np.inf, 0.0), lambda m, y: 0 * m),
        "the loss must be finite",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_error_names_the_fact(name):
    loss, said = WRONG[name]
    with pytest.raises(ValueError, match=said):
        check_declarations(loss, Bounds(1.0), 3, POINTS)


FAR_OUT = {
    "steeper beyond a margin": (
        of_margins(
            lambda m, y: np.abs(m) + np.maximum(np.abs(m) - 0.93, 0),
            lambda m, y: np.sign(m) * np.where(np.abs(m) > 0.93, 2.0, 1.0),
        ),
        "lipschitz_bound must be at least 2",
    ),
    "concave beyond a margin, on one side and for one label": (
        of_margins(
            lambda m, y: np.where(y > 0, 0.5 * np.minimum(m, 0.93), 0.0),
            lambda m, y: np.where((y > 0) & (m < 0.93), 0.5, 0.0),
        ),
        "is_convex must be False",
    ),
    "a gradient that is off its tangent near zero only": (
        of_margins(
            lambda m, y: 0.5 * np.abs(m),
            lambda m, y: 0.5 * np.sign(m) * np.where(np.abs(m) < 2e-3, -1, 1),
        ),
        "is_convex must be False",
    ),
    "a gradient that is doubled in a shell only": (
        of_margins(
            lambda m, y: np.abs(m),
            lambda m, y: np.sign(m) * np.where(np.abs(np.abs(m) - 0.7) < 0.03, 2.0, 1.0),
            is_convex=False,
        ),
        "lipschitz_bound must be at least 2",
    ),
    "bent at half the radius only": (
        of_margins(
            lambda m, y: np.abs(np.abs(m) - 0.5) / 2 + np.abs(m) / 2,
            lambda m, y: np.sign(m) * (np.sign(np.abs(m) - 0.5) + 1) / 2,
            smoothness_bound=0.25,
        ),
        "smoothness_bound must be at least",
    ),
}


@pytest.mark.parametrize("d", [3, 20])
@pytest.mark.parametrize("name", FAR_OUT)
def test_losses_that_are_wrong_in_some_places_only_are_found(name, d):
    """Margins of random rows and points have size 1 / sqrt(d), far below the largest one."""
    loss, said = FAR_OUT[name]
    with pytest.raises(ValueError, match=said):
        check_declarations(loss, Bounds(1.0), d, probe_points(L2Ball(d, 1.0)))


@pytest.mark.parametrize("centre", [0.0, 5.0])
def test_probe_points_reach_from_the_centre_to_corners_of_both_signs(centre):
    d = 4
    box = Box(np.full(d, centre - 2.0), np.full(d, centre + 2.0))
    points = probe_points(box)
    assert box.contains(points).all()
    away = np.linalg.norm(points - centre, axis=1) / 4.0
    assert set(SCALES) <= set(away.round(12))
    for sign in (-1, 1):
        assert (points == centre + 2.0 * sign).all(axis=1).any()


def test_probe_records_keep_the_bounds_and_reach_them():
    points = probe_points(L2Ball(4, 1.0))
    rows, labels = probe_records(Bounds(2.0, -0.5, 3.0), 4, points)
    norms = np.linalg.norm(rows, axis=1)
    assert norms.max() <= 2.0 + 1e-12
    assert norms.min() < 1e-2
    for label in (-0.5, 3.0):
        margins = rows[labels == label] @ points.T
        assert (margins.min(), margins.max()) == pytest.approx((-2.0, 2.0))
        assert np.abs(margins).min() < 1e-5
    assert (labels.min(), labels.max()) == (-0.5, 3.0)
    assert set(probe_records(Bounds(1.0), 4, points)[1]) == {-1.0, 1.0}
    assert probe_records(Bounds(1.0), 3, points)[0].shape[1] == 3
