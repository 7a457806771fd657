"""One pass of steps: against a slow reference, and the rounding errors that it declares."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.sparse import csr_array

from dpfit.kernels.one_pass import Pace, Walk, average_error, step_error
from dpfit.losses import Absolute, GaussianSmoothed, Hinge, Huber, Logistic, Pinball

MARKS = np.array([0.3, 0.5, 0.75, 1.0])
LOSSES = (
    Logistic(),
    Huber(0.3),
    GaussianSmoothed(Hinge(), 0.2),
    GaussianSmoothed(Absolute(), 0.1),
    GaussianSmoothed(Pinball(0.8), 0.3),
)


def records(n=60, d=3, seed=1):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.choice([-1.0, 1.0], n)


def slow(rows, labels, loss, pace, row_norm, clip, centre, ball):
    """The same walk, one line of the definition each."""
    point, total, now, passed = np.zeros(rows.shape[1]), 0.0, 0.0, 0
    positions = (np.arange(len(rows)) + 0.5) / len(rows)
    for row, label, position in zip(rows, labels, positions, strict=True):
        while passed < len(MARKS) and MARKS[passed] < position:
            point = centre + math.exp(-pace.rate * (MARKS[passed] - now)) * (point - centre)
            total, now, passed = total + point, MARKS[passed], passed + 1
        point, now = centre + math.exp(-pace.rate * (position - now)) * (point - centre), position
        x = row * min(1.0, row_norm / np.linalg.norm(row)) if np.isfinite(row).all() else 0 * centre
        gradient = float(loss.slope(x @ point, label)) * x
        gradient *= min(1.0, clip / max(np.linalg.norm(gradient), 1e-300))
        point = point - pace.step_size * gradient
        away = point - ball
        point = ball + away * min(1.0, pace.radius / np.linalg.norm(away))
    last = point
    for mark in MARKS[passed:]:
        point, now = centre + math.exp(-pace.rate * (mark - now)) * (point - centre), mark
        total = total + point
    return total / len(MARKS), last


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("layout", ["dense", "float32", "fortran", "sparse", "picked"])
def test_a_walk_is_that_of_the_definition(loss, layout):
    rows, labels = records()
    rows[5, 1], rows[7] = math.nan, 1e18
    rows = rows.astype(np.float32).astype(float) if layout == "float32" else rows
    pace, centre, ball = Pace(0.4, 0.3, 0.6), np.array([0.2, 0.0, -0.1]), np.array([0.1, 0.1, 0.0])
    expected, last = slow(rows, labels, loss, pace, 0.9, 0.5, centre, ball)
    given = {
        "float32": rows.astype(np.float32),
        "fortran": np.asfortranarray(rows),
        "sparse": csr_array(rows),
    }.get(layout, rows)
    index = None
    if layout == "picked":
        index = np.random.default_rng(2).permutation(len(rows))
        given, labels = np.empty_like(rows), np.empty_like(labels)
        given[index], labels[index] = rows, records()[1]
    walk = Walk(np.zeros(3), MARKS, pace, centre=centre, ball=ball)
    positions = (np.arange(len(rows)) + 0.5) / len(rows)
    for part in (slice(0, 20), slice(20, 60)):
        chosen = np.arange(len(rows))[part] if index is None else index[part]
        walk.visit(given, labels, positions[part], loss, index=chosen, row_norm=0.9, clip=0.5)
    np.testing.assert_allclose(walk.point, last, atol=1e-12)
    np.testing.assert_allclose(walk.average, expected, atol=1e-12)


def test_a_computed_step_errs_by_no_more_than_declared():
    """Steps on Huber's loss in rational arithmetic, which only adds and multiplies."""
    rng, pace = np.random.default_rng(3), Pace(0.37)
    worst = 0.0
    for _ in range(200):
        row, start = rng.standard_normal(4), 50 * rng.standard_normal(4)
        row /= 1.01 * np.linalg.norm(row)
        label = float(row @ start + 0.1 * rng.standard_normal())
        walk = Walk(start, np.array([1.0]), pace)
        walk.visit(row[None], [label], np.array([0.5]), Huber(1.0), row_norm=1.0, clip=1.0)
        x, theta = [Fraction(v) for v in row], [Fraction(v) for v in start]
        slope = sum(a * b for a, b in zip(x, theta, strict=True)) - Fraction(label)
        step = Fraction(pace.step_size)
        exact = [t - step * slope * a for a, t in zip(x, theta, strict=True)]
        error = math.hypot(
            *(float(Fraction(w) - e) for w, e in zip(walk.point, exact, strict=True))
        )
        bound = step_error(
            4, pace, row_norm=1.0, clip_norm=1.0, curvature=1.0, radius=np.linalg.norm(start) + 1
        )
        worst = max(worst, error / bound)
    assert 0.01 < worst <= 1.0


def test_an_average_errs_by_no_more_than_declared():
    rng = np.random.default_rng(4)
    marks = 0.5 + (np.arange(256) + 1) / 512
    walk, points = Walk(np.zeros(1), marks, Pace(1.0)), []
    for position in marks - 1e-3:
        walk.visit([[1.0]], [float(rng.normal())], np.array([position]), Huber(9.0))
        points.append(Fraction(walk.point[0]))
    exact = sum(points) / 256
    radius = max(abs(float(point)) for point in points)
    assert abs(float(Fraction(walk.average[0]) - exact)) <= average_error(256, radius)
