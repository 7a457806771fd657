"""Domains against convex solvers, optimality, brute force over corners, known laws."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from scipy.optimize import linprog, minimize

from dpfit.geometry import Box, Domain, L1Ball, L2Ball, Simplex, WholeSpace
from dpfit.noise import Source
from dpfit.privacy.spec import from_json

BOUNDED = [
    L2Ball(3, 1.0),
    L2Ball(2, 0.3, (1.0, -2.0)),
    L2Ball(1, 2.0),
    Box((-1.0, 0.0, 2.0), (1.0, 0.5, 7.0)),
    Box((0.25,), (0.5,)),
    L1Ball(3, 1.0),
    L1Ball(4, 2.5),
    L1Ball(1, 0.5),
    Simplex(1),
    Simplex(2),
    Simplex(5),
]
ALL = [*BOUNDED, WholeSpace(3)]
moderate = st.floats(-20, 20)
NASTY = [0.0, -0.0, 5e-324, 1e-300, 1e-17, 1.0, -1.0, 1e16, -1e200, 1.7e308, -1.7e308]


def points_of(domain, seed=0, n=200):
    return domain.sample(Source(seed), n)


def in_simplex_or_ball_by_solver(domain, point):
    """The projection by a general convex solver."""
    d = domain.dimension
    if isinstance(domain, L1Ball):
        # Split into positive and negative parts, which makes the constraint linear.
        constraint = {
            "type": "ineq",
            "fun": lambda z: domain.norm_bound - z.sum(),
            "jac": lambda z: -np.ones(2 * d),
        }
        solved = minimize(
            lambda z: 0.5 * np.sum((z[:d] - z[d:] - point) ** 2) + 1e-9 * z.sum(),
            np.full(2 * d, 0.1 * domain.norm_bound / d),
            jac=lambda z: np.concatenate([z[:d] - z[d:] - point, point - z[:d] + z[d:]]) + 1e-9,
            bounds=[(0, None)] * (2 * d),
            constraints=[constraint],
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 500},
        )
        return solved.x[:d] - solved.x[d:]
    if isinstance(domain, Simplex):
        extra = {
            "bounds": [(0, None)] * d,
            "constraints": [
                {"type": "eq", "fun": lambda z: z.sum() - 1, "jac": lambda z: np.ones(d)}
            ],
        }
    elif isinstance(domain, Box):
        extra = {"bounds": list(zip(domain.lower, domain.upper, strict=True))}
    else:
        gap = {
            "type": "ineq",
            "fun": lambda z: domain.norm_bound**2 - np.sum((z - domain.centre) ** 2),
            "jac": lambda z: -2 * (z - domain.centre),
        }
        extra = {"constraints": [gap]}
    solved = minimize(
        lambda z: 0.5 * np.sum((z - point) ** 2),
        domain.centre.copy(),
        jac=lambda z: z - point,
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
        **extra,
    )
    return solved.x


@pytest.mark.parametrize("domain", BOUNDED, ids=str)
def test_projections_agree_with_a_convex_solver(domain):
    rng = np.random.default_rng(1)
    for scale in (0.3, 1.0, 4.0):
        point = domain.centre + scale * rng.normal(size=domain.dimension)
        np.testing.assert_allclose(
            domain.project(point), in_simplex_or_ball_by_solver(domain, point), atol=2e-5
        )


def corners(domain):
    d = domain.dimension
    if isinstance(domain, Box):
        return np.array(list(itertools.product(*zip(domain.lower, domain.upper, strict=True))))
    if isinstance(domain, L1Ball):
        return domain.norm_bound * np.vstack([np.eye(d), -np.eye(d)])
    return np.eye(d)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(BOUNDED), st.data())
def test_projections_satisfy_the_optimality_conditions(domain, data):
    """p projects x if and only if <x - p, q - p> <= 0 for all q in the domain (its corners)."""
    point = data.draw(arrays(float, domain.dimension, elements=moderate))
    nearest = domain.project(point)
    assert domain.contains(nearest, 1e-12)
    others = points_of(domain) if isinstance(domain, L2Ball) else corners(domain)
    assert np.all((others - nearest) @ (point - nearest) <= 1e-9)


@pytest.mark.parametrize("domain", BOUNDED, ids=str)
def test_confining_points_is_projecting_them(domain):
    far = domain.centre + 2 * domain.radius() * np.random.default_rng(1).standard_normal(
        (50, domain.dimension)
    )
    for points in (points_of(domain), far, np.concatenate([points_of(domain), far])):
        np.testing.assert_array_equal(
            domain.encloses(points), domain.contains(points, tolerance=0.0)
        )
        np.testing.assert_allclose(
            domain.confine(points), domain.project(points), rtol=0, atol=1e-15
        )


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(ALL), st.data())
def test_projecting_again_changes_nothing_and_distances_do_not_grow(domain, data):
    pair = data.draw(arrays(float, (2, domain.dimension), elements=moderate))
    nearest = domain.project(pair)
    np.testing.assert_allclose(domain.project(nearest), nearest, rtol=0, atol=1e-14)
    assert (
        np.linalg.norm(nearest[0] - nearest[1])
        <= np.linalg.norm(pair[0] - pair[1]) * (1 + 1e-12) + 1e-13
    )


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(BOUNDED), st.data())
def test_hostile_points_are_sent_into_the_domain(domain, data):
    entries = st.one_of(st.sampled_from([*NASTY, math.nan, math.inf, -math.inf]), st.floats())
    point = data.draw(arrays(float, domain.dimension, elements=entries))
    nearest = domain.project(point)
    assert domain.contains(nearest, 1e-12)
    if not np.isfinite(point).all():
        assert nearest.tolist() == domain.centre.tolist()
        assert WholeSpace(domain.dimension).project(point).tolist() == [0.0] * domain.dimension


def test_projections_of_huge_points_keep_their_accuracy():
    assert L1Ball(3, 1.0).project([1e300, 1e300, -1e300]) == pytest.approx(
        [1 / 3, 1 / 3, -1 / 3], abs=1e-15
    )
    assert Simplex(3).project([1e16, 1e16 - 2, -1e308]).tolist() == [1.0, 0.0, 0.0]
    assert L2Ball(2, 1.0).project([3e300, 4e300]) == pytest.approx([0.6, 0.8], abs=1e-15)
    assert L2Ball(2, 1.0, (1e-3, 0.0)).project([5e-324, 0.0]).tolist() == [5e-324, 0.0]


@pytest.mark.parametrize("domain", ALL, ids=str)
def test_points_inside_are_kept_bit_for_bit(domain):
    inside = domain.centre + 0.4 * (
        points_of(domain if domain in BOUNDED else Box((-9,) * 3, (9,) * 3)) - domain.centre
    )
    if isinstance(domain, Simplex):
        np.testing.assert_allclose(domain.project(inside), inside, atol=1e-15)
    else:
        assert np.array_equal(domain.project(inside), inside)
    assert domain.contains(inside).all()


def test_membership_has_edges():
    assert L2Ball(2, 1.0).contains([[1.0, 0.0], [1.0, 1e-3], [0.8, 0.7]], 0.0).tolist() == [
        True,
        False,
        False,
    ]
    assert Box((0.0,), (1.0,)).contains([[0.0], [1.0], [1.1], [-0.1]]).tolist() == [
        True,
        True,
        False,
        False,
    ]
    assert L1Ball(2, 1.0).contains([[0.5, -0.5], [0.6, -0.5]]).tolist() == [True, False]
    assert Simplex(2).contains([[0.5, 0.5], [0.5, 0.6], [1.5, -0.5]]).tolist() == [
        True,
        False,
        False,
    ]
    assert Simplex(2).contains([0.5, 0.6], tolerance=0.11)
    for domain in ALL:
        assert not domain.contains(np.full(domain.dimension, np.nan))
        assert not domain.contains(np.full(domain.dimension, np.inf))


@pytest.mark.parametrize("domain", BOUNDED, ids=str)
@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_sizes_are_reached_but_never_exceeded(domain, norm):
    if isinstance(domain, L2Ball):
        d = domain.dimension
        signs = np.array(list(itertools.product([-1.0, 1.0], repeat=d))) / math.sqrt(d)
        extreme = domain.centre + domain.norm_bound * np.vstack([signs, np.eye(d), -np.eye(d)])
        away = domain.centre / max(np.linalg.norm(domain.centre), 1e-300)
        extreme = np.vstack([extreme, domain.centre + domain.norm_bound * away])
    else:
        extreme = corners(domain)
    points = np.vstack([extreme, points_of(domain)])
    from_centre = np.linalg.norm(points - domain.centre, ord=norm, axis=1).max()
    apart = max(np.linalg.norm(points - point, ord=norm, axis=1).max() for point in extreme)
    for found, declared in (
        (from_centre, domain.radius(norm)),
        (apart, domain.diameter(norm)),
        (np.linalg.norm(points, ord=norm, axis=1).max(), domain.reach(norm)),
    ):
        assert found == pytest.approx(declared, rel=1e-12, abs=1e-15)


def test_the_whole_space_has_no_size():
    space = WholeSpace(2)
    for norm in (1, 2, math.inf):
        assert space.radius(norm) == space.diameter(norm) == space.reach(norm) == math.inf
    with pytest.raises(ValueError, match="bounded domain"):
        space.sample(Source(0))
    with pytest.raises(ValueError, match="bounded domain"):
        space.linear_minimizer([1.0, 2.0])


@pytest.mark.parametrize("domain", [d for d in BOUNDED if not isinstance(d, L2Ball)], ids=str)
def test_linear_minimizers_agree_with_linear_programming(domain):
    rng = np.random.default_rng(3)
    d = domain.dimension
    for gradient in rng.normal(size=(10, d)):
        if isinstance(domain, Box):
            best = linprog(gradient, bounds=list(zip(domain.lower, domain.upper, strict=True))).fun
        elif isinstance(domain, Simplex):
            best = linprog(gradient, A_eq=np.ones((1, d)), b_eq=[1.0]).fun
        else:
            best = linprog(
                np.concatenate([gradient, -gradient]),
                A_ub=np.ones((1, 2 * d)),
                b_ub=[domain.norm_bound],
            ).fun
        found = domain.linear_minimizer(gradient)
        assert domain.contains(found, 0.0)
        assert found @ gradient == pytest.approx(best, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(BOUNDED), st.data())
def test_no_point_is_below_the_linear_minimizer(domain, data):
    gradient = data.draw(arrays(float, domain.dimension, elements=moderate))
    found = domain.linear_minimizer(gradient)
    assert domain.contains(found, 1e-12)
    assert found @ gradient <= (points_of(domain) @ gradient).min() + 1e-9


def test_the_linear_minimizer_of_a_ball_is_opposite_to_the_gradient():
    assert L2Ball(2, 2.0, (1.0, 1.0)).linear_minimizer([3.0, 4.0]) == pytest.approx(
        [1 - 1.2, 1 - 1.6]
    )
    assert L2Ball(2, 2.0).linear_minimizer([3e300, 4e300]) == pytest.approx([-1.2, -1.6])
    assert L2Ball(2, 2.0).linear_minimizer([0.0, 0.0]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("domain", BOUNDED, ids=str)
@pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan])
def test_linear_minimizers_of_what_is_not_finite_are_points_of_the_domain(domain, odd):
    assert domain.contains(domain.linear_minimizer([odd] + [1.0] * (domain.dimension - 1)), 1e-12)


def marginals(domain):
    """Transforms of uniform points to uniforms on [0, 1], and how to shrink points."""
    centre = domain.centre
    if isinstance(domain, L2Ball):
        d, size = domain.d, domain.norm_bound
        yield lambda x: (np.linalg.norm(x - centre, axis=1) / size) ** d
        # A coordinate of a uniform point of the ball, squared, has a beta law.
        yield lambda x: stats.beta((d + 1) / 2, (d + 1) / 2).cdf(
            ((x - centre)[:, 0] / size + 1) / 2
        )
    elif isinstance(domain, Box):
        for i in range(domain.dimension):
            yield lambda x, i=i: (x[:, i] - domain.lower[i]) / (domain.upper[i] - domain.lower[i])
    elif isinstance(domain, L1Ball):
        yield lambda x: (np.abs(x).sum(axis=1) / domain.norm_bound) ** domain.d
        for i in range(domain.d):
            yield (
                lambda x, i=i: (
                    0.5
                    + 0.5
                    * np.sign(x[:, i])
                    * stats.beta(1, domain.d).cdf(np.abs(x[:, i]) / domain.norm_bound)
                )
            )
    else:
        for i in range(domain.d):
            yield lambda x, i=i: stats.beta(1, domain.d - 1).cdf(x[:, i])


@pytest.mark.parametrize("domain", [d for d in BOUNDED if d != Simplex(1)], ids=str)
def test_samples_are_uniform(domain):
    """Kolmogorov-Smirnov on marginals, 20,000 draws, 1e-8 each; rejects a radius off by 6%."""
    draws = domain.sample(Source(11), 20_000)
    assert draws.shape == (20_000, domain.dimension)
    assert domain.contains(draws, 1e-12).all()
    for transform in marginals(domain):
        assert stats.kstest(transform(draws), "uniform").pvalue > 1e-8
    for factor in (0.94, 1.06):
        moved = domain.centre + factor * (draws - domain.centre)
        worst = min(
            stats.kstest(np.clip(transform(moved), 0, 1), "uniform").pvalue
            for transform in marginals(domain)
        )
        assert worst < 1e-8


def test_signs_of_l1_samples_are_fair_and_independent():
    draws = L1Ball(3, 1.0).sample(Source(4), 8000)
    cells = np.bincount((draws > 0) @ [1, 2, 4], minlength=8)
    assert np.sum((cells - 1000.0) ** 2 / 1000) < stats.chi2.isf(1e-9, 7)


@pytest.mark.parametrize("domain", BOUNDED, ids=str)
def test_shapes_follow_the_leading_axes(domain):
    d = domain.dimension
    assert domain.sample(Source(0)).shape == (d,)
    assert domain.sample(Source(0), 3).shape == (3, d)
    assert domain.sample(Source(0), (2, 3)).shape == (2, 3, d)
    batch = np.random.default_rng(0).normal(size=(2, 3, d))
    for method in (domain.project, domain.linear_minimizer):
        together = method(batch)
        assert together.shape == (2, 3, d)
        np.testing.assert_allclose(together[1, 2], method(batch[1, 2]), atol=1e-15)
        assert method(batch[:0]).shape == (0, 3, d)
    assert domain.contains(batch).shape == (2, 3)
    frozen = np.asfortranarray(batch)
    frozen.flags.writeable = False
    np.testing.assert_allclose(domain.project(frozen), domain.project(batch), atol=1e-15)
    assert np.array_equal(frozen, batch)


@pytest.mark.parametrize("domain", ALL, ids=str)
def test_json_round_trip(domain):
    read = from_json(json.loads(json.dumps(domain.to_json(), allow_nan=False)), Domain)
    assert read == domain
    assert read.kind.startswith("domain_")
    assert np.array_equal(read.centre, domain.centre)
    assert hash(read) == hash(domain)


def test_sequences_of_numbers_are_accepted():
    assert Box([0, 0], np.array([1, 2])) == Box((0.0, 0.0), (1.0, 2.0))
    assert L2Ball(2, 1.0, [1, 2]) == L2Ball(2, 1.0, (1.0, 2.0))
    with pytest.raises(ValueError, match="read-only"):
        L2Ball(2, 1.0, (1.0, 2.0)).centre[0] = 5.0


@pytest.mark.parametrize("bad", [0, -1, 1.5, math.nan, None, True])
def test_bad_dimensions_are_refused(bad):
    for make in (WholeSpace, Simplex, lambda d: L1Ball(d, 1.0), lambda d: L2Ball(d, 1.0)):
        with pytest.raises(ValueError, match="whole number"):
            make(bad)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, None, "wide"])
def test_bad_sizes_are_refused(bad):
    for make in (L1Ball, L2Ball):
        with pytest.raises(ValueError, match="norm_bound must be"):
            make(2, bad)


def test_bad_boxes_and_centres_are_refused():
    for lower, upper in (
        ((0.0,), (0.0,)),
        ((0.0,), (math.inf,)),
        ((0.0,), (1.0, 2.0)),
        ((), ()),
        ("ab", "cd"),
    ):
        with pytest.raises(ValueError, match=r"lower|upper"):
            Box(lower, upper)
    with pytest.raises(ValueError, match="finite widths"):
        Box((-1.7e308,), (1.7e308,))
    with pytest.raises(ValueError, match="dimension 2 has 3"):
        L2Ball(2, 1.0, (0.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="finite"):
        L2Ball(1, 1.0, (math.nan,))


@pytest.mark.parametrize("domain", ALL, ids=str)
def test_wrong_points_and_norms_are_said(domain):
    methods = [domain.project, domain.contains]
    if domain in BOUNDED:
        methods.append(domain.linear_minimizer)
    for method in methods:
        with pytest.raises(ValueError, match=f"dimension {domain.dimension} are needed"):
            method(np.zeros(domain.dimension + 1))
        with pytest.raises(ValueError, match="arrays of numbers"):
            method(["Alice"])
        with pytest.raises(ValueError, match="needed"):
            method(1.0)
    for size in (domain.radius, domain.diameter, domain.reach):
        with pytest.raises(ValueError, match="norm must be 1, 2 or infinity"):
            size(3)


def test_a_projection_onto_the_l1_ball_keeps_zeros():
    """Points just outside: rounding made every zero a number of 1e-18, so all columns counted."""
    rng = np.random.default_rng(1)
    for _ in range(500):
        ball, point = L1Ball(40, 0.01), np.zeros(40)
        point[:3] = ball.project(np.append(rng.normal(size=3), np.zeros(37)))[:3] * (1 + 2.0**-50)
        nearest = ball.project(point)
        assert not nearest[3:].any()
        assert ball.contains(nearest)
