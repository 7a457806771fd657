"""Clipped means: their events, the laws of their batches, their noise, and what they refuse."""

import math

import numpy as np
import pytest

from dpfit.core import Minimize
from dpfit.core.mechanism import Run
from dpfit.data.dataset import InMemory
from dpfit.data.view import View
from dpfit.geometry import L2Ball
from dpfit.losses import Bounds, LinearLoss, Logistic
from dpfit.mechanisms.aggregates.clipped_mean import ClippedMean
from dpfit.mechanisms.aggregates.contribution import Gradient
from dpfit.mechanisms.aggregates.sampling import FixedSize, FullBatch, Poisson, SinglePass
from dpfit.mechanisms.aggregates.schedule import Schedule
from dpfit.noise import Source
from dpfit.privacy.event import Gaussian, Parallel, Repeated, Sampled
from dpfit.privacy.spec import Spec, from_json

N = 12
CALL = Gaussian(2.0)


def view(relation, seed=1, n=N):
    return View(
        InMemory(np.arange(1.0, n + 1)[:, None], np.zeros(n)), relation, "record", Source(seed)
    )


def rows(data):
    return sorted(data.whole.rows[:, 0].tolist())


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_events_are_those_of_the_accountant(relation):
    half = 0.5 if relation == "replace" else 1.0
    assert ClippedMean(N, 2.0, 7, relation).event == CALL
    assert ClippedMean(N, 2.0, 7, relation, Poisson(0.25)).event == Repeated(
        Sampled(CALL, 0.25, zero_out=half), 7
    )
    assert ClippedMean(N, 2.0, 3, relation, SinglePass()).event == Parallel((CALL,) * 3, "index")


def test_samples_of_fixed_size_are_for_replaced_records():
    fixed = ClippedMean(N, 2.0, 7, "replace", FixedSize(3))
    assert fixed.event == Repeated(Sampled(CALL, 0.25, "without_replacement", 0.5), 7)
    with pytest.raises(ValueError, match="relation='replace'"):
        ClippedMean(N, 2.0, 7, "add_remove", FixedSize(3))
    with pytest.raises(ValueError, match="at most n = 12"):
        ClippedMean(N, 2.0, 7, "replace", FixedSize(13))


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_a_poisson_batch_has_each_record_with_its_probability(relation):
    data, sizes, first = view(relation), [], 0
    for index in range(4000):
        batch = rows(Poisson(0.25).take(data, index, 4000))
        sizes.append(len(batch))
        first += 1.0 in batch
    assert first / 4000 == pytest.approx(0.25, abs=6 * math.sqrt(0.25 * 0.75 / 4000))
    assert np.var(sizes) == pytest.approx(N * 0.25 * 0.75, rel=0.15)


def test_a_fixed_batch_has_its_size_and_is_uniform():
    data, pairs = view("replace"), {}
    for index in range(4000):
        batch = tuple(rows(FixedSize(2).take(data, index, 4000)))
        assert len(batch) == 2
        pairs[batch] = pairs.get(batch, 0) + 1
    assert len(pairs) == math.comb(N, 2)
    assert max(pairs.values()) < 4000 / 66 + 6 * math.sqrt(4000 / 66)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_a_single_pass_sees_each_record_once(relation):
    data = view(relation, seed=3)
    batches = [rows(SinglePass().take(data, index, 4)) for index in range(4)]
    assert sorted(row for batch in batches for row in batch) == list(range(1, N + 1))
    if relation == "replace":
        assert [len(batch) for batch in batches] == [3, 3, 3, 3]


def linear(n=N, bound=100.0):
    problem = Minimize(n=n, loss=LinearLoss(), bounds=Bounds(bound), n_features=1)
    return Gradient(problem, np.zeros(1), 1.0)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize(
    "sampling", [FullBatch(), Poisson(0.5), SinglePass()], ids=lambda s: s.kind
)
def test_answers_have_the_declared_noise(sampling, relation):
    """Records of zeros: what is left is the noise, over the public number of records."""
    rounds = 4000
    aggregate = ClippedMean(N, 0.5, rounds, relation, sampling)
    data, run = (
        View(InMemory(np.zeros((N, 1)), np.zeros(N)), relation, "record", Source(5)),
        Run(Source(6)),
    )
    state, answers = aggregate.init(data, run), []
    for _ in range(rounds):
        state, answer = aggregate.step(state, linear(), data, run)
        answers.append(answer[0])
    moved = 2.0 if relation == "replace" else 1.0
    call, divisor = {
        "full_batch": (0.5 * math.sqrt(rounds), N),
        "poisson_sampling": (0.5, N / 2),
        "single_pass": (0.5, N / rounds),
    }[sampling.kind]
    # Six standard errors of a deviation are 7%.
    assert np.std(answers) == pytest.approx(moved * call / divisor, rel=0.07)


def test_under_sampling_a_replaced_record_is_charged_twice_its_bound():
    """A loss whose records differ by less than twice the clip: one may still leave the batch."""
    problem = Minimize(
        n=N, loss=Logistic(), bounds=Bounds(1.0), n_features=1, domain=L2Ball(1, 0.1)
    )
    asked = Gradient(problem, np.zeros(1), 1.0)
    whole, sampled = (
        ClippedMean(N, 1.0, 3, "replace", sampling) for sampling in (FullBatch(), Poisson(0.5))
    )
    assert whole.scale(asked)[1] < 1.2
    assert sampled.scale(asked)[1] >= 2.0


def test_scales_are_kept_by_what_they_depend_on():
    aggregate = ClippedMean(N, 1.0, 3, "add_remove")
    one, two = (
        aggregate.scale(Gradient(linear().problem, np.zeros(1), clip)) for clip in (1.0, 4.0)
    )
    assert two[1] == pytest.approx(4 * one[1])
    assert aggregate.scale(linear()) == one


def test_a_batch_without_records_is_answered():
    data = View(InMemory(np.zeros((0, 1)), np.zeros(0)), "add_remove", "record", Source(1))
    aggregate = ClippedMean(N, 1.0, 2, "add_remove", Poisson(0.5))
    _, answer = aggregate.step(aggregate.init(data, Run(Source(2))), linear(), data, Run(Source(2)))
    assert np.isfinite(answer).all()


def test_invalid_arguments_raise_with_a_hint():
    with pytest.raises(ValueError, match="to_user"):
        ClippedMean(N, 1.0, 2, "replace", per="group")
    with pytest.raises(ValueError, match="FullBatch"):
        ClippedMean(N, 1.0, 2, "replace", Poisson(0.5), schedule=Schedule(2))
    with pytest.raises(ValueError, match=r"2\*\*-50"):
        Poisson(2.0**-60)
    with pytest.raises(ValueError, match="relation"):
        ClippedMean(N, 1.0, 2, "swap")


def test_specs_come_back():
    schedule = Schedule(9, 0.5, 0.6, noise_decay=0.3)
    for spec in (
        ClippedMean(N, 1.0, 9, "replace", schedule=schedule),
        ClippedMean(N, 1.0, 9, "replace", FixedSize(2)),
    ):
        assert from_json(spec.to_json(), Spec) == spec


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("growth", [0.0, 0.01])
def test_one_direction_has_the_influence_that_it_has_among_others(momentum, growth):
    """Bit for bit: the noise of each step depends on it."""
    schedule, decay = Schedule(50, momentum, growth=growth), np.array([0.0, 0.3, 7.0, 1e4])
    together = schedule.influence(decay)
    assert together.shape == (50, 4)
    for column, each in enumerate(decay):
        assert np.array_equal(schedule.influence(np.array([each]))[:, 0], together[:, column])
