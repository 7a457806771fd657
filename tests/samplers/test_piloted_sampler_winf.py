"""Whatever the pilot chooses, the chain ends within the distance that was asked for."""

import math

import numpy as np
import pytest
from grids import cells, masses, proximal_kernel, quantile_distance
from scipy.stats import kstest

from dpfit.core import Minimize
from dpfit.data.dataset import InMemory
from dpfit.geometry import L2Ball
from dpfit.losses import Absolute, Bounds
from dpfit.noise import Source
from dpfit.samplers import piloted_sampler_winf as module
from dpfit.samplers.exact_gibbs_rejection import GibbsRejection
from dpfit.samplers.exact_rgo import Seen
from dpfit.samplers.piloted_sampler_winf import ACCEPTANCE, PilotedSampler
from dpfit.samplers.potential import Potential

CELLS = 300


def corners(random):
    """A sum of corners on [-1, 1] with a ridge whose centre may be outside; and its potential."""
    m, c = 10 ** random.uniform(0, 1), random.uniform(-2, 2)
    places, weights = random.uniform(-1, 1, 4), 10 ** random.uniform(-1, 1, 4)

    def convex(x):
        apart = x - places
        return np.abs(apart) @ weights, (np.sign(apart) @ weights)[:, None]

    return Potential(L2Ball(1, 1.0), m, np.array([c]), convex)


def flat(strength, radius, d=1, centre=0.0):
    return Potential(
        L2Ball(d, radius),
        strength,
        np.full(d, centre),
        lambda x: (np.zeros(len(x)), np.zeros_like(x)),
    )


def grid_law(target, x, eta, start, steps):
    """The exact law of a chain on the grid, and the target's."""
    U = target.energy(x[:, None])[0]
    law = np.zeros(len(x))
    law[np.argmin(np.abs(x - start))] = 1.0
    return law @ np.linalg.matrix_power(proximal_kernel(x, U, eta), steps), masses(U)


def test_w_infinity_for_every_step_and_start_the_pilot_can_choose():
    """Exact grid laws: extreme steps and starts, and what real pilots chose."""
    random, (x, width) = np.random.default_rng(36), cells(-1.0, 1.0, CELLS)
    closest = 0.0
    for seed in range(10):
        target = corners(random)
        sampler = PilotedSampler(0.1, least_step=10 ** random.uniform(-2.5, -1))
        longest = sampler.longest_step(target.strength)
        middle = math.sqrt(longest * sampler.least_step)
        chosen = [
            (eta, start) for eta in (sampler.least_step, middle, longest) for start in (-1, 1)
        ]
        chosen.append(tuple(float(np.squeeze(v)) for v in sampler._pilot(target, Source(seed))))
        for eta, start in chosen:
            assert sampler.least_step * (1 - 1e-9) <= eta <= longest * (1 + 1e-9)
            steps = sampler.chain(target.strength, 1.0 + abs(start), eta).steps
            law, pi = grid_law(target, x, eta, start, steps)
            apart = quantile_distance(law, pi, x)
            assert apart <= sampler.distance + 2 * width
            closest = max(closest, apart)
    assert closest > 0.02  # the bound is not idle


def test_a_tenth_fewer_steps_would_not_do():
    """Flat f: the mean's offset is (1 + eta m)^-T, and reaches half of the distance."""
    sampler, m, eta = PilotedSampler(1e-4, 0.01), 2.0, 0.05
    steps = sampler.chain(m, 20.0, eta).steps
    left = 20.0 * (1 + eta * m) ** -np.array([steps, math.floor(0.9 * steps)])
    assert left[0] <= 0.9 * sampler.distance < sampler.distance < left[1]


def test_inner_chains_add_a_tenth_of_the_distance():
    """Displacements of one direction add up to that of one step over 1 - 1 / (1 + eta m)."""
    sampler = PilotedSampler(1e-3, 0.01)
    for m, eta in ((2.0, 0.01), (2.0, 0.3), (40.0, 0.5)):
        inner = sampler.inner_chain(m, 2.0, eta)
        once, away = inner.certificate.distance, 0.0
        for _ in range(5000):
            away = away / (1 + eta * m) + once
        outer = sampler.chain(m, 2.0, eta).certificate.distance
        assert away <= 0.1 * sampler.distance
        assert outer <= 0.9 * sampler.distance
        # One step less in either chain, and the sum could be above the distance.
        assert away * (1 + 0.01 * (m + 1 / eta)) > 0.1 * sampler.distance * (1 - 1e-6)
        assert outer * (1 + eta * m) > 0.9 * sampler.distance * (1 - 1e-6)


def test_w_infinity_if_inner_chains_make_all_draws():
    """Exact grid laws of a chain whose oracle is an inner chain from the worst point."""
    random, (x, width) = np.random.default_rng(37), cells(-1.0, 1.0, 120)
    for _ in range(3):
        target = corners(random)
        sampler, eta, U = PilotedSampler(0.15, 0.05), 0.3, target.energy(x[:, None])[0]
        inner = sampler.inner_chain(target.strength, 2.0, eta)
        y = np.linspace(-5.0, 5.0, 101)
        forward = np.exp(-((x[:, None] - y) ** 2) / (2 * eta))
        forward /= forward.sum(axis=1, keepdims=True)
        back = []
        for place in y:
            kernel = proximal_kernel(x, U + (x - place) ** 2 / (2 * eta), inner.step_size, 150)
            start = np.zeros(len(x))
            start[0 if place > 0 else -1] = 1.0
            back.append(start @ np.linalg.matrix_power(kernel, inner.steps))
        steps = sampler.chain(target.strength, 2.0, eta).steps
        law = np.eye(len(x))[0] @ np.linalg.matrix_power(forward @ np.array(back), steps)
        assert quantile_distance(law, masses(U), x) <= sampler.distance + 2 * width


def test_a_draw_takes_the_steps_of_its_certificate(monkeypatch):
    """Flat f, a start 0.5 off the centre: nine tenths of the distance after so many steps."""
    m, eta, distance, taken = 2.0, 0.05, 1e-4, []
    steps = math.ceil(math.log(1.5 / (0.9 * distance)) / math.log1p(eta * m))
    plain = PilotedSampler._step
    monkeypatch.setattr(PilotedSampler, "_pilot", lambda *_: (eta, np.array([0.5])))
    monkeypatch.setattr(
        PilotedSampler, "_step", lambda *given: taken.append(given[3]) or plain(*given)
    )
    PilotedSampler(distance, 0.01).draw(flat(m, 1.0), 1, Source(1))
    assert taken == [eta] * steps


def test_a_step_adds_noise_of_its_size_before_the_oracle():
    """The pull is (m centre + y / eta) / (m + 1 / eta), y normal around the state."""
    m, eta, k = 2.0, 0.3, 20_000
    target = flat(m, 1.0, d=3, centre=0.4)
    state = Seen.of(target, np.full((k, 3), 0.2))
    oracle = module._oracle(state, target, eta, Source(3))
    precision = m + 1 / eta
    assert oracle.precision == pytest.approx(precision)
    y = (oracle.pull * precision - m * 0.4) * eta
    # A standard error of the deviation is 0.3% of it.
    assert y.std() == pytest.approx(math.sqrt(eta), rel=0.02)
    assert y.mean() == pytest.approx(0.2, abs=6 * math.sqrt(eta / (3 * k)))


def test_most_trials_are_those_of_the_shortest_step_without_inner_chains():
    sampler, m = PilotedSampler(1e-4, 0.01), 2.0
    steps = math.ceil(math.log(2.0 / 0.9e-4) / math.log1p(0.02))
    assert sampler.most_trials(m, 1.0, 0.0) == 200 * steps
    # The longest step divides distances by 21.
    assert 1 + m * sampler.longest_step(m) == pytest.approx(21)


def test_inner_chains_are_for_the_oracle_of_the_step_on_the_whole_domain(monkeypatch):
    """Without an accepted trial: precision m + 1 / eta, from the centre, as far as the diameter."""
    made, plain = [], PilotedSampler.inner_chain
    monkeypatch.setattr(
        PilotedSampler, "inner_chain", lambda *given: made.append(plain(*given)) or made[-1]
    )
    monkeypatch.setattr(
        module.TangentRejection, "attempt", lambda self, *_: (self.seen, np.array([False]))
    )
    target = flat(2.0, 1.5)
    state = Seen.of(target, np.zeros((1, 1)))
    drawn = PilotedSampler(1e-2, 0.2)._step(state, target, 0.3, Source(1))
    assert [(c.radius, c.step_size) for c in made] == [(3.0, 0.2)]
    assert made[0].strong_convexity == pytest.approx(2.0 + 1 / 0.3)
    assert np.abs(drawn.point).max() <= 1.5


def test_the_pilot_finds_the_step_of_an_exact_acceptance(monkeypatch):
    """A proposal of step eta is accepted with probability 1 / (1 + eta): 0.35 at 13 / 7."""

    class Oracle:
        def __init__(self, state, target, step_size, source):
            self.gap = math.log1p(step_size)

        def improve(self):
            pass

        def propose(self, number, source):
            zeros = np.zeros((number, 1))
            return Seen(zeros, zeros[:, 0], zeros), np.full((1, number), self.gap)

    monkeypatch.setattr(module, "_oracle", Oracle)
    eta, _ = PilotedSampler(1e-4, 1e-3)._pilot(flat(1.0, 1.0), Source(1))
    assert eta == pytest.approx(13 / 7, rel=1e-3)


def in_three_dimensions():
    slope = np.array([4.0, -2.0, 1.0])

    def convex(x):
        return x @ slope + 3 * np.abs(x[:, 1]), slope + 3 * np.sign(x[:, 1:2]) * np.eye(3)[1]

    return Potential(L2Ball(3, 1.0), 2.0, np.zeros(3), convex), slope


def pilots():
    """What a pilot could end with: its own choice, or extremes far off."""
    far = np.array([0.0, 0.99, 0.0])
    return {"own": None, "short": (0.02, far), "long": (1.0, -far)}


@pytest.mark.parametrize("choice", sorted(pilots()))
def test_the_law_is_the_target_whatever_the_pilot_chose(monkeypatch, choice):
    if pilots()[choice] is not None:
        monkeypatch.setattr(PilotedSampler, "_pilot", lambda *_: pilots()[choice])
    check_law(2000)


@pytest.mark.slow
def test_the_law_is_the_target_where_inner_chains_draw(monkeypatch):
    """Without patience: all draws whose first proposal is rejected."""
    monkeypatch.setattr(module, "PATIENCE", 1)
    monkeypatch.setattr(PilotedSampler, "_pilot", lambda *_: (0.5, np.array([0.0, 0.99, 0.0])))
    check_law(60)


def check_law(draws):
    target, slope = in_three_dimensions()
    drawn = PilotedSampler(3e-2, 0.05).draw(target, draws, Source(7))
    exact = GibbsRejection().draw(target, 20_000, Source(8))
    for along in (slope, np.eye(3)[1]):
        assert kstest(drawn @ along, exact @ along).pvalue > 1e-6


def absolute(n, spread, seed=1):
    """A target of absolute losses; with no spread all corners meet."""
    random = np.random.default_rng(seed)
    rows = np.tile([0.8, 0.6], (n, 1)) if not spread else random.normal(size=(n, 2)) / 2
    labels = spread * random.uniform(-1, 1, n)
    problem = Minimize(
        n=n,
        loss=Absolute(),
        bounds=Bounds(1.0, -1.0, 1.0),
        n_features=2,
        domain=L2Ball(2, 1.0),
        ridge=0.02,
    )
    calls = []

    def counted(points):
        calls.append(len(points))
        return target.convex(points)

    target = Potential.gibbs(problem, InMemory(rows, labels), 0.5)
    return Potential(target.domain, target.strength, target.centre, counted), calls


def test_the_pilot_finds_the_acceptance_it_aims_at():
    target, _ = absolute(1000, 1.0)
    sampler, found = PilotedSampler(1e-6, 1e-6), []
    for seed in range(5):
        source = Source(seed)
        eta, start = sampler._pilot(target, source)
        state = Seen.of(target, start[None])
        for _ in range(40):
            oracle = module._oracle(state, target, eta, source)
            oracle.improve()
            _, gaps = oracle.propose(20, source)
            found.append(np.exp(-gaps).mean())
            state = module.PilotedSampler._step(sampler, state, target, eta, source)
    assert np.mean(found) == pytest.approx(ACCEPTANCE, abs=0.1)


def test_spread_corners_take_far_fewer_passes_than_the_worst_case():
    for n, spread, most in ((1000, 1.0, 3000), (30, 0.0, math.inf)):
        target, calls = absolute(n, spread)
        sampler = PilotedSampler(1e-3, 1.46**2 * math.pi / 2 / (0.5 * n) ** 2)
        sampler.draw(target, 1, Source(3))
        assert sum(calls) < most
        assert sum(calls) < sampler.most_trials(target.strength, 1.0, 7.0)


def test_progress_says_nothing_about_the_data():
    told = []
    for spread in (1.0, 0.0):
        target, _ = absolute(30, spread)
        told.append([])
        PilotedSampler(1e-3, 0.01).draw(target, 1, Source(4), told[-1].append)
    assert told[0] == told[1] == pytest.approx(np.arange(1, 101) / 100)


def test_values_that_are_no_numbers_do_not_stop_the_pilot():
    broken = flat(1.0, 1.0)
    broken = Potential(
        broken.domain,
        1.0,
        broken.centre,
        lambda x: (np.where(x[:, 0] > 0, np.nan, 0.0), np.zeros_like(x)),
    )
    eta, start = PilotedSampler(1e-3, 0.01)._pilot(broken, Source(5))
    assert math.isfinite(eta)
    assert np.isfinite(start).all()


def test_invalid_numbers_are_refused():
    for wrong in ((0.0, 1.0), (1.0, 0.0), (math.inf, 1.0)):
        with pytest.raises(ValueError, match=r"distance|least_step"):
            PilotedSampler(*wrong)
