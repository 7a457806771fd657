"""Encoders: what a stream releases at each step, and how running sums follow from the releases.

An encoder is linear in the data and exact: integers in, integers out. Its decoder is public
arithmetic on noisy releases. No noise is ever kept. Proofs: docs/explanation/streams.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfit.core.log import Log
from dpfit.core.mechanism import State
from dpfit.noise.lattice import LIMIT
from dpfit.privacy.spec import Spec
from dpfit.privacy.validate import integer, probability
from dpfit.theory import factorizations as theory

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]


@dataclass(frozen=True)
class Encoder(Spec, ABC):
    """A public linear map of a stream, for a horizon of ``rounds`` steps."""

    rounds: int

    def __post_init__(self) -> None:
        integer("rounds", self.rounds)

    @abstractmethod
    def norm(self, times: int, apart: int, norm: str = "l2") -> float:
        """Return how far one unit moves all releases, if each of its vectors has norm 1.

        A unit is in at most ``times`` steps, at least ``apart`` steps from each other. The number
        is rounded up and leaves out `rounding`.
        """

    @cached_property
    def bits(self) -> int:
        """Releases are integers over 2**bits."""
        return 0

    def rounding(self, dimension: int) -> float:
        """Return how far inexact arithmetic moves two neighbouring streams apart, in l2 steps."""
        return 0.0

    @abstractmethod
    def init(self, dimension: int) -> State:
        """Return the state before the first step."""

    @abstractmethod
    def encode(self, state: State, inputs: Steps) -> tuple[State, Steps]:
        """Add the exact sum of a step; return what is released of it, one row for each vector."""

    @abstractmethod
    def decode(self, state: State, released: Floats) -> tuple[State, Floats]:
        """Return the estimate of the running sum after a noisy release."""

    @abstractmethod
    def deviations(self, weights: Floats) -> Floats:
        """Return the deviation of linear functions of the steps, for noise of deviation 1.

        Each row of ``weights`` is one function: its weights of step 1, step 2, ...
        """

    @abstractmethod
    def window_deviations(self, window: int | None) -> Floats:
        """Return the deviation of the sum of the last ``window`` steps (None: all) at each step."""


@dataclass(frozen=True)
class Toeplitz(Encoder):
    """Coefficients of (1 - x)**-exponent as integers over 2**16, zero from ``length`` on.

    It keeps all inputs of ``length`` steps. Use it for short streams of narrow vectors, and where
    units are in several steps.
    """

    kind = "toeplitz_encoder"
    exponent: float = 0.5
    length: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        probability("exponent", self.exponent)
        if self.length is not None:
            integer("length", self.length)

    @cached_property
    def column(self) -> Steps:
        """The coefficients over 2**16."""
        return _column(self.rounds, self.exponent, self.length or self.rounds)

    @cached_property
    def bits(self) -> int:
        return 16

    def norm(self, times: int, apart: int, norm: str = "l2") -> float:
        _require_l2(self, norm)
        return theory.participation_norm(self.column, times, apart)

    def init(self, dimension: int) -> State:
        return {"inputs": Log(), "increments": Log(), "total": np.zeros(dimension)}

    def encode(self, state: State, inputs: Steps) -> tuple[State, Steps]:
        # The weighted sum of all inputs stays within LIMIT. Clipping expands no distance.
        most = LIMIT // int(self.column.sum())
        bounded = np.clip(inputs, -most, most)
        earlier = self._latest(state["inputs"])
        weights = self.column[1 : len(earlier) + 1][::-1]
        released = self.column[0] * bounded + weights @ earlier
        return state | {"inputs": state["inputs"].extended([bounded])}, released[np.newaxis]

    def decode(self, state: State, released: Floats) -> tuple[State, Floats]:
        earlier = self._latest(state["increments"])
        weights = self.column[1 : len(earlier) + 1][::-1] / theory.UNIT
        increment = released[0] - weights @ earlier
        total = state["total"] + increment
        grown = {"increments": state["increments"].extended([increment]), "total": total}
        return state | grown, total

    def _latest(self, log: Log) -> Any:
        length = self.length or self.rounds
        if not len(log) or length == 1:
            return np.zeros((0, 1), dtype=np.int64)
        return log.arrays(max(0, len(log) - length + 1))

    def deviations(self, weights: Floats) -> Floats:
        return _deviations(self.column / theory.UNIT, weights)

    def window_deviations(self, window: int | None) -> Floats:
        return theory.error_norms(self.column / theory.UNIT, self.rounds, window)


@dataclass(frozen=True)
class Exponentials(Encoder):
    """Coefficients sum_j a_j (1 - q_j)**(k - 1), by recursions with one state for each term.

    It keeps one number for each term and entry, whatever the horizon. Use it for long streams and
    wide vectors. Arithmetic is in fixed point; `rounding` covers it.
    """

    kind = "exponential_encoder"
    weights: tuple[tuple[int, int], ...]
    decays: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.weights) != len(self.decays):
            raise ValueError("weights and decays must be of one number")
        for mantissa, exponent in (*self.weights, *self.decays):
            if not (0 < mantissa < 2**16 and 16 <= exponent <= 62):
                raise ValueError("weights and decays must be m / 2**e, m < 2**16 and 16 <= e <= 62")
        if theory.shortened(self.weights).sum() > 1:
            raise ValueError("weights must add up to at most 1")

    @classmethod
    def of(cls, rounds: int, exponent: float = 0.5, terms: int = 6) -> Exponentials:
        """Return the sum of exponentials nearest to the powers of that exponent."""
        return cls(rounds, *theory.exponentials(rounds, terms, exponent))

    @cached_property
    def column(self) -> Floats:
        """The coefficients."""
        return theory.expanded(self.weights, self.decays, self.rounds)

    def norm(self, times: int, apart: int, norm: str = "l2") -> float:
        _require_l2(self, norm)
        # The factor covers the floating-point coefficients: each has a relative error below 2**-40.
        return theory.participation_norm(self.column, times, apart) * (1 + 2.0**-36)

    @cached_property
    def _amplified(self) -> float:
        """How far rounding down each product by less than 1 moves one entry of a release."""
        weights, decays = theory.shortened(self.weights), theory.shortened(self.decays)
        return float(len(weights) + np.sum(weights / decays))

    @cached_property
    def _weights(self) -> tuple[Steps, Steps]:
        return _columns(self.weights)

    @cached_property
    def _decays(self) -> tuple[Steps, Steps]:
        return _columns(self.decays)

    @cached_property
    def _floats(self) -> tuple[Floats, Floats]:
        kept = 1 - theory.shortened(self.decays)
        return theory.shortened(self.weights), kept[:, np.newaxis]

    @cached_property
    def bits(self) -> int:
        return math.ceil(math.log2(max(1.0, self._amplified * math.sqrt(self.rounds))))

    def rounding(self, dimension: int) -> float:
        return self._amplified * math.sqrt(self.rounds * dimension) * (1 + 2.0**-40)

    def init(self, dimension: int) -> State:
        shape = (len(self.weights), dimension)
        return {
            "sums": np.zeros(shape, dtype=np.int64),
            "decoded": np.zeros(shape),
            "total": np.zeros(dimension),
        }

    def encode(self, state: State, inputs: Steps) -> tuple[State, Steps]:
        most = LIMIT >> self.bits
        added, sums = np.minimum(np.maximum(inputs, -most), most) << self.bits, state["sums"]
        released = added + scaled(sums, *self._weights).sum(axis=0)
        sums = sums + added - scaled(sums, *self._decays)
        bounded = np.minimum(np.maximum(sums, -LIMIT), LIMIT)
        return state | {"sums": bounded}, released[np.newaxis]

    def decode(self, state: State, released: Floats) -> tuple[State, Floats]:
        weights, kept = self._floats
        increment = released[0] - weights @ state["decoded"]
        decoded = kept * state["decoded"] + increment
        total = state["total"] + increment
        return state | {"decoded": decoded, "total": total}, total

    def deviations(self, weights: Floats) -> Floats:
        return _deviations(self.column, weights)

    def window_deviations(self, window: int | None) -> Floats:
        return theory.error_norms(self.column, self.rounds, window)


@dataclass(frozen=True)
class Tree(Encoder):
    """The binary tree: each step releases the sums of the blocks of 2**h steps that end there.

    It is the reference, and serves pure budgets with Laplace noise. Its levels are
    0, .., floor(log2 rounds), steps count from 1, and a tree is used for one stream only.
    """

    kind = "tree_encoder"

    def norm(self, times: int, apart: int, norm: str = "l2") -> float:
        return theory.tree_norm(self.rounds, times, apart, norm)

    def init(self, dimension: int) -> State:
        shape = (theory.levels(self.rounds), dimension)
        return {"step": 0, "nodes": np.zeros(shape, dtype=np.int64), "noisy": np.zeros(shape)}

    def encode(self, state: State, inputs: Steps) -> tuple[State, Steps]:
        most, step = LIMIT // self.rounds, state["step"] + 1
        nodes = state["nodes"] + np.clip(inputs, -most, most)
        count = theory.ending(step)
        released = nodes[:count].copy()
        nodes[:count] = 0
        return state | {"step": step, "nodes": nodes}, released

    def decode(self, state: State, released: Floats) -> tuple[State, Floats]:
        noisy, count = state["noisy"].copy(), len(released)
        noisy[: count - 1], noisy[count - 1] = 0.0, released[-1]
        return state | {"noisy": noisy}, noisy.sum(axis=0)

    def coefficients(self, weights: Floats) -> Floats:
        """Return what linear functions of the steps (rows) take from each node (columns).

        A node of 2**h steps ends at an odd multiple e of 2**h. It is in the running sums of steps e
        to e + 2**h - 1. Their weights add up to that of step e minus that of e + 2**h.
        """
        padded = np.pad(weights, ((0, 0), (1, 2 ** self.rounds.bit_length())))
        parts = []
        for height in range(theory.levels(self.rounds)):
            ends = np.arange(2**height, self.rounds + 1, 2 ** (height + 1))
            parts.append(padded[:, ends] - padded[:, ends + 2**height])
        return np.concatenate(parts, axis=1)

    def deviations(self, weights: Floats) -> Floats:
        return np.asarray(np.linalg.norm(self.coefficients(weights), axis=1))

    def window_deviations(self, window: int | None) -> Floats:
        return np.sqrt(self.window_nodes(window))

    def window_nodes(self, window: int | None) -> Steps:
        """Return how many nodes the sum of the last ``window`` steps (None: all) adds or subtracts.

        It is the difference of two running sums; what they have in common cancels.

        >>> Tree(8).window_nodes(None).tolist(), Tree(8).window_nodes(2).tolist()
        ([1, 1, 2, 1, 2, 2, 3, 1], [1, 1, 3, 2, 4, 1, 3, 3])
        """
        step = np.arange(1, self.rounds + 1)
        if window is None:
            return _ones(step)
        before = np.maximum(step - window, 0)
        # Both sums have the nodes of their common leading bits.
        shared = np.frexp((step ^ before).astype(np.float64))[1]
        return _ones(step) + _ones(before) - 2 * _ones(step >> shared << shared)


def _ones(numbers: Steps) -> Steps:
    """Return the number of ones among the bits of each number."""
    highest = int(numbers.max(initial=0)).bit_length()
    return np.asarray(sum(((numbers >> bit) & 1 for bit in range(highest)), np.zeros_like(numbers)))


def encoder_for(rounds: int, dimension: int, times: int, apart: int) -> Toeplitz | Exponentials:
    """Return the recommended encoder for public sizes: the least rms error of running sums.

    >>> encoder_for(365, 3, 1, 1), encoder_for(365, 3, 52, 7).length
    (Toeplitz(rounds=365, exponent=0.5, length=None), 7)
    >>> type(encoder_for(100_000, 1, 1, 1)).__name__
    'Exponentials'
    """
    exponent, length = theory.search(rounds, times, apart)
    if rounds * dimension <= MAX_ENTRIES and rounds <= MAX_STEPS:
        return Toeplitz(rounds, exponent, None if length >= rounds else length)
    # A cut keeps its inputs, which a wide vector has no room for: powers alone are searched.
    return Exponentials.of(
        rounds, exponent if length >= rounds else theory.uncut(rounds, times, apart)
    )


MAX_ENTRIES, MAX_STEPS = 2**20, 4096
"""Sizes above which inputs are not kept: numbers in a state, and steps."""


def scaled(values: Steps, mantissa: Steps, exponent: Steps) -> Steps:
    """Return floor(m * values / 2**e) for values within 2**61 and m / 2**e below 1, 16 <= e.

    The product of the upper halves and that of the lower ones fit into 64 bits.

    >>> scaled(np.array([2**61, -3]), np.array(49152), np.array(16)).tolist() == [3 * 2**59, -3]
    True
    """
    high, low = (values >> 32) * mantissa, (values & (2**32 - 1)) * mantissa
    left = np.maximum(32 - exponent, 0)
    carried = (high << left) + (low >> (32 - left))
    return np.asarray(carried >> np.maximum(exponent - 32, 0))


def _columns(numbers: tuple[tuple[int, int], ...]) -> tuple[Steps, Steps]:
    """Mantissas and exponents as columns, to be combined with states of several entries."""
    pairs = np.array(numbers, dtype=np.int64).reshape(-1, 2)
    return pairs[:, :1], pairs[:, 1:]


@lru_cache(maxsize=64)
def _column(rounds: int, exponent: float, length: int) -> Steps:
    column = theory.numerators(theory.cut(theory.powers(rounds, exponent), length))
    column.setflags(write=False)
    return column


def _deviations(column: Floats, weights: Floats) -> Floats:
    """The norms of C^-T w, one for each row w."""
    from scipy.signal import fftconvolve

    rounds = weights.shape[1]
    inverse = theory.inverse(np.asarray(column, dtype=np.float64), rounds)
    backwards = fftconvolve(weights[:, ::-1], inverse[np.newaxis], axes=1)[:, :rounds]
    return np.asarray(np.linalg.norm(backwards, axis=1))


def _require_l2(encoder: Encoder, norm: str) -> None:
    if norm != "l2":
        raise ValueError(f"{encoder.kind} has Gaussian noise; use the tree for Laplace noise")
