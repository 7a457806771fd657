"""Losses: finite differences, envelopes, JSON, hostile parameters and arrays."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import logsumexp

from dpfit.losses import (
    Absolute,
    Bounds,
    CustomLoss,
    Distance,
    Hinge,
    Huber,
    HuberDistance,
    LinearLoss,
    LipschitzEnvelope,
    Logistic,
    Loss,
    Pinball,
    QuantileHuber,
    SmoothedHinge,
    Softmax,
    Squared,
    SquaredDistance,
)
from dpfit.privacy.spec import Spec, from_json

PLAIN = [
    Logistic(),
    Squared(),
    Huber(0.7),
    Hinge(),
    SmoothedHinge(0.6),
    SmoothedHinge(2.0),
    Pinball(0.3),
    Absolute(),
    QuantileHuber(0.3, 1.5),
    QuantileHuber(0.8, 0.9),
    QuantileHuber(0.8, 0.9, centred=True),
    QuantileHuber(0.3, 0.9, centred=True),
]
ENVELOPES = [LipschitzEnvelope(loss, bound) for loss in PLAIN for bound in (0.2, 0.6, 5.0)]
VECTOR = [Distance(), SquaredDistance(), HuberDistance(0.8), LinearLoss()]
ALL = [*PLAIN, *ENVELOPES, *VECTOR, Softmax(3)]


def examples(loss, n=4000, seed=0):
    rng = np.random.default_rng(seed)
    inner = loss.loss if isinstance(loss, LipschitzEnvelope) else loss
    margins = rng.normal(0, 2, n)
    if isinstance(inner, Logistic | Hinge | SmoothedHinge):
        return margins, rng.choice([-1.0, 1.0], n)
    return margins, rng.normal(0, 2, n)


@pytest.mark.parametrize("loss", [*PLAIN, *ENVELOPES], ids=str)
def test_slopes_and_curvatures_are_finite_differences(loss):
    margins, labels = examples(loss)
    step = 1e-6
    value = (loss.value(margins + step, labels) - loss.value(margins - step, labels)) / (2 * step)
    slope = (loss.slope(margins + step, labels) - loss.slope(margins - step, labels)) / (2 * step)
    # A margin within a step of a corner (or of a jump of the curvature) has no difference quotient.
    smooth = np.abs(slope) < 1e3
    steady = (
        np.abs(
            loss.curvature_at(margins + step, labels) - loss.curvature_at(margins - step, labels)
        )
        < 1e-3
    )
    assert np.mean(smooth & steady) > 0.99
    np.testing.assert_allclose(loss.slope(margins, labels)[smooth], value[smooth], atol=1e-5)
    used = smooth & steady
    np.testing.assert_allclose(loss.curvature_at(margins, labels)[used], slope[used], atol=1e-5)


@pytest.mark.parametrize("loss", [*PLAIN, *ENVELOPES], ids=str)
def test_slopes_increase_and_stay_subgradients(loss):
    margins, labels = examples(loss, 300)
    grid = np.linspace(-8, 8, 401)
    values, slopes = loss.value(grid, labels[:, None]), loss.slope(grid, labels[:, None])
    assert np.all(np.diff(slopes, axis=1) >= -1e-12)
    touching = loss.value(margins, labels) + loss.slope(margins, labels) * (grid[:, None] - margins)
    assert np.all(touching <= values.T + 1e-9)


def test_corners_get_the_subgradient_closest_to_zero():
    assert Hinge().slope(1.0, 1.0) == 0
    assert Absolute().slope(2.0, 2.0) == 0
    assert Pinball(0.9).slope(2.0, 2.0) == 0


@pytest.mark.parametrize("loss", PLAIN, ids=str)
@pytest.mark.parametrize("bound", [0.1, 0.45, 0.8, 3.0])
def test_the_envelope_is_the_infimal_convolution_with_the_bound(loss, bound):
    """inf over u of loss(u) + bound abs(m - u), by brute force on a grid."""
    margins, labels = examples(loss, 60)
    points = np.linspace(-30, 30, 120_001)
    envelope = LipschitzEnvelope(loss, bound)
    for margin, label in zip(margins, labels, strict=True):
        brute = np.min(loss.value(points, label) + bound * np.abs(margin - points))
        # The grid misses the minimizer by at most half its step.
        assert -1e-9 <= brute - envelope.value(margin, label) <= (1 + bound) * 5e-4
        assert abs(envelope.slope(margin, label)) <= bound


@pytest.mark.parametrize("level", [0.2, 0.5, 0.85])
def test_quantile_huber_is_the_moreau_envelope_of_the_quantile_loss(level):
    """inf over u of width * pinball(u) + (m - u)**2 / 2, by brute force on a grid."""
    smoothed = QuantileHuber(level, 0.6)
    margins, labels = examples(smoothed, 60)
    points = np.linspace(-15, 15, 60_001)
    for margin, label in zip(margins, labels, strict=True):
        brute = np.min(0.6 * Pinball(level).value(points, label) + (margin - points) ** 2 / 2)
        assert -1e-12 <= brute - smoothed.value(margin, label) <= 0.6 * 5e-4
    for method in ("value", "slope", "curvature_at"):
        same = (
            getattr(QuantileHuber(0.5, 1.4), method)(margins, labels),
            getattr(Huber(0.7), method)(margins, labels),
        )
        np.testing.assert_allclose(*same, atol=1e-12)


def test_huber_is_the_envelope_of_the_squared_loss():
    margins, labels = examples(Squared())
    assert Squared().enveloped(0.7) == Squared().huberized(0.7) == Huber(0.7)
    envelope = LipschitzEnvelope(Squared(), 0.7)
    for method in ("value", "slope", "curvature_at"):
        np.testing.assert_allclose(
            getattr(envelope, method)(margins, labels),
            getattr(Huber(0.7), method)(margins, labels),
            atol=1e-12,
        )
    bounds = Bounds(1.5, -0.2, 0.3)
    for radius in (0.1, 0.5, 3.0, None):
        assert envelope.lipschitz(bounds, radius) == Huber(0.7).lipschitz(bounds, radius)
        assert envelope.lipschitz_diff(bounds, radius).value == pytest.approx(
            Huber(0.7).lipschitz_diff(bounds, radius).value
        )


def test_an_envelope_that_changes_nothing_is_the_loss_itself():
    assert Logistic().enveloped(1.0) == Logistic()
    assert Huber(2.0).enveloped(0.5) == Huber(0.5)
    assert Huber(0.5).enveloped(2.0) == Huber(0.5)
    assert LipschitzEnvelope(Logistic(), 0.5).enveloped(0.2) == LipschitzEnvelope(Logistic(), 0.2)
    assert LipschitzEnvelope(Logistic(), 0.5).enveloped(0.9) == LipschitzEnvelope(Logistic(), 0.5)


def test_the_compiled_functions_are_the_only_formulas():
    """What a class computes is what a kernel computes from its four numbers, bit for bit."""
    from dpfit.losses import margin_functions

    for loss in [*PLAIN, *ENVELOPES]:
        margins, labels = examples(loss, 50)
        arguments = (loss.code, loss.parameter, loss.slope_bound, loss.smoothing)
        for method, function in (
            (loss.value, margin_functions.envelope_value),
            (loss.slope, margin_functions.envelope_slope),
            (loss.curvature_at, margin_functions.envelope_curvature),
        ):
            expected = [function(*arguments, m, y) for m, y in zip(margins, labels, strict=True)]
            assert method(margins, labels).tolist() == expected
    assert [loss.code for loss in (Logistic(), Squared(), Huber(1), Hinge())] == [0, 1, 2, 3]
    assert [loss.code for loss in (SmoothedHinge(1), Pinball(0.5), Absolute())] == [4, 5, 6]


@pytest.mark.parametrize("margin", [1e308, -1e308, math.inf, -math.inf, 745.0, -745.0, 5e-324])
def test_extreme_margins_give_finite_slopes(margin):
    for loss in [*PLAIN, *ENVELOPES]:
        if isinstance(loss, Squared):
            continue
        for label in (-1.0, 1.0):
            slope, curvature = (
                float(loss.slope(margin, label)),
                float(loss.curvature_at(margin, label)),
            )
            assert math.isfinite(slope)
            assert math.isfinite(curvature)
            if math.isfinite(margin) and not isinstance(getattr(loss, "loss", None), Squared):
                assert loss.value(margin, label) >= 0


@pytest.mark.parametrize("loss", VECTOR, ids=str)
def test_vector_gradients_are_finite_differences(loss):
    rng = np.random.default_rng(1)
    theta, rows = rng.normal(size=4), rng.normal(size=(50, 4))
    step = 1e-6 * np.eye(4)
    quotient = np.stack(
        [(loss.value(theta + h, rows) - loss.value(theta - h, rows)) / 2e-6 for h in step], axis=1
    )
    np.testing.assert_allclose(loss.gradient(theta, rows), quotient, atol=1e-6)


def test_the_distance_has_a_subgradient_at_a_row():
    assert Distance().gradient([1.0, 2.0], [[1.0, 2.0]]).tolist() == [[0.0, 0.0]]
    assert HuberDistance(1.0).gradient([1.0, 2.0], [[1.0, 2.0]]).tolist() == [[0.0, 0.0]]


def test_the_huber_distance_is_the_envelope_of_the_squared_distance():
    """inf over u of norm(u - x)^2 / 2 + width norm(theta - u), along the line from x to theta."""
    theta, row = np.array([3.0, 4.0]), np.zeros((1, 2))
    along = np.linspace(0, 1, 100_001)
    brute = np.min(12.5 * along**2 + 2.0 * 5 * (1 - along))
    assert HuberDistance(2.0).value(theta, row)[0] == pytest.approx(brute, abs=1e-8)


def test_softmax_gradients_and_curvatures_are_finite_differences():
    rng = np.random.default_rng(2)
    loss, logits, labels = Softmax(4), rng.normal(0, 3, (40, 4)), rng.integers(4, size=40)
    np.testing.assert_allclose(
        loss.value(logits, labels),
        logsumexp(logits, axis=1) - logits[np.arange(40), labels],
        atol=1e-12,
    )
    steps = 1e-6 * np.eye(4)
    first = [
        (loss.value(logits + h, labels) - loss.value(logits - h, labels)) / 2e-6 for h in steps
    ]
    np.testing.assert_allclose(loss.gradient(logits, labels), np.stack(first, axis=1), atol=1e-6)
    second = [
        (loss.gradient(logits + h, labels) - loss.gradient(logits - h, labels)) / 2e-6
        for h in steps
    ]
    np.testing.assert_allclose(loss.curvature_at(logits), np.stack(second, axis=1), atol=1e-6)


def test_softmax_of_two_classes_is_the_logistic_loss_of_the_difference():
    margins = np.linspace(-30, 30, 61)
    logits = np.stack([np.zeros(61), margins], axis=1)
    np.testing.assert_allclose(
        Softmax(2).value(logits, np.ones(61, int)), Logistic().value(margins, 1.0), atol=1e-12
    )


def test_softmax_survives_huge_logits_and_unknown_labels():
    loss = Softmax(3)
    assert np.isfinite(loss.value([[1e308, -1e308, 0.0]], [0])).all()
    assert (
        loss.gradient([[0.0, 0.0, 0.0]], [17]).tolist()
        == loss.gradient([[0.0, 0.0, 0.0]], [2]).tolist()
    )
    assert loss.value(np.empty((0, 3)), np.empty(0, int)).shape == (0,)


@pytest.mark.parametrize(
    "loss", [*ALL, Bounds(1.0), Bounds(2.0, -1.0, None), Bounds(1.0, 0.0, 1.0)], ids=str
)
def test_json_round_trip(loss):
    assert from_json(json.loads(json.dumps(loss.to_json(), allow_nan=False)), Spec) == loss


@pytest.mark.parametrize("loss", ALL, ids=str)
def test_kinds_and_flags(loss):
    assert isinstance(loss, Loss)
    assert loss.kind.startswith("loss_")
    assert loss.convex
    assert loss.status == "enforced"
    assert loss.is_glm == hasattr(loss, "slope")
    assert loss.reads_labels != (loss in VECTOR)
    assert loss.has_hessian == (loss not in VECTOR)
    assert loss.reads_products == (loss.has_hessian or isinstance(loss, LinearLoss))
    assert loss.is_quadratic == isinstance(loss, Squared | SquaredDistance | LinearLoss)
    assert loss.is_quantile == isinstance(loss, Pinball | QuantileHuber)
    assert loss.is_regression == (loss in VECTOR or (loss.is_glm and not loss.binary_labels))


def test_slope_relations():
    relations = [
        loss.slope_relation
        for loss in (Logistic(), Softmax(3), SmoothedHinge(0.5), Huber(1.0), Distance())
    ]
    assert relations == ["logistic", "softmax", "one_sided", "two_sided", ""]
    assert LipschitzEnvelope(Logistic(), 0.5).slope_relation == "two_sided"


@pytest.mark.parametrize("loss", [*PLAIN, *ENVELOPES], ids=str)
def test_values_of_records_are_at_most_the_value_at_zero(loss):
    rows, labels = np.eye(2), np.array([-1.0, 1.0])
    values = loss.record_values(np.zeros(2), rows, labels)
    np.testing.assert_array_equal(values, loss.value([0.0, 0.0], labels))
    assert values.max() == loss.value_at_zero(Bounds(1.0, -1.0, 1.0))
    assert math.isinf(loss.value_at_zero(Bounds(1.0))) != loss.binary_labels


def test_values_at_zero_of_other_losses():
    assert Softmax(3).value_at_zero(Bounds(1.0)) == pytest.approx(
        float(Softmax(3).value([[0.0] * 3], [1])[0])
    )
    assert math.isinf(Distance().value_at_zero(Bounds(1.0)))
    with pytest.raises(ValueError, match="gives no values of single records"):
        Softmax(3).record_values(np.zeros(6), np.eye(2), np.zeros(2))


def test_a_file_does_not_hold_facts_that_a_caller_declares():
    class Labelless(CustomLoss):
        reads_labels = False

    loss = Labelless(value_function=abs, gradient_function=abs, lipschitz_bound=1.0)
    assert not loss.reads_labels
    with pytest.raises(TypeError, match="overrides reads_labels"):
        loss.to_json()


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, None, "wide", True])
def test_bad_parameters_are_refused(bad):
    for make in (
        Huber,
        SmoothedHinge,
        HuberDistance,
        lambda width: QuantileHuber(0.5, width),
        lambda bound: LipschitzEnvelope(Logistic(), bound),
        Bounds,
        Logistic().enveloped,
        Squared().huberized,
    ):
        with pytest.raises(ValueError, match="must be a"):
            make(bad)
    for make in (
        Pinball,
        lambda level: QuantileHuber(level, 1.0),
        lambda level: Bounds(1.0, label_lower=5.0, label_upper=level),
    ):
        if bad is not None:
            with pytest.raises(ValueError, match=r"must|range"):
                make(bad)
    with pytest.raises(ValueError, match="whole number"):
        Softmax(bad)


def test_envelopes_of_other_things_are_refused():
    own = CustomLoss(value_function=abs, gradient_function=abs, lipschitz_bound=1.0, is_convex=True)
    for loss in (Distance(), LipschitzEnvelope(Logistic(), 0.5), own, "logistic"):
        with pytest.raises(
            ValueError, match=r"generalized linear.* clip gradients .*, or take HuberDistance"
        ):
            LipschitzEnvelope(loss, 1.0)


def test_wrong_shapes_are_public_facts_and_said():
    with pytest.raises(ValueError, match=r"shape \(n, 3\)"):
        Softmax(3).value(np.zeros((2, 4)), [0, 0])
    with pytest.raises(ValueError, match="whole numbers"):
        Softmax(3).value(np.zeros((2, 3)), [0.5, 0.5])
    with pytest.raises(ValueError, match=r"\(d,\)"):
        Distance().value([1.0], [[1.0, 2.0]])
    for call in (
        lambda: Logistic().value(["Alice Smith"], 1.0),
        lambda: Distance().value([1.0], [["Alice Smith"]]),
        lambda: Softmax(2).value([["Alice Smith", 1]], [0]),
    ):
        with pytest.raises(ValueError, match="array") as error:
            call()
        assert "Alice" not in str(error.value)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 5), st.sampled_from(["C", "F", "strided", "read-only", "float32"]))
def test_memory_layout_does_not_matter(n, layout):
    rng = np.random.default_rng(n)
    margins, rows = (
        rng.normal(size=n).astype(np.float32).astype(float),
        rng.normal(size=(n, 3)).astype(np.float32),
    )
    if layout == "strided":
        given_margins, given_rows = np.repeat(margins, 2)[::2], np.repeat(rows, 2, axis=1)[:, ::2]
    else:
        given_margins = margins.astype(np.float32 if layout == "float32" else float)
        given_rows = np.array(rows, order="F" if layout == "F" else "C")
    if layout == "read-only":
        given_margins.flags.writeable = given_rows.flags.writeable = False
    for loss in PLAIN:
        assert np.array_equal(loss.value(given_margins, 1.0), loss.value(margins, 1.0))
    for loss in VECTOR:
        assert np.allclose(
            loss.gradient(np.ones(3), given_rows), loss.gradient(np.ones(3), rows), rtol=1e-14
        )


def test_importing_losses_and_geometry_stays_light():
    code = (
        "import sys, dpfit.losses, dpfit.geometry;"
        "sys.exit(str([m for m in ('numba', 'jax', 'scipy.optimize', 'sklearn') if m in "
        "sys.modules] or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_clipping_gradients_of_different_examples_is_no_gradient_field():
    """Counterexample of docs/explanation/losses.md: a clipped field does work on a loop."""
    anisotropic = CustomLoss(
        value_function=lambda theta, rows, labels: np.full(
            len(rows), theta[0] ** 2 / 2 + 2 * theta[1] ** 2
        ),
        gradient_function=lambda theta, rows, labels: np.tile(
            [theta[0], 4 * theta[1]], (len(rows), 1)
        ),
        lipschitz_bound=1.0,
        is_convex=True,
    )
    step = 1e-4
    row = np.zeros((1, 2))

    def curl(point):
        right, left, up, down = (
            anisotropic.clipped_sum(point + h, row, None, 1.0)
            for h in ([step, 0], [-step, 0], [0, step], [0, -step])
        )
        return ((right - left)[1] - (up - down)[0]) / (2 * step)

    assert abs(curl(np.array([0.05, 0.05]))) < 1e-6  # nothing is clipped here
    assert abs(curl(np.array([1.0, 1.0]))) == pytest.approx(12 / 17**1.5, rel=1e-4)


@pytest.mark.parametrize("level", [0.05, 0.5, 0.9])
def test_a_centred_corner_averages_the_slopes_of_the_sharp_one(level):
    """Over margins from half a width below to half a width above."""
    width, margins = 0.6, np.linspace(-1.0, 1.0, 21)
    window = width * (np.arange(4000) + 0.5) / 4000 - width / 2
    averages = Pinball(level).slope(margins[:, None] + window, 0.1).mean(axis=1)
    found = QuantileHuber(level, width, centred=True).slope(margins, 0.1) / width
    assert np.allclose(found, averages, atol=1e-3)


@pytest.mark.parametrize("level", [0.05, 0.9])
def test_a_centred_corner_moves_the_quantile_by_the_square_of_its_width(level):
    """Labels are exponential: the logarithmic derivative of their density is -1."""
    labels = -np.log1p(-(np.arange(100_000) + 0.5) / 100_000)
    quantile = -math.log1p(-level)

    def off(loss):
        return brentq(lambda m: float(loss.slope(m, labels).mean()), 0.0, 20.0) - quantile

    width = 0.09
    assert off(QuantileHuber(level, width, centred=True)) == pytest.approx(
        width**2 / 24, rel=0.05, abs=2e-5
    )
    assert off(QuantileHuber(level, width)) == pytest.approx((0.5 - level) * width, rel=0.05)
