"""Each constant against a search: never exceeded, and reached where called exact.

The search climbs from random starts and from the configurations in which the derivations say the
supremum lies. A constant that is 2% too small must be caught, which the last tests of each kind
check.
"""

import itertools
import math

import numpy as np
import pytest

from dpfit.losses import (
    Absolute,
    Bounds,
    Distance,
    GemanMcClure,
    Hinge,
    Huber,
    HuberDistance,
    LinearLoss,
    LipschitzEnvelope,
    Logistic,
    Pinball,
    QuantileHuber,
    SmoothedHinge,
    Softmax,
    Squared,
    SquaredDistance,
    TruncatedAbsolute,
)

FAR = 3e4  # stands for the whole space: rows 1% off the orthogonal still have margins of hundreds
BINARY = (Logistic, Hinge, SmoothedHinge)


def is_binary(loss):
    return isinstance(loss.loss if isinstance(loss, LipschitzEnvelope) else loss, BINARY)


def gradients(loss, theta, rows, labels):
    """Gradients of examples, each at a theta of its own, from what the loss computes."""
    if isinstance(loss, Softmax):
        matrix = theta.reshape(len(rows), rows.shape[1], loss.classes)
        logits = loss.gradient(np.einsum("nd,ndk->nk", rows, matrix), labels)
        return (rows[:, :, None] * logits[:, None, :]).reshape(len(rows), -1)
    if isinstance(loss, LinearLoss):
        return loss.gradient(np.zeros(rows.shape[1]), rows)
    if isinstance(loss, Distance | SquaredDistance | HuberDistance):
        return loss.gradient(np.zeros(rows.shape[1]), rows - theta)
    return loss.slope(np.sum(rows * theta, axis=1), labels)[:, None] * rows


def into_ball(points, radius):
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return points * np.minimum(1, radius / np.maximum(norms, 1e-300))


class Search:
    """Hill climbing over theta and two examples, all within the declared bounds."""

    dimension = 3

    def __init__(self, loss, bounds, radius, seed=0):
        self.loss, self.bounds = loss, bounds
        # A slope that falls again is steep at small margins only, so the whole space is near.
        far = 10.0 if isinstance(loss, GemanMcClure) else FAR
        self.radius = far / bounds.row_norm if radius is None else radius
        self.rng = np.random.default_rng(seed)
        self.state = self.starts()

    def labels(self, n):
        if isinstance(self.loss, Softmax):
            return self.rng.integers(self.loss.classes, size=n)
        if is_binary(self.loss):
            return self.rng.choice([-1.0, 1.0], n)
        lower = -9.0 if self.bounds.label_lower is None else self.bounds.label_lower
        upper = 9.0 if self.bounds.label_upper is None else self.bounds.label_upper
        likely = [lower, upper]
        if isinstance(self.loss, GemanMcClure):
            peak = self.loss.width / math.sqrt(3)
            likely += [*np.clip([-peak, peak], lower, upper)]
        return np.where(
            self.rng.random(n) < 0.7,
            self.rng.choice(likely, n),
            self.rng.uniform(lower, upper, n),
        )

    def starts(self, n=400):
        """Random points, and rows at an angle to theta on both sides (the extremal case)."""
        d, row_norm = self.dimension, self.bounds.row_norm
        width = d * self.loss.classes if isinstance(self.loss, Softmax) else d
        theta = self.rng.standard_normal((n, width)) * self.radius
        rows, others = self.rng.standard_normal((2, n, d)) * row_norm
        theta *= self.rng.choice([0.0, 1e-6, 1e-3, 1.0], (n, 1))
        others[::2] = -rows[::2]
        tilted = slice(0, n // 2)
        cosine = self.rng.choice([-1, 1], n // 2) * self.rng.random(n // 2) ** self.rng.choice(
            [0.5, 2, 6], n // 2
        )
        sine = np.sqrt(1 - cosine**2)
        zero = np.zeros(n // 2)
        rows[tilted] = row_norm * np.stack([cosine, sine, zero], axis=1)
        others[tilted] = row_norm * np.stack([cosine, -sine, zero], axis=1)
        direction = np.eye(d)[0]
        if isinstance(self.loss, Softmax):
            # Two classes are told apart along the first feature, the others are out of the race.
            direction = np.zeros((d, self.loss.classes))
            direction[0, :2] = 1.0, -1.0
            direction = direction.ravel() / math.sqrt(2)
        theta[tilted] = self.radius * direction * self.rng.choice([-1, 1], (n // 2, 1))
        return [
            into_ball(theta, self.radius),
            into_ball(rows, row_norm),
            into_ball(others, row_norm),
            self.labels(n),
            self.labels(n),
        ]

    def score(self, state, pair):
        theta, rows, others, labels, other_labels = state
        first = gradients(self.loss, theta, rows, labels)
        second = gradients(self.loss, theta, others, other_labels) if pair else 0.0
        return np.linalg.norm(first - second, axis=1)

    def perturbed(self, state, step):
        theta, rows, others, labels, other_labels = state
        keep = self.rng.random(len(labels)) < 0.8
        noise = self.rng.standard_normal
        return [
            into_ball(theta + step * self.radius * noise(theta.shape), self.radius),
            into_ball(rows + step * self.bounds.row_norm * noise(rows.shape), self.bounds.row_norm),
            into_ball(
                others + step * self.bounds.row_norm * noise(others.shape), self.bounds.row_norm
            ),
            np.where(keep, labels, self.labels(len(labels))),
            np.where(keep, other_labels, self.labels(len(labels))),
        ]

    def largest(self, pair):
        state = self.state
        best = self.score(state, pair)
        for step in np.geomspace(0.5, 1e-3, 80):
            trial = self.perturbed(state, step)
            scores = self.score(trial, pair)
            better = scores > best
            best = np.where(better, scores, best)
            state = [
                np.where(better.reshape(-1, *[1] * (old.ndim - 1)), new, old)
                for old, new in zip(state, trial, strict=True)
            ]
        return float(best.max())


LOSSES = [
    Logistic(),
    Squared(),
    Huber(0.4),
    Huber(2.5),
    Hinge(),
    SmoothedHinge(0.5),
    SmoothedHinge(3.0),
    Pinball(0.2),
    Pinball(0.7),
    QuantileHuber(0.2, 0.5),
    QuantileHuber(0.7, 6.0),
    QuantileHuber(0.7, 6.0, centred=True),
    QuantileHuber(0.2, 0.5, centred=True),
    Absolute(),
    GemanMcClure(0.4),
    GemanMcClure(2.5),
    TruncatedAbsolute(0.4),
    LipschitzEnvelope(Logistic(), 0.3),
    LipschitzEnvelope(Logistic(), 0.7),
    LipschitzEnvelope(SmoothedHinge(3.0), 0.6),
    LipschitzEnvelope(Pinball(0.2), 0.5),
    LipschitzEnvelope(QuantileHuber(0.7, 6.0), 2.5),
    LipschitzEnvelope(Squared(), 2.5),
    Softmax(2),
    Softmax(4),
    Distance(),
    SquaredDistance(),
    HuberDistance(0.5),
    HuberDistance(9.0),
    LinearLoss(),
]
SIZES = [
    (Bounds(1.0, -1.0, 1.0), 0.0),
    (Bounds(1.0, -1.0, 1.0), 0.3),
    (Bounds(2.0, 0.5, 2.0), 1.0),
    (Bounds(0.5, -3.0, -1.0), 7.0),
    (Bounds(1.5, -0.2, 0.3), 20.0),
    (Bounds(1.0, 0.0, 1.0), None),
    (Bounds(3.0), None),
    (Bounds(1.0, 0.0, 1.0), 1.0),
    (Bounds(2.0, -1.0, 0.0), 0.5),
]


def is_infinite(loss, radius):
    return radius is None and isinstance(loss, Squared | SquaredDistance)


def accepted(found, constant, slack=1e-9):
    """A constant bounds what a search finds, and is reached where called exact."""
    return found <= constant.value * (1 + slack) and (
        not constant.exact or found >= constant.value * 0.995
    )


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("size", range(len(SIZES)))
def test_lipschitz_constants_are_reached_but_never_exceeded(loss, size):
    bounds, radius = SIZES[size]
    search = Search(loss, bounds, radius)
    if not is_infinite(loss, radius):
        single = loss.lipschitz(bounds, radius)
        found = search.largest(pair=False)
        assert accepted(found, single)
        if single.exact:
            assert not accepted(found, type(single)(0.98 * single.value, True))
    if is_infinite(loss, radius) and isinstance(loss, Squared):
        return
    double = loss.lipschitz_diff(bounds, radius)
    found = search.largest(pair=True)
    assert accepted(found, double)
    if double.exact:
        assert not accepted(found, type(double)(0.98 * double.value, True))
    if not is_infinite(loss, radius):
        assert double.value <= 2 * single.value * (1 + 1e-12)


def test_the_constants_that_are_not_exact_are_known():
    """Upper bounds only: softmax on a ball, labels beside all orthogonal rows."""
    inexact = {
        (type(loss).__name__, index)
        for loss, (index, (bounds, radius)) in itertools.product(LOSSES, enumerate(SIZES))
        if not is_infinite(loss, radius)
        and not (loss.lipschitz(bounds, radius).exact and loss.lipschitz_diff(bounds, radius).exact)
    }
    assert inexact == {("Softmax", index) for index in (*range(5), 7, 8)} | {
        ("Pinball", 2),
        ("Pinball", 3),
        ("TruncatedAbsolute", 2),
        ("TruncatedAbsolute", 3),
        *(("GemanMcClure", index) for index in (*range(1, 5), 7, 8)),
        *(
            (name, index)
            for name in ("QuantileHuber", "LipschitzEnvelope")
            for index in (*range(1, 5), 7, 8)
        ),
    }


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss.is_glm], ids=str)
@pytest.mark.parametrize("size", range(len(SIZES)))
def test_curvature_bounds(loss, size):
    bounds, radius = SIZES[size]
    reach = bounds.row_norm * (100.0 if radius is None else radius)
    margins = np.linspace(-reach, reach, 8_001)
    lower, upper = loss.curvature(bounds, radius)
    labels = (
        np.array([-1.0, 1.0])
        if is_binary(loss)
        else np.linspace(*np.clip(bounds.labels, -9, 9), 31)
    )
    found = loss.curvature_at(margins[:, None], labels)
    assert found.min() >= lower.value - 1e-12 * abs(lower.value)
    if lower.exact:
        # The grid of margins may miss a minimum inside by a little.
        assert found.min() <= lower.value * (1.005 if lower.value >= 0 else 0.98) + 1e-40
    smoothness = loss.smoothness(bounds, radius)
    if upper is None:
        assert smoothness is None
        assert found.max() == 0
        return
    most = max(upper.value, -lower.value)
    assert smoothness.value == pytest.approx(bounds.row_norm**2 * most)
    assert accepted(found.max(), upper)
    if upper.exact:
        assert not accepted(found.max(), type(upper)(0.98 * upper.value, True))


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_gradients_change_no_faster_than_the_smoothness(loss):
    bounds, radius = Bounds(2.0, -1.0, 1.0), 1.5
    smoothness = loss.smoothness(bounds, radius)
    if smoothness is None:
        return
    search = Search(loss, bounds, radius)
    theta, rows, _, labels, _ = search.state
    for step in (1e-4, 0.1, 1.0):
        moved = into_ball(theta + step * search.rng.standard_normal(theta.shape), radius)
        change = np.linalg.norm(
            gradients(loss, theta, rows, labels) - gradients(loss, moved, rows, labels), axis=1
        )
        assert np.all(
            change <= smoothness.value * np.linalg.norm(theta - moved, axis=1) * (1 + 1e-7) + 1e-12
        )


@pytest.mark.parametrize(
    "loss", [SquaredDistance(), HuberDistance(0.5), HuberDistance(9.0), LinearLoss()], ids=str
)
def test_smoothness_of_vector_losses_is_reached(loss):
    """By two points close to a row; a linear loss has the same gradient everywhere."""
    rng, smoothness = np.random.default_rng(0), loss.smoothness(Bounds(2.0), 1.5)
    rows, there, here = rng.standard_normal((1, 500, 3)), *0.1 * rng.standard_normal((2, 500, 3))
    rows = into_ball(rows[0], 2.0)
    change, distance = (
        np.linalg.norm(
            gradients(loss, rows + there, rows, None) - gradients(loss, rows + here, rows, None),
            axis=1,
        ),
        np.linalg.norm(there - here, axis=1),
    )
    found = float(np.max(change / distance))
    assert accepted(found, smoothness)
    assert smoothness.value == 0.0 or not accepted(
        found, type(smoothness)(0.98 * smoothness.value, True)
    )


def test_softmax_smoothness_is_reached_by_two_equal_classes():
    for loss, logits in ((Softmax(2), [[0.0, 0.0]]), (Softmax(4), [[0.0, 0.0, -900.0, -900.0]])):
        largest = np.linalg.eigvalsh(loss.curvature_at(logits)[0]).max()
        assert accepted(4 * largest, loss.smoothness(Bounds(2.0)))
        assert not accepted(4 * largest, type(loss.smoothness(Bounds(2.0)))(0.98 * 2.0, True))


@pytest.mark.parametrize("radius", [0.5, 3.0, None])
def test_self_concordance_of_the_logistic_loss(radius):
    """abs(third derivative) <= M second derivative, with M reached at the largest margin."""
    bounds = Bounds(2.0)
    constant = Logistic().self_concordance(bounds, radius)
    reach = 2.0 * (10.0 if radius is None else radius)
    margins, step = np.linspace(-reach, reach, 4001), 1e-4
    up, down = (Logistic().curvature_at(margins + sign * step, 1.0) for sign in (1, -1))
    ratios = np.abs(up - down) / (2 * step) / Logistic().curvature_at(margins, 1.0)
    assert accepted(2.0 * ratios.max(), constant, slack=1e-5)
    assert not accepted(2.0 * ratios.max(), type(constant)(0.98 * constant.value, True))


def test_self_concordance_of_the_softmax_loss():
    rng, loss, step = np.random.default_rng(0), Softmax(3), 1e-4
    constant = loss.self_concordance(Bounds(1.0))
    logits = rng.standard_normal((4000, 3)) * rng.choice([0.1, 1.0, 4.0], (4000, 1))
    u, v = rng.standard_normal((2, 4000, 3))
    logits[0], u[0], v[0] = (5.0, -5.0, -40.0), (1.0, -1.0, 0.0), (1.0, -1.0, 0.0)
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    third = (loss.curvature_at(logits + step * v) - loss.curvature_at(logits - step * v)) / (
        2 * step
    )
    second = np.einsum("ni,nij,nj->n", u, loss.curvature_at(logits), u)
    ratios = np.abs(np.einsum("ni,nij,nj->n", u, third, u)) / second
    assert accepted(ratios.max(), constant, slack=1e-5)
    assert not accepted(ratios.max(), type(constant)(0.98 * constant.value, True))


def test_squared_and_linear_losses_have_no_third_derivative():
    for loss in (Squared(), SquaredDistance(), LinearLoss()):
        assert loss.self_concordance(Bounds(1.0)).value == 0
    for loss in (Huber(1.0), Hinge(), Distance(), LipschitzEnvelope(Logistic(), 0.3)):
        assert loss.self_concordance(Bounds(1.0)) is None


def test_replacing_is_cheaper_than_twice_adding_on_a_small_ball():
    """At theta = 0 a logistic gradient is y x / 2, and two differ by at most a row."""
    bounds = Bounds(1.0)
    assert Logistic().lipschitz(bounds, 0.0).value == 0.5
    assert Logistic().lipschitz_diff(bounds, 0.0).value == pytest.approx(1.0)
    single, double = (
        getattr(Logistic(), name)(bounds, 5.0).value for name in ("lipschitz", "lipschitz_diff")
    )
    assert single == pytest.approx(1 / (1 + math.exp(-5)))
    assert double < 1.7 < 2 * single


def test_an_infinite_constant_is_refused_with_a_way_out():
    with pytest.raises(ValueError, match="huberized"):
        Squared().lipschitz(Bounds(1.0, -1.0, 1.0))
    with pytest.raises(ValueError, match="label bounds"):
        Squared().lipschitz_diff(Bounds(1.0), radius=1.0)
    with pytest.raises(ValueError, match="lipschitz_diff"):
        SquaredDistance().lipschitz(Bounds(1.0), math.inf)
    assert SquaredDistance().lipschitz_diff(Bounds(3.0)).value == 6.0
    assert Squared().huberized(2.0).lipschitz(Bounds(3.0)).value == 6.0


def test_an_infinite_radius_is_the_whole_space():
    for loss in LOSSES:
        if not is_infinite(loss, None):
            assert loss.lipschitz(Bounds(2.0), math.inf) == loss.lipschitz(Bounds(2.0), None)
            assert loss.lipschitz_diff(Bounds(2.0), math.inf) == loss.lipschitz_diff(Bounds(2.0))
    for bad in (-1.0, math.nan, "wide"):
        with pytest.raises(ValueError, match="radius must be"):
            Logistic().lipschitz(Bounds(1.0), bad)


EXTREME = [
    make(size)
    for make in (
        Huber,
        SmoothedHinge,
        HuberDistance,
        lambda size: QuantileHuber(0.3, size),
        lambda size: LipschitzEnvelope(Squared(), size),
    )
    for size in (1e-100, 1e100)
]


@pytest.mark.parametrize(
    "loss", [Squared(), Logistic(), Softmax(3), SquaredDistance(), *EXTREME], ids=str
)
def test_constants_at_the_ends_of_what_may_be_declared_are_numbers(loss):
    labels = [(None, None), (-1e-100, 1e-100), (-1e100, 1e100)]
    for norm, ends, radius in itertools.product(
        (1e-100, 1e100), labels, (None, 1e-300, 1.0, 1e100, 1e308)
    ):
        for name in ("lipschitz", "lipschitz_diff", "smoothness"):
            try:
                value = getattr(loss, name)(Bounds(norm, *ends), radius).value
            except ValueError:  # only what has no bound at all
                assert isinstance(loss, Squared | SquaredDistance), name
                continue
            assert 0 < value < math.inf, (name, norm, ends, radius)


@pytest.mark.parametrize("size", [1e-170, 9.9e-101, 1.1e100, 1e160])
def test_what_kernels_would_refuse_cannot_be_declared(size):
    """Squares of such numbers vanish or overflow: constants would be too small, or none."""
    for make in (
        Bounds,
        Huber,
        SmoothedHinge,
        HuberDistance,
        lambda size: LipschitzEnvelope(Squared(), size),
    ):
        with pytest.raises(ValueError, match="between 1e-100 and 1e100"):
            make(size)
    if size > 1:
        with pytest.raises(ValueError, match="between -1e100 and 1e100"):
            Bounds(1.0, -size, 0.0)
