"""Running sums of bounded vectors: an exact encoder, independent noise on a grid, a public decoder.

Guarantee. A unit moves the exact releases of all steps together by at most the sensitivity, along
every path of earlier releases. So all releases are one adaptive Gaussian mechanism: mu-GDP,
mu = 1 / noise_multiplier, also for inputs that are chosen from earlier releases. With the tree and
Laplace noise they are epsilon-DP, epsilon = 1 / noise_multiplier. Proofs:
docs/explanation/streams.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpfit.core.log import Log
from dpfit.core.mechanism import Run, State
from dpfit.data.view import View
from dpfit.mechanisms.aggregates.aggregate import Aggregate
from dpfit.mechanisms.aggregates.contribution import Contribution
from dpfit.mechanisms.aggregates.encoders import Encoder, Tree
from dpfit.mechanisms.aggregates.participation import admitted
from dpfit.noise import Grid, add_gaussian, add_laplace
from dpfit.noise.rounded import checked_scale
from dpfit.privacy.event import Event, Gaussian, Laplace
from dpfit.privacy.validate import integer, option, positive

Floats = NDArray[np.float64]


class NoiseScale(NamedTuple):
    """Grids of inputs and of releases, and the sensitivity of all releases together."""

    inputs: Grid
    releases: Grid
    sensitivity: float


_ONE_STEP = Tree(1)

FINER = 2
"""Bits by which the grid of inputs is finer than that of single vectors: rounding costs as much."""


@dataclass(frozen=True)
class PrefixSums(Aggregate):
    """Running sums of contributions of norm at most ``bound``.

    A unit is in at most ``times`` rounds, at least ``apart`` rounds from each other. Records are
    in one round, by their position or by arrival; users are counted in the state.

    Parameters
    ----------
    encoder : Encoder
        What is released at each step; its horizon is ``rounds``.
    bound : float
        Largest norm of what a unit adds in one round: l2, or l1 with Laplace noise.
    non_negative : bool
        Whether contributions have no negative entries: replacing a unit then moves sums by
        sqrt(2) times what adding one does, instead of twice.
    noise : {"gaussian", "laplace"}
        Laplace noise needs the tree.
    """

    kind = "prefix_sums"
    omitted: ClassVar[tuple[str, ...]] = (
        *Aggregate.omitted, "times", "apart", "non_negative", "noise"
    )  # fmt: skip
    units: ClassVar[tuple[str, ...]] = ("record", "user")
    encoder: Encoder = _ONE_STEP
    bound: float = 1.0
    times: int = 1
    apart: int = 1
    non_negative: bool = False
    noise: str = "gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("bound", self.bound)
        integer("times", self.times)
        integer("apart", self.apart)
        option("noise", self.noise, ("gaussian", "laplace"))
        if self.encoder.rounds != self.rounds:
            raise ValueError(f"encoder must be for {self.rounds} rounds, got {self.encoder.rounds}")
        if self.sampling.sees_all:
            raise ValueError(
                "sampling must put each record into one round, got all; use SinglePass() or "
                "Arriving()"
            )
        if self.per == "record" and self.times > 1:
            raise ValueError("times counts the rounds of a user; a record is in one round")
        if self.per == "user" and not self.sampling.arrives:
            raise ValueError("users are counted in records that arrive; use sampling=Arriving()")
        _ = self.encoder.norm(self.times, self.apart, self._norm)

    @property
    def event(self) -> Event:
        kind = Laplace if self.noise == "laplace" else Gaussian
        return kind(self.noise_multiplier)

    @property
    def _norm(self) -> Literal["l1", "l2"]:
        return "l1" if self.noise == "laplace" else "l2"

    def scale(self, dimension: int) -> NoiseScale:
        """Return the grids and the sensitivity, rounded up."""
        if dimension not in self._scales:
            self._scales[dimension] = self._scale(dimension)
        return self._scales[dimension]

    @cached_property
    def _scales(self) -> dict[int, NoiseScale]:
        return {}

    def _scale(self, dimension: int) -> NoiseScale:
        inputs = Grid(Grid.fitting(self.bound, dimension, self._norm).exponent - FINER)
        releases = Grid(inputs.exponent - self.encoder.bits)
        # Inputs may be sums that are rounded once. A unit that joins or leaves a batch moves its
        # rounding by at most a step, and one that is replaced moves that of two batches.
        vector = self.bound + 2 * inputs.rounding(dimension, self._norm)
        moved = vector * self.encoder.norm(self.times, self.apart, self._norm)
        rounded = releases.step * self.encoder.rounding(dimension)
        # The last factor covers the rounding errors of these lines.
        sensitivity = self._factor * (moved + rounded) * (1 + 2.0**-48)
        return NoiseScale(inputs, releases, sensitivity)

    @property
    def _factor(self) -> float:
        """How far replacing a unit moves sums, relative to adding one."""
        if self.relation == "add_remove":
            return 1.0
        # Vectors without negative entries have no negative inner product, at any two steps.
        return math.sqrt(2) if self.non_negative and self.noise == "gaussian" else 2.0

    def deviation(self, dimension: int) -> float:
        """Return the scale of the noise in each entry of a release."""
        return self.noise_multiplier * self.scale(dimension).sensitivity

    def check_scale(self, contribution: Contribution) -> None:
        """Refuse noise that cannot be drawn, before anything is charged."""
        self._check_bound(contribution)
        scale = self.scale(contribution.dimension)
        checked_scale(self.noise_multiplier * scale.sensitivity / scale.releases.step)

    def _check_bound(self, contribution: Contribution) -> None:
        if contribution.bound > self.bound:
            raise ValueError(
                f"contributions must be bounded by {self.bound}, got {contribution.bound}"
            )
        if self.non_negative and not contribution.non_negative:
            raise ValueError("contributions must have no negative entries; pass non_negative=False")

    def init(self, data: View, run: Run) -> State:
        users = {"seen": Log()} if self.per == "user" else {}
        return super().init(data, run) | users

    def answer(
        self, state: State, contribution: Contribution, data: View, run: Run
    ) -> tuple[State, Floats]:
        """Return the estimate of the running sum."""
        self._check_bound(contribution)
        encoded = state.get("encoder") or self.encoder.init(contribution.dimension)
        records = data
        if self.per == "user":
            ids = np.empty(0, dtype=object) if data.users is None else data.users
            seen, kept = admitted(state["seen"], ids, state["round"], self.times, self.apart)
            state, records = state | {"seen": seen}, data.rows(kept)  # type: ignore[assignment]
        scale = self.scale(contribution.dimension)
        inputs = contribution.total(records, scale.inputs)
        encoded, exact = self.encoder.encode(encoded, inputs)
        noisy = self._noisy(exact, scale, run)
        encoded, estimate = self.encoder.decode(encoded, noisy)
        return state | {"encoder": encoded}, estimate

    def answer_many(
        self, state: State, dimension: int, inputs: NDArray[np.int64], run: Run
    ) -> tuple[State, list[Floats]]:
        """Return the estimates after several steps, from their exact sums: one draw of noise."""
        encoded = state.get("encoder") or self.encoder.init(dimension)
        exact, counts, estimates = [], [], []
        for each in inputs:
            encoded, released = self.encoder.encode(encoded, each)
            exact.append(released)
            counts.append(len(released))
        noisy = self._noisy(np.concatenate(exact), self.scale(dimension), run)
        for released_ in np.split(noisy, np.cumsum(counts)[:-1]):
            encoded, estimate = self.encoder.decode(encoded, released_)
            estimates.append(estimate)
        return state | {"encoder": encoded, "round": state["round"] + len(inputs)}, estimates

    def _noisy(self, exact: NDArray[np.int64], scale: NoiseScale, run: Run) -> Floats:
        if self.noise == "laplace":
            return add_laplace(
                exact,
                l1_sensitivity=scale.sensitivity,
                noise_multiplier=self.noise_multiplier,
                source=run.noise,
                grid=scale.releases,
            )
        return add_gaussian(
            exact,
            l2_sensitivity=scale.sensitivity,
            noise_multiplier=self.noise_multiplier,
            source=run.noise,
            grid=scale.releases,
        )
