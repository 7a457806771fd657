"""Bounds about Gibbs laws, distances, closeness and hard instances, against exact laws."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from dpfit.geometry import L2Ball
from dpfit.noise import Source
from dpfit.privacy import gaussian, renyi
from dpfit.samplers.potential import Potential
from dpfit.samplers.ula_sampler import LangevinSampler
from dpfit.theory import closeness, distances, gibbs, hard_instances
from dpfit.theory.rates import StronglyConvexRates


def laws(count, seed=0):
    """Random m-strongly convex potentials with corners on [-1, 1], as (x, masses, potential, m)."""
    random = np.random.default_rng(seed)
    x = np.linspace(-1, 1, 4001)
    for _ in range(count):
        m = 10 ** random.uniform(-1, 3)
        kinks, slopes = random.uniform(-1, 1, 4), random.uniform(0, 20, 4)
        potential = m / 2 * (x - random.uniform(-1.5, 1.5)) ** 2 + (
            slopes * np.abs(x[:, None] - kinks)
        ).sum(axis=1)
        weights = np.exp(-(potential - potential.min()))
        yield x, weights / weights.sum(), potential, m


class TestGibbs:
    def test_excess_and_its_quantiles(self):
        for _, law, potential, _ in laws(40):
            above = potential - potential.min()
            assert law @ above <= gibbs.expected_excess(1, 1.0)
            for tail in (0.5, 0.1, 1e-3):
                assert law[above > gibbs.excess_quantile(1, 1.0, tail)].sum() <= tail

    def test_the_excess_of_a_norm_and_of_a_quadratic(self):
        """exp(-t norm(x)) has norm of law Gamma(d) / t: equality; a quadratic has half of it."""
        assert gibbs.excess_quantile(7, 3.0, 0.2) == pytest.approx(stats.gamma(7).isf(0.2) / 3)
        x = np.linspace(-5, 5, 10_001)
        law = np.exp(-9 * x**2 / 2)
        assert (law / law.sum()) @ (x**2 / 2) == pytest.approx(gibbs.expected_excess(1, 9.0) / 2)

    def test_distances_and_tails(self):
        for x, law, potential, m in laws(40, seed=1):
            mode = x[np.argmin(potential)]
            for tail in (0.5, 0.05):
                assert (
                    law[np.abs(x - mode) > gibbs.distance_quantile(1, m, tail) + 1e-3].sum() <= tail
                )
            mean = law @ x
            assert abs(mean - mode) <= gibbs.mean_to_mode(1, m) + 1e-3
            for distance in (0.5 / math.sqrt(m), 2 / math.sqrt(m)):
                assert law[x - mean > distance].sum() <= gibbs.lipschitz_tail(1.0, m, distance)

    def test_one_sided_normal_coordinates_break_the_printed_mean_to_mode_bound(self):
        """x^2 / 2 above zero, 100 x^2 / 2 below: each mean is 0.718 from its mode."""
        x = np.linspace(-2, 10, 200_001)
        law = np.exp(-np.where(x > 0, 1.0, 100.0) * x**2 / 2)
        mean = float(law @ x / law.sum())
        assert mean == pytest.approx(0.718, abs=1e-3)
        for d in (6, 50):
            assert mean * math.sqrt(d) > math.sqrt(3)
            assert mean * math.sqrt(d) <= gibbs.mean_to_mode(d, 1.0)

    def test_stability_in_w_infinity_is_attained_and_never_exceeded(self):
        random = np.random.default_rng(2)
        for x, law, potential, m in laws(40, seed=3):
            slope = random.uniform(-5, 5)
            other = np.exp(-(potential + slope * x - (potential + slope * x).min()))
            apart = distances.quantile_distance(x, law, other / other.sum(), ignored=1e-9)
            assert apart <= gibbs.sample_stability(abs(slope), m) + 2 * (x[1] - x[0])
        x = np.linspace(-3, 3, 6001)
        one, two = (np.exp(-50 * (x - shift) ** 2 / 2) for shift in (0.0, 0.1))
        exact = distances.quantile_distance(x, one, two, ignored=1e-9)
        assert exact == pytest.approx(gibbs.sample_stability(5.0, 50.0), abs=2e-3)
        assert gibbs.generalization_gap(3.0, 5.0, 50.0) == pytest.approx(0.3)

    def test_gamma_tails(self):
        for shape in (1.0, 2.5, 20.0):
            for above in (0.5, 5.0, 40.0):
                # Moments of a gamma law beyond a point are tails of the laws with larger shapes.
                tails = [stats.gamma(shape + k).sf(above) for k in range(3)]
                first, second = gibbs.gamma_tail_moments(shape, 1.0, above)
                assert shape * tails[1] / tails[0] <= first * (1 + 1e-9)
                assert shape * (shape + 1) * tails[2] / tails[0] <= second * (1 + 1e-9)

    def test_the_least_density(self):
        for x, law, potential, _ in laws(20, seed=4):
            middle = np.argmax(law)
            least = math.log(law[middle] / (x[1] - x[0])) - (potential.max() - potential[middle])
            assert least >= gibbs.log_least_density(1, np.ptp(potential), 1.0) - 1e-3
        assert math.exp(gibbs.log_least_density(3, 0.0, 2.0)) == pytest.approx(
            3 / (4 * math.pi * 8)
        )
        assert math.isfinite(gibbs.log_least_density(500, 2.4e6, 1.0))

    def test_total_variation_to_w_infinity(self):
        """Mass moved between an interval's ends, as allowed, and 10% more in distance."""
        x = (np.arange(2000) + 0.5) / 1000 - 1
        law = np.full(2000, 1 / 2000)
        floor = gibbs.log_least_density(1, 0.0, 1.0)
        for distance in (0.05, 0.3):
            xi = math.exp(gibbs.log_variation_for_distance(1, floor, distance))
            assert xi == pytest.approx(0.5 * math.sqrt(math.pi) / (4 * math.gamma(1.5)) * distance)
            moved, cells = law.copy(), round(xi * 2000)
            moved[:cells] -= law[0]
            moved[-cells:] += law[0]
            assert distances.quantile_distance(x, law, moved) <= distance
            assert gibbs.distance_from_variation(1, floor, xi) == pytest.approx(distance)
        in_l1 = gibbs.log_variation_for_distance(5, -3.0, 0.1, norm=1)
        assert in_l1 == pytest.approx(
            gibbs.log_variation_for_distance(5, -3.0, 0.1) - 2.5 * math.log(5)
        )


class TestDistances:
    def test_shifts_and_far_atoms(self):
        x = np.arange(10.0)
        p = np.array([0, 1, 2, 3, 0, 0, 0, 0, 0, 0.0])
        assert distances.quantile_distance(x, p, np.roll(p, 3)) == 3.0
        far = p / p.sum()
        far[1] -= 1e-6
        far[9] += 1e-6
        assert distances.quantile_distance(x, p, far) == 6.0

    def test_matching_agrees_with_quantiles_on_the_line(self):
        random = np.random.default_rng(5)
        one, two = random.normal(size=40), random.normal(1.0, 2.0, size=40)
        exact = np.abs(np.sort(one) - np.sort(two)).max()
        assert distances.bottleneck_distance(one[:, None], two[:, None]) == pytest.approx(exact)

    def test_matching_in_the_plane(self):
        random = np.random.default_rng(6)
        points = random.normal(size=(30, 2))
        shift = np.array([0.03, 0.04])
        moved = distances.bottleneck_distance(points, random.permutation(points + shift))
        assert 0 < moved <= 0.05 * (1 + 1e-9)
        assert distances.bottleneck_distance(points, 3 + points) == pytest.approx(
            3 * math.sqrt(2), rel=0.3
        )


class TestCloseness:
    def test_normal_laws_in_a_row(self):
        """P, R, R', P' at 0, a, a + e, 2 a + e: exact delta of P, P' is at most the chain's."""
        a, e = 0.1, 0.4
        for level in (0.1, 0.3):
            close, ideal = ((level, float(gaussian.delta(s, level))) for s in (a, e))
            epsilon, delta = closeness.sampler_privacy(ideal, close)
            assert float(gaussian.delta(2 * a + e, epsilon)) <= delta
            assert delta >= close[1] + ideal[1] + close[1]

    def test_two_points_attain_the_triangle(self):
        """Binary laws chosen so that each inequality is an equality on one set."""
        (e1, d1), (e2, d2) = (0.5, 0.01), (0.3, 0.02)
        r = 0.05
        q = math.exp(e2) * r + d2
        p = math.exp(e1) * q + d1
        epsilon, delta = closeness.hockey_stick_triangle((e1, d1), (e2, d2))
        assert p - math.exp(epsilon) * r <= delta * (1 + 1e-12)
        assert p - math.exp(epsilon) * r == pytest.approx(d1 + math.exp(e1) * d2)

    def test_renyi_chains_of_normal_laws(self):
        for order in (1.5, 4.0, 20.0):
            exact = order * (0.3 + 2 * 0.1) ** 2 / 2
            bounds = [
                closeness.renyi_sampler_privacy(order, 0.3**2 / 2, 0.1**2 / 2, q1=q1, q2=q2)
                for q1 in (1.5, 3.0, 6.0)
                for q2 in (1.1, 1.3, 2.0)
            ]
            assert exact <= min(bounds) <= 3 * exact


class TestHardInstances:
    def test_value_queries(self):
        """Signs from axis queries are wrong with probability Phi(-1/2): above the bound."""
        instance = hard_instances.ValueQueries(4, 2.0, 3.0, 40)
        assert instance.dimension * (instance.drift**2 + instance.deviation**2) == pytest.approx(
            9.0
        )
        wrong = ndtr(-instance.drift / instance.deviation * math.sqrt(40 / 4))
        assert wrong == pytest.approx(ndtr(-0.5))
        signs = np.ones(4)
        points = -np.array([[1, 1, 1, 1], [1, 1, 1, -1]]) / 2
        none, one = instance.excess(signs, points)
        assert none == pytest.approx(0.0, abs=1e-12)
        assert one * 4 * wrong == pytest.approx(0.3085 * 16 * instance.lower_bound, rel=1e-3)
        assert one * 4 * wrong > instance.lower_bound
        normals = np.random.default_rng(7).normal(size=(20_000, 4))
        drawn = instance.losses(signs, normals)
        assert np.mean(np.sum(drawn**2, axis=1)) == pytest.approx(9.0, rel=0.05)

    def test_packings(self):
        random = np.random.default_rng(8)
        disc = random.uniform(-1, 1, size=(4000, 2))
        disc = disc[np.linalg.norm(disc, axis=1) <= 1]
        packing = hard_instances.Packing(hard_instances.greedy_packing(disc, 0.4), 0.4)
        centres = packing.centres
        assert (1 / 0.4) ** 2 <= len(centres) <= (3 / 0.4) ** 2
        assert np.all(
            np.linalg.norm(centres[:, None] - centres, axis=2) + 9 * np.eye(len(centres)) >= 0.4
        )
        bits = packing.bits(
            random.uniform(size=len(centres)), random.uniform(size=(200, len(centres)))
        )
        points = disc[:200]
        values = np.array([packing.values(p, bits) for p in points])
        slopes = np.abs(values[1:] - values[:-1]).max(axis=1) / np.linalg.norm(
            np.diff(points, axis=0), axis=1
        )
        assert slopes.max() <= packing.lipschitz * (1 + 1e-9)
        # A centre is worth its share of ones, and no other point more than the best of them.
        at_centres = np.array([packing.values(c, bits).mean() for c in centres])
        assert at_centres == pytest.approx(-bits.mean(axis=0))
        assert values.mean(axis=1).min() >= at_centres.min() - 1e-12
        assert bits.mean(axis=0).max() >= 0.5
        assert packing.chosen(centres[3] + 0.01) == 3

    def test_a_stalled_diffusion(self):
        moved = math.sqrt(2 / 5000) * np.linalg.norm(
            np.random.default_rng(9).normal(size=(2000, 50)), axis=1
        )
        assert moved.max() <= hard_instances.stalled_displacement(50, 1 / 5000) < 1 / 3
        assert np.median(moved) > 0.4 * hard_instances.stalled_displacement(50, 1 / 5000)

    @pytest.mark.parametrize("d", [1, 7, 50])
    def test_the_reach_of_a_stalled_diffusion_is_that_of_concentration(self, d):
        """The path is sqrt(2 time) Z, and P(norm(Z) > sqrt(d) + s) <= exp(-s^2 / 2)."""
        time = 0.03
        reach = hard_instances.stalled_displacement(d, time) / math.sqrt(2 * time)
        assert -((reach - math.sqrt(d)) ** 2) / 2 == pytest.approx(-d / 2)
        assert stats.chi(d).sf(reach) <= math.exp(-d / 2)


def test_a_stalled_diffusion_ends_near_its_start_and_far_from_its_gibbs_density():
    """Free paths have squared length of mean 2 T p."""
    p, time, steps = 50, 1 / 5000, 100

    def steep(x):
        norms = np.linalg.norm(x, axis=1, keepdims=True)
        return norms[:, 0] / math.sqrt(time), x / norms / math.sqrt(time)

    target = Potential(L2Ball(p, 1.0), 1e-9, np.zeros(p), steep)
    start = np.eye(p)[:1].repeat(400, axis=0)
    chain, ends, source = LangevinSampler(steps, time / steps), start, Source(1)
    for _ in range(steps):
        ends = chain.step(ends, target, source)
    moved = np.linalg.norm(ends - start, axis=1)
    assert moved.max() < hard_instances.stalled_displacement(p, time) + math.sqrt(time) < 1 / 3
    assert np.mean(moved**2) == pytest.approx(2 * time * p, rel=0.1)
    # Gibbs samples: a Gamma radius within the ball, and any direction.
    radii = np.minimum(stats.gamma(p, scale=math.sqrt(time)).rvs(400, random_state=2), 1.0)
    turns = np.random.default_rng(3).normal(size=(400, p))
    gibbs_sample = radii[:, None] * turns / np.linalg.norm(turns, axis=1, keepdims=True)
    assert np.linalg.norm(gibbs_sample - start, axis=1).min() > 0.6


def test_the_lower_bound_of_samplers_grows_like_the_condition_over_its_logarithm():
    """As 1 + log(ratio) / d divides the ratio, in one dimension and in many."""
    assert hard_instances.sampling_lower_bound(10.0, 2.0, 1) == pytest.approx(
        50 / (1 + math.log(50))
    )
    assert hard_instances.sampling_lower_bound(10.0, 2.0, 10**6) == pytest.approx(50, rel=1e-5)


def test_the_weak_triangle_inequality_is_attained_by_shifted_gaussians():
    """Shifts a and b, at the q with (q order - 1) / (order - 1) = 1 + b / a."""
    order, a, b = 3.0, 0.4, 0.9
    exact = order * (a + b) ** 2 / 2

    def bound(q):
        second = (q * order - 1) / (q - 1) * b**2 / 2
        return renyi.weak_triangle(order, q, q * order * a**2 / 2, second)

    best = ((order - 1) * (1 + b / a) + 1) / order
    assert bound(best) == pytest.approx(exact)
    assert min(bound(best / 1.1), bound(best * 1.1)) > exact


def test_rates_are_those_of_the_printed_figure():
    rates = StronglyConvexRates(n=10**6, dimension=11, lipschitz=300.0, strong_convexity=4.0)
    assert rates.pure(1.0) == pytest.approx(2.7225)
    assert rates.gdp(1.0) == pytest.approx(0.2475)
    assert rates.approximate(1.0, 1e-8) == pytest.approx(4.559, rel=1e-3)
    assert rates.approximate(1.0, rates.crossover) == pytest.approx(rates.pure(1.0))
