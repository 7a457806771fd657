"""The profile of objective perturbation against the exact 1-D law, by quadrature."""

import json
import math
import operator

import mpmath
import numpy as np
import pytest

from dpfit.losses import Huber, Logistic, QuantileHuber, SmoothedHinge
from dpfit.privacy import Budget, calibrate, event_from_json, gaussian
from dpfit.privacy.accountant import privacy_curve
from dpfit.privacy.cost import privacy_cost
from dpfit.privacy.event import Composed, Gaussian, ObjectivePerturbation
from oracles.continuous import rule

EPSILONS = [0.0, 0.02, 0.1, 0.3, 0.7, 1.5]
LOSSES = [
    (Logistic(), "logistic", 0.25, 1.0, (-1.0, 1.0)),
    (SmoothedHinge(0.5), "one_sided", 2.0, 1.0, (-1.0, 1.0)),
    (Huber(0.7), "two_sided", 1.0, 0.7, (-1.0, 0.0, 0.4)),
    (QuantileHuber(0.8, 1.0), "two_sided", 1.0, 0.8, (-1.0, 0.0, 0.4)),
]


def law(loss, rows, labels, quadratic, scale, noise="gaussian"):
    """Log density of argmin sum loss + quadratic/2 theta^2 + b theta, with Jacobian."""

    def log_density(theta):
        theta = np.asarray(theta, float)
        margins = np.multiply.outer(rows, theta)
        broadcast = np.broadcast_to(np.reshape(labels, (-1,) + (1,) * theta.ndim), margins.shape)
        gradient = quadratic * theta + np.tensordot(rows, loss.slope(margins, broadcast), 1)
        jacobian = quadratic + np.tensordot(rows**2, loss.curvature_at(margins, broadcast), 1)
        if noise == "gamma":
            return -np.abs(gradient) / scale - math.log(2 * scale) + np.log(jacobian)
        return (
            -((gradient / scale) ** 2) / 2
            - math.log(scale * math.sqrt(2 * math.pi))
            + np.log(jacobian)
        )

    return log_density


def both_directions(first, second, epsilons, edges):
    """Hockey-stick divergences both ways, shape (2, levels); cell corners cost below 1e-7."""
    nodes, weights = rule(edges)
    p, q = np.exp(first(nodes)), np.exp(second(nodes))
    assert float(weights @ p) == pytest.approx(1, abs=1e-8)
    factors = np.exp(np.atleast_1d(epsilons))[:, None]
    return np.array([np.maximum(a - factors * b, 0.0) @ weights for a, b in ((p, q), (q, p))])


def cells(loss, rows, labels, quadratic, scale, number=2500):
    """Cells fine enough for the quadrature, cut where curvatures jump."""
    far = (12 * scale + np.abs(rows).sum() * 1.1) / quadratic
    width = getattr(loss, "width", 0.0)
    sides = (-loss.below, loss.above) if isinstance(loss, QuantileHuber) else (-width, width)
    kinks = [(y + side) / x for x, y in zip(rows, labels, strict=True) for side in sides if x]
    if isinstance(loss, SmoothedHinge):
        kinks = [
            y * at / x for x, y in zip(rows, labels, strict=True) for at in (1.0, 1 - width) if x
        ]
    edges = np.concatenate(
        [np.linspace(-far, far, number), kinks, np.sinh(np.linspace(-8, 8, 200)) / 1500 * far]
    )
    return np.unique(edges[np.abs(edges) <= far])


def pairs(loss_row, trials, seed, quadratics=(0.3, 1.0, 8.0, 40.0), shifts=(0.2, 0.7, 2.0)):
    """Datasets of up to four records, with and without the last one."""
    _, slopes, bend, steepest, labels = loss_row
    random = np.random.default_rng(seed)
    for _ in range(trials):
        n = int(random.integers(0, 4))
        rows = np.append(
            random.choice([-1.0, -0.5, 0.0, 0.5, 1.0], n), random.choice([-1.0, 1.0, 0.6])
        )
        marks = random.choice(labels, n + 1)
        quadratic, shift = float(random.choice(quadratics)), float(random.choice(shifts))
        yield (
            rows,
            marks,
            quadratic,
            shift,
            ObjectivePerturbation(1 / shift, bend / quadratic, slopes),
            steepest / shift,
        )


@pytest.mark.parametrize("loss_row", LOSSES, ids=lambda row: row[1])
def test_true_laws_stay_below_the_profile_in_both_directions(loss_row):
    for rows, marks, quadratic, _, event, scale in pairs(loss_row, 30, seed=1):
        edges = cells(loss_row[0], rows, marks, quadratic, scale)
        with_it, without = (
            law(loss_row[0], rows[:k], marks[:k], quadratic, scale)
            for k in (len(rows), len(rows) - 1)
        )
        promised = privacy_curve(event, "add_remove").profile(np.array(EPSILONS))
        truth = both_directions(with_it, without, EPSILONS, edges)
        assert np.all(truth <= promised + 1e-7), (rows, marks, quadratic, event)


@pytest.mark.parametrize("loss_row", LOSSES, ids=lambda row: row[1])
def test_replaced_records_stay_below_the_replace_one_profile(loss_row):
    for rows, marks, quadratic, _, event, scale in pairs(loss_row, 25, seed=2):
        if len(rows) < 2:
            continue
        edges = cells(loss_row[0], rows, marks, quadratic, scale)
        laws = [
            law(loss_row[0], np.delete(rows, k), np.delete(marks, k), quadratic, scale)
            for k in (-1, -2)
        ]
        promised = privacy_curve(event, "replace").delta(np.array(EPSILONS))
        assert np.all(np.max(both_directions(*laws, EPSILONS, edges), axis=0) <= promised + 1e-7)


@pytest.mark.parametrize("loss_row", LOSSES, ids=lambda row: row[1])
def test_gamma_noise_is_pure(loss_row):
    for relation in ("add_remove", "replace"):
        for rows, marks, quadratic, shift, event, _ in pairs(loss_row, 40, seed=3):
            if len(rows) < 2:
                continue
            scale = loss_row[3] / shift
            keep = (
                [slice(None), slice(-1)]
                if relation == "add_remove"
                else [np.arange(len(rows)) != len(rows) - k for k in (1, 2)]
            )
            laws = [law(loss_row[0], rows[k], marks[k], quadratic, scale, "gamma") for k in keep]
            theta = np.linspace(-60, 60, 4001) / min(quadratic, 1.0)
            pure = privacy_curve(
                ObjectivePerturbation(1 / shift, event.curvature, event.slopes, "gamma"), relation
            ).pure
            assert np.max(np.abs(laws[0](theta) - laws[1](theta))) <= pure + 1e-12


@pytest.mark.parametrize(("shift", "quadratic", "epsilon"), [(1.0, 3.0, 1.0), (0.5, 1.0, 1.2)])
def test_a_shift_ten_percent_off_is_caught(shift, quadratic, epsilon):
    """400 records push the minimizer to where the last record's slope is near its bound."""
    loss, rows, marks = Logistic(), np.ones(401), np.append(-np.ones(400), 1.0)
    edges = cells(loss, rows, marks, quadratic, 1 / shift, number=600)
    laws = [law(loss, rows[:k], marks[:k], quadratic, 1 / shift) for k in (401, 400)]
    truth = np.max(both_directions(*laws, epsilon, edges))
    for factor, kept in ((1.0, True), (1.1, False)):
        event = ObjectivePerturbation(factor / shift, 0.25 / quadratic, "logistic")
        assert (
            truth <= float(privacy_curve(event, "add_remove").delta(np.array([epsilon]))[0])
        ) == kept


def test_the_determinant_is_needed():
    """With curvature large against the quadratic, a Gaussian claim alone would be broken."""
    loss, quadratic, shift = SmoothedHinge(0.5), 1.0, 0.3
    rows, marks = np.ones(1), np.ones(1)
    edges = cells(loss, rows, marks, quadratic, 1 / shift)
    laws = [law(loss, rows[:k], marks[:k], quadratic, 1 / shift) for k in (1, 0)]
    forward, _ = both_directions(*laws, 1.0, edges)[:, 0]
    assert forward > 3 * float(gaussian.delta(shift, 1.0))


def test_two_sided_losses_lose_on_both_tails():
    """A single tail would be promised half of what is lost when the record pulls to the middle."""
    loss, quadratic, shift = Huber(0.1), 1.0, 0.05 * 2
    rows, marks = np.ones(1), np.zeros(1)
    edges = cells(loss, rows, marks, quadratic, 0.1 / shift)
    laws = [law(loss, rows[:k], marks[:k], quadratic, 0.1 / shift) for k in (1, 0)]
    _, reverse = both_directions(*laws, 0.3, edges)[:, 0]
    assert reverse > 1.8 * float(gaussian.delta(shift, 0.3))


@pytest.mark.parametrize("slopes", ["logistic", "one_sided", "two_sided"])
@pytest.mark.parametrize("curvature", [0.001, 0.05, 0.5])
def test_mu_and_rho_bound_the_profile(slopes, curvature):
    promise = privacy_curve(ObjectivePerturbation(3.0, curvature, slopes), "add_remove")
    grid = np.linspace(0, 12, 3001)
    assert np.all(promise.delta(grid) <= gaussian.delta(promise.mu, grid) * (1 + 1e-9))
    assert promise.rho >= promise.mu**2 / 2
    assert np.any(promise.delta(grid) > gaussian.delta(promise.mu * 0.98, grid))


@pytest.mark.parametrize("slopes", ["logistic", "one_sided", "two_sided"])
def test_profiles_decrease_and_start_at_one_total_variation(slopes):
    for multiplier in (0.2, 1.0, 8.0):
        for curvature in (1e-6, 0.02, 0.5, 10.0):
            rows = privacy_curve(
                ObjectivePerturbation(multiplier, curvature, slopes), "add_remove"
            ).profile(np.linspace(0, 40, 4001))
            assert np.all((rows >= 0) & (rows <= 1))
            assert np.all(np.diff(rows, axis=1) <= 1e-13)
            assert rows[0, 0] == pytest.approx(rows[1, 0], rel=1e-9)


def test_composition_charges_and_json():
    event = Composed((ObjectivePerturbation(4.0, 0.02, "logistic"), Gaussian(64.0)))
    assert event_from_json(json.loads(json.dumps(event.to_json()))) == event
    together = privacy_curve(event, "add_remove")
    alone = privacy_curve(event.events[0], "add_remove")
    assert float(together.delta(np.array([1.0]))[0]) > float(alone.delta(np.array([1.0]))[0])
    assert together.mu == pytest.approx(math.hypot(alone.mu, 1 / 64))
    assert float(privacy_cost(event, "add_remove", "gdp").amount) == pytest.approx(together.mu**2)
    pure = ObjectivePerturbation(2.0, 0.02, "logistic", "gamma")
    assert float(privacy_cost(pure, "replace", "pure").amount) == pytest.approx(1.0)


def test_calibration_meets_the_gaussian_mechanism_where_the_determinant_is_free():
    budget = Budget(epsilon=1, delta=1e-6, relation="add_remove")
    noise = calibrate(ObjectivePerturbation(1.0, 0.2, "logistic"), budget).noise_multiplier
    assert noise == pytest.approx(1 / gaussian.mu(1, 1e-6), rel=1e-6)
    dear = calibrate(ObjectivePerturbation(1.0, 0.2, "one_sided"), budget).noise_multiplier
    assert dear == pytest.approx(1 / gaussian.mu(1 - math.log1p(0.2), 1e-6), rel=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("slopes", "curvature"), [("two_sided", 0.1), ("logistic", 1e4), ("one_sided", 0.1)]
)
@pytest.mark.parametrize("epsilon", [650.0, 1000.0, 1e6])
def test_where_exponentials_overflow_noise_is_that_of_the_gaussian_mechanism_or_more(
    slopes, curvature, epsilon
):
    budget = Budget(epsilon=epsilon, delta=1e-6, relation="add_remove")
    noise = calibrate(ObjectivePerturbation(1.0, curvature, slopes), budget).noise_multiplier
    assert 1 - 1e-9 <= noise * gaussian.mu(epsilon, 1e-6) < 1.02


def test_chords_are_rounded_up_to_their_ends():
    """Shifts small against the determinant: bounds, and chords, drop just behind it."""
    promise = privacy_curve(ObjectivePerturbation(1e9, 10.0, "one_sided"), "add_remove")
    (end, _), start = promise._chords[0], mpmath.mpf(promise._total_variation)
    levels = end * (1 - np.geomspace(1e-12, 1e-6, 200))
    bounds, last = promise._bounds(levels)[0], float(promise._bounds(np.array([end]))[0, 0])
    with mpmath.workdps(50):
        slope = (last - start) / mpmath.expm1(end)
        chords = [start + slope * mpmath.expm1(level) for level in levels]
    assert all(map(operator.ge, promise.profile(levels)[0], map(min, chords, bounds)))


@pytest.mark.parametrize(
    "broken",
    [{"curvature": 0.0}, {"slopes": "odd"}, {"noise": "cauchy"}, {"noise_multiplier": math.inf}],
)
def test_bad_events_are_refused(broken):
    with pytest.raises(ValueError, match=next(iter(broken))):
        ObjectivePerturbation(**{"noise_multiplier": 1.0, "curvature": 0.1, **broken})


def class_log_density(thetas, rows, labels, quadratic, scale):
    """Log density, up to a constant, of the multiclass minimizer with Gamma-norm noise.

    Parameters have shape (many, features, classes); the constant is the same for all datasets.
    """
    many, features, classes = thetas.shape
    logits = rows @ thetas
    shares = np.exp(logits - logits.max(axis=2, keepdims=True))
    shares /= shares.sum(axis=2, keepdims=True)
    gradient = np.einsum("if,mik->mfk", rows, shares - np.eye(classes)[labels]) + quadratic * thetas
    bends = shares[..., None] * np.eye(classes) - shares[..., :, None] * shares[..., None, :]
    hessian = np.einsum("if,ig,mikl->mfkgl", rows, rows, bends).reshape(
        many, features * classes, -1
    )
    _, volume = np.linalg.slogdet(hessian + quadratic * np.eye(features * classes))
    return volume - np.linalg.norm(gradient.reshape(many, -1), axis=1) / scale


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@pytest.mark.parametrize(("classes", "features"), [(2, 1), (3, 1), (5, 1), (3, 2)])
@pytest.mark.parametrize(("scale", "quadratic"), [(1.0, 4.0), (1.0, 2.83), (0.5, 0.2), (2.0, 0.5)])
def test_no_density_of_several_classes_changes_by_more_than_epsilon(
    classes, features, scale, quadratic, relation
):
    """Rows of norm one, gradients at most sqrt(2); attained where the determinant is free."""
    random = np.random.default_rng(classes)
    event = ObjectivePerturbation(scale / math.sqrt(2), 0.5 / quadratic, "softmax", "gamma")
    epsilon = privacy_curve(event, relation).pure
    thetas = random.standard_normal((60_000, features, classes)) * 10.0 ** random.uniform(
        -2, 2.5, (60_000, 1, 1)
    )
    # Far out, gradients of one record point along the parameter or against it.
    thetas[:9, :, :] = 0.0
    thetas[:9, 0, 0], thetas[:9, 0, 1] = np.outer([1.0, -1.0], np.geomspace(1, 300, 9))
    largest = 0.0
    for others in (0, 1, 2):
        rows = random.standard_normal((others + 2, features))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        rows[-2:] = [[1.0] + [0.0] * (features - 1), [-1.0] + [0.0] * (features - 1)]
        labels = random.integers(0, classes, others + 2)
        labels[-2:] = [1, 1]
        if relation == "add_remove":
            pair = slice(0, others), slice(0, others + 1)
        else:
            pair = np.r_[0:others, others], np.r_[0:others, others + 1]
        first, second = (
            class_log_density(thetas, rows[part], labels[part], quadratic, scale) for part in pair
        )
        largest = max(largest, float(np.abs(first - second).max()))
    assert largest <= epsilon * (1 + 1e-12)
    # Records that pull a far parameter back pull one way; two that are replaced and add up would
    # need others around.
    assert largest >= math.sqrt(2) / scale * (1 - 1e-9)
    assert relation == "replace" or quadratic < 2.83 or largest >= 0.999 * epsilon


@pytest.mark.parametrize("curvature", [0.01, 0.2, 0.25, 0.27, 0.4, 0.7, 3.0])
def test_the_loss_of_the_logistic_loss_is_the_supremum_over_slopes(curvature):
    u = np.linspace(0, 1, 100_001)
    apart, together = 1 + math.log1p(curvature), np.max(u + 4 * curvature * u * (1 - u))
    found = privacy_curve(
        ObjectivePerturbation(1.0, curvature, "logistic", "gamma"), "add_remove"
    ).pure
    assert found == pytest.approx(min(apart, together), rel=1e-9)
    assert found >= np.max(u + np.log1p(4 * curvature * u * (1 - u)))


@pytest.mark.parametrize(("shift", "curvature"), [(0.5, 0.5), (1.0, 0.2), (2.0, 0.8), (0.1, 0.05)])
def test_the_profile_of_the_logistic_loss_is_an_integral_over_its_worst_slopes(shift, curvature):
    t, slopes = np.linspace(-9, 9, 20_001), np.linspace(0, 1, 401)[:, None]
    losses = slopes**2 * shift**2 / 2 - slopes * shift * t + 4 * curvature * slopes * (1 - slopes)
    weights = np.exp(-(t**2) / 2) / math.sqrt(2 * math.pi) * (t[1] - t[0])
    promise = privacy_curve(ObjectivePerturbation(1 / shift, curvature, "logistic"), "add_remove")
    for epsilon in np.array([0.05, 0.3, 0.7, 0.95]) * (4 * curvature - shift**2 / 2):
        wanted = weights @ np.maximum(1 - np.exp(epsilon - losses.max(axis=0)), 0.0)
        assert promise._logistic(np.array([epsilon]))[0] == pytest.approx(wanted, rel=1e-3)


def test_several_classes_have_no_profile_of_normal_noise():
    with pytest.raises(ValueError, match="no profile of normal noise"):
        ObjectivePerturbation(1.0, 0.5, "softmax")


@pytest.mark.parametrize("curvature", [0.01, 0.124, 0.125, 0.126, 0.15, 0.1768, 0.2, 1.0, 30.0])
def test_the_loss_of_several_classes_is_the_supremum_over_gradients(curvature):
    u = np.linspace(0, 1, 100_001)
    supremum = np.max(u + 2 * curvature * (2 * np.minimum(1, math.sqrt(2) * u) - 2 * u**2))
    found = privacy_curve(
        ObjectivePerturbation(1.0, curvature, "softmax", "gamma"), "add_remove"
    ).pure
    assert found == pytest.approx(supremum, rel=1e-5)
