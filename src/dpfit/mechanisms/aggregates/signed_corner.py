"""Signed corners: a private direction of steepest descent in the l1 ball."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpfit.core.mechanism import Run, State
from dpfit.core.problem import Minimize
from dpfit.data.dataset import Dataset
from dpfit.data.view import View
from dpfit.mechanisms.aggregates.aggregate import Aggregate
from dpfit.mechanisms.aggregates.contribution import ROUNDING, Contribution
from dpfit.noise import Grid, choices
from dpfit.privacy.event import BoundedRange, Event, Repeated

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class EntryGradient(Contribution):
    """The gradient of the loss at a public point theta, bounded in every entry.

    Only the first ``candidates`` entries are candidates for a choice: an intercept is none, and
    neither are those ``taken`` before.
    """

    problem: Minimize
    point: Floats
    candidates: int
    taken: tuple[int, ...] = ()

    @property
    def dimension(self) -> int:
        return len(self.point)

    @cached_property
    def entry_bound(self) -> float:
        """Largest absolute entry of a record's vector, before rounding to the grid.

        Margins are at most B norm_1(theta) for entries up to B, so it is B times the largest slope
        there: half of B for the logistic loss at theta = 0.
        """
        bounds, slack = self.problem.bounds, 1 + (self.dimension + 2**12) * 2.0**-50
        if bounds.row_max is None or not self.problem.loss.is_glm:
            raise ValueError("bounded entries need a generalized linear loss and row_max")
        entries = replace(bounds, row_norm=bounds.row_max, row_max=None)
        radius = float(np.abs(self.point).sum()) * slack
        # The slack covers the rounding of margins, slopes and products.
        return self.problem.loss.lipschitz(entries, radius).value * slack

    @cached_property
    def columns(self) -> Steps:
        """The columns that are left to choose from."""
        return np.setdiff1d(np.arange(self.candidates), self.taken)

    @property
    def bound(self) -> float:
        """Largest l2 norm of a record's vector; as a clip norm it changes no gradient."""
        return math.sqrt(self.dimension) * self.entry_bound * ROUNDING

    @cached_property
    def grid(self) -> Grid:
        """The grid of the sums."""
        return Grid.fitting(self.entry_bound, self.dimension, "linf")

    def sensitivity(self, relation: str) -> float:
        """Return how far one record moves an entry of the sum, rounding to the grid included."""
        one = self.entry_bound + self.grid.step / 2
        return one if relation == "add_remove" else 2 * one

    def total(self, data: Dataset, grid: Grid) -> Steps:
        guards = self.problem.guards | {"clip": self.bound}
        return data.clipped_sum(self.problem.loss, self.point, grid=grid, **guards)


@dataclass(frozen=True)
class SignedCorner(Aggregate):
    """One of the signed corners of the l1 ball, by the exponential mechanism.

    It answers a sum of gradients g by a column j and a sign s, drawn with probability proportional
    to exp(-s g_j / scale), where scale = 2 * sensitivity / epsilon_0 and epsilon_0 = 1 /
    noise_multiplier. The sign is part of the draw: a sign read off g_j would be released without
    noise. Columns that earlier answers took are candidates no more.

    Guarantee: each answer has bounded range epsilon_0; ``rounds`` adaptive answers compose.
    Sensitivity: one record moves an entry of g by L B, twice that if it is replaced, for entries of
    rows up to B and slopes up to L at margins up to B norm_1(theta).
    Reference: Dong, Durfee and Rogers (2020); docs/explanation/sparse.md, Theorem 1.
    """

    kind = "signed_corner"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sampling.sees_all:
            raise ValueError("a signed corner needs rounds that see all records; use FullBatch()")

    @property
    def event(self) -> Event:
        return Repeated(BoundedRange(1 / self.noise_multiplier), self.rounds)

    def scale(self, contribution: EntryGradient) -> float:
        """Return how many grid steps of a sum are worth a factor e, rounded up."""
        sensitivity = contribution.sensitivity(self.relation) / contribution.grid.step
        return 2 * sensitivity * self.noise_multiplier * ROUNDING

    def check_scale(self, contribution: Contribution) -> None:
        """Refuse noise that cannot be drawn, before anything is charged."""
        scale = self.scale(as_entries(contribution))
        if not scale <= 2.0**40:
            raise ValueError(f"noise_multiplier is too large to draw: {self.noise_multiplier:.3g}")

    def gaps(self, contribution: EntryGradient, data: Dataset) -> Steps:
        """Return how far each corner's score is below the best: + for all columns, then -."""
        sums = contribution.total(data, contribution.grid)[contribution.columns]
        return np.asarray(np.abs(sums).max() + np.concatenate([sums, -sums]))

    def answer(
        self, state: State, contribution: Contribution, data: View, run: Run
    ) -> tuple[State, tuple[int, float]]:
        asked = as_entries(contribution)
        drawn = choices(self.gaps(asked, data), self.scale(asked), 1, run.noise)[0]
        left = len(asked.columns)
        return state, (int(asked.columns[drawn % left]), 1.0 if drawn < left else -1.0)


def as_entries(contribution: Contribution) -> EntryGradient:
    """Return the contribution if its entries are bounded; ValueError if they are not."""
    if not isinstance(contribution, EntryGradient):
        raise ValueError(
            f"signed_corner needs bounded entries, got {type(contribution).__name__}; pass an "
            "EntryGradient"
        )
    return contribution
