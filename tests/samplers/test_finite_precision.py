"""What rounding does to exact rejection, against multiprecision."""

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest

from dpfit.core import Minimize
from dpfit.data.dataset import InMemory
from dpfit.geometry import Box, L2Ball
from dpfit.losses import (
    Absolute,
    Bounds,
    CustomLoss,
    Distance,
    Hinge,
    LinearLoss,
    Logistic,
    Pinball,
    Squared,
)
from dpfit.noise import Source, fine_gaussian
from dpfit.noise.fine import FINENESS
from dpfit.samplers import exact_gibbs_rejection, finite_precision
from dpfit.samplers.certificate import Displaced
from dpfit.samplers.exact_gibbs_rejection import (
    Envelope,
    GibbsRejection,
    Minorant,
    anchor,
    farthest,
    tangent_anchor,
)
from dpfit.samplers.finite_precision import largest_value, rejection_rounding
from dpfit.samplers.potential import Potential


@pytest.fixture(autouse=True)
def precision():
    with mpmath.workdps(50):
        yield


def problem(loss, n, d=2, radius=1.5, ridge=0.05, centre=None, norm_bound=1.0):
    ball = L2Ball(d, radius, centre)
    return Minimize(
        n=n, loss=loss, bounds=Bounds(norm_bound, -1.0, 1.0), n_features=d, domain=ball, ridge=ridge
    )


def hostile(n, d, random):
    """Rows of very different norms, some out of bounds, and labels that need a guard."""
    rows = random.normal(size=(n, d)) * 10.0 ** random.integers(-8, 9, size=(n, 1))
    rows[0], rows[1 % n] = 1e200, 1e-200
    return rows, random.normal(size=n) * 10.0 ** random.integers(-3, 4, size=n)


def exact_loss(loss, row, label, theta):
    """One record's loss, guarded as declared, in multiprecision."""
    row, theta = [mpmath.mpf(float(x)) for x in row], [mpmath.mpf(x) for x in theta]
    norm = mpmath.sqrt(mpmath.fsum(x * x for x in row))
    row = [x * min(1, 1 / norm) if norm else x for x in row]
    margin = mpmath.fsum(a * b for a, b in zip(row, theta, strict=True))
    sign, clamped = (1 if label > 0 else -1), mpmath.mpf(min(max(float(label), -1.0), 1.0))
    return {
        "Logistic": lambda: mpmath.log1p(mpmath.exp(-sign * margin)),
        "Squared": lambda: (margin - clamped) ** 2 / 2,
        "Hinge": lambda: max(mpmath.mpf(0), 1 - sign * margin),
        "Absolute": lambda: abs(margin - clamped),
        "LinearLoss": lambda: margin,
        "Distance": lambda: mpmath.sqrt(
            mpmath.fsum((t - x) ** 2 for t, x in zip(theta, row, strict=True))
        ),
    }[type(loss).__name__]()


def logarithms(asked, rows, labels, t, shift, trials=12):
    """Logarithms of (computed density of proposals that are kept) / (target), up to one constant.

    The exact normal vector is the rounded one plus ``shift`` times the fineness, in each
    coordinate.
    """
    target = Potential.gibbs(asked, InMemory(rows, labels), t)
    hessian = target.hessian
    if hessian is None:
        point, curvature = tangent_anchor(target), np.zeros((asked.dimension,) * 2)
    else:
        point, curvature = anchor(target, hessian)
    value, gradient = (part[0] for part in target.convex(point[None]))
    minorant = Minorant(point, gradient, curvature, target.bending, farthest(target.domain, point))
    added, pull = target.strength * np.eye(len(point)), target.strength * (point - target.centre)
    envelope = Envelope(target.domain, minorant, added, pull)
    assert envelope.trusted
    normal = fine_gaussian((4000, asked.dimension), Source(17))
    trial = envelope.mean + normal @ envelope.factor.T
    inside = np.flatnonzero(target.domain.contains(trial, tolerance=0.0))[:trials]
    trial, normal = trial[inside], normal[inside]
    first = np.maximum(envelope.gap(trial, normal), 0.0)
    second = np.maximum(target.convex(trial)[0] - value - minorant.above(trial), 0.0)
    found = []
    for k in range(len(trial)):
        z = [mpmath.mpf(float(v)) + shift * FINENESS for v in normal[k]]
        theta = [
            mpmath.mpf(float(m))
            + mpmath.fsum(mpmath.mpf(float(a)) * b for a, b in zip(row, z, strict=True))
            for m, row in zip(envelope.mean, envelope.factor, strict=True)
        ]
        losses = mpmath.fsum(
            exact_loss(asked.loss, row, y, theta) for row, y in zip(rows, labels, strict=True)
        )
        ridge = mpmath.mpf(target.strength) / 2 * mpmath.fsum(x * x for x in theta)
        potential = mpmath.mpf(t) * losses + ridge
        half = mpmath.fsum(x * x for x in z) / 2
        found.append(potential - half - mpmath.mpf(float(first[k])) - mpmath.mpf(float(second[k])))
        offset = mpmath.sqrt(
            mpmath.fsum(
                (a - mpmath.mpf(float(b))) ** 2 for a, b in zip(theta, trial[k], strict=True)
            )
        )
        assert offset <= max(1, abs(shift)) * sizes(asked, t).point
    return found


def sizes(asked, t):
    return finite_precision._Sizes.of(asked, asked.max_records("replace"), t, largest_value(asked))


LOSSES = [Logistic(), Squared(), Hinge(), Absolute(), LinearLoss(), Distance()]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize(
    ("n", "d", "centre"), [(3, 1, None), (40, 2, None), (40, 3, (30.0, -4.0, 0.5))]
)
def test_the_density_of_kept_proposals_is_the_target_up_to_the_bound(loss, n, d, centre):
    """Both ends of the rounding of normal vectors; records that are hostile to floating point."""
    rows, labels = hostile(n, d, np.random.default_rng(n + d))
    asked, t = problem(loss, n, d, centre=centre), 0.8
    spread = [value for shift in (-1, 1) for value in logarithms(asked, rows, labels, t, shift)]
    assert len(spread) >= 8
    assert max(spread) - min(spread) <= 2 * sizes(asked, t).gap


def test_coarse_normal_numbers_are_found_out():
    """Planted fault: normal numbers of 20 bits, whose rounding is not in the bound."""
    rows, labels = hostile(40, 2, np.random.default_rng(42))
    asked, t = problem(Logistic(), 40, 2), 0.8
    coarse = logarithms(asked, rows, labels, t, 2**17)
    fine = logarithms(asked, rows, labels, t, 1)
    bound = sizes(asked, t).gap
    assert max(abs(a - b) for a, b in zip(coarse, fine, strict=True)) > 2 * bound


def test_gaps_are_at_least_zero_up_to_the_bound():
    """Only rounding is cut at zero, also at the ball's boundary and at the anchor."""
    random = np.random.default_rng(5)
    for trial in range(30):
        d, n = int(random.integers(1, 5)), int(random.integers(1, 60))
        rows, labels = hostile(n, d, random)
        asked = problem(Logistic(), n, d, radius=float(10.0 ** random.uniform(-1, 1)))
        target, t = Potential.gibbs(asked, InMemory(rows, labels), 0.5), 0.5
        point, curvature = anchor(target, target.hessian)
        value, gradient = (part[0] for part in target.convex(point[None]))
        minorant = Minorant(
            point, gradient, curvature, target.bending, farthest(target.domain, point)
        )
        edge = target.domain.centre + target.domain.radius() * Source(trial).uniform_sphere(d, 50)
        near = target.domain.project(point + 1e-9 * edge)
        points = np.vstack([edge, target.domain.sample(Source(trial), 50), near, point[None]])
        gap = target.convex(points)[0] - value - minorant.above(points)
        assert gap.min() >= -sizes(asked, t).gap
        envelope = Envelope(
            target.domain, minorant, target.strength * np.eye(d), target.strength * point
        )
        normal = fine_gaussian((200, d), Source(trial))
        proposals = envelope.mean + normal @ envelope.factor.T
        kept = target.domain.contains(proposals, tolerance=0.0)
        assert kept.any()
        assert envelope.gap(proposals[kept], normal[kept]).min() >= -sizes(asked, t).gap


@pytest.mark.parametrize("cut", [-1.0, 0.3, 1.0])
def test_mass_near_the_boundary_is_moved_within_the_margin(cut):
    """1-D, by quadrature: a ball off by ``cut`` times the largest error of a test.

    The mass of the shell is that of the shell in the target up to the factor that is claimed,
    tightly at the ends.
    """
    radius, slope, margin, off = 1.0, 40.0, 1e-3, 1e-5

    def mass(low, high):
        return (math.exp(slope * high) - math.exp(slope * low)) / slope

    shell, cut_off = mass(radius - margin, radius), mass(radius - margin, radius + cut * off)
    moved = off / margin * math.exp(slope * (margin + off))
    assert abs(cut_off / shell - 1) <= moved
    ratio = abs(math.log(cut_off / shell))
    assert ratio <= 2 * math.atanh(moved)
    assert abs(cut) < 1 or abs(cut_off / shell - 1) > 0.9 * moved / math.exp(slope * (margin + off))


def test_the_bound_grows_with_sizes_and_ends_where_nothing_is_known():
    asked = problem(Logistic(), 10_000, 20)
    bound = rejection_rounding(asked, "replace", 0.5, 1e-6)
    assert isinstance(bound, Displaced)
    assert rejection_rounding(asked, "add_remove", 0.5, 1e-6).epsilon > bound.epsilon
    assert rejection_rounding(asked, "replace", 0.5, 1e-5).distance > bound.distance
    own = CustomLoss(
        value_function=lambda theta, rows, labels: rows @ theta,
        gradient_function=lambda theta, rows, labels: rows,
        lipschitz_bound=1.0,
        is_convex=True,
    )
    for unknown in (
        replace(asked, domain=Box((-1.0,) * 20, (1.0,) * 20)),
        replace(asked, loss=own),
        replace(asked, loss=Absolute(), bounds=Bounds(1.0)),
        replace(asked, ridge=1e-13),
        replace(asked, n=10**13),
    ):
        assert rejection_rounding(unknown, "replace", 0.5, 1e-6) is None
    # A margin below what the test of the ball can be off by, and one as wide as the ball.
    assert rejection_rounding(asked, "replace", 0.5, 1e-13) is None
    assert rejection_rounding(asked, "replace", 0.5, 1.0) is None


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_largest_values(loss):
    """No record has a larger loss on the domain, and some have half of it or more."""
    asked = problem(loss, 1, 2, radius=3.0)
    largest, random = largest_value(asked), np.random.default_rng(6)
    seen = 0.0
    for angle in random.uniform(0, 2 * math.pi, 200):
        theta = 3.0 * np.array([[math.cos(angle), math.sin(angle)]])
        for label in (-1.0, 1.0):
            value = InMemory(np.array([[1.0, 0.0]]), np.array([label])).gradients(
                loss, theta, **asked.guards
            )[0][0]
            seen = max(seen, abs(value))
    assert largest / 2 <= seen <= largest


def test_constants_hold_for_margins_that_rounding_made_too_large():
    """Pinball labels start just beyond real margins: a computed one may be beyond, steep."""
    loss, reach = Pinball(1e-6), 1 + 2.0**-20
    ball, bounds = L2Ball(1000, reach), Bounds(1.0, math.nextafter(reach, 2), reach + 1)
    asked = Minimize(n=1000, loss=loss, bounds=bounds, n_features=1000, domain=ball, ridge=1e-6)
    assert loss.lipschitz(asked.bounds, reach).value == pytest.approx(1e-6)
    assert sizes(asked, 10.0).slope == pytest.approx(10.0 * 1000 * (1 - 1e-6))
    assert largest_value(asked) >= reach


def test_a_root_that_is_wrong_is_not_trusted(monkeypatch):
    """Proposals are then from the tangent plane: the law is the same."""
    rows = np.array([[1.0], [0.8], [-0.3]])
    target = Potential.gibbs(
        problem(Squared(), 3, 1), InMemory(rows, np.array([1.0, -0.5, 0.2])), 2.0
    )
    true = exact_gibbs_rejection.spectrum
    good = GibbsRejection(Displaced(1e-6, 1e-6)).draw(target, 20_000, Source(3))
    monkeypatch.setattr(
        exact_gibbs_rejection,
        "spectrum",
        lambda m: (true(m)[0] * (4 if m[0, 0] > 1 else 1), true(m)[1]),
    )
    flawed = Envelope(
        target.domain,
        Minorant(np.zeros(1), np.zeros(1), np.array([[5.0]]), 0.0, 3.0),
        target.strength * np.eye(1),
        np.zeros(1),
    )
    assert not flawed.trusted
    other = GibbsRejection(Displaced(1e-6, 1e-6)).draw(target, 20_000, Source(4))
    precision = 2.0 * (1 + 0.64 + 0.09) + target.strength
    for drawn in (good, other):
        assert drawn.std() == pytest.approx(precision**-0.5, rel=0.05)


def test_a_potential_that_is_flat_needs_no_hessian():
    """Without losses the target is a normal law on the ball."""
    flat = Potential(
        L2Ball(2, 1.0), 400.0, np.zeros(2), lambda x: (np.zeros(len(x)), np.zeros_like(x))
    )
    drawn = GibbsRejection().draw(flat, 20_000, Source(9))
    assert drawn.std(axis=0) == pytest.approx([0.05, 0.05], rel=0.05)
