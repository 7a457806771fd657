"""Mechanisms that break their promise, each with the attack that is expected to catch it.

A mechanism here is a sampler: ``many(data, runs, source)`` gives that many independent outputs at
once. Numbers are rounded to a grid of 2**-10 unless floating point is the fault, so that none is
caught by its low bits by accident.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpfit.audit import DEFAULT, Attack, Transcript
from dpfit.audit.outcomes import Raised
from dpfit.noise import Source
from dpfit.privacy import Basis, Guarantee
from dpfit.privacy.event import Event, Gaussian, Laplace, Pure, Sampled


@dataclass(frozen=True)
class Broken:
    """A fixture: the mechanism, a pair of neighbours, the claim, and who refutes it."""

    name: str
    many: Callable[[Any, int, Source], Any]
    data: Any
    neighbour: Any
    event: Event
    caught_by: str
    runs: int = 10_000
    relation: str = "replace"
    attacks: tuple[Attack, ...] = DEFAULT
    unit: str = "record"

    @property
    def promise(self) -> Guarantee:
        return Guarantee(self.event, Basis("as claimed", self.relation, self.unit))

    def sampler(self, data: Any, runs: int, source: Source | None) -> list[Any]:
        return list(self.many(data, runs, source or Source()))


def on_grid(values: np.ndarray) -> np.ndarray:
    return np.rint(values * 1024) / 1024


def half_laplace(data, runs, source):
    """Laplace noise with half the scale that epsilon = 1 needs."""
    return on_grid(data.sum() + 0.5 * source.laplace((runs, 1)))


def printed_noisy_gradient_descent(data, runs, source, steps=8, lipschitz=1.0, mu=1.0):
    """Noisy GD on linear losses with printed variance T L^2 / (2 mu^2): sqrt(2) mu-GDP."""
    sigma = math.sqrt(steps / 2) * lipschitz / mu
    gradients = data.sum() + sigma * source.gaussian((runs, steps))
    return on_grid(-gradients.sum(axis=1, keepdims=True))


def two_tests_joined_by_and(scores, runs, source, epsilon=3.0):
    """The selector with two noisy thresholds (n = G = M = 1): the index spends epsilon twice.

    Rows of ``scores`` are (gradient norm, minus smallest eigenvalue); accepted is the first row
    with both below.
    """
    thresholds = 4 / epsilon * source.laplace((runs, 1, 2))
    noisy = scores[None] + 8 / epsilon * source.laplace((runs, *scores.shape))
    accepted = np.all(noisy <= thresholds, axis=2)
    return [int(row.argmax()) if row.any() else -1 for row in accepted]


def tree_sums_with_a_missing_node(leaves, runs, source, mu=1.0):
    """Prefix sums of 4 leaves; the printed nodes lack t = 4, which gets the noise of t = 3."""
    levels = 3
    nodes = math.sqrt(levels) / mu * source.gaussian((runs, 4))
    one, two, three = nodes[:, 0], nodes[:, 1], nodes[:, 1] + nodes[:, 2]
    noise = np.stack([one, two, three, three], axis=1)
    return on_grid(np.cumsum(leaves) + noise)


def private_batch_size(data, runs, source):
    """A clipped sum with right noise, divided by the number of records: private here."""
    return on_grid((np.clip(data, -1, 1).sum() + source.gaussian((runs, 1))) / max(len(data), 1))


def floating_point_laplace(data, runs, source):
    """The textbook: x + Lap(1) in double precision."""
    return data.sum() + source.laplace((runs, 1))


def frozen_seed(data, runs, source):
    """The right noise, the same in every run: an RNG seed left in the code."""
    return on_grid(data.sum() + np.tile(Source(7).laplace((1, 1)), (runs, 1)))


def last_step_without_noise(data, runs, source):
    """Three noisy answers and one that was forgotten."""
    noise = math.sqrt(4) * source.gaussian((runs, 4))
    noise[:, -1] = 0.0
    return on_grid(data.sum() + noise)


def released_iterates(data, runs, source, steps=8, mu=1.0):
    """Noise for one step, but every one of the iterates is released."""
    return on_grid(np.cumsum(data.sum() + source.gaussian((runs, steps)) / mu, axis=1))


def clipped_after_averaging(data, runs, source, clip=1.0):
    """The mean is clipped, not the records: one huge record moves it by 2 clip, not 2 clip / n."""
    return on_grid(
        np.clip(data.mean(), -clip, clip) + 2 * clip / len(data) * source.gaussian((runs, 1))
    )


def length_of_the_data(data, runs, source):
    """As many noisy numbers as there are positive records."""
    return [on_grid(source.laplace(int(np.sum(data > 0)))) for _ in range(runs)]


def complaining(data, runs, source):
    """Raises when a record is out of range, and says so."""
    if np.any(data > 1):
        return [Raised("ValueError", "a record is out of range")] * runs
    return on_grid(data.sum() + source.laplace((runs, 1)))


def rounded_batch_size(data, runs, source, rate=0.5, dimension=20):
    """A noisy clipped sum in 20 dimensions, divided by the batch size rounded from n."""
    size = max(1, round(rate * len(data)))
    return on_grid((np.clip(data, -1, 1).sum() + source.gaussian((runs, dimension))) / size)


def first_step_without_noise(data, runs, source):
    """Three noisy answers, and the first one that was forgotten."""
    noise = math.sqrt(4) * source.gaussian((runs, 4))
    noise[:, 0] = 0.0
    return on_grid(data.sum() + noise)


def microbatches(data, runs, source, clip=1.0):
    """Clipped means of two records, with noise for the clip: a record moves one by 2 clip."""
    means = np.clip(data.reshape(-1, 2).mean(axis=1), -clip, clip)
    return on_grid(means.sum() + clip * source.gaussian((runs, 1)))


def records_clipped_for_users(data, runs, source, clip=1.0):
    """Records are clipped and get one record's noise; the claim covers a user's records."""
    return on_grid(np.clip(data, -clip, clip).sum() + 2 * clip * source.gaussian((runs, 1)))


def clipped_but_not_checked(data, runs, source):
    """Clipping leaves a record that is not a number as it is."""
    return on_grid(np.clip(data, -1, 1).sum() + 2 * source.gaussian((runs, 1)))


def sampling_not_done(data, runs, source):
    """Accounted for as a sample of a tenth of the records; all of them are used."""
    return on_grid(data.sum() + source.gaussian((runs, 1)))


def threshold_drawn_again(score, runs, source, epsilon=3.0, rounds=100):
    """Above threshold with a fresh threshold in each round: the number of rounds that pass.

    Rounds are independent then, so that this number is geometric.
    """
    b, c = 1 / (0.35 * epsilon), 2 / (0.65 * epsilon)
    halts = (b**2 * math.exp(-score / b) - c**2 * math.exp(-score / c)) / (2 * (b**2 - c**2))
    waiting = np.abs(source.laplace((runs, 1))) / -math.log1p(-halts)
    return np.minimum(np.floor(waiting), rounds)


ZEROS, ONE = np.zeros(4), np.array([1.0, 0.0, 0.0, 0.0])
# Four points at the border of the gradient test, four at that of the other, one that passes neither
# easily.
FAR = -60.0
BORDER = np.array([[4 / 3, FAR]] * 4 + [[FAR, 4 / 3]] * 4 + [[-4 / 3, -4 / 3]])
MOVED = BORDER + np.array([[-2.0, 0.0]] * 4 + [[0.0, -2.0]] * 4 + [[2.0, 2.0]])

FIXTURES = (
    Broken("Laplace with half the scale", half_laplace, ZEROS, ONE, Laplace(1.0), "projection"),
    Broken(
        "printed noisy-GD variance",
        printed_noisy_gradient_descent,
        ZEROS,
        ONE,
        Gaussian(1.0),
        "projection",
    ),
    Broken(
        "two tests joined by AND",
        two_tests_joined_by_and,
        BORDER,
        MOVED,
        Pure(3.0),
        "transcript",
        runs=200_000,
        attacks=(Transcript(),),
    ),
    Broken(
        "a threshold that is drawn again",
        threshold_drawn_again,
        2.57,
        3.57,
        Pure(3.0),
        "transcript",
        runs=200_000,
        attacks=(Transcript(),),
    ),
    Broken(
        "tree sums with a missing node",
        tree_sums_with_a_missing_node,
        np.zeros(4),
        np.array([0.0, 0.0, 0.0, 1.0]),
        Gaussian(1.0),
        "learned (logistic)",
        runs=4000,
    ),
    Broken(
        "normalized by a private batch size",
        private_batch_size,
        np.ones(2),
        np.ones(1),
        Gaussian(1.0),
        "learned (logistic)",
        relation="add_remove",
    ),
    Broken(
        "naive floating-point Laplace", floating_point_laplace, ZEROS, ONE, Laplace(1.0), "low bits"
    ),
    Broken(
        "an RNG seed in the code", frozen_seed, ZEROS, ONE, Laplace(1.0), "projection", runs=500
    ),
    Broken(
        "no noise on the last step",
        last_step_without_noise,
        ZEROS,
        ONE,
        Gaussian(1.0),
        "learned (logistic)",
        2000,
    ),
    Broken(
        "released iterates", released_iterates, ZEROS, ONE, Gaussian(1.0), "projection", runs=4000
    ),
    Broken(
        "clipped after averaging",
        clipped_after_averaging,
        ZEROS,
        1e9 * ONE,
        Gaussian(1.0),
        "projection",
        runs=2000,
    ),
    Broken(
        "lengths that differ",
        length_of_the_data,
        ZEROS + 1,
        ZEROS + 1 - ONE,
        Laplace(1.0),
        "shape or exception",
        500,
    ),
    Broken(
        "raises on one of the pair",
        complaining,
        ZEROS,
        2 * ONE,
        Laplace(1.0),
        "shape or exception",
        runs=500,
    ),
    Broken(
        "batch size rounded from n",
        rounded_batch_size,
        np.zeros(3),
        np.zeros(2),
        Gaussian(1.0),
        "learned (logistic)",
        runs=1000,
        relation="add_remove",
    ),
    Broken(
        "no noise on the first step",
        first_step_without_noise,
        ZEROS,
        ONE,
        Gaussian(1.0),
        "learned (logistic)",
        2000,
    ),
    Broken(
        "microbatches clipped after averaging",
        microbatches,
        np.array([1.0, 1.0, 0.0, 0.0]),
        np.array([1.0, -9.0, 0.0, 0.0]),
        Gaussian(1.0),
        "projection",
        runs=2000,
    ),
    Broken(
        "records clipped, users promised",
        records_clipped_for_users,
        np.zeros((3, 5, 1)),
        np.concatenate([np.zeros((2, 5, 1)), np.ones((1, 5, 1))]),
        Gaussian(1.0),
        "projection",
        runs=1000,
        unit="user",
    ),
    Broken(
        "a record that is not a number",
        clipped_but_not_checked,
        ZEROS,
        np.where(ONE, np.nan, 0.0),
        Gaussian(1.0),
        "transcript",
        runs=500,
    ),
    Broken(
        "sampling accounted for but not done",
        sampling_not_done,
        ZEROS,
        ONE,
        Sampled(Gaussian(1.0), 0.1, zero_out=1.0),
        "projection",
        runs=2000,
    ),
)
