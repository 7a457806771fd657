"""Planted faults of encoders: each is caught by an audit of what the encoder computes.

The audit reads three matrices off a running encoder: what inputs do to releases, what releases do
to estimates, and what inputs do to estimates while the releases are held fixed.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest

from dpfit.mechanisms.aggregates.encoders import Exponentials, Toeplitz, Tree
from dpfit.theory import factorizations as theory

SIZE = 2**38
"""A unit of inputs: fixed-point encoders round to far less."""


def run(encoder, inputs, released=None):
    """Return all releases without noise, and the estimates of the given or of these releases."""
    state, found, estimates, at = encoder.init(1), [], [], 0
    for each in inputs:
        state, exact = encoder.encode(state, np.array([each], dtype=np.int64))
        given = exact / 2.0**encoder.bits
        if released is not None:
            given = released[at : at + len(exact), np.newaxis]
        at += len(exact)
        state, estimate = encoder.decode(state, given)
        found += (exact[:, 0] / 2.0**encoder.bits).tolist()
        estimates.append(float(estimate[0]))
    return np.array(found), np.array(estimates)


def matrices(encoder):
    """Return encoder, decoder and bypass: inputs to estimates at releases of zero."""
    nothing = np.zeros(encoder.rounds, dtype=np.int64)
    count = len(run(encoder, nothing)[0])
    units = SIZE * np.eye(encoder.rounds, dtype=np.int64)
    encoded = np.array([run(encoder, each)[0] for each in units]).T / SIZE
    decoded = np.array([run(encoder, nothing, each)[1] for each in np.eye(count)]).T
    bypass = np.array([run(encoder, each, np.zeros(count))[1] for each in units]).T / SIZE
    return encoded, decoded, bypass


def faults(encoder):
    """Return what is wrong with an encoder as a private running sum of one record."""
    encoded, decoded, bypass = matrices(encoder)
    found = set()
    if np.linalg.norm(encoded, axis=0).max() > encoder.norm(1, 1) * (1 + 1e-6):
        found.add("a record moves the releases further than promised")
    if np.abs(bypass).max() > 1e-9:
        found.add("an estimate has a part without noise")
    if not np.allclose(decoded @ encoded, np.tril(np.ones((encoder.rounds,) * 2)), atol=1e-6):
        found.add("the estimates are not the sums")
    if np.linalg.norm(decoded, axis=1).min() < 1e-9:
        found.add("an estimate has no noise")
    return found


@pytest.mark.parametrize(
    "encoder",
    [Tree(1), Tree(8), Tree(13), Toeplitz(8), Toeplitz(9, 0.4, 3), Exponentials.of(12)],
    ids=repr,
)
def test_the_encoders_have_none_of_the_faults(encoder):
    assert not faults(encoder)


@dataclass(frozen=True)
class FromIndexZero(Tree):
    """Steps count from 0. TREE(0) is the empty sum: the first estimate is released as it is."""

    kind = "test_from_index_zero"

    def encode(self, state, inputs):
        step = state["step"]
        nodes = state["nodes"] + inputs
        if not step:
            return state | {"step": 1, "nodes": nodes, "exact": inputs}, nodes[:0]
        count = theory.ending(step)
        released = nodes[:count].copy()
        nodes[:count] = 0
        return state | {"step": step + 1, "nodes": nodes}, released

    def decode(self, state, released):
        if not len(released):
            return state, state["exact"].astype(float)
        return super().decode(state, released)


@dataclass(frozen=True)
class NoTopLevel(Tree):
    """The largest block has half of the steps: the last sum has the noise of the one before."""

    kind = "test_no_top_level"

    def encode(self, state, inputs):
        state, released = super().encode(state, inputs)
        state = state | {"exact": inputs}
        return state, released[: theory.levels(self.rounds) - 1]

    def decode(self, state, released):
        if state["step"] < self.rounds:
            state, estimate = super().decode(state, released)
            return state | {"estimate": estimate}, estimate
        return state, state["estimate"] + state["exact"]


@dataclass(frozen=True)
class Extended(Toeplitz):
    """It goes on after the horizon for which it was charged."""

    kind = "test_extended"
    charged: int = 8

    def norm(self, times, apart, norm="l2"):
        return Toeplitz(self.charged).norm(times, apart, norm)


@dataclass(frozen=True)
class UsedAgain(Tree):
    """One instance for two periods: at the reset the sum so far is taken out of the same tree."""

    kind = "test_used_again"
    reset: int = 5

    def init(self, dimension):
        return super().init(dimension) | {"sum": np.zeros(dimension, dtype=np.int64)}

    def encode(self, state, inputs):
        resets = state["step"] + 1 == self.reset
        kept = np.zeros_like(inputs) if resets else state["sum"]
        added = inputs - state["sum"] if resets else inputs
        return super().encode(state | {"sum": kept + inputs}, added)


@pytest.mark.parametrize(
    ("faulty", "caught"),
    [
        (FromIndexZero(8), "an estimate has a part without noise"),
        (NoTopLevel(8), "an estimate has a part without noise"),
        (Extended(9), "a record moves the releases further than promised"),
        (UsedAgain(8), "a record moves the releases further than promised"),
    ],
    ids=["index 0", "no top level", "extended", "used again"],
)
def test_a_planted_fault_is_caught(faulty, caught):
    assert caught in faults(faulty)


@pytest.mark.parametrize("rounds", [8, 16])
def test_an_instance_that_is_used_again_loses_2_l_minus_3_of_its_estimates(rounds):
    """Exact losses from the running decoder; a fresh instance loses L."""
    _, decoded, _ = matrices(Tree(rounds))
    inverse, levels = np.linalg.inv(decoded @ decoded.T), theory.levels(rounds)
    step, worst = np.arange(rounds), {"fresh": 0.0, "used again": 0.0}
    for first in step:
        alone = (step >= first).astype(float)
        worst["fresh"] = max(worst["fresh"], float(alone @ inverse @ alone))
    for first, reset in combinations(step, 2):
        taken_out = ((step >= first) & (step < reset)).astype(float)
        worst["used again"] = max(worst["used again"], float(taken_out @ inverse @ taken_out))
    assert worst["fresh"] == pytest.approx(levels, rel=1e-9)
    assert worst["fresh"] <= Tree(rounds).norm(1, 1) ** 2 * (1 + 1e-9)
    assert worst["used again"] == pytest.approx(2 * levels - 3, rel=1e-9)
    assert worst["used again"] > Tree(rounds).norm(1, 1) ** 2
    # The planted instance does this at its reset.
    _, estimates = run(UsedAgain(rounds, reset=5), [0, SIZE] + [0] * (rounds - 2))
    np.testing.assert_allclose(estimates / SIZE, (step >= 1) & (step < 4), atol=1e-9)
