"""Wrong declarations are found on public rows, before there are data; right ones pass."""

import numpy as np
import pytest

from dpfit.losses import Bounds, CustomLoss, Logistic
from dpfit.losses.probes import check_declarations, probe_records

POINTS = np.random.default_rng(1).uniform(-1, 1, (24, 3))


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


def test_probe_records_keep_the_bounds_and_reach_them():
    rows, labels = probe_records(Bounds(2.0, -0.5, 3.0), 4)
    norms = np.linalg.norm(rows, axis=1)
    assert norms.max() == pytest.approx(2.0)
    assert norms.min() < 1.0
    assert (labels.min(), labels.max()) == (-0.5, 3.0)
    assert set(probe_records(Bounds(1.0), 4)[1]) == {-1.0, 1.0}
